"""Memory and time of loading a checkpoint, against reading its arrays.

    python benchmarks/checkpoints.py --model ViT_H14 --write

writes a random file in Google's layout (2.5 GB for ViT_H14) into a temporary
folder and measures, each in a process of its own: reading every array of it
with NumPy into memory, as loading must, and one after the other, each
forgotten; building the model without and with random weights; loading it with
`keras_vit.load_checkpoint`. Peak memory is that of the process; what goes
beyond the model without weights and the bytes of the file is counted in bytes
of the largest group of tensors. The sides alternate and medians are printed.
"""

import argparse
import json
import math
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time

RESULTS = pathlib.Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="ViT_H14")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="keep the result")
    parser.add_argument("--child", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measured(options.child, options.model, options.file)))
        return
    result = compare(options.model, options.repeats)
    print(json.dumps(result, indent=2))
    if options.write:
        name = f"checkpoints_{options.model}_{result['backend']}.json"
        (RESULTS / name).write_text(json.dumps(result, indent=2) + "\n")


def compare(model: str, repeats: int) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "random.npz")
        group = child("write", model, path)["largest_group"]
        runs = {task: [] for task in COMPARED}
        for _ in range(repeats):
            for task, results in runs.items():
                results.append(child(task, model, path))
        size = os.path.getsize(path)
    medians = {
        task: {
            key: statistics.median(run[key] for run in results)
            for key in ("seconds", "peak_mib")
        }
        for task, results in runs.items()
    }
    model_mib = medians["graph"]["peak_mib"] + size / 2**20
    extra = medians["load"]["peak_mib"] - model_mib
    loading = medians["load"]["seconds"] - medians["graph"]["seconds"]
    return {
        "model": model,
        "file_mib": round(size / 2**20),
        "largest_group_mib": round(group / 2**20, 1),
        **medians,
        "memory_beyond_the_model_in_largest_groups": round(
            extra * 2**20 / group, 2
        ),
        "loading_seconds_over_reading_seconds": round(
            loading / medians["read"]["seconds"], 2
        ),
        **runs["load"][0]["versions"],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def child(task: str, model: str, path: str) -> dict:
    command = [sys.executable, __file__, "--child", task]
    done = subprocess.run(
        [*command, "--model", model, "--file", path],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def measured(task: str, model: str, path: str) -> dict:
    import keras
    import numpy

    import keras_vit

    start = time.perf_counter()
    result = TASKS[task](keras_vit, model, path)
    return {
        "seconds": time.perf_counter() - start,
        # Linux counts in KiB, macOS in bytes.
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        / (2**20 if sys.platform == "darwin" else 2**10),
        "largest_group": result,
        "versions": {
            "backend": keras.backend.backend(),
            "keras": keras.__version__,
            "numpy": numpy.__version__,
            "python": platform.python_version(),
        },
    }


def write(keras_vit, model, path):
    """A file of random weights; returns bytes of its largest group."""
    import numpy

    built = getattr(keras_vit, model)(weights=None)
    # Heads start at zero, which is worth a warning on loading.
    head = built.get_layer("predictions").kernel
    head.assign(numpy.random.default_rng(0).normal(size=head.shape))
    keras_vit.save_checkpoint(built, path, format="google")
    return max(4 * math.prod(weight.shape) for weight in built.weights)


def read(keras_vit, model, path):
    """Reads every array into memory."""
    import numpy

    with numpy.load(path) as file:
        return len(dict(file))


def skim(keras_vit, model, path):
    """Reads every array once and forgets it."""
    import numpy

    with numpy.load(path) as file:
        for name in file.files:
            file[name]


def graph(keras_vit, model, path):
    """The model without its weights, on a backend that has started."""
    import keras

    keras.ops.convert_to_numpy(keras.Variable("zeros", shape=(1,)))
    with keras.StatelessScope(initialize_variables=False):
        return bool(getattr(keras_vit, model)(weights=None))


def build(keras_vit, model, path):
    return bool(getattr(keras_vit, model)(weights=None))


def load(keras_vit, model, path):
    return bool(keras_vit.load_checkpoint(path))


TASKS = {
    "write": write,
    "read": read,
    "skim": skim,
    "graph": graph,
    "build": build,
    "load": load,
}

COMPARED = ("read", "skim", "graph", "build", "load")

if __name__ == "__main__":
    main()
