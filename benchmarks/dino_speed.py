r"""Times a training step of DINO against the loop of facebookresearch/dino.

    git clone https://github.com/facebookresearch/dino
    python benchmarks/dino_speed.py dino --batch 4 \
        --out benchmarks/results/dino_speed.json

Both run on torch, in one process, in turn: `fit`'s step of what
`keras-vit pretrain --method dino` trains, and the original's student, teacher,
head, loss, clipping and moving average in the order of its `train_one_epoch`.
Sizes, crops, prototypes and batch are the same, the weights random. Ours gets
images in memory and cuts, colours and blurs the crops within its step; the
original gets crops, which its loader makes elsewhere. Ratios above 1 are for
keras_vit.
"""

import argparse
import importlib.util
import pathlib
import sys
import tempfile
from typing import Any

import numpy as np
import torch
from mae_speed import ENCODERS, PATCH, SIZE, in_turn

from keras_vit.io.atomic_files import write_json
from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.runtime.machine import versions
from keras_vit.training import OptimizerConfig
from keras_vit.training.optimizers import make_optimizer
from keras_vit.training.tasks import DINOConfig, dino_network
from keras_vit.training.tasks.dino import DRAWS, OutputLoss, canvas_side

SUPPORT = pathlib.Path(__file__).parents[1] / "tests" / "support"
NAMES = {"S": "vit_small", "B": "vit_base"}
DINO = DINOConfig()
CROPS = DINO.global_crops + DINO.local_crops
SMALL = 96  # pixels of a small crop
RATE, DECAY, CLIP, MOMENTUM = 5e-4, 0.04, 3.0, 0.996


def ours(name, batch):
    """Make a function that takes steps of `fit`."""
    width, layers, mlp, heads = ENCODERS[name]
    model = VisionTransformer(
        ViTConfig(
            image_size=(SIZE, SIZE),
            patch_size=(PATCH, PATCH),
            hidden_dim=width,
            num_layers=layers,
            mlp_dim=mlp,
            num_heads=heads,
            activation="gelu",
            num_classes=0,
        )
    )
    network = dino_network(model, DINO)
    config = OptimizerConfig(
        learning_rate=RATE,
        schedule="constant",
        warmup_steps=0,
        weight_decay=DECAY,
        clip_norm=CLIP,
    )
    optimizer = make_optimizer(config, network, total_steps=1_000_000)
    network.compile(optimizer, OutputLoss())
    side = canvas_side(model.config, DINO)
    schedule = np.array([DINO.teacher_temperature, MOMENTUM, 1, 1], "float32")
    random = np.random.default_rng(0)

    def step():
        inputs = {
            "image": random.integers(0, 256, (batch, side, side, 3), "uint8"),
            "drawn": random.random((batch, CROPS, len(DRAWS)), "float32"),
            "schedules": np.tile(schedule, (batch, 1)),
        }
        network.train_on_batch(inputs, np.zeros((batch, 4), "float32"))

    trained = sum(int(np.prod(x.shape)) for x in network.trainable_weights)
    return step, trained


def theirs(name, batch, original):
    """Make a function that takes steps of the original."""
    module: Any = modules_of(original)
    utils = importlib.import_module("utils")
    encoder = getattr(
        importlib.import_module("vision_transformer"), NAMES[name]
    )

    def network():
        body = encoder(patch_size=PATCH)
        head = module.DINOHead(body.embed_dim, DINO.out_dim)
        return utils.MultiCropWrapper(body, head)

    student, teacher = network(), network()
    teacher.load_state_dict(student.state_dict())
    for parameter in teacher.parameters():
        parameter.requires_grad = False
    temperature = DINO.teacher_temperature
    loss_of = module.DINOLoss(
        DINO.out_dim, CROPS, temperature, temperature, 0, 1
    )
    optimizer = torch.optim.AdamW(utils.get_params_groups(student), RATE)
    optimizer.param_groups[0]["weight_decay"] = DECAY
    random = np.random.default_rng(0)

    def images(side):
        pixels = random.random((batch, 3, side, side), "float32")
        return torch.from_numpy(pixels)

    def step():
        crops = [images(SIZE) for _ in range(DINO.global_crops)]
        crops += [images(SMALL) for _ in range(DINO.local_crops)]
        loss = loss_of(student(crops), teacher(crops[: DINO.global_crops]), 0)
        loss.item()
        optimizer.zero_grad()
        loss.backward()
        utils.clip_gradients(student, CLIP)
        utils.cancel_gradients_last_layer(1, student, 1)
        optimizer.step()
        with torch.no_grad():
            pairs = zip(student.parameters(), teacher.parameters(), strict=True)
            for mine, other in pairs:
                other.mul_(MOMENTUM).add_((1 - MOMENTUM) * mine.detach())

    trained = (x.numel() for x in student.parameters() if x.requires_grad)
    return step, sum(trained)


def modules_of(original: pathlib.Path):
    """Import main_dino of a clone, in a group of this process alone."""
    sys.path[:0] = [str(original), str(SUPPORT)]
    if importlib.util.find_spec("torchvision") is None:
        # Its import needs the names; what is timed uses none of them.
        stub = importlib.import_module("timm_stub")
        sys.meta_path.append(stub.Finder())
    file = pathlib.Path(tempfile.mkdtemp(), "group")
    torch.distributed.init_process_group(
        "gloo", init_method=file.as_uri(), rank=0, world_size=1
    )
    return importlib.import_module("main_dino")


def measured(name, batch, original) -> dict:
    """Time both sides, and return their images per second."""
    made = {
        "keras_vit": ours(name, batch),
        "facebookresearch": theirs(name, batch, original),
    }
    return {"encoder": name, "batch": batch, **in_turn(made, batch)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("original", type=pathlib.Path, help="the clone")
    parser.add_argument("--encoder", choices=NAMES, default="S")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--out", type=pathlib.Path)
    asked = parser.parse_args()
    command = f"python benchmarks/dino_speed.py dino --batch {asked.batch}"
    found = {
        "command": command,
        "threads": torch.get_num_threads(),
        "versions": versions(),
        **measured(asked.encoder, asked.batch, asked.original.resolve()),
    }
    print(found)
    if asked.out:
        write_json(asked.out, found)


if __name__ == "__main__":
    main()
