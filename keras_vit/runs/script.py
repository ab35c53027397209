"""The command line of a recipe: its options, its errors and its exit code."""

import dataclasses
import difflib
import functools
import pathlib
import re
import sys
import typing
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from keras_vit.data.config import DataConfig, data_packages
from keras_vit.data.dataset import LEFT_OUT, NO_SOURCES, Sources
from keras_vit.io.atomic_files import open_page, printable
from keras_vit.io.checks import (
    EXTRAS,
    MAX_YAML_BYTES,
    check_installed,
    check_regular,
    check_yaml,
)
from keras_vit.io.stores import on_disk
from keras_vit.runs.smoke import smoke
from keras_vit.runtime.interrupts import ended, tidy_up_on_sigterm
from keras_vit.runtime.shipped_recipes import config_path
from keras_vit.training import Recipe
from keras_vit.training.run.files import kept

__all__ = [
    "check_packages",
    "exit_code",
    "fail",
    "left_out",
    "parse",
    "run_script",
    "show",
    "with_open",
]

Record = TypeVar("Record")

OPEN = "--open"  # Opens the report at the end.
USAGE_ERROR = 2  # The exit code of argparse for it.

# Groups of a config file that one recipe reads and the others skip, so that
# sweep.py and finetune.py take the same file.
OWN_GROUPS = (
    "dino",
    "distill",
    "mae",
    "masked_patch",
    "noisy_student",
    "sweep",
)

# How jsonargparse names a key that it does not know: on the command line, in
# a group of a file, and at the top of a file.
UNKNOWN_KEY = (
    r"unrecognized arguments: --(?P<key>[\w.]+)",
    r"Group '(?P<group>[\w.]+)' does not accept option '(?P<key>[\w.]+)'",
    r"Option '(?P<key>[\w.]+)' is not accepted",
)


def run_script(
    run: Callable[[Any], dict],
    summary: Callable[[dict], str],
    description: str | None,
    arguments: list[str] | None = None,
    *,
    record: type = Recipe,
    shrink: Callable[[Any], Any] = smoke,
    sources: Sources = NO_SOURCES,
) -> int:
    """Runs a recipe with the options of its command line.

    Args:
        run: from a record to its result.
        summary: from the result to the lines that are printed at the end.
        description: docstring of the script; its first line is for `--help`.
        arguments: the words of the command line, None for those of the
            program.
        record: the dataclass that the command line is read into, with
            distribution, run_dir and smoke.
        shrink: what makes a trial of a record for `--smoke`.
        sources: functions that open data sets, as of `train`.

    Returns:
        The exit code: 0, 130 after Ctrl-C, or 143 after SIGTERM and
        training.max_hours: the same command continues then. Where another
        process of the run is lost, this one ends at once, with 1.

    Raises:
        SystemExit: with exit code 2 and one line of reason when the recipe,
            the data or the run folder do not fit.
    """
    words, opens = with_open(arguments)
    recipe: Any = parse(record, words, description, opens=True)
    recipe = shrink(recipe) if recipe.smoke else recipe

    from keras_vit.training.distribution import processes  # With Keras.

    def work():
        check_packages(recipe.data, sources)
        processes.start(recipe.distribution)
        with processes.explain_lost_process(recipe.run_dir):
            result = run(recipe)
        if processes.is_first():
            lines = f"{summary(result)}{left_out(result)}"
            print(f"{lines}\nreport and model: {recipe.run_dir}")
        if opens:
            show(recipe.run_dir, "report.html")

    return exit_code(
        work,
        "the same command continues from the last checkpoint in "
        f"{recipe.run_dir}.",
    )


def left_out(result: dict) -> str:
    """Return a line about what a run left out; "" for nothing.

    Args:
        result: with the "skipped" of `keras_vit.data.skipped_files`.

    Example:
        >>> left_out({"skipped": {"unreadable": {"count": 2, "files": []}}})
        '\\nleft out: 2 not readable as images (names in result.json)'
    """
    parts = [
        f"{found['count']:,} {LEFT_OUT.get(kind, kind)}"
        for kind, found in result.get("skipped", {}).items()
    ]
    if not parts:
        return ""
    return f"\nleft out: {', '.join(parts)} (names in result.json)"


