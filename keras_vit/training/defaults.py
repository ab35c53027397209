"""Defaults of a training, by what it starts from: weights or nothing.

What a recipe leaves open is filled from one table. With pre-trained weights
the rates are those of published fine-tuning, far below those of training from
scratch, which destroy the weights.

- AdamW: "MAE" (arXiv:2111.06377, Table 9) has a rate of 5e-4 per 256 images,
  layer decay 0.75, weight decay 0.05 and a warm-up of 5 epochs. "BEiT"
  (arXiv:2106.08254, Table 9) has 2e-3 per 1024 images, 0.65 and 0.05. Both are
  1.25e-4 for 64 images. "DeiT III" (arXiv:2204.07118, Table 9) fine-tunes at
  1e-5 without layer decay.
- SGD: "An Image Is Worth 16x16 Words" (arXiv:2010.11929, Table 4) has momentum
  0.9, no weight decay, and rates from 0.001 to 0.06; 0.003 is in all its rows.
- Lion: arXiv:2302.06675, section 5, has a rate of a third to a tenth of
  AdamW's and as much more weight decay. The others start as AdamW does.
- LoRA: arXiv:2106.09685, Table 9, has AdamW with 4e-4 to 5e-4 for encoders.
- Crops and mirrored images are the only augmentation, as in that Table 4 and
  in "BiT" (arXiv:1912.11370, section 3.3) below 20,000 images. The Mixup,
  CutMix and RandAugment of BEiT and MAE are for ImageNet and 100 epochs.

The lengths are ours. A batch is the largest power of two of which the
training images fill four, up to 64.
"""

import dataclasses
import importlib.util

__all__ = [
    "DEFAULTS",
    "adamw_by_batch",
    "choose_head",
    "kind_of",
    "settled",
    "with_defaults",
]

SCRATCH = {
    "optimizer": {"learning_rate": 2e-3, "weight_decay": 0.01},
    "layer_decay": 1.0,
    "training": {"epochs": 60},
    "batch_size": 64,
}
HEAD = {**SCRATCH, "training": {"epochs": 30}}
# What is trained, and the optimizer -> what is left open; optimizers without
# a row have AdamW's. What a layer decay and a batch size come to depends on the
# model and the data, see `settled`.
DEFAULTS = {
    ("scratch", "adamw"): SCRATCH,
    ("weights", "adamw"): {
        **HEAD,
        "optimizer": {"learning_rate": 1e-4, "weight_decay": 0.05},
        "layer_decay": 0.75,
    },
    ("weights", "sgd"): {
        **HEAD,
        "optimizer": {"learning_rate": 3e-3, "weight_decay": 0.0},
    },
    ("head", "adamw"): HEAD,
    ("lora", "adamw"): {
        **HEAD,
        "optimizer": {"learning_rate": 5e-4, "weight_decay": 0.01},
    },
    ("lora", "sgd"): HEAD,
}
BETA_2 = 0.999  # Keras's own
RATE_BATCH = 256  # images that rates of self-supervision are for
LION = 5  # between the 3 and 10 of its authors


def row_of(recipe) -> dict:
    """Return the row of the table for a recipe; most are as for AdamW."""
    kind, name = kind_of(recipe), recipe.optimizer.name
    row = DEFAULTS.get((kind, name), DEFAULTS[kind, "adamw"])
    if name != "lion":
        return row
    usual = row["optimizer"]
    return {
        **row,
        "optimizer": {
            "learning_rate": usual["learning_rate"] / LION,
            "weight_decay": usual["weight_decay"] * LION,
        },
    }


LEAST_STEPS = 4  # in an epoch, for a batch that nobody chose


def kind_of(recipe) -> str:
    """Return what a recipe trains: "scratch", "weights", "head" or "lora"."""
    if recipe.training.lora_rank:
        return "lora"
    if recipe.training.trainable == "head":
        return "head"
    return "scratch" if recipe.model.weights is None else "weights"


def with_defaults(recipe) -> dict:
    """Return the groups of a recipe, with what they leave open from the table.

    But for the batch size and the layer decay, which `settled` fills in.

    Example:
        >>> with_defaults(Recipe(model=weights))["optimizer"].learning_rate
        0.0001
    """
    row = row_of(recipe)
    # Of an optimizer that does not read beta_2 it stays null.
    usual = {**row["optimizer"], "beta_2": BETA_2}
    return {
        "optimizer": _filled(recipe.optimizer, usual),
        "training": _filled(recipe.training, row["training"]),
    }


