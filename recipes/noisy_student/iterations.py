"""Noisy Student: training a teacher, its pseudo-labels, and its students.

Algorithm 1 of "Self-training with Noisy Student improves ImageNet
classification" (arXiv:1911.04252). A field's docstring is its text in
`python recipes/noisy_student.py --help`.

Axes: N images, K classes.
"""

import dataclasses
import hashlib
import io
import pathlib

import numpy as np
from keras import ops
from named_data.sources import SOURCES

from keras_vit import data
from keras_vit.checkpoints.engine.keras_files import load_model
from keras_vit.data.dataset import Examples, content_hashes
from keras_vit.data.image_folders import image_files
from keras_vit.data.seeds import order
from keras_vit.data.sources import without_broken_images
from keras_vit.io.atomic_files import replacing
from keras_vit.io.checks import check_choice, check_positive, check_unread
from keras_vit.runs.reporting import evaluated, facts, finish, result_of
from keras_vit.runs.smoke import IMAGE_SIZE, smoke
from keras_vit.training import Recipe, train
from keras_vit.training.distribution.processes import agreed
from keras_vit.training.run import files as run_folder
from noisy_student.networks import network_task

__all__ = [
    "NoisyStudentConfig",
    "NoisyStudentRecipe",
    "iterate",
    "join_labelled",
    "pseudo_labels",
    "select",
    "smoke_student",
    "split_labelled",
]

LABELS = ("soft", "hard")
LABELS_FILE = "pseudo_labels.npz"
# "auto" is softmax, as each image has one class.
ACTIVATIONS = {
    "auto": ops.softmax,
    "softmax": ops.softmax,
    "sigmoid": ops.sigmoid,
}


@dataclasses.dataclass(frozen=True)
class NoisyStudentConfig:
    """The networks that teach each other, and the images without labels.

    "Self-training with Noisy Student improves ImageNet classification"
    (arXiv:1911.04252).
    """

    networks: tuple[dict, ...] = (
        {},
        {"hidden_dim": 96, "mlp_dim": 192},
        {"hidden_dim": 128, "mlp_dim": 256},
    )
    """The first teacher, then the students, each of which teaches the next:
    the fields of `model` in which it differs, as {name: ViT_S16}; or an
    EfficientNet of B0 to B7, L2, V2B0 to V2B3, V2S, V2M, V2L, as {name:
    EfficientNetB0, image_size: 224, channels: 3, dropout_rate: 0.5}."""

    unlabelled: str | None = None
    """Images without labels: a folder with images anywhere below it, or a name
    as in data.name, whose training images are used; null takes some of the
    training images and ignores their labels."""

    held_back_fraction: float = 0.5
    """Share of the training images whose labels are ignored, where there
    are no other images without labels."""

    labels: str = "soft"
    """Pseudo-label of an image: the probability of each class ("soft"), or the
    most probable class ("hard")."""

    min_confidence: float = 0.0
    """Images whose most probable class is less probable are left out; the
    paper has 0.3."""

    images_per_class: int | None = None
    """Images of each class: the most confident ones where there are more,
    repeated where there are fewer; null takes them as they are. The paper has
    130000."""

    def __post_init__(self):
        check_choice("labels", self.labels, LABELS)
        check_positive(self, "images_per_class")
        if self.unlabelled is not None:
            case = f"unlabelled={self.unlabelled!r}"
            check_unread(self, case, "held_back_fraction")
        if len(self.networks) < 2:
            raise ValueError(
                "There must be at least a teacher and a student. Received: "
                f"networks={self.networks!r}."
            )
        if not 0 < self.held_back_fraction < 1:
            raise ValueError(
                "held_back_fraction must be above 0 and below 1. Received: "
                f"held_back_fraction={self.held_back_fraction!r}."
            )
        if not 0 <= self.min_confidence < 1:
            raise ValueError(
                "min_confidence must be a probability below 1. Received: "
                f"min_confidence={self.min_confidence!r}."
            )


@dataclasses.dataclass(frozen=True)
class NoisyStudentRecipe(Recipe):
    """All rounds: the same recipe on the same machine, the same result."""

    noisy_student: NoisyStudentConfig = NoisyStudentConfig()


def smoke_student(recipe: NoisyStudentRecipe) -> NoisyStudentRecipe:
    """Shrink the recipe: tiny networks of the same kinds, one student."""
    networks = []
    for network in recipe.noisy_student.networks[:2]:
        name = network.get("name")
        if str(name).startswith("EfficientNet"):
            small = {"name": "EfficientNetB0", "image_size": IMAGE_SIZE}
        else:
            small = {} if name is None else {"name": name}
        networks.append(small)
    config = dataclasses.replace(
        recipe.noisy_student,
        networks=tuple(networks),
        unlabelled=None,
        min_confidence=0.0,
        images_per_class=None,
    )
    return dataclasses.replace(smoke(recipe), noisy_student=config)


