"""`keras-vit embed`, `keras-vit search` and what they compute with."""

import re
import sys

import numpy as np
import pytest
import reference_cases
from PIL import Image

import keras_vit
from keras_vit.checkpoints.files.npz import map_array
from keras_vit.cli import main
from keras_vit.prediction import (
    Embeddings,
    Encoder,
    as_encoder,
    embeddings_file,
    encoder_of,
    load_embeddings,
    nearest,
)


def test_neighbours_are_the_largest_cosines():
    random = np.random.default_rng(0)
    vectors = random.normal(size=(20, 6)) * random.uniform(1, 9, (20, 1))
    queries = random.normal(size=(3, 6))
    numbers, scores = nearest(vectors, queries, top=4)
    for query, row, values in zip(queries, numbers, scores, strict=True):
        cosines = [
            query @ x / np.linalg.norm(query) / np.linalg.norm(x)
            for x in vectors
        ]
        assert row.tolist() == np.argsort(cosines)[::-1][:4].tolist()
        np.testing.assert_allclose(
            values, np.sort(cosines)[::-1][:4], atol=1e-6
        )
    assert nearest(vectors, queries, top=99)[0].shape == (3, 20)


def test_blocks_are_joined_and_equals_stay_in_order():
    vectors = np.array([[[0, 1], [1, 0]], [[0, 1], [1, 0]], [[1, 1], [1, 1]]])
    numbers, scores = nearest(vectors, vectors[2:], top=3)
    assert numbers.tolist() == [[2, 0, 1]]
    np.testing.assert_allclose(scores, [[1, 0.5**0.5, 0.5**0.5]], atol=1e-6)
    zeros, _ = nearest(np.zeros((2, 3)), np.ones((1, 3)))
    assert zeros.tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("vectors", "queries", "top", "message"),
    [
        (np.ones((2, 3)), np.ones((1, 3)), 0, "top=0"),
        (np.ones((2, 3)), np.ones((1, 3)), True, "top=True"),
        (np.ones((2, 3)), np.ones((1, 4)), 1, "same size"),
        (np.ones((2, 3, 4, 5)), np.ones((1, 60)), 1, "one vector per image"),
        (np.ones((0, 3)), np.ones((1, 3)), 1, r"\(0, 3\)"),
    ],
)
def test_vectors_that_cannot_be_compared(vectors, queries, top, message):
    with pytest.raises(ValueError, match=message):
        nearest(vectors, queries, top=top)


@pytest.fixture
def embedded(run, run_folder, photos, tmp_path):
    path = tmp_path / "photos.npz"
    assert run("embed", run_folder, photos, "-o", path) == (
        f"{path}: 3 new images\n"
    )
    return path


def test_queries_are_resized_to_the_size_of_the_file(run_folder, photos):
    """Height first."""
    wide = as_encoder(run_folder, image_size=(8, 16))
    vectors = keras_vit.embed(wide, photos)
    found = Embeddings(("a", "b", "c"), vectors, wide.metadata)
    again = encoder_of(found)
    assert again.model.input_shape[1:3] == (8, 16)
    np.testing.assert_array_equal(keras_vit.embed(again, photos), vectors)


def test_embed_writes_what_embed_returns(run, run_folder, photos, tmp_path):
    path = tmp_path / "tokens.npz"
    options = ("--kind", "tokens", "--blocks", "0", "-1", "--batch", "2")
    run("embed", run_folder, photos, "-o", path, *options)
    found = load_embeddings(path)
    expected = keras_vit.embed(run_folder, photos, kind="tokens", blocks=[0, 1])
    np.testing.assert_allclose(found.vectors, expected, atol=1e-6)


def test_the_same_command_embeds_what_is_new(run, run_folder, photos, embedded):
    command = ("embed", run_folder, photos, "-o", embedded)
    assert run(*command).endswith(": 0 new images\n")
    Image.fromarray(np.zeros((9, 9, 3), "uint8")).save(photos / "new.png")
    assert run(*command).endswith(": 1 new images\n")
    assert len(load_embeddings(embedded).files) == 4


