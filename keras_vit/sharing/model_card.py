"""What is shared of a model, and its card, README.md.

The card has snippets, training and learning curves: only what was measured or
is in the config of the run, only snippets that work for the model, and no path
of the machine that it was on.
"""

import dataclasses
import html
import json
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import keras

from keras_vit.analysis.report.run_files import RunFiles, learning_curves
from keras_vit.checkpoints.dialects import LIBRARIES
from keras_vit.checkpoints.engine.loading import (
    check_weights,
    load_checkpoint,
    open_source,
)
from keras_vit.checkpoints.files.folders import RECORD
from keras_vit.checkpoints.public.catalog import (
    Origin,
    origin_of,
    origin_of_run,
)
from keras_vit.data import PreprocessingConfig
from keras_vit.data.config import GIVEN, evaluation_of
from keras_vit.data.resizing import evaluation_fields
from keras_vit.io.atomic_files import replacing
from keras_vit.io.run_folder import (
    MANIFEST,
    RESULT,
    RUN_MODEL,
    folder_of,
    read_config,
)
from keras_vit.io.tables import markdown_table, python_block
from keras_vit.models.configured_model import merged
from keras_vit.prediction import Classifier
from keras_vit.prediction.classifier import names_of
from keras_vit.prediction.networks import check_network
from keras_vit.text.image_text import ImageTextModel
from keras_vit.text.pair_files import load_image_text
from keras_vit.trained_as import PROBLEMS
from keras_vit.version import __version__

__all__ = [
    "CARD",
    "PICTURE",
    "Place",
    "Shared",
    "check_source",
    "dataset_of",
    "model_card",
    "open_shared",
    "open_shared_pair",
    "training_rows",
    "usage",
    "write_picture",
]

