"""Pre-trains a Vision Transformer, hybrid, MLP-Mixer or BiT ResNet.

    python recipes/pretrain.py --config recipes/configs/big_vision/s16_90ep.yaml
    python recipes/pretrain.py --smoke true \
        --config recipes/configs/paper/table3_imagenet21k_vit_b.yaml

The second command tries a config on a laptop, in half a minute. The same
command continues a run that was stopped, to the same weights. Any field of a
config is an option: `--print_config` prints all of them, `--help` explains
them.

The run folder then holds the config, the environment, metrics, checkpoints,
the model with its class names, and result.json and report.html of the
validation images; recipes/evaluate.py evaluates on the test images. Another
run starts from the model with `--model.weights RUN_DIR`.
"""

import sys

from named_data.sources import SOURCES

from keras_vit.runs import evaluated, facts, finish, run_script
from keras_vit.training import Recipe, Run, train
from keras_vit.training.distribution.processes import agreed


def run(recipe: Recipe) -> dict:
    """Train, evaluate and fill the run folder.

    Returns:
        What is written to result.json.

    Raises:
        ValueError: when recipe, data and run folder do not fit together.
        OSError: when weights cannot be fetched, or the disk is full.
    """
    trained = train(recipe, sources=SOURCES)
    return agreed(lambda: report(trained, recipe))


def report(trained: Run, recipe: Recipe) -> dict:
    """Evaluate and fill the run folder, in one process."""
    result = facts(trained)
    if trained.dataset.validation:
        result |= evaluated(trained, recipe, "validation")
    return finish(trained, recipe, result)


def summary(result: dict) -> str:
    line = (
        f"trained in {result['seconds']:.0f} s at "
        f"{result['images_per_second']:.0f} images/s"
    )
    if "top1" not in result:
        return line
    return (
        f"{result['top1']:.2%} of {result['num_examples']} "
        f"{result['split']} images are right, {line}"
    )


def main(arguments: list[str] | None = None) -> int:
    return run_script(run, summary, __doc__, arguments, sources=SOURCES)


if __name__ == "__main__":
    sys.exit(main())
