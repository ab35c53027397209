"""Narrow models of timm with random weights, and their files."""

import json
import pathlib

import numpy as np
from timm_stub import import_timm

SIZES = {"embed_dim": 128, "depth": 2, "num_heads": 2}
SMALL = {"img_size": 64, "num_classes": 7}


def built(name, **options):
    """A narrow model of timm, no weight zero or one."""
    options = {**SIZES, **SMALL, **options}
    options = {x: y for x, y in options.items() if y is not None}
    model = import_timm().create_model(name, pretrained=False, **options)
    return randomised(model)


def randomised(model, least_scale=0.0):
    """The model of timm with random weights, none of them zero or one."""
    import torch

    random = np.random.default_rng(0)
    with torch.no_grad():
        for key, tensor in model.state_dict().items():
            if not tensor.is_floating_point():
                continue
            scale = 0.3 if tensor.ndim < 2 else tensor[0].numel() ** -0.5
            center = float("norm" in key and key.endswith("weight"))
            drawn = random.normal(center, max(scale, least_scale), tensor.shape)
            if "running_var" in key:
                drawn = np.abs(drawn) + 0.5
            tensor.copy_(torch.from_numpy(np.asarray(drawn)).float())
    return model.eval()


def built_mixer(name, **options):
    """Two blocks of a Mixer of timm, as wide as its name says."""
    model = import_timm().create_model(name, pretrained=False, **SMALL)
    model.blocks = model.blocks[: SIZES["depth"]]
    return randomised(model)


def size_of(model):
    """(height, width) in pixels of the images of a model of timm."""
    patches = "patch_embed" if hasattr(model, "patch_embed") else "stem"
    return getattr(model, patches).img_size


def write(model, folder, stem="model", config=None):
    """The file of a model, with a config.json where one is given."""
    from safetensors.torch import save_file

    path = pathlib.Path(folder) / f"{stem}.safetensors"
    tensors = {k: x.contiguous() for k, x in model.state_dict().items()}
    save_file(tensors, path)
    if config is None:
        return path
    (path.parent / "config.json").write_text(json.dumps(config))
    return path.parent


def config_of(model, name, **arguments):
    """The fields of timm's config.json that tell what is computed."""
    size = list(size_of(model))
    sizes = SIZES if hasattr(model, "patch_embed") else {}
    return {
        "architecture": name,
        "num_classes": model.num_classes,
        "global_pool": model.global_pool,
        "model_args": {**sizes, "img_size": size, **arguments},
        "pretrained_cfg": {"input_size": [3, *size]},
    }
