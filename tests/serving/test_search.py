"""A search of a server, by words and by images, as `keras-vit search`."""

import json
import shutil

import keras
import numpy as np
import pytest
import served
from text_cases import FOLDER

import keras_vit
from keras_vit.cli import main
from keras_vit.prediction import load_embeddings
from keras_vit.prediction.embeddings_file import load_search
from keras_vit.serving import server as server_module
from keras_vit.text import load_image_text

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="the same on each backend"
)
for module in ("tokenizers", "sentencepiece"):
    pytest.importorskip(module)
CLIP = FOLDER / "clip_quick_gelu"
WORDS = ["a red car", "ein Hund 🐕 in the snow"]
JSON = "application/json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Six pictures, and the embeddings of them by a model that has texts."""
    folder = tmp_path_factory.mktemp("searched")
    (folder / "photos" / "more").mkdir(parents=True)
    for seed in range(6):
        place = folder / "photos" / ("more" if seed % 2 else "")
        (place / f"{seed}.png").write_bytes(
            served.encoded(served.picture(seed, (40, 36, 3)))
        )
    words = ("embed", CLIP, folder / "photos", "-o", folder / "photos.npz")
    assert main([*map(str, words)]) == 0
    return folder


@pytest.fixture(scope="module")
def search(folder):
    server = served.Server(
        CLIP,
        *("--embeddings", folder / "photos.npz", "--timeout", 30),
        *("--body_mb", 1, "--batch", 4),
    )
    yield server
    server.process.kill()
    server.process.communicate()


def asked(server, texts, top=9, **more):
    body = json.dumps({"texts": texts, **more}).encode()
    return server.post(body, JSON, f"/search?top={top}")


def hits(answer):
    assert answer[0] == 200, answer
    return [
        {y["name"]: y["cosine"] for y in x["images"]}
        for x in answer[2]["results"]
    ]


def expected(folder, vectors):
    """Cosines of unit vectors, computed here."""
    known = load_embeddings(folder / "photos.npz")
    units = known.vectors / np.linalg.norm(known.vectors, axis=1, keepdims=True)
    names = [x.partition("/photos/")[2] for x in known.files]
    return [
        dict(zip(names, map(float, row), strict=True))
        for row in vectors @ units.T
    ]


def test_words_find_images(search, folder):
    answer = asked(search, WORDS)
    texts = load_image_text(CLIP).encode_texts(WORDS)
    vectors = keras.ops.convert_to_numpy(texts)
    for found, wanted in zip(
        hits(answer), expected(folder, vectors), strict=True
    ):
        assert found == pytest.approx(wanted, abs=1e-5)
        assert [*found.values()] == sorted(found.values(), reverse=True)
    assert [x["query"] for x in answer[2]["results"]] == WORDS
    assert [len(x) for x in hits(asked(search, WORDS, 2))] == [2, 2]
    # One alone, and three that are filled up to four, are the same.
    (alone,) = hits(asked(search, WORDS[1:]))
    assert hits(asked(search, [*WORDS, "a cat"]))[1] == pytest.approx(
        alone, abs=1e-5
    )


def test_another_size_than_a_model_has_is_refused(folder):
    found = load_search(folder / "photos.npz", CLIP)
    with pytest.raises(ValueError, match="images of 32x32.* embeddings"):
        server_module._classifier(CLIP, 64, found)
    model = keras_vit.ViT_Ti16(weights=None, input_shape=(32, 32, 3))
    with pytest.raises(ValueError, match="images of 32x32.*size=64"):
        server_module._classifier(model, 64, None)
    taken = server_module._classifier(model, 32, None)
    assert taken.geometry.image_size == (32, 32)


def test_images_find_images(search, folder):
    files = [folder / "photos" / x for x in ("0.png", "more/1.png", "2.png")]
    found = search.post(
        *served.form([(x.name, x.read_bytes()) for x in files]), "/search?top=9"
    )
    assert [next(iter(x)) for x in hits(found)] == [
        "0.png",
        "more/1.png",
        "2.png",
    ]
    assert [x["query"] for x in found[2]["results"]] == [x.name for x in files]
    vectors = keras_vit.embed(CLIP, [str(x) for x in files])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for one, wanted in zip(hits(found), expected(folder, vectors), strict=True):
        assert one == pytest.approx(wanted, abs=1e-5)


