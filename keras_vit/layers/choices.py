"""What options of the layers may be, and what their sizes must fit.

Read without Keras, by the configs of the models.
"""

__all__ = [
    "AXES",
    "BIAS_KINDS",
    "MIXER_NORMALIZATIONS",
    "MIXINGS",
    "MLP_PLACEMENTS",
    "NORMALIZATIONS",
    "NORM_PLACEMENTS",
    "PAIRS",
    "ROPES",
    "STANDARDIZATIONS",
    "check_divisible",
    "check_heads",
]

ROPES = ("axial", "centered", "mixed")
PAIRS = ("neighbors", "halves")
AXES = ("row_first", "column_first")
BIAS_KINDS = ("table", "mlp", "mlp_swin")
NORMALIZATIONS = ("layer_norm", "rms_norm")
NORM_PLACEMENTS = ("before", "after")
MLP_PLACEMENTS = ("after", "beside")
MIXINGS = ("mlp", "linear", "spatial_gating")
MIXER_NORMALIZATIONS = ("layer_norm", "affine")
STANDARDIZATIONS = ("deviation", "variance")


def check_heads(dim: int, num_heads: int) -> None:
    """Raises a ValueError unless the heads divide the hidden dimension."""
    if num_heads < 1 or dim % num_heads:
        raise ValueError(
            f"num_heads={num_heads} does not divide the hidden dimension "
            f"{dim}, so the heads cannot be of equal size. Choose one of "
            f"{[n for n in range(1, min(dim, 64) + 1) if dim % n == 0]}."
        )


def check_divisible(
    image_size: tuple, patch_size: tuple, what: str = "Images", unit="pixels"
) -> None:
    """Raises a ValueError unless the patch divides the image."""
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
