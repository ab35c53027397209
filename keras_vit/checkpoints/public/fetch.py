"""From what `weights=` takes to the path of a file, downloaded if need be."""

import difflib
import hashlib
import os
import re
import sys
import urllib.parse
from pathlib import Path

from keras_vit.checkpoints.public import catalog
from keras_vit.checkpoints.public.download import Download, is_offline
from keras_vit.checkpoints.public.network import (
    attempted,
    check_address,
    shown,
    without_secrets,
)
from keras_vit.io.stores import fetched, of_store

__all__ = [
    "cached_path",
    "is_address",
    "resolve",
    "shipped_path",
]

# Weights that come with the package; the README there says how they were made.
FOLDER = Path(__file__).parents[2] / "weights"


# A file of several towers: `file.npz:img`.
SUBTREE = re.compile(r"(?P<source>.+\.npz):(?P<subtree>[^/\\:]+)")
REPOSITORY = re.compile(
    r"(?:hf://|https://huggingface\.co/)(?P<name>[\w.-]+/[\w.-]+)"
    r"(?:@|/tree/|/?$)(?P<revision>[^@]*)"
)
USER_AND_NAME = re.compile(r"(?P<user>\w[\w.-]*)/[\w.-]+(?:@[\w./-]+)?")
KAGGLE = re.compile(r"kaggle://(?P<handle>[\w-]+/[\w-]+(?:/[\w.-]+){2,3})")
PATH_BEGINNINGS = (".", "~", os.sep)
PATH_SUFFIXES = (".npz", ".safetensors", ".h5", ".keras", ".json")
# All that the formats are made of; no pickles.
REPOSITORY_FILES = (
    *("*.json", "model*.safetensors", "*.weights.h5"),
    *("model.keras", "merges.txt", "spiece.model", "tokenizer.model"),
)
ATTEMPTS = 10  # What came stays: each goes on where the last one failed.
TENSORS = ("*.safetensors", "*.h5", "*.keras")


def resolve(
    source: str | os.PathLike,
    model: str | None = None,
    *,
    texts: bool = False,
) -> str:
    """Return the path of a checkpoint, downloaded if need be.

    Args:
        source: one of

            - a path, with `:subtree` behind an `.npz` of several towers;
            - a name of `keras_vit.checkpoints.public.catalog`, with the model
              before it where `model` is None: "ViT_B16/imagenet21k";
            - "fractals", the weights that come with the package;
            - the `https://` address of a file;
            - `hf://user/repository[@revision]`, or the `https://` address of
              its page, or `user/repository` alone; these need huggingface_hub;
            - a name of timm's, with its tag or without;
            - the address of a file or folder in a store, gs:// or s3://, which
              needs the extra `storage`;
            - `kaggle://user/model/framework/variation[/version]`, which needs
              kagglehub.
        model: str, the application that the weights are for, or None.
        texts: bool, whether the text tower of a repository is needed, too,
            where it is in a second file.

    Returns:
        The path of a file or folder, with the `:subtree` of `source`.

    Raises:
        ValueError: the source is of no such form, or what came is not a
            checkpoint.
        OSError: the download failed, or there is no network; the message says
            what to fetch and where to put it.

    Example:
        >>> resolve("ViT-L_16.npz:img")
        'ViT-L_16.npz:img'
    """
    text = os.fspath(source)
    subtree = SUBTREE.fullmatch(text)
    if subtree:
        path = resolve(subtree["source"], model, texts=texts)
        return f"{path}:{subtree['subtree']}"
    if isinstance(source, os.PathLike) or os.path.exists(text):
        return text
    if of_store(text):
        return str(fetched(text))
    if "://" in text:
        return _fetch_address(text, texts=texts)
    if text.startswith(PATH_BEGINNINGS):
        return os.path.expanduser(text)
    return _fetch_name(text, model, texts)


