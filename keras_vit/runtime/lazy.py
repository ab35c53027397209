"""Names of a package whose modules are imported when a name is asked for.

Keras takes seconds to import and needs a backend. What an exported model
classifies images with needs neither.
"""

import difflib
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["lazy_names"]


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

    def get(name: str) -> Any:
        if name not in modules:
            near = difflib.get_close_matches(name, modules)
            advice = f". Did you mean {' or '.join(near)}?" if near else ""
            raise AttributeError(
                f"module {package!r} has no attribute {name!r}{advice}"
            )
        module = importlib.import_module(modules[name])
        is_module = module.__name__ == f"{package}.{name}"
        return module if is_module else getattr(module, name)

    def names_of_package() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return get, names_of_package
