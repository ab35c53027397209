"""Checks Keras and its backend, and has Keras know the models.

This package does not import Keras until it needs it.
"""

import contextlib
import difflib
import functools
import gc
import importlib
import importlib.abc
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_vit.runtime.shipped_recipes import RECIPES

__all__ = [
    "check",
    "lazy_names",
    "start_lean",
    "start_quietly",
]

# Each has the same name as a module and for pip.
BACKENDS = ("tensorflow", "jax", "torch")
OLDEST_KERAS = "3.12"
# Another project, of 2023, that also installs a package `keras_vit`.
FOREIGN_DISTRIBUTION = "keras-vit"
# What is imported behind Keras, with the modules that it needs: Keras finds the
# classes of a saved model where they are registered, as their modules do.
REGISTERED = (
    "keras_vit.models.mixer",
    "keras_vit.models.vit",
    "keras_vit.variants.variant_transformer",
    "keras_vit.text.image_text",
)
# What Keras imports, where it is installed, for its galleries and its wrappers
# of scikit-learn: 2.0 of the 5.1 s that its import takes with JAX. With another
# backend, it imports JAX for a callback that no command has.
UNUSED = ("matplotlib", "sklearn")
# Keras needs PyTorch's compiler, a third of its import, to mark two functions
# as not to be compiled.
COMPILER = "torch._dynamo"
# What TensorFlow writes to standard error as it is imported.
NOISE = re.compile(
    rb"I0000 |To enable the following instructions|WARNING: All log messages"
)


def check() -> None:
    """Checks what can be checked without Keras, and has Keras checked.

    Keras is not imported: an exported model does without. As soon as somebody
    imports it, or at once where that was done, it is checked and the models
    are imported, so that Keras can load them.

    Raises:
        ImportError: Keras is older than this package needs; or, when Keras is
            imported, the backend that it is set to is not installed.

    Warns:
        UserWarning: TensorFlow, the default of Keras, is not installed and
            one of the two others was taken; or the distribution `keras-vit`,
            whose files get mixed with those of this package, is installed too.
    """
    if is_recipe := _runs_a_recipe():
        start_quietly()
    if is_recipe or _runs_a_module():
        start_lean()
    _take_installed_backend()
    _warn_about_foreign_distribution()
    if keras := sys.modules.get("keras"):
        _check_version(keras)
        _register()
    elif FOLLOWED not in sys.meta_path:
        sys.meta_path.insert(0, FOLLOWED)


def _runs_a_recipe() -> bool:
    """Whether the program is a recipe, which is as quiet as its command."""
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    return program is not None and Path(program).resolve().parent == RECIPES


def _runs_a_module() -> bool:
    """Whether the program is a module of this package, by `python -m`."""
    if sys.argv[:1] != ["-m"]:  # That is there until the module is found.
        return False
    return sys.orig_argv[-len(sys.argv)].startswith("keras_vit.")


def start_lean() -> None:
    """Leaves out of the import of Keras what no command uses of it.

    Keras's own galleries and wrappers of scikit-learn find no matplotlib and
    no scikit-learn then, and its Orbax callback no JAX where that is not the
    backend; all can be imported once Keras is. PyTorch's compiler is imported
    when something is compiled. The garbage collector rests meanwhile, and
    never looks at what was imported: it finds nothing there.
    """
    if "keras" not in sys.modules:
        sys.meta_path.insert(0, _WrappedModules(("keras",), _hide_unused))


def _hide_unused(loader) -> None:
    execute = loader.exec_module

    def execute_without(module):
        backend = os.environ.get("KERAS_BACKEND") or _configured_backend()
        unused = UNUSED if backend == "jax" else (*UNUSED, "jax")
        hidden: dict = {
            name: None for name in unused if name not in sys.modules
        }
        if backend == "torch" and COMPILER not in sys.modules:
            with contextlib.suppress(ImportError):
                importlib.import_module("torch")
                hidden[COMPILER] = types.ModuleType(COMPILER)
                hidden[COMPILER].disable = _not_compiled
        sys.modules.update(hidden)
        collecting = gc.isenabled()
        gc.disable()
        try:
            execute(module)
        finally:
            for name in hidden:
                sys.modules.pop(name, None)
            gc.freeze()
            if collecting:
                gc.enable()

    loader.exec_module = execute_without


def _not_compiled():
    """Stand in for `torch._dynamo.disable` until the compiler is imported."""

    def decorate(function):
        @functools.wraps(function)
        def run(*args, **kwargs):
            compiler = sys.modules.get(COMPILER)
            disable: Any = getattr(compiler, "disable", _not_compiled)
            if disable is _not_compiled:  # Nothing is being compiled.
                return function(*args, **kwargs)
            return disable(function)(*args, **kwargs)

        return run

    return decorate


