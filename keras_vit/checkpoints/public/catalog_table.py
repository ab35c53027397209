"""The rows of the catalogue, as their publishers print them."""

__all__ = [
    "AUGREG",
    "AUGREG_21K",
    "AUGREG_FINE_TUNED",
    "AUGREG_MODELS",
    "BIT_SIZES",
    "HUGGING_FACE",
    "MODERN",
    "ORIGINAL_21K",
    "ORIGINAL_FINE_TUNED",
    "OTHERS",
    "PINNED",
    "PLAIN_BASELINES",
    "RECOMMENDED",
    "TASKS",
    "TIMM",
    "TIMM_AUGREG",
    "TIMM_MODELS",
    "TIMM_RESULTS",
    "WITHOUT_WEIGHTS",
]

README = "google-research/vision_transformer README"
COLAB = "google-research/vision_transformer vit_jax_augreg.ipynb"
TABLE_5 = "arXiv:2010.11929, Table 5"
TIMM_RESULTS = "timm results/results-imagenet.csv"

# vit_models/imagenet21k: pre-trained at 224, the heads are zero.
# model: file, MiB.
ORIGINAL_21K = {
    "ViT_B16": ("ViT-B_16", 393.69),
    "ViT_B32": ("ViT-B_32", 400.01),
    "ViT_B8": ("ViT-B_8", 393.72),
    "ViT_L16": ("ViT-L_16", 1.22 * 1024),
    "ViT_L32": ("ViT-L_32", 1.23 * 1024),
    "ViT_H14": ("ViT-H_14", 2.46 * 1024),
    "ViT_R50_B16": ("R50+ViT-B_16", 439.85),
    "ViT_R26_B32": ("R26+ViT-B_32", 450.23),
    "ViT_R50_L32": ("R50+ViT-L_32", 1.31 * 1024),
}

# vit_models/imagenet21k+imagenet2012: fine-tuned.
# Model, file, image size, MiB, top-1, its source.
ORIGINAL_FINE_TUNED = [
    ("ViT_B16", "ViT-B_16", 384, 331.4, 83.97, TABLE_5),
    ("ViT_B32", "ViT-B_32", 384, 336.89, 81.28, TABLE_5),
    ("ViT_B8", "ViT-B_8", 384, 334.78, None, None),
    ("ViT_L16", "ViT-L_16", 384, 1.14 * 1024, 85.15, TABLE_5),
    ("ViT_L32", "ViT-L_32", 384, 1.14 * 1024, 80.99, TABLE_5),
    ("ViT_R50_B16", "R50+ViT-B_16", 384, 377.57, None, None),
    ("ViT_B16", "ViT-B_16-224", 224, 330.29, 81.2, README),
    ("ViT_L16", "ViT-L_16-224", 224, 1.13 * 1024, 82.7, README),
]

# Exact size and SHA-256, from copies in Git LFS. Of imagenet21k/ViT-B_32 only
# the beginning is known: c0483c8051e6c5.
PINNED = {
    "vit_models/imagenet21k/ViT-B_16.npz": (
        412_815_506,
        "ac7478131e1b77e5c2f0225849730bd19ee89cfffe600c2dfd2272b34a50a43d",
    ),
    "vit_models/imagenet21k/R50+ViT-B_16.npz": (
        461_217_452,
        "ff009bf39bb4f9198b834cfe46aba2bfdaf730e933ab3e3c4b1edf4226eaafbe",
    ),
    "vit_models/imagenet21k+imagenet2012/ViT-B_16.npz": (
        347_502_902,
        "19d3f569702e80c3a19101c8a3bde16b34f0c475ce565e999cb96068a580fdbf",
    ),
    "vit_models/imagenet21k+imagenet2012/ViT-B_32.npz": (
        353_253_686,
        "6eaaba92f89151ee74c1f11c5bbf69ce6a63eec3fa6a6156ec2828f44182d632",
    ),
    "vit_models/imagenet21k+imagenet2012/R50+ViT-B_16.npz": (
        395_916_008,
        "18adb878c7c0da23221f5816cc6be9e2ff55a1c428469d6e79e564a62ccbbcd1",
    ),
}

