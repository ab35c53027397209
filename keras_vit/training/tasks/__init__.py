"""Ways to learn from images without labels, as tasks of `train`."""

from keras_vit.training.tasks.mae import MAE, MAEConfig, autoencoder

__all__ = ["MAE", "MAEConfig", "autoencoder"]
