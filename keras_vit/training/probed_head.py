"""The head that a fine-tuning begins with: a linear probe of frozen features.

"Fine-Tuning can Distort Pretrained Features and Underperform
Out-of-Distribution" (arXiv:2202.10054): with a head of zeros the first updates
turn the features towards a head that is still random; a linear probe first,
then fine-tuning from it (LP-FT), leaves them where they are good.

Axes: N training images, D features, K outputs of the head.
"""

import keras
import numpy as np

from keras_vit import data
from keras_vit.evaluation.few_shot import FeatureStream, feature_model
from keras_vit.evaluation.probes import fit_layer
from keras_vit.training.build import balanced_weights
from keras_vit.training.trainable import HEAD

__all__ = ["fit_head"]

# Penalties of `fit_layer`. Chosen of 1, 10, 100 and 1000 on the features that a
# DINOv2 S/14 has of digits, for 40 to 800 images: 1 gave the best accuracy, and
# errors of numbers were about the same for 10 and 100, and larger for 1, most
# of all where there are as many images as features.
PENALTY = {"softmax": 1.0, "sigmoid": 1.0, "squared": 30.0}


def fit_head(recipe, dataset, model: keras.Model) -> None:
    """Give a model the head that fits the features of the training images.

    They are read as in an evaluation, without augmentation, once. Those that
    cannot be read are left out.

    Args:
        recipe: the `Recipe`, settled.
        dataset: its `Dataset`.
        model: its Keras model; of numbers, with its `Targets`.

    Raises:
        ValueError: when no image can be read, or a feature is not finite.
    """
    examples = dataset.train
    if targets := getattr(model, "targets", None):
        examples = targets.normalised(dataset).train
    stream = FeatureStream(feature_model(model))
    height, width, channels = model.input_shape[1:]
    batches = data.evaluation_batches(
        examples,
        image_size=(height, width),
        channels=channels,
        batch_size=recipe.training.micro_batch_size,
        preprocessing=recipe.preprocessing,
    )
    features, readable = stream.all_of(batches, len(examples))
    labels = np.asarray(examples.labels)
    if labels.ndim == 1:
        labels = np.eye(len(dataset.class_names))[labels]  # (N, K)
    weights = None
    if "balanced" in (recipe.data.sampling, recipe.training.class_weight):
        of_class = balanced_weights(examples.labels, dataset.class_names)
        weights = of_class[examples.labels[readable]]
    probe = fit_layer(
        features[readable],
        labels[readable].astype("float64"),
        loss=recipe.training.loss,
        l2=PENALTY[recipe.training.loss],
        weights=weights,
    )
    head = model.get_layer(HEAD)
    head.kernel.assign(probe.kernel.astype("float32"))
    head.bias.assign(probe.bias.astype("float32"))
