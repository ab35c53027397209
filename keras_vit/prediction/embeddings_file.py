"""Files of embeddings, the parts they are made of, and searches in them.

What was computed is kept in small parts beside the file, `FILE.parts/`, each
written whole, until all images are done; then the parts become one file. So a
command that was interrupted continues with the images that are missing.

Axes: N images, Q queries, K neighbours (hits of a search), D hidden dimension,
H and W height and width, C channels; the embedding of one image has any axes.
"""

import contextlib
import dataclasses
import functools
import io
import itertools
import json
import math
import os
import pathlib
import time
import zipfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.checkpoints.files.npz import (
    aligned_member,
    map_array,
    open_npz,
)
from keras_vit.checkpoints.files.tensors import DAMAGE
from keras_vit.data.config import MAX_SIDE, preprocessing_in
from keras_vit.io.atomic_files import PARTIAL, only_writer, replacing
from keras_vit.io.checks import check_kind, check_whole, numbers_of
from keras_vit.models import BiT
from keras_vit.prediction.by_labels import check_projected, texts_of
from keras_vit.prediction.encoder import Encoder, as_encoder
from keras_vit.prediction.images import check_several, read_batches
from keras_vit.runtime.machine import shortage
from keras_vit.text.zero_shot import TextEncoder

__all__ = [
    "Embeddings",
    "ImageSearch",
    "check_file",
    "embed_files",
    "encoder_of",
    "known_files",
    "load_embeddings",
    "load_search",
    "nearest",
]

PARTS = ".parts"  # follows the name of the file
PART = "part-*.npz"
SECONDS = 10.0  # between two parts; an interruption costs that much at most
COLUMNS = ["file", "embedding"]
KEY = b"keras_vit"  # of the metadata in the schema of a Parquet file
ROWS = 2**14  # vectors that are compared at once
BYTES_OF_A_NAME = 100  # that a text of Python takes besides its letters
# What two encoders must share for their embeddings to be compared.
SAME = ("weights_crc32", "kind", "blocks", "image_size", "preprocessing")


@dataclasses.dataclass(frozen=True)
class Embeddings:
    """The embeddings of N images.

    Attributes:
        files: N paths, as they were given.
        vectors: float32 array (N, ...), see `keras_vit.embed`.
        metadata: see `Encoder`.

    Example:
        >>> load_embeddings("embeddings.npz").vectors.shape
        (12, 768)
    """

    files: tuple[str, ...]
    vectors: np.ndarray
    metadata: dict[str, Any]

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """Compute the lengths (N,) of the vectors, float32, once."""
        return _lengths(_flat("vectors", self.vectors))

    def check_same(self, metadata: dict[str, Any], source: object) -> None:
        """Raises a ValueError unless an encoder gives such embeddings.

        Args:
            metadata: of the encoder.
            source: the file, for the message.
        """
        changed = [
            f"{name}: {self.metadata.get(name)!r} there, {metadata[name]!r} now"
            for name in SAME
            if self.metadata.get(name) != metadata[name]
        ]
        if changed:
            raise ValueError(
                f"{str(source)!r} holds embeddings of another kind: of the "
                f"model {self.metadata.get('model')!r}, and not of "
                f"{metadata['model']!r} in this way ({'; '.join(changed)}). "
                "Give the same model and options, or another file."
            )


