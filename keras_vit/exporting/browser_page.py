"""A page that classifies pictures by an ONNX file, on the user's own device."""

import base64
import json
import math
import os
import pathlib
import urllib.parse
from collections.abc import Mapping
from typing import Any

from keras_vit.data import PreprocessingConfig
from keras_vit.data.resizing import EVALUATION_CROPS, Geometry
from keras_vit.io.atomic_files import replacing
from keras_vit.prediction.by_labels import words_of
from keras_vit.prediction.exported_model import INPUT, OUTPUT, read_record
from keras_vit.prediction.exported_pair import exported_pair
from keras_vit.prediction.picture_page import picture_page, shipped_text
from keras_vit.text.zero_shot import ClassEmbeddings

__all__ = ["RUNTIME", "page", "write_page"]

VERSION = "1.30.0"  # of onnxruntime-web
RUNTIME = f"https://cdn.jsdelivr.net/npm/onnxruntime-web@{VERSION}/dist/"
# Its files, and the hashes by which a browser checks their version.
FILES = {
    "ort.wasm.bundle.min.mjs": "sha384-"
    "PLWz+nHEVHpjwBsO0YVdvQj6n5814Iv8E3b8FG0Rp/uIAtjFMCKOpP66iPzedrIG",
    "ort-wasm-simd-threaded.wasm": "sha384-"
    "vjBJ1z7qrhkTyYsNqKeF6c7N+nOJSU94czEo+tvZcu8G75JparGq9kB+kTnEUNVM",
}


def write_page(
    model: str | os.PathLike,
    path: str | os.PathLike | None = None,
    *,
    runtime: str = RUNTIME,
    labels: Any = None,
    template: Any = None,
) -> pathlib.Path:
    """Writes a page that classifies dropped pictures by an exported model.

    The page fetches the model from where it lies relative to the page, and
    onnxruntime-web from `runtime`; pictures stay on the device. They are
    prepared as `keras_vit.predict` does it.

    Args:
        model: the ONNX file, which `keras_vit.export` wrote, or the folder of
            both towers that `keras_vit.exporting.export_pair` wrote.
        path: the page to write; by default beside the model, `vit.html`.
        runtime: address of a folder with the files of onnxruntime-web, which
            may be relative to the page. The default is a content delivery
            network, whose files are checked by their hashes.
        labels: of both towers, the classes by words, see
            `keras_vit.prediction.load_zero_shot`. Their embeddings are
            computed now and stand in the page: words do not change there.
        template: see `keras_vit.text.class_embeddings`; not with embeddings.

    Returns:
        The path of the page.

    Raises:
        ValueError: when the model is no ONNX file of keras_vit, or has no
            classes; without labels of both towers, with labels of others.

    Example:
        >>> keras_vit.export("ViT_B16/imagenet", "vit.onnx")
        >>> write_page("vit.onnx", runtime="onnxruntime-web/dist/")
        PosixPath('vit.html')
    """
    file, words = pathlib.Path(model), None
    path = file.with_suffix(".html") if path is None else pathlib.Path(path)
    title, pair = file.stem, exported_pair(file)
    if (pair is None) != (labels is None) or labels is None and template:
        raise ValueError(
            "Labels are those of a folder with both towers of an image-text "
            "model, which needs them. Received: "
            f"{str(file)!r} with labels={str(labels)[:100]!r}. Export it with "
            "`keras-vit export NAME FOLDER --texts`, or leave them out."
        )
    if pair is not None:
        file /= pair.record["image"]
    if file.suffix != ".onnx" or not path.parent.is_dir():
        raise ValueError(
            "A page is made of a file *.onnx, in a folder that there is. "
            f"Received: {str(file)!r} and {str(path)!r}."
        )
    if pair is not None:
        found = words_of(pair, labels or (), template)
        pair.classifier(found)  # They are of one size.
        words = found
    record = read_record(file)
    address = os.path.relpath(file.absolute(), path.absolute().parent)
    url = urllib.parse.quote(pathlib.Path(address).as_posix())
    text = page(record, url, title, runtime, words)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def page(
    record: Mapping[str, Any],
    url: str,
    title: str,
    runtime: str = RUNTIME,
    words: ClassEmbeddings | None = None,
) -> str:
    """Return the HTML of a page, from the record of a model and its address.

    With words, the model gives embeddings, which are compared with theirs.
    """
    about, compared = "", {}
    if words is not None:
        record = {
            **record,
            "class_names": words.names,
            "activation": words.activation,
        }
        vectors = words.vectors.astype("<f4").tobytes()
        compared = {
            "vectors": base64.b64encode(vectors).decode(),
            "scale": math.exp(words.logit_scale),
            "bias": words.logit_bias or 0.0,
        }
        about = " Their words were chosen when the page was made."
    if not record["class_names"]:
        raise ValueError(
            "A page shows classes, and the model has none. Export one with "
            "a classification layer."
        )
    runtime = runtime.rstrip("/") + "/"
    height, width = record["input"]["shape"][1:3]
    if height is None:
        raise ValueError(
            "A page resizes by itself. Export the model without "
            "include_resizing."
        )
    contents = _as_json({**_contents(record, url, runtime), **compared})
    return picture_page(
        shipped_text("exporting/browser_page.js"),
        sources=_sources(runtime),
        script_sources=" blob: 'wasm-unsafe-eval'",
        title=title,
        about=f"{title}: {len(record['class_names'])} classes, pictures of "
        f"{width}x{height} pixels.{about}",
        promise="JPEG, PNG, WebP, GIF or BMP. It does not leave this device: "
        "the model runs in this page.",
        data='<script type="application/json" data-model>'
        f"{contents}</script>\n",
    )


def _contents(record, url, runtime):
    """Return what the script needs of a record."""
    rule = PreprocessingConfig(**record["preprocessing"])
    shape, config = record["input"]["shape"], record["config"]
    geometry = Geometry(tuple(shape[1:3]), shape[3], rule)
    squashes = rule.evaluation == "squash"
    crop = EVALUATION_CROPS[rule.evaluation]
    if crop.window:
        raise ValueError(
            "A page does not cut images before it resizes them. Received: "
            f"evaluation={rule.evaluation!r}."
        )
    hashes = FILES if runtime == RUNTIME else dict.fromkeys(FILES)
    return {
        "url": url,
        "runtime": [
            {"url": runtime + name, "integrity": known}
            for name, known in hashes.items()
        ],
        "input": INPUT,
        "output": OUTPUT,
        "shape": shape,
        "crop": rule.evaluation,
        "before": geometry.image_size if squashes else geometry.both_sides,
        "smaller_side": geometry.smaller_side,
        "method": rule.resize_method or crop.method,
        "antialias": rule.antialias,
        "rounding": rule.rounding,
        "padding": list(rule.padding_colour or (0,)),
        "scaled": config["include_preprocessing"],
        "mean": config.get("pixel_mean"),
        "deviation": config.get("pixel_std"),
        "activation": record["activation"],
        "numbers": record.get("problem") == "regression",
        "classes": record["class_names"],
    }


def _sources(runtime):
    """Return the addresses that the page may fetch from."""
    parts = urllib.parse.urlsplit(runtime)
    return (
        f"'self' {parts.scheme}://{parts.netloc}" if parts.netloc else "'self'"
    )


def _as_json(contents):
    """JSON in which nothing ends the element that it stands in."""
    return json.dumps(contents).replace("<", "\\u003c")
