"""Tables 1, 3 and 4: sizes and hyper-parameters, against those that we have."""

from keras_vit.experiments.paper import values_table as values
from keras_vit.experiments.paper.cell import Cell
from keras_vit.experiments.paper.estimates import SIZES, config_value, size_of

__all__ = ["table_1", "table_3", "table_4"]

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
