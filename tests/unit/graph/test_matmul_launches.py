"""Which tile and how many splits a linear layer with many tokens gets."""

from dataclasses import replace

import numpy as np
import pytest

from edgequant.blocks import BLOCK_TYPES
from edgequant.errors import UnsupportedError
from edgequant.graph.kernels import matmul
from edgequant.graph.kernels.linear import Linear
from edgequant.graph.launch import Call, Kind, Launch, Limits

LARGE = Limits(
    subgroup=32,
    workgroup=1024,
    shared_bytes=48 << 10,
    max_alloc_bytes=1 << 32,
    cooperative_matrix=(16, 16, 16),
    integer_dot=True,
)


def launched(
    rows: int,
    columns: int,
    tokens: int,
    *,
    fmt: str = "Q4_K",
    limits: Limits = LARGE,
    exact: bool = False,
    **fused: bool,
) -> tuple[Launch, ...]:
    kind = BLOCK_TYPES[fmt]
    weights = (kind, kind) if fused.get("gated") else (kind,)
    call = Call(
        tokens=tokens,
        rows=1,
        context=tokens,
        capacity=tokens,
        weights=weights,
        cache=BLOCK_TYPES["F16"],
        limits=limits,
        inputs=((tokens, columns),),
        exact=exact,
    )
    return matmul.launches(call, Linear(columns, rows, **fused))


@pytest.mark.parametrize(
    ("rows", "columns", "tokens", "gated", "kernel", "workgroups"),
    [
        (4096, 4096, 512, False, "matmul_q4_k_16x128", (4, 32, 1)),
        (4096, 14336, 512, False, "matmul_q4_k_16x128", (4, 32, 1)),
        (14336, 4096, 512, True, "matmul_q4_k_16x128", (4, 224, 1)),
        (1024, 4096, 512, False, "matmul_q4_k_16x64", (8, 16, 1)),
        (14336, 4096, 64, True, "matmul_q4_k_16x64", (1, 448, 1)),
        (4096, 4096, 64, False, "matmul_q4_k_16x64", (1, 64, 1)),
        (1024, 4096, 64, False, "matmul_q4_k_16x64", (1, 16, 6)),
        (4096, 4096, 65, False, "matmul_q4_k_16x64", (2, 64, 1)),
        (32768, 4096, 65, False, "matmul_q4_k_16x128", (1, 256, 1)),
        (64, 512, 9, False, "matmul_q4_k_16x64", (1, 1, 1)),
    ],
)
def test_tiles_fill_a_large_gpu(
    rows: int,
    columns: int,
    tokens: int,
    gated: bool,
    kernel: str,
    workgroups: tuple[int, int, int],
) -> None:
    multiply = launched(rows, columns, tokens, gated=gated)[1]
    assert (multiply.kernel, multiply.workgroups) == (kernel, workgroups)


def test_splits_are_told_and_added() -> None:
    _, multiply, add = launched(1024, 4096 + 256, 64, bias=True, residual=True)
    splits = multiply.workgroups[2]
    *_, told, adds_bias, adds_residual, _, _ = np.frombuffer(multiply.scalars, np.uint32)
    assert splits > 1
    assert (told, adds_bias, adds_residual) == (splits, 0, 0)
    assert tuple(np.frombuffer(add.scalars, np.uint32)) == (1024, 64, splits, 1, 1)
    (parts,) = (o for o in multiply.operands if o.kind is Kind.SCRATCH)
    assert parts.nbytes == 4 * splits * 64 * 1024
    assert [o.kind for o in add.operands][:1] == [Kind.SCRATCH]


@pytest.mark.parametrize(
    "limits",
    [
        {"cooperative_matrix": None},
        {"cooperative_matrix": (8, 16, 16)},
        {"subgroup": 64},
        {"shared_bytes": 16 << 10},
    ],
)
def test_a_gpu_that_no_tile_suits_multiplies_floats(limits: dict[str, object]) -> None:
    (only,) = launched(100, 256, 70, limits=Limits(**{**vars(LARGE), **limits}))  # type: ignore[arg-type]
    assert (only.kernel, only.workgroups) == ("matmul_tiled_q4_k", (2, 2, 1))


def test_small_matrices_have_a_tile_by_the_lanes_that_share_them() -> None:
    for lanes, kernel, workgroups in ((32, "8x64", (2, 3, 1)), (8, "8x16", (5, 9, 1))):
        limits = replace(LARGE, cooperative_matrix=(8, 8, 8), subgroup=lanes)
        multiply = launched(130, 256, 70, limits=limits)[1]
        assert (multiply.kernel, multiply.workgroups) == (f"matmul_q4_k_{kernel}", workgroups)


def test_exact_activations_are_not_halved() -> None:
    (only,) = launched(4096, 4096, 512, exact=True)
    assert only.kernel == "matmul_tiled_q4_k"


def test_a_format_without_a_kernel_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="TQ1_0: no GPU kernel"):
        launched(64, 256, 64, fmt="TQ1_0")


def test_activations_are_rounded_once_for_all_that_read_them() -> None:
    first, second = (launched(rows, 100, 64, fmt="F16")[0] for rows in (64, 128))
    assert first == second
    assert first.operands[-1].nbytes == 2 * 64 * 128  # 100 columns up to 128
