"""The index of WebDataset shards: tar files of images beside their labels.

A sample is the members of one name up to the first dot, one after the other:
https://github.com/webdataset/webdataset#the-webdataset-format.
"""

import io
import itertools
import json
import tarfile
from collections.abc import Iterable

from keras_vit.data.records import (
    ShardIndex,
    index_of_rows,
    looks_whole,
    open_shard,
    shard_size,
)

__all__ = ["IMAGES", "tar_index"]

# Extensions of members that are images.
LARGEST_LABEL = 2**20  # bytes of a member with a label
END = 2 * tarfile.BLOCKSIZE  # zeros that a tar file ends with
IMAGES = ("jpg", "jpeg", "png", "bmp", "gif", "webp", "tif", "tiff")


def tar_index(path: str, label_key: str) -> ShardIndex:
    """Find images and labels of a tar file, in the order of the file.

    The label of a sample is `label_key` of its JSON member, else the text of
    its member with the extension cls.

    Args:
        path: of the shard, which is not compressed.
        label_key: a key of JSON.

    Returns:
        A `ShardIndex` whose labels are text, one for each image.

    Raises:
        ValueError: naming the shard, when it is damaged, empty or compressed;
            and the sample, when it has no image or no label.
    """
    try:
        with (
            open_shard(path) as file,
            tarfile.open(fileobj=file, mode="r:") as tar,
        ):
            rows = [
                _row(tar, sample, f"{path}: {key}", label_key)
                for key, sample in itertools.groupby(_members(tar), _key)
            ]
    except (tarfile.TarError, EOFError, OSError, OverflowError) as error:
        raise ValueError(
            f"The shard {path} of {shard_size(path):,} bytes is cut off, "
            f"damaged or compressed, or no tar file: {error}."
        ) from error
    return index_of_rows(rows, path)


def _members(tar: tarfile.TarFile) -> Iterable[tarfile.TarInfo]:
    """Return the files that belong to samples, which hidden ones do not."""
    for member in tar:
        setattr(tar, "members", [])  # noqa: B010 (or it keeps all of them)
        name = member.name.rpartition("/")[2]
        if member.isreg() and "." in name.strip("."):
            if not name.startswith("."):
                yield member
    # Before the last sample is looked at, a part of which may be missing.
    _check_end(tar.fileobj, tar.offset)


def _check_end(file, end: int) -> None:
    """Refuse a tar file that does not end as one behind its last member.

    tarfile takes a file that is cut off between two members, or has a damaged
    header there, for one that ends.
    """
    file.seek(end)
    zeros, rest = 0, file.read(io.DEFAULT_BUFFER_SIZE)
    while rest:
        if rest.strip(b"\0"):
            raise tarfile.ReadError(
                f"what follows byte {end:,} is neither a member nor its end"
            )
        zeros += len(rest)
        rest = file.read(io.DEFAULT_BUFFER_SIZE)
    if zeros < END:
        raise tarfile.ReadError(
            f"{END:,} zeros are missing behind its last member, at byte {end:,}"
        )


def _key(member: tarfile.TarInfo) -> str:
    folder, slash, name = member.name.rpartition("/")
    return f"{folder}{slash}{name.partition('.')[0]}"


def _row(tar, sample, name: str, label_key: str) -> tuple:
    """Return the fields of a `ShardIndex` of a sample."""
    members = {
        member.name.rpartition("/")[2].partition(".")[2].lower(): member
        for member in sample
    }
    image = next((members[x] for x in IMAGES if x in members), None)
    if image is None:
        raise ValueError(
            f"The sample {name} has no image ({', '.join(IMAGES)}), only "
            f"{', '.join(members)}."
        )
    if image.issparse():
        raise ValueError(f"The image of the sample {name} is a sparse file.")
    label = _label(tar, members, name, label_key)
    whole = looks_whole(tar.fileobj, image.offset_data, image.size)
    return image.offset_data, image.size, [label], whole


def _label(tar, members, name, label_key):
    if "json" in members:
        try:
            found = json.loads(_content(tar, members["json"], name))
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"The JSON of the sample {name} cannot be read: "
                f"{str(error)[:300]}."
            ) from error
        if isinstance(found, dict) and label_key in found:
            return _text(found[label_key], name, label_key)
    if "cls" not in members:
        raise ValueError(
            f"The sample {name} has no label: neither .cls nor a key "
            f"{label_key!r} in .json. Received: {', '.join(members)}. Set "
            "data.label_key."
        )
    text = _content(tar, members["cls"], name)
    return text.decode("utf-8", "replace").strip()


def _content(tar, member, name) -> bytes:
    if member.size > LARGEST_LABEL:
        raise ValueError(
            f"The label of the sample {name} has {member.size:,} bytes, where "
            f"at most {LARGEST_LABEL:,} are read."
        )
    return tar.extractfile(member).read()


def _text(label, name, label_key) -> str:
    if not isinstance(label, str | int):
        raise ValueError(
            f"The label {label_key!r} of the sample {name} is "
            f"{str(label)[:100]!r}. Expected a number of a class or a text."
        )
    return str(label).encode("utf-8", "replace").decode()
