"""Files of embeddings: what they hold, and that they continue."""

import builtins
import json
import zipfile

import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit.checkpoints import load_checkpoint
from keras_vit.data import PreprocessingConfig
from keras_vit.prediction import (
    as_encoder,
    embed_files,
    embeddings_file,
    images_of,
    load_embeddings,
)
from keras_vit.text import ClassEmbeddings
from keras_vit.version import __version__

SUFFIXES = ["npz", "parquet"]


@pytest.fixture
def encoder(run_folder):
    return as_encoder(run_folder)


def write(encoder, files, path, **options):
    return list(embed_files(encoder, images_of(files), path, **options))


def test_embeddings_in_place_of_weights_are_named(encoder, photos, tmp_path):
    write(encoder, photos, tmp_path / "images.npz")
    classes = ClassEmbeddings(("a",), np.ones((1, 2)), 0.0, None)
    classes.save(tmp_path / "classes.npz")
    with pytest.raises(ValueError, match="of images.*keras-vit search"):
        load_checkpoint(tmp_path / "images.npz")
    with pytest.raises(ValueError, match="of classes.*--labels"):
        load_checkpoint(tmp_path / "classes.npz")


def test_vectors_of_more_than_2_gib_are_written(
    encoder, photos, tmp_path, monkeypatch
):
    """Here of more than 2 bytes; the size is not known when they begin."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 2)
    write(encoder, photos, tmp_path / "photos.npz")
    found = load_embeddings(tmp_path / "photos.npz")
    assert len(found.vectors) == 3


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "options", [{}, {"kind": "tokens"}, {"blocks": [0, -1]}]
)
def test_file_holds_what_embed_returns(
    run_folder, photos, tmp_path, suffix, options
):
    pytest.importorskip("pyarrow")
    path = tmp_path / f"photos.{suffix}"
    encoder = as_encoder(run_folder, **options)
    found = write(encoder, photos, path, batch_size=2)
    files = list(images_of(photos))
    assert found == [(file, None) for file in files]
    embeddings = load_embeddings(path)
    assert embeddings.files == tuple(files)
    assert embeddings.vectors.dtype == "float32"
    np.testing.assert_allclose(
        embeddings.vectors,
        keras_vit.embed(run_folder, photos, **options),
        atol=1e-5,  # other batches add up in another order
    )
    about = embeddings.metadata
    assert about["model"] == str(run_folder)
    assert about["image_size"] == [8, 8]
    assert about["preprocessing"]["evaluation"] == "squash"
    assert about["kind"] == options.get("kind", "pooled")
    assert about["blocks"] == ([0, 1] if "blocks" in options else None)
    assert about["keras_vit"] == __version__
    written = {x.name for x in tmp_path.glob("photos*")}
    assert written == {"photos", path.name}


def test_numpy_and_pyarrow_read_the_files_alone(encoder, photos, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    write(encoder, photos, tmp_path / "a.npz")
    write(encoder, photos, tmp_path / "a.parquet")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        files, vectors = arrays["files"], arrays["vectors"]
        assert json.loads(arrays["metadata"].item()) == encoder.metadata
    table = parquet.read_table(tmp_path / "a.parquet").to_pydict()
    assert table["file"] == files.tolist()
    np.testing.assert_array_equal(np.float32(table["embedding"]), vectors)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_interrupted_file_continues_with_what_is_missing(
    encoder, photos, tmp_path, suffix, monkeypatch
):
    pytest.importorskip("pyarrow")
    whole, path = tmp_path / f"whole.{suffix}", tmp_path / f"part.{suffix}"
    write(encoder, photos, whole, batch_size=1)
    read = type(encoder).read
    names = []

    def interrupted(self, image, *more):
        names.append(image)
        if len(names) == 3:
            raise KeyboardInterrupt
        return read(self, image, *more)

    monkeypatch.setattr(type(encoder), "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(encoder, photos, path, batch_size=1)
    assert not path.exists()
    parts = path.with_name(f"{path.name}.parts")
    assert embeddings_file.known_files(path) == set(names[:2])
    (parts / ".partial-part-000001-0.npz").write_bytes(b"cut")
    assert write(encoder, photos, path, batch_size=1) == [(names[2], None)]
    assert names[2:] == [names[2], names[2]]
    assert not parts.exists()
    one, other = load_embeddings(path), load_embeddings(whole)
    assert one.files == other.files
    np.testing.assert_array_equal(one.vectors, other.vectors)


def test_each_interval_is_a_part(encoder, photos, tmp_path):
    path = tmp_path / "a.npz"
    kept = []
    for file, _ in embed_files(
        encoder, images_of(photos), path, batch_size=1, seconds=0
    ):
        kept.append(embeddings_file.known_files(path))
        assert file in kept[-1]
    assert [len(x) for x in kept] == [1, 2, 3]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_new_images_are_added_and_old_ones_stay(
    encoder, photos, tmp_path, suffix
):
    pytest.importorskip("pyarrow")
    path = tmp_path / f"a.{suffix}"
    write(encoder, [photos / "b.png", photos / "b.png"], path)
    assert load_embeddings(path).files == (str(photos / "b.png"),)
    found = write(encoder, photos, path)
    new = (str(photos / "a.PNG"), str(photos / "below/c.webp"))
    assert found == [(x, None) for x in new]
    found = load_embeddings(path)
    assert found.files == (str(photos / "b.png"), *new)
    expected = keras_vit.embed(encoder, list(found.files))
    np.testing.assert_allclose(found.vectors, expected, atol=1e-5)
    before = path.stat().st_mtime_ns
    assert write(encoder, photos, path) == []
    assert path.stat().st_mtime_ns == before


def test_killed_between_file_and_parts_nothing_is_twice(
    encoder, photos, tmp_path, monkeypatch
):
    path = tmp_path / "a.npz"

    unlink = type(path).unlink

    def killed(self, **options):
        if self.name.startswith("part-"):
            raise SystemExit
        unlink(self, **options)

    with monkeypatch.context() as patch:
        patch.setattr(type(path), "unlink", killed)
        with pytest.raises(SystemExit):
            write(encoder, photos, path)
    parts = path.with_name("a.npz.parts")
    assert path.exists() and parts.exists()
    assert write(encoder, photos, path) == []
    assert not parts.exists()
    assert len(load_embeddings(path).files) == 3


def test_a_full_disk_loses_nothing(encoder, photos, tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    write(encoder, photos / "b.png", path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setitem(embeddings_file.WRITERS, ".npz", full)
        with pytest.raises(OSError, match="No space"):
            write(encoder, photos, path)
    assert path.read_bytes() == before
    assert write(encoder, photos, path) == []
    assert len(load_embeddings(path).files) == 3


def test_broken_images_are_left_out_and_tried_again(encoder, photos, tmp_path):
    path, broken = tmp_path / "a.npz", photos / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    found = dict(write(encoder, photos, path, batch_size=2))
    assert "broken.png" in str(found.pop(str(broken)))
    assert set(found.values()) == {None}
    assert load_embeddings(path).files == tuple(found)
    Image.fromarray(np.zeros((9, 9, 3), "uint8")).save(broken)
    assert write(encoder, photos, path) == [(str(broken), None)]


def test_another_model_or_kind_is_refused(
    run_folder, save_run, photos, tmp_path
):
    path = tmp_path / "a.npz"
    write(as_encoder(run_folder), photos, path)
    squash = PreprocessingConfig(evaluation="squash", rounding="uint8")
    others = {
        "weights_crc32": as_encoder(keras_vit.ViT_Ti16(**TINY)),
        "kind": as_encoder(run_folder, kind="tokens"),
        "blocks": as_encoder(run_folder, blocks=0),
        "image_size": as_encoder(run_folder, image_size=16),
        "preprocessing": as_encoder(run_folder, preprocessing=squash),
    }
    for name, other in others.items():
        with pytest.raises(ValueError, match=name):
            write(other, photos, path)
    # The same weights elsewhere are the same model.
    same = as_encoder(save_run("elsewhere", {}))
    assert same.metadata["model"] != str(run_folder)


TINY = {"weights": None, "input_shape": (16, 16, 3)}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", None, "ends in .npz or .parquet"),
        ("nowhere/a.npz", None, "its folder does not exist"),
        ("a.npz", b"text", "not a file of embeddings"),
        ("a.parquet", b"text", "not a file of embeddings"),
        ("a.npz", "other", "not a file of embeddings"),
    ],
)
def test_files_that_are_none(encoder, photos, tmp_path, name, content, message):
    path = tmp_path / name
    if content == "other":
        np.savez(path, x=np.zeros(3))
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        write(encoder, photos, path)
    if content is not None:
        with pytest.raises(ValueError, match=message):
            load_embeddings(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="There is no file"):
        load_embeddings(tmp_path / "nowhere.npz")


def test_images_in_memory_have_no_file(encoder, tmp_path, image):
    with pytest.raises(ValueError, match="an image in memory"):
        write(encoder, [image], tmp_path / "a.npz")


def test_parquet_says_what_to_install(encoder, photos, tmp_path, monkeypatch):
    original = builtins.__import__

    def without(name, *arguments, **options):
        if name.partition(".")[0] == "pyarrow":
            raise ImportError(name)
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match="pip install pyarrow"):
        write(encoder, photos, tmp_path / "a.parquet")
    write(encoder, photos, tmp_path / "a.npz")
