"""A file whose format is known: its tensors as weights of ours."""

import dataclasses

import numpy as np

from keras_vit.checkpoints.containers.tensors import TensorFile
from keras_vit.checkpoints.formats.configured import Configured
from keras_vit.checkpoints.formats.formats_table import Format
from keras_vit.checkpoints.formats.transforms import TRANSFORMS, Facts

__all__ = ["Source"]


@dataclasses.dataclass
class Source:
    """A file of a known format.

    Args:
        file: the `TensorFile`, its names those of the format's table.
        format: the `Format`.
        features: set of str, the variants of the table that hold here.
        rows: dict from our path to its `Row`.
        dropped: names in the file that hold no weight of the model.
        configured: the config, where the file holds one of ours.
    """

    file: TensorFile
    format: Format
    features: set
    rows: dict
    dropped: list
    configured: Configured | None = None

    def shape_of(self, path: str, facts: Facts) -> tuple:
        """Shape of one weight, in our layout, without reading it."""
        row = self.rows[path]
        # One byte repeated: transforms of it take next to no memory.
        arrays = [
            np.broadcast_to(np.uint8(0), self.file.tensors[name].shape)
            for name in row.names
        ]
        return self._transformed(row, arrays, facts).shape

    def read(self, path: str, facts: Facts) -> np.ndarray:
        """Reads one weight as float32, in our layout."""
        row = self.rows[path]
        arrays = [self.file.read(name) for name in row.names]
        return self._transformed(row, arrays, facts)

    def _transformed(self, row, arrays, facts):
        try:
            return TRANSFORMS[row.transform].load(arrays, facts)
        except (ValueError, IndexError) as error:
            shapes = {name: self.file.tensors[name].shape for name in row.names}
            raise ValueError(
                f"{self.file.path!r}: the shapes {shapes} are not those of a "
                f"{self.format.name} file ({error}). Check that num_heads="
                f"{facts.num_heads} is right, or fetch the file again."
            ) from error
