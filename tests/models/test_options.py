"""Every field of a config acts, or is refused, or a row says why it is idle."""

import dataclasses
import inspect
import re
import subprocess
import sys
import zlib
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit.checkpoints import load_weights
from keras_vit.layers import SelfAttention, TransformerBlock
from keras_vit.models import (
    BiT,
    BiTConfig,
    Mixer,
    MixerConfig,
    VisionTransformer,
    ViTConfig,
)
from keras_vit.models.configured_model import ConfiguredModel, head
from keras_vit.models.options import (
    AROUND,
    RECORD,
    TENSORS,
    TRAINING,
    changed,
    option,
    options_of,
)
from keras_vit.runtime.workarounds import without_values
from keras_vit.variants import (
    VariantConfig,
    VariantTransformer,
    VariantTransformerConfig,
)

ROOT = Path(__file__).parents[2]
SMALL: dict = {
    **{"image_size": 16, "patch_size": 4, "hidden_dim": 16, "num_layers": 2},
    **{"mlp_dim": 12, "num_heads": 2, "num_classes": 3},
}
MEAN: dict = {"class_token": False, "pooling": "mean"}
RELATIVE: dict = {"relative_position_bias": True}
MLP: dict = {**RELATIVE, "relative_position_kind": "mlp"}
WINDOWS: dict = {**MEAN, "window_size": 2}
HYBRID: dict = {
    **{"image_size": 32, "patch_size": 2, "resnet_width": 32},
    "resnet_units": (1,),
}
PIXELS: dict = {
    "include_preprocessing": True,
    "pixel_mean": (0.5, 0.4, 0.3),
    "pixel_std": (0.2, 0.2, 0.3),
}
# Of each field: what is there before, and the value that must change something.
VIT = {
    "image_size": ({}, 32),
    "channels": ({}, 1),
    "patch_size": ({}, 8),
    "hidden_dim": ({}, 8),
    "num_layers": ({}, 1),
    "mlp_dim": ({}, 8),
    "num_heads": ({}, 4),
    "key_value_heads": ({}, (1, 2)),
    "pooling": ({}, "mean"),
    "class_token": ({"pooling": "mean"}, False),
    "class_attention_layers": ({}, 1),
    "distillation_token": ({}, True),
    "register_tokens": ({}, 2),
    "position_embedding": ({}, "none"),
    "rope": ({}, "axial"),
    "rope_temperature": ({"rope": "axial"}, 10.0),
    "rope_offset": ({"rope": "centered"}, 0.5),
    "rope_axes": ({"rope": "axial"}, "column_first"),
    "rope_reference_grid": ({"rope": "axial"}, (16, 16)),
    "rope_pairs": ({"rope": "axial"}, "halves"),
    "relative_position_bias": ({}, True),
    "relative_position_kind": (RELATIVE, "mlp"),
    "relative_position_dim": (MLP, 7),
    "relative_positions_shared": (RELATIVE, True),
    "window_size": (MEAN, 2),
    "global_attention_blocks": (WINDOWS, (1,)),
    "num_classes": ({}, 5),
    "classifier_activation": ({}, "softmax"),
    "representation_dim": ({}, 6),
    "representation_activation": ({"representation_dim": 6}, "relu"),
    "unit_features": ({}, True),
    "head_bias": ({}, -5.0),
    "dropout_rate": ({}, 0.5),
    "attention_dropout_rate": ({}, 0.5),
    "stochastic_depth_rate": ({}, 0.9),
    "layer_norm_epsilon": ({}, 0.3),
    "layer_scale_init": ({}, 0.1),
    "mlp_layer_scale": ({"layer_scale_init": 0.1}, False),
    "patch_bias": ({}, False),
    "qkv_bias": ({}, False),
    "key_bias": ({}, False),
    "projection_bias": ({}, False),
    "qk_norm": ({}, True),
    "attention_inner_norm": ({}, True),
    "talking_heads": ({}, True),
    "differential_attention": ({}, True),
    "mlp_placement": ({}, "beside"),
    "mlp_inner_norm": ({}, True),
    "gated_mlp": ({}, True),
    "normalization": ({}, "rms_norm"),
    "norm_placement": ({}, "after"),
    "final_norm": ({}, False),
    "patch_norm": ({}, True),
    "neck_dim": (MEAN, 6),
    "norm_before_blocks": ({}, True),
    "norm_after_pooling": ({"pooling": "mean"}, True),
    "pool_prefix_tokens": ({"pooling": "mean"}, True),
    "pool_num_heads": ({"pooling": "map"}, 4),
    "pool_mlp_dim": ({"pooling": "map"}, 5),
    "activation": ({}, "relu"),
    "patch_stem": ({}, (2, 2)),
    "patch_stem_dim": ({"patch_stem": (2,)}, 8),
    "resnet_units": ({**HYBRID}, (2,)),
    "resnet_width": ({**HYBRID, "resnet_width": 64}, 32),
    "resnet_standardization": (HYBRID, "variance"),
    "resnet_standardization_epsilon": (HYBRID, 0.5),
    "resnet_group_norm_epsilon": (HYBRID, 0.5),
    "include_preprocessing": ({}, True),
    "pixel_mean": (PIXELS, (0.1, 0.1, 0.1)),
    "pixel_std": (PIXELS, (0.9, 0.9, 0.9)),
}
MIXER = {
    **{name: VIT[name] for name in ("image_size", "channels", "patch_size")},
    **{name: VIT[name] for name in ("hidden_dim", "num_layers", "pooling")},
    "pooling": ({}, "max"),
    "tokens_mlp_dim": ({}, 5),
    "channels_mlp_dim": ({}, 6),
    "mixing": ({"tokens_mlp_dim": 0, "mixing": "linear"}, "spatial_gating"),
    **{name: VIT[name] for name in ("gated_mlp", "layer_scale_init")},
    "normalization": ({}, "affine"),
    **{name: VIT[name] for name in ("num_classes", "classifier_activation")},
    **{name: VIT[name] for name in ("head_bias", "stochastic_depth_rate")},
    **{name: VIT[name] for name in ("layer_norm_epsilon", "activation")},
    "include_preprocessing": ({}, True),
}
BATCH_NORM = {"normalization": "batch_norm", "standardization": None}
BIT = {
    "image_size": ({}, 48),
    "channels": ({}, 1),
    "units": ({}, (2,)),
    "width": ({}, 64),
    "unit": ({}, "basic"),
    "stem": ({"width": 128}, "deep"),
    "root_padding": ({}, "lowest"),
    "downsampling": ({"units": (1, 1)}, "average"),
    "normalization": ({}, "batch_norm"),
    "activation": ({}, "silu"),
    "pooling": ({}, "max"),
    **{name: VIT[name] for name in ("num_classes", "classifier_activation")},
    "head_bias": ({}, -5.0),
    "standardization": ({}, None),
    "standardization_epsilon": ({}, 0.5),
    "group_norm_epsilon": ({}, 0.5),
    "include_preprocessing": ({}, True),
}
# How it is computed, and not what.
SAME_NUMBERS = {"flash_attention": (None, False), "rematerialize": (0, True)}
FAMILIES: dict = {
    "vit": (VisionTransformer, SMALL, VIT),
    "mixer": (
        Mixer,
        {
            **{"image_size": 16, "patch_size": 4, "hidden_dim": 16},
            **{"num_layers": 2, "tokens_mlp_dim": 6, "channels_mlp_dim": 12},
            "num_classes": 3,
        },
        MIXER,
    ),
    "bit": (
        BiT,
        {"image_size": 32, "units": (1,), "width": 32, "num_classes": 3},
        BIT,
    ),
}
FIELDS = [
    (family, field)
    for family, (_, _, values) in FAMILIES.items()
    for field in values
]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_field_has_a_row_and_a_value_to_try(family):
    model, _, values = FAMILIES[family]
    fields = [x.name for x in dataclasses.fields(model.config_class)]
    assert list(options_of(model.config_class)) == fields
    assert set(fields) - set(SAME_NUMBERS) == set(values)


