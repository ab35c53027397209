"""Encoders under heads that somebody put in the place of the original's."""

import json

import keras
import numpy as np
import pytest
import scipy.special
from reference_cases import TOLERANCE, expected, path_of
from safetensors.numpy import load_file, save_file

from keras_vit import embed, predict
from keras_vit.checkpoints import (
    load_checkpoint,
    load_weights,
    read_info,
    save_checkpoint,
)

DENSE = np.random.default_rng(0)
MLP = {
    "head.0.weight": DENSE.normal(size=(16, 32)).astype("float32"),
    "head.0.bias": np.zeros(16, "float32"),
    "head.2.weight": DENSE.normal(size=(5, 16)).astype("float32"),
    "head.2.bias": np.zeros(5, "float32"),
}
NORMED = {
    "head.0.weight": np.ones(32, "float32"),
    "head.0.bias": np.zeros(32, "float32"),
    "head.1.weight": DENSE.normal(size=(5, 32)).astype("float32"),
    "head.1.bias": np.zeros(5, "float32"),
}
BESIDE = {
    "classifier.weight": DENSE.normal(size=(5, 32)).astype("float32"),
    "classifier.bias": np.zeros(5, "float32"),
}
HEADS = {
    "timm_vit_tiny": "head",
    "hf_vit_tiny": "classifier",
}


def tensors(name):
    path = path_of(name)
    path = path / "model.safetensors" if path.is_dir() else path
    return load_file(path)


def written(path, content):
    save_file(content, path)
    return path


def check(model, name, key):
    found = model.predict(expected(name)["image"], verbose=0)
    np.testing.assert_allclose(found, expected(name)[key], **TOLERANCE)


@pytest.mark.parametrize("name", HEADS)
def test_a_dense_layer_behind_dropout_is_the_head(name, tmp_path):
    head = f"{HEADS[name]}."
    content = {
        x.replace(head, f"{head}1.") if x.startswith(head) else x: y
        for x, y in tensors(name).items()
    }
    path = written(tmp_path / "x.safetensors", content)
    check(load_checkpoint(path, num_heads=4), name, "logits")


def cut(name, head, **others):
    content = {x: y for x, y in tensors(name).items() if not x.startswith(head)}
    return {**content, **others}


