"""The cells of the paper's tables: their numbers, and commands that parse."""

import functools
import shlex

import paper_results_table as typed
import pytest
from paper import values_table as values
from paper.cells import Place
from paper.reproduction import (
    CONTENTS,
    RECORDS,
    Reproduction,
    cells_of,
    parsed,
    table_name,
)
from recipe_scripts import RECIPES

import keras_vit
from keras_vit.cli.command_line import _parser

PLACE = Place(str(RECIPES), "runs/reproduce")


@functools.cache
def every_command():
    """All commands, each once."""
    cells = [cell for name in CONTENTS for cell in cells_of(name)]
    found = [command for cell in cells for command in cell.commands]
    return tuple(dict.fromkeys(found))


def papers(table):
    return {(c.row, c.column): (c.paper, c.spread) for c in cells_of(table)}


def test_table_2_is_the_papers():
    found = papers("2")
    for column, *numbers in typed.lines(typed.TABLE_2):
        for row, text in zip(typed.COLUMNS_2, numbers, strict=True):
            mean, _, spread = text.partition("±")
            expected = (float(mean), float(spread) if spread else None)
            assert found[row, column.replace("_", " ")] == expected


def test_version_1_has_the_numbers_of_its_own():
    # arXiv:2010.11929v1, Table 2.
    asked = Reproduction(table="2", version="v1")
    assert {(x.row, x.column): (x.paper, x.spread) for x in asked.cells} == {
        ("ViT-H/14 JFT", "ImageNet"): (88.36, None),
        ("ViT-L/16 JFT", "ImageNet"): (87.61, None),
        ("ViT-H/14 JFT", "ImageNet ReaL"): (90.77, None),
        ("ViT-L/16 JFT", "ImageNet ReaL"): (90.24, None),
        ("ViT-H/14 JFT", "VTAB"): (77.16, None),
        ("ViT-L/16 JFT", "VTAB"): (75.91, None),
    }
    with pytest.raises(ValueError, match="table 2 alone. Received: table5"):
        Reproduction(table="5", version="v1")
    asked = Reproduction(table="2", version="v1", only=("Pets",))
    with pytest.raises(ValueError, match="Received: 'Pets'"):
        asked.cells  # noqa: B018


def test_table_5_is_the_papers():
    found = papers("5")
    expected = {
        (f"{data}, {column.replace('_', ' ')}", model): (float(text), None)
        for data, column, *numbers in typed.lines(typed.TABLE_5)
        for model, text in zip(typed.MODELS_5, numbers, strict=True)
        if text != "-"
    }
    assert found == expected


def test_table_7_is_the_papers():
    found = papers("7")
    expected = {
        (model if row == "Average" else f"{model}, {row}", optimizer): (
            float(text),
            None,
        )
        for row, *numbers in typed.lines(typed.TABLE_7)
        for (model, optimizer), text in zip(
            typed.COLUMNS_7, numbers, strict=True
        )
    }
    assert found == expected


def test_table_9_is_the_papers():
    found = papers("9")
    expected = {
        (row, task): (float(text), None)
        for task, *numbers in typed.lines(typed.TABLE_9)
        for row, text in zip(typed.COLUMNS_2[:3], numbers, strict=True)
    }
    assert found == expected


def test_tables_5_6_and_7_agree_where_they_print_the_same():
    """But for H/14, of which the paper prints two numbers."""
    table_5, table_6 = papers("5"), papers("6")
    for model, epochs in [(m, 7) for m in typed.MODELS_5[:2]] + [
        ("ViT-L/16", 14),
        ("ViT-L/32", 7),
    ]:
        for column in values.DOWNSTREAM:
            one = table_5[f"JFT-300M, {column}", model]
            assert one == table_6[f"{model}, {epochs} epochs", column]
    for model in ("R50x1", "R152x2"):
        row = values.TABLE_6[model, 7]
        five = [row[column] for column in values.FIVE]
        assert papers("7")[model, "Adam"][0] == pytest.approx(
            sum(five) / 5, abs=0.006
        )


@pytest.mark.parametrize("table", ["3", "4"])
def test_our_configs_have_the_papers_hyper_parameters(table):
    for cell in cells_of(table):
        measured, _, _ = cell.measured(PLACE)
        if "/" in str(cell.paper):
            assert str(measured) in str(cell.paper).split("/"), cell
        else:
            assert measured == cell.paper, cell


def test_sizes_of_models_are_those_of_table_1():
    for cell in cells_of("1"):
        measured, _, _ = cell.measured(PLACE)
        # Table 1 counts a larger head than that of 1000 classes.
        assert measured == pytest.approx(cell.paper, rel=0.01)


