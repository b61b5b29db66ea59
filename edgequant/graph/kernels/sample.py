"""argmax and sample_token: from logits to the token that feeds the next step; no op of a graph."""

from edgequant.graph.launch import Arguments, Call, Kind, Launch, Operand

RING = 256  # tokens the output holds: token number `drawn` is at drawn % RING
NOT_FINITE = 0xFFFFFFFF  # stands in the ring instead of a token where a logit is not finite

CHUNKS = 1024  # at most, as in the shaders
CHUNK = 512  # logits of a chunk: a multiple of it

ARGMAX = Arguments(
    "ArgmaxArgs", (("logits", "float"), ("chunks", "uint4")), (("vocab", "uint"), ("chunk", "uint"))
)
SAMPLE = Arguments(
    "SampleArgs",
    (
        ("logits", "float"),
        ("chunks", "uint4"),
        ("step", "Step"),
        ("token", "uint"),
        ("ring", "uint"),
    ),
    (("vocab", "uint"), ("chunk", "uint")),
)


def launches(call: Call) -> tuple[Launch, ...]:
    """Return the launches that choose a token from input 0, the logits (1, vocab).

    How is in the step record. The token goes to TOKENS and to the output, a ring of `RING` uint32;
    `past` and `drawn` of the record are raised by one.
    """
    vocab = call.inputs[0][-1]
    chunk = CHUNK * -(-vocab // (CHUNK * CHUNKS))
    count = -(-vocab // chunk)
    sizes = ARGMAX.pack(vocab=vocab, chunk=chunk)
    logits = Operand(Kind.INPUT)
    found = Operand(Kind.SCRATCH, reads=False, writes=True, nbytes=16 * count)
    chosen = (
        logits,
        Operand(Kind.SCRATCH, nbytes=16 * count),
        Operand(Kind.STEP, writes=True),
        Operand(Kind.TOKENS, reads=False, writes=True),
        Operand(Kind.OUTPUT, reads=False, writes=True),
    )
    threads = 1 << (min(call.limits.workgroup, 1024).bit_length() - 1)
    return (
        Launch("argmax", (logits, found), sizes, (count, 1, 1)),
        Launch("sample_token", chosen, sizes, (1, 1, 1), (threads,)),
    )
