"""Whole runs on several virtual devices of this process, told as JSON.

`main(folder, options, choice, ...)` trains 30 steps of SGD in float32 for each
choice of devices, with clipping, a moving average, Mixup and an evaluation
whose last batch is filled up. The options are fields of the configs as JSON.
With a "method" it learns without labels.
"""

import csv
import dataclasses
import json
import pathlib

import keras
import numpy as np
import tiny_training as tiny
from PIL import Image

from keras_vit import data
from keras_vit.training import (
    ModelConfig,
    OptimizerConfig,
    Recipe,
    TrainingConfig,
    train,
)
from keras_vit.training.build import CLASSIFICATION
from keras_vit.training.tasks import (
    DINO,
    DISTILLATION,
    MAE,
    MASKED_PATCH,
    DINOConfig,
    DistillConfig,
    MAEConfig,
    MaskedPatchConfig,
)
from keras_vit.training.tasks.feature_watch import with_known_classes

DATASET = data.Dataset(
    tiny.examples(tiny.IMAGES, seed=0),
    tiny.examples(10, seed=1),
    None,
    tiny.CLASS_NAMES,
)
OF_THE_MACHINE = ("images_per_second", "peak_memory")
TASKS = {
    None: CLASSIFICATION,
    "masked_patch": MASKED_PATCH,
    "mae": MAE,
    "dino": DINO,
    "distill": DISTILLATION,
}
DINO_OPTIONS = {
    **{"local_crops": 2, "local_size": 4, "out_dim": 16, "head_dim": 16},
    **{"bottleneck_dim": 8, "teacher_momentum": 0.9, "blur_sigma": 0.5},
    **{"freeze_last_layer_epochs": 0.0, "freeze_encoder_epochs": 0.0},
}


@dataclasses.dataclass(frozen=True)
class Unlabelled(Recipe):
    """A recipe with the options of the methods without labels."""

    masked_patch: MaskedPatchConfig = MaskedPatchConfig()
    mae: MAEConfig = MAEConfig(0.5, True, 8, 1, 2, 8)
    dino: DINOConfig = DINOConfig(**DINO_OPTIONS)
    distill: DistillConfig = DistillConfig()


def _shards(folder, shards):
    # Several processes of TensorFlow read with no other.
    with_tensorflow = keras.backend.backend() == "tensorflow"
    return data.DataConfig(
        shards=shards,
        index_dir=str(folder.parent / "indexes"),
        reader="tensorflow" if with_tensorflow else "pillow",
    )


def recipe(
    folder,
    choice,
    *,
    model=None,
    training=None,
    shards=None,
    method=None,
    knn_folder=None,
    **options,
):
    """The recipe; `options` of a method, such as dino={"koleo_weight": 1}."""
    del knn_folder
    kind, kinds = Recipe, {}
    plain: tuple[dict, dict]
    plain = {"ema_decay": 0.9}, {"shift": 0.2, "mixup_alpha": 0.2}
    if method is not None:
        usual = {"dino": DINO_OPTIONS, "mae": vars(Unlabelled().mae)}
        kinds = {
            name: type(getattr(Unlabelled(), name))(
                **{**usual.get(name, {}), **fields}
            )
            for name, fields in options.items()
        }
        kind, plain = Unlabelled, ({"keep": "last"}, {})
    return kind(
        **kinds,
        data=_shards(folder, shards) if shards else data.DataConfig(),
        model=ModelConfig(
            image_size=8,
            patch_size=4,
            channels=1,
            hidden_dim=16,
            num_layers=1,
            mlp_dim=32,
            num_heads=2,
            **(model or {}),
        ),
        optimizer=OptimizerConfig(
            name="sgd",
            learning_rate=0.1,
            schedule="linear",
            end_learning_rate=0.05,
            warmup_steps=2,
            clip_norm=0.3,
        ),
        training=TrainingConfig(
            **{
                "steps": 30,
                "batch_size": 16,
                **plain[0],
                "log_every_steps": 1,
                "checkpoint_every_steps": 10,
                **(training or {}),
            }
        ),
        preprocessing=data.PreprocessingConfig(evaluation="squash"),
        augmentation=data.AugmentationConfig(**plain[1]),
        distribution=choice,
        run_dir=str(folder),
    )


