"""Golden data of folders of open_clip, see `make_golden.py`.

open_clip must be installed, which is no dependency: `pip install --target
FOLDER open_clip_torch`, with the folder in PYTHONPATH.
"""

import json
import pathlib
import shutil

import numpy as np
import torch
from safetensors.torch import save_file
from timm_models import randomised

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "tests" / "reference"
VISION = {
    **{"image_size": 32, "patch_size": 8, "layers": 2, "width": 16},
    "head_width": 8,
}
TEXTS = {
    **{"context_length": 4, "vocab_size": 8, "width": 16, "heads": 2},
    "layers": 1,
}
PLAIN = {"embed_dim": 10, "vision_cfg": VISION, "text_cfg": TEXTS}
CLIPA = {"pool_type": "avg", "final_ln_after_pool": True, "no_ln_pre": True}
# By name: the class and its config.
CASES = {
    "open_clip_tiny": ("CLIP", {**PLAIN, "quick_gelu": True}),
    "open_clip_text_tiny": (
        "CustomTextCLIP",
        {**PLAIN, "vision_cfg": {**VISION, "ls_init_value": 0.1}},
    ),
    "open_clip_mean_tiny": (
        "CustomTextCLIP",
        {**PLAIN, "vision_cfg": {**VISION, **CLIPA}},
    ),
}


def write(name) -> dict:
    """Writes the files of a case; returns its entry in cases.json."""
    import open_clip  # pyright: ignore[reportMissingImports]

    kind, config = CASES[name]
    model = randomised(getattr(open_clip.model, kind)(**config))
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if ".ln_" in key and key.endswith("weight"):
                weight += 1
    path = FOLDER / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    content = {"model_cfg": config, "preprocess_cfg": {}}
    (path / "open_clip_config.json").write_text(json.dumps(content, indent=1))
    save_file(
        {x: y.contiguous() for x, y in model.state_dict().items()},
        path / "open_clip_model.safetensors",
    )
    np.savez_compressed(FOLDER / f"{name}.expected.npz", **outputs(model))
    return {
        "checkpoint": f"{name}/",
        "expected": f"{name}.expected.npz",
        "family": "vit",
        "format": "open_clip",
        "model_class": kind,
        **config,
    }


@torch.no_grad()
def outputs(model) -> dict:
    """What open_clip computes of two images."""
    images = np.random.default_rng(0).uniform(-1, 1, (2, 32, 32, 3))
    images = images.astype("float32")
    theirs = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
    tower = model.visual
    tokens = tower.transformer(tower._embeds(theirs))
    pooled, _ = tower._pool(tokens)
    arrays = {
        "image": images,
        "pre_logits": pooled,
        "logits": model.encode_image(theirs),
    }
    if not tower.final_ln_after_pool:
        arrays["encoded"] = tower.ln_post(tokens)
    return {x: np.asarray(y) for x, y in arrays.items()}
