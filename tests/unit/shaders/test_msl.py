"""Slang's MSL made readable: what is rewritten, and what must be left as it is."""

import pytest
from msl import readable
from msl.statements import tidy
from msl.tree import Block


def tidied(*statements: "str | list[object]") -> Block:
    body: Block = list(statements)  # type: ignore[arg-type]
    tidy(body)
    return body


def loop(condition: str, *body: "str | list[object]") -> tuple["str | list[object]", ...]:
    return "for(;;)", [f"if({condition})", [], "else", ["break;"], *body]


def test_a_loop_gets_its_start_condition_and_step() -> None:
    body = tidied("uint i_0 = t_0;", *loop("i_0 < n_0", "f_0(i_0);", "i_0 = i_0 + 4U;"))
    assert body == ["for(uint i_0 = t_0; i_0 < n_0; i_0 += 4U)", ["f_0(i_0);"]]


def test_few_rounds_are_unrolled() -> None:
    body = tidied("uint i_0 = 0U;", *loop("i_0 < 4U", "f_0(i_0);", "i_0 = i_0 + 1U;"))
    assert body == ["#pragma unroll", "for(uint i_0 = 0U; i_0 < 4U; i_0++)", ["f_0(i_0);"]]
    for step, few in ((8, True), (1, False)):
        rounds = loop("i_0 < 64U", "f_0(i_0);", f"i_0 = i_0 + {step}U;")
        assert ("#pragma unroll" in tidied("uint i_0 = 0U;", *rounds)) == few


def test_a_counter_that_is_read_afterwards_outlives_its_loop() -> None:
    step = "i_0 = i_0 + 1U;"
    body = tidied("uint i_0 = 0U;", *loop("p_0[i_0] > x_0", step), "return i_0;")
    assert body[:2] == ["uint i_0;", "for(i_0 = 0U; p_0[i_0] > x_0; i_0++)"]


def test_loops_that_share_a_counter_get_one_each() -> None:
    step = "i_0 = i_0 + 1U;"
    first, second = (loop(f"i_0 < {n}", f"f_0({n});", step) for n in ("n_0", "m_0"))
    body = tidied("uint i_0 = 0U;", *first, "i_0 = 0U;", *second)
    assert [body[0], body[2]] == [f"for(uint i_0 = 0U; i_0 < {n}; i_0++)" for n in ("n_0", "m_0")]


def test_what_counts_before_a_continue_is_the_step_too() -> None:
    step = "i_0 = i_0 + 1U;"
    body = tidied(
        "uint i_0 = 0U;", *loop("i_0 < n_0", "if(c_0)", [step, "continue;"], "f_0(i_0);", step)
    )
    assert body == ["for(uint i_0 = 0U; i_0 < n_0; i_0++)", ["if(c_0)", ["continue;"], "f_0(i_0);"]]


@pytest.mark.parametrize(
    "body",
    [
        ("if(c_0)", ["continue;"], "f_0(i_0);", "i_0 = i_0 + 1U;"),  # one way does not count
        ("f_0(i_0);", "i_0 = i_0 * 2U + 1U;"),
        ("i_0 = i_0 + k_0;", "k_0 = 1U;"),  # the step changes after it was taken
    ],
)
def test_a_loop_that_counts_otherwise_is_a_while(body: tuple["str | list[object]", ...]) -> None:
    assert tidied("uint i_0 = 0U;", *loop("i_0 < n_0", *body)) == [
        "uint i_0 = 0U;", "while(i_0 < n_0)", list(body),
    ]  # fmt: skip


def test_a_start_is_not_moved_past_what_changes_it() -> None:
    step = "i_0 = i_0 + 1U;"
    body = tidied("uint i_0 = k_0;", "k_0 = 5U;", *loop("i_0 < n_0", "f_0(i_0);", step))
    assert body[:3] == ["uint i_0 = k_0;", "k_0 = 5U;", "for(; i_0 < n_0; i_0++)"]


def test_a_loop_that_runs_once_is_a_block() -> None:
    assert tidied("for(;;)", ["f_0(1U);", "break;"]) == [["f_0(1U);"]]
    leaves = ["if(c_0)", ["break;"], "f_0(1U);", "break;"]
    assert tidied("for(;;)", list(leaves)) == ["for(;;)", leaves]


