"""From files, Pillow images and arrays to pixels."""

import io
import threading
import time
import types

import file_server
import numpy as np
import pytest
from PIL import Image

from keras_vit.data import image_reader
from keras_vit.prediction import images
from keras_vit.prediction.images import images_of, read_batches, read_pixels


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


def test_strips_of_an_image_make_the_whole():
    rows = 2 * image_reader.STRIP + 1
    pixels = np.random.default_rng(0).integers(0, 256, (rows, 2, 3), "uint8")
    found = read_pixels(Image.fromarray(pixels), 3)
    np.testing.assert_array_equal(found, pixels)


@pytest.fixture
def server(image):
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    server = file_server.Server(buffer.getvalue())
    threading.Thread(
        target=server.serve_forever, args=(0.01,), daemon=True
    ).start()
    yield server
    server.shutdown()
    server.server_close()


def test_an_address_is_downloaded(server, image):
    (found,) = images_of(server.url)
    np.testing.assert_array_equal(read_pixels(found, 3), image)


def test_what_an_address_lacks_is_said(server, monkeypatch):
    server.faults = ["404"]
    with pytest.raises(ValueError, match=r"npz' cannot be downloaded.*404"):
        read_pixels(server.url, 3)
    with pytest.raises(ValueError, match="has a password"):
        read_pixels("https://me:secret@host/a.png", 3)
    with pytest.raises(ValueError, match="127.0.0.1:1/a.png.*downloaded"):
        read_pixels("http://127.0.0.1:1/a.png", 3)
    monkeypatch.setattr(images, "LARGEST_DOWNLOAD", 10)
    with pytest.raises(ValueError, match="has more than"):
        read_pixels(server.url, 3)
    server.content = b"rubbish"
    with pytest.raises(ValueError, match="npz' is not an image"):
        read_pixels(server.url, 3)


def test_large_files_are_read_one_at_a_time(tmp_path, image, monkeypatch):
    paths = [str(tmp_path / f"{number}.png") for number in range(8)]
    for path in paths:
        Image.fromarray(image).save(path)
    readers = set()

    def read(path, changes):
        readers.add(threading.get_ident())
        time.sleep(0.01)
        return read_pixels(path, 3)

    monkeypatch.setattr(images, "LARGE", image.shape[0] * image.shape[1] - 1)
    prepared = types.SimpleNamespace(read=read, resizes=False)
    ((names, batch),) = read_batches(prepared, [*paths, "gone.png"], 9)
    assert len(readers) == 2  # One of them for the file that is missing.
    assert [error for _, error in names[:8]] == [None] * 8
    assert "no file 'gone.png'" in str(names[8][1])
    assert np.array_equal(batch[7], image)


def test_files_of_a_folder_that_are_no_images_are_said_once(tmp_path, caplog):
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "notes.txt").write_text("Of what the photos are.")
    for _ in range(2):
        found = list(images_of(str(tmp_path)))
        assert found == [str(tmp_path / "a.png")]
    (message,) = caplog.messages
    assert message.startswith("1 file(s): 'notes.txt' in ")


@pytest.mark.parametrize(
    ("channels", "message"),
    [(3, "Without colours: 3 image(s)."), (1, "In colour: 2 image(s).")],
)
def test_colours_that_are_added_or_dropped_are_counted(
    tmp_path, caplog, channels, message
):
    red = np.full((8, 8, 3), [200, 0, 0], "uint8")
    grey = red[..., 0]
    Image.fromarray(red).save(tmp_path / "a.png")
    Image.fromarray(grey).save(tmp_path / "b.png")
    deep = grey.astype("uint16") * 257
    Image.fromarray(deep).save(tmp_path / "c.png")
    # Grey in a file of three channels neither gets nor loses colours.
    Image.fromarray(np.stack([grey] * 3, -1)).save(tmp_path / "d.png")
    given = [*images_of(str(tmp_path)), red, grey]

    def read(image, changes):
        return read_pixels(image, channels, changes)

    prepared = types.SimpleNamespace(read=read, resizes=False)
    assert len(list(read_batches(prepared, given, 2))) == 3
    assert [x.startswith(message) for x in caplog.messages] == [True]


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
