"""The devices and processes of a run, and how they share the work."""

from keras_vit.training.distribution.layouts import Distribution, setup

__all__ = ["Distribution", "setup"]
