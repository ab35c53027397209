"""A field of a config with a value of another type is refused by its name."""

import dataclasses
import json
import typing

import numpy as np
import pytest

from keras_vit import data, models, planning, serving, text, training, variants
from keras_vit.checkpoints.files.tensors import read_record
from keras_vit.evaluation.config import Evaluation, ModelSource
from keras_vit.evaluation.few_shot import FewShot
from keras_vit.io.checks import check_kind, is_of
from keras_vit.training.tasks import dino, distillation, mae, masked_patch

CONFIGS = (
    *(models.ViTConfig, models.MixerConfig, models.BiTConfig),
    *(variants.VariantConfig, variants.VariantTransformerConfig),
    *(text.TextConfig, training.ModelConfig, training.OptimizerConfig),
    *(training.TrainingConfig, training.Recipe, data.DataConfig),
    *(data.PreprocessingConfig, data.AugmentationConfig, mae.MAEConfig),
    *(dino.DINOConfig, distillation.DistillConfig),
    *(masked_patch.MaskedPatchConfig, Evaluation, ModelSource, FewShot),
    *(planning.Settings, serving.ServingLimits),
)
# By the words of a type, what is of none but such a one. Infinity and NaN are
# of none.
WRONG: dict = {
    "str": "x",
    "float": 2.5,
    "bool": True,
    "None": None,
    "dict": {},
    "set": {1, 2},
    "infinity": float("inf"),
    "NaN": float("nan"),
    "NumPy's NaN": np.float32("nan"),
    "an object": object(),
}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda x: x.__name__)
def test_a_value_of_another_type_is_refused(config):
    tried = 0
    for name, kind in typing.get_type_hints(config).items():
        allowed = str(kind)
        if "Any" in allowed:
            continue
        for words, value in WRONG.items():
            if words in allowed or words == "dict" and name == "variant":
                continue
            tried += 1
            with pytest.raises(ValueError, match=rf"^{name} must be .*{name}="):
                config(**{name: value})
    assert tried >= 4 * len(dataclasses.fields(config))


def test_numbers_of_numpy_are_those_of_python():
    python: dict = {"hidden_dim": 24, "num_heads": 2, "dropout_rate": 0.5}
    numpy: dict = {
        "hidden_dim": np.int64(24),
        "num_heads": np.uint8(2),
        "dropout_rate": np.float32(0.5),
        "image_size": np.int64(16),
        "patch_size": np.int32(4),
    }
    config = models.ViTConfig(**numpy)
    assert config == models.ViTConfig(
        **python, image_size=(16, 16), patch_size=(4, 4)
    )
    assert json.loads(json.dumps(dataclasses.asdict(config)))["num_heads"] == 2


@pytest.mark.parametrize(
    ("kind", "value", "right"),
    [
        (int, 1, True),
        (int, np.int64(1), True),
        (int, 1.0, False),
        (int, True, False),
        (float, 1, True),
        (float, 10**400, True),
        (float, "1", False),
        (bool, np.bool_(True), True),
        (bool, 1, False),
        (tuple[int, int], [1, 2], True),
        (tuple[int, int], (1, 2, 3), False),
        (tuple[str, ...], (), True),
        (tuple[str, ...], "ab", False),
        (tuple[str, ...] | None, None, True),
        (dict[str, int], {}, True),
        (np.ndarray, [1], False),
    ],
)
def test_what_is_of_a_type(kind, value, right):
    assert is_of(kind, value) is right


def test_the_message_has_both_types():
    message = (
        r"^sides must be tuple\[int, int\] \| None. Received: sides='a', a "
    )
    with pytest.raises(ValueError, match=message + "str.$"):
        check_kind(tuple[int, int] | None, sides="a")
    message = "^config must be DataConfig. Received: config=1, an int.$"
    with pytest.raises(ValueError, match=message):
        check_kind(data.DataConfig, config=1)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("num_heads", 3, -3),
        ("image_size", [32, 48], [32, -48]),
        ("image_size", [32, 48], [32, 48, 3]),
        ("global_attention_blocks", [], [1, "2"]),
        ("layer_norm_epsilon", 1e-5, "1e-5"),
        ("class_token", None, None),  # Its tensor shows it.
        ("unit_features", True, 1),
        ("rope", None, 2),
    ],
)
def test_a_record_has_values_of_their_types_alone(name, right, wrong):
    fields, _ = read_record("x.npz", json.dumps({name: wrong}))
    assert fields == {}
    fields, _ = read_record("x.npz", json.dumps({name: right}))
    found = tuple(right) if isinstance(right, list) else right
    assert fields == ({} if name == "class_token" else {name: found})
