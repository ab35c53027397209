"""Runs others' tests on models of keras_vit: `make conformance`.

Each suite is that of a release: the tests of an installed package, or those of
its source distribution, which pip fetches into a cache folder; nothing of
theirs is copied. The adapters stand in tests/conformance/, the reasons of the
tests that fail in its listed.py. Writes benchmarks/results/conformance.json
and docs/conformance.md, and fails where a test fails that is not listed, or
passes that is.
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

    adapter: a plugin of pytest for the file of a source distribution, or the
        file of tests that takes those of the installed package.
    tests: names of functions of the file, or empty for all.
    """

    package: str
    file: str
    adapter: str
    backends: tuple = BACKENDS
    tests: tuple = ()


TIMM = Suite("timm", "tests/test_models.py", "timm_adapter", ("torch",))
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
    "Keras, applications": Suite(
        "keras",
        "keras/src/applications/applications_test.py",
        "test_keras_applications.py",
    ),
}
OUTCOMES = ("passed", "listed", "skipped", "failed")
TEXT = """\
# Others' tests

By `make conformance` ({python}): the tests of other packages, run on models
of keras_vit by the adapters in `tests/conformance/`. They come from the
installed package, or from the source distribution that `pip download`
fetches; nothing of them is copied. Listed tests fail for the reasons below:
the command fails at any other failure, and where one of these passes. The
tests themselves skip what they find too large. Results:
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

## Listed

{listed}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs others' tests.")
    parser.add_argument("--only", default="", help="part of a suite's name")
    parser.add_argument("--cache", type=pathlib.Path, default=CACHE)
    parser.add_argument("--result", type=pathlib.Path, default=RESULT)
    parser.add_argument("--page", type=pathlib.Path, default=PAGE)
    options = parser.parse_args()
    found = kept(options.result, options.only)
    for name, suite in SUITES.items():
        for backend in suite.backends if options.only in name else ():
            found.append(run(name, suite, backend, options.cache))
            print(name, backend, *(found[-1][x] for x in OUTCOMES), flush=True)
    options.result.write_text(json.dumps(found, indent=1) + "\n")
    options.page.write_text(page(found), encoding="utf-8")
    sys.exit(any(x["failed"] or not x["passed"] for x in found))


def kept(path, only: str) -> list[dict]:
    """Return the earlier results of suites that are not run now."""
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    return [x for x in found if only not in x["suite"]]


def run(name: str, suite: Suite, backend: str, cache) -> dict:
    """Run the tests of a suite, and count what became of them."""
    version = importlib.metadata.version(suite.package)
    is_plugin = not suite.adapter.endswith(".py")
    if is_plugin:
        folder = fetched(suite.package, version, cache)
        arguments = ["-p", suite.adapter, "-c", os.devnull, "-W", "ignore"]
        arguments += ["--rootdir", str(folder)]
        path = folder / suite.file
    else:
        folder, arguments, path = ROOT, [], ADAPTERS / suite.adapter
    with tempfile.TemporaryDirectory() as temporary:
        report = pathlib.Path(temporary) / "report.xml"
        command = [
            *(sys.executable, "-m", "pytest", "-q", "--tb=short"),
            *("-p", "no:cacheprovider", f"--junitxml={report}", *arguments),
            *([f"{path}::{x}" for x in suite.tests] or [str(path)]),
        ]
        subprocess.run(command, cwd=folder, env=environment(backend))
        counts, listed = read_report(report)
    source = "source distribution" if is_plugin else "installed package"
    return {
        "suite": name,
        "file": suite.file,
        "version": f"{suite.package} {version}",
        "source": source,
        "backend": backend,
        **{x: counts[x] for x in OUTCOMES},
        "reasons": listed,
        "python": f"Python {sys.version.split()[0]}",
    }


def environment(backend: str) -> dict:
    paths = (ROOT, ADAPTERS, ROOT / "tests" / "support", ROOT / "tools")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "KERAS_BACKEND": backend,
        "OMP_NUM_THREADS": "1",
    }


def fetched(package: str, version: str, cache: pathlib.Path) -> pathlib.Path:
    """Return the folder of a source distribution, fetched where it is not."""
    folder = cache / f"{package}-{version}"
    if folder.exists():
        return folder
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    subprocess.run(
        [
            *(*pip, "--no-binary", package, f"{package}=={version}"),
            *("--dest", str(cache)),
        ],
        check=True,
    )
    with tarfile.open(cache / f"{package}-{version}.tar.gz") as archive:
        archive.extractall(cache, filter="data")
    return folder


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
