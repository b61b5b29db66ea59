"""The command line: words in, tables out. Only here are click and rich imported.

The command table is lazy: a command's module, and what it imports, loads when it is used, so that
`--help` is instant and a missing engine does not break `convert`.
"""

import importlib
import sys
import traceback
from io import TextIOWrapper

import click

from edgequant import __version__
from edgequant.cli.words import visible
from edgequant.errors import EdgequantError

COMMANDS = {
    "convert": "Turn a Hugging Face checkpoint into a GGUF model file.",
    "imatrix": "Measure which weights matter, on calibration text.",
    "quantize": "Write a model file in fewer bits.",
    "run": "Generate text from a prompt.",
    "perplexity": "Measure how well a model predicts a text.",
    "compare": "Measure what quantizing lost: KL divergence to a reference.",
    "bench": "Measure prefill and decode speed.",
    "inspect": "List what a model file or importance matrix holds.",
}


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
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="edgequant")
def cli() -> None:
    """Quantize a Hugging Face model to 4 bits, and run it on the machine you have."""


def main() -> None:
    """Run the command line and exit: 0 done, 1 our errors, 2 usage, 130 interrupted."""
    debug = "--debug" in sys.argv
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # texts may hold what the terminal's encoding lacks
            stream.reconfigure(errors="replace")
    try:
        cli.main(standalone_mode=False)
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
    except BrokenPipeError:
        sys.exit(1)
