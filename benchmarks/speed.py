"""Speed of training and inference against timm, transformers and keras-hub.

    python benchmarks/speed.py --models ViT_S16 --tasks training --batch 16
    python benchmarks/speed.py --models ViT_B16 ViT_L16 ViT_H14 --batch 128 \\
        --precision bfloat16 --sides "keras_vit jax" "timm compiled" --write

Each side is a process of its own that stays; they take turns, a round of steps
each, and medians of the rounds count, compilation apart. Images a second, the
ratio to each peer, the share of the matrix products' rate that was measured in
the same run on the same device, peak memory, and seconds until the first
step's end. A side that is not installed, does not fit, or compiles for longer
than `--patience`, says so. ViT_B16@384 is a model at another size. `--overview`
measures all parts of docs/speed.md, `--limit avx2` as on CPUs without AVX-512.
"""

import argparse
import importlib.util
import itertools
import json
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import threading
from typing import Any

from speed_case import Case, sizes
from speed_sides import SIDES
from speed_table import title

RESULTS = pathlib.Path(__file__).parent / "results"
WORKER = pathlib.Path(__file__).with_name("speed_worker.py")
PASSES = {"inference": 1, "training": 3}  # backward costs two forward ones
# What keeps the libraries of a process to narrower instructions.
LIMITS = {
    "": {},
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
    },
}
OURS = ["keras_vit jax", "keras_vit tensorflow", "keras_vit torch"]
HUB = ["keras-hub jax", "keras-hub tensorflow"]
# The options of each part of docs/speed.md.
OVERVIEW = (
    {
        "models": ["ViT_B16"],
        "tasks": ["inference"],
        "batch": [1, 8],
        "precision": "bfloat16",
        "sides": [
            "keras_vit openvino int8 calibrated",
            "keras_vit openvino",
            "timm openvino",
            "timm",
            "timm compiled",
        ],
        "rounds": 9,
        "steps": 4,
    },
    {
        "models": ["ViT_B16"],
        "tasks": ["inference"],
        "batch": [1, 8],
        "sides": ["keras_vit openvino", "timm openvino", "timm"],
        "rounds": 9,
    },
    {"sides": [*OURS, *HUB, "timm"], "rounds": 7, "steps": 2},
    {"sides": [*OURS, "timm"], "rounds": 7, "steps": 2, "limit": "avx2"},
    {
        "models": ["ViT_B16"],
        "batch": [8],
        "sides": [*OURS, *HUB, "timm"],
        "steps": 1,
    },
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--models", nargs="+", default=["ViT_S16"], metavar="MODEL[@SIZE]")
    tasks = tuple(PASSES)
    add("--tasks", nargs="+", default=tasks, choices=tasks)
    add("--sides", nargs="+", default=list(SIDES), choices=SIDES)
    add("--batch", nargs="+", type=int, default=[16])
    add("--precision", choices=("float32", "bfloat16"), default="float32")
    add("--rounds", type=int, default=5)
    add("--steps", type=int, default=3, help="steps in a round")
    add("--patience", type=float, default=600, help="seconds to start in")
    add("--write", action="store_true", help="keep the result and a plot")
    add("--limit", choices=LIMITS, default="", help="of the instructions")
    add(
        "--overview", action="store_true", help="measure what docs/speed.md has"
    )
    options = parser.parse_args()
    given = {name for part in OVERVIEW for name in part}
    given = {x for x in given if vars(options)[x] != parser.get_default(x)}
    if options.overview and given:
        parser.error(f"--overview has its own {', '.join(sorted(given))}")
    parts = OVERVIEW if options.overview else ({},)
    each = [argparse.Namespace(**{**vars(options), **part}) for part in parts]
    result = {
        "command": shlex.join(["python", "benchmarks/speed.py", *sys.argv[1:]]),
        "cases": [measure(case, part) for part in each for case in cases(part)],
    }
    print(json.dumps(result, indent=2))
    if options.write:
        write(result, options)


def cases(options):
    for model, task, batch in itertools.product(
        options.models, options.tasks, options.batch
    ):
        name, _, size = model.partition("@")
        yield Case(
            name,
            int(size or 224),
            task,
            batch,
            options.precision,
            options.limit,
        )


def measure(case: Case, options) -> dict:
    workers = {}
    for name in options.sides:
        if importlib.util.find_spec(SIDES[name].library):
            workers[name] = Worker(name, case)
    # One after the other: compilation is timed, and takes all cores.
    begun = {
        name: worker.ask("start", options.patience)
        for name, worker in workers.items()
    }
    running = [name for name in begun if "error" not in begun[name]]
    rounds = {name: [] for name in running}
    for _ in range(options.rounds):
        for name in running:
            answer = workers[name].ask(str(options.steps))
            rounds[name].append(answer["seconds"] / options.steps)
    ends = {name: workers[name].ask("end") for name in running}
    for worker in workers.values():
        worker.close()
    flops = 2 * PASSES[case.task] * multiply_adds(case)
    rows = {
        name: row(case, flops, rounds[name], begun[name], ends[name])
        for name in running
    }
    missing = {name: "not installed" for name in set(options.sides) - {*begun}}
    failed = {n: b["error"] for n, b in begun.items() if "error" in b}
    return {
        **case._asdict(),
        "sides": rows,
        "ratios": ratios(rows),
        "left_out": {**missing, **failed},
    }


def row(case, flops, seconds, begun, end):
    median = statistics.median(seconds)
    rate = case.batch / median
    return {
        "images_per_second": round(rate, 2),
        "fastest_and_slowest": [
            round(case.batch / x, 2) for x in (min(seconds), max(seconds))
        ],
        "model_tflops": round(rate * flops / 1e12, 4),
        "matmul_tflops": round(end["matmul_tflops"], 4),
        "utilisation": round(rate * flops / 1e12 / end["matmul_tflops"], 3),
        "peak_mib": round(end["peak_mib"]),
        "seconds_to_first_step": round(begun["seconds"], 1),
        **end["machine"],
    }


def ratios(rows):
    """Ours over each peer's, in images a second."""
    speed = {name: found["images_per_second"] for name, found in rows.items()}
    return {
        f"{ours} / {peer}": round(speed[ours] / speed[peer], 3)
        for ours, peer in itertools.permutations(speed, 2)
        if ours.startswith("keras_vit") and not peer.startswith("keras_vit")
    }


def multiply_adds(case):
    from keras_vit.planning.estimate import count

    return count(sizes(case)).multiply_adds


class Worker:
    """A process that does steps when it is asked to."""

    def __init__(self, name, case):
        self.process: Any = subprocess.Popen(
            [sys.executable, str(WORKER), name, json.dumps(case)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                # JAX would take three quarters of the memory for itself.
                "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
                **os.environ,
                **LIMITS[case.limit],
                "KERAS_BACKEND": SIDES[name].backend,
            },
        )

    def ask(self, what: str, patience: float = threading.TIMEOUT_MAX) -> dict:
        timer = threading.Timer(patience, self.process.kill)
        timer.start()
        try:
            self.process.stdin.write(f"{what}\n")
            self.process.stdin.flush()
            while line := self.process.stdout.readline():
                if line.startswith("{"):
                    return json.loads(line)
        except BrokenPipeError:
            pass
        finally:
            late = not timer.is_alive()
            timer.cancel()
        if late:
            return {"error": f"was not ready after {patience:g} seconds"}
        return {"error": f"ended with exit code {self.process.wait()}"}

    def close(self):
        self.process.kill()
        self.process.communicate()


def write(result, options) -> None:
    models = "-".join(options.models).replace("@", "_")
    what = f"{models}_{options.precision}"
    what = "overview" if options.overview else what
    name = f"speed_{what}_{options.limit or first_device(result)}"
    text = json.dumps(result, indent=2) + "\n"
    (RESULTS / f"{name}.json").write_text(text)
    plot(result, RESULTS / f"{name}.png")


def first_device(result):
    """The GPU, or the widest instructions of the CPU, as part of a name."""
    for side in (s for c in result["cases"] for s in c["sides"].values()):
        is_cpu = side["device"] == platform.machine()
        name = (side["instructions"] * is_cpu or [side["device"]])[0]
        return "".join(x for x in name if x.isalnum())
    return "none"


def plot(result, path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    cases = result["cases"]
    columns = 1 if len(cases) < 4 else 2
    rows = -(-len(cases) // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(7 * columns, 2.6 * rows), squeeze=False
    )
    for axis in axes.flat[len(cases) :]:
        axis.remove()
    for axis, case in zip(axes.flat, cases, strict=False):
        sides = case["sides"]
        speeds = [found["images_per_second"] for found in sides.values()]
        ours = [name.startswith("keras_vit") for name in sides]
        colours = ["tab:blue" if mine else "tab:gray" for mine in ours]
        bars = axis.barh(list(sides), speeds, color=colours)
        axis.bar_label(bars, padding=3, fmt="%.4g")
        axis.invert_yaxis()
        axis.margins(x=0.15)
        axis.set_xlabel("images / s")
        axis.set_title(title(case), fontsize="medium")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
