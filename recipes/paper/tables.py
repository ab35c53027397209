"""The cells of Tables 1 to 9 and of section 4.6, and what reproduces them."""

import functools

from vtab.tasks import PAPER, TASKS

from paper import values_table as values
from paper.cells import (
    Cell,
    Source,
    few_shot,
    fine_tuning,
    pre_trained,
    real_labels,
    run_cell,
    trained_source,
    vtab_runs,
)
from paper.estimates import SIZES, config_value, core_days, exaflops, size_of

__all__ = [
    "SEEDS",
    "SOURCES",
    "TABLES",
    "few_shot_cell",
    "mean_of_five",
    "section_4_6",
    "table_5",
    "transfer_cell",
]

SEEDS = 3  # Table 2: "averaged over three fine-tuning runs".
REAL = "ImageNet ReaL"
SOURCES = {
    "ViT-H/14 JFT": ("JFT-300M", "ViT-H/14"),
    "ViT-L/16 JFT": ("JFT-300M", "ViT-L/16"),
    "ViT-L/16 I21k": ("ImageNet-21k", "ViT-L/16"),
}


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
    """Return the accuracy of one model fine-tuned once on one data set.

    Args:
        table: of the cell.
        row: of the cell.
        column: of the cell, and the data set unless that is given.
        paper: the printed number.
        source: the model to fine-tune.
        dataset: of `values_table.DOWNSTREAM`, or "".
        note: of the cell.
    """
    dataset = dataset or column
    commands = fine_tuning(source, dataset.removesuffix(" ReaL"))
    if dataset == REAL:
        commands = real_labels(commands)
    return run_cell(table, row, column, paper, source, commands, note=note)


def few_shot_cell(
    table: str,
    row: str,
    column: str,
    paper: float | None,
    source: Source,
    note: str = "",
) -> Cell:
    """Return few-shot accuracy: five images per class of ImageNet."""
    commands = few_shot(source)
    return run_cell(
        table, row, column, paper, source, commands, "shots:5", note=note
    )


def mean_of_five(table, row, column, paper, source, note="") -> Cell:
    """Return the mean accuracy of one model on the five data sets."""
    found = [fine_tuning(source, dataset) for dataset in values.FIVE]
    # The pre-training once, and the fine-tuning of each in the end.
    commands = (*source.commands, *(commands[-1] for commands in found))
    seeds = len(values.FIVE)
    return run_cell(
        table, row, column, paper, source, commands, seeds=seeds, note=note
    )


def table_1() -> list[Cell]:
    """Return the sizes of the models."""
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


OTHERS_2 = {
    "BiT-L R152x4": "a result of arXiv:1912.11370, whose weights of JFT-300M "
    "are not public",
    "Noisy Student L2": "a result of arXiv:1911.04252",
}
RESOLUTION_2 = {"ViT-H/14": (("model.image_size", "518"),)}


