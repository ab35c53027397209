"""A Keras model as something to fill with weights or to write to a file."""

import dataclasses

import keras
import numpy as np

from keras_vit.checkpoints.formats.transforms import Facts

__all__ = ["FAMILIES", "Target", "build", "target_of"]

# The registered names of the models, so that they need not be imported here.
FAMILIES = {
    "vit": "keras_vit>VisionTransformer",
    "mixer": "keras_vit>Mixer",
    "bit": "keras_vit>BiT",
    "variant": "keras_vit>VariantTransformer",
}


@dataclasses.dataclass(frozen=True)
class Target:
    """The weights of a model by path, and what their shapes do not tell.

    Args:
        name: str, the model's name.
        family: "vit", "mixer", "bit" or "variant".
        variables: dict from path to Keras variable.
        facts: `Facts` for the transforms.
        grid: (rows, columns) of the patches, or None.
        config: dict of the model's config; empty for a model that was built
            on an input tensor of its own.
    """

    name: str
    family: str
    variables: dict
    facts: Facts
    grid: tuple | None
    config: dict

    def shape(self, path: str) -> tuple:
        """Shape of one weight."""
        return tuple(self.variables[path].shape)

    def read(self, path: str) -> np.ndarray:
        """One weight as a float32 array."""
        array = keras.ops.convert_to_numpy(self.variables[path])
        return np.asarray(array, "float32")


def target_of(model: keras.Model) -> Target:
    """Looks up in a model what loading and saving need.

    Args:
        model: a model of keras_vit.

    Returns:
        A `Target`.

    Raises:
        ValueError: for another model, or one whose weights are quantised.
    """
    variables = {weight.path: weight for weight in model.weights}
    layers = {layer.name: layer for layer in model.layers}
    family = family_of(variables)
    if family is None or len(variables) < len(model.weights):
        raise ValueError(
            f"{model.name!r} is no model of keras_vit: its weights are "
            f"{list(variables)[:3]} ... Expected a VisionTransformer, Mixer "
            "or BiT; of a model that contains one, pass the inner model."
        )
    for path, weight in variables.items():
        if "float" not in str(weight.dtype):
            raise ValueError(
                f"The weight {path} of {model.name!r} is of dtype "
                f"{weight.dtype}: the model is quantised. Load or save the "
                "weights before model.quantize(...)."
            )
    block, position = layers.get("block_0"), layers.get("position_embedding")
    facts = Facts(
        getattr(block, "num_heads", 1),
        getattr(position, "num_prefix_tokens", 0),
    )
    config = getattr(model, "config", None)
    config = dataclasses.asdict(config) if config else {}
    if "variant" in config:  # which has the paths of a Vision Transformer
        family = "variant"
    grid = getattr(position, "grid", None)
    return Target(model.name, family, variables, facts, grid, config)


def family_of(paths) -> str | None:
    """The family of a model by the paths of its weights."""
    for family, path in {
        "mixer": "block_0/token_norm/gamma",
        "vit": "patch_embed/projection/kernel",
        "bit": "root_conv/kernel",
    }.items():
        if path in paths:
            return family
    return None


def build(family: str, fields: dict, **kwargs) -> keras.Model:
    """Builds a model from the fields of its config.

    Args:
        family: "vit", "mixer", "bit" or "variant".
        fields: dict, arguments of the config.
        **kwargs: `name`, `dtype` of the model.

    Returns:
        The model, freshly initialised.

    Raises:
        ValueError: for fields that the config does not have, or that do not
            fit together.
    """
    model_class = keras.saving.get_registered_object(FAMILIES[family])
    known = [x.name for x in dataclasses.fields(model_class.config_class)]
    strangers = sorted(set(fields) - set(known))
    if strangers:
        raise ValueError(
            f"Unknown arguments {strangers} for a {model_class.__name__}. "
            f"Expected some of {known}."
        )
    return model_class(model_class.config_class(**fields), **kwargs)
