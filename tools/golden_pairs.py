"""Golden data of each kind of pair, `python tools/golden_pairs.py`.

Each tag of pairs.csv has an architecture in open_clip's table of weights, or a
class of transformers. Here each that differs in more than its sizes is built
narrow, with weights by `tests/support/pair_cases.py`, and run. Files: its
config, the names and shapes of its tensors, and what it computes.

open_clip must be installed, which is no dependency: `pip install --no-deps
--target FOLDER open_clip_torch`, with the folder in PYTHONPATH.
"""

import copy
import csv
import importlib
import json
import pathlib
import re
import sys
import tempfile
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "support"))

import pair_cases  # noqa: E402
from timm_stub import import_timm  # noqa: E402

PAIRS = ROOT / "keras_vit" / "checkpoints" / "public" / "pairs.csv"
TEXT = {"width": 16, "heads": 2, "layers": 2, "context_length": 12}
TEXT |= {"vocab_size": 64}
VISION = {"width": 32, "head_width": 8, "layers": 2}
SMALL = {"embed_dim": 128, "depth": 2, "num_heads": 2}
# Its stem has the width that the name says.
OWN = {"vit_base_mci_224": {"depth": 1}}
# Kinds of transformers, by a part of a tag's repository.
OTHERS = {
    "wkcn/TinyCLIP": "TinyCLIP",
    "siglip2-": "SigLIP2-naflex",
    "google/tipsv2": "TIPSv2",
}


def main() -> None:
    # It asks first whether torchvision is there, which open_clip is told.
    importlib.import_module("transformers.models.tipsv2.modeling_tipsv2")
    import_timm("open_clip")
    architectures = by_repository()
    kinds: dict[str, Any] = {}
    tags, arrays = {}, {}
    with PAIRS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        named = [y for x, y in OTHERS.items() if x in row["repository"]]
        tags[row["name"]] = named or [
            kind_of(kinds, x) for x in architectures[row["repository"].lower()]
        ]
    for name, config in kinds.items():
        kinds[name], found = measured(config)
        arrays |= {f"{name}/{x}": y for x, y in found.items()}
    for name in OTHERS.values():
        kinds[name], found = transformers_pair(name)
        arrays |= {f"{name}/{x}": y for x, y in found.items()}
    for found in tags.values():
        found[:] = dict.fromkeys(found)
    lines = [
        f'"{key}": {{\n'
        + ",\n".join(
            f"{json.dumps(x)}: {json.dumps(y)}" for x, y in part.items()
        )
        + "\n}"
        for key, part in (("tags", tags), ("kinds", kinds))
    ]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    pair_cases.PAIRS.with_suffix(".json").write_text(text, "utf-8")
    np.savez_compressed(pair_cases.PAIRS.with_suffix(".npz"), **arrays)


def by_repository() -> dict:
    """Return the names of architectures, by repositories of their weights."""
    from open_clip.pretrained import (  # pyright: ignore[reportMissingImports]
        _PRETRAINED,
    )

    found: dict = {}
    for name, weights in _PRETRAINED.items():
        for told in weights.values():
            repository = told.get("hf_hub", "").partition("/open_clip")[0]
            names = found.setdefault(repository.strip("/").lower(), [])
            if name not in names:
                names.append(name)
    return found


def kind_of(kinds: dict, architecture: str) -> str:
    """Return the kind of an architecture, which is kept where it is new."""
    import open_clip  # pyright: ignore[reportMissingImports]

    found = narrowed(open_clip.get_model_config(architecture))
    for name, config in kinds.items():
        if without_sizes(config) == without_sizes(found):
            return name
    kinds[architecture] = found
    return architecture


def narrowed(config: dict) -> dict:
    config = copy.deepcopy(config)
    vision, text = config["vision_cfg"], config["text_cfg"]
    same = config["embed_dim"] == text["width"]
    text |= TEXT
    config["embed_dim"] = 16 if same else 24
    patch = 14 if "14" in vision.get("timm_model_name", "") else 16
    vision["image_size"] = 2 * vision.get("patch_size", patch)
    if "timm_model_name" in vision:
        if vision["timm_proj"] == "none":
            config["embed_dim"] = SMALL["embed_dim"]
            text["width"] = config["embed_dim"] if same else 16
    else:
        vision |= VISION
    return config


def without_sizes(config: dict) -> dict:
    """Return what differs between kinds."""
    config = copy.deepcopy(config)
    vision = config["vision_cfg"]
    for part, names in (
        (vision, ("image_size", "patch_size", "mlp_ratio")),
        (config["text_cfg"], ("hf_tokenizer_name", "mlp_ratio", "eos_id")),
    ):
        for name in names:
            part.pop(name, None)
    name = vision.get("timm_model_name", "")
    size = r"_(base|large|huge|giantopt|so400m|small|tiny|gigantic)|_\d+$"
    vision["timm_model_name"] = re.sub(rf"({size}|_patch\d+)", "", name)
    return config