def parse(
    record: type[Record],
    arguments: list[str] | None,
    description: str | None,
    *,
    opens: bool = False,
    places: str = "",
) -> Record:
    """Makes a record of a dataclass from `--group.field value` and files.

    `--config file.yaml` sets fields as well, or a config by its name, as
    `--config quickstart`; what comes later wins. A field that is true or false
    is a flag: `--smoke` is `--smoke true`. `--print_config` prints all fields
    and `--help` their meaning.

    Args:
        record: a dataclass whose fields are plain values and dataclasses.
        arguments: the words of the command line, None for those of the
            program.
        description: what the program does; its first line is for `--help`.
        opens: whether `--help` has --open, see `with_open`.
        places: what stands before the options, for `--help`.

    Returns:
        An instance of the dataclass. The program ends with exit code 2 and
        the reason when an argument is unknown or wrong.

    Example:
        >>> parse(Recipe, ["--training.epochs", "3"], "Fine-tunes a model.")
    """
    import jsonargparse

    usage = (
        *("%(prog)s", places, "[--config FILE]"),
        *(f"[{OPEN}]" if opens else "", "[--GROUP.FIELD VALUE ...]"),
    )
    parser = _parser(
        record,
        (description or "").partition("\n")[0],
        " ".join(x for x in usage if x),
        sys.argv[0],
    )
    words = sys.argv[1:] if arguments is None else arguments
    try:
        words = _with_configs(_with_values(words, record), record)
        parsed = parser.parse_args(words)
        _check_nulls(record, parsed)
        fields = parser.instantiate(parsed).as_dict()
        del fields["config"]
        return record(**fields)
    except (jsonargparse.ArgumentError, ValueError) as error:
        _parser.cache_clear()  # One that failed still has what it was given.
        keys = list(parser.get_defaults().keys())
        fail(f"{error}{_suggestion(str(error), keys)}")


def with_open(arguments: list[str] | None) -> tuple[list[str], bool]:
    """Remove --open from a command line, and return whether it was there."""
    words = sys.argv[1:] if arguments is None else arguments
    return [word for word in words if word != OPEN], OPEN in words


def show(run_dir: str, name: str) -> None:
    """Opens a file of a run folder in the browser, once of all processes."""
    from keras_vit.training.distribution.processes import is_first

    if is_first():
        open_page(pathlib.Path(on_disk(f"{run_dir}/{name}")))


def check_packages(config: DataConfig, sources: Sources = NO_SOURCES) -> None:
    """Raises a ValueError, which says what to install, where that is needed.

    For the images of a config, and for the report.
    """
    check_installed(
        "This recipe", *data_packages(config, sources), *EXTRAS["plots"]
    )


def fail(message: str) -> NoReturn:
    """Ends the program for a wrong use of it: one line and exit code 2.

    Example:
        >>> fail("There is no file 'x.png'.")
    """
    program = pathlib.Path(sys.argv[0]).name
    line = printable(" ".join(message.split()))
    print(f"{program}: error: {line}", file=sys.stderr)
    raise SystemExit(USAGE_ERROR)


def exit_code(work: Callable[[], object], interrupted: str) -> int:
    """Does the work of a program and explains in one line what ends it early.

    Args:
        work: what the program does.
        interrupted: what a user has to know after Ctrl-C or SIGTERM.

    Returns:
        0, 130 after Ctrl-C, or 143 after SIGTERM or the end of the time.

    Raises:
        SystemExit: with exit code 2 after a wrong use.
    """
    from keras_vit.training.distribution import processes

    tidy_up_on_sigterm()
    try:
        with kept():
            work()
    except processes.LostProcessError as error:
        processes.leave(str(error))
    except (ValueError, OSError, FloatingPointError) as error:
        fail(str(error))
    except KeyboardInterrupt as interrupt:
        return ended(interrupt, interrupted)
    return 0


