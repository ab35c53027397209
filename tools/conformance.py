"""Runs others' tests on models of keras_vit: `make conformance`.

Each suite is that of a release: the tests of an installed package, those of
its source distribution, which pip fetches into a cache folder, or those of its
repository where no release has them; nothing of theirs is copied. The adapters
stand in tests/conformance/, the reasons of the tests that fail in its
listed.py. Writes benchmarks/results/conformance.json and docs/conformance.md,
and fails where a test fails that is not listed, or passes that is. With --only,
the results of the other suites stay as they are.
"""

import argparse
import collections
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ET
import zipfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from keras_vit.io.tables import markdown_table  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "conformance.json"
PAGE = ROOT / "docs" / "conformance.md"
CACHE = ROOT / "build" / "suites"
ADAPTERS = ROOT / "tests" / "conformance"
BACKENDS = ("torch", "jax", "tensorflow")


class Suite(NamedTuple):
    """Tests of a package, and how our models get into them.

    file: theirs, from the folder of the package.
    adapter: a plugin of pytest for that file, or a file of tests that takes
        what it needs from there.
    backends: those it runs on, each in a process.
    tests: names of functions of the file, or empty for all.
    source: "installed package", "source distribution", "wheel" or
        "repository".
    repository: its address, where the source is one.
    """

    package: str
    file: str
    adapter: str
    backends: tuple = BACKENDS
    tests: tuple = ()
    source: str = "source distribution"
    repository: str = ""


