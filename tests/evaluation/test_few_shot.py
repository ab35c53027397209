import functools
import itertools

import keras
import numpy as np
import pytest

from keras_vit import data
from keras_vit.evaluation import few_shot as module
from keras_vit.evaluation.few_shot import (
    feature_model,
    few_shot,
    summarise_shots,
)
from keras_vit.evaluation.few_shot_probe import choose_shots, fit_probe
from keras_vit.models import VisionTransformer, ViTConfig

CLASSES = 4
BATCHES = functools.partial(
    data.evaluation_batches,
    image_size=8,
    channels=1,
    batch_size=16,
    preprocessing=data.PreprocessingConfig(evaluation="squash"),
)


def lstsq_scores(train, labels, test, *, l2=1024.0, constant=100.0):
    """The same minimum from the definition: rows that pull weights to 0."""
    mean, std = train.mean(axis=0), train.std(axis=0) + 1e-5
    x = np.hstack([(train - mean) / std, np.full((len(train), 1), constant)])
    y = np.where(labels[:, None] == np.arange(CLASSES), 1.0, -1.0)
    pull = np.sqrt(l2) * np.eye(x.shape[1])
    zeros = np.zeros((x.shape[1], CLASSES))
    weights = np.linalg.lstsq(
        np.vstack([x, pull]), np.vstack([y, zeros]), rcond=None
    )[0]
    z = np.hstack([(test - mean) / std, np.full((len(test), 1), constant)])
    return z @ weights


def make_examples(count, seed):
    """Noise about a mean that tells the class."""
    random = np.random.default_rng(seed)
    labels = random.permutation(np.arange(count) % CLASSES)
    means = np.random.default_rng(9).uniform(60, 150, (CLASSES, 8, 8, 1))
    images = means[labels] + random.normal(0, 60, (count, 8, 8, 1))
    images = np.clip(images, 0, 255).astype("uint8")
    return data.Examples(images, labels.astype("int32"), source="noise")


@pytest.fixture(scope="module")
def train():
    return make_examples(90, seed=0)


@pytest.fixture(scope="module")
def test():
    return make_examples(70, seed=1)


def tiny(**options):
    config = {
        "image_size": 8,
        "patch_size": 4,
        "channels": 1,
        "hidden_dim": 8,
        "num_layers": 1,
        "mlp_dim": 8,
        "num_heads": 2,
        "num_classes": 3,
        "include_preprocessing": True,
        **options,
    }
    return VisionTransformer(ViTConfig(**config))


@pytest.fixture(scope="module")
def features():
    keras.utils.set_random_seed(1)
    return feature_model(tiny())


@pytest.mark.parametrize("width", [3, 30, 200])
def test_probe_is_the_regularised_least_squares_solution(width):
    random = np.random.default_rng(width)
    known = random.normal(2, 3, (30, width)) * random.uniform(0.1, 5, width)
    asked = random.normal(2, 3, (11, width))
    labels = random.integers(0, CLASSES, 30)
    for l2, constant in ((1024.0, 100.0), (1.0, 10.0)):
        probe = fit_probe(known, labels, CLASSES, l2=l2, constant=constant)
        np.testing.assert_allclose(
            probe.scores(asked),
            lstsq_scores(known, labels, asked, l2=l2, constant=constant),
            rtol=1e-8,
            atol=1e-9,
        )


def test_features_that_do_not_vary_do_no_harm():
    known = np.ones((6, 3), "float32")
    probe = fit_probe(known, np.arange(6) % 2, CLASSES)
    assert np.isfinite(probe.scores(known)).all()


def test_shots_are_those_that_big_vision_chooses():
    labels = np.random.default_rng(0).integers(0, CLASSES, 60)
    chosen = choose_shots(labels, CLASSES, shots=[1, 5], seed=7)
    random = np.random.default_rng(7)
    orders = [
        random.permutation(np.where(labels == label)[0])
        for label in range(CLASSES)
    ]
    for count, images in zip([1, 5], chosen, strict=True):
        expected = np.concatenate([order[:count] for order in orders])
        np.testing.assert_array_equal(images, expected)


def test_a_class_gives_what_it_has():
    labels = np.array([0, 0, 0, 2])
    (chosen,) = choose_shots(labels, CLASSES, shots=[2], seed=0)
    assert labels[chosen].tolist() == [0, 0, 2]


def test_accuracy_is_that_of_the_definition(features, train, test):
    rows = few_shot(
        features,
        train,
        test,
        num_classes=CLASSES,
        batches=BATCHES,
        shots=[1, 5],
        seeds=[0, 3],
    )
    known, asked = (
        features.predict(part.contents.astype("float32"), verbose=0)
        for part in (train, test)
    )
    keys = [(0, 1), (0, 5), (3, 1), (3, 5)]
    assert [(row["seed"], row["shots"]) for row in rows] == keys
    for row in rows:
        (chosen,) = choose_shots(
            train.labels, CLASSES, shots=[row["shots"]], seed=row["seed"]
        )
        scores = lstsq_scores(
            known[chosen].astype("float64"), train.labels[chosen], asked
        )
        right = np.mean(scores.argmax(axis=1) == test.labels)
        assert row["accuracy"] == pytest.approx(right)
        assert row["num_train"] == row["shots"] * CLASSES
        assert row["num_test"] == 70
    assert len({row["accuracy"] for row in rows}) > 1


def test_more_shots_are_better(train, test):
    pixels = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten()])
    rows = few_shot(pixels, train, test, num_classes=CLASSES, batches=BATCHES)
    assert [row["shots"] for row in rows] == [1, 5, 10, 25] * 3
    means = [row["mean"] for row in summarise_shots(rows)]
    assert means[-1] > 0.8 > means[0] > 1 / CLASSES


