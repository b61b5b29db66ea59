"""The README of a bundle, for the author of the app that plays it: `bundle_text/`, filled in."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from edgequant.device.kernel_files import SPIRV
from edgequant.device.targets import Target

_TEXTS = Path(__file__).with_name("bundle_text")


def listed(choices: Sequence[int]) -> str:
    """Say numbers that one may choose from: "64, 16 or 32"."""
    *others, last = map(str, choices)
    return f"{', '.join(others)} or {last}" if others else last


def make_readme(manifest: Mapping[str, Any], target: Target, kernels: int, memory: int) -> bytes:
    """Fill in what the README says of a bundle.

    Args:
        manifest: of it, the first.
        target: what it is for.
        kernels: files of them.
        memory: bytes of all buffers.
    """
    limits, matrix = manifest["limits"], manifest["limits"]["cooperative_matrix"]
    files = manifest["model"]["files"]
    api = "vulkan" if target.language is SPIRV else "metal"
    rows = [f"| `{one['file']}` | the weights, {one['bytes']:,} bytes |" for one in files]
    filled = Template(_TEXTS.joinpath("README.md").read_text("utf-8")).substitute(
        name=manifest["model"]["name"],
        target=target.name,
        api=api.capitalize(),
        host=_TEXTS.joinpath(f"{api}.md").read_text("utf-8").strip(),
        model_rows="\n".join(rows),
        kernels=kernels,
        manifests="\n".join(
            f"| `{one['file']}` | all that is said below, in numbers, for subgroups of "
            f"{one['subgroup']} lanes |"
            for one in manifest["manifests"]
        ),
        memory=f"{memory:,} bytes",
        weights=f"{sum(b['bytes'] for b in manifest['buffers'] if b['holds'] == 'weights'):,}",
        subgroup=listed([one["subgroup"] for one in manifest["manifests"]]),
        workgroup=limits["workgroup"],
        shared=f"{limits['shared_bytes']:,}",
        max_buffer=f"{limits['max_buffer_bytes']:,}",
        matrix="none" if matrix is None else " x ".join(map(str, matrix)),
        integer_dot="yes" if limits["integer_dot"] else "no",
        why=target.why,
        version=manifest["version"],
        argument_bytes=limits["argument_bytes"],
        kind=manifest["tokenizer"]["kind"],
        needs=", ".join(f"`{key}`" for key in manifest["needs"]),
    )
    return filled.encode()
