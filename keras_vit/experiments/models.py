"""Models as they were published or trained, for what evaluates them."""

import contextlib
import warnings
from collections.abc import Iterator

import keras
import numpy as np

from keras_vit import applications, checkpoints
from keras_vit.checkpoints.public.fetch import resolve
from keras_vit.evaluation.config import ModelSource
from keras_vit.training import distribution
from keras_vit.training.architectures import config_of, family_of
from keras_vit.training.config import ModelConfig
from keras_vit.training.distribution.processes import place
from keras_vit.training.run_weights import located

__all__ = ["load_model", "on_devices", "tiny_model", "weights_path"]


@contextlib.contextmanager
def on_devices(choice: str, batch_size: int) -> Iterator[None]:
    """Where to load a model and to predict with it, told in a line.

    Args:
        choice: as for `keras_vit.training.distribution.setup`.
        batch_size: int, images in a step on all devices together.

    Raises:
        ValueError: for a choice that the backend does not have, or a batch
            that the devices cannot share, or in one of several processes.

    Example:
        >>> with on_devices("auto", batch_size=256):
        ...     model = load_model(ModelSource(weights="runs/quickstart"))
        ...     predictions = predict_classes(model, batches)
    """
    chosen = distribution.setup(choice, batch_size=batch_size)
    index, count = place()
    if count > 1:
        raise ValueError(
            "One process predicts for all. Received: the environment of "
            f"process {index} of {count}. Unset it."
        )
    print(f"Distribution {chosen}", flush=True)
    with chosen.scope():
        yield


def weights_path(source: ModelSource) -> str:
    """The file or run folder of weights, downloaded if need be.

    Args:
        source: a `ModelSource`.

    Returns:
        A path.

    Raises:
        ValueError: when there are no such weights.
        OSError: when they cannot be fetched.
    """
    return resolve(located(str(source.weights)), source.name)


def load_model(source: ModelSource, *, with_head: bool = True) -> keras.Model:
    """Loads a model with its own classification layer.

    Args:
        source: a `ModelSource`.
        with_head: bool, whether the classification layer matters; where it
            does not, nothing is said of one that is all zeros.

    Returns:
        A Keras model from images in [0, 255] to logits.

    Raises:
        ValueError: when there are no such weights, or they do not say for
            which size of images.
        OSError: when they cannot be fetched.

    Example:
        >>> load_model(ModelSource(weights="runs/quickstart")).output_shape
        (None, 10)
    """
    file = weights_path(source)
    with warnings.catch_warnings():
        if not with_head:
            warnings.filterwarnings("ignore", "The classification layer in")
        options = {
            "input_shape": _input_shape(source, checkpoints.read_info(file)),
            "classifier_activation": None,
            "include_preprocessing": True,
            "dtype": source.precision,
        }
        if source.name is None:
            return checkpoints.load_checkpoint(file, **options)
        application = getattr(applications, source.name)
        return application(weights=file, classes=None, **options)


def tiny_model(name: str | None, seed: int) -> keras.Model:
    """The smallest model of a kind, to try a recipe on the digits.

    Args:
        name: str, an application; None for a Vision Transformer.
        seed: int, of its weights.

    Returns:
        A Keras model from images of 32x32 pixels to 10 logits.
    """
    keras.utils.set_random_seed(seed)
    tiny = ModelConfig(name, size="tiny", image_size=32)
    return family_of(name)(config_of(tiny, num_classes=10))


def _input_shape(source: ModelSource, info) -> tuple[int, int, int]:
    """Height, width and channels that weights are evaluated at."""
    size = source.image_size or info.fields["image_size"]
    if size is None or None in np.atleast_1d(size):
        raise ValueError(
            f"{source.weights!r} takes images of any size. Give "
            "--model.image_size."
        )
    height, width = (size, size) if isinstance(size, int) else size
    return height, width, info.fields["channels"]
