"""What a file says of its model."""

import dataclasses

from keras_vit.checkpoints.formats.transforms import Facts

__all__ = ["Configured"]


@dataclasses.dataclass
class Configured:
    """What a file says of its model.

    Args:
        fields: dict, arguments of the config of the family.
        facts: `Facts` for the transforms.
        grid: (rows, columns) of the patches, None without positions.
        notes: list of str, what was assumed because the file cannot tell.
    """

    fields: dict
    facts: Facts
    grid: tuple | None = None
    notes: list = dataclasses.field(default_factory=list)
