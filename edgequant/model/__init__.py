"""What a model is, without weights and without devices.

An architecture is a value made of parts; it lists its tensors and records its graph. Convert, the
NumPy forward, the imatrix collector, the recipes and the GPU engines all read that one value. A
part has at most six fields: the seventh is a new part.
"""