def _check_nulls(record, values, prefix="") -> None:
    """Raises a ValueError for a null, or no options, where none may be.

    jsonargparse lets null pass everywhere, as "not given".
    """
    if isinstance(values, (list, str, int, float)):
        name = prefix.rstrip(".")
        raise ValueError(
            f"{name} has options of its own. Received: {name}={values!r}."
        )
    hints = typing.get_type_hints(record)
    for field in dataclasses.fields(record):
        hint, value = hints[field.name], values[field.name]
        name = f"{prefix}{field.name}"
        if dataclasses.is_dataclass(hint) and value is not None:
            _check_nulls(hint, value, f"{name}.")
        elif value is None and type(None) not in typing.get_args(hint):
            raise ValueError(f"{name} is null, and needs a value.")


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


def _with_values(words, record) -> list[str]:
    """Adds "true" behind each flag that has no value."""
    flags = _flags(record)
    result = []
    for word, after in zip(words, [*words[1:], "--"], strict=False):
        result.append(word)
        if word in flags and after.startswith("-"):
            result.append("true")
    return result


def _flags(record, prefix="--") -> set[str]:
    """Return the options of a record, and of its groups, that are booleans."""
    flags = set()
    for name, hint in typing.get_type_hints(record).items():
        if dataclasses.is_dataclass(hint):
            flags |= _flags(hint, f"{prefix}{name}.")
        elif hint is bool:
            flags.add(prefix + name)
    return flags


def _with_configs(words, record) -> list[str]:
    """Replaces the names of configs by their paths, and what is not for us.

    Files with groups of other recipes are replaced by their text without.

    Raises:
        ValueError: when there is no such config.
    """
    skipped = {*OWN_GROUPS} - {x.name for x in dataclasses.fields(record)}
    result = []
    for before, word in zip(["", *words], words, strict=False):
        prefix = "--config=" if word.startswith("--config=") else ""
        if prefix or before == "--config":
            word = prefix + _config(word.removeprefix(prefix), skipped)
        result.append(word)
    return result


def _config(word: str, skipped: set[str]) -> str:
    """Return the path of a config, or its text without some groups."""
    import yaml

    if not isinstance(_parsed(word), str):
        return word  # The text of a config.
    path = config_path(word)
    check_regular(path)
    if path.is_file() and path.stat().st_size > MAX_YAML_BYTES:
        raise ValueError(
            f"{str(path)!r} has {path.stat().st_size:,} bytes, where a config "
            f"has at most {MAX_YAML_BYTES:,}."
        )
    try:
        content = _parsed(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        content = None  # The parser explains what is wrong.
    if isinstance(content, dict) and skipped & content.keys():
        kept = {k: x for k, x in content.items() if k not in skipped}
        return yaml.safe_dump(kept)
    return str(path)


def _parsed(text: str) -> Any:
    """Return the values of a text, None where it is no YAML.

    Raises:
        ValueError: for one of more levels or values than configs have.
    """
    import yaml

    check_yaml(text)
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return None  # The parser explains what is wrong.


@functools.cache
def _parser(record, description, usage, program):
    """Make the parser of a record, which takes longer than its use."""
    import jsonargparse

    del program  # It is named by sys.argv.

    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser = jsonargparse.ArgumentParser(
        description=description,
        usage=usage,
        exit_on_error=False,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config",
        action="config",
        help="YAML file that sets fields, or a name of `keras-vit configs`.",
    )
    _add_options(parser, record)
    parser.set_defaults(_defaults(record))
    return parser


def _add_options(parser, record):
    """Adds the groups of a record by their names, then its other fields."""
    groups = {
        field.name: field.type
        for field in dataclasses.fields(record)
        if dataclasses.is_dataclass(field.type)
    }
    for name, group in groups.items():
        parser.add_argument(f"--{name}", type=group)
    parser.add_class_arguments(record, skip=set(groups))
    for name, group in parser.groups.items():
        group.title = f"{name}: {group.title}"
    parser.groups[record.__name__].title = "run"


def _suggestion(message: str, keys: list[str]) -> str:
    """Suggest the key that an unknown one was probably meant to be."""
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
