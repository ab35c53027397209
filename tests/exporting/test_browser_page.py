"""The page that classifies in the browser, in a headless Chromium."""

import base64
import contextlib
import functools
import http.server
import json
import shutil
import threading
from pathlib import Path

import keras
import numpy as np
import pytest
from browser import find_chromium
from export_cells import cells, model_of
from PIL import Image
from text_cases import FOLDER as TEXTS

from keras_vit.cli import main
from keras_vit.data import PreprocessingConfig
from keras_vit.data.resizing import Geometry, evaluation_crop
from keras_vit.exporting.browser_page import FILES, RUNTIME, page
from keras_vit.exporting.export import record_of
from keras_vit.prediction import as_classifier

ROOT = Path(__file__).parents[2]
# Of `npm install onnxruntime-web@1.30.0` in the root of the repository.
DIST = ROOT / "node_modules" / "onnxruntime-web" / "dist"
needs_chromium = pytest.mark.skipif(
    find_chromium() is None, reason="no Chromium on this machine"
)
ONNX = ("token", "onnx", "float32")
PREPARED = [
    (crop, method, antialias, rounding)
    for crop in ("squash", "resize_small_central_crop", "resize_central_crop")
    for method in (None, "bilinear", "bicubic", "area", "lanczos3", "nearest")
    for antialias in (False, True)
    for rounding in ("uint8", "float32")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder that is served."""
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def address(folder):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format, *args):
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(
            target=server.serve_forever, args=(0.01,), daemon=True
        ).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def tiny_record(**preprocessing):
    classifier = as_classifier(
        model_of("token"), None, PreprocessingConfig(**preprocessing)
    )
    return json.loads(json.dumps(record_of(classifier, *ONNX[1:], "any")))


def settings_of(text):
    """The JSON that a page has of its model."""
    return text.partition(" data-model>")[2].partition("</script>")[0]


@needs_chromium
@pytest.mark.parametrize("height, width", [(23, 41), (7, 9)])
def test_pixels_are_those_of_predict(browser, folder, address, height, width):
    random = np.random.default_rng(0)
    image = random.integers(0, 256, (height, width, 3)).astype("uint8")
    (folder / "tiny.html").write_text(page(tiny_record(), "x.onnx", "tiny"))
    browser.open(f"{address}/tiny.html")
    given = {"height": height, "width": width, "channels": 3}
    pixels = json.dumps(given | {"data": image.ravel().tolist()})
    for crop, method, antialias, rounding in PREPARED:
        asked = PreprocessingConfig(
            evaluation=crop,
            resize_method=method,
            antialias=antialias,
            rounding=rounding,
        )
        settings = settings_of(page(tiny_record(**vars(asked)), "x.onnx", "x"))
        found = browser.run(f"""(() => {{
            Object.assign(kerasVit.model, {settings});
            return Array.from(kerasVit.prepare({pixels}));}})()""")
        wanted = evaluation_crop(image, Geometry((16, 16), 3, asked))
        np.testing.assert_allclose(
            np.reshape(found, wanted.shape),
            wanted / 127.5 - 1,
            atol=1e-6,
            err_msg=str((crop, method, antialias, rounding)),
        )


@needs_chromium
@pytest.mark.skipif(not DIST.is_dir(), reason="npm install onnxruntime-web")
def test_scores_are_those_of_predict(browser, folder, address, capsys):
    from keras_vit import predict

    assert not isinstance(cells([ONNX], folder)[ONNX], str)
    shutil.move(folder / "token_onnx_float32.onnx", folder / "tiny one.onnx")
    with contextlib.suppress(FileExistsError):
        (folder / "web").symlink_to(DIST)
    command = ["page", str(folder / "tiny one.onnx"), "--runtime", "web"]
    assert main(command) == 0
    path = capsys.readouterr().out.strip()
    assert Path(path).name == "tiny one.html"
    pixels = np.random.default_rng(1).integers(0, 256, (40, 60, 3))
    Image.fromarray(pixels.astype("uint8")).save(folder / "photo.png")
    browser.problems.clear()
    browser.open(f"{address}/tiny%20one.html")
    status = "document.querySelector('[data-status]').textContent"
    browser.wait(f"{status} === 'The model is loaded.'")
    browser.drop(
        "[data-drop]", "a <b>.png", (folder / "photo.png").read_bytes()
    )
    browser.wait(f"{status}.includes('is classified')")
    (wanted,) = predict(folder / "tiny one.onnx", str(folder / "photo.png"))
    found = browser.run(
        "fetch('photo.png').then((x) => x.blob()).then(kerasVit.decode)"
        ".then(kerasVit.classes)"
    )
    assert [name for name, _ in found] == [name for name, _ in wanted.classes]
    shares = [share for _, share in found]
    np.testing.assert_allclose(
        shares, [x for _, x in wanted.classes], atol=1e-5
    )
    shown = browser.run(
        "[...document.querySelectorAll('[data-guesses] li')].map("
        "(item) => item.firstChild.textContent)"
    )
    assert shown == [name for name, _ in wanted.classes]
    assert browser.problems == []


@pytest.fixture(scope="module", params=["clip_quick_gelu", "siglip"])
def words(request, folder):
    """Both towers in a folder, and classes of golden embeddings of texts."""
    for module in ("onnxruntime", "onnxscript", "sentencepiece", "tokenizers"):
        pytest.importorskip(module)
    if keras.backend.backend() != "torch":
        pytest.skip("the same on each backend")
    source, name = TEXTS / request.param, request.param
    expected = dict(np.load(source / "expected.npz"))
    assert main(["export", str(source), str(folder / name), "--texts"]) == 0
    labels = folder / f"{name}.txt"
    # The first two of the golden texts, of which each is a class.
    labels.write_text("a photo of a cat\na photo of a dog\n")
    return folder / name, labels, expected


def test_a_page_of_words_has_their_embeddings(words, capsys):
    model, labels, expected = words
    arguments = ("page", model, "--labels", labels, "--template", "{}")
    assert main([*map(str, arguments)]) == 0
    path = Path(capsys.readouterr().out.splitlines()[-1])
    assert path == model.with_suffix(".html")
    text = path.read_text()
    assert "words were chosen when the page was made" in text
    found = json.loads(settings_of(text))
    vectors = np.frombuffer(base64.b64decode(found["vectors"]), "float32")
    np.testing.assert_allclose(
        vectors.reshape(2, -1), expected["text_embeds"][:2], atol=1e-5
    )
    # Two of three texts of the golden logits, whose softmax is of them alone.
    ratio = expected["logits_per_image"][:, :2]
    cosines = expected["image_embeds"] @ expected["text_embeds"][:2].T
    computed = found["scale"] * cosines + found["bias"]
    np.testing.assert_allclose(computed, ratio, atol=1e-4)
    assert found["url"] == f"{model.name}/image.onnx"


@needs_chromium
@pytest.mark.skipif(not DIST.is_dir(), reason="npm install onnxruntime-web")
def test_scores_of_words_are_those_of_predict(words, browser, folder, address):
    from keras_vit import predict

    model, labels, _ = words
    with contextlib.suppress(FileExistsError):
        (folder / "web").symlink_to(DIST)
    arguments = ("page", model, "--labels", labels, "--runtime", "web")
    assert main([*map(str, arguments)]) == 0
    pixels = np.random.default_rng(1).integers(0, 256, (40, 60, 3))
    Image.fromarray(pixels.astype("uint8")).save(folder / "photo.png")
    browser.open(f"{address}/{model.name}.html")
    status = "document.querySelector('[data-status]').textContent"
    browser.wait(f"{status} === 'The model is loaded.'")
    found = browser.run(
        "fetch('photo.png').then((x) => x.blob()).then(kerasVit.decode)"
        ".then(kerasVit.classes)"
    )
    (wanted,) = predict(model, str(folder / "photo.png"), labels=str(labels))
    assert [name for name, _ in found] == [name for name, _ in wanted.classes]
    np.testing.assert_allclose(
        [x for _, x in found], [x for _, x in wanted.classes], atol=1e-4
    )


def test_words_and_towers_belong_together(words, tmp_path, capsys):
    model, labels, _ = words
    for arguments in (
        [str(model)],
        [str(model / "image.onnx"), "--labels", str(labels)],
    ):
        assert main(["page", *arguments]) == 2
        assert "Labels are those of a folder" in capsys.readouterr().err


@needs_chromium
def test_what_is_missing_is_said(browser, folder, address):
    (folder / "gone.html").write_text(
        page(tiny_record(), "gone.onnx", "tiny", "nowhere")
    )
    browser.open(f"{address}/gone.html")
    problem = "document.querySelector('[data-problem]').textContent"
    browser.wait(f"/(nowhere.ort.+|gone.onnx): 404/.test({problem})")


def test_a_page_names_its_runtime_by_hash():
    text = page(tiny_record(), "vit.onnx", "a <b>")
    assert all(f'"{RUNTIME}{name}"' in text for name in FILES)
    assert all(known in text for known in FILES.values())
    assert "connect-src 'self' https://cdn.jsdelivr.net;" in text
    assert "a &lt;b&gt;: 5 classes, pictures of 16x16 pixels." in text
    own = page(tiny_record(), "vit.onnx", "vit", "web/dist")
    assert "sha384" not in own and "web/dist/ort.wasm" in own


def test_names_of_classes_stay_text():
    record = tiny_record() | {"class_names": ["</script><b>", "{{ title }}"]}
    text = page(record, "vit.onnx", "vit")
    assert "</script><b>" not in text
    assert '"{{ title }}"' in text


def test_what_makes_no_page_is_refused(capsys, tmp_path):
    for arguments in (["vit.xml"], ["x.onnx", str(tmp_path / "no" / "x.html")]):
        assert main(["page", *arguments]) == 2
        assert "is made of a file *.onnx" in capsys.readouterr().err
    with pytest.raises(ValueError, match="the model has none"):
        page(tiny_record() | {"class_names": []}, "vit.onnx", "vit")


def test_the_hashes_are_those_of_the_files():
    import base64
    import hashlib

    if not DIST.is_dir():
        pytest.skip("npm install onnxruntime-web")
    for name, known in FILES.items():
        digest = hashlib.sha384((DIST / name).read_bytes()).digest()
        assert known == f"sha384-{base64.b64encode(digest).decode()}"
