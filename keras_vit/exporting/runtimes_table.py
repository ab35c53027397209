"""The formats that models are exported to, and what none of them can hold.

A format is written by the one backend whose exporter is right for all models,
in a process of its own, whatever the backend of the user is.
"""

from typing import NamedTuple

__all__ = ["FORMATS", "PRECISIONS", "TOLERANCES", "ExportFormat", "refusal"]


class ExportFormat(NamedTuple):
    """How a format is written.

    Attributes:
        suffix: how the name of its file ends; "" is a folder.
        backend: the backend of Keras that writes it.
        modules: the modules that writing and checking it need.
        install: what pip installs for them.
        precisions: what it can be had in, with what becomes of the numbers.
        layout: None, or the server whose folders it can be written into.
    """

    suffix: str
    backend: str
    modules: tuple[str, ...]
    install: str
    precisions: dict[str, str]
    layout: str | None = None


EXACT = "weights and computation in float32"
HALF_WEIGHTS = "weights in float16, computation in float32"
MIXED = "computation in bfloat16, but for softmax and normalisation"
ONNX_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime")

FORMATS = {
    "onnx": ExportFormat(
        ".onnx",
        "torch",
        ONNX_PACKAGES,
        "torch onnx onnxscript onnxruntime",
        {
            "float32": EXACT,
            "float16": HALF_WEIGHTS,
            "int8": "ONNX Runtime's: products of 8 bits, whose scales are "
            "taken from each image, or from calibration images",
            "int8_weights": "weights of 8 bits with a scale for each 128; "
            "products as precise as that",
        },
        layout="triton",
    ),
    "openvino": ExportFormat(
        ".xml",
        "torch",
        ("torch", "onnx", "onnxscript", "openvino"),
        "torch onnx onnxscript openvino",
        {
            "float32": EXACT,
            "float16": HALF_WEIGHTS,
            "bfloat16": "weights in float32, computation in bfloat16 where "
            "the processor has it",
            "int8": "NNCF's: weights of 8 bits; products of 8 bits with "
            "calibration images",
        },
    ),
    "litert": ExportFormat(
        ".tflite",
        "tensorflow",
        ("tensorflow", "ai_edge_litert"),
        "tensorflow ai-edge-litert",
        {
            "float32": EXACT,
            "float16": HALF_WEIGHTS,
            "int8": "LiteRT's: weights of 8 bits, activations by the range of "
            "each image, or all of 8 bits with calibration images",
        },
    ),
    "saved_model": ExportFormat(
        "",
        "tensorflow",
        ("tensorflow",),
        "tensorflow",
        {"float32": EXACT, "bfloat16": MIXED},
        layout="tensorflow_serving",
    ),
    "stablehlo": ExportFormat(
        ".stablehlo",
        "jax",
        ("jax",),
        "jax",
        {"float32": EXACT, "bfloat16": MIXED},
    ),
    "pt2": ExportFormat(
        ".pt2",
        "torch",
        ("torch",),
        "torch",
        {"float32": EXACT, "bfloat16": MIXED},
    ),
}
PRECISIONS = ("float32", "float16", "bfloat16", "int8", "int8_weights")

# Precision -> how far scores of seeded images may be from the model's: root
# mean square of the differences as a share of that of the scores.
TOLERANCES = {
    **{"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2},
    **{"int8": 0.2, "int8_weights": 5e-2},
}

# Quantisation of Keras that an exporter cannot write: mode, formats, instead.
QUANTIZED = (
    ("int8", ("litert",), "onnx, or quantise while exporting: export the "
     "float32 model with --precision int8"),
    ("int4", ("onnx", "openvino", "litert"), "saved_model, stablehlo or pt2"),
)  # fmt: skip


def refusal(format: str, precision: str, quantization: str | None) -> str:
    """Return why a model cannot be had in a format, "" where it can.

    Args:
        format: a key of `FORMATS`.
        precision: one of `PRECISIONS`.
        quantization: how Keras quantised the model, such as "int8".
    """
    kinds = FORMATS[format].precisions
    if precision not in kinds:
        others = [x for x in FORMATS if precision in FORMATS[x].precisions]
        where = f" In {precision}: {', '.join(others)}." if others else ""
        return (
            f"{format} is not written in {precision}, only in "
            f"{', '.join(kinds)}.{where}"
        )
    if quantization and precision != "float32":
        return (
            f"The model is quantised to {quantization} already. Export it with "
            "precision='float32', or the model that it was before."
        )
    for mode, formats, instead in QUANTIZED:
        if mode == quantization and format in formats:
            return (
                f"Keras's {mode} models are not written as {format}. Use "
                f"{instead}."
            )
    return ""
