"""Compares public weights with the numbers that others' tests expect of them.

    python tools/public_goldens.py

For people with a network: downloads a few weights of huggingface.co (1.2 GB)
and a photograph of transformers' tests, computes with keras_vit, and prints a
table to post. The numbers are those of transformers' tests; timm's models are
run beside ours, as timm's tests hold none, where torchvision is installed,
which timm needs. The pixels are those of transformers' and timm's preparation.
"""

import argparse
import importlib
import pathlib
import tempfile
import urllib.request
from typing import Any, NamedTuple

import numpy as np

from keras_vit import load_checkpoint
from keras_vit.io.tables import markdown_table
from keras_vit.runtime.machine import versions

PHOTOGRAPH = (
    "https://raw.githubusercontent.com/huggingface/transformers/main/"
    "tests/fixtures/tests_samples/COCO/000000039769.png"
)


class Golden(NamedTuple):
    """What a test of transformers expects.

    numbers: the first logits, or the first of the first tokens.
    size: pixels of a side, where it is not that of the weights.
    """

    numbers: tuple
    tolerance: float
    size: int | None = None


# tests/models/vit, dinov2.
GOLDENS = {
    "google/vit-base-patch16-224": Golden((-0.2744, 0.8215, -0.0836), 1e-3),
    "facebook/dino-vits8": Golden(
        (
            (4.2325, 4.3882, -6.6678),
            (4.5372, 1.8933, -6.7355),
            (4.4454, 0.8514, -5.8747),
        ),
        1e-2,
        480,
    ),
    "facebook/dinov2-base": Golden(
        (
            (-2.1747, -0.4729, 1.0936),
            (-3.2780, -0.8269, -0.9210),
            (-2.9129, 1.1284, -0.7306),
        ),
        1e-2,
    ),
}
OF_TIMM = (
    "vit_small_patch16_224.augreg_in1k",
    "vit_base_patch16_clip_224.openai_ft_in1k",
    "mixer_b16_224.goog_in21k_ft_in1k",
)
TIMM_TOLERANCE = 1e-3


def of_transformers(name: str, golden: Golden, photograph) -> float:
    """Return the largest difference from the numbers of a test."""
    import transformers

    load: Any = transformers.AutoImageProcessor.from_pretrained
    size = {} if golden.size is None else {"size": golden.size}
    prepared = load(name, backend="pil", **size)(
        photograph, return_tensors="np"
    )
    pixels = np.moveaxis(np.asarray(prepared["pixel_values"]), 1, -1)
    wanted = np.array(golden.numbers)
    options = {} if wanted.ndim == 1 else {"pooling": "none", "classes": 0}
    found = output(name, pixels, **options)[0]
    found = found[: len(wanted)]
    if wanted.ndim == 2:
        found = found[:, : wanted.shape[1]]
    return float(np.abs(found - wanted).max())


def of_timm(name: str, photograph) -> float:
    """Return the largest difference from the logits of timm's model."""
    import torch

    timm: Any = importlib.import_module("timm")
    data: Any = importlib.import_module("timm.data")
    theirs = timm.create_model(name, pretrained=True).eval()
    config = data.resolve_model_data_config(theirs)
    prepare = data.create_transform(**config, is_training=False)
    pixels = prepare(photograph)[None]
    with torch.no_grad():
        wanted = theirs(pixels).numpy()
    found = output(f"timm/{name}", np.moveaxis(pixels.numpy(), 1, -1))
    return float(np.abs(found - wanted).max())


def output(name: str, pixels: np.ndarray, **options) -> np.ndarray:
    """Return what our model makes of prepared pixels (N, H, W, C)."""
    model = load_checkpoint(
        name,
        input_shape=pixels.shape[1:],
        include_preprocessing=False,
        **({} if options else {"classifier_activation": None}),
        **options,
    )
    return np.asarray(model.predict(pixels, verbose=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--image", type=pathlib.Path, help="downloaded before")
    path = parser.parse_args().image
    with tempfile.TemporaryDirectory() as folder:
        if path is None:
            path = pathlib.Path(folder, "photograph.png")
            urllib.request.urlretrieve(PHOTOGRAPH, path)
        from PIL import Image

        photograph = Image.open(path).convert("RGB")
    cases: list[Any] = [
        (
            name,
            "transformers' test",
            of_transformers,
            (name, golden, photograph),
        )
        for name, golden in GOLDENS.items()
    ]
    cases += [(name, "timm", of_timm, (name, photograph)) for name in OF_TIMM]
    rows = []
    for name, source, measure, arguments in cases:
        golden = GOLDENS.get(name)
        tolerance = golden.tolerance if golden else TIMM_TOLERANCE
        try:
            difference = measure(*arguments)
            said = "yes" if difference <= tolerance else "no"
            rows.append([name, source, f"{difference:.1e}", tolerance, said])
        except Exception as error:
            rows.append([name, source, None, tolerance, f"error: {error}"[:60]])
        print(*rows[-1], flush=True)
    header = ["weights", "against", "difference", "allowed", "within"]
    print(*markdown_table(header, rows, header[2:4]), sep="\n")
    print("\n" + ", ".join(f"{k} {x}" for k, x in versions().items()))


if __name__ == "__main__":
    main()
