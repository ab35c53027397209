"""How well a classifier does on every image of a split.

Axes: N images, H and W height and width, C channels, K classes.
"""

import numpy as np

__all__ = [
    "accuracy",
    "nearest_neighbour_predictions",
]


def accuracy(labels, predictions) -> float:
    """Share of the images whose prediction is the label.

    Args:
        labels: integer array of shape (N,).
        predictions: integer array of shape (N,).

    Returns:
        float in [0, 1].

    Example:
        >>> accuracy([0, 1, 2, 2], [0, 1, 1, 2])
        0.75
    """
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(labels, predictions))


def nearest_neighbour_predictions(
    known_images, known_labels, images
) -> np.ndarray:
    """Predicts the label of the nearest training image: the baseline.

    Nearest by the Euclidean distance of the pixels.

    Args:
        known_images: array of shape (M, H, W, C), M images of known labels.
        known_labels: integer array of shape (M,).
        images: array of shape (N, H, W, C).

    Returns:
        integer array of shape (N,).

    Example:
        >>> nearest_neighbour_predictions(images[:90], labels[:90], images[90:])
    """
    from sklearn.neighbors import KNeighborsClassifier

    classifier = KNeighborsClassifier(n_neighbors=1)
    classifier.fit(_pixels(known_images), known_labels)
    return classifier.predict(_pixels(images))


def _pixels(images):
    return np.reshape(images, (len(images), -1)).astype(np.float64)