TIMM = Suite("timm", "tests/test_models.py", "timm_adapter", ("torch",))
KERAS = Suite(
    "keras",
    "integration_tests",
    "keras_integration",
    source="repository",
    repository="https://github.com/keras-team/keras",
)
SUITES = {
    "timm, forward": TIMM._replace(tests=("test_model_forward",)),
    "timm, gradients": TIMM._replace(tests=("test_model_backward",)),
    "timm, sizes": TIMM._replace(tests=("test_model_default_cfgs_non_std",)),
    "timm, features": TIMM._replace(
        tests=(
            "test_model_forward_intermediates",
            "test_model_forward_intermediates_features",
        )
    ),
    "timm, optimizers": TIMM._replace(
        file="tests/test_optim.py", adapter="timm_optimizers"
    ),
    "timm, schedules": TIMM._replace(
        file="tests/test_scheduler.py", adapter="timm_schedules"
    ),
    "timm, steps": Suite(
        "timm",
        "timm/optim",
        "test_timm_steps.py",
        source="installed package",
    ),
    "timm, drop path": TIMM._replace(
        file="tests/test_layers_drop.py", adapter="timm_layers"
    ),
    "timm, attention pooling": TIMM._replace(
        file="tests/test_layers_pool.py", adapter="timm_layers"
    ),
    "timm, positions": TIMM._replace(
        file="tests/test_layers.py", adapter="timm_layers"
    ),
    "Keras, applications": Suite(
        "keras",
        "keras/src/applications/applications_test.py",
        "test_keras_applications.py",
        source="installed package",
    ),
    "Keras, custom fit": KERAS._replace(
        file="integration_tests/{}_custom_fit_test.py"
    ),
    "Keras, torch module": KERAS._replace(
        file="integration_tests/torch_workflow_test.py", backends=("torch",)
    ),
    "Keras, tf.distribute": KERAS._replace(
        file="integration_tests/tf_distribute_training_test.py",
        backends=("tensorflow",),
    ),
    "keras-hub, test case": Suite(
        "keras_hub", "keras_hub/src/tests/test_case.py", "keras_hub_cases.py"
    ),
    "big_vision, pixels": Suite(
        "big_vision",
        "big_vision/pp",
        "big_vision_cases.py",
        ("tensorflow",),
        source="repository",
        repository="https://github.com/google-research/big_vision",
    ),
    "torchvision, pixels": Suite(
        "torchvision",
        "torchvision/transforms",
        "torchvision_cases.py",
        ("torch",),
        source="wheel",
    ),
}
SHORT = {"tensorflow": "tf"}  # in the names of Keras's files
# Of packages that are not installed.
VERSIONS = {"keras_hub": "0.32.0", "torchvision": "0.28.0"}
OUTCOMES = ("passed", "listed", "skipped", "failed")
TEXT = """\
# Others' tests

By `make conformance` ({python}): the tests of other packages, run on models
of keras_vit by the adapters in `tests/conformance/`. They come from the
installed package, from the source distribution or the wheel that `pip download`
fetches, or from the repository where no release has them (`CLONES=folder` takes
clones that are there); nothing of them is copied. `SUITE="timm, steps"` runs
one suite, and leaves the figures of the others. Listed tests fail for the
reasons below: the command fails at any other failure, and where one of these
passes. The tests themselves skip what they find too large. Results:
benchmarks/results/conformance.json.

{table}

timm's tests build each architecture 128 wide and of three blocks (the Mixers
as wide as they are) with random weights; it is written as timm's file and
loaded here, and what computes is ours alone. The forward pass, with and
without rematerialisation, and the gradient of every parameter are those of
all architectures but resnetv2's, which are not narrowed. Every eighth takes
the tests of sizes with and without classifier, of the names in the written
file, and of features after blocks. Images have the size of the architecture.
Left out are timm's tests of TorchScript, of torch.fx and of the device
"meta", which models of Keras on torch have none of, and Keras's test that
downloads weights.

timm's tests of optimizers step parameters of torch by ours, and its schedulers
take their rates from our schedules. As they ask for little more than that a
loss falls, "steps" compares the weights after each of twelve steps with those
of timm's AdamW, SGD, Lion and Lamb with its schedules of the same shape: SGD at
a constant rate, as Keras multiplies the momentum by the rate of its time and
timm by that of now, and without Muon, of which timm has another form.
keras-hub's test case runs over all public layers and six models. In Keras's
integration tests each dense layer is a ViT. big_vision's operations on images
and all of RandAugment's are compared pixel by pixel, each direction and five
magnitudes; resized and sharpened pixels may be one level apart in 3 of 100
numbers, as sums of floats end a little below whole numbers. Pictures that
torchvision's transforms resize with Pillow, cut to their middle or pad with a
colour are compared pixel by pixel, resized tensors to 0.002 levels, and 4,000
random boxes by the distributions of their area, ratio and place. There is no
counterpart of padding by pixels of the edge or of mirror images, nor of a
shorter side with a bound for the longer one.

With faults in the package the adapters fail: a rate of the other sign fails 8
of timm's tests of optimizers; an axis too many, 2 of the 3 of attention
pooling; an MLP that loses rows of the batch, Keras's custom fit on each backend
and tf.distribute; configs without arguments and a class token of another shape,
39 of keras-hub's 54 on torch; another cubic and padding rounded otherwise, 13
of torchvision's.

## Listed

{listed}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs others' tests.")
    parser.add_argument("--only", default="", help="part of a suite's name")
    parser.add_argument(
        "--clones",
        type=pathlib.Path,
        help="folder of clones named as their packages, instead of fetching",
    )
    parser.add_argument("--cache", type=pathlib.Path, default=CACHE)
    parser.add_argument("--result", type=pathlib.Path, default=RESULT)
    parser.add_argument("--page", type=pathlib.Path, default=PAGE)
    options = parser.parse_args()
    clones = options.clones or options.cache
    found = kept(options.result, options.only)
    for name, suite in SUITES.items():
        for backend in suite.backends if options.only in name else ():
            version, folder = SOURCES[suite.source](
                suite, options.cache, clones
            )
            about = {"suite": name, "file": suite.file, "version": version}
            counts = run(suite, backend, folder)
            found.append({**about, "source": suite.source, **counts})
            print(name, backend, *(counts[x] for x in OUTCOMES), flush=True)
    found.sort(key=lambda x: list(SUITES).index(x["suite"]))
    options.result.write_text(json.dumps(found, indent=1) + "\n")
    options.page.write_text(page(found), encoding="utf-8")
    sys.exit(any(x["failed"] or not x["passed"] for x in found))


def kept(path, only: str) -> list[dict]:
    """Return the earlier results of suites that are not run now."""
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    return [x for x in found if x["suite"] in SUITES and only not in x["suite"]]


def run(suite: Suite, backend: str, folder: pathlib.Path) -> dict:
    """Run the tests of a suite, and count what became of them."""
    if suite.adapter.endswith(".py"):
        at, arguments, path = ROOT, [], ADAPTERS / suite.adapter
    else:
        at, path = (
            folder,
            folder / suite.file.format(SHORT.get(backend, backend)),
        )
        arguments = ["-p", suite.adapter, "-c", os.devnull, "-W", "ignore"]
        arguments += ["--rootdir", str(folder)]
    with tempfile.TemporaryDirectory() as temporary:
        report = pathlib.Path(temporary) / "report.xml"
        command = [
            *(sys.executable, "-m", "pytest", "-q", "--tb=short"),
            *("-p", "no:cacheprovider", f"--junitxml={report}", *arguments),
            *([f"{path}::{x}" for x in suite.tests] or [str(path)]),
        ]
        subprocess.run(command, cwd=at, env=environment(backend, folder))
        counts, listed = read_report(report)
    return {
        "backend": backend,
        **{x: counts[x] for x in OUTCOMES},
        "reasons": listed,
        "python": f"Python {sys.version.split()[0]}",
    }


def environment(backend: str, folder: pathlib.Path) -> dict:
    paths = (ROOT, ADAPTERS, ROOT / "tests" / "support", ROOT / "tools")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "KERAS_BACKEND": backend,
        "OMP_NUM_THREADS": "1",
        "SUITE_FOLDER": str(folder),
    }


def installed(suite: Suite, *_) -> tuple[str, pathlib.Path]:
    """Return what is installed, with its version."""
    return f"{suite.package} {version_of(suite.package)}", ROOT


def version_of(package: str) -> str:
    return VERSIONS.get(package) or importlib.metadata.version(package)


def distributed(suite: Suite, cache, _) -> tuple[str, pathlib.Path]:
    """Return a source distribution, fetched where it is not there yet."""
    name = f"{suite.package}-{version_of(suite.package)}"
    if not (cache / name).exists():
        with tarfile.open(downloaded(suite, cache, "--no-binary")) as archive:
            archive.extractall(cache, filter="data")
    return name.replace("-", " "), cache / name


def unpacked(suite: Suite, cache, _) -> tuple[str, pathlib.Path]:
    """Return what is in a wheel, fetched where it is not there yet."""
    name = f"{suite.package}-{version_of(suite.package)}"
    if not (cache / name).exists():
        with zipfile.ZipFile(downloaded(suite, cache, "--only-binary")) as x:
            x.extractall(cache / name)
    return name.replace("-", " "), cache / name


def downloaded(suite: Suite, cache, kind: str) -> pathlib.Path:
    name = f"{suite.package}-{version_of(suite.package)}"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    subprocess.run(
        [
            *(*pip, kind, suite.package, name.replace("-", "==")),
            *("--dest", str(cache)),
        ],
        check=True,
    )
    return next(x for x in cache.glob(f"{name}*") if x.is_file())


def cloned(suite: Suite, cache, clones) -> tuple[str, pathlib.Path]:
    """Return files of a repository, cloned where there is no clone."""
    clone = clones / suite.package
    if not clone.exists():
        git = ["git", "clone", "--quiet", "--depth", "1", suite.repository]
        subprocess.run([*git, str(clone)], check=True)
    head = ["git", "-C", str(clone), "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(head, check=True, capture_output=True, text=True)
    version = f"{suite.package} {commit.stdout.strip()}"
    folder = cache / version.replace(" ", "-")
    if not folder.exists():
        part = suite.file.partition("/")[0]
        cache.mkdir(parents=True, exist_ok=True)
        archive = cache / f"{folder.name}.tar"
        git = ["git", "-C", str(clone), "archive", "-o", str(archive)]
        subprocess.run([*git, "HEAD", part], check=True)
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
    return version, folder


SOURCES = {
    "installed package": installed,
    "source distribution": distributed,
    "wheel": unpacked,
    "repository": cloned,
}


def read_report(path):
    """Count the outcomes of a report of pytest, with the reasons of failures.

    Returns:
        Counts by outcome, and listed tests by reason.
    """
    counts, reasons = collections.Counter(), collections.Counter()
    for case in ET.parse(path).getroot().iter("testcase"):
        outcome = outcome_of(case)
        counts[outcome] += 1
        if outcome == "listed":
            skipped = case.find("skipped")
            reasons[skipped.get("message") if skipped is not None else ""] += 1
    return counts, dict(sorted(reasons.items()))


def outcome_of(case) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    skipped = case.find("skipped")
    if skipped is None:
        return "passed"
    return "listed" if skipped.get("type") == "pytest.xfail" else "skipped"


def page(found) -> str:
    header = ["suite", "version", "from", "backend", *OUTCOMES]
    keys = ["suite", "version", "source", "backend", *OUTCOMES]
    rows = [[x[key] for key in keys] for x in found]
    listed = collections.Counter()
    for x in found:
        for reason, count in x["reasons"].items():
            listed[x["suite"], reason] += count
    lines = [
        f"- {name}, {count}: {why}." for (name, why), count in listed.items()
    ]
    return TEXT.format(
        python=found[0]["python"],
        table="\n".join(markdown_table(header, rows, OUTCOMES)),
        listed="\n".join(lines) or "None.",
    )


if __name__ == "__main__":
    main()
