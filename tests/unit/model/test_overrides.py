"""Overrides: what a user says of types, and slips in it."""

from typing import Any

import pytest

from edgequant.blocks import BLOCK_TYPES, TensorInfo
from edgequant.errors import UnsupportedError
from edgequant.model.overrides import NOTHING, Overrides, check_overrides, read_overrides


def test_the_first_pattern_that_is_found_decides() -> None:
    said = read_overrides(patterns=[r"blk\.1\.ffn=q8_0", "ffn_down=Q6_K", "a=b=F16"])
    assert said.patterns == ((r"blk\.1\.ffn", "Q8_0"), ("ffn_down", "Q6_K"), ("a=b", "F16"))
    chosen = [said.choose(f"blk.{i}.ffn_down.weight", embed=False, output=False) for i in (1, 2)]
    assert chosen == ["Q8_0", "Q6_K"]
    assert said.choose("blk.2.attn_q.weight", embed=False, output=False) is None


def test_the_embedding_comes_before_the_output_and_both_before_patterns() -> None:
    said = Overrides(output="Q8_0", embedding="Q5_K", patterns=(("", "Q4_0"),))
    assert said.choose("token_embd.weight", embed=True, output=True) == "Q5_K"
    assert said.choose("output.weight", embed=False, output=True) == "Q8_0"
    assert said.choose("blk.0.attn_q.weight", embed=False, output=False) == "Q4_0"
    tied = Overrides(output="Q8_0")
    assert tied.choose("token_embd.weight", embed=True, output=True) == "Q8_0"
    assert NOTHING.choose("token_embd.weight", embed=True, output=True) is None


@pytest.mark.parametrize("said", [
    {"output": "Q9"}, {"embedding": "iq1_s"}, {"patterns": ["x=Q9"]},
    {"among": "Q4_K,Q9"}, {"among": ""},
])  # fmt: skip
def test_an_unknown_type_lists_those_known(said: dict[str, Any]) -> None:
    """Formats that are only read are not among them."""
    with pytest.raises(UnsupportedError, match=": not a format that edgequant can write") as caught:
        read_overrides(**said)
    assert "Q4_K" in caught.value.hint
    assert "IQ1_S" not in caught.value.hint


@pytest.mark.parametrize("typed", ["Q4_K", "=Q4_K", ""])
def test_a_pattern_without_a_part(typed: str) -> None:
    with pytest.raises(UnsupportedError, match="not of the form REGEX=TYPE"):
        read_overrides(patterns=[typed])


def test_a_broken_pattern() -> None:
    with pytest.raises(UnsupportedError, match=r"'\(a' is no regular expression: missing \)"):
        read_overrides(patterns=["(a=Q4_K"])


def test_contrary_wishes() -> None:
    with pytest.raises(UnsupportedError, match="--keep-output asks for the output as it is"):
        read_overrides(output="Q8_0", keep_output=True)


def test_a_pattern_that_names_nothing() -> None:
    infos = [TensorInfo("blk.0.attn_q.weight", BLOCK_TYPES["F16"], (8, 256))]
    check_overrides(read_overrides(patterns=["attn_q=Q8_0"]), infos, "m.gguf")
    with pytest.raises(
        UnsupportedError, match=r"m\.gguf: --tensor-type 'atn_q=Q8_0' matches none of its 1 weights"
    ) as caught:
        check_overrides(read_overrides(patterns=["attn=Q8_0", "atn_q=Q8_0"]), infos, "m.gguf")
    assert "blk.0.attn_q.weight" in caught.value.hint
