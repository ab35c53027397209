"""Throughput of the input pipeline, and CPU time of its RandAugment.

    python benchmarks/input_pipeline.py --write

writes JPEG images of the size of ImageNet's into a temporary folder and
measures, each in a process of its own: a plain tf.data loop that decodes and
resizes them; `keras_vit.data` doing the same; `keras_vit.data` with the
inception crop and flip of training, without and with RandAugment(2, 10) and
Mixup; then, on images in memory, the CPU time that RandAugment(2, 10) adds,
ours and KerasCV's (which needs keras-cv). The sides alternate and medians are
printed.

    python benchmarks/input_pipeline.py --sources --images 512 --write

measures the inception crop and flip of training of the same images in files,
tar, TFRecord, ArrayRecord and parquet shards, beside a plain tf.data loop on
the TFRecord files, Grain on the ArrayRecord files, and torchvision and timm on
the files, where they are installed. The last two read in one thread, so that
images per second of a core, of CPU time, compare them.

    python benchmarks/input_pipeline.py --readers --write

measures TensorFlow, Pillow, and Pillow that scales JPEG files while it decodes
them (`draft`), on one core, with files of 500x375 and 2000x1500 pixels. The
processes of the three stand still while another is measured, in turns; the
ratios are medians over the turns of CPU times an image.
"""

import argparse
import importlib
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

from input_tasks import BATCH, TASKS
from reader_tasks import CASES, batches_by
from shard_tasks import SOURCES, write_shards

RESULTS = pathlib.Path(__file__).parent / "results"
HEIGHT, WIDTH = 375, 500  # What most images of ImageNet have.
QUALITY = 90
WARM_UP = 8  # Batches that are not counted.
EPOCHS = 8  # of shards, since what is read ahead is no small part of one.
ALL = {**TASKS, **SOURCES}
READERS = ("tensorflow", "pillow", "draft")
# Height and width of files, how many, and batches of a turn.
READ_SIZES = ((375, 500, 256, 8), (1500, 2000, 64, 4))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--images", type=int, default=960)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="keep the result")
    parser.add_argument(
        "--sources", action="store_true", help="compare kinds of shards"
    )
    parser.add_argument(
        "--readers", action="store_true", help="compare what reads images"
    )
    parser.add_argument("--reader", choices=READERS, help=argparse.SUPPRESS)
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--child", choices=ALL, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        result = measured(options.child, options.folder, options.images)
        print(json.dumps(result))
        return
    if options.reader:
        turns(options.reader, options.case, options.folder, options.images)
        return
    if options.readers:
        result = compare_readers(options.repeats)
        print(json.dumps(result, indent=2))
        if options.write:
            path = RESULTS / "input_readers.json"
            path.write_text(json.dumps(result, indent=2) + "\n")
        return
    side = compare_sources if options.sources else compare
    result = side(options.images, options.repeats)
    print(json.dumps(result, indent=2))
    if options.write:
        kind = "sources" if options.sources else "pipeline"
        name = f"input_{kind}_{result['backend']}.json"
        (RESULTS / name).write_text(json.dumps(result, indent=2) + "\n")


