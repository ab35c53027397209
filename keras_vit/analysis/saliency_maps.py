"""Class activation and saliency: what in an image speaks for a class.

The only file of the analysis that names the backends: Keras itself has no
gradient of a function.

Axes: B batch, H and W height and width of the image, C channels, K classes,
T tokens, P of them prefix tokens, D hidden dimension; on the grid of patches
R rows and C columns.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.analysis.attention_weights import (
    blocks_of,
    cached,
    check_block,
    check_images,
    check_model,
    on_grid,
)
from keras_vit.analysis.features import features
from keras_vit.io.checks import check_choice, check_installed
from keras_vit.models import VisionTransformer
from keras_vit.models.configured_model import POOL
from keras_vit.models.options import ATTENTION_POOLINGS
from keras_vit.preprocessing import MID_GREY
from keras_vit.runtime.workarounds import backend_is

__all__ = ["gradient_cam", "gradient_function", "patch_scores", "saliency"]

# It divides the 25 and 100 steps of the methods: one compiled shape.
BATCH_SIZE = 5

# Name -> class of saliency.core, its options, whether noise is averaged over,
# and how an attribution (H, W, C) becomes a map (H, W).
METHODS = {
    "gradient": ("GradientSaliency", {}, False, "size"),
    "smooth_gradient": ("GradientSaliency", {}, True, "sum"),
    "integrated_gradients": (
        "IntegratedGradients",
        {"batch_size": BATCH_SIZE},
        False,
        "sum",
    ),
    "blur": ("BlurIG", {"batch_size": BATCH_SIZE}, False, "sum"),
    "xrai": ("XRAI", {"batch_size": BATCH_SIZE}, False, "none"),
}
REDUCTIONS = {
    "size": lambda mask: np.abs(mask).sum(axis=-1),
    "sum": lambda mask: mask.sum(axis=-1),
    "none": lambda mask: mask,
}
# Those that integrate from an image without content to the image. In a hybrid
# group normalisation undoes the scaling of the image along that path: all
# change is in the first billionth of it, which 25 steps cannot see.
PATHS_FROM_GREY = ("integrated_gradients", "xrai")


def gradient_cam(
    model: VisionTransformer,
    images: Any,
    classes: Any = None,
    *,
    block: int = -1,
    batch_size: int = 8,
) -> np.ndarray:
    """Maps where in the image the evidence for a class is.

    Grad-CAM (arXiv:1610.02391, equations 1 and 2) on the layer where it works
    for a ViT: the normalised tokens that the attention of the last block
    takes. After that block the class token alone is read, the gradient of
    all patches is zero and the map is blank. The class token is left out of
    the map and of the mean of the gradients.

    Args:
        model: a `VisionTransformer` with classes.
        images: array (B, height, width, channels), as the model takes them.
        classes: None for the most probable class of each image, an int for
            all images, or B ints.
        block: int, the block whose attention's input is taken.
        batch_size: int, images at a time.

    Returns:
        float32 array of shape (B, R, C), not negative, in the units of the
        score times the gradient; for pictures divided by its maximum. An
        image with no evidence for the class has a map of zeros.

    Raises:
        ValueError: for a model without classes, classes or a block that it
            does not have, images that it does not take.

    Example:
        >>> gradient_cam(model, images, classes=281).shape  # tabby cat
        (8, 14, 14)
    """
    check_model(model)
    images = check_images(model, images, batch_size)
    block = check_block(model, block)
    gradient = cached(
        model,
        ("gradient_cam", block),
        lambda: gradient_function(model, _score_after_norm(model, block)),
    )
    one_hot = _one_hot_classes(model, images, classes, batch_size)
    layer = model.get_layer(f"block_{block}")
    stem = keras.Model(model.input, layer.input)
    maps = []
    for i in range(0, len(images), batch_size):
        x = stem.predict_on_batch(images[i : i + batch_size])  # (B, T, D)
        tokens = layer.attention_norm(x)  # (B, T, D)
        slopes = gradient(tokens, x, one_hot[i : i + batch_size])
        maps.append(_class_activation(model, tokens, slopes))
    return np.concatenate(maps)


def patch_scores(
    model: VisionTransformer, images: Any, *, batch_size: int = 8
) -> np.ndarray:
    """Score each patch alone, as the head scores what is pooled.

    The encoded token of a patch takes the place of the class token, of the
    mean or of all that attention pooling reads. Of an image-text model and
    its texts, divided by the scale, it is the cosine of a patch and a text
    ("Extract Free Dense Labels from CLIP", arXiv:2112.01071, section 3.2, has
    the values of the last attention there). A model was not trained to have
    such scores: they show where a class is, roughly, and no evidence for it.

    Args:
        model: a `VisionTransformer` with classes.
        images: array (B, height, width, channels), as the model takes them.
        batch_size: int, images at a time.

    Returns:
        float32 array of shape (B, R, C, K), in the units of the scores.

    Raises:
        ValueError: for a model without classes, one whose head reads several
            tokens at once, images that it does not take.

    Example:
        >>> patch_scores(model, images).shape
        (8, 14, 14, 1000)
    """
    check_model(model)
    maps = features(model, images, batch_size=batch_size)[0]  # (B, R, C, D)
    names = [x.name for x in model.layers]
    config = model.config
    if not config.num_classes or POOL not in names:
        raise ValueError(
            f"Only models with classes score patches. Received: {model.name!r}"
            f" with num_classes={config.num_classes}."
        )
    pool = model.get_layer(POOL)
    width = maps.shape[-1]
    if pool.output.shape[-1] != width or config.class_attention_layers:
        raise ValueError(
            "The head must read one vector of a token's size. Received: a head "
            f"of {pool.output.shape[-1]} numbers with pooling="
            f"{config.pooling!r}, tokens of {width}, class_attention_layers="
            f"{config.class_attention_layers}."
        )
    x = ops.convert_to_tensor(maps.reshape(-1, width))  # (B * R * C, D)
    if config.pooling in ATTENTION_POOLINGS:
        # Twice, as a softmax over one number is what Keras warns of.
        prefix = [(0, 0), (pool.num_prefix_tokens, 0), (0, 0)]
        x = pool(ops.pad(ops.stack([x, x], axis=1), prefix))
    for name in names[names.index(POOL) + 1 :]:
        x = model.get_layer(name)(x)
    scores = ops.convert_to_numpy(ops.cast(x, "float32"))  # (B * R * C, K)
    return scores.reshape(*maps.shape[:-1], -1)


def saliency(
    model: VisionTransformer,
    images: Any,
    classes: Any = None,
    *,
    method: str = "smooth_gradient",
) -> np.ndarray:
    """Maps how much each pixel speaks for or against a class.

    The methods are those of the library `saliency` (PAIR); the score is the
    logit of the class.

    Args:
        model: a `VisionTransformer` with classes.
        images: array (B, H, W, C), as the model takes them.
        classes: None for the most probable class of each image, an int for
            all images, or B ints.
        method: "smooth_gradient" (SmoothGrad, arXiv:1706.03825), the squared
            gradient averaged over 25 noisy images, drawn from NumPy's global
            generator; "gradient" (arXiv:1312.6034); "integrated_gradients"
            (arXiv:1703.01365), 25 steps from a grey image; "blur" (Blur IG,
            arXiv:2004.03383), 100 steps from a blurred image; "xrai"
            (arXiv:1906.02825), integrated gradients by regions of the image.

    Returns:
        float32 array of shape (B, H, W), summed over the channels. With
        "integrated_gradients" and "blur" signed, in logits: the sum over an
        image is about the difference of the scores of the image and of what
        it is compared with. With the others not negative, except "xrai".

    Raises:
        ValueError: for an unknown method, one that does not work for a
            hybrid ("integrated_gradients", "xrai"), a model without classes,
            classes that it does not have, images that it does not take.

    Example:
        >>> maps = saliency(model, images, classes=281)
    """
    check_model(model)
    _check_method(model, method)
    images = check_images(model, images)
    call_model = _gradients_by_key(model)
    one_hot = _one_hot_classes(model, images, classes, BATCH_SIZE)
    explain = _explainer(model, method)
    maps = [
        explain(image, call_model, row)
        for image, row in zip(images, one_hot, strict=True)
    ]
    return np.stack(maps).astype("float32")


def _class_activation(model, tokens, slopes):
    """Equations 1 and 2: tokens weighted by the mean of their gradients."""
    prefix = model.config.num_prefix_tokens
    tokens = np.asarray(ops.convert_to_numpy(tokens), "float32")
    importance = slopes[:, prefix:].mean(axis=1)  # (B, D)
    values = np.einsum("btd,bd->bt", tokens, importance)  # (B, T)
    return on_grid(model.config, np.maximum(values, 0))


def _score_after_norm(model, index):
    """From the normalised tokens of a block to the score of a class."""
    scores = _class_scores(model)
    block, *blocks = blocks_of(model)[index:]
    layers = [*blocks, *_tail_of(model)]

    def score(normalized, x, one_hot):
        x = block.after_norm(x, normalized)  # (B, T, D)
        for layer in layers:
            x = layer(x)
        return ops.sum(scores(x) * one_hot, axis=-1)  # (B,)

    return score


def _check_method(model, method):
    check_choice("method", method, METHODS)
    hybrid = model.config.resnet_units is not None
    if hybrid and method in PATHS_FROM_GREY:
        raise ValueError(
            f"{method!r} says nothing about a hybrid: group normalisation "
            "undoes the scaling of the image that it integrates along. "
            f'Received: method={method!r}. Use "blur" or "smooth_gradient".'
        )


def _explainer(model, method):
    check_installed("An explanation of this kind", "saliency")
    import saliency.core

    name, options, smooth, reduction = METHODS[method]
    explainer = getattr(saliency.core, name)()
    mask_of = explainer.GetSmoothedMask if smooth else explainer.GetMask

    def explain(image, call_model, one_hot):
        more = {}
        if method == "integrated_gradients":
            grey = MID_GREY if model.config.include_preprocessing else 0.0
            more["x_baseline"] = np.full_like(image, grey)
        mask = mask_of(image, call_model, one_hot, **options, **more)
        return REDUCTIONS[reduction](mask)

    return explain


def _gradients_by_key(model):
    """Return the function of gradients that the library `saliency` calls."""
    gradient = cached(model, "saliency", lambda: _image_gradient(model))

    def call_model(images, call_model_args=None, expected_keys=None):
        from saliency.core import INPUT_OUTPUT_GRADIENTS

        images = np.asarray(images, "float32")
        return {INPUT_OUTPUT_GRADIENTS: gradient(images, call_model_args)}

    return call_model


def _image_gradient(model):
    scores = _class_scores(model)
    features = keras.Model(model.input, model.get_layer("predictions").input)

    def score(images, one_hot):
        return ops.sum(scores(features(images)) * one_hot, axis=-1)

    return gradient_function(model, score)


def _tail_of(model):
    """List the layers after the last block, without the head."""
    last = f"block_{model.config.num_layers - 1}"
    names = [layer.name for layer in model.layers]
    return model.layers[names.index(last) + 1 : names.index("predictions")]


def _class_scores(model):
    """Return a function from features to logits (B, K), before any activation.

    It takes what the head takes, (B, D) or with pooling "none" (B, T, D), of
    which the logits are averaged. Behind a softmax, the gradient of a
    probability that is near 1 is near zero and shows nothing.
    """
    if not model.config.num_classes:
        raise ValueError(
            "There is no class score to explain. Received: a model with "
            "num_classes=0. Build or load it with its classification layer "
            "(include_top=True)."
        )
    head = model.get_layer("predictions")

    def scores(features):
        if head.activation is keras.activations.linear:
            logits = head(features)
        else:
            kernel = ops.cast(head.kernel, features.dtype)
            logits = ops.matmul(features, kernel) + head.bias
        if len(logits.shape) == 3:
            logits = ops.mean(logits, axis=1)
        return logits  # (B, K)

    return scores


def _one_hot_classes(model, images, classes, batch_size):
    """Return the class to explain of each image, one-hot (B, K)."""
    count = model.config.num_classes
    if classes is None:
        parts = [
            model.predict_on_batch(images[i : i + batch_size])
            for i in range(0, len(images), batch_size)
        ]
        scores = np.concatenate(parts).reshape(len(images), -1, count)
        classes = scores.mean(axis=1).argmax(axis=-1)
    classes = np.asarray(classes)
    whole = np.issubdtype(classes.dtype, np.integer)
    if (
        not whole
        or classes.shape not in ((), (len(images),))
        or (classes < 0).any()
        or (classes >= count).any()
    ):
        raise ValueError(
            f"classes must be one integer from 0 to {count - 1}, or one for "
            f"each of the {len(images)} images. Received: classes={classes}."
        )
    classes = np.broadcast_to(classes, len(images))
    return np.eye(count, dtype="float32")[classes]


def gradient_function(model: keras.Model, score: Callable) -> Callable:
    """Compile the gradient of a score with respect to its first argument.

    Args:
        model: the model whose variables the score reads.
        score: from a tensor and any further tensors to scores (B,).

    Returns:
        A function of the same arguments, arrays or tensors, to a float32
        array of the shape of the first. As no score depends on another image
        of the batch, it holds one gradient per image.

    Raises:
        ValueError: when the backend has no gradients.
    """
    make = next((GRADIENTS[x] for x in GRADIENTS if backend_is(x)), None)
    if make is None:
        raise ValueError(
            f"Gradients need one of the backends {', '.join(GRADIENTS)}. "
            f"Received: {keras.backend.backend()!r}. Set KERAS_BACKEND before "
            "Keras is imported."
        )
    gradient = make(model, score)

    def as_array(x, *others):
        tensors = map(ops.convert_to_tensor, (x, *others))
        found = ops.convert_to_numpy(gradient(*tensors))
        return np.asarray(found, "float32")

    return as_array


def _jax(model, score):
    import jax

    def total(x, values, *others):
        # As arguments: constants of this size would be compiled for minutes.
        state = list(zip(model.variables, values, strict=True))
        with keras.StatelessScope(state_mapping=state):
            return ops.sum(score(x, *others))

    gradient = jax.jit(jax.grad(total))

    def call(x, *others):
        return gradient(x, [v.value for v in model.variables], *others)

    return call


def _tensorflow(model, score):
    import tensorflow as tf

    @tf.function
    def gradient(x, *others):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(x)
            total = ops.sum(score(x, *others))
        return tape.gradient(total, x)

    return gradient


def _torch(model, score):
    import torch

    def gradient(x, *others):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            total = ops.sum(score(x, *others))
            return torch.autograd.grad(total, x)[0]

    return gradient


GRADIENTS = {"jax": _jax, "tensorflow": _tensorflow, "torch": _torch}
