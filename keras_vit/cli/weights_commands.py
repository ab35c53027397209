"""`keras-vit weights`: the catalogue, and files of weights."""

import dataclasses
import fnmatch
import itertools
import json
import os
import re
from collections import Counter
from pathlib import Path

from keras_vit.checkpoints.public import catalog
from keras_vit.io.tables import markdown_table
from keras_vit.sizes import BIT, MIXER, VIT

__all__ = ["as_markdown", "weights"]

COLUMNS = (
    *("weights", "classes", "pixels", "MiB", "top-1 %", "measured by"),
    "licence",
)
# Of a table of 80 columns; a longer name has a line of its own.
ROW = "{:<41} {:>6} {:>4} {:>5} {:>5} {}"
NAME_WIDTH, LICENCE_WIDTH = 41, 14
WEIGHTS = (".safetensors", ".h5", ".keras")
SOURCE = (
    "a name that `keras-vit weights list` shows, a path, an https:// address, "
    "hf://user/name[@revision], kaggle://user/model/framework/variation or "
    + ", ".join(f"{library}/name" for library in catalog.LIBRARY_TABLES)
)


def weights(parser):
    """List, describe, verify, convert and average weights."""
    commands = parser.add_subparsers(metavar="command", required=True)

    def command(name, run, summary):
        added = commands.add_parser(name, help=summary, description=summary)
        added.set_defaults(run=run)
        return added

    added = command("list", _list, "Show the public weights.")
    added.add_argument(
        "pattern",
        nargs="?",
        default="*",
        help="part of the names, or a pattern such as 'vit_*_patch14*'",
    )
    added.add_argument("--model", help="such as ViT_B16; all by default")
    added.add_argument("--format", choices=FORMATS, default="table")

    added = command("info", _info, "Describe weights without loading them.")
    added.add_argument("source", help=SOURCE)
    added.add_argument("--format", choices=("text", "json"), default="text")
    _add_known_fields(added)

    added = command("verify", _verify, "Check the hash and every tensor.")
    added.add_argument("source", help=SOURCE)
    _add_known_fields(added)

    added = command("convert", _convert, "Write weights in another format.")
    added.add_argument("source", help=SOURCE)
    added.add_argument("out", type=Path, help="path to write")
    added.add_argument("--format", required=True, help="of the new file")
    added.add_argument("--overwrite", action="store_true")
    _add_known_fields(added)

    added = command("average", _average, "Average the weights of models.")
    added.add_argument("sources", nargs="+", help=SOURCE)
    added.add_argument(
        "-o", "--out", type=Path, required=True, help="file to write, .keras"
    )
    added.add_argument(
        "--shares",
        type=float,
        nargs="+",
        help="of each model in its order, which sum to 1; equal by default",
    )
    added.add_argument("--overwrite", action="store_true")


def _add_known_fields(parser):
    """Add options for fields that a file may not define."""
    parser.add_argument(
        "--num_heads",
        type=int,
        help="attention heads, if the file does not define them",
    )
    parser.add_argument(
        "--architecture",
        help=f"name in {' or '.join(catalog.LIBRARY_TABLES)}, such as "
        "vit_base_patch16_clip_224, if unknown",
    )
    parser.add_argument(
        "--activation",
        help="of the MLPs, such as gelu or quick_gelu, if unknown",
    )


def _known_fields(arguments) -> dict:
    names = ("num_heads", "architecture", "activation")
    given = {name: getattr(arguments, name) for name in names}
    return {name: value for name, value in given.items() if value is not None}


def _list(arguments):
    pattern = arguments.pattern.lower()
    if not set(pattern) & set("*?["):
        pattern = f"*{pattern}*"
    listed = {x.key: x for x in catalog.entries(arguments.model)}
    if arguments.model is None:  # Those of libraries are of no application.
        listed = {**listed, **catalog.library_entries(), **listed}
    found = [
        entry
        for key, entry in listed.items()
        if any(
            fnmatch.fnmatchcase(name.lower(), pattern)
            for name in (key, key if entry.model else entry.bare_name)
        )
    ]
    if not found:
        raise ValueError(
            f"No name matches. Received: {arguments.pattern!r}. `keras-vit "
            "weights list` without a pattern lists all."
        )
    FORMATS[arguments.format](found)


