"""`keras_vit.predict`, against the model's own scores."""

import itertools
import json

import keras
import numpy as np
import pytest
import reference_cases
from html_page import Page
from PIL import Image

import keras_vit
from keras_vit.checkpoints.engine import loading
from keras_vit.checkpoints.engine.keras_files import load_model
from keras_vit.checkpoints.public import catalog, fetch
from keras_vit.cli import main
from keras_vit.data import PreprocessingConfig
from keras_vit.data.config import evaluation_of
from keras_vit.evaluation.config import ModelSource
from keras_vit.prediction import load_classifier, load_network, networks
from keras_vit.trained_as import TrainedAs

NAMES = ("cat", "dog", "owl")


def expected_of(run_folder, images):
    """Softmax of the model's scores, by class name."""
    model, names = load_model(run_folder / "model.keras")
    scores = np.asarray(
        keras.ops.convert_to_numpy(model(np.asarray(images, "float32")))
    )
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return [dict(zip(names, row, strict=True)) for row in shares]


def assert_same(prediction, expected):
    probabilities = [share for _, share in prediction.classes]
    assert probabilities == sorted(probabilities, reverse=True)
    assert dict(prediction.classes) == pytest.approx(expected, abs=1e-5)


def sources_of(image, folder):
    path = folder / "image.png"
    Image.fromarray(image).save(path)
    return {
        "a path": path,
        "a name": str(path),
        "a Pillow image": Image.fromarray(image),
        "an array": image,
        "a batch": image[np.newaxis],
        "floating point": image.astype("float64"),
        "a tensor": keras.ops.convert_to_tensor(image),
        "a list": [str(path)],
    }


def test_every_kind_of_source_gives_the_scores_of_the_model(
    run_folder, image, tmp_path
):
    (expected,) = expected_of(run_folder, [image])
    classifier = load_classifier(run_folder)
    for kind, source in sources_of(image, tmp_path).items():
        (found,) = keras_vit.predict(classifier, source)
        assert_same(found, expected)
        named = kind in ("a path", "a name", "a list")
        assert found.image == (str(tmp_path / "image.png") if named else 0)


def test_folder_is_read_in_order_and_in_depth(run_folder, photos):
    found = keras_vit.predict(run_folder, photos)
    names = ("a.PNG", "b.png", "below/c.webp")
    assert [x.image for x in found] == [str(photos / x) for x in names]


def test_batches_change_nothing(run_folder):
    images = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3), "uint8")
    found = keras_vit.predict(run_folder, images, batch_size=2)
    assert [x.image for x in found] == [0, 1, 2, 3, 4]
    for one, expected in zip(
        found, expected_of(run_folder, images), strict=True
    ):
        assert_same(one, expected)


def test_run_is_used_as_it_was_validated(run_folder, save_run, image):
    wide = np.concatenate([image, image], axis=1)
    cropped = {"evaluation": "resize_small_central_crop", "resize_size": 8}
    other = save_run("other", {"preprocessing": cropped})
    (found,) = keras_vit.predict(other, wide)
    assert_same(found, expected_of(other, [wide[:, 4:12]])[0])
    (squashed,) = keras_vit.predict(run_folder, wide)
    # Without antialiasing, halfway between pixels 2i and 2i + 1.
    halved = wide.reshape(8, 8, 2, 3).mean(axis=2)
    assert_same(squashed, expected_of(run_folder, [halved])[0])


def test_file_of_a_run_is_used_as_its_folder(run_folder, image):
    wide = np.concatenate([image, image], axis=1)
    (of_folder,) = keras_vit.predict(run_folder, wide)
    (of_file,) = keras_vit.predict(run_folder / "model.keras", wide)
    assert of_file == of_folder


def test_run_with_sigmoid_loss_gives_sigmoids(save_run, image):
    folder = save_run("sigmoid", {"training": {"loss": "sigmoid"}})
    model, names = load_model(folder / "model.keras")
    scores = keras.ops.convert_to_numpy(model(image[np.newaxis] * 1.0))[0]
    (found,) = keras_vit.predict(folder, image)
    expected = dict(zip(names, 1 / (1 + np.exp(-scores)), strict=True))
    assert_same(found, expected)


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ({"class_names": (1, 2, 3)}, "names that are texts"),
        ({"class_names": ("a",)}, "3 classes"),
        ({"preprocessing": {"crop": 1}}, "preprocessing in the model"),
        ({"activation": "tanh"}, "activation"),
        ({"problem": "ranking"}, "'problem': 'ranking'"),
        ({"obstacle": "Padded by Levit."}, "Padded by Levit"),
    ],
)
def test_what_a_model_says_of_itself_is_checked(
    make_vit, image, known, message
):
    model = make_vit()
    with pytest.raises(ValueError, match=message):
        model.trained_as = TrainedAs(**known)
        keras_vit.predict(model, image)


