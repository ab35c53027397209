"""The recipes as commands of keras-vit, and their configs by name."""

import importlib.util
import sys

import pytest
from recipe_scripts import CONFIGS, RECIPES

from keras_vit.analysis.plots import new_figure
from keras_vit.cli import main
from keras_vit.data import DataConfig
from keras_vit.data.config import data_packages
from keras_vit.io import checks
from keras_vit.runs.script import parse
from keras_vit.runtime import shipped_recipes
from keras_vit.training import Recipe


@pytest.fixture(autouse=True)
def program(monkeypatch):
    """What a recipe that is run as a command leaves behind."""
    monkeypatch.setattr(sys, "argv", ["pytest"])
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_every_recipe_is_a_command(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    words = capsys.readouterr().out.split()
    names = {x.stem.replace("_", "-") for x in RECIPES.glob("*.py")}
    assert {"finetune", "few-shot", "reproduce"} <= names <= {*words}


def test_a_recipe_parses_its_own_options(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["few-shot", "--config", "quickstart", "--shotz", "3"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("keras-vit few-shot: error: ")
    assert "--shots" in line


def test_configs_are_listed_with_their_command(capsys):
    assert main(["configs"]) == 0
    rows = [x.split("│")[1:4] for x in capsys.readouterr().out.splitlines()]
    found = {row[0].strip(): row for row in rows if row}
    names = {
        str(x.relative_to(CONFIGS)).removesuffix(".yaml")
        for x in CONFIGS.rglob("*.yaml")
    }
    assert {*found} == names
    assert found["paper/table4_cifar10"][1].strip() == "sweep"
    assert "CIFAR-10" in found["paper/table4_cifar10"][2]
    assert all(cell.strip() for row in found.values() for cell in row)


def test_a_config_is_printed_with_its_comments(capsys):
    assert main(["configs", "quickstart"]) == 0
    expected = (CONFIGS / "quickstart.yaml").read_text()
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize(
    "name",
    [
        "paper/table4_cifar10",
        "paper/table4_cifar10.yaml",
        "recipes/configs/paper/table4_cifar10.yaml",
    ],
)
@pytest.mark.parametrize("words", ["--config {}", "--config={}"])
def test_a_config_is_found_by_name(name, words, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    path = CONFIGS / "paper" / "table4_cifar10.yaml"
    expected = parse(Recipe, ["--config", str(path)], "")
    assert parse(Recipe, words.format(name).split(), "") == expected
    assert expected.data.name == "cifar10"


def test_a_file_comes_before_a_config_of_its_name(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart").write_text("seed: 7")
    assert parse(Recipe, ["--config", "quickstart"], "").seed == 7


def test_the_text_of_a_config_is_one():
    assert parse(Recipe, ["--config", "{seed: 7}"], "").seed == 7


def test_an_unknown_config_names_the_nearest(capsys):
    with pytest.raises(SystemExit):
        parse(Recipe, ["--config", "quikstart"], "")
    (line,) = capsys.readouterr().err.splitlines()
    assert "'quikstart'" in line
    assert line.endswith("Did you mean quickstart?")


@pytest.mark.parametrize(
    "words",
    ["--smoke", "--smoke --seed 3", "--smoke true", "--smoke=true --seed 3"],
)
def test_a_flag_needs_no_value(words):
    assert parse(Recipe, words.split(), "").smoke
    assert not parse(Recipe, ["--smoke", "false"], "").smoke
    flipped = parse(Recipe, ["--preprocessing.flip", "--seed", "3"], "")
    assert flipped.preprocessing.flip and flipped.seed == 3


def without(monkeypatch, *modules):
    """Makes modules look as if they were not installed."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *x: None if name in modules else found(name, *x),
    )


@pytest.mark.parametrize(
    ("modules", "names", "extra"),
    [
        (["matplotlib"], "matplotlib", "plots"),
        (["sklearn", "jinja2"], "jinja2, scikit-learn", "plots"),
        (["tensorflow"], "tensorflow", "recipes"),
        (["tensorflow", "jinja2"], "tensorflow, jinja2", "recipes"),
    ],
)
def test_what_is_missing_is_named(
    modules, names, extra, monkeypatch, tmp_path, capsys
):
    without(monkeypatch, *modules)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["finetune", "--smoke", "--data.reader", "tensorflow"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"needs {names}, which" in line
    assert f'pip install "keras-vision-transformer[{extra}]"' in line
    assert [*tmp_path.iterdir()] == []


def test_python_says_what_is_missing_as_well(monkeypatch):
    without(monkeypatch, "matplotlib")
    with pytest.raises(ValueError, match=r"A figure needs matplotlib.*plots"):
        new_figure(1, 1)


def test_everything_asked_for_is_in_one_extra():
    named = data_packages(DataConfig(name="cifar10"))
    asked = [(*named, *checks.EXTRAS["plots"]), *checks.EXTRAS.values()]
    for modules in asked:
        assert any({*modules} <= {*x} for x in checks.EXTRAS.values())


def test_every_config_says_what_it_is():
    for path in shipped_recipes.configs().values():
        command, sentence = shipped_recipes.described(path)
        assert command in shipped_recipes.scripts(), path
        assert 20 < len(sentence) < 170, path
