"""Uploads a model with all that others need to use it."""

import os
import pathlib
import re
import secrets
import shutil
import tempfile
from collections.abc import Sequence

import keras

from keras_vit.data import PreprocessingConfig
from keras_vit.io.atomic_files import PARTIAL
from keras_vit.io.checks import check_choice
from keras_vit.prediction import Classifier
from keras_vit.sharing.hub_repository import (
    ADDRESS,
    INSTALL,
    HubRepository,
)
from keras_vit.sharing.kaggle_model import KaggleModel
from keras_vit.sharing.model_card import (
    check_source,
    open_shared,
    open_shared_pair,
)
from keras_vit.sharing.shared_folder import (
    FORMATS,
    check_folder,
    check_pair_folder,
    write_folder,
)
from keras_vit.text.image_text import ImageTextModel

__all__ = ["push_to_hub"]

KAGGLE = re.compile(r"kaggle://(?P<handle>[\w-]+/[\w-]+/[\w.-]+/[\w.-]+)")


def push_to_hub(
    model: str | os.PathLike | keras.Model | Classifier,
    name: str,
    *,
    texts: bool = False,
    format: str | None = None,
    private: bool | None = None,
    revision: str | None = None,
    commit_message: str | None = None,
    license: str | None = None,
    class_names: Sequence[str] | None = None,
    preprocessing: PreprocessingConfig | None = None,
    overwrite: bool = False,
    dry_run: str | os.PathLike | None = None,
) -> str:
    """Shares a model on the Hugging Face Hub or on Kaggle.

    The weights are uploaded with config.json, preprocessor_config.json, the
    names of the classes and a model card, which has the results of a run, its
    learning curves and how to use the model. Before anything is uploaded, the
    folder is loaded again, and has to give the output of the model. It needs
    a token that may write, from `hf auth login` or in HF_TOKEN; for Kaggle
    its credentials.

    Args:
        model: a run folder; a file, folder or name of weights that
            `load_checkpoint` takes; or a model of keras_vit, an image-text
            model as well.
        name: "user/name" on the Hugging Face Hub, also as "hf://user/name";
            or "kaggle://user/model/framework/variation".
        texts: bool, whether both towers of an image-text model are shared, as
            one `model.keras` for `keras_vit.load_image_text`; those of an
            `ImageTextModel` always are.
        format: "hugging_face", "timm" or "keras" (a `model.keras`); by
            default the first of them that can hold the model, on Kaggle that
            of the framework. keras_vit reads all.
        private: bool, whether a new repository is private; None is as the
            account has it. New models on Kaggle are private.
        revision: str, the branch to upload to, which is made if need be.
        commit_message: str, of the commit or the version on Kaggle.
        license: str, of the model, such as "apache-2.0". None says nothing,
            but of public weights that are shared as they are.
        class_names: sequence of str, where they are not those of the model.
        preprocessing: how images are resized and cropped, where it is not as
            the run or the weights were evaluated.
        overwrite: bool, whether files may be replaced that no upload of
            keras_vit wrote, and a README.md that was edited.
        dry_run: a folder that does not exist yet. It is written, checked and
            not uploaded; this needs no token and no network.

    Returns:
        The address of its page, or the path of the folder of a dry run.

    Raises:
        ValueError: for a wrong name, a model that the format cannot hold or
            that cannot be loaded, without a token or a needed package, and
            for a repository with files of others.
        OSError: when the hub refuses or cannot be reached.

    Example:
        >>> keras_vit.push_to_hub("runs/flowers", "user/flowers")
        'https://huggingface.co/user/flowers'
        >>> keras_vit.predict("hf://user/flowers", "photo.jpg")
    """
    check_choice("format", format, (None, *FORMATS))
    target = _target(name, revision, private, overwrite, license)
    formats = (format,) if format else target.formats or FORMATS
    is_pair = texts or isinstance(model, ImageTextModel)
    if is_pair:
        _check_pair(formats, class_names, preprocessing)
        formats = ("keras",)
    check_source(model)
    _check_card_writer()
    if dry_run is None:
        target.check()
    else:
        _check_free(pathlib.Path(dry_run))
    if is_pair:
        shared = open_shared_pair(model)
    else:
        shared = open_shared(model, class_names, preprocessing)

    def write(folder):
        write_folder(
            folder, shared, target.place, formats=formats, licence=license
        )
        if shared.pair is None:
            check_folder(folder, shared.model)
        else:
            check_pair_folder(folder, shared.pair)

    if dry_run is not None:
        return _written(pathlib.Path(dry_run), write)
    with tempfile.TemporaryDirectory(prefix="keras-vit-") as folder:
        write(pathlib.Path(folder))
        return target.upload(pathlib.Path(folder), commit_message)


def _check_pair(formats, class_names, preprocessing) -> None:
    """Refuse what an image-text model is not shared with."""
    given = {"class_names": class_names, "preprocessing": preprocessing}
    wrong = [f"{x}={y!r}"[:100] for x, y in given.items() if y is not None]
    if "keras" not in formats:
        wrong.append(f"format={formats[0]!r}")
    if wrong:
        raise ValueError(
            "Both towers of an image-text model are shared as they are, in "
            f'format="keras". Received: {", ".join(wrong)}. Leave it out.'
        )


def _target(name, revision, private, overwrite, licence):
    """Return the hub that a name belongs to."""
    if kaggle := KAGGLE.fullmatch(name):
        if revision:
            raise ValueError(
                "Kaggle has versions in place of branches. Received: "
                f"revision={revision!r}. Leave it out."
            )
        return KaggleModel(kaggle["handle"], licence)
    found = ADDRESS.fullmatch(name)
    if not found:
        raise ValueError(
            "Expected user/name on the Hugging Face Hub, or kaggle://user/"
            f"model/framework/variation. Received: {name!r}."
        )
    if revision and found["revision"] not in (None, revision):
        raise ValueError(
            f"The name {name!r} has another branch than revision={revision!r}."
            " Leave one of them out."
        )
    revision = revision or found["revision"]
    return HubRepository(found["name"], revision, private, overwrite)


def _check_card_writer() -> None:
    try:
        import huggingface_hub  # noqa: F401
    except ImportError as error:
        raise ValueError(
            "huggingface_hub, which writes model cards, is not installed. "
            f"{INSTALL}"
        ) from error


def _check_free(folder) -> None:
    if folder.exists():
        raise ValueError(
            f"{str(folder)!r} exists. Give a folder for the dry run that does "
            "not exist yet."
        )
    if not folder.parent.is_dir():
        raise ValueError(
            f"There is no folder {str(folder.parent)!r} to write "
            f"{folder.name!r} into. Make it first."
        )


def _written(folder, write) -> str:
    """Write a folder; it exists once it is complete and checked."""
    part = folder.with_name(f"{PARTIAL}{folder.name}-{secrets.token_hex(4)}")
    part.mkdir()
    try:
        write(part)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return str(folder)
