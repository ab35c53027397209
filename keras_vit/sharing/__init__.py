"""Shares models on the Hugging Face Hub and on Kaggle."""

from keras_vit.sharing.push import push_to_hub

__all__ = ["push_to_hub"]
