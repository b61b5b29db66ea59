"""The GGUF file format, and nothing about models.

The reader is ours: gguf-py's wraps sizes in uint64, has no bound on dimensions and takes seconds to
list a 128k vocabulary. Everything a file says is checked with Python integers before it is used,
and never by `assert`, so that `python -O` checks the same.

The writer is ours too. It is told all tensors first, takes their bytes in order, and renames the
file into place at the end, so that a file under its final name is whole. `layout` decides what goes
into which file, `encode` packs heads, `draft` keeps the files until they are whole, `journal` says
after a kill what was finished, and `writer` brings them together. gguf-py's GGUFWriter
would drop empty strings and empty arrays, guess an array's type from its first item, insist on
general.architecture (an importance matrix has none) and open the final name at once; what it would
save is the fifty lines that pack a head. Tests hold both directions against gguf-py.
"""
