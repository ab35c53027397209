"""The table of VTAB-1k: groups, means and differences counted by hand."""

import pytest
from sweep import SweepConfig
from vtab.config import Setting, Vtab, smoke_vtab
from vtab.table import PAPER_MODELS, group_means, markdown, table
from vtab.tasks import TASKS

from keras_vit.training.config import (
    ModelConfig,
    OptimizerConfig,
    TrainingConfig,
)

SPECIALIZED = ("camelyon", "eurosat", "resisc45", "retinopathy")
MODEL = "ViT-L/16 I21k"


def results(**accuracies):
    return {
        task: {"top1": accuracy, "num_examples": 40}
        for task, accuracy in accuracies.items()
    }


def mean_row(rows, group):
    (found,) = [
        row for row in rows if (row["task"], row["group"]) == ("mean", group)
    ]
    return found


def test_a_group_that_is_whole_has_the_papers_mean_beside_it():
    found = dict(zip(SPECIALIZED, (0.5, 0.6, 0.7, 0.9), strict=True))
    row = mean_row(table(results(**found), {}, model=MODEL), "specialized")
    assert row["accuracy"] == pytest.approx(67.5)
    # (82.5 + 95.6 + 85.2 + 75.3) / 4 of Table 9.
    assert row[MODEL] == pytest.approx(84.65)
    assert row["difference"] == pytest.approx(67.5 - 84.65)
    assert (row["data"], row["note"]) == ("4 tasks", "")


def test_a_mean_is_of_the_same_tasks_as_the_papers_beside_it():
    rows = table(results(dtd=0.5, svhn=0.7, eurosat=0.9), {}, model=MODEL)
    natural, everything = mean_row(rows, "natural"), mean_row(rows, "all")
    assert natural["accuracy"] == pytest.approx(60.0)
    assert natural[MODEL] == pytest.approx((74.1 + 80.9) / 2)
    assert natural["data"] == "2 of 7 tasks"
    assert "measured" in natural["note"]
    assert everything["accuracy"] == pytest.approx(70.0)
    assert everything["ViT-H/14 JFT"] == pytest.approx((75.2 + 88.9 + 96.7) / 3)
    structured = mean_row(rows, "structured")
    assert structured["accuracy"] is None
    # (70.3 + 56.1 + 41.9 + 74.7 + 64.9 + 79.9 + 30.5 + 41.7) / 8
    assert structured[MODEL] == pytest.approx(57.5)


def test_the_mean_of_all_19_weighs_tasks_and_not_groups():
    found = {task: 0.0 for task in TASKS} | {"dtd": 0.19}
    rows = table(results(**found), {})
    assert mean_row(rows, "all")["accuracy"] == pytest.approx(1.0)
    assert group_means(rows) == pytest.approx(
        {"natural": 19 / 7, "specialized": 0, "structured": 0, "all": 1.0}
    )


def test_a_mean_that_is_not_whole_is_no_result_of_a_group():
    means = group_means(table(results(dtd=0.5, eurosat=0.5), {}))
    assert set(means.values()) == {None}


def test_rows_say_what_is_missing_and_which_version_drifted():
    why = "It must be downloaded by hand"
    rows = {
        row["task"]: row
        for row in table(results(pets=0.5), {"resisc45": why})
        if row["task"] != "mean"
    }
    assert list(rows) == list(TASKS)
    assert rows["resisc45"]["note"] == why
    assert "4.0.0" in rows["pets"]["note"]
    assert rows["dtd"]["note"] == "not asked for"
    assert (rows["pets"]["accuracy"], rows["pets"]["images"]) == (50.0, 40)
    # Without a model of the paper nothing is subtracted from it.
    assert rows["pets"]["difference"] is None


def test_the_paper_has_one_model_whose_weights_are_public():
    assert PAPER_MODELS == {("ViT_L16", "imagenet21k"): MODEL}


def test_markdown_has_a_line_a_row_and_no_broken_cells():
    rows = table(results(dtd=0.512), {"svhn": "a | b"}, model=MODEL)
    text = markdown(rows, "ViT_L16")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(rows)
    assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
    assert "| dtd | dtd:3.*.* | 40 | 51.2 | 75.2 | 74.3 | 74.1 |" in text
    assert "version" in text


def vtab(**options):
    return Vtab(
        model=ModelConfig(name="ViT_L16"),
        optimizer=OptimizerConfig(
            name="sgd", learning_rate=0.01, warmup_steps=500
        ),
        training=TrainingConfig(steps=2500, batch_size=512),
        **options,
    )


def test_a_result_is_trained_on_1000_images_and_a_choice_on_800():
    run = vtab(run_dir="runs/a")
    (setting,) = run.settings()
    assert setting == Setting(0.01, 2500)
    final = run.final("clevr_count", setting)
    assert final.data.name == "vtab/clevr_count"
    assert final.data.train_split == "train800val200"
    assert final.data.validation_split is None
    assert final.run_dir == "runs/a/clevr_count"
    assert (final.training.steps, final.optimizer.warmup_steps) == (2500, 500)
    trial = run.trial("clevr_count", setting)
    assert trial.data.train_split == "train800"
    assert trial.data.validation_split == "val200"
    assert trial.run_dir != final.run_dir


def test_a_grid_is_each_rate_with_each_length():
    run = vtab(
        sweep=SweepConfig(learning_rates=(0.003, 0.01)), schedules=(500, 2500)
    )
    assert run.settings() == [
        (0.003, 500),
        (0.003, 2500),
        (0.01, 500),
        (0.01, 2500),
    ]
    short = run.trial("dtd", Setting(0.003, 500))
    assert short.optimizer.learning_rate == 0.003
    assert (short.training.steps, short.optimizer.warmup_steps) == (500, 100)
    folders = {run.trial("dtd", s).run_dir for s in run.settings()}
    assert len(folders) == 4


def test_one_rate_to_compare_is_the_rate_of_the_optimizer():
    run = vtab(sweep=SweepConfig(learning_rates=(0.03,)))
    assert run.settings() == [(0.01, 2500)]


def test_tasks_come_in_the_papers_order_and_by_group():
    assert vtab().names() == list(TASKS)
    assert vtab(tasks=("svhn", "specialized")).names() == [
        "svhn",
        *SPECIALIZED,
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": ("cifar10",)}, "Unknown tasks: 'cifar10'"),
        ({"schedules": (0,)}, "above 0"),
        ({"schedules": (5,), "training": TrainingConfig()}, "training.steps"),
    ],
)
def test_wrong_runs_are_explained(options, message):
    with pytest.raises(ValueError, match=message):
        Vtab(**options)


def test_a_trial_has_a_stand_in_for_each_group():
    trial = smoke_vtab(vtab(tasks=("svhn", "pets", "structured")))
    assert trial.names() == ["pets", "clevr_count"]
    assert smoke_vtab(trial) == trial
    (setting,) = trial.settings()
    recipe = trial.final("clevr_count", setting)
    assert (recipe.data.name or "").startswith("fractals/")
    assert (recipe.training.steps, recipe.model.size) == (2, "tiny")
    assert recipe.run_dir == "runs/vtab-smoke/clevr_count"
