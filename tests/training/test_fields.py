"""Every field of a recipe does something, or is refused where it cannot.

A field without a row here, or in `ELSEWHERE`, fails the first test.
"""

import csv
import dataclasses
import functools
import hashlib
import pathlib
import types
import warnings
from typing import Any

import keras
import numpy as np
import pytest
import tiny_training as tiny
import whole_runs
from PIL import Image

from keras_vit import data
from keras_vit.runtime.workarounds import sublayers
from keras_vit.training import (
    ModelConfig,
    OptimizerConfig,
    Recipe,
    TrainingConfig,
    train,
)
from keras_vit.training.build import (
    CLASSIFICATION,
    make_loss,
    make_model,
    make_stream,
    make_validation,
)
from keras_vit.training.optimizers import make_optimizer, make_schedule
from keras_vit.training.stages import make_plan, make_stages
from keras_vit.variants import VariantConfig

TESTS = pathlib.Path(__file__).parents[1]
GROUPS: dict[str, Any] = {
    field.name: type(field.default)
    for field in dataclasses.fields(whole_runs.Unlabelled)
    if dataclasses.is_dataclass(field.default)
}
BASE = {
    "data": {"reader": "pillow"},
    "model": {
        "image_size": 8,
        "patch_size": 4,
        "channels": 1,
        "hidden_dim": 8,
        "num_layers": 2,
        "mlp_dim": 8,
        "num_heads": 2,
    },
    "preprocessing": {},
    "augmentation": {},
    "optimizer": {"warmup_steps": 1},
    "training": {"steps": 40, "batch_size": 8},
    "masked_patch": {},
    "mae": {
        **{"decoder_dim": 16, "decoder_layers": 1, "decoder_heads": 2},
        "decoder_mlp_dim": 16,
    },
    "dino": {
        **{"local_crops": 1, "local_size": 4, "blur_sigma": 0.5},
        **{"head_dim": 16, "bottleneck_dim": 8, "out_dim": 16},
    },
    "distill": {},
    "recipe": {},
}
# Of a layer, what its weights do not show.
FACTS = ("rate", "lora_alpha", "rematerialize", "num_heads")
TOTAL, PER_EPOCH = 40, 10  # steps
HYBRID = {
    **{"resnet_units": (1,), "resnet_width": 32},
    **{"image_size": 32, "patch_size": 1},
}
# What stands in place of the sizes of the base for fields that exclude them.
TINY_32 = {"size": "tiny", "image_size": 32}
BARE = {
    "name": TINY_32,
    "size": {"image_size": 32},
    "weights": {"image_size": 8},
    "head": {"image_size": 8},
}


def recipe_of(group=None, **fields):
    """The tiny recipe with other fields of one group."""
    given = {
        name: {**base, **(fields if name == group else {})}
        for name, base in BASE.items()
    }
    own = given.pop("recipe")
    groups = {name: GROUPS[name](**given[name]) for name in given}
    return whole_runs.Unlabelled(**groups, **own)


def digest(*arrays):
    found = hashlib.sha256()
    for array in map(np.ascontiguousarray, arrays):
        found.update(str((array.shape, array.dtype)).encode())
        found.update(array.tobytes())
    return found.hexdigest()


def opened(recipe):
    """What is in each part of the data."""
    dataset = data.open_dataset(recipe.data)
    return dataset.class_names, [
        part
        and (
            [part.name_of(i) for i in range(len(part))],
            part.labels.tolist(),
            (part.reader, part.on_broken_image),
        )
        for part in (dataset.train, dataset.validation, dataset.test)
    ]


@functools.cache
def images(count, seed):
    """Images in colour that are larger than the model's, of no square shape."""
    contents = np.random.default_rng(seed).integers(
        0, 256, (count, 23, 31, 1), "uint8"
    )
    labels = np.arange(count, dtype=np.int32) % len(tiny.CLASS_NAMES)
    return data.Examples(contents, labels, reader="pillow")


def batches(recipe):
    """The first training batch of two epochs, and a validation batch."""
    dataset = data.Dataset(images(24, 0), images(8, 1), None, tiny.CLASS_NAMES)
    model = types.SimpleNamespace(input_shape=(None, 8, 8, 1))
    stream = make_stream(recipe, dataset, model)
    found = [next(iter(stream.from_step(i))) for i in (0, 3)]
    found.append(next(iter(make_validation(recipe, dataset, model) or ())))
    arrays = [np.asarray(x) for batch in found for x in batch]
    return digest(*arrays)


