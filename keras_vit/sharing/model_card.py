"""The model card, README.md: what a reader of the repository is told.

Only what was measured or is in the config of the run stands there, and no
path of the machine that it was on.
"""

import dataclasses
import html
import re

from keras_vit.io.tables import markdown_table
from keras_vit.prediction.shared_record import RECORD
from keras_vit.sharing.contents import Shared
from keras_vit.sharing.training_facts import dataset_of, training_rows
from keras_vit.sharing.usage import usage
from keras_vit.version import __version__

__all__ = ["CARD", "Place", "model_card"]

CARD = "README.md"
TASK = "image-classification"
FEATURES = "image-feature-extraction"
# keras-vit is another project.
DISTRIBUTION = "keras-vision-transformer"
MAX_CLASSES = 50  # names in the card
LIBRARIES = {"hugging_face": "transformers", "timm": "timm"}
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
# In result.json: in the card, and its name on huggingface.co.
METRICS = {
    "top1": ("accuracy", "accuracy"),
    "top5": ("top-5 accuracy", "top-5-accuracy"),
    "validation_accuracy": ("accuracy on the validation images", None),
    "baseline_accuracy": ("accuracy of a baseline", None),
}


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
    """Writes the card of a model.

    Args:
        shared: the model and what is known of it.
        place: where it will be.
        format: of the weights: "hugging_face", "timm" or "keras".
        config: dict, what config.json holds.
        picture: name of the file with the learning curves, or None.
        licence: str, of the model; by default that of public weights which
            are shared as they are.

    Returns:
        str, Markdown with a block of metadata.
    """
    if licence is None and shared.is_copy and shared.origin:
        licence = shared.origin.licence
    metadata = _metadata(shared, place, LIBRARIES.get(format), licence)
    sections = [
        f"# {text(place.title)}",
        _description(shared),
        _results(shared),
        "## Use\n\n" + usage(shared, place, format, config),
        _model(shared),
        _training(shared, picture),
        _origin(shared),
        _classes(shared),
    ]
    body = "\n\n".join(section for section in sections if section)
    return f"---\n{metadata}\n---\n\n{body}\n"


def text(words) -> str:
    """Words as Markdown shows them, in one line."""
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
        pipeline_tag=TASK if shared.class_names else FEATURES,
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
    """The model-index: what the run measured, for lists of results."""
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
        for title, metric in [METRICS[key]]
        if metric
    ]


def _measured(shared) -> dict[str, float]:
    """What the run measured, of what the card has a name for."""
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
    what = (
        f"tells {len(shared.class_names):,} classes apart"
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


def _results(shared) -> str:
    measured = _measured(shared).items()
    found = {METRICS[key][0]: f"{value:.2%}" for key, value in measured}
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
}


def _model(shared) -> str:
    config = shared.model.config
    found = [
        (title, text(value))
        for name, title in FIELDS.items()
        if (value := getattr(config, name, None)) is not None
    ]
    rule = shared.preprocessing.evaluation.replace("_", " ")
    lines = markdown_table(["", ""], found)
    return "\n".join(
        [
            "## Model",
            "",
            *lines,
            "",
            f"Images are prepared for it by {rule}; `{RECORD}` and "
            "`preprocessor_config.json` say how.",
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
    name = text(origin.name)
    link = f"[{name}]({origin.address})" if origin.address else name
    licence = (
        f"Their licence is {text(origin.licence)}, as their publisher says: "
        "it may hold for this model too."
        if origin.licence
        else "What licence they have is not known here."
    )
    how = "These weights are" if shared.is_copy else "The training began with"
    return f"## Source weights\n\n{how} {link}. {licence}"


def _classes(shared) -> str:
    names = shared.class_names
    if names == tuple(map(str, range(len(names)))):
        return ""  # There are none, or nobody named them.
    shown = ", ".join(map(text, names[:MAX_CLASSES]))
    more = len(names) - MAX_CLASSES
    if more > 0:
        shown += f", and {more:,} more, which `config.json` lists"
    return f"## Classes\n\n{shown}."
