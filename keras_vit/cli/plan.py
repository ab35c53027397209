"""Plan the memory, time and input of a training run."""

import argparse
import dataclasses
import json

from keras_vit.cli.tables import markdown_table
from keras_vit.planning import Settings, count, machine, paper_runs, plan
from keras_vit.planning.counts import vit_config
from keras_vit.planning.memory import ATTENTION, OPTIMIZERS, PRECISIONS

__all__ = ["add_arguments"]

COLUMNS = (
    "layout",
    "recompute",
    "weights",
    "optimizer",
    "gradients",
    "activations",
    "peak",
    "parts",
    "seconds",
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
DEFAULTS = Settings()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command.

    Args:
        parser: of `keras-vit plan`.

    Example:
        >>> add_arguments(argparse.ArgumentParser())
    """
    parser.set_defaults(run=_run)
    add = parser.add_argument
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", help="such as ViT_H14")
    what.add_argument(
        "--paper",
        action="store_true",
        help="the runs of Table 2 of the ViT paper instead",
    )
    add("--batch", type=int, default=DEFAULTS.batch, help="on all devices")
    add("--devices", default="v5e-8", help="such as v5e-8, v4-32 or h200x8")
    add("--image_size", type=int, default=224, help="pixels")
    add("--classes", type=int, default=1000)
    add("--precision", choices=PRECISIONS, default=DEFAULTS.precision)
    add("--optimizer", choices=OPTIMIZERS, default=DEFAULTS.optimizer)
    add("--attention", choices=ATTENTION, help="that of the device by default")
    add(
        "--model_axis",
        type=int,
        default=DEFAULTS.model_axis,
        help="devices that share a layer under model_parallel",
    )
    add(
        "--efficiency",
        type=float,
        default=DEFAULTS.efficiency,
        help="assumed share of the peak",
    )
    add("--examples", type=float, help="images of the data set")
    add("--epochs", type=float, default=1.0, help="passes over them")
    add("--format", choices=("text", "json"), default="text")


def _run(arguments):
    report = _paper if arguments.paper else _plan
    objects, text = report(arguments)
    as_json = arguments.format == "json"
    print(json.dumps(objects, indent=2) if as_json else text)


def _plan(arguments):
    _check_positive(arguments, "examples", "epochs")
    devices = machine(arguments.devices)
    device = devices.device
    config = vit_config(
        arguments.model,
        image_size=arguments.image_size,
        num_classes=arguments.classes,
    )
    settings = Settings(
        batch=arguments.batch,
        precision=arguments.precision,
        optimizer=arguments.optimizer,
        attention=arguments.attention or device.attention,
        compiler=device.compiler,
        model_axis=arguments.model_axis,
        efficiency=arguments.efficiency,
    )
    rows = plan(config, settings, devices)
    objects = {
        "config": dataclasses.asdict(config),
        "counts": dataclasses.asdict(count(config)),
        "devices": {**dataclasses.asdict(devices), **device._asdict()},
        "settings": dataclasses.asdict(settings),
        "rows": [_object(row) for row in rows],
    }
    lines = _heading(arguments.model, config, settings, devices)
    lines += ["", *markdown_table(COLUMNS, map(_cells, rows)), "", *NOTES, ""]
    lines += _feeding(rows, devices, arguments)
    return objects, "\n".join(lines)


def _check_positive(arguments, *names):
    for name in names:
        value = getattr(arguments, name)
        if value is not None and value <= 0:
            raise ValueError(
                f"--{name} must be above 0. Received: --{name} {value:g}."
            )


def _object(row):
    return {
        **dataclasses.asdict(row),
        "peak_bytes": row.memory.total,
    }


def _heading(model, config, settings, devices):
    counts, device = count(config), devices.device
    height, width = config.image_size
    return [
        f"{model}, {height}x{width} pixels, {config.num_classes} classes: "
        f"{counts.parameters / 1e6:.1f} million parameters, "
        f"{counts.multiply_adds / 1e9:.1f} billion multiply-adds an image",
        f"{devices.count} x {devices.name}: {device.memory_gb:g} GB, "
        f"{device.peak_tflops:g} TFLOPS and {device.bandwidth_gb:g} GB/s each",
        f"{settings.batch} images a step, {settings.precision}, "
        f"{settings.optimizer}, {settings.attention} attention, "
        f"{settings.compiler} compiler",
        f"{settings.efficiency:.0%} of the peak is an assumption",
    ]


NOTES = (
    "GB on each device, its share of the batch at once. parts: into how many "
    "it must",
    "be cut to stay below 90 % of the memory. seconds: of a step.",
)


def _cells(row):
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
        f"{row.duration.seconds:.2f}",
    )


def _feeding(rows, devices, arguments):
    """What the fastest row that fits has to be fed with, and how long."""
    fitting = [row for row in rows if row.parts is not None]
    if not fitting:
        return ["Nothing fits: take more devices or another model_axis."]
    best = min(fitting, key=lambda row: (row.duration.seconds, row.parts))
    found = best.duration
    how = " with recomputation" if best.rematerialize else ""
    lines = [
        f"Fastest that fits: {best.layout}{how}, {found.flops / 1e15:.2f} "
        "petaFLOPs a step.",
        f"Input: {found.images_per_second:,.0f} images/s, "
        f"{found.pixel_bytes / 1e6:,.0f} MB/s as 8-bit pixels, about "
        f"{found.jpeg_bytes / 1e6:,.0f} MB/s as JPEG files.",
    ]
    if arguments.examples is not None:
        images = arguments.examples * arguments.epochs
        days = found.device_days(images, devices.count)
        lines.append(
            f"{arguments.epochs:g} epochs of {arguments.examples:,.0f} images: "
            f"{days:,.1f} device-days, {24 * days / devices.count:,.1f} hours."
        )
    return lines


def _paper(arguments):
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
        *markdown_table(PAPER_COLUMNS, rows),
    ]
    return [dataclasses.asdict(run) for run in runs], "\n".join(lines)


def _or_none(number):
    return "-" if number is None else f"{number:,.0f}"
