# %% [markdown]
# # Fine-tune on your own folder
#
# Train a classifier on a folder of images, and look at its learning curves and
# mistakes. This needs no network: with `DATA = None` the notebook makes a
# folder of scikit-learn's handwritten digits and trains a small model from
# scratch. For your own photographs, set
#
# ```python
# DATA = "path/to/folder"  # folder/class/*.jpg, or folder/{train,val,test}/...
# MODEL = {"name": "ViT_B16", "weights": "imagenet21k", "image_size": 224}
# LEARNING_RATE, EPOCHS, FLIP = 1e-4, 10, True
# ```

# %% tags=["parameters"]
DATA = None
MODEL = {"image_size": 16, "channels": 1}
EPOCHS = 25
BATCH_SIZE = 64
LEARNING_RATE = 2e-3
FLIP = False  # whether a mirrored image is one of the same class
RUN = "runs/folder"

# %%
import os
import pathlib

# Before Keras is imported: tensorflow, jax or torch.
os.environ.setdefault("KERAS_BACKEND", "jax")

import keras

import keras_vit

print(f"Keras {keras.__version__} on {keras.backend.backend()}")

# %% [markdown]
# ## The folder
#
# Each class has its own folder. Without folders `train`, `val` and `test`, a
# share of each class is set aside.

# %%
import numpy as np
from PIL import Image

from keras_vit.data import DataConfig, open_dataset

if DATA is None:
    from sklearn.datasets import load_digits

    DATA = "digits"
    digits = load_digits()
    pixels = np.rint(digits.images * 255 / 16).astype("uint8")
    for number, (image, label) in enumerate(
        zip(pixels, digits.target, strict=True)
    ):
        folder = pathlib.Path(DATA, f"digit {label}")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number:04}.png")

data = DataConfig(folder=str(DATA), split_by="position")
dataset = open_dataset(data)
names = dataset.class_names
print(f"{len(names)} classes: {', '.join(names)}")
print(
    f"{len(dataset.train)} images to train on, {len(dataset.validation)} to "
    f"validate, {len(dataset.test)} to test"
)

# %%
# %matplotlib inline
from keras_vit.analysis import plot_images

shown = dataset.train.subset(
    np.random.default_rng(0).permutation(len(dataset.train))[:18]
)
pictures = [
    Image.open(path).convert("RGB").resize((96, 96)) for path in shown.contents
]
figure = plot_images(
    np.stack(pictures), [names[label] for label in shown.labels]
)
figure.savefig("images.png")
figure

# %% [markdown]
# ## The recipe
#
# A recipe defines a run. `help(keras_vit.training.Recipe)` and `keras-vit
# finetune --help` list all options.

# %%
from keras_vit.data import AugmentationConfig, PreprocessingConfig
from keras_vit.training import (
    ModelConfig,
    OptimizerConfig,
    Recipe,
    TrainingConfig,
    train,
)

recipe = Recipe(
    data=data,
    model=ModelConfig(**MODEL),
    preprocessing=PreprocessingConfig(
        train="squash", evaluation="squash", flip=FLIP
    ),
    augmentation=AugmentationConfig(shift=0.08, rotation=10, zoom=0.1),
    optimizer=OptimizerConfig(
        learning_rate=LEARNING_RATE, warmup_epochs=0.1 * EPOCHS
    ),
    training=TrainingConfig(epochs=EPOCHS, batch_size=BATCH_SIZE),
    run_dir=RUN,
    overwrite=True,
)

# %% [markdown]
# ## Training
#
# Interrupt the training at any time and run the cell again: it resumes.

# %%
run = train(recipe, dataset=dataset)

# %%
from keras_vit.analysis import plots

epochs = range(1, len(run.history["loss"]) + 1)
figure = plots.curves(
    {
        "training": (epochs, run.history["accuracy"]),
        "validation": (epochs, run.history["val_accuracy"]),
    },
    xlabel="epoch",
    ylabel="accuracy",
    percent=True,
)
figure.savefig("accuracy.png")
figure

# %% [markdown]
# ## The test images
#
# The test images were not used until now.

# %%
from keras_vit import evaluation
from keras_vit.analysis import plot_confusion
from keras_vit.runs import evaluated, facts, finish

result = {**evaluated(run, recipe, "test"), **facts(run)}
finish(run, recipe, result)
print(f"{result['top1']:.2%} of {result['num_examples']} are right")
predictions = evaluation.load_predictions(run.folder / "predictions.npz")
figure = plot_confusion(predictions.labels, predictions.classes[:, 0], names)
figure.savefig("confusion.png")
figure

# %% [markdown]
# The most confident mistakes, with the true class in brackets, then the least
# certain answers. `report.html` in the run folder shows them too.

# %%
with np.load(run.folder / "predictions.npz") as saved:
    pictures, rows = saved["pictures"][:12], saved["picture_rows"][:12]
guesses, truths = predictions.classes[rows, 0], predictions.labels[rows]
figure = plot_images(
    pictures,
    [
        f"{names[guess]} ({names[truth]})"
        for guess, truth in zip(guesses, truths, strict=True)
    ],
    columns=4,
)
figure.savefig("mistakes.png")
figure

# %% [markdown]
# ## Using the model
#
# The run folder contains the class names and the preprocessing.

# %%
for found in keras_vit.predict(run.folder, list(dataset.test.contents[:3])):
    name, share = found.classes[0]
    print(f"{found.image}: {name} ({share:.0%})")
