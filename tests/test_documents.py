"""The code blocks and the links of README.md, CONTRIBUTING.md and docs/."""

import argparse
import ast
import importlib
import importlib.util
import inspect
import pathlib
import pkgutil
import posixpath
import re
import shlex
import sys

import jsonargparse
import jupytext
import pytest
from project_tools import ROOT, tool

import keras_vit
from keras_vit.cli.command_line import COMMANDS
from keras_vit.runtime import shipped_recipes

PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
)
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\((?![a-z]+:)([^)\s]+)\)")
# In a line with the last one, keras-vit is the name of an image.
PROGRAMS = ("keras-vit", "python", "docker")
CODE_PATH = re.compile(r"`((?:keras_vit|tests|tools|benchmarks)/[\w./]+)`")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def text_of(page):
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(language, pages=PAGES):
    """Pages and the code of their blocks of a language, "" for shell."""
    for page in pages:
        for found in BLOCK.finditer(text_of(page)):
            if found[1] in language:
                yield pytest.param(page, found[2], id=_name(page, found))


def _name(page, found):
    line = text_of(page)[: found.start()].count("\n") + 1
    return f"{page}:{line}"


def resolved(node, names):
    """What a dotted name of keras_vit is, None for what is none."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = resolved(node.value, names)
        # Of what is no module or class the page does not say the type.
        if inspect.ismodule(owner) or inspect.isclass(owner):
            return getattr(owner, node.attr)
    return None


def imported(tree):
    """Names that the imports of keras_vit bind; it itself in any case."""
    names = {"keras_vit": keras_vit}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module.partition(".")[0] == "keras_vit":
                home = importlib.import_module(node.module)
                for name in node.names:
                    found = getattr(home, name.name, None)
                    if found is None:
                        found = pkgutil.resolve_name(
                            f"{node.module}.{name.name}"
                        )
                    names[name.asname or name.name] = found
    return names


@pytest.mark.parametrize(("page", "code"), [*blocks(("python",))])
def test_python_names_and_arguments_exist(page, code):
    tree = ast.parse(code)
    names = imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            resolved(node, names)
        if isinstance(node, ast.Call):
            called = resolved(node.func, names)
            if callable(called):
                _bind(called, node)


def _bind(called, node):
    """Fails for a keyword that the function does not take."""
    if any(isinstance(x, ast.Starred) for x in node.args):
        return
    keywords = {x.arg: None for x in node.keywords if x.arg}
    inspect.signature(called).bind_partial(*node.args, **keywords)


class Parsed(Exception):
    """Raised in the place of parsing, with the parser."""


def parser_of(command):
    """The parser of a command that is no recipe."""
    parser = argparse.ArgumentParser()
    module = importlib.import_module(f"keras_vit.cli.{COMMANDS[command][0]}")
    getattr(module, command)(parser)
    return parser


def options_of(command, monkeypatch):
    """The options of a command of `keras-vit`, and its own commands."""
    if command in COMMANDS:
        parser = parser_of(command)
    else:
        parser = _parser_of(shipped_recipes.scripts()[command], monkeypatch)
    return _options(parser)


def _options(parser):
    found = set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                found |= _options(inner)
    return found


def _parser_of(script, monkeypatch):
    def stop(self, *_, **__):
        raise Parsed(self)

    monkeypatch.syspath_prepend(str(script.parent))
    for parser in (argparse.ArgumentParser, jsonargparse.ArgumentParser):
        monkeypatch.setattr(parser, "parse_args", stop)
    spec = importlib.util.spec_from_file_location(f"{script.stem}_", script)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    with pytest.raises(Parsed) as found:
        module.main([])
    return found.value.args[0]


def commands_in(code):
    """Lines of a shell block, with those that a backslash continues."""
    for line in code.replace("\\\n", " ").splitlines():
        line = line.removeprefix("$ ")
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # The quotes of a variable of several lines.
            continue
        for start, word in enumerate(words):
            # No folder, as "docker/" in a tree.
            if word.rpartition("/")[2] in PROGRAMS:
                if PROGRAMS[-1] not in words and words[start + 1 :]:
                    yield words[start:]
                break


SHELL = [
    pytest.param(page, words, id=f"{page}:{' '.join(words)[:60]}")
    for page, code in (x.values for x in blocks(("", "bash", "sh")))
    for words in commands_in(code)
]
CHECKLIST = "docs/checklist.md"
ROWS = re.findall(
    r"^\| (\d+) \|.*\| (yes|partly) \|(.*)\|$", text_of(CHECKLIST), re.M
)
SHELL += [
    pytest.param(CHECKLIST, words, id=f"{CHECKLIST}:{' '.join(words)[:60]}")
    for row in ROWS
    for span in re.findall(r"`([^`]+)`", row[2])
    for words in commands_in(span)
]
KNOWN = {}


@pytest.mark.parametrize(("page", "words"), SHELL)
def test_commands_and_their_options_exist(page, words, monkeypatch):
    program, command, *rest = words
    if pathlib.Path(program).name == "python":
        if command.startswith("-"):  # python -m, -c
            return
        if command.startswith("recipes/"):
            assert (ROOT / command).is_file()
            command = pathlib.Path(command).stem.replace("_", "-")
        elif "/" in command:
            assert (ROOT / command).is_file(), command
            return
        else:  # train.py of another library
            return
    assert command in {*COMMANDS, *shipped_recipes.scripts()}
    given = {x.partition("=")[0] for x in rest if x.startswith("--")}
    if given - KNOWN.get(command, set()):
        KNOWN[command] = options_of(command, monkeypatch)
    assert given <= KNOWN.get(command, set())
    if command in COMMANDS and given:  # Each option has its value.
        parser_of(command).parse_args(rest)
    for name, value in zip(rest, rest[1:], strict=False):
        if name == "--config" and value != "mine.yaml":
            assert shipped_recipes.config_path(value)


def test_the_checklist_is_whole():
    assert [int(number) for number, *_ in ROWS] == list(range(1, 41))
    assert sum(score == "yes" for _, score, _ in ROWS) == 38


def slug(heading):
    """The anchor of a heading, as Python-Markdown and GitHub make it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    kept = re.sub(r"[^\w\s-]", "", plain).strip().lower()
    return re.sub(r"[\s]+", "-", kept)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = BLOCK.sub("", text_of(page))
    for target in LINK.findall(text):
        path, _, anchor = target.partition("#")
        name = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        name = name if path else page
        assert (ROOT / name).exists(), target
        if anchor and name.endswith(".md"):
            found = BLOCK.sub("", text_of(name))
            assert anchor in map(slug, HEADING.findall(found)), target


