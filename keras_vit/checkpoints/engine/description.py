"""Describes what a file of weights holds, without reading its arrays."""

import dataclasses
import math

from keras_vit.checkpoints.engine.configure import configure
from keras_vit.checkpoints.engine.loading import open_source
from keras_vit.checkpoints.engine.matching import checked_class

__all__ = ["Info", "read_info"]


@dataclasses.dataclass(frozen=True)
class Info:
    """What a file of weights holds, as `read_info` returns it.

    Args:
        source: str, the file.
        format: str, its format.
        family: "vit", "mixer", "bit" or "variant".
        fields: dict, the config of the model that it holds.
        num_parameters: int, numbers in its weights.
        shapes: dict from the file's names to shapes.
        notes: what was assumed because the file cannot tell.
    """

    source: str
    format: str
    family: str
    fields: dict
    num_parameters: int
    shapes: dict
    notes: tuple

    def __str__(self):
        lines = [
            f"{self.source}: {self.family} in {self.format} format, "
            f"{self.num_parameters:,} parameters",
            *(f"  {name}: {value}" for name, value in self.fields.items()),
            *(f"note: {note}" for note in self.notes),
        ]
        return "\n".join(lines)


def read_info(
    source,
    *,
    num_heads: int | None = None,
    architecture: str | None = None,
    **config_overrides,
) -> Info:
    """Describes what a file of weights holds, from its names and shapes.

    Arrays are not read and no model is built.

    Args:
        source: see `load_checkpoint`.
        num_heads: int, attention heads, where the file cannot tell.
        architecture: see `load_checkpoint`.
        **config_overrides: other fields of the model's config that the file
            leaves open, such as activation="quick_gelu".

    Returns:
        An `Info`; `print` shows it.

    Raises:
        ValueError: for a file that is damaged or of no known format, or that
            leaves open what only an argument can tell.
        OSError: when it cannot be read.

    Example:

    >>> print(keras_vit.checkpoints.read_info("ViT-B_16.npz"))
    """
    source = open_source(source)
    checked_class(source.format.family, config_overrides)
    configured = source.configured or configure(
        source, num_heads, None, architecture, config_overrides
    )
    shapes = {name: x.shape for name, x in source.file.tensors.items()}
    return Info(
        source.file.path,
        source.format.name,
        source.format.family,
        configured.fields | config_overrides,
        sum(
            math.prod(shapes[name])
            for row in source.rows.values()
            for name in row.names
        ),
        shapes,
        tuple(configured.notes),
    )
