"""Walks through a stranger's first hour with the wheel, and times it.

    python tools/first_hour.py jax               # or torch, tensorflow
    python tools/first_hour.py jax --offline

The wheel is built and installed into a fresh environment with one backend:
by pip at the versions of constraints.txt, or, offline, by links to the
packages that are installed here. Then one command after the other works on 60
pictures of three classes in every format that people have. Each prints its
seconds, exit code and lines of noise: what it writes to standard error that
is not about the pictures. The exit code is 1 where a command ends in another
way than it should, or is noisy.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable

import numpy as np
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from fresh_environment import Environment  # noqa: E402

BACKENDS = ("jax", "torch", "tensorflow")
CLASSES = ("circles", "squares", "stripes")
OF_A_CLASS = 20  # each kind twice
BROKEN, UNKNOWN = "circles/17.jpg", "squares/18.avif.part"
ORIENTATION = 0x0112  # its number in EXIF
# What a command may say on standard error: a reason, what it left out, colours
# that the model dropped or got.
OURS = re.compile(
    r"keras-vit.*: error: .*|.* file\(s\): .*|'?\S*pictures/.*|"
    r"(Without colours|In colour): .*"
)

TRAIN = "finetune --data.folder pictures --model.weights fractals "
TRAIN += "--model.channels 3 --model.image_size 32 --training.epochs 2 "
TRAIN += "--training.batch_size 8 --run_dir runs/pictures"
RUN = "runs/pictures"
GOOD = "pictures/squares"  # has no broken picture
# A command, and how it ends: the broken picture stops what cannot leave it
# out, and is named.
STEPS = (
    ("--version", 0),
    ("weights list --model ViT_B16", 0),
    (f"predict fractals {GOOD}", 0),
    (TRAIN, 2),
    (f"{TRAIN} --data.on_broken_image skip", 0),
    (f"predict {RUN} {GOOD}", 0),
    (f"predict {RUN} pictures --format csv", 2),
    (f"explain {RUN} {GOOD}/1.jpg {GOOD}/3.jpg -o explained", 0),
    (f"evaluate --model.weights {RUN} --run_dir runs/evaluated", 0),
    (f"embed {RUN} {GOOD} -o found.npz", 0),
)


def save_pictures(folder: pathlib.Path) -> None:
    """Makes 60 pictures in folders of their classes: 58 images, one broken
    one, and one file of an unknown suffix."""
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        for number in range(OF_A_CLASS):
            kind, save = KINDS[number % len(KINDS)]
            path = folder / name / f"{number}.{kind}"
            save(_drawn(name, number), path)
    whole = (folder / BROKEN).with_suffix(".png")
    (folder / BROKEN).write_bytes(whole.read_bytes()[:40])
    whole.unlink()
    (folder / "squares" / "18.bmp").rename(folder / UNKNOWN)


def _drawn(name: str, number: int) -> Image.Image:
    """A picture of a class: grey shapes on a coloured ground, with noise."""
    random = np.random.default_rng([CLASSES.index(name), number])
    height, width = random.integers(40, 90, 2)
    y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    radius = random.uniform(0.4, 0.8)
    inside = {
        "circles": x**2 + y**2 < radius**2,
        "squares": np.maximum(abs(x), abs(y)) < radius,
        "stripes": np.sin(x * random.uniform(8, 16)) > 0,
    }[name]
    ground = random.integers(20, 236, 3)
    pixels = np.where(inside[..., None], 255 - ground, ground)
    pixels = pixels + random.normal(0, 8, pixels.shape)
    return Image.fromarray(np.clip(pixels, 0, 255).astype("uint8"))


def _as(mode: str) -> Callable[[Image.Image, pathlib.Path], None]:
    return lambda image, path: image.convert(mode).save(path)


def _sixteen_bits(image, path):
    grey = np.asarray(image.convert("L")).astype("uint16")
    Image.fromarray(grey * 257).save(path)


def _animated(image, path):
    image.save(path, save_all=True, append_images=[image.rotate(90)])


def _lying(image, path):
    """As a phone saves it: turned, with how to turn it back."""
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    image.transpose(Image.Transpose.ROTATE_90).save(path, exif=exif)


KINDS = (
    ("jpg", _as("RGB")),
    ("jpg", _lying),
    ("png", _as("RGB")),
    ("jpg", _as("CMYK")),
    ("webp", _as("RGB")),
    ("tif", _as("RGB")),
    ("png", _sixteen_bits),
    ("png", _as("P")),
    ("bmp", _as("P")),
    ("gif", _animated),
)


class Installed:
    """The wheel, installed by pip into an environment of its own."""

    def __init__(
        self,
        wheel: pathlib.Path,
        backend: str,
        folder: pathlib.Path,
        python: str = sys.executable,
    ):
        self.work = folder / "work"
        self.work.mkdir()
        self.python = folder / "environment" / "bin" / "python"
        create = [python, "-m", "venv", folder / "environment"]
        subprocess.run(create, check=True)
        constraints = ["--constraint", ROOT / "constraints.txt"]
        pip = [self.python, "-m", "pip", "install", "--quiet", *constraints]
        subprocess.run([*pip, f"{wheel}[{backend}]"], check=True)
        self.variables = {**os.environ, "KERAS_HOME": str(folder / "home")}
        for name in ("KERAS_BACKEND", "PYTHONPATH"):
            self.variables.pop(name, None)

    def run(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [self.python, *words],
            cwd=self.work,
            env=self.variables,
            capture_output=True,
            text=True,
        )


def environment(backend: str, offline: bool, folder: pathlib.Path):
    """Builds the wheel and makes a fresh environment with it."""
    build = ["-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(
        [sys.executable, *build], cwd=ROOT, check=True, capture_output=True
    )
    (wheel,) = folder.glob("*.whl")
    if not offline:
        return Installed(wheel, backend, folder)
    unpacked = folder / "wheel"
    zipfile.ZipFile(wheel).extractall(unpacked)
    fresh = Environment(unpacked, backend, folder)
    # Strangers set none, and the developers' shell has settings of its own.
    for name in ("KERAS_BACKEND", "TF_CPP_MIN_LOG_LEVEL"):
        fresh.variables.pop(name, None)
    return fresh


def noise_of(text: str) -> list[str]:
    """The lines of standard error that are not about the pictures."""
    lines = filter(None, map(str.strip, text.splitlines()))
    return [line for line in lines if not OURS.fullmatch(line)]


def walk(fresh) -> list[str]:
    """Runs every step, and prints a line of each.

    Returns:
        What is wrong, a line of each step that is.
    """
    wrong = []
    print(f"{'seconds':>7} {'exit':>4} {'noise':>5}  command")
    for command, expected in STEPS:
        begin = time.perf_counter()
        done = fresh.run("-m", "keras_vit.cli", *command.split())
        seconds = time.perf_counter() - begin
        noise = noise_of(done.stderr)
        row = f"{seconds:7.1f} {done.returncode:4} {len(noise):5}"
        print(f"{row}  keras-vit {command}", flush=True)
        if done.returncode != expected:
            wrong.append(
                f"{command}: exit code {done.returncode} and not {expected}:"
                f"\n{done.stderr}"
            )
        elif noise:
            wrong.append("\n  ".join([f"{command} is noisy:", *noise]))
    return wrong


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("backend", choices=BACKENDS)
    parser.add_argument(
        "--offline", action="store_true", help="link the packages of this one"
    )
    parsed = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="first-hour-") as folder:
        place = pathlib.Path(folder)
        begin = time.perf_counter()
        fresh = environment(parsed.backend, parsed.offline, place)
        print(f"{time.perf_counter() - begin:7.1f} s to build and install")
        save_pictures(fresh.work / "pictures")
        wrong = walk(fresh)
    print(*wrong, sep="\n", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
