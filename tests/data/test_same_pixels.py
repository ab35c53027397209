"""Training reads the pixels that `keras_vit.predict` reads with Pillow."""

import io

import numpy as np
import pytest
from PIL import Image

from keras_vit.data import PreprocessingConfig
from keras_vit.data.dataset import Examples
from keras_vit.data.image_reader import (
    crop_window,
    decode,
    image_reader,
    is_readable,
)
from keras_vit.data.resizing import Geometry
from keras_vit.data.seeds import key
from keras_vit.prediction.images import read_pixels

pytest.importorskip("tensorflow")

# Of flat areas, so that JPEG changes little; no two turns of it are the same.
AREAS = np.array(
    [
        [(250, 20, 30), (10, 240, 20), (20, 30, 250)],
        [(250, 250, 10), (10, 10, 10), (240, 240, 240)],
    ],
    "uint8",
)
PIXELS = AREAS.repeat(16, 0).repeat(16, 1)  # (32, 48, 3)
IMAGE = Image.fromarray(PIXELS)
ORIENTATION = 0x0112  # its number in EXIF


def encoded(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def turned(kind, orientation, endian=None, **options):
    exif = Image.Exif()
    exif.endian = endian
    exif[0x010F] = "maker"  # A tag before that of the orientation.
    exif[ORIENTATION] = orientation
    return encoded(IMAGE, kind, exif=exif.tobytes(), **options)


def read(content, channels, tmp_path):
    """The pixels that prediction reads."""
    path = tmp_path / "image"
    path.write_bytes(content)
    return read_pixels(str(path), channels).astype(int)


def assert_same(content, channels, tmp_path):
    # TensorFlow takes the luma of a JPEG as it is, and Pillow that of colours
    # which were cut off at 0 and 255.
    is_jpeg = content.startswith(b"\xff\xd8")
    tolerance = 10 if is_jpeg and channels == 1 else 3
    expected = read(content, channels, tmp_path)
    found = decode(content, channels).numpy().astype(int)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["jpeg", "png"])
def test_images_are_turned_as_their_exif_data_says(
    kind, orientation, channels, tmp_path
):
    content = turned(kind, orientation)
    assert_same(content, channels, tmp_path)
    tall = read(content, channels, tmp_path).shape[:2] == (48, 32)
    assert tall == (orientation > 4)


@pytest.mark.parametrize("endian", ["<", ">"])
def test_both_orders_of_bytes(endian, tmp_path):
    content = turned("jpeg", 6, endian)
    assert {"<": b"II*\0", ">": b"MM\0*"}[endian] in content
    assert decode(content, 3).shape[:2] == (48, 32)
    assert_same(content, 3, tmp_path)


@pytest.mark.parametrize("orientation", [0, 9, 200])
def test_other_orientations_are_none(orientation, tmp_path):
    assert_same(turned("jpeg", orientation), 3, tmp_path)


def test_bytes_of_the_image_are_no_orientation(tmp_path):
    tag = b"\x12\x01\x03\0\x01\0\0\0\x06\0"
    assert_same(encoded(IMAGE, "jpeg", comment=tag), 3, tmp_path)
    assert_same(encoded(IMAGE, "jpeg", comment=tag + b"Exif\0\0"), 3, tmp_path)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("colours", [4, 256])
def test_a_bmp_with_a_palette_has_its_colours(colours, channels, tmp_path):
    content = encoded(IMAGE.quantize(colours), "bmp")
    assert content[28:30] == b"\x08\0"
    assert_same(content, channels, tmp_path)


def test_a_compressed_bmp_is_unreadable_and_not_something_else():
    content = bytearray(encoded(IMAGE.quantize(4), "bmp"))
    content[30] = 1
    assert not is_readable(bytes(content), from_path=False)


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize("kind", ["jpeg", "png", "bmp", "gif", "webp", "tiff"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mode_of_every_kind(kind, mode, channels, tmp_path):
    try:
        content = encoded(IMAGE.convert(mode), kind)
    except (OSError, ValueError):
        pytest.skip("Pillow writes no such file.")
    assert_same(content, channels, tmp_path)


@pytest.mark.parametrize("kind", ["png", "tiff"])
@pytest.mark.parametrize("channels", [1, 3])
def test_16_bits_are_scaled_to_8(kind, channels, tmp_path):
    grey = np.asarray(IMAGE.convert("L")).astype("uint16")
    content = encoded(Image.fromarray(grey * 257), kind)
    assert_same(content, channels, tmp_path)
    found = decode(content, channels).numpy()
    np.testing.assert_array_equal(found[..., 0], grey)


def test_a_crop_of_a_turned_image_is_a_crop_of_what_is_seen():
    content = turned("jpeg", 6, quality=95)
    examples = Examples(
        np.array([content], object), np.zeros(1, np.int32), kind="encoded"
    )
    geometry = Geometry((8, 8), 3, PreprocessingConfig())
    reader = image_reader(examples, "inception_crop", geometry, seed=3)
    whole = decode(content, 3).numpy()
    for epoch in range(5):
        record = {"content": content, "epoch": epoch, "example": 0, "number": 0}
        image, readable = reader(record)
        assert readable
        window = crop_window(whole.shape, key("crop", 3, epoch, 0)).numpy()
        top, left, height, width = window
        crop = whole[top : top + height, left : left + width]
        expected = geometry.resize(crop, (8, 8)).numpy().astype(int)
        assert np.abs(image.numpy().astype(int) - expected).max() <= 3


def test_a_cmyk_image_is_cropped_for_a_grey_model():
    content = encoded(IMAGE.convert("CMYK"), "jpeg")
    examples = Examples(
        np.array([content], object), np.zeros(1, np.int32), kind="encoded"
    )
    geometry = Geometry((8, 8), 1, PreprocessingConfig())
    reader = image_reader(examples, "inception_crop", geometry)
    record = {"content": content, "epoch": 0, "example": 0, "number": 0}
    image, readable = reader(record)
    assert readable and image.shape == (8, 8, 1)
