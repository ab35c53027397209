"""The recipes as commands, and `keras-vit configs`."""

import argparse
import functools
import importlib.util
import pathlib
import sys
from collections.abc import Iterator

from keras_vit.cli.terminal import print_table
from keras_vit.runtime import shipped_recipes

__all__ = ["add_recipes", "configs"]

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
