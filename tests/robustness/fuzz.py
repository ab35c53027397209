"""Property-based fuzzing of what users and strangers give in text.

    python tests/robustness/fuzz.py --seconds 3600

or `make fuzz`. Each target takes one value that hypothesis draws, and raises
where the answer is neither a result nor one line of reason. What is found is
printed, smallest first, as a row of `FUZZED` in `cases_table.py`, which
`test_fuzz.py` gives to its target again.
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from unittest.mock import patch

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from keras_vit.checkpoints.engine.keras_files import read_class_names
from keras_vit.cli import main as keras_vit
from keras_vit.data import DataConfig, open_dataset
from keras_vit.explanation.attention_page import _file_names
from keras_vit.io.atomic_files import as_cell, of_cell, printable
from keras_vit.runs import script
from keras_vit.training import Recipe, TrainingConfig
from keras_vit.training.run import owner as run_lock
from keras_vit.training.run import resume
from keras_vit.training.run.files import FILES, _file_name

KEYS = sorted(script._defaults(Recipe))
TEXT = st.text(max_size=20) | st.sampled_from(
    [
        "",
        "=1+1",
        "../a",
        "\0",
        "\x1b[31m",
        "-1",
        "nan",
        "1e999",
        "null",
        "[",
        "~",
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.integers()
    | st.floats()
    | TEXT
)
VALUES = st.recursive(
    SCALARS,
    lambda x: st.lists(x, max_size=3) | st.dictionaries(TEXT, x, max_size=3),
    max_leaves=6,
)
# Values that say where: nothing outside of the folder of a target is written.
PLACES = ("data.data_dir", "run_dir", "data.name", "model.weights")
FREE_KEYS = [key for key in KEYS if key not in PLACES]


def recipe_from(words) -> None:
    """A recipe, or exit code 2 with one line."""
    error = io.StringIO()
    try:
        with contextlib.redirect_stderr(error):
            with contextlib.redirect_stdout(io.StringIO()):
                script.parse(Recipe, words, "A recipe.")
    except SystemExit as end:
        check_end(end.code, error.getvalue())


def check_end(code, error) -> None:
    if code not in (0, 2):
        raise AssertionError(f"exit code {code}: {error}")
    lines = [x for x in error.splitlines() if "error: " in x]
    if code == 2 and len(lines) != 1:
        raise AssertionError(f"{len(lines)} lines of reason: {error}")
    if "Traceback" in error or "\x1b" in error:
        raise AssertionError(error)


def config_file(content: str) -> None:
    """The text of a config file."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "config.yaml")
        path.write_bytes(content.encode(errors="surrogatepass"))
        recipe_from(["--config", str(path)])


def nested(flat: dict) -> dict:
    result: dict = {}
    for key, value in flat.items():
        *groups, name = key.split(".")
        place = result
        for group in groups:
            place = place.setdefault(group, {})
        place[name] = value
    return result


CONFIGS = st.one_of(
    st.text(max_size=60),
    VALUES.map(lambda x: yaml.safe_dump(x, allow_unicode=True)),
    st.dictionaries(st.sampled_from(FREE_KEYS), VALUES, max_size=4).map(
        lambda x: yaml.safe_dump(nested(x), allow_unicode=True)
    ),
    st.dictionaries(
        st.sampled_from(["data", "model", "training", "optimizer", "seed"]),
        VALUES,
        max_size=2,
    ).map(lambda x: yaml.safe_dump(x, allow_unicode=True)),
)


def recipe_words(words: list[str]) -> None:
    """The command line of a recipe."""
    recipe_from([x for x in words if not x.startswith("--config")])


RECIPE_WORDS = st.lists(
    st.builds(
        "--{}={}".format,
        st.sampled_from(FREE_KEYS) | TEXT,
        VALUES.map(
            lambda x: json.dumps(x) if isinstance(x, (list, dict)) else x
        ),
    )
    | TEXT,
    max_size=4,
)


def command_words(words: list[str]) -> None:
    """The command line of keras-vit, in a folder with nothing in it."""
    out, error = io.StringIO(), io.StringIO()
    before = pathlib.Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            with contextlib.redirect_stdout(out):
                with contextlib.redirect_stderr(error):
                    code = keras_vit(words)
        except SystemExit as end:
            code = end.code
        finally:
            os.chdir(before)
        check_end(code, error.getvalue())
        if code and os.listdir(folder):
            raise AssertionError(f"It wrote {os.listdir(folder)}.")


COMMANDS = st.builds(
    lambda command, words: [*command, *words],
    st.sampled_from(
        [
            ["predict"],
            ["explain"],
            ["embed"],
            ["search"],
            ["summary"],
            ["plan", "--model=ViT_B16"],
            ["plan", "--paper"],
            ["weights", "info"],
            ["weights", "list"],
            ["weights", "convert"],
            ["weights", "verify", "--model=none"],
            [],
        ]
    ),
    st.lists(
        st.builds(
            "--{}={}".format,
            st.sampled_from(
                ["top", "format", "batch", "image_size", "out", "devices"]
                + ["classes", "epochs", "examples", "efficiency", "model_axis"]
                + ["discard_ratio", "kind", "blocks", "optimizer"]
            ),
            SCALARS,
        )
        | TEXT.filter(lambda x: "/" not in x and "~" not in x),
        max_size=4,
    ),
).map(lambda words: [x.replace("\0", "") for x in words])


