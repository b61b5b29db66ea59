"""How much a model's output suffers from relative noise in each of its weights.

Quantizing a weight W adds noise to its output y = W x. With importance q, the mean square of each
input, the noise has E|dy|² = sum q (x - x̂)² over the weights, of E|y|² = sum q x²: their ratio is
the relative noise r, comparable between tensors and formats. A small KL divergence is quadratic in
the noise, and noises of different weights are independent, so a file's divergence is about

    KL = sum over tensors of s r,

where s, a tensor's sensitivity, is what this module estimates, up to a common factor. (s measured
for each of books-54m's 85 tensors alone predicts 0.0155 nats for llama.cpp's Q4_K_M of it; 0.0152
to 0.0159 is what it has.)

Attention and feed-forward write into the residual stream, which grows from layer to layer, and all
later layers see it normalised. So relative noise in what a layer writes counts by the share of that
in the stream: |write|² over the sum of all writes so far, both known from sum q x² of the matrices
that write. Measured against it, s follows the share, but less than in proportion: in first layers a
few tokens (sinks) hold most of the energy and little of the text. The square root fits best over
both models below. What stands before a write (q, k, v; gate, up) counts by the same share, and each
role by a factor of its own:

    measured s over root of share, geometric mean over layers, feed-forward = 1
               q     k     v     o     gate  up    down  embedding  output
    books-6m   0.38  0.73  2.7   1.7   1.0   0.84  1.2   6.5 (which is the output, too)
    books-54m  0.20  0.29  0.84  0.70  1.1   0.78  1.2   2.1        9.5

(Each tensor alone in Q4_0, 4 chunks of 512 tokens of calibration text; tests/bench/sensitivity.py.)
With the factors below, files of a recipe's size chosen by this sum, the recipe's own file, and the
KL divergence of both to F16 on held-out text, through llama.cpp:

                Q2_K   Q3_K_M  Q4_K_S  Q4_K_M  3.5 bits
    books-54m   0.079  0.0265          0.0100  0.0726
    the recipe  0.201  0.0525          0.0143
    books-6m    0.183  0.0689  0.0314  0.0286  0.2506
    the recipe  0.488  0.1072  0.0406  0.0392

(16 and 40 chunks; books-54m's Q3_K_M has 4.2 bits per weight. Q5_K_M's size was last measured with
fewer formats: 0.0044 for 0.0046, and 0.0112 for 0.0123.) Measured s instead of estimated ones would
save another 3 to 9% there by the sum; at 3.5 bits a model is no longer linear in the noise (of
books-54m's embedding it takes 2.8 times as much as s says), and what they save is 0 to 4%.

It does not know formats, or how errors are measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

from edgequant.blocks import TensorInfo
from edgequant.model.assignment import in_order, is_tied, kind_of
from edgequant.model.tensors import Role, role_of

# Of noise in a role's output, beside the share of what its layer writes.
FACTORS: Mapping[Role, float] = {
    Role.ATTN_Q: 0.3, Role.ATTN_K: 0.5, Role.ATTN_V: 1.5, Role.ATTN_OUTPUT: 1.0,
    Role.FFN_GATE: 1.0, Role.FFN_UP: 0.8, Role.FFN_DOWN: 1.2,
}  # fmt: skip
EMBED, OUTPUT, TIED = 2.0, 8.0, 6.5
_ATTENTION = (Role.ATTN_Q, Role.ATTN_K, Role.ATTN_V, Role.ATTN_OUTPUT)
# Shares where they cannot be known: without importance, or where norms scale what is written.
ATTENTION_SHARE, FEED_FORWARD_SHARE = 0.08, 0.18
_POST_NORMS = ("post_attention_norm", "post_ffw_norm")


@dataclass(frozen=True)
class Shares:
    """Of the residual stream after it: what a layer's attention and its feed-forward write."""

    attention: float = ATTENTION_SHARE
    feed_forward: float = FEED_FORWARD_SHARE


def sensitivities(tensors: Sequence[TensorInfo], energies: Mapping[str, float]) -> dict[str, float]:
    """Estimate every weight's sensitivity.

    Args:
        tensors: all of the model's.
        energies: E|y|² of the weights whose input's importance is known, a token and matrix, and
            the mean square length of a row of the embedding; empty where nothing is known.

    Returns:
        By name, > 0, in one unit for the whole model.
    """
    tied = is_tied(tensors)
    shares = _shares(tensors, energies)
    found = {}
    for info in tensors:
        kind = kind_of(info.name)
        if kind is Role.EMBED:
            found[info.name] = TIED if tied else EMBED
        elif kind is Role.OUTPUT:
            found[info.name] = OUTPUT
        else:
            of_layer = shares.get(role_of(info.name)[1], Shares())
            share = of_layer.attention if kind in _ATTENTION else of_layer.feed_forward
            found[info.name] = FACTORS.get(kind, 1.0) * sqrt(share)
    return found


def _shares(
    tensors: Sequence[TensorInfo], energies: Mapping[str, float]
) -> dict[int | None, Shares]:
    """Follow the residual stream through the layers; nothing where it cannot be followed."""
    if any(part in info.name for info in tensors for part in _POST_NORMS):
        return {}
    written: dict[int, dict[Role, float]] = {}
    stream = 0.0
    for info in in_order(tensors):
        kind, layer = kind_of(info.name), role_of(info.name)[1]
        if kind is Role.EMBED and layer is None:
            stream += energies.get(info.name, 0.0)
        elif kind in (Role.ATTN_OUTPUT, Role.FFN_DOWN) and layer is not None:
            if info.name not in energies:
                return {}
            writes = written.setdefault(layer, {})
            writes[kind] = writes.get(kind, 0.0) + energies[info.name]
    shares: dict[int | None, Shares] = {}
    for layer, writes in sorted(written.items()):
        attention, feed_forward = writes.get(Role.ATTN_OUTPUT, 0), writes.get(Role.FFN_DOWN, 0)
        stream += attention
        share = attention / stream if stream else 0
        stream += feed_forward
        shares[layer] = Shares(
            share or ATTENTION_SHARE,
            (feed_forward / stream if stream else 0) or FEED_FORWARD_SHARE,
        )
    return shares
