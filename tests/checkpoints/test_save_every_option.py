"""What is written comes back as the same model, or is refused by name.

Every field of every config, alone and with every pooling, in every format
that is written. Both ends are tested: no field without values to try, and no
field that the table of the formats does not know.
"""

import dataclasses
import functools
import json
import random
import re

import keras
import numpy as np
import pytest

from keras_vit.checkpoints import load_checkpoint, save_checkpoint
from keras_vit.checkpoints.dialects import LAYOUTS
from keras_vit.checkpoints.files.tensors import read_record
from keras_vit.models import (
    BiT,
    BiTConfig,
    Mixer,
    MixerConfig,
    VisionTransformer,
    ViTConfig,
)
from keras_vit.models.options import (
    PLACES,
    TRAINING,
)

MODELS = {"vit": VisionTransformer, "mixer": Mixer, "bit": BiT}
CONFIGS = {"vit": ViTConfig, "mixer": MixerConfig, "bit": BiTConfig}
IMAGE = {"image_size": 16, "num_classes": 3}
TINY = {
    "vit": {
        **IMAGE,
        **{"patch_size": 4, "hidden_dim": 8, "num_heads": 2},
        **{"num_layers": 1, "mlp_dim": 12},
    },
    "mixer": {
        **IMAGE,
        **{"patch_size": 4, "hidden_dim": 8, "num_layers": 1},
        **{"tokens_mlp_dim": 6, "channels_mlp_dim": 12},
    },
    "bit": {**IMAGE, "units": (1,), "width": 32},
}
# What some formats fix, so that they are tried as well.
STYLES = {
    "vit": [
        {"activation": "gelu_tanh"},
        {"activation": "gelu"},
        {"activation": "gelu", "layer_norm_epsilon": 1e-12},
    ],
    "mixer": [{"activation": "gelu_tanh"}, {"activation": "gelu"}],
    "bit": [{}, {"standardization_epsilon": 1e-8}],
}
SIZE = {
    # 3 x 5 patches are a square with the class token, 2 x 8 without.
    "image_size": [(12, 20), (8, 32), (16, 16)],
    "channels": [1],
    "num_classes": [0, 1],
    "classifier_activation": ["softmax", "sigmoid"],
    "head_bias": [-6.0],
    "include_preprocessing": [True],
}
TOKENS = {
    "patch_size": [8, (4, 8)],
    "hidden_dim": [16],
    "num_layers": [2],
    "stochastic_depth_rate": [0.5],
    "layer_norm_epsilon": [1e-5, 0.3],
    "activation": ["gelu", "gelu_tanh", "quick_gelu", "swish", "tanh"],
}
CAIT = {
    **{"talking_heads": True, "class_attention_layers": 2},
    **{"layer_scale_init": 0.1, "pooling": "token"},
}
GAP = {
    **{"register_tokens": 1, "pooling": "mean", "class_token": False},
    "layer_scale_init": 0.1,
}
GROUPED = {"num_heads": 4, "num_layers": 2, "key_value_heads": (2, 1)}
GROUPED |= {"hidden_dim": 16}
SCALED = {"activation": "gelu", "layer_scale_init": 0.1}
MEAN = {"class_token": False, "pooling": "mean"}
SAM = {
    **{**MEAN, "window_size": 3, "neck_dim": 5, "final_norm": False},
    "relative_position_bias": True,
    **{"relative_position_kind": "decomposed", "activation": "gelu"},
    "layer_norm_epsilon": 1e-5,
}
HYBRID = {"image_size": 32, "patch_size": 2, "resnet_width": 32}
LINEAR = {"mixing": "linear", "tokens_mlp_dim": 0}
GATING = {"mixing": "spatial_gating", "tokens_mlp_dim": 0}
BATCH_NORM = {
    **{"normalization": "batch_norm", "standardization": None},
    "root_padding": "lowest",
}
RELATIVE = {"position_embedding": "none", "relative_position_bias": True}
OPTIONS = {
    "vit": {
        **SIZE,
        **TOKENS,
        "head_bias": [-6.0, None],
        "mlp_dim": [13],
        "num_heads": [4],
        "key_value_heads": [
            {**GROUPED, "rope": "axial"},
            {**GROUPED, "num_layers": 3, "key_value_heads": (2, 1, 4)},
            {**GROUPED, "qkv_bias": False},
        ],
        "class_token": [False],
        "distillation_token": [True],
        "register_tokens": [1, 3],
        "position_embedding": [
            "sincos2d",
            {"position_embedding": "none", "rope": "axial"},
            RELATIVE,
        ],
        "rope": ["axial", "centered", "mixed"],
        "rope_temperature": [{"rope": "axial", "rope_temperature": 100.0}],
        "rope_offset": [{"rope": "axial", "rope_offset": 1.0}],
        "rope_axes": [{"rope": "axial", "rope_axes": "column_first"}],
        "rope_reference_grid": [
            {"rope": "axial", "rope_reference_grid": (16, 16)}
        ],
        "rope_pairs": [{"rope": "axial", "rope_pairs": "halves"}],
        "relative_position_bias": [
            True,
            {**RELATIVE, "pooling": "mean"},
            {**RELATIVE, "key_bias": False},
        ],
        "relative_position_kind": [
            {**RELATIVE, "relative_position_kind": "mlp"},
            {**RELATIVE, "relative_position_kind": "mlp_swin"},
        ],
        "relative_position_dim": [
            {
                **RELATIVE,
                "relative_position_kind": "mlp",
                "relative_position_dim": 7,
            }
        ],
        "relative_positions_shared": [
            {
                **RELATIVE,
                "relative_position_kind": kind,
                "relative_positions_shared": True,
            }
            for kind in ("table", "mlp", "mlp_swin")
        ],
        "window_size": [
            {**SAM, "image_size": (12, 20), "position_embedding": "none"},
            {**MEAN, "window_size": 2},
        ],
        "global_attention_blocks": [
            {**SAM, "num_layers": 3, "global_attention_blocks": (0, 2)},
        ],
        "key_bias": [False],
        "projection_bias": [False],
        "qk_norm": [True],
        "attention_inner_norm": [True],
        "mlp_inner_norm": [True],
        "differential_attention": [
            True,
            {**GAP, "differential_attention": True, "qkv_bias": False},
        ],
        "mlp_placement": [
            "beside",
            {**GAP, "mlp_placement": "beside", "differential_attention": True},
            {"mlp_placement": "beside", "qkv_bias": False, "qk_norm": True},
        ],
        "talking_heads": [True, {**CAIT, "qkv_bias": False}],
        "class_attention_layers": [2, CAIT, {**CAIT, "patch_norm": True}],
        "gated_mlp": [{"gated_mlp": True, "activation": "silu"}],
        "normalization": ["rms_norm"],
        "norm_placement": ["after"],
        "final_norm": [False],
        "neck_dim": [
            {**SAM, "neck_dim": 3, "qkv_bias": False},
            {**SAM, "window_size": 0},
            {**MEAN, "neck_dim": 3},
        ],
        "patch_norm": [{"patch_norm": True, "normalization": "rms_norm"}],
        "pool_prefix_tokens": [{"pool_prefix_tokens": True, "pooling": "mean"}],
        "pool_num_heads": [{"pool_num_heads": 4, "pooling": "map"}],
        "pool_mlp_dim": [{"pool_mlp_dim": 16, "pooling": "map"}],
        "representation_dim": [5],
        "representation_activation": [
            {"representation_dim": 5, "representation_activation": "relu"}
        ],
        "unit_features": [True],
        "dropout_rate": [0.5],
        "attention_dropout_rate": [0.5],
        "layer_scale_init": [0.1],
        "mlp_layer_scale": [{**SCALED, "mlp_layer_scale": False}],
        "patch_bias": [False],
        "qkv_bias": [False],
        "norm_before_blocks": [True],
        "norm_after_pooling": [True],
        "patch_stem": [(2, 2), (2, 1), (4,)],
        "patch_stem_dim": [{"patch_stem": (2, 2), "patch_stem_dim": 6}],
        "resnet_units": [
            {**HYBRID, "resnet_units": ()},
            {**HYBRID, "resnet_units": (1,)},
        ],
        "resnet_width": [{**HYBRID, "resnet_units": (), "resnet_width": 64}],
        "resnet_standardization": [
            {
                **HYBRID,
                **{"resnet_units": (), "resnet_group_norm_epsilon": 1e-5},
                **{"resnet_standardization": "variance"},
                "resnet_standardization_epsilon": 1e-8,
            }
        ],
        "resnet_standardization_epsilon": [
            {
                **HYBRID,
                "resnet_units": (),
                "resnet_standardization_epsilon": 0.1,
            }
        ],
        "resnet_group_norm_epsilon": [
            {**HYBRID, "resnet_units": (), "resnet_group_norm_epsilon": 0.1}
        ],
        "pixel_mean": [
            {
                "pixel_mean": (0.5, 0.4, 0.3),
                "pixel_std": (0.2, 0.3, 0.1),
                "include_preprocessing": True,
            }
        ],
        "pixel_std": [{"pixel_mean": (0.1,) * 3, "pixel_std": (0.5,) * 3}],
        "flash_attention": [False],
        "rematerialize": [True],
    },
    "mixer": {
        **SIZE,
        **TOKENS,
        "tokens_mlp_dim": [7],
        "channels_mlp_dim": [13],
        "mixing": [LINEAR, GATING],
        "gated_mlp": [{"gated_mlp": True, "activation": "silu"}],
        "normalization": [{**LINEAR, "normalization": "affine"}],
        "layer_scale_init": [
            {"layer_scale_init": 0.1},
            {**LINEAR, "layer_scale_init": 0.1},
        ],
    },
    "bit": {
        **SIZE,
        "image_size": [(12, 20), (None, None)],
        "units": [(1, 2)],
        "width": [64],
        "unit": ["basic", {**BATCH_NORM, "unit": "basic"}],
        "stem": [
            {"stem": "deep", "width": 64},
            {**BATCH_NORM, "stem": "tiered", "downsampling": "average"},
        ],
        "root_padding": ["lowest", {**BATCH_NORM, "root_padding": "zeros"}],
        "downsampling": ["average", {**BATCH_NORM, "units": (1, 1)}],
        "normalization": [
            BATCH_NORM,
            {**BATCH_NORM, "normalization": "evolved"},
        ],
        "activation": ["silu", {**BATCH_NORM, "activation": "tanh"}],
        "standardization": [
            None,
            "deviation",
            {**BATCH_NORM, "standardization": "variance"},
        ],
        "standardization_epsilon": [1e-8, 0.1],
        "group_norm_epsilon": [0.1],
    },
}
POOLINGS = {
    "vit": (
        *("token", "prefix", "prefix_mean", "mean", "max", "map"),
        *("attention", "none"),
    ),
    "mixer": ("mean", "max", "none"),
    "bit": ("mean", "max", "none"),
}
CASES = [
    (family, name)
    for family, options in OPTIONS.items()
    for name in ("nothing", *options)
]


