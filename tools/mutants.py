"""Draws small faults in the package, and counts those that tests find.

    python tools/mutants.py --count 40 --seed 0 \
        --output benchmarks/results/mutants.json

Each fault is one change of one function: another comparison, a number one
larger, a condition turned around, a sum for a difference, a call or an
assignment left out, None in place of a result. Functions are drawn by the seed,
in all folders of the package alike. In a copy of the checkout at most `--files`
files of fast tests run on one backend (KERAS_BACKEND, torch where it is not
set) with the fault: of those that run the statement, that name the function,
what changes or the module most. A fault that no test finds is printed with its
place and change: it is either without effect, or a test is missing. Tests that
do not end in time count as none.

Which tests run a statement is read from the file `--coverage`. Where it is
missing it is recorded first, which takes an hour; delete it after changes. For
statements that run in no test's own process, the names decide.
"""

import argparse
import ast
import collections
import copy
import json
import os
import pathlib
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent import futures
from typing import NamedTuple

import coverage

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = "keras_vit"
GENERATED = {"keras_vit/applications/signatures.py"}
RECORDED = [
    *("pytest", "--cov=keras_vit", "--cov-context=test", "--cov-report="),
    *("--numprocesses", "2", "--dist", "loadfile", "-m", "not slow"),
]
SECONDS = 400  # of the processor, for the tests of one fault
WAITED = 8 * SECONDS  # for tests that wait and do not compute
# Exit codes of pytest with a fault: a test fails, a module of tests, or their
# conftest.py, which imports the package.
FOUND = (1, 2, 4)
COMPARISONS = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot},
    **{ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In},
}
SUMS = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div},
    **{ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.Mod: ast.FloorDiv},
}


class Fault(NamedTuple):
    """One change of a function.

    Args:
        path: of the file, from the root.
        function: its name, behind that of its class.
        line: where it begins.
        statement: where the statement around it begins.
        what: such as "a < b -> a <= b".
        text: of the whole file with the change.
    """

    path: str
    function: str
    line: int
    statement: int
    what: str
    text: str


def functions() -> list[tuple[str, str]]:
    """Return the files of the package with the functions in them."""
    found = []
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name not in GENERATED:
            tree = ast.parse(path.read_text("utf-8"))
            found += [(name, function) for function, _ in _functions(tree)]
    return found


def _functions(tree, prefix="") -> Iterator:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{node.name}", node


def drawn(count: int, seed: int) -> Iterator[Fault]:
    """Draw faults, each folder of the package as often as another."""
    chance = random.Random(seed)
    folders = collections.defaultdict(list)
    for name, function in functions():
        folders[name.split("/")[1]].append((name, function))
    order = []
    while len(order) < count:
        left = [x for x in sorted(folders) if folders[x]]
        order += chance.sample(left, len(left))
    for folder in order[:count]:
        fault = None
        while fault is None and folders[folder]:
            place = chance.randrange(len(folders[folder]))
            name, function = folders[folder].pop(place)
            fault = fault_in(name, function, chance)
        if fault is not None:
            yield fault


def fault_in(name: str, function: str, chance) -> Fault | None:
    """Return one of the faults that a function can have, if any."""
    text = (ROOT / name).read_text("utf-8")
    nodes = dict(_functions(ast.parse(text)))
    changes = [
        (node, change)
        for node in ast.walk(nodes[function])
        for change in _changes(node)
    ]
    if not changes:
        return None
    node, change = chance.choice(changes)
    lines = text.splitlines(keepends=True)
    # Columns of the syntax tree count bytes.
    start = sum(len(x.encode()) for x in lines[: node.lineno - 1])
    end = sum(len(x.encode()) for x in lines[: node.end_lineno - 1])
    raw = text.encode()
    before, behind = (
        raw[: start + node.col_offset],
        raw[end + node.end_col_offset :],
    )
    new = ast.unparse(change) if isinstance(change, ast.AST) else change
    old = raw[len(before) : len(raw) - len(behind)].decode()
    new = f"({new})" if isinstance(node, ast.expr) else new
    changed = (before + new.encode() + behind).decode()
    what = f"{' '.join(old.split())} -> {' '.join(new.split())}"
    around = max(
        x.lineno
        for x in ast.walk(nodes[function])
        if isinstance(x, ast.stmt)
        and x.lineno <= node.lineno <= (x.end_lineno or 0)
    )
    return Fault(name, function, node.lineno, around, what[:300], changed)


def _changes(node) -> Iterator:
    """Yield what may stand in the place of a node of a syntax tree."""
    new: ast.AST = copy.copy(node)
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        other = COMPARISONS[type(node.ops[0])]()
        yield ast.Compare(node.left, [other, *node.ops[1:]], node.comparators)
    elif isinstance(node, ast.BoolOp):
        other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        yield ast.BoolOp(other, node.values)
    elif isinstance(node, ast.BinOp) and type(node.op) in SUMS:
        if not isinstance(node.left, ast.Constant | ast.JoinedStr):
            yield ast.BinOp(node.left, SUMS[type(node.op)](), node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.If | ast.IfExp):
        new.test = ast.UnaryOp(ast.Not(), node.test)  # pyright: ignore
        yield _indented(new, node)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield ast.Constant(not node.value)
        elif isinstance(node.value, int | float):
            yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.Return) and node.value is not None:
        if not (isinstance(node.value, ast.Constant) and not node.value.value):
            yield "return None"
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "pass"
    elif isinstance(node, ast.AugAssign):
        yield "pass"


def _indented(new, node) -> str:
    lines = ast.unparse(new).splitlines()
    return ("\n" + " " * node.col_offset).join(lines)


