"""Labels of the VTAB tasks, out of the annotations of their data sets.

As in google-research/task_adaptation, `task_adaptation/data/*.py`. Each rule
is a function of an example, a dictionary of tensors without axes for the
batch, that returns an int32 scalar.
"""

from collections.abc import Callable

__all__ = [
    "CLEVR_DISTANCES",
    "KITTI_DISTANCES",
    "closest_object",
    "closest_vehicle",
    "feature",
    "grouped",
    "object_count",
]

# A distance is of the class of the largest bound below it.
CLEVR_DISTANCES = (0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0)
KITTI_DISTANCES = (-100.0, 8.0, 20.0, 999.0)  # Metres.
FEWEST_OBJECTS = 3  # In an image of CLEVR.
VEHICLES = 3  # Of KITTI's types: 0 is car, 1 van, 2 truck.
NO_VEHICLE = 1000.0  # Farther than any.


def feature(name: str) -> Callable:
    """The label that the data set has.

    Args:
        name: of the feature.

    Returns:
        A rule.
    """

    def label(example):
        import tensorflow as tf

        return tf.cast(example[name], tf.int32)

    return label


def grouped(name: str, size: int, num_classes: int) -> Callable:
    """Neighbouring values of a label as one class.

    Args:
        name: of the feature.
        size: int, values that it has.
        num_classes: int, classes to make of them.

    Returns:
        A rule.
    """

    def label(example):
        import tensorflow as tf

        value = tf.cast(example[name], tf.float32)
        return tf.cast(value // (size / num_classes), tf.int32)

    return label


def object_count(example):
    """How many objects an image of CLEVR has; class 0 are three."""
    import tensorflow as tf

    return tf.size(example["objects"]["size"]) - FEWEST_OBJECTS


def closest_object(example):
    """How near the nearest object of an image of CLEVR is."""
    import tensorflow as tf

    distances = example["objects"]["pixel_coords"][:, 2]
    return _bin(tf.reduce_min(distances), CLEVR_DISTANCES)


def closest_vehicle(example):
    """How near the nearest vehicle of an image of KITTI is, if there is one."""
    import tensorflow as tf

    objects = example["objects"]
    distances = tf.boolean_mask(
        objects["location"][:, 2], objects["type"] < VEHICLES
    )
    nearest = tf.reduce_min(tf.concat([distances, [NO_VEHICLE]], axis=0))
    return _bin(nearest, KITTI_DISTANCES)


def _bin(distance, bounds):
    import tensorflow as tf

    below = tf.constant(bounds) < distance
    return tf.reduce_sum(tf.cast(below, tf.int32)) - 1
