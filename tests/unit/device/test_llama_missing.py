"""What the llama device says when its library is not there or does not load."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgequant.device import Choice, llama, open_device
from edgequant.errors import DeviceError

OLD = """
__version__ = "0.2.90"
llama_log_callback = lambda function: function
llama_log_set = lambda *_: None
llama_backend_init = lambda: None
"""


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """An interpreter that has not looked for the library yet."""
    real = sys.modules.pop("llama_cpp", None)
    llama._library.cache_clear()
    yield monkeypatch
    llama._library.cache_clear()
    sys.modules.pop("llama_cpp", None)
    if real is not None:
        sys.modules["llama_cpp"] = real


def test_not_installed(fresh: pytest.MonkeyPatch) -> None:
    sys.modules["llama_cpp"] = None  # type: ignore[assignment]
    with pytest.raises(
        DeviceError, match=r'llama: .*not installed.*pip install "edgequant\[llama\]"'
    ):
        open_device("llama")
    assert open_device("auto").name != "llama"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise OSError('libllama.so: wrong ELF class')", "does not load: libllama.so: wrong ELF"),
        ("raise RuntimeError('no shared library')", "does not load: no shared library"),
        ("import not_there_at_all", "lacks the module not_there_at_all"),
        ("import sys\nfrom sys import no_such_name", "does not load: cannot import name"),
        ("x = 1", "does not load: .*llama_log_callback"),
        (OLD, r"is 0\.2\.90, but 0\.3\.36 is needed"),
    ],
)
def test_an_import_that_fails(
    fresh: pytest.MonkeyPatch, tmp_path: Path, source: str, reason: str
) -> None:
    (tmp_path / "llama_cpp.py").write_text(source)
    fresh.syspath_prepend(tmp_path)
    with pytest.raises(DeviceError, match=reason):
        open_device("llama")
    assert open_device("auto").name != "llama"


@pytest.mark.parametrize("index", ["0", "513", "-1", "x", "1.5", "²"])
def test_a_number_of_threads_that_is_none(index: str) -> None:
    with pytest.raises(DeviceError, match="a number of threads, 1 to 512"):
        llama.DEVICE.open(index, Choice())


def test_amx_turns_repacking_off() -> None:
    assert llama._uses_amx(b"CPU : AVX512 = 1 | AMX_INT8 = 1 | REPACK = 1 | ")
    assert not llama._uses_amx(b"CPU : AVX512 = 1 | REPACK = 1 | ")
