"""Losses and schedules of self-supervision and distillation.

Functions of plain tensors, for `keras_vit.training.tasks.dino` and training
loops of your own; the masked autoencoder of `keras_vit.training.tasks.mae` has
its own loss. What comes from a teacher gets no gradient.

Axes: B images, V crops that the student sees, G of them that the teacher sees,
N patches, D features, K prototypes or classes.

With `each` losses are those of each image, (B,), which `fit` takes the mean
of.
"""

import math

import keras
import numpy as np
from keras import ops

from keras_vit.training.distribution.layouts import (
    mean_of_replicas,
    rows_of_replicas,
)

__all__ = [
    "centered",
    "cosine_loss",
    "cosine_schedule",
    "deit_hard_loss",
    "deit_soft_loss",
    "dino_loss",
    "dino_losses",
    "ibot_loss",
    "kl_loss",
    "koleo_loss",
    "moving_average",
    "sinkhorn",
    "warmed_up",
]

TINY = 1e-30


def centered(logits, center, temperature: float):
    """Center and sharpen a teacher's logits, softmax((t - c) / temperature).

    Equation 1 and section 3.1 of "Emerging Properties in Self-Supervised
    Vision Transformers" (DINO, arXiv:2104.14294).

    Args:
        logits: float tensor (..., K).
        center: float tensor (K,) of the steps before, see `moving_average`.
        temperature: float, 0.04 to 0.07.

    Returns:
        float tensor (..., K), without gradient; each row sums to 1.
    """
    logits = ops.stop_gradient(logits)
    return ops.softmax((logits - center) / temperature, axis=-1)


def sinkhorn(logits, temperature: float, iterations: int = 3, mask=None):
    """Assign samples to prototypes evenly, by Sinkhorn-Knopp.

    Q = exp(t / temperature); each iteration scales the prototypes to sum to
    1 / K and the samples to sum to 1 / B. In place of `centered`, as in
    "DINOv2" (arXiv:2304.07193), section 4. The largest logit is subtracted
    first, which cancels out and keeps exp finite. The samples of all devices
    are spread together.

    Args:
        logits: float tensor (B, K), of all samples of this replica.
        temperature: float.
        iterations: int.
        mask: bool tensor (B,) of the samples that there are, such as the
            hidden patches of a batch; all by default.

    Returns:
        float32 tensor (B, K), without gradient; each row sums to 1, and to 0
        where the mask is False.
    """
    scaled = ops.cast(ops.stop_gradient(logits), "float32") / temperature
    if mask is not None:
        scaled = ops.where(mask[:, None], scaled, -np.inf)
    # Of several replicas the mean, of those that have samples.
    largest = ops.max(scaled)
    known = ops.cast(largest > -np.inf, "float32")
    largest = ops.where(known > 0, largest, 0.0)
    counted = ops.maximum(mean_of_replicas(known), TINY)
    x = ops.exp(scaled - mean_of_replicas(largest) / counted)  # (B, K)
    for _ in range(iterations):
        total = mean_of_replicas(ops.sum(x, axis=0, keepdims=True))
        x = _share(x, total) / x.shape[-1]
        # Over B, which the next step cancels.
        x = _share(x, ops.sum(x, axis=1, keepdims=True))
    return x


def _share(x, total):
    """Return x / total, 0 where the total is 0."""
    return x / ops.where(total > 0, total, 1.0)


def dino_loss(student, teacher, temperature: float = 0.1):
    """Compute the cross-entropy of each crop with the teacher's other views.

    mean over g in G, v in V, v != g, of -sum_k q_gk log softmax(s_v / T)_k,
    equation 3 of arXiv:2104.14294.

    Args:
        student: float tensor (V, B, K) of logits; the first G crops are those
            of the teacher, in the same order.
        teacher: float tensor (G, B, K) of probabilities, of `centered` or
            `sinkhorn`.
        temperature: float, T.

    Returns:
        float tensor ().
    """
    return ops.mean(dino_losses(student, teacher, temperature))