# vit_models/augreg, the files that the README recommends (B/8: the Colab).
# model: pre-trained file, its MiB, what its name goes on with when fine-tuned,
# top-1, its source.
AUGREG = {
    "ViT_Ti16": (
        "Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0",
        37,
        "--imagenet2012-steps_20k-lr_0.03-res_384",
        78.22,
        README,
    ),
    "ViT_S32": (
        "S_32-i21k-300ep-lr_0.001-aug_none-wd_0.1-do_0.0-sd_0.0",
        118,
        "--imagenet2012-steps_20k-lr_0.01-res_384",
        79.58,
        README,
    ),
    "ViT_S16": (
        "S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0",
        115,
        "--imagenet2012-steps_20k-lr_0.03-res_384",
        83.73,
        README,
    ),
    "ViT_B32": (
        "B_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0",
        398,
        "--imagenet2012-steps_20k-lr_0.01-res_384",
        83.59,
        README,
    ),
    "ViT_B16": (
        "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0",
        391,
        "--imagenet2012-steps_20k-lr_0.03-res_384",
        85.49,
        README,
    ),
    "ViT_B8": (
        "B_8-i21k-300ep-lr_0.001-aug_medium2-wd_0.1-do_0.0-sd_0.0",
        391,
        "--imagenet2012-steps_20k-lr_0.03-res_224",
        85.9,
        COLAB,
    ),
    "ViT_L16": (
        "L_16-i21k-300ep-lr_0.001-aug_strong1-wd_0.1-do_0.0-sd_0.0",
        1243,
        "--imagenet2012-steps_20k-lr_0.01-res_384",
        85.59,
        README,
    ),
    "ViT_R_Ti16": (
        "R_Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0",
        40,
        "--imagenet2012-steps_20k-lr_0.03-res_384",
        75.40,
        README,
    ),
    "ViT_R26_S32": (
        "R26_S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0",
        170,
        "--imagenet2012-steps_20k-lr_0.01-res_384",
        83.85,
        README,
    ),
    "ViT_R50_L32": (
        "R50_L_32-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.1-sd_0.1",
        1337,
        "--imagenet2012-steps_20k-lr_0.01-res_384",
        85.99,
        README,
    ),
}

