"""A tiny training of every part that has a state, in this process or its own.

    python tests/support/tiny_training.py FOLDER [plain]

trains on made-up images, in the folder of a run; what is plain has no dropout,
whose masks each backend draws in its own way.
"""

import dataclasses
import pathlib
import sys
import zlib

import keras
import numpy as np

from keras_vit import data
from keras_vit.models import VisionTransformer
from keras_vit.training import checkpointing, training_run
from keras_vit.training.build import Accuracy, validation_batches
from keras_vit.training.stages import Plan
from keras_vit.variants import VariantTransformer

CLASS_NAMES = ("circle", "square", "line")
IMAGES, BATCH = 40, 8
PLAN = Plan(
    total=22,
    steps_per_epoch=IMAGES // BATCH,
    batch_size=BATCH,
    checkpoint_every=5,
    evaluate_every=5,
    log_every=2,
)


def examples(count, seed):
    """Noise about a mean that tells the class."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % len(CLASS_NAMES)
    noise = random.uniform(0, 155, (count, 8, 8, 1))
    images = (noise + 50 * labels[:, None, None, None]).astype("uint8")
    return data.Examples(images, labels.astype("int32"))


def stream():
    """Batches with every kind of augmentation: of an image and of a batch."""
    return data.training_stream(
        examples(IMAGES, seed=0),
        len(CLASS_NAMES),
        image_size=8,
        channels=1,
        batch_size=BATCH,
        augmentation=data.AugmentationConfig(shift=0.2, mixup_alpha=0.2),
        seed=5,
    )


@dataclasses.dataclass
class Poisoned:
    """A stream some of whose batches have an image that is no number."""

    steps: tuple
    clean: data.TrainingStream = dataclasses.field(default_factory=stream)

    def names_of(self, step):
        return self.clean.names_of(step)

    def from_step(self, step):
        import tensorflow as tf

        def poison(number, batch):
            images, labels = batch
            hit = tf.reduce_any(number == tf.constant(self.steps, "int64"))
            images = tf.cast(images, "float32")
            return tf.where(hit, np.nan, images), labels

        batches = self.clean.from_step(step)
        return batches.enumerate(step).map(poison)


def validation():
    """10 images in two batches of 8: the second has 6 of padding."""
    batches = data.evaluation_batches(
        examples(10, seed=1),
        image_size=8,
        channels=1,
        batch_size=BATCH,
        preprocessing=data.PreprocessingConfig(evaluation="squash"),
    )
    return validation_batches(batches, 10, len(CLASS_NAMES))


def model(**options):
    """A Vision Transformer with dropout and stochastic depth."""
    config = {
        "image_size": 8,
        "patch_size": 4,
        "channels": 1,
        "hidden_dim": 8,
        "num_layers": 1,
        "mlp_dim": 16,
        "num_heads": 2,
        "dropout_rate": 0.1,
        "stochastic_depth_rate": 0.1,
        "num_classes": len(CLASS_NAMES),
        "include_preprocessing": True,
        **options,
    }
    family = VariantTransformer if "variant" in options else VisionTransformer
    return family(family.config_class(**config))


def optimizer(**options):
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, PLAN.total - 4, warmup_target=0.01, warmup_steps=4
    )
    options = {"use_ema": True, "ema_momentum": 0.9, **options}
    return keras.optimizers.AdamW(schedule, global_clipnorm=1.0, **options)


def loss():
    return keras.losses.CategoricalCrossentropy(from_logits=True)


def train(
    folder,
    plan=PLAN,
    *,
    network=None,
    rule=None,
    batches=None,
    callbacks=(),
    **options,
):
    """Trains in a folder, from its newest checkpoint where it has one."""
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    keras.utils.set_random_seed(3)
    network = network or model()
    options = {"patience": 9, **options}
    rows, _ = training_run.Loop(folder, plan, CLASS_NAMES, **options).run(
        network,
        rule or optimizer(),
        loss(),
        batches or stream(),
        validation(),
        metrics=[Accuracy("accuracy")],
        checkpoint=checkpointing.read_newest(folder / checkpointing.FOLDER),
        callbacks=callbacks,
    )
    return network, rows


def newest(folder) -> tuple[dict, dict]:
    """The newest checkpoint of a run folder, which there must be."""
    found = checkpointing.read_newest(pathlib.Path(folder))
    assert found is not None
    return found


def bits(network) -> int:
    """A checksum of all weights and generators."""
    arrays = map(keras.ops.convert_to_numpy, network.variables)
    return zlib.crc32(b"".join(array.tobytes() for array in arrays))


def plain(folder, callbacks=()):
    """Trains without randomness of the backend."""
    rule = keras.optimizers.SGD(
        0.05, momentum=0.9, use_ema=True, ema_momentum=0.9
    )
    keras.utils.set_random_seed(3)
    network = model(dropout_rate=0.0, stochastic_depth_rate=0.0)
    return train(folder, network=network, rule=rule, callbacks=callbacks)


if __name__ == "__main__":
    trained, _ = (plain if "plain" in sys.argv else train)(sys.argv[1])
    print("bits", bits(trained))