@pytest.mark.parametrize(("family", "field"), FIELDS)
def test_a_field_changes_weights_outputs_or_training(family, field):
    model, small, values = FAMILIES[family]
    before, value = values[field]
    plain = {**small, **before}
    first = facts(model, plain)
    second = facts(model, {**plain, field: value})
    assert first == facts(model, plain)
    assert first != second


def facts(model, fields):
    """Return what the weights are and start as, and what the model gives."""
    keras.utils.set_random_seed(1)
    config = model.config_class(**fields)
    built = model(config)
    shapes = [
        (x.path, tuple(x.shape), x.constraint is None) for x in built.weights
    ]
    start = [float(np.sum(value(x))) for x in built.weights]
    for weight in built.weights:
        if "bias" not in weight.path or "predictions" not in weight.path:
            draw = np.random.default_rng(zlib.crc32(weight.path.encode()))
            drawn = draw.normal(0, 0.3, weight.shape)
            positive = "variance" in weight.path
            weight.assign(np.abs(drawn) if positive else drawn)
    draw = np.random.default_rng(2)
    shape = (4, *built.input_shape[1:])
    images = draw.uniform(0, 1, shape).astype("float32")
    images *= 255 if config.include_preprocessing else 1
    output = value(built(images, training=False))
    keras.utils.set_random_seed(3)
    trained = value(built(images, training=True))
    return shapes, start, output.tolist(), trained.tolist()


