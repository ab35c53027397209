"""The arguments of the applications.

Made by tools/make_applications.py from the options of the models.
Each function returns what it was given, by name. `{variant}`, `{default_name}`
and `{reference}` in a docstring are filled in for each application.
"""

__all__ = ["bit", "mixer", "vit"]


def vit(
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
    register_tokens=None,
    position_embedding=None,
    representation_dim=None,
    head_bias=None,
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
    stochastic_depth_rate=0.0,
    layer_norm_epsilon=None,
    layer_scale_init=None,
    patch_bias=None,
    qkv_bias=None,
    norm_before_blocks=None,
    activation=None,
    pixel_mean=None,
    pixel_std=None,
    flash_attention=None,
    rematerialize=False,
    dtype=None,
):
    """Instantiates the {variant} architecture.

    Reference:
    - {reference}

    Images are channels last and scaled to [-1, 1]: pass them through
    `keras_vit.preprocess_input` first, or give `include_preprocessing=True`. Some
    weights, such as `"dinov2"`, were trained on pixels of another mean and
    deviation: for these give `include_preprocessing=True`.

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
        input_shape: optional tuple (height, width, channels).
            The patches must divide height and width, which may differ; any such
            size works.
            Defaults to that of the weights, or `(224, 224, 3)`.
        pooling: what is made of the encoded tokens before the classification
            layer, or what is returned without it. `None`: the class token with
            `include_top`, all tokens, (batch, tokens, dim), without.
            `"avg"` or `"mean"`, `"max"`: the mean or maximum of the patch
            tokens. `"token"`: the class token. `"map"`: multi-head attention pooling.
            `"none"`: all tokens.
        classes: optional number of classes, 0 for features; another number
            than that of the weights gives a new classification layer. Defaults
            to that of the weights, or 1000.
        classifier_activation: activation of the classification layer; `None`
            returns the logits. Defaults to `"softmax"`.
        include_preprocessing: whether the model itself scales images from
            [0, 255], as its weights were trained. Defaults to `False`.
        name: name of the model. Defaults to `"{default_name}"`.
        class_token: bool, whether there is a class token. Defaults to what the
            weights have, or `True`.
        register_tokens: int, learned tokens after these ("Vision Transformers
            Need Registers", arXiv:2309.16588), which "prefix_mean" alone
            reads. Defaults to what the weights have, or `0`.
        position_embedding: "learned", "sincos2d" for fixed sines and cosines,
            or "none". Defaults to what the weights have, or `"learned"`.
        representation_dim: int, size of a dense layer before the
            classification layer (the paper's pre-training head), 0 for none.
            Defaults to what the weights have, or `0`.
        head_bias: float that the bias of the classification layer starts at;
            -10 or -6.9 for sigmoid losses with many classes. None for no bias,
            as CLIP's projection. Defaults to what the weights have, or `0.0`.
        dropout_rate: float, after the position embedding, the attention and
            each dense layer of the MLPs. Defaults to `0.0`.
        attention_dropout_rate: float, on the softmax weights. Defaults to
            `0.0`.
        stochastic_depth_rate: float, probability that a sample skips a
            residual branch of the last block in training; it grows linearly
            from 0 in the first block. Defaults to `0.0`.
        layer_norm_epsilon: float, added to the variance. Defaults to what the
            weights have, or `1e-06`.
        layer_scale_init: float that the factors of `LayerScale` on the
            residual branches start at; None for no `LayerScale`. Defaults to
            what the weights have, or `None`.
        patch_bias: bool, whether the projection of the patches has a bias.
            Defaults to what the weights have, or `True`.
        qkv_bias: bool, whether query, key and value have biases. Defaults to
            what the weights have, or `True`.
        norm_before_blocks: bool; True normalises the tokens before the first
            block, as CLIP does (arXiv:2103.00020). Defaults to what the
            weights have, or `False`.
        activation: of the MLPs: "gelu_tanh" as in the original code, "gelu"
            for the exact form as in Hugging Face and timm, "quick_gelu" as in
            CLIP, or any activation of Keras by name. Defaults to what the
            weights have, or `"gelu_tanh"`.
        pixel_mean: None, or the mean of each channel, 1 for white, that
            `include_preprocessing` subtracts: (0.485, 0.456, 0.406) for most
            models trained on ImageNet with torch. None scales to [-1, 1].
            Defaults to what the weights have, or `None`.
        pixel_std: None, or the deviation of each channel that it divides by.
            Defaults to what the weights have, or `None`.
        flash_attention: None takes a fused attention kernel where it can be
            used, True demands one, False forbids it. Defaults to `None`.
        rematerialize: bool, whether blocks compute their activations again in
            the backward pass to save memory. Defaults to `False`.
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
    return locals()


def mixer(
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
    mixing=None,
    layer_scale_init=None,
    head_bias=None,
    stochastic_depth_rate=0.0,
    layer_norm_epsilon=None,
    activation=None,
    dtype=None,
):
    """Instantiates the {variant} architecture.

    Reference:
    - {reference}

    Images are channels last and scaled to [-1, 1]: pass them through
    `keras_vit.preprocess_input` first, or give `include_preprocessing=True`. Some
    weights, such as `"dinov2"`, were trained on pixels of another mean and
    deviation: for these give `include_preprocessing=True`.

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
        input_shape: optional tuple (height, width, channels).
            The patches must divide height and width, which may differ; any such
            size works.
            The weights of one size do not fit another.
            Defaults to that of the weights, or `(224, 224, 3)`.
        pooling: what is made of the tokens before the classification
            layer, or what is returned without it. `None`: the mean with
            `include_top`, all tokens, (batch, tokens, dim), without.
            `"avg"` or `"mean"`, `"max"`: the mean or maximum of the tokens. `"none"`: all tokens.
        classes: optional number of classes, 0 for features; another number
            than that of the weights gives a new classification layer. Defaults
            to that of the weights, or 1000.
        classifier_activation: activation of the classification layer; `None`
            returns the logits. Defaults to `"softmax"`.
        include_preprocessing: whether the model itself scales images from
            [0, 255], as its weights were trained. Defaults to `False`.
        name: name of the model. Defaults to `"{default_name}"`.
        mixing: how tokens are mixed: by an "mlp"; by a "linear" layer, as in
            ResMLP; or by "spatial_gating" inside the MLP across channels, as
            in gMLP. Defaults to what the weights have, or `"mlp"`.
        layer_scale_init: float that the factors of `LayerScale` on the
            residual branches start at; None for no `LayerScale`. Defaults to
            what the weights have, or `None`.
        head_bias: float that the bias of the classification layer starts at;
            -10 or -6.9 for sigmoid losses with many classes. Defaults to what
            the weights have, or `0.0`.
        stochastic_depth_rate: float, probability that a sample skips a
            residual branch of the last block in training; it grows linearly
            from 0 in the first block. Defaults to `0.0`.
        layer_norm_epsilon: float, added to the variance. Defaults to what the
            weights have, or `1e-06`.
        activation: of the MLPs: "gelu_tanh" as in the original code, "gelu"
            for the exact form as in timm, or any activation of Keras by name.
            Defaults to what the weights have, or `"gelu_tanh"`.
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
    return locals()