def table_2() -> list[Cell]:
    """Return the best models: three fine-tuning runs on each data set."""
    cells = [
        _cell_2(row, column, paper, spread)
        for row, printed in values.TABLE_2.items()
        for column, (paper, spread) in printed.items()
    ]
    for row, (paper, run) in values.CORE_DAYS.items():
        note = "estimated at 40 % of the peak, as keras-vit plan --paper"
        cells.append(
            Cell(
                "table2",
                row,
                "TPUv3-core-days",
                paper,
                unit="core-days",
                compute=run and (lambda _, run=run: core_days(*run)),
                note=note if run else OTHERS_2[row],
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
        commands, key = vtab_runs(source, SEEDS), "groups:all"
    elif column.startswith("ImageNet"):
        commands = fine_tuning(
            source,
            "ImageNet",
            seeds=SEEDS,
            config="paper/table2_imagenet_l16",
            options=RESOLUTION_2.get(model, ()),
        )
        if column == REAL:
            commands = real_labels(commands, SEEDS)
    else:
        commands = fine_tuning(source, column, seeds=SEEDS)
    return run_cell(
        "table2",
        row,
        column,
        paper,
        source,
        commands,
        key,
        seeds=SEEDS,
        spread=spread,
    )


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


def table_3() -> list[Cell]:
    """Hyper-parameters of pre-training, against those of our configs."""
    cells = []
    for row, (config, epochs, *printed) in values.TABLE_3.items():
        # A ResNet has no dropout, which the paper prints as 0.
        papers = (epochs[0], *printed)
        note = ""
        if len(epochs) > 1:
            papers = ("/".join(map(str, epochs)), *printed)
            note = "the other with --training.epochs"
        cells += _configured(
            "table3", row, config, COLUMNS_3, papers, {"epochs": note}
        )
    return cells


def table_4() -> list[Cell]:
    """Hyper-parameters of fine-tuning, against those of our configs."""
    cells = []
    for row, (config, steps, rates) in values.TABLE_4.items():
        papers = (steps, ", ".join(f"{rate:g}" for rate in rates))
        cells += _configured("table4", row, config, COLUMNS_4, papers, {})
    return cells


def _configured(table, row, config, columns, papers, notes):
    """Return the hyper-parameters of a row, which are read from our config."""
    path = f"paper/{table}_{config}"
    return [
        Cell(
            table,
            row,
            column,
            paper,
            unit="",
            compute=lambda place, field=field: config_value(place, path, field),
            note=notes.get(column, ""),
        )
        for (column, field), paper in zip(columns.items(), papers, strict=True)
    ]


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
    """Return the models of all sizes on JFT-300M, and their compute."""
    cells = []
    for (model, epochs), printed in values.TABLE_6.items():
        row = f"{model}, {epochs} epochs"
        source = pre_trained("JFT-300M", model, epochs)
        for column, paper in printed.items():
            if column != values.EXAFLOPS:
                cell = transfer_cell("table6", row, column, paper, source)
            else:
                count = functools.partial(exaflops, model, epochs)
                cell = Cell(
                    "table6",
                    row,
                    column,
                    float(paper),
                    unit=column,
                    compute=lambda _, count=count: count(),
                    note="counted from the sizes",
                )
            cells.append(cell)
    return cells


SGD = (
    ("optimizer.name", "sgd"),
    ("optimizer.learning_rate", "1.6"),
    ("optimizer.weight_decay", "1e-4"),
)


def table_7() -> list[Cell]:
    """ResNets pre-trained with Adam and with SGD: five data sets, the mean."""
    cells = []
    for (model, optimizer), printed in values.TABLE_7.items():
        source, note = pre_trained("JFT-300M", model), ""
        if optimizer == "SGD":
            source = pre_trained("JFT-300M", model, variant="sgd", options=SGD)
            note = "the paper prints no rate of SGD; that of big_vision's BiT"
        for dataset, paper in printed.items():
            if dataset == values.MEAN:
                cell = mean_of_five(
                    "table7", model, optimizer, paper, source, note
                )
            else:
                cell = transfer_cell(
                    "table7",
                    f"{model}, {dataset}",
                    optimizer,
                    paper,
                    source,
                    dataset=dataset,
                    note=note,
                )
            cells.append(cell)
    return cells


# Kind and place of the position embedding as options.
POSITIONS = {"none": "none", "1-D": "1d", "2-D": "2d", "relative": "relative"}
PLACES = ("stem", "every_layer", "every_layer_shared")
IN_ATTENTION = "relative"  # It has no place at the stem.


def table_8() -> list[Cell]:
    """Position embeddings, by five images per class of ImageNet."""
    return [
        few_shot_cell("table8", row, column, paper, _positions(row, column))
        for row, printed in values.TABLE_8.items()
        for column, paper in printed.items()
        if paper is not None
    ]


def _positions(row, column):
    kind = POSITIONS[row]
    place = dict(zip(values.PLACES_8, PLACES, strict=True))[column]
    if (kind, place) == ("1d", "stem"):
        return pre_trained("JFT-300M", "ViT-B/16")
    options = [("model.variant.position", kind)]
    if kind not in ("none", IN_ATTENTION):
        options.append(("model.variant.position_at", place))
    return pre_trained(
        "JFT-300M",
        "ViT-B/16",
        variant=f"{kind}_{place}",
        options=tuple(options),
    )


def table_9() -> list[Cell]:
    """VTAB-1k task by task."""
    cells = []
    for row, papers in PAPER.items():
        source = pre_trained(*SOURCES[row])
        commands = vtab_runs(source, SEEDS)
        cells += [
            run_cell(
                "table9",
                row,
                task,
                paper,
                source,
                commands,
                f"tasks:{task}",
                seeds=SEEDS,
                note=TASKS[task].drift,
            )
            for task, paper in zip(TASKS, papers, strict=True)
        ]
    return cells


SECTION = "section4.6"
MODEL = "ViT-B/16"
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
    printed = {
        dataset: columns["ImageNet"][values.TRANSFERRED.index(MODEL)]
        for dataset, columns in values.TABLE_5.items()
    }
    starts = (
        (
            "from scratch",
            printed["ImageNet"],
            pre_trained("ImageNet", MODEL),
            "the number of Table 5; 2 % behind masked patches in the text",
        ),
        ("masked patches on JFT-300M", values.MASKED_PATCHES, _masked(), ""),
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
    fine_tuned = [
        transfer_cell(SECTION, row, "ImageNet", paper, source, note=note)
        for row, paper, source, note in starts
    ]
    few = [
        few_shot_cell(
            SECTION,
            row,
            "ImageNet, 5 images a class",
            None,
            _masked(variant, options),
            f"{NO_NUMBER} ({found}), nor whose features it took: ours are "
            "those of the class token",
        )
        for row, (variant, options, found) in SETTINGS.items()
    ]
    return [*fine_tuned, *few]


def _masked(variant="", options=(), dataset="jft300m"):
    name = MODEL.replace("/", "")
    folder = f"{dataset}/{name}_masked{variant and f'_{variant}'}"
    return trained_source(folder, "pretrain", "paper/masked_patch_b16", options)


TABLES = {
    "table1": table_1,
    "table2": table_2,
    "table3": table_3,
    "table4": table_4,
    "table5": table_5,
    "table6": table_6,
    "table7": table_7,
    "table8": table_8,
    "table9": table_9,
}