REFUSED = {
    "no text": ({"texts": []}, 400),
    "an empty text": ({"texts": ["a", " \n"]}, 400),
    "too many": ({"texts": ["a"] * 5}, 413),
    "a text of many letters": ({"texts": ["a" * 100_000]}, 413),
    "one text": ({"texts": "a red car"}, 400),
    "numbers": ({"texts": [1]}, 400),
    "nothing": ({"texts": [None]}, 400),
    "an object": ({"texts": {"a": "b"}}, 400),
    "half a letter": (b'{"texts":["\\ud800"]}', 400),
    "other names": ({"images": []}, 400),
    "a list": (["a"], 400),
    "no JSON": (b"a red car", 400),
    "no UTF-8": (b'{"texts":["\xff"]}', 400),
    "nothing at all": (b"", 400),
    "nested": (b"[" * 60_000, 400),
    "digits": (b'{"texts":[' + b"1" * 60_000 + b"]}", 400),
    "more than a body": (b" " * (2**20 + 1), 413),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_words_that_are_none_are_refused(search, kind):
    body, status = REFUSED[kind]
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    found, _, content = search.post(body, JSON, "/search")
    assert found == status, content
    assert len(content["error"]["message"]) < 500
    assert len(hits(asked(search, ["a"]))) == 1
    values = search.values()
    assert values["keras_vit_taken_images"] == 0
    assert values["keras_vit_body_bytes"] == 0


def test_a_long_text_is_cut_as_by_the_tokenizer(search):
    long = " ".join(["cat"] * 15_000)  # Less than the 64 KiB of words.
    (found,) = hits(asked(search, [long]))
    (same,) = hits(asked(search, [" ".join(["cat"] * 100)]))
    assert found == pytest.approx(same)


@pytest.mark.parametrize("top", ["0", "-1", "x", "", "1.5"])
def test_another_top_is_refused(search, top):
    status, _, content = asked(search, ["a"], top)
    assert status == 400 and "top must be" in content["error"]["message"]


def test_a_top_of_more_images_than_there_are_is_all(search):
    assert len(hits(asked(search, ["a"], 10**30))[0]) == 6


def test_images_that_are_none_are_refused(search):
    for body, kind, status in (
        (b"x", "image/png", 400),
        (b"", "image/png", 400),
        (b"x", "text/plain", 415),
    ):
        assert search.post(body, kind, "/search")[0] == status
    assert search.ask("GET", "/search")[0] == 405


def test_a_model_of_a_search_alone_names_no_classes(search):
    image = served.encoded(served.picture(0))
    for path in ("/predict", "/explain"):
        status, _, content = search.post(image, path=path)
        assert status == 501 and "--labels" in content["error"]["message"]
    about = search.ask("GET", "/model")[2]
    assert (about["searched"], about["num_classes"]) == (6, 0)
    document = search.ask("GET", "/openapi.json")[2]
    assert "/search" in document["paths"]
    asks = search.values()
    assert asks['keras_vit_requests_total{path="/search",status="200"}'] > 0


@pytest.fixture
def given(monkeypatch):
    """The service of a server that is not run, as "it"."""
    given = {}
    monkeypatch.setattr(
        server_module,
        "_run",
        lambda service, application, listener: given.update(it=service) or 0,
    )
    return given


def test_a_model_with_classes_names_them_beside_a_search(
    folder, tmp_path, given
):
    run, file = served.save_run(tmp_path / "run"), tmp_path / "a.npz"
    words = ("embed", run, folder / "photos", "-o", file)
    assert main([*map(str, words)]) == 0
    words = ("serve", run, "--port", 0, "--embeddings", file)
    assert main([*map(str, words)]) == 0
    assert given["it"].classifier.class_names == served.NAMES
    assert len(given["it"].search.names) == 6


def test_labels_and_a_search(folder, tmp_path, given):
    """Both by one command; the files of another model are refused."""
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    labels = ["--labels", str(tmp_path / "labels.txt"), "--port", "0"]
    files = ["--embeddings", str(folder / "photos.npz")]
    assert main(["serve", str(CLIP), *labels, *files]) == 0
    assert given["it"].classifier.class_names == ("cat", "dog")
    assert len(given["it"].search.names) == 6
    other = tmp_path / "other"
    shutil.copytree(FOLDER / "siglip", other)
    assert main(["serve", str(other), *files, "--port", "0"]) == 2


def test_files_of_tokens_are_not_searched(tmp_path, folder):
    words = ("embed", CLIP, folder / "photos", "--kind", "tokens")
    file = tmp_path / "tokens.npz"
    assert main([*map(str, (*words, "-o", file))]) == 0
    with pytest.raises(ValueError, match="one vector per image"):
        load_search(file)
