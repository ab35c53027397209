"""Requests to a server process, and what it answers."""

import base64
import io
import json
import struct
import urllib.parse
import zlib

import jsonschema
import numpy as np
import pytest
import served
from PIL import Image

import keras_vit
from keras_vit.analysis import (
    attention_maps,
    attention_rollout,
    overlay,
)
from keras_vit.prediction import load_classifier
from keras_vit.serving.server import ROUTES
from keras_vit.serving.service import Refusal, received_images

PICTURES = [served.picture(seed) for seed in range(5)]
FILES = [served.encoded(x) for x in PICTURES]


@pytest.fixture(scope="module")
def expected(run_folder):
    found = keras_vit.predict(run_folder, PICTURES)
    return [served.shares(x.classes) for x in found]


def check(answer, expected):
    status, _, content = answer
    assert status == 200, content
    found = content["predictions"]
    assert [x["image"] for x in found] == list(range(len(expected)))
    for one, wanted in zip(found, expected, strict=True):
        assert served.shares(one["classes"]) == pytest.approx(wanted, abs=1e-5)
        probabilities = [x["probability"] for x in one["classes"]]
        assert probabilities == sorted(probabilities, reverse=True)
    return [x["name"] for x in found]


def refused(answer, status):
    """The message of a refusal."""
    assert answer[0] == status, answer
    assert answer[2]["error"]["status"] == status
    return answer[2]["error"]["message"]


def test_the_images_of_the_test_are_told_apart(expected):
    rows = np.array([[x[name] for name in served.NAMES] for x in expected])
    apart = np.abs(rows[:, None] - rows).max(-1)[np.triu_indices(5, 1)]
    assert apart.min() > 1e-3


@pytest.mark.parametrize("kind", ["image/png", "application/octet-stream"])
def test_an_image_alone_is_classified_as_by_predict(server, expected, kind):
    assert check(server.post(FILES[1], kind), expected[1:2]) == [None]


def test_a_form_has_an_answer_per_file_in_order(server, expected):
    files = [(f"{i}.png", FILES[i]) for i in (3, 0, 3, 2)]
    answer = server.post(*served.form(files, [("note", "no image")]))
    names = check(answer, [expected[i] for i in (3, 0, 3, 2)])
    assert names == ["3.png", "0.png", "3.png", "2.png"]


def test_json_has_an_answer_per_image_in_order(server, expected):
    body = served.as_json([FILES[i] for i in range(4, -1, -1)])
    check(server.post(body, "application/json; charset=utf-8"), expected[::-1])


def test_more_images_than_a_batch_are_several_batches(server, expected):
    order = [i % 5 for i in range(21)]
    body = served.as_json([FILES[i] for i in order])
    answer = server.post(body, "application/json")
    check(answer, [expected[i] for i in order])


def test_top_is_how_many_classes_there_are_at_most(server):
    for top, count in ((1, 1), (3, 3), (5, 4), (10**30, 4)):
        _, _, content = server.post(FILES[0], path=f"/predict?top={top}")
        assert len(content["predictions"][0]["classes"]) == count


@pytest.mark.parametrize("top", ["0", "-1", "two", "1.5", "", "\u0663"])
def test_another_top_is_refused(server, top):
    path = f"/predict?top={urllib.parse.quote(top)}"
    message = refused(server.post(FILES[0], path=path), 400)
    assert message == f"top must be a number above 0. Received: {top!r}."


def png_of(width, height):
    """The beginning of a PNG of that size, and nothing more."""

    def chunk(name, content):
        checksum = struct.pack(">I", zlib.crc32(name + content))
        return struct.pack(">I", len(content)) + name + content + checksum

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    return start + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


BAD_IMAGES = {
    "text": (b"no image", 400, "is no image that is read here"),
    "cut": (FILES[0][:200], 400, "cannot be decoded"),
    "no pixels": (png_of(4, 4), 400, "cannot be decoded"),
    "large": (png_of(201, 100), 413, "has 201x100 pixels. 20000 are allowed"),
    "bomb": (png_of(10_000, 10_000), 413, "has 10000x10000 pixels"),
    "beyond Pillow": (png_of(2**30, 2**30), 413, "far more than the 20000"),
    "PostScript": (
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n",
        400,
        "is no image that is read here",
    ),
}


@pytest.mark.parametrize("kind", BAD_IMAGES)
def test_a_bad_image_is_refused_by_number_and_name(server, kind):
    content, status, told = BAD_IMAGES[kind]
    assert told in refused(server.post(content), status)
    files = [("a.png", FILES[0]), ("b.png", content), ("c.png", FILES[1])]
    answer = server.post(*served.form(files))
    assert told in refused(answer, status)
    (wrong,) = answer[2]["error"]["images"]
    assert (wrong["image"], wrong["name"]) == (1, "b.png")
    assert told in wrong["message"]


