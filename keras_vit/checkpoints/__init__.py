"""Weights from and to files of every known format.

What is read, recognised by the content:

- `.npz` of Google's original code (ViT, hybrids, MLP-Mixer, BiT) and of
  big_vision, `file.npz:img` for one of several towers;
- safetensors of timm, Hugging Face and torchvision, and of Segment Anything;
- folders of Hugging Face and timm with their config.json, and presets of
  keras-hub;
- Keras's `.keras` files and folders of keras_vit's models, and `.weights.h5`.

What `save_checkpoint` writes, by its `format`:

- "google" (ViT and hybrids for the original code), "mixer", "bit" and
  "big_vision": an `.npz`;
- "timm": a folder for `timm.create_model("local-dir:...")` when the path has
  no suffix, else a file for whoever builds the model with arguments of their
  own; that config.json is in its metadata as `timm_config`, where timm has
  such a model;
- "hugging_face": a folder with `config.json`, `preprocessor_config.json` and
  `model.safetensors` of the class of transformers that computes the same: ViT,
  DeiT, BiT, DINOv2, DINOv3, SigLIP, CLIP, BEiT or AIMv2;
- "torchvision": a safetensors file;
- "keras": `.keras` or `.weights.h5`.
"""

from typing import TYPE_CHECKING

from keras_vit.runtime.environment import lazy_names

__all__ = [
    "Info",
    "LoadReport",
    "average_weights",
    "check_weights",
    "load_checkpoint",
    "load_weights",
    "read_info",
    "save_checkpoint",
]

if TYPE_CHECKING:
    from keras_vit.checkpoints.engine.loading import (
        Info,
        average_weights,
        check_weights,
        load_checkpoint,
        load_weights,
        read_info,
    )
    from keras_vit.checkpoints.engine.matching import LoadReport
    from keras_vit.checkpoints.engine.saving import save_checkpoint
else:  # They need Keras.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "keras_vit.checkpoints.engine.loading": (
                "average_weights",
                *("Info", "check_weights", "load_checkpoint"),
                *("load_weights", "read_info"),
            ),
            "keras_vit.checkpoints.engine.matching": ("LoadReport",),
            "keras_vit.checkpoints.engine.saving": ("save_checkpoint",),
        },
    )
