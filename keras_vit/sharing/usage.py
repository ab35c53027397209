"""Snippets of a model card: only those that work for the model."""

from keras_vit.sharing.contents import Shared

__all__ = ["usage"]


def usage(shared: Shared, place, format: str, config: dict) -> str:
    """How a model is used, in each library that reads its format.

    Args:
        shared: the model.
        place: a `keras_vit.sharing.model_card.Place`.
        format: "hugging_face", "timm" or "keras".
        config: dict, what config.json holds.

    Returns:
        str, Markdown.
    """
    parts = [_block(_keras_vit(shared, place))]
    if place.repository and format == "hugging_face":
        parts += [_transformers(shared, place, config)]
    if place.repository and format == "timm":
        parts += ["In timm:", _block(_timm(place))]
    if place.repository and format == "keras":
        parts += ["In Keras alone:", _block(_keras(place))]
    return "\n\n".join(parts)


def _block(lines) -> str:
    return "\n".join(["```python", *lines, "```"])


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


def _transformers(shared, place, config) -> str:
    (architecture,) = config["architectures"]
    name = f'"{place.repository}"'
    revision = f', revision="{place.revision}"' if place.revision else ""
    classifies = architecture.endswith("ForImageClassification")
    if classifies and shared.model.config.channels == 3:
        return "\n\n".join(
            [
                "In transformers:",
                _block(_pipeline(name, revision)),
                "or, for logits:",
                _block(
                    _classes("AutoModelForImageClassification", name, revision)
                ),
            ]
        )
    if shared.model.config.channels == 3:
        lines = _classes(architecture, name, revision)
        return f"In transformers:\n\n{_block(lines)}"
    lines = [
        f"from transformers import {architecture}",
        "",
        f"model = {architecture}.from_pretrained({name}{revision})",
    ]
    return (
        "In transformers, whose image processors make colour of all images "
        "and this model takes others: "
        f"`pixel_values` of {shared.model.config.channels} channel(s), scaled "
        "as `preprocessor_config.json` says.\n\n" + _block(lines)
    )


def _pipeline(name, revision) -> list:
    return [
        "from transformers import pipeline",
        "",
        f'classify = pipeline("image-classification", {name}{revision})',
        'classify("photo.jpg")',
    ]


def _classes(architecture, name, revision) -> list:
    return [
        "from PIL import Image",
        f"from transformers import AutoImageProcessor, {architecture}",
        "",
        f"processor = AutoImageProcessor.from_pretrained({name}{revision})",
        f"model = {architecture}.from_pretrained({name}{revision})",
        'inputs = processor(Image.open("photo.jpg"), return_tensors="pt")',
        "outputs = model(**inputs)",
    ]


def _timm(place) -> list:
    revision = f"@{place.revision}" if place.revision else ""
    name = f'"hf-hub:{place.repository}{revision}"'
    return [
        "import timm",
        "",
        f"model = timm.create_model({name}, pretrained=True).eval()",
        "config = timm.data.resolve_model_data_config(model)",
        "transform = timm.data.create_transform(**config)",
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
