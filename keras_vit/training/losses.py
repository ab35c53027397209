"""The losses of the originals, where they are not those of Keras."""

import keras
from keras import ops

__all__ = ["SigmoidCrossEntropy", "make_loss"]


@keras.saving.register_keras_serializable("keras_vit")
class SigmoidCrossEntropy(keras.losses.Loss):
    """Cross-entropy of each class on its own, summed over the classes.

    `sigmoid_xent` of big_vision, which AugReg and the public ImageNet-21k
    weights were trained with. Keras's `BinaryCrossentropy` takes the mean
    over the classes, whose gradient is that many times smaller and passes
    under a clip norm of 1.

    Args:
        label_smoothing: float in [0, 1), share of the target that is spread
            evenly over the classes.
        name: str.
        **kwargs: `reduction` and `dtype` of a Keras loss.

    Call arguments:
        y_true: (B, classes), one-hot or mixed labels.
        y_pred: (B, classes), logits.

    Example:
        >>> loss = SigmoidCrossEntropy()
        >>> float(loss([[0.0, 1.0, 0.0]], [[0.0, 0.0, 0.0]]))  # 3 log 2
        2.0794415
    """

    def __init__(
        self, label_smoothing=0.0, name="sigmoid_cross_entropy", **kwargs
    ):
        super().__init__(name=name, **kwargs)
        self.label_smoothing = label_smoothing

    def call(self, y_true, y_pred):
        spread = self.label_smoothing / y_pred.shape[-1]
        y_true = y_true * (1 - self.label_smoothing) + spread
        # -y log sigmoid(x) - (1 - y) log sigmoid(-x), without overflow.
        losses = ops.softplus(y_pred) - y_true * y_pred
        return ops.sum(losses, axis=-1)

    def get_config(self):
        return {
            **super().get_config(),
            "label_smoothing": self.label_smoothing,
        }


LOSSES = {
    "softmax": lambda smoothing: keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=smoothing
    ),
    "sigmoid": SigmoidCrossEntropy,
}


def make_loss(training) -> keras.losses.Loss:
    """Makes the loss of a `TrainingConfig`, of one-hot labels and logits.

    Args:
        training: a `TrainingConfig`.

    Returns:
        A Keras loss.

    Example:
        >>> loss = make_loss(TrainingConfig(loss="sigmoid"))
    """
    return LOSSES[training.loss](training.label_smoothing)
