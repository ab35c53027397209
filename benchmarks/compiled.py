"""What the compiler of a TPU or GPU makes of a step, on a machine without one.

    python benchmarks/compiled.py --models ViT_S16 --tasks training --write
    python benchmarks/compiled.py --models ViT_B16@384 --topology v6e:1x1
    python benchmarks/compiled.py --models ViT_B16 --topology h100:1
    python benchmarks/compiled.py --topology v5e:2x4 --distribution fsdp \\
        --batch 512

This is a model and no measurement: nothing runs. XLA compiles the step for the
chip, which needs libtpu alone, or JAX's CUDA plugin for an h100 or h200 (pip
install "keras-vision-transformer[tpu-compiler]", or [gpu-compiler]), and the
scheduled program tells what it computes and moves: FLOPs, bytes to and from
HBM, transcendental functions, the peak of memory, collectives. For GPUs no
kernel is tried out, and attention is XLA's and not cuDNN's. The roofline is the
longer of the FLOPs over the chip's peak and of the bytes over its bandwidth, by
its data sheet. A step takes longer than that. On TPUs there is XLA's own
estimate as well, in cycles of the chip.

Each side is compiled with two numbers of blocks; the costs of the whole model
follow from the difference. That takes one to five minutes a program. Numbers
are of one device. What was written of other sides is kept beside those asked
for.
"""

import argparse
import contextlib
import dataclasses
import gc
import importlib.util
import itertools
import json
import pathlib
import re
import shlex
import sys
import time

import compiled_text
from compiled_sides import SIDES, Program, prepare
from compiled_table import table
from speed_case import Case, sizes

from keras_vit.io.checks import check_installed

RESULTS = pathlib.Path(__file__).parent / "results"
GPUS = ("h100", "h200")
# Chips of two devices whose data sheet in keras_vit.planning is of both cores.
HALVED = {"v4": 2}
COSTS = ("flops", "hbm_bytes", "bytes_accessed", "transcendentals")
COSTS += ("peak_bytes", "collective_bytes", "estimated_cycles")
LARGEST = 12  # instructions


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    tasks = ("training", "inference")
    add("--models", nargs="+", default=["ViT_S16"], metavar="MODEL[@SIZE]")
    add("--tasks", nargs="+", default=tasks, choices=tasks)
    add("--sides", nargs="+", choices=SIDES, help="all; ours if shared")
    add("--batch", type=int, default=64, help="images on all devices together")
    add(
        "--topology",
        default="v5e:1x1",
        help="such as v5e:2x4, v5p:2x2x1, h100:1",
    )
    add("--distribution", default="single", help="data_parallel, fsdp, ...")
    add("--blocks", nargs=2, type=int, default=(2, 4), metavar="NUMBER")
    add("--write", action="store_true", help="keep the result and a plot")
    options = parser.parse_args()
    shared = options.distribution != "single"
    options.sides = options.sides or (["keras_vit"] if shared else [*SIDES])
    if options.blocks[0] >= options.blocks[1]:
        parser.error(f"--blocks rise. Received: {options.blocks}.")
    try:
        check_compiler(options.topology)
    except ValueError as error:
        sys.exit(str(error))
    prepare()
    from keras_vit.training.distribution.topologies import one_process

    with one_process():
        for model, task in itertools.product(options.models, options.tasks):
            measure(model, task, options)


def check_compiler(topology):
    """Raises a ValueError unless what compiles for the chip is installed."""
    if topology.startswith(GPUS):
        check_installed("XLA, to compile for GPUs,", "jax_cuda12_plugin")
    else:
        check_installed("XLA, to compile for TPUs,", "libtpu")


def measure(model, task, options) -> None:
    """Compiles a case for all sides; what is found is kept side by side."""
    name, _, size = model.partition("@")
    case = Case(name, int(size or 224), task, options.batch, "bfloat16")
    path = RESULTS / f"{file_name(case, options)}.json"
    result = {
        "command": command(model, task, options),
        **case._asdict(),
        "topology": options.topology,
        "distribution": options.distribution,
        "blocks": list(options.blocks),
        "versions": versions(options.topology),
    }
    result["sides"] = known_sides(path, result)
    for side in options.sides:
        if not importlib.util.find_spec(SIDES[side].library):
            print(f"{side}: left out, {SIDES[side].library} is not installed")
            continue
        result["sides"][side] = compiled(side, case, options)
        print(f"\n{table(result)}\n", flush=True)
        if options.write:
            path.write_text(json.dumps(result, indent=2) + "\n")
            plot(result, path.with_suffix(".png"))
    for side in options.sides:
        if side in result["sides"]:
            show(side, result["sides"][side])


def command(model, task, options):
    """What compiles all sides of a case."""
    arguments = ["--models", model, "--tasks", task]
    arguments += ["--batch", str(options.batch)]
    arguments += ["--topology", options.topology]
    if options.distribution != "single":
        arguments += ["--distribution", options.distribution]
    arguments += ["--blocks", *map(str, options.blocks), "--write"]
    return shlex.join(["python", "benchmarks/compiled.py", *arguments])


def known_sides(path, result):
    """Sides that were written before, if they are of the same case."""
    if not path.exists():
        return {}
    before = json.loads(path.read_text())
    sides = before.pop("sides")
    return sides if before == result else {}


def file_name(case, options):
    chip = re.sub(r"\W", "_", options.topology)
    shared = "" if options.distribution == "single" else options.distribution
    parts = "compiled", case.model, case.image_size, case.task, case.batch
    parts += chip, shared
    return "_".join(str(part) for part in parts if part)


