"""Prints the table of models in README.md: `python tools/make_model_table.py`.

Parameters and multiply-adds are counted on the models themselves, which are
built without memory for their weights.
"""

import keras

import keras_vit
from keras_vit.analysis.compute import multiply_adds
from keras_vit.sizes import BIT, MIXER, VIT

HEADER = """\
| model | parameters (M) | multiply-adds at 224 (10^9) |
|---|---:|---:|
"""


def main() -> None:
    print(table())


def table() -> str:
    return HEADER + "\n".join(map(row, (*VIT, *MIXER, *BIT)))


def row(name: str) -> str:
    with keras.StatelessScope(initialize_variables=False):
        model = getattr(keras_vit, name)(weights=None)
    billions = sum(multiply_adds(model).values()) / 1e9
    millions = model.count_params() / 1e6
    # Or the next model that is built would make these weights too.
    keras.utils.clear_session()
    return f"| `{name}` | {millions:.1f} | {billions:.1f} |"


if __name__ == "__main__":
    main()
