"""The models of the papers by name, called as in `keras.applications`.

`keras_vit/sizes.py` has a row for each.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import keras

from keras_vit.applications.application import APPLICATIONS

# pyright: reportUnsupportedDunderAll=false
__all__ = sorted(APPLICATIONS)
globals().update(APPLICATIONS)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., keras.Model]: ...
