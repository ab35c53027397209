"""Which images of a batch a process reads, where several share the batches.

Axes: B images of a batch.
"""

import dataclasses

__all__ = ["Share", "chosen_rows", "picked"]


@dataclasses.dataclass(frozen=True)
class Share:
    """One of the equal shares of every batch.

    Args:
        index: int, which one.
        count: int, how many there are.
        parts: int, smaller batches that a batch is cut into before it is
            shared, for accumulated gradients.

    Example:
        >>> Share(1, 2).rows(8)
        [4, 5, 6, 7]
        >>> Share(1, 2, parts=2).rows(8)
        [2, 3, 6, 7]
    """

    index: int = 0
    count: int = 1
    parts: int = 1

    def size(self, batch_size: int) -> int:
        """Number of images of the share.

        Args:
            batch_size: int, B, images of the whole batch.

        Returns:
            int.

        Raises:
            ValueError: when a batch cannot be cut into equal shares.
        """
        if batch_size % (self.count * self.parts):
            raise ValueError(
                f"A batch of {batch_size} cannot be cut into {self.parts} "
                f"parts of {self.count} equal shares. Make it a multiple of "
                f"{self.count * self.parts}."
            )
        return batch_size // self.count

    def rows(self, batch_size: int) -> list[int]:
        """Numbers of the images of the share in the whole batch.

        Args:
            batch_size: int, B.

        Returns:
            list of int, in ascending order.

        Raises:
            ValueError: see `size`.
        """
        part = batch_size // self.parts
        each = self.size(batch_size) // self.parts
        first = self.index * each
        return [
            start + first + i
            for start in range(0, batch_size, part)
            for i in range(each)
        ]


def chosen_rows(records, rows: list[int], batch_size: int):
    """Keeps some of the images of each batch, before they are decoded.

    Args:
        records: tf.data.Dataset of single images; the first one begins a
            batch.
        rows: list of int, their numbers in the batch.
        batch_size: int, B.

    Returns:
        tf.data.Dataset.
    """
    import tensorflow as tf

    if len(rows) == batch_size:
        return records
    wanted = tf.reduce_any(
        tf.range(batch_size)[:, None] == tf.constant(rows), axis=1
    )  # (B,)
    return (
        records.enumerate()
        .filter(lambda number, _: wanted[number % batch_size])
        .map(lambda _, record: record)
    )


def picked(values, read: list[int], rows: list[int]):
    """Keeps the images of a share, of those that were read for it.

    Args:
        values: tensor of shape (len(read), ...).
        read: list of int, the rows of the batch that it has.
        rows: list of int, those of the share.

    Returns:
        Tensor of shape (len(rows), ...), which is then known.
    """
    import tensorflow as tf

    if read != rows:
        values = tf.gather(values, [read.index(row) for row in rows])
    return tf.ensure_shape(values, [len(rows), *values.shape[1:]])
