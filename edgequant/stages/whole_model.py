"""A whole model in miniature on a device, against NumPy: what a self-test of single kernels leaves.

Its weights are random and its sizes small, but every op of a Llama is in it: embedding, norms,
rope, KV cache, attention over more than one block, and the kernel that chooses tokens.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np

from edgequant.blocks import TensorInfo, Weight, Weights
from edgequant.device import open_device
from edgequant.device.protocol import Generator, Program, Sampling, Tokens
from edgequant.formats import find, quantize
from edgequant.model.architecture import Architecture
from edgequant.model.hparams import HParams
from edgequant.model.registry import by_name

SIZES = HParams(
    layers=2, embed=128, heads=4, heads_kv=2, head_dim=64, ffn=256, vocab=320,
    context=128, norm_epsilon=1e-5, rope_base=10000.0,
)  # fmt: skip
PREFILL, DECODE = 70, 4  # tokens
# Of the squares of the logits, as a share of NumPy's: activations rounded to int8 cost some 1e-4,
# a wrong kernel about 1.
ALLOWED = 1e-2
NEAR = 1e-3  # of the largest logit: so much apart, either of two tokens may be chosen


def try_whole_model(name: str) -> str | None:
    """Run the model on a device, by its name; return what is wrong, or None.

    Raises:
        DeviceError: it cannot be run at all.
    """
    architecture = by_name("llama")
    graph, weights = architecture.record(SIZES), _random_weights(architecture)
    tokens = np.random.default_rng(2).integers(0, SIZES.vocab, PREFILL + DECODE).astype(np.int32)
    reference = open_device("cpu").load(graph, weights, context=SIZES.context)
    program = open_device(name).load(graph, weights, context=SIZES.context)
    try:
        return _differs(program, reference, tokens) or _chooses_wrongly(program)
    finally:
        program.close()
        reference.close()


def _differs(program: Program, reference: Program, tokens: Tokens) -> str | None:
    """Compare logits: of the first tokens at once, and of the rest one by one."""
    single = [(f"token {n + 1}", tokens[n : n + 1], n) for n in range(PREFILL, len(tokens))]
    for what, fed, past in (("prefill", tokens[:PREFILL], 0), *single):
        found, right = (one.run(fed, past, rows=len(fed)) for one in (program, reference))
        error = np.sum((found - right) ** 2, dtype=float) / np.sum(right**2, dtype=float)
        if not error <= ALLOWED:
            return f"{what}: error {error:.1e}"
    return None


def _chooses_wrongly(program: Program) -> str | None:
    """Let the device choose tokens greedily; say where one is not the likeliest."""
    if not isinstance(program, Generator):
        return None
    chosen = [1, *program.generate(1, 0, DECODE, Sampling(temperature=0))]
    for past, (fed, drawn) in enumerate(pairwise(chosen)):
        (logits,) = program.run(np.array([fed], np.int32), past)
        if not logits[drawn] >= logits.max() - NEAR * np.abs(logits).max():
            return f"{drawn} was chosen as token {past + 1}, not {logits.argmax()}"
    return None


def _random_weights(architecture: Architecture) -> Weights:
    rng = np.random.default_rng(1)
    found = {}
    for spec in architecture.tensors(SIZES):
        matrix = len(spec.shape) == 2
        fmt = find("Q8_0" if matrix else "F32")
        info = TensorInfo(spec.name, fmt.type, spec.shape)
        scale, middle = (0.08, 0) if matrix else (0.1, 1)
        content = rng.standard_normal((info.rows, info.columns), np.float32) * scale + middle
        found[spec.name] = Weight(info, quantize(fmt, content.astype(np.float32)))
    return Weights(Path(), (), found)