def _print_table(entries):
    print(ROW.format("weights", "labels", "size", "MiB", "top-1", "licence"))
    for entry in entries:
        _, classes, pixels, size, top1, _, licence = _cells(entry, entry.key)
        top1 = f"{float(top1):.1f}" if top1 else ""
        name, licence = entry.key, licence or "unknown"
        if len(name) > NAME_WIDTH:
            print(name)
            name = ""
        if len(licence) > LICENCE_WIDTH:
            licence = licence[: LICENCE_WIDTH - 3] + "..."
        print(ROW.format(name, classes, pixels, size, top1, licence))
    print(
        f"\n{len(entries)} weights. `keras-vit weights info NAME` has the rest."
    )


def _print_json(entries):
    objects = [{"key": x.key, **dataclasses.asdict(x)} for x in entries]
    print(json.dumps(objects, indent=2))


def _print_markdown(entries):
    print(as_markdown(entries), end="")


FORMATS = {
    "table": _print_table,
    "json": _print_json,
    "markdown": _print_markdown,
}


def as_markdown(entries) -> str:
    """Return a table per model for docs/weights.md, of sorted entries."""
    lines = []
    by_model = itertools.groupby(entries, key=lambda entry: entry.model)
    for model, group in by_model:
        found = list(group)
        rows = [_cells(entry, f"`{entry.name}`") for entry in found]
        lines += [
            f"### {model or found[0].name.partition('/')[0]}",
            "",
            *markdown_table(COLUMNS, rows),
            "",
        ]
    return "\n".join(lines)


def _cells(entry, name):
    size = entry.approximate_mebibytes
    # "who: which of their models", which is the row.
    notes = [(entry.top1_source or "").partition(": ")[0]]
    if catalog.is_recommended(entry):
        notes.append('also "imagenet"')
    if entry.head_is_zero:
        notes.append("the head is zero")
    if not entry.address_verified:
        notes.append("address not verified")
    return (
        name,
        str(entry.classes or "none"),
        str(entry.image_size or "any"),
        "" if size is None else f"{size:.0f}",
        "" if entry.top1 is None else f"{entry.top1:g}",
        "; ".join(note for note in notes if note),
        entry.licence,
    )


def _info(arguments):
    entry = _entry(arguments.source)
    path = arguments.source if entry is None else _downloaded(entry)
    described = {} if entry is None else _published(entry)
    # What is not on this machine is not fetched only to be described.
    if path is not None:
        described |= _contents(path, _known_fields(arguments))
    if arguments.format == "json":
        print(json.dumps(described, indent=2, default=str))
        return
    tensors = described.pop("tensors", {})
    for name, value in described.items():
        if value not in (None, [], ()):
            print(f"{name:<16} {_text(value)}")
    if tensors:
        print("tensors")
    for name, (shape, count) in _grouped(tensors).items():
        print(f"  {name} {shape}{f' x {count}' if count > 1 else ''}")


def _entry(source):
    """Return the entry of a name; None for a path, an address or nothing."""
    if os.path.exists(source):
        return None
    try:
        return catalog.find(None, source)
    except ValueError:
        return None


def _downloaded(entry):
    """Return the file of an entry if it is on this machine."""
    from keras_vit.checkpoints.public import fetch

    if entry.is_repository or not fetch.cached_path(entry).is_file():
        return None
    return fetch.cached_path(entry)


