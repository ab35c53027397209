"""Batches of one size, the last one filled up, as evaluation takes them."""

import numpy as np


def padded_batches(images, labels, batch_size):
    """(images, labels, mask) with rubbish in the rows that are no images."""
    for begin in range(0, len(images), batch_size):
        rows = np.arange(begin, begin + batch_size)
        mask = rows < len(images)
        # What fills up a batch is an image as good as any other: counting it
        # must show.
        yield images[rows % len(images)], labels[rows % len(images)], mask
