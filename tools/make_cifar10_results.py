"""Makes docs/results/cifar10/seed_talk.json and .png from two run folders.

The config of the seed talk, as it is with the MLP with locality, and without
either addition (docs/training.md has the commands):

    python tools/make_cifar10_results.py runs/seed_talk_both runs/seed_talk_none

What the config was changed to is read from the run folders.
"""

import dataclasses
import json
import pathlib
import sys

import yaml
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from keras_vit.runs import script
from keras_vit.training import Recipe
from keras_vit.training.metrics_log import read_history
from keras_vit.training.run.files import flat

ROOT = pathlib.Path(__file__).resolve().parents[1]
CONFIG = "recipes/configs/seed_talk/cifar10_scratch.yaml"
RESULTS = ROOT / "docs" / "results" / "cifar10"
# Those of the run, and what the talk reports of it.
RUNS = {"with both additions": 0.71, "without additions": 0.63}
OF_THE_PLACE = ("data.data_dir", "run_dir")


def main() -> None:
    if len(sys.argv) != 1 + len(RUNS):
        sys.exit(f"Usage: {sys.argv[0]} " + " ".join(f"'{x}'" for x in RUNS))
    results = [
        {"name": name, "reported": reported, **read(pathlib.Path(folder))}
        for (name, reported), folder in zip(
            RUNS.items(), sys.argv[1:], strict=True
        )
    ]
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results, indent=2)
    (RESULTS / "seed_talk.json").write_text(f"{text}\n")
    plot(results).savefig(RESULTS / "seed_talk.png", dpi=150)
    for result in results:
        print(f"{result['name']}: {result['result']['top1']:.2%}")


def read(folder: pathlib.Path) -> dict:
    recipe = script.parse(Recipe, ["--config", str(ROOT / CONFIG)], "")
    committed = flat(json.loads(json.dumps(dataclasses.asdict(recipe))))
    config = flat(yaml.safe_load((folder / "config.yaml").read_text()))
    result = json.loads((folder / "result.json").read_text())
    return {
        "config": CONFIG,
        "changed": {
            key: value
            for key, value in config.items()
            if value != committed.get(key, value) and key not in OF_THE_PLACE
        },
        "environment": json.loads((folder / "environment.json").read_text()),
        "result": {k: v for k, v in result.items() if k != "versions"},
        "history": read_history(folder),
    }


def plot(results: list[dict]) -> Figure:
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axis = figure.subplots()
    for colour, result in zip(("C0", "C1"), results, strict=True):
        history, top1 = result["history"], result["result"]["top1"]
        line = {"color": colour, "linewidth": 1.5}
        epochs = [row["epoch"] for row in history]
        axis.plot(epochs, [row["val_accuracy"] for row in history], **line)
        axis.plot(epochs[-1], top1, "o", color=colour, clip_on=False)
        axis.axhline(result["reported"], linestyle=":", **line)
        texts = {
            top1: f"{result['name']}:\n{top1:.1%} of the test images",
            result["reported"]: f"the talk: {result['reported']:.0%}",
        }
        for height, text in texts.items():
            axis.annotate(
                text,
                (epochs[-1], height),
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                color=colour,
                annotation_clip=False,
            )
    axis.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    axis.set(xlabel="epoch", ylabel="validation accuracy", xmargin=0)
    axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle("CIFAR-10 from scratch in 40 epochs", fontsize="medium")
    return figure


if __name__ == "__main__":
    main()
