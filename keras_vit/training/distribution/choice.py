"""Which devices a run takes, and how they share it."""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import keras

from keras_vit.models.base import check_choice
from keras_vit.training.distribution import (
    layouts,
    multiworker,
    processes,
    strategies,
)
from keras_vit.training.distribution.state import devices

__all__ = ["DISTRIBUTIONS", "Distribution", "setup"]

DISTRIBUTIONS = (
    "auto",
    "single",
    "mirrored",
    "multiworker",
    "tpu",
    "data_parallel",
    "fsdp",
    "model_parallel",
)
MODEL_AXIS = 2  # devices that share a layer under model_parallel


@dataclasses.dataclass(frozen=True)
class Distribution:
    """Where a model computes, as `setup` chose it.

    Args:
        choice: what was taken, never "auto".
        devices: names of the devices that take part.
        replicas: int, the shares that a batch is cut into.
        batch_size: int, images in a batch on all devices together; None where
            it is not known.
        native: Keras's distribution or TensorFlow's strategy, None for one
            device.

    Example:
        >>> print(setup("auto", batch_size=64))
        single: 1 device (cpu:0), 1 replica, batch 64 (64 on each)
    """

    choice: str
    devices: tuple[str, ...]
    replicas: int
    batch_size: int | None = None
    native: Any = None

    def scope(self) -> contextlib.AbstractContextManager:
        """The context to build, compile and train a model in.

        Example:
            >>> with setup("data_parallel").scope():
            ...     model = ViT_S16(weights=None)
            ...     model.compile("sgd", "categorical_crossentropy")
            ...     model.fit(images, labels)
        """
        if self.native is None:
            return contextlib.nullcontext()
        return self.native.scope()

    def __str__(self):
        text = (
            f"{self.choice}: {_counted(len(self.devices), 'device')} "
            f"({', '.join(self.devices)}), "
            f"{_counted(self.replicas, 'replica')}"
        )
        if (count := processes.place()[1]) > 1:
            text += f" in {count} processes"
        if self.batch_size is None:
            return text
        share = self.batch_size // self.replicas
        return f"{text}, batch {self.batch_size} ({share} on each)"


def setup(
    choice: str = "auto",
    *,
    batch_size: int | None = None,
    model_axis: int = MODEL_AXIS,
    steps_per_execution: int = 1,
) -> Distribution:
    """Chooses the devices that a model is trained on, and how they share it.

    The batch size is that of all devices together, so that the result does
    not depend on their number.

    Args:
        choice: "auto" takes all devices that divide the batch. "single" is
            one. "data_parallel" (JAX), "mirrored" and "tpu" (TensorFlow) cut
            the batch; "fsdp" (JAX) the kernels of the blocks as well, and
            "model_parallel" (JAX) attention and MLPs. "multiworker"
            (TensorFlow) is "mirrored" for the processes of TF_CONFIG. Those
            of JAX are found by the variables of `keras.distribution`, or in
            a cluster, with each choice of several devices.
        batch_size: int, images that the model sees at once, None if unknown.
        model_axis: int, devices that share a layer under "model_parallel".
        steps_per_execution: int, what the model is compiled with.

    Returns:
        A `Distribution`; str() of it says in a line what was taken.

    Raises:
        ValueError: for a choice that the backend does not have, a batch that
            the devices cannot share, or a TPU that is not there.

    Example:
        >>> chosen = setup("data_parallel", batch_size=512)
        >>> print(chosen)
        data_parallel: 2 devices (gpu:0, gpu:1), 2 replicas, batch 512 (256
        on each)
        >>> with chosen.scope():
        ...     model = ViT_B16(classes=10)
        ...     model.compile("sgd", "categorical_crossentropy")
        ...     model.fit(batches)
    """
    check_choice("distribution", choice, DISTRIBUTIONS)
    processes.start(choice)
    # To ask for the devices before a TPU is set up would leave it out.
    found = processes.by_process([] if choice == "tpu" else devices())
    if found[0] and found[0][0].startswith("tpu"):
        # JAX's fused kernel of a TPU takes no 197 tokens and is not shared.
        keras.config.disable_flash_attention()
    if choice == "auto":
        choice, found = _automatic(found, batch_size)
    _check_processes(choice)
    found = sum(found, [])
    if choice == "single":
        return Distribution(choice, (found[0],), 1, batch_size)
    native, replicas = _maker(choice)(found, model_axis, steps_per_execution)
    if batch_size is not None and batch_size % replicas:
        raise ValueError(
            f"{choice} cuts a batch into {replicas} equal shares. Received: "
            f"a batch of {batch_size} (in training, batch_size divided by "
            f"accumulation_steps). Make it a multiple of {replicas}, or use "
            "auto, which takes as many devices as divide it."
        )
    names = tuple(found or devices())
    return Distribution(choice, names, replicas, batch_size, native)


def _automatic(found, batch_size):
    """The backend's plain choice, with as many devices as divide a batch.

    As many of each process: none may be without.
    """
    shares = [n * len(found) for n in range(len(found[0]), 0, -1)]
    taken = next(
        (n for n in shares if not batch_size or batch_size % n == 0), shares[-1]
    )
    found = [names[: taken // len(found)] for names in found]
    backend = keras.backend.backend()
    if len(found) > 1:
        return SEVERAL_PROCESSES[backend][0], found
    return (PLAIN[backend] if taken > 1 else "single"), found


def _check_processes(choice):
    """Raises unless a choice is of all processes, where there are several."""
    index, count = processes.place()
    known = SEVERAL_PROCESSES[keras.backend.backend()]
    if count > 1 and choice not in known:
        raise ValueError(
            f"This is process {index} of {count}, and {choice!r} is of one "
            f"process. Use {', '.join(known)} or auto."
        )


def _maker(choice) -> Callable:
    backend = keras.backend.backend()
    if choice not in MAKERS[backend]:
        known = ", ".join(("auto", "single", *MAKERS[backend]))
        raise ValueError(
            f"There is no {choice!r} on the {backend} backend. Use "
            f"{PLAIN[backend]!r}; it has {known}. KERAS_BACKEND is another "
            "way: jax has data_parallel, fsdp and model_parallel, tensorflow "
            "mirrored, multiworker and tpu."
        )
    return MAKERS[backend][choice]


def _counted(number, noun):
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _on_jax(layout):
    def make(devices, model_axis, steps_per_execution):
        native = layout(devices, model_axis)
        return native, native.device_mesh.shape[0]

    return make


def _on_tensorflow(strategy):
    def make(devices, model_axis, steps_per_execution):
        native = strategy(devices, steps_per_execution)
        return native, native.num_replicas_in_sync

    return make


# Where there are several processes; the first is the plain one.
SEVERAL_PROCESSES = {
    "jax": ("data_parallel", "fsdp", "model_parallel"),
    "tensorflow": ("multiworker",),
    "torch": (),
}
PLAIN = {"jax": "data_parallel", "tensorflow": "mirrored", "torch": "single"}
MAKERS = {
    "jax": {
        "data_parallel": _on_jax(layouts.data_parallel),
        "fsdp": _on_jax(layouts.fsdp),
        "model_parallel": _on_jax(layouts.model_parallel),
    },
    "tensorflow": {
        "mirrored": _on_tensorflow(strategies.mirrored),
        "multiworker": _on_tensorflow(multiworker.multiworker),
        "tpu": _on_tensorflow(strategies.tpu),
    },
    "torch": {},
}
