"""Where both halves of timm's image towers are."""

import re

import pytest

from keras_vit.checkpoints.public import catalog
from keras_vit.checkpoints.public.catalog import pair_repository, pair_source

# timm's names, and the repositories of open_clip's pretrained table.
KNOWN = {
    "vit_base_patch32_clip_quickgelu_224.openai": (
        "timm/vit_base_patch32_clip_224.openai"
    ),
    "vit_gigantic_patch14_clip_224.laion2b": (
        "laion/CLIP-ViT-bigG-14-laion2B-39B-b160k"
    ),
    "vit_large_patch14_clip_224.dfn2b_s39b": "apple/DFN2B-CLIP-ViT-L-14-39B",
    "vit_base_mci_224.apple_mclip_lt": "apple/MobileCLIP-B-LT-OpenCLIP",
    "eva02_enormous_patch14_clip_224.laion2b_plus": (
        "timm/eva02_enormous_patch14_plus_clip_224.laion2b_s9b_b144k"
    ),
    "eva_giant_patch14_clip_224.merged2b": (
        "timm/eva_giant_patch14_plus_clip_224.merged2b_s11b_b114k"
    ),
    "vit_base_patch16_siglip_256.webli_i18n": "timm/ViT-B-16-SigLIP-i18n-256",
    "vit_so400m_patch14_siglip_224.webli": "timm/ViT-SO400M-14-SigLIP",
    "vit_so400m_patch14_siglip_378.webli": "timm/ViT-SO400M-14-SigLIP-384",
    "vit_giantopt_patch16_siglip_384.v2_webli": "timm/ViT-gopt-16-SigLIP2-384",
    "naflexvit_base_patch16_siglip.v2_webli": (
        "google/siglip2-base-patch16-naflex"
    ),
    "vit_pe_core_gigantic_patch14_448.fb": "timm/PE-Core-bigG-14-448",
    "vit_giant_patch14_reg1_tipsv2.webli": "google/tipsv2-g14",
}
# Of an image-text pair; not fine-tuned on classes, nor on PaliGemma's texts.
IS_PAIR = r"(?!.*(_ft_in|\.pali)).*(_clip_|_mci_|siglip|pe_core|tipsv2).*\..*"


def test_each_tower_of_a_pair_has_its_repository():
    tags = [x.removeprefix("timm/") for x in catalog.library_entries()]
    found = {x for x in tags if pair_repository(x)}
    assert found == {x for x in tags if re.fullmatch(IS_PAIR, x)}
    assert len(found) == 131
    assert {x: pair_repository(x) for x in KNOWN} == KNOWN


def test_a_name_is_that_of_both_halves():
    repository = "hf://timm/ViT-B-16-SigLIP-256"
    assert pair_source("vit_base_patch16_siglip_256.webli") == repository
    assert pair_source("timm/vit_base_patch16_siglip_256.webli") == repository
    for other in ("folder", "hf://user/name"):
        assert pair_source(other) == other
    with pytest.raises(ValueError, match=r"Load 'vit_base_patch16_siglip_256"):
        pair_source("vit_base_patch16_siglip_gap_256.webli")


@pytest.mark.parametrize(
    "name",
    [
        "timm/vit_base_patch16_clip_224.laion2b_ft_in12k_in1k",
        "timm/vit_so400m_patch14_siglip_gap_224.pali_mix",
        "ViT_B16/augreg_imagenet21k",
    ],
)
def test_a_tower_whose_texts_no_longer_fit_is_refused(name):
    """Texts of the weights before would answer nonsense without an error."""
    with pytest.raises(ValueError, match="has no tower of texts"):
        pair_source(name)
