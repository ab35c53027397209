"""The docstrings of the applications, in the form of keras.applications."""

import re
from collections.abc import Callable

import keras

from keras_vit.applications.instantiate import Common, instantiate
from keras_vit.models import BiT, Mixer, VisionTransformer
from keras_vit.models.sizes import BIT, MIXER, VIT

__all__ = [
    "bit",
    "document",
    "mixer",
    "vision_transformer",
]

REFERENCES = {
    "ViT": "[An Image Is Worth 16x16 Words: Transformers for Image "
    "Recognition at Scale](https://arxiv.org/abs/2010.11929) (ICLR 2021)",
    "ViT_R": "[How to train your ViT? Data, Augmentation, and Regularization "
    "in Vision Transformers](https://arxiv.org/abs/2106.10270)",
    "Mixer": "[MLP-Mixer: An all-MLP Architecture for Vision]"
    "(https://arxiv.org/abs/2105.01601) (NeurIPS 2021)",
    "BiT": "[Big Transfer (BiT): General Visual Representation Learning]"
    "(https://arxiv.org/abs/1912.11370) (ECCV 2020)",
}

TEMPLATE = """Instantiates the {variant} architecture.

Reference:
- {reference}

Images are channels last and scaled to [-1, 1]: pass them through
`keras_vit.preprocess_input` first, or give `include_preprocessing=True`.

Args:
    include_top: whether to include the classification layer. Defaults to
        `True`.
    weights: `"imagenet"` for the recommended public file of 1000 classes,
        another name that `keras-vit weights list --model {variant}` shows,
        a path or address of weights in any known format (Google's `.npz`,
        safetensors of Hugging Face or timm, Keras's own files), or `None`
        for random initialisation. Defaults to `"imagenet"`.
    input_tensor: optional Keras tensor (output of `keras.Input()` or of a
        layer) to use as image input for the model.
    input_shape: optional tuple (height, width, channels). {size_note}
        Defaults to that of the weights, or `(224, 224, 3)`.
    pooling: what is made of the {features} before the classification layer,
        or what is returned without it. `None`: {default_pooling} with
        `include_top`, {unpooled} without. `"avg"` or `"mean"`, `"max"`:
        the mean or maximum{pooling_note}.
    classes: optional number of classes, 0 for features; another number
        than that of the weights gives a new classification layer. Defaults
        to that of the weights, or 1000.
    classifier_activation: activation of the classification layer; `None`
        returns the logits. Defaults to `"softmax"`.
    include_preprocessing: whether the model itself scales images from
        [0, 255] to [-1, 1]. Defaults to `False`.
    name: name of the model. Defaults to `"{default_name}"`.
{options}
    head_bias: value that the bias of the classification layer starts at;
        -10 or -6.9 for sigmoid losses. Defaults to 0.
    dtype: dtype policy of all layers, such as `"mixed_bfloat16"`. The
        classification layer stays in float32 under mixed policies. Defaults
        to `keras.config.dtype_policy()`.

Returns:
    A `keras.Model` from (batch, height, width, channels) to (batch, classes),
    or to features.

Raises:
    ValueError: for arguments that do not fit together, with what would.

Example:

>>> model = keras_vit.{variant}(weights=None, classes=10)
>>> images = keras_vit.preprocess_input(np.zeros((1, 224, 224, 3), "uint8"))
>>> model.predict(images).shape
(1, 10)
"""

SHARED_OPTIONS = """\
    stochastic_depth_rate: probability that a sample skips a residual branch
        of the last block in training, growing linearly from 0 in the first.
        Defaults to 0.
    layer_norm_epsilon: added to the variance. Defaults to what the weights
        were trained with, or 1e-6.
    activation: of the MLPs: `"gelu_tanh"` as in the original code, `"gelu"`
        for the exact form as in Hugging Face and timm. Defaults to what the
        weights were trained with, or `"gelu_tanh"`."""

VIT_OPTIONS = """\
    class_token: whether there is a class token. Defaults to what the
        weights have, or `True`.
    position_embedding: `"learned"`, or `"sincos2d"` for fixed sines and
        cosines. Defaults to what the weights have, or `"learned"`.
    representation_dim: size of a tanh layer before the classification layer
        (the paper's pre-training head), 0 for none. Defaults to what the
        weights have, or 0.
    dropout_rate: after the position embedding, the attention and each dense
        layer of the MLPs. Defaults to 0.
    attention_dropout_rate: on the softmax weights. Defaults to 0.
    flash_attention: `None` takes a fused attention kernel where it can be
        used, `True` demands one, `False` forbids it. Defaults to `None`.
    rematerialize: whether blocks compute their activations again in the
        backward pass to save memory. Defaults to `False`.
"""

PATCHES = (
    "The patches must divide height and width, which may differ; any such "
    "size works."
)