def start_quietly() -> None:
    """Keeps TensorFlow's own lines off the standard error of a command.

    They are kept where TF_CPP_MIN_LOG_LEVEL is set. Errors stay in any case.
    Only before TensorFlow is imported is it of use.
    """
    if "TF_CPP_MIN_LOG_LEVEL" in os.environ or "tensorflow" in sys.modules:
        return
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # Does not concern its import.
    sys.meta_path.insert(0, _WrappedModules(("tensorflow", "keras"), _quieten))


def _quieten(loader) -> None:
    execute = loader.exec_module

    def execute_quietly(module):
        with _without_noise():
            execute(module)

    loader.exec_module = execute_quietly


@contextlib.contextmanager
def _without_noise():
    try:
        kept = os.dup(2)
    except OSError:  # It is closed.
        yield
        return
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            for line in file:
                if not NOISE.match(line):
                    os.write(2, line)


class _WrappedModules(importlib.abc.MetaPathFinder):
    """Finds modules as the finders behind it do, and changes their loaders."""

    def __init__(self, names, wrap: Callable, package: str | None = None):
        self.names = names
        self.wrap = wrap
        self.package = package  # and all modules of it

    def find_spec(self, fullname, path=None, target=None):
        if fullname not in self.names and (
            fullname.partition(".")[0] != self.package
        ):
            return None
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :]
        found = (x.find_spec(fullname, path, target) for x in behind)
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            self.wrap(spec.loader)
        return spec


def _follow(loader) -> None:
    """Has the loader of a module register the models once Keras is there.

    Not before the module is whole that imports Keras: they may need it.
    """
    execute = loader.exec_module

    def execute_and_follow(module):
        BEGUN.append(module)
        try:
            execute(module)
        except ModuleNotFoundError as error:
            if module.__name__ != "keras" or error.name not in BACKENDS:
                raise
            raise ImportError(_missing_backend_message(error.name)) from error
        finally:
            BEGUN.remove(module)
        if module.__name__ == "keras":
            _check_version(module)
        if sys.modules.get("keras") and not BEGUN:
            _register()

    loader.exec_module = execute_and_follow


def _register() -> None:
    if FOLLOWED in sys.meta_path:
        sys.meta_path.remove(FOLLOWED)
    for name in REGISTERED:
        importlib.import_module(name)


BEGUN: list = []  # Modules that are being imported, the last the innermost.
FOLLOWED = _WrappedModules(("keras",), _follow, __name__.partition(".")[0])


def _check_version(keras) -> None:
    if _major_minor(keras.__version__) < _major_minor(OLDEST_KERAS):
        raise ImportError(
            f"keras_vit needs Keras {OLDEST_KERAS} or newer, and Keras "
            f"{keras.__version__} is installed. Upgrade it: "
            f'pip install --upgrade "keras>={OLDEST_KERAS}"'
        )


def _take_installed_backend() -> None:
    """Takes an installed backend where nobody chose one."""
    if "keras" in sys.modules or "KERAS_BACKEND" in os.environ:
        return
    installed = [name for name in BACKENDS if _is_installed(name)]
    if not installed or _configured_backend() in installed:
        return
    os.environ["KERAS_BACKEND"] = installed[0]
    if len(installed) == 1:
        return  # There is nothing to choose.
    warnings.warn(
        f"KERAS_BACKEND is not set and {_configured_backend()!r} is not "
        f"installed: taking {installed[0]!r}. Set KERAS_BACKEND before the "
        "first import of keras or keras_vit to choose.",
        UserWarning,
        stacklevel=4,  # The line of the user that imports keras_vit.
    )


def _configured_backend() -> str:
    home = os.environ.get("KERAS_HOME") or Path.home() / ".keras"
    try:
        settings = json.loads((Path(home) / "keras.json").read_text())
    except (OSError, ValueError):
        return BACKENDS[0]
    return settings.get("backend", BACKENDS[0])


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _missing_backend_message(missing: str) -> str:
    setting = os.environ.get("KERAS_BACKEND", "not set")
    others = [name for name in BACKENDS if name != missing]
    found = [name for name in others if _is_installed(name)]
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


def lazy_names(
    package: str, names: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Makes the `__getattr__` and the `__dir__` of a package (PEP 562).

    Args:
        package: its `__name__`.
        names: module -> the names that the package has of it. The last part
            of a module's own name is the module itself.

    Returns:
        Both functions.

    Example:
        >>> __getattr__, __dir__ = lazy_names(
        ...     __name__, {"keras_vit.prediction.embeddings_file": ("nearest",)}
        ... )
    """
    modules = {name: x for x, found in names.items() for name in found}

    @functools.cache  # Parsers look for the names of types in all modules.
    def why_not(name: str) -> str:
        near = difflib.get_close_matches(name, modules)
        advice = f". Did you mean {' or '.join(near)}?" if near else ""
        return f"module {package!r} has no attribute {name!r}{advice}"

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(why_not(name))
        module = importlib.import_module(modules[name])
        is_module = module.__name__ == f"{package}.{name}"
        return module if is_module else getattr(module, name)

    def names_of_package() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return get, names_of_package
