"""The Dockerfile: what it copies, installs, starts and asks."""

import fnmatch
import json
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest
import served

FOLDER = served.ROOT / "docker"
PROJECT = tomllib.loads((served.ROOT / "pyproject.toml").read_text())


def instructions() -> list[tuple[str, str]]:
    """(INSTRUCTION, arguments) without comments, lines joined."""
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    text = "\n".join(x for x in lines if not x.startswith("#"))
    joined = text.replace("\\\n", " ").splitlines()
    parts = (line.strip().partition(" ") for line in joined if line.strip())
    return [(name, rest.strip()) for name, _, rest in parts]


def last(name) -> str:
    return [rest for found, rest in instructions() if found == name][-1]


def copied() -> dict[str, str]:
    """What is copied from the repository, and where to."""
    rests = [shlex.split(x) for name, x in instructions() if name == "COPY"]
    return {source: rest[-1] for rest in rests for source in rest[:-1]}


def test_what_it_copies_exists_and_is_not_ignored():
    ignored = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    kept = {line[1:] for line in ignored if line.startswith("!")}
    assert set(copied()) == kept
    assert all((served.ROOT / name).exists() for name in kept)
    assert any(fnmatch.fnmatch("a/__pycache__", x) for x in ignored[1:])


def test_what_it_copies_is_enough_for_the_wheel(tmp_path):
    skipped = shutil.ignore_patterns("__pycache__")
    for name, place in copied().items():
        source, target = served.ROOT / name, tmp_path / place.lstrip("/")
        if source.is_dir():
            shutil.copytree(source, target, ignore=skipped)
        else:
            folder = target if place.endswith("/") else target.parent
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {
        "keras_vit/prediction/picture_page.html",
        "keras_vit/serving/openapi.json",
        "keras_vit/serving/page.js",
    } <= {*names}


def test_its_extras_and_backend_exist():
    extras = PROJECT["project"]["optional-dependencies"]
    install = last("RUN")
    assert "[serve]" in install and '"${BACKEND}"' in install
    assert "serve" in extras
    backends = [
        rest for _, rest in instructions() if rest.startswith("BACKEND")
    ]
    assert backends == ["BACKEND=jax"]
    assert "jax" in extras
    assert "KERAS_BACKEND=${BACKEND}" in last("ENV")


def test_its_python_is_supported():
    version = instructions()[0][1].removeprefix("PYTHON=")
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert [*map(int, version.split("."))] >= [*map(int, oldest.split("."))]


def test_it_does_not_run_as_root():
    names = [name for name, _ in instructions()]
    assert last("USER") == "vit"
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert "useradd --create-home vit" in last("RUN")


@pytest.fixture(scope="module")
def started(run_folder):
    """The server as the image starts it, on a free port."""
    program, command, *options = json.loads(last("ENTRYPOINT"))
    assert PROJECT["project"]["scripts"][program] == (
        "keras_vit.cli.__main__:program"
    )
    assert command == "serve"
    assert json.loads(last("CMD")) == ["/model"]
    options[options.index("--port") + 1] = "0"
    server = served.Server(run_folder, *options)
    yield server
    server.process.kill()
    server.process.communicate()


def check_health(port) -> int:
    command = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    command = [x.replace(":8000/", f":{port}/") for x in command]
    assert command[0] == "python"
    return subprocess.run(
        [sys.executable, *command[1:]], capture_output=True
    ).returncode


def test_it_starts_and_its_check_of_health_succeeds_until_it_ends(started):
    assert last("EXPOSE") == "8000"
    assert started.told.startswith("Serving run at http://0.0.0.0:")
    assert check_health(started.port) == 0
    started.process.kill()
    started.process.wait()
    assert check_health(started.port) == 1
