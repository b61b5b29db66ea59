"""Recipes: what each tensor of a model becomes. llama.cpp's own answers are in tests/parity."""

import pytest

from edgequant.blocks import BLOCK_TYPES, TensorInfo
from edgequant.errors import UnsupportedError
from edgequant.model.assignment import Assignment, assign, is_quantized, kind_of, read_sizes
from edgequant.model.recipes import ALIASES, FALLBACKS, LAST_RESORT, RECIPES, find_recipe
from edgequant.model.rules import Sizes
from edgequant.model.tensors import Role


def tensors(*, layers: int = 4, columns: int = 256, tied: bool = False, ffn: int = 512,
            experts: int = 0) -> list[TensorInfo]:  # fmt: skip
    def info(name: str, *shape: int) -> TensorInfo:
        return TensorInfo(name, BLOCK_TYPES["F32" if len(shape) == 1 else "F16"], shape)

    found = [info("token_embd.weight", 1000, columns), info("output_norm.weight", columns)]
    if not tied:
        found.append(info("output.weight", 1000, columns))
    stack = (experts,) if experts else ()
    suffix = "_exps" if experts else ""
    for i in range(layers):
        found += [info(f"blk.{i}.{part}.weight", columns, columns)
                  for part in ("attn_q", "attn_k", "attn_v", "attn_output")]  # fmt: skip
        found += [info(f"blk.{i}.attn_v.bias", columns), info(f"blk.{i}.attn_norm.weight", columns)]
        found += [info(f"blk.{i}.ffn_{part}{suffix}.weight", *stack, ffn, columns)
                  for part in ("gate", "up")]  # fmt: skip
        found.append(info(f"blk.{i}.ffn_down{suffix}.weight", *stack, columns, ffn))
        if experts:
            found.append(info(f"blk.{i}.ffn_gate_inp.weight", experts, columns))
    return found


def plan(name: str, infos: list[TensorInfo], imatrix: bool = False, **sizes: object
         ) -> dict[str, Assignment]:  # fmt: skip
    layers = max(int(t.name.split(".")[1]) for t in infos if t.name.startswith("blk.")) + 1
    known = Sizes("llama", **{"layers": layers, **sizes})  # type: ignore[arg-type]
    return {a.source.name: a for a in assign(RECIPES[name], infos, known, imatrix=imatrix)}


def layers_of(found: dict[str, Assignment], part: str, fmt: str) -> list[int]:
    return [int(name.split(".")[1]) for name, a in found.items()
            if name.endswith(f"{part}.weight") and a.type.name == fmt]  # fmt: skip


def test_q4_k_m_gives_more_bits_to_the_ends_and_every_third_layer() -> None:
    found = plan("Q4_K_M", tensors(layers=12))
    assert layers_of(found, "attn_v", "Q6_K") == [0, 3, 6, 9, 10, 11]
    assert layers_of(found, "ffn_down", "Q6_K") == [0, 3, 6, 9, 10, 11]
    assert found["output.weight"].type.name == "Q6_K"
    assert found["token_embd.weight"].type.name == "Q4_K"


def test_a_tied_embedding_gets_the_outputs_type() -> None:
    assert plan("Q4_K_M", tensors(tied=True))["token_embd.weight"].type.name == "Q6_K"
    assert plan("Q8_0", tensors(tied=True))["token_embd.weight"].type.name == "Q8_0"
    assert plan("F16", tensors(tied=True))["token_embd.weight"].type.name == "F16"


@pytest.mark.parametrize("name", RECIPES)
def test_vectors_keep_their_type_and_order_is_by_layer_then_name(name: str) -> None:
    found = plan(name, tensors(layers=11)[::-1])
    assert all(a.type.name == "F32" for n, a in found.items() if "norm" in n or "bias" in n)
    names = list(found)
    assert names[:3] == ["output.weight", "output_norm.weight", "token_embd.weight"]
    assert names.index("blk.2.attn_k.weight") < names.index("blk.10.attn_k.weight")
    assert names.index("blk.2.attn_k.weight") < names.index("blk.2.attn_norm.weight")


@pytest.mark.parametrize(("columns", "expected"), [(576, "Q5_0"), (172, "F16"), (512, "Q4_K")])
def test_rows_that_do_not_divide_go_down_the_ladder(columns: int, expected: str) -> None:
    found = plan("Q4_K_M", tensors(columns=columns, ffn=512))
    query = found["blk.1.attn_q.weight"]
    assert query.type.name == expected
    assert query.fallback_from == (None if columns == 512 else "Q4_K")
    assert found["output.weight"].type.name == {576: "Q8_0", 172: "F16", 512: "Q6_K"}[columns]


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("columns", [1, 31, 32, 172, 256, 640])
def test_every_assignment_is_whole_blocks(name: str, columns: int) -> None:
    for a in plan(name, tensors(columns=columns, ffn=columns)).values():
        assert a.source.columns % a.type.weights == 0
        assert a.info.nbytes > 0


