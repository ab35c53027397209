"""The command line of `keras-vit`."""

import argparse
import os
import sys
from collections.abc import Sequence

from keras_vit.cli.embedding_commands import embed, search
from keras_vit.cli.export_command import export
from keras_vit.cli.image_commands import explain, predict
from keras_vit.cli.model_commands import benchmark, plan, summary
from keras_vit.cli.serving_command import serve
from keras_vit.cli.sharing_commands import push
from keras_vit.cli.terminal import say_what_it_can
from keras_vit.cli.weights_commands import weights
from keras_vit.files import printable
from keras_vit.interrupts import ended, tidy_up_on_sigterm
from keras_vit.version import __version__

__all__ = ["main"]

# Each adds its arguments to a parser and sets the default `run` to a function
# of the parsed arguments. The first line of its docstring is the help.
COMMANDS = (
    benchmark,
    embed,
    explain,
    export,
    plan,
    predict,
    push,
    search,
    serve,
    summary,
    weights,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `keras-vit`.

    Args:
        arguments: what follows `keras-vit`, by default on the command line.

    Returns:
        0; 2 after one line on standard error where the input is wrong; 130
        after Ctrl-C, 143 after SIGTERM; of `serve`, which is ended by them, 0.

    Raises:
        SystemExit: argparse's own, with 2 for wrong arguments.

    Example:
        >>> main(["weights", "list", "--model", "ViT_R26_B32"])
    """
    parsed = _parser().parse_args(arguments)
    tidy_up_on_sigterm()
    try:
        say_what_it_can()
        parsed.run(parsed)
        sys.stdout.flush()
    except BrokenPipeError:  # The reader has enough, as head does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError) as error:
        message = printable(" ".join(str(error).split()))
        print(f"keras-vit: error: {message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as interrupt:
        return ended(interrupt, "files that were begun are not there.")
    return 0


class _Parser(argparse.ArgumentParser):
    """One whose errors move no cursor."""

    def error(self, message):
        super().error(printable(message))


def _parser():
    parser = _Parser(
        prog="keras-vit", description="Vision Transformers for Keras 3."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(metavar="command", required=True)
    for command in COMMANDS:
        help_ = (command.__doc__ or "").partition("\n")[0]
        name = command.__name__
        command(commands.add_parser(name, help=help_, description=help_))
    return parser
