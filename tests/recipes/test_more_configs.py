"""Configs beside the tables of the papers say what is known of them."""

from papers_table import ADAM
from recipe_scripts import check, config, script


def test_masked_patches():
    """Appendix B.1.2 of arXiv:2010.11929."""
    check(
        config("paper/masked_patch_b16", script("pretrain").PretrainRecipe),
        {key: ADAM[key] for key in ADAM if key != "training.label_smoothing"}
        | {
            "model.name": "ViT_B16",
            "masked_patch.target": "mean_colour",
            "masked_patch.corruption_rate": 0.5,
            "masked_patch.mask_rate": 0.8,
            "masked_patch.random_rate": 0.1,
            "optimizer.learning_rate": 2e-4,
            "optimizer.schedule": "cosine",
            "training.steps": 1_000_000,
            "training.batch_size": 4096,
        },
    )


def test_the_seed_talk_trains_for_40_epochs_on_growing_images():
    recipe = config("seed_talk/cifar10_scratch")
    check(
        recipe,
        {
            "data.name": "cifar10",
            "data.test_split": "test",
            "model.weights": None,
            "model.image_size": 32,
            "training.epochs": 40,
            "training.steps": None,
        },
    )
    sizes = recipe.training.image_sizes
    assert (len(sizes) > 1, sizes[-1]) == (True, 32)
    assert recipe.model.patch_size == 4
    assert all(size % 4 == 0 for size in sizes)


def test_our_cifar10_recipe_starts_from_nothing_on_the_same_images():
    ours, talk = config("cifar10_scratch"), config("seed_talk/cifar10_scratch")
    assert ours.data == talk.data
    assert ours.model.weights is None
