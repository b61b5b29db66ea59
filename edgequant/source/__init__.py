"""Hugging Face checkpoints: a directory or a Hub id becomes one mapping of lazy tensors.

Shards are read through `safetensors`, by row slices. This folder knows Hugging Face's files and
names, and nothing of GGUF or of what a tensor is for.
"""
