"""Commands on a model: `summary`, `plan` and `benchmark`."""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import sys
import time

import numpy as np

from keras_vit.checkpoints.public import catalog
from keras_vit.cli.terminal import waiting
from keras_vit.exporting.runtimes_table import FORMATS
from keras_vit.io.atomic_files import replacing
from keras_vit.io.checks import PRECISIONS, check_installed, check_positive
from keras_vit.io.tables import markdown_table
from keras_vit.models import ViTConfig
from keras_vit.planning import (
    Pretraining,
    Settings,
    check_compiler,
    compiler,
    confirm,
    cost_of,
    count,
    machine,
    paper_runs,
    text_memory,
)
from keras_vit.planning import plan as layouts
from keras_vit.planning.estimate import (
    ATTENTION,
    LAYOUTS,
    OPTIMIZERS,
    model_axis,
    training_flops,
    vit_config,
)
from keras_vit.planning.pretraining import METHODS
from keras_vit.runs.script import parse

__all__ = [
    "add_model",
    "benchmark",
    "plan",
    "summary",
]

SUMMARY_COLUMNS = (
    "part",
    "times",
    "parameters",
    "multiply-adds",
    "FLOPs",
    "share",
)
PLAN_COLUMNS = (
    "layout",
    "recompute",
    "weights",
    "optimizer",
    "gradients",
    "activations",
    "peak",
    "parts",
    "largest",
    "seconds",
)
COMPILED_COLUMNS = (
    "layout",
    "recompute",
    "parts",
    "formula",
    "compiler",
    "ratio",
    "largest",
    "its peak",
)
PAPER_COLUMNS = (
    "model",
    "images",
    "epochs",
    "exaFLOPs",
    "paper",
    "core-days",
    "paper",
    "equal at",
)
BATCHES = [1, 8, 32]
COMPARED_BATCHES = [1, 8]  # with formats, of which there are many
COLUMNS = (
    "images",
    "first call s",
    "median ms",
    "fastest ms",
    "images/s",
)
TEXT_COLUMNS = ("texts", *COLUMNS[1:-1], "texts/s")
COMPARED = ("side", *COLUMNS, "times Keras")


def benchmark(parser):
    """Time a model on this machine, and its exports."""
    parser.set_defaults(run=_benchmark)
    add = parser.add_argument
    add_model(add)
    add("--batch", type=int, nargs="+", help="images (1 8 32; formats: 1 8)")
    add("--repeats", type=int, default=10, help="timed calls of each batch")
    add("--precision", choices=PRECISIONS, default="float32")
    _add_texts(add, "time")
    add(
        "--formats",
        nargs="+",
        choices=("all", *FORMATS),
        metavar="FORMAT",
        help="export it and time each file as well, in turns: all or some of "
        + ", ".join(FORMATS),
    )
    add(
        "--output",
        type=pathlib.Path,
        metavar="FILE.json",
        help="with --formats: write the numbers, and a picture, FILE.png",
    )


def _benchmark(arguments):
    from keras_vit.prediction import load_network
    from keras_vit.runtime.machine import environment
    from keras_vit.runtime.platforms import compile_predictions

    default = COMPARED_BATCHES if arguments.formats else BATCHES
    batches = arguments.batch or default
    if max(*batches, arguments.repeats) > MOST_REPEATS:
        raise ValueError(
            f"--batch and --repeats are at most {MOST_REPEATS:,}. Received: "
            f"{max(*batches, arguments.repeats)}."[:200]
        )
    if min(*batches, arguments.repeats) < 1:
        raise ValueError(
            "--batch and --repeats must be above 0. Received: --batch "
            f"{batches} --repeats {arguments.repeats}."
        )
    if arguments.texts and arguments.formats:
        raise ValueError(
            "--texts times both towers in Keras, --formats the exports of the "
            f"image tower. Received: --texts --formats {arguments.formats}. "
            "Leave one out."
        )
    _check_output(arguments)
    model = load_network(
        arguments.model,
        image_size=arguments.image_size,
        precision=arguments.precision,
    )
    compile_predictions(model)
    machine = environment()
    measure = _compared if arguments.formats else _alone
    found, lines = measure(arguments, model, batches)
    if arguments.texts:
        found["texts"], of_texts = _timed_texts(arguments, batches)
        lines += ["", *of_texts]
    settings = {"model": arguments.model, "precision": arguments.precision}
    report = json.dumps({**settings, **found, **machine}, indent=2)
    if arguments.output is not None:
        _write(arguments, found, report)
    if arguments.format == "json":
        print(report)
        return
    height, width = model.input_shape[1:3]
    print(f"{arguments.model}, {height}x{width} pixels, {arguments.precision}")
    version = machine["versions"]["keras"]
    print(f"Keras {version} on {machine['backend']}, ", end="")
    print(f"{', '.join(map(str, machine['devices']))}, ", end="")
    print(f"{machine['processors']} processors, {machine['platform']}\n")
    print(*lines, sep="\n")


