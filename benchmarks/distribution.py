"""Weak scaling of a training step: each device has a batch of one size.

    python benchmarks/distribution.py --write
    python benchmarks/distribution.py --virtual 4 --image_size 64 --write

trains a model on random images with the choices of `--distribution` that
KERAS_BACKEND has, on 1, 2, 4, ... devices. Each measurement is a process of
its own; the rounds alternate over them, and medians are printed. What scales
perfectly takes as long on N devices, which do N times the work, as on one:
`efficiency` is the time on one device over that on N.

`--virtual N` cuts the CPU into N devices, which share its cores: nothing gets
faster, and what is measured is the overhead alone. There each is compared with
one device that trains on the same images: `overhead` is 0.1 where the devices
take a tenth longer. The result is labelled virtual, in its name as well.
"""

import argparse
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

RESULTS = pathlib.Path(__file__).parent / "results"
CLASSES = 1000
WARM_UP = 2  # Steps that are not counted: the first of them compiles.
FACTS = ("virtual", "devices", "backend", "versions")
OPTIONS = ("model", "size", "image_size", "precision", "steps", "virtual")
# TPUStrategy takes a TPU as a whole, not some of its cores; several workers
# are several processes.
LEFT_OUT = ("tpu", "multiworker")
LABEL = "virtual devices of one CPU: overhead only, no speed-up can be seen"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="ViT_S16")
    parser.add_argument("--size", default="full", help='"tiny" for a trial')
    parser.add_argument("--image_size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=8, help="on each device")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--virtual", type=int, help="devices to cut the CPU in")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        choice, devices, batch = options.child
        print(json.dumps(measured(options, choice, int(devices), int(batch))))
        return
    with tempfile.TemporaryDirectory() as cache:
        # The later rounds do not compile again.
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", cache)
        result = compare(options)
    print(json.dumps(result, indent=2))
    if options.write:
        write(result)