def test_the_ladder_ends() -> None:
    for wanted, step in FALLBACKS.items():
        assert BLOCK_TYPES[step].weights < BLOCK_TYPES[wanted].weights
    assert BLOCK_TYPES[LAST_RESORT].weights == 1


def test_eight_experts() -> None:
    infos = tensors(experts=8)
    found = plan("Q4_K_M", infos, experts=8)
    assert found["blk.1.attn_v.weight"].type.name == "Q8_0"
    assert found["blk.1.attn_k.weight"].type.name == "Q8_0"
    assert found["blk.1.attn_output.weight"].type.name == "Q5_K"
    assert found["blk.0.ffn_gate_inp.weight"].type.name == "F16"
    assert layers_of(found, "ffn_down_exps", "Q6_K") == [2, 3]  # 4 layers: last eighth, every third
    assert plan("Q5_K_M", infos, experts=8)["blk.1.attn_output.weight"].type.name == "Q5_K"
    assert plan("Q4_K_M", infos, experts=4)["blk.1.attn_output.weight"].type.name == "Q4_K"


def test_seventy_billion() -> None:
    infos = tensors(layers=80)
    values = {a.type.name for n, a in plan("Q4_K_M", infos, heads=64, heads_kv=8).items()
              if "attn_v.weight" in n}  # fmt: skip
    assert values == {"Q5_K", "Q6_K"}
    values = {a.type.name for n, a in plan("Q4_K_M", infos, heads=64, heads_kv=64).items()
              if "attn_v.weight" in n}  # fmt: skip
    assert values == {"Q4_K", "Q6_K"}


def test_q4_0_with_importance_spares_the_first_eighth() -> None:
    assert layers_of(plan("Q4_0", tensors(layers=16), imatrix=True), "ffn_down", "Q4_1") == [0, 1]
    assert layers_of(plan("Q4_0", tensors(layers=16)), "ffn_down", "Q4_1") == []


def test_experts_go_by_layer_where_dense_ones_go_by_visit() -> None:
    infos = [t for t in tensors(layers=16, experts=4) if not t.name.startswith("blk.0.ffn_down")]
    assert layers_of(plan("Q4_K_S", infos, experts=4), "ffn_down_exps", "Q5_K") == [1]
    infos = [t for t in tensors(layers=16) if not t.name.startswith("blk.0.ffn_down")]
    assert layers_of(plan("Q4_K_S", infos), "ffn_down", "Q5_K") == [1, 2]


@pytest.mark.parametrize(("name", "kind"), [
    ("blk.0.attn_qkv.weight", Role.ATTN_V), ("blk.0.attn_kv_b.weight", Role.ATTN_V),
    ("blk.0.ffn_down_shexp.weight", Role.FFN_DOWN), ("blk.0.ffn_down.3.weight", Role.FFN_DOWN),
    ("enc.blk.0.attn_v.weight", Role.ATTN_V), ("blk.0.attn_v.bias", Role.OTHER),
    ("per_layer_token_embd.weight", Role.EMBED), ("blk.0.ssm_in.weight", Role.OTHER),
    ("blk.0.ffn_up_exps.weight", Role.FFN_UP), ("output.weight", Role.OUTPUT),
])  # fmt: skip
def test_kinds(name: str, kind: Role) -> None:
    assert kind_of(name) is kind


@pytest.mark.parametrize(("name", "shape", "expected"), [
    ("blk.0.ssm_conv1d.weight", (4, 256), False), ("blk.0.anything.weight", (4, 256), True),
    ("blk.0.anything.scale", (4, 256), False), ("position_embd.weight", (512, 256), False),
    ("blk.0.attn_q.weight", (1, 256), False), ("blk.0.ffn_up_exps.weight", (4, 1, 256), True),
    ("v.patch_embd.weight", (4, 256), False), ("blk.0.laurel_l.weight", (4, 256), False),
])  # fmt: skip
def test_what_is_quantized(name: str, shape: tuple[int, ...], expected: bool) -> None:
    assert is_quantized(TensorInfo(name, BLOCK_TYPES["F16"], shape)) is expected


def test_sizes_from_keys() -> None:
    infos = tensors(layers=3)
    assert read_sizes({}, infos) == Sizes("", 3)
    keys = {"general.architecture": "x", "x.block_count": 5, "x.attention.head_count": [8, 4],
            "x.attention.head_count_kv": 2, "x.expert_count": 8}  # fmt: skip
    assert read_sizes(keys, infos) == Sizes("x", 5, 8, 2, 8)


def test_an_unknown_recipe_lists_those_known() -> None:
    assert find_recipe("q4_k_m") is RECIPES["Q4_K_M"]
    for alias, name in ALIASES.items():
        assert find_recipe(alias) is RECIPES[name]
    with pytest.raises(UnsupportedError, match="Q4_K_X: not a recipe") as caught:
        find_recipe("Q4_K_X")
    assert all(name in caught.value.hint for name in (*RECIPES, *ALIASES))
