# %% [markdown]
# # Fine-tune a Vision Transformer by TPUStrategy (TensorFlow)
#
# For TPU VMs of your own, with `tensorflow-tpu`. **Not for Kaggle or Colab**:
# the TensorFlow of their TPU machines has no TPU since 2025 (Kaggle installs
# `tensorflow-cpu`, Colab none). There, use `tpu_v5e8.ipynb`.
#
# 1. `pip install tensorflow-tpu`.
# 2. Adapt the next cell to your data, then run all.
#
# pip installs keras_vit from the Python index or the repository, and the
# weights are downloaded. Without the internet, put the wheel, which
# `pip wheel --no-deps .` in a clone makes, into the folder `WHEELS`, and the
# path of a file of weights into `MODEL`.
#
# The tests run this notebook on two virtual devices of a CPU with
# MirroredStrategy in place of TPUStrategy. It has not been run on a TPU.
#
# By the compiler for TPUs, JAX's step of 128 images with AdamW needs 1.9 GiB of
# the 16 GB of each core of a v5e-8 (the manual's page on speed).

# %% tags=["parameters"]
DATA = "data/your-competition"
TRAIN = "train"  # images in DATA: a folder for each class, or those of the CSV
CSV = "train.csv"  # None: TRAIN has a folder for each class
ID, LABEL = "image_id", "label"  # columns of the CSV
SUFFIX = ".jpg"  # file extension to append to each id
TEST = "test"  # folder of the images to predict
SAMPLE = "sample_submission.csv"  # None: every image in TEST

MODEL = {"name": "ViT_B16", "weights": "imagenet21k", "image_size": 224}
# Without the internet: a file, or a folder of keras-hub or Hugging Face, or the
# small weights that are in the package.
# MODEL = {"weights": "data/weights/B_16.npz", "image_size": 224}
# MODEL = {"weights": "fractals", "image_size": 32, "channels": 3}
EPOCHS = 8
BATCH_SIZE = 128  # of all cores together
LEARNING_RATE = 0.01
PRECISION = "mixed_bfloat16"  # what a TPU multiplies fast
DISTRIBUTION = "tpu"  # or "mirrored", to try it without one

WHEELS = "data/keras-vit"  # folder of the wheel, if there is one
OUTPUT = "runs/tpu"  # where submission.csv and the run go

# %% tags=["install"]
import importlib.util
import os
import pathlib
import subprocess
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"
NAME = "keras-vision-transformer"
ARCHIVE = "https://github.com/keras-vit/keras_vit/archive/refs/heads/main.zip"
OFFLINE = ["--no-deps", "--no-index", "--find-links", WHEELS]
SOURCES = {
    "the Python index": [NAME],
    "the repository": [f"{NAME} @ {ARCHIVE}"],
    f"a wheel in {WHEELS}": [*OFFLINE, NAME],
}
PIP = [sys.executable, "-m", "pip", "install", "--quiet"]
if importlib.util.find_spec("keras_vit") is None:
    # The frameworks of the machine keep their versions.
    for place, words in SOURCES.items():
        command = [*PIP, "--retries", "0", *words]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            print(f"keras_vit is installed from {place}.")
            break
        print(f"Not from {place}.")
    else:
        raise RuntimeError(done.stderr)

# %% [markdown]
# ## The accelerator

# %%
import keras
import tensorflow as tf

from keras_vit.training.distribution import setup

print(f"TensorFlow {tf.__version__}, Keras {keras.__version__}")
# Before anything else: setting up a TPU clears its memory. It fails where there
# is none.
print(setup(DISTRIBUTION, batch_size=BATCH_SIZE))

# %% [markdown]
# ## The images

# %%
from keras_vit.data import DataConfig, open_dataset
from keras_vit.runtime.shipped_recipes import RECIPES

sys.path.append(str(RECIPES))  # The package competition stands there.
from competition.files import write_labels

