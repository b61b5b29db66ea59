"""The architectures, one a file, found by scanning this package. They do not import each other."""
