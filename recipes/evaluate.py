"""Evaluates a model on every image of a split and reports on it.

    python recipes/evaluate.py runs/quickstart
    python recipes/evaluate.py runs/flowers photos/test
    python recipes/evaluate.py --model.name ViT_B16 \
        --model.weights imagenet21k_imagenet2012 --data.name imagenet2012 \
        --preprocessing.evaluation squash
    python recipes/evaluate.py openai/clip-vit-base-patch32 photos/test \
        --template "a photo of a {}."

The first command evaluates the model of a run on the test images of its own
data, the second on all images of a folder of classes, or of a CSV file with
labels; of data with parts on the test images. The first word is
`--model.weights`, the second `--data.folder` or `--data.csv`. The third command
evaluates public weights on ImageNet's validation images, the fourth an
image-text model by the names of the folders (zero-shot), or by those of
`--labels classes.txt`. Each image
counts once, whatever the batch size and the number of devices and processes,
each of which predicts its share. ImageNet-V2
is `--data.name imagenet_v2/matched-frequency`; for ImageNet-ReaL either give
`--data.name imagenet2012_real --data.label_key real_label`, or
`--real_labels real.json` beside a folder of the validation images.

The run folder then holds the config, the environment, result.json,
predictions.npz, predictions.csv, per_class.csv, class_names.json,
report.html and confusion.png.
"""

import dataclasses
import itertools
import pathlib
import sys
import time

from named_data.sources import SOURCES

from keras_vit import data, evaluation, preprocessing
from keras_vit.analysis.report import explain_run
from keras_vit.data import DataConfig, Examples, PreprocessingConfig, Share
from keras_vit.data.config import chosen_reader, data_of_run, evaluation_of
from keras_vit.data.dataset import content_hashes
from keras_vit.data.image_reader import say_colour_changes
from keras_vit.data.manifest import MANIFEST, read_manifest
from keras_vit.evaluation.config import SPLITS, Evaluation
from keras_vit.io.atomic_files import write_json
from keras_vit.io.run_folder import CONFIG, folder_of, read_config
from keras_vit.io.stores import on_disk
from keras_vit.prediction import load_zero_shot
from keras_vit.prediction.exported_pair import exported_pair
from keras_vit.prediction.networks import check_network, load_model
from keras_vit.runs.reporting import numbers_line, write_pages
from keras_vit.runs.script import (
    check_packages,
    exit_code,
    fail,
    left_out,
    parse,
    show,
    with_open,
)
from keras_vit.runs.smoke import tiny_model
from keras_vit.runtime.machine import environment, versions
from keras_vit.training.distribution.layouts import on_devices
from keras_vit.training.distribution.processes import (
    agreed,
    explain_lost_process,
    is_first,
    stacked,
)
from keras_vit.training.run import files as run_folder

LABELLED = (1000, 21843)  # Numbers of classes that the package has names for.
SMOKE_IMAGES = 200
METRICS = {
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro F1",
    "auc": "AUC",
    "average_precision": "average precision",
}
PLACES = "[MODEL [FOLDER]]"  # what may stand before the options


def run(recipe: Evaluation) -> dict:
    """Evaluate and fill the run folder.

    Returns:
        What is written to result.json.

    Raises:
        ValueError: when model and data do not fit, or the run folder is taken.
        OSError: when weights cannot be fetched.
    """
    check_packages(recipe.data, SOURCES)
    files = recipe.data.folder or recipe.data.csv or recipe.data.shards
    whole = bool(files) and recipe.split is None and not recipe.smoke
    recipe = complete(recipe)
    check_packages(recipe.data, SOURCES)
    run_folder.local(recipe.run_dir)  # Of a store, errors show at once.
    with on_devices(recipe.distribution, recipe.batch_size) as share:
        return evaluate(recipe, share, whole)


