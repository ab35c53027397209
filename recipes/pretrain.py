"""Pre-trains a Vision Transformer, hybrid, MLP-Mixer or BiT ResNet.

    python recipes/pretrain.py --config recipes/configs/big_vision/s16_90ep.yaml
    python recipes/pretrain.py --smoke true \
        --config recipes/configs/paper/table3_imagenet21k_vit_b.yaml

The second tries any config out on a laptop, in half a minute. The same command
continues a run that was stopped, to the same weights. Any field of a config is
an option, `--print_config` prints all of them and `--help` says what they mean.

The run folder then holds the config, the environment, metrics, checkpoints,
the model with its class names, and result.json and report.html of the
validation images; the test images are recipes/evaluate.py's. Another run
starts from it with `--model.weights RUN_DIR`.
"""

import sys

from keras_vit import data, evaluation
from keras_vit.analysis.report import write_report
from keras_vit.training import Recipe, run_folder, train
from keras_vit.training.command_line import fail, parse
from keras_vit.training.environment import versions
from keras_vit.training.smoke import smoke

INTERRUPTED = 130  # The exit code of a program that Ctrl-C ended.


def run(recipe: Recipe) -> dict:
    """Trains, evaluates and fills the run folder.

    Args:
        recipe: a `Recipe`.

    Returns:
        What is written to result.json.

    Raises:
        ValueError: when recipe, data and run folder do not fit together.
        OSError: when weights cannot be fetched, or the disk is full.
    """
    trained = train(recipe)
    result = {
        "seconds": trained.seconds,
        "images_per_second": trained.images_per_second,
        "num_parameters": trained.model.count_params(),
        "num_train_images": len(trained.dataset.train),
        "versions": versions(),
    }
    if trained.dataset.validation:
        result["split"] = "validation"
        result |= evaluated(trained, recipe)
    run_folder.write_json(trained.folder / "result.json", result)
    write_report(trained.folder)
    return result


def evaluated(trained, recipe: Recipe) -> dict:
    """Counts what the model has right, each image once.

    Args:
        trained: a `Run`.
        recipe: its `Recipe`.

    Returns:
        top1, top5 and num_examples.
    """
    model = trained.model
    batches = data.evaluation_batches(
        trained.dataset.validation,
        image_size=model.input_shape[1:3],
        channels=model.input_shape[3],
        batch_size=recipe.training.micro_batch_size,
        preprocessing=recipe.preprocessing,
    )
    predictions = evaluation.predict_classes(
        model, batches, activation=recipe.training.loss
    )
    evaluation.write_evaluation(
        trained.folder, predictions, batches, trained.dataset.class_names
    )
    return evaluation.summarise(predictions)


def main(arguments: list[str] | None = None) -> int:
    recipe = parse(Recipe, arguments, (__doc__ or "").splitlines()[0])
    recipe = smoke(recipe) if recipe.smoke else recipe
    try:
        result = run(recipe)
    except (ValueError, OSError, FloatingPointError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        print(
            "\nInterrupted; the same command continues from the last "
            f"checkpoint in {recipe.run_dir}.",
            file=sys.stderr,
        )
        return INTERRUPTED
    if "top1" in result:
        print(
            f"{result['top1']:.2%} of {result['num_examples']} validation "
            "images are right"
        )
    print(
        f"trained in {result['seconds']:.0f} s at "
        f"{result['images_per_second']:.0f} images/s; report and model: "
        f"{recipe.run_dir}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
