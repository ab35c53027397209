"""A model on Kaggle, through kagglehub."""

import dataclasses
import pathlib
import re

from keras_vit.checkpoints.dialects import LIBRARIES
from keras_vit.checkpoints.public.network import refused, without_secrets
from keras_vit.sharing.hub_repository import INSTALL
from keras_vit.sharing.model_card import Place
from keras_vit.version import __version__

__all__ = ["KaggleModel"]

LOG_IN = (
    "Set KAGGLE_API_TOKEN, or KAGGLE_USERNAME and KAGGLE_KEY, from "
    "https://www.kaggle.com/settings, or put kaggle.json into ~/.kaggle."
)
CURES = {
    401: f"The credentials are not valid. {LOG_IN}",
    403: "Give a model that you may write to: kaggle://YOUR_NAME/...",
    404: "Check the name of the model and its framework.",
}
# Framework of Kaggle: formats that belong there; any of another.
FRAMEWORKS = {"keras": ("keras",)} | {
    framework: tuple(
        x.format
        for x in sorted(
            (x for x in LIBRARIES if framework in x.frameworks),
            key=lambda x: x.frameworks.index(framework),
        )
    )
    for library in LIBRARIES
    for framework in library.frameworks
}
# Licences as Kaggle calls them.
LICENCES = {
    "apache-2.0": "Apache 2.0",
    "mit": "MIT",
    "cc0-1.0": "CC0: Public Domain",
    "cc-by-4.0": "Attribution 4.0 International (CC BY 4.0)",
    "cc-by-sa-4.0": "CC BY-SA 4.0",
    "cc-by-nc-sa-4.0": "CC BY-NC-SA 4.0",
}


@dataclasses.dataclass(frozen=True)
class KaggleModel:
    """Where a model is uploaded to; a new one is private.

    Attributes:
        handle: str, "user/model/framework/variation".
        licence: str, of the model, or None.
    """

    handle: str
    licence: str | None = None

    @property
    def formats(self) -> tuple[str, ...] | None:
        """The formats that the framework is for; None for all."""
        wanted = self.handle.split("/")[2].lower()
        return {x.lower(): y for x, y in FRAMEWORKS.items()}.get(wanted)

    @property
    def place(self) -> Place:
        _, model, _, variation = self.handle.split("/")
        return Place(f"kaggle://{self.handle}", f"{model}, {variation}")

    def check(self) -> None:
        """Raises a ValueError without kagglehub, credentials or a framework."""
        kagglehub = _kagglehub()
        try:
            kagglehub.handle.parse_model_handle(self.handle).framework_enum()
        except Exception as error:
            raise ValueError(
                "A model on Kaggle is kaggle://user/model/framework/variation "
                f"with a framework of Kaggle's: {', '.join(FRAMEWORKS)}, jax, "
                f"tensorFlow2, other. Received: kaggle://{self.handle}."
            ) from error
        if not _credentials(kagglehub):
            raise ValueError(f"There are no credentials of Kaggle. {LOG_IN}")

    def upload(self, folder: pathlib.Path, message: str | None = None) -> str:
        """Uploads a folder as a new version.

        Raises:
            OSError: Kaggle refuses, or cannot be reached.
        """
        kagglehub = _kagglehub()
        licence = self.licence and LICENCES.get(self.licence.lower())
        try:
            kagglehub.model_upload(
                self.handle,
                str(folder),
                license_name=licence or self.licence,
                version_notes=message
                or f"Uploaded with keras_vit {__version__}",
            )
        except Exception as error:
            self._refuse(error, _credentials(kagglehub))
        return f"https://www.kaggle.com/models/{self.handle}"

    def _refuse(self, error, credentials):
        what = f"The upload to {self.handle!r} failed"
        secrets = [
            getattr(credentials, name, None) for name in ("key", "api_key")
        ]
        secret = next(filter(None, secrets), None)
        kind = type(error).__name__
        if kind in ("BackendError", "UnauthenticatedError"):
            words = without_secrets(" ".join(str(error).split()), secret)
            # The cause has the key in its words.
            raise OSError(f"{what}: {words.rstrip('.')}. {LOG_IN}") from None
        refused(error, what, CURES, secret)


def _kagglehub():
    try:
        import kagglehub
        import kagglehub.config
        import kagglehub.handle
    except ImportError as error:
        raise ValueError(
            f"kagglehub, which uploads models, is not installed. {INSTALL}"
        ) from error
    return kagglehub


def _credentials(kagglehub):
    try:
        return kagglehub.config.get_kaggle_credentials()
    except ValueError as error:  # A damaged kaggle.json.
        words = re.sub(r"\s+", " ", str(error)).rstrip(".")
        raise ValueError(f"{words}. {LOG_IN}") from None