def compare(images: int, repeats: int) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        write_images(f"{folder}/images", images)
        runs = alternating(TASKS, folder, images, repeats)
    medians = medians_of(runs)
    cpu = {task: run["cpu_ms_per_image"] for task, run in medians.items()}
    return {
        "images": images,
        **medians,
        "throughput_over_plain_loop": round(
            medians["evaluation"]["images_per_second"]
            / medians["plain"]["images_per_second"],
            2,
        ),
        "cpu_over_plain_loop": round(cpu["evaluation"] / cpu["plain"], 2),
        "rand_augment_cpu_ms": round(cpu["rand_augment"] - cpu["memory"], 3),
        "keras_cv_cpu_ms": round(cpu["keras_cv"] - cpu["memory"], 3),
        "rand_augment_over_keras_cv": round(
            (cpu["rand_augment"] - cpu["memory"])
            / (cpu["keras_cv"] - cpu["memory"]),
            2,
        ),
        **runs["plain"][0]["versions"],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def compare_sources(images: int, repeats: int) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KERAS_HOME"] = f"{folder}/keras"
        write_images(f"{folder}/images", images)
        write_shards(folder)
        runs = alternating(SOURCES, folder, EPOCHS * images, repeats)
    medians = medians_of(runs)
    for run in medians.values():
        per_core = 1000 / run["cpu_ms_per_image"]
        run["images_per_second_of_a_core"] = round(per_core, 1)
    return {
        "images": images,
        "repeats": repeats,
        **medians,
        **runs["files"][0]["versions"],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def compare_readers(repeats: int) -> dict:
    """Measure the readers on one core, in turns."""
    os.sched_setaffinity(0, {0})
    result = {}
    for height, width, count, batches in READ_SIZES:
        with tempfile.TemporaryDirectory() as folder:
            write_images(f"{folder}/images", count, height, width)
            for case in CASES:
                found = alternating_readers(case, folder, batches, repeats)
                result[f"{case}_{width}x{height}"] = found
    return {
        "command": "python benchmarks/input_pipeline.py --readers --write",
        "repeats": repeats,
        **result,
        **{
            name: importlib.import_module(name).__version__
            for name in ("keras", "tensorflow", "PIL")
        },
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, 1 core of {os.cpu_count()}",
    }


def alternating_readers(case, folder, batches, repeats) -> dict:
    command = [sys.executable, __file__, "--case", case, "--folder", folder]
    command += ["--images", str(batches)]
    sides = {
        reader: subprocess.Popen(
            [*command, "--reader", reader],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for reader in READERS
    }
    runs = {reader: [] for reader in READERS}
    for _ in range(repeats + 2):
        for reader, side in sides.items():
            if not side.stdin or not side.stdout:
                continue
            side.stdin.write("go\n")
            side.stdin.flush()
            runs[reader].append(json.loads(side.stdout.readline()))
            side.stdout.readline()
    for side in sides.values():
        side.communicate()
    # The first two have what starts and compiles.
    cpu = {reader: found[2:] for reader, found in runs.items()}
    result: dict = {
        "cpu_ms_per_image": {
            reader: round(statistics.median(x), 3) for reader, x in cpu.items()
        }
    }
    for reader in READERS[1:]:
        pairs = zip(cpu["tensorflow"], cpu[reader], strict=True)
        ratios = [round(first / other, 3) for first, other in pairs]
        result[f"{reader}_over_tensorflow"] = {
            "median": statistics.median(ratios),
            "range": [min(ratios), max(ratios)],
        }
    return result


def turns(reader: str, case: str, folder: str, batches: int) -> None:
    """Read batches each time that a line comes; print the CPU time an image.

    From line to line, so that what is read ahead of the next turn is counted
    with this one, as that of the turn before was.
    """
    found = batches_by(reader, case, folder)
    begin = time.process_time()
    for _ in sys.stdin:
        seconds = time.process_time() - begin
        begin += seconds
        print(json.dumps(1000 * seconds / (batches * BATCH)), flush=True)
        for _ in range(batches):
            next(found)
        print("done", flush=True)


def alternating(tasks, folder: str, images: int, repeats: int) -> dict:
    """What the child processes of each task measured, in turns."""
    runs = {task: [] for task in tasks}
    for _ in range(repeats):
        for task, results in runs.items():
            results.append(child(task, folder, images))
    return runs


def medians_of(runs: dict) -> dict:
    return {
        task: {
            key: round(statistics.median(run[key] for run in results), 3)
            for key in ("images_per_second", "cpu_ms_per_image")
        }
        for task, results in runs.items()
    }


def write_images(
    folder: str, count: int, height: int = HEIGHT, width: int = WIDTH
) -> None:
    """Smooth random colours with some noise: files of about 70 kB."""
    import numpy as np
    from PIL import Image

    generator = np.random.default_rng(0)
    for number in range(count):
        coarse = generator.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        smooth = Image.fromarray(coarse).resize((width, height), 3)
        noise = generator.normal(0, 8, (height, width, 3))
        pixels = np.clip(np.asarray(smooth) + noise, 0, 255).astype(np.uint8)
        path = os.path.join(folder, f"{number % 2}", f"{number}.jpg")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Image.fromarray(pixels).save(path, quality=QUALITY)


def child(task: str, folder: str, images: int) -> dict:
    command = [sys.executable, __file__, "--child", task]
    done = subprocess.run(
        [*command, "--folder", folder, "--images", str(images)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def measured(task: str, folder: str, images: int) -> dict:
    import keras
    import tensorflow

    batches = iter(ALL[task](folder))
    steps = images // BATCH
    # Tracing, the first of the threads, and what they read ahead.
    for _ in range(WARM_UP):
        next(batches)
    start, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        next(batches)
    seconds = time.perf_counter() - start
    cpu = time.process_time() - cpu
    return {
        "images_per_second": steps * BATCH / seconds,
        "cpu_ms_per_image": 1000 * cpu / (steps * BATCH),
        "versions": {
            "backend": keras.backend.backend(),
            "keras": keras.__version__,
            "tensorflow": tensorflow.__version__,
            "python": platform.python_version(),
        },
    }


if __name__ == "__main__":
    main()
