"""The config files say what the papers say."""

import functools
import pathlib

import pytest
from papers_table import (
    ADAM,
    AUGREG,
    SGD,
    TABLE_3,
    TABLE_4,
    TRANSFER,
    numbers,
    rows,
)
from recipe_scripts import CONFIGS, check, config, script
from sweep import SweepRecipe

from keras_vit.runs.script import parse


@pytest.mark.parametrize(
    ("file", "model", "epochs", "rate", "decay", "weight_decay", "dropout"),
    rows(TABLE_3),
)
def test_table_3(file, model, epochs, rate, decay, weight_decay, dropout):
    recipe = config(f"paper/table3_{file}")
    of_imagenet = file.startswith("imagenet_")
    data = file.split("_")[0].replace("imagenet", "imagenet2012")
    data = data.replace("imagenet201221k", "imagenet21k")
    check(
        recipe,
        ADAM
        | {
            "model.name": model,
            "model.dropout_rate": float(dropout),
            "model.stochastic_depth_rate": 0.0,
            "optimizer.learning_rate": float(rate),
            "optimizer.schedule": decay,
            "optimizer.weight_decay": float(weight_decay),
            "optimizer.clip_norm": 1.0 if of_imagenet else None,
            "training.batch_size": 4096,
            "training.steps": None,
        },
    )
    assert recipe.training.epochs in numbers(epochs)
    assert data in (
        recipe.data.name,
        pathlib.Path(recipe.data.folder or "").name,
    )


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        # Table 1 and section 4.1: a hybrid is a ResNet before these blocks.
        ("jft300m_r50_vit_l16", (1024, 24, 4096, 16, (3, 4, 9))),
        ("jft300m_r50_vit_l32", (1024, 24, 4096, 16, (3, 4, 6, 3))),
        ("jft300m_vit_h14", (1280, 32, 5120, 16, None)),
    ],
)
def test_sizes_of_models(name, sizes):
    model = config(f"paper/table3_{name}").model.vit(num_classes=5)
    assert sizes == (
        model.hidden_dim,
        model.num_layers,
        model.mlp_dim,
        model.num_heads,
        model.resnet_units,
    )
    # The head of pre-training has a hidden layer (section 3.1).
    assert model.representation_dim == model.hidden_dim


@pytest.mark.parametrize("file", ["jft300m_vit_b", "imagenet21k_vit_b"])
def test_large_data_has_the_sigmoid_loss(file):
    """As the authors say in issues 2, 34 and 89 of their repository."""
    check(
        config(f"paper/table3_{file}"),
        {"training.loss": "sigmoid", "training.head_bias": -10.0},
    )


@pytest.mark.parametrize(
    ("file", "data", "steps", "rates", "held_out", "warmup"), rows(TABLE_4)
)
def test_table_4(file, data, steps, rates, held_out, warmup):
    recipe = config(f"paper/table4_{file}", SweepRecipe)
    kept = 100 - int(held_out.removesuffix("%"))
    check(
        recipe,
        SGD
        | {
            "data.name": data,
            "data.train_split": f"train[:{kept}%]",
            "data.validation_split": f"train[{kept}%:]",
            "sweep.learning_rates": numbers(rates),
            "sweep.train_split": "train",
            "training.steps": int(steps),
            "optimizer.warmup_steps": int(warmup),
            # What the original trains and evaluates on.
            "preprocessing.train": "inception_crop",
            "preprocessing.flip": True,
            "preprocessing.evaluation": "squash",
            "preprocessing.rounding": "float32",
        },
    )
    assert recipe.optimizer.learning_rate in numbers(rates)


def test_vtab():
    """Table 4's last row, on the slices of google-research/task_adaptation."""
    check(
        config("paper/table4_vtab", SweepRecipe),
        SGD
        | {
            "data.name": "vtab/cifar100",
            "data.train_split": "train800",
            "data.validation_split": "val200",
            "data.test_split": "test",
            "sweep.train_split": "train800val200",
            "sweep.learning_rates": (0.01,),
            "optimizer.learning_rate": 0.01,
            "training.steps": 2500,
            "optimizer.warmup_steps": 500,
            "preprocessing.train": "squash",
            "preprocessing.flip": False,
        },
    )


def test_table_2_averages_the_weights_at_a_higher_resolution():
    changed = {"model.image_size": 512, "training.ema_decay": 0.9999}
    expected = {"model.name": "ViT_L16", "training.steps": 20_000}
    check(config("paper/table2_imagenet_l16"), SGD | changed | expected)


@pytest.mark.parametrize(
    ("file", "data", "epochs", "augmentation", "bias", "pooling", "hidden"),
    rows(AUGREG),
)
def test_augreg(file, data, epochs, augmentation, bias, pooling, hidden):
    layers, magnitude, alpha = numbers(augmentation)
    check(
        config(f"augreg/{file}"),
        ADAM
        | {
            "data.name": data,
            "model.name": "ViT_B16",
            "model.pooling": pooling,
            "model.representation_dim": int(hidden),
            "augmentation.rand_augment_layers": layers,
            "augmentation.rand_augment_magnitude": magnitude,
            "augmentation.mixup_alpha": alpha,
            "optimizer.learning_rate": 0.001,
            "optimizer.schedule": "cosine",
            # 1e-4 of big_vision is not times the learning rate, this is.
            "optimizer.weight_decay": 0.1,
            "optimizer.clip_norm": 1.0,
            "training.epochs": int(epochs),
            "training.batch_size": 4096,
            "training.loss": "sigmoid",
            "training.head_bias": float(bias),
        },
    )


