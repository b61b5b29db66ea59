"""The import contracts name every module they are about, also those that came later."""

import tomllib
from pathlib import Path

import edgequant
from edgequant.device import entries

PACKAGE = Path(edgequant.__file__).parent
CONTRACTS = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text("utf-8"))["tool"][
    "importlinter"
]["contracts"]
HOSTS = {"cpu", "llama", "null", *(entry.name for entry in entries())}


def contract(words: str) -> dict[str, list[str]]:
    (found,) = (each for each in CONTRACTS if words in each["name"])
    return found


def test_no_module_may_name_what_belongs_to_a_gpu_host() -> None:
    """But the modules of the hosts, and the package itself, which finds them."""
    shared = {path.stem for path in (PACKAGE / "device").glob("*.py")} - HOSTS - {"__init__"}
    named = contract("names a Vulkan type")["source_modules"]
    assert {f"edgequant.device.{module}" for module in shared} <= set(named)


def test_no_host_may_know_another() -> None:
    assert set(contract("Devices do not know")["modules"]) == {
        f"edgequant.device.{host}" for host in HOSTS
    }
