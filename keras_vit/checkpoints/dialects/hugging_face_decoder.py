"""Decoders of masked autoencoders in folders of Hugging Face transformers.

Source: transformers 5.23.0 (models/vit_mae), and the names of the files that
were published with earlier ones.
"""

import dataclasses
import pathlib
import re

import numpy as np

from keras_vit.checkpoints.dialects.hugging_face import ENCODER
from keras_vit.checkpoints.engine.layout import (
    TRANSFORMS,
    Facts,
    paths_of,
    torch_dense,
    torch_norm,
)
from keras_vit.checkpoints.files.config_values import (
    converted,
    flag,
    fraction,
    read_json,
)
from keras_vit.checkpoints.files.tensors import TensorFile

__all__ = ["Decoder", "read_decoder"]

KIND = "vit_mae"
BLOCKS = r"decoder_(?:encoder\.layer|layers)\.(\d+)\."
TABLE = {
    **torch_dense("decoder_embed", "decoder.decoder_embed"),
    "from_visible/mask": ("decoder.mask_token", "same"),
    **{
        f"decoder_{ours}": (
            tuple(f"decoder.{x}" for x in names)
            if isinstance(names, tuple)
            else f"decoder.{names}",
            transform,
        )
        for ours, (names, transform) in ENCODER.items()
        if ours.startswith("block_{i}/")
    },
    **torch_norm("decoder_norm", "decoder.decoder_norm"),
    **torch_dense("pixels", "decoder.decoder_pred"),
}
# Of a config.json -> of a `MAEConfig`.
NAMES = {
    "mask_ratio": "mask_ratio",
    "norm_pix_loss": "normalize_pixels",
    "decoder_hidden_size": "decoder_dim",
    "decoder_num_hidden_layers": "decoder_layers",
    "decoder_num_attention_heads": "decoder_heads",
    "decoder_intermediate_size": "decoder_mlp_dim",
}
# What transformers takes where a config.json is silent.
USUAL = {
    "mask_ratio": 0.75,
    "norm_pix_loss": False,
    "decoder_hidden_size": 512,
    "decoder_num_hidden_layers": 8,
    "decoder_num_attention_heads": 16,
    "decoder_intermediate_size": 2048,
}
CONVERSIONS = {"mask_ratio": fraction, "normalize_pixels": flag}


@dataclasses.dataclass(frozen=True)
class Decoder:
    """A decoder in a folder.

    Args:
        fields: of a `MAEConfig`, what the folder was trained with.
        file: the opened file, of which arrays are read on demand.
    """

    fields: dict
    file: TensorFile

    def arrays(self) -> dict[str, np.ndarray]:
        """Read its weights, by the paths of `autoencoder`."""
        names = {
            re.sub(BLOCKS, r"encoder.layer.\1.", name): name
            for name in self.file.tensors
        }
        rows, _ = paths_of(names, TABLE)
        facts = Facts(num_heads=self.fields["decoder_heads"])
        return {
            path: TRANSFORMS[row.transform].load(
                [self.file.read(names[x]) for x in row.names], facts
            )
            for path, row in rows.items()
        }


def read_decoder(source) -> Decoder | None:
    """Open the decoder beside an encoder; None where there is none.

    Args:
        source: folder, or whatever else weights are loaded from.

    Raises:
        ValueError: for a folder that is damaged, or whose config.json has
            other values than a decoder has.

    Example:
        >>> read_decoder("vit-mae-base").fields["decoder_dim"]
        512
    """
    # They read all dialects, of which this is one.
    from keras_vit.checkpoints.engine.keras_files import located
    from keras_vit.checkpoints.engine.loading import open_source

    path = pathlib.Path(str(located(source))) / "config.json"
    if not path.is_file():
        return None
    content = read_json(path)
    if content.get("model_type") != KIND:
        return None
    file = open_source(source).file
    if "decoder.decoder_embed.weight" not in file.tensors:
        return None
    fields = converted(path, {**USUAL, **content}, NAMES, CONVERSIONS)
    return Decoder(fields, file)
