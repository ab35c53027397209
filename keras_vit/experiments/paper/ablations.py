"""Tables 7 and 8: optimizers of ResNets, and position embeddings."""

from keras_vit.experiments.paper import runs
from keras_vit.experiments.paper import values_table as values
from keras_vit.experiments.paper.cell import Cell
from keras_vit.experiments.paper.sources import Source, pre_trained
from keras_vit.experiments.paper.tables import transfer_cell

__all__ = ["few_shot_cell", "mean_of_five", "table_7", "table_8"]

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
    found = [runs.transferred(source, dataset) for dataset in values.FIVE]
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
    commands = runs.few_shot(source)
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
