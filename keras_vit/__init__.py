"""Vision Transformers for Keras 3.

`keras_vit.ViT_B16(...)` and the like build the models of the papers, with the
signature of `keras.applications`; `keras_vit.layers` and `keras_vit.models`
have their parts, `keras_vit.variants` what the paper compares them with.
"""

import importlib
from typing import TYPE_CHECKING

from keras_vit import _environment

_environment.check()

from keras_vit import (
    analysis,
    applications,
    checkpoints,
    layers,
    models,
    variants,
)
from keras_vit.analysis.feature_maps import features
from keras_vit.checkpoints import (
    load_checkpoint,
    load_weights,
    save_checkpoint,
)
from keras_vit.preprocessing import decode_predictions, preprocess_input
from keras_vit.version import __version__

__all__ = [
    "__version__",
    "analysis",
    "checkpoints",
    "decode_predictions",
    "embed",
    "explain",
    "export",
    "features",
    "layers",
    "load_checkpoint",
    "load_weights",
    "models",
    "patch_sequences",
    "predict",
    "preprocess_input",
    "push_to_hub",
    "save_checkpoint",
    "variants",
]
__all__ += applications.__all__
# The models by name: ViT_B16, Mixer_B16, BiT_R50x1 and the others.
globals().update(applications.APPLICATIONS)


# On demand: they take as long to import as everything else.
LATE = {
    "embed": "keras_vit.prediction",
    "explain": "keras_vit.explanation",
    "export": "keras_vit.exporting.export",
    "patch_sequences": "keras_vit.prediction",
    "predict": "keras_vit.prediction",
    "push_to_hub": "keras_vit.sharing",
}

if TYPE_CHECKING:
    from collections.abc import Callable

    import keras

    from keras_vit.explanation import explain
    from keras_vit.exporting.export import export
    from keras_vit.prediction import embed, patch_sequences, predict
    from keras_vit.sharing import push_to_hub

    def __getattr__(name: str) -> Callable[..., keras.Model]: ...

else:

    def __getattr__(name):
        if name in LATE:
            return getattr(importlib.import_module(LATE[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
