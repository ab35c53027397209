"""Makes the notebooks from the percent scripts beside them.

    make notebooks

The scripts are what is edited and reviewed; the notebooks, which are what one
opens on Kaggle and Colab, hold the same cells and no outputs. Those of docs/
have one more, which installs the package where it is missing; those of
recipes/kaggle do that themselves. All but TPU_VMS have badges that open them.
"""

import pathlib
import sys

import jupytext
import nbformat

ROOT = pathlib.Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools"))

from site_hooks import opened_in  # noqa: E402

TPU_VMS = "tpu_strategy"
# Of the notebooks that have no such cell of their own.
WHEELS = 'WHEELS = "/kaggle/input/keras-vit"  # used without the internet\n'
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
    title = made.cells[0]
    title.source = with_badges(title.source, script.with_suffix(".ipynb"))
    if script.parent.parent.name == "docs":
        made.cells.insert(1, nbformat.v4.new_code_cell(install_cell()))
    for number, cell in enumerate(made.cells):
        # They would be drawn by chance.
        cell["id"] = f"cell-{number}"
    nbformat.validate(made)
    return nbformat.writes(made) + "\n"


def install_cell() -> str:
    """Return the cell that installs the package, with what figures need.

    It is that of recipes/kaggle, without the choice of a backend.
    """
    script = ROOT / "recipes" / "kaggle" / "gpu_t4x2.py"
    cells = jupytext.read(script, fmt="py:percent").cells
    (cell,) = (x for x in cells if "install" in x.metadata.get("tags", ()))
    text = cell.source.replace("import os\nimport pathlib\n", "")
    text = text.replace('os.environ["KERAS_BACKEND"] = BACKEND\n', "")
    imports, rest = text.split("\n\n", 1)
    rest = rest.replace('transformer"', 'transformer[plots]"')
    return f"{imports}\n\n{WHEELS}{rest}"


def with_badges(source: str, path: pathlib.Path) -> str:
    """The first cell of a notebook, with badges below its title."""
    if path.stem == TPU_VMS:
        return source
    title, _, rest = source.partition("\n\n")
    relative = path.relative_to(ROOT).as_posix()
    badges = [
        f"[![Open in {name}]({badge})]({address})"
        for name, badge, address in opened_in(relative)
    ]
    return "\n\n".join([title, "\n".join(badges), rest])


def main() -> int:
    for script in scripts():
        path = script.with_suffix(".ipynb")
        path.write_text(notebook(script), encoding="utf-8")
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
