"""Memory and time of attention rollout against plain inference.

    python benchmarks/analysis.py --write

builds B/16 at 384 pixels with random weights and measures
`model.predict_on_batch` and `attention_rollout` on the same batch, one after
the other in turn in one process, medians, without compilation. Peak memory is
that of a process of its own, compilation included; what a rollout (and, for
comparison, `attention_maps`) takes beyond inference is counted in layers: the
bytes of the softmax weights of one layer. With a third of the layers it must
be the same number.
"""

import argparse
import json
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import time

RESULTS = pathlib.Path(__file__).parent / "results"
LAYERS = (4, 12)
TOKENS, HEADS = 577, 12


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--write", action="store_true", help="keep the result")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--layers", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measured(options)))
        return
    result = compare(options)
    print(json.dumps(result, indent=2))
    if options.write:
        name = f"analysis_ViT_B16_384_{result['backend']}.json"
        (RESULTS / name).write_text(json.dumps(result, indent=2) + "\n")


def compare(options) -> dict:
    timed = child("time", LAYERS[-1], options)
    peaks = {
        layers: {task: child(task, layers, options)["peak_mib"] for task in RUN}
        for layers in LAYERS
    }
    layer_mib = options.batch * HEADS * TOKENS**2 * 4 / 2**20
    return {
        "model": "ViT_B16, 384 pixels",
        "batch": options.batch,
        "inference_seconds": timed["seconds"]["inference"],
        "rollout_seconds": timed["seconds"]["rollout"],
        "rollout_over_inference": timed["ratio"],
        "weights_of_one_layer_mib": round(layer_mib, 1),
        "peak_mib": {
            f"{layers} layers": {k: round(v) for k, v in found.items()}
            for layers, found in peaks.items()
        },
        "beyond_inference_in_layers": {
            f"{layers} layers": {
                task: round((found[task] - found["inference"]) / layer_mib, 1)
                for task in RUN
                if task != "inference"
            }
            for layers, found in peaks.items()
        },
        **timed["versions"],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def child(task: str, layers: int, options) -> dict:
    command = [sys.executable, __file__, "--child", task]
    command += ["--layers", str(layers), "--batch", str(options.batch)]
    done = subprocess.run(
        [*command, "--repeats", str(options.repeats)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def measured(options) -> dict:
    import keras
    import numpy

    from keras_vit.models import VisionTransformer, ViTConfig

    config = ViTConfig(image_size=(384, 384), num_layers=options.layers)
    model = VisionTransformer(config)
    shape = (options.batch, 384, 384, 3)
    images = numpy.random.default_rng(0).uniform(-1, 1, shape)
    images = images.astype("float32")
    result = {}
    if options.child == "time":
        result = times(model, images, options.repeats)
    else:
        RUN[options.child](model, images)
    return {
        **result,
        # Linux counts in KiB, macOS in bytes.
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        / (2**20 if sys.platform == "darwin" else 2**10),
        "versions": {
            "backend": keras.backend.backend(),
            "keras": keras.__version__,
            "numpy": numpy.__version__,
            "python": platform.python_version(),
        },
    }


def times(model, images, repeats):
    compared = ("inference", "rollout")
    seconds = {task: [] for task in compared}
    for task in compared:
        RUN[task](model, images)
    for _ in range(repeats):
        for task in compared:
            start = time.perf_counter()
            RUN[task](model, images)
            seconds[task].append(time.perf_counter() - start)
    medians = {task: statistics.median(s) for task, s in seconds.items()}
    return {
        "seconds": {task: round(s, 3) for task, s in medians.items()},
        "ratio": round(medians["rollout"] / medians["inference"], 2),
    }


def inference(model, images):
    return model.predict_on_batch(images)


def rollout(model, images):
    from keras_vit.analysis import attention_rollout

    return attention_rollout(model, images)


def maps(model, images):
    from keras_vit.analysis import attention_maps

    return attention_maps(model, images)


RUN = {"inference": inference, "rollout": rollout, "maps": maps}

if __name__ == "__main__":
    main()
