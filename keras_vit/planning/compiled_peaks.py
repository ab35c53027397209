"""A program: the memory of training steps, as a TPU's compiler plans it.

It reads a list of cases as JSON from its first argument, compiles each and
prints the bytes of its peak, a line each: null where the compiler says that
nothing fits. Nothing runs, and no TPU is needed. It is a process of its own, as
JAX reads its environment once.
"""

import json
import sys


def main() -> None:
    from keras_vit.training.distribution.topologies import one_process

    with one_process():
        for case in json.loads(sys.argv[1]):
            print(json.dumps(peak_bytes(case)), flush=True)


def peak_bytes(case: dict) -> int | None:
    """Compile a step and return its peak on one device.

    Args:
        case: topology, config (fields of `ViTConfig`), precision, optimizer,
            parts, and batch, distribution and model_axis as in `Step`.
    """
    import keras

    from keras_vit.models import VisionTransformer, ViTConfig
    from keras_vit.training.distribution.topologies import (
        Step,
        devices_of,
        lowered,
    )

    keras.config.set_dtype_policy(case["precision"])
    config = ViTConfig(**case["config"])
    step = Step(
        lambda: VisionTransformer(config),
        case["batch"],
        distribution=case["distribution"],
        model_axis=case["model_axis"],
        optimizer=lambda: _optimizer(case["optimizer"], case["parts"]),
    )
    devices = devices_of(case["topology"])
    try:
        compiled = lowered(step, devices).compile()
    except RuntimeError as error:  # Of XLA.
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return None
    return compiled.memory_analysis().peak_memory_in_bytes


def _optimizer(name, parts):
    """Return a new optimizer; parts are None for one."""
    from keras_vit.training.optimizers import OPTIMIZERS

    options = {"momentum": 0.9} if name == "sgd" else {}
    return OPTIMIZERS[name](gradient_accumulation_steps=parts, **options)


if __name__ == "__main__":
    main()
