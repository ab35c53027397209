"""Tables 1, 3 and 4: sizes and hyper-parameters, against those that we have."""

import functools

from keras_vit.data.vtab_table import PAPER, TASKS
from paper import transfers
from paper import values_table as values
from paper.cells import Cell, Command, Source, pre_trained
from paper.estimates import SIZES, config_value, core_days, exaflops, size_of

__all__ = [
    "SOURCES",
    "few_shot_cell",
    "mean_of_five",
    "section_4_6",
    "table_1",
    "table_2",
    "table_3",
    "table_4",
    "table_5",
    "table_6",
    "table_7",
    "table_8",
    "table_9",
    "transfer_cell",
]

COLUMNS_3 = {
    "epochs": "training.epochs",
    "learning rate": "optimizer.learning_rate",
    "decay": "optimizer.schedule",
    "weight decay": "optimizer.weight_decay",
    "dropout": "model.dropout_rate",
}
COLUMNS_4 = {
    "steps": "training.steps",
    "learning rates": "sweep.learning_rates",
}


def table_1() -> list[Cell]:
    """Sizes of the models."""
    return [
        Cell(
            "table1",
            row,
            column,
            float(paper),
            unit="millions" if column == "parameters" else "",
            compute=lambda _, a=application, c=column: size_of(a, c),
            note="with 1000 classes" if column == "parameters" else "",
        )
        for row, (application, sizes) in values.TABLE_1.items()
        for column, paper in zip(SIZES, sizes, strict=True)
    ]


def _configured(table, row, column, paper, config, field, note=""):
    """A hyper-parameter, which is read from our config."""
    return Cell(
        table,
        row,
        column,
        paper,
        unit="",
        compute=lambda place: config_value(place, config, field),
        note=note,
    )


def table_3() -> list[Cell]:
    """Hyper-parameters of pre-training, against those of our configs."""
    cells = []
    for row, (config, epochs, *printed) in values.TABLE_3.items():
        note = "" if len(epochs) == 1 else "the other with --training.epochs"
        papers = ("/".join(map(str, epochs)), *printed)
        if not note:
            papers = (epochs[0], *printed)
        for (column, field), paper in zip(
            COLUMNS_3.items(), papers, strict=True
        ):
            about = note if column == "epochs" else ""
            path = f"paper/table3_{config}"
            # A ResNet has no dropout, which the paper prints as 0.
            cells.append(
                _configured("table3", row, column, paper, path, field, about)
            )
    return cells


def table_4() -> list[Cell]:
    """Hyper-parameters of fine-tuning, against those of our configs."""
    cells = []
    for row, (config, steps, rates) in values.TABLE_4.items():
        papers = (steps, ", ".join(f"{rate:g}" for rate in rates))
        for (column, field), paper in zip(
            COLUMNS_4.items(), papers, strict=True
        ):
            path = f"paper/table4_{config}"
            cells.append(_configured("table4", row, column, paper, path, field))
    return cells


SEEDS = 3  # Table 2: "averaged over three fine-tuning runs".
REAL = "ImageNet ReaL"
SOURCES = {
    "ViT-H/14 JFT": ("JFT-300M", "ViT-H/14"),
    "ViT-L/16 JFT": ("JFT-300M", "ViT-L/16"),
    "ViT-L/16 I21k": ("ImageNet-21k", "ViT-L/16"),
}
OTHERS_2 = {
    "BiT-L R152x4": "a result of arXiv:1912.11370, whose weights of JFT-300M "
    "are not public",
    "Noisy Student L2": "a result of arXiv:1911.04252",
}
RESOLUTION_2 = {"ViT-H/14": (("model.image_size", "518"),)}


def transfer_cell(
    table: str,
    row: str,
    column: str,
    paper: float | None,
    source: Source,
    *,
    dataset: str = "",
    note: str = "",
) -> Cell:
    """The accuracy of one model fine-tuned on one data set, once.

    Args:
        table: name of the table.
        row: of the cell.
        column: of the cell, and the data set unless that is given.
        paper: what it prints.
        source: a `Source`.
        dataset: of `values_table.DOWNSTREAM`, or "".
        note: of the cell.

    Returns:
        A `Cell`.
    """
    dataset = dataset or column
    if source.note:
        return Cell(table, row, column, paper, note=source.note)
    commands = transfers.transferred(source, dataset.removesuffix(" ReaL"))
    if dataset == REAL:
        commands = transfers.real(commands, 1)
    results = ((commands[-1].run, "top1"),)
    return Cell(
        table,
        row,
        column,
        paper,
        commands=commands,
        results=results,
        note=note,
    )


