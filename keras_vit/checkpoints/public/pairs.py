"""Where both halves of the image-text models are whose image tower timm lists.

Sources: the `hf_hub_id` of timm 1.0.31 and the pretrained table of open_clip
3.3.0. By name alone, as neither lists them: MetaCLIP 2, TinyCLIP, TIPSv2.
"""

import os
import re

from keras_vit.checkpoints.public import catalog

__all__ = ["pair_repository", "pair_source"]

LAION = r"laion/CLIP-ViT-"
QUICK = "(?:_quickgelu)?"  # The same weights under two names.
SIGLIP = {
    "base_patch16": "B-16",
    "base_patch32": "B-32",
    "large_patch16": "L-16",
    "so400m_patch14": "SO400M-14",
    "so400m_patch16": "SO400M-16",
    "giantopt_patch16": "gopt-16",
}
# timm's name and tag -> repository; the first that fits counts.
RULES = {
    rf"(vit_[a-z]+_patch\d+_clip){QUICK}"
    r"(_\d+\.(?:openai|laion400m_e32|metaclip\w+))": r"timm/\1\2",
    r"vit_base_patch16_plus_clip_240.laion400m_e32": (
        "timm/vit_base_patch16_plus_clip_240.laion400m_e31"
    ),
    r"vit_base_patch32_clip_224.laion2b": f"{LAION}B-32-laion2B-s34B-b79K",
    r"vit_base_patch16_clip_224.laion2b": f"{LAION}B-16-laion2B-s34B-b88K",
    r"vit_large_patch14_clip_224.laion2b": f"{LAION}L-14-laion2B-s32B-b82K",
    r"vit_huge_patch14_clip_224.laion2b": f"{LAION}H-14-laion2B-s32B-b79K",
    r"vit_giant_patch14_clip_224.laion2b": f"{LAION}g-14-laion2B-s34B-b88K",
    r"vit_gigantic_patch14_clip_224.laion2b": (
        f"{LAION}bigG-14-laion2B-39B-b160k"
    ),
    r"vit_base_patch32_clip_224.datacompxl": (
        f"{LAION}B-32-DataComp.XL-s13B-b90K"
    ),
    r"vit_base_patch32_clip_256.datacompxl": (
        f"{LAION}B-32-256x256-DataComp-s34B-b86K"
    ),
    r"vit_base_patch16_clip_224.datacompxl": (
        f"{LAION}B-16-DataComp.XL-s13B-b90K"
    ),
    r"vit_large_patch14_clip_224.datacompxl": (
        f"{LAION}L-14-DataComp.XL-s13B-b90K"
    ),
    r"vit_base_patch16_clip_224.dfn2b": "apple/DFN2B-CLIP-ViT-B-16",
    rf"vit_large_patch14_clip{QUICK}_224.dfn2b": "apple/DFN2B-CLIP-ViT-L-14",
    r"vit_large_patch14_clip_224.dfn2b_s39b": "apple/DFN2B-CLIP-ViT-L-14-39B",
    rf"vit_huge_patch14_clip{QUICK}_224.dfn5b": "apple/DFN5B-CLIP-ViT-H-14",
    rf"vit_huge_patch14_clip{QUICK}_378.dfn5b": (
        "apple/DFN5B-CLIP-ViT-H-14-378"
    ),
    r"vit_base_mci_224.apple_mclip": "apple/MobileCLIP-B-OpenCLIP",
    r"vit_base_mci_224.apple_mclip_lt": "apple/MobileCLIP-B-LT-OpenCLIP",
    r"vit_base_mci_224.apple_mclip2_dfndr2b": "timm/MobileCLIP2-B-OpenCLIP",
    r"vit_large_patch14_clip_224.apple_mclip2_dfndr2b": (
        "timm/MobileCLIP2-L-14-OpenCLIP"
    ),
    r"vit_xsmall_patch16_clip_224.tinyclip_yfcc15m": (
        "wkcn/TinyCLIP-ViT-8M-16-Text-3M-YFCC15M"
    ),
    r"vit_medium_patch16_clip_224.tinyclip_yfcc15m": (
        "wkcn/TinyCLIP-ViT-39M-16-Text-19M-YFCC15M"
    ),
    r"vit_medium_patch32_clip_224.tinyclip_laion400m": (
        "wkcn/TinyCLIP-ViT-40M-32-Text-19M-LAION400M"
    ),
    r"vit_betwixt_patch32_clip_224.tinyclip_laion400m": (
        "wkcn/TinyCLIP-ViT-61M-32-Text-29M-LAION400M"
    ),
    r"(eva02_base_patch16_clip_224.merged2b)": r"timm/\1_s8b_b131k",
    r"(eva02_large_patch14_clip_224.merged2b)": r"timm/\1_s4b_b131k",
    r"(eva02_large_patch14_clip_336.merged2b)": r"timm/\1_s6b_b61k",
    r"(eva02_enormous_patch14_clip_224.laion2b)": r"timm/\1_s4b_b115k",
    r"(eva02_enormous_patch14)(_clip_224.laion2b)_plus": (
        r"timm/\1_plus\2_s9b_b144k"
    ),
    r"(eva_giant_patch14_clip_224.laion400m)": r"timm/\1_s11b_b41k",
    r"(eva_giant_patch14)(_clip_224.merged2b)": r"timm/\1_plus\2_s11b_b114k",
    r"vit_pe_core_tiny_patch16_384.fb": "timm/PE-Core-T-16-384",
    r"vit_pe_core_small_patch16_384.fb": "timm/PE-Core-S-16-384",
    r"vit_pe_core_base_patch16_224.fb": "timm/PE-Core-B-16",
    r"vit_pe_core_large_patch14_336.fb": "timm/PE-Core-L-14-336",
    r"vit_pe_core_gigantic_patch14_448.fb": "timm/PE-Core-bigG-14-448",
    r"vit_base_patch14_reg1_tipsv2.webli": "google/tipsv2-b14",
    r"vit_large_patch14_reg1_tipsv2.webli": "google/tipsv2-l14",
    r"vit_so400m_patch14_reg1_tipsv2.webli": "google/tipsv2-so400m14",
    r"vit_giant_patch14_reg1_tipsv2.webli": "google/tipsv2-g14",
    # The weights of 384 pixels, at 378.
    r"vit_so400m_patch14_siglip(_gap)?_378.webli": (
        "timm/ViT-SO400M-14-SigLIP-384"
    ),
    **{
        rf"(?:naflex)?vit_{size}_siglip(?:_gap)?{pixels}.{tag}": (
            f"timm/ViT-{name}-{repository}"
        )
        for size, name in SIGLIP.items()
        for pixels, tag, repository in (
            ("_224", "webli", "SigLIP"),
            (r"_(\d+)", "webli", r"SigLIP-\1"),
            (r"_(\d+)", "webli_i18n", r"SigLIP-i18n-\1"),
            ("_224", "v2_webli", "SigLIP2"),
            (r"_(\d+)", "v2_webli", r"SigLIP2-\1"),
            ("", "v2_webli", "SigLIP2-naflex"),
        )
    },
}


