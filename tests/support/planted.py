"""Data sets with planted mistakes, for audits: duplicates and wrong labels."""

import io
import pathlib
from collections.abc import Callable

import numpy as np
from PIL import Image

# Photographs of scikit-image; the others are drawings, texts and stereo pairs.
PHOTOGRAPHS = (
    *("astronaut.png", "brick.png", "camera.png", "cell.png", "chelsea.png"),
    *("clock_motion.png", "coffee.png", "coins.png", "color.png", "grass.png"),
    *("gravel.png", "hubble_deep_field.jpg", "ihc.png", "moon.png"),
    *("motorcycle_left.png", "retina.jpg", "rocket.jpg"),
)
CROP = 96  # pixels of the side of a photograph's part
LEAST_DEVIATION = 8  # levels; flatter parts, as black corners, are all one
Change = Callable[[Image.Image, np.random.Generator], Image.Image]


def digits() -> tuple[list[Image.Image], np.ndarray]:
    """The 1797 digits of scikit-learn, 8x8 pixels, and their classes."""
    from sklearn.datasets import load_digits

    source = load_digits()
    pixels = np.rint(source.images * 255 / 16).astype("uint8")
    return [Image.fromarray(x) for x in pixels], source.target


def photographs() -> list[Image.Image]:
    """Parts of photographs that do not overlap, 96x96 pixels."""
    import skimage
    from sklearn.datasets import load_sample_images

    folder = pathlib.Path(skimage.__file__).parent / "data"
    whole = [Image.open(folder / x).convert("RGB") for x in PHOTOGRAPHS]
    whole += [Image.fromarray(x) for x in load_sample_images().images]
    parts = [
        image.crop((left, top, left + CROP, top + CROP))
        for image in whole
        for top in range(0, image.height - CROP + 1, CROP)
        for left in range(0, image.width - CROP + 1, CROP)
    ]
    return [x for x in parts if np.asarray(x).std() > LEAST_DEVIATION]


def _jpeg(image, draw):
    stream = io.BytesIO()
    image.save(stream, "jpeg", quality=int(draw.integers(75, 96)))
    encoded = Image.open(stream)
    encoded.info["file"] = stream.getvalue()
    return encoded


def _mirrored(image, draw):
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def _cropped(image, draw):
    """Two per cent of each side less, at the same size."""
    width, height = image.size
    box = (0.02 * width, 0.02 * height, 0.98 * width, 0.98 * height)
    return image.resize(image.size, Image.Resampling.BICUBIC, box=box)


def _unevenly_cropped(image, draw):
    width, height = image.size
    left, right, top, bottom = draw.uniform(0, 0.02, 4)
    box = (left * width, top * height, width - right * width)
    box = (*box, height - bottom * height)
    return image.resize(image.size, Image.Resampling.BICUBIC, box=box)


def _resized(image, draw):
    factors = (0.5, 0.75, 1.5, 2.0) if min(image.size) > 32 else (1.5, 2.0, 3.0)
    factor = draw.choice(factors)
    size = [round(x * factor) for x in image.size]
    return image.resize(size, Image.Resampling.BICUBIC)


def _brighter(image, draw):
    levels = np.asarray(image, float) * draw.uniform(0.8, 1.2)
    levels = np.rint(levels + draw.uniform(-20, 20)).clip(0, 255)
    return Image.fromarray(levels.astype("uint8"))


KINDS: dict[str, tuple[Change, ...]] = {
    "JPEG": (_jpeg,),
    "mirrored": (_mirrored,),
    "cropped": (_cropped,),
    "unevenly cropped": (_unevenly_cropped,),
    "resized": (_resized,),
    "brighter or darker": (_brighter,),
    "mirrored, cropped, JPEG": (_mirrored, _unevenly_cropped, _jpeg),
    "cropped, JPEG": (_cropped, _jpeg),
    "brighter, JPEG": (_brighter, _jpeg),
    "mirrored, brighter": (_mirrored, _brighter),
    "resized, JPEG": (_resized, _jpeg),
    "all": (_mirrored, _cropped, _resized, _brighter, _jpeg),
}


def duplicates(
    images: list[Image.Image], count: int, seed: int
) -> list[tuple[int, str, Image.Image]]:
    """So many changed copies: number of the image, kind of change, copy."""
    draw = np.random.default_rng(seed)
    chosen = draw.choice(len(images), count, replace=False)
    kinds = [*KINDS.items()]
    copies = []
    for place, number in enumerate(chosen.tolist()):
        kind, changes = kinds[place % len(kinds)]
        image = images[number]
        for change in changes:
            image = change(image, draw)
        copies.append((number, kind, image))
    return copies


def write_duplicates(
    folder: pathlib.Path, images: list[Image.Image], count: int, seed: int
) -> dict[frozenset[str], str]:
    """Write images into a folder and copies beside it, train and test.

    Returns:
        The names of each image and its copy to the kind of change.
    """
    places = [folder / part / "one" for part in ("train", "test")]
    for place in places:
        place.mkdir(parents=True)
    for number, image in enumerate(images):
        image.save(places[0] / f"{number:04}.png")
    planted = {}
    for place, (number, kind, copy) in enumerate(
        duplicates(images, count, seed)
    ):
        file = copy.info.get("file")
        name = f"{place:04}.{'png' if file is None else 'jpg'}"
        if file is None:
            copy.save(places[1] / name)
        else:
            (places[1] / name).write_bytes(file)
        ends = f"train/one/{number:04}.png", f"test/one/{name}"
        planted[frozenset(ends)] = kind
    return planted


def write_flipped_digits(
    folder: pathlib.Path, seed: int, share: float = 0.05, count: int = 1797
) -> dict[str, str]:
    """Write the digits as folders of classes, some in the folder of another.

    Returns:
        The names of those to their true classes.
    """
    images, classes = digits()
    images, classes = images[:count], classes[:count]
    draw = np.random.default_rng(seed)
    chosen = draw.choice(len(classes), round(share * len(classes)), False)
    labels = classes.copy()
    labels[chosen] = (classes[chosen] + draw.integers(1, 10, len(chosen))) % 10
    for number, image in enumerate(images):
        place = folder / str(labels[number])
        place.mkdir(parents=True, exist_ok=True)
        image.save(place / f"{number:04}.png")
    return {f"{labels[i]}/{i:04}.png": str(classes[i]) for i in chosen.tolist()}
