r"""Times a training step of a masked autoencoder against transformers' ViTMAE.

    python benchmarks/mae_speed.py --batch 8 \
        --out benchmarks/results/mae_speed.json

Both run on torch, in one process, in turn: `fit`'s step of what
`keras-vit pretrain --method mae` trains, and a plain loop over
ViTMAEForPreTraining with torch's AdamW. Encoder, decoder, image size, batch,
mask ratio and targets are the same, the weights random; each side gets images
that are in memory. Ratios above 1 are for keras_vit.
"""

import argparse
import os
import pathlib
import statistics
import time

os.environ["KERAS_BACKEND"] = "torch"

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

from keras_vit.io.atomic_files import write_json  # noqa: E402
from keras_vit.models import VisionTransformer, ViTConfig  # noqa: E402
from keras_vit.runtime.machine import versions  # noqa: E402
from keras_vit.training import OptimizerConfig  # noqa: E402
from keras_vit.training.optimizers import make_optimizer  # noqa: E402
from keras_vit.training.tasks import MAEConfig, autoencoder  # noqa: E402
from keras_vit.training.tasks.mae import normalized_patches  # noqa: E402

ENCODERS = {  # hidden_dim, num_layers, mlp_dim, num_heads
    "S": (384, 12, 1536, 6),
    "B": (768, 12, 3072, 12),
}
SIZE, PATCH, RATE = 224, 16, 1.5e-4
DECODER = MAEConfig().filled()
STEPS, ROUNDS = 3, 7  # of a turn, and turns of each side


def ours(sizes, batch):
    """Make a function that takes steps of `fit`."""
    width, layers, mlp, heads = sizes
    model = VisionTransformer(
        ViTConfig(
            image_size=(SIZE, SIZE),
            patch_size=(PATCH, PATCH),
            hidden_dim=width,
            num_layers=layers,
            mlp_dim=mlp,
            num_heads=heads,
            position_embedding="sincos2d",
            activation="gelu",
        )
    )
    network = autoencoder(model, DECODER)
    config = OptimizerConfig(
        learning_rate=RATE,
        schedule="constant",
        warmup_steps=0,
        weight_decay=0.05,
        beta_2=0.95,
        clip_norm=None,
    )
    optimizer = make_optimizer(config, network, total_steps=1_000_000)
    network.compile(optimizer, "mean_squared_error")
    patches = (SIZE // PATCH) ** 2
    grid = (SIZE // PATCH, SIZE // PATCH)
    visible = DECODER.num_visible((SIZE, SIZE), grid)
    random = np.random.default_rng(0)

    def step():
        images = random.random((batch, SIZE, SIZE, 3), "float32")
        order = np.argsort(random.random((batch, patches)), 1).astype("int32")
        grid = images.reshape(batch, SIZE // PATCH, PATCH, -1, PATCH, 3)
        pixels = grid.transpose(0, 1, 3, 2, 4, 5).reshape(batch, patches, -1)
        hidden = (np.argsort(order, 1) >= visible).astype("float32")
        target = np.asarray(normalized_patches(pixels))
        inputs = {"image": images, "order": order}
        network.train_on_batch(inputs, target, sample_weight=hidden)

    return step, network.count_params()


def theirs(sizes, batch):
    """Make a function that takes steps of a plain loop of torch."""
    width, layers, mlp, heads = sizes
    model = transformers.ViTMAEForPreTraining(
        transformers.ViTMAEConfig(
            hidden_size=width,
            num_hidden_layers=layers,
            intermediate_size=mlp,
            num_attention_heads=heads,
            image_size=SIZE,
            patch_size=PATCH,
            mask_ratio=DECODER.mask_ratio,
            norm_pix_loss=DECODER.normalize_pixels,
            decoder_hidden_size=DECODER.decoder_dim,
            decoder_num_hidden_layers=DECODER.decoder_layers,
            decoder_num_attention_heads=DECODER.decoder_heads,
            decoder_intermediate_size=DECODER.decoder_mlp_dim,
        )
    ).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), RATE, betas=(0.9, 0.95), weight_decay=0.05
    )
    random = np.random.default_rng(0)

    def step():
        images = random.random((batch, 3, SIZE, SIZE), "float32")
        loss = model(torch.from_numpy(images)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step, sum(x.numel() for x in model.parameters())


def seconds(step) -> float:
    begin = time.perf_counter()
    for _ in range(STEPS):
        step()
    return (time.perf_counter() - begin) / STEPS


def in_turn(made: dict, batch: int) -> dict:
    """Time both sides in turn.

    Args:
        made: name of a side to its step and its number of parameters; ours is
            the first.
        batch: images of a step.

    Returns:
        Parameters, images per second, and the ratio of ours to the other.
    """
    times = {side: [] for side in made}
    for step, _ in made.values():
        seconds(step)
    for _ in range(ROUNDS):
        for side, (step, _) in made.items():
            times[side].append(seconds(step))
    rates = {x: batch / statistics.median(y) for x, y in times.items()}
    ours, other = rates.values()
    return {
        "parameters": {side: count for side, (_, count) in made.items()},
        "images_per_second": {x: round(y, 3) for x, y in rates.items()},
        "ratio": round(ours / other, 3),
    }


def measured(name, batch) -> dict:
    """Time both sides, and return their images per second."""
    sides = {"keras_vit": ours, "transformers": theirs}
    made = {side: make(ENCODERS[name], batch) for side, make in sides.items()}
    return {"encoder": name, "batch": batch, **in_turn(made, batch)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--encoders", nargs="+", default=["S"])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    rows = [measured(x, arguments.batch) for x in arguments.encoders]
    found = {
        "command": "python benchmarks/mae_speed.py --batch 8",
        "threads": torch.get_num_threads(),
        "versions": versions() | {"transformers": transformers.__version__},
        "results": rows,
    }
    print(rows)
    if arguments.out:
        write_json(arguments.out, found)


if __name__ == "__main__":
    main()
