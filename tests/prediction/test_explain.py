"""`keras-vit explain` writes what it promises, or says in a line why not."""

import io
import pathlib

import keras
import numpy as np
import pytest
from html_page import Page, decoded
from PIL import Image

import keras_vit
from keras_vit.analysis import attention_rollout, overlay
from keras_vit.explanation import enlarged, file_names
from keras_vit.models import BiT, BiTConfig, Mixer, MixerConfig
from keras_vit.prediction import load_classifier

SMALL = {"image_size": (8, 8), "num_classes": 3, "include_preprocessing": True}
PATCHED = {**SMALL, "patch_size": 4, "hidden_dim": 8, "num_layers": 1}


def opened(path):
    return Page(pathlib.Path(path).read_text(encoding="utf-8"))


def pixels_of(image):
    return np.asarray(Image.open(io.BytesIO(decoded(image)[1])))


@pytest.mark.parametrize(
    "options",
    [{"num_classes": 0}, {"num_classes": 3, "head_bias": None}],
    ids=["without head", "projection"],
)
def test_an_encoder_is_explained_without_classes(options, photos, tmp_path):
    model = keras_vit.models.VisionTransformer(
        keras_vit.models.ViTConfig(**{**PATCHED, "num_heads": 2, **options})
    )
    page = opened(keras_vit.explain(model, photos, tmp_path / "out"))
    assert len(page.all("h3", part="attention")) == 3
    assert not page.all("li", **{"class": "bar"})
    image = np.zeros((8, 8, 3), "uint8")
    page = opened(keras_vit.explain(model, image, tmp_path / "out"))
    assert " · 1 image · " in page.all("p")[0]["text"]
    assert not page.all("li", **{"class": "bar"})
    with pytest.raises(ValueError, match="needs a classification layer"):
        keras_vit.predict(model, photos)


def test_pictures_and_page(run, run_folder, photos, tmp_path):
    out = tmp_path / "new" / "out"
    printed = run("explain", run_folder, photos, "-o", out)
    assert printed.strip() == str(out / "index.html")
    images = [
        f"{name}_{what}.png"
        for name in "abc"
        for what in ("heads", "layers", "rollout")
    ]
    figures = [
        "attention_distance.png",
        "patch_filters.png",
        "patch_pca.png",
        "position_similarity.png",
    ]
    assert sorted(path.name for path in out.iterdir()) == sorted(
        [*images, *figures, "index.html"]
    )
    page = opened(out / "index.html")
    titles = [x["text"] for x in page.all("h3", part="attention")]
    assert titles == ["a.PNG", "b.png", "c.webp"]
    assert page.all("h1")[0]["text"].split()[1:-1] == [run_folder.name]
    facts = page.all("p")[0]["text"].split(" · ")
    assert facts[:2] == ["VisionTransformer", "3 images"]
    rows = [x["text"].split() for x in page.all("tr", part="model")]
    assert ["model.image_size", "8,", "8"] in rows
    assert ["preprocessing.evaluation", "squash"] in rows
    expected = keras_vit.predict(run_folder, photos)
    bars = [
        " ".join(bar["text"].split())
        for bar in page.all("li", **{"class": "bar"})
    ]
    assert bars == [
        f"{name} {100 * share:.1f} %"
        for found in expected
        for name, share in found.classes
    ]


def test_overlay_is_the_rollout_over_the_image_as_the_model_sees_it(
    run_folder, photos, tmp_path
):
    path = photos / "b.png"
    keras_vit.explain(run_folder, path, tmp_path / "out", discard_ratio=0.5)
    classifier = load_classifier(run_folder)
    image = classifier.read(str(path))[np.newaxis]
    rollout = attention_rollout(
        classifier.model, classifier.inputs(image), discard_ratio=0.5
    )
    pixels = np.rint(image).astype("uint8")
    large = pixels.repeat(28, axis=1).repeat(28, axis=2)
    written = np.asarray(Image.open(tmp_path / "out" / "b_rollout.png"))
    np.testing.assert_array_equal(written, overlay(large, rollout, blur=1)[0])
    page = opened(tmp_path / "out" / "index.html")
    (photo,) = [x for x in page.all("img") if "data-photo" in x]
    np.testing.assert_array_equal(pixels_of(photo), pixels[0])


def test_arrays_and_equal_names_have_files_of_their_own(
    run_folder, photos, tmp_path, image
):
    (photos / "below" / "b.png").write_bytes((photos / "b.png").read_bytes())
    source = [photos / "b.png", photos / "below" / "b.png", image]
    keras_vit.explain(run_folder, source, tmp_path / "out", top=1)
    names = {path.name for path in (tmp_path / "out").glob("*_rollout.png")}
    assert names == {
        "photos_b_rollout.png",
        "below_b_rollout.png",
        "image_2_rollout.png",
    }
    page = opened(tmp_path / "out" / "index.html")
    titles = [x["text"] for x in page.all("h3", part="attention")]
    assert titles == ["photos/b.png", "below/b.png", "image 2"]
    assert len(page.all("li", **{"class": "bar"})) == 3


