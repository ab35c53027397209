"""Images of any aspect ratio in one batch, as sequences of their patches.

Axes: B batch, N patches of the longest sequence, P prefix tokens, T = P + N
tokens, R and C rows and columns of the table of positions, D hidden dimension.
"""

import keras
from keras import ops

from keras_vit.interpolation import RESAMPLINGS, SQUARE, axis_weights
from keras_vit.io.checks import check_choice
from keras_vit.models.configured_model import keeping
from keras_vit.models.options import whole_grid
from keras_vit.models.vit import VisionTransformer

__all__ = ["NaFlexTransformer"]


@keras.saving.register_keras_serializable("keras_vit")
class NaFlexTransformer(keras.Model):
    """Runs a Vision Transformer on images of any aspect ratio and size.

    Each image is a sequence of its patches with their rows and columns, padded
    to the longest of the batch, as in NaViT (arXiv:2307.06304) and the NaFlex
    models of SigLIP 2 (arXiv:2502.14786, section 2.4.2). The positions of the
    model are resampled to the grid of each image; attention and pooling leave
    out the padding. The weights are those of the given model and not a copy:
    training one trains the other.

    Args:
        encoder: a built `VisionTransformer` with a position per patch, no
            rotary or relative positions and no ResNet.
        resampling: how positions are resampled: "linear_aligned", "linear",
            "linear_antialiased", "bicubic" or "bicubic_antialiased", each
            with "_square" for that of a square grid as large as the longer
            side. None takes what the loaded file says
            (`encoder.load_report`), or "bicubic_antialiased".
        name: str, name of the model.

    Input shape:
        A dict, as `keras_vit.patch_sequences` makes it:
        "patches" (B, N, patch height * patch width * channels), scaled as the
        model wants its images, row by row with the channels last;
        "coordinates" (B, N, 2), row and column of each patch, from 0;
        "valid" (B, N), bool or 0 and 1, 0 for padding.

    Output shape:
        That of the model; with pooling "none" (B, T, ...), the tokens of
        padding among them.

    Raises:
        ValueError: for a model with other options, or whose positions were
            resampled to another grid on loading, and for an unknown
            resampling.

    Example:

    >>> encoder = keras_vit.ViT_B16(weights="augreg_imagenet21k_imagenet2012")
    >>> model = keras_vit.models.NaFlexTransformer(encoder)
    >>> photos = [np.zeros((480, 640, 3), "uint8"), np.zeros((90, 300, 3))]
    >>> inputs = keras_vit.patch_sequences(photos, 16, max_patches=196)
    >>> model(inputs).shape
    (2, 1000)
    """

    def __init__(self, encoder, *, resampling=None, name=None, **kwargs):
        report = getattr(encoder, "load_report", None)
        check_encoder(encoder, report)
        super().__init__(name=name, dtype=encoder.dtype_policy, **kwargs)
        told = getattr(report, "resampling", None) or "bicubic_antialiased"
        self.resampling = resampling or told
        check_choice(
            "resampling", self.resampling.removesuffix(SQUARE), RESAMPLINGS
        )
        self.encoder = encoder
        self.config = encoder.config

    fit, evaluate, predict = map(keeping, ("fit", "evaluate", "predict"))

    def build(self, input_shape):
        self.built = True  # The encoder has all weights.

    def call(self, inputs, training=None):
        config, layer = self.config, self.encoder.get_layer
        valid = ops.cast(inputs["valid"], "bool")  # (B, N)
        x = self._embedded(inputs["patches"])  # (B, N, D)
        if config.num_prefix_tokens:
            x = layer("class_token")(x)  # (B, T, D)
        if config.position_embedding != "none":
            positions = self._positions(inputs["coordinates"], valid)
            x = x + ops.cast(positions, x.dtype)
        valid = ops.pad(
            valid, [(0, 0), (config.num_prefix_tokens, 0)], constant_values=True
        )  # (B, T)
        x = layer("dropout")(x, training=training)
        if config.norm_before_blocks:
            x = layer("first_norm")(x)
        for i in range(config.num_layers):
            x = layer(f"block_{i}")(x, valid, training=training)
        return self._classified(x, valid)

    def get_config(self):
        encoder = keras.saving.serialize_keras_object(self.encoder)
        return {
            "name": self.name,
            "trainable": self.trainable,
            "encoder": encoder,
            "resampling": self.resampling,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        encoder = keras.saving.deserialize_keras_object(config["encoder"])
        return cls(**{**config, "encoder": encoder})

    def compute_output_shape(self, input_shape):
        batch, tokens, _ = input_shape["patches"]
        output = self.encoder.output_shape
        if self.config.pooling != "none":
            return (batch, *output[1:])
        if tokens is not None:
            tokens += self.config.num_prefix_tokens
        return (batch, tokens, *output[2:])

    def _embedded(self, patches):
        """The tokens of patches without positions."""
        config, layer = self.config, self.encoder.get_layer
        x = ops.cast(patches, self.compute_dtype)  # (B, N, h * w * channels)
        pixels = (*ops.shape(x)[:2], *config.patch_size, config.channels)
        if config.include_preprocessing:
            x = layer("rescaling")(ops.reshape(x, pixels))
            x = ops.reshape(x, (*pixels[:2], -1))
        projection = layer("patch_embed").projection
        kernel = ops.reshape(projection.kernel, (-1, config.hidden_dim))
        x = ops.matmul(x, ops.cast(kernel, x.dtype))  # (B, N, D)
        if config.patch_bias:
            x = x + ops.cast(projection.bias, x.dtype)
        return layer("patch_norm")(x) if config.patch_norm else x

    def _positions(self, coordinates, valid):
        """Those of all tokens, (B, T, D)."""
        table = self.encoder.get_layer("position_embedding").embedding
        table = ops.cast(table, "float32")  # (1, P + R * C, D)
        places = ops.cast(coordinates, "float32")  # (B, N, 2)
        places = ops.where(valid[..., None], places, 0.0)
        sides = ops.max(places, axis=1, keepdims=True) + 1  # (B, 1, 2)
        method = self.resampling
        if method.endswith(SQUARE):
            method = method.removesuffix(SQUARE)
            sides = ops.max(sides, axis=-1, keepdims=True) + 0 * sides
        rows, columns = (
            axis_weights(places[..., i], sides[..., i], old, method, ops)
            for i, old in enumerate(self.config.grid)
        )  # (B, N, R), (B, N, C)
        shares = rows[..., :, None] * columns[..., None, :]  # (B, N, R, C)
        length = self.config.grid[0] * self.config.grid[1]
        shares = ops.reshape(shares, (*ops.shape(places)[:2], length))
        patches = ops.matmul(shares, table[0, -length:])  # (B, N, D)
        prefix = table[:, : table.shape[1] - length]  # (1, P, D)
        prefix = ops.repeat(prefix, ops.shape(patches)[0], axis=0)
        return ops.concatenate([prefix, patches], axis=1)

    def _classified(self, x, valid):
        """What the model computes of encoded tokens."""
        config, layer = self.config, self.encoder.get_layer
        normed = config.final_norm and not config.norm_after_pooling
        x = layer("encoder_norm")(x) if normed else x
        x = x if config.pooling == "none" else layer("pool")(x, valid)
        x = layer("encoder_norm")(x) if config.norm_after_pooling else x
        x = layer("pre_logits")(x) if config.representation_dim else x
        x = layer("unit_features")(x) if config.unit_features else x
        return layer("predictions")(x) if config.num_classes else x


def check_encoder(encoder, report) -> None:
    """Raises a ValueError for a model that is of one grid of patches alone.

    Args:
        encoder: the model.
        report: its `load_report`, or None.
    """
    if not isinstance(encoder, VisionTransformer):
        raise ValueError(
            "NaFlexTransformer runs a VisionTransformer. Received: "
            f"{type(encoder).__name__}."
        )
    for name in whole_grid(encoder.config):
        raise ValueError(
            f"NaFlexTransformer needs a model with {name}="
            f"{getattr(type(encoder.config), name)!r}. Received: {name}="
            f"{getattr(encoder.config, name)!r}."
        )
    if report and "position_embedding/embedding" in report.resampled:
        sides = zip(report.grid, encoder.config.patch_size, strict=True)
        shape = (*(x * y for x, y in sides), encoder.config.channels)
        raise ValueError(
            "The positions were resampled on loading, and would be a second "
            f"time. Received: a model of {encoder.config.image_size} pixels. "
            f"Load {report.source!r} with input_shape={shape}."
        )
