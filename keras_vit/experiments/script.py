"""The way of every recipe from its command line to its exit code."""

import sys
from collections.abc import Callable
from typing import Any

from keras_vit.training import Recipe
from keras_vit.training.command_line import fail, parse
from keras_vit.training.distribution.lost import (
    LostProcessError,
    explaining_loss,
    leave,
)
from keras_vit.training.distribution.processes import is_first, start
from keras_vit.training.smoke import smoke

__all__ = ["run_script"]

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