def iterate(recipe: NoisyStudentRecipe) -> list[dict]:
    """Train the teacher and the students of a recipe.

    Each round has a run folder inside that of the recipe, with the
    pseudo-labels beside its model.

    Returns:
        A dictionary per round: iteration, network, num_parameters,
        num_train_images, split, top1 and, for a student, num_pseudo_labelled;
        where the true labels were ignored, pseudo_label_accuracy as well.

    Raises:
        ValueError: when recipe, data and folders do not fit together.

    Example:
        >>> [row["top1"] for row in iterate(recipe)]
    """
    networks = recipe.noisy_student.networks
    for network in networks:  # Errors show before the first round.
        network_task(recipe, network)
    dataset = data.open_dataset(recipe.data, SOURCES)
    labelled, unlabelled = split_labelled(recipe, dataset)
    examples, rows = labelled, []
    more: dict[str, float] = {}
    for number, network in enumerate(networks):
        folder = pathlib.Path(recipe.run_dir, f"iteration_{number}")
        stage, task = network_task(
            dataclasses.replace(recipe, run_dir=str(folder)), network
        )
        given = dataclasses.replace(dataset, train=examples)
        result = _finished(stage, task, given, more)
        rows.append({"iteration": number, "network": _text(network), **result})
        if number + 1 < len(networks):
            probabilities = _labels_of(stage, unlabelled)
            picked, labels = select(probabilities, recipe.noisy_student)
            examples = join_labelled(
                labelled, unlabelled.subset(picked), labels
            )
            more = {"num_pseudo_labelled": len(picked)}
            known = recipe.noisy_student.unlabelled is None
            if known and unlabelled.labels.ndim == 1:
                right = probabilities.argmax(axis=1) == unlabelled.labels
                more["pseudo_label_accuracy"] = float(right.mean())
    return rows


def _text(network):
    """Return a network in a cell of a table."""
    fields = [f"{key}={x}" for key, x in network.items() if key != "name"]
    return " ".join([network.get("name", "model"), *fields])


def _finished(stage, task, dataset, more):
    """Return the result of a round, which is trained unless it is finished."""
    known = agreed(lambda: result_of(stage, dataset))
    if known is None:
        parts = ("test", "validation")
        run = train(stage, dataset=dataset, task=task, needs=parts)
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
    """Return the pseudo-labels (N, K) of a teacher, which are written once."""
    folder = run_folder.local(stage.run_dir)
    path = folder / LABELS_FILE
    run_folder.get(folder, LABELS_FILE)
    agreed(lambda: None if path.is_file() else _write(path, stage, unlabelled))
    run_folder.get(folder, LABELS_FILE)  # Other processes have a copy each.
    with np.load(path, allow_pickle=False) as arrays:
        probabilities = arrays["probabilities"]
        same = str(arrays.get("sha256")) == _digest(unlabelled)
    if not same:
        raise ValueError(
            f"{str(path)!r} has the labels of {len(probabilities)} images, and "
            f"the {len(unlabelled)} without labels now are others. Put them "
            "back, remove the run folders, or choose another --run_dir."
        )
    return probabilities


def _digest(examples) -> str:
    """Return the hash of the hashes of all images, in their order."""
    text = "".join(content_hashes(examples))
    return hashlib.sha256(text.encode()).hexdigest()


def _write(path, stage, unlabelled):
    model, _ = load_model(path.with_name("model.keras"))
    probabilities = pseudo_labels(model, unlabelled, stage)
    with replacing(path) as temporary:
        np.savez_compressed(
            temporary, probabilities=probabilities, sha256=_digest(unlabelled)
        )
    run_folder.publish(path.parent)


def split_labelled(recipe: NoisyStudentRecipe, dataset: data.Dataset):
    """Return the images with labels and those without.

    Returns:
        Two `Examples`; the labels of the second are not to be used.

    Raises:
        ValueError: when there are no images, or they are not in memory.

    Example:
        >>> labelled, unlabelled = split_labelled(recipe, dataset)
    """
    config = recipe.noisy_student
    if config.unlabelled is None:
        # At random: a class may have too few to be split.
        known = _in_memory(dataset.train)
        numbers = order(recipe.data.split_seed, 0, len(known))
        rest = round(config.held_back_fraction * len(numbers))
        rest = min(max(rest, 1), len(numbers) - 1)
        return tuple(
            known.subset(np.sort(part))
            for part in (numbers[rest:], numbers[:rest])
        )
    folder = pathlib.Path(config.unlabelled).expanduser()
    if folder.is_dir():
        rest = _of_folder(folder, recipe.data)
    else:
        fields = ("folder", "csv", "train_split", "validation_split")
        source = dataclasses.replace(
            recipe.data,
            name=config.unlabelled,
            test_split=None,
            **dict.fromkeys(fields),
        )
        rest = data.open_dataset(source, SOURCES).train
    return _in_memory(dataset.train), _in_memory(rest)


