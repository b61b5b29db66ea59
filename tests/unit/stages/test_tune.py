"""tune: that it brings a model closer, what it leaves alone, and what it refuses."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from assemble import weight
from tiny_model import SIZES, write_model

from edgequant.blocks import Floats
from edgequant.errors import DeviceError, FileError, GGUFError, UnsupportedError
from edgequant.formats import find
from edgequant.gguf.reader import open_file
from edgequant.model.overrides import Overrides
from edgequant.stages import school
from edgequant.stages.compare import compare
from edgequant.stages.lesson import divergence, relative_error
from edgequant.stages.quantize import quantize
from edgequant.stages.quantize_plan import Wish
from edgequant.stages.school import FASTEST, Course
from edgequant.stages.tune import TuneReport, tune
from edgequant.stages.tuned import Pace, Tuned

WIDE = replace(SIZES, layers=1, embed=256, heads=4, heads_kv=2, head_dim=64, ffn=256)
TEXT = "".join(chr(97 + (i * i + i // 7) % 26) for i in range(700))
CONTEXT = 16
COURSE = Course(batch=2, reach=0.2)  # these models are noise, and the chunks short


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tune")
    write_model(folder / "full.gguf", sizes=WIDE)
    write_model(folder / "tied.gguf", sizes=replace(WIDE, tied=True))
    quantize(folder / "full.gguf", folder / "q2.gguf", type="Q2_K")
    (folder / "a.txt").write_text(TEXT)
    (folder / "b.txt").write_text(TEXT[::-1])
    return folder


def run(folder: Path, output: Path, *, model: str = "q2.gguf", reference: str = "full.gguf",
        **options: object) -> TuneReport:  # fmt: skip
    chosen = {"texts": [folder / "a.txt"], "context": CONTEXT, "course": COURSE} | options
    return tune(folder / model, output, reference=folder / reference, **chosen)  # type: ignore[arg-type]


def tensors(path: Path) -> dict[str, bytes]:
    with open_file(path) as file:
        return {name: weight.data.tobytes() for name, weight in file.weights().items()}


@pytest.mark.slow
def test_it_brings_a_model_closer_on_texts_it_has_not_seen(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    report = run(folder, out)
    assert report.kl_after < 0.9 * report.kl_before
    assert (report.chunks, report.held_back, report.chunk_size) == (41, 2, CONTEXT)
    assert report.steps == 21  # the last of one chunk
    assert 0.001 < report.changed < 0.5
    assert report.datasets == ("a.txt",)
    before, after = compare(
        folder / "full.gguf", [folder / "q2.gguf", out], folder / "b.txt", context=CONTEXT,
        device="cpu",
    ).candidates  # fmt: skip
    assert after.kl < 0.95 * before.kl
    assert after.bytes == before.bytes


def test_types_keys_and_the_embedding_stay(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    report = run(folder, out, chunks=5)
    with open_file(folder / "q2.gguf") as file, open_file(out) as written:
        assert file.tensors == written.tensors
        assert dict(file.values()) == dict(written.values())
    old, new = tensors(folder / "q2.gguf"), tensors(out)
    moved = {name for name in old if old[name] != new[name]}
    assert moved == set(old) - {"token_embd.weight"}
    assert report.tuned == len(moved)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run(folder, tmp_path / name, chunks=5, course=Course(batch=2, reach=0.2, seed=seed))
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_a_tied_embedding_stays_though_it_is_the_output(folder: Path, tmp_path: Path) -> None:
    quantize(folder / "tied.gguf", tmp_path / "q.gguf", type="Q3_K_S")
    report = tune(
        tmp_path / "q.gguf", tmp_path / "out.gguf", reference=folder / "tied.gguf",
        texts=[folder / "a.txt"], context=CONTEXT, chunks=5, course=Course(batch=2, reach=0.02),
    )  # fmt: skip
    old, new = tensors(tmp_path / "q.gguf"), tensors(tmp_path / "out.gguf")
    assert old["token_embd.weight"] == new["token_embd.weight"]
    assert old["output_norm.weight"] != new["output_norm.weight"]
    assert report.kl_after < report.kl_before


def test_a_format_that_cannot_be_tuned_stays(folder: Path, tmp_path: Path) -> None:
    wish = Wish("Q2_K", overrides=Overrides(patterns=(("attn_v", "Q8_0"),)))
    quantize(folder / "full.gguf", tmp_path / "q.gguf", type=wish)
    run(folder, tmp_path / "out.gguf", model=str(tmp_path / "q.gguf"), chunks=5)
    old, new = tensors(tmp_path / "q.gguf"), tensors(tmp_path / "out.gguf")
    assert old["blk.0.attn_v.weight"] == new["blk.0.attn_v.weight"]
    assert old["blk.0.attn_k.weight"] != new["blk.0.attn_k.weight"]


def test_what_has_no_levels_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"full.gguf: has no tensor .* types are F16\."):
        run(folder, tmp_path / "out.gguf", model="full.gguf")


def test_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"q2.gguf: computes otherwise than .*tied.gguf"):
        run(folder, tmp_path / "out.gguf", reference="tied.gguf")


def test_too_little_memory_is_told(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(school, "available_bytes", lambda: 10_000_000)
    with pytest.raises(DeviceError, match=r"tuning with 688 tokens takes [\d,]+ bytes; 10,000,000"):
        run(folder, tmp_path / "out.gguf")


def test_a_damaged_reference_is_told(folder: Path, tmp_path: Path) -> None:
    path = write_model(tmp_path / "nan.gguf", sizes=WIDE, damage="blk.0.ffn_up.weight")
    with pytest.raises(GGUFError, match=r"the error of the layer 0 is nan at step 1\."):
        run(folder, tmp_path / "out.gguf", reference=str(path))
    assert not (tmp_path / "out.gguf").exists()


def test_an_output_that_is_there_stays(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"a\.txt"):
        run(folder, folder / "a.txt")
    with pytest.raises(FileError, match=r"q2\.gguf"):
        run(folder, folder / "q2.gguf", force=True)


def draw(rng: np.random.Generator, *shape: int) -> Floats:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("loss", [relative_error, divergence])
def test_losses_leave_their_gradient(
    loss: Callable[[Floats, Floats], float], rng: np.random.Generator
) -> None:
    target, out = draw(rng, 3, 5), draw(rng, 3, 5)
    assert loss(target.copy(), target.copy()) == pytest.approx(0, abs=1e-6)
    slope = out.copy()
    loss(target.copy(), slope)
    for place in np.ndindex(out.shape):
        ends = []
        for change in (0.01, -0.01):
            moved = out.copy()
            moved[place] += np.float32(change)
            ends.append(loss(target.copy(), moved))
        assert slope[place] == pytest.approx((ends[0] - ends[1]) / 0.02, rel=0.02, abs=1e-4)


def test_divergence_goes_through_all_rows(rng: np.random.Generator) -> None:
    target, out = draw(rng, 9, 4), draw(rng, 9, 4)
    slope = out.copy()
    whole = divergence(target.copy(), slope)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edgequant.stages.lesson.VALUES", 8)
        assert divergence(target.copy(), out) == pytest.approx(whole, rel=1e-6)
    assert np.array_equal(slope, out)


def make_tuned(rng: np.random.Generator, fmt: str = "Q4_K") -> tuple[Tuned, Floats]:
    rows = draw(rng, 6, 512)
    return Tuned(weight("w", rows, fmt), rows), rows


def test_weights_move_against_their_gradient(rng: np.random.Generator) -> None:
    tuned, _ = make_tuned(rng)
    assert tuned.matrix.whole is not None
    first = tuned.matrix.whole.copy()
    slope = draw(rng, 6, 512)
    for step in range(1, 6):
        tuned.total[...] = slope
        for piece in tuned.pieces():
            tuned.move(piece, Pace(step, 0.2))
        assert not tuned.total.any()
    change = tuned.matrix.whole - first
    assert 0.3 < (change != 0).mean() < 0.95
    assert (change * slope <= 0).all()
    stored = tuned.data.reshape(-1).view(find("Q4_K").block)
    decoded = np.empty((12, 256), np.float32)
    find("Q4_K").decode(stored, decoded)
    assert np.array_equal(decoded.reshape(6, 512), tuned.matrix.whole)


def test_without_a_gradient_nothing_moves(rng: np.random.Generator) -> None:
    tuned, _ = make_tuned(rng)
    first = tuned.data.copy()
    for piece in tuned.pieces():
        tuned.move(piece, Pace(1, 1.0))
    assert np.array_equal(tuned.data, first)


def test_floats_move_by_a_share_of_themselves(rng: np.random.Generator) -> None:
    tuned, rows = make_tuned(rng, "F32")
    tuned.total[...] = 1
    for piece in tuned.pieces():
        tuned.move(piece, Pace(1, 0.5))
    assert tuned.matrix.whole == pytest.approx(rows - 0.01 * np.abs(rows), rel=1e-5)


def test_a_course_sees_each_chunk_as_often_as_it_says() -> None:
    batches = list(Course(passes=3, batch=4).batches([7, 8, 9, 11, 12]))
    assert [len(numbers) for _, numbers in batches] == [4, 4, 4, 3]
    assert sorted(n for _, numbers in batches for n in numbers) == sorted([7, 8, 9, 11, 12] * 3)


def test_the_steps_of_a_course_add_up_to_its_reach() -> None:
    rates = [pace.rate for pace, _ in Course(batch=1, reach=0.5).batches(range(100))]
    assert sum(rates) == pytest.approx(0.5)
    assert rates[0] < rates[5] < rates[9] == max(rates)
    assert 0 < rates[-1] < rates[50] < rates[9]
    few = [pace.rate for pace, _ in Course(batch=1, reach=0.5).batches(range(3))]
    assert max(few) == FASTEST  # as fast as it dares