def evaluate(recipe: Evaluation, share: Share, whole: bool) -> dict:
    """As `run`, for a complete recipe, on the devices of the scope.

    Of several processes each predicts its share, and the first one writes.

    Args:
        recipe: the complete `Evaluation`.
        share: of each batch.
        whole: whether to score data without parts as a whole.
    """
    # Errors show before an earlier run is replaced.
    model, class_names = load_named_model(recipe, whole)
    recipe = as_trained(recipe, model)
    numbers = model.trained_as.problem == "regression"
    dataset = data.open_dataset(recipe.data, SOURCES, to_evaluate=whole)
    check_task(recipe, dataset, numbers)
    recipe = dataclasses.replace(recipe, split=split_of(recipe, dataset))
    class_names = class_names or dataset.class_names
    class_map = evaluation.match_classes(dataset.class_names, class_names)
    batches = make_batches(recipe, dataset, model.input_shape, share)
    examples = examples_of(recipe, dataset)
    if is_first():
        say_colour_changes(examples, model.input_shape[-1])
    agreed(lambda: open_folder(recipe, class_names))
    options = {
        "names": data.file_names(examples),
        "verbose": (1 if sys.stdout.isatty() else 2) if is_first() else 0,
        "together": together(recipe, share),
        "tta": recipe.tta,
    }
    begin = time.perf_counter()
    if numbers:
        predictions = evaluation.predict_numbers(
            model, batches, examples, **options
        )
    else:
        predictions = evaluation.predict_classes(
            model,
            batches,
            top=evaluation.classes_to_keep(
                len(examples), model.output_shape[-1]
            ),
            activation=recipe.model.activation or "softmax",
            class_map=class_map,
            **options,
        )
    facts = {
        "image_size": model.input_shape[1:3],
        "num_parameters": model.count_params(),
        "evaluation_seconds": time.perf_counter() - begin,
        "versions": versions(),
    }

    def write():
        result = {**summarise(recipe, predictions, dataset), **facts}
        if numbers:
            return write_all_numbers(recipe, predictions, class_names, result)
        whole = make_batches(recipe, dataset, model.input_shape, Share())
        write_all(recipe, predictions, whole, class_names, model, result)
        return result

    return agreed(write)


def check_task(recipe: Evaluation, dataset, numbers: bool) -> None:
    """Raise a ValueError where either of model and labels is of numbers."""
    if numbers and recipe.real_labels is not None:
        raise ValueError(
            "ReaL labels are classes, and the model predicts numbers. "
            f"Received: real_labels={recipe.real_labels!r}. Leave it out."
        )
    if dataset.task == "regression" and not numbers:
        raise ValueError(
            f"The model tells classes apart, and the labels of {dataset.name} "
            "are numbers. If each value is a class, give --data.label_kind one."
        )


def split_of(recipe: Evaluation, dataset) -> str:
    """Return the split that is asked for, or else the first that is there."""
    there = (x for x in SPLITS if getattr(dataset, x))
    return recipe.split or next(there, SPLITS[0])


def examples_of(recipe: Evaluation, dataset) -> data.Examples:
    """Return the images of the split that is evaluated; there must be some."""
    split = split_of(recipe, dataset)
    examples = getattr(dataset, split)
    if examples is None:
        raise ValueError(f"{dataset.name} has no {split} images.")
    return examples


