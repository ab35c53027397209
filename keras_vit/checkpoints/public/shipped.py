"""Weights that come with the package: names that need no network.

`keras_vit/weights/README.md` says how they were made.
"""

from pathlib import Path

__all__ = ["SHIPPED", "shipped_path"]

FOLDER = Path(__file__).parents[2] / "weights"
SHIPPED = {"fractals": "fractals.npz"}


def shipped_path(name: str, model: str | None = None) -> str | None:
    """The file of weights that come with the package.

    Args:
        name: str, what `weights=` takes; case does not matter.
        model: str, the application that the weights are for, or None.

    Returns:
        Its path; None of any other name.

    Raises:
        ValueError: when they are asked for as those of an application.

    Example:
        >>> Path(shipped_path("fractals")).name
        'fractals.npz'
    """
    file = SHIPPED.get(name.lower())
    if file is None:
        return None
    if model is not None:
        raise ValueError(
            f"The weights {name!r} are of a small model without a name, not "
            f"of {model}. Leave the model's name out (model.name in recipes), "
            "or call keras_vit.load_checkpoint."
        )
    return str(FOLDER / file)
