"""Processes that share out work: order, errors, ends."""

import os
import signal
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from toys import write_toy

from edgequant.blocks import Weight
from edgequant.errors import DeviceError, GGUFError
from edgequant.gguf.reader import open_file
from edgequant.stages import quantize as stage
from edgequant.stages.quantize import quantize
from edgequant.stages.workers import AHEAD, Workers


def slower_first(item: int, unit: float) -> tuple[int, int]:
    time.sleep(unit * (item % 3 == 0))
    return item, os.getpid()


def refuse(item: int) -> int:
    if item == 3:
        raise GGUFError("a.gguf: is broken.", hint="mend it.")
    return item


def stumble(item: int) -> float:
    return 1 / item


def total(weight: Weight) -> int:
    return int(weight.data.sum(dtype=np.int64))


def end(item: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("count", [1, 3])
def test_results_come_in_order_from_as_many_processes(count: int) -> None:
    with Workers(count) as workers:
        for _ in range(2):
            done = list(workers.in_order(partial(slower_first, unit=0.02), range(20)))
            assert [(item, result[0]) for item, result in done] == [(i, i) for i in range(20)]
            assert len({result[1] for _, result in done}) == count
    assert (os.getpid() in {result[1] for _, result in done}) is (count == 1)


def test_items_are_taken_as_results_are() -> None:
    taken = []
    with Workers(2) as workers:
        results = workers.in_order(refuse, (taken.append(i) or i for i in range(100, 200)))
        next(results)
        assert len(taken) == 2 * AHEAD + 1


@pytest.mark.parametrize("count", [1, 2])
def test_an_error_is_raised_in_its_items_turn_and_the_next_work_goes_well(count: int) -> None:
    with Workers(count) as workers:
        results = workers.in_order(refuse, range(9))
        assert [next(results) for _ in range(3)] == [(0, 0), (1, 1), (2, 2)]
        with pytest.raises(GGUFError, match=r"^a.gguf: is broken\.\nHint: mend it\.") as caught:
            next(results)
        assert caught.value.hint == "mend it."
        with pytest.raises(ZeroDivisionError):
            list(workers.in_order(stumble, [0]))
        assert [result for _, result in workers.in_order(refuse, [7, 8])] == [7, 8]


def test_a_bug_says_where_it_was() -> None:
    with Workers(2) as workers, pytest.raises(ZeroDivisionError) as caught:
        list(workers.in_order(stumble, [0]))
    assert "in stumble" in caught.value.__notes__[0]


def test_a_process_that_is_killed_is_told_of() -> None:
    with Workers(2) as workers, pytest.raises(DeviceError, match="with status -9") as caught:
        list(workers.in_order(end, range(30)))
    assert "fewer --threads" in caught.value.hint


def test_who_stops_listening_leaves_no_process() -> None:
    with Workers(2) as workers:
        results = workers.in_order(partial(slower_first, unit=0), range(50))
        _, (_, pid) = next(results)
        results.close()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_weight_of_a_file_travels_as_its_place(tmp_path: Path, rng: np.random.Generator) -> None:
    with open_file(write_toy(tmp_path / "toy.gguf", rng)) as file, Workers(2) as workers:
        weights = list(file.weights().values())
        assert len(weights[0].__reduce__()[1]) == 2
        held = [Weight(w.info, w.data) for w in weights[:2]]
        for weight, found in workers.in_order(total, [*weights, *held]):
            assert found == total(weight)


@pytest.mark.parametrize("recipe", ["Q4_K_M", pytest.param("target", marks=pytest.mark.slow)])
def test_processes_write_the_same_file(
    tmp_path: Path, rng: np.random.Generator, recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = write_toy(tmp_path / "toy.gguf", rng)
    wish = stage.Wish(target_bpw=5.0) if recipe == "target" else recipe
    quantize(toy, tmp_path / "1.gguf", type=wish)
    monkeypatch.setattr(stage, "SMALL", 0)
    quantize(toy, tmp_path / "3.gguf", type=wish, threads=3)
    assert (tmp_path / "1.gguf").read_bytes() == (tmp_path / "3.gguf").read_bytes()
