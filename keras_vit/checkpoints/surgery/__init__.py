"""Weights for a model of another size than the file's."""
