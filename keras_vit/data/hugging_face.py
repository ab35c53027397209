"""Data sets of the Hugging Face hub by name: their parquet or tar files."""

import re

from keras_vit.data.byte_ranges import hub_files
from keras_vit.data.config import DataConfig
from keras_vit.data.dataset import Dataset
from keras_vit.data.shards import KINDS, dataset_of
from keras_vit.io.checks import check_installed

__all__ = ["open_hugging_face"]

NAME = re.compile(r"hf://datasets/(?P<repository>[^/@]+/[^/@]+)(@[^/]+)?(/.*)?")


def open_hugging_face(config: DataConfig) -> Dataset:
    """Opens hf://datasets/user/name[@revision][/folder].

    Images, or groups of rows, are asked for over the network as they are
    needed, nothing is kept on the disk.

    Raises:
        ValueError: for another form of name, a repository or folder that is
            not there or has no shards, and what `open_shards` raises.
    """
    name = (config.name or "").rstrip("/")
    found = NAME.fullmatch(name)
    if not found:
        raise ValueError(
            "A data set of the hub is hf://datasets/user/name, and may have "
            f"@revision and a folder behind it. Received: name={name!r}."
        )
    check_installed(f"The data set {name!r}", "huggingface_hub", "pyarrow")
    listed = _listed(name)
    found_of = {end: [x for x in listed if x.endswith(end)] for end in KINDS}
    files = found_of[".parquet"] or found_of[".tar"]
    if not files:
        raise ValueError(
            f"{name} has no parquet or tar files. Give another @revision "
            "(refs%2Fconvert%2Fparquet has parquet files of most data sets) "
            "or folder, or download its images and set data.folder."
        )
    return dataset_of(files, config, name=found["repository"])


def _listed(name: str) -> list[str]:
    """The paths of all files below a name, sorted."""
    from huggingface_hub.errors import HfHubHTTPError

    try:
        paths = hub_files().find(name, refresh=True)
    except (OSError, HfHubHTTPError) as error:
        raise ValueError(
            f"{name} cannot be read: {str(error).strip().splitlines()[0]} Of a "
            "private or gated data set, set HF_TOKEN."
        ) from None
    return sorted(f"hf://{path}" for path in paths)