def pair_repository(tag: str) -> str | None:
    """Return the repository with both halves of one of timm's image towers.

    Args:
        tag: timm's name with its tag, without "timm/".

    Returns:
        The name of the repository, None of an image tower without texts, such
        as one that was fine-tuned on classes.

    Example:
        >>> pair_repository("vit_base_patch16_siglip_256.v2_webli")
        'timm/ViT-B-16-SigLIP2-256'
    """
    for rule, repository in RULES.items():
        if found := re.fullmatch(rule, tag):
            return found.expand(repository)
    return None


def pair_source(source: str | os.PathLike) -> str | os.PathLike:
    """Return the source of both halves of what a name of the catalogue means.

    Args:
        source: a name of the catalogue, or any other source.

    Returns:
        The address of the repository, or `source` as it is.

    Raises:
        ValueError: for a tower without the head that the texts belong to.
    """
    if isinstance(source, os.PathLike) or os.path.exists(source):
        return source
    try:
        entry = catalog.find(None, source)
    except ValueError:
        return source
    for name in (entry.name, *entry.aliases):
        tag = name.removeprefix("timm/")
        if (repository := pair_repository(tag)) is None:
            continue
        if "_gap_" in tag:
            raise ValueError(
                f"{tag!r} is an image tower without the head whose embeddings "
                f"texts are compared with. Load {tag.replace('_gap', '')!r}."
            )
        return f"hf://{repository}"
    return source