def test_only_a_bounded_number_of_batches_is_held(
    features, train, test, monkeypatch
):
    """The features of 60 batches are never together."""
    monkeypatch.setattr(module, "BATCHES_AT_ONCE", 3)
    whole = list(BATCHES(test))
    sizes, predict = [], module._Streamed.predict

    def watched(self, inputs, verbose):
        found = predict(self, inputs, verbose=verbose)
        sizes.append(len(found["features"]))
        return found

    monkeypatch.setattr(module._Streamed, "predict", watched)

    def repeated(examples):
        if examples is not test:
            return BATCHES(examples)
        return itertools.islice(itertools.cycle(whole), 60)

    rows = few_shot(
        features,
        train,
        test,
        num_classes=CLASSES,
        batches=repeated,
        shots=[5],
        seeds=[0],
    )
    assert max(sizes) == 3 * 16
    assert rows[0]["num_test"] == 60 // 5 * 70
    once = few_shot(
        features,
        train,
        test,
        num_classes=CLASSES,
        batches=BATCHES,
        shots=[5],
        seeds=[0],
    )
    assert rows[0]["accuracy"] == pytest.approx(once[0]["accuracy"])


def test_images_that_are_not_chosen_are_not_looked_at(features, train, test):
    seen = []

    def counted(examples):
        seen.append(len(examples))
        batches = BATCHES(examples)
        assert sum(int(mask.numpy().sum()) for *_, mask in batches) == seen[-1]
        return batches

    few_shot(
        features,
        train,
        test,
        num_classes=CLASSES,
        batches=counted,
        shots=[1, 2],
        seeds=[0],
    )
    assert seen == [2 * CLASSES, 70]


class Stream:
    """Examples whose labels are only known when they are read."""

    def __init__(self, examples):
        self.examples = examples
        self.labels = None

    def __len__(self):
        return len(self.examples)

    def __getattr__(self, name):
        return getattr(self.examples, name)


def test_a_stream_gives_what_examples_in_memory_give(features, train, test):
    options = {"num_classes": CLASSES, "batches": BATCHES, "shots": [5]}
    assert few_shot(features, Stream(train), Stream(test), **options) == (
        few_shot(features, train, test, **options)
    )


def test_images_that_cannot_be_read_are_left_out(features, train, test):
    """As where data.on_broken_image is "skip": their masks are False."""

    def without_first(examples):
        for number, (images, labels, mask) in enumerate(BATCHES(examples)):
            mask = mask.numpy()
            mask[0] = mask[0] and number > 0
            yield images, labels, mask

    rows = few_shot(
        features,
        train,
        test,
        num_classes=CLASSES,
        batches=without_first,
        shots=[5],
        seeds=[0],
    )
    assert rows[0]["num_train"] == 5 * CLASSES - 1
    assert rows[0]["num_test"] == 69


def test_features_are_what_the_head_sees():
    model = tiny(num_classes=3, representation_dim=5)
    images = np.random.default_rng(0).uniform(0, 255, (2, 8, 8, 1))
    found = feature_model(model).predict(images, verbose=0)
    assert found.shape == (2, 5)
    layer = model.get_layer("pre_logits")
    pooled = feature_model(model, layer="pool").predict(images, verbose=0)
    kernel, bias = map(keras.ops.convert_to_numpy, layer.weights)
    np.testing.assert_allclose(
        found, np.tanh(pooled @ kernel + bias), rtol=1e-4, atol=1e-5
    )


def test_a_model_without_head_is_its_features():
    assert feature_model(tiny(num_classes=0)).output_shape == (None, 8)


@pytest.mark.parametrize(
    ("layer", "message"),
    [("block_7", "no layer 'block_7'"), ("block_0", "after pooling")],
)
def test_wrong_layers_are_explained(layer, message):
    with pytest.raises(ValueError, match=message):
        feature_model(tiny(), layer=layer)


def test_summary_is_mean_and_spread_of_the_seeds():
    rows = [
        {"shots": 5, "accuracy": 0.5},
        {"shots": 1, "accuracy": 0.25},
        {"shots": 5, "accuracy": 0.7},
    ]
    one, five = summarise_shots(rows)
    assert (one["shots"], one["mean"], one["std"]) == (1, 0.25, 0.0)
    assert (five["shots"], five["seeds"]) == (5, 2)
    assert five["mean"] == pytest.approx(0.6)
    assert five["std"] == pytest.approx(0.2 / np.sqrt(2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shots": [0]}, "shots must be numbers above 0"),
        ({"num_classes": 3}, "from 0 to 2"),
        ({"l2": 0.0}, "l2 must be above 0"),
    ],
)
def test_wrong_options_are_explained(options, message, features, train, test):
    options = {"num_classes": CLASSES, "batches": BATCHES, **options}
    with pytest.raises(ValueError, match=message):
        few_shot(features, train, test, **options)


def test_several_labels_an_image_are_refused(features, train, test):
    hot = np.eye(CLASSES, dtype="uint8")[train.labels]
    several = data.Examples(train.contents, hot, source="several")
    with pytest.raises(ValueError, match="Each image of several must have one"):
        few_shot(features, several, test, num_classes=CLASSES, batches=BATCHES)


def test_features_that_are_not_finite_are_refused():
    known = np.array([[0.0], [np.nan]])
    with pytest.raises(ValueError, match="not finite"):
        fit_probe(known, np.array([0, 1]), 2)
