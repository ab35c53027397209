"""The sides of benchmarks/speed.py that are PyTorch's, as its users train.

Their GELU is the tanh form, as that of keras_vit's models.
"""

import functools
import importlib
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from speed_case import CLASSES, LEARNING_RATE, Case, arrays, sizes

SUPPORT = pathlib.Path(__file__).parents[1] / "tests" / "support"


def timm(case: Case, compiled: bool = False) -> Callable[[int], None]:
    return torch_steps(timm_model(case), case, compiled)


def timm_openvino(case: Case) -> Callable[[int], None]:
    """timm's model as OpenVINO converts it, with the hint that ours has."""
    import openvino
    import torch

    if case.task != "inference":
        raise ValueError("is for inference alone")
    images = arrays(case)[0].transpose(0, 3, 1, 2).copy()  # (B, 3, H, W)
    model = timm_model(case).eval()
    for parameter in model.parameters():  # As ours has.
        parameter.data.add_(0.02 * torch.randn_like(parameter))
    converted = openvino.convert_model(
        model,
        example_input=torch.from_numpy(images),
        input=list(images.shape),
    )
    hint = {"float32": "f32", "bfloat16": "bf16"}[case.precision]
    compiled = openvino.Core().compile_model(
        converted, "CPU", {"INFERENCE_PRECISION_HINT": hint}
    )

    def infer(steps):
        for _ in range(steps):
            compiled([images])

    return infer


def timm_model(case: Case):
    # The tests know how to do without torchvision, which timm imports.
    sys.path.append(str(SUPPORT))
    library = importlib.import_module("timm_stub").import_timm()
    import torch

    config = sizes(case)
    return library.models.VisionTransformer(
        img_size=case.image_size,
        patch_size=config.patch_size[0],
        embed_dim=config.hidden_dim,
        depth=config.num_layers,
        num_heads=config.num_heads,
        mlp_ratio=config.mlp_dim / config.hidden_dim,
        num_classes=CLASSES,
        act_layer=functools.partial(torch.nn.GELU, approximate="tanh"),
    )


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
        "hidden_act": "gelu_pytorch_tanh",
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
