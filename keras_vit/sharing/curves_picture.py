"""The learning curves of a run as a picture."""

import pathlib

from keras_vit.analysis.report.curves import learning_curves
from keras_vit.analysis.report.run_files import RunFiles
from keras_vit.io.atomic_files import replacing

__all__ = ["PICTURE", "write_picture"]

PICTURE = "training.png"
DOTS_PER_INCH = 150


def write_picture(path: pathlib.Path, folder: pathlib.Path | None) -> bool:
    """Draws the loss and the accuracy of a run.

    Args:
        path: the picture to write.
        folder: of the run, or None.

    Returns:
        Whether there is a picture: not without numbers, nor without
        matplotlib.
    """
    if folder is None:
        return False
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    files = RunFiles(folder)
    rows = [files.read(x) or [] for x in ("metrics.jsonl", "history.csv")]
    figure = learning_curves(*rows)
    if figure is None:
        return False
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=DOTS_PER_INCH)
    return True