# timm's choices. timm's name: ours, the original file, top-1.
AUGREG_21K = "augreg_imagenet21k"
AUGREG_FINE_TUNED = "augreg_imagenet21k_imagenet2012"
AUGREG_1K = "augreg_imagenet2012"
TIMM_AUGREG = {
    "vit_tiny_patch16_224.augreg_in21k": (
        AUGREG_21K,
        "Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0",
        None,
    ),
    "vit_tiny_patch16_224.augreg_in21k_ft_in1k": (
        f"{AUGREG_FINE_TUNED}_224",
        "Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0"
        "--imagenet2012-steps_20k-lr_0.03-res_224",
        75.452,
    ),
    "vit_tiny_patch16_384.augreg_in21k_ft_in1k": (
        AUGREG_FINE_TUNED,
        "Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0"
        "--imagenet2012-steps_20k-lr_0.03-res_384",
        78.438,
    ),
    "vit_small_patch32_224.augreg_in21k": (
        f"{AUGREG_21K}_timm",
        "S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0",
        None,
    ),
    "vit_small_patch32_224.augreg_in21k_ft_in1k": (
        f"{AUGREG_FINE_TUNED}_224",
        "S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0"
        "--imagenet2012-steps_20k-lr_0.03-res_224",
        76.010,
    ),
    "vit_small_patch32_384.augreg_in21k_ft_in1k": (
        f"{AUGREG_FINE_TUNED}_timm",
        "S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0"
        "--imagenet2012-steps_20k-lr_0.03-res_384",
        80.476,
    ),
    "vit_small_patch16_224.augreg_in21k": (
        AUGREG_21K,
        "S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0",
        None,
    ),
    "vit_small_patch16_224.augreg_in21k_ft_in1k": (
        f"{AUGREG_FINE_TUNED}_224",
        "S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0"
        "--imagenet2012-steps_20k-lr_0.03-res_224",
        81.402,
    ),
    "vit_small_patch16_384.augreg_in21k_ft_in1k": (
        AUGREG_FINE_TUNED,
        "S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0"
        "--imagenet2012-steps_20k-lr_0.03-res_384",
        83.814,
    ),
    "vit_base_patch32_224.augreg_in21k": (
        f"{AUGREG_21K}_timm",
        "B_32-i21k-300ep-lr_0.001-aug_medium1-wd_0.03-do_0.0-sd_0.0",
        None,
    ),
    "vit_base_patch32_224.augreg_in21k_ft_in1k": (
        f"{AUGREG_FINE_TUNED}_224",
        "B_32-i21k-300ep-lr_0.001-aug_medium1-wd_0.03-do_0.0-sd_0.0"
        "--imagenet2012-steps_20k-lr_0.03-res_224",
        80.732,
    ),
    "vit_base_patch32_384.augreg_in21k_ft_in1k": (
        f"{AUGREG_FINE_TUNED}_timm",
        "B_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0"
        "--imagenet2012-steps_20k-lr_0.03-res_384",
        83.358,
    ),
    "vit_base_patch16_224.augreg_in21k": (
        AUGREG_21K,
        "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0",
        None,
    ),
    "vit_base_patch16_224.augreg_in21k_ft_in1k": (
        f"{AUGREG_FINE_TUNED}_224",
        "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0"
        "--imagenet2012-steps_20k-lr_0.01-res_224",
        84.534,
    ),
    "vit_base_patch16_384.augreg_in21k_ft_in1k": (
        f"{AUGREG_FINE_TUNED}_timm",
        "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0"
        "--imagenet2012-steps_20k-lr_0.01-res_384",
        86.010,
    ),
    "vit_base_patch8_224.augreg_in21k": (
        f"{AUGREG_21K}_timm",
        "B_8-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0",
        None,
    ),
    "vit_base_patch8_224.augreg_in21k_ft_in1k": (
        f"{AUGREG_FINE_TUNED}_timm",
        "B_8-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0"
        "--imagenet2012-steps_20k-lr_0.01-res_224",
        85.838,
    ),
    "vit_large_patch16_224.augreg_in21k": (
        f"{AUGREG_21K}_timm",
        "L_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.1-sd_0.1",
        None,
    ),
    "vit_large_patch16_224.augreg_in21k_ft_in1k": (
        f"{AUGREG_FINE_TUNED}_224",
        "L_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.1-sd_0.1"
        "--imagenet2012-steps_20k-lr_0.01-res_224",
        85.856,
    ),
    "vit_large_patch16_384.augreg_in21k_ft_in1k": (
        f"{AUGREG_FINE_TUNED}_timm",
        "L_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.1-sd_0.1"
        "--imagenet2012-steps_20k-lr_0.01-res_384",
        87.096,
    ),
    "vit_small_patch16_224.augreg_in1k": (
        f"{AUGREG_1K}_224",
        "S_16-i1k-300ep-lr_0.001-aug_medium2-wd_0.1-do_0.0-sd_0.0"
        "--imagenet2012-steps_20k-lr_0.01-res_224",
        78.842,
    ),
    "vit_small_patch16_384.augreg_in1k": (
        AUGREG_1K,
        "S_16-i1k-300ep-lr_0.001-aug_medium2-wd_0.1-do_0.0-sd_0.0"
        "--imagenet2012-steps_20k-lr_0.01-res_384",
        81.130,
    ),
    "vit_base_patch32_224.augreg_in1k": (
        f"{AUGREG_1K}_224",
        "B_32-i1k-300ep-lr_0.001-aug_medium2-wd_0.1-do_0.1-sd_0.1"
        "--imagenet2012-steps_20k-lr_0.01-res_224",
        74.908,
    ),
    "vit_base_patch32_384.augreg_in1k": (
        AUGREG_1K,
        "B_32-i1k-300ep-lr_0.001-aug_medium2-wd_0.1-do_0.1-sd_0.1"
        "--imagenet2012-steps_20k-lr_0.01-res_384",
        78.750,
    ),
    "vit_base_patch16_224.augreg_in1k": (
        f"{AUGREG_1K}_224",
        "B_16-i1k-300ep-lr_0.001-aug_strong2-wd_0.1-do_0.1-sd_0.1"
        "--imagenet2012-steps_20k-lr_0.01-res_224",
        79.154,
    ),
    "vit_base_patch16_384.augreg_in1k": (
        AUGREG_1K,
        "B_16-i1k-300ep-lr_0.001-aug_strong2-wd_0.1-do_0.1-sd_0.1"
        "--imagenet2012-steps_20k-lr_0.01-res_384",
        81.102,
    ),
    "vit_tiny_r_s16_p8_224.augreg_in21k": (
        AUGREG_21K,
        "R_Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0",
        None,
    ),
    "vit_tiny_r_s16_p8_224.augreg_in21k_ft_in1k": (
        f"{AUGREG_FINE_TUNED}_224",
        "R_Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0"
        "--imagenet2012-steps_20k-lr_0.03-res_224",
        71.800,
    ),
    "vit_tiny_r_s16_p8_384.augreg_in21k_ft_in1k": (
        AUGREG_FINE_TUNED,
        "R_Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0"
        "--imagenet2012-steps_20k-lr_0.03-res_384",
        75.962,
    ),
    "vit_small_r26_s32_224.augreg_in21k": (
        f"{AUGREG_21K}_timm",
        "R26_S_32-i21k-300ep-lr_0.001-aug_medium2-wd_0.03-do_0.0-sd_0.0",
        None,
    ),
    "vit_small_r26_s32_224.augreg_in21k_ft_in1k": (
        f"{AUGREG_FINE_TUNED}_224",
        "R26_S_32-i21k-300ep-lr_0.001-aug_light0-wd_0.03-do_0.1-sd_0.1"
        "--imagenet2012-steps_20k-lr_0.03-res_224",
        81.856,
    ),
    "vit_small_r26_s32_384.augreg_in21k_ft_in1k": (
        f"{AUGREG_FINE_TUNED}_timm",
        "R26_S_32-i21k-300ep-lr_0.001-aug_medium2-wd_0.03-do_0.0-sd_0.0"
        "--imagenet2012-steps_20k-lr_0.03-res_384",
        84.066,
    ),
    "vit_large_r50_s32_224.augreg_in21k": (
        f"{AUGREG_21K}_timm",
        "R50_L_32-i21k-300ep-lr_0.001-aug_medium2-wd_0.1-do_0.0-sd_0.0",
        None,
    ),
    "vit_large_r50_s32_224.augreg_in21k_ft_in1k": (
        f"{AUGREG_FINE_TUNED}_224",
        "R50_L_32-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.1-sd_0.1"
        "--imagenet2012-steps_20k-lr_0.01-res_224",
        84.434,
    ),
    "vit_large_r50_s32_384.augreg_in21k_ft_in1k": (
        f"{AUGREG_FINE_TUNED}_timm",
        "R50_L_32-i21k-300ep-lr_0.001-aug_medium2-wd_0.1-do_0.0-sd_0.0"
        "--imagenet2012-steps_20k-lr_0.01-res_384",
        86.188,
    ),
}