def test_broken_images_are_listed_and_the_others_embedded(
    fail, run_folder, photos, tmp_path
):
    path = tmp_path / "a.npz"
    text = photos / "notes.txt"
    printed, lines = fail(
        "embed", run_folder, photos, text, "nowhere.png", "-o", path
    )
    assert printed == f"{path}: 3 new images\n"
    assert lines[0] == f"{str(text)!r} is not an image."
    assert lines[1] == "There is no file 'nowhere.png'."
    assert lines[2].endswith("2 images could not be read, see above.")
    assert len(load_embeddings(path).files) == 3


def test_an_interrupted_command_says_that_it_continues(
    run_folder, photos, tmp_path, run, capsys, monkeypatch
):
    path = tmp_path / "a.npz"
    command = ["embed", run_folder, photos, "-o", path, "--batch", "1"]
    read, names = Encoder.read, []

    def interrupted(self, image, *more):
        names.append(image)
        if len(names) == 3:
            raise KeyboardInterrupt
        return read(self, image, *more)

    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "read", interrupted)
        with pytest.raises(SystemExit, match="130"):
            main([str(x) for x in command])
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert "the same command continues" in printed.err
    assert run(*command).endswith(": 1 new images\n")


def test_wrong_files_are_one_line_before_the_model_is_loaded(fail, tmp_path):
    for name, message in (("a.csv", ".npz or .parquet"), ("x/a.npz", "folder")):
        _, (line,) = fail("embed", "nowhere", "a.png", "-o", tmp_path / name)
        assert message in line
    _, (line,) = fail("search", tmp_path / "a.npz", "a.png")
    assert "There is no file" in line


