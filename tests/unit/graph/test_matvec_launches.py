"""Which mat-vec kernel a linear layer gets, over how many workgroups."""

from dataclasses import replace

import pytest

from edgequant.blocks import BLOCK_TYPES
from edgequant.errors import UnsupportedError
from edgequant.graph.kernels import matvec
from edgequant.graph.kernels.compiled import INTEGERS
from edgequant.graph.kernels.linear import Linear
from edgequant.graph.launch import Call, Kind, Limits


def call(fmt: str, tokens: int = 1, *, lanes: int = 32, dot: bool = True) -> Call:
    limits = Limits(lanes, 1024, 1 << 15, 1 << 30, None, dot)
    types = (BLOCK_TYPES[fmt],) * 2
    return Call(tokens, 1, 512, 512, types, BLOCK_TYPES["F16"], limits, ((tokens, 4096),))


@pytest.mark.parametrize("lanes", [8, 16, 32, 64])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("fmt", ["Q4_K", "Q6_K", "F16"])
@pytest.mark.parametrize("rows", [1, 31, 1024, 4096, 14336, 128256, 1 << 20])
def test_every_row_has_a_team(fmt: str, rows: int, gated: bool, lanes: int) -> None:
    linear = Linear(4096, rows, gated=gated)
    multiply = matvec.launches(call(fmt, lanes=lanes), linear)[-1]
    threads, team, is_gated, paired, *rounds = multiply.constants
    assert rounds == ([0] if fmt in INTEGERS else [])
    assert threads % team == 0
    assert team % lanes == 0
    assert is_gated == gated
    each = threads // team * (1 + paired)
    x, y, z = multiply.workgroups
    assert x <= matvec.GRID_X
    assert rows <= x * y * each < rows + x * each
    assert z == 1


@pytest.mark.parametrize(("tokens", "groups"), [(2, 1), (4, 1), (5, 2), (8, 2)])
def test_several_tokens_in_groups(tokens: int, groups: int) -> None:
    rounding, multiply = matvec.launches(call("Q4_K", tokens), Linear(4096, 64))
    assert multiply.kernel == "matvec_i8_q4_k_4"
    assert multiply.workgroups[2] == groups
    (made,) = (o for o in rounding.operands if o.writes)
    assert (made.kind, made.tag, made.nbytes) == (Kind.DERIVED, "q8", tokens * 4096 * 3 // 2)


def test_integers_only_where_they_pay() -> None:
    linear = Linear(4096, 64)
    kernels = [
        [launch.kernel for launch in matvec.launches(asked, linear)]
        for asked in (call("Q6_K"), call("Q6_K", dot=False), call("F16"))
    ]
    assert kernels == [["quantize_activations", "matvec_i8_q6_k"], ["matvec_q6_k"], ["matvec_f16"]]


def test_format_without_a_kernel() -> None:
    with pytest.raises(UnsupportedError, match="IQ2_XXS: no GPU kernel decodes") as caught:
        matvec.launches(call("IQ2_XXS"), Linear(4096, 64))
    assert "Q4_K" in caught.value.hint


@pytest.mark.parametrize("lanes", [8, 16, 32, 64])
@pytest.mark.parametrize("fmt", ["Q4_K", "Q6_K"])
@pytest.mark.parametrize("rows", [64, 1024, 4096, 14336])
def test_rows_that_are_rounded_make_a_workgroup(fmt: str, rows: int, lanes: int) -> None:
    asked = call(fmt, lanes=lanes)
    gated = replace(asked, wants=(matvec.quantized(1, rows, -1, writes=True),))
    for given, linear, tag in (
        (asked, Linear(4096, rows, residual=True, after=True), "norm"),
        (gated, Linear(4096, rows, gated=True), "q8"),
    ):
        multiply = matvec.launches(given, linear)[-1]
        threads, team, _, paired, rounds = multiply.constants
        assert rounds
        assert team % lanes == 0
        assert threads <= 1024
        assert threads // team * (1 + paired) == matvec.BLOCK
        assert multiply.workgroups == (rows // matvec.BLOCK, 1, 1)
        (made,) = (o for o in multiply.operands if o.kind is Kind.DERIVED and o.writes)
        assert (made.index, made.tag) == (-1, tag)


def test_what_cannot_be_rounded_is_left_to_others() -> None:
    wants = (matvec.quantized(1, 40, -1, writes=True),)
    (*_, multiply) = matvec.launches(replace(call("Q4_K"), wants=wants), Linear(4096, 40))
    assert multiply.constants[-1] == 0  # 40 rows are not whole workgroups of 16
    wants = (matvec.quantized(2, 64, -1, writes=True),)
    (*_, multiply) = matvec.launches(replace(call("Q4_K", 2), wants=wants), Linear(4096, 64))
    assert multiply.constants[-1] == 0


@pytest.mark.parametrize("asked", [call("Q4_K", 2), call("Q4_K", dot=False), call("F16")])
def test_norms_of_several_tokens_or_in_floats_are_a_bug(asked: Call) -> None:
    for linear in (Linear(4096, 64, before=1e-5), Linear(4096, 64, after=True)):
        with pytest.raises(ValueError, match="one token in integers"):
            matvec.launches(asked, linear)