@pytest.mark.parametrize("family", CONFIGS)
def test_every_field_is_tried_and_has_a_row(family):
    names = {field.name for field in dataclasses.fields(CONFIGS[family])}
    assert set(OPTIONS[family]) | {"pooling"} == names
    assert set(PLACES[family]) == names


@pytest.mark.parametrize("value", ([-1, 32], [32], [32, 32, 3], [32.0, 32]))
def test_a_record_of_another_type_is_left_out(value):
    record = json.dumps({"image_size": value, "pooling": "mean"})
    assert read_record("a file", record)[0] == {"pooling": "mean"}


def configs(family, name, poolings, styles=None):
    """Configs with values of one field, and each pooling and style, once.

    And what those of several styles share.
    """
    found = {}
    for i, value in enumerate(OPTIONS[family].get(name, [{}])):
        fields = value if isinstance(value, dict) else {name: value}
        for pooling in poolings:
            for style in styles or STYLES[family]:
                made = {"pooling": pooling, **TINY[family], **style, **fields}
                for config in possible(family, made):
                    token = getattr(config, "class_token", None)
                    found[config] = (i, pooling, token)
    return found


def possible(family, fields):
    """The config, with and without class token where that can be."""
    choices = [{}]
    if family == "vit" and fields["pooling"] not in ("token", "prefix"):
        choices += [{"class_token": False}]
    for choice in choices:
        try:
            yield CONFIGS[family](**{**fields, **choice})
        except ValueError:
            pass


