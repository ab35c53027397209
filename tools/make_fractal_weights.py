"""Makes keras_vit/weights, the small model that comes with the package.

    python recipes/pretrain.py --config recipes/configs/fractals_small.yaml
    python tools/make_fractal_weights.py runs/fractals_small

writes the best checkpoint of the run, which may be stopped at any time, in the
format of the original code, and what is known of it as README.md beside it.
"""

import argparse
import csv
import hashlib
import json
from pathlib import Path

import yaml

from keras_vit import save_checkpoint
from keras_vit.evaluation.config import ModelSource
from keras_vit.prediction.networks import load_model

FOLDER = Path(__file__).resolve().parents[1] / "keras_vit" / "weights"
MODEL_FIELDS = (
    "image_size",
    "channels",
    "patch_size",
    "hidden_dim",
    "num_layers",
    "mlp_dim",
    "num_heads",
    "pooling",
)
README = """# Weights that come with the package

`fractals.npz` is a small Vision Transformer that was trained by this project
on images made by formulas (`recipes/named_data/fractals.py`); no photograph
and no work of others is in it. `model.weights: fractals` of a recipe starts
from it, `keras_vit.load_checkpoint("fractals")` loads it. It is in the format
of the original code.

| model | |
|---|---|
{model}
| classes | {classes} |
| parameters | {parameters:,} |
| bytes | {num_bytes:,} |
| SHA-256 | `{digest}` |

## How it was made

    python recipes/pretrain.py --config recipes/configs/fractals_small.yaml
    python tools/make_fractal_weights.py runs/fractals_small

| run | |
|---|---|
| images | {data}, {held_out:.0%} of them held out |
| epochs | {epoch:.0f} of {epochs}, where it was stopped; seed {seed} |
| right | {top1:.1%} of the images that were held out |
| training | {minutes:.0f} min, {slowest:.0f} to {fastest:.0f} images/s |
| machine | {processors} CPU cores, busy with other work as well |
| versions | {versions} |
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", type=Path, help="folder of the run")
    run = parser.parse_args().run
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / "fractals.npz"
    model = load_model(ModelSource(weights=str(run / "model.keras")))
    save_checkpoint(model, path, format="google")
    (FOLDER / "README.md").write_text(readme(run, path, model))
    print(f"{path}: {path.stat().st_size:,} bytes")


def readme(run: Path, path: Path, model) -> str:
    config = yaml.safe_load((run / "config.yaml").read_text())
    environment = json.loads((run / "environment.json").read_text())
    with open(run / "history.csv", newline="") as file:
        history = [
            {key: float(value) for key, value in row.items()}
            for row in csv.DictReader(file)
        ]
    best = max(history, key=lambda row: row["val_accuracy"])
    rates = [
        row["images_per_second"]
        for row in history
        if row["step"] <= best["step"]
    ]
    images = best["step"] / best["epoch"] * config["training"]["batch_size"]
    fields = [f"| {key} | {config['model'][key]} |" for key in MODEL_FIELDS]
    versions = environment["versions"]
    return README.format(
        model="\n".join(fields),
        classes=model.output_shape[-1],
        parameters=model.count_params(),
        num_bytes=path.stat().st_size,
        digest=hashlib.sha256(path.read_bytes()).hexdigest(),
        data=f"`{config['data']['name']}`",
        held_out=config["data"]["validation_fraction"],
        epoch=best["epoch"],
        epochs=config["training"]["epochs"],
        seed=config["seed"],
        top1=best["val_accuracy"],
        minutes=sum(images / rate for rate in rates) / 60,
        slowest=min(rates),
        fastest=max(rates),
        processors=environment["processors"],
        versions=", ".join(f"{x} {versions[x]}" for x in versions),
    )


if __name__ == "__main__":
    main()
