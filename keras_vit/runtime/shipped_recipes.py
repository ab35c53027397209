"""The recipes, and the configs that they take by name.

They are files that people read and edit: the folder `recipes/` of a clone. The
wheel has the same files in `keras_vit/recipes`.
"""

import difflib
import pathlib
import re

__all__ = [
    "CONFIGS",
    "INSTALLED",
    "RECIPES",
    "config_path",
    "configs",
    "described",
    "scripts",
]

HERE = pathlib.Path(__file__).resolve().parents[1]
INSTALLED = HERE / "recipes"
RECIPES = INSTALLED if INSTALLED.is_dir() else HERE.parent / "recipes"
CONFIGS = RECIPES / "configs"
SUFFIX = ".yaml"
COMMAND = re.compile(r"^# +python recipes/(\w+)\.py", re.MULTILINE)


def scripts() -> dict[str, pathlib.Path]:
    """The recipes by their commands: "few-shot" is recipes/few_shot.py."""
    return {
        path.stem.replace("_", "-"): path
        for path in sorted(RECIPES.glob("*.py"))
    }


def configs() -> dict[str, pathlib.Path]:
    """The configs by name, such as "quickstart" or "paper/table4_cifar10"."""
    return {
        path.relative_to(CONFIGS).with_suffix("").as_posix(): path
        for path in sorted(CONFIGS.rglob(f"*{SUFFIX}"))
    }


def config_path(config: str) -> pathlib.Path:
    """The file of a config.

    Args:
        config: path of a file; or the name of one of `configs`, also as its
            path in a clone, recipes/configs/NAME.yaml.

    Raises:
        ValueError: when it is neither, with the nearest names.

    Example:
        >>> config_path("quickstart").name
        'quickstart.yaml'
    """
    if pathlib.Path(config).exists():
        return pathlib.Path(config)
    known = configs()
    name = config.removeprefix("recipes/configs/").removesuffix(SUFFIX)
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {nearest[0]}?" if nearest else ""
        raise ValueError(
            f"There is no config {config!r}: neither a file of that path nor "
            f"a name that `keras-vit configs` lists.{hint}"
        )
    return known[name]


def described(path: pathlib.Path) -> tuple[str, str]:
    """What the comment at the top of a config says.

    Returns:
        The command that takes it, such as "finetune", and the first sentence.
    """
    text = path.read_text(encoding="utf-8")
    lines = text.partition("\n#\n")[0].splitlines()
    sentence = " ".join(line.lstrip("# ") for line in lines)
    found = COMMAND.search(text)
    command = found[1].replace("_", "-") if found else ""
    return command, re.split(r"(?<=\w)[.;] ", sentence)[0].rstrip(".")
