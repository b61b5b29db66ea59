"""llama.cpp and gguf-py read the files of every recipe, and the two engines agree on them."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from edgequant.gguf.reader import open_file
from edgequant.model.overrides import read_overrides
from edgequant.model.recipes import RECIPES
from edgequant.shipped import shipped
from edgequant.stages.compare import compare
from edgequant.stages.convert import convert
from edgequant.stages.imatrix import collect
from edgequant.stages.perplexity import measure_perplexity
from edgequant.stages.quantize import quantize
from edgequant.stages.quantize_plan import Wish

pytestmark = pytest.mark.oracle
WISHES = {name: Wish(name) for name in RECIPES} | {
    "3.2 bits": Wish(target_bpw=3.2),
    "5 bits": Wish(target_bpw=5),
    "of a user": Wish("Q4_K_S", overrides=read_overrides(
        output="IQ4_NL", patterns=["attn_v=MXFP4", "ffn_up=TQ2_0", "ffn_down=Q5_1"],
    )),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recipes")


@pytest.fixture(scope="module")
def text() -> Path:
    return min(shipped("calibration").glob("*.txt"))


@pytest.fixture(scope="module")
def f16(folder: Path, books_6m: Path) -> Path:
    convert(str(books_6m), folder / "f16.gguf")
    return folder / "f16.gguf"


@pytest.fixture(scope="module")
def imatrix(folder: Path, f16: Path, text: Path) -> Path:
    collect(f16, folder / "i.gguf", texts=[text], device="cpu", chunks=2)
    return folder / "i.gguf"


@pytest.mark.parametrize("wish", WISHES)
def test_both_read_it(tmp_path: Path, f16: Path, imatrix: Path, text: Path, wish: str) -> None:
    out = tmp_path / "out.gguf"
    quantize(f16, out, type=WISHES[wish], imatrix=imatrix)
    cpu, llama = (
        measure_perplexity(out, text, context=128, chunks=2, device=device).perplexity
        for device in ("cpu", "llama")
    )
    assert np.log(llama) == pytest.approx(np.log(cpu), rel=0.02)  # it rounds activations
    with open_file(out) as file:
        ours = {t.name: (t.type.ggml_id, t.nbytes) for t in file.tensors.values()}
    theirs = {t.name: (t.tensor_type, t.n_bytes) for t in gguf.GGUFReader(out).tensors}
    assert theirs == ours


@pytest.mark.parametrize("recipe", ["Q4_K_M", "Q3_K_M"])
def test_a_target_of_a_mixs_size_diverges_less(
    tmp_path: Path, f16: Path, imatrix: Path, recipe: str
) -> None:
    mix, target = tmp_path / "mix.gguf", tmp_path / "target.gguf"
    quantize(f16, mix, type=recipe, imatrix=imatrix)
    size = mix.stat().st_size
    quantize(f16, target, type=Wish(target_size=size), imatrix=imatrix)
    assert target.stat().st_size <= size
    text = Path(__file__).parents[1] / "models" / "evaluation.txt"
    found = compare(f16, [mix, target], text, chunks=6, device="llama")
    theirs, ours = (candidate.kl for candidate in found.candidates)
    assert ours < theirs
