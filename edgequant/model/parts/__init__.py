"""The parts that architectures are made of: frozen data, one a file, at most six fields."""
