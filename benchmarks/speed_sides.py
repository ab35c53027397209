"""What benchmarks/speed.py compares: the same ViT by several libraries.

A side gets the asked `Case` and returns a function that does a number of steps
and waits until they are done. Each trains as its users would at its best:
AdamW, one batch that stays on the device, no host in between.

Letters: B images of a batch, K classes.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

CLASSES = 1000
LEARNING_RATE = 1e-3


class Case(NamedTuple):
    """What is measured."""

    model: str  # of keras_vit, for example "ViT_B16"
    image_size: int
    task: str  # "training" or "inference"
    batch: int
    precision: str  # "float32" or "bfloat16"


def arrays(case):
    """Images (B, H, W, 3) in [-1, 1] and their labels (B,)."""
    random = np.random.default_rng(0)
    shape = (case.batch, case.image_size, case.image_size, 3)
    images = random.uniform(-1, 1, shape).astype("float32")
    return images, random.integers(0, CLASSES, case.batch)


def sizes(case):
    """The `ViTConfig` of the case."""
    from keras_vit.planning.counts import vit_config

    size = (case.image_size, case.image_size)
    return vit_config(case.model, image_size=size, num_classes=CLASSES)


def keras_policy(case):
    import keras

    names = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
    keras.config.set_dtype_policy(names[case.precision])


def ours(case: Case) -> Callable[[int], None]:
    keras_policy(case)
    import keras_vit

    model = getattr(keras_vit, case.model)(
        weights=None,
        classes=CLASSES,
        input_shape=(case.image_size, case.image_size, 3),
        classifier_activation=None,
    )
    return keras_steps(model, case)


def keras_hub(case: Case) -> Callable[[int], None]:
    keras_policy(case)
    import keras_hub as hub  # pyright: ignore[reportMissingImports]

    config = sizes(case)
    backbone = hub.models.ViTBackbone(
        image_shape=(case.image_size, case.image_size, 3),
        patch_size=config.patch_size[0],
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        hidden_dim=config.hidden_dim,
        mlp_dim=config.mlp_dim,
    )
    model = hub.models.ViTImageClassifier(
        backbone=backbone, num_classes=CLASSES, preprocessor=None
    )
    return keras_steps(model, case)


def keras_steps(model, case):
    """`fit` or `predict` on one batch over and over."""
    import keras

    images, labels = map(keras.ops.convert_to_tensor, arrays(case))
    if case.task == "inference":

        def infer(steps):
            batches = ((images,) for _ in range(steps))
            model.predict(batches, steps=steps, verbose=0)

        return infer
    model.compile(
        keras.optimizers.AdamW(LEARNING_RATE),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )

    def train(steps):
        # A generator gives one more to build on.
        batches = ((images, labels) for _ in range(steps + 1))
        model.fit(batches, steps_per_epoch=steps, epochs=1, verbose=0)

    return train


def timm(case: Case, compiled: bool = False) -> Callable[[int], None]:
    import timm as library

    config = sizes(case)
    model = library.models.VisionTransformer(
        img_size=case.image_size,
        patch_size=config.patch_size[0],
        embed_dim=config.hidden_dim,
        depth=config.num_layers,
        num_heads=config.num_heads,
        mlp_ratio=config.mlp_dim / config.hidden_dim,
        num_classes=CLASSES,
    )
    return torch_steps(model, case, compiled)


def transformers(case: Case) -> Callable[[int], None]:
    import transformers as library

    config = sizes(case)
    options: dict[str, Any] = {
        "hidden_size": config.hidden_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.mlp_dim,
        "image_size": case.image_size,
        "patch_size": config.patch_size[0],
        "num_labels": CLASSES,
        "attn_implementation": "sdpa",
    }
    model = library.ViTForImageClassification(library.ViTConfig(**options))
    return torch_steps(model, case, logits=lambda output: output.logits)


def torch_steps(model, case, compiled=False, logits=lambda output: output):
    """The loop that a PyTorch user writes, with autocast."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = model.to(device)
    images, labels = map(torch.from_numpy, arrays(case))
    images = images.permute(0, 3, 1, 2).contiguous().to(device)
    labels = labels.to(device)
    call = torch.compile(model, mode="max-autotune") if compiled else model
    cast = functools.partial(
        torch.autocast,
        device,
        torch.bfloat16,
        enabled=case.precision == "bfloat16",
    )

    def wait():
        if device == "cuda":
            torch.cuda.synchronize()

    def infer(steps):
        model.eval()
        with torch.inference_mode(), cast():
            for _ in range(steps):
                call(images)
        wait()

    optimizer = torch.optim.AdamW(
        model.parameters(), LEARNING_RATE, fused=device == "cuda"
    )

    def train(steps):
        model.train()
        for _ in range(steps):
            with cast():
                output = logits(call(images))
                loss = torch.nn.functional.cross_entropy(output, labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        wait()

    return {"inference": infer, "training": train}[case.task]


class Side(NamedTuple):
    """One of the compared."""

    library: str  # to be imported, or the side is left out
    backend: str  # of Keras, or what stands in its place
    steps: Callable[[Case], Callable[[int], None]]


SIDES = {
    "keras_vit jax": Side("jax", "jax", ours),
    "keras_vit tensorflow": Side("tensorflow", "tensorflow", ours),
    "keras_vit torch": Side("torch", "torch", ours),
    "keras-hub jax": Side("keras_hub", "jax", keras_hub),
    "keras-hub tensorflow": Side("keras_hub", "tensorflow", keras_hub),
    "timm": Side("timm", "torch", timm),
    "timm compiled": Side(
        "timm", "torch", functools.partial(timm, compiled=True)
    ),
    "transformers": Side("transformers", "torch", transformers),
}
