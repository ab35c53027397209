"""Folders of safetensors, in one file or several, and with an adapter.

An adapter is merged into the model that it was trained for as that is read.
LoRA ("LoRA: Low-Rank Adaptation of Large Language Models", arXiv:2106.09685,
equation 3): the kernel W (out, in) becomes W + scale B A, of A (r, in) and B
(out, r), with a scale of alpha / r, or alpha / sqrt(r).
"""

import dataclasses
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from keras_vit.checkpoints.files.config_values import read_json
from keras_vit.checkpoints.files.safetensors import open_safetensors
from keras_vit.checkpoints.files.tensors import (
    DAMAGED,
    Tensor,
    TensorFile,
    check_dtype,
    check_name,
    refuse,
)
from keras_vit.trained_as import TrainedAs

__all__ = [
    "ADAPTED",
    "ADAPTER_CONFIG",
    "ADAPTER_WEIGHTS",
    "Adapter",
    "CONFIG",
    "MERGE",
    "PAIR",
    "RECORD",
    "WEIGHT_FILES",
    "open_adapter",
    "open_shards",
    "read_shared",
]

MAX_FILES = 1000
WEIGHT_FILES = ("model.safetensors", "pytorch_model.safetensors")
CONFIG = "config.json"
SAVED_MODEL = "saved_model.pb"  # of a program, which is no weights
PAIR = "pair.json"  # of two programs, an exported image-text model
RECORD = "keras_vit.json"  # in a folder that was shared
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


def read_shared(path: Path) -> TrainedAs:
    """Read what a model was trained on, from the record in a shared folder.

    Raises:
        ValueError: when it is damaged.
    """
    fields = read_json(path).get("trained_as", {})
    return TrainedAs.from_fields(fields, repr(str(path)))


def open_shards(path: Path) -> Iterator[TensorFile]:
    """Open the safetensors of a folder in turn, those of an index if any.

    Raises:
        ValueError: for a folder without weights, an index that names files
            outside of it, and a tensor that is in two files.
        OSError: when a file cannot be opened.
    """
    known, listed = set(), _listed(path)
    for name in _weight_files(path):
        part = open_safetensors(path / name)
        missing = sorted(listed.get(name, set()) - set(part.tensors))
        if missing:
            refuse(
                path / name,
                "is without a tensor that the index of its folder lists there",
                DAMAGED,
                missing[0],
            )
        twice = known & set(part.tensors)
        if twice:
            refuse(path / name, "is in two files", DAMAGED, min(twice))
        known |= set(part.tensors)
        yield part


def _listed(path) -> dict[str, set]:
    """Return the tensors that an index lists, by the names of their files."""
    found = {}
    for index in sorted(path.glob("*.safetensors.index.json"))[:1]:
        files = read_json(index).get("weight_map")
        if isinstance(files, dict):
            for tensor, name in files.items():
                found.setdefault(str(name), set()).add(tensor)
    return found


def _weight_files(path) -> list:
    """Return the names of the safetensors, those of an index if any."""
    indices = sorted(path.glob("*.safetensors.index.json"))
    if indices:
        return _indexed_files(indices[0])
    found = sorted(x.name for x in path.glob("*.safetensors"))
    if (
        found == [ADAPTER_WEIGHTS]
        or not found
        and ((path / ADAPTER_CONFIG).is_file())
    ):
        _refuse_adapter_alone(path)
    found = [x for x in found if x != ADAPTER_WEIGHTS]
    for name in WEIGHT_FILES:
        if name in found:
            return [name]
    if len(found) != 1:
        if (path / SAVED_MODEL).is_file():
            _refuse_program(path)
        if (path / PAIR).is_file():
            _refuse_pair(path)
        have = ", ".join(sorted(x.name for x in path.iterdir())[:10])
        inner = sorted(x.parent.name for x in path.glob("*/*.safetensors"))
        cure = f"Give a folder in it, such as {inner[-1]!r}. " if inner else ""
        refuse(
            path,
            f"holds {len(found)} .safetensors files and no index (it holds "
            f"{have or 'nothing'})",
            f"{cure}Expected model.safetensors, or several with an index. "
            "Weights in .bin or .pth files are pickles and are not opened; "
            "convert them with safetensors.torch.save_file.",
        )
    return found


def _refuse_program(path) -> NoReturn:
    refuse(
        path,
        "holds no weights but a SavedModel, which is a program",
        f"What keras_vit.export wrote, and you trust, is opened by its name "
        f"{str(path / SAVED_MODEL)!r}.",
    )


def _refuse_pair(path) -> NoReturn:
    refuse(
        path,
        "holds no weights but an exported image-text model, which is a program",
        "It is for labels, embeddings and searches. Take the weights that it "
        "was exported from.",
    )


def _refuse_adapter_alone(path) -> NoReturn:
    base = "the model that it was trained for"
    if (path / ADAPTER_CONFIG).is_file():
        named = read_json(path / ADAPTER_CONFIG).get("base_model_name_or_path")
        base = f"its model, {str(named)[:200]!r}" if named else base
    refuse(
        path,
        "holds an adapter and no model",
        f"Put {ADAPTER_CONFIG} and {ADAPTER_WEIGHTS} into the folder of "
        f"{base}, and load that.",
    )


def _indexed_files(index) -> list:
    files = read_json(index).get("weight_map")
    if not isinstance(files, dict):
        refuse(index, "has no weight_map", DAMAGED)
    names = sorted({str(name) for name in files.values()})
    for name in names[:MAX_FILES]:
        check_name(index, name)
        if "/" in name or "\\" in name or len(names) > MAX_FILES:
            refuse(index, f"names the file {name[:200]!r}", DAMAGED)
        if not (index.parent / name).is_file():
            refuse(index, f"names {name!r}, which is not there", DAMAGED)
    return names
