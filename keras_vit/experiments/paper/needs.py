"""What a command needs and this machine does not have, in words."""

import pathlib
import subprocess
import sys

from keras_vit.checkpoints.public import catalog
from keras_vit.checkpoints.public.fetch import cached_path
from keras_vit.data.catalogue import named_builder
from keras_vit.data.presets_table import PRESETS
from keras_vit.data.vtab_table import TASKS
from keras_vit.evaluation.config import Evaluation
from keras_vit.evaluation.few_shot_config import FewShot
from keras_vit.experiments.paper.command import REFERENCE, Command, Place
from keras_vit.experiments.paper.config import HARDWARE, Reproduction
from keras_vit.experiments.vtab import Vtab
from keras_vit.training import Recipe
from keras_vit.training.command_line import parse

__all__ = ["RECORDS", "devices_of", "lacking", "parsed"]

# What each recipe reads its command line into.
RECORDS: dict[str, type] = {
    "pretrain": Recipe,
    "masked_patch": Recipe,
    "finetune": Recipe,
    "sweep": Recipe,
    "evaluate": Evaluation,
    "few_shot": FewShot,
    "vtab": Vtab,
}
WITHOUT_DOWNLOAD = ("digits",)
NOT_PUBLIC = {
    "data/jft300m": "JFT-300M is Google's own; put folders of images in its "
    "place",
    "imagenet21k": "ImageNet-21k needs a registration at image-net.org",
}
DEVICES = "from keras_vit.training.distribution import devices as d; print(d())"


def parsed(command: Command, place: Place):
    """The command line of a recipe, read by the recipe's own parser.

    Args:
        command: a `Command` of a script.
        place: a `Place`.

    Returns:
        The record, such as a `Recipe`.

    Raises:
        SystemExit: when the parser refuses it.
    """
    return parse(RECORDS[command.recipe], command.words(place), "")


def lacking(command: Command, place: Place, asked: Reproduction) -> list[str]:
    """Names the data, the weights and the hardware that are missing.

    Args:
        command: a `Command` of a script.
        place: a `Place`.
        asked: a `Reproduction` whose hardware is not "auto".

    Returns:
        A text each; none in a trial.
    """
    if place.smoke:
        return []
    record = parsed(command, place)
    found = [
        _data(command, record.data, asked),
        _weights(command, record.model, asked),
    ]
    if HARDWARE.index(command.hardware) > HARDWARE.index(asked.hardware):
        found.append(
            f"hardware: {command.recipe} needs "
            f"{'an' if command.hardware[0] == 'a' else 'a'} "
            f"{command.hardware} (--hardware {command.hardware} runs it here)"
        )
    return [text for text in found if text]


def _data(command, data, asked):
    if data.folder is not None:
        if pathlib.Path(data.folder).is_dir():
            return ""
        about = NOT_PUBLIC.get(data.folder, "give --data.folder")
        return f"data: there is no folder {data.folder} ({about})"
    if command.recipe == "vtab":
        names = [task.builder for task in TASKS.values()]
        unknown = [_unprepared(name, asked) for name in names]
        # Tasks whose data is there are run without the others.
        return "" if "" in unknown else "data: no task of VTAB-1k is prepared"
    if data.name in WITHOUT_DOWNLOAD:
        return ""
    name = PRESETS.get(data.name, {"tfds_name": data.name})["tfds_name"]
    return _unprepared(name, asked)


def _unprepared(name, asked):
    try:
        builder = named_builder(name, asked.data_dir)
    except ValueError:
        about = NOT_PUBLIC.get(name, "tensorflow-datasets has no such data set")
        return f"data: {name} is not there ({about})"
    if builder.is_prepared():
        return ""
    if builder.MANUAL_DOWNLOAD_INSTRUCTIONS:
        return f"data: {name} is not prepared; it is downloaded by hand"
    if asked.download:
        return ""
    return f"data: {name} is not prepared (--download true gets it)"


def _weights(command, model, asked):
    if model.weights is None or any(
        value.startswith(REFERENCE)
        for option, value in command.options
        if option == "model.weights"
    ):
        return ""  # What an earlier command makes.
    entry = catalog.find(model.name, model.weights)
    if asked.download or cached_path(entry).is_file():
        return ""
    return f"weights: {entry.key} is not here (--download true gets it)"


def devices_of() -> str:
    """What this machine has, asked in a process of its own.

    A backend that is asked takes the memory of its devices, which the recipes
    are to have.

    Returns:
        "accelerator" or "cpu".
    """
    answer = subprocess.run(
        [sys.executable, "-c", DEVICES], capture_output=True, text=True
    )
    lines = answer.stdout.strip().splitlines()
    known = answer.returncode == 0 and lines
    return "accelerator" if known and "cpu" not in lines[-1] else "cpu"
