"""What benchmarks/speed.py compares: the same ViT by several libraries.

A side gets the asked `Case` and returns a function that does a number of steps
and waits until they are done; it may return the seconds that count of it. Each
trains as its users would at its best: AdamW, one batch that stays on the
device, no host in between.
"""

import functools
import os
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from speed_case import (
    CLASSES,
    LEARNING_RATE,
    Case,
    arrays,
    keras_hub_model,
    sizes,
)
from speed_torch import timm, timm_openvino, transformers

POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


def our_model(case, policy):
    import keras

    keras.config.set_dtype_policy(policy)
    import keras_vit

    return getattr(keras_vit, case.model)(
        weights=None,
        classes=CLASSES,
        input_shape=(case.image_size, case.image_size, 3),
        classifier_activation=None,
    )


def ours(
    case: Case, jit_compile: bool | str = "auto"
) -> Callable[[int], float | None]:
    model = our_model(case, POLICIES[case.precision])
    return keras_steps(model, case, jit_compile, our_optimizer)


def our_optimizer(model):
    """Make the optimizer of a recipe, at a constant rate."""
    from keras_vit.training import OptimizerConfig
    from keras_vit.training.optimizers import make_optimizer

    config = OptimizerConfig(
        learning_rate=LEARNING_RATE,
        schedule="constant",
        warmup_steps=0,
        weight_decay=0.004,  # Keras's.
        clip_norm=None,
    )
    return make_optimizer(config, model, total_steps=1_000_000)


def ours_compiled(case: Case) -> Callable[[int], float | None]:
    """The model on the torch backend as the torch module that it is."""
    os.environ["TORCHINDUCTOR_FREEZING"] = "1"  # weights are constants
    import torch

    only_inference(case)
    model = torch.compile(our_model(case, case.precision).eval())
    images = torch.from_numpy(arrays(case)[0])

    def infer(steps):
        with torch.inference_mode():
            for _ in range(steps):
                model(images)

    return infer


def ours_exported(
    case: Case,
    format: str,
    precision: str | None = None,
    calibrate: bool = False,
) -> Callable[[int], float | None]:
    """The model as it is exported, in the runtime of the format."""
    only_inference(case)
    images, _ = arrays(case)
    options: dict[str, Any] = {}
    if calibrate:  # The classes of random weights say nothing.
        noise = np.random.default_rng(0).integers(
            0, 256, (16, *images[0].shape)
        )
        options = {"images": noise.astype("uint8"), "calibrate": True}
        options["largest_change"] = 1.0
    model = our_model(case, "float32")
    # Runtimes leave out biases of 0 and scales of 1, which no training leaves.
    random = np.random.default_rng(0)
    for variable in model.weights:
        noise = random.normal(scale=0.02, size=variable.shape)
        variable.assign_add(noise.astype("float32"))
    import keras_vit
    from keras_vit.exporting import FORMATS
    from keras_vit.prediction.exported_model import ExportedModel

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, f"model{FORMATS[format].suffix}")
        kind = precision or case.precision
        keras_vit.export(model, path, precision=kind, **options)
        exported = ExportedModel(path)

    def infer(steps):
        for _ in range(steps):
            exported.predict_on_batch(images)

    return infer


def only_inference(case):
    if case.task != "inference":
        raise ValueError("is for inference alone")


def keras_hub(case: Case) -> Callable[[int], float | None]:
    import keras

    keras.config.set_dtype_policy(POLICIES[case.precision])
    return keras_steps(keras_hub_model(sizes(case)), case)


def keras_steps(
    model, case, jit_compile: bool | str = "auto", optimizer_of=None
):
    """`fit` or `predict` on one batch over and over, and the seconds of it.

    What they do before the first step and after the last does not count: on
    TensorFlow the end of an iterator waits up to five seconds.
    """
    import keras

    images, labels = map(keras.ops.convert_to_tensor, arrays(case))
    clock = stopwatch(keras)
    if case.task == "inference":
        if jit_compile != "auto":
            model.jit_compile = jit_compile

        def infer(steps):
            batches = ((images,) for _ in range(steps))
            model.predict(batches, steps=steps, verbose=0, callbacks=[clock])
            return clock.seconds

        return infer
    optimizer = (
        keras.optimizers.AdamW(LEARNING_RATE)
        if optimizer_of is None
        else optimizer_of(model)
    )
    model.compile(
        optimizer,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=jit_compile,
    )

    def train(steps):
        # A generator gives one more to build on.
        batches = ((images, labels) for _ in range(steps + 1))
        model.fit(
            batches,
            steps_per_epoch=steps,
            epochs=1,
            verbose=0,
            callbacks=[clock],
        )
        return clock.seconds

    return train


def stopwatch(keras):
    """A callback: `seconds` from the first step's begin to the last's end."""

    class Stopwatch(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 0:
                self.begin = time.perf_counter()

        def on_train_batch_end(self, batch, logs: Any = None):
            if batch == self.params["steps"] - 1:
                float(logs["loss"])  # waits
                self.seconds = time.perf_counter() - self.begin

        def on_predict_batch_begin(self, batch, logs=None):
            self.on_train_batch_begin(batch)

        def on_predict_batch_end(self, batch, logs: Any = None):
            if batch == self.params["steps"] - 1:
                keras.ops.convert_to_numpy(logs["outputs"])
                self.seconds = time.perf_counter() - self.begin

    return Stopwatch()


class Side(NamedTuple):
    """One of the compared."""

    library: str  # to be imported, or the side is left out
    backend: str  # of Keras, or what stands in its place
    steps: Callable[[Case], Callable[[int], float | None]]


SIDES = {
    "keras_vit jax": Side("jax", "jax", ours),
    "keras_vit tensorflow": Side("tensorflow", "tensorflow", ours),
    "keras_vit tensorflow xla": Side(
        "tensorflow", "tensorflow", functools.partial(ours, jit_compile=True)
    ),
    "keras_vit torch": Side("torch", "torch", ours),
    "keras_vit torch compiled": Side("torch", "torch", ours_compiled),
    "keras_vit openvino": Side(
        "openvino", "torch", functools.partial(ours_exported, format="openvino")
    ),
    "keras_vit openvino int8": Side(
        "openvino",
        "torch",
        functools.partial(ours_exported, format="openvino", precision="int8"),
    ),
    "keras_vit openvino int8 calibrated": Side(
        "openvino",
        "torch",
        functools.partial(
            ours_exported, format="openvino", precision="int8", calibrate=True
        ),
    ),
    "keras_vit onnx int8": Side(
        "onnxruntime",
        "torch",
        functools.partial(ours_exported, format="onnx", precision="int8"),
    ),
    "keras-hub jax": Side("keras_hub", "jax", keras_hub),
    "keras-hub tensorflow": Side("keras_hub", "tensorflow", keras_hub),
    "timm": Side("timm", "torch", timm),
    "timm compiled": Side(
        "timm", "torch", functools.partial(timm, compiled=True)
    ),
    "timm openvino": Side("timm", "torch", timm_openvino),
    "transformers": Side("transformers", "torch", transformers),
}
