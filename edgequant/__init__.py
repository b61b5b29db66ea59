"""edgequant: a Hugging Face checkpoint, in 4 bits, on the GPU you have.

The map, by the language each folder speaks (imports point downward only; a contract says so):

    cli         words: commands, options, tables; the only folder that prints
    stages      files: convert, imatrix, quantize, generate, perplexity, compare, bench, inspect
    runtime     token ids: a model on a device, sampling, chat templates
    model       tensors and roles: what an architecture is, without weights or devices
    device      buffers: cpu (NumPy, the meaning), llama (llama.cpp), and the GPUs
    graph       ops and values: a forward pass as data
    formats     blocks: Q4_K and its kin, encode and decode
    gguf        bytes: the file format, and nothing about models
    source      Hugging Face names: checkpoints, shards, the Hub
    tokenizer   text: from GGUF keys to ids and back
    blocks      the values that the layers hand to each other
"""

__version__ = "0.1.0"