def table_2() -> list[Cell]:
    """The best models: three fine-tuning runs on each data set."""
    cells = []
    for row, printed in values.TABLE_2.items():
        for column, (paper, spread) in printed.items():
            cells.append(_cell_2(row, column, paper, spread))
    for row, (paper, run) in values.CORE_DAYS.items():
        cells.append(
            Cell(
                "table2",
                row,
                "TPUv3-core-days",
                paper,
                unit="core-days",
                compute=run and (lambda _, run=run: core_days(*run)),
                note="estimated at 40 % of the peak, as keras-vit plan --paper"
                if run
                else OTHERS_2[row],
            )
        )
    return cells


def _cell_2(row, column, paper, spread):
    if row in OTHERS_2:
        return Cell("table2", row, column, paper, spread, note=OTHERS_2[row])
    dataset, model = SOURCES[row]
    source = pre_trained(dataset, model)
    key = "top1"
    if column == "VTAB":
        commands, key = transfers.vtab(source, SEEDS), "groups:all"
    elif column.startswith("ImageNet"):
        commands = transfers.transferred(
            source,
            "ImageNet",
            seeds=SEEDS,
            config="paper/table2_imagenet_l16",
            options=RESOLUTION_2.get(model, ()),
        )
        commands = (
            transfers.real(commands, SEEDS) if column == REAL else commands
        )
    else:
        commands = transfers.transferred(source, column, seeds=SEEDS)
    results = tuple((one.run, key) for one in commands[-SEEDS:])
    return Cell(
        "table2",
        row,
        column,
        paper,
        spread,
        commands=commands,
        results=results,
    )


def table_5() -> list[Cell]:
    """Five models, three data sets of pre-training, six of transfer."""
    return [
        transfer_cell(
            "table5",
            f"{dataset}, {column}",
            model,
            paper,
            pre_trained(dataset, model),
            dataset=column,
        )
        for dataset, columns in values.TABLE_5.items()
        for column, papers in columns.items()
        for model, paper in zip(values.TRANSFERRED, papers, strict=True)
        if paper is not None
    ]


def table_6() -> list[Cell]:
    """Models of all sizes on JFT-300M, and what they cost."""
    cells = []
    for (model, epochs), printed in values.TABLE_6.items():
        row = f"{model}, {epochs} epochs"
        for column, paper in printed.items():
            if column == values.EXAFLOPS:
                compute = functools.partial(_exaflops, model, epochs)
                cells.append(
                    Cell(
                        "table6",
                        row,
                        column,
                        float(paper),
                        unit=column,
                        compute=compute,
                        note="counted from the sizes",
                    )
                )
                continue
            source = pre_trained("JFT-300M", model, epochs)
            cells.append(transfer_cell("table6", row, column, paper, source))
    return cells


def _exaflops(model, epochs, _):
    return exaflops(model, epochs)


def table_9() -> list[Cell]:
    """VTAB-1k task by task."""
    cells = []
    for row, papers in PAPER.items():
        dataset, model = SOURCES[row]
        commands = transfers.vtab(pre_trained(dataset, model), SEEDS)
        for task, paper in zip(TASKS, papers, strict=True):
            results = tuple(
                (one.run, f"tasks:{task}") for one in commands[-SEEDS:]
            )
            cells.append(
                Cell(
                    "table9",
                    row,
                    task,
                    paper,
                    commands=commands,
                    results=results,
                    note=TASKS[task].drift,
                )
            )
    return cells


# Table 8: kind and place of the position embedding as options.
POSITIONS = {"none": "none", "1-D": "1d", "2-D": "2d", "relative": "relative"}
PLACES = dict(
    zip(
        values.PLACES_8,
        ("stem", "every_layer", "every_layer_shared"),
        strict=True,
    )
)
IN_ATTENTION = "relative"  # It has no place at the stem.
SGD = (
    ("optimizer.name", "sgd"),
    ("optimizer.learning_rate", "1.6"),
    ("optimizer.weight_decay", "1e-4"),
)


def table_7() -> list[Cell]:
    """ResNets pre-trained with Adam and with SGD: five data sets, the mean."""
    cells = []
    for (model, optimizer), printed in values.TABLE_7.items():
        sgd = optimizer == "SGD"
        source = pre_trained(
            "JFT-300M",
            model,
            variant="sgd" if sgd else "",
            options=SGD if sgd else (),
        )
        note = "the paper prints no rate of SGD; that of big_vision's BiT"
        cells += [
            _cell_7(
                model, optimizer, dataset, paper, source, note if sgd else ""
            )
            for dataset, paper in printed.items()
        ]
    return cells


def _cell_7(model, optimizer, dataset, paper, source, note):
    if dataset == values.MEAN:
        return mean_of_five("table7", model, optimizer, paper, source, note)
    row = f"{model}, {dataset}"
    shared = ("table7", row, optimizer, paper, source)
    return transfer_cell(*shared, dataset=dataset, note=note)


