"""The GGUF file format, and nothing about models.

The reader is ours: gguf-py's wraps sizes in uint64, has no bound on dimensions and takes seconds to
list a 128k vocabulary. Everything a file says is checked with Python integers before it is used.
The writer streams: it is told all tensors first, takes their bytes in order, and renames the file
into place at the end, so that a file under its final name is whole.
"""
