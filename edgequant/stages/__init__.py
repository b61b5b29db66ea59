"""One verb a file: typed arguments in, a frozen report out. Stages never print and never exit.

Each stage reads the previous stage's file, never its objects, so that any stage can be replaced by
llama.cpp's and the rest still works.
"""