def bit(
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
    activation=None,
    head_bias=None,
    dtype=None,
):
    """Instantiates the {variant} architecture.

    Reference:
    - {reference}

    Images are channels last and scaled to [-1, 1]: pass them through
    `keras_vit.preprocess_input` first, or give `include_preprocessing=True`. Some
    weights, such as `"dinov2"`, were trained on pixels of another mean and
    deviation: for these give `include_preprocessing=True`.

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
        input_shape: optional tuple (height, width, channels).
            Any size works, `(None, None, 3)` included.
            Defaults to that of the weights, or `(224, 224, 3)`.
        pooling: what is made of the feature map before the classification
            layer, or what is returned without it. `None`: the mean with
            `include_top`, the map, (batch, rows, columns, channels), without.
            `"avg"` or `"mean"`, `"max"`: the mean or maximum of the feature map. `"none"`: the map.
        classes: optional number of classes, 0 for features; another number
            than that of the weights gives a new classification layer. Defaults
            to that of the weights, or 1000.
        classifier_activation: activation of the classification layer; `None`
            returns the logits. Defaults to `"softmax"`.
        include_preprocessing: whether the model itself scales images from
            [0, 255], as its weights were trained. Defaults to `False`.
        name: name of the model. Defaults to `"{default_name}"`.
        activation: after each normalisation, by Keras's name; "evolved" has
            its own. Defaults to what the weights have, or `"relu"`.
        head_bias: float that the bias of the classification layer starts at;
            -10 or -6.9 for sigmoid losses with many classes. Defaults to what
            the weights have, or `0.0`.
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
    return locals()
