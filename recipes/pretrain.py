"""Pre-trains a Vision Transformer, hybrid, MLP-Mixer or BiT ResNet.

    python recipes/pretrain.py --config recipes/configs/big_vision/s16_90ep.yaml
    python recipes/pretrain.py --smoke true \
        --config recipes/configs/paper/table3_imagenet21k_vit_b.yaml

The second command tries a config on a laptop, in half a minute. The same
command continues a run that was stopped, to the same weights. Any field of a
config is an option: `--print_config` prints all of them, `--help` explains
them.

    python recipes/pretrain.py --method masked_patch \
        --config recipes/configs/paper/masked_patch_b16.yaml

learns without labels, as in "An Image Is Worth 16x16 Words" (arXiv:2010.11929,
appendix B.1.2): half of the patches are hidden, and the model predicts their
mean colours in 3 bits per channel, 512 classes (8 for grey images).
`--masked_patch.target` has the other targets that the paper tried;
masked_patch.png shows images, what the model saw of them and how it completed
them.

    python recipes/pretrain.py --method mae --data.folder photos

learns without labels, as a masked autoencoder (arXiv:2111.06377), from scratch
or from `--model.weights`: the model is the encoder, without a classification
layer, and mae.png shows images, their visible patches and what was predicted.
All images in the folder are used, in whatever folders in it.

    python recipes/pretrain.py --method distill --data.folder photos \
        --distill.teacher ViT_B14/dinov2 --model.name ViT_Ti16

trains a student on what another model says of the images: see
`keras_vit.training.tasks.distillation`.

    python recipes/pretrain.py --config recipes/configs/dino/small.yaml \
        --data.folder photos

learns by crops of two sizes, as DINO does (arXiv:2104.14294): the model is the
encoder of the teacher.

The run folder then holds the config, the environment, metrics, checkpoints,
the model with its class names, and result.json and report.html of the
validation images; recipes/evaluate.py evaluates on the test images. Another
run starts from the model with `--model.weights RUN_DIR`.
"""

import dataclasses
import sys
from collections.abc import Callable

from masked_patch.completions import write_masked_patches
from masked_patch.reconstructions import write_reconstructions
from named_data.sources import SOURCES

from keras_vit.exporting.export import source_of
from keras_vit.io.checks import check_choice
from keras_vit.runs import evaluated, facts, finish, run_script
from keras_vit.runs.explained_checkpoints import with_pictures
from keras_vit.training import Recipe, Run, train
from keras_vit.training.build import CLASSIFICATION, Task
from keras_vit.training.distribution.processes import agreed
from keras_vit.training.tasks import (
    DINO,
    DISTILLATION,
    DISTILLATION_WITH_LABELS,
    MAE,
    MASKED_PATCH,
    DINOConfig,
    DistillConfig,
    MAEConfig,
    MaskedPatchConfig,
)
from keras_vit.training.tasks.dino import with_dino_defaults
from keras_vit.training.tasks.feature_watch import with_known_classes
from keras_vit.training.tasks.mae import with_mae_defaults


@dataclasses.dataclass(frozen=True)
class PretrainRecipe(Recipe):
    """The whole run: the same recipe on the same machine, the same result."""

    method: str = "supervised"
    """What is learned: the classes ("supervised"), or without labels the
    colours of hidden patches ("masked_patch", as in the paper) or their pixels
    ("mae", a masked autoencoder), what is the same in crops of an image
    ("dino"), or what another model says ("distill")."""

    masked_patch: MaskedPatchConfig = MaskedPatchConfig()
    """Of method "masked_patch"."""

    mae: MAEConfig = MAEConfig()
    """Of method "mae"."""

    distill: DistillConfig = DistillConfig()
    """Of method "distill"."""

    dino: DINOConfig = DINOConfig()
    """Of method "dino"."""

    knn_folder: str | None = None
    """Without labels, a folder of classes of at most 5,000 images: after each
    interval the share of them that the nearest of the others classify right,
    val_knn, is logged, and selects the best model. Logged too is the share of
    one half that a linear probe of the other gets right, val_probe."""

    def __post_init__(self):
        check_choice("method", self.method, METHODS)
        for name, method in METHODS.items():
            if not method.group or name == self.method:
                continue
            options = getattr(self, method.group)
            if options != type(options)():
                raise ValueError(
                    f"method={self.method!r} does not read {method.group}. "
                    f"Received: {options}. Set method to {name!r}, or leave "
                    "it out."
                )
        labelled = METHODS[self.method].task.names_classes
        labelled |= self.labels != "none"
        if labelled and self.knn_folder is not None:
            raise ValueError(
                "Nearest neighbours are for methods without labels. Received: "
                f"method={self.method!r}, knn_folder={self.knn_folder!r}. "
                "Leave it out."
            )
        for name, group in METHODS[self.method].defaults(self).items():
            object.__setattr__(self, name, group)
        super().__post_init__()

    @property
    def labels(self) -> str:
        """Return how labels are learned besides, "none" without."""
        group = getattr(self, METHODS[self.method].group, None)
        return getattr(group, "labels", "none")


