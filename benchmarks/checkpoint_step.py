"""How long a checkpoint holds up the training, and the memory that it takes.

    KERAS_BACKEND=jax python benchmarks/checkpoint_step.py --processes 1 --write

builds a model with AdamW under fsdp on virtual devices of the processor, which
one or more processes share, and writes a checkpoint of it in two ways:
gathered, where each process gathers all and the first one writes it before the
next step, and sharded, as runs do: each process copies its own shards and
writes them in a thread. Each way is measured in processes of its own: the
seconds until the next step may begin, those until the files are there, and the
peak memory beyond what the process had before, of the process where it is most.
The ways alternate; medians are printed.
"""

import argparse
import ctypes
import gc
import json
import os
import pathlib
import platform
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = pathlib.Path(__file__).parent / "results"
RECORD = {
    **{"step": 1, "interval": 1, "ended": False, "seconds": 0.0},
    "callbacks": [],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="ViT_B16")
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="keep the result")
    parser.add_argument("--child", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measured(options)))
        return
    result = compare(options)
    print(json.dumps(result, indent=2))
    if options.write:
        name = f"checkpoint_step_{options.model}_{options.processes}.json"
        (RESULTS / name).write_text(json.dumps(result, indent=2) + "\n")


def compare(options) -> dict:
    runs = {way: [] for way in WAYS}
    for _ in range(options.repeats):
        for way, found in runs.items():
            with tempfile.TemporaryDirectory() as folder:
                found.append(run(options, way, folder))
    return {
        "model": options.model,
        "devices": options.devices,
        "processes": options.processes,
        "state_mib": runs["gathered"][0]["state_mib"],
        "share_of_a_device_mib": runs["gathered"][0]["share_mib"],
        **{
            way: {
                name: round(statistics.median(x[name] for x in found), 2)
                for name in ("held_up_s", "written_s", "beyond_mib")
            }
            for way, found in runs.items()
        },
        **runs["gathered"][0]["versions"],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def run(options, way, folder) -> dict:
    """Measures one way; the most of all processes."""
    sys.path.insert(0, str(ROOT / "tests"))
    import several_processes

    each = options.devices // options.processes
    command = [__file__, "--child", way, "--folder", folder]
    command += ["--model", options.model, "--devices", options.devices]
    if options.processes == 1:
        flag = f"--xla_force_host_platform_device_count={each}"
        os.environ["XLA_FLAGS"] = flag
    processes = several_processes.start(
        command, count=options.processes, devices=each
    )
    found = []
    for code, output, errors in several_processes.ended(processes, 1200):
        if code:
            raise SystemExit(errors[-3000:])
        found.append(json.loads(output.splitlines()[-1]))
    most = ("held_up_s", "written_s", "beyond_mib")
    return found[0] | {name: max(x[name] for x in found) for name in most}


def measured(options) -> dict:
    import keras

    import keras_vit
    from keras_vit.runtime.machine import versions
    from keras_vit.training.distribution import setup

    chosen = setup("fsdp", batch_size=options.devices)
    keras.utils.set_random_seed(0)  # All processes begin alike.
    with chosen.scope():
        model = getattr(keras_vit, options.model)(weights=None)
        model.compile(keras.optimizers.AdamW(1e-3), "categorical_crossentropy")
        model.optimizer.build(model.trainable_variables)
        variables = [*model.variables, *model.optimizer.variables]
        for variable in variables:  # As a step makes them.
            variable.assign(variable.value + 0)
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # What is free would be used again.
        before = memory("VmRSS")
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak
        begin = time.perf_counter()
        write = WAYS[options.child](pathlib.Path(options.folder), model)
        held_up = time.perf_counter() - begin
        write()
        written = time.perf_counter() - begin
    return {
        "held_up_s": held_up,
        "written_s": written,
        "beyond_mib": memory("VmHWM") - before,
        "state_mib": round(sum(x.value.nbytes for x in variables) / 2**20),
        "share_mib": round(sum(map(share, variables)) / 2**20),
        "versions": versions(),
    }


def share(variable) -> int:
    """Bytes of a variable on one device."""
    return variable.value.addressable_shards[0].data.nbytes


def memory(name: str) -> float:
    """A line of /proc/self/status in MiB."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{name}:")]
    return int(line.split()[1]) / 1024


def gathered(folder, model):
    """All of it in each process, of which the first one writes it."""
    from keras_vit.checkpoints.files.npz import write_npz
    from keras_vit.io.atomic_files import replacing
    from keras_vit.training.distribution.processes import is_first, to_numpy

    variables = [*model.variables, *model.optimizer.variables]
    arrays = [(f"{i}", to_numpy(x)) for i, x in enumerate(variables)]
    if is_first():
        with replacing(folder / "step-000000001.npz") as path:
            write_npz(path, arrays)
    return lambda: None


def sharded(folder, model):
    """The copy is made here, the rest is left to the thread."""
    from keras_vit.training.checkpointing import begin_checkpoint

    return begin_checkpoint(folder, 1, model, RECORD)


WAYS = {"gathered": gathered, "sharded": sharded}

if __name__ == "__main__":
    main()