def compare(options) -> dict:
    here = child(options, ("none", 1, 1))
    choices, count = here["choices"], len(here["devices"])
    counts = [2**k for k in range(1, count.bit_length()) if 2**k <= count]
    if not counts:
        raise SystemExit(
            f"There is nothing to compare: {here['devices']}. Give --virtual 4 "
            "to measure the overhead on virtual devices of the CPU."
        )
    batch = options.batch
    runs = {("single", 1, batch): []}
    runs |= {(name, n, n * batch): [] for name in choices for n in counts}
    if here["virtual"]:
        runs |= {("single", 1, n * batch): [] for n in counts}
    for number in range(options.rounds):
        for task, seconds in runs.items():
            seconds.append(child(options, task)["step_seconds"])
            print(number, *task, f"{seconds[-1]:.3f} s", file=sys.stderr)
    medians = {task: statistics.median(x) for task, x in runs.items()}
    size = "" if options.size == "full" else f" {options.size}"
    return {
        "what": LABEL if here["virtual"] else "weak scaling",
        "model": f"{options.model}{size}, {options.image_size} pixels",
        "precision": options.precision,
        "batch_per_device": batch,
        "rows": [row(task, medians, here["virtual"]) for task in medians],
        "steps": options.steps,
        "rounds": options.rounds,
        **{key: here[key] for key in FACTS},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def row(task, medians, virtual) -> dict:
    choice, devices, batch = task
    seconds = medians[task]
    found = {
        "distribution": choice,
        "devices": devices,
        "batch": batch,
        "step_seconds": round(seconds, 4),
        "images_per_second": round(batch / seconds, 1),
    }
    if choice == "single":
        return found
    if virtual:
        alone = medians["single", 1, batch]
        return {**found, "overhead": round(seconds / alone - 1, 2)}
    alone = medians["single", 1, batch // devices]
    return {**found, "efficiency": round(alone / seconds, 2)}


def child(options, task) -> dict:
    command = [sys.executable, __file__, "--child", *map(str, task)]
    for name in OPTIONS:
        if (value := getattr(options, name)) is not None:
            command += [f"--{name}", str(value)]
    printed = subprocess.check_output(command, text=True)
    return json.loads(printed.splitlines()[-1])


def measured(options, choice, count, batch) -> dict:
    """Seconds of a step in this process, and what it ran on."""
    if options.virtual:
        cut_cpu(options.virtual)

    import keras

    from keras_vit.runtime.machine import devices, versions
    from keras_vit.training import distribution
    from keras_vit.training.distribution.layouts import MAKERS

    found = devices()
    virtual = len(found) > 1 and all("cpu" in name for name in found)
    backend = keras.backend.backend()
    facts = {"devices": found, "virtual": virtual, "backend": backend}
    makers = MAKERS[backend]
    if choice == "none":
        choices = [name for name in makers if name not in LEFT_OUT]
        return {**facts, "choices": choices, "versions": versions()}
    if choice == "single":
        chosen = distribution.setup("single", batch_size=batch)
    else:
        names = tuple(found[:count])
        native, replicas = makers[choice](list(names), 2, 1)
        chosen = distribution.Distribution(
            choice, names, replicas, batch, native
        )
    with chosen.scope():
        return {"step_seconds": step_seconds(options, batch)}


def cut_cpu(count: int) -> None:
    """Before a backend starts: it sees so many devices."""
    flag = f"--xla_force_host_platform_device_count={count}"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * count
    )


def step_seconds(options, batch: int) -> float:
    """Trains as a recipe does, on one batch that is there already."""
    import keras
    import numpy as np
    import tensorflow as tf

    from keras_vit.runtime.workarounds import (
        draw_own_masks,
        sum_gradients_first,
    )
    from keras_vit.training import ModelConfig, Recipe, TrainingConfig, build
    from keras_vit.training.optimizers import make_optimizer

    recipe = Recipe(
        model=ModelConfig(
            options.model, size=options.size, image_size=options.image_size
        ),
        training=TrainingConfig(batch_size=batch, precision=options.precision),
    )
    keras.utils.set_random_seed(0)
    model = build.make_model(recipe, [str(k) for k in range(CLASSES)])
    optimizer = make_optimizer(
        recipe.optimizer, model, total_steps=1000, training=recipe.training
    )
    loss = build.make_loss(recipe.training)
    model.compile(optimizer, loss)
    sum_gradients_first(model.optimizer)
    draw_own_masks(model)
    random = np.random.default_rng(0)
    shape = (batch, options.image_size, options.image_size, 3)
    images = random.uniform(0, 255, shape).astype("float32")
    labels = np.eye(CLASSES, dtype="float32")[np.arange(batch) % CLASSES]
    batches = tf.data.Dataset.from_tensors((images, labels)).repeat()
    train(model, batches, WARM_UP)
    begin = time.perf_counter()
    train(model, batches, options.steps)
    return (time.perf_counter() - begin) / options.steps


def train(model, batches, steps):
    import keras

    model.fit(batches, steps_per_epoch=steps, shuffle=False, verbose=0)
    # The last step may still be computing.
    keras.ops.convert_to_numpy(model.trainable_variables[-1])


def write(result) -> None:
    kind = "_virtual" if result["virtual"] else ""
    model = re.sub(r"\W+", "_", result["model"].removesuffix(" pixels"))
    path = RESULTS / f"distribution_{model}_{result['backend']}{kind}.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    plot(result).savefig(path.with_suffix(".png"), dpi=120)


def plot(result):
    """Overhead or efficiency over the number of devices."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    measure = "overhead" if result["virtual"] else "efficiency"
    figure = Figure(figsize=(5.4, 3.6), layout="constrained")
    axis = figure.subplots()
    rows = [found for found in result["rows"] if measure in found]
    for name in dict.fromkeys(found["distribution"] for found in rows):
        own = [found for found in rows if found["distribution"] == name]
        x = [found["devices"] for found in own]
        axis.plot(x, [found[measure] for found in own], "o-", label=name)
    axis.set_xticks(sorted({found["devices"] for found in rows}))
    axis.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    axis.axhline(0 if result["virtual"] else 1, color="grey", linestyle=":")
    axis.set(xlabel="devices", ylabel=measure)
    axis.set_title(f"{result['model']}\n{result['what']}", fontsize=9)
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    return figure


if __name__ == "__main__":
    main()
