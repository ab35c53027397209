"""An error in fit, evaluate or predict leaves a model as it was before.

Keras's own models lose their variables on JAX.
"""

import keras
import numpy as np
import pytest
from packaging.version import Version
from tiny_models import tiny_vit

IMAGES = np.random.default_rng(0).uniform(size=(6, 8, 8, 3)).astype("float32")
LABELS = np.arange(6) % 3


@pytest.mark.parametrize(
    "loss",
    [
        "sparse_categorical_crossentropy",
        keras.losses.sparse_categorical_crossentropy,
        keras.losses.SparseCategoricalCrossentropy(),
        "binary_crossentropy",
    ],
)
def test_a_loss_of_probabilities_is_refused_for_logits(loss):
    logits = tiny_vit()
    logits.compile("sgd", loss)
    with pytest.raises(ValueError, match="gives logits.*from_logits=True"):
        logits.fit(IMAGES, LABELS, verbose=0)
    assert logits.predict(IMAGES, verbose=0).shape == (6, 3)
    probabilities = tiny_vit(classifier_activation="softmax")
    probabilities.compile("sgd", "sparse_categorical_crossentropy")
    found = probabilities.fit(IMAGES, LABELS, verbose=0)
    assert np.isfinite(found.history["loss"]).all()


@pytest.fixture
def model():
    model = tiny_vit()
    model.compile(
        keras.optimizers.Adam(0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def values(model):
    return [np.array(keras.ops.convert_to_numpy(x)) for x in model.variables]


def batches(wrong, count=3, what=lambda: np.ones((2, 5, 5, 3), "float32")):
    """Batches of two images, the one of number `wrong` of another shape."""
    for number in range(count):
        images = what() if number == wrong else IMAGES[2 * number :][:2]
        yield images, LABELS[2 * number :][:2]


def images_of(found):
    return ((images,) for images, _ in found)


def fails():
    raise OSError("gone")


def stopped():
    raise KeyboardInterrupt


CALLS = {
    "predict": lambda model, found: model.predict(images_of(found), verbose=0),
    "evaluate": lambda model, found: model.evaluate(found, verbose=0),
    "fit": lambda model, found: model.fit(
        found, steps_per_epoch=3, shuffle=False, verbose=0
    ),
}


# Keras 3.12 and 3.13 hide what a first batch meets in a RuntimeError.
OLD = Version(keras.__version__) < Version("3.14")
ERRORS = (ValueError, RuntimeError) if OLD else ValueError


def assert_alive(model, tmp_path):
    before = values(model)
    assert all(np.isfinite(x).all() for x in before)
    assert model.predict(IMAGES[:2], verbose=0).shape == (2, 3)
    model.save(tmp_path / "model.keras")


@pytest.mark.parametrize("wrong", [0, 1])
@pytest.mark.parametrize("call", CALLS)
def test_a_batch_of_another_shape(model, call, wrong, tmp_path):
    before = values(model)
    with pytest.raises(ERRORS, match="Received: |found shape"):
        CALLS[call](model, batches(wrong))
    if call != "fit":
        for x, y in zip(values(model), before, strict=True):
            np.testing.assert_array_equal(x, y)
    assert_alive(model, tmp_path)


@pytest.mark.parametrize("call", CALLS)
def test_data_that_fails(model, call, tmp_path):
    with pytest.raises(Exception, match="gone"):
        CALLS[call](model, batches(1, what=fails))
    assert_alive(model, tmp_path)


class Stop(keras.callbacks.Callback):
    """Ctrl-C before, or after, the second step."""

    def __init__(self, after):
        super().__init__()
        self.name = f"on_{{}}_batch_{'end' if after else 'begin'}"

    def set_model(self, model):
        super().set_model(model)
        for kind in ("train", "test", "predict"):
            setattr(self, self.name.format(kind), self._stop)

    def _stop(self, batch, logs=None):
        if batch == 1:
            raise KeyboardInterrupt


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", ["predict", "evaluate", "fit"])
def test_an_interrupt_between_two_steps(model, call, after, tmp_path):
    given = () if call == "predict" else (LABELS,)
    with pytest.raises(KeyboardInterrupt):
        getattr(model, call)(
            IMAGES, *given, batch_size=2, verbose=0, callbacks=[Stop(after)]
        )
    assert_alive(model, tmp_path)


def test_a_lost_step_ends_in_the_interrupt_and_not_in_an_error_of_keras(
    model, backend
):
    """Where Ctrl-C ends a step of JAX, what it computed from is gone."""
    if backend != "jax":
        pytest.skip("Only JAX's steps give the variables away.")
    model.fit(IMAGES, LABELS, batch_size=2, verbose=0)
    step = model.train_function

    def interrupted(state, iterator):
        step(state, iterator)
        raise KeyboardInterrupt

    model.train_function = interrupted
    with pytest.raises(KeyboardInterrupt):
        model.fit(IMAGES, LABELS, batch_size=2, verbose=0)


def test_nothing_is_left_in_the_model(model):
    before = set(vars(model))
    model.predict(IMAGES, verbose=0)
    model.predict(IMAGES, verbose=0)
    left = set(vars(model)) - before
    assert not any("get_jax_state" in name for name in left)
