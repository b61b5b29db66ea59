"""The step record: the few bytes through which one recording serves every step.

The host writes it before a step; while tokens chain on the device, the sampling kernel does:
`past` and `drawn` go up by one a token. `make shaders` prints the layout as `lib/step.slang`.
"""

import numpy as np

STEP = np.dtype(
    [
        ("past", "<u4"),  # tokens already in the KV cache
        ("tokens", "<u4"),  # of this step: how many of the recording's bucket count, at least 1
        ("rows", "<u4"),  # the last tokens whose logits are wanted, 1..tokens
        ("drawn", "<u4"),  # tokens sampled since the host wrote the record; counts the noise too
        ("seed", "<u4"),
        ("temperature", "<f4"),  # <= 0 is greedy
        ("top_k", "<u4"),  # 0 keeps all
        ("top_p", "<f4"),  # 1 keeps all
        ("min_p", "<f4"),  # 0 keeps all
        ("padding", "<u4", 3),
    ]
)
_KINDS = {"u": "uint", "f": "float"}


def slang() -> str:
    """Return the record as Slang source."""
    lines = ["struct Step", "{"]
    for name in STEP.names or ():
        kind, shape = STEP[name].base, STEP[name].shape
        length = "".join(f"[{n}]" for n in shape)
        lines.append(f"    {_KINDS[kind.kind]} {name}{length};")
    return "\n".join((*lines, "};", ""))
