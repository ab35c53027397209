"""Encoded images in shards, each of which can be read by its position.

A source of records has the methods of `ImageRanges`. Images and labels of any
source are `Examples` of the kind "record": their order, splits, shares and
resuming are those of images in memory and in folders, and a process reads no
images but those of its own rows.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from keras_vit.data.byte_ranges import read_range
from keras_vit.data.shard_index import ShardIndex

__all__ = ["ImageRanges", "ranges_of"]


@dataclasses.dataclass(frozen=True)
class ImageRanges:
    """Images that are ranges of bytes of uncompressed shards.

    Args:
        files: paths of the shards.
        shards: int array of shape (N,), which of them has the image.
        starts: int64 array of shape (N,), its first byte.
        sizes: int64 array of shape (N,), its number of bytes.
        numbers: int64 array of shape (N,), of its record in the shard.
        whole: bool array of shape (N,), False where it does not begin and end
            as a whole image does.

    Attributes:
        groups: of images that are read together only, the group of each, int
            array of shape (N,); else None.
    """

    files: tuple[str, ...]
    shards: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    numbers: np.ndarray
    whole: np.ndarray
    groups = None

    def __len__(self) -> int:
        return len(self.starts)

    def read(self, position: int) -> bytes:
        """The encoded image of a position, 0 to N - 1.

        Raises:
            ValueError: naming the shard, when it cannot be read so far.
        """
        file = self.files[self.shards[position]]
        return read_range(
            file, int(self.starts[position]), int(self.sizes[position])
        )

    def name(self, position: int) -> str:
        """The shard and the number of the record in it, for messages."""
        file = self.files[self.shards[position]]
        return f"{file}[{self.numbers[position]}]"


def ranges_of(
    files: Sequence[str],
    indexes: Sequence[ShardIndex],
    source: Callable[..., ImageRanges] = ImageRanges,
) -> ImageRanges:
    """All images of some shards, in their order."""
    sizes = [len(index.starts) for index in indexes]
    return source(
        tuple(files),
        np.repeat(np.arange(len(files)), sizes),
        np.concatenate([index.starts for index in indexes]),
        np.concatenate([index.sizes for index in indexes]),
        np.concatenate([np.arange(size) for size in sizes]),
        np.concatenate([index.whole for index in indexes]),
    )