# timm's names of other Google weights, and timm's own fine-tuning of AugReg's.
# timm's name: name of the original file or None, top-1.
TIMM = {
    "vit_base_patch16_224.augreg2_in21k_ft_in1k": (None, 85.108),
    "vit_base_patch8_224.augreg2_in21k_ft_in1k": (None, 86.252),
    "vit_base_patch32_224.orig_in21k": ("imagenet21k", None),
    "vit_base_patch16_224.orig_in21k": ("imagenet21k", None),
    "vit_large_patch32_224.orig_in21k": ("imagenet21k", None),
    "vit_large_patch16_224.orig_in21k": ("imagenet21k", None),
    "vit_huge_patch14_224.orig_in21k": ("imagenet21k", None),
    "vit_base_r50_s16_224.orig_in21k": ("imagenet21k", None),
    "vit_base_patch16_224.orig_in21k_ft_in1k": (
        "imagenet21k_imagenet2012_224",
        81.782,
    ),
    "vit_base_patch16_384.orig_in21k_ft_in1k": (
        "imagenet21k_imagenet2012",
        84.212,
    ),
    "vit_large_patch32_384.orig_in21k_ft_in1k": (
        "imagenet21k_imagenet2012",
        81.508,
    ),
    "vit_base_r50_s16_384.orig_in21k_ft_in1k": (
        "imagenet21k_imagenet2012",
        84.988,
    ),
    "vit_base_patch32_224.sam_in1k": ("sam_imagenet2012", 73.704),
    "vit_base_patch16_224.sam_in1k": ("sam_imagenet2012", 80.246),
    "mixer_b16_224.goog_in21k_ft_in1k": (None, 76.616),
    "mixer_b16_224.goog_in21k": ("imagenet21k", None),
    "mixer_l16_224.goog_in21k_ft_in1k": (None, 72.084),
    "mixer_l16_224.goog_in21k": ("imagenet21k", None),
    "resnetv2_50x1_bit.goog_distilled_in1k": (None, 82.820),
    "resnetv2_152x2_bit.goog_teacher_in21k_ft_in1k": (None, 82.918),
    "resnetv2_152x2_bit.goog_teacher_in21k_ft_in1k_384": (None, 83.858),
    "resnetv2_50x1_bit.goog_in21k_ft_in1k": (
        "imagenet21k_imagenet2012",
        80.386,
    ),
    "resnetv2_50x3_bit.goog_in21k_ft_in1k": (
        "imagenet21k_imagenet2012",
        83.982,
    ),
    "resnetv2_101x1_bit.goog_in21k_ft_in1k": (
        "imagenet21k_imagenet2012",
        82.332,
    ),
    "resnetv2_101x3_bit.goog_in21k_ft_in1k": (
        "imagenet21k_imagenet2012",
        84.430,
    ),
    "resnetv2_152x2_bit.goog_in21k_ft_in1k": (
        "imagenet21k_imagenet2012",
        84.468,
    ),
    "resnetv2_152x4_bit.goog_in21k_ft_in1k": (
        "imagenet21k_imagenet2012",
        84.936,
    ),
    "resnetv2_50x1_bit.goog_in21k": ("imagenet21k", None),
    "resnetv2_50x3_bit.goog_in21k": ("imagenet21k", None),
    "resnetv2_101x1_bit.goog_in21k": ("imagenet21k", None),
    "resnetv2_101x3_bit.goog_in21k": ("imagenet21k", None),
    "resnetv2_152x2_bit.goog_in21k": ("imagenet21k", None),
    "resnetv2_152x4_bit.goog_in21k": ("imagenet21k", None),
}

