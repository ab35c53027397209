"""Evaluation gives each file the class that `keras_vit.predict` gives it."""

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import data, evaluation
from keras_vit.models import VisionTransformer, ViTConfig

SIDE = 16
NAMES = ("lines", "noise", "waves")
LYING = Image.Exif()
LYING[0x0112] = 6  # the orientation of a phone that is held upright
# Suffix, mode and options of files as people have them.
KINDS: tuple[tuple[str, str, dict], ...] = (
    ("jpg", "RGB", {}),
    ("jpeg", "RGB", {"exif": LYING}),
    ("jpg", "CMYK", {}),
    ("png", "P", {}),
    ("png", "RGBA", {}),
    ("png", "I;16", {}),
    ("bmp", "P", {}),
    ("gif", "P", {}),
    ("tif", "RGB", {}),
    ("webp", "RGB", {}),
)


def converted(image, mode):
    if mode != "I;16":
        return image.convert(mode)
    return Image.fromarray(
        np.asarray(image.convert("L")).astype("uint16") * 257
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(0)
    for name in NAMES:
        (folder / name).mkdir()
        for number, (suffix, mode, options) in enumerate(KINDS):
            size = random.integers(3, 9, 2)
            small = random.integers(0, 256, (*size, 3), dtype=np.uint8)
            image = Image.fromarray(small).resize((56, 40))
            path = folder / name / f"{number}.{suffix}"
            converted(image, mode).save(path, **options)
    return folder


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    model = VisionTransformer(
        ViTConfig(
            image_size=(SIDE, SIDE),
            patch_size=(8, 8),
            hidden_dim=16,
            num_layers=1,
            mlp_dim=16,
            num_heads=2,
            num_classes=len(NAMES),
            include_preprocessing=True,
        )
    )
    random = np.random.default_rng(1)
    for weight in model.trainable_weights:
        if len(weight.shape) > 1:
            weight.assign(random.normal(0, 0.5, weight.shape))
    return model


# TensorFlow decodes JPEG by another transform, and rounds what it resizes.
@pytest.mark.parametrize(
    ("reader", "tolerance"), [("pillow", 1e-5), ("tensorflow", 0.05)]
)
def test_evaluation_answers_as_predict_does(folder, model, reader, tolerance):
    if reader == "tensorflow":
        pytest.importorskip("tensorflow")
    config = data.DataConfig(
        folder=str(folder),
        reader=reader,
        validation_fraction=0.0,
        test_fraction=0.0,
    )
    preprocessing = data.PreprocessingConfig()
    found = evaluation.predict_classes(
        model,
        data.evaluation_batches(
            data.open_dataset(config).train,
            image_size=SIDE,
            channels=3,
            batch_size=8,
            preprocessing=preprocessing,
        ),
        top=1,
    )
    expected = keras_vit.predict(
        model, str(folder), 1, class_names=NAMES, preprocessing=preprocessing
    )
    names, probabilities = zip(*(x.classes[0] for x in expected), strict=True)
    assert len(names) == len(NAMES) * len(KINDS)
    assert len(set(names)) > 1
    assert [NAMES[x] for x in found.classes[:, 0]] == list(names)
    np.testing.assert_allclose(
        found.probabilities[:, 0], probabilities, atol=tolerance
    )