def dino_losses(student, teacher, temperature: float = 0.1):
    """Compute the terms of `dino_loss` of each image, float tensor (B,)."""
    logs = ops.log_softmax(student / temperature, axis=-1)
    terms = -ops.einsum("gbk,vbk->gvb", ops.stop_gradient(teacher), logs)
    views, crops = teacher.shape[0], student.shape[0]
    others = 1 - ops.eye(views, crops, dtype=terms.dtype)  # (G, V)
    terms = terms * others[..., None]
    return ops.sum(terms, axis=(0, 1)) / (views * (crops - 1))


def ibot_loss(
    student, teacher, mask, temperature: float = 0.1, *, each: bool = False
):
    """Compute the cross-entropy of hidden patches with the teacher's.

    mean_b 1 / max(sum_n m_bn, 1) sum_n m_bn (-sum_k q_bnk log p_bnk),
    equation 2 of "iBOT" (arXiv:2111.07832). Images without hidden patches
    count as 0.

    Args:
        student: float tensor (B, N, K) of logits of the masked image.
        teacher: float tensor (B, N, K) of probabilities of the whole image.
        mask: tensor (B, N), 1 for hidden patches.
        temperature: float, of the student.
        each: bool, whether of each image.

    Returns:
        float tensor (), or (B,).
    """
    logs = ops.log_softmax(student / temperature, axis=-1)
    terms = -ops.sum(ops.stop_gradient(teacher) * logs, axis=-1)  # (B, N)
    mask = ops.cast(mask, terms.dtype)
    counts = ops.maximum(ops.sum(mask, axis=-1), 1)  # (B,)
    return _mean(ops.sum(terms * mask, axis=-1) / counts, each)


def koleo_loss(features, epsilon: float = 1e-8):
    """Compute the KoLeo regulariser, which spreads features evenly.

    -1 / B sum_b log(min_j |x_b - x_j| + epsilon) of features of unit length,
    "DINOv2" (arXiv:2304.07193), section 4. In float32 at least. The nearest j
    is that of the images of all devices.

    Args:
        features: float tensor (B, D), of all images of this replica; two at
            least on all together.
        epsilon: float, added to distances and to each difference.

    Returns:
        float tensor ().

    Raises:
        ValueError: for one image, whose nearest neighbour is itself.
    """
    if features.dtype != "float64":
        features = ops.cast(features, "float32")
    x = ops.normalize(features, axis=-1, epsilon=1e-8)  # (B, D)
    known, first = rows_of_replicas(x)  # (N, D)
    if known.shape[0] == 1:
        raise ValueError(
            "KoLeo is of the distances between images, two at least. Received: "
            "features of one. Raise the batch size, or leave KoLeo out."
        )
    similar = ops.matmul(x, ops.transpose(known))  # (B, N)
    own = first + ops.arange(ops.shape(x)[0], dtype="int32")
    own = ops.one_hot(own, ops.shape(known)[0], dtype=x.dtype)
    similar = similar - 3 * own
    nearest = ops.take(known, ops.argmax(similar, axis=1), axis=0)  # (B, D)
    distances = ops.sqrt(ops.sum(ops.square(x - nearest + epsilon), axis=-1))
    return -ops.mean(ops.log(distances + epsilon))


def _mean(terms, each):
    """Return the mean of terms (B, ...), or that of each image."""
    axes = range(int(each), len(terms.shape))
    return ops.mean(terms, axis=tuple(axes)) if axes else terms


def cosine_loss(student, teacher, *, each: bool = False):
    """Compute the mean of 1 - cos(student, teacher) over all tokens.

    Args:
        student: float tensor (B, ..., D).
        teacher: float tensor (B, ..., D).
        each: bool, whether of each image.

    Returns:
        float tensor (), or (B,).
    """
    teacher = ops.normalize(ops.stop_gradient(teacher), axis=-1)
    student = ops.normalize(student, axis=-1)
    return _mean(1 - ops.sum(student * teacher, axis=-1), each)


