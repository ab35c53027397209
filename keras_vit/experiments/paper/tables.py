"""The cells of the paper's tables, with what each takes."""

import functools

from keras_vit.data.vtab_table import PAPER, TASKS
from keras_vit.experiments.paper import runs
from keras_vit.experiments.paper import values_table as values
from keras_vit.experiments.paper.cell import Cell
from keras_vit.experiments.paper.estimates import core_days, exaflops
from keras_vit.experiments.paper.sources import Source, pre_trained

__all__ = [
    "table_2",
    "table_5",
    "table_6",
    "SOURCES",
    "table_9",
    "transfer_cell",
]

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
    commands = runs.transferred(source, dataset.removesuffix(" ReaL"))
    if dataset == REAL:
        commands = runs.real(commands, 1)
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
        commands, key = runs.vtab(source, SEEDS), "groups:all"
    elif column.startswith("ImageNet"):
        commands = runs.transferred(
            source,
            "ImageNet",
            seeds=SEEDS,
            config="paper/table2_imagenet_l16",
            options=RESOLUTION_2.get(model, ()),
        )
        commands = runs.real(commands, SEEDS) if column == REAL else commands
    else:
        commands = runs.transferred(source, column, seeds=SEEDS)
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
        commands = runs.vtab(pre_trained(dataset, model), SEEDS)
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
