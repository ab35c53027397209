"""Measures how large the package is and how far one action reaches in it.

    python tools/measure_house.py
    python tools/measure_house.py --list
    python tools/measure_house.py --tree ../other --json

Prints the files and lines of the package and of the recipes, its longest files,
where knowledge stands, and what of them four actions pass through. Each action
runs in a process of its own, on JAX:

- weights: `keras_vit.ViT_Ti16(weights=PATH)`, from a file of Google's format.
- train: two steps of the tiny model on the digits, as `--smoke true` has
  them; the call of `train` alone.
- predict: the first `keras_vit.predict` of a process, of one image, from the
  run folder that `train` left.
- rollout: `keras_vit.analysis.attention_rollout` of two images.

How it counts:

- options: of each field of `ViTConfig`, the files of the package that name it
  as a word, in code or text; `--list` shows them.
- tables: assignments at the top of a module that spell three or more of these
  fields as strings or keywords.
- publishers: files outside of the dialects whose code names a publisher of
  checkpoints, in a name or a string that is no docstring.

- files: in which at least one function runs in the action. A file that is
  only imported is not counted, nor are the functions that run while a module
  is imported, nor the bodies of modules and classes. What TensorFlow calls
  from threads that Python did not start is not seen.
- passed both ways: pairs of files between which control goes back and forth.
  It goes from one to the other when the next function that begins in the same
  thread lies there, whoever calls it.
- called both ways: pairs of files of which each calls the other itself, with
  nothing in between.
- modules: of the package, imported when the action is over; new are those that
  the action itself imports, and of training those of them below `--training`.
"""

import argparse
import ast
import dataclasses
import importlib
import inspect
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading

PARTS = ("keras_vit", "recipes")
# Of the recipe that is trained: the quick start as `--smoke true` shrinks it.
SMALLEST = {
    "data": {
        "name": "digits",
        "train_split": "train[:16]",
        "validation_split": "train[16:24]",
        "test_split": "train[24:32]",
    },
    "model": {"image_size": 32, "size": "tiny"},
    "preprocessing": {"train": "squash", "evaluation": "squash", "flip": False},
    "augmentation": {"shift": 0.1, "rotation": 15, "zoom": 0.15},
    "optimizer": {"warmup_steps": 1},
    "training": {
        "steps": 2,
        "batch_size": 4,
        "checkpoint_every_steps": 1,
        "evaluate_every_steps": 1,
        "log_every_steps": 1,
        "keep": "last",  # The best may be the first, whose head is zeros.
    },
}
DIALECTS = "checkpoints/dialects/"
# As in tests/checkpoints/test_dialects.py.
PUBLISHERS = re.compile(
    r"(?i:timm(?!e)|hugging[_ -]?face(?!_hub| hub\b|\\?\.co\b)|torchvision)"
    r"|(?i:keras[_-]hub|big_vision|open_?clip)"
    r"|(?i:segment[_ -]?anything)|\btransformers\b"
)
LONGEST = 10
SIZE = """\
| | files | lines |
|---|---:|---:|
"""
KNOWLEDGE = """\
| knowledge | |
|---|---:|
"""
LENGTHS = """\
| longest files | lines |
|---|---:|
"""
REACH = """\
| action | files of keras_vit | of recipes | passed both ways \
| called both ways | modules | new | of training |
|---|---:|---:|---:|---:|---:|---:|---:|
"""