@pytest.mark.parametrize(
    ("file", "data", "steps", "warmup", "rates", "crop"), rows(TRANSFER)
)
def test_augreg_transfer(file, data, steps, warmup, rates, crop):
    check(
        config(f"augreg/transfer_{file}", SweepRecipe),
        SGD
        | {
            "data.name": data,
            "model.weights": "augreg_imagenet21k",
            "sweep.learning_rates": numbers(rates),
            "training.steps": int(steps),
            "optimizer.warmup_steps": int(warmup),
            "preprocessing.train": crop,
            "preprocessing.evaluation": "resize_small_central_crop",
        },
    )


@pytest.mark.parametrize("epochs", [90, 150, 300])
def test_plain_vit_s16(epochs):
    """configs/vit_s16_i1k.py of big_vision and arXiv:2205.01580."""
    check(
        config(f"big_vision/s16_{epochs}ep"),
        ADAM
        | {
            "data.name": "imagenet2012",
            "model.name": "ViT_S16",
            "model.pooling": "mean",
            "model.position_embedding": "sincos2d",
            "model.representation_dim": 384,
            "model.dropout_rate": 0.0,
            "model.stochastic_depth_rate": 0.0,
            "augmentation.rand_augment_layers": 2,
            "augmentation.rand_augment_magnitude": 10,
            "augmentation.mixup_alpha": 0.2,
            "optimizer.learning_rate": 0.001,
            "optimizer.schedule": "cosine",
            "optimizer.weight_decay": 0.1,
            "optimizer.clip_norm": 1.0,
            "training.epochs": epochs,
            "training.batch_size": 1024,
            "training.loss": "softmax",
        },
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "s16",
            {
                "model.name": "ViT_S16",
                "optimizer.learning_rate": 0.0005 * 512 / 256,
                "optimizer.warmup_epochs": 10,
                "optimizer.weight_decay": 0.04,
                "optimizer.clip_norm": 3.0,
                "training.epochs": 100,
                "training.batch_size": 512,
                "training.keep": "last",
                "dino.local_crops": 8,
                "dino.out_dim": 65536,
                "dino.teacher_temperature": 0.07,
                "dino.warmup_teacher_temperature": 0.04,
                "dino.warmup_teacher_temperature_epochs": 30,
            },
        ),
        ("small", {"dino.centering": "mean", "dino.global_crops": 2}),
    ],
)
def test_dino(name, expected):
    """Appendix A of arXiv:2104.14294, and defaults of the code it names."""
    words = ["--config", str(CONFIGS / "dino" / f"{name}.yaml")]
    recipe = parse(script("pretrain").PretrainRecipe, words, "")
    assert recipe.method == "dino"
    for field, value in expected.items():
        found = functools.reduce(getattr, field.split("."), recipe)
        assert found == value, field


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("b16_1600ep", {"model.name": "ViT_B16", "training.epochs": 1600}),
        ("l16_800ep", {"model.name": "ViT_L16", "training.epochs": 800}),
    ],
)
def test_mae(name, expected):
    """Table 8 of arXiv:2111.06377."""
    words = ["--config", str(CONFIGS / "mae" / f"{name}.yaml")]
    recipe = parse(script("pretrain").PretrainRecipe, words, "")
    assert recipe.method == "mae"
    expected |= {
        "optimizer.learning_rate": pytest.approx(1.5e-4 * 4096 / 256),
        "optimizer.weight_decay": 0.05,
        "optimizer.beta_2": 0.95,
        "optimizer.warmup_epochs": 40,
        "preprocessing.least_area": 0.2,
        "training.batch_size": 4096,
        "mae.mask_ratio": None,
        "mae.decoder_dim": None,
    }
    for field, value in expected.items():
        found = functools.reduce(getattr, field.split("."), recipe)
        assert found == value, field


def test_no_config_is_left_out():
    """Each file of these folders has its row above."""
    named = {
        *(f"paper/table3_{row.values[0]}" for row in rows(TABLE_3)),
        *(f"paper/table4_{row.values[0]}" for row in rows(TABLE_4)),
        *(f"augreg/{row.values[0]}" for row in rows(AUGREG)),
        *(f"augreg/transfer_{row.values[0]}" for row in rows(TRANSFER)),
        *(f"big_vision/s16_{epochs}ep" for epochs in (90, 150, 300)),
        "paper/table4_vtab",
        "paper/table2_imagenet_l16",
        "digits_from_fractals",
        "fractals_small",
        "paper/masked_patch_b16",
        "seed_talk/cifar10_scratch",
        "cifar10_scratch",
        "quickstart",
        *("dino/s16", "dino/small"),
        *("mae/b16_1600ep", "mae/l16_800ep", "mae/small"),
    }
    found = CONFIGS.rglob("*.yaml")
    assert named == {
        path.relative_to(CONFIGS).with_suffix("").as_posix() for path in found
    }
