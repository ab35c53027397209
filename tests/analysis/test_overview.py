"""One walk finds what three functions find, and keeps less on the way."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from analysis_cases import case, images_of, rolled_out, tiny_model

from keras_vit import analysis
from keras_vit.analysis.attention_weights import attention_overview, grid_window
from keras_vit.models import ViTConfig


def test_attention_of_the_original_is_read_rolled_out_and_measured():
    model, images, expected = case("vit_tiny_augreg")
    attention = expected["attention"]  # (L, B, H, T, T), class token first
    found = attention_overview(model, images, batch_size=1)
    rows, columns = model.config.grid
    shape = (*attention.shape[:3], rows, columns)
    np.testing.assert_allclose(
        found.grids, attention[..., 0, 1:].reshape(shape), atol=1e-5
    )
    read = np.eye(attention.shape[-1])[[0] * len(images)]
    wanted = rolled_out(attention, read)[:, 1:]
    np.testing.assert_allclose(
        found.rollout, wanted.reshape(-1, rows, columns), atol=1e-5
    )
    centres = np.indices((rows, columns)).reshape(2, -1).T * 8  # pixels
    apart = np.linalg.norm(centres[:, None] - centres, axis=-1)
    summed = (attention[..., 1:, 1:] * apart).sum(axis=-1)
    np.testing.assert_allclose(
        found.distances, summed.mean(axis=(1, 3)), rtol=1e-4
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"class_token": False, "pooling": "mean"},
        {"distillation_token": True, "pooling": "prefix"},
        {"pooling": "map"},
    ],
)
def test_overview_is_what_the_functions_give(changes):
    model = tiny_model(**changes)
    images = images_of(model, 3)
    options: dict = {"head_fusion": "max", "discard_ratio": 0.5}
    found = attention_overview(model, images, batch_size=2, **options)
    maps = analysis.attention_maps(model, images)
    np.testing.assert_allclose(
        found.grids, analysis.attention_grids(model, maps), atol=1e-6
    )
    np.testing.assert_allclose(
        found.rollout,
        analysis.attention_rollout(model, images, **options),
        atol=1e-6,
    )
    np.testing.assert_allclose(
        found.distances, analysis.attention_distance(model, images), rtol=1e-5
    )


def test_grid_of_a_hybrid_reaches_beyond_the_image():
    # Root block and pooling: cells of 4 pixels. 30x40 pixels are 8x10 cells,
    # of 32x40 pixels.
    config = ViTConfig(
        image_size=(30, 40), patch_size=(2, 2), resnet_units=(), hidden_dim=12
    )
    assert grid_window(config) == (-1, 0, 32, 40)
    assert grid_window(ViTConfig(image_size=(32, 32))) == (0, 0, 32, 32)


REPLICAS = """
import tensorflow as tf

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2
)
import numpy as np
from analysis_cases import images_of, tiny_model
from keras_vit.analysis.attention_weights import attention_overview

with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    model = tiny_model()
    found = attention_overview(model, images_of(model, 3), batch_size=2)
assert found.rollout.shape == (3, 2, 3), found.rollout.shape
assert found.grids.shape == (2, 3, 2, 2, 3), found.grids.shape
alone = tiny_model()
expected = attention_overview(alone, images_of(alone, 3))
np.testing.assert_allclose(found.grids, expected.grids, atol=1e-6)
np.testing.assert_allclose(found.distances, expected.distances, rtol=1e-5)
print("same")
"""


@pytest.mark.slow
def test_replicas_give_what_one_device_gives():
    pytest.importorskip("tensorflow")
    tests = pathlib.Path(__file__).parents[1]
    support = tests / "support"
    ended = subprocess.run(
        [sys.executable, "-c", REPLICAS],
        env={
            **os.environ,
            "KERAS_BACKEND": "tensorflow",
            "PYTHONPATH": f"{support}{os.pathsep}{tests.parent}",
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.splitlines()[-1] == "same"