def embed_files(
    encoder: Encoder,
    files: Iterable[str],
    path: str | os.PathLike,
    *,
    batch_size: int = 32,
    seconds: float = SECONDS,
) -> Generator[tuple[str | int, str | None]]:
    """Embeds image files into a file, those that it does not hold yet.

    Where it was interrupted, it continues; new files are added to those of
    the file. Use up the iterator: the file is written at its end.

    Args:
        encoder: what `keras_vit.prediction.as_encoder` returned.
        files: paths of images, any number; one batch is in memory.
        path: the file to write, .npz or .parquet.
        batch_size: int, images per step.
        seconds: float, between two parts on the disk.

    Yields:
        For each new image its path and None, or why it cannot be read; such
        an image is left out.

    Raises:
        ValueError: for another kind of file, one that holds embeddings of
            another model or something else, one that another process writes,
            an image in memory, or no int above 0.
        OSError: when it cannot be written. What is there stays.

    Example:
        >>> encoder = as_encoder("ViT_B16/imagenet21k")
        >>> for name, error in embed_files(encoder, ["a.jpg"], "photos.npz"):
        ...     print(name, error or "done")
    """
    check_kind(Encoder, encoder=encoder)
    check_kind(float, seconds=seconds)
    check_whole(1, batch_size=batch_size)
    check_several("files", files)
    path = check_file(path)
    with contextlib.ExitStack() as stack:
        stack.enter_context(only_writer(path))
        store = _Store(path, encoder.metadata)
        lock = stack.pop_all()
    return _embed(encoder, store, files, batch_size, seconds, lock)


def _embed(encoder, store, files, batch_size, seconds, lock):
    begin = time.monotonic()
    with lock:
        try:
            for read, batch in read_batches(
                encoder, store.missing(files), batch_size
            ):
                names = [name for name, error in read if error is None]
                if names:
                    store.add(names, encoder.vectors(batch)[: len(names)])
                if time.monotonic() - begin >= seconds:
                    store.flush()
                    begin = time.monotonic()
                yield from read
        finally:
            store.flush()
        store.finish()


def check_file(path: str | os.PathLike) -> pathlib.Path:
    """Return the path of a file of embeddings, if it can be written here.

    Raises:
        ValueError: for another ending, no folder, or Parquet without PyArrow.
    """
    check_kind(str | os.PathLike, path=path)
    path = pathlib.Path(path).expanduser()
    if path.suffix not in WRITERS:
        raise ValueError(
            "Embeddings are written to a file that ends in .npz or .parquet. "
            f"Received: {str(path)!r}."
        )
    if not path.parent.is_dir() or path.is_dir():
        raise ValueError(
            f"{str(path)!r} cannot be written: it is a folder, or its folder "
            "does not exist. Make the folder, or give another path."
        )
    if path.suffix == ".parquet":
        _pyarrow()
    return path


def load_embeddings(path: str | os.PathLike) -> Embeddings:
    """Reads what `embed_files` and `keras-vit embed` write.

    Args:
        path: the file, .npz or .parquet.

    Raises:
        ValueError: when it is missing, or no such file.

    Example:
        >>> load_embeddings("embeddings.npz").files[:2]
        ('photos/a.jpg', 'photos/b.jpg')
    """
    check_kind(str | os.PathLike, path=path)
    return _load(pathlib.Path(path).expanduser())


def known_files(path: pathlib.Path) -> set[str]:
    """Return the images that a file of embeddings, or a part, holds by now."""
    return {
        x for part in _files_of(path) for x in _load(part, vectors=False).files
    }


def _files_of(path):
    """Return the file, if there is one, and its parts in their order."""
    parts = sorted(_folder_of(path).glob(PART))
    return [path, *parts] if path.exists() else parts


def _folder_of(path):
    return path.with_name(f"{path.name}{PARTS}")


def _load(path, *, vectors=True) -> Embeddings:
    """Reads a file; without vectors the names and the metadata alone."""
    if path.suffix not in READERS:
        raise ValueError(
            "A file of embeddings ends in .npz or .parquet. Received: "
            f"{str(path)!r}."
        )
    if not path.is_file():
        raise ValueError(f"There is no file {str(path)!r}.")
    try:
        found = READERS[path.suffix](path, vectors)
        _check(found, vectors)
    except DAMAGE as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(
            f"{str(path)!r} is not a file of embeddings: {reason}. Write one "
            "with `keras-vit embed`."
        ) from error
    return found


def _check(found, vectors):
    """Refuse what is no embeddings, before anything is computed of it."""
    shape = np.shape(found.vectors)
    if not isinstance(found.metadata, dict):
        raise ValueError("its metadata are no object")
    if not all(isinstance(x, str) for x in found.files):
        raise ValueError("its files are not named by texts")
    if len(found.files) != len(found.vectors):
        raise ValueError(f"{len(found.files)} files and {shape[0]} vectors")
    if vectors and (found.vectors.dtype != "float32" or len(shape) < 2):
        raise ValueError(
            f"its vectors are {found.vectors.dtype} of shape {shape}"
        )