def randomised(config, family):
    model = MODELS[family](config)
    random = np.random.default_rng(0)
    for weight in model.weights:
        scale = 0.3 if len(weight.shape) < 2 else 0.5
        center = float(weight.path.endswith("gamma"))
        values = random.normal(center, scale, weight.shape)
        if weight.path.endswith("qkv/bias") and not config.key_bias:
            values = values.reshape(config.num_heads, 3, -1)
            values = (values * [[1], [0], [1]]).reshape(-1)
        if "moving_variance" in weight.path:
            values = np.abs(values) + 0.5
        weight.assign(values)
    return model


@functools.cache
def images(shape, scaled):
    random = np.random.default_rng(1)
    low, high = (-1, 1) if scaled else (0, 255)
    return random.uniform(low, high, (2, *shape)).astype("float32")


def outputs(model):
    config = model.config
    size = [x or 24 for x in config.image_size]
    scaled = not config.include_preprocessing
    batch = images((*size, config.channels), scaled)
    return keras.ops.convert_to_numpy(model(batch, training=False))


def finite_outputs(model):
    found = outputs(model)
    assert np.isfinite(found).all()
    return found


def written(model, path, format):
    """Whether a model was written; its refusal must name an option."""
    try:
        save_checkpoint(model, path, format=format)
    except ValueError as error:
        names = [x.name for x in dataclasses.fields(model.config)]
        assert "Formats that can: [" in str(error)
        assert any(name in str(error) for name in names), error
        return False
    return True


