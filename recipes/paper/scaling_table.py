"""Models of growing depth, width, MLP and number of patches.

Figure 8 (appendix D.2) of "An Image Is Worth 16x16 Words" (arXiv:2010.11929):
each of its lines changes one dimension of the same model, 8 layers of size
1024 with MLPs of 2048 on patches of 32x32, and one changes all. The paper says
that depth goes up to 64 layers and names no other point of the figure, nor the
number of heads: here each step is a factor of two, as far as patches divide
images of 224x224, and a head has 64 numbers as in the paper's Table 1.
"""

__all__ = ["FIGURE_8"]


def _model(num_layers, hidden_dim, mlp_dim, patch_size, multiply_adds):
    return {
        "num_layers": num_layers,
        "hidden_dim": hidden_dim,
        "mlp_dim": mlp_dim,
        "patch_size": patch_size,
        # Of a forward pass on an image of 224x224 up to the features, in
        # units of 1e9, as keras_vit.planning.count counts them.
        "multiply_adds": multiply_adds,
    }


FIGURE_8 = {
    "base": _model(8, 1024, 2048, 32, 3.551),
    "depth_2": _model(2, 1024, 2048, 32, 1.003),
    "depth_4": _model(4, 1024, 2048, 32, 1.852),
    "depth_16": _model(16, 1024, 2048, 32, 6.947),
    "depth_32": _model(32, 1024, 2048, 32, 13.74),
    "depth_64": _model(64, 1024, 2048, 32, 27.33),
    "width_256": _model(8, 256, 2048, 32, 0.5731),
    "width_512": _model(8, 512, 2048, 32, 1.356),
    "width_2048": _model(8, 2048, 2048, 32, 10.46),
    "width_4096": _model(8, 4096, 2048, 32, 34.33),
    "mlp_512": _model(8, 1024, 512, 32, 2.292),
    "mlp_1024": _model(8, 1024, 1024, 32, 2.712),
    "mlp_4096": _model(8, 1024, 4096, 32, 5.228),
    "mlp_8192": _model(8, 1024, 8192, 32, 8.584),
    "mlp_16384": _model(8, 1024, 16384, 32, 15.29),
    "patch_56": _model(8, 1024, 2048, 56, 1.3),
    "patch_16": _model(8, 1024, 2048, 16, 14.01),
    "patch_8": _model(8, 1024, 2048, 8, 62.93),
    "all_half": _model(4, 512, 1024, 56, 0.2209),
    "all_double": _model(16, 2048, 4096, 16, 108.6),
}
