"""The 50,000 files of AugReg, by file name."""

import re

import pytest

from keras_vit.checkpoints.public import catalog

AUGREG = "https://storage.googleapis.com/vit_models/augreg"


@pytest.mark.parametrize(
    ("file_name", "model", "classes", "labels", "image_size"),
    [
        (
            "Ti_16-i1k-300ep-lr_0.001-aug_light0-wd_0.03-do_0.1-sd_0.1",
            "ViT_Ti16",
            1000,
            "imagenet",
            224,
        ),
        (
            "R26_S_32-i21k-30ep-lr_0.001-aug_strong2-wd_0.1-do_0.0-sd_0.0.npz",
            "ViT_R26_S32",
            21843,
            "imagenet21k",
            224,
        ),
        (
            "gs://vit_models/augreg/S_16-i1k-300ep-lr_0.001-aug_none-wd_0.1-"
            "do_0.0-sd_0.0--oxford_iiit_pet-steps_2k-lr_0.003-res_384.npz",
            "ViT_S16",
            37,
            None,
            384,
        ),
    ],
)
def test_augreg_by_file_name(file_name, model, classes, labels, image_size):
    entry = catalog.find(None, file_name)
    assert (entry.model, entry.classes) == (model, classes)
    assert (entry.labels, entry.image_size) == (labels, image_size)
    stem = file_name.rpartition("/")[2].removesuffix(".npz")
    assert entry.url == f"{AUGREG}/{stem}.npz"
    assert entry.file_name == f"{model}_{stem}.npz"
    assert catalog.find(model, file_name) == entry


def test_augreg_file_of_the_catalogue_keeps_what_is_known_of_it():
    entry = catalog.find("ViT_L16", "imagenet")
    assert catalog.find(None, entry.url.rpartition("/")[2]) == entry


@pytest.mark.parametrize(
    "change",
    [
        ("aug_none", "aug_light2"),
        ("wd_0.1", "wd_0.2"),
        ("300ep", "90ep"),
        ("Ti_16", "Ti_8"),
    ],
)
def test_augreg_file_name_with_a_mistake_shows_the_form(change):
    name = "Ti_16-i1k-300ep-lr_0.001-aug_none-wd_0.1-do_0.0-sd_0.0"
    assert catalog.find(None, name).model == "ViT_Ti16"
    with pytest.raises(ValueError, match=re.escape("strong1|strong2")):
        catalog.find(None, name.replace(*change))
