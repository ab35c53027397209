"""The command line of `keras-vit`, and the recipes as its commands."""

import argparse
import functools
import importlib
import importlib.util
import itertools
import os
import pathlib
import sys
from collections.abc import Iterator, Sequence

from keras_vit.cli.terminal import escape_unprintable, print_table
from keras_vit.io.atomic_files import printable
from keras_vit.io.stores import check_local
from keras_vit.runtime import shipped_recipes
from keras_vit.runtime.environment import start_lean, start_quietly
from keras_vit.runtime.interrupts import ended, tidy_up_on_sigterm
from keras_vit.version import __version__

__all__ = ["add_recipes", "configs", "main"]

# Command -> its module in this folder, and its help. A function of the
# command's name there adds its arguments to a parser and sets the default
# `run` to a function of the parsed arguments. Only the module of the command
# that is given is imported: some need Keras, which takes seconds.
COMMANDS = {
    "audit": (
        "image_commands",
        "Find duplicates, wrong labels and odd images in a data set.",
    ),
    "benchmark": (
        "model_commands",
        "Time a model on this machine, and its exports.",
    ),
    "configs": (
        "command_line",
        "List the configs of the recipes, or print one, to edit it.",
    ),
    "embed": (
        "image_commands",
        "Compute embeddings of images and write them to a file.",
    ),
    "explain": (
        "image_commands",
        "Draw a model's attention to images, as pictures and as a page.",
    ),
    "export": (
        "deployment_commands",
        "Export a model to another runtime, and check what was written.",
    ),
    "page": (
        "deployment_commands",
        "Write a page that classifies pictures in the browser.",
    ),
    "plan": (
        "model_commands",
        "Plan the memory, time and input of a training run.",
    ),
    "predict": ("image_commands", "Classify images."),
    "push": (
        "deployment_commands",
        "Share a model or a run on the Hugging Face Hub or on Kaggle.",
    ),
    "search": (
        "image_commands",
        "Find the images that are most similar to others, or to words.",
    ),
    "serve": (
        "deployment_commands",
        "Serve a model over HTTP, with a page to try it.",
    ),
    "summary": (
        "model_commands",
        "Count the parameters and the FLOPs of a model by part.",
    ),
    "weights": (
        "weights_commands",
        "List, describe, verify, convert and average weights.",
    ),
}

WRITTEN = {"out", "output"}  # What commands write, on this machine.


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
    given = sys.argv[1:] if arguments is None else arguments
    options = itertools.takewhile(lambda x: x.startswith("-"), given)
    if "--verbose" not in options:
        start_quietly()
    start_lean()
    parsed = _parser(given).parse_args(given)
    tidy_up_on_sigterm()
    try:
        escape_unprintable()
        for name in WRITTEN & vars(parsed).keys():
            check_local(f"--{name}", getattr(parsed, name))
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


def _parser(arguments):
    """Build the parser, with the arguments of the given command alone."""
    parser = _Parser(
        prog="keras-vit", description="Vision Transformers for Keras 3."
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="let TensorFlow and the compilers print their own lines",
    )
    commands = parser.add_subparsers(metavar="command", required=True)
    given = next((x for x in arguments if not x.startswith("-")), None)
    for name, (module, help_) in COMMANDS.items():
        command = commands.add_parser(name, help=help_, description=help_)
        if name == given:
            found = importlib.import_module(f"keras_vit.cli.{module}")
            getattr(found, name)(command)
    add_recipes(commands)
    return parser


# Of no word of a command line: a recipe parses its options itself.
NO_PREFIX = "\0"


def configs(parser):
    """List the configs of the recipes, or print one, to edit it."""
    parser.add_argument("name", nargs="?", help="such as quickstart")
    parser.set_defaults(run=_configs)


def add_recipes(commands) -> None:
    """Adds each recipe, with the first line of its docstring as the help.

    Args:
        commands: what argparse's `add_subparsers` returned.
    """
    for name, script in shipped_recipes.scripts().items():
        with script.open(encoding="utf-8") as lines:
            help_ = next(lines).strip().strip('"')
        parser = commands.add_parser(
            name, help=help_, add_help=False, prefix_chars=NO_PREFIX
        )
        parser.add_argument("words", nargs=argparse.REMAINDER)
        parser.set_defaults(run=functools.partial(_run, name, script))


def _run(name: str, script: pathlib.Path, arguments) -> None:
    """Does what `python script WORDS` does.

    Raises:
        SystemExit: with the exit code of the recipe where that is not 0.
    """
    sys.argv = [f"keras-vit {name}", *arguments.words]
    # As Python does: recipes import the packages beside them.
    sys.path.insert(0, str(script.parent))
    # Not the name of the file, which a package beside it may have.
    module_name = f"recipe_{script.stem}"
    spec = importlib.util.spec_from_file_location(module_name, script)
    if spec is None or spec.loader is None:
        raise ValueError(f"{script} is no Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # jsonargparse looks for sources there.
    spec.loader.exec_module(module)
    if code := module.main(arguments.words):
        raise SystemExit(code)


def _configs(arguments):
    if arguments.name is not None:
        path = shipped_recipes.config_path(arguments.name)
        print(path.read_text(encoding="utf-8"), end="")
        return
    print_table(("config", "command", "what it is"), _rows())


def _rows() -> Iterator[tuple[str, str, str]]:
    for name, path in shipped_recipes.configs().items():
        yield name, *shipped_recipes.described(path)