def _alone(arguments, model, batches):
    rows = [_timed(model, x, arguments.repeats) for x in batches]
    table = markdown_table(COLUMNS, map(_cells, rows), padded=True)
    lines = [
        *table,
        "",
        f"Median of {arguments.repeats} calls of predict_on_batch, pixels",
        "in memory, scores back in memory. The first call compiles.",
    ]
    return {"rows": rows}, lines


def _timed_texts(arguments, batches):
    """Time the text tower on ids of tokens, full texts."""
    from keras_vit.runtime.platforms import compile_predictions

    tower = _text_tower(arguments.model, arguments.precision)
    compile_predictions(tower)
    most = tower.config.vocabulary_size
    rows = [_timed(tower, x, arguments.repeats, most, "int32") for x in batches]
    table = markdown_table(TEXT_COLUMNS, map(_cells, rows), padded=True)
    tokens = tower.config.context_length
    for row in rows:
        row["texts_per_second"] = row.pop("images_per_second")
    return rows, [f"Texts of {tokens} tokens:", "", *table]


def _timed(model, batch, repeats, most=256, dtype="float32"):
    """Time predict_on_batch, which returns when the scores are there."""
    from keras_vit.exporting.comparison import timing

    shape = (batch, *model.input_shape[1:])
    numbers = np.random.default_rng(0).integers(0, most, shape)
    inputs = numbers.astype(dtype)

    def seconds():
        begin = time.perf_counter()
        model.predict_on_batch(inputs)
        return time.perf_counter() - begin

    first = seconds()
    return timing(batch, first, [seconds() for _ in range(repeats)])


def _cells(row):
    return (
        str(row["batch"]),
        f"{row['first_call_seconds']:.2f}",
        f"{1000 * row['median_seconds']:.1f}",
        f"{1000 * row['fastest_seconds']:.1f}",
        f"{row['images_per_second']:.1f}",
    )


# --- With formats ---
def _check_output(arguments):
    path = arguments.output
    if path is None:
        return
    if not arguments.formats or path.suffix != ".json":
        raise ValueError(
            "--output is a file *.json, with --formats. Received: --output "
            f"{path} --formats {arguments.formats}."
        )
    if not path.parent.is_dir():
        raise ValueError(f"There is no folder {str(path.parent)!r}.")
    check_installed("The picture", "matplotlib")


