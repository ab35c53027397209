"""What must hold before Keras and this package can work together."""

import importlib.metadata
import importlib.util
import os
import warnings

__all__ = ["check"]

# What Keras trains on: module and pip name are one and the same.
BACKENDS = ("tensorflow", "jax", "torch")
OLDEST_KERAS = "3.12"
# A stranger's distribution of 2023 that also installs a package `keras_vit`.
FOREIGN_DISTRIBUTION = "keras-vit"


def check() -> None:
    """Imports Keras and explains what is wrong with it, if anything is.

    Raises:
        ImportError: The backend that Keras is set to is not installed, or
            Keras is older than this package needs.

    Warns:
        UserWarning: The distribution `keras-vit`, whose files get mixed with
            those of this package, is installed too.

    Example:
        >>> check()
    """
    try:
        import keras
    except ModuleNotFoundError as error:
        if error.name not in BACKENDS:
            raise
        raise ImportError(_missing_backend_message(error.name)) from error
    if _major_minor(keras.__version__) < _major_minor(OLDEST_KERAS):
        raise ImportError(
            f"keras_vit needs Keras {OLDEST_KERAS} or newer, and Keras "
            f"{keras.__version__} is installed. Upgrade it: "
            f'pip install --upgrade "keras>={OLDEST_KERAS}"'
        )
    _warn_about_foreign_distribution()


def _missing_backend_message(missing: str) -> str:
    setting = os.environ.get("KERAS_BACKEND", "not set")
    others = [name for name in BACKENDS if name != missing]
    found = [name for name in others if importlib.util.find_spec(name)]
    example = found[0] if found else others[0]
    return (
        f"Keras could not import its backend {missing!r} (the environment "
        f"variable KERAS_BACKEND is {setting}). Either set KERAS_BACKEND to "
        f"a backend that is installed (here: {', '.join(found) or 'none'}) "
        "before the first import of keras or keras_vit, in a notebook in its "
        f'first lines: import os; os.environ["KERAS_BACKEND"] = "{example}". '
        f"Or install the missing one: pip install {missing}"
    )


def _major_minor(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _warn_about_foreign_distribution() -> None:
    try:
        version = importlib.metadata.version(FOREIGN_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return
    warnings.warn(
        f"The distribution {FOREIGN_DISTRIBUTION} {version} is installed. It "
        "is another project that writes into the same folder keras_vit. "
        f"Run `pip uninstall {FOREIGN_DISTRIBUTION}`, then install "
        "keras-vision-transformer again, since the removal takes files of "
        "both.",
        UserWarning,
        stacklevel=4,  # The line of the user that imports keras_vit.
    )
