"""Blocks that a file stacks along a first axis (big_vision's `scan`)."""

import re

from keras_vit.checkpoints.containers.errors import refuse
from keras_vit.checkpoints.containers.tensors import Tensor

__all__ = ["is_stacked", "unstacked"]

MAX_STACK = 1000


STACKED = r"Transformer/encoderblock/(.*)"


def is_stacked(file) -> bool:
    """Whether the file stacks its blocks."""
    return any(re.search(STACKED, name) for name in file.tensors)


def unstacked(file, tensors):
    """Takes apart blocks that are stacked along a first axis."""
    result = {}
    for name, tensor in tensors.items():
        match = re.fullmatch(STACKED, name)
        if not match:
            result[name] = tensor
            continue
        depth = (*tensor.shape, 0)[0]
        if not 1 <= depth <= MAX_STACK:
            refuse(
                file.path,
                f"stacks {depth} blocks",
                "The file is damaged: fetch it again.",
                name,
            )
        stack = Stack(tensor, depth)
        for i in range(depth):
            result[f"Transformer/encoderblock_{i}/{match[1]}"] = Tensor(
                tensor.shape[1:], tensor.dtype, stack.reader(i)
            )
    return result


class Stack:
    """Reads a stacked tensor once for all blocks that take their part."""

    def __init__(self, tensor, depth):
        self.tensor = tensor
        self.array = None
        self.waiting = set()
        self.depth = depth

    def reader(self, i):
        def read():
            if self.array is None:
                self.array = self.tensor.read()
                self.waiting = set(range(self.depth))
            part = self.array[i].copy()
            self.waiting.discard(i)
            if not self.waiting:
                self.array = None
            return part

        return read