def unbalanced(recipe):
    """A training batch of classes with many and with few images."""
    train = images(24, 0).subset([*range(0, 24, 3), 1, 2])
    dataset = data.Dataset(train, None, None, tiny.CLASS_NAMES)
    model = types.SimpleNamespace(input_shape=(None, 8, 8, 1))
    stream = make_stream(recipe, dataset, model)
    return digest(*map(np.asarray, next(iter(stream.from_step(0)))))


def model(recipe):
    """The layers, the weights and what of them is trained."""
    keras.utils.set_random_seed(recipe.seed)
    made = make_model(recipe, tiny.CLASS_NAMES)
    values = [keras.ops.convert_to_numpy(x) for x in made.weights]
    trained = [x.path for x in made.trainable_weights]
    layers = [
        (x.dtype_policy.name, *(getattr(x, fact, None) for fact in FACTS))
        for x in sublayers(made)
    ]
    return digest(*values), trained, layers


def updates(recipe):
    """The learning rates, and the weights after three updates."""
    keras.utils.set_random_seed(0)
    made = make_model(recipe_of(), tiny.CLASS_NAMES)
    lengths = {"total_steps": TOTAL, "steps_per_epoch": PER_EPOCH}
    optimizer = make_optimizer(
        recipe.optimizer, made, training=recipe.training, **lengths
    )
    variables = made.trainable_variables
    optimizer.build(variables)
    for scale in (1.0, 3.0, -0.5):
        optimizer.apply([keras.ops.full(x.shape, scale) for x in variables])
    rate = make_schedule(recipe.optimizer, **lengths)
    rates = [float(rate(i)) for i in range(TOTAL + 1)]
    values = [keras.ops.convert_to_numpy(x) for x in variables]
    config = optimizer.get_config()
    averaged = [config[x] for x in ("use_ema", "ema_momentum")]
    return rates, digest(*values), averaged


def loss(recipe):
    labels = np.eye(3, dtype="float32")
    logits = 3 * labels
    return float(make_loss(recipe.training)(labels, logits))


def plan(recipe):
    return make_plan(recipe, PER_EPOCH)


def stages(recipe):
    dataset = data.Dataset(images(24, 0), images(8, 1), None, tiny.CLASS_NAMES)
    made = make_model(recipe, tiny.CLASS_NAMES)
    found = make_stages(recipe, CLASSIFICATION, dataset, made, None)
    return [(x.network.input_shape, x.plan) for x in found]


def learned(method, recipe):
    """A batch, and outputs, loss and variables of the network after it."""
    dataset = data.Dataset(images(24, 0), None, None, tiny.CLASS_NAMES)
    model = dataclasses.replace(recipe.model, patch_size=2)
    labelled = recipe.distill.labels != "none"
    settled = {"loss": "softmax"} if labelled else {}
    training = dataclasses.replace(
        recipe.training, best_metric="val_loss", **settled
    )
    recipe = dataclasses.replace(recipe, model=model, training=training)
    task = whole_runs.TASKS[method]
    keras.utils.set_random_seed(0)
    made = task.make_model(recipe, tiny.CLASS_NAMES)
    network = task.make_network(recipe, made)
    stream = task.make_stream(recipe, dataset, made)
    batch = next(iter(stream.from_step(0)))
    inputs, *others = keras.tree.map_structure(np.asarray, batch)
    outputs = network(inputs, training=True)
    loss = task.make_loss(recipe)(others[0], outputs)
    found = [inputs, others, loss, outputs, [x.value for x in network.weights]]
    arrays = map(keras.ops.convert_to_numpy, keras.tree.flatten(found))
    return digest(*arrays)


