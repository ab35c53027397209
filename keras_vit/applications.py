"""The models of the papers by name, called as in `keras.applications`."""

from collections.abc import Callable

import keras

from keras_vit.application_docs import document
from keras_vit.checkpoints import check_weights, load_weights
from keras_vit.models import (
    BiT,
    BiTConfig,
    Mixer,
    MixerConfig,
    VisionTransformer,
    ViTConfig,
)
from keras_vit.models.sizes import BIT, MIXER, VIT

__all__ = [
    "BiT_R101x1",
    "BiT_R101x3",
    "BiT_R152x2",
    "BiT_R152x4",
    "BiT_R50x1",
    "BiT_R50x3",
    "Mixer_B16",
    "Mixer_B32",
    "Mixer_H14",
    "Mixer_L16",
    "Mixer_L32",
    "Mixer_S16",
    "Mixer_S32",
    "Mixer_S8",
    "ViT_B16",
    "ViT_B32",
    "ViT_B8",
    "ViT_G14",
    "ViT_H14",
    "ViT_L16",
    "ViT_L32",
    "ViT_R26_B32",
    "ViT_R26_S32",
    "ViT_R50_B16",
    "ViT_R50_L32",
    "ViT_R_Ti16",
    "ViT_S16",
    "ViT_S32",
    "ViT_So400m14",
    "ViT_Ti16",
    "ViT_g14",
]

IMAGE_SIZE = (224, 224)


def _vision_transformer(variant: str) -> Callable[..., keras.Model]:
    def application(
        include_top=True,
        weights=None,
        input_tensor=None,
        input_shape=None,
        pooling=None,
        classes=1000,
        classifier_activation="softmax",
        include_preprocessing=False,
        name=None,
        *,
        class_token=True,
        position_embedding="learned",
        representation_dim=0,
        head_bias=0.0,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        stochastic_depth_rate=0.0,
        layer_norm_epsilon=1e-6,
        activation="gelu_tanh",
        flash_attention=None,
        rematerialize=False,
        dtype=None,
    ) -> keras.Model:
        options = dict(
            class_token=class_token,
            position_embedding=position_embedding,
            representation_dim=representation_dim if include_top else 0,
            head_bias=head_bias,
            dropout_rate=dropout_rate,
            attention_dropout_rate=attention_dropout_rate,
            stochastic_depth_rate=stochastic_depth_rate,
            layer_norm_epsilon=layer_norm_epsilon,
            activation=activation,
            flash_attention=flash_attention,
            rematerialize=rematerialize,
        )
        check_weights(weights)
        config = ViTConfig(
            **VIT[variant],
            **options,
            **_input_fields(input_shape, input_tensor),
            **_head_fields(include_top, classes, classifier_activation),
            pooling=_pooling(
                pooling, include_top, "token" if class_token else "mean"
            ),
            include_preprocessing=include_preprocessing,
        )
        name = name or variant.lower()
        model = _build(VisionTransformer, config, input_tensor, name, dtype)
        return load_weights(model, weights)

    return document(application, variant)


def _mixer(variant: str) -> Callable[..., keras.Model]:
    def application(
        include_top=True,
        weights=None,
        input_tensor=None,
        input_shape=None,
        pooling=None,
        classes=1000,
        classifier_activation="softmax",
        include_preprocessing=False,
        name=None,
        *,
        head_bias=0.0,
        stochastic_depth_rate=0.0,
        layer_norm_epsilon=1e-6,
        activation="gelu_tanh",
        dtype=None,
    ) -> keras.Model:
        check_weights(weights)
        config = MixerConfig(
            **MIXER[variant],
            **_input_fields(input_shape, input_tensor),
            **_head_fields(include_top, classes, classifier_activation),
            pooling=_pooling(pooling, include_top, "mean"),
            include_preprocessing=include_preprocessing,
            head_bias=head_bias,
            stochastic_depth_rate=stochastic_depth_rate,
            layer_norm_epsilon=layer_norm_epsilon,
            activation=activation,
        )
        name = name or variant.lower()
        model = _build(Mixer, config, input_tensor, name, dtype)
        return load_weights(model, weights)

    return document(application, variant)


def _bit(variant: str) -> Callable[..., keras.Model]:
    def application(
        include_top=True,
        weights=None,
        input_tensor=None,
        input_shape=None,
        pooling=None,
        classes=1000,
        classifier_activation="softmax",
        include_preprocessing=False,
        name=None,
        *,
        head_bias=0.0,
        dtype=None,
    ) -> keras.Model:
        check_weights(weights)
        config = BiTConfig(
            **BIT[variant],
            **_input_fields(input_shape, input_tensor, any_size=True),
            **_head_fields(include_top, classes, classifier_activation),
            pooling=_pooling(pooling, include_top, "mean"),
            include_preprocessing=include_preprocessing,
            head_bias=head_bias,
        )
        name = name or variant.lower()
        model = _build(BiT, config, input_tensor, name, dtype)
        return load_weights(model, weights)

    return document(application, variant)


