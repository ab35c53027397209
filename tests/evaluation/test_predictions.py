"""Every image counted once, against a plain count in NumPy."""

import keras
import numpy as np
import pytest
from padded import padded_batches

from keras_vit import evaluation
from keras_vit.data.resizing import views
from keras_vit.evaluation import predictions
from keras_vit.evaluation.few_shot import FeatureStream
from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.models.configured_model import BlockFeatures
from keras_vit.runtime import platforms

BATCH = 8
CLASSES = 7
SIZES = (1, BATCH - 1, BATCH, BATCH + 1, 29)


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(1)
    return VisionTransformer(
        ViTConfig(
            image_size=(8, 8),
            patch_size=(4, 4),
            hidden_dim=8,
            num_layers=2,
            mlp_dim=16,
            num_heads=2,
            num_classes=CLASSES,
            include_preprocessing=True,
        )
    )


@pytest.fixture(scope="module", autouse=True)
def head(model):
    """The head of a new model is zero: every class would be the same."""
    kernel, bias = model.layers[-1].get_weights()
    generator = np.random.default_rng(5)
    model.layers[-1].set_weights(
        [generator.normal(size=kernel.shape), generator.normal(size=bias.shape)]
    )


def split(size, seed=0):
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (size, 8, 8, 3), dtype=np.uint8)
    return images, generator.integers(0, CLASSES, size).astype("int32")


def scores(model, images):
    """One image at a time: no batches to get wrong."""
    rows = [model(image[np.newaxis], training=False) for image in images]
    return np.concatenate([keras.ops.convert_to_numpy(row) for row in rows])


@pytest.mark.parametrize("size", SIZES)
def test_accuracy_is_a_plain_count(model, size):
    images, labels = split(size)
    ranks = np.argsort(-scores(model, images), axis=1)
    right = ranks == labels[:, np.newaxis]
    found = evaluation.evaluate(model, padded_batches(images, labels, BATCH))
    expected = {
        "top1": sum(right[:, 0]) / size,
        "top5": sum(right[:, :5].any(axis=1)) / size,
        "num_examples": size,
        "num_unlabelled": 0,
    }
    assert {name: found[name] for name in expected} == expected


def test_predictions_are_the_ranked_softmax(model):
    images, labels = split(11)
    logits = scores(model, images).astype("float64")
    powers = np.exp(logits)
    expected = powers / powers.sum(axis=1, keepdims=True)
    found = evaluation.predict_classes(
        model, padded_batches(images, labels, BATCH), top=3
    )
    np.testing.assert_array_equal(
        found.classes, np.argsort(-logits, axis=1)[:, :3]
    )
    np.testing.assert_allclose(
        found.probabilities,
        np.take_along_axis(expected, found.classes, axis=1),
        rtol=1e-4,
    )
    np.testing.assert_array_equal(found.labels, labels)
    assert found.num_classes == CLASSES


def test_sigmoid_probabilities(model):
    images, labels = split(3)
    found = evaluation.predict_classes(
        model, padded_batches(images, labels, 3), activation="sigmoid"
    )
    best = scores(model, images).max(axis=1)
    np.testing.assert_allclose(
        found.probabilities[:, 0], 1 / (1 + np.exp(-best)), rtol=1e-4
    )


def test_tf_data_gives_the_same(model):
    tf = pytest.importorskip("tensorflow")
    images, labels = split(13)
    batches = list(padded_batches(images, labels, BATCH))
    parts = map(np.concatenate, zip(*batches, strict=True))
    dataset = tf.data.Dataset.from_tensor_slices(tuple(parts)).batch(BATCH)
    found = evaluation.predict_classes(model, dataset)
    expected = evaluation.predict_classes(model, batches)
    np.testing.assert_array_equal(found.classes, expected.classes)
    np.testing.assert_array_equal(found.labels, labels)


def test_of_equal_scores_the_first_class_is_taken():
    model = keras.Sequential([keras.Input((40,)), keras.layers.Identity()])
    images = np.zeros((2, 40), "float32")
    images[1, 7:] = 1
    mask = np.ones(2, bool)
    found = evaluation.predict_classes(
        model, [(images, np.zeros(2, "int32"), mask)]
    )
    np.testing.assert_array_equal(found.classes, [range(5), range(7, 12)])


def test_several_labels_an_image(model):
    images, _ = split(10)
    answers = scores(model, images).argmax(axis=1)
    several = np.zeros((10, CLASSES), "float32")
    several[np.arange(10), answers] = 1  # The answer is one of two labels,
    several[np.arange(10), (answers + 1) % CLASSES] = 1
    several[4, answers[4]] = 0  # but here it is not,
    several[7:] = 0  # and these have none.
    found = evaluation.evaluate(model, padded_batches(images, several, BATCH))
    assert found["top1"] == 6 / 7
    assert found["num_examples"] == 7
    assert found["num_unlabelled"] == 3


@pytest.mark.parametrize("several", [False, True])
def test_labels_of_fewer_classes_in_another_order(model, several):
    images, _ = split(12)
    class_map = np.array([5, 0, 3])
    labels = np.arange(12) % 3
    given = np.eye(3, dtype="float32")[labels] if several else labels
    found = evaluation.predict_classes(
        model, padded_batches(images, given, BATCH), class_map=class_map
    )
    answers = scores(model, images).argmax(axis=1)
    np.testing.assert_array_equal(
        found.right[:, 0], answers == class_map[labels]
    )


