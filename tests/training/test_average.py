import keras
import numpy as np
import pytest
import tiny_training as tiny

from keras_vit.training.checkpointing import AverageInEvaluation, averaged


def values(variables):
    return [np.array(keras.ops.convert_to_numpy(x)) for x in variables]


@pytest.fixture
def model():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5)
    model.compile(optimizer, "mse")
    return model


ONES = np.ones((4, 2), "float32"), np.ones((4, 1), "float32")


class Weights(keras.callbacks.Callback):
    """Takes the weights after each step, and those that are evaluated."""

    def __init__(self):
        super().__init__()
        self.steps, self.evaluated = [], []

    def on_epoch_end(self, epoch, logs=None):
        self.steps.append(values(self.model.trainable_variables))

    def on_test_begin(self, logs=None):
        self.evaluated.append(values(self.model.trainable_variables))


def test_the_average_is_evaluated_and_the_weights_train_on(model):
    seen = Weights()
    model.fit(
        *ONES,
        epochs=3,
        verbose=0,
        callbacks=[AverageInEvaluation(), seen],
        validation_data=ONES,
    )
    average = seen.steps[0]  # Keras begins with the first weights.
    for step, evaluated in zip(seen.steps, seen.evaluated, strict=True):
        average = [
            0.5 * old + 0.5 * new
            for old, new in zip(average, step, strict=True)
        ]
        for one, other in zip(evaluated, average, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)


def test_evaluating_changes_no_bit_of_the_training(model):
    start = model.get_weights()
    seen = []
    for callbacks in ([AverageInEvaluation()], []):
        model.compile(tiny.optimizer(), "mse")
        model.set_weights(start)
        trace = Weights()
        model.fit(
            *ONES,
            epochs=3,
            verbose=0,
            callbacks=[*callbacks, trace],
            validation_data=ONES if callbacks else None,
        )
        seen.append(trace.steps)
    for step, other in zip(*seen, strict=True):
        for one, same in zip(step, other, strict=True):
            assert one.tobytes() == same.tobytes()


def test_without_an_average_nothing_happens(model):
    model.compile("sgd", "mse")
    before = values(model.weights)
    with averaged(model):
        for one, other in zip(values(model.weights), before, strict=True):
            np.testing.assert_array_equal(one, other)


def test_an_error_brings_the_weights_back(model):
    model.fit(*ONES, epochs=1, verbose=0)
    model.layers[0].kernel.assign([[5.0], [6.0]])
    with pytest.raises(KeyboardInterrupt), averaged(model):
        raise KeyboardInterrupt
    np.testing.assert_array_equal(values(model.weights)[0], [[5.0], [6.0]])
