"""Installs what a release uploads into fresh environments, and uses it there.

    python tools/release_check.py                       # make release-check
    python tools/release_check.py --pythons 3.12 --backends jax torch

Builds the sdist and the wheel. For each Python that this machine has and each
backend, an environment gets the wheel, at the versions of constraints.txt;
there `predict` runs, a fine-tune of two steps, and every notebook that the
backend can run, on few images. At last the sdist takes the wheel's place. What
failed, and which Pythons were not found, is printed; the exit code is 1 after a
failure.
"""

import argparse
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from first_hour import BACKENDS, BROKEN, UNKNOWN, Installed, save_pictures

ROOT = pathlib.Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
TUTORIALS = "docs/notebooks"
COMPETITION = {
    "DATA": ".",
    "TRAIN": "pictures",
    "CSV": None,
    "TEST": "pictures/squares",
    "SAMPLE": None,
    "MODEL": {"weights": "fractals", "image_size": 32, "channels": 3},
    "EPOCHS": 1,
    "BATCH_SIZE": 8,
    "OUTPUT": "output",
}
# Notebook -> the backends that run it without an accelerator, and parameters
# for a short run.
NOTEBOOKS = {
    f"{TUTORIALS}/first_steps": (BACKENDS, {}),
    f"{TUTORIALS}/finetune_folder": (BACKENDS, {"EPOCHS": 1}),
    f"{TUTORIALS}/what_a_vit_looks_at": (
        BACKENDS,
        {"EPOCHS": 1, "IMAGES": 40},
    ),
    "recipes/kaggle/tpu_v5e8": (("jax",), COMPETITION),
    "recipes/kaggle/gpu_t4x2": (("jax", "tensorflow"), COMPETITION),
}
COMMANDS = (
    "predict fractals pictures/squares",
    "finetune --data.folder pictures --model.weights fractals "
    "--model.channels 3 --model.image_size 32 --training.epochs 1 "
    "--training.batch_size 20 --run_dir runs/pictures",
    "predict runs/pictures pictures/squares",
)


def python_of(version: str) -> str | None:
    """Return the program of a Python such as "3.12", None where none is."""
    pyenv = pathlib.Path(
        os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")
    )
    found = [f"python{version}"]
    found += sorted(map(str, pyenv.glob(f"versions/{version}*/bin/python")))
    if shutil.which("uv"):
        asked = ["uv", "python", "find", "--no-python-downloads", version]
        found += _printed(asked).split()
    code = "import sys; print(sys.executable) if sys.prefix == "
    code += "sys.base_prefix else None"
    programs = (_printed([program, "-c", code]).strip() for program in found)
    return next(filter(None, programs), None)


def _printed(command) -> str:
    """What a command prints, nothing where it is none or fails."""
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True)
    return "" if done.returncode else done.stdout


def build(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Build the sdist, and the wheel, and return their paths."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def script_of(notebook: pathlib.Path, parameters: dict) -> str:
    """Return a notebook's cells as a script, with parameters changed."""
    parts = ["import matplotlib", "matplotlib.use('agg')"]
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        lines = "".join(cell["source"]).splitlines()
        parts += [x for x in lines if not x.startswith("%")]
        if "parameters" in cell["metadata"].get("tags", ()):
            parts += [f"{name} = {x!r}" for name, x in parameters.items()]
    return "\n".join(parts)


def use(fresh: Installed, backend: str, sdist: pathlib.Path) -> list[str]:
    """Run everything in an environment, a line of each, and return failures."""
    save_pictures(fresh.work / "pictures")
    for name in (BROKEN, UNKNOWN):
        (fresh.work / "pictures" / name).unlink()
    steps = {
        f"keras-vit {words}": ["-m", "keras_vit.cli", *words.split()]
        for words in COMMANDS
    }
    for name, (backends, parameters) in NOTEBOOKS.items():
        if backend in backends:
            changed = parameters | (
                {"BACKEND": backend} if "gpu" in name else {}
            )
            path = fresh.work / f"{pathlib.Path(name).stem}.py"
            path.write_text(script_of(ROOT / f"{name}.ipynb", changed))
            steps[f"{name}.ipynb"] = [path.name]
    again = ["--force-reinstall", "--no-deps", "--quiet", str(sdist)]
    steps[f"pip install {sdist.name}"] = ["-m", "pip", "install", *again]
    steps["keras-vit --version"] = ["-m", "keras_vit.cli", "--version"]
    failed = []
    for name, words in steps.items():
        begin = time.perf_counter()
        done = fresh.run(*words)
        seconds = time.perf_counter() - begin
        print(f"{seconds:7.1f} s, exit {done.returncode}  {name}", flush=True)
        if done.returncode:
            failed.append(f"{name}\n{done.stdout[-500:]}{done.stderr[-2000:]}")
    return failed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--pythons", nargs="+", default=PYTHONS)
    parser.add_argument("--backends", nargs="+", default=BACKENDS)
    parsed = parser.parse_args(arguments)
    failed, skipped = [], []
    with tempfile.TemporaryDirectory(prefix="release-check-") as folder:
        sdist, wheel = build(pathlib.Path(folder))
        for version in parsed.pythons:
            program = python_of(version)
            if program is None:
                skipped.append(version)
                continue
            make = functools.partial(Installed, python=program)
            for backend in parsed.backends:
                print(f"Python {version}, {backend}: {program}", flush=True)
                place = pathlib.Path(folder, f"{version}-{backend}")
                place.mkdir()
                try:
                    fresh = make(wheel, backend, place)
                except subprocess.CalledProcessError as error:
                    failed.append(f"{version}, {backend}: {error}")
                    continue
                fresh.variables["KERAS_BACKEND"] = backend
                failed += [
                    f"{version}, {backend}: {x}"
                    for x in use(fresh, backend, sdist)
                ]
                shutil.rmtree(place)  # gigabytes
    if skipped:
        print(f"Skipped, not on this machine: Python {', '.join(skipped)}")
    print(*failed, sep="\n", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