def formats(family):
    found = [x for x in LAYOUTS if x.family == family and x.container]
    return [*dict.fromkeys(x.public_name for x in found), "timm folder"]


def check(model, wanted, family, format, folder):
    """Whether a model is written as a format, where its outputs come back."""
    suffix = {"timm": ".safetensors", "torchvision": ".safetensors"}
    is_folder = format in ("hugging_face", "timm folder")
    ending = "" if is_folder else suffix.get(format, ".npz")
    path = folder / f"{format.split()[-1]}{ending}"
    if not written(model, path, format.split()[0]):
        assert not path.exists()
        return False
    again = load_checkpoint(path)
    label = f"{format}: {model.config}"
    training = [x for x, y in PLACES[family].items() if y == TRAINING]
    defaults = {x: getattr(model.config, x) for x in training}
    assert dataclasses.replace(again.config, **defaults) == model.config, label
    scale = max(1, np.abs(wanted).max())
    np.testing.assert_allclose(
        outputs(again), wanted, rtol=0, atol=1e-5 * scale, err_msg=label
    )
    return True


# No format but Keras's own has other values.
NEVER_WRITTEN = {"resnet_standardization_epsilon", "group_norm_epsilon"}
NEVER_WRITTEN |= {"resnet_group_norm_epsilon", "representation_activation"}
NEVER_WRITTEN |= {"unit_features"}


def walk(family, name, poolings, tmp_path, every_style):
    """Write each config, or in each format one of the styles that it has."""
    found = set()
    for i, (config, kind) in enumerate(configs(family, name, poolings).items()):
        tried = [(x, kind) for x in formats(family)]
        tried = [x for x in tried if every_style or x not in found]
        if not tried:
            continue
        model = randomised(config, family)
        folder = tmp_path / str(i)
        folder.mkdir()
        wanted = finite_outputs(model)
        for format, _ in tried:
            if check(model, wanted, family, format, folder):
                found.add((format, kind))
    assert bool(found) == (name not in NEVER_WRITTEN)


