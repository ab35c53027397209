"""The notebooks for Kaggle and Colab, on virtual devices and tiny data."""

import csv
import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from notebook_runs import TWO_DEVICES, pictures, printed, run
from PIL import Image
from project_tools import tool

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = "recipes/kaggle"
NOTEBOOKS = ("tpu_v5e8", "gpu_t4x2", "tpu_strategy")
NAMES = ("dusk", "noon")
TINY = {"size": "tiny", "image_size": 16, "channels": 3}
CHECKPOINT = {"weights": str(ROOT / "tests/reference/vit_tiny_google.npz")}
# A wheel that is installed offline brings none of what it asks for, and Kaggle
# need not have this: the commands alone use it.
WITHOUT = "import sys; sys.modules['jsonargparse'] = None"
PICTURES = ("images", "loss", "accuracy", "confusion")


@pytest.fixture
def inputs(tmp_path):
    """A competition: dark and light images, the classes in a CSV file."""
    random = np.random.default_rng(0)
    data = tmp_path / "input"
    for folder, count in (("train", 40), ("test", 6)):
        (data / folder).mkdir(parents=True)
        for number in range(count):
            low = 40 if number % 2 == 0 else 150
            pixels = random.integers(low, low + 60, (19, 23, 3), np.uint8)
            path = data / folder / f"id{number:02}.jpg"
            Image.fromarray(pixels).save(path, quality=95)
    rows = [(f"id{n:02}", NAMES[n % 2]) for n in range(40)]
    write(data / "train.csv", [("image_id", "label"), *rows])
    # Not in the order of their names.
    ids = [f"id{n:02}" for n in (3, 0, 5, 2, 1, 4)]
    rows = [(name, NAMES[0]) for name in ids]
    write(data / "sample_submission.csv", [("image_id", "label"), *rows])
    return data


def write(path, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(rows)


def in_folders(data):
    """The same images in a folder for each class, and no CSV files."""
    for path in (data / "train").glob("*.jpg"):
        folder = data / "train" / NAMES[int(path.stem[2:]) % 2]
        folder.mkdir(exist_ok=True)
        path.rename(folder / path.name)
    (data / "train.csv").unlink()
    (data / "sample_submission.csv").unlink()
    return {"CSV": None, "SAMPLE": None}


def settings(data, **changed):
    output = data.parent / "output"
    output.mkdir(exist_ok=True)
    return {
        "DATA": str(data),
        "MODEL": TINY,
        "EPOCHS": 5,
        "BATCH_SIZE": 16,
        "LEARNING_RATE": 0.1,
        "OUTPUT": str(output),
        **changed,
    }


def check(data, text, distribution):
    """Everything that a run of the notebook promises."""
    assert f"Distribution {distribution}" in text
    output = data.parent / "output"
    for name in PICTURES:
        with Image.open(output / f"{name}.png") as image:
            assert image.size > (200, 100)
    assert (output / "run" / "report.html").is_file()
    (parts,) = re.findall(r"(\d+) images to train on, (\d+) to validate", text)
    train, validation = map(int, parts)  # by their contents
    assert train + validation == 40 and 1 < validation < 15
    with open(output / "submission.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert rows[0][0] in text
    return header, rows


def right(rows):
    """Light images have odd numbers: what the model must have learned."""
    return [name == NAMES[int(path[2:4]) % 2] for path, name in rows]


def test_tpu_script_on_two_devices_with_a_csv_file(inputs):
    path = f"{FOLDER}/tpu_v5e8.py"
    given = settings(inputs)
    text = run(path, inputs.parent, given, first=WITHOUT, devices=2)
    header, rows = check(inputs, text, "data_parallel: 2 devices")
    assert header == ["image_id", "label"]
    assert [row[0] for row in rows] == [f"id0{n}" for n in (3, 0, 5, 2, 1, 4)]
    assert all(right(rows))
    assert "2 devices: cpu" in text and "There is no TPU here" in text


@pytest.mark.slow
def test_tpu_notebook_on_eight_devices_with_folders_and_a_checkpoint(inputs):
    given = settings(
        inputs, MODEL=CHECKPOINT, EPOCHS=2, BATCH_SIZE=8, **in_folders(inputs)
    )
    done = run(f"{FOLDER}/tpu_v5e8.ipynb", inputs.parent, given, devices=8)
    header, rows = check(inputs, printed(done), "data_parallel: 8 devices")
    assert header == ["id", "label"]
    assert [row[0] for row in rows] == [f"id0{n}.jpg" for n in range(6)]
    assert {row[1] for row in rows} <= set(NAMES)
    assert pictures(done) == len(PICTURES)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        {"weights": str(ROOT / "tests/reference/hub_vit_tiny")},
        {"weights": "fractals", "image_size": 32, "channels": 3},
    ],
    ids=["a preset among the inputs", "in the package"],
)
def test_weights_that_need_no_network(inputs, model):
    given = settings(inputs, MODEL=model, EPOCHS=1)
    text = run(f"{FOLDER}/tpu_v5e8.py", inputs.parent, given, devices=2)
    check(inputs, text, "data_parallel: 2 devices")


@pytest.mark.slow
def test_gpu_script_on_two_jax_devices_with_probabilities(inputs):
    wide = [("image_id", *NAMES[::-1]), ("id01", 0, 0), ("id04", 0, 0)]
    write(inputs / "sample_submission.csv", wide)
    given = settings(inputs)
    text = run(f"{FOLDER}/gpu_t4x2.py", inputs.parent, given, devices=2)
    header, rows = check(inputs, text, "data_parallel: 2 devices")
    assert header == ["image_id", "noon", "dusk"]
    shares = np.array([row[1:] for row in rows], float)
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(shares.argmax(axis=1), [0, 1])