def _check_room(needed):
    """Refuse what takes more memory than there is."""
    if short := shortage(needed):
        raise ValueError(f"it takes {short}")


class _Store:
    """What is known of the embeddings of a file, and what is new."""

    def __init__(self, path, metadata):
        self.path = path
        self.metadata = metadata
        self.folder = _folder_of(path)
        self.seen = set()
        self.new = ([], [])
        for part in _files_of(path):
            known = _load(part, vectors=False)
            known.check_same(metadata, path)
            self.seen.update(known.files)

    def parts(self) -> list[pathlib.Path]:
        return sorted(self.folder.glob(PART))

    def missing(self, files: Iterable[str]) -> Iterator[str]:
        """Yield the files that are not there, each once."""
        for file in files:
            if not isinstance(file, str):
                raise ValueError(
                    "A file of embeddings names image files. Received: an "
                    f"image in memory, a {type(file).__name__}. Use "
                    "keras_vit.embed for it."
                )
            if file not in self.seen:
                self.seen.add(file)
                yield file

    def add(self, names, vectors):
        self.new[0].extend(names)
        self.new[1].append(vectors)

    def flush(self):
        """Writes what is new as one more part."""
        names, vectors = self.new
        if not names:
            return
        self.folder.mkdir(exist_ok=True)
        number = len(self.parts())
        part = Embeddings(tuple(names), np.concatenate(vectors), self.metadata)
        with replacing(self.folder / f"part-{number:06d}.npz") as temporary:
            _write_npz(temporary, part.files, [part.vectors], self.metadata)
        self.new = ([], [])

    def finish(self):
        """Makes one file of all parts, and removes them."""
        if parts := self.parts():
            files = [file for names, _ in self._pieces() for file in names]
            vectors = (found[1] for found in self._pieces())
            write = WRITERS[self.path.suffix]
            with replacing(self.path) as temporary:
                write(temporary, tuple(files), vectors, self.metadata)
        for file in (*parts, *self.folder.glob(f"{PARTIAL}*")):
            file.unlink()
        if self.folder.is_dir():
            self.folder.rmdir()

    def _pieces(self):
        """Yield names and vectors of the old file and each part, each once."""
        # A run that ended before it removed its parts has them in its file.
        done = set()
        for part in _files_of(self.path):
            found = _load(part)
            rows = [i for i, x in enumerate(found.files) if x not in done]
            done.update(found.files)
            if rows:
                yield [found.files[i] for i in rows], found.vectors[rows]


def _write_npz(path, files, vectors, metadata):
    """Writes an archive for NumPy, the vectors one piece after the other."""
    pieces = iter(vectors)
    first = next(pieces)
    header = {
        "descr": np.lib.format.dtype_to_descr(np.dtype("<f4")),
        "fortran_order": False,
        "shape": (len(files), *first.shape[1:]),
    }
    with open(path, "wb") as out, zipfile.ZipFile(out, "w") as archive:
        _write_array(archive, "files", np.array(files))
        _write_array(archive, "metadata", np.array(json.dumps(metadata)))
        member = aligned_member("vectors.npy", out.tell())
        with archive.open(member, "w", force_zip64=True) as file:
            np.lib.format.write_array_header_1_0(file, header)
            for piece in itertools.chain([first], pieces):
                file.write(np.ascontiguousarray(piece, "<f4").tobytes())


def _write_array(archive, name, array):
    content = io.BytesIO()
    np.lib.format.write_array(content, array, allow_pickle=False)
    archive.writestr(f"{name}.npy", content.getvalue())


