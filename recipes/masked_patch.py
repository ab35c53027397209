"""Pre-trains a Vision Transformer without labels, by masked patches.

    python recipes/masked_patch.py --run_dir runs/masked
    python recipes/finetune.py --model.weights runs/masked
    python recipes/masked_patch.py --smoke true \
        --config recipes/configs/paper/masked_patch_b16.yaml

as in "An Image Is Worth 16x16 Words" (arXiv:2010.11929, appendix B.1.2): half
of the patches are hidden, and the model predicts their mean colours in 3 bits
per channel, 512 classes (8 for grey images). `--masked_patch.target` has the
other targets that the paper tried. Labels, label smoothing and the loss of the
config are ignored. The same command continues a run that was stopped, to the
same weights.

The run folder then holds the config, the environment, metrics, checkpoints,
the Vision Transformer without a classification layer as model.keras, and
result.json, report.html and masked_patch.png, which shows images, what the
model saw of them and how it completed them.
"""

import sys

from masked_patch.completions import write_masked_patches
from masked_patch.config import MaskedPatchRecipe
from masked_patch.network import MASKED_PATCH
from named_data.sources import SOURCES

from keras_vit.runs import facts, finish, run_script
from keras_vit.training import Run, train
from keras_vit.training.distribution.processes import agreed


def run(recipe: MaskedPatchRecipe) -> dict:
    """Train and fill the run folder.

    Returns:
        What is written to result.json.

    Raises:
        ValueError: when recipe, data and run folder do not fit together.
        OSError: when weights cannot be fetched, or the disk is full.
    """
    trained = train(recipe, task=MASKED_PATCH, sources=SOURCES)
    return agreed(lambda: report(trained, recipe))


def report(trained: Run, recipe: MaskedPatchRecipe) -> dict:
    """Fill the run folder, in one process."""
    result = {"target": recipe.masked_patch.target, **facts(trained)}
    for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
        if name in trained.kept:
            result[name] = trained.kept[name]
    write_masked_patches(trained, recipe)
    return finish(trained, recipe, result)


def summary(result: dict) -> str:
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
    return run_script(
        run,
        summary,
        __doc__,
        arguments,
        record=MaskedPatchRecipe,
        sources=SOURCES,
    )


if __name__ == "__main__":
    sys.exit(main())