def _filled(group, usual):
    """Return a group of a recipe with what is null of the usual."""
    null = {k: x for k, x in usual.items() if getattr(group, k) is None}
    return dataclasses.replace(group, **null)


def adamw_by_batch(
    recipe, rate: float, weight_decay: float, beta_2: float = BETA_2
) -> dict:
    """Return the optimizer of a recipe with AdamW's rates where it has none.

    Args:
        recipe: a `Recipe`; one of another optimizer gets nothing.
        rate: learning rate for 256 images of a batch.
        weight_decay: the usual one.
        beta_2: likewise.
    """
    optimizer = recipe.optimizer
    if optimizer.name != "adamw":
        return {}
    images = recipe.training.batch_size or SCRATCH["batch_size"]
    usual = {
        "learning_rate": rate * images / RATE_BATCH,
        "weight_decay": weight_decay,
        "beta_2": beta_2,
    }
    return {"optimizer": _filled(optimizer, usual)}


def settled(recipe, model, num_images: int | None):
    """Return a recipe with the batch size and the layer decay filled in.

    Args:
        recipe: a `Recipe`.
        model: its Keras model: one without blocks has no layer decay.
        num_images: training images; None where others make the batches.

    Returns:
        The recipe, and a line about a batch that is smaller than usual; "".
    """
    row = row_of(recipe)
    optimizer, training, line = recipe.optimizer, recipe.training, ""
    if optimizer.layer_decay is None:
        blocks = any(x.name.startswith("block_") for x in model.layers)
        decay = row["layer_decay"] if blocks else 1.0
        optimizer = dataclasses.replace(optimizer, layer_decay=decay)
    if training.batch_size is None:
        size = _batch_size(row["batch_size"], num_images, training)
        training = dataclasses.replace(training, batch_size=size)
        if size < row["batch_size"]:
            line = (
                f"Batches of {size} images, not {row['batch_size']}, for "
                f"{num_images} training images (--training.batch_size)"
            )
    recipe = dataclasses.replace(recipe, optimizer=optimizer, training=training)
    return recipe, line


def _batch_size(usual, num_images, training):
    parts = training.accumulation_steps
    if num_images is not None:
        fitting = max(num_images // LEAST_STEPS, 1)
        usual = min(usual, 2 ** (fitting.bit_length() - 1))
    return max(usual // parts, 1) * parts


# Of a linear probe of N images, D features and K outputs.
MOST_FEATURES = 2**26  # N x D: half a gigabyte in float64
MOST_PRODUCTS = 2**30  # N x D x K of a step of the fit: a tenth of a second


def choose_head(recipe, dataset, model, *, learns: bool):
    """Return a recipe with the head that its run begins with.

    Args:
        recipe: a `Recipe`; only one of None or "probe" is looked at.
        dataset: its `Dataset`.
        model: its Keras model.
        learns: whether the task of the run learns what the data says, with
            the head of the model.

    Returns:
        The recipe, and a line about a head of zeros where a probe is usual;
        "".

    Raises:
        ValueError: where a probe is wanted and cannot be fitted.
    """
    head = recipe.model.head
    if head not in (None, "probe"):
        return recipe, ""
    silent = head is None and (
        recipe.model.weights is None
        or not learns
        or recipe.training.head_bias != 0
    )
    obstacle = None if silent else _obstacle(dataset, model, learns)
    if obstacle is not None and head == "probe":
        raise ValueError(
            f"No linear probe can be fitted to begin with: {obstacle}. "
            'Received: model.head="probe". Leave it out.'
        )
    chosen = "new" if silent or obstacle is not None else "probe"
    line = f"The head begins with zeros: {obstacle}" if obstacle else ""
    changed = dataclasses.replace(recipe.model, head=chosen)
    return dataclasses.replace(recipe, model=changed), line


def _obstacle(dataset, model, learns) -> str | None:
    # A config needs the table above without Keras.
    from keras_vit import data
    from keras_vit.training.build import HEAD
    from keras_vit.training.distribution.processes import place

    if not learns:
        return "this recipe learns no classes with it"
    if isinstance(dataset.train, data.FitStream):
        return "of batches of your own the images are not known"
    if place()[1] > 1:
        return "each of several processes has a share of the images"
    if importlib.util.find_spec("scipy") is None:
        return "scikit-learn is not installed, with which SciPy comes"
    images = len(dataset.train)
    dim, outputs = model.get_layer(HEAD).kernel.shape
    products = images * dim * outputs
    if images * dim > MOST_FEATURES or products > MOST_PRODUCTS:
        return (
            f"a linear probe of {images:,} images, {dim:,} features and "
            f"{outputs:,} classes takes long"
        )
    return None
