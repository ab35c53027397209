"""The splits of a data set of tensorflow-datasets."""

from keras_vit.data.catalogue import check_feature, named_builder, prepare
from keras_vit.data.config import DataConfig
from keras_vit.data.dataset import Dataset
from keras_vit.data.digits_builder import digits_builder
from keras_vit.data.presets_table import PRESETS
from keras_vit.data.splits import cut
from keras_vit.data.tfds_split import read_split

__all__ = ["open_tfds"]


def open_tfds(config: DataConfig) -> Dataset:
    """Opens a data set by its name.

    Args:
        config: a `DataConfig` with a name.

    Returns:
        A `Dataset`; splits up to memory_limit_mib are in memory.

    Raises:
        ValueError: for an unknown name, data that cannot be got, an unknown
            feature or split.
    """
    name = config.name or ""
    preset = PRESETS.get(name, {"tfds_name": name, "splits": None})
    if name == "digits":
        builder = digits_builder(config.data_dir)
    else:
        builder = named_builder(preset["tfds_name"], config.data_dir)
        prepare(builder, download=config.download)
    check_feature(builder, config.image_key, "image_key")
    check_feature(builder, config.label_key, "label_key")
    splits = _splits(builder, config, preset["splits"])
    parts = [split and read_split(builder, config, split) for split in splits]
    if _is_given(config) or preset["splits"]:
        train, validation, test = parts
    else:
        train, validation, test = complete(parts, config)
    labels = [part and part.labels for part in (train, validation, test)]
    names = _class_names(builder.info.features[config.label_key], labels)
    return Dataset(train, validation, test, names, name=name)


def complete(parts: list, config: DataConfig) -> list:
    """Cuts off the training images what is missing.

    Args:
        parts: training, validation and test images, of which the last two
            may be None.
        config: the fractions and the seed of it are used.

    Returns:
        The three, none of which is None unless its fraction is 0.
    """
    train, validation, test = parts
    left, validation_cut, test_cut = cut(
        train,
        validation_fraction=0.0 if validation else config.validation_fraction,
        test_fraction=0.0 if test else config.test_fraction,
        seed=config.split_seed,
    )
    return [left, validation or validation_cut, test or test_cut]


def _is_given(config: DataConfig) -> bool:
    given = (config.train_split, config.validation_split, config.test_split)
    return any(given)


def _splits(builder, config: DataConfig, preset) -> tuple:
    """Training, validation and test split; None for those that are not."""
    given = (config.train_split, config.validation_split, config.test_split)
    if any(given):
        return given
    if preset:
        return preset
    known = builder.info.splits
    test = next(
        (name for name in ("test", "validation") if name in known), None
    )
    validation = "validation" if "validation" in known else None
    return ("train", None if validation == test else validation, test)


def _class_names(feature, labels: list) -> tuple[str, ...]:
    feature = getattr(feature, "feature", feature)
    names = getattr(feature, "names", None)
    if names is None:
        known = [int(part.max()) for part in labels if part is not None]
        if not known:
            raise ValueError(
                "The label feature has no classes and the data is too large "
                "to count them: raise memory_limit_mib, or prepare the data "
                "with tfds.features.ClassLabel."
            )
        names = range(max(known) + 1)
    return tuple(map(str, names))
