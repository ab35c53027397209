"""Data sets that the recipes take by name besides the library's."""
