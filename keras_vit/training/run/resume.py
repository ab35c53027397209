"""How a run begins in its folder, or resumes from its newest checkpoint."""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Iterator, Sequence

from keras_vit.data.config import DataConfig, options_before
from keras_vit.data.dataset import Dataset
from keras_vit.data.manifest import (
    MANIFEST,
    Image,
    changes,
    read_manifest,
    with_classes,
)
from keras_vit.data.readers import chosen_reader
from keras_vit.io.atomic_files import write_json
from keras_vit.io.run_folder import CONFIG, RESULT
from keras_vit.runtime.machine import environment
from keras_vit.training.checkpoint_files import (
    FOLDER,
    checkpoint_steps,
    read_newest,
)
from keras_vit.training.config import Recipe
from keras_vit.training.distribution.processes import agreed, place
from keras_vit.training.run import files as run_folder
from keras_vit.training.run import store as run_store
from keras_vit.training.run.store import shown

__all__ = [
    "as_begun",
    "differences",
    "flat",
    "open_run",
    "reopen",
    "same_images",
]

# Fields that may change when a run resumes.
FREE = (
    "data.accept_changes",
    "distribution",
    "overwrite",
    "run_dir",
    "training.keep_checkpoints",
    "training.log_every_steps",
    "training.max_hours",
    "training.trackers",
)
NAMES = "class_names.json"
READER = "data.reader"
# What "auto" stands for is known from the data, and in the config of a run.
BY_DATA = ("training.loss", "training.best_metric")
# What data and model decide where a recipe leaves it open.
SETTLED = ("training.batch_size", "optimizer.layer_decay")


def as_begun(recipe: Recipe) -> Recipe:
    """The recipe with what its run began with, where it leaves that open.

    A run that is resumed keeps the reader that it began with, if it is here;
    and its parts by position and labels as they are written, if it began
    before there was another way.
    """
    folder = run_store.local(recipe.run_dir)
    begun, changes = {}, {}
    if not (folder / RESULT).exists() and (folder / CONFIG).is_file():
        begun = run_folder.read_config(folder).get("data") or {}
        changes = {
            name: value
            for name, value in options_before(begun).items()
            if getattr(recipe.data, name) == getattr(DataConfig(), name)
        }
    changes.pop("reader", None)
    if recipe.data.reader == "auto":
        reader = chosen_reader("auto")
        # TensorFlow may not be installed here: then the run is refused.
        changes["reader"] = (
            "pillow" if begun.get("reader") == "pillow" else reader
        )
    data = dataclasses.replace(recipe.data, **changes)
    return dataclasses.replace(recipe, data=data)


def same_images(
    recipe: Recipe, dataset: Dataset, images: Sequence[Image] | None
) -> Dataset:
    """The data set of a run, as the run has it where it is resumed.

    Args:
        recipe: the `Recipe`.
        dataset: its `Dataset`.
        images: of `list_images`.

    Raises:
        ValueError: when its images have changed since the run began, unless
            data.accept_changes is True; when its classes have.
    """
    folder = run_store.local(recipe.run_dir)

    def compare():
        begun = (folder / CONFIG).is_file() and not (folder / RESULT).exists()
        # `open_run` refuses another config.
        if not begun or differences(run_folder.read_config(folder), recipe):
            return None
        run_store.get(folder, MANIFEST, NAMES)
        if images is None or not (folder / MANIFEST).is_file():
            return None
        found = changes(read_manifest(folder / MANIFEST), images)
        if not found:
            return None
        what = (
            f"The images of the run in {shown(folder)!r} are not those that "
            f"it began with: {'; '.join(found)}."
        )
        names = _begun_names(folder) or list(dataset.class_names)
        with_classes(dataset, names, what)
        if not recipe.data.accept_changes:
            raise ValueError(
                f"{what} Put them back, choose another --run_dir, or give "
                "--data.accept_changes true to go on with what is there now."
            )
        print(what, flush=True)
        return names

    names = agreed(compare)
    return dataset if names is None else with_classes(dataset, names)


def _begun_names(folder) -> list[str] | None:
    """The names of the classes that a run began with, if they are known."""
    try:
        names = json.loads((folder / NAMES).read_text(encoding="utf-8"))
        return [str(name) for name in names]
    except (OSError, ValueError, TypeError, RecursionError):
        return None


@contextlib.contextmanager
def open_run(
    recipe: Recipe,
) -> Iterator[tuple[pathlib.Path, tuple[dict, dict] | None]]:
    """Prepares the run folder of a recipe, or finds where to resume.

    Of several processes, the first one decides and holds the lock of the
    folder; all read the checkpoint.

    Yields:
        The folder, and the newest whole checkpoint as `read_newest` returns
        it: None for a new run.

    Raises:
        ValueError: when the folder holds a finished run that may not be
            replaced, an unfinished one of another config, something else, or
            checkpoints that are all broken; when another run has it; or when
            a process does not find the checkpoint of the first.
    """
    opened = []
    folder = run_store.local(recipe.run_dir)
    with contextlib.ExitStack() as stack:

        def open_first():
            taken = run_folder.taken(folder, overwrite=recipe.overwrite)
            stack.enter_context(taken)
            stack.enter_context(run_store.published(folder))
            opened.append(_open_first(folder, recipe))
            return _step(opened[0])

        step = agreed(open_first)
        yield folder, opened[0] if opened else _read_same(recipe, step)


