"""Writes the golden cases in the formats of others."""

from arrays import open_tensors
from reference_cases import CASES

from keras_vit.checkpoints import save_checkpoint

PUBLIC = {
    "google-npz": "google",
    "bit-npz": "bit",
    "big_vision-npz": "big_vision",
    "huggingface": "hugging_face",
    "timm-safetensors": "timm",
    "keras-hub": "",  # is only read, as the next
    "open_clip": "",
}
SUFFIXES = {"hugging_face": "", "timm": ".safetensors"}


def format_of(name):
    if CASES[name]["family"] == "mixer" and "google" in CASES[name]["format"]:
        return "mixer"
    return PUBLIC[CASES[name]["format"]]


def saved(model, folder, format):
    path = folder / f"saved{SUFFIXES.get(format, '.npz')}"
    save_checkpoint(model, path, format=format)
    return path


def arrays(path):
    file = open_tensors(path)
    return {
        name: file.read(name)
        for name in file.tensors
        if not name.endswith("num_batches_tracked")  # no weight
    }
