"""The config of the model that a file holds, from its tensors."""

from keras_vit.checkpoints.containers.errors import refuse
from keras_vit.checkpoints.formats.configured import Configured
from keras_vit.checkpoints.formats.source import Source
from keras_vit.checkpoints.formats.structure import (
    count,
    grid_of,
    heads,
    shape,
    times,
    units,
)
from keras_vit.checkpoints.formats.transforms import Facts

__all__ = ["configure"]

DEFAULT_IMAGE = 224


def configure(
    source: Source, num_heads: int | None = None, image_size=None
) -> Configured:
    """Reads the config of a model off the shapes of its weights.

    Args:
        source: the `Source`.
        num_heads: int, where the file cannot tell.
        image_size: (height, width) in pixels that the file is for, where its
            number of patches is no square. A square number is taken for a
            square grid, unless the file says otherwise.

    Returns:
        A `Configured`.

    Raises:
        ValueError: when weights are missing or of the wrong rank, or the
            file leaves open what only an argument can tell.
    """
    configured = FAMILIES[source.format.family](source, num_heads, image_size)
    check_told(source, configured.fields)
    return configured


def check_told(source, fields) -> None:
    """Raises a ValueError where the config contradicts the tensors."""
    for name, value in source.file.config.items():
        if name in fields and fields[name] != value:
            refuse(
                source.file.path,
                f"has {name}={fields[name]} by its tensors, but "
                f"{name}={value} by its config",
                "The two belong to different models: fetch both again.",
            )


def configure_vit(source, num_heads, image_size) -> Configured:
    notes = []
    kernel = shape(source, "patch_embed/projection/kernel", 4)
    root = "root_conv/kernel" in source.rows
    hidden_dim = kernel[3]
    num_heads = heads(source, num_heads, hidden_dim, notes)
    distilled = "distillation_token" in source.features
    prefix = ("class_token/token" in source.rows) * (1 + distilled)
    facts = Facts(num_heads, prefix)
    representation, classes = dense_sizes(source, facts)
    fields = {
        "channels": kernel[2],
        "patch_size": kernel[:2],
        "hidden_dim": hidden_dim,
        "num_layers": count(source, r"block_(\d+)/.*"),
        "mlp_dim": shape(source, "block_0/mlp/dense/kernel", 2, facts)[1],
        "num_heads": num_heads,
        "pooling": pooling(source, prefix),
        "class_token": prefix > 0,
        "distillation_token": distilled,
        "norm_after_pooling": "norm_after_pooling" in source.features,
        "num_classes": classes,
        "representation_dim": representation,
        **constants(source),
    }
    if root:
        width = shape(source, "root_conv/kernel", 4)
        fields["channels"], fields["resnet_width"] = width[2], width[3]
        fields["resnet_units"] = units(source)
    grid, found = position(source, fields, facts, image_size, notes)
    return Configured(fields | found, facts, grid, notes)


def configure_mixer(source, num_heads, image_size) -> Configured:
    facts = Facts()
    kernel = shape(source, "patch_embed/projection/kernel", 4)
    tokens = shape(source, "block_0/token_mixing/dense/kernel", 2)
    channels = shape(source, "block_0/channel_mixing/dense/kernel", 2)
    grid = grid_of(source, tokens[0], kernel[:2], image_size)
    fields = {
        "image_size": times(grid, kernel[:2]),
        "channels": kernel[2],
        "patch_size": kernel[:2],
        "hidden_dim": kernel[3],
        "num_layers": count(source, r"block_(\d+)/.*"),
        "tokens_mlp_dim": tokens[1],
        "channels_mlp_dim": channels[1],
        "num_classes": dense_sizes(source, facts)[1],
        **constants(source),
    }
    return Configured(fields, facts, grid)


def configure_bit(source, num_heads, image_size) -> Configured:
    facts = Facts()
    kernel = shape(source, "root_conv/kernel", 4)
    fields = {
        "image_size": source.file.config.get("image_size", (None, None)),
        "channels": kernel[2],
        "units": units(source),
        "width": kernel[3],
        "num_classes": dense_sizes(source, facts)[1],
        **constants(source),
    }
    return Configured(fields, facts)


FAMILIES = {
    "vit": configure_vit,
    "mixer": configure_mixer,
    "bit": configure_bit,
}


def dense_sizes(source, facts) -> tuple:
    """Outputs of the pre-logits layer and of the head, 0 where absent."""
    return tuple(
        shape(source, path, 2, facts)[1] if path in source.rows else 0
        for path in ("pre_logits/kernel", "predictions/kernel")
    )


def pooling(source, prefix) -> str:
    if "pool/probe" in source.rows:
        return "map"
    if "averaged_heads" in source.features:
        return "prefix"
    after = "norm_after_pooling" in source.features
    return "token" if prefix and not after else "mean"


def constants(source) -> dict:
    """What the family fixes, or the config beside the file says."""
    told = source.file.config
    root = "root_conv/kernel" in source.rows
    return {
        name: told.get(name, value)
        for name, value in source.format.constants.items()
        if root or not name.startswith("resnet_")
    }


def position(source, fields, facts, image_size, notes) -> tuple:
    """The grid of patches, and the fields that follow from it."""
    path = "position_embedding/embedding"
    told = source.file.config.get("image_size")
    cell = cell_size(fields)
    if path in source.rows:
        length = shape(source, path, 3, facts)[1] - facts.num_prefix_tokens
        grid = grid_of(source, length, cell, image_size)
        return grid, {"image_size": told or times(grid, cell)}
    size = told or image_size
    if size is None:
        size = tuple(max(x, DEFAULT_IMAGE // x * x) for x in cell)
        notes.append(
            f"image_size={size} was assumed, which a file with fixed "
            "position embeddings cannot tell; give input_shape=..."
        )
    grid = size[0] // cell[0], size[1] // cell[1]
    return grid, {"image_size": size, "position_embedding": "sincos2d"}


def cell_size(fields) -> tuple:
    """Pixels that one token stands for."""
    stages = fields.get("resnet_units")
    stride = 1 if stages is None else 4 * 2 ** max(len(stages) - 1, 0)
    return times((stride, stride), fields["patch_size"])
