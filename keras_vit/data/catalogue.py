"""Builders of tensorflow-datasets by name, with errors that help.

Dictionaries are read, never `as_supervised`, which gives no label or the
wrong one for several data sets.
"""

import difflib
import os

from keras_vit.data.presets_table import PRESETS

__all__ = ["check_feature", "named_builder", "prepare"]

NUM_SUGGESTIONS = 5
IMAGENET21K = (
    "ImageNet-21k is not in tensorflow-datasets: register at "
    "https://image-net.org, download the winter 2021 release, and prepare it "
    "as a data set named imagenet21k with the split full and the features "
    "image and label in {folder} (https://www.tensorflow.org/datasets/"
    "add_dataset). Or give its folder of classes as folder=."
)


def named_builder(name: str, data_dir: str | None):
    """Finds a data set by its name.

    Args:
        name: "name", "name/config" or "name/config:version".
        data_dir: folder of the prepared data, None for the default.

    Returns:
        A `tfds.core.DatasetBuilder`.

    Raises:
        ValueError: for an unknown name, with the nearest ones; for an unknown
            config or version.
    """
    import tensorflow_datasets as tfds

    try:
        return tfds.builder(name, data_dir=data_dir)
    except tfds.core.DatasetNotFoundError:
        # Its message has all of the 445 names.
        raise ValueError(_not_found(name, data_dir)) from None
    except (AssertionError, ValueError) as error:
        raise ValueError(
            f"The data set {name!r} cannot be opened: {error}"
        ) from error


def _not_found(name: str, data_dir: str | None) -> str:
    import tensorflow_datasets as tfds

    if name.startswith("imagenet21k"):
        return IMAGENET21K.format(folder=_folder(data_dir))
    known = [*PRESETS, *tfds.list_builders()]
    near = difflib.get_close_matches(
        name.split("/")[0].split(":")[0], dict.fromkeys(known), NUM_SUGGESTIONS
    )
    nearest = (
        f"The nearest names are {', '.join(map(repr, near))}."
        if near
        else "No name is near."
    )
    return (
        f"There is no data set {name!r} in tensorflow-datasets or in "
        f"{_folder(data_dir)}. {nearest} All names: "
        "https://www.tensorflow.org/datasets/catalog. For images of your own "
        "give folder or csv."
    )


def _folder(data_dir: str | None) -> str:
    return data_dir or os.environ.get(
        "TFDS_DATA_DIR", os.path.join("~", "tensorflow_datasets")
    )


def prepare(builder, *, download: bool) -> None:
    """Downloads and prepares a data set that is not there yet.

    Args:
        builder: a `tfds.core.DatasetBuilder`.
        download: bool, whether that is allowed.

    Raises:
        ValueError: when it is not there and cannot be got, with what to
            download by hand and where to put it.
    """
    if builder.is_prepared():
        return
    if not download:
        raise ValueError(
            f"{builder.info.full_name} is not prepared in {builder.data_dir}"
            f" and download is off. {_instructions(builder)}"
        )
    try:
        builder.download_and_prepare()
    # Whatever a data set's own code and the network raise.
    except Exception as error:
        raise ValueError(
            f"{builder.info.full_name} is not prepared in {builder.data_dir} "
            f"and cannot be: {str(error).strip()[:500]}\n"
            f"{_instructions(builder)}"
        ) from error


def _instructions(builder) -> str:
    manual = builder.MANUAL_DOWNLOAD_INSTRUCTIONS
    root = os.path.dirname(os.path.dirname(os.fspath(builder.data_dir)))
    if builder.builder_config is not None:
        root = os.path.dirname(root)
    if manual:
        folder = os.path.join(root, "downloads", "manual")
        text = " ".join(manual.split())
        return (
            f"It must be downloaded by hand into {folder} (manual_dir): {text}"
        )
    return (
        "Run where there is a network: python -m tensorflow_datasets.scripts."
        f"cli.main build {builder.info.name} --data_dir {root} (or `tfds "
        "build`), or set data_dir to where it is prepared already."
    )


def check_feature(builder, key: str, field: str) -> None:
    """Refuses the name of a feature that the data set does not have.

    Args:
        builder: a `tfds.core.DatasetBuilder`.
        key: the name.
        field: "image_key" or "label_key", for the message.

    Raises:
        ValueError: with the features that there are.
    """
    features = builder.info.features
    if key not in features:
        raise ValueError(
            f"{builder.info.full_name} has no feature {field}={key!r}. Its "
            f"features are {', '.join(map(repr, features))}."
        )
