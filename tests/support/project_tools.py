"""The scripts of tools/ as modules."""

import importlib.util
import pathlib
import sys

ROOT = pathlib.Path(__file__).parents[2]


def tool(name: str):
    """tools/NAME.py, imported."""
    path = ROOT / "tools" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    sys.modules[name] = script  # Dataclasses look there for their module.
    spec.loader.exec_module(script)
    return script