def is_address(text: str) -> bool:
    """Return whether only fetching shows if there are weights of a name.

    A name such as "google/vit-base-patch16-224" is of a repository where it
    begins with no folder that is here, nor with an application or nearly so.

    Example:
        >>> is_address("google/siglip-base-patch16-224")
        True
        >>> is_address("ViT_B16/imagenet")
        False
    """
    if "://" in text:
        return True
    owner = USER_AND_NAME.fullmatch(text)
    known = [*catalog.MODELS, *catalog.WITHOUT_WEIGHTS]
    return bool(
        owner
        and not difflib.get_close_matches(owner["user"], known)
        and not os.path.isdir(owner["user"])
        and not text.endswith(PATH_SUFFIXES)
    )


def shipped_path(name: str, model: str | None = None) -> str | None:
    """Return the path of weights in the package; None of other names.

    Raises:
        ValueError: when they are wanted as those of an application.
    """
    file = catalog.SHIPPED.get(name.lower())
    if file is None:
        return None
    if model is not None:
        raise ValueError(
            f"The weights {name!r} are of a small model without a name, not "
            f"of {model}. Leave the model's name out (model.name in recipes), "
            "or call keras_vit.load_checkpoint."
        )
    return str(FOLDER / file)


def cached_path(entry: catalog.Entry) -> Path:
    """Return where the file of an entry is once it was downloaded.

    Raises:
        ValueError: it is a repository, whose place huggingface_hub decides.

    Example:
        >>> cached_path(catalog.find("ViT_B16", "imagenet21k")).name
        'ViT_B16_imagenet21k.npz'
    """
    if entry.is_repository:
        raise ValueError(
            f"{entry.name!r} is a repository, not a file. huggingface_hub "
            "knows where its files are."
        )
    return Download(entry.url, entry.file_name).path


def _fetch_name(name, model, texts):
    shipped = shipped_path(name, model)
    if shipped is not None:
        return shipped
    try:
        entry = catalog.find(model, name)
    except ValueError as error:
        if is_address(name):
            try:
                return _fetch_address(f"hf://{name}", texts=texts)
            except OSError as failure:
                raise OSError(
                    f"There is no path {name!r}. {failure}"
                ) from failure
        if name.endswith(PATH_SUFFIXES):
            return name  # Who opens it says that there is no such file.
        raise ValueError(f"{error} Nor is there such a path.") from error
    if entry.url.endswith(catalog.PICKLES):
        raise ValueError(
            f"The weights {name!r} are published as a pickle alone, "
            f"{entry.url}, and pickles are not opened. Where you trust it, "
            "convert it with torch.load(..., weights_only=True) and "
            "safetensors.torch.save_file, and pass the path with "
            f"architecture={entry.architecture!r}."
        )
    if entry.is_repository:
        size = entry.approximate_mebibytes
        about = f", about {size:,.0f} MiB" if size else ""
        return _fetch_address(entry.url, about, texts)
    return Download(
        entry.url, entry.file_name, entry.num_bytes, entry.sha256
    ).fetch()


def _fetch_address(address, about="", texts=False):
    repository = REPOSITORY.fullmatch(address)
    if repository:
        return _fetch_repository(
            repository["name"], repository["revision"] or None, about, texts
        )
    if kaggle := KAGGLE.fullmatch(address):
        return _fetch_from_kaggle(kaggle["handle"])
    if not address.startswith("https://"):
        raise ValueError(
            "Expected an address that starts with https:// or hf://user/name, "
            "gs://, s3://, or kaggle://user/model/framework/variation. "
            f"Received: {shown(address)!r}."
        )
    check_address(address)
    # Many files share a basename: the digest tells their addresses apart.
    digest = hashlib.sha256(address.encode()).hexdigest()[:16]
    path = urllib.parse.unquote(urllib.parse.urlsplit(address).path)
    name = re.sub(r"[^\w.+-]", "_", path.rpartition("/")[2]) or "weights"
    return Download(address, f"{digest}_{name}").fetch()


