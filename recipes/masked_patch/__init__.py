"""Masked patch prediction: self-supervision of a Vision Transformer."""
