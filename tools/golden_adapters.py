"""Golden data of adapters, `python tools/golden_adapters.py`.

Each is an adapter of peft for tests/reference/hf_vit_tiny, and what
transformers computes with it merged. peft must be installed, which is no
dependency: `pip install --target FOLDER peft`, with the folder in PYTHONPATH.
"""

import pathlib
import shutil

import numpy as np
import peft  # pyright: ignore[reportMissingImports]
import torch
import transformers

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "tests" / "reference"
BASE = FOLDER / "hf_vit_tiny"
CASES = {
    "lora_tiny": {
        **{"r": 2, "lora_alpha": 6, "bias": "lora_only"},
        "target_modules": ["q_proj", "v_proj"],
        "modules_to_save": ["classifier"],
    },
    "lora_tiny_patterns": {
        **{"r": 2, "lora_alpha": 6, "use_rslora": True},
        "target_modules": ["k_proj", "o_proj", "fc1", "fc2", "classifier"],
        "rank_pattern": {"fc1": 4},
        "alpha_pattern": {"layers.1.mlp.fc1": 3, "o_proj": 10},
    },
}


@torch.no_grad()
def write(name, fields) -> None:
    """Writes the folder of an adapter, and the logits of the merged model."""
    model = transformers.ViTForImageClassification.from_pretrained(BASE)
    adapted = peft.get_peft_model(model, peft.LoraConfig(**fields))
    random = np.random.default_rng(0)
    for weight in adapted.parameters():
        if weight.requires_grad:
            drawn = random.normal(0, 0.3, tuple(weight.shape))
            weight.copy_(torch.from_numpy(drawn))
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    adapted.eval().save_pretrained(FOLDER / name)
    (FOLDER / name / "README.md").unlink()
    config = FOLDER / name / "adapter_config.json"
    config.write_text(config.read_text().replace(str(BASE), BASE.name))
    images = np.load(FOLDER / "hf_vit_tiny.expected.npz")["image"]
    theirs = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
    logits = adapted.merge_and_unload()(theirs).logits.numpy()
    np.savez_compressed(FOLDER / f"{name}.expected.npz", logits=logits)


if __name__ == "__main__":
    for case in CASES.items():
        write(*case)