def _read_npz(path, vectors) -> Embeddings:
    arrays = open_npz(path).tensors
    named = arrays["files"]
    _check_room(2 * named.nbytes)
    files = tuple(named.read().tolist())
    metadata = json.loads(arrays["metadata"].read().item())
    found = map_array(path, "vectors") if vectors else np.zeros(len(files))
    if found is None:  # Packed, as by NumPy itself.
        _check_room(arrays["vectors"].nbytes)
        found = arrays["vectors"].read()
    return Embeddings(files, found, metadata)


def _write_parquet(path, files, vectors, metadata):
    """Writes a table of the files and their flat vectors."""
    pa = _pyarrow()
    from pyarrow import parquet

    begin, writer = 0, None
    for piece in vectors:
        shape = piece.shape[1:]
        flat = pa.array(piece.astype("float32").ravel())
        rows = pa.FixedSizeListArray.from_arrays(flat, int(np.prod(shape)))
        names = pa.array(files[begin : begin + len(piece)], pa.string())
        about = json.dumps({**metadata, "shape": shape})
        table = pa.table([names, rows], names=COLUMNS)
        table = table.replace_schema_metadata({KEY: about})
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
        begin += len(piece)
    if writer is not None:
        writer.close()


def _read_parquet(path, vectors) -> Embeddings:
    _pyarrow()
    from pyarrow import parquet

    with parquet.ParquetFile(path, read_dictionary=COLUMNS[:1]) as file:
        schema = file.schema_arrow
        metadata = json.loads((schema.metadata or {})[KEY])
        shape = _checked_shape(metadata.pop("shape"), schema, vectors)
        size = math.prod(shape) * 4 if vectors else 0
        _check_room(file.metadata.num_rows * (size + BYTES_OF_A_NAME))
        table = file.read(columns=COLUMNS[: 1 + vectors])
    names = table.column(COLUMNS[0])
    _check_room(_bytes_of(names))
    files = tuple(names.to_pylist())
    found = np.zeros(len(files), "float32")
    if vectors:
        flat = table.column(COLUMNS[1]).combine_chunks().flatten()
        found = flat.to_numpy(zero_copy_only=False).reshape(-1, *shape)
    return Embeddings(files, found, metadata)


def _checked_shape(shape, schema, vectors):
    """Return the shape of a vector, which the column must have room for."""
    known = isinstance(shape, list) and all(
        type(x) is int and x > 0 for x in shape
    )
    size = math.prod(shape) if known and len(shape) < 9 else None
    kind = schema.field(COLUMNS[1]).type if vectors else None
    if size is None or kind is not None and kind.list_size != size:
        raise ValueError(f"its vectors are {kind}, said to be of {shape}"[:200])
    return shape


def _bytes_of(names):
    """Count the letters of all names of a column, whose texts stand once."""
    from pyarrow import compute

    return sum(
        compute.sum(
            compute.binary_length(part.dictionary).take(part.indices)
        ).as_py()
        or 0
        for part in names.chunks
    )


def _pyarrow():
    try:
        import pyarrow
    except ImportError as error:
        raise ValueError(
            "Parquet files need PyArrow. Run `pip install pyarrow`, or give a "
            "file that ends in .npz."
        ) from error
    return pyarrow


WRITERS: dict[str, Callable] = {
    ".npz": _write_npz,
    ".parquet": _write_parquet,
}

READERS: dict[str, Callable] = {
    ".npz": _read_npz,
    ".parquet": _read_parquet,
}


def encoder_of(
    embeddings: Embeddings,
    model: str | os.PathLike | keras.Model | None = None,
    *,
    source: object = "the file",
) -> Encoder:
    """Makes the `Encoder` that a file of embeddings was written with.

    Args:
        embeddings: what `load_embeddings` returned.
        model: see `keras_vit.embed`; None for the model that the file names.
        source: the file, for messages.

    Raises:
        ValueError: when the file names no model, or the weights are others.
        OSError: when weights cannot be fetched.

    Example:
        >>> encoder_of(load_embeddings("photos.npz")).metadata["model"]
        'ViT_B16/imagenet21k'
    """
    about = embeddings.metadata
    model = about.get("model") if model is None else model
    _check_about(about, source)
    if model is None:
        raise ValueError(
            f"{str(source)!r} does not name the model of its embeddings. Give "
            "the model, with --model on the command line."
        )
    takes_any = isinstance(model, (str, os.PathLike, BiT))
    height, width = about["image_size"]
    encoder = as_encoder(
        model,
        kind=about["kind"],
        blocks=about["blocks"],
        image_size=(height, width) if takes_any else None,
        preprocessing=preprocessing_in(about["preprocessing"], repr(source)),
    )
    embeddings.check_same(encoder.metadata, source)
    return encoder


