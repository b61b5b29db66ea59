"""quantize under a target, and what a user says of some tensors."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toys import toy_arrays, toy_keys, write_model, write_toy, write_toy_importance

from edgequant.blocks import BLOCK_TYPES, TensorInfo, Weight
from edgequant.errors import GGUFError, ImatrixError, UnsupportedError
from edgequant.formats import dequantize, find, names
from edgequant.formats import quantize as encode
from edgequant.gguf.reader import open_file
from edgequant.gguf.writer import open_output
from edgequant.model.overrides import Overrides, read_overrides
from edgequant.model.recipes import RECIPES
from edgequant.model.sensitivity import sensitivities
from edgequant.stages.measure import Trial, fitting_formats, measure
from edgequant.stages.quantize import quantize
from edgequant.stages.quantize_plan import Wish
from edgequant.stages.quantize_report import QuantizeReport

pytestmark = pytest.mark.slow  # some 20 s together: every plan measures every format

SIZES: dict[str, Any] = {"layers": 3, "tied": False, "kv": 64, "ffn": 256}


@pytest.fixture
def toy(tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("edgequant.stages.measure.SAMPLE_WEIGHTS", 1 << 12)
    return write_toy(tmp_path / "toy.gguf", rng, **SIZES)


@pytest.fixture
def imatrix(tmp_path: Path, rng: np.random.Generator) -> Path:
    return write_toy_importance(tmp_path / "i.gguf", rng, **SIZES)


def types(report: QuantizeReport) -> dict[str, str]:
    return {t.name: t.type for t in report.tensors}


@pytest.mark.parametrize("bits", [2.9, 3.5, 4.8, 6, 9.3])
def test_never_more_bits_than_asked_and_few_less(
    tmp_path: Path, toy: Path, imatrix: Path, bits: float
) -> None:
    out = tmp_path / "out.gguf"
    report = quantize(toy, out, type=Wish(target_bpw=bits), imatrix=imatrix)
    assert bits - 0.25 < report.bits_per_weight <= bits
    assert report.recipe == f"mix of at most {bits:g} bits per weight"
    dry = quantize(toy, None, type=Wish(target_bpw=bits), imatrix=imatrix, dry_run=True)
    assert types(dry) == types(report)
    with open_file(out) as file:
        assert {name: t.type.name for name, t in file.tensors.items()} == types(report)
        weights: Counter[str] = Counter()
        for info in file.tensors.values():
            weights[info.type.name] += info.weights
        most = max(weights, key=lambda n: weights[n])
        kinds = {RECIPES[n].file_type for n in RECIPES if RECIPES[n].default == most}
        kinds |= {RECIPES[most].file_type} if most in RECIPES else set()
        assert file.value("general.file_type", int) in kinds


@pytest.mark.parametrize("part_nbytes", [None, 150_000])
def test_never_a_larger_file_than_asked(
    tmp_path: Path, toy: Path, imatrix: Path, part_nbytes: int | None
) -> None:
    for size in (500_000, 700_123, 1_000_001):
        out = tmp_path / f"{size}.gguf"
        wish = Wish(target_size=size)
        report = quantize(toy, out, type=wish, imatrix=imatrix, part_nbytes=part_nbytes)
        written = sum(Path(path).stat().st_size for path in report.files)
        assert size * 0.95 < written <= size


def test_more_bits_lose_less(toy: Path, tmp_path: Path, imatrix: Path) -> None:
    lost = []
    for bits in (3, 4, 5, 6, 7):
        out = tmp_path / f"{bits}.gguf"
        report = quantize(toy, out, type=Wish(target_bpw=bits), imatrix=imatrix)
        lost.append(sum(t.error or 0 for t in report.tensors))
    assert lost == sorted(lost, reverse=True)


def test_everything_is_kept_if_there_is_room(toy: Path, imatrix: Path) -> None:
    report = quantize(toy, None, type=Wish(target_bpw=17), imatrix=imatrix, dry_run=True)
    assert all(t.type == t.source_type for t in report.tensors)


def test_a_target_below_the_smallest(tmp_path: Path, toy: Path) -> None:
    out = tmp_path / "out.gguf"
    with pytest.raises(
        UnsupportedError,
        match=r"the smallest possible is 2\.\d{3} bits a weight, more than the 2\.05",
    ):
        quantize(toy, out, type=Wish(target_bpw=2.05))
    with pytest.raises(
        UnsupportedError, match=r"the smallest possible is ([\d,]+) bytes, more than the 250,000"
    ) as caught:
        quantize(toy, out, type=Wish(target_size=250_000))
    least = int(caught.value.what.split("possible is ")[1].split(" bytes")[0].replace(",", ""))
    quantize(toy, out, type=Wish(target_size=least))
    assert out.stat().st_size == least
    with pytest.raises(UnsupportedError, match=f"possible is {least:,} bytes"):
        quantize(toy, out, type=Wish(target_size=least - 1), force=True)


def test_without_importance_it_says_so(toy: Path) -> None:
    report = quantize(toy, None, type=Wish(target_bpw=5), dry_run=True)
    assert report.notes[0].startswith("Without an importance matrix")


def test_what_a_user_names_is_no_longer_free(toy: Path, imatrix: Path) -> None:
    said = read_overrides(embedding="Q8_0", patterns=["attn_q=Q2_K"], keep_output=True)
    wish = Wish(target_bpw=5.5, overrides=said)
    found = types(quantize(toy, None, type=wish, imatrix=imatrix, dry_run=True))
    assert found["token_embd.weight"] == "Q8_0"
    assert found["output.weight"] == "F16"
    assert {found[f"blk.{i}.attn_q.weight"] for i in range(3)} == {"Q2_K"}


def test_a_user_says_among_which_formats_to_choose(toy: Path, imatrix: Path) -> None:
    wish = Wish(target_bpw=4, overrides=read_overrides(among="q2_k, Q3_K,Q6_K"))
    report = quantize(toy, None, type=wish, imatrix=imatrix, dry_run=True)
    assert {t.type for t in report.tensors if t.error is not None} <= {"Q2_K", "Q3_K", "Q6_K"}
    assert 3.7 < report.bits_per_weight <= 4
    wish = Wish(target_bpw=2.5, overrides=wish.overrides)
    with pytest.raises(UnsupportedError, match=r"the smallest possible is 2\.6\d\d bits a weight"):
        quantize(toy, None, type=wish, imatrix=imatrix, dry_run=True)


def test_what_layers_write_is_known_also_where_it_is_not_free(
    toy: Path, imatrix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[set[str]] = []

    def spy(infos: Sequence[TensorInfo], energies: Mapping[str, float]) -> dict[str, float]:
        known.append(set(energies))
        return sensitivities(infos, energies)

    monkeypatch.setattr("edgequant.stages.quantize_target.sensitivities", spy)
    said = read_overrides(patterns=[r"blk\.0\.ffn_down=Q8_0"])
    for wish in (Wish(target_bpw=5), Wish(target_bpw=5, overrides=said)):
        quantize(toy, None, type=wish, imatrix=imatrix, dry_run=True)
    assert known[0] == known[1]


@pytest.mark.parametrize("embed", [288, 36])
def test_rows_that_fit_no_superblock(tmp_path: Path, rng: np.random.Generator, embed: int) -> None:
    arrays = {"blk.0.a.weight": rng.standard_normal((64, embed)),
              "blk.0.b.weight": rng.standard_normal((64, 256))}  # fmt: skip
    source = write_model(tmp_path / "x.gguf", arrays, {"general.architecture": "x"}, "F32")
    for among in (None, "Q4_K,Q6_K,Q8_0"):  # of which rows of 36 fill none, and those of 288 one
        wish = Wish(target_bpw=12, overrides=read_overrides(among=among))
        report = quantize(source, tmp_path / "out.gguf", type=wish, force=True)
        assert report.bits_per_weight <= 12
        assert all(t.error is None or t.error < 0.01 for t in report.tensors)


def test_experts(tmp_path: Path, rng: np.random.Generator) -> None:
    source = write_toy(tmp_path / "toy.gguf", rng, experts=9)
    imatrix = write_toy_importance(tmp_path / "i.gguf", rng, experts=9)
    report = quantize(source, tmp_path / "o.gguf", type=Wish(target_bpw=4.5), imatrix=imatrix)
    assert 4.3 < report.bits_per_weight <= 4.5


def test_a_weight_that_is_no_number_is_named(tmp_path: Path, rng: np.random.Generator) -> None:
    arrays = toy_arrays(rng)
    arrays["blk.1.ffn_up.weight"][:, 7] = np.nan
    source = write_model(tmp_path / "toy.gguf", arrays, toy_keys(), "F32")
    with pytest.raises(GGUFError, match=r"'blk.1.ffn_up.weight': the weight at row \d+, column 7"):
        quantize(source, None, type=Wish(target_bpw=5), dry_run=True)


@pytest.mark.parametrize(("wish", "message"), [
    (Wish(), r"no type: one of --type, --target-size, --target-bpw decides"),
    (Wish("Q4_K_M", target_bpw=4), "--type and --target-bpw: one of"),
    (Wish(target_size=1, target_bpw=4), "--target-size and --target-bpw: one of"),
    (Wish("Q4_K_M", overrides=Overrides(among=("Q4_K",))), "--target-formats: --type Q4_K_M"),
    (Wish(target_bpw=0), "--target-bpw 0: not a number of bits between 0 and 64"),
    (Wish(target_bpw=float("nan")), "--target-bpw nan: not a number of bits"),
    (Wish(target_bpw=4, overrides=Overrides(pure=True)), "--pure asks for one format"),
    (Wish("Q4_K_M", overrides=Overrides(patterns=(("nope", "Q8_0"),))), "matches none of its 23"),
    (Wish(target_bpw=5, overrides=Overrides(patterns=(("nope", "Q8_0"),))), "matches none"),
    (Wish("Q4_K_M", overrides=Overrides(output="IQ1_S")), "IQ1_S, which edgequant cannot write"),
])  # fmt: skip
def test_wishes_that_cannot_be_fulfilled(toy: Path, wish: Wish, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        quantize(toy, None, type=wish, dry_run=True)


def test_what_needs_importance_is_refused_without(toy: Path, tmp_path: Path, imatrix: Path) -> None:
    with pytest.raises(
        ImatrixError, match=r"Q2_K_S makes \d+ tensors Q2_K whose importance is not known: blk\.0"
    ):
        quantize(toy, tmp_path / "out.gguf", type="Q2_K_S")
    quantize(toy, tmp_path / "out.gguf", type="Q2_K_S", imatrix=imatrix)


@pytest.mark.parametrize("first", ["Q8_0", "Q3_K_M"])
def test_rounding_twice_must_be_asked_for_and_is_noted(
    tmp_path: Path, toy: Path, first: str
) -> None:
    once, twice = tmp_path / "once.gguf", tmp_path / "twice.gguf"
    quantize(toy, once, type=first)
    with pytest.raises(UnsupportedError, match=r"would become Q.*; rounding twice") as caught:
        quantize(once, twice, type="Q4_K_S")
    assert "--allow-requantize" in caught.value.hint
    report = quantize(once, twice, type=Wish("Q4_K_S", allow_requantize=True))
    (note,) = report.notes
    assert "rounded a second time: " in note
    query = next(t for t in report.tensors if t.name == "blk.1.attn_q.weight")
    assert query.error is not None
    with open_file(once) as before, open_file(twice) as after:
        x = dequantize(find(query.source_type), before.weights()[query.name].data)
        np.testing.assert_array_equal(encode(find("Q4_K"), x), after.weights()[query.name].data)
    assert f"{query.name} ({query.source_type})" in note or "more" in note


def test_formats_that_are_only_read_can_be_requantized(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    only_read = sorted(set(names(encoded=False)) - set(names()))
    assert only_read
    infos = [TensorInfo(f"{n}.weight", BLOCK_TYPES[n], (4, 256)) for n in only_read]
    path = tmp_path / "x.gguf"
    with open_output(path, {"general.architecture": "x"}, infos) as output:
        for info in infos:
            output.append(info.name, np.zeros((4, info.nbytes // 4), np.uint8))
    report = quantize(path, tmp_path / "o.gguf", type=Wish("Q4_K_S", allow_requantize=True))
    assert {t.type for t in report.tensors} == {"Q4_K"}


@pytest.mark.parametrize("matrices", [1, 20])
def test_a_sample_measures_like_the_whole(rng: np.random.Generator, matrices: int) -> None:
    x = rng.standard_normal((matrices * 600, 256), np.float32)
    q = (10 ** rng.uniform(-1, 1, (matrices, 256))).astype(np.float32)
    info = TensorInfo("a.weight", BLOCK_TYPES["F32"], (matrices, 600, 256))
    weight = Weight(info, x.view(np.uint8))
    trial = Trial(weight, ("Q4_K", "Q8_0"), q, "here")
    sample = measure(trial)
    each = x.reshape(matrices, 600, 256).astype(np.float64)
    assert sample.energy == pytest.approx(np.mean(np.sum(each**2 * q[:, None], (1, 2))), rel=0.1)
    for name in ("Q4_K", "Q8_0"):
        lost = 0.0
        for m, weighing in zip(each, q, strict=True):
            rows = m.astype(np.float32)
            back = dequantize(find(name), encode(find(name), rows, weighing))
            lost += np.sum((back - m) ** 2 * weighing) / np.sum(m**2 * weighing)
        assert sample.errors[name] == pytest.approx(lost / matrices, rel=0.1)
    assert measure(trial) == sample


@pytest.mark.parametrize(("columns", "count"), [(256, 10), (32, 6), (31, 1), (640, 6)])
def test_formats_fill_the_rows(columns: int, count: int) -> None:
    found = fitting_formats(columns)
    assert len(found) == count
    assert all(columns % BLOCK_TYPES[name].weights == 0 for name in found)
