"""The handwritten digits as a builder of tensorflow-datasets, offline.

The 1797 test images of "Optical Recognition of Handwritten Digits" (Alpaydin
and Kaynak, UCI Machine Learning Repository, 1998), written by 13 people: 8x8
pixels of 17 grey levels, bright ink on black. They ship inside scikit-learn.
"""

import contextlib
import io
import os
import pathlib
import tempfile

import numpy as np

__all__ = ["digits_builder", "digits_data_dir"]

NAME = "keras_vit_digits"
VERSION = "1.0.0"
BRIGHTEST = 16  # of the 17 grey levels 0 to 16.


def digits_data_dir() -> str:
    """Where the digits are kept if no data_dir is given.

    Returns:
        A folder under KERAS_HOME, or ~/.keras.
    """
    home = os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras")
    return os.path.join(home, "tensorflow_datasets")


def digits_builder(data_dir: str | None = None):
    """Prepares the digits, once, and opens them.

    Any number of processes may do so at once: each writes into a folder of
    its own and renames it into place; all but the first find it there.

    Args:
        data_dir: folder; under KERAS_HOME if None.

    Returns:
        A `tfds.core.DatasetBuilder` with the split "train" of 1797 examples,
        in the order of scikit-learn: `image`, uint8 (8, 8, 1), and `label`.

    Raises:
        ValueError: when the folder cannot be written to.

    Example:
        >>> digits_builder().info.splits["train"].num_examples
        1797
    """
    import tensorflow_datasets as tfds

    data_dir = data_dir or digits_data_dir()
    final = pathlib.Path(data_dir) / NAME / VERSION
    if not final.exists():
        try:
            _prepare(final)
        except OSError as error:
            raise ValueError(
                f"The digits cannot be written to {os.fspath(final)!r}: "
                f"{error}. Choose another folder with data_dir."
            ) from error
    return tfds.builder_from_directory(final)


def _prepare(final: pathlib.Path) -> None:
    final.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{VERSION}.", dir=final.parent
    ) as folder:
        builder = _builder_class()(data_dir=folder)
        # What it prints is of downloads, and there is none.
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            builder.download_and_prepare()
        try:
            os.rename(builder.data_dir, final)
        except OSError:
            # Another process was faster; what it wrote is the same.
            if not final.exists():
                raise


def _builder_class():
    import tensorflow_datasets as tfds

    # Not to be found by name: opened by `digits_builder` alone.
    class KerasVitDigits(  # pyright: ignore[reportGeneralTypeIssues]
        tfds.core.GeneratorBasedBuilder,
        skip_registration=True,  # pyright: ignore[reportCallIssue]
    ):
        """Handwritten digits, 8x8, in the order of scikit-learn."""

        name = NAME
        VERSION = tfds.core.Version(VERSION)

        def _info(self):
            features = {
                "image": tfds.features.Image(shape=(8, 8, 1)),
                "label": tfds.features.ClassLabel(num_classes=10),
            }
            return self.dataset_info_from_configs(
                features=tfds.features.FeaturesDict(features),
                homepage="https://archive.ics.uci.edu/dataset/80",
                disable_shuffling=True,
            )

        def _split_generators(self, dl_manager):
            del dl_manager
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            from sklearn.datasets import load_digits

            source = load_digits()
            levels = source.images * (255 / BRIGHTEST)
            images = np.rint(levels).astype(np.uint8)[..., None]
            pairs = zip(images, source.target, strict=True)
            for number, (image, label) in enumerate(pairs):
                yield number, {"image": image, "label": int(label)}

    return KerasVitDigits