def value(variable):
    return keras.ops.convert_to_numpy(variable)


# What no tensor shows; the report shows sizes and scales by the weights.
IN_RECORDS = [
    (family, field)
    for family, field in FIELDS
    if options_of(FAMILIES[family][0].config_class)[field].shown == RECORD
    and field not in {*AROUND, "image_size", "layer_scale_init"}
]


@pytest.mark.once
@pytest.mark.parametrize(("family", "field"), IN_RECORDS)
def test_weights_of_a_model_that_computes_otherwise_are_noted(
    family, field, tmp_path
):
    model, small, values = FAMILIES[family]
    before, value = values[field]
    plain = {**small, **before}
    stored = model(model.config_class(**plain))
    stored.get_layer("predictions").kernel.assign_add(1.0)
    stored.save(tmp_path / "stored.keras")
    other = model(model.config_class(**{**plain, field: value}))
    both = rf"{field}={re.escape(repr(vars(other.config)[field]))}.*"
    if field == "num_heads":
        with pytest.raises(ValueError, match=f"has 2 attention heads.*{both}"):
            load_weights(other, tmp_path / "stored.keras")
        return
    load_weights(other, tmp_path / "stored.keras")
    both += re.escape(repr(vars(stored.config)[field]))
    assert any(re.match(both, x) for x in other.load_report.notes)
    load_weights(stored, tmp_path / "stored.keras")
    assert not any(field in x for x in stored.load_report.notes)


@pytest.mark.parametrize("field", SAME_NUMBERS)
def test_how_it_is_computed_changes_no_number(field):
    plain = {**SMALL, field: SAME_NUMBERS[field][1]}
    first, second = (facts(VisionTransformer, x) for x in (SMALL, plain))
    assert first[:2] == second[:2]
    np.testing.assert_allclose(first[2], second[2], atol=1e-5)


@pytest.mark.parametrize(
    "field", [x for x, row in options_of(ViTConfig).items() if row.of]
)
def test_a_field_without_what_it_belongs_to_is_refused(field):
    parent = options_of(ViTConfig)[field].of
    with pytest.raises(ValueError, match=f"{field} does nothing without"):
        ViTConfig(**{**SMALL, field: VIT[field][1]})
    assert parent is not None and parent in VIT


# Fields, and what leaves nothing to them.
IDLE = {
    ("vit", "rope_reference_grid"): {"rope": "centered"},
    ("vit", "key_bias"): {"qkv_bias": False},
    ("mixer", "layer_norm_epsilon"): {"normalization": "affine"},
    ("bit", "standardization_epsilon"): {"standardization": None},
}


