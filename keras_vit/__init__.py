"""Vision Transformers for Keras 3.

`keras_vit.ViT_B16(...)` and the like build the models of the papers, with the
signature of `keras.applications`; `keras_vit.layers` and `keras_vit.models`
have their parts, `keras_vit.variants` what the paper compares them with.
"""

# pyright: reportUnsupportedDunderAll=false
from typing import TYPE_CHECKING

from keras_vit.runtime import environment
from keras_vit.runtime.environment import lazy_names
from keras_vit.sizes import BIT, MIXER, VIT, list_models
from keras_vit.version import __version__

__all__ = [
    "__version__",
    "analysis",
    "audit",
    "checkpoints",
    "decode_predictions",
    "embed",
    "explain",
    "export",
    "features",
    "layers",
    "list_models",
    "list_weights",
    "load_checkpoint",
    "load_image_text",
    "load_weights",
    "models",
    "patch_sequences",
    "predict",
    "preprocess_input",
    "push_to_hub",
    "save_checkpoint",
    "text",
    "variants",
]
# The models by name: ViT_B16, Mixer_B16, BiT_R50x1 and the others.
__all__ += sorted([*VIT, *MIXER, *BIT])

if TYPE_CHECKING:
    from collections.abc import Callable

    import keras

    from keras_vit import (
        analysis,
        checkpoints,
        layers,
        models,
        text,
        variants,
    )
    from keras_vit.analysis.features import features
    from keras_vit.auditing import audit
    from keras_vit.checkpoints import (
        load_checkpoint,
        load_weights,
        save_checkpoint,
    )
    from keras_vit.checkpoints.public.catalog import list_weights
    from keras_vit.explanation import explain
    from keras_vit.exporting.export import export
    from keras_vit.prediction import embed, patch_sequences, predict
    from keras_vit.preprocessing import decode_predictions, preprocess_input
    from keras_vit.sharing import push_to_hub
    from keras_vit.text import load_image_text

    def __getattr__(name: str) -> Callable[..., keras.Model]: ...

else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "keras_vit.analysis": ("analysis",),
            "keras_vit.analysis.features": ("features",),
            "keras_vit.auditing": ("audit",),
            "keras_vit.applications": ("applications", *VIT, *MIXER, *BIT),
            "keras_vit.checkpoints": (
                *("checkpoints", "load_checkpoint", "load_weights"),
                "save_checkpoint",
            ),
            "keras_vit.checkpoints.public.catalog": ("list_weights",),
            "keras_vit.explanation": ("explain",),
            "keras_vit.exporting.export": ("export",),
            "keras_vit.layers": ("layers",),
            "keras_vit.models": ("models",),
            "keras_vit.prediction": ("embed", "patch_sequences", "predict"),
            "keras_vit.preprocessing": (
                *("preprocessing", "decode_predictions", "preprocess_input"),
            ),
            "keras_vit.sharing": ("push_to_hub",),
            "keras_vit.text": ("text", "load_image_text"),
            "keras_vit.variants": ("variants",),
        },
    )

environment.check()