def mean_of_five(table, row, column, paper, source, note="") -> Cell:
    """The mean accuracy of one model on the five data sets."""
    if source.note:
        return Cell(table, row, column, paper, note=source.note)
    found = [transfers.transferred(source, dataset) for dataset in values.FIVE]
    unique = dict.fromkeys(one for commands in found for one in commands)
    results = tuple((commands[-1].run, "top1") for commands in found)
    return Cell(
        table,
        row,
        column,
        paper,
        commands=tuple(unique),
        results=results,
        note=note,
    )


def few_shot_cell(
    table: str,
    row: str,
    column: str,
    paper: float | None,
    source: Source,
    note: str = "",
) -> Cell:
    """The few-shot accuracy of one model: five images a class of ImageNet."""
    if source.note:
        return Cell(table, row, column, paper, note=source.note)
    commands = transfers.few_shot(source)
    return Cell(
        table,
        row,
        column,
        paper,
        commands=commands,
        results=((commands[-1].run, "shots:5"),),
        note=note,
    )


def table_8() -> list[Cell]:
    """Position embeddings, by five images a class of ImageNet."""
    return [
        few_shot_cell("table8", row, column, paper, _positions(row, column))
        for row, printed in values.TABLE_8.items()
        for column, paper in printed.items()
        if paper is not None
    ]


def _positions(row, column):
    kind, place = POSITIONS[row], PLACES[column]
    options = [("model.variant.position", kind)]
    if kind not in ("none", IN_ATTENTION):
        options.append(("model.variant.position_at", place))
    plain = (kind, place) == ("1d", "stem")
    return pre_trained(
        "JFT-300M",
        "ViT-B/16",
        variant="" if plain else f"{kind}_{place}",
        options=() if plain else tuple(options),
    )


SECTION = "section4.6"
MODEL = "ViT-B/16"
CONFIG = "paper/masked_patch_b16"
FEW_SHOT = "ImageNet, 5 images a class"
NO_NUMBER = "the paper prints no number"
SHORT = (("training.steps", "100000"),)
ON_IMAGENET = (("data.folder", "null"), ("data.name", "imagenet2012"))

# Targets and shares of hidden patches: the folder, the options and what the
# appendix says of them.
SETTINGS = {
    "mean colour, 50 % hidden": ("", (), "it had the best of the targets"),
    "mean colour, 15 % hidden": (
        "15percent",
        (("masked_patch.corruption_rate", "0.15"),),
        "it was slightly worse than 50 %",
    ),
    "4x4 downsized, 50 % hidden": (
        "downsized",
        (("masked_patch.target", "downsized"),),
        "it worked quite well",
    ),
    "pixels by L2, 50 % hidden": (
        "pixels",
        (
            ("masked_patch.target", "pixels"),
            # An error has no accuracy to choose weights by.
            ("training.best_metric", "val_loss"),
        ),
        "it was slightly worse than the colours",
    ),
}


def section_4_6() -> list[Cell]:
    """Masked patches, no pre-training and labels; then targets and shares."""
    fine_tuned = [
        transfer_cell(SECTION, row, "ImageNet", paper, source, note=note)
        for row, paper, source, note in _starts()
    ]
    few_shot = [
        few_shot_cell(
            SECTION,
            row,
            FEW_SHOT,
            None,
            _masked(variant, options),
            f"{NO_NUMBER} ({found}), nor whose features it took: ours are "
            "those of the class token",
        )
        for row, (variant, options, found) in SETTINGS.items()
    ]
    return [*fine_tuned, *few_shot]


def _starts():
    """What ViT-B/16 is fine-tuned on ImageNet from."""
    printed = {
        dataset: columns["ImageNet"][values.TRANSFERRED.index(MODEL)]
        for dataset, columns in values.TABLE_5.items()
    }
    return (
        (
            "from scratch",
            printed["ImageNet"],
            pre_trained("ImageNet", MODEL),
            "the number of Table 5; 2 % behind masked patches in the text",
        ),
        (
            "masked patches on JFT-300M",
            values.MASKED_PATCHES,
            _masked(),
            "",
        ),
        (
            "masked patches on JFT-300M, 100k steps",
            None,
            _masked("100k", SHORT),
            f"{NO_NUMBER}: more steps brought little",
        ),
        (
            "masked patches on ImageNet, 100k steps",
            None,
            _masked("100k", (*ON_IMAGENET, *SHORT), "imagenet"),
            f"{NO_NUMBER}, nor of steps: the gain was similar",
        ),
        (
            "supervised on JFT-300M",
            printed["JFT-300M"],
            pre_trained("JFT-300M", MODEL),
            "the number of Table 5; 4 % ahead of masked patches in the text",
        ),
    )


def _masked(variant="", options=(), dataset="jft300m"):
    name = MODEL.replace("/", "")
    folder = f"{dataset}/{name}_masked{variant and f'_{variant}'}"
    run = f"{folder}/pretraining"
    command = Command(run, "masked_patch", CONFIG, options, hardware="cluster")
    return Source(folder, weights=f"@{run}", commands=(command,))