def _compared(arguments, model, batches):
    from keras_vit.exporting.comparison import compare
    from keras_vit.prediction import as_classifier

    found = compare(
        as_classifier(model, needs_classes=False),
        arguments.formats,
        batches=batches,
        repeats=arguments.repeats,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    rows = [
        (row["side"], *_cells(row), _share(row["times_keras"]))
        for row in found["rows"]
    ]
    lines = [
        *markdown_table(COMPARED, rows, padded=True),
        "",
        f"Median of {arguments.repeats} calls, in turns, pixels in memory,",
        "scores back in memory; each side in a process of its own.",
        *(
            f"Not installed: {', '.join(formats)}: pip install {packages}"
            for packages, formats in found["missing"].items()
        ),
        *(f"Left out: {x}: {why}" for x, why in found["left_out"].items()),
    ]
    return found, lines


def _share(ratio):
    return "-" if ratio is None else f"{ratio:.2f}"


def _write(arguments, found, report):
    from keras_vit.exporting.comparison import draw

    with replacing(arguments.output) as temporary:
        temporary.write_text(report + "\n", encoding="utf-8")
    picture = arguments.output.with_suffix(".png")
    draw(found, picture, arguments.model)
    print(f"{arguments.output} and {picture}", file=sys.stderr)


def summary(parser):
    """Count the parameters and the FLOPs of a model by part."""
    parser.set_defaults(run=_summary)
    add_model(parser.add_argument)
    _add_texts(parser.add_argument, "count")


def _add_texts(add, what):
    add(
        "--texts",
        action="store_true",
        help=f"{what} the text tower of an image-text model as well",
    )


MODEL = (
    "an application (ViT_B16), weights by name (ViT_B16/imagenet), a run "
    "folder or a file"
)


def add_model(add) -> None:
    """Adds a model, its image size and the format of what is printed."""
    add("model", help=MODEL)
    add(
        "--image_size",
        type=int,
        help="pixels (default: the size of the weights)",
    )
    add("--format", choices=("table", "json"), default="table")


def plan(parser):
    """Plan the memory, time and input of a training run."""
    parser.set_defaults(run=lambda found: _plan(found, parser.get_default))
    defaults = Settings()
    add = parser.add_argument
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("model", nargs="?", help=MODEL)
    what.add_argument("--model", dest="named", help=argparse.SUPPRESS)
    what.add_argument(
        "--paper",
        action="store_true",
        help="the runs of Table 2 of the ViT paper instead",
    )
    add("--batch", type=int, default=defaults.batch, help="on all devices")
    add("--devices", default="v5e-8", help="such as v5e-8, v4-32 or h200x8")
    add("--image_size", type=int, help="pixels; 224 for an application")
    add("--classes", type=int, default=1000)
    add("--precision", choices=PRECISIONS, default=defaults.precision)
    add("--optimizer", choices=OPTIMIZERS, default=defaults.optimizer)
    add("--attention", choices=ATTENTION, help="that of the device by default")
    add(
        "--model_axis",
        type=int,
        help="devices that share a layer under model_parallel; by default "
        "two where they divide the heads",
    )
    add(
        "--efficiency",
        type=float,
        default=defaults.efficiency,
        help="assumed share of the peak",
    )
    add(
        "--compile",
        nargs="*",
        choices=LAYOUTS,
        metavar="LAYOUT",
        help="ask the compiler for TPUs as well, minutes a layout; that of the "
        "fastest that fits by default",
    )
    _add_texts(add, "describe")
    add(
        "--method",
        choices=METHODS,
        help="plan `keras-vit pretrain --method`, which has no labels",
    )
    add(
        "--options",
        nargs="*",
        default=(),
        metavar="FIELD=VALUE",
        help="of the method, such as local_crops=4, and of distill "
        "teacher=ViT_B16",
    )
    add("--examples", type=float, help="images of the data set")
    add("--epochs", type=float, default=1.0, help="passes over them")
    add("--format", choices=("text", "json"), default="text")


def _summary(arguments):
    from keras_vit.prediction import load_network

    model = load_network(arguments.model, image_size=arguments.image_size)
    parts, size = _parts(model), ""
    if arguments.texts:
        tower = _text_tower(arguments.model)
        size = f" and one text of {tower.input_shape[1]} tokens"
        found = _parts(tower)
        parts += [{**x, "part": f"texts: {x['part']}"} for x in found]
    total = {
        name: sum(part["times"] * part[name] for part in parts)
        for name in ("parameters", "multiply_adds")
    }
    if arguments.format == "json":
        shape = list(model.input_shape[1:])
        found = {"input_shape": shape, "parts": parts, "total": total}
        print(json.dumps(found, indent=2))
        return
    rows = [_summary_cells(part, total) for part in parts]
    rows.append(_summary_cells({"part": "total", "times": 1, **total}, total))
    height, width, channels = model.input_shape[1:]
    print(
        f"{arguments.model}, one image of {height}x{width}x{channels}{size}\n"
    )
    print(*markdown_table(SUMMARY_COLUMNS, rows, padded=True), sep="\n")
    print("\nCounts are per part; shares cover all repeats.")


def _text_tower(source, precision="float32"):
    from keras_vit.text import as_text_encoder

    # A file of both towers has them as they were saved.
    dtype = None if precision == "float32" else precision
    return as_text_encoder(source, dtype=dtype).tower


def _parts(model):
    """Layers in their order, alike ones of the same name but a number once."""
    from keras_vit.analysis.compute import multiply_adds

    counts = multiply_adds(model)
    parts: dict = {}
    for layer in model.layers:
        numbers = (layer.count_params(), counts.get(layer.name, 0))
        if not any(numbers):
            continue
        key = (re.sub(r"\d+", "*", layer.name, count=1), numbers)
        parts.setdefault(key, []).append(layer.name)
    return [
        {
            "part": pattern if len(names) > 1 else names[0],
            "times": len(names),
            "parameters": numbers[0],
            "multiply_adds": numbers[1],
        }
        for (pattern, numbers), names in parts.items()
    ]


def _summary_cells(part, total):
    share = part["times"] * part["multiply_adds"] / total["multiply_adds"]
    return (
        part["part"],
        str(part["times"]),
        f"{part['parameters']:,}",
        f"{part['multiply_adds']:,}",
        f"{2 * part['multiply_adds']:,}",
        f"{share:.1%}",
    )


# What `--paper` does not read.
OF_A_MODEL = (
    *("batch", "devices", "image_size", "classes", "precision", "optimizer"),
    *("attention", "model_axis", "compile", "texts", "method", "options"),
    *("examples", "epochs"),
)


def _plan(arguments, default_of):
    unread = {
        "--paper": OF_A_MODEL if arguments.paper else (),
        "no --examples": ("epochs",) if arguments.examples is None else (),
        f"--method {arguments.method}": ("classes",)
        if arguments.method in ("mae", "dino")
        else (),
    }
    for case, names in unread.items():
        for name in names:
            if (value := getattr(arguments, name)) != default_of(name):
                raise ValueError(
                    f"--{name} does nothing with {case}. Received: {name}="
                    f"{value!r}. Leave it out."
                )
    report = _paper_report if arguments.paper else _plan_report
    objects, text = report(arguments)
    as_json = arguments.format == "json"
    print(json.dumps(objects, indent=2) if as_json else text)


def _plan_report(arguments):
    check_positive(arguments, "examples", "epochs", "classes", "image_size")
    _check_at_most(arguments)
    devices = machine(arguments.devices)
    device = devices.device
    source = arguments.model or arguments.named
    config = _planned(source, arguments.image_size, arguments.classes)
    method = _method(arguments)
    config = config if method is None else method.encoder(config)
    settings = Settings(
        batch=arguments.batch,
        precision=arguments.precision,
        optimizer=arguments.optimizer,
        attention=arguments.attention or device.attention,
        compiler=device.compiler,
        model_axis=arguments.model_axis,
        efficiency=arguments.efficiency,
        method=method,
    )
    if arguments.compile is not None:
        check_compiler(devices)
    rows = layouts(config, settings, devices)
    compiled = [
        confirm(config, settings, devices, row, _peaks_shown)
        for row in _to_compile(rows, arguments.compile)
    ]
    objects = {
        "config": dataclasses.asdict(config),
        "counts": dataclasses.asdict(count(config)),
        "cost": dataclasses.asdict(cost_of(config, method)),
        "devices": {**dataclasses.asdict(devices), **device._asdict()},
        "settings": {
            **dataclasses.asdict(settings),
            "model_axis": model_axis(config, settings),
        },
        "rows": [
            {**dataclasses.asdict(row), "peak_bytes": row.memory.total}
            for row in rows
        ],
        "compiled": [dataclasses.asdict(found) for found in compiled],
    }
    lines = _heading(source, config, settings, devices)
    if arguments.texts:
        objects["texts"], of_texts = _planned_texts(source)
        lines += of_texts
    lines += [
        "",
        *markdown_table(PLAN_COLUMNS, map(_plan_cells, rows), padded=True),
        "",
        *PLAN_NOTES,
        "",
    ]
    if compiled:
        cells = map(_compiled_cells, compiled)
        lines += markdown_table(COMPILED_COLUMNS, cells, padded=True)
        lines += ["", *COMPILED_NOTES, ""]
    lines += _feeding(rows, devices, arguments)
    return objects, "\n".join(lines)


def _planned(source, image_size, classes):
    """Return the config of a model: by its name, or as its weights have it."""
    entry = catalog.entry_of(source)
    name = entry.model if entry else source  # None of timm's names.
    elsewhere = os.path.exists(source) or source.lower() in catalog.SHIPPED
    if name and "/" not in name and not elsewhere:
        size = 224 if image_size is None else image_size
        return vit_config(name, image_size=size, num_classes=classes)
    from keras_vit.prediction import load_network

    model = load_network(source, image_size=image_size)
    if not isinstance(getattr(model, "config", None), ViTConfig):
        raise ValueError(
            "Only Vision Transformers are planned. Received: "
            f"{source!r}, a {type(model).__name__}."
        )
    return dataclasses.replace(model.config, num_classes=classes)


def _planned_texts(source):
    """Return what the text tower of a source costs, and lines of it."""
    config = _text_tower(source).config
    counts, taken = count(config), text_memory(config)
    objects = {
        "config": dataclasses.asdict(config),
        "counts": dataclasses.asdict(counts),
        "memory": taken._asdict(),
    }
    vocabulary = config.vocabulary_size * config.hidden_dim
    lines = [
        f"Its text tower, not trained: {counts.parameters / 1e6:.1f} million "
        f"parameters, {vocabulary / 1e6:.1f} of them the vocabulary, "
        f"{counts.multiply_adds / 1e9:.1f} billion multiply-adds per text of "
        f"{config.context_length} tokens, {taken.weights / 1e9:.2f} GB and "
        f"{taken.working / 1e9:.2f} for 256 texts at a time",
    ]
    return objects, lines


def _method(arguments):
    """Return the `Pretraining` of the command line, None with labels."""
    name, given = arguments.method, arguments.options
    if name is None:
        if given:
            raise ValueError(
                "Options are those of a method. Received: --options "
                f"{' '.join(given)}. Give --method as well."
            )
        return None
    words = [f"--{word}" for word in given]
    options = parse(METHODS[name].options, words, "Options of a method.")
    teacher = getattr(options, "teacher", None)
    if teacher is not None:
        size = options.teacher_size
        if isinstance(size, tuple):
            raise ValueError(
                "A teacher is planned for square images. Received: "
                f"teacher_size={size}. Give one side."
            )
        teacher = _planned(teacher, size, arguments.classes)
    return Pretraining(options, teacher)


MOST_REPEATS = 100_000
# Numbers beyond which a plan says nothing of any machine.
AT_MOST = {
    "batch": 2**22,
    "classes": 10**7,
    "image_size": 2**14,
    "model_axis": 10**6,
    "examples": 10**15,
    "epochs": 10**9,
}


def _check_at_most(arguments):
    for name, most in AT_MOST.items():
        value = getattr(arguments, name)
        if value is not None and not value <= most:
            raise ValueError(
                f"--{name} is at most {most:,}. Received: {str(value)[:50]}."
            )


def _heading(model, config, settings, devices):
    counts, device = count(config), devices.device
    height, width = config.image_size
    method, cost = settings.method, cost_of(config, settings.method)
    learned = f"{config.num_classes} classes"
    more = []
    if method is not None:
        learned = f"method {method.name}"
        frozen = 0 if cost.frozen is None else cost.frozen.parameters
        products = training_flops(cost.trained, False, cost.frozen) / 6
        more = [
            f"{cost.trained.parameters / 1e6:.1f} million parameters are "
            f"trained, {frozen / 1e6:.1f} million are a teacher's; a step has "
            f"{products / counts.multiply_adds:.1f} times the products of the "
            "encoder alone",
        ]
    return [
        f"{model}, {height}x{width} pixels, {learned}: "
        f"{counts.parameters / 1e6:.1f} million parameters, "
        f"{counts.multiply_adds / 1e9:.1f} billion multiply-adds per image",
        *more,
        f"{devices.count} x {devices.name}: {device.memory_gb:g} GB, "
        f"{device.peak_tflops:g} TFLOPS and {device.bandwidth_gb:g} GB/s each",
        f"{settings.batch} images per step, {settings.precision}, "
        f"{settings.optimizer}, {settings.attention} attention, "
        f"{settings.compiler} compiler",
        f"{settings.efficiency:.0%} of the peak is an assumption",
    ]


PLAN_NOTES = (
    "GB on each device, its share of the batch at once. parts: into how many "
    "it must",
    "be cut to stay below 90 % of the memory. largest: the batch that fits "
    "uncut.",
    "seconds: of a step.",
)


COMPILED_NOTES = (
    "GB on each device with one part of the batch, by formula and by XLA's "
    "compiler for",
    "TPUs, which runs nothing; the rest of the blocks grows as from 2 to 4. "
    "largest: the",
    "batch that fits uncut, compiled, and its peak.",
)


def _plan_cells(row):
    memory = row.memory
    bytes_of = (
        memory.weights,
        memory.optimizer,
        memory.gradients,
        memory.activations,
        memory.total,
    )
    return (
        row.layout,
        "blocks" if row.rematerialize else "nothing",
        *(f"{value / 1e9:.2f}" for value in bytes_of),
        "does not fit" if row.parts is None else str(row.parts),
        f"{row.largest_batch:,}",
        f"{row.duration.seconds:.2f}",
    )


def _to_compile(rows, names):
    """Choose the fastest row that fits, or that of each requested layout."""
    if names is None:
        return []
    groups = [[row for row in rows if row.layout == name] for name in names]
    return [x for group in groups or [rows] if (x := _fastest(group))]


def _fastest(rows):
    fitting = [row for row in rows if row.parts is not None]
    return min(
        fitting, key=lambda x: (x.duration.seconds, x.parts), default=None
    )


def _peaks_shown(cases):
    """Compiles cases, and shows on a terminal what of."""
    blocks = " and ".join(str(x["config"]["num_layers"]) for x in cases)
    first = cases[0]
    text = f"{first['distribution']} on {first['topology']}"
    text += f", batch {first['batch']}, {blocks} blocks"
    with waiting(f"Compiling {text}"):
        return compiler.compiled_peaks(cases)


def _compiled_cells(found):
    known, largest = found.compiled_bytes, found.largest_bytes
    return (
        found.layout,
        "blocks" if found.rematerialize else "nothing",
        str(found.parts),
        f"{found.formula_bytes / 1e9:.2f}",
        f"{known / 1e9:.2f}" if known else "does not fit",
        f"{found.formula_bytes / known:.2f}" if known else "-",
        f"{found.largest_batch:,}",
        f"{largest / 1e9:.2f}" if largest else "-",
    )


def _feeding(rows, devices, arguments):
    """Describe the input that the fastest row that fits needs."""
    best = _fastest(rows)
    if best is None:
        return ["Nothing fits: take more devices or another model_axis."]
    found = best.duration
    how = " with recomputation" if best.rematerialize else ""
    lines = [
        f"Fastest that fits: {best.layout}{how}, {found.flops / 1e15:.2f} "
        "petaFLOPs per step.",
        f"Input: {found.images_per_second:,.0f} images/s, "
        f"{found.pixel_bytes / 1e6:,.0f} MB/s as 8-bit pixels, about "
        f"{found.jpeg_bytes / 1e6:,.0f} MB/s as JPEG files.",
    ]
    if arguments.examples is not None:
        images = arguments.examples * arguments.epochs
        days = found.device_days(images, devices.count)
        lines.append(
            f"{arguments.epochs:g} epochs of {arguments.examples:,.0f} images: "
            f"{_number(days)} device-days, "
            f"{_number(24 * days / devices.count)} hours."
        )
    return lines


def _paper_report(arguments):
    runs = paper_runs(arguments.efficiency)
    rows = [
        (
            run.model,
            run.dataset,
            str(run.epochs),
            f"{run.exaflops:,.0f}",
            _or_none(run.paper_exaflops),
            f"{run.core_days:,.0f}",
            _or_none(run.paper_core_days),
            f"{run.efficiency:.0%}",
        )
        for run in runs
    ]
    lines = [
        f"TPUv3-core-days at {arguments.efficiency:.0%} of the peak, which is "
        "an assumption;",
        "equal at: the share at which they would be the paper's.",
        "",
        *markdown_table(PAPER_COLUMNS, rows, padded=True),
    ]
    return [dataclasses.asdict(run) for run in runs], "\n".join(lines)


def _number(value):
    """Write one digit behind the point, below 1 the first two that count."""
    return f"{value:,.1f}" if value >= 1 else f"{value:.2g}"


def _or_none(number):
    return "-" if number is None else f"{number:,.0f}"
