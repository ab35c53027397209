"""Lists of labels and submissions of image competitions.

Kaggle gives a folder of images, a CSV file with the id and the class of each,
a folder of images to classify, and a sample of the submission.
"""

import csv
import os
import pathlib
from collections.abc import Sequence

from keras_vit.io.atomic_files import replacing
from keras_vit.prediction.classifier import load_classifier, predictions

__all__ = ["write_labels", "write_submission"]


def write_labels(
    path: str | os.PathLike,
    source: str | os.PathLike,
    images: str | os.PathLike,
    *,
    id_key: str,
    label_key: str,
    suffix: str = "",
) -> None:
    """Write the list of paths and labels that `DataConfig(csv=...)` reads.

    The folder of a competition is read-only, and its list has ids instead of
    paths.

    Args:
        path: the CSV file to write, with the columns "image" and "label".
        source: the CSV file of the competition.
        images: folder of its images.
        id_key: column of the ids.
        label_key: column of the classes.
        suffix: what follows the id in the name of a file, such as ".jpg".

    Raises:
        ValueError: when the file cannot be read, or a column or an image is
            missing.

    Example:
        >>> write_labels("train.csv", "in/train.csv", "in/train",
        ...     id_key="image_id", label_key="label", suffix=".jpg")
        >>> Recipe(data=DataConfig(csv="train.csv"))
    """
    header, *rows = _read(source)
    for key in (id_key, label_key):
        if key not in header:
            raise ValueError(
                f"{os.fspath(source)!r} has no column {key!r}. Its first line "
                f"names {', '.join(map(repr, header))}."
            )
    ids = [row[header.index(id_key)] for row in rows]
    labels = [row[header.index(label_key)] for row in rows]
    files = _existing(images, ids, suffix)
    absolute = [os.path.abspath(file) for file in files]
    _write(path, [("image", "label"), *zip(absolute, labels, strict=True)])


def write_submission(
    path: str | os.PathLike,
    model: str | os.PathLike,
    images: str | os.PathLike,
    *,
    sample: str | os.PathLike | None = None,
    suffix: str = "",
    batch_size: int = 64,
) -> None:
    """Classify the images of a sample submission and fill in its columns.

    With two columns, the second gets the name of the most probable class;
    with more, each but the first is a class and gets its probability.

    Args:
        path: the CSV file to write.
        model: the run folder, see `load_classifier`.
        images: folder of the images to classify.
        sample: the sample of the submission, whose first column has the ids;
            None for the names of all files in the folder, as "id", and
            "label".
        suffix: what follows the id in the name of a file.
        batch_size: int, images per step.

    Raises:
        ValueError: when the sample has other classes than the model, or an
            image is missing or cannot be read.

    Example:
        >>> write_submission("submission.csv", "run", "in/test",
        ...     sample="in/sample_submission.csv", suffix=".jpg")
    """
    if sample is None:
        header, suffix = ["id", "label"], ""
        ids = sorted(path.name for path in pathlib.Path(images).glob("[!.]*"))
    else:
        header, *rows = _read(sample)
        ids = [row[0] for row in rows]
    files = _existing(images, ids, suffix)
    classifier = load_classifier(model)
    classes = _classes(header, classifier.class_names, sample)
    found = predictions(
        classifier, files, top=len(classes) or 1, batch_size=batch_size
    )
    answers = zip(ids, found, strict=True)
    _write(
        path,
        [
            header,
            *(_row(name, prediction, classes) for name, prediction in answers),
        ],
    )


def _classes(header, class_names, sample) -> Sequence[str]:
    """Return the classes that have a column of their own."""
    if len(header) == 2:
        return ()
    if sorted(header[1:]) != sorted(class_names):
        raise ValueError(
            "Either a submission has two columns, or each but the first is a "
            f"class of the model. Received: {os.fspath(sample)!r} with the "
            f"columns {header}; the classes are {list(class_names)}."
        )
    return header[1:]


def _row(name, prediction, classes):
    if prediction.error is not None:
        raise ValueError(prediction.error)
    if not classes:
        return name, prediction.classes[0][0]
    shares = dict(prediction.classes)
    return name, *(shares[known] for known in classes)


def _existing(folder, ids, suffix) -> list[str]:
    """Return the file of each id; all must exist."""
    files = [str(pathlib.Path(folder, f"{name}{suffix}")) for name in ids]
    missing = [file for file in files if not os.path.isfile(file)]
    if missing or not files:
        example = f": there is no file {missing[0]!r}" if missing else ""
        raise ValueError(
            f"{len(missing)} of {len(files)} images are missing{example}. An "
            "image is the folder, its id and the suffix. Received: folder="
            f"{os.fspath(folder)!r}, suffix={suffix!r}."
        )
    return files


def _read(path) -> list[list[str]]:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file, skipinitialspace=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(
            f"{os.fspath(path)!r} cannot be read as a CSV file: {error}"
        ) from error
    rows = [row for row in rows if row]
    widths = {len(row) for row in rows}
    if len(widths) != 1 or widths == {1}:
        raise ValueError(
            f"{os.fspath(path)!r} must have a line of column names, and as "
            "many values, two at least, in every line."
        )
    return rows


def _write(path, rows) -> None:
    with (
        replacing(pathlib.Path(path)) as temporary,
        open(temporary, "w", newline="", encoding="utf-8") as file,
    ):
        csv.writer(file).writerows(rows)
