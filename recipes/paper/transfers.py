"""What a pre-trained model is put to, as commands: the paper's transfers."""

from paper.cells import Command, Source

__all__ = [
    "CONFIGS",
    "few_shot",
    "real",
    "transferred",
    "vtab",
]

CONFIGS = {
    "ImageNet": "paper/table4_imagenet",
    "CIFAR-10": "paper/table4_cifar10",
    "CIFAR-100": "paper/table4_cifar100",
    "Pets": "paper/table4_pets",
    "Flowers": "paper/table4_flowers",
    "VTAB": "paper/table4_vtab",
}


def transferred(
    source: Source,
    dataset: str,
    *,
    seeds: int = 1,
    config: str = "",
    options: tuple[tuple[str, str], ...] = (),
) -> tuple[Command, ...]:
    """Fine-tuning: the sweep of Table 4, then its best rate with more seeds.

    Args:
        source: a `Source`.
        dataset: a key of `CONFIGS` but VTAB.
        seeds: int, how often the best learning rate is trained with.
        config: in the place of that of the data set.
        options: further options of it.

    Returns:
        `Command`s; those from the last but `seeds` on have a result each.
    """
    config = config or CONFIGS[dataset]
    run = f"{source.folder}/{config.removeprefix('paper/')}"
    shared = (*source.options, *options)
    sweep = Command(run, "sweep", config, (*shared, ("seed", "0")))
    whole = (("data.train_split", "train"), ("data.validation_split", "null"))
    more = (
        Command(
            f"{run}_seed{seed}",
            "finetune",
            config,
            (*shared, *whole, ("seed", str(seed))),
            rate_of=run,
        )
        for seed in range(1, seeds)
    )
    return (*source.commands, sweep, *more)


def real(commands: tuple[Command, ...], seeds: int) -> tuple[Command, ...]:
    """Evaluation of fine-tuned models on ImageNet's reassessed labels.

    Args:
        commands: what `transferred` returns for ImageNet.
        seeds: int, as there.

    Returns:
        `Command`s, of which the last `seeds` have a result each.
    """
    trained = commands[-seeds:]
    found = (
        Command(
            f"{one.run}_real",
            "evaluate",
            options=(
                (
                    "model.weights",
                    f"@{one.run}{'/final' if one.recipe == 'sweep' else ''}",
                ),
                ("data.name", "imagenet2012_real"),
                ("data.label_key", "real_label"),
                # The data set has this split alone.
                ("data.train_split", "validation"),
                ("data.test_split", "validation"),
            ),
            hardware="cpu",
        )
        for one in trained
    )
    return (*commands, *found)


def vtab(source: Source, seeds: int = 1) -> tuple[Command, ...]:
    """VTAB-1k, all tasks, with each seed.

    Args:
        source: a `Source`.
        seeds: int.

    Returns:
        `Command`s, of which the last `seeds` have a result each.
    """
    runs = (
        Command(
            f"{source.folder}/vtab_seed{seed}",
            "vtab",
            CONFIGS["VTAB"],
            (*source.options, ("seed", str(seed))),
        )
        for seed in range(seeds)
    )
    return (*source.commands, *runs)


def few_shot(source: Source) -> tuple[Command, ...]:
    """Linear classifiers on five images a class of ImageNet.

    Args:
        source: a `Source`.

    Returns:
        `Command`s, of which the last has the result.
    """
    weights = [pair for pair in source.options if pair[1] != "null"]
    command = Command(
        f"{source.folder}/few_shot_imagenet",
        "few_shot",
        options=(
            *weights,
            ("data.name", "imagenet2012"),
            # The first of them have 30 images of each class, as big_vision
            # says, and are all that it reads.
            ("data.train_split", "train[:65000]"),
            ("data.test_split", "validation"),
            ("shots", "[5]"),
        ),
        hardware="cpu",
    )
    return (*source.commands, command)
