"""Resizing inside of exported files."""

import keras
import numpy as np
import pytest
from export_cells import randomised, vit
from PIL import Image

import keras_vit
from keras_vit.data.config import (
    EVALUATION_CROPS,
    METHODS,
    PreprocessingConfig,
)
from keras_vit.data.resizing import Geometry, evaluation_crop, tensor_crop
from keras_vit.exporting.browser_page import write_page
from keras_vit.exporting.export import Compared, _agreement
from keras_vit.exporting.writers import LAYOUTS
from keras_vit.prediction import as_classifier, load_classifier
from keras_vit.prediction.exported_model import ExportedModel

NAMES = ("ant", "bee", "cat", "dog", "eel")
SIZES = ((31, 50), (97, 64), (24, 16), (9, 11), (16, 200))


@pytest.mark.parametrize(
    ("crop", "method"),
    [
        *(("resize_small_central_crop", method) for method in METHODS),
        *((x, "bicubic") for x in EVALUATION_CROPS if x != "aspect_crop"),
    ],
)
@pytest.mark.parametrize("antialias", [False, True])
def test_pixels_are_those_of_evaluation(crop, method, antialias):
    config = PreprocessingConfig(
        evaluation=crop,
        resize_method=method,
        antialias=antialias,
        rounding="float32",
    )
    geometry = Geometry((24, 16), 3, config)
    random = np.random.default_rng(0)
    for size in SIZES:
        image = random.integers(0, 256, (*size, 3)).astype("uint8")
        expected = evaluation_crop(image, geometry)
        given = keras.ops.convert_to_tensor(image[None].astype("float32"))
        found = keras.ops.convert_to_numpy(tensor_crop(given, geometry))[0]
        np.testing.assert_allclose(found, expected, atol=0.01)


def test_what_is_cut_first_is_refused():
    config = PreprocessingConfig(evaluation="aspect_crop")
    with pytest.raises(ValueError, match="Leave out include_resizing"):
        tensor_crop(np.zeros((1, 9, 9, 3)), Geometry((24, 16), 3, config))


def test_pixels_are_rounded_after_each_axis():
    """Bytes are resized by Pillow, which may take the height first."""
    config = PreprocessingConfig(
        evaluation="squash",
        resize_method="bilinear",
        antialias=True,
        rounding="nearest",
    )
    geometry = Geometry((16, 24), 3, config)
    image = np.random.default_rng(0).integers(0, 256, (40, 60, 3)).astype("u1")
    given = keras.ops.convert_to_tensor(image[None].astype("float32"))
    found = keras.ops.convert_to_numpy(tensor_crop(given, geometry))[0]
    expected = Image.fromarray(image).resize(
        (24, 16), Image.Resampling.BILINEAR
    )
    np.testing.assert_allclose(found, np.asarray(expected), atol=1)


def test_pixels_are_rounded_down():
    geometry = Geometry((16, 24), 3, PreprocessingConfig())
    image = np.random.default_rng(0).uniform(0, 255, (1, 40, 60, 3))
    image = keras.ops.convert_to_tensor(image.astype("float32"))
    found = keras.ops.convert_to_numpy(tensor_crop(image, geometry))
    np.testing.assert_array_equal(found, np.floor(found))
    assert found.std() > 1


@pytest.fixture(scope="module")
def classifier():
    keras.utils.set_random_seed(0)
    return as_classifier(randomised(vit()), NAMES, PreprocessingConfig())


def photos():
    random = np.random.default_rng(0)
    return [random.integers(0, 256, (*x, 3)).astype("uint8") for x in SIZES]


def shares(model):
    found = keras_vit.predict(model, photos())
    return [[dict(x.classes)[name] for name in NAMES] for x in found]


def check_file(classifier, path, format, precision, tolerance):
    record = keras_vit.export(
        classifier, path, format, precision=precision, include_resizing=True
    )
    assert record["input"]["shape"] == [None, None, None, 3]
    assert load_classifier(path).resizes
    # A pixel at the border of two is rounded to the one or the other.
    np.testing.assert_allclose(shares(path), shares(classifier), atol=tolerance)


@pytest.mark.once
def test_a_file_takes_images_of_any_size(classifier, tmp_path):
    pytest.importorskip("onnxruntime")
    from keras_vit.serving import Service, ServingLimits

    path = tmp_path / "tiny.onnx"
    check_file(classifier, path, "onnx", "float32", 2e-3)
    squash = PreprocessingConfig(evaluation="squash")
    assert keras_vit.predict(path, photos(), tta="flip")
    with pytest.raises(ValueError, match="squash.*without include_resizing"):
        keras_vit.predict(path, photos(), preprocessing=squash)
    with pytest.raises(ValueError, match="crops.*without include_resizing"):
        keras_vit.predict(path, photos(), tta="crops")
    with pytest.raises(ValueError, match="A page resizes by itself"):
        write_page(path)
    images = np.stack([classifier.read(x) for x in photos()]).astype("float32")
    compared = Compared(images, np.zeros(len(images), int))
    found = _agreement(classifier, ExportedModel(path), compared, 1)
    assert found["images"] == len(images) and "accuracy" not in found
    served = Service(load_classifier(path), "tiny", ServingLimits())
    assert served.limits.batch == 1


# OpenVINO's statistics of use fork, of which JAX warns.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "format", "precision", "tolerance"),
    [
        ("tiny.xml", "openvino", "float32", 2e-3),
        ("tiny", "saved_model", "float32", 2e-3),
        ("tiny.pt2", "pt2", "float32", 2e-3),
        ("tiny.tflite", "litert", "float32", 2e-3),
        ("tiny.stablehlo", "stablehlo", "float32", 2e-3),
        ("tiny.xml", "openvino", "bfloat16", 3e-2),
        ("tiny.onnx", "onnx", "int8", 3e-2),
        ("tiny.tflite", "litert", "int8", 3e-2),
    ],
)
def test_files_of_each_format(
    classifier, tmp_path, name, format, precision, tolerance
):
    check_file(classifier, tmp_path / name, format, precision, tolerance)


@pytest.mark.parametrize(
    "options",
    [
        {"include_preprocessing": False},
        {"calibrate": True, "precision": "int8", "images": photos()},
    ],
)
def test_what_does_not_go_with_resizing(classifier, tmp_path, options):
    path = tmp_path / "tiny.onnx"
    with pytest.raises(ValueError, match="A file that resizes"):
        keras_vit.export(classifier, path, include_resizing=True, **options)
    assert not path.exists()


def test_triton_is_told_that_sides_are_free(tmp_path):
    (tmp_path / "partial").mkdir()
    file = tmp_path / "partial" / "model.onnx"
    file.write_text("content")
    record = {
        "input": {"shape": [None, None, None, 3]},
        "output": {"shape": [None, 5]},
    }
    LAYOUTS["triton"].arrange(file, tmp_path / "models", record)
    config = (tmp_path / "models" / "config.pbtxt").read_text()
    assert "dims: [ -1, -1, 3 ]" in config