def test_choices_are_expressions() -> None:
    assert tidied("uint a_0;", "if(c_0)", ["a_0 = 1U;"], "else", ["a_0 = b_0;"]) == [
        "uint a_0 = c_0 ? 1U : b_0;"
    ]
    assert tidied("bool a_0;", "if(c_0)", ["a_0 = d_0 || e_0;"], "else", ["a_0 = false;"]) == [
        "bool a_0 = c_0 && (d_0 || e_0);"
    ]
    assert tidied("bool a_0;", "if(c_0)", ["a_0 = true;"], "else", ["a_0 = d_0;"]) == [
        "bool a_0 = c_0 || d_0;"
    ]
    two = ["if(c_0)", ["a_0 = 1U;", "b_0 = 2U;"], "else", ["a_0 = 3U;", "b_0 = 4U;"]]
    assert tidied(*two) == two


def test_a_value_goes_straight_to_its_variable_unless_that_is_read_between() -> None:
    assert tidied("float a_0 = s_0 + 1.0;", "i_0 = i_0 + 1U;", "s_0 = a_0;") == [
        "s_0 = s_0 + 1.0;", "i_0 = i_0 + 1U;",
    ]  # fmt: skip
    read = ["float a_0 = s_0 + 1.0;", "f_0(s_0);", "s_0 = a_0;"]
    assert tidied(*read) == read


def test_nothing_moves_across_a_call_that_stands_beside_it() -> None:
    assert tidied("float a_0 = f_0(&x_0);", "return a_0;") == ["return f_0(&x_0);"]
    both = ["float a_0 = x_0;", "y_0 = f_0(&x_0) + a_0;"]
    assert tidied(*both) == both


def test_names_lose_their_numbers_where_one_is_meant() -> None:
    source = (
        "constant bool fc_GATED_0 [[function_constant(2)]];\n"
        "constant bool GATED_0 = is_function_constant_defined(fc_GATED_0) ? fc_GATED_0 : false;\n"
        "struct Args_0\n{\n    uint rows_0;\n    uint thread_0;\n};\n\n"
        "uint twice_0(uint rows_1)\n{\n    return rows_1 * 2U;\n}\n\n"
        "[[kernel]] void k(Args_0 constant* args_1 [[buffer(0)]])\n{\n"
        "    uint row_0 = (&args_2)->rows_0;\n    uint row_1 = twice_0(row_0) + ((row_0));\n"
        "    uint _S7 = g(row_0, row_1);\n    h(_S7, args_1->thread_0, int(3));\n    return;\n}\n"
    )
    assert readable(source) == (
        "constant uint fc_GATED [[function_constant(2)]];\n"
        "constant bool GATED = is_function_constant_defined(fc_GATED) ? fc_GATED != 0U : false;\n"
        "struct Args\n{\n    uint rows;\n    uint thread_1;\n};\n\n"
        "uint twice(uint rows)\n{\n    return rows * 2U;\n}\n\n"
        "[[kernel]] void k(Args constant* args [[buffer(0)]])\n{\n"
        "    uint row = args_1.rows;\n    uint row_1 = twice(row) + (row);\n"
        "    uint t1 = g(row, row_1);\n    h(t1, args->thread_1, 3);\n}\n\n"
    )


def test_select_is_a_choice_by_a_scalar() -> None:
    chosen = "select(a_0, select(0U, g(b_0, 1U), c_0), d_0 < 2U)"
    source = f"uint4 f_0(bool c_0)\n{{\n    return {chosen};\n}}\n"
    assert "return (d < 2U) ? (c ? (g(b, 1U)) : 0U) : a;" in readable(source)


def test_matrices_are_in_plain_arrays_and_products_may_be_fused_with_sums() -> None:
    source = (
        "#include <metal_stdlib>\n#include <metal_math>\nusing namespace metal;\n\n"
        "void f_0()\n{\n    thread array<simdgroup_matrix<half, int(8), int(8)>, int(2)> a_0;\n"
        "    thread array<array<simdgroup_matrix<float, int(8), int(8)>, int(4)>, int(2)> s_0;\n}\n"
    )
    assert readable(source) == (
        "#include <metal_stdlib>\nusing namespace metal;\n#pragma clang fp contract(fast)\n"
        "void f()\n{\n    simdgroup_matrix<half, 8, 8> a[2];\n"
        "    simdgroup_matrix<float, 8, 8> s[2][4];\n}\n\n"
    )
