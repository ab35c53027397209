"""The names of data sets that the recipes add to those of the library."""

from vtab.dataset import open_vtab

from named_data.fractals import open_fractals

__all__ = ["SOURCES"]

# The first part of data.name to the function that opens it.
SOURCES = {"fractals": open_fractals, "vtab": open_vtab}
