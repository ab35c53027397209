"""Heads and hyper-parameters, typed from the papers and the originals' code."""

import pytest

# Attention heads: Table 1 of arXiv:2010.11929 (B, L, H), Table 1 of "How to
# train your ViT?" (arXiv:2106.10270; Ti, S, B, L and the hybrids), Table 2 of
# "Scaling Vision Transformers" (arXiv:2106.04560; M, g, G), "Getting ViT in
# Shape" (arXiv:2305.13035; So400m). No count of parameters shows them.
HEADS = {
    "Ti": 3,
    "S": 6,
    "M": 8,
    "B": 12,
    "L": 16,
    "So400m": 16,
    "H": 16,
    "g": 16,
    "G": 16,
}

# Table 3 of arXiv:2010.11929: model, epochs, learning rate, decay, weight
# decay and dropout.
TABLE_3 = """
jft300m_vit_b        ViT_B16      7     8e-4  linear  0.1   0.0
jft300m_vit_l32      ViT_L32      7     6e-4  linear  0.1   0.0
jft300m_vit_l16      ViT_L16      7/14  4e-4  linear  0.1   0.0
jft300m_vit_h14      ViT_H14      14    3e-4  linear  0.1   0.0
jft300m_r50          BiT_R50x1    7     1e-3  linear  0.1   0.0
jft300m_r101         BiT_R101x1   7     8e-4  linear  0.1   0.0
jft300m_r152         BiT_R152x2   7     6e-4  linear  0.1   0.0
jft300m_r50_vit_b    ViT_R50_B16  7     8e-4  linear  0.1   0.0
jft300m_r50_vit_l32  ViT_R50_L32  7     2e-4  linear  0.1   0.0
jft300m_r50_vit_l16  ViT_R50_B16  7/14  4e-4  linear  0.1   0.0
imagenet21k_vit_b    ViT_B16      90    1e-3  linear  0.03  0.1
imagenet21k_vit_l    ViT_L16      30/90 1e-3  linear  0.03  0.1
imagenet_vit         ViT_B16      300   3e-3  cosine  0.3   0.1
"""

# Table 4 of arXiv:2010.11929: steps and learning rates; what is held out of
# the training set (section B.1.1); the warm-up of the code, which for 500
# steps is that of big_vision's configs/transfer.py.
TABLE_4 = """
imagenet  imagenet2012       20000  0.003/0.01/0.03/0.06   1%   500
cifar100  cifar100           10000  0.001/0.003/0.01/0.03  2%   500
cifar10   cifar10            10000  0.001/0.003/0.01/0.03  2%   500
pets      oxford_iiit_pet    500    0.001/0.003/0.01/0.03  10%  100
flowers   oxford_flowers102  500    0.001/0.003/0.01/0.03  10%  100
"""

# "How to train your ViT?" (arXiv:2106.10270): RandAugment and Mixup of figure
# 4 as big_vision's vit_i1k.py and vit_i21k.py choose for B/16, with their
# loss's head bias, pooling and layer before the head.
AUGREG = """
imagenet2012_b16       imagenet2012  300  2/15/0.5  -6.9   token  768
imagenet21k_b16_30ep   imagenet21k   30   2/10/0.2  -10.0  mean   0
imagenet21k_b16_300ep  imagenet21k   300  2/10/0.2  -10.0  mean   0
"""

# Its appendix on transfer: steps, warm-up, learning rates; the crops are those
# of big_vision's configs/transfer.py.
TRANSFER = """
imagenet2012    imagenet2012     20000  500  0.01/0.03        inception_crop
pets_500        oxford_iiit_pet  500    100  0.001/0.003/0.01 inception_crop
pets_2500       oxford_iiit_pet  2500   200  0.001/0.003/0.01 inception_crop
cifar100_2500   cifar100   2500   200  0.001/0.003/0.01 resize_small_random_crop
cifar100_10000  cifar100   10000  500  0.001/0.003/0.01 resize_small_random_crop
"""

# Section 4.1 of arXiv:2010.11929 and the optimizers of the originals.
ADAM = {
    "optimizer.name": "adamw",
    "optimizer.beta_1": 0.9,
    "optimizer.beta_2": 0.999,
    "optimizer.warmup_steps": 10_000,
    "model.image_size": 224,
    "model.weights": None,
    "training.label_smoothing": 0.0,
    "preprocessing.train": "inception_crop",
    "preprocessing.flip": True,
}
SGD = {
    "optimizer.name": "sgd",
    "optimizer.momentum": 0.9,
    "optimizer.schedule": "cosine",
    "optimizer.weight_decay": 0.0,
    "optimizer.clip_norm": 1.0,
    "model.image_size": 384,
    "model.head": "new",
    "training.batch_size": 512,
    "training.loss": "softmax",
    "training.label_smoothing": 0.0,
    "training.ema_decay": 0.0,
}


def rows(table):
    """The lines of a table as parameters of a test."""
    lines = [line.split() for line in table.strip().splitlines()]
    return [pytest.param(*line, id=line[0]) for line in lines]


def numbers(text):
    return tuple(float(part) for part in text.split("/"))
