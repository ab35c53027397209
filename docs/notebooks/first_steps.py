# %% [markdown]
# # First steps
#
# A model by its name, what it says of a photograph, and what lies inside it.
# It runs on a laptop in a minute and needs no network: the weights are random
# as long as `WEIGHTS` is None, so what the model says means nothing. With a
# network, take `WEIGHTS = "augreg_imagenet21k_imagenet2012_224"`.

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
# Called as in `keras.applications`: from images in [-1, 1] to a probability
# for each class. `keras-vit weights list --model ViT_Ti16` lists what is
# public.

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
# One that ships inside scikit-learn. Any size will do: it is scaled to that
# of the model.

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
# ## What the model says

# %%
scores = model.predict(keras_vit.preprocess_input(images), verbose=0)
if CLASSES == 1000:
    for code, name, share in keras_vit.decode_predictions(scores, top=5)[0]:
        print(f"{share:.2%}  {name} ({code})")

# %% [markdown]
# ## Other images, other classes
#
# Weights of one image size fit any other that the patch divides: the position
# embeddings are resampled. Another number of classes is a new head.

# %%
finer = make_model(weights=WEIGHTS, classes=10, input_shape=(384, 256, 3))
print("in", finer.input_shape, "out", finer.output_shape)
print("patches", finer.config.grid)

# %% [markdown]
# ## Features
#
# Without the head the model gives what the head would see; any layer can be
# an output.

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
# As any Keras model; it needs no `custom_objects` where keras_vit is imported.

# %%
path = pathlib.Path("model.keras")
model.save(path)
again = keras.saving.load_model(path)
same = again.predict(keras_vit.preprocess_input(images), verbose=0)
print("the same answer:", np.allclose(same, scores, atol=1e-5))

# %% [markdown]
# Next: `finetune_folder` trains on images of your own, and
# `what_a_vit_looks_at` shows what it sees in them.
