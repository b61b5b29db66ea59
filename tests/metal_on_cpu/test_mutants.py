"""The mechanical changes of a source, and that the parity tests see a sample of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from metal_on_cpu.library import folder, missing
from metal_on_cpu.mutants import mutants

SOURCE = """// entry add, threads 64 1 1
struct Bits
{
    uint4 head;
};

float4 decode(const Bits thread* bits, float scale)
{
    uint low = bits->head.x >> 4U;
    return float4(select(low, low & 15U, scale > 0.0)) / scale;
}

[[kernel]] void add(uint t [[thread_index_in_threadgroup]])
{
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for(uint i = t; i < columns(t, 2U); i++)
    {
        simdgroup_matrix<half, 8, 8> m = load(min(i, args->rows - 1U));
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
}
"""
WANTED = [
    ("swap in decode", "uint low = 4U >> bits->head.x;"),
    ("shift in decode", "uint low = bits->head.x >> 5U;"),
    ("swap in decode", "return scale / float4(select(low, low & 15U, scale > 0.0));"),
    ("swap in decode", "return float4(select(low & 15U,low, scale > 0.0)) / scale;"),
    ("barrier in add", ""),
    ("bound in add", "for(uint i = t; i < (columns(t, 2U)) - 1U; i++)"),
    ("bound in add", "simdgroup_matrix<half, 8, 8> m = load(min(i, args->rows));"),
    ("swap in add", "simdgroup_matrix<half, 8, 8> m = load(min(i, 1U - args->rows));"),
    ("barrier in add (2)", ""),
]


def test_every_change_is_made_once() -> None:
    made = list(mutants(SOURCE))
    assert [(f"{m.kind} in {m.place}", m.after) for m in made] == WANTED
    for mutant in made:
        lines, other = SOURCE.split("\n"), mutant.source.split("\n")
        assert [i + 1 for i, line in enumerate(lines) if line != other[i]] == [mutant.line]
        assert len(lines) == len(other)


@pytest.mark.device
@pytest.mark.metal
def test_a_sample_is_caught() -> None:
    if (why := missing()) is not None:
        pytest.skip(why)  # no clang++ for it; fails under --devices-must-run
    here = Path(__file__).parent
    said = subprocess.run(
        [sys.executable, here / "mutate.py", "--kernels", "[!h]*", "--share", "0.3",
         here.parent / "parity" / "shaders" / "test_small.py"],
        capture_output=True, text=True, check=False,
        env=os.environ | {"EDGEQUANT_METAL_CACHE": str(folder())},
    )  # fmt: skip
    assert said.returncode == 0, said.stdout + said.stderr
    assert "100.0%" in said.stdout