CARD = "README.md"
TASK = "image-classification"
FEATURES = "image-feature-extraction"
ZERO_SHOT = "zero-shot-image-classification"
# keras-vit is another project.
DISTRIBUTION = "keras-vision-transformer"
MAX_CLASSES = 50  # names in the card
FAMILIES = {
    "VisionTransformer": "Vision Transformer",
    "VariantTransformer": "variant of the Vision Transformer",
    "Mixer": "MLP-Mixer",
    "BiT": "ResNet (BiT)",
}
# Of huggingface.co; any other is "other" with a name.
LICENCES = (
    *("apache-2.0", "mit", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0"),
    *("cc-by-nc-sa-4.0", "cc0-1.0", "bsd-2-clause", "bsd-3-clause"),
    *("gpl-2.0", "gpl-3.0", "lgpl-3.0", "agpl-3.0", "mpl-2.0", "openrail"),
    *("unlicense", "other", "unknown"),
)
# In result.json: in the card, its name on huggingface.co, and its form.
METRICS = {
    "top1": ("accuracy", "accuracy", ".2%"),
    "top5": ("top-5 accuracy", "top-5-accuracy", ".2%"),
    "balanced_accuracy": ("balanced accuracy", "balanced-accuracy", ".2%"),
    "macro_f1": ("F1, mean over the classes", "f1", ".2%"),
    "auc": ("AUC, mean over the classes", "roc_auc", ".2%"),
    "average_precision": (
        *("average precision, mean over the classes", "average-precision"),
        ".2%",
    ),
    "mae": ("mean absolute error", "mae", ".4g"),
    "r2": ("R2", "r_squared", ".4f"),
    "validation_accuracy": ("accuracy on the validation images", None, ".2%"),
    "baseline_accuracy": ("accuracy of a baseline", None, ".2%"),
}
# Names of tensorflow-datasets: of the same data on huggingface.co.
REPOSITORIES = {
    "beans": "AI-Lab-Makerere/beans",
    "cats_vs_dogs": "microsoft/cats_vs_dogs",
    "cifar10": "uoft-cs/cifar10",
    "cifar100": "uoft-cs/cifar100",
    "fashion_mnist": "zalando-datasets/fashion_mnist",
    "food101": "ethz/food101",
    "imagenet2012": "ILSVRC/imagenet-1k",
    "mnist": "ylecun/mnist",
}
# Where a run reads images that have no name: what they are called, in words.
UNNAMED = {
    "folder": ("imagefolder", "a folder of images"),
    "csv": ("csv", "a CSV file"),
    "shards": ("shards", "images in shards"),
}
# Group and field of the config of a run: what the card calls it. A value of
# the last column says nothing.
TRAINING_FIELDS = (
    ("training", "epochs", "epochs", None),
    ("training", "steps", "steps", None),
    ("training", "batch_size", "images per step", None),
    ("training", "loss", "loss", None),
    ("training", "label_smoothing", "label smoothing", 0.0),
    ("optimizer", "name", "optimizer", None),
    ("optimizer", "learning_rate", "learning rate", None),
    ("optimizer", "schedule", "schedule", None),
    ("optimizer", "weight_decay", "weight decay", 0.0),
    ("optimizer", "layer_decay", "layer decay", 1.0),
    ("training", "ema_decay", "moving average of the weights", 0.0),
    ("training", "trainable", "trained layers", "all"),
    ("training", "lora_rank", "rank of LoRA", 0),
    ("training", "precision", "precision", "float32"),
    ("model", "dropout_rate", "dropout", 0.0),
    ("model", "stochastic_depth_rate", "stochastic depth", 0.0),
    ("augmentation", "rand_augment_layers", "RandAugment, layers", 0),
    ("augmentation", "mixup_alpha", "Mixup, alpha", 0.0),
    ("augmentation", "cutmix_alpha", "CutMix, alpha", 0.0),
    ("", "seed", "seed", None),
)
TRAINING_RESULTS = (
    ("num_train_images", "training images", "{:,}"),
    ("seconds", "time in seconds", "{:,.0f}"),
)
PICTURE = "training.png"
DOTS_PER_INCH = 150


@dataclasses.dataclass(frozen=True)
class Shared:
    """A model with what others need to use it and to know of it.

    Attributes:
        model: the Keras model, without LoRA; its `trained_as` says how images
            are prepared and what the scores mean.
        class_names: K names; none of a model without classes.
        run: dict, the config of the run; {} of what is no run.
        result: dict, its result.json; {} where there is none.
        folder: the folder of the run, or None.
        origin: the weights that a run started from, or that the model is.
        is_copy: bool, whether the model is those weights, unchanged.
        pair: the image-text model whose image tower `model` is, or None.
    """

    model: keras.Model
    class_names: tuple[str, ...]
    run: dict[str, Any] = dataclasses.field(default_factory=dict)
    result: dict[str, Any] = dataclasses.field(default_factory=dict)
    folder: pathlib.Path | None = None
    origin: Origin | None = None
    is_copy: bool = False
    pair: ImageTextModel | None = None


def check_source(source) -> None:
    """Raises a ValueError unless `open_shared` can find a model.

    Reads no weights and needs no network.
    """
    if isinstance(source, (Classifier, ImageTextModel)):
        return
    if not isinstance(source, (str, os.PathLike)):
        check_network(source)
        return
    path = pathlib.Path(source)
    if (path / MANIFEST).is_file():
        if not (path / RUN_MODEL).is_file():
            raise ValueError(
                f"The run in {str(path)!r} has no {RUN_MODEL} yet. Finish it "
                "with the command that began it, or give a file in its folder "
                "'checkpoints'."
            )
        return
    check_weights(source)


def open_shared(
    source: str | os.PathLike | keras.Model | Classifier,
    class_names: Sequence[str] | None = None,
    preprocessing: PreprocessingConfig | None = None,
) -> Shared:
    """Loads a model and what is known of it.

    Args:
        source: a run folder, a file, folder or name of weights, a model of
            keras_vit, or a `keras_vit.prediction.Classifier`.
        class_names: sequence of str, where they are not those of the source.
        preprocessing: how images are resized and cropped, likewise.

    Raises:
        ValueError: when there is no such model, or not one name per class.
        OSError: when weights cannot be fetched or read.
    """
    if isinstance(source, (str, os.PathLike)):
        return _of_weights(os.fspath(source), class_names, preprocessing)
    model, activation = source, None
    if isinstance(source, Classifier):
        class_names = class_names or source.class_names
        preprocessing = preprocessing or source.geometry.config
        model, activation = source.model, source.activation
    check_network(model)
    model = merged(model)
    known = model.trained_as
    if activation and not model.config.classifier_activation:
        problems = {x: problem for problem, x in PROBLEMS.items()}
        known = known.but(problem=problems[activation], activation=None)
    return _shared(model, known, class_names, preprocessing)


def open_shared_pair(source: str | os.PathLike | ImageTextModel) -> Shared:
    """Load both towers of an image-text model and what is known of it.

    Args:
        source: see `keras_vit.load_image_text`, or what it returned.

    Raises:
        ValueError: for a model without texts.
        OSError: when weights cannot be fetched or read.
    """
    if isinstance(source, ImageTextModel):
        return Shared(source.image_tower, (), pair=source)
    if not isinstance(source, (str, os.PathLike)):
        raise ValueError(
            "Two towers are those of an image-text model: what "
            "keras_vit.load_image_text returns, or its source. Received: "
            f"{type(source).__name__}."
        )
    pair = load_image_text(source)
    named = not os.path.exists(source)
    origin = origin_of(os.fspath(source)) if named else None
    return Shared(pair.image_tower, (), origin=origin, is_copy=named, pair=pair)


def _of_weights(source, class_names, preprocessing) -> Shared:
    folder = folder_of(source)
    is_here = os.path.exists(source)
    origin = None if is_here else origin_of(source)
    model = load_checkpoint(open_source(source))
    run = read_config(folder) if folder else {}
    return _shared(
        model,
        model.trained_as,
        class_names,
        preprocessing,
        run=run,
        result=_read_result(folder) if folder else {},
        folder=folder,
        origin=origin_of_run(run) if folder else origin,
        is_copy=not is_here,
    )


def _shared(model, known, class_names, preprocessing, **facts) -> Shared:
    """Put a model and its record together with what a user says of it."""
    names = names_of(model.config, class_names or known.class_names)
    size = model.input_shape[1:3]
    if preprocessing is not None:
        known = known.but(obstacle=None, assumed=())
    config = preprocessing or evaluation_of(known, size)
    model.trained_as = known.but(
        preprocessing=evaluation_fields(config, size),
        image_size=None if None in size else size,
        class_names=names or None,
    )
    return Shared(model, names, **facts)


def _read_result(folder: pathlib.Path) -> dict[str, Any]:
    """Read the result.json of a run; {} where there is none yet."""
    path = folder / RESULT
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict):
        return content
    raise ValueError(
        f"{str(path)!r} is damaged, so that it is unknown what the run "
        "measured. Put the file back, or remove it to share no result."
    )


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a model is shared, as its users name it.

    Attributes:
        source: str, what `load_checkpoint` takes.
        title: str, the name of the model.
        repository: str, its name on huggingface.co, or None.
        revision: str, the branch, or None for the main one.
    """

    source: str
    title: str
    repository: str | None = None
    revision: str | None = None


def model_card(
    shared: Shared,
    place: Place,
    *,
    format: str,
    config: dict,
    picture: str | None = None,
    licence: str | None = None,
) -> str:
    """Return the card of a model.

    Args:
        shared: the model and what is known of it.
        place: where it will be.
        format: of the weights: that of one of `LIBRARIES`, or "keras".
        config: dict, what config.json holds.
        picture: name of the file with the learning curves, or None.
        licence: str, of the model; by default that of public weights which
            are shared as they are.

    Returns:
        str, Markdown with a block of metadata.
    """
    if licence is None and shared.is_copy and shared.origin:
        licence = shared.origin.licence
    library = {x.format: x.name for x in LIBRARIES}.get(format)
    metadata = _metadata(shared, place, library, licence)
    sections = [
        f"# {text(place.title)}",
        _description(shared),
        _results(shared),
        "## Use\n\n" + usage(shared, place, format, config),
        _model(shared),
        _training(shared, picture),
        _origin(shared),
        _teacher(shared),
        _classes(shared),
    ]
    body = "\n\n".join(section for section in sections if section)
    return f"---\n{metadata}\n---\n\n{body}\n"


def text(words) -> str:
    """Escape words for Markdown, in one line."""
    plain = html.escape(" ".join(str(words).split()), quote=False)
    return re.sub(r"([\\`*_\[\]#|~])", r"\\\1", plain)


def _metadata(shared, place, library, licence) -> str:
    from huggingface_hub import ModelCardData

    tags = [DISTRIBUTION, "keras", "vision"]
    name, repository = dataset_of(shared.run)
    results = _evaluations(shared, name, repository)
    metrics = {METRICS[key][1] for key in _measured(shared)}
    data = ModelCardData(
        library_name=library or DISTRIBUTION,
        pipeline_tag=ZERO_SHOT
        if shared.pair
        else TASK
        if shared.class_names
        else FEATURES,
        tags=tags,
        base_model=shared.origin and shared.origin.repository,
        datasets=repository,
        metrics=sorted(filter(None, metrics)) or None,
        eval_results=results or None,
        model_name=place.title if results else None,
        **_licence(licence),
    )
    return data.to_yaml().strip()


def _licence(licence) -> dict:
    if licence is None:
        return {}
    if licence.lower() in LICENCES:
        return {"license": licence.lower()}
    return {"license": "other", "license_name": licence.lower()}


def _evaluations(shared, name, repository) -> list:
    """Return the model-index: the results of the run, for leaderboards."""
    from huggingface_hub import EvalResult

    if name is None:
        return []
    return [
        EvalResult(
            task_type=TASK,
            dataset_type=repository or name,
            dataset_name=name,
            dataset_split=shared.result.get("split"),
            metric_type=metric,
            metric_name=title,
            metric_value=value,
        )
        for key, value in _measured(shared).items()
        for title, metric, _ in [METRICS[key]]
        if metric
    ]


def _measured(shared) -> dict[str, float]:
    """Return those results of the run that the card has a name for."""
    found = {
        key: value
        for key in METRICS
        if type(value := shared.result.get(key)) in (int, float)
    }
    if len(shared.class_names) <= 5:  # All of them are among five.
        found.pop("top5", None)
    return found


def _description(shared) -> str:
    config = shared.model.config
    name = type(shared.model).__name__
    family = FAMILIES.get(name, name)
    if shared.pair is not None:
        return _pair_description(shared)
    what = (
        f"predicts {', '.join(shared.class_names)}"
        if shared.model.trained_as.problem == "regression"
        and shared.class_names
        else f"tells {len(shared.class_names):,} classes apart"
        if shared.class_names
        else "gives features of images"
    )
    height, width = shared.model.input_shape[1:3]
    size = f" of {height}x{width} pixels" if height and width else ""
    colour = {1: "grey images", 3: "images"}.get(config.channels, "images")
    return (
        f"A {family} that {what}: {shared.model.count_params():,} parameters, "
        f"{colour}{size}. It was made with keras_vit {__version__}."
    )


def _pair_description(shared) -> str:
    texts = shared.pair.text_tower
    height, width = shared.model.input_shape[1:3]
    size = f" of {height}x{width} pixels" if height and width else ""
    return (
        "An image-text model: images and texts that belong together have "
        f"similar embeddings. Image tower: {shared.model.count_params():,} "
        f"parameters, images{size}; text tower: {texts.count_params():,}, "
        f"texts of {texts.input_shape[1]} tokens. Scores are a "
        f"{shared.pair.activation} over the texts. It was made with keras_vit "
        f"{__version__}."
    )


def _results(shared) -> str:
    measured = _measured(shared).items()
    found = {
        title: format(value, form)
        for key, value in measured
        for title, _, form in [METRICS[key]]
    }
    if not found:
        return ""
    count, split = (shared.result.get(x) for x in ("num_examples", "split"))
    table = markdown_table(["", "measured"], found.items(), ["measured"])
    lines = ["## Results", ""]
    if split and count:
        lines += [f"On {count:,} {text(split)} images:", ""]
    lines += table
    if "baseline_accuracy" in shared.result and "baseline" in shared.result:
        lines += ["", f"The baseline: {text(shared.result['baseline'])}."]
    return "\n".join(lines)


# Fields of a config: what the card calls them.
FIELDS = {
    "image_size": "image size (height, width)",
    "channels": "channels",
    "patch_size": "patch size",
    "num_layers": "blocks",
    "hidden_dim": "size of a token",
    "mlp_dim": "hidden size of the MLPs",
    "num_heads": "attention heads",
    "units": "units",
    "width": "width",
    "pooling": "pooling",
    "position_embedding": "position embedding",
    "vocabulary_size": "tokens of the vocabulary",
    "context_length": "tokens of a text",
}


def _fields(config) -> list[tuple[str, str]]:
    return [
        (title, text(value))
        for name, title in FIELDS.items()
        if (value := getattr(config, name, None)) is not None
    ]


def _model(shared) -> str:
    found = _fields(shared.model.config)
    rule = evaluation_of(shared.model.trained_as).evaluation.replace("_", " ")
    lines = markdown_table(["", ""], found)
    if shared.pair is not None:
        texts = _fields(shared.pair.text_tower.config)
        lines = ["Image tower:", "", *lines, ""]
        lines += ["Text tower:", "", *markdown_table(["", ""], texts)]
    return "\n".join(
        [
            "## Model",
            "",
            *lines,
            "",
            f"Images are prepared for it by {rule}; `{RECORD}` says how.",
        ]
    )


def _training(shared, picture) -> str:
    rows = training_rows(shared.run, shared.result)
    if not rows:
        return ""
    lines = ["## Training", ""]
    lines += markdown_table(["", ""], [(x, text(y)) for x, y in rows])
    if picture:
        lines += ["", f"![Learning curves]({picture})"]
    return "\n".join(lines)


def _origin(shared) -> str:
    origin = shared.origin
    if origin is None:
        return ""
    how = "These weights are" if shared.is_copy else "The training began with"
    of = _linked(origin.name, origin.address, origin.licence)
    return f"## Source weights\n\n{how} {of}"


def _teacher(shared) -> str:
    teacher = shared.result.get("teacher")
    if teacher is None:
        return ""
    # A run has the licence of what it started from.
    name = teacher.get("started_from", teacher["weights"])
    of = _linked(name, teacher.get("url"), teacher.get("licence"))
    return f"## Teacher\n\nThe model learned what another one says, {of}"


def _linked(name, address, licence) -> str:
    """Return a link to weights, and the sentence of their licence."""
    link = f"[{text(name)}]({address})" if address else text(name)
    known = (
        f"Their licence is {text(licence)}, as their publisher says: it may "
        "hold for this model too."
        if licence
        else "What licence they have is not known here."
    )
    return f"{link}. {known}"


def _classes(shared) -> str:
    names = shared.class_names
    if names == tuple(map(str, range(len(names)))):
        return ""  # There are none, or nobody named them.
    listed = ", ".join(map(text, names[:MAX_CLASSES]))
    more = len(names) - MAX_CLASSES
    if more > 0:
        listed += f", and {more:,} more, which `config.json` lists"
    return f"## Classes\n\n{listed}."


def usage(shared: Shared, place: Place, format: str, config: dict) -> str:
    """Return snippets for each library that reads the format of a model.

    Args:
        shared: the model.
        place: a `Place`.
        format: "hugging_face", "timm" or "keras".
        config: dict, what config.json holds.

    Returns:
        str, Markdown.
    """
    if shared.pair is not None:
        return python_block(*_pair(shared.pair, place))
    parts = [python_block(*_keras_vit(shared, place))]
    channels = shared.model.config.channels
    if place.repository:
        parts += [
            x.usage(place.repository, place.revision, channels, config)
            for x in LIBRARIES
            if x.format == format
        ]
    if place.repository and format == "keras":
        parts += ["In Keras alone:", python_block(*_keras(place))]
    return "\n\n".join(parts)


def _keras_vit(shared, place) -> list:
    source = repr(place.source).replace("'", '"')
    lines = ["import keras_vit  # pip install keras-vision-transformer[hub]"]
    lines += ["", f"model = keras_vit.load_checkpoint({source})"]
    if None in shared.model.input_shape[1:3]:
        return lines  # Whoever predicts chooses a size.
    if shared.class_names:
        return [
            *lines,
            f'for found in keras_vit.predict({source}, "photos", top=3):',
            "    print(found.image, found.classes)",
        ]
    return [*lines, f'vectors = keras_vit.embed({source}, "photos")']


def _pair(pair, place) -> list:
    source = repr(place.source).replace("'", '"')
    lines = [
        "import keras_vit  # pip install keras-vision-transformer[hub,text]",
        "",
        f"pair = keras_vit.load_image_text({source})",
    ]
    if pair.tokenizer is None:
        return [*lines, "vectors = pair.encode_texts(ids)  # of tokens"]
    return [
        *lines,
        'labels = ["cat", "dog"]',
        'for found in keras_vit.predict(pair, "photos", labels=labels):',
        "    print(found.image, found.classes)",
        'vectors = pair.encode_texts(["a photo of a cat"])',
    ]


def _keras(place) -> list:
    revision = f', revision="{place.revision}"' if place.revision else ""
    file = f'"{place.repository}", "model.keras"{revision}'
    return [
        "import keras",
        "import keras_vit  # knows the classes of the file",
        "from huggingface_hub import hf_hub_download",
        "",
        f"path = hf_hub_download({file})",
        "model = keras.saving.load_model(path)",
    ]


def dataset_of(run: dict) -> tuple[str | None, str | None]:
    """Return the name of a run's data and its huggingface.co repository.

    Returns:
        (None, None) of what is no run; no path stands in it.
    """
    if not run:
        return None, None
    options = run.get("data") or {}
    for source, (name, _) in UNNAMED.items():
        if options.get(source):
            return name, None
    name = str(options.get("name") or "digits")
    if name.partition("/")[0] == GIVEN:
        return name.partition("/")[2] or "images in memory", None
    plain = name.partition("/")[0].partition(":")[0]
    return name, REPOSITORIES.get(plain)


def training_rows(run: dict, result: dict) -> list[tuple[str, str]]:
    """Return pairs of title and value of the options that were set.

    Args:
        run: dict, the config of a run; {} of what is none.
        result: dict, its result.json.
    """
    if not run:
        return []
    name, _ = dataset_of(run)
    described = dict(UNNAMED.values())
    rows = [("data", described.get(str(name), str(name)))]
    for group, field, title, nothing in TRAINING_FIELDS:
        options = run.get(group) if group else run
        value = options.get(field) if isinstance(options, dict) else None
        if value is not None and value != nothing:
            rows.append((title, str(value)))
    training = run.get("training") or {}
    if training.get("steps") is not None:  # They replace epochs.
        rows = [row for row in rows if row[0] != "epochs"]
    rows += [
        (title, form.format(value))
        for key, title, form in TRAINING_RESULTS
        if isinstance(value := result.get(key), int | float)
    ]
    versions = result.get("versions")
    if isinstance(versions, dict):
        words = ", ".join(f"{x} {y}" for x, y in versions.items())
        rows.append(("versions", words))
    return rows


def write_picture(path: pathlib.Path, folder: pathlib.Path | None) -> bool:
    """Draw the loss and the accuracy of a run.

    Args:
        path: the picture to write.
        folder: of the run, or None.

    Returns:
        Whether there is a picture: not without numbers, nor without
        matplotlib.
    """
    if folder is None:
        return False
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    files = RunFiles(folder)
    rows = [files.read(x) or [] for x in ("metrics.jsonl", "history.csv")]
    figure = learning_curves(*rows)
    if figure is None:
        return False
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=DOTS_PER_INCH)
    return True
