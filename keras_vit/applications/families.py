"""One function a family that makes its applications."""

from collections.abc import Callable

import keras

from keras_vit.applications.documentation import document
from keras_vit.applications.instantiate import Common, instantiate
from keras_vit.models import BiT, Mixer, VisionTransformer
from keras_vit.models.sizes import BIT, MIXER, VIT

__all__ = ["bit", "mixer", "vision_transformer"]


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