# Metadata that an encoder is made of -> whether they are as they should be.
ABOUT: dict[str, Callable[[Any], bool]] = {
    "kind": lambda x: isinstance(x, str),
    "blocks": lambda x: (
        x is None
        or isinstance(x, list)
        and all(type(y) is int and abs(y) < 10**4 for y in x)
    ),
    "image_size": lambda x: (
        isinstance(x, list)
        and len(x) == 2
        and all(type(y) is int and 0 < y <= MAX_SIDE for y in x)
    ),
    "preprocessing": lambda x: isinstance(x, dict),
    "model": lambda x: isinstance(x, str | None),
}


def _check_about(about, source):
    wrong = [
        name
        for name, fits in ABOUT.items()
        if name not in about and name != "model" or not fits(about.get(name))
    ]
    if wrong:
        raise ValueError(
            f"The metadata of {str(source)!r} are damaged: "
            f"{', '.join(wrong)}. Write the file again with `keras-vit embed`."
        )


def nearest(
    vectors: Any,
    queries: Any,
    *,
    top: int = 9,
    lengths: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the vectors with the largest cosine similarity to each query.

    All vectors are compared, in parts: no copy of them is made, and they may
    be mapped from a file, as those of `load_embeddings` are.

    Args:
        vectors: float array (N, D), or (N, L, D) of several blocks, which are
            joined.
        queries: float array of the same axes for Q queries.
        top: int, K; all of fewer vectors.
        lengths: float array (N,), `Embeddings.lengths`; None computes them.

    Returns:
        Their numbers from 0 to N - 1, integers of shape (Q, K), the most
        similar first, of equals the first; and their similarities in
        [-1, 1], float32 of that shape.

    Raises:
        ValueError: for other axes, such as those of tokens, NaN or infinity,
            or a `top` below 1.

    Example:
        >>> known = np.array([[1.0, 0.0], [0.0, 2.0]])
        >>> nearest(known, known[1:], top=1)[0].tolist()
        [[1]]
    """
    check_whole(1, top=top)
    known, wanted = _flat("vectors", vectors), _flat("queries", queries)
    if lengths is not None:
        given = numbers_of("lengths", lengths)
        if given.shape != known.shape[:1] or not (given > 0).all():
            raise ValueError(
                f"lengths are a number above 0 for each of {len(known)} "
                f"vectors. Received: {lengths!r:.80}."
            )
        lengths = given
    if known.shape[1] != wanted.shape[1]:
        raise ValueError(
            "Vectors and queries must have the same size. Received: shapes "
            f"{np.shape(vectors)} and {np.shape(queries)}. Embed both with the "
            "same model."
        )
    _check_finite(wanted, 0)
    wanted = wanted / _lengths(wanted)[:, None]
    parts = [
        _nearest(known[x : x + ROWS], x, wanted, top, lengths)
        for x in range(0, len(known), ROWS)
    ]
    numbers, scores = (np.hstack(x) for x in zip(*parts, strict=True))
    order = np.argsort(-scores, axis=1, kind="stable")[:, :top]  # (Q, K)
    return (
        np.take_along_axis(numbers, order, axis=1),
        np.take_along_axis(scores, order, axis=1),
    )


def _nearest(rows, begin, wanted, top, lengths):
    """Find the nearest of some rows (R, D), which begin at a number."""
    found = _lengths(rows) if lengths is None else lengths[begin:][: len(rows)]
    cosines = (rows @ wanted.T).T / found  # (Q, R)
    if not np.isfinite(cosines).all():
        _check_finite(rows, begin)
    top = min(top, len(rows))
    least = np.partition(cosines, len(rows) - top, axis=1)[:, len(rows) - top]
    numbers = np.empty((len(wanted), top), int)
    for query, values in enumerate(cosines):
        rest = np.flatnonzero(values >= least[query])
        order = np.argsort(-values[rest], kind="stable")[:top]
        numbers[query] = rest[order]
    return numbers + begin, np.take_along_axis(cosines, numbers, axis=1)


def _flat(name, vectors):
    """Return vectors as (N, D), float32, without a copy if they are."""
    vectors = numbers_of(name, vectors)
    if vectors.ndim not in (2, 3) or not len(vectors):
        raise ValueError(
            "A search needs one vector per image, or one per block, an array "
            f"(N, D) or (N, L, D). Received: an array of shape "
            f'{vectors.shape}. Embed images with kind="pooled".'
        )
    return vectors.reshape(len(vectors), -1)


def _check_finite(vectors, begin):
    """Refuse NaN and infinity in vectors whose first number is `begin`."""
    bad = ~np.isfinite(vectors).all(axis=1)
    if bad.any():
        raise ValueError(
            f"Vector number {begin + bad.argmax()} has NaN or infinity. Embed "
            "that image again."
        )


def _lengths(vectors):
    """Return the lengths (N,) of vectors (N, D); of zeros the smallest."""
    lengths = np.empty(len(vectors), "float32")
    for x in range(0, len(vectors), ROWS):
        rows = vectors[x : x + ROWS]
        lengths[x : x + ROWS] = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    return np.maximum(lengths, np.finfo("float32").tiny)


@dataclasses.dataclass
class ImageSearch:
    """Embeddings of images, and what embeds further images and words.

    Attributes:
        source: the file of the embeddings, for messages.
        embeddings: those that are searched.
        encoder: the `Encoder` that they were computed with.
        model: see `keras_vit.text.as_text_encoder`.
        texts: the text half of the model, None until `load_texts`.

    Example:
        >>> search = load_search("photos.npz")
        >>> numbers, cosines = search.nearest(search.words(["a red car"]), 9)
    """

    source: str | os.PathLike
    embeddings: Embeddings
    encoder: Encoder
    model: Any
    texts: TextEncoder | None = None

    def load_texts(self) -> TextEncoder:
        """Load the text half of the model, once.

        Raises:
            ValueError: for a model without texts, and vectors of images that
                are not compared with texts.
        """
        if self.texts is None:
            check_projected(self.encoder)
            self.texts = texts_of(self.model)
        return self.texts

    def words(self, texts: Sequence[str]) -> np.ndarray:
        """Compute vectors (Q, D) of texts; see `load_texts`.

        Raises:
            ValueError: for a text that the model does not read, too.
        """
        return self.load_texts().vectors(texts)

    def nearest(
        self, queries: np.ndarray, top: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return numbers (Q, K) of images, and cosines; see `nearest`."""
        return nearest(
            self.embeddings.vectors,
            queries,
            top=top,
            lengths=self.embeddings.lengths,
        )


def load_search(
    path: str | os.PathLike, model: str | os.PathLike | Any = None
) -> ImageSearch:
    """Load what a search needs, but for the text half of the model.

    Args:
        path: a file of `keras-vit embed`.
        model: the model of the embeddings, None for the one the file names.

    Raises:
        ValueError: when it is no such file, has several vectors per image, or
            is of another model.
        OSError: when weights cannot be fetched.

    Example:
        >>> load_search("photos.npz").encoder.metadata["kind"]
        'pooled'
    """
    known = load_embeddings(path)
    if known.metadata.get("kind") not in ("pooled", "features"):
        raise ValueError(
            f"A search needs one vector per image. Received: {str(path)!r} of "
            f"kind {known.metadata.get('kind')!r}. Write one with `keras-vit "
            "embed --kind pooled`."
        )
    encoder = encoder_of(known, model, source=path)
    named = known.metadata.get("model") if model is None else model
    return ImageSearch(path, known, encoder, named)