def test_model_that_scales_and_ends_in_softmax(image):
    model = keras_vit.ViT_Ti16(
        weights=None,
        classes=3,
        input_shape=(16, 16, 3),
        classifier_activation="softmax",
    )
    kernel = model.get_layer("predictions").kernel
    kernel.assign(np.random.default_rng(0).normal(size=kernel.shape))
    big = np.kron(image, np.ones((2, 2, 1), "uint8"))
    expected = keras.ops.convert_to_numpy(model(big[np.newaxis] / 127.5 - 1))
    squash = PreprocessingConfig(evaluation="squash")
    (found,) = keras_vit.predict(
        model, big, class_names=NAMES, preprocessing=squash
    )
    assert_same(found, dict(zip(NAMES, expected[0], strict=True)))
    (numbered,) = keras_vit.predict(model, big, preprocessing=squash)
    assert {name for name, _ in numbered.classes} == {"0", "1", "2"}


def test_top_is_how_many_are_named(run_folder, image):
    (found,) = keras_vit.predict(run_folder, image, top=2)
    (all_of_them,) = keras_vit.predict(run_folder, image, top=5)
    assert found.classes == all_of_them.classes[:2]
    assert len(all_of_them.classes) == 3


def test_public_weights_ask_for_how_they_were_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "resolve", fail_to_fetch)

    def asked(name, image_size=None):
        entry = catalog.find(None, name)
        size = image_size and (image_size, image_size)
        return evaluation_of(entry.trained_as, size)

    google = asked("ViT_B16/imagenet21k_imagenet2012")
    assert (google.evaluation, google.resize_method) == ("squash", "bilinear")
    assert not google.antialias
    assert asked("google/vit-base-patch16-224").antialias
    entry = next(
        x
        for x in catalog.entries()
        if x.preprocessing.crop_fraction == 0.875 and x.image_size == 224
    )
    big_vision = asked(entry.key)
    assert big_vision.evaluation == "resize_small_central_crop"
    assert big_vision.resize_size == 256
    assert asked(entry.key, 384).resize_size == 438  # 384 * 256 / 224


def fail_to_fetch(*arguments):
    raise AssertionError(f"fetched {arguments}")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (np.zeros((2, 3, 4, 5, 3)), "Received: shape"),
        (np.zeros((0, 8, 3)), "no pixels"),
        (np.zeros((8, 8, 2)), "1, 3 or 4 channels"),
        (np.full((8, 8, 3), 0.5), "Multiply images"),
        (np.full((8, 8, 3), 300.0), "Expected pixel values"),
        (np.zeros((8, 8, 3), bool), "bool"),
        (7, "Received: 7"),
        ([], "no image"),
        ("nowhere.png", "no file 'nowhere.png'"),
        (__file__, "is not an image"),
    ],
)
def test_sources_that_are_no_images(run_folder, source, message):
    with pytest.raises(ValueError, match=message):
        keras_vit.predict(run_folder, source)


@pytest.mark.parametrize("top", [0, -1, 2.0, True])
def test_top_must_be_positive(run_folder, image, top):
    with pytest.raises(ValueError, match="top must be"):
        keras_vit.predict(run_folder, image, top)


def test_names_must_be_those_of_the_classes(run_folder, image):
    with pytest.raises(ValueError, match="3 classes"):
        keras_vit.predict(run_folder, image, class_names=("cat", "dog"))


def test_model_must_be_one_of_ours_and_have_classes():
    with pytest.raises(ValueError, match="model of keras_vit"):
        keras_vit.predict(keras.Sequential(), "a.png")
    features = keras_vit.ViT_Ti16(
        weights=None, include_top=False, input_shape=(16, 16, 3)
    )
    with pytest.raises(ValueError, match="classification layer"):
        keras_vit.predict(features, "a.png")


def test_scores_of_each_patch_are_no_classes(image, tmp_path):
    model = reference_cases.load("hub_pali_gemma_tiny")
    with pytest.raises(ValueError, match="Received: scores of each patch"):
        keras_vit.predict(model, image)
    page = keras_vit.explain(model, image, tmp_path / "page")
    bars = Page(page.read_text(encoding="utf-8")).all("li", **{"class": "bar"})
    assert not bars
    with pytest.raises(ValueError, match='one row per image.*kind="tokens"'):
        keras_vit.embed(model, image)
    assert keras_vit.embed(model, image, kind="tokens").shape == (1, 16, 16)


def test_weights_of_a_zero_head_tell_nothing(tmp_path):
    model = keras_vit.ViT_Ti16(weights=None, input_shape=(32, 32, 3), classes=3)
    model.get_layer("predictions").kernel.assign(np.zeros((192, 3)))
    path = tmp_path / "zero.safetensors"
    keras_vit.save_checkpoint(model, path, format="timm")
    with pytest.raises(ValueError, match="all zeros"):
        load_classifier(path)


def test_application_alone_is_a_model_of_random_weights():
    model = load_network("ViT_Ti16", image_size=32)
    assert model.input_shape == (None, 32, 32, 3)
    assert model.config.include_preprocessing


@pytest.mark.parametrize("load", [load_classifier, load_network])
def test_weights_for_any_size_need_a_size(load):
    entry = next(x for x in catalog.entries("BiT_R50x1") if not x.image_size)
    with pytest.raises(ValueError, match="--image_size"):
        load(entry.key)


