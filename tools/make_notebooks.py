"""Makes the notebooks from the percent scripts beside them.

    make notebooks

The scripts are what is edited and reviewed; the notebooks, which are what one
opens on Kaggle and Colab, hold the same cells and no outputs.
"""

import pathlib
import sys

import jupytext
import nbformat

ROOT = pathlib.Path(__file__).parents[1]
FOLDERS = ("docs/notebooks", "recipes/kaggle")
METADATA = {
    "kernelspec": {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    },
    "language_info": {"name": "python"},
}


def scripts() -> list[pathlib.Path]:
    """The percent scripts of the project.

    Returns:
        Their paths, in order.
    """
    return sorted(
        path for folder in FOLDERS for path in (ROOT / folder).glob("*.py")
    )


def notebook(script: pathlib.Path) -> str:
    """The notebook of a script, the same text at each call.

    Args:
        script: a percent script.

    Returns:
        What the .ipynb file holds.

    Raises:
        ValueError: the script has no cells of code and text.
    """
    made = jupytext.read(script, fmt="py:percent")
    if {cell.cell_type for cell in made.cells} != {"code", "markdown"}:
        raise ValueError(
            f"{str(script)!r} is no percent script: its cells begin with "
            "'# %%' and '# %% [markdown]'."
        )
    made.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(made.cells):
        # They would be drawn by chance.
        cell["id"] = f"cell-{number}"
    nbformat.validate(made)
    return nbformat.writes(made) + "\n"


def main() -> int:
    for script in scripts():
        path = script.with_suffix(".ipynb")
        path.write_text(notebook(script), encoding="utf-8")
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