def _in_memory(examples) -> Examples:
    is_own = isinstance(examples, Examples) and examples.kind != "record"
    if not is_own:
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


def pseudo_labels(model, examples: Examples, recipe: Recipe) -> np.ndarray:
    """Predict the probabilities of the classes of images, without noise.

    Args:
        model: a Keras model from images in [0, 255] to logits.
        examples: the images.
        recipe: the `Recipe` of the model.

    Returns:
        float32 array (N, K).

    Raises:
        ValueError: when the model predicts NaN.

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
    scores = model.predict(batches.map(lambda *batch: batch[0]), verbose=0)
    scores = scores[: len(examples)].astype("float32")
    if not np.isfinite(scores).all():
        raise ValueError("The teacher predicts NaN. See its run folder.")
    return ops.convert_to_numpy(ACTIVATIONS[recipe.training.loss](scores))


def select(
    probabilities: np.ndarray, config: NoisyStudentConfig
) -> tuple[np.ndarray, np.ndarray]:
    """Select the images that a student learns from, and their labels.

    Args:
        probabilities: float array (N, K), see `pseudo_labels`.
        config: a `NoisyStudentConfig`: the teacher and its labels.

    Returns:
        The numbers of the images, which may repeat, and float32 array (of as
        many, K), their labels.

    Raises:
        ValueError: when none is left.

    Example:
        >>> select(np.array([[0.9, 0.1], [0.4, 0.6]]), NoisyStudentConfig())
    """
    classes = probabilities.argmax(axis=1)
    confidences = probabilities.max(axis=1)
    rows = np.flatnonzero(confidences >= config.min_confidence)
    if not len(rows):
        raise ValueError(
            f"The teacher is sure of none of {len(probabilities)} images. "
            f"Received: noisy_student.min_confidence={config.min_confidence}; "
            f"the most confident answer is {confidences.max():.3f}. Lower it."
        )
    if config.images_per_class is not None:
        rows = _balanced(rows, classes, confidences, config.images_per_class)
    labels = probabilities[rows]
    if config.labels == "hard":
        labels = np.eye(probabilities.shape[1])[classes[rows]]
    return rows, labels.astype("float32")


def _balanced(rows, classes, confidences, size):
    """Return the same number of rows per class, the most confident first."""
    parts = []
    for label in np.unique(classes[rows]):
        members = rows[classes[rows] == label]
        order = np.argsort(-confidences[members], kind="stable")
        parts.append(np.resize(members[order], size))
    return np.concatenate(parts)


def join_labelled(
    labelled: Examples, others: Examples, probabilities: np.ndarray
) -> Examples:
    """Join images with labels and images with pseudo-labels.

    Args:
        labelled: images with labels.
        others: images whose own labels are ignored.
        probabilities: float array (N, K), the pseudo-labels of the others.

    Returns:
        An `Examples` of both with labels (N, K), one-hot for the first.

    Example:
        >>> join_labelled(labelled, unlabelled, probabilities).labels.shape
        (1258, 10)
    """
    labels = labelled.labels
    if labels.ndim == 1:
        labels = np.eye(probabilities.shape[1], dtype="float32")[labels]
    contents = [labelled.contents, others.contents]
    same = labelled.kind == others.kind
    if same and labelled.kind == "array":
        same = contents[0].shape[1:] == contents[1].shape[1:]
    if not same:
        contents = [_encoded(examples) for examples in (labelled, others)]
    return dataclasses.replace(
        labelled,
        contents=np.concatenate(contents),
        labels=np.concatenate([labels, probabilities]).astype("float32"),
        kind=labelled.kind if same else "encoded",
        source=f"{labelled.source} and {others.source}",
        numbers=None,
    )


def _encoded(examples) -> np.ndarray:
    """Return the images as encoded bytes, of any kind of examples."""
    encode = {
        "encoded": bytes,
        "path": lambda path: pathlib.Path(path).read_bytes(),
        "array": _png,
    }[examples.kind]
    contents = np.empty(len(examples), object)
    contents[:] = [encode(content) for content in examples.contents]
    return contents


def _png(image) -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    grey = image.shape[-1] == 1
    Image.fromarray(image[..., 0] if grey else image).save(stream, "PNG")
    return stream.getvalue()
