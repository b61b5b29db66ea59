"""The command line: words in, tables out. Only here are click and rich imported.

The command table is lazy: a command's module, and what it imports, loads when it is used, so that
`--help` is instant and a missing engine does not break `convert`.
"""

import gc
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from io import BytesIO, TextIOWrapper

import click

from edgequant import __version__
from edgequant.cli.words import visible
from edgequant.errors import EdgequantError

COMMANDS = {
    "convert": "Turn a Hugging Face checkpoint into a GGUF model file.",
    "imatrix": "Measure which weights matter, on calibration text.",
    "quantize": "Write a model file in fewer bits.",
    "tune": "Bring a quantized model closer to the one it was made of.",
    "run": "Generate text from a prompt.",
    "perplexity": "Measure how well a model predicts a text.",
    "compare": "Measure what quantizing lost: KL divergence to a reference.",
    "bench": "Measure prefill and decode speed.",
    "inspect": "List what a model file or importance matrix holds.",
    "bundle": "Write a folder with which an app runs a model, without Python.",
    "devices": "List what can run models here, and try its kernels.",
}


COMPUTING = ("run", "perplexity", "compare", "bench")  # on a device that takes a while to open
# Words with which no device need be opened, or not one of which only the name is known.
OTHERS = {"-h", "--help", "cpu", "llama", "--exact", "--cache-type"}


class LazyGroup(click.Group):
    """A group whose commands are modules of this package, loaded on use."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the commands in the order a user meets them."""
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        """Load a command: the object named `command` in the module named as the command."""
        if name not in COMMANDS:
            return None
        command = importlib.import_module(f"edgequant.cli.{name}").command
        assert isinstance(command, click.Command)
        gc.freeze()  # what was imported is never garbage, and need not be looked through
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group("edgequant", cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="edgequant")
def cli() -> None:
    """Quantize a Hugging Face model to 4 bits, and run it on the machine you have."""


def main() -> None:
    """Run the command line and exit: 0 done, 1 our errors, 2 usage, 130 interrupted."""
    debug = "--debug" in sys.argv
    if wanted := _device(sys.argv[1:]):
        _wake(wanted)
    _prepare_streams()
    _end_as_ctrl_c_does()
    try:
        cli.main(standalone_mode=False)
        sys.stdout.flush()  # now, while a disk that is full can still be told of
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted.", err=True)
        sys.exit(130)
    except EdgequantError as error:
        if debug:
            traceback.print_exc()
        click.echo(f"Error: {visible(error.what)}\nHint: {visible(error.hint)}", err=True)
        sys.exit(1)
    except BrokenPipeError:  # whoever read stdout has gone, as `head` does
        _drop_output()
        sys.exit(1)
    except OSError as error:  # stdout's disk is full, as a rule; a stage says whose file it was
        if debug:
            traceback.print_exc()
        click.echo(f"Error: {visible(error.filename or 'stdout')}: {error.strerror}.", err=True)
        click.echo("Hint: look at the disk; --debug shows where it happened.", err=True)
        _drop_output()
        sys.exit(1)


def _device(words: Sequence[str]) -> str | None:
    """Return the device that a command will ask for; None if it is not worth opening early."""
    if not words or words[0] not in COMPUTING:
        return None
    options = [word.partition("=") for word in words]
    if OTHERS & {text for option in options for text in option}:
        return None
    named = [
        value if equals else following
        for (option, equals, value), following in zip(options, [*words[1:], ""], strict=True)
        if option == "--device"
    ]
    return named[-1] if named else "auto"


def _wake(wanted: str) -> None:
    from edgequant.device import wake  # what `--help` does without

    wake(wanted)


def _prepare_streams() -> None:
    """Let texts hold what a terminal's encoding lacks, and let a caller close the streams."""
    sys.stdin, sys.stdout, sys.stderr = (
        stream or TextIOWrapper(BytesIO()) for stream in (sys.stdin, sys.stdout, sys.stderr)
    )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _end_as_ctrl_c_does() -> None:
    """Take back what is half written also when asked to end, or when the terminal is closed."""
    for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP; nohup ignores it
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


def _drop_output() -> None:
    """Send what stdout still holds nowhere, so that the interpreter's last flush does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
