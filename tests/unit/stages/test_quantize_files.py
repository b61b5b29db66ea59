"""quantize: parts, runs that are cut short, and what the report says of blocks and layers."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toys import toy_importance, write_toy, write_toy_importance

from edgequant.errors import FileError
from edgequant.formats import dequantize, find
from edgequant.gguf import writer
from edgequant.gguf.reader import open_file
from edgequant.gguf.writer import open_output
from edgequant.model.imatrix_file import write_importance
from edgequant.model.overrides import Overrides
from edgequant.stages import recode
from edgequant.stages.quantize import quantize
from edgequant.stages.quantize_plan import Wish
from edgequant.stages.quantize_report import QuantizeReport

FITTING = Wish(target_bpw=4.8, overrides=Overrides(among=("Q3_K", "Q5_K")))


@pytest.fixture
def toy(tmp_path: Path, rng: np.random.Generator) -> Path:
    return write_toy(tmp_path / "toy.gguf", rng)


class Interrupting:
    """A progress that interrupts, as Ctrl-C would, when so many chunks are done."""

    def __init__(self, after: int) -> None:
        self.left = after
        self.total = 0

    def begin(self, label: str, total: int, unit: str) -> None:
        self.total = total

    def end(self) -> None: ...
    def say(self, text: str) -> None: ...
    def advance(self, amount: int, note: str = "") -> None:
        self.left -= 1
        self.total -= amount
        if self.left == 0:
            raise KeyboardInterrupt


def timeless(report: QuantizeReport) -> QuantizeReport:
    return replace(report, seconds=0.0, files=())


@pytest.mark.parametrize(
    ("goal", "part_nbytes", "files"),
    [("Q4_K_M", None, 1), ("Q4_K_M", 200_000, 4), (FITTING, 200_000, 4)],
)
def test_a_resumed_run_is_as_one_that_was_never_cut(
    tmp_path: Path, rng: np.random.Generator, toy: Path, goal: str | Wish, part_nbytes: int | None,
    files: int, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A plan by target is measured anew every time, and comes out the same."""
    monkeypatch.setattr("edgequant.stages.measure.SAMPLE_WEIGHTS", 1 << 12)
    monkeypatch.setattr(recode, "CHUNK_WEIGHTS", 20000)
    monkeypatch.setattr(writer, "SYNC_NBYTES", 30000)
    options: dict[str, Any] = {
        "type": goal, "imatrix": write_toy_importance(tmp_path / "i.gguf", rng),
        "part_nbytes": part_nbytes, "threads": 2,
    }  # fmt: skip
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    whole = quantize(toy, tmp_path / "whole" / "m.gguf", **options)
    assert len(whole.files) == files
    out = tmp_path / "cut" / "m.gguf"
    report, tries = None, 0
    measured = 0 if isinstance(goal, str) else len(whole.tensors)  # at most
    while report is None and tries < 20:
        tries += 1
        progress = Interrupting(after=measured + 15)
        try:
            report = quantize(toy, out, resume=True, progress=progress, **options)
        except KeyboardInterrupt:
            assert not any(p.name.startswith("m") for p in out.parent.iterdir())
    assert tries > 2
    assert progress.total == 0  # it announced what was left, and no more
    assert report is not None
    assert timeless(report) == timeless(whole)
    assert [Path(f).name for f in report.files] == [Path(f).name for f in whole.files]
    assert sorted(p.name for p in out.parent.iterdir()) == [Path(f).name for f in report.files]
    for ours, theirs in zip(report.files, whole.files, strict=True):
        assert Path(ours).read_bytes() == Path(theirs).read_bytes()


