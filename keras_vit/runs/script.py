"""From a command line and YAML files to a typed record."""

import dataclasses
import difflib
import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from keras_vit.runs.smoke import smoke
from keras_vit.training import Recipe
from keras_vit.training.distribution.processes import (
    LostProcessError,
    explaining_loss,
    is_first,
    leave,
    start,
)

__all__ = ["fail", "parse", "run_script"]

Record = TypeVar("Record")

USAGE_ERROR = 2  # The exit code that argparse has for it.

# How jsonargparse names a key that it does not know: on the command line, in
# a group of a file, and at the top of a file.
UNKNOWN_KEY = (
    r"unrecognized arguments: --(?P<key>[\w.]+)",
    r"Group '(?P<group>[\w.]+)' does not accept option '(?P<key>[\w.]+)'",
    r"Option '(?P<key>[\w.]+)' is not accepted",
)


def parse(
    record: type[Record], arguments: list[str] | None, description: str
) -> Record:
    """Makes a record of a dataclass from `--group.field value` and files.

    `--config file.yaml` sets fields as well; what comes later wins.
    `--print_config` prints all fields and `--help` their meaning.

    Args:
        record: a dataclass whose fields are plain values and dataclasses.
        arguments: the words of the command line, None for those of the
            program.
        description: what the program does, for `--help`.

    Returns:
        An instance of the dataclass. The program ends with exit code 2 and
        the reason when an argument is unknown or wrong.

    Example:
        >>> parse(Recipe, ["--training.epochs", "3"], "Fine-tunes a model.")
    """
    import jsonargparse

    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser = jsonargparse.ArgumentParser(
        description=description,
        usage="%(prog)s [--config FILE] [--GROUP.FIELD VALUE ...]",
        exit_on_error=False,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config", action="config", help="YAML file that sets fields."
    )
    parser.add_class_arguments(record)
    parser.set_defaults(_defaults(record))
    try:
        fields = parser.instantiate(parser.parse_args(arguments)).as_dict()
        del fields["config"]
        return record(**fields)
    except (jsonargparse.ArgumentError, ValueError) as error:
        keys = list(parser.get_defaults().keys())
        fail(f"{error}{_suggestion(str(error), keys)}")


def fail(message: str) -> NoReturn:
    """Ends the program for a wrong use of it: one line and exit code 2.

    Args:
        message: what is wrong and how to put it right.

    Raises:
        SystemExit: always.

    Example:
        >>> fail("There is no file 'x.png'.")
    """
    program = pathlib.Path(sys.argv[0]).name
    print(f"{program}: error: {' '.join(message.split())}", file=sys.stderr)
    raise SystemExit(USAGE_ERROR)


def _defaults(record, prefix="") -> dict:
    """Defaults of the fields of the groups of a record, and of their groups.

    Those of jsonargparse are what a group is after its `__post_init__`,
    which may have completed what was not given.
    """
    defaults = {}
    for field in dataclasses.fields(record):
        if dataclasses.is_dataclass(field.type):
            defaults |= _defaults(field.type, f"{prefix}{field.name}.")
        elif prefix and field.default is not dataclasses.MISSING:
            defaults[prefix + field.name] = field.default
    return defaults


def _suggestion(message: str, keys: list[str]) -> str:
    """The key that an unknown one was probably meant to be."""
    for pattern in UNKNOWN_KEY:
        if found := re.search(pattern, message):
            named = found.groupdict()
            key = ".".join(filter(None, [named.get("group"), named["key"]]))
            break
    else:
        return ""
    # A field of the right name in another group is nearer than any spelling.
    field = key.split(".")[-1]
    near = [k for k in keys if k.split(".")[-1] == field]
    near = near or difflib.get_close_matches(key, keys, n=1, cutoff=0)
    return f". Did you mean --{near[0]}? --help lists all."


INTERRUPTED = 130  # The exit code of a program that Ctrl-C ended.


def run_script(
    run: Callable[[Any], dict],
    told: Callable[[dict], str],
    description: str,
    arguments: list[str] | None = None,
    *,
    record: type = Recipe,
    shrunk: Callable[[Any], Any] = smoke,
) -> int:
    """Runs a recipe as its command line says.

    Args:
        run: from a record to its result.
        told: from the result to the lines that a person reads at the end.
        description: what the program does, for `--help`.
        arguments: the words of the command line, None for those of the
            program.
        record: the dataclass that the command line is read into, with
            distribution, run_dir and smoke.
        shrunk: what makes a trial of a record for `--smoke true`.

    Returns:
        The exit code: 0, or 130 when Ctrl-C ended it. Where another process
        of the run is gone, this one ends at once, with 1.

    Raises:
        SystemExit: with exit code 2 and one line of reason when the recipe,
            the data or the run folder do not fit.
    """
    recipe: Any = parse(record, arguments, description)
    recipe = shrunk(recipe) if recipe.smoke else recipe
    try:
        start(recipe.distribution)
        with explaining_loss(recipe.run_dir):
            result = run(recipe)
    except LostProcessError as error:
        leave(str(error))
    except (ValueError, OSError, FloatingPointError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        print(
            "\nInterrupted; the same command continues from the last "
            f"checkpoint in {recipe.run_dir}.",
            file=sys.stderr,
        )
        return INTERRUPTED
    if is_first():
        print(f"{told(result)}\nreport and model: {recipe.run_dir}")
    return 0
