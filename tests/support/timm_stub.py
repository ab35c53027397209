"""Lets timm be imported where torchvision, which it imports, is missing."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types

import pytest


class Named(type):
    """An enumeration or class of which every member is there."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


class Anything(types.ModuleType):
    """A module in which every name is an empty class."""

    __path__: list = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Named(name, (), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torchvision":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Anything(spec.name)

    def exec_module(self, module):
        pass


def import_timm(name="timm"):
    """timm, or another package of its kind, or the test is skipped."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed", allow_module_level=True)
    if importlib.util.find_spec("torchvision") is not None:
        return importlib.import_module(name)
    finder = Finder()
    sys.meta_path.append(finder)
    try:
        return importlib.import_module(name)
    finally:
        # Others ask whether torchvision is there and believe the answer.
        sys.meta_path.remove(finder)
        for name in [x for x in sys.modules if x.startswith("torchvision")]:
            del sys.modules[name]