def _published(entry):
    size = {**VIT, **MIXER, **BIT}[entry.model]
    return {
        "weights": entry.key,
        "model": entry.model,
        "architecture": size,
        "address": entry.url,
        "address_verified": entry.address_verified,
        "classes": entry.classes,
        "head_is_zero": entry.head_is_zero,
        "labels": entry.labels,
        "image_size": entry.image_size,
        "preprocessing": entry.preprocessing.describe(entry.image_size),
        "top1": entry.top1,
        "top1_source": entry.top1_source,
        "licence": entry.licence,
        "num_bytes": entry.num_bytes,
        "sha256": entry.sha256,
        "same_weights_as": entry.same_weights_as,
        "aliases": list(entry.aliases),
        "downloaded": str(_downloaded(entry) or "no"),
    }


def _contents(path, known):
    from keras_vit.checkpoints import read_info

    info = read_info(path, **known)
    fields = dataclasses.asdict(info)
    shapes = fields.pop("shapes")
    return {
        **{("file" if k == "source" else k): v for k, v in fields.items()},
        "tensors": {name: list(shape) for name, shape in shapes.items()},
    }


def _text(value):
    if isinstance(value, dict):
        pairs = (f"{key}={item}" for key, item in value.items())
        return " ".join(pairs)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return value


def _grouped(tensors):
    """Blocks are alike: name with * for the block -> (shape, how many)."""
    shapes = {}
    counts = Counter()
    for name, shape in tensors.items():
        pattern = re.sub(r"\d+", "*", name, count=1)
        counts[pattern, str(shape)] += 1
        shapes.setdefault((pattern, str(shape)), name)
    return {
        (pattern if counts[pattern, shape] > 1 else name): (
            shape,
            counts[pattern, shape],
        )
        for (pattern, shape), name in shapes.items()
    }


def _verify(arguments):
    from keras_vit.checkpoints import load_checkpoint
    from keras_vit.checkpoints.public import fetch
    from keras_vit.checkpoints.public.fetch import file_digest

    entry = _entry(arguments.source)
    path = fetch.resolve(arguments.source)
    for file in _files(path):
        digest = file_digest(file)
        print(f"{file}\n  SHA-256 {digest}: {_verdict(entry, file, digest)}")
    model = load_checkpoint(path, **_known_fields(arguments))
    print(model.load_report)
    print("Every tensor of the model is there, fits and is finite.")


def _files(path):
    from keras_vit.checkpoints.engine.loading import split_subtree

    path = Path(split_subtree(path)[0])
    if path.is_dir():
        return sorted(x for x in path.iterdir() if x.suffix in WEIGHTS)
    return [path]


def _verdict(entry, file, digest):
    """Compare a digest with the catalogue; raise where it differs."""
    if entry is not None and entry.sha256 not in (None, digest):
        raise ValueError(
            f"{file} is not {entry.key}: its SHA-256 is {digest}, and "
            f"{entry.sha256} is expected. Delete it and fetch it again."
        )
    same = [x.key for x in catalog.entries() if x.sha256 == digest]
    if same:
        return f"{same[0]} as published"
    return "no hash is published to compare it with"


def _check_new(arguments) -> None:
    if arguments.out.exists() and not arguments.overwrite:
        raise ValueError(
            f"{arguments.out} exists. Give another path, or --overwrite."
        )


def _average(arguments):
    from keras_vit.checkpoints import average_weights, save_checkpoint

    _check_new(arguments)
    if arguments.out.suffix != ".keras" or not arguments.out.parent.is_dir():
        raise ValueError(
            "The average is written to a file that ends in .keras, in a folder "
            f"that exists. Received: {str(arguments.out)!r}."
        )
    model = average_weights(arguments.sources, arguments.shares)
    save_checkpoint(model, arguments.out, format="keras")
    print(f"average of {len(arguments.sources)} models -> {arguments.out}")


def _convert(arguments):
    from keras_vit.checkpoints import load_checkpoint, save_checkpoint

    _check_new(arguments)
    model = load_checkpoint(arguments.source, **_known_fields(arguments))
    save_checkpoint(model, arguments.out, format=arguments.format)
    print(f"{arguments.source} -> {arguments.out} ({arguments.format})")
