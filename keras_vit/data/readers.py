"""What reads and varies the images: TensorFlow, or Pillow and NumPy."""

import dataclasses
import importlib.util
from collections.abc import Container

from keras_vit.data.config import READERS, DataConfig
from keras_vit.io.checks import EXTRAS, check_choice, check_installed

__all__ = [
    "chosen_reader",
    "data_packages",
    "hide_accelerators",
    "with_chosen_reader",
]

# Data sets by name that are none of tensorflow-datasets.
WITHOUT_TENSORFLOW = ("digits", "hf:")


def chosen_reader(reader: str) -> str:
    """Return the reader that "auto" stands for; any other as it is.

    Example:
        >>> chosen_reader("auto")
        'tensorflow'
    """
    check_choice("reader", reader, READERS)
    if reader != "auto":
        return reader
    found = importlib.util.find_spec("tensorflow") is not None
    return "tensorflow" if found else "pillow"


def with_chosen_reader(config: DataConfig) -> DataConfig:
    """Return the config with the reader that its "auto" stands for."""
    return dataclasses.replace(config, reader=chosen_reader(config.reader))


def data_packages(
    config: DataConfig, sources: Container[str] = ()
) -> tuple[str, ...]:
    """List the modules that the images of a config need besides Pillow.

    Args:
        config: a `DataConfig`.
        sources: first parts of names whose functions check for themselves.

    Example:
        >>> data_packages(DataConfig(folder="flowers", reader="pillow"))
        ()
    """
    base = (config.name or "").split("/")[0]
    if base and base not in WITHOUT_TENSORFLOW and base not in sources:
        return ("tensorflow", *EXTRAS["data"])
    return ("tensorflow",) if config.reader == "tensorflow" else ()


def hide_accelerators(reader: str) -> None:
    """Hide the GPUs from TensorFlow where another backend computes.

    It would take all of their memory as soon as it starts.

    Args:
        reader: what reads the images; nothing is done unless it is
            "tensorflow".

    Raises:
        ValueError: where TensorFlow is not installed.
    """
    import keras

    if reader != "tensorflow" or keras.backend.backend() == "tensorflow":
        return
    check_installed("Reading images with TensorFlow", "tensorflow")
    import tensorflow as tf

    try:
        tf.config.set_visible_devices([], "GPU")
    except RuntimeError:
        pass  # It has started; its devices cannot be changed any more.
