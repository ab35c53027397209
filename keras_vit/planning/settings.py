"""How a model is trained, as far as memory and time depend on it."""

import dataclasses

from keras_vit.models.base import check_choice

__all__ = ["FLOAT32", "OPTIMIZERS", "PRECISIONS", "Settings"]

FLOAT32 = 4
# Bytes of what a layer computes with, under each dtype policy.
PRECISIONS = {"float32": 4, "mixed_bfloat16": 2, "mixed_float16": 2}
# Numbers that an optimizer keeps for each parameter.
OPTIMIZERS = {"adamw": 2, "sgd": 1}
ATTENTION = ("explicit", "flash")
COMPILERS = ("keeping", "fusing")


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a model is trained, as far as memory and time depend on it.

    Args:
        batch: int, images in a step on all devices together.
        precision: dtype policy.
        optimizer: "adamw" or "sgd" with momentum.
        attention: "explicit" keeps the softmax weights of all heads for the
            backward pass, "flash" computes them again in a fused kernel.
        compiler: "keeping" keeps for the backward pass what JAX saves, as XLA
            does for processors: an upper bound for others. "fusing" computes
            again what costs no product, as XLA does for TPUs.
        model_axis: int, devices that share a layer under model_parallel.
        efficiency: float in (0, 1], the share of the peak that the products
            run at; an assumption.

    Raises:
        ValueError: for unknown names and numbers out of range.
    """

    batch: int = 4096
    precision: str = "mixed_bfloat16"
    optimizer: str = "adamw"
    attention: str = "explicit"
    compiler: str = "keeping"
    model_axis: int = 2
    efficiency: float = 0.4

    def __post_init__(self):
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("attention", self.attention, ATTENTION)
        check_choice("compiler", self.compiler, COMPILERS)
        for name in ("batch", "model_axis"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} must be at least 1. Received: "
                    f"{name}={getattr(self, name)}."
                )
        if not 0 < self.efficiency <= 1:
            raise ValueError(
                "efficiency is a share of the peak, above 0 and at most 1. "
                f"Received: efficiency={self.efficiency}."
            )
