"""Towers of texts by the original libraries, and what makes them here."""

import pathlib

from keras_vit.text import TextConfig, TextTransformer
from keras_vit.text.pair_files import load_tower, open_text

FOLDER = pathlib.Path(__file__).parents[1] / "reference" / "text"
SOURCES = {
    "big_vision_siglip": "big_vision_siglip/checkpoint.npz",
    **{
        x: x
        for x in (
            *("clip_quick_gelu", "metaclip_2", "open_clip_clip"),
            *("open_clip_siglip2_layout", "siglip", "tipsv2"),
        )
    },
}


def tower_of(source):
    half = open_text(source)
    return load_tower(half, lambda: TextTransformer(TextConfig(**half.fields)))
