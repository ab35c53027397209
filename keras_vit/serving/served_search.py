"""The search of a server: programs of few sizes, and names without folders."""

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.prediction.embeddings_file import ImageSearch
from keras_vit.serving.batching import Batcher, batch_sizes
from keras_vit.serving.received_images import Refusal

__all__ = ["NoClasses", "ServedSearch"]

WORDLESS = "The model reads no words. Search by an image, as image/*."


class NoClasses:
    """A classifier without classes, of a model that searches alone.

    Args:
        encoder: the `Encoder`, whose model and geometry these are.
    """

    class_names, problem = (), "classification"

    def __init__(self, encoder: Any):
        self.geometry, self.read = encoder.geometry, encoder.read

    def probabilities(self, images):
        """Return no number for each image."""
        return np.zeros((len(images), 0), "float32")


class ServedSearch:
    """A search for many requests at a time.

    Args:
        search: an `ImageSearch`.
        batch: int, queries of a request at most.
    """

    def __init__(self, search: ImageSearch, batch: int):
        self.search, self.batch = search, batch
        self.sizes = batch_sizes(batch)
        self.names = _without_folder(search.embeddings.files)
        self.has_words = True

    @property
    def read(self) -> Any:
        """How an image is read; see `Encoder.read`."""
        return self.search.encoder.read

    @property
    def geometry(self) -> Any:
        """How images are resized; see `Encoder`."""
        return self.search.encoder.geometry

    def warm_up(self) -> None:
        """Call each program once, and look at all embeddings.

        Raises:
            ValueError: for embeddings that are not finite.
        """
        geometry = self.geometry
        grey = np.full((*geometry.image_size, geometry.channels), 128, "uint8")
        image = self.read(grey)
        try:
            self.search.load_texts()
        except ValueError:
            self.has_words = False
        for size in self.sizes:
            found = self._images([image] * size)
            if self.has_words:
                self._words(["a"] * size)
        self.search.nearest(found, 1)

    async def of_words(
        self, texts: Sequence[str], top: int, batcher: Batcher
    ) -> list[list[dict]]:
        """Return the images nearest to each text, see `of_images`.

        Raises:
            Refusal: 501 for a model without texts, 400 for a text that it does
                not read.
        """
        if not self.has_words:
            raise Refusal(501, WORDLESS)
        texts = list(texts)
        if message := await batcher.alone(self._unread, texts):
            raise Refusal(400, message)
        return await self._hits(
            await batcher.alone(self._words, texts), top, batcher
        )

    async def of_images(
        self, images: Sequence[np.ndarray], top: int, batcher: Batcher
    ) -> list[list[dict]]:
        """Return the images nearest to each image that was read.

        Returns:
            For each a list of {"name": str, "cosine": float}, the most similar
            first.
        """
        found = await batcher.alone(self._images, images)
        return await self._hits(found, top, batcher)

    async def _hits(self, vectors, top, batcher):
        numbers, cosines = await batcher.alone(
            self.search.nearest, vectors, top
        )
        found = []
        for row, values in zip(numbers, cosines, strict=True):
            found.append(
                [
                    {"name": self.names[i], "cosine": round(float(x), 6)}
                    for i, x in zip(row, values, strict=True)
                ]
            )
            await asyncio.sleep(0)  # Others have their turn between queries.
        return found

    def _unread(self, texts) -> str | None:
        """Return why a text is not read, None where all are."""
        try:
            self.search.load_texts().ids(texts)
        except ValueError as error:
            return str(error)
        return None

    def _words(self, texts):
        """Compute vectors; each size of a batch is another program."""
        return self.search.words(_filled(texts, self.sizes))[: len(texts)]

    def _images(self, images):
        filled = np.stack(_filled(images, self.sizes))
        return self.search.encoder.vectors(filled)[: len(images)]


def _filled(rows, sizes):
    size = next(x for x in sizes if x >= len(rows))
    return [*rows, *[rows[-1]] * (size - len(rows))]


def _without_folder(files) -> tuple[str, ...]:
    """Return names from the folder of all on: where it lies is private."""
    folders = {os.path.dirname(x) for x in files}
    try:
        common = os.path.commonpath(folders)
    except ValueError:  # Of several drives, or from here and from the root.
        return tuple(os.path.basename(x) for x in files)
    return tuple(os.path.relpath(x, common) if common else x for x in files)
