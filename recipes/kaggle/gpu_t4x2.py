# %% [markdown]
# # Fine-tune a Vision Transformer on two T4 GPUs (JAX or TensorFlow)
#
# From the images of a competition to `submission.csv`, on both GPUs.
#
# 1. *Session options, Accelerator*: GPU T4 x2. On Colab: *Runtime, Change
#    runtime type*, any GPU; one is enough.
# 2. *Add input*: the images.
# 3. Adapt the next cell to your data, then run all.
#
# With *Session options, Internet* on, pip installs keras_vit from the Python
# index or the repository, and the weights are downloaded. Without the internet,
# two more inputs take their place: a data set with the wheel, which
# `pip wheel --no-deps .` in a clone makes, and one with the weights, or a model
# of Kaggle: `MODEL` has examples.
#
# The tests run this notebook on two virtual devices of a CPU, with the JAX of
# these machines and the newest. It has not been run on a T4 yet.

# %% tags=["parameters"]
DATA = "/kaggle/input/your-competition"
TRAIN = "train"  # images in DATA: a folder for each class, or those of the CSV
CSV = "train.csv"  # None: TRAIN has a folder for each class
ID, LABEL = "image_id", "label"  # columns of the CSV
SUFFIX = ".jpg"  # file extension to append to each id
TEST = "test"  # folder of the images to predict
SAMPLE = "sample_submission.csv"  # None: every image in TEST

MODEL = {"name": "ViT_B16", "weights": "imagenet21k", "image_size": 224}
# Without the internet: a file, or a folder of keras-hub or Hugging Face, or the
# small weights that are in the package.
# MODEL = {"weights": "/kaggle/input/weights/B_16.npz", "image_size": 224}
# MODEL = {"weights": "fractals", "image_size": 32, "channels": 3}
EPOCHS = 8
BATCH_SIZE = 64  # of both GPUs together
LEARNING_RATE = 0.01
# The matrix units of a T4 take float16. It has none for bfloat16, which newer
# GPUs do better with.
PRECISION = "mixed_float16"
BACKEND = "jax"  # or "tensorflow"
DISTRIBUTION = "auto"  # both GPUs where they divide a batch

WHEELS = "/kaggle/input/keras-vit"  # folder of the wheel, if there is one
OUTPUT = "/kaggle/working"  # where submission.csv and the run go

# %% tags=["install"]
import importlib.util
import os
import pathlib
import subprocess
import sys

os.environ["KERAS_BACKEND"] = BACKEND
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

from keras_vit.runtime.machine import devices

print(f"{len(devices())} devices: {', '.join(devices())}")
print(f"Keras {keras.__version__} on {BACKEND}")
if "gpu" not in devices()[0]:
    print(
        "There is no GPU here: this runs on what there is, perhaps slowly. "
        "Choose GPU T4 x2 as the accelerator of the session."
    )

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
