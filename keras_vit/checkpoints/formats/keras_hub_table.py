"""Names in the preset folders of keras-hub.

Source: keras-hub 0.32.0 (src/models/vit/vit_layers.py,
vit_image_classifier.py), and how Keras names what it saves.
"""

__all__ = ["KERAS_HUB"]

EMBEDDING = "layers/vi_t_patching_and_embedding"
BLOCK = "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block_{i}"
PROJECTIONS = ("query_dense", "key_dense", "value_dense")


def layer(ours, theirs, names=("kernel", "bias"), kernel="same"):
    """Rows of a layer of two weights."""
    return {
        f"{ours}/{names[0]}": (f"{theirs}/vars/0", kernel),
        f"{ours}/{names[1]}": (f"{theirs}/vars/1", "same"),
    }


def norm(ours, theirs):
    return layer(ours, theirs, ("gamma", "beta"))


KERAS_HUB = {
    **layer("patch_embed/projection", f"{EMBEDDING}/patch_embedding"),
    "class_token/token": (f"{EMBEDDING}/vars/0", "same"),
    "position_embedding/embedding": (
        f"{EMBEDDING}/position_embedding/vars/0",
        "rows",
    ),
    **norm("block_{i}/attention_norm", f"{BLOCK}/layer_norm_1"),
    "block_{i}/attention/qkv/kernel": (
        tuple(f"{BLOCK}/mha/{x}/vars/0" for x in PROJECTIONS),
        "heads_qkv",
    ),
    "block_{i}/attention/qkv/bias": (
        tuple(f"{BLOCK}/mha/{x}/vars/1" for x in PROJECTIONS),
        "heads_qkv",
    ),
    **layer(
        "block_{i}/attention/out",
        f"{BLOCK}/mha/output_dense",
        kernel="heads_out",
    ),
    **norm("block_{i}/mlp_norm", f"{BLOCK}/layer_norm_2"),
    **layer("block_{i}/mlp/dense", f"{BLOCK}/mlp/dense_1"),
    **layer("block_{i}/mlp/dense_1", f"{BLOCK}/mlp/dense_2"),
    **norm("encoder_norm", "layers/vi_t_encoder/layer_norm"),
    **layer("pre_logits", "pre_logits"),
    **layer("predictions", "predictions"),
}