def recording(path: pathlib.Path) -> coverage.CoverageData:
    """Return which tests run which lines, recorded where it is not yet."""
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        environment = {"KERAS_BACKEND": "torch", "OMP_NUM_THREADS": "1"}
        environment |= {**os.environ, "COVERAGE_FILE": str(path)}
        subprocess.run(
            [sys.executable, "-m", *RECORDED], cwd=ROOT, env=environment
        )
        if not path.exists():
            sys.exit(f"Nothing was recorded in {path}: see above.")
    recorded = coverage.CoverageData(str(path))
    recorded.read()
    return recorded


def running(fault: Fault, recorded: coverage.CoverageData) -> set[str]:
    """Return the test files that run the statement of a fault."""
    path = next(
        (x for x in recorded.measured_files() if x.endswith(f"/{fault.path}")),
        fault.path,
    )
    tests = recorded.contexts_by_lineno(path).get(fault.statement, [])
    return {test.partition("::")[0] for test in tests} - {""}


def tests_of(fault: Fault, most: int, among: set[str]) -> list[str]:
    """Return the test files that name a function, or what changes, most.

    Args:
        fault: to find.
        most: files.
        among: the files to take them from, or all of those that name something
            where there are none.
    """
    own, _, method = fault.function.rpartition(".")
    module = pathlib.PurePath(fault.path).with_suffix("")
    words = {(own or method).lstrip("_"): 20, method.lstrip("_"): 5}
    words |= {module.name: 2, module.parent.name: 1}
    words |= dict.fromkeys(_users_of(module), 2)
    files = {
        path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
    }
    for word in re.findall(r"\w{6,}", fault.what.partition(" -> ")[0]):
        having = sum(word in text for text in files.values())
        if having:  # The rarer what changes, the more says who names it.
            words.setdefault(word, 60 // having)
    scores = collections.Counter()
    for name, text in files.items():
        path = pathlib.PurePath(name)
        for word, weight in words.items():
            times = len(re.findall(rf"(?<![a-z]){re.escape(word)}\b", text))
            scores[name] += weight * min(times, 5)
        if module.name.rstrip("s") in path.name:
            scores[name] += 100
        if module.parts[1] == path.parent.name:
            scores[name] += 10
    found = [x for x, score in scores.most_common() if score or x in among]
    return [x for x in found if not among or x in among][:most]


def _users_of(module: pathlib.PurePath) -> set[str]:
    """Return the names of the modules that import one."""
    own = re.compile(rf"(import|from) .*\b{re.escape(module.name)}\b")
    files = (ROOT / PACKAGE).rglob("*.py")
    return {x.stem for x in files if own.search(x.read_text("utf-8"))}


def is_found(fault: Fault, tests: list[str], copied: pathlib.Path) -> dict:
    """Run tests with a fault in a copy of the checkout."""
    path = copied / fault.path
    right = path.read_text("utf-8")
    path.write_text(fault.text, "utf-8")
    command = ["sh", "-c", f'ulimit -St {SECONDS}; exec "$@"', "sh"]
    command += [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow"]
    try:
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", *tests],
            cwd=copied,
            env={
                "KERAS_BACKEND": "torch",
                **os.environ,
                **{"PYTHONPATH": str(copied), "OMP_NUM_THREADS": "1"},
            },
            capture_output=True,
            text=True,
            timeout=WAITED,
        )
    except subprocess.TimeoutExpired:
        return {"found": False, "by": f"no end in {WAITED} seconds"}
    finally:
        path.write_text(right, "utf-8")
    if done.returncode == -signal.SIGXCPU:
        return {"found": False, "by": f"no end in {SECONDS} CPU seconds"}
    by = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return {
        "found": done.returncode in FOUND,
        "by": by[0] if by else "",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", type=int, default=6, help="of tests each")
    parser.add_argument("--jobs", type=int, default=2, help="faults at a time")
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--only", type=int, nargs="+", help="their numbers")
    parser.add_argument("--coverage", default="build/coverage", help="a file")
    arguments = parser.parse_args()
    recorded = recording(ROOT / arguments.coverage)
    copies: queue.SimpleQueue = queue.SimpleQueue()

    def examined(number: int, fault: Fault) -> dict:
        copied = copies.get()
        # What is not committed yet counts too.
        for part in (PACKAGE, "tests", "recipes"):
            shutil.copytree(ROOT / part, copied / part, dirs_exist_ok=True)
        tests = tests_of(fault, arguments.files, running(fault, recorded))
        row = {"number": number, **fault._asdict()}
        del row["text"]
        row |= is_found(fault, tests, copied)
        print(json.dumps(row), flush=True)
        copies.put(copied)
        return row

    faults = [
        (number, fault)
        for number, fault in enumerate(drawn(arguments.count, arguments.seed))
        if not arguments.only or number in arguments.only
    ]
    with tempfile.TemporaryDirectory() as folder:
        for place in range(arguments.jobs):
            copied = pathlib.Path(folder, str(place))
            command = ["git", "clone", "--quiet", ROOT, copied]
            subprocess.run(command, check=True)
            copies.put(copied)
        with futures.ThreadPoolExecutor(arguments.jobs) as pool:
            rows = list(pool.map(examined, *zip(*faults, strict=True)))
    found = sum(row["found"] for row in rows)
    print(f"{found} of {len(rows)} found")
    if arguments.output:
        about = {"command": " ".join(["python", *sys.argv]), "found": found}
        text = json.dumps({**about, "faults": rows}, indent=1)
        arguments.output.write_text(f"{text}\n", "utf-8")


if __name__ == "__main__":
    main()