def lines(folder):
    """The lines of metrics.jsonl, without what the machine decides."""
    text = (pathlib.Path(folder) / "metrics.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    return [
        {name: row[name] for name in row if name not in OF_THE_MACHINE}
        for row in rows
    ]


def history(folder):
    """The rows of history.csv, likewise."""
    with (pathlib.Path(folder) / "history.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        {k: float(x) for k, x in row.items() if k not in OF_THE_MACHINE}
        for row in rows
    ]


def dataset_of(recipe):
    """The images in memory, unless the recipe names shards."""
    return None if recipe.data.shards else DATASET


def task_of(method=None, knn_folder=None, **options):
    """The `Task` of some options."""
    del options
    task = TASKS[method]
    return with_known_classes(task, knn_folder) if knn_folder else task


def told(folder, choice, **options):
    """The lines of metrics.jsonl, and a number of each weight at the end."""
    asked = recipe(folder / choice, choice, **options)
    task = task_of(**options)
    run = train(asked, dataset=dataset_of(asked), task=task)
    return {
        "lines": lines(run.folder),
        "history": history(run.folder),
        "weights": [float(np.abs(x).sum()) for x in run.model.get_weights()],
    }


def main(folder, options, *choices):
    folder, options = pathlib.Path(folder), json.loads(options)
    found = {choice: told(folder, choice, **options) for choice in choices}
    print(json.dumps(found))


def check_same(one, other):
    """Raises where a run was not as the one on one device is."""
    assert [line["step"] for line in one["lines"]][-1] == 30
    losses = [line["loss"] for line in one["lines"]]
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])
    assert max(line["gradient_norm"] for line in one["lines"]) > 0.3
    assert sum("val_accuracy" in line for line in one["lines"]) == 3
    check_rows(one["lines"], other["lines"])
    np.testing.assert_allclose(other["weights"], one["weights"], 1e-5)


# Options of `recipe`; a distillation needs a teacher, see `unlabelled`.
METHODS: dict = {
    "mae": {"method": "mae"},
    "dino": {
        "method": "dino",
        "dino": {"ibot_weight": 0.5, "ibot_head": "own", "koleo_weight": 0.1},
    },
    "sinkhorn": {
        "method": "dino",
        "dino": {"centering": "sinkhorn", "ibot_weight": 0.5},
    },
    "distill": {"method": "distill"},
}


def unlabelled(name, folder):
    """Options of `METHODS`, a teacher in a folder, and images to tell apart."""
    options = {**METHODS[name], "knn_folder": str(folder / "known")}
    known = tiny.examples(21, seed=5)
    labels = np.random.default_rng(5).permutation(known.labels)
    for i, label in enumerate(labels):
        path = folder / "known" / str(label) / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.asarray(known.contents[i])[..., 0]).save(path)
    if name == "distill":
        tiny.model().save(folder / "teacher.keras")
        options["distill"] = {"teacher": str(folder / "teacher.keras")}
    return options


def check_unlabelled(one, other):
    """Raises where a run without labels is not as the one on one device."""
    assert [line["step"] for line in one["lines"]][-1] == 30
    losses = [line["loss"] for line in one["lines"]]
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])
    assert len(one["history"]) == 3
    assert {"val_knn", "val_probe", "feature_rank"} <= one["history"][-1].keys()
    for part in ("lines", "history"):
        # Entropies may be near 0, and DINO's rounding errors grow by the step:
        # of gradient norms to 1.8e-5 of them in 21.
        check_rows(one[part], other[part], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(other["weights"], one["weights"], 1e-5)


def check_rows(rows, others, *, rtol=1e-5, atol=0.0):
    """Raises where the numbers of rows are not those of others."""
    for line, expected in zip(others, rows, strict=True):
        assert line.keys() == expected.keys()
        np.testing.assert_allclose(
            list(line.values()),
            list(expected.values()),
            rtol=rtol,
            atol=atol,
            err_msg=line,
        )
