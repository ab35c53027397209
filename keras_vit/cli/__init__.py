"""The `keras-vit` command."""

from keras_vit.cli.command_line import main

__all__ = ["main"]
