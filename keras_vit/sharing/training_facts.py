"""What the config of a run says of its training, in words for others."""

__all__ = ["dataset_of", "training_rows"]

# Names of tensorflow-datasets: of the same data on huggingface.co.
REPOSITORIES = {
    "beans": "AI-Lab-Makerere/beans",
    "cats_vs_dogs": "microsoft/cats_vs_dogs",
    "cifar10": "uoft-cs/cifar10",
    "cifar100": "uoft-cs/cifar100",
    "fashion_mnist": "zalando-datasets/fashion_mnist",
    "food101": "ethz/food101",
    "imagenet2012": "ILSVRC/imagenet-1k",
    "mnist": "ylecun/mnist",
}
# Where a run reads images that have no name; what it is called there.
UNNAMED = {"folder": "imagefolder", "csv": "csv"}
# Group and field of the config of a run: what the card calls it. A value of
# the last column says nothing.
FIELDS = (
    ("training", "epochs", "epochs", None),
    ("training", "steps", "steps", None),
    ("training", "batch_size", "images per step", None),
    ("training", "loss", "loss", None),
    ("training", "label_smoothing", "label smoothing", 0.0),
    ("optimizer", "name", "optimizer", None),
    ("optimizer", "learning_rate", "learning rate", None),
    ("optimizer", "schedule", "schedule", None),
    ("optimizer", "weight_decay", "weight decay", 0.0),
    ("optimizer", "layer_decay", "layer decay", 1.0),
    ("training", "ema_decay", "moving average of the weights", 0.0),
    ("training", "trainable", "trained layers", "all"),
    ("training", "lora_rank", "rank of LoRA", 0),
    ("training", "precision", "precision", "float32"),
    ("model", "dropout_rate", "dropout", 0.0),
    ("model", "stochastic_depth_rate", "stochastic depth", 0.0),
    ("augmentation", "rand_augment_layers", "RandAugment, layers", 0),
    ("augmentation", "mixup_alpha", "Mixup, alpha", 0.0),
    ("augmentation", "cutmix_alpha", "CutMix, alpha", 0.0),
    ("", "seed", "seed", None),
)
RESULTS = (
    ("num_train_images", "training images", "{:,}"),
    ("seconds", "time in seconds", "{:,.0f}"),
)


def dataset_of(run: dict) -> tuple[str | None, str | None]:
    """The data of a run: its name, and its repository on huggingface.co.

    Returns:
        (None, None) of what is no run; no path stands in it.
    """
    if not run:
        return None, None
    options = run.get("data") or {}
    for source, name in UNNAMED.items():
        if options.get(source):
            return name, None
    name = str(options.get("name") or "digits")
    plain = name.partition("/")[0].partition(":")[0]
    return name, REPOSITORIES.get(plain)


def training_rows(run: dict, result: dict) -> list[tuple[str, str]]:
    """Pairs of what and value, of those options that say something.

    Args:
        run: dict, the config of a run; {} of what is none.
        result: dict, its result.json.
    """
    if not run:
        return []
    name, _ = dataset_of(run)
    described = {"imagefolder": "a folder of images", "csv": "a CSV file"}
    rows = [("data", described.get(str(name), str(name)))]
    for group, field, title, nothing in FIELDS:
        options = run.get(group) if group else run
        value = options.get(field) if isinstance(options, dict) else None
        if value is not None and value != nothing:
            rows.append((title, str(value)))
    training = run.get("training") or {}
    if training.get("steps") is not None:  # They replace epochs.
        rows = [row for row in rows if row[0] != "epochs"]
    rows += [
        (title, form.format(value))
        for key, title, form in RESULTS
        if isinstance(value := result.get(key), int | float)
    ]
    versions = result.get("versions")
    if isinstance(versions, dict):
        words = ", ".join(f"{x} {y}" for x, y in versions.items())
        rows.append(("versions", words))
    return rows
