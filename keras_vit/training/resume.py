"""Whether the run folder holds a run to begin, to continue or to refuse."""

import dataclasses
import datetime
import json
import pathlib

from keras_vit.training import checkpoints, run_folder
from keras_vit.training.config import Recipe
from keras_vit.training.distribution.processes import agreed, place
from keras_vit.training.environment import environment

__all__ = ["differences", "flat", "open_run", "reopened"]

# What may change between the parts of a run: where it is, and what it shows.
FREE = (
    "distribution",
    "overwrite",
    "run_dir",
    "training.keep_checkpoints",
    "training.log_every_steps",
)


def open_run(recipe: Recipe) -> tuple[pathlib.Path, tuple[dict, dict] | None]:
    """Prepares the run folder of a recipe, or finds where to continue.

    Of several processes, the first one decides; all read the checkpoint.

    Args:
        recipe: a `Recipe`.

    Returns:
        The folder, and the newest whole checkpoint as
        `checkpoints.read_newest` gives it: None for a run from the beginning.

    Raises:
        ValueError: when the folder holds a finished run that may not be
            replaced, an unfinished one of another config, something else, or
            checkpoints that are all broken; or when a process does not find
            the checkpoint of the first.

    Example:
        >>> folder, checkpoint = open_run(Recipe(run_dir="runs/digits"))
    """
    opened = []

    def open_first():
        opened.extend(_open_first(recipe))
        return _step(opened[1])

    step = agreed(open_first)
    if not opened:
        opened = [pathlib.Path(recipe.run_dir), _read_as_well(recipe, step)]
    return opened[0], opened[1]


def reopened(folder: pathlib.Path) -> tuple[dict, dict] | None:
    """Reads the checkpoint that this run wrote last.

    Of several processes, all wait until it is there.

    Args:
        folder: the run folder.

    Returns:
        As `checkpoints.read_newest`.

    Example:
        >>> arrays, record = reopened(folder)
    """
    place_of_all = folder / checkpoints.FOLDER
    agreed(lambda: checkpoints.steps(place_of_all))
    return checkpoints.read_newest(place_of_all)


def _step(checkpoint):
    return None if checkpoint is None else checkpoint[1]["step"]


def _read_as_well(recipe, step):
    """The checkpoint that the first process continues from."""
    if step is None:
        return None
    folder = pathlib.Path(recipe.run_dir, checkpoints.FOLDER)
    checkpoint = checkpoints.read_newest(folder)
    if _step(checkpoint) != step:
        raise ValueError(
            f"The first process continues from step {step}, but process "
            f"{place()[0]} finds step {_step(checkpoint)} in {str(folder)!r}. "
            "Choose a --run_dir on a disk that all hosts share."
        )
    return checkpoint


def _open_first(recipe):
    folder = run_folder.check(recipe.run_dir, overwrite=recipe.overwrite)
    config = folder / run_folder.CONFIG
    if (folder / run_folder.RESULT).exists() or not config.exists():
        _begin(folder, recipe)
        return folder, None
    _check_same(config, recipe)
    checkpoint = checkpoints.read_newest(folder / checkpoints.FOLDER)
    _note_continuation(folder, checkpoint)
    return folder, checkpoint


def _begin(folder, recipe):
    run_folder.clear(folder)
    run_folder.write_json(folder / run_folder.MARK, environment())
    run_folder.write_yaml(
        folder / run_folder.CONFIG, dataclasses.asdict(recipe)
    )


def _check_same(path, recipe):
    import yaml

    different = differences(
        yaml.safe_load(path.read_text()), dataclasses.asdict(recipe)
    )
    if different:
        raise ValueError(
            f"The folder {str(path.parent)!r} holds an unfinished run of "
            f"another config: {'; '.join(different)}. Give the same config to "
            "continue it, choose another --run_dir, or remove the folder."
        )


def _note_continuation(folder, checkpoint):
    """Adds to environment.json on what, and from where, it goes on."""
    path = folder / run_folder.MARK
    content = json.loads(path.read_text())
    step = checkpoint[1]["step"] if checkpoint else 0
    now = datetime.datetime.now(datetime.UTC).isoformat("T", "seconds")
    content.setdefault("continued", []).append(
        {"step": step, "time": now, **environment()}
    )
    run_folder.write_json(path, content)


def differences(old: dict, new: dict) -> list[str]:
    """Says in which fields two configs differ.

    Args:
        old: nested dictionaries of plain values.
        new: the same, of the command that was given now.

    Returns:
        A text a field, such as "seed: was 0, now 1". Fields that may change
        from one part of a run to the next are left out. An option that the
        old one does not know had its default.

    Example:
        >>> differences({"seed": 0}, {"seed": 1})
        ['seed: was 0, now 1']
    """
    new, defaults = (
        flat(json.loads(json.dumps(config)))
        for config in (new, dataclasses.asdict(Recipe()))
    )
    known = {name: defaults[name] for name in new if name in defaults}
    old = {**known, **flat(old)}
    return [
        f"{name}: was {_shown(old, name)}, now {_shown(new, name)}"
        for name in {**old, **new}
        if name not in FREE and old.get(name, ...) != new.get(name, ...)
    ]


def _shown(config, name):
    return repr(config[name]) if name in config else "not there"


def flat(config: dict, prefix: str = "") -> dict:
    """The fields of a config by the names that they have on a command line.

    Args:
        config: dictionary of plain values and dictionaries.
        prefix: str, what all names begin with.

    Returns:
        A dictionary without dictionaries.

    Example:
        >>> flat({"model": {"size": 32}, "seed": 0})
        {'model.size': 32, 'seed': 0}
    """
    fields = {}
    for name, value in config.items():
        if isinstance(value, dict):
            fields |= flat(value, f"{prefix}{name}.")
        else:
            fields[prefix + name] = value
    return fields
