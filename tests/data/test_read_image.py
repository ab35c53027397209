import numpy as np
import pytest
from PIL import Image

from keras_vit.data import read_image

COLOURS = np.random.default_rng(0).integers(0, 256, (6, 4, 3), dtype=np.uint8)
# ITU-R 601-2, which Pillow documents for "L".
GREY = COLOURS @ np.array([0.299, 0.587, 0.114])


def saved(tmp_path, image, name="image.png", **options):
    image.save(tmp_path / name, **options)
    return tmp_path / name


def read(path, channels=3, image_size=(6, 4)):
    return read_image(path, image_size=image_size, channels=channels)


def test_colour_image_of_the_size_is_as_in_the_file(tmp_path):
    path = saved(tmp_path, Image.fromarray(COLOURS))
    np.testing.assert_array_equal(read(path), COLOURS)


def test_colour_becomes_grey_by_luminance(tmp_path):
    path = saved(tmp_path, Image.fromarray(COLOURS))
    grey = read(path, channels=1)
    assert grey.shape == (6, 4, 1)
    assert np.abs(grey[..., 0] - GREY).max() <= 1


def test_opaque_image_with_transparency_loses_nothing(tmp_path):
    path = saved(tmp_path, Image.fromarray(COLOURS).convert("RGBA"))
    np.testing.assert_array_equal(read(path), COLOURS)


def test_sixteen_bits_are_scaled_and_not_clipped(tmp_path):
    grey = COLOURS[..., 0]
    path = saved(tmp_path, Image.fromarray(grey.astype(np.uint16) * 257))
    np.testing.assert_array_equal(read(path, channels=1)[..., 0], grey)


def test_black_and_white_image(tmp_path):
    ink = COLOURS[..., 0] > 127
    path = saved(tmp_path, Image.fromarray(ink))
    np.testing.assert_array_equal(read(path, channels=1)[..., 0], ink * 255)


def test_orientation_of_the_camera_is_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # The camera was turned: show it turned clockwise.
    image = Image.fromarray(np.rot90(COLOURS).copy())
    path = saved(tmp_path, image, exif=exif)
    np.testing.assert_array_equal(read(path), COLOURS)


def test_any_size_is_resized_whole(tmp_path):
    left_black_right_white = np.zeros((30, 50), np.uint8)
    left_black_right_white[:, 25:] = 255
    path = saved(tmp_path, Image.fromarray(left_black_right_white), "x.gif")
    halves = read(path, channels=1, image_size=(4, 10))[..., 0]
    assert halves[:, :4].max() < 20
    assert halves[:, 6:].min() > 235


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="There is no file .*nowhere.png"):
        read(tmp_path / "nowhere.png")


@pytest.mark.parametrize("length", [0, 20, 80])
def test_broken_file_is_named(tmp_path, length):
    path = saved(tmp_path, Image.fromarray(COLOURS))
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match="image.png.* cannot be read"):
        read(path)


def test_text_is_no_image(tmp_path):
    path = tmp_path / "notes.png"
    path.write_text("not an image")
    with pytest.raises(ValueError, match="notes.png"):
        read(path)


def test_folder_is_no_image(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        read(tmp_path)
