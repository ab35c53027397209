"""Labels as a model takes them.

Axes: N images, K classes.
"""

__all__ = ["check_labels", "label_vector"]


def label_vector(label, num_classes: int):
    """One-hot of a class, or the vector of a label that is one already.

    Args:
        label: int scalar, or vector of K with a 1 for each class.
        num_classes: int, K.

    Returns:
        float32 tensor of shape (K,).
    """
    import tensorflow as tf

    if label.shape.rank:
        return tf.cast(label, tf.float32)
    return tf.one_hot(label, num_classes)


def check_labels(labels, num_classes: int, source: str) -> None:
    """Refuses labels that are no class.

    Args:
        labels: see `Examples`; None for those of a stream, which are only
            known when they are read.
        num_classes: int, K.
        source: name of the data, for the message.

    Raises:
        ValueError: with a wrong label, and where it is.
    """
    if labels is None:
        return
    if labels.ndim == 2:
        if labels.shape[1] != num_classes:
            raise ValueError(
                f"The labels of {source} have {labels.shape[1]} classes, "
                f"the model has {num_classes}."
            )
        return
    wrong = (labels < 0) | (labels >= num_classes)
    if wrong.any():
        first = int(wrong.argmax())
        raise ValueError(
            f"{source} has labels outside of 0 to {num_classes - 1}: "
            f"{wrong.sum()} of {len(labels)}, the first one is "
            f"{labels[first]} of image {first}. Correct them, or the number "
            "of classes."
        )
