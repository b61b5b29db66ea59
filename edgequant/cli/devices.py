"""`edgequant devices`: what can run models here."""

import sys
from collections.abc import Iterator
from dataclasses import asdict

import click

from edgequant.cli import options
from edgequant.cli.words import count, size, visible
from edgequant.errors import some
from edgequant.stages.devices import DeviceReport, devices


@click.command("devices")
@click.option(
    "--self-test",
    is_flag=True,
    help="Try the kernels of every block format, and a small model, against NumPy.",
)
@options.shared
def command(self_test: bool, as_json: bool, quiet: bool) -> None:
    """List the devices of this machine, what they can do, and whether their kernels are right.

    The kernels of a block format are tried when a device first meets it, and again after an update
    of its driver or of edgequant. One that fails is not used; with --self-test, the exit code is 1.
    What --self-test prints is what a report of a fault wants to have.
    """
    with options.shown_progress(quiet) as progress:
        report = devices(self_test=self_test, progress=progress)
    if as_json:
        options.print_json(asdict(report))
    elif not quiet:
        if self_test:
            click.echo(report.system)
        width = max(len(device.name) for device in report.devices) + 2
        for device in report.devices:
            for number, line in enumerate(_lines(device)):
                name = device.name if number == 0 else ""
                click.echo(f"{name:<{width}}{visible(line)}")
    if any(device.failed for device in report.devices):
        sys.exit(1)


def _lines(device: DeviceReport) -> Iterator[str]:
    chosen = " (the choice of --device auto)" if device.auto else ""
    yield (device.hardware or f"not here: {device.missing}") + chosen
    if device.hardware and device.missing:
        yield f"not used: {device.missing}"
    if device.driver:
        memory = "" if device.memory_bytes is None else f", {size(device.memory_bytes)}"
        uuid = f", UUID {device.uuid}" if device.uuid else ""
        yield f"{device.kind}{memory}{uuid}"
        yield f"{device.driver}; {', '.join(device.abilities)}"
    if device.self_test is not None:
        yield f"self-test: {_verdict(device)}"
    if device.whole_model is not None:
        passed = device.whole_model == "passed"
        yield f"a small model: {'passed' if passed else f'FAILED, {device.whole_model}'}"


def _verdict(device: DeviceReport) -> str:
    """Say how the self-test went, the worst first."""
    results = device.self_test or {}
    if device.wrong:
        return "FAILED for " + "; ".join(f"{name}, {what}" for name, what in device.wrong.items())
    passed = [name for name, what in results.items() if what == "passed"]
    if not passed:
        return "not run yet; it runs when a model is loaded, or with --self-test"
    without = [name for name, what in results.items() if what == "no kernel"]
    rest = f"; no kernel for {', '.join(without)}" if without else ""
    return f"passed for {count(len(passed), 'format')} ({some(passed, most=20)}){rest}"
