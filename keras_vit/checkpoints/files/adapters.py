"""Adapters beside the model that they were trained for, merged as it is read.

LoRA ("LoRA: Low-Rank Adaptation of Large Language Models", arXiv:2106.09685,
equation 3): the kernel W (out, in) becomes W + scale B A, of A (r, in) and B
(out, r), with a scale of alpha / r, or alpha / sqrt(r).
"""

import dataclasses
import math
import re
from collections.abc import Callable
from pathlib import Path

from keras_vit.checkpoints.files.config_values import read_json
from keras_vit.checkpoints.files.safetensors import open_safetensors
from keras_vit.checkpoints.files.tensors import Tensor, check_dtype, refuse

__all__ = [
    "ADAPTED",
    "ADAPTER_CONFIG",
    "ADAPTER_WEIGHTS",
    "MERGE",
    "Adapter",
    "open_adapter",
]

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
MERGE = (
    "Load the model in the library that trained it, merge the adapter "
    "(merge_and_unload) and save the whole."
)
# Fields that change what is computed, and their values without effect.
FIXED = {
    "peft_type": ("LORA",),
    "use_dora": (False,),
    "use_qalora": (False,),
    "fan_in_fan_out": (False,),
    "lora_bias": (False,),
    "layer_replication": (None,),
    "target_parameters": (None, []),
    "trainable_token_indices": (None,),
    "alora_invocation_tokens": (None,),
}
WRAPPER = "base_model.model."
FACTOR = re.compile(r"(.+)\.lora_([AB])\.weight")
SLOW = re.compile(r"[+*{][^()]*\)[+*{]")
# Names that only an adapter has, or a model around its layers.
ADAPTED = re.compile(
    r".*\.(lora_\w+|base_layer|original_module|modules_to_save|ia3_l|hada_\w+"
    r"|oft_\w+|vera_\w+)(\..*)?"
)


@dataclasses.dataclass(frozen=True)
class Adapter:
    """What an adapter changes in the tensors of its model.

    Args:
        path: str, its folder.
        factors: dict from the name of a layer to (A, B, scale).
        whole: dict from the name of a tensor to the `Tensor` that takes its
            place, such as a new head's.
    """

    path: str
    factors: dict
    whole: dict

    def merged(self, tensors: dict, rename: Callable[[str], str]) -> dict:
        """Return the tensors of the model with the adapter's changes.

        Args:
            tensors: dict from name to `Tensor`.
            rename: from a name in the adapter to the one in `tensors`.

        Raises:
            ValueError: for layers that the model does not have, or whose
                shape is another.
        """
        result = dict(tensors)
        for layer, (down, up, scale) in self.factors.items():
            name = rename(f"{layer}.weight")
            if name not in tensors:
                refuse(
                    self.path,
                    f"has an adapter of the layer {layer}, which the model "
                    "beside it does not have",
                    "Put it beside the model that it was trained for.",
                )
            base = tensors[name]
            shapes = base.shape, up.shape, down.shape
            if not _fit(*shapes):
                refuse(
                    self.path,
                    f"has factors {up.shape} and {down.shape} for a kernel "
                    f"{base.shape}",
                    "Put it beside the model that it was trained for.",
                    layer,
                )
            check_dtype(self.path, layer, base.dtype)
            result[name] = dataclasses.replace(
                base, dtype=down.dtype, read=_reader(base, down, up, scale)
            )
        return result | {rename(x): y for x, y in self.whole.items()}


def _fit(kernel, up, down) -> bool:
    pairs = len(kernel) == len(up) == len(down) == 2
    return pairs and (up[0], down[1]) == kernel and up[1] == down[0]


def _reader(base, down, up, scale):
    def read():
        kernel, low, high = (
            x.read().astype("float32") for x in (base, down, up)
        )
        return kernel + scale * (high @ low)

    return read


def open_adapter(folder: Path) -> Adapter:
    """Open the adapter in a folder that has its config.

    Raises:
        ValueError: for another kind of adapter than LoRA of dense layers, and
            one that is no safetensors.
    """
    config = folder / ADAPTER_CONFIG
    content = read_json(config)
    for name, values in FIXED.items():
        found = content.get(name, values[0])
        if not any(type(x) is type(found) and x == found for x in values):
            refuse(
                config, f"has {name}={found!r}"[:200] + ", not computed", MERGE
            )
    if not (folder / ADAPTER_WEIGHTS).is_file():
        refuse(folder, f"has {config.name} and no {ADAPTER_WEIGHTS}", MERGE)
    file = open_safetensors(folder / ADAPTER_WEIGHTS)
    factors: dict = {}
    whole: dict[str, Tensor] = {}
    for name, tensor in file.tensors.items():
        # A bias that was trained is inside of the layer that LoRA wraps.
        inner = name.removeprefix(WRAPPER)
        inner = re.sub(r"\.base_layer\.bias$", ".bias", inner)
        if match := FACTOR.fullmatch(inner):
            factors.setdefault(match[1], {})[match[2]] = tensor
        elif ADAPTED.fullmatch(inner) or not name.startswith(WRAPPER):
            refuse(file.path, "is of no known adapter", MERGE, name)
        else:
            whole[inner] = tensor
    layers = {
        layer: _checked(file.path, config, content, layer, pair)
        for layer, pair in factors.items()
    }
    return Adapter(str(folder), layers, whole)


def _checked(path, config, content, layer, pair) -> tuple:
    """Return both factors of a layer and their scale."""
    if len(pair) != 2 or not all(len(x.shape) == 2 for x in pair.values()):
        refuse(path, "has no two factors of a dense layer", MERGE, layer)
    patterns = content.get("alpha_pattern") or {}
    # Repetitions of repetitions would keep the search busy for ever.
    if not isinstance(patterns, dict) or any(map(SLOW.search, patterns)):
        refuse(config, f"has alpha_pattern={patterns!r}"[:200], MERGE)
    alpha = next(
        (
            value
            for key, value in patterns.items()
            if re.fullmatch(rf"(.*\.)?({key})", layer)
        ),
        content.get("lora_alpha", 8),
    )
    if type(alpha) not in (int, float):
        refuse(config, f"has lora_alpha={alpha!r}"[:200], "Expected a number.")
    rank = pair["A"].shape[0]
    root = content.get("use_rslora") is True
    return pair["A"], pair["B"], alpha / (math.sqrt(rank) if root else rank)
