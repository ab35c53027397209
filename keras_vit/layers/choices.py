"""What options of the layers may be.

Read without Keras, by the configs of the models.
"""

__all__ = [
    "AXES",
    "BIAS_KINDS",
    "MIXER_NORMALIZATIONS",
    "MIXINGS",
    "MLP_PLACEMENTS",
    "NORMALIZATIONS",
    "NORM_PLACEMENTS",
    "PAIRS",
    "ROPES",
    "STANDARDIZATIONS",
]

ROPES = ("axial", "centered", "mixed")
PAIRS = ("neighbors", "halves")
AXES = ("row_first", "column_first")
BIAS_KINDS = ("table", "mlp", "mlp_swin")
NORMALIZATIONS = ("layer_norm", "rms_norm")
NORM_PLACEMENTS = ("before", "after")
MLP_PLACEMENTS = ("after", "beside")
MIXINGS = ("mlp", "linear", "spatial_gating")
MIXER_NORMALIZATIONS = ("layer_norm", "affine")
STANDARDIZATIONS = ("deviation", "variance")
