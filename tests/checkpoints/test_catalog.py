"""The catalogue against what the publishers print, and against itself."""

import re
from urllib.parse import urlsplit

import pytest

import keras_vit
from keras_vit import applications, preprocessing
from keras_vit.checkpoints.public import catalog
from keras_vit.checkpoints.public.catalog import WITHOUT_WEIGHTS

ALL = catalog.entries()
VIT_MODELS = "https://storage.googleapis.com/vit_models"

# The README of google-research/vision_transformer: fine-tuned at 384.
README = {
    "ViT_L16": ("L_16", "strong1-wd_0.1-do_0.0-sd_0.0", "0.01", 85.59),
    "ViT_B16": ("B_16", "medium1-wd_0.1-do_0.0-sd_0.0", "0.03", 85.49),
    "ViT_S16": ("S_16", "light1-wd_0.03-do_0.0-sd_0.0", "0.03", 83.73),
    "ViT_R50_L32": ("R50_L_32", "medium1-wd_0.1-do_0.1-sd_0.1", "0.01", 85.99),
    "ViT_R26_S32": ("R26_S_32", "light1-wd_0.1-do_0.0-sd_0.0", "0.01", 83.85),
    "ViT_Ti16": ("Ti_16", "none-wd_0.03-do_0.0-sd_0.0", "0.03", 78.22),
    "ViT_B32": ("B_32", "light1-wd_0.1-do_0.0-sd_0.0", "0.01", 83.59),
    "ViT_S32": ("S_32", "none-wd_0.1-do_0.0-sd_0.0", "0.01", 79.58),
    "ViT_R_Ti16": ("R_Ti_16", "none-wd_0.03-do_0.0-sd_0.0", "0.03", 75.40),
}


def test_lists_have_every_name():
    assert keras_vit.list_models() == sorted(applications.__all__)
    assert keras_vit.list_models("BiT_R50x?") == ["BiT_R50x1", "BiT_R50x3"]
    listed = keras_vit.list_weights()
    keys = {entry.key for entry in ALL}
    assert keys < set(listed)
    assert {"fractals", "ViT_B16/imagenet"} < set(listed) - keys
    assert all(catalog.find(None, x) for x in listed if x != "fractals")
    assert "imagenet" in keras_vit.list_weights("ViT_B16")


def test_models_are_the_applications():
    assert {*catalog.MODELS, *WITHOUT_WEIGHTS} == set(applications.__all__)


@pytest.mark.parametrize("model", README)
def test_imagenet_is_what_the_readme_recommends(model):
    size, augmentation, learning_rate, top1 = README[model]
    entry = catalog.find(model, "imagenet")
    assert entry.url == (
        f"{VIT_MODELS}/augreg/{size}-i21k-300ep-lr_0.001-aug_{augmentation}"
        f"--imagenet2012-steps_20k-lr_{learning_rate}-res_384.npz"
    )
    assert (entry.top1, entry.image_size, entry.classes) == (top1, 384, 1000)
    pretrained = catalog.find(model, "augreg_imagenet21k")
    assert pretrained.url == entry.url.partition("--")[0] + ".npz"
    assert pretrained.classes == 21843


@pytest.mark.parametrize(
    ("model", "path", "image_size"),
    [
        (
            "ViT_B8",
            "vit_models/augreg/B_8-i21k-300ep-lr_0.001-aug_medium2-wd_0.1-"
            "do_0.0-sd_0.0--imagenet2012-steps_20k-lr_0.03-res_224.npz",
            224,
        ),
        ("ViT_L32", "vit_models/imagenet21k%2Bimagenet2012/ViT-L_32.npz", 384),
        (
            "ViT_R50_B16",
            "vit_models/imagenet21k%2Bimagenet2012/R50%2BViT-B_16.npz",
            384,
        ),
        ("Mixer_L16", "mixer_models/imagenet1k/Mixer-L_16.npz", 224),
        ("BiT_R152x4", "bit_models/BiT-M-R152x4-ILSVRC2012.npz", 480),
    ],
)
def test_imagenet_of_the_others(model, path, image_size):
    entry = catalog.find(model, "imagenet")
    assert entry.url == f"https://storage.googleapis.com/{path}"
    assert entry.image_size == image_size


@pytest.mark.parametrize("model", [*catalog.MODELS, *WITHOUT_WEIGHTS])
def test_imagenet_is_a_file_of_1000_classes_or_an_error_with_a_list(model):
    candidates = catalog.entries(model)
    if any(entry.classes == 1000 for entry in candidates):
        assert catalog.find(model, "imagenet").labels == "imagenet"
    else:
        with pytest.raises(ValueError, match=model) as caught:
            catalog.find(model, "imagenet")
        for entry in candidates:
            assert repr(entry.name) in str(caught.value)


@pytest.mark.parametrize("entry", ALL, ids=lambda entry: entry.key)
def test_every_name_finds_its_entry(entry):
    assert catalog.find(None, entry.key) == entry
    assert catalog.find(entry.model, entry.key) == entry
    for name in (entry.name, *entry.aliases):
        assert catalog.find(entry.model, name) == entry
        assert catalog.find(entry.model, name.upper()) == entry


def test_strings_of_older_packages():
    for model in ("ViT_B16", "ViT_B32", "ViT_L16", "ViT_L32"):
        entry = catalog.find(model, "imagenet21k+imagenet2012")
        assert "/imagenet21k%2Bimagenet2012/" in entry.url
        assert entry.image_size == 384
        assert "/imagenet21k/" in catalog.find(model, "imagenet21k").url