@pytest.mark.parametrize(("family", "field"), IDLE)
def test_a_field_that_another_leaves_nothing_to_is_refused(family, field):
    model, small, values = FAMILIES[family]
    needs, value = values[field]
    ((other, idle),) = IDLE[family, field].items()
    plain = {**small, **needs, other: idle}
    message = f"{field} does nothing with {other}={idle!r}. Received: {field}="
    with pytest.raises(ValueError, match=message):
        model.config_class(**plain, **{field: value})
    assert model.config_class(**plain)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({**RELATIVE, "register_tokens": 1}, "register_tokens=1"),
        ({**RELATIVE, "distillation_token": True}, "distillation_token=True"),
        ({"rope": "axial", "num_heads": 4}, "rope='axial', hidden_dim=8"),
    ],
)
def test_what_no_layer_computes_is_refused_by_the_config(fields, message):
    with pytest.raises(ValueError, match=message):
        ViTConfig(**{**SMALL, "hidden_dim": 8, **fields})


def test_each_field_that_may_have_nothing_to_do_is_tried():
    assert IDLE == {
        (family, name): row.unless
        for family, (model, _, _) in FAMILIES.items()
        for name, row in options_of(model.config_class).items()
        if row.unless
    }


# Of the blocks of the paper, and of a layer that has parts of its own.
OF_BLOCKS = (
    *("num_heads", "mlp_dim", "qkv_bias", "activation", "dropout_rate"),
    *("attention_dropout_rate", "stochastic_depth_rate", "layer_scale_init"),
    *("layer_norm_epsilon", "norm_before_blocks"),
)
KINDS = {
    "relative": ({}, {"position": "relative"}),
    "axial": (MEAN, {"attention": "axial"}),
    "local": ({}, {"mlp": "local"}),
}


@pytest.mark.parametrize("field", OF_BLOCKS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_field_of_the_blocks_acts_in_every_variant(kind, field):
    fields, variant = KINDS[kind]
    plain = {**SMALL, **fields, "variant": VariantConfig(**variant)}
    changed_one = {**plain, field: VIT[field][1]}
    assert facts(VariantTransformer, plain) != facts(
        VariantTransformer, changed_one
    )


# What changes nothing beside another field, which is as it should be.
IN_VAIN = {
    ("num_layers", "stochastic_depth_rate"): "the first block has none",
    ("num_heads", "rope_temperature"): "4 features have one frequency",
    ("hidden_dim", "rope_temperature"): "so have these",
    ("patch_size", "window_size"): "the window is the whole grid",
    ("patch_size", "global_attention_blocks"): "so it is here",
}
# What the pooling reads, of which the row says that it may be idle.
OF_POOLING = ("pool_prefix_tokens", "pool_num_heads", "pool_mlp_dim")


@pytest.mark.slow
@pytest.mark.parametrize(("family", "field"), FIELDS)
def test_no_field_is_in_vain_beside_another(family, field):
    """Each other one changes something, or is refused there."""
    model, small, values = FAMILIES[family]
    before, value = values[field]
    context = {**small, **before, field: value}
    idle = []
    for other, (needs, wanted) in values.items():
        plain = {**small, **needs, **context}
        if other == field or plain.get(other) == wanted:
            continue
        if needs.items() - plain.items():  # It is of something else here.
            continue
        try:
            first, second = (
                facts(model, x) for x in (plain, {**plain, other: wanted})
            )
        except ValueError:
            continue
        if first == second:
            idle.append(other)
    known = [y for x, y in IN_VAIN if x == field]
    assert set(idle) - {*known, *OF_POOLING} == set()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("key_value_heads", 1),
        ("position_embedding", None),
        ("pooling", None),
        ("num_layers", 0),
        ("hidden_dim", -8),
        ("channels", 0),
        ("num_classes", -1),
        ("dropout_rate", 1.0),
        ("layer_norm_epsilon", -1e-6),
        ("layer_norm_epsilon", 1.5),
    ],
)
def test_a_wrong_value_is_refused_by_its_row(field, value):
    with pytest.raises(ValueError, match=field):
        ViTConfig(**{**SMALL, field: value})