def kl_loss(student, teacher, temperature: float = 1.0, *, each: bool = False):
    """Compute T^2 mean_b sum_k q_bk log(q_bk / p_bk) of softened logits.

    p and q are the softmax of student / T and teacher / T; "Distilling the
    Knowledge in a Neural Network" (arXiv:1503.02531), section 2.

    Args:
        student: float tensor (B, K) of logits.
        teacher: float tensor (B, K) of logits.
        temperature: float, T.
        each: bool, whether of each image.

    Returns:
        float tensor (), or (B,).
    """
    teacher = ops.log_softmax(ops.stop_gradient(teacher) / temperature, axis=-1)
    student = ops.log_softmax(student / temperature, axis=-1)
    terms = ops.sum(ops.exp(teacher) * (teacher - student), axis=-1)  # (B,)
    return temperature**2 * _mean(terms, each)


def deit_soft_loss(
    student,
    teacher,
    labels,
    *,
    temperature: float = 3.0,
    share: float = 0.1,
    each: bool = False,
):
    """Compute (1 - share) CE(student, labels) + share KL(student, teacher).

    Equation 2 of "Training data-efficient image transformers & distillation
    through attention" (DeiT, arXiv:2012.12877); the KL is `kl_loss`.

    Args:
        student: float tensor (B, K) of logits.
        teacher: float tensor (B, K) of logits.
        labels: float tensor (B, K), one-hot or mixed.
        temperature: float, of the KL.
        share: float in [0, 1], lambda of the paper.
        each: bool, whether of each image.

    Returns:
        float tensor (), or (B,).
    """
    own = ops.categorical_crossentropy(labels, student, from_logits=True)
    taught = kl_loss(student, teacher, temperature, each=True)
    return _mean((1 - share) * own + share * taught, each)


def deit_hard_loss(student, distilled, teacher, labels, *, each: bool = False):
    """Compute CE(student, labels) / 2 + CE(distilled, argmax teacher) / 2.

    Equation 3 of DeiT (arXiv:2012.12877).

    Args:
        student: float tensor (B, K) of logits of the class token.
        distilled: float tensor (B, K) of logits of the distillation token;
            the same as `student` for models without one.
        teacher: float tensor (B, K) of logits.
        labels: float tensor (B, K), one-hot or mixed.
        each: bool, whether of each image.

    Returns:
        float tensor (), or (B,).
    """
    own = ops.categorical_crossentropy(labels, student, from_logits=True)
    said = ops.argmax(teacher, axis=-1)
    taught = ops.sparse_categorical_crossentropy(
        said, distilled, from_logits=True
    )
    return _mean(own / 2 + taught / 2, each)


def moving_average(old, new, momentum: float):
    """Return momentum * old + (1 - momentum) * new.

    With the mean of the teacher's logits, its center (arXiv:2104.14294,
    equation 4); `move_towards` moves its weights so.
    """
    return old * momentum + ops.stop_gradient(new) * (1 - momentum)


def cosine_schedule(step, base: float, final: float, steps: int):
    """Return the value at a step of half a cosine from base towards final.

    final + (base - final) (1 + cos(pi step / steps)) / 2: of the momentum of
    a teacher, 0.996 to 1 in arXiv:2104.14294.

    Args:
        step: int or tensor, from 0; from `steps` on the value is `final`.
        base: float, value at step 0.
        final: float, value at `steps`.
        steps: int, length.
    """
    done = ops.minimum(ops.cast(step, keras.config.floatx()) / steps, 1.0)
    return final + (base - final) * (1 + ops.cos(math.pi * done)) / 2


def warmed_up(step, start: float, final: float, steps: int):
    """Return the value at a step of a line from start to final.

    The temperature of a teacher: `steps` values from start to final, both
    included, then final (arXiv:2104.14294, appendix A). One step has only
    the value `start`.
    """
    share = ops.cast(step, keras.config.floatx()) / max(steps - 1, 1)
    value = start + (final - start) * ops.minimum(share, 1.0)
    return ops.where(ops.cast(step, "int32") >= steps, final, value)
