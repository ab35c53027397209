"""From files, Pillow images and arrays to pixels."""

import numpy as np
import pytest
from PIL import Image

from keras_vit.prediction.images import images_of, read_pixels


def test_orientation_of_the_camera_is_applied(tmp_path, image):
    exif = Image.Exif()
    exif[0x0112] = 6  # The camera was turned: rotate by 90 degrees clockwise.
    Image.fromarray(image).save(tmp_path / "a.png", exif=exif)
    found = read_pixels(str(tmp_path / "a.png"), 3)
    np.testing.assert_array_equal(found, np.rot90(image, -1))


def test_sixteen_bits_keep_their_brightness(tmp_path):
    values = np.array([[0, 257, 65535]], "uint16")
    Image.fromarray(values).save(tmp_path / "a.png")
    found = read_pixels(str(tmp_path / "a.png"), 3)
    assert found[0, :, 0].tolist() == [0, 1, 255]


@pytest.mark.parametrize("mode", ["P", "LA", "RGBA", "CMYK", "1", "L"])
def test_every_mode_has_the_channels_of_the_model(image, mode):
    converted = Image.fromarray(image).convert(mode)
    if mode == "P":
        converted.info["transparency"] = bytes(256)
    assert read_pixels(converted, 3).shape == (8, 8, 3)
    assert read_pixels(converted, 1).shape == (8, 8, 1)


def test_channels_of_an_array_become_those_of_the_model(image):
    grey = read_pixels(image, 1)[..., 0]
    np.testing.assert_allclose(grey, image @ [0.299, 0.587, 0.114], rtol=1e-5)
    colour = read_pixels(image[..., 0], 3)
    np.testing.assert_array_equal(colour, np.stack([image[..., 0]] * 3, -1))
    transparent = np.concatenate([image, image[..., :1]], axis=-1)
    np.testing.assert_array_equal(read_pixels(transparent, 3), image)


def test_folder_without_images_is_named(tmp_path):
    assert list(images_of(tmp_path)) == [str(tmp_path)]
    with pytest.raises(ValueError, match="no images"):
        read_pixels(str(tmp_path), 3)
