"""Which kernels attention and the cache get: by tokens, context, heads, cache and GPU."""

from dataclasses import replace

import pytest

from edgequant.blocks import BLOCK_TYPES
from edgequant.errors import UnsupportedError
from edgequant.graph.kernels import attention
from edgequant.graph.launch import Call, Kind, Launch, Limits, Operand
from edgequant.graph.ops.attention import Attention
from edgequant.graph.ops.rotate_attend import RotateAttend
from edgequant.graph.ops.rotate_store import RotateStore
from edgequant.graph.ops.store_kv import StoreKV

LIMITS = Limits(32, 1024, 49152, 1 << 32, cooperative_matrix=(16, 16, 16), integer_dot=True)
PLAIN = replace(LIMITS, cooperative_matrix=None)


def call(
    tokens: int = 1, context: int = 512, cache: str = "F16", limits: Limits = LIMITS,
    weights: tuple[str, ...] = (), wants: tuple[Operand, ...] = (), columns: int = 4096,
) -> Call:  # fmt: skip
    types = tuple(BLOCK_TYPES[name] for name in weights)
    inputs = ((tokens, columns), (tokens, columns), (tokens, columns))
    return Call(tokens, 1, context, 8192, types, BLOCK_TYPES[cache], limits, inputs, wants=wants)


def kernels(launches: tuple[Launch, ...]) -> list[str]:
    return [launch.kernel for launch in launches]


def rotate(head_dim: int = 128, *, norms: float | None = None) -> RotateStore:
    return RotateStore(3, 32, 8, head_dim, 1e4, interleaved=True, norms=norms)


def test_tokens_and_context_choose_the_kernel() -> None:
    op = Attention(3, 32, 8, 128)
    assert kernels(op.launch(call(1, 512))) == ["attention_f16"]
    assert kernels(op.launch(call(8, 1024))) == ["attention_f16", "attention_merge"]
    assert kernels(op.launch(call(9))) == ["attention_matrix_f16_16x128"]
    assert kernels(op.launch(call(9, cache="Q8_0"))) == ["attention_matrix_q8_0_16x128"]
    assert kernels(op.launch(call(9, cache="F32"))) == ["attention_tiled_f32"]
    assert kernels(op.launch(call(9, limits=PLAIN))) == ["attention_tiled_f16"]
    assert kernels(Attention(3, 8, 8, 256).launch(call(9))) == ["attention_tiled_f16_wide"]
    assert kernels(Attention(3, 8, 8, 192).launch(call(9, cache="F32"))) == ["attention_tiled_f32"]


def test_small_matrices_are_shared_by_as_many_lanes_as_there_are() -> None:
    small = replace(LIMITS, cooperative_matrix=(8, 8, 8))
    (apple,) = Attention(3, 32, 8, 128).launch(call(64, limits=small))
    assert (apple.kernel, apple.workgroups) == ("attention_matrix_f16_8x128_lanes32", (8, 8, 1))
    few = replace(small, subgroup=8)
    assert kernels(Attention(3, 32, 8, 64).launch(call(64, limits=few))) == [
        "attention_matrix_f16_8x64"
    ]
    assert kernels(Attention(3, 32, 8, 128).launch(call(64, limits=few))) == ["attention_tiled_f16"]


def test_one_token_is_rotated_stored_and_attended_in_one_launch() -> None:
    op = RotateAttend(rotate())
    assert kernels(op.launch(call())) == ["attention_f16"]
    assert kernels(op.launch(call(2))) == ["rotate_store_f16", "attention_f16"]
    both = op.launch(call(64))
    assert kernels(both) == ["rotate_store_f16", "attention_matrix_f16_16x128"]
    (made,) = (o for o in both[0].operands if o.kind is Kind.SCRATCH)
    assert (made.reads, made.writes, made.nbytes) == (False, True, 4 * 64 * 4096)
    assert both[1].operands[0] == replace(made, reads=True, writes=False)


def test_only_what_stores_writes_the_cache() -> None:
    def written(launches: tuple[Launch, ...]) -> set[Kind]:
        return {o.kind for launch in launches for o in launch.operands if o.writes}

    caches = {Kind.KEYS, Kind.VALUES}
    assert not written(Attention(3, 32, 8, 128).launch(call())) & caches
    assert written(StoreKV(3, 8, 128).launch(call())) == caches
    assert written(rotate().launch(call())) == {*caches, Kind.OUTPUT}
    assert written(RotateAttend(rotate()).launch(call())) == {*caches, Kind.OUTPUT}


@pytest.mark.parametrize("shape", [(32, 8, 128), (32, 32, 64), (14, 2, 64), (8, 1, 256)])
@pytest.mark.parametrize("tokens", [1, 8])
def test_a_longer_context_is_split_more_and_fills_a_large_gpu(
    shape: tuple[int, int, int], tokens: int
) -> None:
    op, before = Attention(0, *shape), 0
    for context in (512, 1024, 4096, 32768, 131072):
        launches = op.launch(call(tokens, context))
        grid = launches[0].workgroups
        assert grid[0] * grid[1] * grid[2] < 2 * max(attention.BUSY, grid[1] * grid[2])
        if context == 512:
            assert grid[0] == 1
        scratch = sum(o.nbytes for o in launches[0].operands if o.kind is Kind.SCRATCH)
        assert scratch >= before
        before = scratch
    assert grid[0] * grid[1] * grid[2] >= attention.BUSY / 2


def test_workgroups_are_smaller_where_the_context_is_split() -> None:
    op = Attention(3, 32, 8, 128)
    threads = [op.launch(call(1, context))[0].constants[0] for context in (512, 4096)]
    assert threads == [32 * attention.SUBGROUPS, 32 * attention.SUBGROUPS_SPLIT]


def test_what_is_wanted_beside_the_result_is_written_once() -> None:
    q8 = Operand(Kind.DERIVED, -1, reads=False, writes=True, nbytes=6144, tag="q8")
    half = replace(q8, tag="half")
    op = Attention(3, 32, 8, 128)
    for tokens, context, wanted in ((1, 512, q8), (1, 4096, q8), (64, 512, half)):
        launches = op.launch(call(tokens, context, wants=(q8, half)))
        found = [o for launch in launches for o in launch.operands if o.kind is Kind.DERIVED]
        assert found == [wanted]
    assert all(
        o.kind is not Kind.DERIVED
        for launch in Attention(3, 4, 2, 40).launch(call(wants=(q8,)))
        for o in launch.operands
    )


@pytest.mark.parametrize(
    ("op", "at", "message"),
    [
        (Attention(0, 4, 2, 20), call(), "heads of 20 values; a GPU takes multiples of 8"),
        (Attention(0, 4, 2, 264), call(), "heads of 264 values; .* up to 256 with a KV cache"),
        (StoreKV(0, 2, 200), call(cache="F32"), "heads of 200 values; .* up to 192 .* in F32"),
        (Attention(0, 4, 2, 80), call(cache="Q8_0"), "a KV cache in Q8_0 takes multiples of 32"),
        (rotate(norms=1e-6), call(weights=("F16", "F32")), "a norm or frequencies in F16"),
        (RotateAttend(rotate(norms=1e-6)), call(weights=("F32", "F16")), "frequencies in F16"),
    ],
)
def test_what_no_kernel_takes_is_refused(
    op: Attention | StoreKV | RotateStore | RotateAttend, at: Call, message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message) as caught:
        op.launch(at)
    assert caught.value.hint.startswith("use --")