def _fetch_repository(name, revision, about, texts):
    try:
        import huggingface_hub
    except ImportError as error:
        raise ValueError(
            f"huggingface_hub, which downloads {name!r}, is not installed. "
            'Install it: pip install "keras-vision-transformer[hub]". Or '
            f"download the files of https://huggingface.co/{name} into a "
            "folder and pass its path."
        ) from error
    from keras_vit.checkpoints.dialects import PAIR_WEIGHTS

    try:
        folder = _snapshot(huggingface_hub, name, revision, about)
        if _lacks_pair(Path(folder), texts):
            files = (*REPOSITORY_FILES, PAIR_WEIGHTS)
            folder = _snapshot(huggingface_hub, name, revision, about, files)
    except Exception as error:  # Its errors differ between its versions.
        page = f"https://huggingface.co/{name}/tree/{revision or 'main'}"
        raise OSError(
            f"The repository {name!r} could not be fetched: "
            f"{without_secrets(str(error), None)} Put "
            f"config.json and model*.safetensors of {page} into a folder and "
            "pass the folder's path, or put the repository into the cache of "
            f"huggingface_hub: hf download {name}"
        ) from error
    return _with_weights(folder, name)


def _lacks_pair(folder, texts):
    """Return whether what is needed is in the file of both halves alone."""
    from keras_vit.checkpoints.dialects import PAIR_CONFIG

    if not (folder / PAIR_CONFIG).is_file():
        return False
    config = folder / "config.json"
    told = config.read_text("utf-8") if config.is_file() else ""
    return not any(folder.glob("*.safetensors")) or (
        texts and '"text_config"' not in told
    )


def _snapshot(hub, name, revision, about, files=REPOSITORY_FILES):
    """Return the folder of a repository; what is fetched is said before."""

    def fetch(here, patterns):
        return hub.snapshot_download(
            name,
            revision=revision,
            allow_patterns=list(patterns),
            local_files_only=here,
        )

    if not is_offline():
        try:
            fetch(True, files)
        except Exception:  # It is not here; its errors differ by version.
            # Small files first: of no such repository nothing is said.
            attempted(lambda: fetch(False, REPOSITORY_FILES[:1]), ATTEMPTS)
            print(f"Fetching {catalog.HUB}/{name}{about}", file=sys.stderr)
    return attempted(lambda: fetch(is_offline(), files), ATTEMPTS)


def _fetch_from_kaggle(handle):
    try:
        import kagglehub
    except ImportError as error:
        raise ValueError(
            f"kagglehub, which downloads {handle!r}, is not installed. "
            'Install it: pip install "keras-vision-transformer[hub]". Or '
            "download the files of the model into a folder and pass its path."
        ) from error
    if is_offline():
        raise OSError(
            f"HF_HUB_OFFLINE is set: kaggle://{handle} is not downloaded. "
            "Pass the path of a folder with its files."
        )
    try:
        folder = kagglehub.model_download(handle)
    except Exception as error:  # Of several kinds, one of them its own.
        words = without_secrets(" ".join(str(error).split()), None)
        raise OSError(
            f"kaggle://{handle} could not be fetched: {words} Download the "
            "files of the model into a folder and pass its path."
        ) from error
    return _with_weights(folder, handle)


def _with_weights(folder, name):
    """Return the folder of a repository if it holds weights to be opened."""
    if not any(path for kind in TENSORS for path in Path(folder).glob(kind)):
        raise ValueError(
            f"The repository {name!r} holds no *.safetensors, *.h5 or *.keras "
            "in its main folder. Pickles (*.bin, *.pth) are not opened."
            f"{_instead(name)}"
        )
    return folder


def _instead(name):
    known = [entry for entry in catalog.entries() if entry.name == name]
    originals = [e.same_weights_as for e in known if e.same_weights_as]
    if not originals:
        return ""
    return f" The same weights are {known[0].model}/{originals[0]}."
