"""TensorFlow reads the images on every backend; it computes on one alone."""

import keras

__all__ = ["leave_accelerators"]


def leave_accelerators() -> None:
    """Keeps TensorFlow, where another backend computes, to the processors.

    It would take the memory of the GPUs as soon as it starts. Where it has
    started, it is left as it is.

    Example:
        >>> leave_accelerators()  # before the first tensor of TensorFlow
    """
    if keras.backend.backend() == "tensorflow":
        return
    import tensorflow as tf

    try:
        tf.config.set_visible_devices([], "GPU")
    except RuntimeError:
        pass  # Its devices cannot be changed after the start.