def together(recipe, share: Share) -> evaluation.Together | None:
    """Return what puts the shares of several processes together."""
    if share.count == 1:
        return None
    return evaluation.Together(stacked, recipe.batch_size // share.count)


def open_folder(recipe: Evaluation, class_names) -> None:
    """Take the run folder, before the work begins."""
    taken = run_folder.taken(recipe.run_dir, overwrite=recipe.overwrite)
    with taken as folder:
        run_folder.begin(folder, dataclasses.asdict(recipe), environment())
    write_json(folder / "class_names.json", list(class_names))


def write_all(recipe, predictions, batches, class_names, model, result) -> None:
    """Fill the run folder with what was found."""
    folder = run_folder.local(recipe.run_dir)
    evaluation.write_evaluation(
        folder,
        predictions,
        batches,
        class_names,
        num_pictures=recipe.num_pictures,
    )
    explain_run(folder, model)
    write_pages(folder, result)
    run_folder.write_result(folder, result)


def write_all_numbers(recipe, numbers, names, result) -> dict:
    """Fill the run folder with the numbers that were predicted."""
    folder = run_folder.local(recipe.run_dir)
    evaluation.write_numbers(folder, numbers, names)
    write_pages(folder, result)
    run_folder.write_result(folder, result)
    return result


def complete(recipe: Evaluation) -> Evaluation:
    """Fill in the data that a run was trained on, or that of a trial."""
    asked, run = recipe.data, {}
    if recipe.smoke:
        asked = DataConfig(
            name="digits", max_examples=SMOKE_IMAGES, reader=asked.reader
        )
        recipe = dataclasses.replace(recipe, batch_size=16)
    folder = pathlib.Path(on_disk(str(recipe.model.weights)))
    if not recipe.smoke and (folder / CONFIG).is_file():
        run = read_config(folder)
    reader, begun = asked.reader, (run.get("data") or {}).get("reader")
    if run and asked == DataConfig(reader=reader):
        asked = data_of_run(run)
    elif asked.name:  # Data by name may be read by TensorFlow alone.
        begun = None
    asked = dataclasses.replace(asked, reader=chosen_reader(reader, begun))
    return dataclasses.replace(recipe, data=asked)


def as_trained(recipe: Evaluation, model) -> Evaluation:
    """Fill in what the model was trained on, where nothing else is asked for.

    Raises:
        ValueError: when its images are prepared in a way that is not known.
    """
    known = model.trained_as
    preprocessing = recipe.preprocessing
    if preprocessing == PreprocessingConfig():
        preprocessing = evaluation_of(known, model.input_shape[1:3])
    activation = recipe.model.activation or known.answers_by
    return dataclasses.replace(
        recipe,
        data=data_as_trained(recipe.data, known),
        preprocessing=preprocessing,
        model=dataclasses.replace(recipe.model, activation=activation),
    )


def data_as_trained(config: DataConfig, known) -> DataConfig:
    """Read the columns of a CSV file that a model predicts as numbers."""
    if known.problem != "regression" or config.csv is None:
        return config
    if config.label_kind != "auto" or known.class_names is None:
        return config
    key = config.label_key
    if key == DataConfig().label_key:
        key = ",".join(known.class_names)
    return dataclasses.replace(config, label_kind="number", label_key=key)


def load_named_model(recipe: Evaluation, whole: bool = False):
    """Load the model and the names of its classes.

    Args:
        recipe: the complete `Evaluation`.
        whole: see `evaluate`; the data's classes may be the labels.

    Returns:
        A Keras model from images in [0, 255] to logits, and the names of its
        classes, None where they are unknown.

    Raises:
        ValueError: when the weights are unknown or have no classification
            layer.
        OSError: when they cannot be fetched.
    """
    if recipe.smoke:
        return tiny_model(recipe.model.name, recipe.seed), None
    if recipe.labels is not None or recipe.template is not None:
        pair = exported_pair(recipe.model.weights)
        if pair is not None:  # A program; before its texts are computed.
            check_network(pair.image.model)
        labels = recipe.labels
        if labels is None:
            dataset = data.open_dataset(recipe.data, SOURCES, to_evaluate=whole)
            labels = [x.replace("_", " ") for x in dataset.class_names]
        found = load_zero_shot(
            str(recipe.model.weights),
            labels,
            recipe.template,
            image_size=recipe.model.image_size,
        )
        return found.model, found.class_names
    model = load_model(recipe.model)
    names = model.trained_as.class_names
    num_classes = model.output_shape[-1]
    if names is None and num_classes in LABELLED:
        names = preprocessing.class_names(num_classes)
    return model, names


def make_batches(recipe: Evaluation, dataset, shape, share: Share):
    """Batches (images, labels, mask) of a share of the split, for a shape."""
    return data.evaluation_batches(
        examples_of(recipe, dataset),
        image_size=shape[1:3],
        channels=shape[3],
        batch_size=recipe.batch_size,
        preprocessing=recipe.preprocessing,
        share=share,
    )


def summarise(recipe: Evaluation, predictions, dataset) -> dict:
    """Return the numbers of the evaluation, and what was evaluated."""
    examples = examples_of(recipe, dataset)
    files = data.file_names(examples)
    if isinstance(predictions, evaluation.Numbers):
        found = evaluation.summarise_numbers(predictions)
        unread = sorted({*(files or ())} - {*map(str, predictions.names)})
    else:
        found = evaluation.summarise(predictions)
        found["num_classes"] = predictions.num_classes
        unread = evaluation.unread(predictions, files)
        if recipe.real_labels is not None:
            names = predictions.names
            if names is None:
                names = [examples.name_of(i) for i in range(len(examples))]
            found |= evaluation.summarise_real(
                predictions, recipe.real_labels, names
            )
    return {
        "model": recipe.model.weights,
        "data": dataset.name,
        "split": recipe.split,
        **found,
        "num_skipped": len(examples) - len(predictions),
        **trained_on(recipe, examples),
        "skipped": data.skipped_files(dataset, unread),
    }


def trained_on(recipe: Evaluation, examples) -> dict:
    """Count the images that the run of the model was trained on.

    Returns:
        num_trained_on, by the contents of the images; nothing where the model
        is of no run with a list of its images, or contents are not at hand.
    """
    folder = folder_of(recipe.model.weights or "")
    if folder is None or not (folder / MANIFEST).is_file():
        return {}
    if not isinstance(examples, Examples) or examples.kind == "record":
        return {}
    images = read_manifest(folder / MANIFEST)
    known = {image.sha256 for image in images if image.part == "train"} - {""}
    count = sum(value in known for value in content_hashes(examples))
    return {"num_trained_on": count}


def places(words: list[str]) -> list[str]:
    """Return a command line with its first words as options.

    Example:
        >>> places(["runs/flowers", "labels.csv", "--batch_size", "8"])
        ['--model.weights=runs/flowers', '--data.csv=labels.csv', ...]
    """
    given = [*itertools.takewhile(lambda x: not x.startswith("-"), words)]
    if len(given) > 2:
        fail(
            "Give a model and one folder or CSV file, then options. Received: "
            f"{' '.join(given)}."
        )
    options = []
    for number, word in enumerate(given):
        kind = "csv" if word.lower().endswith(".csv") else "folder"
        option = f"data.{kind}" if number else "model.weights"
        options.append(f"--{option}={word}")
    return [*options, *words[len(given) :]]


def summary(result: dict) -> str:
    if "mae" in result:
        return f"{numbers_line(result)} of {result['data']}{left_out(result)}"
    # Of five classes all answers are among the top 5.
    more = result["num_classes"] > 5
    top5 = f", top-5 {result['top5']:.2%}" if more else ""
    line = ", ".join(
        f"{name} {result[key]:.4f}"
        for key, name in METRICS.items()
        if key in result
    )
    known = result.get("num_trained_on", 0)
    seen = f"\n{known:,} of them are images that it was trained on"
    seen = seen if known else ""
    return (
        f"top-1 {result['top1']:.2%}{top5} of {result['num_examples']} "
        f"{result['split']} images of {result['data']}\n{line}"
        f"{seen}{left_out(result)}"
    )


def main(arguments: list[str] | None = None) -> int:
    words, opens = with_open(arguments)
    recipe = parse(
        Evaluation, places(words), __doc__, opens=True, places=PLACES
    )

    def work():
        with explain_lost_process(recipe.run_dir):
            result = run(recipe)
        if is_first():
            print(f"{summary(result)}\nreport: {recipe.run_dir}/report.html")
        if opens:
            show(recipe.run_dir, "report.html")

    return exit_code(work, "there is no result.")


if __name__ == "__main__":
    sys.exit(main())