# Beginning of timm's name: ours.
TIMM_MODELS = {
    "vit_tiny_patch16": "ViT_Ti16",
    "vit_small_patch32": "ViT_S32",
    "vit_small_patch16": "ViT_S16",
    "vit_base_patch32": "ViT_B32",
    "vit_base_patch16": "ViT_B16",
    "vit_base_patch8": "ViT_B8",
    "vit_large_patch32": "ViT_L32",
    "vit_large_patch16": "ViT_L16",
    "vit_huge_patch14": "ViT_H14",
    "vit_tiny_r_s16_p8": "ViT_R_Ti16",
    "vit_small_r26_s32": "ViT_R26_S32",
    "vit_base_r50_s16": "ViT_R50_B16",
    "vit_large_r50_s32": "ViT_R50_L32",
    "mixer_b16": "Mixer_B16",
    "mixer_l16": "Mixer_L16",
    "resnetv2_50x1_bit": "BiT_R50x1",
    "resnetv2_50x3_bit": "BiT_R50x3",
    "resnetv2_101x1_bit": "BiT_R101x1",
    "resnetv2_101x3_bit": "BiT_R101x3",
    "resnetv2_152x2_bit": "BiT_R152x2",
    "resnetv2_152x4_bit": "BiT_R152x4",
}

# Repository: model, image size, data of the classes, the original file.
HUGGING_FACE = {
    "google/vit-base-patch16-224": (
        "ViT_B16",
        224,
        "imagenet2012",
        "imagenet21k_imagenet2012_224",
    ),
    "google/vit-base-patch16-224-in21k": ("ViT_B16", 224, None, "imagenet21k"),
    "google/vit-base-patch16-384": (
        "ViT_B16",
        384,
        "imagenet2012",
        "imagenet21k_imagenet2012",
    ),
    "google/vit-base-patch32-224-in21k": ("ViT_B32", 224, None, "imagenet21k"),
    "google/vit-base-patch32-384": (
        "ViT_B32",
        384,
        "imagenet2012",
        "imagenet21k_imagenet2012",
    ),
    "google/vit-large-patch16-224": (
        "ViT_L16",
        224,
        "imagenet2012",
        "imagenet21k_imagenet2012_224",
    ),
    "google/vit-large-patch16-224-in21k": ("ViT_L16", 224, None, "imagenet21k"),
    "google/vit-large-patch16-384": (
        "ViT_L16",
        384,
        "imagenet2012",
        "imagenet21k_imagenet2012",
    ),
    "google/vit-large-patch32-224-in21k": ("ViT_L32", 224, None, "imagenet21k"),
    "google/vit-large-patch32-384": (
        "ViT_L32",
        384,
        "imagenet2012",
        "imagenet21k_imagenet2012",
    ),
    "google/vit-huge-patch14-224-in21k": ("ViT_H14", 224, None, "imagenet21k"),
    "google/vit-hybrid-base-bit-384": (
        "ViT_R50_B16",
        384,
        "imagenet2012",
        "imagenet21k_imagenet2012",
    ),
}

