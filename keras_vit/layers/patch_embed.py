"""Patch embedding: an image becomes a sequence of tokens.

Axes: B batch, H and W image height and width, R and C rows and columns of the
grid of patches, N = R * C tokens, D hidden dimension.
"""

import keras
from keras import ops

from keras_vit.layers.base import ConfiguredLayer

__all__ = ["PatchEmbed"]


@keras.saving.register_keras_serializable("keras_vit")
class PatchEmbed(ConfiguredLayer):
    """Cuts images into patches and projects each linearly to a token.

    `x_p E` of equation 1 in "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929): a convolution whose stride is its kernel size. Patches
    follow each other row by row.

    Args:
        hidden_dim: int, size D of a token.
        patch_size: int, or (height, width), of a patch in pixels.

    Input shape:
        (B, H, W, channels), channels last; the patch divides H and W.

    Output shape:
        (B, N, D) with N = (H / patch height) * (W / patch width).

    Raises:
        ValueError: when built on images whose size is unknown or is not a
            multiple of the patch.

    Example:

    >>> images = keras.random.uniform((2, 224, 112, 3))
    >>> PatchEmbed(hidden_dim=768, patch_size=16)(images).shape
    (2, 98, 768)
    """

    def __init__(self, hidden_dim, patch_size, **kwargs):
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.patch_size = patch_size
        self.projection = keras.layers.Conv2D(
            hidden_dim,
            kernel_size=patch_size,
            strides=patch_size,
            padding="valid",
            data_format="channels_last",
            kernel_initializer="lecun_normal",
            bias_initializer="zeros",
            dtype=self.dtype_policy,
            name="projection",
        )

    def build(self, input_shape):
        if len(input_shape) != 4 or None in input_shape[1:]:
            raise ValueError(
                "PatchEmbed needs images of shape (batch, height, width, "
                "channels), the last three known. Received: "
                f"input_shape={tuple(input_shape)}. Give the size of the "
                "images, for example keras.Input((224, 224, 3))."
            )
        check_divisible(input_shape[1:3], self.projection.kernel_size)
        self.projection.build(input_shape)

    def call(self, images):
        x = self.projection(images)  # (B, R, C, D)
        return ops.reshape(
            x, (-1, x.shape[1] * x.shape[2], self.hidden_dim)
        )  # (B, N, D)

    def compute_output_shape(self, input_shape):
        batch, rows, columns, dim = self.projection.compute_output_shape(
            input_shape
        )
        return (batch, rows * columns, dim)


def check_divisible(
    image_size: tuple, patch_size: tuple, what: str = "Images", unit="pixels"
) -> None:
    """Raises a ValueError unless the patch divides the image.

    Args:
        image_size: (height, width).
        patch_size: (height, width) in the same unit.
        what: str, what is cut, for the message.
        unit: str, the unit of both, for the message.
    """
    if any(
        size % patch for size, patch in zip(image_size, patch_size, strict=True)
    ):
        nearest = tuple(
            max(patch, round(size / patch) * patch)
            for size, patch in zip(image_size, patch_size, strict=True)
        )
        raise ValueError(
            f"{what} of {image_size[0]}x{image_size[1]} {unit} (height x "
            f"width) cannot be cut into patches of {patch_size[0]}x"
            f"{patch_size[1]}: the patch must divide both sides. Choose "
            f"another patch size, or a size of {nearest[0]}x{nearest[1]}."
        )