DECISIONS = sorted(
    page
    for page in PAGES
    if page.startswith("docs/decisions/") and not page.endswith("index.md")
)


@pytest.mark.parametrize("page", DECISIONS)
def test_a_decision_has_its_parts_and_is_in_the_index(page):
    parts = re.findall(r"^\*\*(\w+)\.\*\*", text_of(page), re.MULTILINE)
    assert parts == ["Context", "Choice", "Consequence", "Status"]
    name = posixpath.basename(page)
    assert f"({name})" in text_of("docs/decisions/index.md")
    assert f"decisions/{name}" in text_of("mkdocs.yml")


@pytest.mark.parametrize("page", DECISIONS)
def test_paths_in_a_decision_exist(page):
    for path in CODE_PATH.findall(text_of(page)):
        assert (ROOT / path).exists(), path


def test_pages_have_code_and_links():
    assert len(SHELL) > 80
    assert len(list(blocks(("python",)))) > 40


@pytest.mark.parametrize(
    "script",
    sorted((ROOT / "docs" / "notebooks").glob("*.py")),
    ids=lambda path: path.stem,
)
def test_a_tutorial_has_the_cells_of_its_notebook(script):
    made = tool("make_tutorials")
    page = text_of(f"docs/tutorials/{script.stem}.md")
    start = 0
    for cell in jupytext.read(script, fmt="py:percent").cells:
        for part in made.as_markdown(cell, script.stem).split("\n\n"):
            assert part in page[start:], "python tools/make_tutorials.py"
            start = page.index(part, start) + len(part)


@pytest.mark.slow
def test_blocks_that_need_no_network_run():
    page, names = "docs/models/index.md", {}
    for found in BLOCK.finditer(text_of(page)):
        if found[1] == "python":
            exec(compile(found[2], page, "exec"), names)
    assert names["block"].output_shape == (None, 197, 768)
    assert names["model"].output_shape == (None, 10)
