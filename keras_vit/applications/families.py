"""One function a family that makes its applications."""

from collections.abc import Callable

import keras

from keras_vit.applications.arguments import (
    head_fields,
    input_fields,
    pooling_of,
)
from keras_vit.applications.documentation import document
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

__all__ = ["bit", "mixer", "vision_transformer"]


def vision_transformer(variant: str) -> Callable[..., keras.Model]:
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
            **input_fields(input_shape, input_tensor),
            **head_fields(include_top, classes, classifier_activation),
            pooling=pooling_of(
                pooling, include_top, "token" if class_token else "mean"
            ),
            include_preprocessing=include_preprocessing,
        )
        name = name or variant.lower()
        model = _build(VisionTransformer, config, input_tensor, name, dtype)
        return load_weights(model, weights)

    return document(application, variant)


def mixer(variant: str) -> Callable[..., keras.Model]:
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
            **input_fields(input_shape, input_tensor),
            **head_fields(include_top, classes, classifier_activation),
            pooling=pooling_of(pooling, include_top, "mean"),
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


def bit(variant: str) -> Callable[..., keras.Model]:
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
            **input_fields(input_shape, input_tensor, any_size=True),
            **head_fields(include_top, classes, classifier_activation),
            pooling=pooling_of(pooling, include_top, "mean"),
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
