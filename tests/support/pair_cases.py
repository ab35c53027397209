"""Pairs of towers in miniature, one of each kind, by the original libraries.

Their weights are computed here and in `tools/golden_pairs.py` of the names of
the tensors alone, so that no file holds them.
"""

import json
import pathlib
import zlib

import numpy as np

PAIRS = pathlib.Path(__file__).parents[1] / "reference" / "text" / "pairs"


def weights(shapes: dict) -> dict[str, np.ndarray]:
    """Return values of tensors, none of them zero or one."""
    found = {}
    for name, shape in shapes.items():
        random = np.random.default_rng(zlib.crc32(name.encode()))
        values = random.standard_normal(shape, "float32")
        scale = 0.3 if len(shape) < 2 else np.prod(shape[1:]) ** -0.5
        is_norm = "norm" in name or ".ln_" in name or name.startswith("ln_")
        center = 1 if name.endswith("weight") and is_norm else 0
        if name.endswith(("running_var", "temperature")):
            values, center = np.abs(values), 0.5
        found[name] = np.asarray(values * scale + center, "float32")
    return found


def inputs(size: tuple[int, int], text: dict) -> tuple:
    """Return images (2, H, W, 3) and ids (4, L), padded with 0.

    They end in 63, or in what the config of open_clip pools.
    """
    random = np.random.default_rng(0)
    images = random.uniform(-1, 1, (2, *size, 3)).astype("float32")
    length = text["context_length"]
    ids = random.integers(5, 62, (4, length))
    last = text["eos_id"] if text.get("pool_type") == "eos" else 63
    for row, end in zip(ids, (3, 7, 10, length - 1), strict=True):
        row[end] = last
        row[end + 1 :] = 0
    return images, ids


# Rows and columns of patches. Of one column torch 2.13 resizes positions wrong:
# interpolate with antialias gives each of (3, 1) the first of (2, 1).
GRIDS = [(2, 3), (1, 5)]


def sequences() -> dict[str, np.ndarray]:
    """Return two images of other aspect ratios, as sequences of patches."""
    random = np.random.default_rng(1)
    places = [[(i, j) for i in range(r) for j in range(c)] for r, c in GRIDS]
    longest = max(map(len, places))
    found = {
        "patches": np.zeros((2, longest, 768), "float32"),
        "coordinates": np.zeros((2, longest, 2), "int32"),
        "valid": np.zeros((2, longest), bool),
    }
    for row, known in enumerate(places):
        part = (row, slice(len(known)))
        found["patches"][part] = random.uniform(-1, 1, (len(known), 768))
        found["coordinates"][part] = known
        found["valid"][part] = True
    return found


def written(folder: pathlib.Path, kind: dict) -> pathlib.Path:
    """Write the files of a kind as its library names them."""
    from safetensors.numpy import save_file

    folder.mkdir()
    name, content, file = "config.json", kind["config"], "model.safetensors"
    if "model_type" not in content:
        name, file = "open_clip_config.json", f"open_clip_{file}"
        content = {"model_cfg": content, "preprocess_cfg": {}}
    (folder / name).write_text(json.dumps(content))
    save_file(weights(kind["shapes"]), folder / file)
    return folder