def _build(model_class, config, input_tensor, name, dtype):
    if input_tensor is None:
        return model_class(config, name=name, dtype=dtype)
    # The layers before input_tensor are part of the model, and no config
    # tells them: a plain functional model saves them all.
    outputs = model_class.outputs_of(
        config, input_tensor, keras.dtype_policies.get(dtype)
    )
    inputs = keras.utils.get_source_inputs(input_tensor)
    return keras.Model(inputs, outputs, name=name)


def _input_fields(input_shape, input_tensor, any_size=False):
    """The config's image_size and channels, from either argument."""
    if input_tensor is not None:
        shape = _tensor_shape(input_tensor)
        if input_shape is not None and tuple(input_shape) != shape:
            raise ValueError(
                "input_shape and input_tensor contradict each other. "
                f"Received: input_shape={tuple(input_shape)} and an "
                f"input_tensor of shape {shape}. Leave out input_shape."
            )
        input_shape = shape
    shape = tuple(input_shape or (*IMAGE_SIZE, 3))
    known = shape[2:] if any_size else shape
    if len(shape) != 3 or not all(isinstance(x, int) for x in known):
        raise ValueError(
            "input_shape must be (height, width, channels), all known, "
            "channels last, because the position embeddings and patches "
            f"depend on it. Received: input_shape={shape}. Give for example "
            "input_shape=(384, 384, 3)."
        )
    return {"image_size": shape[:2], "channels": shape[2]}


def _tensor_shape(input_tensor):
    if not keras.utils.is_keras_tensor(input_tensor):
        raise ValueError(
            "input_tensor must be a Keras tensor, such as what keras.Input() "
            f"returns. Received: {type(input_tensor).__name__}. For images "
            "at hand build the model without input_tensor and call it."
        )
    return tuple(input_tensor.shape[1:])


def _head_fields(include_top, classes, classifier_activation):
    if not isinstance(classes, int) or classes < 0:
        raise ValueError(
            "classes must be the number of classes, or 0 for features. "
            f"Received: classes={classes!r}."
        )
    return {
        "num_classes": classes if include_top else 0,
        "classifier_activation": classifier_activation,
    }


def _pooling(pooling, include_top, default):
    """None is the model's own with a head and all tokens without one."""
    if pooling is None:
        return default if include_top else "none"
    return "mean" if pooling == "avg" else pooling


ViT_Ti16 = _vision_transformer("ViT_Ti16")
ViT_S16 = _vision_transformer("ViT_S16")
ViT_S32 = _vision_transformer("ViT_S32")
ViT_B8 = _vision_transformer("ViT_B8")
ViT_B16 = _vision_transformer("ViT_B16")
ViT_B32 = _vision_transformer("ViT_B32")
ViT_L16 = _vision_transformer("ViT_L16")
ViT_L32 = _vision_transformer("ViT_L32")
ViT_H14 = _vision_transformer("ViT_H14")
ViT_So400m14 = _vision_transformer("ViT_So400m14")
ViT_g14 = _vision_transformer("ViT_g14")
ViT_G14 = _vision_transformer("ViT_G14")
ViT_R_Ti16 = _vision_transformer("ViT_R_Ti16")
ViT_R26_S32 = _vision_transformer("ViT_R26_S32")
ViT_R26_B32 = _vision_transformer("ViT_R26_B32")
ViT_R50_B16 = _vision_transformer("ViT_R50_B16")
ViT_R50_L32 = _vision_transformer("ViT_R50_L32")
Mixer_S8 = _mixer("Mixer_S8")
Mixer_S16 = _mixer("Mixer_S16")
Mixer_S32 = _mixer("Mixer_S32")
Mixer_B16 = _mixer("Mixer_B16")
Mixer_B32 = _mixer("Mixer_B32")
Mixer_L16 = _mixer("Mixer_L16")
Mixer_L32 = _mixer("Mixer_L32")
Mixer_H14 = _mixer("Mixer_H14")
BiT_R50x1 = _bit("BiT_R50x1")
BiT_R50x3 = _bit("BiT_R50x3")
BiT_R101x1 = _bit("BiT_R101x1")
BiT_R101x3 = _bit("BiT_R101x3")
BiT_R152x2 = _bit("BiT_R152x2")
BiT_R152x4 = _bit("BiT_R152x4")