def reopen(folder: pathlib.Path) -> tuple[dict, dict] | None:
    """`read_newest` of a run folder, after the first process wrote it."""
    agreed(lambda: checkpoint_steps(folder / FOLDER))
    _get_checkpoints(folder)
    return read_newest(folder / FOLDER)


def _get_checkpoints(folder):
    """Brings what another process put into a store to this one."""
    if place()[1] > 1:
        run_store.get(folder, f"{FOLDER}/step-*.npz", "history.csv")


def _step(checkpoint):
    return None if checkpoint is None else checkpoint[1]["step"]


def _read_same(recipe, step):
    """The checkpoint that the first process continues from."""
    if step is None:
        return None
    folder = run_store.local(recipe.run_dir)
    _get_checkpoints(folder)
    checkpoint = read_newest(folder / FOLDER)
    if _step(checkpoint) != step:
        raise ValueError(
            f"The first process continues from step {step}, but process "
            f"{place()[0]} finds step {_step(checkpoint)} in "
            f"{shown(folder)!r}. Choose a --run_dir in a store, or on a disk "
            "that all hosts share."
        )
    return checkpoint


def _open_first(folder, recipe):
    finished = (folder / RESULT).exists()
    if finished or not _is_unfinished(folder, recipe):
        config = dataclasses.asdict(recipe)
        run_folder.begin(folder, config, environment())
        return None
    _check_same(folder, recipe)
    run_folder.remove_partial(folder)
    checkpoint = read_newest(folder / FOLDER)
    _note_continuation(folder, checkpoint)
    return checkpoint


def _is_unfinished(folder, recipe):
    """Whether a run is to be continued; one without a config is replaced."""
    if (folder / CONFIG).exists():
        return True
    return run_folder.is_begun(folder) and not recipe.overwrite


def _check_same(folder, recipe):
    different = differences(run_folder.read_config(folder), recipe)
    if different:
        raise ValueError(
            f"The folder {shown(folder)!r} holds an unfinished run of "
            f"another config: {'; '.join(different)}. Give the same config to "
            "continue it, choose another --run_dir, or remove the folder."
        )


def _note_continuation(folder, checkpoint):
    """Adds the step and the environment to environment.json."""
    path = folder / run_folder.ENVIRONMENT
    try:
        content = dict(json.loads(path.read_text(encoding="utf-8")))
        continued = list(content.get("continued", []))
    except (OSError, ValueError, TypeError, RecursionError):
        content, continued = {}, []  # Of a damaged file nothing is kept.
    step = checkpoint[1]["step"] if checkpoint else 0
    where = shown(folder)
    print(f"Continuing the run in {where} from step {step}", flush=True)
    continued.append({"step": step, **environment()})
    write_json(path, {**content, "continued": continued})


def differences(old: dict, recipe: Recipe) -> list[str]:
    """The fields in which a recipe differs from the config of a run.

    One text per field; fields that may change when a run resumes are left
    out. An option that is missing in the config had its default, and a group
    that the recipe lacks is an option of another recipe: configs of earlier
    versions have fewer options, and those of all recipes.

    Example:
        >>> differences({"seed": 0}, Recipe(seed=1))
        ['seed: was 0, now 1']
    """
    config = dataclasses.asdict(recipe)
    new, defaults = (
        flat(json.loads(json.dumps(options)))
        for options in (config, dataclasses.asdict(type(recipe)()))
    )
    shared = {
        name: value
        for name, value in old.items()
        if name in config or not isinstance(value, dict)
    }
    known = flat(shared)
    # Whatever read the images is what "auto" stands for.
    left_open = [x for x in (READER, *BY_DATA) if new.get(x) == "auto"]
    left_open += [x for x in SETTLED if new.get(x) is None]
    free = (*FREE, *left_open)
    before = options_before(shared.get("data") or {})
    before = {f"data.{name}": value for name, value in before.items()}
    # `as_begun` gives a run of an earlier version what it began with.
    left = [x for x in before if new.get(x) == defaults.get(x)]
    free = (*free, *(x for x in left if x != READER))
    old = {**defaults, **before, **known}
    return [
        f"{name}: was {_shown(old, name)}, now {_shown(new, name)}"
        for name in {**old, **new}
        if name not in free and old.get(name, ...) != new.get(name, ...)
    ]


def _shown(config, name):
    return repr(config[name]) if name in config else "not there"


def flat(config: dict, prefix: str = "") -> dict:
    """The fields of a config by their names on the command line."""
    fields = {}
    for name, value in config.items():
        if isinstance(value, dict):
            fields |= flat(value, f"{prefix}{name}.")
        else:
            fields[prefix + name] = value
    return fields
