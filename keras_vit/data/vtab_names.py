"""The tasks of VTAB-1k as data sets by name, "vtab/clevr_count".

Their splits have the benchmark's own names: "train800val200" to train on for
a result, or "train800" and "val200" to make a choice with, and "test".
"""

from keras_vit.data.config import DataConfig
from keras_vit.data.dataset import Dataset
from keras_vit.data.vtab import open_vtab

__all__ = ["is_vtab", "open_vtab_name"]

NAME = "vtab"
# Training and validation split to what `open_vtab` takes.
SPLITS = {
    (None, None): "train800val200",
    ("train800val200", None): "train800val200",
    ("train800", "val200"): "train800",
}
TEST = "test"


def is_vtab(name: str | None) -> bool:
    """Says whether a name is one of a task of VTAB-1k.

    Args:
        name: of a data set, or None.

    Returns:
        bool.

    Example:
        >>> is_vtab("vtab/dtd"), is_vtab("dtd")
        (True, False)
    """
    return (name or "").split("/")[0] == NAME


def open_vtab_name(config: DataConfig) -> Dataset:
    """Opens the task of VTAB-1k that a config names.

    Args:
        config: a `DataConfig` with a name such as "vtab/dtd", whose splits,
            data_dir, download and max_examples are used.

    Returns:
        A `Dataset` as `open_vtab` gives it.

    Raises:
        ValueError: for an unknown task or split, or data that cannot be got.

    Example:
        >>> len(open_vtab_name(DataConfig(name="vtab/dtd")).train)
        1000
    """
    asked = (config.train_split, config.validation_split)
    if asked not in SPLITS or config.test_split not in (None, TEST):
        raise ValueError(
            "A task of VTAB-1k has the splits train800val200, or train800 and "
            f"val200, and test. Received: train_split={asked[0]!r}, "
            f"validation_split={asked[1]!r}, test_split={config.test_split!r}."
        )
    return open_vtab(
        (config.name or NAME).removeprefix(f"{NAME}/"),
        train=SPLITS[asked],
        data_dir=config.data_dir,
        download=config.download,
        max_test_examples=config.max_examples,
    )