def test_every_bad_image_is_named(server):
    body = served.as_json([b"x", FILES[0], b"y", png_of(999, 999)])
    answer = server.post(body, "application/json")
    # The worst of them is the status.
    assert refused(answer, 413).startswith("Nothing was classified: image 0 ")
    wrong = answer[2]["error"]["images"]
    assert [x["image"] for x in wrong] == [0, 2, 3]


BAD_BODIES = {
    "empty": (b"", "image/png", 400, "There is no image in the request."),
    "no JSON": (b"{", "application/json", 400, 'an object {"images"'),
    "a list": (b"[]", "application/json", 400, 'an object {"images"'),
    "one text": (b'{"images": "x"}', "application/json", 400, "of strings"),
    "numbers": (b'{"images": [1]}', "application/json", 400, "of strings"),
    "nothing": (b'{"images": []}', "application/json", 400, "no image"),
    "deep": (b"[" * 10**5, "application/json", 400, "an object"),
    "not base64": (
        b'{"images": ["AAAA", "*"]}',
        "application/json",
        400,
        "image 1 is not base64",
    ),
    "no boundary": (b"x", "multipart/form-data", 400, "boundary"),
    "cut form": (
        b"--x\r\nContent-Disposition: form-data\r\n\r\n",
        "multipart/form-data; boundary=x",
        400,
        "The form is damaged",
    ),
    "no file": (*served.form([], [("a", "b")]), 400, "There is no image"),
    "another type": (b"x", "text/plain", 415, "Received: 'text/plain'"),
    "no type": (b"x", "", 415, "Received: ''"),
    "too long": (bytes(2**20 + 1), "image/png", 413, "1 MiB at most"),
}


@pytest.mark.parametrize("kind", BAD_BODIES)
def test_a_bad_body_is_refused(server, kind):
    body, kind, status, told = BAD_BODIES[kind]
    assert told in refused(server.post(body, kind), status)


def test_too_many_images_are_refused(server):
    body = served.as_json([b""] * 257)
    message = refused(server.post(body, "application/json"), 413)
    assert "256 images at most. Received: 257" in message
    body = served.form([(f"{i}.png", b"") for i in range(258)])
    assert "Too many files" in refused(server.post(*body), 400)


def test_as_many_images_as_are_allowed_may_have_other_fields(server):
    images = [base64.b64encode(FILES[0]).decode()] * 256
    body = json.dumps({"images": images, "a": 1, "b": [2, 3]})
    status, _, content = server.post(body.encode(), "application/json")
    assert status == 200, content
    assert len(content["predictions"]) == 256


def test_images_are_counted_before_they_are_decoded(monkeypatch):
    headers = {"content-type": "application/json"}
    body = served.as_json([b""] * 1000)

    def loads(text):
        raise AssertionError("it was decoded")

    monkeypatch.setattr(json, "loads", loads)
    with pytest.raises(Refusal, match="256 images at most. Received: 1000"):
        received_images(headers, body, 256)


def test_a_body_of_unknown_length_is_cut_off_at_the_limit(server):
    chunks = (bytes(2**16) for _ in range(40))
    kind = {"Content-Type": "image/png"}
    answer = server.ask("POST", "/predict", chunks, kind)
    assert "1 MiB at most" in refused(answer, 413)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/predict", 405), ("POST", "/health", 405), ("GET", "/x", 404)],
)
def test_other_addresses_are_refused_in_json(server, method, path, status):
    answer = server.ask(method, path)
    assert f"{method} {path}" in refused(answer, status)


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_other_formats_are_what_predict_makes_of_them(
    server, run_folder, tmp_path, kind
):
    path = tmp_path / f"a.{kind.lower()}"
    path.write_bytes(served.encoded(PICTURES[0], kind))
    (found,) = keras_vit.predict(run_folder, path)
    answer = server.post(path.read_bytes(), f"image/{kind.lower()}")
    check(answer, [served.shares(found.classes)])


def test_exif_turns_a_photo_as_predict_does(server, run_folder, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "turned.jpg"
    path.write_bytes(served.encoded(PICTURES[0], "JPEG", exif=exif))
    (found,) = keras_vit.predict(run_folder, path)
    check(server.post(path.read_bytes()), [served.shares(found.classes)])


def test_the_overlay_is_the_rollout_over_what_the_model_sees(
    server, run_folder, expected
):
    status, _, content = server.post(FILES[2], path="/explain?top=4")
    assert status == 200, content
    found = served.shares(content["classes"])
    assert found == pytest.approx(expected[2], abs=1e-5)
    classifier = load_classifier(run_folder)
    images = classifier.read(PICTURES[2])[None]
    rollout = attention_rollout(classifier.model, classifier.inputs(images))
    assert content["grid"] == [2, 2]
    np.testing.assert_allclose(
        content["rollout"], rollout[0] / rollout.max(), atol=1e-5
    )
    drawn = pixels_of(content["overlay"]["source"]).astype(int)
    wanted = overlay(images, rollout, blur=1)[0]
    np.testing.assert_allclose(drawn, wanted, atol=1)
    seen = pixels_of(content["picture"]["source"])
    np.testing.assert_array_equal(seen, np.rint(images[0]))
    # By the class token, in the mean of the heads.
    layers = attention_maps(classifier.model, classifier.inputs(images))
    assert len(content["layers"]) == len(layers) == 2
    for shown, weights in zip(content["layers"], layers, strict=True):
        grid = weights[:, :, 0, 1:].mean(axis=1).reshape(1, 2, 2)
        drawn = pixels_of(shown["source"]).astype(int)
        wanted = overlay(images, grid, blur=1)[0]
        np.testing.assert_allclose(drawn, wanted, atol=1)


def pixels_of(source):
    head, _, content = source.partition(";base64,")
    assert head == "data:image/png"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))