def test_a_model_of_any_size_takes_that_which_is_given(image):
    path = reference_cases.path_of("bit_tiny_google")
    expected = dict(
        keras_vit.predict(load_classifier(path, (32, 24)), image)[0].classes
    )
    model = keras_vit.load_checkpoint(path)
    for source in (path, model, load_classifier(path, (32, 24))):
        (found,) = keras_vit.predict(source, image, image_size=(32, 24))
        assert dict(found.classes) == pytest.approx(expected, abs=1e-5)
    for function in (keras_vit.predict, keras_vit.embed):
        for source in (path, model):
            with pytest.raises(ValueError, match="any size. Give .*image_size"):
                function(source, image)
    with pytest.raises(ValueError, match="images of 32x24.*image_size=40"):
        keras_vit.predict(load_classifier(path, (32, 24)), image, image_size=40)


def test_an_explanation_is_at_the_size_that_is_given(
    run_folder, image, tmp_path
):
    out = keras_vit.explain(run_folder, image, tmp_path / "x", image_size=12)
    page = Page(out.read_text(encoding="utf-8"))
    found = keras_vit.predict(run_folder, image, image_size=12)
    assert found != keras_vit.predict(run_folder, image)
    bars = [x["text"].split() for x in page.all("li", **{"class": "bar"})]
    assert [x[0] for x in bars] == [name for name, _ in found[0].classes]
    assert [float(x[1]) for x in bars] == pytest.approx(
        [100 * share for _, share in found[0].classes], abs=0.051
    )


@pytest.fixture
def counts(monkeypatch, make_vit):
    """How often a file was opened and a model built."""
    counted = {"opened": 0, "models": 0}

    def counting(holder, name, key):
        original = getattr(holder, name)

        def call(*args, **kwargs):
            counted[key] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(holder, name, call)

    counting(loading, "_opened", "opened")
    make_vit()  # Keras calls it once more for the first model of a class.
    counting(keras.Model, "__init__", "models")
    return counted


def test_a_run_folder_is_a_source_of_weights(run_folder):
    model, _ = load_model(run_folder / "model.keras")
    loaded = keras_vit.load_checkpoint(run_folder)
    for one, two in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(one, two, err_msg=one.path)


def test_run_is_opened_once_and_one_model_is_built(run_folder, image, counts):
    keras_vit.predict(run_folder, image)
    assert counts == {"opened": 1, "models": 1}


def test_weights_of_an_application_are_opened_once(tmp_path, counts):
    model = keras_vit.ViT_Ti16(weights=None, input_shape=(32, 32, 3), classes=3)
    head = model.get_layer("predictions")
    head.kernel.assign(np.ones(head.kernel.shape))
    path = tmp_path / "tiny.npz"
    keras_vit.save_checkpoint(model, path, format="google")
    counts.update(opened=0, models=0)
    source = ModelSource(str(path), name="ViT_Ti16", image_size=48)
    loaded = networks.load_model(source)
    assert loaded.input_shape == (None, 48, 48, 3)
    assert loaded.output_shape == (None, 3)
    assert counts == {"opened": 1, "models": 1}


def ten_crops(image, size):
    """The crops of AlexNet, resized by Pillow."""
    end = len(image) - size
    corners = [(end // 2, end // 2), *itertools.product((0, end), (0, end))]
    found = []
    for y, x in corners:
        channels = [
            np.asarray(
                Image.fromarray(image[..., c].astype("float32"))
                .crop((x, y, x + size, y + size))
                .resize((len(image), len(image)), Image.Resampling.BILINEAR)
            )
            for c in range(3)
        ]
        found.append(np.stack(channels, axis=-1))
    return np.stack(found + [x[:, ::-1] for x in found])


@pytest.mark.parametrize("tta", ["flip", "crops"])
def test_the_scores_of_the_views_of_an_image_are_averaged(
    run_folder, image, tmp_path, capsys, tta
):
    model, names = load_model(run_folder / "model.keras")
    views = np.stack([image, image[:, ::-1]]).astype("float32")
    if tta == "crops":
        views = ten_crops(image, round(len(image) * 7 / 8))
    scores = np.asarray(keras.ops.convert_to_numpy(model(views)))
    powers = np.exp(scores.mean(axis=0))
    expected = dict(zip(names, powers / powers.sum(), strict=True))
    (found,) = keras_vit.predict(run_folder, image, tta=tta)
    assert_same(found, expected)
    Image.fromarray(image).save(tmp_path / "image.png")
    words = [str(run_folder), str(tmp_path / "image.png"), "--tta", tta]
    assert main(["predict", *words, "--format", "json"]) in (None, 0)
    (printed,) = json.loads(capsys.readouterr().out)
    answers = {x["class"]: x["probability"] for x in printed["classes"]}
    assert answers == pytest.approx(expected, abs=1e-5)
    with pytest.raises(ValueError, match="Unknown tta: 'crop'"):
        keras_vit.predict(run_folder, image, tta="crop")
