# %% [markdown]
# # What does a ViT look at?
#
# A small Vision Transformer learns to classify a shape in a noisy image. We
# look at its attention, at the patches that matter, and at what it learns
# about positions. This needs no network and takes a minute or two. With a
# network, use a model of the paper and your own `images` in [-1, 1]:
#
# ```python
# import keras_vit
#
# model = keras_vit.ViT_B16(weights="augreg_imagenet21k_imagenet2012_224")
# ```

# %% tags=["parameters"]
EPOCHS = 10
IMAGES = 3000
SIZE = 32  # pixels

# %%
# %matplotlib inline
import os

# Before Keras is imported: tensorflow, jax or torch.
os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

from keras_vit import analysis

print(f"Keras {keras.__version__} on {keras.backend.backend()}")

# %% [markdown]
# ## Images whose answer is known
#
# A disc, a square or a cross in any colour, somewhere in coloured noise. We
# know where the shape is, so we can measure whether the model looks at it.

# %%
NAMES = ("disc", "square", "cross")
RADIUS = SIZE // 7


def masks(random, labels):
    """Where the shape lies: True inside, (images, SIZE, SIZE)."""
    centres = random.integers(RADIUS, SIZE - RADIUS, (2, len(labels), 1, 1))
    rows, columns = np.abs(np.indices((SIZE, SIZE))[:, np.newaxis] - centres)
    inside = np.maximum(rows, columns) <= RADIUS
    shapes = [
        rows**2 + columns**2 <= RADIUS**2,
        inside,
        inside & (np.minimum(rows, columns) <= RADIUS // 3),
    ]
    return np.choose(labels[:, np.newaxis, np.newaxis], shapes)


def drawn(seed, count):
    """Images in [-1, 1], their labels, and where the shapes lie."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, len(NAMES), count)
    inside = masks(random, labels)
    noise = random.normal(0, 0.3, (count, SIZE, SIZE, 3))
    colours = random.choice([-0.9, 0.9], (count, 1, 1, 3))
    images = np.where(inside[..., np.newaxis], colours + noise / 3, noise)
    return np.clip(images, -1, 1).astype("float32"), labels, inside


images, labels, inside = drawn(seed=1, count=6)
figure = analysis.plot_images(images, [NAMES[label] for label in labels])
figure.savefig("images.png")
figure

# %% [markdown]
# ## The model

# %%
from keras_vit.models import VisionTransformer, ViTConfig

keras.utils.set_random_seed(0)
model = VisionTransformer(
    ViTConfig(
        image_size=SIZE,
        patch_size=4,
        hidden_dim=48,
        num_layers=4,
        mlp_dim=96,
        num_heads=4,
        num_classes=len(NAMES),
    )
)
known = drawn(seed=0, count=IMAGES)
steps = EPOCHS * -(-IMAGES // 64)
rate = keras.optimizers.schedules.CosineDecay(
    0.0, steps, warmup_target=2e-3, warmup_steps=steps // 10
)
model.compile(
    keras.optimizers.AdamW(rate, clipnorm=1.0),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
model.fit(
    *known[:2], batch_size=64, epochs=EPOCHS, verbose=2, validation_split=0.1
)

# %% [markdown]
# ## Attention
#
# The attention of the class token to each patch, by head and block, for the
# first image.

# %%
maps = analysis.attention_maps(model, images)
grids = analysis.attention_grids(model, maps)
figure = analysis.plot_attention_maps(grids[:, 0])
figure.savefig("attention.png")
figure

# %% [markdown]
# Attention rollout follows the attention through all blocks, as in Figure 6
# of the paper. Dark patches do not reach the class token.

# %%
rollout = analysis.attention_rollout(model, images)
figure = analysis.plot_attention_rollout(images, rollout)
figure.savefig("rollout.png")
figure

# %% [markdown]
# Does the model look at the shape? We compare the share of the map on the shape
# with chance: 1 means no preference.

# %%
pixels = np.maximum(analysis.to_pixels(model, rollout), 0)
share = (pixels * inside).sum(axis=(1, 2)) / pixels.sum(axis=(1, 2))
print("times chance:", *np.round(share / inside.mean(axis=(1, 2)), 1))

# %% [markdown]
# ## Which patches speak for the class?
#
# Grad-CAM shows the patches that raise the score of the class. That may be the
# noise around a shape as well as the shape; a dark map has none.
# `analysis.saliency` does the same for pixels, with the library `saliency`.

# %%
cam = analysis.gradient_cam(model, images)
figure = analysis.plot_gradient_cam(images, cam)
figure.savefig("gradient_cam.png")
figure

# %% [markdown]
# ## Positions
#
# The similarity of position embeddings, one small map for each patch (Figure 7,
# centre), and how far each head looks (Figure 7, right).

# %%
figure = analysis.plot_position_similarity(analysis.position_similarity(model))
figure.savefig("positions.png")
figure

# %%
distances = analysis.attention_distance(model, images)
figure = analysis.plot_attention_distance(distances)
figure.savefig("distances.png")
figure

# %% [markdown]
# ## From pixels to classes
#
# The principal components of the patch embedding (Figure 7, left), those of the
# patches from block to block as colours, and images as points: close points are
# similar to the head.

# %%
figure = analysis.plot_patch_filters(analysis.patch_filters(model))
figure.savefig("filters.png")
figure

# %%
figure = analysis.plot_evolution(images, analysis.evolution(model, images))
figure.savefig("evolution.png")
figure

# %%
many, many_labels, _ = drawn(seed=2, count=200)
points = analysis.projection(analysis.embeddings(model, many))
figure = analysis.plot_embeddings(points, many_labels, NAMES)
figure.savefig("embeddings.png")
figure
