"""Analysis: what a model did and what it sees, in numbers and pictures."""

from keras_vit.analysis.attention_weights import (
    attention_distance,
    attention_grids,
    attention_maps,
    attention_rollout,
    class_attention_maps,
    patch_filters,
    position_similarity,
    to_pixels,
)
from keras_vit.analysis.compute import multiply_adds
from keras_vit.analysis.features import (
    embeddings,
    evolution,
    patch_pca,
    projection,
)
from keras_vit.analysis.plots import (
    overlay,
    plot_attention_distance,
    plot_attention_maps,
    plot_attention_rollout,
    plot_confusion,
    plot_embeddings,
    plot_evolution,
    plot_gradient_cam,
    plot_images,
    plot_neighbours,
    plot_patch_filters,
    plot_patch_pca,
    plot_position_similarity,
    plot_saliency,
)
from keras_vit.analysis.saliency_maps import (
    gradient_cam,
    patch_scores,
    saliency,
)

__all__ = [
    "attention_distance",
    "attention_grids",
    "attention_maps",
    "attention_rollout",
    "class_attention_maps",
    "embeddings",
    "evolution",
    "gradient_cam",
    "multiply_adds",
    "overlay",
    "patch_filters",
    "patch_pca",
    "patch_scores",
    "plot_attention_distance",
    "plot_attention_maps",
    "plot_attention_rollout",
    "plot_confusion",
    "plot_embeddings",
    "plot_evolution",
    "plot_gradient_cam",
    "plot_images",
    "plot_neighbours",
    "plot_patch_filters",
    "plot_patch_pca",
    "plot_position_similarity",
    "plot_saliency",
    "position_similarity",
    "projection",
    "saliency",
    "to_pixels",
]