# Model, name, path under STORAGE, MiB, whether somebody was seen to load it;
# all at 224 and of the classes that the name ends with.
OTHERS = [
    ("ViT_B16", "sam_imagenet2012", "vit_models/sam/ViT-B_16.npz", 330.3, True),
    (
        "ViT_B32",
        "sam_imagenet2012",
        "vit_models/sam/ViT-B_32.npz",
        336.61,
        True,
    ),
    (
        "ViT_L16",
        "sam_imagenet2012",
        "vit_models/sam/ViT-L_16.npz",
        1.13 * 1024,
        True,
    ),
    (
        "ViT_L32",
        "sam_imagenet2012",
        "vit_models/sam/ViT-L_32.npz",
        1.14 * 1024,
        True,
    ),
    # Three times its weights: the optimizer's state is in the file too.
    (
        "ViT_S16",
        "sam_imagenet2012",
        "vit_models/sam/ViT-S_16.npz",
        252.57,
        True,
    ),
    # The README: file names are the model names of vit_jax/configs/models.py.
    (
        "ViT_S16",
        "gsam_imagenet2012",
        "vit_models/gsam/ViT-S_16-gap-norep.npz",
        None,
        False,
    ),
    (
        "ViT_S32",
        "gsam_imagenet2012",
        "vit_models/gsam/ViT-S_32-gap-norep.npz",
        None,
        False,
    ),
    (
        "ViT_B16",
        "gsam_imagenet2012",
        "vit_models/gsam/ViT-B_16-gap-norep.npz",
        None,
        False,
    ),
    (
        "ViT_B32",
        "gsam_imagenet2012",
        "vit_models/gsam/ViT-B_32-gap-norep.npz",
        None,
        False,
    ),
    (
        "Mixer_B16",
        "imagenet2012",
        "mixer_models/imagenet1k/Mixer-B_16.npz",
        228.47,
        True,
    ),
    (
        "Mixer_L16",
        "imagenet2012",
        "mixer_models/imagenet1k/Mixer-L_16.npz",
        794.29,
        True,
    ),
    (
        "Mixer_B16",
        "imagenet21k",
        "mixer_models/imagenet21k/Mixer-B_16.npz",
        289.61,
        True,
    ),
    (
        "Mixer_L16",
        "imagenet21k",
        "mixer_models/imagenet21k/Mixer-L_16.npz",
        875.78,
        True,
    ),
    (
        "Mixer_B16",
        "sam_imagenet2012",
        "mixer_models/sam/Mixer-B_16.npz",
        None,
        True,
    ),
    (
        "Mixer_B32",
        "sam_imagenet2012",
        "mixer_models/sam/Mixer-B_32.npz",
        None,
        True,
    ),
    (
        "Mixer_B16",
        "gsam_imagenet2012",
        "mixer_models/gsam/Mixer-B_16.npz",
        None,
        True,
    ),
    (
        "Mixer_B32",
        "gsam_imagenet2012",
        "mixer_models/gsam/Mixer-B_32.npz",
        None,
        True,
    ),
    (
        "Mixer_S8",
        "gsam_imagenet2012",
        "mixer_models/gsam/Mixer-S_8.npz",
        None,
        True,
    ),
    (
        "Mixer_S16",
        "gsam_imagenet2012",
        "mixer_models/gsam/Mixer-S_16.npz",
        None,
        True,
    ),
    (
        "Mixer_S32",
        "gsam_imagenet2012",
        "mixer_models/gsam/Mixer-S_32.npz",
        None,
        True,
    ),
]

BIT_SIZES = ("R50x1", "R50x3", "R101x1", "R101x3", "R152x2", "R152x4")

