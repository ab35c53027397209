"""Folders of safetensors, in one file or in several with an index."""

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from keras_vit.checkpoints.files.adapters import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
)
from keras_vit.checkpoints.files.config_values import read_json
from keras_vit.checkpoints.files.safetensors import open_safetensors
from keras_vit.checkpoints.files.tensors import (
    DAMAGED,
    TensorFile,
    check_name,
    refuse,
)
from keras_vit.trained_as import TrainedAs

__all__ = ["CONFIG", "RECORD", "WEIGHT_FILES", "open_shards", "read_shared"]

MAX_FILES = 1000
WEIGHT_FILES = ("model.safetensors", "pytorch_model.safetensors")
CONFIG = "config.json"
SAVED_MODEL = "saved_model.pb"  # of a program, which is no weights
RECORD = "keras_vit.json"  # in a folder that was shared


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