@pytest.mark.parametrize(
    "content",
    [
        cut("timm_vit_tiny", "head.", **MLP),
        cut("timm_vit_tiny", "head.", **NORMED),
        {
            **{f"0.{x}": y for x, y in cut("timm_vit_tiny", "head.").items()},
            **{x.replace("classifier", "1"): y for x, y in BESIDE.items()},
        },
        {
            **{f"net.{x}": y for x, y in tensors("timm_vit_tiny").items()},
            **BESIDE,
        },
    ],
    ids=["mlp", "norm", "sequence", "beside"],
)
def test_the_encoder_under_another_head_loads_on_demand(content, tmp_path):
    path = written(tmp_path / "x.safetensors", content)
    message = "head of its own.*classes=.*include_top=False"
    with pytest.raises(ValueError, match=message):
        load_checkpoint(path, num_heads=4)
    name = "timm_vit_tiny"
    model = load_checkpoint(path, num_heads=4, classes=0)
    check(model, name, "pre_logits")
    encoder = load_checkpoint(path, num_heads=4, include_top=False)
    check(encoder, name, "encoded")
    assert "a head of its own is left out" in str(encoder.load_report)
    new = load_checkpoint(path, num_heads=4, classes=3)
    assert new.output_shape == (None, 3)
    assert new.load_report.fresh == ("predictions/bias", "predictions/kernel")
    assert read_info(path, num_heads=4).fields["num_classes"] == 0
    with pytest.raises(ValueError, match=message):
        load_weights(new, path)
    check(load_weights(model, path), name, "pre_logits")


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "gelu": lambda x: x * (1 + scipy.special.erf(x / np.sqrt(2))) / 2,
    "linear": lambda x: x,
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("name", HEADS)
def test_two_dense_layers_are_the_head(name, activation, tmp_path):
    head = HEADS[name]
    # 10 is behind 9, and the last layer may be as wide as the first.
    wide = np.random.default_rng(1).normal(size=(2, 32, 32)).astype("float32")
    layers = {
        f"{head}.9.weight": wide[0],
        f"{head}.9.bias": wide[0, 0],
        f"{head}.10.weight": wide[1],
        f"{head}.10.bias": wide[1, 0],
    }
    content = {x: y for x, y in tensors(name).items() if not x.startswith(head)}
    path = written(tmp_path / "x.safetensors", {**content, **layers})
    with pytest.raises(ValueError, match="representation_activation="):
        load_checkpoint(path, num_heads=4)
    model = load_checkpoint(
        path, num_heads=4, representation_activation=activation
    )
    features = ACTIVATIONS[activation](
        expected(name)["pre_logits"] @ wide[0].T + wide[0, 0]
    )
    images = expected(name)["image"]
    np.testing.assert_allclose(
        model.predict(images, verbose=0),
        features @ wide[1].T + wide[1, 0],
        **{**TOLERANCE, "atol": 1e-4},
    )
    assert "left out" not in str(model.load_report)
    model.save(tmp_path / "x.keras")
    again = keras.saving.load_model(tmp_path / "x.keras")
    again.set_weights([0 * x for x in again.get_weights()])
    load_weights(again, path)
    np.testing.assert_allclose(
        again.predict(images, verbose=0),
        model.predict(images, verbose=0),
        **{**TOLERANCE, "atol": 1e-4},
    )
    if activation != "tanh":
        with pytest.raises(ValueError, match="representation_activation"):
            save_checkpoint(model, tmp_path / "google.npz", format="google")


@pytest.mark.parametrize("name", HEADS)
def test_a_head_without_biases_has_biases_of_zeros(name, tmp_path):
    head, features = HEADS[name], expected(name)["pre_logits"]
    images = expected(name)["image"]
    bare = cut(name, f"{head}.bias")
    model = load_checkpoint(
        written(tmp_path / "one.safetensors", bare), num_heads=4
    )
    np.testing.assert_allclose(
        model.predict(images, verbose=0),
        features @ bare[f"{head}.weight"].T,
        **TOLERANCE,
    )
    one, two = MLP["head.0.weight"], MLP["head.2.weight"]
    layers = {f"{head}.0.weight": one, f"{head}.2.weight": two}
    path = written(tmp_path / "two.safetensors", cut(name, head, **layers))
    model = load_checkpoint(path, num_heads=4, representation_activation="relu")
    np.testing.assert_allclose(
        model.predict(images, verbose=0),
        np.maximum(features @ one.T, 0) @ two.T,
        **{**TOLERANCE, "atol": 1e-4},
    )
    assert "no bias" in str(model.load_report)


def test_embeddings_need_no_head(tmp_path):
    config = {
        "architecture": "vit_tiny_patch16_224",
        "num_classes": 5,
        "model_args": {
            "img_size": 32,
            "patch_size": 8,
            "embed_dim": 32,
            "depth": 2,
            "num_heads": 4,
            "mlp_ratio": 2,
        },
    }
    found = {}
    for name, head in (("own", {}), ("other", MLP)):
        folder = tmp_path / name
        folder.mkdir()
        written(
            folder / "model.safetensors",
            {**cut("timm_vit_tiny", "head."), **head},
        )
        (folder / "config.json").write_text(json.dumps(config))
        image = np.full((9, 12, 3), 80, "uint8")
        found[name] = embed(folder, [image])
    np.testing.assert_array_equal(found["own"], found["other"])
    assert np.abs(found["own"]).max() > 0
    with pytest.raises(ValueError, match="head of its own"):
        predict(tmp_path / "other", [image])
