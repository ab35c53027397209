"""Grey images of more than 8 bits: one rule for both readers."""

import io

import numpy as np
import pytest
from PIL import Image

from keras_vit.data import (
    DataConfig,
    PreprocessingConfig,
    evaluation_batches,
    open_dataset,
)
from keras_vit.data.image_reader import (
    LevelError,
    decode,
    from_pillow,
    in_8_bits,
)
from keras_vit.prediction import images as prediction_images

RAMP = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
LEVELS = {
    "16 bits": (np.rint(RAMP * 255) * 257).astype(np.uint16),
    "floats": RAMP,
}
# 0, 1/11 ... 11/11 of 255, rounded.
EXPECTED = [[0, 23, 46, 70], [93, 116, 139, 162], [185, 209, 232, 255]]
UNKNOWN = [
    (np.array([[0, 3500]], "float32"), "floats from 0 to 3500"),
    (np.array([[-0.5, 0.5]], "float32"), "floats from -0.5 to 0.5"),
    (np.array([[np.nan, 1]], "float32"), "floats from nan to nan"),
    (np.array([[0, 255]], "int32"), "whole numbers of 32 bits from 0 to 255"),
]


def encoded(levels, kind):
    file = io.BytesIO()
    Image.fromarray(levels).save(file, kind)
    return file.getvalue()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("name", "kind"),
    [("16 bits", "tiff"), ("16 bits", "png"), ("floats", "tiff")],
)
def test_levels_are_scaled_to_8_bits(name, kind, channels):
    content = encoded(LEVELS[name], kind)
    expected = np.repeat(np.array(EXPECTED)[..., None], channels, axis=-1)
    with Image.open(io.BytesIO(content)) as image:
        np.testing.assert_array_equal(from_pillow(image, channels), expected)
    found = np.asarray(decode(content, channels))
    np.testing.assert_array_equal(found, expected)


def test_16_bits_that_pillow_has_in_32_are_those_of_the_file():
    levels = LEVELS["16 bits"].astype(np.int32)
    found = in_8_bits(Image.fromarray(levels), "PNG")
    np.testing.assert_array_equal(np.asarray(found), EXPECTED)


@pytest.mark.parametrize(("levels", "message"), UNKNOWN)
def test_other_levels_are_refused_with_their_range(levels, message, tmp_path):
    with pytest.raises(LevelError, match=f"{message}, .*Expected 8 bits"):
        from_pillow(Image.fromarray(levels), 3)
    path = tmp_path / "x.tif"
    path.write_bytes(encoded(levels, "tiff"))
    with pytest.raises(ValueError, match=f"x.tif' cannot .* {message}"):
        prediction_images.read_pixels(str(path), 3)


@pytest.fixture
def folder(tmp_path):
    for number in range(12):
        path = tmp_path / "ab"[number % 2] / f"{number}.tif"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(RAMP * (number + 1) / 12).save(path)
    return tmp_path


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("check", ["auto", "ends"])
def test_a_folder_of_them_says_why(folder, check):
    levels = np.full((3, 4), 3500, np.float32)
    Image.fromarray(levels).save(folder / "a" / "x.tif")
    config = DataConfig(folder=str(folder), check_images=check)
    with pytest.raises(ValueError, match="a/x.tif' its levels are floats from"):
        open_dataset(config)


@pytest.mark.usefixtures("reader")
def test_a_folder_of_floats_is_read(folder):
    dataset = open_dataset(
        DataConfig(
            folder=str(folder), validation_fraction=0.0, test_fraction=0.0
        )
    )
    ((images, _, _),) = evaluation_batches(
        dataset.train,
        image_size=(3, 4),
        channels=1,
        batch_size=12,
        preprocessing=PreprocessingConfig(evaluation="squash"),
    )
    numbers = [int(x.split("/")[-1][:-4]) for x in dataset.train.contents]
    shares = (np.array(numbers) + 1) / 12
    expected = np.rint(RAMP * shares[:, None, None] * 255)
    assert np.abs(np.asarray(images)[..., 0] - expected).max() <= 1
