"""Pre-trains a Vision Transformer without labels, by masked patches.

    python recipes/masked_patch.py --run_dir runs/masked
    python recipes/finetune.py --model.weights runs/masked
    python recipes/masked_patch.py --smoke true \
        --config recipes/configs/paper/masked_patch_b16.yaml

as in "An Image Is Worth 16x16 Words" (arXiv:2010.11929, appendix B.1.2): half
of the patches are hidden, and the model says their mean colours in 3 bits a
channel, 512 classes (8 of grey images). `--masked_patch.target` has the other
targets that the paper tried, `--help` the shares that are replaced. Labels,
their smoothing and the loss of the config are not read. The same command
continues a run that was stopped, to the same weights.

The run folder then holds the config, the environment, metrics, checkpoints,
the Vision Transformer without a classification layer as model.keras, and
result.json, report.html and masked_patch.png, in which images are seen as the
model saw and completed them.
"""

import sys

from masked_patch.pictures import write_masked_patches

from keras_vit.runs import facts, finish, run_script
from keras_vit.training import Recipe, Run, train
from keras_vit.training.distribution.processes import agreed
from keras_vit.training.masked_patch.task import MASKED_PATCH


def run(recipe: Recipe) -> dict:
    """Trains and fills the run folder.

    Args:
        recipe: a `Recipe`.

    Returns:
        What is written to result.json.

    Raises:
        ValueError: when recipe, data and run folder do not fit together.
        OSError: when weights cannot be fetched, or the disk is full.
    """
    trained = train(recipe, task=MASKED_PATCH)
    return agreed(lambda: report(trained, recipe))


def report(trained: Run, recipe: Recipe) -> dict:
    """Fills the run folder; one process alone does it.

    Args:
        trained: a `Run`.
        recipe: its `Recipe`.

    Returns:
        What is written to result.json.
    """
    result = {"target": recipe.masked_patch.target, **facts(trained)}
    for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
        if name in trained.history:
            result[name] = trained.history[name][-1]
    write_masked_patches(trained, recipe)
    return finish(trained, recipe, result)


def told(result: dict) -> str:
    """The result in words."""
    part = "validation" if "val_loss" in result else "training"
    prefix = "val_" if part == "validation" else ""
    line = (
        f"loss {result[prefix + 'loss']:.4f} on hidden patches of {part} images"
    )
    if prefix + "accuracy" in result:
        share = result[prefix + "accuracy"]
        line += f", {share:.2%} of their colours are right"
    return (
        f"{line}, trained in {result['seconds']:.0f} s at "
        f"{result['images_per_second']:.0f} images/s"
    )


def main(arguments: list[str] | None = None) -> int:
    return run_script(run, told, (__doc__ or "").splitlines()[0], arguments)


if __name__ == "__main__":
    sys.exit(main())
