"""Images without labels, and the images of two sources in one.

Axes: N images, K classes.
"""

import dataclasses
import io
import pathlib

import numpy as np
from keras import ops

from keras_vit import data
from keras_vit.data.dataset import Examples
from keras_vit.data.seeds import order
from keras_vit.data.sources import image_files, without_broken_images
from keras_vit.files import replacing
from keras_vit.runs.reporting import evaluated, facts, finish, result_of
from keras_vit.training import Recipe, run_folder, train
from keras_vit.training.distribution.processes import agreed
from noisy_student.networks import of_network

__all__ = [
    "check_networks",
    "chosen",
    "iterate",
    "joined",
    "pseudo_labels",
    "split_labelled",
]


def split_labelled(recipe: Recipe, dataset: data.Dataset):
    """What is learned from with its labels, and what without.

    Args:
        recipe: a `Recipe`.
        dataset: its `Dataset`.

    Returns:
        Two `Examples`; the labels of the second mean nothing.

    Raises:
        ValueError: when there are no images, or they are not in memory.

    Example:
        >>> labelled, unlabelled = split_labelled(recipe, dataset)
    """
    config = recipe.noisy_student
    if config.unlabelled is None:
        return _held_back(
            _in_memory(dataset.train),
            config.held_back_fraction,
            recipe.data.split_seed,
        )
    folder = pathlib.Path(config.unlabelled).expanduser()
    if folder.is_dir():
        rest = _of_folder(folder, recipe.data)
    else:
        source = dataclasses.replace(
            recipe.data,
            name=config.unlabelled,
            **dict.fromkeys(
                ("folder", "csv", "train_split", "validation_split")
            ),
            test_split=None,
        )
        rest = data.open_dataset(source).train
    return _in_memory(dataset.train), _in_memory(rest)


def _held_back(examples, fraction, seed):
    """Any of the images; a class may have too few to have its share."""
    numbers = order(seed, 0, len(examples))
    rest = min(max(round(fraction * len(numbers)), 1), len(numbers) - 1)
    return tuple(
        examples.subset(np.sort(part))
        for part in (numbers[rest:], numbers[:rest])
    )


def _in_memory(examples) -> Examples:
    if not isinstance(examples, Examples):
        raise ValueError(
            "Images that get new labels must be in memory or in files of their "
            f"own. Received: a {type(examples).__name__} of "
            f"{getattr(examples, 'source', 'batches')}. Raise "
            "data.memory_limit_mib."
        )
    return examples


def _of_folder(folder, config) -> Examples:
    paths = image_files(folder)
    if not paths:
        raise ValueError(
            f"There are no images in {str(folder)!r} (noisy_student."
            "unlabelled)."
        )
    examples = Examples(
        np.array(paths, object),
        np.zeros(len(paths), np.int32),
        kind="path",
        source=str(folder),
        on_broken_image=config.on_broken_image,
    )
    whole = data.Dataset(examples, None, None, ())
    return without_broken_images(whole, config.check_images).train


def joined(labelled: Examples, others: Examples, shares) -> Examples:
    """Images with labels and images with what a teacher says of them.

    Args:
        labelled: an `Examples`.
        others: an `Examples`; its own labels are not read.
        shares: float array (N, K), the probabilities of the classes of the
            others.

    Returns:
        An `Examples` of both with labels (N, K), one-hot for the first.

    Example:
        >>> joined(labelled, unlabelled, shares).labels.shape
        (1258, 10)
    """
    labels = labelled.labels
    if labels.ndim == 1:
        labels = np.eye(shares.shape[1], dtype="float32")[labels]
    contents = [labelled.contents, others.contents]
    same = labelled.kind == others.kind
    if same and labelled.kind == "array":
        same = contents[0].shape[1:] == contents[1].shape[1:]
    if not same:
        contents = [_encoded(examples) for examples in (labelled, others)]
    return dataclasses.replace(
        labelled,
        contents=np.concatenate(contents),
        labels=np.concatenate([labels, shares]).astype("float32"),
        kind=labelled.kind if same else "encoded",
        source=f"{labelled.source} and {others.source}",
        numbers=None,
    )


def _encoded(examples) -> np.ndarray:
    """The images as encoded bytes, whatever they are in."""
    how = {
        "encoded": bytes,
        "path": lambda path: pathlib.Path(path).read_bytes(),
        "array": _png,
    }[examples.kind]
    contents = np.empty(len(examples), object)
    contents[:] = [how(content) for content in examples.contents]
    return contents


def _png(image) -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    grey = image.shape[-1] == 1
    Image.fromarray(image[..., 0] if grey else image).save(stream, "PNG")
    return stream.getvalue()


ACTIVATIONS = {"softmax": ops.softmax, "sigmoid": ops.sigmoid}


def pseudo_labels(model, examples, recipe: Recipe) -> np.ndarray:
    """The probabilities that a teacher gives to the classes of images.

    The teacher sees them as they are evaluated: without noise.

    Args:
        model: a Keras model from images in [0, 255] to logits.
        examples: an `Examples`.
        recipe: the `Recipe` of the teacher.

    Returns:
        float32 array (N, K).

    Raises:
        ValueError: when the teacher gives NaN.

    Example:
        >>> pseudo_labels(teacher, unlabelled, recipe).sum(axis=1)
    """
    height, width, channels = model.input_shape[1:]
    batches = data.evaluation_batches(
        examples,
        image_size=(height, width),
        channels=channels,
        batch_size=min(recipe.training.micro_batch_size, len(examples)),
        preprocessing=recipe.preprocessing,
    )
    activation = ACTIVATIONS[recipe.training.loss]
    scores = model.predict(batches.map(lambda *batch: batch[0]), verbose=0)
    scores = scores[: len(examples)].astype("float32")
    if not np.isfinite(scores).all():
        raise ValueError("The teacher gives NaN. See its run folder.")
    return ops.convert_to_numpy(activation(scores))