data, output = pathlib.Path(DATA), pathlib.Path(OUTPUT)
output.mkdir(parents=True, exist_ok=True)
if CSV is None:
    where = {"folder": str(data / TRAIN)}
else:
    # The folder of the inputs cannot be written to.
    where = {"csv": str(output / "train.csv")}
    write_labels(
        where["csv"],
        data / CSV,
        data / TRAIN,
        id_key=ID,
        label_key=LABEL,
        suffix=SUFFIX,
    )
dataset = open_dataset(
    DataConfig(**where, validation_fraction=0.15, test_fraction=0.0)
)
names = dataset.class_names
print(
    f"{len(names)} classes, {len(dataset.train)} images to train on, "
    f"{len(dataset.validation)} to validate"
)

# %%
# %matplotlib inline
import numpy as np
from PIL import Image

from keras_vit.analysis import plot_images

shown = dataset.train.subset(
    np.random.default_rng(0).permutation(len(dataset.train))[:18]
)
pictures = [
    Image.open(path).convert("RGB").resize((160, 160))
    for path in shown.contents
]
figure = plot_images(
    np.stack(pictures), [names[label] for label in shown.labels]
)
figure.savefig(output / "images.png")
figure

# %% [markdown]
# ## Training
#
# As the paper fine-tunes: SGD with momentum, no weight decay, a warm-up and a
# cosine, a new head of zeros. The run folder has everything that defines the
# run; after an interruption, this cell resumes from the last checkpoint.

# %%
from keras_vit.training import (
    ModelConfig,
    OptimizerConfig,
    Recipe,
    TrainingConfig,
    train,
)

recipe = Recipe(
    model=ModelConfig(**MODEL),
    optimizer=OptimizerConfig(
        name="sgd",
        learning_rate=LEARNING_RATE,
        weight_decay=0.0,
        warmup_epochs=0.1 * EPOCHS,
    ),
    training=TrainingConfig(
        epochs=EPOCHS,
        batch_size=BATCH_SIZE,
        precision=PRECISION,
        log_every_steps=10,
    ),
    distribution=DISTRIBUTION,
    run_dir=str(output / "run"),
    overwrite=True,
)
run = train(recipe, dataset=dataset)

# %%
from keras_vit.analysis import plots

epochs = range(1, len(run.history["loss"]) + 1)
figure = plots.curves(
    {
        "training": (epochs, run.history["loss"]),
        "validation": (epochs, run.history["val_loss"]),
    },
    xlabel="epoch",
    ylabel="loss",
)
figure.savefig(output / "loss.png")
figure

# %%
figure = plots.curves(
    {
        "training": (epochs, run.history["accuracy"]),
        "validation": (epochs, run.history["val_accuracy"]),
    },
    xlabel="epoch",
    ylabel="accuracy",
    percent=True,
)
figure.savefig(output / "accuracy.png")
figure

# %% [markdown]
# ## The validation images
#
# `run/report.html` shows the accuracy of each class, the mistakes, and training
# images after augmentation.

# %%
from keras_vit import evaluation
from keras_vit.analysis import plot_confusion
from keras_vit.runs import evaluated, facts, finish

result = {**evaluated(run, recipe, "validation"), **facts(run)}
finish(run, recipe, result)
print(
    f"{result['top1']:.2%} of {result['num_examples']} validation images are "
    f"right; {result['images_per_second']:.0f} images/s in training"
)
predictions = evaluation.load_predictions(run.folder / "predictions.npz")
figure = plot_confusion(predictions.labels, predictions.classes[:, 0], names)
figure.savefig(output / "confusion.png")
figure

# %% [markdown]
# ## The submission
#
# A sample with two columns gets the name of the most probable class, one with a
# column per class the probabilities.

# %%
from competition.files import write_submission

write_submission(
    output / "submission.csv",
    run.folder,
    data / TEST,
    sample=SAMPLE and data / SAMPLE,
    suffix=SUFFIX,
)
print((output / "submission.csv").read_text()[:300])