def run(recipe: PretrainRecipe) -> dict:
    """Train, evaluate and fill the run folder.

    Returns:
        What is written to result.json.

    Raises:
        ValueError: when recipe, data and run folder do not fit together.
        OSError: when weights cannot be fetched, or the disk is full.
    """
    method = METHODS[recipe.method]
    with_labels = recipe.labels != "none" and method.with_labels
    task = with_labels or method.task
    if not task.names_classes:
        task = with_pictures(task, recipe.run_dir)
    if recipe.knn_folder is not None:
        task = with_known_classes(task, recipe.knn_folder)
    trained = train(recipe, task=task, sources=SOURCES)
    return agreed(lambda: report(trained, recipe))


def report(trained: Run, recipe: PretrainRecipe) -> dict:
    """Evaluate and fill the run folder, in one process.

    The start and its licence are in result.json, where weights were given.
    """
    found = METHODS[recipe.method].report(trained, recipe)
    if recipe.model.weights is not None:
        found["start"] = source_of(recipe.model.weights)
    return finish(trained, recipe, facts(trained) | found)


def report_classes(trained: Run, recipe: PretrainRecipe) -> dict:
    """Evaluate on the validation images, if there are any."""
    if not trained.dataset.validation:
        return {}
    return evaluated(trained, recipe, "validation")


def report_masked_patch(trained: Run, recipe: PretrainRecipe) -> dict:
    """Draw masked_patch.png, and return the target and its accuracy."""
    write_masked_patches(trained, recipe)
    names = [x for x in ("accuracy", "val_accuracy") if x in trained.kept]
    return {
        **losses(trained, recipe),
        "target": recipe.masked_patch.target,
        **{x: trained.kept[x] for x in names},
    }


def report_mae(trained: Run, recipe: PretrainRecipe) -> dict:
    """Draw mae.png."""
    write_reconstructions(trained, recipe)
    return losses(trained, recipe)


def report_distill(trained: Run, recipe: PretrainRecipe) -> dict:
    """Name the teacher; with labels, evaluate on the validation images."""
    result = losses(trained, recipe)
    result["teacher"] = named_teacher(recipe)
    if recipe.distill.labels != "none":
        result |= report_classes(trained, recipe)
    return result


def named_teacher(recipe: PretrainRecipe) -> dict:
    """Return where the teacher is from, and its licence if it is known."""
    return source_of(recipe.distill.teacher)


def losses(trained: Run, recipe: PretrainRecipe) -> dict:
    """Return the method, and the losses of the model that is kept."""
    shown = ("loss", "val_loss", "val_knn", "val_probe")
    names = [x for x in shown if x in trained.kept]
    return {"method": recipe.method, **{x: trained.kept[x] for x in names}}


@dataclasses.dataclass(frozen=True)
class Method:
    """A way to learn.

    Args:
        task: its `Task`.
        report: writes its files, and returns what result.json has of it.
        group: the field of the recipe with its options, "" without any.
        loss_of: what its loss is of, for the summary.
        with_labels: the `Task` where it learns labels as well.
        defaults: from a recipe to groups of it, with what it leaves open.
    """

    task: Task
    report: Callable[[Run, PretrainRecipe], dict]
    group: str = ""
    loss_of: str = ""
    with_labels: Task | None = None
    defaults: Callable[[PretrainRecipe], dict] = lambda recipe: {}


METHODS = {
    "supervised": Method(CLASSIFICATION, report_classes),
    "masked_patch": Method(
        MASKED_PATCH,
        report_masked_patch,
        "masked_patch",
        "on hidden patches",
    ),
    "mae": Method(
        MAE,
        report_mae,
        "mae",
        "on hidden patches",
        defaults=with_mae_defaults,
    ),
    "distill": Method(
        DISTILLATION,
        report_distill,
        "distill",
        "from the teacher",
        DISTILLATION_WITH_LABELS,
    ),
    "dino": Method(
        DINO,
        losses,
        "dino",
        "between crops",
        defaults=with_dino_defaults,
    ),
}


def summary(result: dict) -> str:
    line = (
        f"trained in {result['seconds']:.0f} s at "
        f"{result['images_per_second']:.0f} images/s"
    )
    if "top1" in result:
        return (
            f"{result['top1']:.2%} of {result['num_examples']} "
            f"{result['split']} images are right, {line}"
        )
    if "method" not in result:
        return line
    part = "val_loss" if "val_loss" in result else "loss"
    what = METHODS[result["method"]].loss_of
    if "val_knn" in result:
        line = f"{result['val_knn']:.2%} by nearest neighbours, {line}"
    return f"{part} {result[part]:.4f} {what}, {line}"


def main(arguments: list[str] | None = None) -> int:
    return run_script(
        run,
        summary,
        __doc__,
        arguments,
        record=PretrainRecipe,
        sources=SOURCES,
    )


if __name__ == "__main__":
    sys.exit(main())
