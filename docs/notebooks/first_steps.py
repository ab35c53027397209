# %% [markdown]
# # First steps
#
# Build a model by name, classify a photograph, and look at features inside the
# model. This runs on a laptop in a minute and needs no network: with
# `WEIGHTS = None` the weights are random, and so are the predictions. With a
# network, set `WEIGHTS = "augreg_imagenet21k_imagenet2012_224"`.

# %% tags=["parameters"]
MODEL = "ViT_Ti16"
WEIGHTS = None  # or a name, see the list below; or the path of a file
CLASSES = 1000

# %%
import os
import pathlib

# Before Keras is imported: tensorflow, jax or torch.
os.environ.setdefault("KERAS_BACKEND", "jax")

import keras

import keras_vit

print(f"keras_vit {keras_vit.__version__}, Keras {keras.__version__}")
print(f"on {keras.backend.backend()}")

# %% [markdown]
# ## A model
#
# As in `keras.applications`, the model maps images in [-1, 1] to class
# probabilities. `keras-vit weights list --model ViT_Ti16` lists the public
# weights.

# %%
keras.utils.set_random_seed(0)
make_model = getattr(keras_vit, MODEL)
model = make_model(weights=WEIGHTS, classes=CLASSES)
print(f"{model.count_params():,} parameters")
print("in", model.input_shape, "out", model.output_shape)
print(*(layer.name for layer in model.layers))

# %% [markdown]
# ## A photograph
#
# This one ships with scikit-learn. Any photograph works; it is resized to the
# input size of the model.

# %%
# %matplotlib inline
import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_image

from keras_vit.analysis import plot_images

height, width = model.input_shape[1:3]
photograph = Image.fromarray(load_sample_image("flower.jpg"))
images = np.asarray(photograph.resize((width, height)))[np.newaxis]
figure = plot_images(images, ["flower.jpg"])
figure.savefig("photograph.png")
figure

# %% [markdown]
# ## Predictions

# %%
scores = model.predict(keras_vit.preprocess_input(images), verbose=0)
if CLASSES == 1000:
    for code, name, share in keras_vit.decode_predictions(scores, top=5)[0]:
        print(f"{share:.2%}  {name} ({code})")

# %% [markdown]
# ## Other images, other classes
#
# The weights fit any image size that the patch size divides, because the
# position embeddings are resampled. Another number of classes gives a new head.

# %%
finer = make_model(weights=WEIGHTS, classes=10, input_shape=(384, 256, 3))
print("in", finer.input_shape, "out", finer.output_shape)
print("patches", finer.config.grid)

# %% [markdown]
# ## Features
#
# Without its head the model returns the features that the head would see. Any
# layer can be an output.

# %%
features = make_model(weights=WEIGHTS, include_top=False, pooling="avg")
print("an image in numbers:", features.output_shape)

block = keras.Model(model.input, model.get_layer("block_5").output)
tokens = block.predict(keras_vit.preprocess_input(images), verbose=0)
print("after the sixth block, one token for each patch and one for the class:")
print(tokens.shape)

# %% [markdown]
# ## Saving
#
# Save and load it as any Keras model. With keras_vit imported you need no
# `custom_objects`.

# %%
path = pathlib.Path("model.keras")
model.save(path)
again = keras.saving.load_model(path)
same = again.predict(keras_vit.preprocess_input(images), verbose=0)
print("the same answer:", np.allclose(same, scores, atol=1e-5))

# %% [markdown]
# Next: `finetune_folder` trains on your own images, and `what_a_vit_looks_at`
# shows what a model sees in them.