def chosen(shares: np.ndarray, config) -> tuple[np.ndarray, np.ndarray]:
    """Which images a student learns from, and as what.

    Args:
        shares: float array (N, K), see `pseudo_labels`.
        config: a `NoisyStudentConfig`.

    Returns:
        The numbers of the images, of which one may come several times, and
        float32 array (of as many, K), their labels.

    Raises:
        ValueError: when none is left.

    Example:
        >>> chosen(np.array([[0.9, 0.1], [0.4, 0.6]]), NoisyStudentConfig())
    """
    classes, confidences = shares.argmax(axis=1), shares.max(axis=1)
    rows = np.flatnonzero(confidences >= config.min_confidence)
    if not len(rows):
        raise ValueError(
            f"The teacher is sure of none of {len(shares)} images. Received: "
            f"noisy_student.min_confidence={config.min_confidence}; the most "
            f"confident answer is {confidences.max():.3f}. Lower it."
        )
    if config.images_per_class is not None:
        rows = _balanced(rows, classes, confidences, config.images_per_class)
    labels = shares[rows]
    if config.labels == "hard":
        labels = np.eye(shares.shape[1])[classes[rows]]
    return rows, labels.astype("float32")


def _balanced(rows, classes, confidences, size):
    """As many rows of each class that there is, the most confident first."""
    parts = []
    for label in np.unique(classes[rows]):
        members = rows[classes[rows] == label]
        order = np.argsort(-confidences[members], kind="stable")
        parts.append(np.resize(members[order], size))
    return np.concatenate(parts)


LABELS = "pseudo_labels.npz"


def check_networks(recipe: Recipe) -> None:
    """Raises a ValueError for a network that there is not.

    Args:
        recipe: a `Recipe`.
    """
    for network in recipe.noisy_student.networks:
        of_network(recipe, network)


def iterate(recipe: Recipe) -> list[dict]:
    """Trains the teacher and the students of a recipe.

    Args:
        recipe: a `Recipe`. Each round has a run folder in its own, with
            what it says of the images without labels beside its model.

    Returns:
        A dictionary a round: iteration, network, num_parameters,
        num_train_images, split, top1 and, for a student, num_pseudo_labelled;
        of images whose labels were forgotten, pseudo_label_accuracy as well.

    Raises:
        ValueError: when recipe, data and folders do not fit together.

    Example:
        >>> [row["top1"] for row in iterate(recipe)]
    """
    check_networks(recipe)
    dataset = data.open_dataset(recipe.data)
    labelled, unlabelled = split_labelled(recipe, dataset)
    examples, rows, more = labelled, [], {}
    for number, network in enumerate(recipe.noisy_student.networks):
        stage, task = of_network(_stage(recipe, number), network)
        given = dataclasses.replace(dataset, train=examples)
        result = _finished(stage, task, given, more)
        rows.append({"iteration": number, "network": _told(network), **result})
        if number + 1 < len(recipe.noisy_student.networks):
            shares = _labels_of(stage, unlabelled)
            picked, labels = chosen(shares, recipe.noisy_student)
            examples = joined(labelled, unlabelled.subset(picked), labels)
            more = _of_labels(recipe, shares, unlabelled, picked)
    return rows


def _stage(recipe, number):
    folder = pathlib.Path(recipe.run_dir, f"iteration_{number}")
    return dataclasses.replace(recipe, run_dir=str(folder))


def _told(network):
    """A network in a cell of a table."""
    fields = [f"{key}={x}" for key, x in network.items() if key != "name"]
    return " ".join([network.get("name", "model"), *fields])


def _finished(stage, task, dataset, more):
    """The result of a round, which is trained unless it is finished."""
    known = agreed(lambda: result_of(stage))
    if known is None:
        run = train(stage, dataset=dataset, task=task)
        part = "test" if dataset.test else "validation"
        known = agreed(
            lambda: finish(
                run,
                stage,
                {**more, **evaluated(run, stage, part), **facts(run)},
            )
        )
    columns = ("num_parameters", "num_train_images", "split", "top1")
    return {name: known[name] for name in (*columns, *more)}


def _labels_of(stage, unlabelled) -> np.ndarray:
    """What a teacher says (N, K), told once."""
    path = pathlib.Path(stage.run_dir, LABELS)
    agreed(lambda: None if path.is_file() else _write(path, stage, unlabelled))
    with np.load(path, allow_pickle=False) as arrays:
        shares = arrays["probabilities"]
    if len(shares) != len(unlabelled):
        raise ValueError(
            f"{str(path)!r} is of {len(shares)} images, and there are "
            f"{len(unlabelled)} without labels now. Remove the run folders, "
            "or choose another --run_dir."
        )
    return shares


def _write(path, stage, unlabelled):
    model, _ = run_folder.load_model(path.with_name("model.keras"))
    shares = pseudo_labels(model, unlabelled, stage)
    with replacing(path) as temporary:
        np.savez_compressed(temporary, probabilities=shares)


def _of_labels(recipe, shares, unlabelled, picked) -> dict:
    """What is known of the pseudo-labels that a student gets."""
    known: dict[str, float] = {"num_pseudo_labelled": len(picked)}
    if recipe.noisy_student.unlabelled is None and unlabelled.labels.ndim == 1:
        right = shares.argmax(axis=1) == unlabelled.labels
        known["pseudo_label_accuracy"] = float(right.mean())
    return known
