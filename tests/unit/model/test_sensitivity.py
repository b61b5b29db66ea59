"""Sensitivity: a tensor counts by its role, and by its layer's share of the residual stream."""

import pytest

from edgequant.blocks import BLOCK_TYPES, TensorInfo
from edgequant.model.sensitivity import (
    ATTENTION_SHARE,
    EMBED,
    FEED_FORWARD_SHARE,
    OUTPUT,
    TIED,
    sensitivities,
)

PARTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def tensors(*more: str, layers: int = 3, tied: bool = False) -> list[TensorInfo]:
    names = ["token_embd.weight", *more, *([] if tied else ["output.weight"])]
    names += [f"blk.{i}.{part}.weight" for i in range(layers) for part in PARTS]
    return [TensorInfo(name, BLOCK_TYPES["F16"], (256, 256)) for name in names]


def energies(infos: list[TensorInfo], **of: float) -> dict[str, float]:
    return {info.name: of.get(info.name.split(".")[-2], 1.0) for info in infos}


def test_roles_differ_and_the_output_counts_most() -> None:
    infos = tensors()
    found = sensitivities(infos, energies(infos))
    assert found.keys() == {info.name for info in infos}
    layer = {part: found[f"blk.1.{part}.weight"] for part in PARTS}
    assert layer["attn_v"] > layer["attn_output"] > layer["attn_k"] > layer["attn_q"] > 0
    assert layer["ffn_down"] > layer["ffn_gate"] > layer["ffn_up"]
    assert found["output.weight"] == OUTPUT > found["token_embd.weight"] == EMBED
    assert max(layer.values()) < OUTPUT


def test_a_tied_embedding_counts_as_the_output_that_it_is() -> None:
    assert sensitivities(tensors(tied=True), {})["token_embd.weight"] == TIED > EMBED


def test_shares_are_of_all_that_was_written_before() -> None:
    infos = tensors(layers=2)
    known = energies(infos, token_embd=1, attn_output=1, ffn_down=2)
    found = sensitivities(infos, known)
    # the stream has 1, 2 after attention, 4 after the first layer; then 5 and 7
    for name, share in (("blk.0.attn_output", 1 / 2), ("blk.1.attn_output", 1 / 5)):
        assert found[f"{name}.weight"] == pytest.approx(share**0.5)
    for name, share in (("blk.0.ffn_gate", 2 / 4), ("blk.1.ffn_gate", 2 / 7)):
        assert found[f"{name}.weight"] == pytest.approx(share**0.5)


@pytest.mark.parametrize("more", [(), ("blk.0.post_ffw_norm.weight",)])
def test_what_cannot_be_followed_counts_alike_in_all_layers(more: tuple[str, ...]) -> None:
    """Without importance, and where norms scale what a layer writes."""
    infos = tensors(*more)
    found = sensitivities(infos, energies(infos) if more else {})
    assert {found[f"blk.{i}.attn_output.weight"] for i in range(3)} == {ATTENTION_SHARE**0.5}
    assert {found[f"blk.{i}.ffn_gate.weight"] for i in range(3)} == {FEED_FORWARD_SHARE**0.5}


def test_unknown_names_and_silent_layers_still_count() -> None:
    infos = [*tensors(), TensorInfo("blk.1.ssm_in.weight", BLOCK_TYPES["F16"], (8, 256))]
    found = sensitivities(infos, energies(infos, ffn_down=0, attn_output=0, token_embd=0))
    assert all(value > 0 for value in found.values())
