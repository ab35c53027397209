"""How a run begins in its folder, or resumes from its newest checkpoint."""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Iterator, Sequence

import keras
import numpy as np

from keras_vit.data.config import (
    GIVEN,
    DataConfig,
    chosen_reader,
    options_before,
)
from keras_vit.data.dataset import Dataset
from keras_vit.data.manifest import (
    MANIFEST,
    Image,
    changes,
    read_manifest,
    with_classes,
)
from keras_vit.io.atomic_files import write_json, write_yaml
from keras_vit.io.checks import check_kind
from keras_vit.io.run_folder import CONFIG, RESULT
from keras_vit.runtime.machine import environment
from keras_vit.training.checkpointing import (
    FOLDER,
    checkpoint_steps,
    read_newest,
)
from keras_vit.training.config import SIZES, Recipe
from keras_vit.training.distribution.processes import agreed, place
from keras_vit.training.optimizers import make_schedule
from keras_vit.training.run import files as run_folder
from keras_vit.training.run.files import shown
from keras_vit.training.stages import Plan

__all__ = [
    "as_begun",
    "changed_images",
    "differences",
    "is_longer",
    "open_run",
    "reopen",
    "same_images",
    "with_given",
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
# Options of the data that a run reads though its data set is open already.
STILL_READ = ("reader", "sampling", "accept_changes")
NAMES = "class_names.json"
READER = "data.reader"
# What "auto" stands for is known from the data, and in the config of a run.
BY_DATA = ("training.loss", "training.best_metric")
# What data and model decide where a recipe leaves it open.
SETTLED = ("training.batch_size", "optimizer.layer_decay", "model.head")


# Heads that stand for null, with weights.
LEFT_OPEN = ("new", "probe")


def as_begun(recipe: Recipe) -> Recipe:
    """The recipe with what its run began with, where it leaves that open.

    A run that is resumed keeps the reader that it began with, if it is here;
    and its head, parts by position and labels as they are written, if it began
    before there was another way.
    """
    folder = run_folder.local(recipe.run_dir)
    begun, changes = {}, {}
    finished = (folder / RESULT).exists()
    known = (folder / CONFIG).is_file()
    config = run_folder.read_config(folder) if known else {}
    head = (config.get("model") or {}).get("head")
    open_ = recipe.model.head is None and recipe.model.weights is not None
    if open_ and head in LEFT_OPEN and not (finished and recipe.overwrite):
        model = dataclasses.replace(recipe.model, head=head)
        recipe = dataclasses.replace(recipe, model=model)
    if not finished and known:
        begun = config.get("data") or {}
        changes = {
            name: value
            for name, value in options_before(begun).items()
            if getattr(recipe.data, name) == getattr(DataConfig(), name)
        }
    changes.pop("reader", None)
    if recipe.data.reader == "auto":
        # TensorFlow may not be installed here: then the run is refused.
        changes["reader"] = chosen_reader("auto", begun.get("reader"))
    data = dataclasses.replace(recipe.data, **changes)
    return dataclasses.replace(recipe, data=data)


def with_given(recipe: Recipe, dataset: Dataset | None) -> Recipe:
    """Return the recipe with the data that a given data set was opened by.

    Raises:
        ValueError: when the recipe describes other data.
    """
    if dataset is None:
        return recipe
    check_kind(Dataset, dataset=dataset)
    own = dataset.config or DataConfig(
        name="/".join(filter(None, (GIVEN, dataset.name)))
    )
    default, asked = DataConfig(), recipe.data
    names = [x.name for x in dataclasses.fields(own)]
    changed = {
        x: getattr(asked, x)
        for x in names
        if getattr(asked, x) not in (getattr(own, x), getattr(default, x))
    }
    other = {x: y for x, y in changed.items() if x not in STILL_READ}
    if other:
        known = dataset.config and {x: getattr(own, x) for x in other}
        raise ValueError(
            f"The data of the recipe are not those of dataset={dataset.name!r},"
            f" which is open already. Received: recipe.data with {other}, "
            f"dataset.config with {known}. Leave them out of the recipe, or "
            "give open_dataset(recipe.data)."
        )
    return dataclasses.replace(recipe, data=dataclasses.replace(own, **changed))


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
    folder = run_folder.local(recipe.run_dir)

    def compare():
        if not _continues(folder, recipe):  # `open_run` refuses another config.
            return None
        run_folder.get(folder, NAMES)
        found = changed_images(folder, images)
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


def changed_images(
    folder: pathlib.Path, images: Sequence[Image] | None
) -> list[str]:
    """Describe how images differ from those that the run in a folder has."""
    run_folder.get(folder, MANIFEST)
    path = folder / MANIFEST
    if images is None or not path.is_file():
        return []
    return changes(read_manifest(path), images)


def _continues(folder, recipe):
    """Return whether a recipe goes on with the run in a folder."""
    if not (folder / CONFIG).is_file():
        return False
    config = run_folder.read_config(folder)
    if (folder / RESULT).exists():
        return not recipe.overwrite and is_longer(config, recipe)
    return is_longer(config, recipe) or not differences(config, recipe)


def is_longer(config: dict, recipe: Recipe) -> bool:
    """Return whether a recipe is that of a run, but for more epochs or steps.

    Example:
        >>> is_longer(dataclasses.asdict(recipe_of_10), recipe_of_20)
        True
    """
    changed = [x.partition(":")[0] for x in differences(config, recipe)]
    unit = f"training.{recipe.training.unit}"
    return changed == [unit] and _begun_length(config, recipe) is not None


def _begun_length(config, recipe):
    """Return the shorter length that a run began with; None for no such one."""
    training = config.get("training") or {}
    length = training.get(recipe.training.unit)
    other = recipe.training.unit == "epochs" and training.get("steps")
    known = isinstance(length, int) and not other
    return length if known and length < recipe.training.length else None


def _begun_names(folder) -> list[str] | None:
    """The names of the classes that a run began with, if they are known."""
    try:
        names = json.loads((folder / NAMES).read_text(encoding="utf-8"))
        return [str(name) for name in names]
    except (OSError, ValueError, TypeError, RecursionError):
        return None


@contextlib.contextmanager
def open_run(
    recipe: Recipe, plan: Plan | None = None
) -> Iterator[tuple[pathlib.Path, tuple[dict, dict] | None]]:
    """Prepares the run folder of a recipe, or finds where to resume.

    Of several processes, the first one decides and holds the lock of the
    folder; all read the checkpoint.

    Args:
        recipe: the `Recipe`. That of the run but for more epochs or steps
            trains it longer, also where it is finished.
        plan: the `Plan` of its training, for that.

    Yields:
        The folder, and the newest whole checkpoint as `read_newest` returns
        it: None for a new run.

    Raises:
        ValueError: when the folder holds a finished run that may not be
            replaced, an unfinished one of another config, one whose schedule
            does not allow that it trains longer, something else, or
            checkpoints that are all broken; when another run has it; or when
            a process does not find the checkpoint of the first.
    """
    opened = []
    folder = run_folder.local(recipe.run_dir)
    with contextlib.ExitStack() as stack:

        def open_first():
            may = recipe.overwrite or _continues(folder, recipe)
            taken = run_folder.taken(folder, overwrite=may)
            stack.enter_context(taken)
            stack.enter_context(run_folder.published(folder))
            opened.append(_open_first(folder, recipe, plan))
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
        run_folder.get(folder, f"{FOLDER}/step-*.npz", "history.csv")


def _step(checkpoint):
    return None if checkpoint is None else checkpoint[1]["step"]


def _read_same(recipe, step):
    """The checkpoint that the first process continues from."""
    if step is None:
        return None
    folder = run_folder.local(recipe.run_dir)
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


def _open_first(folder, recipe, plan):
    finished = (folder / RESULT).exists()
    if _continues(folder, recipe):
        _lengthen(folder, recipe, plan)
    elif finished or not _is_unfinished(folder, recipe):
        config = dataclasses.asdict(recipe)
        run_folder.begin(folder, config, environment())
        return None
    _check_same(folder, recipe)
    run_folder.remove_partial(folder)
    checkpoint = read_newest(folder / FOLDER)
    _note_continuation(folder, checkpoint)
    return checkpoint


def _lengthen(folder, recipe, plan):
    """Make a run one of more epochs or steps, unless it is that already."""
    begun = _begun_length(run_folder.read_config(folder), recipe)
    if begun is None:
        return
    checkpoint = read_newest(folder / FOLDER)
    if checkpoint is not None:
        _check_longer(folder, recipe, plan, begun, checkpoint[1])
    # First: a finished run of this length would be refused.
    (folder / RESULT).unlink(missing_ok=True)
    write_yaml(folder / CONFIG, dataclasses.asdict(recipe))
    run_folder.publish(folder, exactly=True)


def _check_longer(folder, recipe, plan, begun, record):
    """Raise unless the steps that are done would be the same in a longer run.

    Then it ends with the weights of a run that began with that length.
    """
    step, unit = record["step"], recipe.training.unit
    total = begun if unit == "steps" else begun * plan.steps_per_epoch
    rates = [
        keras.ops.convert_to_numpy(
            make_schedule(
                recipe.optimizer,
                total_steps=length,
                steps_per_epoch=plan.steps_per_epoch,
            )(np.arange(step + 1))
        )
        for length in (total, plan.total)
    ]
    reasons = {
        "its early stopping ended it": record["ended"] and step < total,
        "its image sizes are for parts of that length": bool(
            recipe.training.image_sizes
        ),
        "it has no checkpoint at the end of an interval": step
        % plan.checkpoint_every,
        "its learning rate follows a schedule of that length "
        f"({recipe.optimizer.schedule}, warm-up and cool-down)": not (
            np.allclose(*rates, rtol=1e-5, atol=0)
        ),
    }
    for reason, holds in reasons.items():
        if holds:
            raise ValueError(
                f"The run in {shown(folder)!r} began with {begun} {unit} and "
                f"cannot train longer: {reason}. Begin a new run from its "
                f"weights: {_command(recipe, begun)}"
            )


def _command(recipe, begun) -> str:
    """Return the command that trains a run's model in a new run."""
    run, model, unit = recipe.run_dir, recipe.model, recipe.training.unit
    own = (*SIZES, "template")
    nulls = [x for x in own if getattr(model, x) is not None]
    words = [
        f"keras-vit finetune --config {run}/{CONFIG} --model.weights {run}",
        "--model.head keep",
        *(f"--model.{name} null" for name in nulls),
        *(["--training.head_bias 0"] if recipe.training.head_bias else []),
        f"--training.{unit} {recipe.training.length - begun}",
        f"--run_dir {run}-longer",
    ]
    return " ".join(words)


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
        run_folder.flat(json.loads(json.dumps(options)))
        for options in (config, dataclasses.asdict(type(recipe)()))
    )
    shared = {
        name: value
        for name, value in old.items()
        if name in config or not isinstance(value, dict)
    }
    known = run_folder.flat(shared)
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
