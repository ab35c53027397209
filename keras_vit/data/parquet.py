"""Images and labels in parquet files, as Hugging Face datasets has them.

A group of rows is the smallest part of a parquet file that can be read: it is
read whole and kept until others are needed.
"""

import collections
import contextlib
import dataclasses
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from keras_vit.data.records import (
    ImageRanges,
    ShardIndex,
    open_shard,
    texts,
)
from keras_vit.data.seeds import LANES
from keras_vit.io.checks import check_installed
from keras_vit.runtime.memory import shortage

__all__ = ["RowGroups", "Schema", "parquet_index", "schemas_of"]

BYTES_OF_A_ROW = 64  # in an index, while it is made
THREADS = 16  # that read what is at the end of each file


@dataclasses.dataclass(frozen=True)
class Schema:
    """What the end of a file says of its images and labels.

    Args:
        image: the column that is read for an image, "image.bytes".
        label: type of the labels, as text.
        class_names: of the labels; None where they are not named.
    """

    image: str
    label: str
    class_names: tuple[str, ...] | None


def schemas_of(files, image_key: str, label_key: str) -> Schema:
    """Return the schema of some files.

    Raises:
        ValueError: naming the file, when it is missing or damaged, or has
            other columns than the first one.
    """
    check_installed("Reading parquet files", "pyarrow")
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(
            pool.map(lambda file: _schema(file, image_key, label_key), files)
        )
    for file, schema in zip(files, found, strict=True):
        if schema != found[0]:
            raise ValueError(
                f"The shards {files[0]} and {file} have different schemas: "
                f"{_difference(found[0], schema)}."
            )
    return found[0]


def _difference(first: Schema, other: Schema) -> str:
    """Return the first field that differs, and its values cut short."""
    for field in dataclasses.fields(first):
        pair = [getattr(schema, field.name) for schema in (first, other)]
        if pair[0] != pair[1]:
            one, two = (str(value)[:100] for value in pair)
            return f"{field.name} {one} and {two}"
    return "nothing"


@contextlib.contextmanager
def _opened(path: str, **options: Any) -> Iterator[Any]:
    """Open a ParquetFile; errors of pyarrow are ValueErrors of the shard."""
    import pyarrow
    from pyarrow import parquet

    with open_shard(path, buffer_size=0) as file:
        try:
            yield parquet.ParquetFile(file, **options)
        except (pyarrow.ArrowException, OSError, OverflowError) as error:
            reason = (str(error).splitlines() or [""])[0]
            raise ValueError(
                f"The shard {path} is cut off, damaged or no parquet file: "
                f"{reason}"
            ) from error


def _schema(path: str, image_key: str, label_key: str) -> Schema:
    import pyarrow

    with _opened(path) as file:
        schema = file.schema_arrow
    for field, key in (("image_key", image_key), ("label_key", label_key)):
        if (count := schema.names.count(key)) > 1:
            raise ValueError(
                f"The shard {path} has {count} columns {field}={key!r}."
            )
        if not count:
            raise ValueError(
                f"The shard {path} has no column {field}={key!r}. Its columns "
                f"are {', '.join(map(repr, schema.names))}."
            )
    kind = schema.field(image_key).type
    is_struct = pyarrow.types.is_struct(kind)
    inside = kind.field("bytes").type if _has_bytes(kind, is_struct) else kind
    if inside not in (pyarrow.binary(), pyarrow.large_binary()):
        raise ValueError(
            f"The column {image_key!r} of the shard {path} has no encoded "
            f"images: it is {kind}. Expected bytes, or a struct with bytes."
        )
    label = schema.field(label_key).type
    if not (pyarrow.types.is_integer(label) or _is_text(label)):
        raise ValueError(
            f"The column {label_key!r} of the shard {path} is {label}. "
            "Expected integers or text."
        )
    names = _class_names(schema, label_key, path)
    column = f"{image_key}.bytes" if is_struct else image_key
    return Schema(column, str(label), names)


def _has_bytes(kind, is_struct: bool) -> bool:
    return is_struct and kind.get_field_index("bytes") >= 0


def _is_text(kind) -> bool:
    import pyarrow

    return kind in (pyarrow.string(), pyarrow.large_string())


def _class_names(schema, label_key: str, path) -> tuple[str, ...] | None:
    """Return those of a ClassLabel in what `datasets` notes in a file."""
    try:
        noted = json.loads(schema.metadata[b"huggingface"])
        names = noted["info"]["features"][label_key]["names"]
    except (KeyError, TypeError):
        return None
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"What `datasets` noted in the shard {path} is no JSON: "
            f"{str(error)[:200]}"
        ) from error
    are_texts = isinstance(names, list) and all(
        isinstance(x, str) for x in names
    )
    if names and not are_texts:
        raise ValueError(
            f"The class names in the shard {path} are no list of texts: "
            f"{str(names)[:100]}"
        )
    return tuple(names) if names else None