def csv_file(content: str) -> None:
    """The text of a CSV file beside two images."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("a.png", "b.png"):
            Image.new("L", (4, 4)).save(pathlib.Path(folder, name))
        path = pathlib.Path(folder, "data.csv")
        path.write_bytes(content.encode(errors="surrogatepass"))
        with contextlib.suppress(ValueError):
            open_dataset(DataConfig(csv=str(path)))


CELLS = TEXT | st.sampled_from(
    ["a.png", "b.png", "0", "1", "cat", "train", '"']
)
CSVS = st.text(max_size=60) | st.lists(
    st.lists(CELLS, min_size=1, max_size=4).map(",".join), max_size=16
).map(lambda x: "\n".join(["image,label,split", *x]))


def class_names(content: str) -> None:
    """The text of class_names.json in a model, and names as they are used."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "model.keras")
        with zipfile.ZipFile(path, "w") as archive:
            given = content.encode(errors="surrogatepass")
            archive.writestr("class_names.json", given)
        try:
            with zipfile.ZipFile(path) as archive:
                names = read_class_names(path, archive)
        except ValueError:
            return
        for name in names or ():
            assert all(x.isprintable() for x in printable(name))
            assert of_cell(as_cell(name)) == name
            pathlib.Path(folder, f"{_file_name(name)}_0.png").touch()
        titles = [printable(name) for name in names or ()]
        for name in _file_names(titles):
            pathlib.Path(folder, f"{name}_heads.png").touch()


NAMES = st.text(max_size=40) | (
    st.lists(TEXT | st.text(min_size=200, max_size=300), max_size=4) | VALUES
).map(json.dumps)


def run_folder(files: dict[str, str]) -> None:
    """The files of a run folder that is given to a recipe."""
    training = TrainingConfig(steps=2, batch_size=2)
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder, "run")
        recipe = Recipe(training=training, run_dir=str(place))
        own = {place / "mine.txt", place / "examples" / "mine.png"}
        for name, content in files.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode(errors="surrogatepass"))
        for path in own:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("mine")
        before = contents(place)
        try:
            with (
                contextlib.ExitStack() as stack,
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("ignore")
                stack.enter_context(patch.object(run_lock, "STALE_SECONDS", 0))
                with resume.open_run(recipe):
                    pass
        except ValueError:
            assert contents(place) == before
        assert all(path.read_text() == "mine" for path in own)


def contents(folder) -> dict:
    """All files but the lock, which goes where nobody holds it."""
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != run_lock.LOCK
    }


FOLDERS = st.dictionaries(
    st.sampled_from(
        [
            "keras_vit_run.json",
            "config.yaml",
            "environment.json",
            "result.json",
            "metrics.jsonl",
            "history.csv",
            "class_names.json",
            "checkpoints/step-000000002.npz",
            ".keras_vit_lock.json",
            ".previous-run/keras_vit_run.json",
        ]
    ),
    st.text(max_size=30)
    | VALUES.map(json.dumps)
    | st.lists(st.sampled_from(FILES) | TEXT, max_size=4).map(
        lambda x: json.dumps({"files": x})
    )
    | st.fixed_dictionaries(
        {"host": VALUES, "process": VALUES, "machine": st.none()}
    ).map(json.dumps),
    max_size=5,
)

TARGETS = {
    "config_file": (config_file, CONFIGS),
    "recipe_words": (recipe_words, RECIPE_WORDS),
    "command_words": (command_words, COMMANDS),
    "csv_file": (csv_file, CSVS),
    "class_names": (class_names, NAMES),
    "run_folder": (run_folder, FOLDERS),
}


def fuzz(name: str, examples: int, **options) -> tuple | None:
    """Tries examples of a target; (input, error) of the smallest that fails."""
    target, strategy = TARGETS[name]
    last: list = []

    @settings(
        max_examples=examples,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.filter_too_much,
            HealthCheck.data_too_large,
        ],
        **options,
    )
    @given(strategy)
    def trial(value):
        last[:] = [value]
        target(value)

    try:
        trial()
    except Exception:
        return last[0], traceback.format_exc()
    return None


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--examples", type=int, default=200, help="per round")
    asked = parser.parse_args()
    end, found, count = time.monotonic() + asked.seconds, {}, 0
    while time.monotonic() < end:
        for name in TARGETS:
            if time.monotonic() >= end:
                break
            failed = fuzz(name, asked.examples)
            count += asked.examples
            if failed and (name, repr(failed[0])) not in found:
                found[name, repr(failed[0])] = failed[1]
                print(f"{failed[1]}\n    Finding({name!r}, {failed[0]!r}),")
    print(f"{count:,} examples, {len(found)} findings")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
