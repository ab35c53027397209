"""The memory of a training step, by the compiler that will make it.

XLA compiles for TPUs on machines without one, if libtpu is installed. Steps of
two numbers of blocks are compiled; the rest grows by the same for each block.
"""

import dataclasses
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence

from keras_vit.io.checks import check_choice, check_installed, check_kind
from keras_vit.models import ViTConfig
from keras_vit.planning.devices_table import Machine
from keras_vit.planning.estimate import (
    Row,
    Settings,
    largest_batch,
    model_axis,
    planned_memory,
    replicas_of,
    usable_memory,
)
from keras_vit.planning.pretraining import METHODS, read_method

__all__ = [
    "Confirmed",
    "TOPOLOGIES",
    "check_compiler",
    "confirm",
    "step_of",
    "topology",
]

DEPTHS = (2, 4)  # blocks of the steps that are compiled
COMPILED_BATCHES = 5  # at most, to find the largest
FLAT = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8"}
FLAT |= {128: "8x16", 256: "16x16"}
CUBES = {4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4"}
CUBES |= {1: "1x1x1", 128: "4x4x8", 256: "4x8x8", 512: "8x8x8"}
# The chips along each axis, by their number.
TOPOLOGIES = {"v5e": FLAT, "v5p": CUBES, "v6e": FLAT}


@dataclasses.dataclass(frozen=True)
class Confirmed:
    """What the compiler says of a row of the plan."""

    layout: str
    rematerialize: bool
    parts: int
    """That the batch is cut into."""
    formula_bytes: int
    """Of the peak on a device, with a part of the batch at once."""
    compiled_bytes: int | None
    """The same, by the compiler. None where it finds no way to fit it in."""
    largest_batch: int
    """The largest that fits at once, on all devices together, compiled; 0
    where none does."""
    largest_bytes: int | None
    """Of its peak, by the compiler."""


def check_compiler(machine: Machine) -> None:
    """Raises a ValueError unless steps can be compiled for the machine."""
    check_kind(Machine, machine=machine)
    topology(machine)
    check_installed("The compiler for TPUs", "libtpu")


def topology(machine: Machine) -> str:
    """Return the machine's name for JAX's compiler.

    Raises:
        ValueError: for no TPU that it compiles for, or a number of chips that
            none has.

    Example:
        >>> topology(Machine("v5e", 8))
        'v5e:2x4'
    """
    check_choice("device to compile for", machine.name, TOPOLOGIES)
    shapes = TOPOLOGIES[machine.name]
    check_choice(f"number of {machine.name} chips", machine.count, shapes)
    return f"{machine.name}:{shapes[machine.count]}"


def confirm(
    config: ViTConfig,
    settings: Settings,
    machine: Machine,
    row: Row,
    peaks: Callable[[list[dict]], list[int | None]] | None = None,
) -> Confirmed:
    """Compiles a row of a plan, and searches the largest batch that fits.

    The formula proposes a batch, the compiler says by how much it was wrong,
    and so on, five times at most. Where the compiler finds no way at all, what
    is between the batches that fit and those that do not is halved.

    Args:
        config: of the model.
        settings: those that the row was planned with.
        machine: likewise, of TPUs.
        row: of `plan`; one that fits, cut into `parts` of the batch.
        peaks: gives the peaks of cases in bytes; `compiled_peaks` by default.

    Raises:
        ValueError: for a machine without a compiler, or if it fails.
    """
    peaks = peaks or compiled_peaks
    parts = row.parts or 1

    def compiled(batch, parts=1):
        cases = [
            _case(config, settings, machine, row, batch // parts, parts, depth)
            for depth in _depths(config)
        ]
        return _whole(peaks(cases), config)

    def planned(batch, parts=1):
        of_batch = dataclasses.replace(settings, batch=batch)
        return planned_memory(config, of_batch, machine, row, parts).total

    own_peak = compiled(settings.batch, parts)
    tried = {settings.batch: own_peak} if parts == 1 else {}
    ratio = (
        1.0 if own_peak is None else own_peak / planned(settings.batch, parts)
    )
    usable = usable_memory(machine)
    replicas = replicas_of(config, settings, machine, row)
    for _ in range(COMPILED_BATCHES):
        low, high = _bracket(tried, usable)
        batch = largest_batch(config, settings, machine, row, ratio)
        if batch >= high or (batch <= low and high < math.inf):
            batch = _middle(low, high, replicas)
        if not low < batch < high:
            break
        tried[batch] = peak = compiled(batch)
        if peak:
            ratio = peak / planned(batch)
    largest, _ = _bracket(tried, usable)
    return Confirmed(
        row.layout,
        row.rematerialize,
        parts,
        planned(settings.batch, parts),
        own_peak,
        largest,
        tried.get(largest),
    )


def _bracket(tried: dict[int, int | None], usable: float):
    """Return the largest batch that fits, and the smallest that does not."""
    fits = {batch: bool(x) and x <= usable for batch, x in tried.items()}
    high = min((x for x, does in fits.items() if not does), default=math.inf)
    low = max((x for x, does in fits.items() if does and x < high), default=0)
    return low, high


def _middle(low: int, high: float, replicas: int) -> int:
    """Return a batch between both, with eights of images for each replica."""
    middle = (low * high) ** 0.5 if low else high / 2
    return int(middle / (8 * replicas)) * (8 * replicas)


def _depths(config):
    return sorted({min(depth, config.num_layers) for depth in DEPTHS})


def _whole(found: Sequence[int | None], config) -> int | None:
    """Extrapolate the peak of all blocks from those of a few."""
    first, last = found[0], found[-1]
    if first is None or last is None:
        return None
    few, many = _depths(config)[0], _depths(config)[-1]
    each = (last - first) / max(many - few, 1)
    return round(last + each * (config.num_layers - many))


def _case(config, settings, machine, row, batch, parts, depth):
    fields = dataclasses.asdict(config)
    fields |= {"num_layers": depth, "rematerialize": row.rematerialize}
    method = settings.method
    return {
        "topology": topology(machine),
        "config": fields,
        "method": method
        and {"name": method.name, **dataclasses.asdict(method)},
        "precision": settings.precision,
        "optimizer": settings.optimizer,
        "parts": parts if parts > 1 else None,
        "batch": batch,
        "distribution": "single" if machine.count == 1 else row.layout,
        "model_axis": model_axis(config, settings),
    }


def compiled_peaks(cases: list[dict]) -> list[int | None]:
    """Compile cases in a process of its own, and return their peaks in bytes.

    Raises:
        ValueError: with the last line of what the compiler said if it fails.
    """
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(cases)],
        env={**os.environ, **ABSENT_TPU},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        said = ended.stderr.strip().splitlines() or ["nothing"]
        raise ValueError(f"The compiler for TPUs failed. It says: {said[-1]}")
    # libtpu may print lines of its own before.
    lines = ended.stdout.splitlines()[-len(cases) :]
    return [json.loads(line) for line in lines]


PROGRAM = "from keras_vit.planning.compiler import main; main()"
# What JAX and libtpu read once, so that they look for no TPU.
ABSENT_TPU = {
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
}


def main() -> None:
    """Print the peak of each case of the JSON in the first argument, by lines.

    It runs in a process of its own, as JAX reads its environment once. A peak
    is null where the compiler says that nothing fits.
    """
    from keras_vit.training.distribution.topologies import one_process

    with one_process():
        for case in json.loads(sys.argv[1]):
            print(json.dumps(peak_bytes(case)), flush=True)


def peak_bytes(case: dict) -> int | None:
    """Compile a step and return its peak on one device.

    Args:
        case: topology, config (fields of `ViTConfig`), method (name and fields
            of `Pretraining`, or None), precision, optimizer, parts, and batch,
            distribution and model_axis as in `Step`.
    """
    import keras

    from keras_vit.training.distribution.topologies import devices_of, lowered

    keras.config.set_dtype_policy(case["precision"])
    step = step_of(case)
    devices = devices_of(case["topology"])
    try:
        compiled = lowered(step, devices).compile()
    except RuntimeError as error:  # Of XLA.
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return None
    return compiled.memory_analysis().peak_memory_in_bytes


def step_of(case: dict):
    """Return the `Step` of a case of `peak_bytes`."""
    from keras_vit.models import VisionTransformer
    from keras_vit.training.distribution.topologies import Step

    config = ViTConfig(**case["config"])
    learned: dict = {"make": lambda: VisionTransformer(config)}
    if case.get("method"):
        method = read_method(case["method"])
        planned, encoder = METHODS[method.name], method.encoder(config)
        learned = {
            "make": lambda: planned.network(VisionTransformer(encoder), method),
            "loss": lambda: planned.loss(method),
            "answers": planned.answers,
        }
    return Step(
        batch=case["batch"],
        distribution=case["distribution"],
        model_axis=case["model_axis"],
        optimizer=lambda: _optimizer(case["optimizer"], case["parts"]),
        **learned,
    )


def _optimizer(name, parts):
    """Return a new optimizer; parts are None for one."""
    from keras_vit.training.optimizers import OPTIMIZERS

    check_choice("optimizer", name, OPTIMIZERS)  # Of this Keras.
    options = {"momentum": 0.9} if name == "sgd" else {}
    return OPTIMIZERS[name](gradient_accumulation_steps=parts, **options)
