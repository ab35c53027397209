"""The index of WebDataset shards: tar files of images beside their labels.

A sample is the members of one name up to the first dot, one after the other:
https://github.com/webdataset/webdataset#the-webdataset-format.
"""

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
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ValueError(
            f"The shard {path} of {shard_size(path):,} bytes is cut off, "
            f"damaged or compressed, or no tar file: {error}."
        ) from None
    return index_of_rows(rows, path)


def _members(tar: tarfile.TarFile) -> Iterable[tarfile.TarInfo]:
    """Return the files that belong to samples, which hidden ones do not."""
    for member in tar:
        setattr(tar, "members", [])  # noqa: B010 (or it keeps all of them)
        name = member.name.rpartition("/")[2]
        if member.isreg() and "." in name.strip("."):
            if not name.startswith("."):
                yield member


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
    label = _label(tar, members, name, label_key)
    whole = looks_whole(tar.fileobj, image.offset_data, image.size)
    return image.offset_data, image.size, [label], whole


def _label(tar, members, name, label_key):
    if "json" in members:
        try:
            found = json.loads(tar.extractfile(members["json"]).read())
        except ValueError as error:
            raise ValueError(
                f"The JSON of the sample {name} cannot be read: {error}."
            ) from None
        if isinstance(found, dict) and label_key in found:
            return str(found[label_key])
    if "cls" not in members:
        raise ValueError(
            f"The sample {name} has no label: neither .cls nor a key "
            f"{label_key!r} in .json. Received: {', '.join(members)}. Set "
            "data.label_key."
        )
    text = tar.extractfile(members["cls"]).read()
    return text.decode("utf-8", "replace").strip()
