"""Bad arguments of the applications end in a ValueError with the cure."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.models import BiTConfig, ViTConfig

CASES = [
    ({"input_shape": (225, 224, 3)}, "225x224 pixels.*16x16.*224x224"),
    ({"input_shape": (None, None, 3)}, "input_shape must be"),
    ({"input_shape": (224, 224)}, "input_shape must be"),
    ({"pooling": "tokens"}, "'tokens'.*Did you mean 'token'"),
    ({"weights": "no/such/folder/x.h5"}, "no/such/folder/x.h5"),
    ({"weights": 7}, "weights=7 of type int"),
    ({"classes": -1}, "classes=-1"),
    ({"classes": 2.5}, "classes=2.5"),
    ({"dropout_rate": 1.0}, "dropout_rate=1.0"),
    ({"stochastic_depth_rate": -0.1}, "stochastic_depth_rate=-0.1"),
    ({"class_token": False, "pooling": "token"}, "class_token=True"),
    ({"class_token": False, "pooling": "token_and_mean"}, "class_token=True"),
    ({"register_tokens": 2, "pooling": "prefix"}, "register_tokens=2"),
    ({"input_tensor": np.zeros((1, 224, 224, 3))}, "ndarray"),
    ({"position_embedding": "rotary"}, "'rotary'.*'learned'"),
]


@pytest.mark.parametrize("options, message", CASES)
def test_bad_argument(options, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        keras_vit.ViT_Ti16(**{"weights": None, **options})


def test_shape_that_contradicts_the_input_tensor():
    inputs = keras.Input((32, 32, 3))
    with pytest.raises(
        ValueError, match=r"(?s)contradict.*\(64, 64, 3\).*\(32, 32, 3\)"
    ):
        keras_vit.ViT_Ti16(
            weights=None, input_tensor=inputs, input_shape=(64, 64, 3)
        )


def test_shape_may_be_given_with_the_input_tensor():
    inputs = keras.Input((32, 32, 3))
    model = keras_vit.ViT_Ti16(
        weights=None, input_tensor=inputs, input_shape=(32, 32, 3)
    )
    assert model.inputs[0] is inputs


def test_heads_that_do_not_divide_the_width():
    with pytest.raises(ValueError, match="num_heads=5 does not divide"):
        ViTConfig(num_heads=5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"class_token": False, "pooling": "mean"}, "needs class_token=True"),
        ({"register_tokens": 2}, "needs register_tokens=0"),
        ({"qk_norm": True}, "needs qk_norm=False. Received: qk_norm=True"),
        ({"pooling": "map"}, 'Use pooling="token"'),
        ({"class_attention_layers": -1}, "at least 0"),
    ],
)
def test_class_attention_that_does_not_fit(fields, message):
    with pytest.raises(ValueError, match=message):
        ViTConfig(**{"class_attention_layers": 2, **fields})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"differential_attention": True, "rope": "axial"},
            "True needs rope=None. Received: rope='axial'",
        ),
        (
            {"mlp_placement": "beside", "norm_placement": "after"},
            "'beside' needs norm_placement='before'",
        ),
        (
            {"mlp_placement": "beside", "class_attention_layers": 1},
            "needs class_attention_layers=0",
        ),
        ({"mlp_placement": "before"}, "mlp_placement: 'before'"),
        (
            {"key_value_heads": (3,) * 12, "key_bias": False},
            r"True. Received: key_bias=False",
        ),
        ({"key_value_heads": (3,) * 11}, "number for each of 12 blocks"),
        ({"key_value_heads": (5,) * 12}, "divides num_heads=12"),
        ({"key_value_heads": (0,) * 12}, "divides num_heads=12"),
        ({"mlp_layer_scale": False}, "Received: layer_scale_init=None"),
    ],
)
def test_options_of_blocks_that_exclude_each_other(fields, message):
    with pytest.raises(ValueError, match=message):
        ViTConfig(**fields)


def test_width_that_groups_do_not_divide():
    with pytest.raises(ValueError, match="multiple of 32.*48"):
        BiTConfig(width=48)


def test_hybrid_whose_feature_map_the_patch_does_not_divide():
    with pytest.raises(ValueError, match="feature maps.*patches of 8x8"):
        keras_vit.ViT_R_Ti16(weights=None, input_shape=(100, 100, 3))


def test_channels_first_is_refused(monkeypatch):
    monkeypatch.setattr(
        keras.config, "image_data_format", lambda: "channels_first"
    )
    with pytest.raises(ValueError, match="set_image_data_format"):
        keras_vit.ViT_Ti16(weights=None)


def test_nearest_file_is_suggested(tmp_path):
    (tmp_path / "model.weights.h5").touch()
    with pytest.raises(ValueError, match="model.weights.h5"):
        keras_vit.ViT_Ti16(weights=tmp_path / "modell.weights.h5")


def test_unknown_argument_is_named_with_the_application():
    with pytest.raises(TypeError, match=r"ViT_Ti16\(\).*'heads'"):
        keras_vit.ViT_Ti16(weights=None, heads=3)
