"""The models of the papers, as tables.

Sources: Table 1 of "An Image Is Worth 16x16 Words" (arXiv:2010.11929) for B,
L, H; "How to train your ViT?" (arXiv:2106.10270) for Ti, S and the hybrids;
Table 2 of "Scaling Vision Transformers" (arXiv:2106.04560) for M, g, G;
"Getting ViT in Shape" (arXiv:2305.13035) for So400m; Table 1 of "MLP-Mixer"
(arXiv:2105.01601); "Big Transfer" (arXiv:1912.11370) for BiT.
"""

import fnmatch
from typing import Any

from keras_vit.io.checks import check_kind

__all__ = [
    "BIT",
    "DIGITS",
    "MIXER",
    "TINY",
    "TINY_MIXER",
    "VIT",
    "VIT_SIZES",
    "list_models",
]


def _size(hidden_dim, num_layers, mlp_dim, num_heads):
    return {
        "hidden_dim": hidden_dim,
        "num_layers": num_layers,
        "mlp_dim": mlp_dim,
        "num_heads": num_heads,
    }


VIT_SIZES: dict[str, dict[str, Any]] = {
    "Ti": _size(192, 12, 768, 3),
    "S": _size(384, 12, 1536, 6),
    "M": _size(512, 12, 2048, 8),
    "B": _size(768, 12, 3072, 12),
    "L": _size(1024, 24, 4096, 16),
    "So400m": _size(1152, 27, 4304, 16),
    "H": _size(1280, 32, 5120, 16),
    "g": _size(1408, 40, 6144, 16),
    "G": _size(1664, 48, 8192, 16),
}


def _vit(size, patch_size):
    return {**VIT_SIZES[size], "patch_size": (patch_size, patch_size)}


def _hybrid(size, resnet_units, patch_size=1):
    return {**_vit(size, patch_size), "resnet_units": resnet_units}


VIT: dict[str, dict[str, Any]] = {
    "ViT_Ti16": _vit("Ti", 16),
    "ViT_S8": _vit("S", 8),
    "ViT_S14": _vit("S", 14),
    "ViT_S16": _vit("S", 16),
    "ViT_S32": _vit("S", 32),
    "ViT_B8": _vit("B", 8),
    "ViT_B14": _vit("B", 14),
    "ViT_B16": _vit("B", 16),
    "ViT_B32": _vit("B", 32),
    "ViT_L14": _vit("L", 14),
    "ViT_L16": _vit("L", 16),
    "ViT_L32": _vit("L", 32),
    "ViT_H14": _vit("H", 14),
    "ViT_So400m14": _vit("So400m", 14),
    "ViT_So400m16": _vit("So400m", 16),
    "ViT_g14": _vit("g", 14),
    "ViT_G14": _vit("G", 14),
    # Called R+Ti/16, but one token stands for 32x32 pixels: the root divides
    # by 4, the patches by 8.
    "ViT_R_Ti16": _hybrid("Ti", (), patch_size=8),
    "ViT_R26_S32": _hybrid("S", (2, 2, 2, 2)),
    "ViT_R26_B32": _hybrid("B", (2, 2, 2, 2)),
    # Stage 4 of the ResNet is left out, its units are in stage 3.
    "ViT_R50_B16": _hybrid("B", (3, 4, 9)),
    "ViT_R50_L32": _hybrid("L", (3, 4, 6, 3)),
}


def _mixer(
    patch_size, hidden_dim, num_layers, tokens_mlp_dim, channels_mlp_dim
):
    return {
        "patch_size": (patch_size, patch_size),
        "hidden_dim": hidden_dim,
        "num_layers": num_layers,
        "tokens_mlp_dim": tokens_mlp_dim,
        "channels_mlp_dim": channels_mlp_dim,
    }


MIXER: dict[str, dict[str, Any]] = {
    "Mixer_S8": _mixer(8, 512, 8, 256, 2048),
    "Mixer_S16": _mixer(16, 512, 8, 256, 2048),
    "Mixer_S32": _mixer(32, 512, 8, 256, 2048),
    "Mixer_B16": _mixer(16, 768, 12, 384, 3072),
    "Mixer_B32": _mixer(32, 768, 12, 384, 3072),
    "Mixer_L16": _mixer(16, 1024, 24, 512, 4096),
    "Mixer_L32": _mixer(32, 1024, 24, 512, 4096),
    "Mixer_H14": _mixer(14, 1280, 32, 640, 5120),
}

BIT_UNITS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


def _bit(depth, width_factor):
    return {"units": BIT_UNITS[depth], "width": 64 * width_factor}


BIT: dict[str, dict[str, Any]] = {
    "BiT_R50x1": _bit(50, 1),
    "BiT_R50x3": _bit(50, 3),
    "BiT_R101x1": _bit(101, 1),
    "BiT_R101x3": _bit(101, 3),
    "BiT_R152x2": _bit(152, 2),
    "BiT_R152x4": _bit(152, 4),
}


# The model of the quick start, which has no name; chosen on validation images.
DIGITS = {
    **_size(64, 4, 128, 4),
    "image_size": (16, 16),
    "channels": 1,
    "patch_size": (4, 4),
    "pooling": "mean",
}
# The smallest of each kind, to try a recipe out on images of 32x32.
TINY = _size(8, 2, 8, 2)
TINY_MIXER = _mixer(8, 8, 2, 4, 8)


def list_models(pattern: str = "*") -> list[str]:
    """Lists the models by name.

    Args:
        pattern: str, of which `*` stands for any letters.

    Example:
        >>> keras_vit.list_models("ViT_B*")
        ['ViT_B14', 'ViT_B16', 'ViT_B32', 'ViT_B8']
    """
    check_kind(str, pattern=pattern)
    return sorted(fnmatch.filter([*VIT, *MIXER, *BIT], pattern))