def test_what_a_field_needs_is_named():
    with pytest.raises(
        ValueError, match="talking_heads=False. Received: talking_heads=True"
    ):
        ViTConfig(**SMALL, key_value_heads=(1, 2), talking_heads=True)


@dataclasses.dataclass(frozen=True)
class GatedConfig(ViTConfig):
    """A config with one more field, and nothing that reads it."""

    attention_gate: bool = option(False, TENSORS)


class Gated(VisionTransformer):
    config_class = GatedConfig


def test_a_field_that_no_layer_reads_is_refused():
    with pytest.raises(ValueError, match="No layer .* reads attention_gate"):
        Gated(GatedConfig(**SMALL, attention_gate=True))
    assert Gated(GatedConfig(**SMALL)).output_shape == (None, 3)


def test_a_variant_refuses_what_its_blocks_do_not_have():
    with pytest.raises(ValueError, match="final_norm"):
        VariantTransformer(
            VariantTransformerConfig(
                **SMALL,
                final_norm=False,
                variant=VariantConfig(position="2d"),
            )
        )


def test_a_property_counts_as_what_it_reads():
    class Reader(ConfiguredModel):
        config_class = ViTConfig

        @staticmethod
        def outputs_of(config, images, dtype=None):
            assert config.num_prefix_tokens == 3
            x = keras.layers.GlobalAveragePooling2D()(images)
            return head(config, x, dtype)

    config = ViTConfig(num_classes=3, register_tokens=2, hidden_dim=24)
    with pytest.raises(ValueError, match="reads hidden_dim"):
        Reader(config)
    read = dataclasses.replace(config, hidden_dim=768)
    assert Reader(read).output_shape == (None, 3)


def test_changed_fields_are_those_that_differ():
    assert changed(ViTConfig(num_classes=10, rope="axial")) == {
        "num_classes": 10,
        "rope": "axial",
    }


def test_rows_say_where_a_file_shows_a_value():
    places = {x: row.shown for x, row in options_of(ViTConfig).items()}
    assert set(places.values()) == {TENSORS, RECORD, TRAINING}
    assert places["hidden_dim"] == TENSORS
    assert places["num_heads"] == RECORD
    assert places["dropout_rate"] == TRAINING


@pytest.mark.parametrize("config", [ViTConfig, MixerConfig, BiTConfig])
def test_every_field_is_described(config):
    text = inspect.getdoc(config) or ""
    described = re.findall(r"^    (\w+): ", text, re.MULTILINE)
    fields = [x.name for x in dataclasses.fields(config)]
    assert set(fields) <= set(described)


# What turns each on and off, where one value in `VIT` does not.
SWITCHES = {
    "pooling": ({}, "map", "mean"),
    "rope": ({}, "mixed", "axial"),
    "relative_position_kind": (
        {**MEAN, **RELATIVE},
        "decomposed",
        "table",
    ),
    "num_classes": ({}, 3, 0),
    "resnet_units": (HYBRID, (1,), None),
}


@pytest.mark.parametrize(
    "field", [x for x, row in options_of(ViTConfig).items() if row.weights]
)
def test_weights_of_a_row_are_there_for_it(field):
    before, value = VIT[field]
    switch = before, value, getattr(ViTConfig, field)
    before, one, other = SWITCHES.get(field, switch)

    def paths(value):
        fields = {**SMALL, **before, field: value}
        if field == "resnet_units" and value is None:
            fields.pop("resnet_width")
        with without_values():
            model = VisionTransformer(ViTConfig(**fields))
        return {x.path for x in model.weights}

    changed_paths = paths(one) ^ paths(other)
    for part in options_of(ViTConfig)[field].weights:
        assert any(part in path for path in changed_paths), part


def test_a_block_takes_parts_and_functions_that_make_them():
    layer = SelfAttention(2, qk_norm=True, name="attention")
    for part in (layer, lambda: layer):
        block = TransformerBlock(2, 12, attention=part)
        assert block.attention is layer


def test_the_arguments_of_the_applications_are_those_of_the_options():
    """signatures.py is what its tool makes."""
    done = subprocess.run(
        [sys.executable, "tools/make_applications.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
