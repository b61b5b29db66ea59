"""What every test can ask for, and what `make test` asks of all of them together."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from every_error import EveryError

ROOT = Path(__file__).parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--oracles-must-run",
        action="store_true",
        help="fail if a test marked oracle was skipped (unless it is also marked shared)",
    )
    parser.addoption(
        "--devices-must-run",
        action="store_true",
        help="fail if a test marked device was skipped, or Vulkan's validation layers are missing",
    )
    parser.addoption(
        "--every-error",
        action="store_true",
        help="fail if the package builds an error that no test met; for complete runs",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--every-error"):
        config.pluginmanager.register(EveryError())


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report = yield
    if report.skipped and collector.config.getoption("--oracles-must-run"):
        report.outcome = "failed"
        report.longrepr = f"a module of tests may not be skipped here: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    must_run = not item.get_closest_marker("shared") and any(
        item.config.getoption(f"--{mark}s-must-run") and item.get_closest_marker(mark)
        for mark in ("oracle", "device")
    )
    if report.skipped and must_run and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"an oracle or device may not be missing here: {report.longrepr}"
    return report


@pytest.fixture
def rng() -> np.random.Generator:
    """A random stream that is the same in every run."""
    return np.random.default_rng(20261129)


@pytest.fixture(scope="session")
def books_6m() -> Path:
    """The checkpoint that ships with the project."""
    return ROOT / "tests" / "models" / "books-6m"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of bigger models and texts beside the project; skips where there is none."""
    path = ROOT.parent / "shared"
    if not path.is_dir():
        pytest.skip("the bigger models are not on this machine")  # and are not shipped
    return path