def text_model(folder):
    path = folder / "text.keras"
    layers = [keras.layers.Embedding(7, 4), keras.layers.Dense(3)]
    keras.Sequential([keras.Input((5,)), *layers]).save(path)
    return path


def mixer(folder):
    config = MixerConfig(**PATCHED, tokens_mlp_dim=8, channels_mlp_dim=8)
    return saved(Mixer(config), folder / "mixer.keras")


def bit(folder):
    return saved(BiT(BiTConfig(**SMALL, units=(1,))), folder / "bit.keras")


def saved(model, path):
    head = model.get_layer("predictions")
    head.set_weights([np.ones(x.shape) for x in head.weights])
    model.save(path)
    return path


BAD_MODELS = {
    "text": (text_model, "text.keras"),
    "mixer": (mixer, "a Mixer"),
    "bit": (bit, "a BiT"),
    "missing": (lambda folder: folder / "none.keras", "none.keras"),
    "no model": (lambda folder: __file__, "test_explain.py"),
    "random": (lambda folder: "ViT_Ti16", "ViT_Ti16"),
}


@pytest.mark.parametrize("name", BAD_MODELS)
def test_bad_model_is_one_line(fail, photos, tmp_path, name):
    make, message = BAD_MODELS[name]
    out = tmp_path / "out"
    _, (line,) = fail("explain", make(tmp_path), photos, "-o", out)
    assert message in line
    assert not out.exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.png", None, "There is no file"),
        ("text.png", b"hello", "is not an image"),
        ("cut.png", b"\x89PNG\r\n\x1a\nbroken", "image"),
    ],
)
def test_bad_image_is_one_line(
    fail, run_folder, photos, tmp_path, name, content, message
):
    path, out = tmp_path / name, tmp_path / "out"
    if content is not None:
        path.write_bytes(content)
    arguments = (run_folder, photos / "b.png", path, "-o", out)
    _, (line,) = fail("explain", *arguments)
    assert name in line and message in line
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--image_size", "9"), "9"),
        (("--top", "0"), "top=0"),
        (("--discard_ratio", "1"), "discard_ratio=1.0"),
    ],
)
def test_bad_options_are_one_line(
    fail, run_folder, photos, tmp_path, options, message
):
    out = tmp_path / "out"
    _, (line,) = fail("explain", run_folder, photos, "-o", out, *options)
    assert message in line
    assert not out.exists()


def test_file_in_the_way_of_the_folder_is_named(fail, run_folder, photos):
    text = photos / "notes.txt"
    for out in (text, text / "out"):
        _, (line,) = fail("explain", run_folder, photos, "-o", out)
        assert f"{str(text)!r} is a file" in line
    assert text.read_text() == "no image"


def test_fewer_patches_than_colours_have_no_figure(image, tmp_path):
    single = {**PATCHED, "patch_size": 8, "num_heads": 2}
    model = keras_vit.models.VisionTransformer(
        keras_vit.models.ViTConfig(**single)
    )
    keras_vit.explain(model, [image], tmp_path)
    assert (tmp_path / "patch_filters.png").exists()
    assert not (tmp_path / "patch_pca.png").exists()
    four = {**PATCHED, "hidden_dim": 3, "num_heads": 1}
    model = keras_vit.models.VisionTransformer(
        keras_vit.models.ViTConfig(**four)
    )
    keras_vit.explain(model, [image], tmp_path)
    assert (tmp_path / "patch_pca.png").exists()


def test_images_that_get_colours_are_counted(tmp_path, caplog, image):
    model = keras_vit.models.VisionTransformer(
        keras_vit.models.ViTConfig(**PATCHED, num_heads=2)
    )
    grey = Image.fromarray(image[..., 0])
    keras_vit.explain(model, [grey, Image.fromarray(image), grey], tmp_path)
    (said,) = (x.getMessage() for x in caplog.records)
    assert said.startswith("Without colours: 2 image(s).")


def test_names_of_files_are_short_and_differ():
    titles = ["a/b.png", "a b.jpg", "/a_b", "", "x" * 300, "é" * 150, "\ud800"]
    assert file_names(titles) == [
        *("a_b", "a_b_2", "a_b_3", "image"),
        *("x" * 200, "é" * 100, "?"),
    ]


@pytest.mark.parametrize(("height", "factor"), [(224, 1), (100, 3), (112, 2)])
def test_small_pictures_have_visible_pixels(height, factor):
    picture = np.arange(2 * height * 230).reshape(1, height, 230, 2)
    larger = enlarged(picture)
    assert larger.shape == (1, factor * height, factor * 230, 2)
    for i in range(factor):
        part = larger[:, i::factor, factor - 1 - i :: factor]
        np.testing.assert_array_equal(part, picture)


def test_images_have_a_limit(run_folder, tmp_path, image):
    with pytest.raises(ValueError, match="32 images at most"):
        keras_vit.explain(run_folder, [image] * 33, tmp_path / "out")
    with pytest.raises(ValueError, match="There is no image"):
        keras_vit.explain(run_folder, [], tmp_path / "out")