def test_compute_is_that_of_table_6():
    cells = {c.row: c for c in cells_of("6", only=("exaFLOPs",))}
    assert len(cells) == 18
    # Of 7 epochs it prints more than half of what it prints of 14.
    del cells["R50x1+ViT-L/16, 7 epochs"]
    for row, cell in cells.items():
        measured, _, _ = cell.measured(PLACE)
        tolerance = 0.03 if "ViT" in row else 0.055
        assert measured == pytest.approx(cell.paper, rel=tolerance), row


def test_a_run_folder_is_of_one_command():
    folders = {}
    for command in every_command():
        if command.run:
            folders.setdefault(command.run, set()).add(command)
    assert max(map(len, folders.values())) == 1
    assert len(folders) > 200


def test_commands_come_after_those_that_they_need():
    for name in CONTENTS:
        for cell in cells_of(name):
            seen = set()
            for command in cell.commands:
                assert set(command.after) <= seen, command
                seen.add(command.run)
            assert {run for run, _ in cell.results} <= seen
            assert bool(cell.commands or cell.compute) or cell.note


def kind(command):
    """What of a command its parser may refuse."""
    names = tuple(option for option, _ in command.options)
    model = [x for option, x in command.options if option == "model.name"]
    return command.recipe, command.config, names, *model


def test_commands_parse_with_the_parser_of_their_recipe():
    kinds = {kind(x): x for x in every_command() if x.recipe in RECORDS}
    assert len(kinds) > 50
    for command in kinds.values():
        record = parsed(command, PLACE)
        given = dict(command.options)
        assert record.run_dir == f"runs/reproduce/{command.run}"
        if "seed" in given:
            assert record.seed == int(given["seed"])
        if given.get("model.name", "null") != "null":
            assert record.model.name == given["model.name"]


def test_commands_given_by_hand_parse():
    found = [x for x in every_command() if x.recipe not in RECORDS]
    assert {x.recipe for x in found} == {
        "keras-vit benchmark",
        "keras-vit explain",
        "keras-vit summary",
        "python -c",
    }
    for command in found:
        program, *words = shlex.split(command.text(PLACE))
        if program == "python":
            continue  # Run by a test of its own.
        model = _parser(words).parse_args(words).model
        if model.startswith("runs/"):
            assert model.removeprefix("runs/reproduce/") in command.after
        else:
            assert hasattr(keras_vit, model.partition("/")[0])


def test_all_tables_and_figures_are_there():
    tables = [f"table{i}" for i in range(1, 10)]
    figures = [f"figure{i}" for i in range(1, 15)]
    assert [*CONTENTS] == [*tables, *figures, "section4.6"]
    for name in CONTENTS:
        assert {cell.table for cell in cells_of(name)} == {name}


def test_the_papers_fine_tuning_of_l16():
    """Table 4 and section B.1.1, for the best public model of Table 2."""
    [cell] = cells_of("2", only=("ViT-L/16 I21k", "ImageNet"))
    sweep, *others = (parsed(command, PLACE) for command in cell.commands)
    assert sweep.model.name == "ViT_L16"
    assert sweep.model.weights == "imagenet21k"
    assert sweep.model.image_size == 512
    assert sweep.training.ema_decay == 0.9999
    assert sweep.sweep.learning_rates == (0.003, 0.01, 0.03, 0.06)
    assert [recipe.seed for recipe in (sweep, *others)] == [0, 1, 2]
    for recipe in others:
        assert recipe.data.train_split == sweep.sweep.train_split == "train"
        assert recipe.data.validation_split is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("5", "table5"),
        ("Table 5", "table5"),
        ("figure4", "figure4"),
        ("Fig. 4", "figure4"),
        ("4.6", "section4.6"),
        ("Section 4.6", "section4.6"),
        ("section4.6", "section4.6"),
        ("Self-supervision", "section4.6"),
        ("appendix B.1.2", "section4.6"),
    ],
)
def test_tables_are_found_by_what_people_call_them(text, name):
    assert table_name(text) == name


@pytest.mark.parametrize(
    ("table", "only", "message"),
    [
        ("17", (), "'17'.*table1, table2"),
        ("46", (), "'46'.*section4.6"),
        ("section 4.5", (), "'section 4.5'.*section4.6"),
        ("5", ("ViT-B/16", "CIFAR-1000"), "CIFAR-1000.*ViT-B/32"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(table, only, message):
    with pytest.raises(ValueError, match=message):
        cells_of(table, only)
