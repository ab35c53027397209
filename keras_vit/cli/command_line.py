"""The groups of commands, and what all of them have in common."""

import argparse
import os
import sys
from collections.abc import Sequence

from keras_vit.cli import benchmark, explain, plan, predict, summary, weights
from keras_vit.version import __version__

__all__ = ["main"]

# Name: a module with a docstring whose first line is the help, and with
# `add_arguments(parser)`, which sets the default `run` to a function that
# takes the parsed arguments.
COMMANDS = {
    "benchmark": benchmark,
    "explain": explain,
    "plan": plan,
    "predict": predict,
    "summary": summary,
    "weights": weights,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `keras-vit`.

    Args:
        arguments: what follows `keras-vit`, by default on the command line.

    Returns:
        0, or 2 after one line on standard error where the input is wrong.

    Raises:
        SystemExit: argparse's own, with 2 for wrong arguments.

    Example:
        >>> main(["weights", "list", "--model", "ViT_R26_B32"])
    """
    parsed = _parser().parse_args(arguments)
    try:
        parsed.run(parsed)
        sys.stdout.flush()
    except BrokenPipeError:  # Whoever read has read enough, as head does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError) as error:
        message = " ".join(str(error).split())
        print(f"keras-vit: error: {message}", file=sys.stderr)
        return 2
    return 0


def _parser():
    parser = argparse.ArgumentParser(
        prog="keras-vit", description="Vision Transformers for Keras 3."
    )
    parser.add_argument("--version", action="version", version=__version__)
    groups = parser.add_subparsers(metavar="command", required=True)
    for name, module in COMMANDS.items():
        summary = (module.__doc__ or "").partition("\n")[0]
        group = groups.add_parser(name, help=summary, description=summary)
        module.add_arguments(group)
    return parser