def test_what_a_resumed_run_must_share(
    tmp_path: Path, rng: np.random.Generator, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SYNC_NBYTES", 1000)
    out = tmp_path / "out.gguf"
    imatrix = write_toy_importance(tmp_path / "i.gguf", rng)
    options: dict[str, Any] = {"type": "Q4_K_M", "imatrix": imatrix, "resume": True}
    with pytest.raises(KeyboardInterrupt):
        quantize(toy, out, progress=Interrupting(after=8), **options)

    def is_refused(message: str, **changed: Any) -> None:
        with pytest.raises(FileError, match=f"out.gguf: cannot be resumed: its {message}"):
            quantize(toy, out, **options | changed)

    is_refused("layout", type="Q4_K_S")
    is_refused("layout", part_nbytes=500_000)
    changed = toy.stat().st_mtime_ns
    os.utime(toy, ns=(changed, changed + 1000))
    is_refused(f"input's time of change was {changed} and is now {changed + 1000}")
    os.utime(toy, ns=(changed, changed))
    is_refused("importance matrix was the one with SHA-256 .* is now none", imatrix=None)
    matrix = toy_importance(rng)
    next(iter(matrix.entries.values())).in_sum2[0, 0] += 1
    write_importance(imatrix, matrix, force=True)
    is_refused("importance matrix was the one with SHA-256 [0-9a-f]+ and is now the one with")
    assert len(list(tmp_path.glob(".edgequant-*"))) == 2
    quantize(toy, out, type="Q4_K_M")  # starts over
    assert not list(tmp_path.glob(".edgequant-*"))


def test_parts_of_an_input_are_never_the_output(tmp_path: Path, toy: Path) -> None:
    with (
        open_file(toy) as file,
        open_output(
            tmp_path / "m.gguf", file.keys, list(file.tensors.values()), part_nbytes=10**6
        ) as output,
    ):
        for name, weight in file.weights().items():
            output.append(name, weight.data)
    first, second, *_ = output.paths
    for target in (first, second):
        with pytest.raises(FileError, match="is the input"):
            quantize(first, target, type="Q8_0", force=True)
    quantize(first, tmp_path / "from-parts.gguf", type="Q8_0")
    quantize(toy, tmp_path / "from-one.gguf", type="Q8_0")
    ours, theirs = (tmp_path / f"from-{name}.gguf" for name in ("parts", "one"))
    assert ours.read_bytes() == theirs.read_bytes()


def test_a_dry_run_names_the_parts(tmp_path: Path, toy: Path) -> None:
    out = tmp_path / "out.gguf"
    wanted = quantize(toy, out, type="Q4_K_M", dry_run=True, part_nbytes=200_000).files
    assert len(wanted) == 4
    assert quantize(toy, out, type="Q4_K_M", part_nbytes=200_000).files == wanted
    assert quantize(toy, None, type="Q4_K_M", dry_run=True, part_nbytes=200_000).files == ()
    with pytest.raises(FileError, match=r"a part with only '.*' takes [\d,]+ bytes, more than"):
        quantize(toy, out, type="Q4_K_M", dry_run=True, part_nbytes=20_000)


@pytest.mark.parametrize("fmt", ["Q4_K_M", "Q8_0", "F16"])
@pytest.mark.parametrize("with_importance", [False, True])
def test_the_worst_block(
    tmp_path: Path, rng: np.random.Generator, fmt: str, with_importance: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(recode, "CHUNK_WEIGHTS", 20000)
    toy = write_toy(tmp_path / "toy.gguf", rng, "F32", experts=3)
    imatrix = write_toy_importance(tmp_path / "i.gguf", rng, experts=3) if with_importance else None
    out = tmp_path / "out.gguf"
    report = quantize(toy, out, type=fmt, imatrix=imatrix)
    sums = {}
    if imatrix is not None:
        with open_file(imatrix) as file:
            sums = {n: w.data.view("<f4") for n, w in file.weights().items()}
    with open_file(toy) as before, open_file(out) as after:
        for tensor in report.tensors:
            old, new = before.weights()[tensor.name], after.weights()[tensor.name]
            if old.type == new.type:
                assert tensor.worst is None
                continue
            x, y = (dequantize(find(w.type.name), w.data).astype(float) for w in (old, new))
            q = sums.get(f"{tensor.name}.in_sum2", np.ones((1, x.shape[1])))
            size = new.type.weights if new.type.weights > 1 else x.shape[1]
            errors = np.square(x - y).reshape(len(q), -1, x.shape[1])
            weighted = (errors * q[:, None, :]).reshape(len(x), -1, size).sum(axis=-1)
            row, block = np.unravel_index(weighted.argmax(), weighted.shape)
            assert tensor.worst is not None
            assert (tensor.worst.row, tensor.worst.block) == (row, block)
            assert tensor.worst.share == pytest.approx(weighted.max() / weighted.sum(), 1e-4)
            exact = np.sqrt(errors.reshape(len(x), -1, size)[row, block].mean())
            assert tensor.worst.rmse == pytest.approx(exact, 1e-4)


def test_layers_are_summed(tmp_path: Path, toy: Path) -> None:
    report = quantize(toy, tmp_path / "out.gguf", type="Q4_K_M")
    assert [layer.layer for layer in report.layers] == [0, 1, None]
    assert sum(layer.bytes for layer in report.layers) == report.bytes
    with open_file(toy) as file:
        infos = file.tensors
        group = [t for t in report.tensors if t.name.startswith("blk.1.")]
        assert report.layers[1].bytes == sum(t.bytes for t in group)
        weights = [infos[t.name].weights for t in group]
    errors = [t.error for t in group if t.error is not None]
    assert report.layers[1].error == pytest.approx(np.average(errors, weights=weights))
    dry = quantize(toy, None, type="Q4_K_M", dry_run=True)
    assert [layer.error for layer in dry.layers] == [None] * 3
