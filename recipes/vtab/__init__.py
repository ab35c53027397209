"""VTAB-1k with one setting for all tasks, and its table beside the paper's."""