@pytest.mark.once
def test_label_that_is_not_in_the_class_map(model):
    images, labels = split(3)
    labels[:] = [1, 0, 2]
    with pytest.raises(ValueError, match="label 2 of image 2"):
        evaluation.predict_classes(
            model,
            padded_batches(images, labels, BATCH),
            class_map=np.array([1, 0]),
        )


def test_the_model_is_left_as_it_was(model):
    images, labels = split(3)
    before = [weight.copy() for weight in model.get_weights()]
    evaluation.evaluate(model, padded_batches(images, labels, 2))
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert not model.compiled


@pytest.mark.once
@pytest.mark.parametrize(
    "predict",
    [
        evaluation.predict_classes,
        lambda model, batches: FeatureStream(model).all_of(batches, 1),
        lambda model, batches: BlockFeatures(model, [0]).predict(
            (batch[:1] for batch in batches), verbose=0
        ),
    ],
    ids=["classes", "features", "blocks"],
)
def test_the_model_keeps_its_weights_where_batches_fail(model, predict):
    images, labels = split(BATCH)
    before = scores(model, images)

    def failing():  # Keras reads two batches before the first step.
        for _ in range(3):
            yield images, labels, np.ones(BATCH, bool)
        raise ValueError("a broken image")

    with pytest.raises(ValueError, match="a broken image"):
        predict(model, failing())
    np.testing.assert_array_equal(scores(model, images), before)


def test_saved_predictions_are_the_same(model, tmp_path):
    images, labels = split(9)
    found = evaluation.predict_classes(
        model, padded_batches(images, labels, BATCH)
    )
    found.save(tmp_path / "predictions.npz", pictures=images[:2])
    again = evaluation.load_predictions(tmp_path / "predictions.npz")
    assert again.num_classes == CLASSES
    for name in ("labels", "classes", "probabilities"):
        np.testing.assert_array_equal(
            getattr(again, name), getattr(found, name)
        )
    with np.load(tmp_path / "predictions.npz") as arrays:
        np.testing.assert_array_equal(arrays["pictures"], images[:2])


@pytest.mark.once
def test_other_file_is_no_predictions(tmp_path):
    np.savez(tmp_path / "other.npz", labels=np.zeros(2))
    with pytest.raises(ValueError, match="lacks .'classes'"):
        evaluation.load_predictions(tmp_path / "other.npz")


@pytest.mark.once
@pytest.mark.parametrize("label", [-1, CLASSES])
def test_label_that_the_model_does_not_have(model, label):
    images, labels = split(9)
    labels[6] = label
    with pytest.raises(ValueError, match=f"label {label} of image 6"):
        evaluation.evaluate(model, padded_batches(images, labels, BATCH))


@pytest.mark.once
def test_labels_of_another_number_of_classes(model):
    images, _ = split(3)
    labels = np.ones((3, CLASSES + 1), "float32")
    with pytest.raises(ValueError, match=f"labels of {CLASSES + 1} classes"):
        evaluation.evaluate(model, padded_batches(images, labels, 3))


@pytest.mark.once
def test_no_image(model):
    images, labels = split(2)
    with pytest.raises(ValueError, match="no image"):
        evaluation.evaluate(model, [(images, labels, np.zeros(2, bool))])


def test_not_a_number_is_named():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Identity()])
    images = np.ones((4, 3), "float32")
    images[2, 1] = np.nan
    labels = np.zeros(4, "int32")
    with pytest.raises(ValueError, match="NaN, first for image 2"):
        evaluation.evaluate(model, padded_batches(images, labels, 3))


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="XLA is the others' own"
)
@pytest.mark.parametrize("flags", [{"avx2"}, {"avx2", "avx512f"}])
def test_xla_predicts_where_there_is_no_avx_512(model, monkeypatch, flags):
    compiled = []
    monkeypatch.setattr(platforms, "cpu_flags", lambda: flags)
    monkeypatch.setattr(
        predictions.Ranking,
        "jit_compile",
        property(lambda self: False, lambda self, on: compiled.append(on)),
    )
    images, labels = split(BATCH)
    batches = padded_batches(images, labels, BATCH)
    found = evaluation.predict_classes(model, batches, top=1)
    expected = scores(model, images).argmax(axis=1)
    np.testing.assert_array_equal(found.classes[:, 0], expected)
    assert compiled == ([] if "avx512f" in flags else [True])


@pytest.mark.parametrize("tta", ["flip", "crops"])
def test_the_scores_of_the_views_of_images_are_averaged(model, tta):
    images, labels = split(11)
    seen = [images, images[:, :, ::-1]]
    if tta == "crops":  # tests/prediction/test_predict.py checks them.
        seen = views(images, tta)
    both = [scores(model, np.ascontiguousarray(x)) for x in seen]
    assert np.abs(both[0] - both[-1]).max() > 0.1
    logits = np.mean(both, axis=0).astype("float64")
    powers = np.exp(logits)
    expected = powers / powers.sum(axis=1, keepdims=True)
    found = evaluation.predict_classes(
        model, padded_batches(images, labels, BATCH), top=CLASSES, tta=tta
    )
    np.testing.assert_allclose(found.by_class(), expected, atol=1e-5)