def main() -> None:
    options = parse()
    if options.action:
        work(options)
        return
    result = {
        "size": size(options.tree),
        "knowledge": knowledge(options.tree),
        "actions": reach(options),
    }
    if options.json:
        print(json.dumps(result, indent=2))
        return
    print(table(result))
    if options.list:
        print("\n".join(lists(result)))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    tree = pathlib.Path(__file__).resolve().parents[1]
    add("--tree", type=pathlib.Path, default=tree, help="what is measured")
    add(
        "--training",
        default="keras_vit.training",
        metavar="MODULE",
        help="which has `Recipe` and `train`",
    )
    add("--json", action="store_true", help="print JSON, with the files")
    add("--list", action="store_true", help="print the files of each action")
    add("--action", help=argparse.SUPPRESS)
    add("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.tree = options.tree.resolve()
    return options


def size(tree: pathlib.Path) -> dict:
    """The number of files and of lines of each part, and together."""
    found = {}
    for part in PARTS:
        files = sorted((tree / part).rglob("*.py"))
        lines = sum(path.read_bytes().count(b"\n") for path in files)
        found[part] = {"files": len(files), "lines": lines}
    together = {
        key: sum(part[key] for part in found.values())
        for key in ("files", "lines")
    }
    return {**found, "together": together}


def knowledge(tree: pathlib.Path) -> dict:
    """Return where options and publishers are named, and the longest files."""
    folder = tree / PARTS[0]
    sources = {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*.py"))
    }
    trees = {name: ast.parse(source) for name, source in sources.items()}
    fields = fields_of(trees)
    words = {name: set(re.findall(r"\w+", x)) for name, x in sources.items()}
    lengths = {name: x.count("\n") for name, x in sources.items()}
    return {
        "longest": dict(
            sorted(lengths.items(), key=lambda item: -item[1])[:LONGEST]
        ),
        "options": {
            field: [name for name in words if field in words[name]]
            for field in fields
        },
        "tables": {
            f"{name}:{table}": count
            for name, module in trees.items()
            for table, count in tables(module, set(fields))
        },
        "publishers": [
            name
            for name, module in trees.items()
            if not name.startswith(DIALECTS) and names_publisher(module)
        ],
    }


def fields_of(trees: dict) -> list[str]:
    """Return the fields of `ViTConfig`, wherever it stands."""
    for module in trees.values():
        for node in module.body:
            if isinstance(node, ast.ClassDef) and node.name == "ViTConfig":
                return [
                    found.target.id
                    for found in node.body
                    if isinstance(found, ast.AnnAssign)
                    and isinstance(found.target, ast.Name)
                ]
    raise SystemExit("There is no class ViTConfig.")


def tables(module: ast.Module, fields: set[str]):
    """Yield the tables of a module that spell fields, and how many."""
    for node in module.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value:
            spelled = {*strings(node.value), *keywords(node.value)} & fields
            if len(spelled) >= 3:
                name = ast.unparse(node).split("=")[0].split(":")[0].strip()
                yield name, len(spelled)


def strings(node: ast.AST):
    for found in ast.walk(node):
        if isinstance(found, ast.Constant) and isinstance(found.value, str):
            yield found.value


def keywords(node: ast.AST):
    for found in ast.walk(node):
        if isinstance(found, ast.keyword) and found.arg:
            yield found.arg


def names_publisher(module: ast.Module) -> bool:
    """Return whether code, but no docstring, names a publisher."""
    nodes = list(ast.walk(module))
    texts = {
        id(node.value)
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    named = [
        x
        for node in nodes
        if id(node) not in texts
        for x in (
            getattr(node, "id", None),
            getattr(node, "attr", None),
            getattr(node, "arg", None),
            getattr(node, "value", None)
            if isinstance(node, ast.Constant)
            else None,
        )
        if isinstance(x, str)
    ]
    return any(PUBLISHERS.search(x) for x in named)


def reach(options) -> dict:
    """What each action passes through, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        start("prepare", folder, options)
        return {name: start(name, folder, options) for name in ACTIONS}


def start(action, folder, options):
    words = ["--action", action, "--folder", folder]
    words += ["--tree", str(options.tree), "--training", options.training]
    settings = {
        "KERAS_BACKEND": "jax",
        "KERAS_HOME": folder,
        "CUDA_VISIBLE_DEVICES": "",
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(
        [sys.executable, __file__, *words],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{action} failed:\n{done.stderr[-3000:]}")
    path = pathlib.Path(folder, f"{action}.json")
    return json.loads(path.read_text()) if path.exists() else None


def work(options) -> None:
    """Does one action and writes down what it passed through."""
    sys.path.insert(0, str(options.tree))
    if options.action == "prepare":
        prepare(options)
        return
    action = ACTIONS[options.action](options)
    before = modules()
    passage = Passage(options.tree)
    passage.through(action)
    new = modules() - before
    below = f"{options.training}."
    result = {
        "files": sorted(passage.files),
        "passed_both_ways": both_ways(passage.passed),
        "called_both_ways": both_ways(passage.called),
        "modules": len(before | new),
        "new_modules": len(new),
        "new_of_training": sum(f"{x}.".startswith(below) for x in new),
    }
    path = options.folder / f"{options.action}.json"
    path.write_text(json.dumps(result))


def modules() -> set[str]:
    return {name for name in sys.modules if name.split(".")[0] == PARTS[0]}


class Passage:
    """Which functions of a tree run, by file and in which order.

    Args:
        tree: the folder of the parts.
    """

    def __init__(self, tree: pathlib.Path):
        self.tree = f"{tree}{os.sep}"
        self.parts = tuple(f"{self.tree}{part}{os.sep}" for part in PARTS)
        self.files: set[str] = set()
        self.passed: set[tuple[str, str]] = set()
        self.called: set[tuple[str, str]] = set()
        self.thread = threading.local()

    def through(self, action) -> None:
        """Calls an action and takes down what runs, in all its threads."""
        threading.setprofile(self.note)
        sys.setprofile(self.note)
        try:
            action()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def note(self, frame, event, _):
        if event != "call" or not self.is_ours(frame):
            return
        if not is_function(frame) or self.is_importing(frame):
            return
        file = self.file_of(frame)
        self.files.add(file)
        self.passed.add((getattr(self.thread, "last", file), file))
        self.thread.last = file
        if frame.f_back is not None and self.is_ours(frame.f_back):
            self.called.add((self.file_of(frame.f_back), file))

    def is_ours(self, frame):
        return frame.f_code.co_filename.startswith(self.parts)

    def is_importing(self, frame):
        while frame is not None:
            if self.is_ours(frame) and not is_function(frame):
                return True
            frame = frame.f_back
        return False

    def file_of(self, frame):
        path = frame.f_code.co_filename.removeprefix(self.tree)
        return path.replace(os.sep, "/")


def is_function(frame) -> bool:
    """Whether it runs a function and not the body of a module or class."""
    return bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED)


def both_ways(ways: set[tuple[str, str]]) -> list[list[str]]:
    """The pairs of files with a way there and a way back."""
    return sorted([a, b] for a, b in ways if a < b and (b, a) in ways)


def prepare(options) -> None:
    """Makes what the actions start from: weights, and the digits."""
    import keras_vit

    model = keras_vit.ViT_Ti16(weights=None)
    path = options.folder / "weights.npz"
    keras_vit.save_checkpoint(model, path, format="google")
    train(options, "rehearsal")()


def weights(options):
    import keras_vit

    path = str(options.folder / "weights.npz")
    return lambda: keras_vit.ViT_Ti16(weights=path)


def train(options, name="run"):
    training = importlib.import_module(options.training)
    found = recipe(training.Recipe(), str(options.folder / name))
    return lambda: training.train(found)


def recipe(plain, run_dir):
    """A recipe cut down to the smallest training."""
    parts = {
        part: dataclasses.replace(getattr(plain, part), **fields)
        for part, fields in SMALLEST.items()
    }
    return dataclasses.replace(plain, run_dir=run_dir, **parts)


def predict(options):
    import numpy as np

    import keras_vit

    image = np.zeros((16, 16), "uint8")
    folder = str(options.folder / "run")
    # What predicts may be imported when it is first asked for.
    return lambda: keras_vit.predict(folder, image)


def rollout(options):
    import numpy as np

    import keras_vit

    model = keras_vit.ViT_Ti16(weights=None)
    images = np.zeros((2, *model.input_shape[1:]), "float32")
    return lambda: keras_vit.analysis.attention_rollout(model, images)


ACTIONS = {
    "weights": weights,
    "train": train,
    "predict": predict,
    "rollout": rollout,
}


def table(result: dict) -> str:
    sizes = (
        f"| {part} | {found['files']:,} | {found['lines']:,} |"
        for part, found in result["size"].items()
    )
    rows = (row(*item) for item in result["actions"].items())
    return "\n\n".join(
        [
            SIZE + "\n".join(sizes),
            KNOWLEDGE + "\n".join(knowledge_rows(result["knowledge"])),
            LENGTHS
            + "\n".join(
                f"| {name} | {lines:,} |"
                for name, lines in result["knowledge"]["longest"].items()
            ),
            REACH + "\n".join(rows),
        ]
    )


def knowledge_rows(found: dict):
    """Yield the rows of what stands where."""
    named = [len(files) for files in found["options"].values()]
    yield f"| fields of ViTConfig | {len(named)} |"
    yield f"| files that name one, median | {statistics.median(named):g} |"
    yield f"| files that name one, most | {max(named)} |"
    files = {name.split(":")[0] for name in found["tables"]}
    yield f"| tables that spell three or more | {len(found['tables'])} |"
    yield f"| files with such tables | {len(files)} |"
    yield (
        "| files that name a publisher outside of the dialects | "
        f"{len(found['publishers'])} |"
    )


def row(action: str, found: dict) -> str:
    cells = [
        *(of_part(found["files"], part) for part in PARTS),
        len(found["passed_both_ways"]),
        len(found["called_both_ways"]),
        found["modules"],
        found["new_modules"],
        found["new_of_training"],
    ]
    return f"| {action} | {' | '.join(map(str, cells))} |"


def of_part(files, part):
    return sum(file.startswith(f"{part}/") for file in files)


def lists(result: dict):
    """Yield the lines of `--list`."""
    found = result["knowledge"]
    for field, files in found["options"].items():
        yield f"{field}: {len(files)}: {', '.join(files)}"
    yield "\ntables:"
    yield from (f"{name} ({count})" for name, count in found["tables"].items())
    yield "\npublishers:"
    yield from found["publishers"]
    for action, found in result["actions"].items():
        yield f"\n{action}:"
        yield from found["files"]
        for name in ("passed_both_ways", "called_both_ways"):
            yield f"\n{action}, {name.replace('_', ' ')}:"
            yield from (" <-> ".join(pair) for pair in found[name])


if __name__ == "__main__":
    main()