@pytest.mark.parametrize(("family", "name"), CASES)
def test_what_is_written_comes_back(family, name, tmp_path):
    poolings = {"class_token": ["mean"], "position_embedding": ["mean"]}
    poolings = poolings.get(name, POOLINGS[family][:1])
    walk(family, name, poolings, tmp_path, every_style=name == "nothing")


@pytest.mark.slow
@pytest.mark.parametrize(("family", "name"), CASES)
def test_what_is_written_with_any_pooling_comes_back(family, name, tmp_path):
    walk(family, name, POOLINGS[family], tmp_path, every_style=True)


def drawn(family, draw):
    """Configs with values of several fields at once."""
    fields = {**TINY[family], **draw.choice(STYLES[family])}
    fields["pooling"] = draw.choice(POOLINGS[family])
    # Of one pooling, which another draw may replace.
    names = sorted(x for x in OPTIONS[family] if not x.startswith("pool_"))
    for name in draw.sample(names, draw.randint(3, 6)):
        value = draw.choice(OPTIONS[family][name])
        fields |= value if isinstance(value, dict) else {name: value}
    if fields.get("qkv_bias") is False:
        fields.pop("key_bias", None)
    if fields.get("num_classes") == 1:  # Keras warns of a softmax of one.
        fields.pop("classifier_activation", None)
    return possible(family, fields)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("family", CONFIGS)
def test_options_drawn_together_come_back(family, seed, tmp_path):
    draw, found = random.Random(seed), 0
    for i in range(24):
        for j, config in enumerate(drawn(family, draw)):
            try:
                model = randomised(config, family)
            except ValueError as error:
                assert "reads" in str(error)  # no layer, beside the others
                continue
            folder = tmp_path / f"{i}-{j}"
            folder.mkdir()
            wanted = finite_outputs(model)
            for format in formats(family):
                found += check(model, wanted, family, format, folder)
        keras.utils.clear_session()
    assert found


# What the classes of transformers fix that are not plain Vision Transformers.
KEYLESS = {**SCALED, "key_bias": False}
WITHOUT_TOKEN = {"class_token": False, "activation": "gelu"}
KINDS = {
    "dinov2": {**SCALED, "num_classes": 0, "mlp_dim": 16},
    "dinov2_classifier": {
        **{**SCALED, "pooling": "token_and_mean", "mlp_dim": 16},
        "register_tokens": 2,
    },
    "dinov3": {
        **{**KEYLESS, "num_classes": 0, "position_embedding": "none"},
        **{"rope": "centered", "rope_pairs": "halves"},
        "register_tokens": 1,
    },
    "beit": {
        **{**KEYLESS, "position_embedding": "none", "pooling": "mean"},
        **{"relative_position_bias": True, "norm_after_pooling": True},
    },
    "clip": {
        **{"activation": "quick_gelu", "patch_bias": False},
        **{"norm_before_blocks": True, "head_bias": None},
    },
    "siglip": {**WITHOUT_TOKEN, "pooling": "map", "num_classes": 0},
    "siglip_classifier": {**WITHOUT_TOKEN, "pooling": "mean"},
    "aimv2": {
        **{**WITHOUT_TOKEN, "normalization": "rms_norm", "pooling": "mean"},
        **{"gated_mlp": True, "activation": "silu", "num_classes": 0},
        **{"patch_norm": True, "qkv_bias": False, "projection_bias": False},
    },
    "aimv2_head": {
        **{**WITHOUT_TOKEN, "normalization": "rms_norm"},
        **{"pooling": "attention", "gated_mlp": True, "activation": "silu"},
        **{"patch_norm": True, "qkv_bias": False, "projection_bias": False},
        "num_classes": 0,
    },
}


