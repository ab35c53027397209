"""Section 4.6 of the paper and its pictures: commands that give them."""

import shlex

from paper.cells import Place
from paper.reproduction import Reproduction, Runner, cells_of, parsed
from recipe_scripts import RECIPES

import keras_vit
from keras_vit.runs.smoke import smoke
from keras_vit.training.tasks import MASKED_PATCH

PLACE = Place(str(RECIPES), "runs/reproduce")


def test_section_4_6_is_the_papers():
    """79.9 %, 2 % ahead of training from scratch, 4 % behind labels."""
    printed = {cell.row: cell.paper for cell in cells_of("4.6")}
    # The text's 2 and 4 % are to these two of Table 5.
    assert printed.pop("from scratch") == 77.91
    assert printed.pop("masked patches on JFT-300M") == 79.9
    assert printed.pop("supervised on JFT-300M") == 84.15
    assert len(printed) == 6 and set(printed.values()) == {None}


def test_masked_patches_are_pre_trained_as_in_appendix_b():
    only = ("masked patches on JFT-300M", "ImageNet")
    [cell] = cells_of("4.6", only)
    training, sweep = cell.commands
    recipe = parsed(training, PLACE)
    assert recipe.model.name == "ViT_B16"
    assert recipe.training.steps == 1_000_000
    assert recipe.training.batch_size == 4096
    assert recipe.optimizer.learning_rate == 2e-4
    assert recipe.masked_patch.corruption_rate == 0.5
    # The weights that are fine-tuned as in Table 4.
    recipe = parsed(sweep, PLACE)
    assert recipe.model.weights == f"runs/reproduce/{training.run}"
    assert recipe.model.head == "new"
    assert recipe.training.steps == 20_000
    assert cell.results == ((sweep.run, "top1"),)


def test_targets_and_shares_of_appendix_b():
    found = set()
    for cell in cells_of("4.6", ("ImageNet, 5 images a class",)):
        training, probe = cell.commands
        recipe = parsed(training, PLACE)
        # A model of the kind takes what the command asks for.
        MASKED_PATCH.make_model(smoke(recipe), ())
        found.add(
            (recipe.masked_patch.target, recipe.masked_patch.corruption_rate)
        )
        assert parsed(probe, PLACE).model.weights == recipe.run_dir
        assert cell.results == ((probe.run, "shots:5"),)
    assert found == {
        ("mean_colour", 0.5),
        ("mean_colour", 0.15),
        ("downsized", 0.5),
        ("pixels", 0.5),
    }


def test_masked_patches_of_imagenet_need_no_folder():
    [cell] = cells_of("4.6", ("masked patches on ImageNet, 100k steps",))
    data = parsed(cell.commands[0], PLACE).data
    assert (data.name, data.folder) == ("imagenet2012", None)


def test_what_masked_patches_lack_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = Reproduction(hardware="accelerator", data_dir=str(tmp_path))
    runner = Runner(PLACE, asked)
    cells = cells_of("4.6", ("mean colour, 15 % hidden",))
    [reason] = map(runner.look, cells)
    assert "there is no folder data/jft300m" in reason
    assert "hardware: pretrain needs a cluster" in reason
    assert "few_shot needs" not in reason


def test_what_figure_7_draws_of_a_model(monkeypatch, tmp_path):
    """Of the weights before fine-tuning."""
    asked = []

    def tiny(weights, include_top):
        asked.append(weights)
        return keras_vit.models.VisionTransformer(
            keras_vit.models.ViTConfig(
                image_size=(8, 8),
                patch_size=(4, 4),
                hidden_dim=32,
                num_layers=1,
                mlp_dim=8,
                num_heads=2,
                num_classes=10 if include_top else 0,
            )
        )

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(keras_vit, "ViT_L32", tiny)
    left, centre, _ = cells_of("figure7")
    for cell in (left, centre):
        [command] = cell.commands
        program, option, code = shlex.split(command.text(PLACE))
        assert (program, option) == ("python", "-c")
        exec(code, {})
    assert asked == ["imagenet21k", "imagenet21k"]
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"patch_filters.png", "position_similarity.png"}


def test_figure_10_has_the_papers_three_trainings():
    found = []
    for cell in cells_of("figure10"):
        training, shown = cell.commands
        recipe = parsed(training, PLACE)
        assert recipe.model.name == "ViT_L16"
        found.append(
            (
                recipe.training.epochs,
                recipe.optimizer.learning_rate,
                recipe.optimizer.weight_decay,
            )
        )
        assert f"explain {recipe.run_dir} IMAGES" in shown.text(PLACE)
    assert found == [(7, 2e-4, 0.01), (7, 4e-4, 0.1), (14, 4e-4, 0.1)]
