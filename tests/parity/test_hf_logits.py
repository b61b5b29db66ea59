"""Logits equal transformers' in float32, and gradients: tiny models of every variant, and books."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assemble import GOLDEN, assemble
from numpy.typing import NDArray

from edgequant.device.cpu import CpuDevice
from edgequant.formats.matrix import Matrix
from edgequant.graph.tape import Tape
from edgequant.model.registry import read_config

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.oracle

Logits = NDArray[np.float32]


def off(ours: Logits, theirs: Logits) -> float:
    """The largest difference, in units of the largest logit."""
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def both(
    config: dict[str, object], model: Any, tokens: NDArray[np.int32], rows: int
) -> tuple[Logits, Logits]:
    """Our logits and theirs of the last rows."""
    sources = {key: value.numpy() for key, value in model.state_dict().items()}
    architecture, h = read_config(config, "config.json")
    weights = assemble(architecture, h, sources)
    program = CpuDevice().load(architecture.record(h), weights, context=len(tokens))
    with torch.no_grad():
        theirs = model(torch.tensor(tokens[None].astype(np.int64)), logits_to_keep=rows).logits[0]
    return program.run(tokens, 0, rows=rows), theirs.numpy()


def tiny(path: Path) -> tuple[dict[str, object], Any]:
    """A golden file's config, and a live model of its parameters."""
    golden = np.load(path)
    config = json.loads(str(golden["config.json"]))
    made = transformers.AutoConfig.for_model(**config)
    model = transformers.AutoModelForCausalLM.from_config(made, dtype=torch.float32).eval()
    state = {key: torch.tensor(golden[key].astype(np.float32)) for key in model.state_dict()
             if key in golden.files}  # fmt: skip
    model.load_state_dict(state, strict=not config["tie_word_embeddings"])
    return config, model


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_tiny_models(path: Path, rng: np.random.Generator) -> None:
    config, model = tiny(path)
    tokens = rng.integers(0, 64, 60).astype(np.int32)
    assert off(*both(config, model, tokens, 60)) < 2e-5


@pytest.mark.slow
def test_llama3_beyond_8192_positions(rng: np.random.Generator) -> None:
    config, model = tiny(next(path for path in GOLDEN if path.stem == "llama3"))
    tokens = rng.integers(0, 64, 8500).astype(np.int32)
    assert off(*both(config, model, tokens, 300)) < 2e-5


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_observed_sums(path: Path, rng: np.random.Generator) -> None:
    config, model = tiny(path)
    theirs: dict[str, NDArray[np.float64]] = {}

    def hook(name: str) -> Callable[..., None]:
        def see(_module: object, inputs: tuple[Any, ...], _output: object) -> None:
            theirs[f"{name}.weight"] = np.square(inputs[0][0].numpy().astype(np.float64)).sum(0)

        return see

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(hook(name))
    tokens = rng.integers(0, 64, 60).astype(np.int32)
    with torch.no_grad():
        model(torch.tensor(tokens[None].astype(np.int64)))
    architecture, h = read_config(config, "config.json")
    sources = {key: value.numpy() for key, value in model.state_dict().items()}
    weights = assemble(architecture, h, sources)
    ours = CpuDevice().load(architecture.record(h), weights, context=60).observe(tokens, 0)
    names = {spec.name: spec.source or "" for spec in architecture.tensors(h)}
    names["token_embd.weight"] = "lm_head.weight"  # observed only if tied
    assert {names[name] for name in ours} == set(theirs)
    for name, sums in ours.items():
        assert sums.in_sum2 == pytest.approx(theirs[names[name]], rel=1e-4)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_gradients(path: Path, rng: np.random.Generator) -> None:
    config, model = tiny(path)
    texts = rng.integers(0, 64, (2, 40)).astype(np.int32)
    of_logits = rng.standard_normal((2, 40, 64)).astype(np.float32)
    logits = model(torch.tensor(texts.astype(np.int64))).logits
    (logits * torch.tensor(of_logits)).sum().backward()
    architecture, h = read_config(config, "config.json")
    weights = assemble(architecture, h, {k: v.numpy() for k, v in model.state_dict().items()})
    sources = {name: value.grad.numpy() for name, value in model.named_parameters()}
    theirs = assemble(architecture, h, sources)
    matrices = {name: Matrix(weight) for name, weight in weights.items()}
    totals = {name: np.zeros(matrix.shape, np.float32) for name, matrix in matrices.items()}
    tape = Tape(architecture.record(h).nodes, 40)
    for text, out in zip(texts, of_logits, strict=True):
        tape.forward(matrices, text)
        tape.backward(out, totals)
    assert not totals.pop("rope_freqs.weight", np.zeros(1)).any()  # it is fixed
    for name, total in totals.items():
        wanted = theirs[name].data.view(np.float32).reshape(total.shape)
        assert np.abs(total - wanted).max() < 1e-4 * np.abs(wanted).max(), name


def load(directory: Path) -> tuple[dict[str, object], Any]:
    """A checkpoint in float32."""
    auto = transformers.AutoModelForCausalLM
    model = auto.from_pretrained(directory, dtype=torch.float32).eval()
    return json.loads((directory / "config.json").read_text()), model


def test_books_6m(books_6m: Path, rng: np.random.Generator) -> None:
    config, model = load(books_6m)
    tokens = rng.integers(0, 4096, 300).astype(np.int32)
    assert off(*both(config, model, tokens, 300)) < 2e-5


@pytest.mark.shared
def test_books_54m(shared: Path, rng: np.random.Generator) -> None:
    config, model = load(shared / "models" / "books-54m")
    tokens = rng.integers(0, 16384, 300).astype(np.int32)
    assert off(*both(config, model, tokens, 300)) < 2e-5
