"""Kinds of models, each a tiny one with random weights, and their exports."""

import contextlib
import pathlib
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np

from keras_vit.exporting import FORMATS
from keras_vit.exporting.export import (
    check,
    prepared,
    record_of,
    write_in_process,
)
from keras_vit.exporting.runtimes_table import refusal
from keras_vit.exporting.writers import embed, quantization_of
from keras_vit.models import (
    BiT,
    BiTConfig,
    Mixer,
    MixerConfig,
    VisionTransformer,
    ViTConfig,
)
from keras_vit.prediction import as_classifier
from keras_vit.prediction.exported_model import ExportedModel
from keras_vit.variants import (
    VariantConfig,
    VariantTransformer,
    VariantTransformerConfig,
)

FIELDS: dict[str, Any] = {
    "image_size": (16, 16),
    "patch_size": 4,
    "hidden_dim": 32,
    "num_layers": 2,
    "mlp_dim": 64,
    "num_heads": 4,
    "num_classes": 5,
}


def vit(dtype="float32", **options) -> keras.Model:
    return VisionTransformer(ViTConfig(**{**FIELDS, **options}), dtype=dtype)


def variant(fields: dict[str, Any], **options) -> keras.Model:
    config = VariantTransformerConfig(
        **{**FIELDS, **options}, variant=VariantConfig(**fields)
    )
    return VariantTransformer(config)


def mixer(**options) -> keras.Model:
    names = ("image_size", "patch_size", "hidden_dim", "num_layers")
    sizes = {x: FIELDS[x] for x in (*names, "num_classes")}
    dims = {"tokens_mlp_dim": 24, "channels_mlp_dim": 64}
    return Mixer(MixerConfig(**{**sizes, **dims, **options}))


def bit() -> keras.Model:
    sizes = {"image_size": (64, 64), "num_classes": 5, "width": 32}
    return BiT(BiTConfig(**sizes, units=(1, 1)))


def quantized(mode) -> keras.Model:
    model = randomised(vit())
    with contextlib.suppress(UserWarning):
        model.quantize(mode)
    return model


DINOV3 = {
    "rope": "axial",
    "rope_pairs": "halves",
    "position_embedding": "none",
    "register_tokens": 2,
    "layer_scale_init": 0.5,
    "gated_mlp": True,
    "activation": "silu",
}
SAM = {
    "relative_position_bias": True,
    "relative_position_kind": "decomposed",
    "pooling": "mean",
    "class_token": False,
    "final_norm": False,
    "window_size": 3,
    "num_layers": 2,
    "global_attention_blocks": (1,),
    "neck_dim": 24,
}
KINDS: dict[str, Callable[[], keras.Model]] = {
    "token": lambda: vit(num_layers=2),  # The last computes one token alone.
    "mean": lambda: vit(pooling="mean", class_token=False),
    "map": lambda: vit(pooling="map", class_token=False),
    "tokens": lambda: vit(pooling="none", num_classes=0),
    "rectangle": lambda: vit(image_size=(8, 24)),
    "preprocessing": lambda: vit(include_preprocessing=True),
    "hybrid": lambda: vit(
        image_size=(64, 64), resnet_units=(1,), resnet_width=32, patch_size=1,
    ),
    "Mixer": mixer,
    "BiT": bit,
    "relative": lambda: variant({"position": "relative"}),
    "axial": lambda: variant(
        {"attention": "axial"}, pooling="mean", class_token=False
    ),
    "mixed_bfloat16": lambda: vit("mixed_bfloat16", num_layers=2),
    "mixed_float16": lambda: vit("mixed_float16"),
    "int8": lambda: quantized("int8"),
    "int4": lambda: quantized("int4"),
    "CLIP": lambda: vit(
        norm_before_blocks=True, patch_bias=False, activation="quick_gelu"
    ),
    "DINOv3": lambda: vit(**DINOV3),
    "BEiT": lambda: vit(
        relative_position_bias=True, position_embedding="none", key_bias=False
    ),
    "CaiT": lambda: vit(
        class_attention_layers=1, talking_heads=True, layer_scale_init=0.5
    ),
    "SAM": lambda: vit(**SAM),
    "Sapiens2": lambda: vit(num_layers=2, key_value_heads=(2, 1)),
    "differential": lambda: vit(differential_attention=True),
    "parallel": lambda: vit(mlp_placement="beside", qk_norm=True),
    "AIMv2": lambda: vit(
        normalization="rms_norm", patch_norm=True, pooling="attention",
        class_token=False,
    ),
}  # fmt: skip


def randomised(model: keras.Model) -> keras.Model:
    random = np.random.default_rng(0)
    for weight in model.weights:
        values = random.normal(size=weight.shape) * 0.2
        if "variance" in weight.path or "gamma" in weight.path:
            values = 1 + np.abs(values)
        weight.assign(values)
    return model


def model_of(kind: str) -> keras.Model:
    model = KINDS[kind]()
    return model if quantization_of(model) else randomised(model)


def cells(
    wanted: Iterable[tuple[str, str, str]], folder: pathlib.Path
) -> dict[tuple[str, str, str], dict | str]:
    """What becomes of kinds in formats and precisions: a check or a refusal.

    All that a backend writes is written by one process.
    """
    found: dict = {}
    jobs: dict[str, list] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for cell in wanted:
            kind, format, precision = cell
            classifier = as_classifier(model_of(kind), needs_classes=False)
            reason = refusal(
                format, precision, quantization_of(classifier.model)
            )
            if reason:
                found[cell] = reason
                continue
            record = record_of(classifier, format, precision, "any")
            name = "_".join(cell) + FORMATS[format].suffix
            job = prepared(classifier, folder / name, record, scratch)
            planned = jobs.setdefault(FORMATS[format].backend, [])
            planned.append((cell, classifier, record, job))
        for backend, planned in jobs.items():
            errors = write_in_process(
                backend, [job for *_, job in planned], scratch
            )
            for (cell, classifier, record, job), error in zip(
                planned, errors, strict=True
            ):
                found[cell] = error or _checked(classifier, record, job["path"])
    return found


def _checked(classifier, record, path):
    try:
        found = check(classifier, ExportedModel(path, record))
    except ValueError as error:
        return str(error)
    embed(pathlib.Path(path), record)
    return found