def compiled(side, case, options) -> dict:
    """The costs of a step of the whole model, from those of two depths."""
    few, many = options.blocks
    config = sizes(case)
    found = {
        blocks: compile_one(side, config, blocks, case, options)
        for blocks in (few, many)
    }
    costs = {
        name: whole(found[few][name], found[many][name], few, many, config)
        for name in COSTS
    }
    return {
        **costs,
        **roofline(costs, options.topology),
        "of_blocks": {str(n): of_depth for n, of_depth in found.items()},
    }


def whole(first, second, few, many, config):
    """A cost of all blocks, which grows by the same for each."""
    return round(
        first + (second - first) / (many - few) * (config.num_layers - few)
    )


def compile_one(side, config, blocks, case, options) -> dict:
    import jax
    import keras

    from keras_vit.training.distribution.topologies import devices_of

    keras.backend.clear_session()
    config = dataclasses.replace(config, num_layers=blocks)
    program = Program(config, case.task, case.batch, options.distribution)
    begin = time.perf_counter()
    lowered = SIDES[side].lower(program, devices_of(options.topology))
    traced = time.perf_counter()
    executable = lowered.compile()
    ended = time.perf_counter()
    result = {
        "seconds_to_trace": round(traced - begin, 1),
        "seconds_to_compile": round(ended - traced, 1),
        **costs_of(executable),
    }
    print(f"{side}, {blocks} blocks: compiled in {ended - traced:.0f} s")
    del lowered, executable
    jax.clear_caches()
    gc.collect()
    return result


def costs_of(executable) -> dict:
    """What a compiled program computes and moves, and what moves most."""
    text = executable.as_text()
    moved = compiled_text.traffic(text)
    exchanged = compiled_text.collectives(text)
    # What XLA counts itself, or what its CUDA backend leaves to be counted.
    cost = executable.cost_analysis() or {
        "flops": compiled_text.products(text),
        "bytes accessed": sum(one.total for one in moved),
        "transcendentals": compiled_text.functions(text),
    }
    return {
        "flops": cost["flops"],
        "hbm_bytes": sum(one.hbm for one in moved),
        # As XLA counts: VMEM as well, and copies where they begin and end.
        "bytes_accessed": cost["bytes accessed"],
        "transcendentals": cost.get("transcendentals", 0),
        "peak_bytes": executable.memory_analysis().peak_memory_in_bytes,
        "collective_bytes": sum(size for _, size in exchanged.values()),
        "estimated_cycles": compiled_text.cycles(text),
        "collectives": exchanged,
        "largest": [
            {
                "mb": round(one.total / 1e6, 1),
                "hbm_mb": round(one.hbm / 1e6, 1),
                "layer": compiled_text.layer(one.instruction),
                "makes": compiled_text.makes(one.instruction),
            }
            for one in sorted(moved, key=lambda x: -x.total)[:LARGEST]
        ],
    }


def roofline(costs, topology) -> dict:
    """Seconds of the chip's data sheet, and what of them products can have."""
    from keras_vit.planning.devices_table import DEVICES

    kind = topology.partition(":")[0]
    if kind not in DEVICES:
        return {}
    parts = HALVED.get(kind, 1)
    products = costs["flops"] / (DEVICES[kind].peak_tflops / parts * 1e12)
    memory = costs["hbm_bytes"] / (DEVICES[kind].bandwidth_gb / parts * 1e9)
    return {
        "milliseconds_of_products": round(products * 1e3, 2),
        "milliseconds_of_memory": round(memory * 1e3, 2),
        "utilisation_at_most": round(products / max(products, memory), 3),
    }


def show(side, found) -> None:
    """Prints what moves most, and what devices exchange."""
    *_, deepest = found["of_blocks"].values()
    print(
        f"\n{side}: MB of operands and results, of them in HBM, layer, result"
    )
    for one in deepest["largest"]:
        print(
            f"{one['mb']:7.1f} {one['hbm_mb']:7.1f}  {one['layer']:45} "
            f"{one['makes']}"
        )
    for kind, (number, size) in deepest["collectives"].items():
        print(f"{number:4} {kind}, {size / 1e6:.1f} MB")


def versions(topology):
    import importlib.metadata

    def version(package):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(package)

    names = ["jax", "libtpu", "keras", "keras-hub"]
    if topology.startswith(GPUS):
        names[1] = "jax-cuda12-plugin"
    return {name: version(name) for name in names}


def plot(result, path) -> None:
    """Draws both times of the roofline, a pair of bars a side."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    sides = result["sides"]
    figure, axis = pyplot.subplots(
        figsize=(7, 1.3 + 0.7 * len(sides)), layout="constrained"
    )
    kinds = {"products": "tab:blue", "memory": "tab:orange"}
    for i, (kind, colour) in enumerate(kinds.items()):
        bars = axis.barh(
            [y + 0.4 * i for y in range(len(sides))],
            [x.get(f"milliseconds_of_{kind}", 0) for x in sides.values()],
            height=0.38,
            color=colour,
            label=kind,
        )
        axis.bar_label(bars, padding=3, fmt="%.4g")
    axis.set_yticks([y + 0.2 for y in range(len(sides))], list(sides))
    axis.invert_yaxis()
    axis.margins(x=0.15)
    axis.set_xlabel("milliseconds, at the peak of the data sheet")
    axis.set_title(
        f"{result['task']}, {result['model']} at {result['image_size']}, batch "
        f"{result['batch']}, {result['topology']}: a model, not measured",
        fontsize="medium",
    )
    figure.legend(loc="outside lower center", ncols=2)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
