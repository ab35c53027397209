"""The record of an exported model: inside its file, and beside it."""

import json
import pathlib
import zipfile
from collections.abc import Callable, Mapping

from keras_vit.io.atomic_files import replacing
from keras_vit.prediction.exported_model import (
    OPENVINO_RECORD,
    RECORD,
    SAVED_MODEL_RECORD,
)

__all__ = ["embed", "write_record_beside"]


def embed(path: pathlib.Path, record: Mapping) -> None:
    """Writes a record into the file or folder that it is about."""
    EMBED[record["format"]](path, json.dumps(record))


def write_record_beside(path: pathlib.Path, record: Mapping) -> None:
    """Writes the record for people, and for programs without the runtime."""
    beside = path.with_name(f"{path.name}.{RECORD}")
    text = json.dumps(record, indent=2, ensure_ascii=False)
    with replacing(beside) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def _into_onnx(path, text):
    import onnx

    content = onnx.load(path, load_external_data=False)
    onnx.helper.set_model_props(content, {RECORD: text})
    onnx.save(content, path)


def _into_openvino(path, text):
    from xml.etree import ElementTree

    tree = ElementTree.parse(path)
    root = tree.getroot()
    if (about := root.find("rt_info")) is None:
        about = ElementTree.SubElement(root, "rt_info")
    # It has the path of a file that is gone.
    for part in about.findall("conversion_parameters"):
        about.remove(part)
    ElementTree.SubElement(about, OPENVINO_RECORD, value=text)
    tree.write(path, encoding="utf-8", xml_declaration=True)


def _into_zip(path, text):
    """Appends to a zip, or a zip to what ignores what is behind its end."""
    with zipfile.ZipFile(path, "a") as file:
        names = file.namelist()
        # torch reads other entries of its files in a folder of this name.
        folder = f"{names[0].partition('/')[0]}/extra/" if names else ""
        file.writestr(folder + RECORD, text)


def _into_saved_model(path, text):
    record = path / SAVED_MODEL_RECORD
    record.parent.mkdir(exist_ok=True)
    record.write_text(text, encoding="utf-8")


EMBED: dict[str, Callable[[pathlib.Path, str], None]] = {
    "onnx": _into_onnx,
    "openvino": _into_openvino,
    "litert": _into_zip,
    "saved_model": _into_saved_model,
    "stablehlo": _into_zip,
    "pt2": _into_zip,
}
