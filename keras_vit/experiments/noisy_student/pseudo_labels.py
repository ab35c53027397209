"""What a teacher says of images, and which of them a student learns from.

Axes: N images, K classes.
"""

import numpy as np
from keras import ops

from keras_vit import data
from keras_vit.training import Recipe

__all__ = ["chosen", "pseudo_labels"]

ACTIVATIONS = {"softmax": ops.softmax, "sigmoid": ops.sigmoid}


def pseudo_labels(model, examples, recipe: Recipe) -> np.ndarray:
    """The probabilities that a teacher gives to the classes of images.

    The teacher sees them as they are evaluated: without noise.

    Args:
        model: a Keras model from images in [0, 255] to logits.
        examples: an `Examples`.
        recipe: the `Recipe` of the teacher.

    Returns:
        float32 array (N, K).

    Raises:
        ValueError: when the teacher gives NaN.

    Example:
        >>> pseudo_labels(teacher, unlabelled, recipe).sum(axis=1)
    """
    height, width, channels = model.input_shape[1:]
    batches = data.evaluation_batches(
        examples,
        image_size=(height, width),
        channels=channels,
        batch_size=min(recipe.training.micro_batch_size, len(examples)),
        preprocessing=recipe.preprocessing,
    )
    activation = ACTIVATIONS[recipe.training.loss]
    scores = model.predict(batches.map(lambda *batch: batch[0]), verbose=0)
    scores = scores[: len(examples)].astype("float32")
    if not np.isfinite(scores).all():
        raise ValueError("The teacher gives NaN. See its run folder.")
    return ops.convert_to_numpy(activation(scores))


def chosen(shares: np.ndarray, config) -> tuple[np.ndarray, np.ndarray]:
    """Which images a student learns from, and as what.

    Args:
        shares: float array (N, K), see `pseudo_labels`.
        config: a `NoisyStudentConfig`.

    Returns:
        The numbers of the images, of which one may come several times, and
        float32 array (of as many, K), their labels.

    Raises:
        ValueError: when none is left.

    Example:
        >>> chosen(np.array([[0.9, 0.1], [0.4, 0.6]]), NoisyStudentConfig())
    """
    classes, confidences = shares.argmax(axis=1), shares.max(axis=1)
    rows = np.flatnonzero(confidences >= config.min_confidence)
    if not len(rows):
        raise ValueError(
            f"The teacher is sure of none of {len(shares)} images. Received: "
            f"noisy_student.min_confidence={config.min_confidence}; the most "
            f"confident answer is {confidences.max():.3f}. Lower it."
        )
    if config.images_per_class is not None:
        rows = _balanced(rows, classes, confidences, config.images_per_class)
    labels = shares[rows]
    if config.labels == "hard":
        labels = np.eye(shares.shape[1])[classes[rows]]
    return rows, labels.astype("float32")


def _balanced(rows, classes, confidences, size):
    """As many rows of each class that there is, the most confident first."""
    parts = []
    for label in np.unique(classes[rows]):
        members = rows[classes[rows] == label]
        order = np.argsort(-confidences[members], kind="stable")
        parts.append(np.resize(members[order], size))
    return np.concatenate(parts)
