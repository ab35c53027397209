"""A Keras model in OpenVINO, which is the fast way to infer on CPUs."""

import pathlib
import tempfile

PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}


def compiled(model, precision: str):
    """Exports a model as Keras does and compiles it for the CPU.

    Args:
        model: a Keras model on the TensorFlow backend, float32.
        precision: "float32" or "bfloat16", what OpenVINO computes in.

    Returns:
        An openvino CompiledModel.
    """
    import openvino  # pyright: ignore[reportMissingImports]

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "model.xml")
        model.export(str(path), format="openvino", verbose=False)
        core = openvino.Core()
        # Read whole, for the file goes away.
        weights = path.with_suffix(".bin").read_bytes()
        read = core.read_model(path.read_bytes(), weights)
    hint = {"INFERENCE_PRECISION_HINT": PRECISIONS[precision]}
    return core.compile_model(read, "CPU", hint)
