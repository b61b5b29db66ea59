"""How much each weight of a Llama matters: quantized alone, against what we estimate.

Each matrix in turn is replaced by its own rounding, and the KL divergence that this alone causes is
held against the noise it adds: their quotient is the sensitivity that edgequant.model.sensitivity
estimates. The forward pass is transformers' in float32, from the layer concerned onwards.

    python tests/bench/sensitivity.py CHECKPOINT --imatrix IMATRIX.gguf --text TEXT

Prints a line a tensor, as JSON, and for each role the geometric mean of measured / estimated and
its spread (standard deviation of the logarithm), in units of the feed-forward's mean. Of a perfect
estimate all means are 1 and all spreads 0.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from libggml import gguf_name
from transformers import AutoModelForCausalLM, AutoTokenizer

from edgequant.blocks import BLOCK_TYPES, Floats, TensorInfo
from edgequant.formats import dequantize, find, quantize
from edgequant.model.assignment import kind_of
from edgequant.model.imatrix_file import read_importance
from edgequant.model.sensitivity import sensitivities
from edgequant.model.tensors import Role, role_of

LENGTH = 512
FEED_FORWARD = (Role.FFN_GATE, Role.FFN_UP, Role.FFN_DOWN)


class Llama:
    """A model and the hidden states of some text before each of its layers."""

    def __init__(self, checkpoint: Path, text: str, chunks: int) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
        ids = AutoTokenizer.from_pretrained(checkpoint)(text, add_special_tokens=False).input_ids
        self.ids = torch.tensor(ids[: chunks * LENGTH]).view(chunks, LENGTH)
        self.states = [self.model.model.embed_tokens(self.ids)]
        self.places = self.model.model.rotary_emb(self.states[0], torch.arange(LENGTH)[None])
        for number in range(len(self.model.model.layers)):
            self.states.append(self.through(self.states[-1], number, number + 1))
        self.exact = self.scores(self.states[-1])

    def through(self, hidden: torch.Tensor, start: int, stop: int | None = None) -> torch.Tensor:
        for layer in self.model.model.layers[start:stop]:
            made = layer(hidden, position_embeddings=self.places)
            hidden = made[0] if isinstance(made, tuple) else made
        return hidden

    def scores(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logarithms of probabilities in the second half of each chunk."""
        normed = self.model.model.norm(hidden)[:, LENGTH // 2 :]
        return torch.log_softmax(self.model.lm_head(normed), -1)

    def divergence(self, name: str) -> float:
        """KL to the exact model, of the model as it is, which differs from it in one tensor."""
        layer = role_of(name)[1]
        if name == "token_embd.weight":
            hidden = self.through(self.model.model.embed_tokens(self.ids), 0)
        elif layer is None:
            hidden = self.states[-1]
        else:
            hidden = self.through(self.states[layer], layer)
        loss = self.exact.exp() * (self.exact - self.scores(hidden))
        return float(loss.sum(-1).mean())

    def matrices(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        for name, parameter in self.model.named_parameters():
            if parameter.ndim == 2:
                yield gguf_name(name), parameter


def energy(x: Floats, importance: Floats | None) -> float:
    """Sum of q x²."""
    squares = np.square(x, dtype=np.float64).sum(axis=0)
    return float(squares.sum() if importance is None else squares @ importance)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--imatrix", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--chunks", type=int, default=4)
    parser.add_argument("--format", default="Q4_0")
    options = parser.parse_args()
    matrix = read_importance(options.imatrix)
    llama = Llama(options.checkpoint, options.text.read_text(encoding="utf-8"), options.chunks)
    infos, energies, measured = [], {}, {}
    fmt = find(options.format)
    for name, parameter in llama.matrices():
        rows = parameter.detach().numpy().copy()
        mean = matrix.mean(name)
        q = None if mean is None else mean[0]
        rounded = dequantize(fmt, quantize(fmt, rows, q))
        noise, own = energy(rounded - rows, q), energy(rows, q)
        parameter.copy_(torch.from_numpy(rounded))
        kl = llama.divergence(name)
        parameter.copy_(torch.from_numpy(rows))
        measured[name] = kl * own / noise
        print(json.dumps({"name": name, "error": noise / own, "kl": kl}), flush=True)
        infos.append(TensorInfo(name, BLOCK_TYPES["F32"], rows.shape))
        if q is not None or name == "token_embd.weight":
            energies[name] = own if q is not None else own / len(rows)
    estimated = sensitivities(infos, energies)
    ratios = defaultdict(list)
    for name, value in measured.items():
        ratios[kind_of(name)].append(np.log(value / estimated[name]))
    unit = np.mean([ratio for kind in FEED_FORWARD for ratio in ratios[kind]])
    for kind, found in ratios.items():
        print(f"{kind.value}: {np.exp(np.mean(found) - unit):.2f}, spread {np.std(found):.2f}")


if __name__ == "__main__":
    with torch.no_grad():
        main()