def written_as(kind, name, tmp_path):
    """How many models of a kind were written, with values of one field."""
    count = 0
    for value in OPTIONS["vit"].get(name, [{}]):
        changes = value if isinstance(value, dict) else {name: value}
        try:
            config = ViTConfig(**{**TINY["vit"], **KINDS[kind], **changes})
            model = randomised(config, "vit")
        except ValueError:  # They exclude one another.
            continue
        folder = tmp_path / str(count)
        folder.mkdir(exist_ok=True)
        wanted = finite_outputs(model)
        count += check(model, wanted, "vit", "hugging_face", folder)
    return count


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_transformers_comes_back(kind, tmp_path):
    assert written_as(kind, "nothing", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS["vit"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_with_any_option_comes_back(kind, name, tmp_path):
    written_as(kind, name, tmp_path)


# Options that a folder of timm's has alone, and not with one another.
EVA = {"rope": "axial", "position_embedding": "none", "activation": "gelu"}
NOT_TOGETHER = {
    "needs layer_scale_init beside class_attention_layers": {
        **CAIT,
        "layer_scale_init": None,
    },
    "no layer_scale_init with norm_placement='after'": {
        **RELATIVE,
        "relative_position_kind": "mlp",
        "norm_placement": "after",
        "layer_scale_init": 0.1,
    },
    "no pooling='none' of tokens with a neck": {**SAM, "pooling": "none"},
    "always has projection_bias=True": {**SAM, "projection_bias": False},
    "it has no key_bias=False": {**SAM, "key_bias": False},
    "either patch_bias or norm_before_blocks": {
        **EVA,
        "norm_before_blocks": True,
    },
    "two layers for gated_mlp with mlp_inner_norm": {
        **EVA,
        "gated_mlp": True,
        "activation": "silu",
        "mlp_inner_norm": True,
    },
    "no words for final_norm=False with a mean": {**MEAN, "final_norm": False},
    "norm_before_blocks, the model neither": {"patch_bias": False},
    "prefix_mean beside a distillation_token": {
        "distillation_token": True,
        "pooling": "none",
    },
}


@pytest.mark.parametrize("reason", NOT_TOGETHER)
def test_what_timm_has_not_together_is_refused(reason, tmp_path):
    config = ViTConfig(**{**TINY["vit"], **NOT_TOGETHER[reason]})
    with pytest.raises(ValueError, match=re.escape(reason)):
        save_checkpoint(
            VisionTransformer(config), tmp_path / "timm", format="timm"
        )
    assert not any(tmp_path.iterdir())


def test_a_field_that_no_row_knows_is_refused(tmp_path, monkeypatch):
    model = randomised(ViTConfig(**TINY["vit"], rematerialize=True), "vit")
    monkeypatch.delitem(PLACES["vit"], "rematerialize")
    with pytest.raises(ValueError, match="no place for rematerialize=True"):
        save_checkpoint(model, tmp_path / "x.npz", format="google")


def test_a_function_as_activation_is_refused(tmp_path):
    config = ViTConfig(**TINY["vit"], classifier_activation=keras.ops.tanh)
    with pytest.raises(ValueError, match="words for classifier_activation"):
        save_checkpoint(
            VisionTransformer(config), tmp_path / "x.npz", format="google"
        )


@pytest.mark.parametrize(("family", "name"), CASES)
def test_keras_files_come_back(family, name, tmp_path):
    """They hold every value, of which their own reader sees the weights."""
    path = tmp_path / "model.keras"
    poolings = {"register_tokens": ("token", "mean"), "class_token": ("mean",)}
    for pooling in poolings.get(name, POOLINGS[family][:1]):
        for config in configs(family, name, [pooling], STYLES[family][:1]):
            model = randomised(config, family)
            save_checkpoint(model, path, format="keras")
            again = load_checkpoint(path)
            assert again.config == config
            np.testing.assert_array_equal(outputs(again), outputs(model))
    assert path.exists()