# Epochs: top-1 (arXiv:2205.01580).
PLAIN_BASELINES = {90: 76.5, 150: 78.5, 300: 80.0}

# What weights="imagenet" is: AugReg where it has the model, then the paper's
# own, then SAM, then GSAM, then DeiT III.
RECOMMENDED = (
    AUGREG_FINE_TUNED,
    "imagenet21k_imagenet2012",
    "imagenet2012",
    "sam_imagenet2012",
    "gsam_imagenet2012",
    "deit3",
)

# Applications of which nothing is public in these collections.
WITHOUT_WEIGHTS = (
    "Mixer_H14",
    "Mixer_L32",
    "ViT_G14",
    "ViT_g14",
)

# Weights that came after the paper, in repositories of timm: name, and for
# each model timm's name. What timm says of them is in timm_weights.csv, by
# `python tools/make_timm_table.py`.
MODERN = {
    "dino": {
        "ViT_S8": "vit_small_patch8_224.dino",
        "ViT_S16": "vit_small_patch16_224.dino",
        "ViT_B8": "vit_base_patch8_224.dino",
        "ViT_B16": "vit_base_patch16_224.dino",
    },
    "dinov2": {
        "ViT_S14": "vit_small_patch14_dinov2.lvd142m",
        "ViT_B14": "vit_base_patch14_dinov2.lvd142m",
        "ViT_L14": "vit_large_patch14_dinov2.lvd142m",
    },
    "dinov2_registers": {
        "ViT_S14": "vit_small_patch14_reg4_dinov2.lvd142m",
        "ViT_B14": "vit_base_patch14_reg4_dinov2.lvd142m",
        "ViT_L14": "vit_large_patch14_reg4_dinov2.lvd142m",
    },
    "dinov3": {
        "ViT_S16": "vit_small_patch16_dinov3.lvd1689m",
        "ViT_B16": "vit_base_patch16_dinov3.lvd1689m",
        "ViT_L16": "vit_large_patch16_dinov3.lvd1689m",
    },
    "dinov3_satellite": {"ViT_L16": "vit_large_patch16_dinov3.sat493m"},
    "mae": {
        "ViT_B16": "vit_base_patch16_224.mae",
        "ViT_L16": "vit_large_patch16_224.mae",
        "ViT_H14": "vit_huge_patch14_224.mae",
    },
    "clip_openai": {
        "ViT_B32": "vit_base_patch32_clip_quickgelu_224.openai",
        "ViT_B16": "vit_base_patch16_clip_quickgelu_224.openai",
        "ViT_L14": "vit_large_patch14_clip_quickgelu_224.openai",
    },
    "clip_openai_336": {
        "ViT_L14": "vit_large_patch14_clip_quickgelu_336.openai",
    },
    "clip_laion2b": {
        "ViT_B32": "vit_base_patch32_clip_224.laion2b",
        "ViT_B16": "vit_base_patch16_clip_224.laion2b",
        "ViT_L14": "vit_large_patch14_clip_224.laion2b",
        "ViT_H14": "vit_huge_patch14_clip_224.laion2b",
    },
    "clip_datacomp": {
        "ViT_B32": "vit_base_patch32_clip_224.datacompxl",
        "ViT_B16": "vit_base_patch16_clip_224.datacompxl",
        "ViT_L14": "vit_large_patch14_clip_224.datacompxl",
    },
    "metaclip": {
        "ViT_B32": "vit_base_patch32_clip_quickgelu_224.metaclip_2pt5b",
        "ViT_B16": "vit_base_patch16_clip_quickgelu_224.metaclip_2pt5b",
        "ViT_L14": "vit_large_patch14_clip_quickgelu_224.metaclip_2pt5b",
    },
    "siglip": {
        "ViT_B16": "vit_base_patch16_siglip_224.webli",
        "ViT_L16": "vit_large_patch16_siglip_256.webli",
        "ViT_So400m14": "vit_so400m_patch14_siglip_224.webli",
    },
    "siglip_384": {
        "ViT_B16": "vit_base_patch16_siglip_384.webli",
        "ViT_L16": "vit_large_patch16_siglip_384.webli",
        "ViT_So400m14": "vit_so400m_patch14_siglip_384.webli",
    },
    "siglip2": {
        "ViT_B32": "vit_base_patch32_siglip_256.v2_webli",
        "ViT_B16": "vit_base_patch16_siglip_224.v2_webli",
        "ViT_L16": "vit_large_patch16_siglip_256.v2_webli",
        "ViT_So400m14": "vit_so400m_patch14_siglip_224.v2_webli",
        "ViT_So400m16": "vit_so400m_patch16_siglip_256.v2_webli",
    },
    "siglip2_384": {
        "ViT_B16": "vit_base_patch16_siglip_384.v2_webli",
        "ViT_L16": "vit_large_patch16_siglip_384.v2_webli",
        "ViT_So400m16": "vit_so400m_patch16_siglip_384.v2_webli",
    },
    "siglip2_512": {
        "ViT_B16": "vit_base_patch16_siglip_512.v2_webli",
        "ViT_L16": "vit_large_patch16_siglip_512.v2_webli",
        "ViT_So400m16": "vit_so400m_patch16_siglip_512.v2_webli",
    },
    "deit": {
        "ViT_Ti16": "deit_tiny_patch16_224.fb_in1k",
        "ViT_S16": "deit_small_patch16_224.fb_in1k",
        "ViT_B16": "deit_base_patch16_224.fb_in1k",
    },
    "deit_384": {"ViT_B16": "deit_base_patch16_384.fb_in1k"},
    "deit3": {
        "ViT_S16": "deit3_small_patch16_224.fb_in22k_ft_in1k",
        "ViT_B16": "deit3_base_patch16_224.fb_in22k_ft_in1k",
        "ViT_L16": "deit3_large_patch16_224.fb_in22k_ft_in1k",
        "ViT_H14": "deit3_huge_patch14_224.fb_in22k_ft_in1k",
    },
    "deit3_384": {
        "ViT_S16": "deit3_small_patch16_384.fb_in22k_ft_in1k",
        "ViT_B16": "deit3_base_patch16_384.fb_in22k_ft_in1k",
        "ViT_L16": "deit3_large_patch16_384.fb_in22k_ft_in1k",
    },
    "beit": {
        "ViT_B16": "beit_base_patch16_224.in22k_ft_in22k_in1k",
        "ViT_L16": "beit_large_patch16_224.in22k_ft_in22k_in1k",
    },
    "beit_384": {
        "ViT_B16": "beit_base_patch16_384.in22k_ft_in22k_in1k",
        "ViT_L16": "beit_large_patch16_384.in22k_ft_in22k_in1k",
    },
    "beitv2": {
        "ViT_B16": "beitv2_base_patch16_224.in1k_ft_in22k_in1k",
        "ViT_L16": "beitv2_large_patch16_224.in1k_ft_in22k_in1k",
    },
    "beit3": {
        "ViT_B16": "beit3_base_patch16_224.in22k_ft_in1k",
        "ViT_L16": "beit3_large_patch16_224.in22k_ft_in1k",
    },
    "perception_core": {
        "ViT_Ti16": "vit_pe_core_tiny_patch16_384.fb",
        "ViT_S16": "vit_pe_core_small_patch16_384.fb",
        "ViT_B16": "vit_pe_core_base_patch16_224.fb",
        "ViT_L14": "vit_pe_core_large_patch14_336.fb",
    },
    "perception_spatial": {
        "ViT_Ti16": "vit_pe_spatial_tiny_patch16_512.fb",
        "ViT_S16": "vit_pe_spatial_small_patch16_512.fb",
        "ViT_B16": "vit_pe_spatial_base_patch16_512.fb",
        "ViT_L14": "vit_pe_spatial_large_patch14_448.fb",
    },
}

# File names of AugReg: model.
AUGREG_MODELS = {
    "Ti_16": "ViT_Ti16",
    "S_32": "ViT_S32",
    "S_16": "ViT_S16",
    "B_32": "ViT_B32",
    "B_16": "ViT_B16",
    "B_8": "ViT_B8",
    "L_16": "ViT_L16",
    "R_Ti_16": "ViT_R_Ti16",
    "R26_S_32": "ViT_R26_S32",
    "R50_L_32": "ViT_R50_L32",
}
# What AugReg fine-tunes on: number of classes.
TASKS = {
    "imagenet2012": 1000,
    "cifar100": 100,
    "oxford_iiit_pet": 37,
    "kitti": 4,
    "resisc45": 45,
}
