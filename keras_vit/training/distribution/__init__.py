"""The devices and processes of a run, and how they share the work."""

from typing import TYPE_CHECKING

from keras_vit.runtime.environment import lazy_names

__all__ = ["Distribution", "agreed", "setup"]

if TYPE_CHECKING:
    from keras_vit.training.distribution.layouts import Distribution, setup
    from keras_vit.training.distribution.processes import agreed
else:  # They need Keras.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "keras_vit.training.distribution.layouts": (
                *("Distribution", "setup"),
            ),
            "keras_vit.training.distribution.processes": ("agreed",),
        },
    )
