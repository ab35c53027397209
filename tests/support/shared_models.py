"""Tiny models and runs to share, and a hub to share them on."""

import threading
import time

import keras
import numpy as np
import pytest
import tiny_runs
from hub_server import TOKEN, Hub
from huggingface_hub import constants

from keras_vit.models import VisionTransformer
from keras_vit.runs import evaluated, facts, finish
from keras_vit.training import train

SIZES = {"image_size": 16, "patch_size": 8, "num_layers": 1, "hidden_dim": 8}
VIT = {**SIZES, "mlp_dim": 16, "num_heads": 2, "num_classes": 3}
IMAGES = np.random.default_rng(3).uniform(-1, 1, (2, 16, 16, 3))
IMAGES = IMAGES.astype("float32")
NAMES = ("circle", "square", "line")


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A server in place of huggingface.co, with a token that may write."""
    server = Hub()
    threading.Thread(
        target=server.serve_forever, args=(0.01,), daemon=True
    ).start()
    # huggingface_hub reads the environment when it is imported.
    address = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    for name, value in {
        "ENDPOINT": server.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": address,
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_CACHE": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    yield server
    server.shutdown()
    server.server_close()


def random(family, **fields):
    """A model whose weights are drawn, none of them zero or one."""
    model = family(family.config_class(**fields))
    numbers = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(abs(numbers.normal(0, 0.3, weight.shape)))
    return model


def build(**options):
    return random(VisionTransformer, **{**VIT, **options})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "shapes"
    recipe = tiny_runs.recipe(folder)
    trained = train(recipe, dataset=tiny_runs.DATASET)
    result = {**evaluated(trained, recipe, "test"), **facts(trained)}
    finish(trained, recipe, result)
    return folder


def output(model, images=IMAGES):
    return keras.ops.convert_to_numpy(model(images))


def in_transformers(name, **options):
    """The logits of transformers' own model."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    kind = transformers.AutoModelForImageClassification
    model = kind.from_pretrained(name, **options).eval()
    with torch.no_grad():
        pixels = torch.from_numpy(np.moveaxis(IMAGES, -1, 1).copy())
        return model(pixels).logits.numpy()