def test_addresses_and_names_in_the_cache_are_unique():
    urls = [entry.url for entry in ALL if not entry.architecture]
    assert len(set(urls)) == len(urls)
    names = [entry.aliases for entry in ALL if entry.architecture]
    assert len(set(names)) == len(names)
    # Some disks do not tell a from A.
    names = [e.file_name.lower() for e in ALL if not e.is_repository]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("entry", ALL, ids=lambda entry: entry.key)
def test_fields_fit_together(entry):
    parts = urlsplit(entry.url)
    assert parts.scheme == "https"
    assert "+" not in entry.url
    assert entry.is_repository or parts.path.endswith(".npz")
    assert not set("/\\") & set(entry.file_name)
    labels = {21843: "imagenet21k", 1000: "imagenet", 0: None}
    assert labels.get(entry.classes) == entry.labels
    if entry.labels:
        assert len(preprocessing.class_names(entry.classes)) == entry.classes
    assert (entry.top1 is None) == (entry.top1_source is None)
    assert entry.top1 is None or (entry.classes == 1000 and entry.image_size)
    assert entry.sha256 is None or re.fullmatch("[0-9a-f]{64}", entry.sha256)
    assert entry.preprocessing.value_range == (-1.0, 1.0)


def test_original_is_another_entry_of_the_same_model_and_size():
    derived = [(x, x.same_weights_as) for x in ALL if x.same_weights_as]
    assert len(derived) > 60
    for entry, name in derived:
        original = catalog.find(entry.model, name)
        assert not original.is_repository
        assert original.image_size == entry.image_size
        assert entry.classes in (original.classes, 0)


def test_only_heads_of_original_imagenet21k_vits_are_zero():
    zero = {entry.key for entry in ALL if entry.head_is_zero}
    assert zero == {
        f"ViT_{size}/imagenet21k"
        for size in "B16 B32 B8 L16 L32 H14 R50_B16 R26_B32 R50_L32".split()
    }


def test_pinned_sizes_are_those_of_the_parameters():
    # Four bytes a parameter and some 65 kB of names: 103,186,515 parameters
    # with 21,843 classes and pre-logits, 86,859,496 with 1,000 at 384.
    for name, parameters in (
        ("imagenet21k", 103_186_515),
        ("imagenet21k+imagenet2012", 86_859_496),
    ):
        entry = catalog.find("ViT_B16", name)
        assert entry.num_bytes is not None
        assert 0 < entry.num_bytes - 4 * parameters < 100_000
        assert entry.sha256 is not None


@pytest.mark.parametrize(
    ("model", "weights", "message"),
    [
        ("ViT_B17", "imagenet", "Did you mean ViT_B16"),
        ("ViT_B16", "imagnet21k", "Did you mean imagenet21k"),
        ("ViT_B16", "imagnet", "Did you mean imagenet or"),
        (None, "imagnet", "Did you mean imagenet or .* ViT_B16/imagenet"),
        (None, "ViT_B61/imagenet", "Did you mean ViT_B16/imagenet"),
        ("ViT_g14", "imagenet", "weights=None"),
        (None, "imagenet21k", "ViT_H14/imagenet21k"),
        (None, "ViT_B16/imagenet2012", "ViT_B16"),
        (None, "nonsense", "weights list"),
        (None, "ViT_B16", "such as ViT_B16/imagenet; .* --model ViT_B16"),
        (None, "ViT_R26_B32", "such as ViT_R26_B32/imagenet21k"),
        ("ViT_B16", "none", r"and \d+ more, see `keras-vit weights list"),
        (
            "ViT_S16",
            "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0",
            "a file of ViT_B16, not of ViT_S16",
        ),
    ],
)
def test_what_is_not_there_is_an_error_that_helps(model, weights, message):
    with pytest.raises(ValueError, match=message):
        catalog.find(model, weights)


@pytest.mark.parametrize(
    ("key", "description"),
    [
        # vit_jax/input_pipeline.py.
        ("ViT_B16/imagenet21k", "resize to 224x224 (bilinear)"),
        # timm: floor(224 / 0.9) = 248; floor(224 / 0.875) = 256.
        (
            "timm/vit_base_patch16_224.orig_in21k_ft_in1k",
            "shorter side to 248 (bicubic, antialiased), central 224x224",
        ),
        (
            "timm/mixer_b16_224.goog_in21k_ft_in1k",
            "shorter side to 256 (bicubic, antialiased), central 224x224",
        ),
        (
            "timm/resnetv2_50x1_bit.goog_in21k_ft_in1k",
            "shorter side to 448 (bilinear, antialiased), central 448x448",
        ),
        (
            "timm/resnetv2_152x2_bit.goog_teacher_in21k_ft_in1k_384",
            "shorter side to 384 (bicubic, antialiased), central 384x384",
        ),
        # big_vision: resize_small(256)|central_crop(224).
        (
            "ViT_S16/big_vision_imagenet2012_90ep",
            "shorter side to 256 (area), central 224x224",
        ),
        # image_processing_vit.py.
        (
            "google/vit-base-patch16-384",
            "resize to 384x384 (bilinear, antialiased)",
        ),
        ("BiT_R50x1/imagenet2012", "any size (bilinear)"),
    ],
)
def test_preprocessing_is_that_of_the_published_accuracy(key, description):
    entry = catalog.find(None, key)
    assert entry.preprocessing.describe(entry.image_size) == (
        f"{description}, [0, 255] to [-1, 1]"
    )