def test_progress_counts_what_is_missing(
    run_folder, photos, embedded, capsys, monkeypatch
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    Image.fromarray(np.zeros((9, 9, 3), "uint8")).save(photos / "new.png")
    command = ["embed", run_folder, photos, "-o", embedded]
    assert main([str(x) for x in command]) == 0
    printed = capsys.readouterr()
    assert "Images" in printed.err and "100%" in printed.err


def cells(printed):
    rows = re.findall(r"│(.*)│", printed)
    return [[cell.strip() for cell in row.split("│")] for row in rows]


def test_search_prints_the_nearest_images(run, photos, embedded):
    known = load_embeddings(embedded)
    query = photos / "b.png"
    printed = run("search", embedded, query, photos / "below", "--top", "2")
    found = cells(printed)
    assert [row[1] for row in found] == ["1", "2"] * 2
    assert [row[0] for row in found] == [
        *(str(query), ""),
        *(str(photos / "below/c.webp"), ""),
    ]
    numbers, scores = nearest(known.vectors, known.vectors[1:], top=2)
    assert [row[2] for row in found] == [
        known.files[i] for i in numbers.ravel()
    ]
    assert [row[3] for row in found] == [f"{x:.4f}" for x in scores.ravel()]
    assert found[0][2:] == [str(query), "1.0000"]


def test_search_draws_the_images(run, photos, embedded, tmp_path, monkeypatch):
    page = tmp_path / "page.png"
    monkeypatch.chdir(tmp_path)
    (photos / "a.PNG").unlink()  # It cannot be shown, but found.
    printed = run("search", embedded, photos / "b.png", "-o", page)
    assert printed.endswith(f"{page}\n")
    with Image.open(page) as picture:
        assert np.asarray(picture.convert("L")).std() > 10


def test_search_writes_a_page(run, photos, embedded, tmp_path):
    page, odd = tmp_path / "hits.html", photos / "<b>.png"
    (photos / "b.png").rename(odd)  # The file has its old name.
    assert run("search", embedded, odd, "-o", page).endswith(f"{page}\n")
    text = page.read_text("utf-8")
    shown = re.findall(r'<img src="data:image/\w+;base64,[^"]+"', text)
    assert len(shown) == 3  # The query, and two of the three hits.
    assert text.count("cosine") == 3 and "1. cosine 1.0000" in text
    assert "&lt;b&gt;.png" in text and "<b>" not in text
    assert "http" not in re.sub(r'"data:[^"]*"', "", text.split("<body>")[1])


def test_vectors_are_mapped_and_compared_with_their_checksum(tmp_path):
    """In a file of any length of names; damaged or packed as well."""
    vectors = np.random.default_rng(0).normal(size=(400, 70)).astype("f4")
    for length in range(1, 9):
        path = tmp_path / f"{length}.npz"
        files = tuple(f"{i:0{length + 2}}" for i in range(400))
        embeddings_file._write_npz(path, files, [vectors[:9], vectors[9:]], {})
        mapped = map_array(path, "vectors")
        assert mapped is not None and mapped.flags.aligned
        np.testing.assert_array_equal(mapped, vectors)
        np.testing.assert_array_equal(np.load(path)["vectors"], vectors)
    content = bytearray(path.read_bytes())
    content[content.index(vectors[350].tobytes())] ^= 1
    damaged = tmp_path / "damaged.npz"
    damaged.write_bytes(content)
    with pytest.raises(ValueError, match="checksum"):
        load_embeddings(damaged)
    packed = tmp_path / "packed.npz"
    np.savez_compressed(packed, files=files, metadata="{}", vectors=vectors)
    assert map_array(packed, "vectors") is None
    np.testing.assert_array_equal(load_embeddings(packed).vectors, vectors)


def test_what_is_written_to_mapped_vectors_stays_in_memory(embedded):
    found, before = load_embeddings(embedded), embedded.read_bytes()
    found.vectors[:] = 0
    assert embedded.read_bytes() == before


def test_neighbours_over_several_parts(monkeypatch):
    """As one part finds them: order, equals, lengths given or not."""
    random = np.random.default_rng(0)
    vectors = random.integers(-1, 2, (50, 3)).astype("f4")  # Many are equal.
    queries = random.normal(size=(4, 3))
    whole = nearest(vectors, queries, top=20)
    known = Embeddings((), vectors, {})
    monkeypatch.setattr(embeddings_file, "ROWS", 7)
    for options in ({}, {"lengths": known.lengths}):
        parts = nearest(vectors, queries, top=20, **options)
        np.testing.assert_array_equal(parts[0], whole[0])
        np.testing.assert_array_equal(parts[1], whole[1])
    cosines = (
        queries @ vectors.T / np.maximum(np.linalg.norm(vectors, axis=1), 1e-30)
    )
    order = np.argsort(-cosines.round(6), axis=1, kind="stable")[:, :20]
    np.testing.assert_array_equal(whole[0], order)
    vectors[33, 1] = np.nan
    with pytest.raises(ValueError, match="number 33 has NaN"):
        nearest(vectors, queries)


def test_another_model_is_an_error(fail, save_run, embedded, photos, run):
    other = save_run("other", {})
    query = photos / "b.png"
    _, (line,) = fail("search", embedded, query, "--model", other)
    assert "embeddings of another kind" in line
    assert str(embedded) in line and str(other) in line


def test_the_same_model_may_have_moved(run, fail, run_folder, embedded, photos):
    moved = run_folder.with_name("moved")
    run_folder.rename(moved)
    query = photos / "b.png"
    _, (line,) = fail("search", embedded, query)
    assert str(run_folder) in line
    assert "1.0000" in run("search", embedded, query, "--model", moved)


def test_tokens_are_not_searched(fail, run, run_folder, photos, tmp_path):
    path = tmp_path / "tokens.npz"
    run("embed", run_folder, photos, "-o", path, "--kind", "tokens")
    _, (line,) = fail("search", path, photos / "b.png")
    assert "one vector per image" in line


@pytest.mark.parametrize("name", ["page.txt", "page", "nowhere/page.png"])
def test_pictures_that_cannot_be_written(fail, embedded, photos, name):
    out = embedded.parent / name
    _, (line,) = fail("search", embedded, photos / "b.png", "-o", out)
    assert "page.png" in line and name in line


def test_a_model_of_any_size_searches_at_that_of_the_file(image):
    path = reference_cases.path_of("bit_tiny_google")
    written = as_encoder(keras_vit.load_checkpoint(path), image_size=(32, 24))
    known = Embeddings(("a",), written.vectors(image[None]), written.metadata)
    found = encoder_of(known, keras_vit.load_checkpoint(path))
    assert found.geometry.image_size == (32, 24)


def test_embeddings_of_a_model_in_memory_ask_for_it(make_vit):
    model = make_vit()
    encoder = as_encoder(model)
    known = Embeddings(("a.png",), np.ones((1, 8), "f4"), encoder.metadata)
    assert encoder_of(known, model).metadata == encoder.metadata
    with pytest.raises(ValueError, match="--model"):
        encoder_of(known)