def parquet_index(path: str, label_key: str) -> ShardIndex:
    """Find rows and labels of a parquet file, reading no images.

    Args:
        path: of the file.
        label_key: the column of the labels.

    Returns:
        A `ShardIndex`: starts are the group of each row, sizes its place
        there.

    Raises:
        ValueError: naming the file, when it is damaged or empty, and the row
            that has no label.
    """
    with _opened(
        path, read_dictionary=[label_key], page_checksum_verification=True
    ) as file:
        groups = range(file.metadata.num_row_groups)
        rows = [file.metadata.row_group(i).num_rows for i in groups]
        _check_room(path, rows)
        labels = file.read(columns=[label_key]).column(0)
    if not len(labels):
        raise ValueError(f"The shard {path} has no images.")
    if labels.null_count:
        first = labels.is_null().to_pylist().index(True)
        raise ValueError(f"The row {path}[{first}] has no label.")
    return ShardIndex(
        np.repeat(groups, rows),
        np.concatenate([np.arange(size) for size in rows]),
        _labels(path, labels),
        np.ones(len(labels), np.int64),
        np.ones(len(labels), bool),  # Not looked at: that would read them.
    )


def _check_room(path, rows) -> None:
    """Refuse more rows than there is memory for what an index has of each."""
    if min(rows, default=0) < 0 or shortage(sum(rows) * BYTES_OF_A_ROW):
        raise ValueError(
            f"The shard {path} says that it has {sum(rows):,} rows, for whose "
            "labels there is no memory."
        )


def _labels(path, labels) -> np.ndarray:
    """Return int64, or `texts`, of a column."""
    import pyarrow

    if pyarrow.types.is_dictionary(labels.type):
        labels = labels.unify_dictionaries().combine_chunks()
        names = texts(labels.dictionary.to_pylist())
        return names[labels.indices.to_numpy()]
    if _is_text(labels.type):
        return texts(labels.to_pylist())
    try:
        return labels.cast(pyarrow.int64()).to_numpy()
    except pyarrow.ArrowInvalid as error:
        raise ValueError(
            f"The shard {path} has labels that are no numbers of classes: "
            f"they are {labels.type}, and some are above {2**63 - 1:,}."
        ) from error


@dataclasses.dataclass(frozen=True)
class RowGroups(ImageRanges):
    """Images in parquet files; starts are groups, sizes are rows of a group.

    Args:
        column: the column of the encoded images.
        window: int, images in memory; some more where groups begin and end.
    """

    column: str = "image.bytes"
    window: int = 50_000
    groups: np.ndarray = dataclasses.field(init=False)
    _firsts: np.ndarray = dataclasses.field(init=False)
    _kept: collections.OrderedDict = dataclasses.field(init=False)
    _lock: threading.Lock = dataclasses.field(init=False)

    def __post_init__(self):
        new = [0, *np.flatnonzero(np.diff(self._keys)) + 1]
        groups = np.zeros(len(self), np.int64)
        groups[new[1:]] = 1
        kept: collections.OrderedDict = collections.OrderedDict()
        for name, value in (
            ("groups", np.cumsum(groups)),
            ("_firsts", np.array(new)),
            ("_kept", kept),
            ("_lock", threading.Lock()),
        ):
            object.__setattr__(self, name, value)

    @property
    def _keys(self):
        """A number for each image, the same in a group of a file."""
        return self.shards * (int(self.starts.max()) + 1) + self.starts

    @property
    def max_groups(self) -> int:
        """How many groups are kept in memory."""
        each = len(self) / len(self._firsts)
        return int(self.window / each) + 2 * LANES

    def read(self, position: int) -> bytes:
        image = self._images(int(self.groups[position]))[
            int(self.sizes[position])
        ].as_py()
        if image is None:
            raise ValueError(f"The row {self.name(position)} has no image.")
        return image

    def _images(self, group: int):
        """Return the images of a group; threads that need it read it once."""
        with self._lock:
            found = self._kept.pop(group, None)
            future = found or Future()
            self._kept[group] = future
            while len(self._kept) > self.max_groups:
                self._kept.popitem(last=False)
        if found is None:
            try:
                future.set_result(self._read_group(group))
            except BaseException as error:
                with self._lock:  # To be tried again.
                    self._kept.pop(group, None)
                future.set_exception(error)
        return future.result()

    def _read_group(self, group: int):
        import pyarrow

        first = self._firsts[group]
        path = self.files[self.shards[first]]
        with _opened(path) as file:
            table = file.read_row_group(
                int(self.starts[first]), columns=[self.column]
            )
        column = table.column(0).combine_chunks()
        is_struct = pyarrow.types.is_struct(column.type)
        return column.field("bytes") if is_struct else column
