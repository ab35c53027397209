"""Data sets by short names, with the splits of the papers.

A row is a name of tensorflow-datasets and its splits for training, validation
and test. The parts held out are those of the paper's Table 4 and of
big_vision's `configs/transfer.py`: 2 % of CIFAR, 1 % of ImageNet, 10 % of
Pets and Flowers; the final run of the paper is on the whole training set
(`train_split="train"`). big_vision holds 51 200 images of ImageNet-21k out.
"""

PRESETS = {
    "digits": {"tfds_name": "keras_vit_digits", "splits": None},
    "cifar10": {
        "tfds_name": "cifar10",
        "splits": ("train[:98%]", "train[98%:]", "test"),
    },
    "cifar100": {
        "tfds_name": "cifar100",
        "splits": ("train[:98%]", "train[98%:]", "test"),
    },
    "oxford_iiit_pet": {
        "tfds_name": "oxford_iiit_pet",
        "splits": ("train[:90%]", "train[90%:]", "test"),
    },
    "oxford_flowers102": {
        "tfds_name": "oxford_flowers102",
        "splits": ("train[:90%]", "train[90%:]", "test"),
    },
    "imagenet2012": {
        "tfds_name": "imagenet2012",
        "splits": ("train[:99%]", "train[99%:]", "validation"),
    },
    "imagenette": {
        "tfds_name": "imagenette/full-size-v2",
        "splits": ("train[:90%]", "train[90%:]", "validation"),
    },
    # Not in tensorflow-datasets: the user prepares it under this name.
    "imagenet21k": {
        "tfds_name": "imagenet21k",
        "splits": ("full[51200:]", "full[:51200]", None),
    },
}
