"""Where the time of a step goes, by kind of operation.

    python benchmarks/step_profile.py --side "keras_vit jax" --write
    python benchmarks/step_profile.py --task inference
    python benchmarks/step_profile.py --side "keras-hub tensorflow"

The profile is the backend's own, of the steps that benchmarks/speed.py counts;
jax.profiler reads that of TensorFlow as well. Operations run side by side, so
that their seconds may sum up to more than the step's. Seconds of the processor
and page faults are the process's, a step.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import resource
import shlex
import sys
import tempfile
import time

import numpy as np
from speed_case import Case
from speed_sides import SIDES

RESULTS = pathlib.Path(__file__).parent / "results"
BACKENDS = ("jax", "tensorflow")
SHOWN = 15
MEASURES = ("user_seconds", "system_seconds", "page_faults")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    sides = [x for x, side in SIDES.items() if side.backend in BACKENDS]
    add("--side", choices=sides, default="keras_vit jax")
    add("--model", default="ViT_S16")
    add("--task", default="training", choices=("training", "inference"))
    add("--batch", type=int, default=16)
    add("--steps", type=int, default=3)
    add("--write", action="store_true", help="keep the result")
    options = parser.parse_args()
    side = SIDES[options.side]
    os.environ["KERAS_BACKEND"] = side.backend
    case = Case(options.model, 224, options.task, options.batch, "float32")
    steps = side.steps(case)
    steps(1)
    steps(2)  # The second step may compile once more.
    with tempfile.TemporaryDirectory() as folder:
        PROFILERS[side.backend](folder, True)
        begin, before = time.perf_counter(), process()
        seconds = steps(options.steps) or time.perf_counter() - begin
        taken = zip(MEASURES, process() - before, strict=True)
        PROFILERS[side.backend](folder, False)
        [file] = pathlib.Path(folder).glob("**/*.xplane.pb")
        kinds = by_kind(file, side.backend)
    result = {
        "command": shlex.join(
            ["python", "benchmarks/step_profile.py", *sys.argv[1:]]
        ),
        "seconds_of_a_step": round(seconds / options.steps, 2),
        **{name: round(x / options.steps, 2) for name, x in taken},
        "kinds": {
            kind: round(found / options.steps, 3)
            for kind, found in kinds.most_common(SHOWN)
        },
    }
    print(json.dumps(result, indent=2))
    if options.write:
        name = re.sub(r"\W+", "_", f"{options.task}_{options.side}")
        path = RESULTS / f"step_profile_{options.model}_{name}.json"
        path.write_text(json.dumps(result, indent=2) + "\n")


def process():
    """Return what this process has taken, in the order of `MEASURES`."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return np.array([used.ru_utime, used.ru_stime, used.ru_minflt])


def profile_jax(folder, begin):
    import jax

    if begin:
        jax.profiler.start_trace(folder)
    else:
        jax.profiler.stop_trace()


def profile_tensorflow(folder, begin):
    import tensorflow as tf

    if begin:
        tf.profiler.experimental.start(folder)
    else:
        tf.profiler.experimental.stop()


PROFILERS = {"jax": profile_jax, "tensorflow": profile_tensorflow}


def by_kind(file, backend) -> collections.Counter:
    """Seconds by kind of operation."""
    from jax.profiler import ProfileData

    seconds = collections.Counter()
    for plane in ProfileData.from_file(str(file)).planes:
        for line in plane.lines:
            for event in line.events:
                if kind := KINDS[backend](event):
                    seconds[kind] += event.duration_ns / 1e9
    return seconds


def kind_jax(event):
    """An operation of XLA without its number."""
    if "hlo_op" not in dict(event.stats):
        return None
    return re.sub(r"[\d.]+$", "", event.name.lstrip("%"))


def kind_tensorflow(event):
    """The type of "name:Type#...#", which operations alone have."""
    found = re.fullmatch(r"[^:\s]+/[^:\s]*:(\w+)(#.*)?", event.name)
    return found and found[1]


KINDS = {"jax": kind_jax, "tensorflow": kind_tensorflow}


if __name__ == "__main__":
    main()