def measured(config: dict) -> tuple[dict, dict]:
    import open_clip  # pyright: ignore[reportMissingImports]

    timm: Any = import_timm()
    vision, create = config["vision_cfg"], timm.create_model

    def small(name, **options):
        sizes = OWN.get(name, SMALL)
        return create(name, **options, **sizes, img_size=vision["image_size"])

    timm.create_model = small
    name = "CustomTextCLIP" if config.get("custom_text") else "CLIP"
    known = {x: y for x, y in config.items() if x != "custom_text"}
    model = getattr(open_clip.model, name)(**known).eval()
    timm.create_model = create
    shapes = {x: list(y.shape) for x, y in model.state_dict().items()}
    shapes.pop("attn_mask", None)  # Older files have it.
    model.load_state_dict(
        {x: torch.tensor(y) for x, y in pair_cases.weights(shapes).items()},
        strict=False,
    )
    size = 2 * (vision["image_size"],)
    images, ids = pair_cases.inputs(size, config["text_cfg"])
    given = torch.tensor(images, requires_grad=True)
    found = [
        model.encode_image(given.permute(0, 3, 1, 2)),
        model.encode_text(torch.tensor(ids)),
    ]
    return {"config": config, "shapes": shapes}, compared(model, given, *found)


def compared(model, given, images, texts) -> dict:
    images, texts = (x / x.norm(dim=-1, keepdim=True) for x in (images, texts))
    logits = model.logit_scale.exp() * images @ texts.T
    if (bias := getattr(model, "logit_bias", None)) is not None:
        logits = logits + bias
    found = {"images": images, "texts": texts, "logits": logits}
    return {**as_arrays(found), "gradient": gradient_of(logits, given)}


def as_arrays(found: dict) -> dict[str, np.ndarray]:
    return {x: y.detach().numpy().astype("float32") for x, y in found.items()}


def gradient_of(logits, images) -> np.ndarray:
    """Return that of the score of an image and a text, (H, W, C)."""
    logits[1, 2].backward(retain_graph=True)
    return images.grad[1].numpy().astype("float32")


def transformers_pair(name: str) -> tuple[dict, dict]:
    import transformers

    tower = {"hidden_size": 16, "num_attention_heads": 2}
    tower |= {"num_hidden_layers": 2, "intermediate_size": 24}
    text = {**tower, "vocab_size": 64, "max_position_embeddings": 12}
    vision = {**tower, "patch_size": 16, "image_size": 32}
    more: dict
    kind, more = {
        "TinyCLIP": ("CLIP", {"projection_dim": 24}),
        "SigLIP2-naflex": ("Siglip2", {}),
        "TIPSv2": ("Tipsv2", {}),
    }[name]
    if name == "TIPSv2":
        del vision["intermediate_size"]
    if name == "TinyCLIP":
        text |= {"eos_token_id": 63, "bos_token_id": 62}
    if name == "SigLIP2-naflex":
        vision = {**tower, "patch_size": 16, "num_patches": 4}
        text["projection_size"] = 16
    config = getattr(transformers, f"{kind}Config")(
        text_config=text, vision_config=vision, **more
    )
    make = getattr(transformers, f"{kind}Model")
    with tempfile.TemporaryDirectory() as folder:
        make(config).save_pretrained(folder)
        file = pathlib.Path(folder) / "model.safetensors"
        saved = load_file(file).items()
        shapes = {x: list(y.shape) for x, y in saved if not x.endswith("_ids")}
        save_file(pair_cases.weights(shapes), file, {"format": "pt"})
        model = make.from_pretrained(folder).eval()
    images, ids = pair_cases.inputs((32, 32), TEXT)
    source = torch.tensor(images, requires_grad=True)
    given: dict = {"pixel_values": source.permute(0, 3, 1, 2)}
    if name == "SigLIP2-naflex":
        patches = source.reshape(2, 2, 16, 2, 16, 3).permute(0, 1, 3, 2, 4, 5)
        given = {
            "pixel_values": patches.reshape(2, 4, 768),
            "pixel_attention_mask": torch.ones(2, 4, dtype=torch.int64),
            "spatial_shapes": torch.tensor([[2, 2], [2, 2]]),
        }
    given["input_ids"] = torch.tensor(ids)
    if name == "TIPSv2":
        given["attention_mask"] = torch.tensor(ids != 0).long()
    output = model(**given)
    found = {
        "images": output.image_embeds,
        "texts": output.text_embeds,
        "logits": output.logits_per_image,
    }
    gradient = gradient_of(output.logits_per_image, source)
    if name == "SigLIP2-naflex":
        sequences = pair_cases.sequences()
        output = model(
            input_ids=given["input_ids"],
            pixel_values=torch.tensor(sequences["patches"]),
            pixel_attention_mask=torch.tensor(sequences["valid"]).long(),
            spatial_shapes=torch.tensor(pair_cases.GRIDS),
        )
        found["rectangles"] = output.image_embeds
        found["rectangle_logits"] = output.logits_per_image
    found = {**as_arrays(found), "gradient": gradient}
    return {"config": config.to_diff_dict(), "shapes": shapes}, found


if __name__ == "__main__":
    main()
