"""Which pixels a class score depends on, by the `saliency` library.

Axes: B batch, H and W height and width of the image, C channels, K classes.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.analysis.blocks import check_images, check_model, kept_with
from keras_vit.analysis.gradients import gradient_function
from keras_vit.analysis.scores import chosen_classes, class_scores
from keras_vit.models import VisionTransformer
from keras_vit.models.base import check_choice

__all__ = ["saliency"]

# It divides the 25 and 100 steps of the methods: one compiled shape.
BATCH_SIZE = 5
MID_GREY = 127.5

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


def saliency(
    model: VisionTransformer,
    images: Any,
    classes: Any = None,
    *,
    method: str = "smooth_gradient",
) -> np.ndarray:
    """How much each pixel speaks for or against a class.

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
    check_method(model, method)
    images = check_images(model, images)
    call_model = _gradients_by_key(model)
    one_hot = chosen_classes(model, images, classes, BATCH_SIZE)
    explain = _explainer(model, method)
    maps = [
        explain(image, call_model, row)
        for image, row in zip(images, one_hot, strict=True)
    ]
    return np.stack(maps).astype("float32")


def check_method(model: VisionTransformer, method: str) -> None:
    """Raises a ValueError unless the method works for the model."""
    check_choice("method", method, METHODS)
    hybrid = model.config.resnet_units is not None
    if hybrid and method in PATHS_FROM_GREY:
        raise ValueError(
            f"{method!r} says nothing about a hybrid: group normalisation "
            "undoes the scaling of the image that it integrates along. "
            f'Received: method={method!r}. Use "blur" or "smooth_gradient".'
        )


def _explainer(model, method):
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
    """What the library calls: gradients of the score of a class."""
    from saliency.core import INPUT_OUTPUT_GRADIENTS

    gradient = kept_with(model, "saliency", lambda: _image_gradient(model))

    def call_model(images, call_model_args=None, expected_keys=None):
        images = np.asarray(images, "float32")
        return {INPUT_OUTPUT_GRADIENTS: gradient(images, call_model_args)}

    return call_model


def _image_gradient(model):
    scores = class_scores(model)
    features = keras.Model(model.input, model.get_layer("predictions").input)

    def score(images, one_hot):
        return ops.sum(scores(features(images)) * one_hot, axis=-1)

    return gradient_function(model, score)