@pytest.mark.slow
def test_gpu_notebook_on_two_tensorflow_devices(inputs):
    given = settings(inputs, BACKEND="tensorflow")
    path = f"{FOLDER}/gpu_t4x2.ipynb"
    done = run(path, inputs.parent, given, first=TWO_DEVICES)
    _, rows = check(inputs, printed(done), "mirrored: 2 devices")
    assert all(right(rows))
    assert pictures(done) == len(PICTURES)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".py", ".ipynb"])
def test_tpu_strategy_with_mirrored_in_its_place(inputs, suffix):
    given = settings(inputs, DISTRIBUTION="mirrored")
    path = f"{FOLDER}/tpu_strategy{suffix}"
    done = run(path, inputs.parent, given, first=TWO_DEVICES)
    _, rows = check(inputs, printed(done), "mirrored: 2 devices")
    assert all(right(rows))


@pytest.mark.slow
def test_tpu_strategy_says_that_there_is_no_tpu(inputs):
    path = f"{FOLDER}/tpu_strategy.py"
    with pytest.raises(AssertionError, match="finds no TPU 'local'"):
        run(path, inputs.parent, settings(inputs))


def cells_of(name):
    text = (ROOT / FOLDER / f"{name}.py").read_text()
    return text.split("# ## The images", 1)


def test_what_follows_the_machine_is_the_same_in_all():
    after = {cells_of(name)[1] for name in NOTEBOOKS}
    assert len(after) == 1


@pytest.mark.slow
def test_installing_brings_this_package_and_nothing_else(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    subprocess.run([*build, "-d", tmp_path], cwd=ROOT, check=True)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    # A TensorFlow that is there; a blank environment has none.
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (site / "tensorflow.py").write_text("")
    before = packages(site)
    for name in NOTEBOOKS:
        # None of the packages of this environment.
        command = [tmp_path / "env" / "bin" / "python", "-I", "-c"]
        cell = cells_of(name)[0].split('"install"]')[1].split("# %%")[0]
        given = f"WHEELS, OUTPUT, BACKEND = {str(tmp_path)!r}, '.', 'jax'\n"
        subprocess.run([*command, given + cell], cwd=tmp_path, check=True)
        (added,) = packages(site) - before
        assert added.startswith("keras_vision_transformer-")
        assert before < packages(site)
        shutil.rmtree(site / "keras_vit")
        shutil.rmtree(site / added)


WHERE = ("the Python index", "the repository", "a wheel in wheels")


@pytest.mark.parametrize("place", WHERE)
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_is_installed_from_the_first_place_that_has_it(
    name, place, tmp_path, monkeypatch, capsys
):
    called = []

    def pip(words, **_):
        called.append(words)
        failed = len(called) <= WHERE.index(place)
        return subprocess.CompletedProcess(words, failed)

    monkeypatch.setattr(subprocess, "run", pip)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda x: x != "keras_vit" or None
    )
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    cell = cells_of(name)[0].split('"install"]')[1].split("# %%")[0]
    exec(cell, {"WHEELS": "wheels", "OUTPUT": ".", "BACKEND": "jax"})
    *failed, last = capsys.readouterr().out.splitlines()
    assert failed == [f"Not from {x}." for x in WHERE[: len(failed)]]
    assert last == f"keras_vit is installed from {place}."
    package = "keras-vision-transformer"
    archive = f"{tool('site_hooks').project_urls()['Repository']}/archive/"
    offline = ["--no-deps", "--no-index", "--find-links", "wheels"]
    begin = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--retries",
        "0",
    ]
    assert (
        called
        == [
            [*begin, package],
            [*begin, f"{package} @ {archive}refs/heads/main.zip"],
            [*begin, *offline, package],
        ][: len(called)]
    )


def test_what_is_installed_beside_a_tpu_needs_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: None)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda x: x != "tensorflow" or None
    )
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    cell = cells_of("tpu_v5e8")[0].split('"install"]')[1].split("# %%")[0]
    output = tmp_path / "absent" / "output"
    exec(cell, {"WHEELS": "wheels", "OUTPUT": str(output)})
    assert "keras==" in (output / "installed.txt").read_text()


def packages(site):
    """What is installed, with the version in its name."""
    return {path.name for path in site.glob("*.dist-info")}


def test_notebooks_are_what_is_made_of_the_scripts():
    maker = tool("make_notebooks")
    assert len(maker.scripts()) >= 3
    for script in maker.scripts():
        made = script.with_suffix(".ipynb")
        assert made.read_text() == maker.notebook(script), "make notebooks"


def test_tutorials_install_what_they_lack_and_notebooks_have_badges():
    maker = tool("make_notebooks")
    for script in maker.scripts():
        cells = json.loads(maker.notebook(script))["cells"]
        text = "".join("".join(cell["source"]) for cell in cells[:2])
        relative = script.relative_to(ROOT).with_suffix(".ipynb").as_posix()
        addresses = [x[2] for x in maker.opened_in(relative)]
        own = "kaggle" in script.parts
        vms = script.stem == "tpu_strategy"
        assert all((x in text) != vms for x in addresses), script
        assert ("[plots]" in text) != own


def test_every_notebook_has_its_script():
    for folder in tool("make_notebooks").FOLDERS:
        found = sorted((ROOT / folder).glob("*.ipynb"))
        assert found
        assert [p for p in found if not p.with_suffix(".py").is_file()] == []