FAMILIES = {
    "ViT": {
        "size_note": PATCHES,
        "features": "encoded tokens",
        "default_pooling": "the class token",
        "unpooled": "all tokens, (batch, tokens, dim),",
        "pooling_note": ' of the patch tokens. `"token"`: the class token.\n'
        '        `"map"`: multi-head attention pooling. `"none"`: all tokens',
        "options": VIT_OPTIONS + SHARED_OPTIONS,
    },
    "Mixer": {
        "size_note": PATCHES
        + "\n        The weights of one size do not fit another.",
        "features": "tokens",
        "default_pooling": "the mean",
        "unpooled": "all tokens, (batch, tokens, dim),",
        "pooling_note": ' of the tokens. `"none"`: all tokens',
        "options": SHARED_OPTIONS,
    },
    "BiT": {
        "size_note": "Any size works,\n        `(None, None, 3)` included.",
        "features": "feature map",
        "default_pooling": "the mean",
        "unpooled": "the map, (batch, rows, columns, channels),",
        "pooling_note": ' of the feature map. `"none"`: the map',
        "options": "",
    },
}


def document(application: Callable, variant: str) -> Callable:
    """Gives an application its name and docstring.

    Args:
        application: the function.
        variant: str, its public name, such as "ViT_B16".

    Returns:
        The same function.
    """
    family, _, size = variant.partition("_")
    hybrid = family == "ViT" and size.startswith("R")
    text = TEMPLATE.format(
        variant=variant,
        default_name=variant.lower(),
        reference=REFERENCES["ViT_R" if hybrid else family],
        **FAMILIES[family],
    )
    application.__name__ = application.__qualname__ = variant
    application.__doc__ = re.sub(r"\n{3,}", "\n\n", text)
    return application


def vision_transformer(variant: str) -> Callable[..., keras.Model]:
    """Makes the application of a Vision Transformer or hybrid.

    Args:
        variant: str, a key of `sizes.VIT`.

    Returns:
        The function, documented.
    """

    def application(
        include_top=True,
        weights="imagenet",
        input_tensor=None,
        input_shape=None,
        pooling=None,
        classes=None,
        classifier_activation="softmax",
        include_preprocessing=False,
        name=None,
        *,
        class_token=None,
        position_embedding=None,
        representation_dim=None,
        head_bias=None,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        stochastic_depth_rate=0.0,
        layer_norm_epsilon=None,
        activation=None,
        flash_attention=None,
        rematerialize=False,
        dtype=None,
    ) -> keras.Model:
        common = Common(
            include_top,
            weights,
            input_tensor,
            input_shape,
            pooling,
            classes,
            classifier_activation,
            include_preprocessing,
            name or variant.lower(),
            dtype,
        )
        options = {
            "class_token": class_token,
            "position_embedding": position_embedding,
            "representation_dim": representation_dim if include_top else None,
            "head_bias": head_bias,
            "dropout_rate": dropout_rate,
            "attention_dropout_rate": attention_dropout_rate,
            "stochastic_depth_rate": stochastic_depth_rate,
            "layer_norm_epsilon": layer_norm_epsilon,
            "activation": activation,
            "flash_attention": flash_attention,
            "rematerialize": rematerialize,
        }
        return instantiate(
            VisionTransformer, variant, VIT[variant], common, options
        )

    return document(application, variant)


def mixer(variant: str) -> Callable[..., keras.Model]:
    """Makes the application of an MLP-Mixer.

    Args:
        variant: str, a key of `sizes.MIXER`.

    Returns:
        The function, documented.
    """

    def application(
        include_top=True,
        weights="imagenet",
        input_tensor=None,
        input_shape=None,
        pooling=None,
        classes=None,
        classifier_activation="softmax",
        include_preprocessing=False,
        name=None,
        *,
        head_bias=None,
        stochastic_depth_rate=0.0,
        layer_norm_epsilon=None,
        activation=None,
        dtype=None,
    ) -> keras.Model:
        common = Common(
            include_top,
            weights,
            input_tensor,
            input_shape,
            pooling,
            classes,
            classifier_activation,
            include_preprocessing,
            name or variant.lower(),
            dtype,
        )
        options = {
            "head_bias": head_bias,
            "stochastic_depth_rate": stochastic_depth_rate,
            "layer_norm_epsilon": layer_norm_epsilon,
            "activation": activation,
        }
        return instantiate(Mixer, variant, MIXER[variant], common, options)

    return document(application, variant)


def bit(variant: str) -> Callable[..., keras.Model]:
    """Makes the application of a BiT ResNet.

    Args:
        variant: str, a key of `sizes.BIT`.

    Returns:
        The function, documented.
    """

    def application(
        include_top=True,
        weights="imagenet",
        input_tensor=None,
        input_shape=None,
        pooling=None,
        classes=None,
        classifier_activation="softmax",
        include_preprocessing=False,
        name=None,
        *,
        head_bias=None,
        dtype=None,
    ) -> keras.Model:
        common = Common(
            include_top,
            weights,
            input_tensor,
            input_shape,
            pooling,
            classes,
            classifier_activation,
            include_preprocessing,
            name or variant.lower(),
            dtype,
        )
        options = {"head_bias": head_bias}
        return instantiate(BiT, variant, BIT[variant], common, options)

    return document(application, variant)
