"""Count the parameters and the FLOPs of a model by part."""

import argparse
import json
import re

from keras_vit.cli.tables import markdown_table

__all__ = ["add_arguments"]

COLUMNS = ("part", "times", "parameters", "multiply-adds", "FLOPs", "share")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command.

    Args:
        parser: of `keras-vit summary`.

    Example:
        >>> add_arguments(argparse.ArgumentParser())
    """
    parser.set_defaults(run=_run)
    add = parser.add_argument
    add(
        "model",
        help="an application (ViT_B16), weights by name (ViT_B16/imagenet), a "
        "run folder or a file",
    )
    add("--image_size", type=int, help="pixels; that of the weights by default")
    add("--format", choices=("table", "json"), default="table")


def _run(arguments):
    from keras_vit.prediction import load_network

    model = load_network(arguments.model, image_size=arguments.image_size)
    parts = _parts(model)
    total = {
        name: sum(part["times"] * part[name] for part in parts)
        for name in ("parameters", "multiply_adds")
    }
    if arguments.format == "json":
        shape = list(model.input_shape[1:])
        found = {"input_shape": shape, "parts": parts, "total": total}
        print(json.dumps(found, indent=2))
        return
    rows = [_cells(part, total) for part in parts]
    rows.append(_cells({"part": "total", "times": 1, **total}, total))
    height, width, channels = model.input_shape[1:]
    print(f"{arguments.model}, one image of {height}x{width}x{channels}\n")
    print(*markdown_table(COLUMNS, rows), sep="\n")
    print("\nOf each part one; the share is that of all of its kind.")


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


def _cells(part, total):
    share = part["times"] * part["multiply_adds"] / total["multiply_adds"]
    return (
        part["part"],
        str(part["times"]),
        f"{part['parameters']:,}",
        f"{part['multiply_adds']:,}",
        f"{2 * part['multiply_adds']:,}",
        f"{share:.1%}",
    )