def test_one_image_is_explained_at_a_time(server):
    body = served.as_json(FILES[:2])
    answer = server.post(body, "application/json", "/explain")
    assert "1 images at most" in refused(answer, 413)


def test_model_says_what_is_served(server):
    assert server.told.startswith("Serving run at http://127.0.0.1:")
    _, _, content = server.ask("GET", "/model")
    assert content["model"] == "run"
    assert content["image_size"] == [8, 8]
    assert content["num_classes"] == 4
    assert content["explains"] is True
    assert content["bytes_per_request"] == 2**20


def test_answers_are_what_the_openapi_document_describes(server):
    document = server.ask("GET", "/openapi.json")[2]
    asked = {
        ("/predict", "200"): server.post(FILES[0]),
        ("/predict", "400"): server.post(b"x"),
        ("/predict", "413"): server.post(png_of(999, 999)),
        ("/predict", "415"): server.post(b"x", "text/plain"),
        ("/explain", "200"): server.post(FILES[0], path="/explain"),
        ("/model", "200"): server.ask("GET", "/model"),
        ("/health", "200"): server.ask("GET", "/health"),
    }
    for (path, status), answer in asked.items():
        assert str(answer[0]) == status
        (operation,) = document["paths"][path].values()
        content = operation["responses"][status]["content"]
        schema = content["application/json"]["schema"]
        resolved = {**schema, "components": document["components"]}
        jsonschema.Draft202012Validator.check_schema(resolved)
        jsonschema.validate(answer[2], resolved)


def test_the_openapi_document_has_every_address_of_the_server(server):
    document = server.ask("GET", "/openapi.json")[2]
    assert document["openapi"] == "3.1.0"
    assert document["info"]["title"] == "Image classification with run"
    limits = "Up to 256 images and 1 MiB per request, 0.02 million pixels"
    assert limits in document["paths"]["/predict"]["post"]["description"]
    methods = {path: [*x] for path, x in document["paths"].items()}
    assert methods == {
        path: [method.lower()] for path, (method, _) in ROUTES.items()
    }
    for path, operations in document["paths"].items():
        for method in operations:
            body = FILES[0] if method == "post" else None
            kind = {"Content-Type": "image/png"} if body else {}
            assert server.ask(method.upper(), path, body, kind)[0] == 200
    text = json.dumps(document)
    references = set(text.split('"$ref": "#/components/schemas/')[1:])
    names = {x.partition('"')[0] for x in references}
    assert names == set(document["components"]["schemas"])


def test_metrics_count_what_was_asked(server):
    before = server.values()
    server.post(served.as_json(FILES), "application/json")
    server.post(b"x")
    after = server.values()

    def grown(name):
        return after[f"keras_vit_{name}"] - before.get(f"keras_vit_{name}", 0)

    assert grown('requests_total{path="/predict",status="200"}') == 1
    assert grown('requests_total{path="/predict",status="400"}') == 1
    assert grown("images_total") == 5
    assert grown("batch_images_sum") == 5
    assert grown("request_seconds_count") == 2
    assert grown('request_seconds_bucket{le="+Inf"}') == 2
    assert after["keras_vit_ready"] == 1
    assert after["keras_vit_queue_images"] == 0
    assert after["keras_vit_taken_images"] == 0


def test_metrics_are_in_prometheus_format(server):
    _, headers, text = server.ask("GET", "/metrics")
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    families = text.split("# HELP ")[1:]
    assert len(families) == 9
    for family in families:
        told, kind, *samples = family.rstrip("\n").split("\n")
        name = told.split(" ")[0]
        assert kind in {
            f"# TYPE {name} {x}" for x in ("counter", "gauge", "histogram")
        }
        assert samples
        assert all(sample.startswith(name) for sample in samples)
        if kind.endswith("histogram"):
            counts = [float(x.split(" ")[1]) for x in samples if "le=" in x]
            assert counts == sorted(counts)
            assert f"{name}_count {counts[-1]}" in samples
