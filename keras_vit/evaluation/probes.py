"""Simple classifiers of frozen features, which tell what features are worth.

Axes: N images to fit to, M images to classify, D features, K classes.
"""

import dataclasses

import numpy as np

__all__ = [
    "Neighbours",
    "Probe",
    "fit_layer",
    "fit_linear",
    "fit_neighbours",
    "fit_probe",
]

TINY = 1e-5  # Added to each standard deviation.
NUMBERS = 2**25  # similarities at a time: 128 MiB in float32
# Of L-BFGS: as scikit-learn has them for logistic regression, the gradient
# smaller.
STOP = {"maxiter": 1000, "gtol": 1e-6, "ftol": 64 * np.finfo(float).eps}


@dataclasses.dataclass(frozen=True)
class Probe:
    """A linear classifier, made by `fit_probe` or `fit_linear`.

    Args:
        kernel: float64 array of shape (D, K).
        bias: float64 array of shape (K,).
    """

    kernel: np.ndarray
    bias: np.ndarray

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Scores (N, K) of features (N, D): of least squares near 1 for yes
        and -1 for no, of logistic regression logits."""
        return features.astype(np.float64) @ self.kernel + self.bias


def fit_probe(
    features: np.ndarray,
    labels: np.ndarray,
    num_classes: int,
    *,
    l2: float = 1024.0,
    constant: float = 100.0,
) -> Probe:
    """Fit a linear classifier by regularised least squares.

    Features are whitened one by one with their mean and standard deviation,
    a constant feature is added, large so that it is hardly regularised, and
    the targets are 1 for the class and -1 for all others. Of the two equal
    forms of the solution, (X'X + l2 I)^-1 X'Y and X'(XX' + l2 I)^-1 Y, the one
    with the smaller matrix is solved, in float64.

    Args:
        features: float array of shape (N, D).
        labels: int array of shape (N,).
        num_classes: int, K.
        l2: float, strength of the regularisation, above 0.
        constant: float, value of the constant feature.

    Returns:
        A `Probe` of the features as they were given.

    Raises:
        ValueError: when there are no images, features and labels do not
            fit, a label is no class, or l2 is not above 0.

    Example:
        >>> features = np.array([[0.0], [1.0]])
        >>> probe = fit_probe(features, np.array([0, 1]), 2, l2=1.0)
        >>> probe.scores(features).argmax(axis=1).tolist()
        [0, 1]
    """
    _check(features, labels, num_classes, l2=l2)
    x, mean, deviation = _whitened(features)
    x = np.pad(x, ((0, 0), (0, 1)), constant_values=constant)  # (N, D + 1)
    targets = 2.0 * np.eye(num_classes)[labels] - 1.0  # (N, K)
    images, width = x.shape
    if images >= width:
        solved = np.linalg.solve(x.T @ x + l2 * np.eye(width), x.T @ targets)
    else:
        solved = x.T @ np.linalg.solve(x @ x.T + l2 * np.eye(images), targets)
    kernel = solved[:-1] / deviation[:, None]  # (D, K)
    return Probe(kernel, constant * solved[-1] - mean @ kernel)


def fit_linear(
    features: np.ndarray,
    labels: np.ndarray,
    num_classes: int,
    *,
    l2: float = 1.0,
) -> Probe:
    """Fit a linear classifier by logistic regression, a linear probe.

    Minimises the summed softmax cross-entropy plus l2 / 2 times the sum of
    the squared weights, biases left out, by L-BFGS in float64, as "Learning
    Transferable Visual Models From Natural Language Supervision"
    (arXiv:2103.00020), appendix A.3, does with scikit-learn, where l2 is 1 / C.
    Features are whitened one by one with their mean and standard deviation.

    Args:
        features: float array of shape (N, D).
        labels: int array of shape (N,).
        num_classes: int, K.
        l2: float, strength of the regularisation, above 0.

    Returns:
        A `Probe` of the features as they were given; its scores are logits.

    Raises:
        ValueError: see `fit_probe`.

    Example:
        >>> features = np.array([[0.0], [1.0]])
        >>> probe = fit_linear(features, np.array([0, 1]), 2)
        >>> probe.scores(features).argmax(axis=1).tolist()
        [0, 1]
    """
    _check(features, labels, num_classes, l2=l2)
    return fit_layer(features, np.eye(num_classes)[labels], l2=l2)


def _softmax(logits, targets):
    logits = logits - logits.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(logits).sum(axis=1, keepdims=True))
    error = np.exp(logits - log_sum) - targets
    return np.sum(targets * (log_sum - logits), axis=1), error


def _sigmoid(logits, targets):
    losses = np.logaddexp(0, logits) - targets * logits
    # Not 1 / (1 + exp(-x)), which overflows.
    return losses.sum(axis=1), np.exp(-np.logaddexp(0, -logits)) - targets


def _squared(numbers, targets):
    error = numbers - targets
    return np.sum(error**2, axis=1) / 2, error


# From outputs and targets (N, K) to the losses (N,), and their gradients with
# respect to the outputs (N, K).
LOSSES = {"softmax": _softmax, "sigmoid": _sigmoid, "squared": _squared}


def fit_layer(
    features: np.ndarray,
    targets: np.ndarray,
    *,
    loss: str = "softmax",
    l2: float = 1.0,
    weights: np.ndarray | None = None,
) -> Probe:
    """Fit a linear layer by the loss of a training, as `fit_linear` does.

    Args:
        features: float array of shape (N, D).
        targets: float array of shape (N, K): the probability of each class,
            which "softmax" needs to sum up to 1; or of "squared", numbers.
        loss: "softmax" or "sigmoid" cross-entropy, or half the "squared"
            error, each summed over images and outputs.
        l2: float, strength of the regularisation, above 0.
        weights: float array of shape (N,), what the losses of an image are
            multiplied by; None for 1.

    Returns:
        A `Probe` of the features as they were given.

    Raises:
        ValueError: when features and targets do not fit, or are not finite.

    Example:
        >>> features = np.array([[0.0], [1.0]])
        >>> layer = fit_layer(features, features, loss="squared", l2=1e-9)
        >>> layer.scores(np.array([[0.5]])).round(3).tolist()
        [[0.5]]
    """
    from scipy.optimize import minimize

    _check_rows(features, targets, targets.ndim == 2, l2=l2)
    x, mean, deviation = _whitened(features)
    (images, width), num_classes = x.shape, targets.shape[1]
    weights = np.ones(images) if weights is None else weights

    def loss_and_gradient(flat):
        layer = flat.reshape(width + 1, num_classes)
        kernel, bias = layer[:-1], layer[-1]  # (D, K), (K,)
        losses, error = LOSSES[loss](x @ kernel + bias, targets)
        value = weights @ losses + l2 / 2 * np.sum(kernel**2)
        error = weights[:, None] * error  # (N, K)
        gradient = np.vstack([x.T @ error + l2 * kernel, error.sum(axis=0)])
        return value / images, gradient.ravel() / images

    start = np.zeros((width + 1) * num_classes)
    found = minimize(
        loss_and_gradient, start, jac=True, method="L-BFGS-B", options=STOP
    )
    layer = found.x.reshape(width + 1, num_classes)
    kernel = layer[:-1] / deviation[:, None]  # (D, K)
    return Probe(kernel, layer[-1] - mean @ kernel)


@dataclasses.dataclass(frozen=True)
class Neighbours:
    """A classifier by nearest neighbours, made by `fit_neighbours`.

    Args:
        features: float32 array of shape (N, D), rows of length 1.
        labels: int array of shape (N,).
        num_classes: int, K.
        num_neighbours: int, how many of them vote.
        temperature: float, what similarities are divided by.
    """

    features: np.ndarray
    labels: np.ndarray
    num_classes: int
    num_neighbours: int
    temperature: float

    def scores(self, features: np.ndarray, *, own: bool = False) -> np.ndarray:
        """Return the votes (M, K) for each class.

        Args:
            features: float array (M, D).
            own: whether they are those of the N images, of which none votes
                for itself.
        """
        rows = max(1, NUMBERS // len(self.features))
        queries = _unit(features)
        parts = [
            self._votes(queries[i : i + rows], i if own else None)
            for i in range(0, len(queries), rows)
        ]
        return np.concatenate([np.zeros((0, self.num_classes)), *parts])

    def _votes(self, queries, begin):
        similarity = queries @ self.features.T  # (M, N)
        others = similarity.shape[1]
        if begin is not None:
            places = np.arange(len(queries))
            similarity[places, begin + places] = -np.inf
            others -= 1
        count = min(self.num_neighbours, others)
        found = np.argpartition(-similarity, count - 1, axis=1)[:, :count]
        cosines = np.take_along_axis(similarity, found, axis=1)
        weights = np.exp(cosines.astype(np.float64) / self.temperature)
        votes = np.zeros((len(queries), self.num_classes))
        rows = np.arange(len(queries))[:, None]
        np.add.at(votes, (rows, self.labels[found]), weights)
        return votes  # (M, K)


def fit_neighbours(
    features: np.ndarray,
    labels: np.ndarray,
    num_classes: int,
    *,
    num_neighbours: int = 20,
    temperature: float = 0.07,
) -> Neighbours:
    """Make a classifier by nearest neighbours; nothing is fitted.

    "Emerging Properties in Self-Supervised Vision Transformers" (DINO,
    arXiv:2104.14294), section 4.1 and `eval_knn.py`: of the num_neighbours
    images with the largest cosine similarity each votes for its class with
    exp(similarity / temperature).

    Args:
        features: float array of shape (N, D).
        labels: int array of shape (N,).
        num_classes: int, K.
        num_neighbours: int above 0; all images, where there are fewer.
        temperature: float above 0.

    Returns:
        `Neighbours`, whose scores are the votes.

    Raises:
        ValueError: see `fit_probe`, or for numbers that are not above 0.

    Example:
        >>> features = np.array([[0.0, 1.0], [1.0, 0.0]])
        >>> votes = fit_neighbours(features, np.array([0, 1]), 2)
        >>> votes.scores(features).argmax(axis=1).tolist()
        [0, 1]
    """
    _check(
        features,
        labels,
        num_classes,
        num_neighbours=num_neighbours,
        temperature=temperature,
    )
    return Neighbours(
        _unit(features), labels, num_classes, num_neighbours, temperature
    )


def _unit(features):
    """Features as float32 rows of length 1; zeros stay zeros."""
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    unit = features / np.maximum(lengths, np.finfo("float32").tiny)
    return unit.astype("float32")


def _whitened(features):
    """Return the features with mean 0 and deviation 1, and what these were."""
    features = features.astype(np.float64)
    mean, deviation = features.mean(axis=0), features.std(axis=0) + TINY
    return (features - mean) / deviation, mean, deviation


def _check(features, labels, num_classes: int, **above_zero: float) -> None:
    _check_rows(features, labels, labels.ndim == 1, **above_zero)
    if not len(labels) or labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(
            f"There must be labels, from 0 to {num_classes - 1}. Received: "
            f"{np.unique(labels).tolist()}."
        )


def _check_rows(features, labels, fits=True, **above_zero: float) -> None:
    fits = fits and features.ndim == 2 and len(labels) == len(features)
    if not fits:
        raise ValueError(
            "There must be a row of features and a label for each image. "
            f"Received: features of shape {features.shape}, labels of shape "
            f"{labels.shape}."
        )
    for name, value in above_zero.items():
        if not value > 0:
            raise ValueError(
                f"{name} must be above 0. Received: {name}={value}."
            )
    if not np.isfinite(features).all():
        raise ValueError(
            "The model gives features that are not finite. See the weights "
            "and the images."
        )