of_masked, of_mae, of_dino, of_distill = (
    functools.partial(learned, name)
    for name in ("masked_patch", "mae", "dino", "distill")
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images in a folder and a CSV, others with a broken one, and weights."""
    root = tmp_path_factory.mktemp("fields")
    rows = []
    for number in range(40):
        path = root / "images" / f"{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), number).save(path)
        name = path.relative_to(root).as_posix()
        other = rows[-1][0] if rows else name
        more = root / "more" / name
        more.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 100 + number).save(more)
        rows.append(
            [
                *(name, other, "ab"[number % 2], "xyz"[number % 3]),
                *(
                    ("a|b", "b", "a+b")[number % 3],
                    ("train", "dev")[number > 30],
                ),
                *(number // 2 % 2, number % 3),
            ]
        )
    head = ["image", "other", "label", "kind", "several", "which"]
    head += ["fold", "other_fold"]
    bare = [[row[0].removesuffix(".png"), *row[1:]] for row in rows]
    odd = [list(x) for x in [["gone.png", *rows[0][1:]], *rows]]
    odd[7][2] = ""
    tables = {"list": rows, "bare": bare, "odd": odd}
    for name, table in tables.items():
        with (root / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(head)
            writer.writerows(table)
    for number in range(80):
        part = ("train", "val")[number // 40]
        path = root / "parts" / part / f"{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), number).save(path)
    broken = root / "broken"
    for number in range(40):
        path = broken / f"{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), number).save(path)
    path.write_bytes(path.read_bytes()[:40])
    made = make_model(recipe_of(), tiny.CLASS_NAMES)
    made.weights[-2].assign(np.ones((8, len(tiny.CLASS_NAMES))))
    made.save(root / "weights.keras")
    kernel = np.random.default_rng(0).normal(size=made.weights[-2].shape)
    made.weights[-2].assign(kernel)
    made.save(root / "other.keras")
    return root


TAUGHT = {"teacher": "{}/weights.keras"}


# What a field changes, its other value, and fields that it needs.
CHANGES = {
    "data": {
        "folder": (opened, "{}/images", {}),
        "csv": (opened, "{}/list.csv", {}),
        "layout": (opened, "classes", {"folder": "{}/parts"}),
        "train_split": (opened, "train[:50]", {}),
        "validation_split": (
            opened,
            "train[100:150]",
            {"train_split": "train[:99]"},
        ),
        "test_split": (opened, "train[9:99]", {"train_split": "train[:99]"}),
        "image_key": (opened, "other", {"csv": "{}/list.csv"}),
        "label_key": (opened, "kind", {"csv": "{}/list.csv"}),
        "image_root": (opened, "more", {"csv": "{}/list.csv"}),
        "image_suffix": (opened, "png", {"csv": "{}/bare.csv"}),
        "skip_missing": (
            opened,
            True,
            {"csv": "{}/odd.csv", "on_missing_label": "skip"},
        ),
        "on_missing_label": (
            opened,
            "skip",
            {"csv": "{}/odd.csv", "skip_missing": True},
        ),
        "label_kind": (
            opened,
            "one",
            {"csv": "{}/list.csv", "label_key": "several"},
        ),
        "label_separator": (
            opened,
            "+",
            {"csv": "{}/list.csv", "label_key": "several"},
        ),
        "split_key": (opened, "which", {"csv": "{}/list.csv"}),
        "fold_key": (opened, "other_fold", {"csv": "{}/list.csv", "fold": 1}),
        "folds": (opened, 2, {"folder": "{}/images", "fold": 0}),
        "fold": (opened, 0, {"csv": "{}/list.csv"}),
        "validation_fraction": (opened, 0.2, {}),
        "test_fraction": (opened, 0.3, {}),
        "split_seed": (opened, 1, {}),
        "split_by": (opened, "position", {"folder": "{}/images"}),
        "max_examples": (opened, 200, {}),
        "check_images": (opened, "none", {"folder": "{}/broken"}),
        "on_broken_image": (opened, "skip", {"folder": "{}/broken"}),
        "reader": (opened, "tensorflow", {}),
        "sampling": (unbalanced, "balanced", {}),
    },
    "model": {
        "name": (model, "Mixer_B16", {}),
        "weights": (model, "{}/weights.keras", {}),
        "head": (model, "keep", {"weights": "{}/weights.keras"}),
        "image_size": (model, 16, {}),
        "channels": (model, 3, {}),
        "patch_size": (model, 2, {}),
        "hidden_dim": (model, 16, {}),
        "num_layers": (model, 1, {}),
        "mlp_dim": (model, 12, {}),
        "num_heads": (model, 4, {}),
        "resnet_units": (model, (1, 1), HYBRID),
        "resnet_width": (model, 64, HYBRID),
        "pooling": (model, "token", {}),
        "position_embedding": (model, "sincos2d", {}),
        "representation_dim": (model, 8, {}),
        "dropout_rate": (model, 0.5, {}),
        "stochastic_depth_rate": (model, 0.5, {}),
        "variant": (model, VariantConfig(mlp="local"), {}),
        "size": (model, "tiny", {}),
    },
    "preprocessing": {
        "train": (batches, "squash", {}),
        "evaluation": (batches, "squash", {}),
        "flip": (batches, False, {}),
        "least_area": (batches, 0.9, {}),
        "resize_size": (batches, 16, {}),
        "resize_method": (batches, "bicubic", {}),
        "antialias": (batches, True, {"resize_method": "bilinear"}),
        "rounding": (batches, "float32", {}),
        "padding_colour": (batches, (7,), {"evaluation": "contain_pad"}),
    },
    "augmentation": {
        "shift": (batches, 0.2, {}),
        "rotation": (batches, 20.0, {}),
        "zoom": (batches, 0.2, {}),
        "rand_augment_layers": (batches, 2, {}),
        "rand_augment_magnitude": (batches, 3.0, {"rand_augment_layers": 4}),
        "mixup_alpha": (batches, 0.3, {}),
        "cutmix_alpha": (batches, 0.5, {}),
        "random_erasing_rate": (batches, 0.9, {}),
    },
    "optimizer": {
        "name": (updates, "sgd", {}),
        "learning_rate": (updates, 0.1, {}),
        "schedule": (updates, "constant", {}),
        "end_learning_rate": (updates, 1e-4, {"schedule": "linear"}),
        "timescale": (updates, 3, {"schedule": "rsqrt"}),
        "warmup_epochs": (updates, 1.0, {"warmup_steps": None}),
        "warmup_steps": (updates, 7, {}),
        "cooldown_steps": (updates, 5, {}),
        "weight_decay": (updates, 0.5, {}),
        "clip_norm": (updates, None, {}),
        "momentum": (updates, 0.5, {"name": "sgd"}),
        "beta_1": (updates, 0.5, {}),
        "beta_2": (updates, 0.5, {}),
        "layer_decay": (updates, 0.5, {}),
    },
    "training": {
        "epochs": (plan, 2, {"steps": None}),
        "steps": (plan, 30, {}),
        "batch_size": (batches, 4, {}),
        "loss": (loss, "sigmoid", {}),
        "class_weight": (unbalanced, "balanced", {}),
        "label_smoothing": (loss, 0.5, {}),
        "head_bias": (model, -1.0, {}),
        "trainable": (model, "head", {}),
        "lora_rank": (model, 2, {}),
        "lora_alpha": (model, 4.0, {"lora_rank": 2}),
        "also_train": (model, ("encoder_norm",), {"trainable": "head"}),
        "precision": (model, "mixed_bfloat16", {}),
        "accumulation_steps": (plan, 2, {}),
        "rematerialize": (model, True, {}),
        "ema_decay": (updates, 0.9, {}),
        "image_sizes": (stages, (4, 8), {"checkpoint_every_steps": 10}),
        "steps_per_execution": (plan, 2, {}),
        "evaluate_every_steps": (plan, 20, {"checkpoint_every_steps": 10}),
        "checkpoint_every_steps": (plan, 5, {}),
        "log_every_steps": (plan, 10, {}),
    },
    "masked_patch": {
        "target": (of_masked, "pixels", {}),
        "corruption_rate": (of_masked, 0.2, {}),
        "mask_rate": (of_masked, 0.2, {}),
        "random_rate": (of_masked, 0.2, {}),
    },
    "mae": {
        "mask_ratio": (of_mae, 0.5, {}),
        "normalize_pixels": (of_mae, False, {}),
        "decoder_dim": (of_mae, 8, {}),
        "decoder_layers": (of_mae, 2, {}),
        "decoder_heads": (of_mae, 4, {}),
        "decoder_mlp_dim": (of_mae, 8, {}),
        "mask_patch_size": (of_mae, 4, {}),
    },
    "dino": {
        "global_crops": (of_dino, 3, {}),
        "local_crops": (of_dino, 2, {}),
        "local_size": (of_dino, 6, {}),
        "global_scale": (of_dino, (0.5, 1.0), {}),
        "local_scale": (of_dino, (0.1, 0.3), {}),
        "canvas_size": (of_dino, 10, {}),
        "color_jitter": (of_dino, 0.5, {}),
        "blur_sigma": (of_dino, 1.0, {}),
        "solarize": (of_dino, False, {}),
        "head_dim": (of_dino, 8, {}),
        "bottleneck_dim": (of_dino, 4, {}),
        "out_dim": (of_dino, 8, {}),
        "norm_last_layer": (of_dino, False, {}),
        "freeze_last_layer_epochs": (of_dino, 0.0, {}),
        "freeze_encoder_epochs": (of_dino, 1.0, {}),
        "student_temperature": (of_dino, 0.2, {}),
        "teacher_temperature": (of_dino, 0.05, {}),
        "warmup_teacher_temperature": (
            of_dino,
            0.02,
            {"warmup_teacher_temperature_epochs": 2.0},
        ),
        "warmup_teacher_temperature_epochs": (
            of_dino,
            2.0,
            {"teacher_temperature": 0.06},
        ),
        "teacher_momentum": (of_dino, 0.9, {}),
        "centering": (of_dino, "sinkhorn", {}),
        "center_momentum": (of_dino, 0.5, {}),
        "koleo_weight": (of_dino, 0.1, {}),
        "ibot_weight": (of_dino, 0.5, {}),
        "ibot_rate": (of_dino, 0.9, {"ibot_weight": 0.5}),
        "ibot_ratio": (of_dino, (0.3, 0.6), {"ibot_weight": 0.5}),
        "ibot_masks": (of_dino, "blocks", {"ibot_weight": 0.5}),
        "ibot_head": (of_dino, "own", {"ibot_weight": 0.5}),
    },
    "distill": {
        "teacher": (
            of_distill,
            "{}/other.keras",
            {**TAUGHT, "logits": 1.0},
        ),
        "teacher_size": (of_distill, 16, TAUGHT),
        "features": (of_distill, 2.0, TAUGHT),
        "patches": (of_distill, 2.0, TAUGHT),
        "standardize": (of_distill, False, TAUGHT),
        "logits": (of_distill, 1.0, TAUGHT),
        "labels": (of_distill, "soft", {**TAUGHT, "logits": 1.0}),
        "temperature": (
            of_distill,
            1.0,
            {"teacher": "{}/other.keras", "logits": 1.0},
        ),
        "teacher_share": (
            of_distill,
            0.5,
            {**TAUGHT, "logits": 1.0, "labels": "soft"},
        ),
    },
    "recipe": {"seed": (batches, 1, {})},
}
# Fields whose effect is in files or in other processes, and the test of it.
ELSEWHERE = {
    "model.template": "text/test_zero_shot.py",
    "data.name": "data/test_tfds.py",
    "data.shards": "data/test_shards.py",
    "data.data_dir": "data/test_tfds.py",
    "data.download": "recipes/test_vtab_names.py",
    "data.memory_limit_mib": "data/test_streamed.py",
    "data.shuffle_buffer": "data/test_hub_data.py",
    "data.index_dir": "data/test_bad_shards.py",
    "data.accept_changes": "training/test_changed_data.py",
    "augmentation.keras_cv": "data/test_mixing.py",
    "augmentation.keras_cv_arguments": "data/test_mixing.py",
    "training.max_hours": "training/test_run_options.py",
    "training.trackers": "training/test_trackers.py",
    "training.keep_checkpoints": "training/test_checkpoints.py",
    "training.early_stopping_patience": "training/test_run_options.py",
    "training.best_metric": "training/test_kept_model.py",
    "training.keep": "training/test_kept_model.py",
    "mae.kind": "training/test_simmim.py",
    "mae.collapse_steps": "training/test_collapse.py",
    "dino.collapse_steps": "recipes/test_pretrain_dino.py",
    "distill.collapse_steps": "training/test_collapse.py",
    "recipe.distribution": "training/test_distribution.py",
    "recipe.run_dir": "training/test_run.py",
    "recipe.overwrite": "training/test_run_folder.py",
    "recipe.smoke": "recipes/test_smoke.py",
}


def test_every_field_has_a_row():
    known = {
        f"{group}.{field.name}"
        for group, kind in GROUPS.items()
        for field in dataclasses.fields(kind)
    }
    known |= {
        f"recipe.{field.name}"
        for field in dataclasses.fields(Recipe)
        if field.name not in GROUPS
    }
    rows = {f"{group}.{x}" for group, fields in CHANGES.items() for x in fields}
    assert sorted([*rows, *ELSEWHERE]) == sorted(known)


@pytest.mark.parametrize(("field", "file"), ELSEWHERE.items())
def test_what_is_tested_elsewhere_is_there(field, file):
    names = (field.rpartition(".")[2], "keep=", "smoke")
    text = (TESTS / file).read_text()
    assert any(name in text for name in names)


@pytest.mark.parametrize(
    ("group", "field"),
    [(group, field) for group, fields in CHANGES.items() for field in fields],
)
def test_a_field_changes_what_is_made(group, field, folder, monkeypatch):
    effect, value, needs = CHANGES[group][field]
    if group == "model" and field in BARE:
        monkeypatch.setitem(BASE, "model", BARE[field])

    def recipe(**fields):
        return recipe_of(
            group,
            **{
                name: x.format(folder) if isinstance(x, str) else x
                for name, x in fields.items()
            },
        )

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The classification layer in")
        changed = effect(recipe(**{**needs, field: value}))
        try:
            base = effect(recipe(**needs))
        except ValueError as error:  # Of a broken image.
            base = str(error)
    assert base != changed


UNREAD = [
    (data.DataConfig, {"folder": "x", "train_split": "train"}),
    (data.DataConfig, {"folder": "x", "validation_split": "train"}),
    (data.DataConfig, {"folder": "x", "test_split": "train"}),
    (data.DataConfig, {"folder": "x", "image_key": "a"}),
    (data.DataConfig, {"folder": "x", "label_key": "a"}),
    (data.DataConfig, {"folder": "x", "download": False}),
    (data.DataConfig, {"folder": "x", "data_dir": "a"}),
    (data.DataConfig, {"csv": "x", "data_dir": "a"}),
    (data.DataConfig, {"csv": "x", "layout": "classes"}),
    (data.DataConfig, {"folder": "x", "fold": 1}),
    (data.DataConfig, {"shards": "x", "label_kind": "one"}),
    (data.DataConfig, {"name": "digits", "skip_missing": True}),
    (data.DataConfig, {"csv": "x", "fold_key": "k"}),
    (
        data.DataConfig,
        {"csv": "x", "label_kind": "one", "label_separator": "|"},
    ),
    (data.DataConfig, {"name": "digits", "layout": "classes"}),
    (data.DataConfig, {"shards": "x", "train_split": "train"}),
    (data.DataConfig, {"name": "digits", "label_key": "a"}),
    (OptimizerConfig, {"schedule": "cosine", "end_learning_rate": 1.0}),
    (OptimizerConfig, {"schedule": "constant", "end_learning_rate": 1.0}),
    (OptimizerConfig, {"schedule": "rsqrt", "end_learning_rate": 1.0}),
    (OptimizerConfig, {"schedule": "cosine", "timescale": 5}),
    (OptimizerConfig, {"schedule": "linear", "timescale": 5}),
    (OptimizerConfig, {"name": "adamw", "momentum": 0.5}),
    (OptimizerConfig, {"name": "sgd", "beta_1": 0.5}),
    (OptimizerConfig, {"name": "sgd", "beta_2": 0.5}),
    (ModelConfig, {"weights": "x", "size": "tiny"}),
    (data.PreprocessingConfig, {"evaluation": "squash", "resize_size": 9}),
    (
        data.PreprocessingConfig,
        {"train": "squash", "evaluation": "central_crop", "resize_size": 9},
    ),
    (data.PreprocessingConfig, {"evaluation": "aspect_crop", "resize_size": 9}),
    (data.AugmentationConfig, {"rand_augment_magnitude": 5.0}),
    (data.AugmentationConfig, {"keras_cv_arguments": {"a": 1}}),
]


@pytest.mark.parametrize(("kind", "fields"), UNREAD)
def test_a_field_that_nothing_reads_is_refused(kind, fields):
    field, value = list(fields.items())[-1]
    message = f"{field} does nothing with .*Received: {field}={value!r}"
    with pytest.raises(ValueError, match=message.replace("{", "\\{")):
        kind(**fields)


def test_the_bias_of_a_head_that_is_kept_is_refused():
    with pytest.raises(ValueError, match='nothing with model.head="keep"'):
        Recipe(
            model=ModelConfig(weights="x", head="keep"),
            training=TrainingConfig(head_bias=-1.0),
        )


def test_a_trial_that_is_none_is_refused(tmp_path):
    recipe = Recipe(smoke=True, run_dir=str(tmp_path / "run"))
    with pytest.raises(ValueError, match="Received: smoke=True"):
        train(recipe)
    assert not (tmp_path / "run").exists()
