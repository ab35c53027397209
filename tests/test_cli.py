"""The command, on the golden files and the catalogue; nothing is fetched."""

import importlib
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command import fail, run

from keras_vit.checkpoints.public import catalog, fetch
from keras_vit.cli import main
from keras_vit.cli.command_line import COMMANDS
from keras_vit.cli.terminal import skipping

REFERENCE = Path(__file__).parent / "reference"
GOOGLE = REFERENCE / "vit_tiny_google.npz"
ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path / "keras"


def test_list_shows_all_weights_of_a_model(capsys):
    out = run(capsys, "list", "--model", "ViT_B16")
    shown = re.findall(r"(?:ViT_\w+|timm|google)/[\w.-]+", out)
    assert shown == [entry.key for entry in catalog.entries("ViT_B16")]
    assert len(shown) > 20
    assert "85.5" in out


def test_list_has_timm_s_names_and_fits_80_columns(capsys):
    out = run(capsys, "list")
    assert {x for x in out.split() if "/" in x} >= {
        *catalog.ENTRIES,
        *catalog.library_entries(),
    }
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("pattern", ["EVA02", "eva02_base*", "timm/eva02*"])
def test_list_filters_by_a_part_or_a_pattern(capsys, pattern):
    out = run(capsys, "list", pattern)
    shown = [x for x in out.split() if "/" in x]
    assert "timm/eva02_base_patch14_448.mim_in22k_ft_in1k" in shown
    assert all("eva02" in name for name in shown)


def test_list_of_a_pattern_without_a_match(capsys):
    assert "Received: 'eva03'" in fail(capsys, "list", "eva03")


def test_list_imports_no_keras():
    code = "import sys; from keras_vit.cli import main; main(sys.argv[1:]); "
    code += "assert not {'keras', 'torch', 'jax'} & sys.modules.keys()"
    command = [sys.executable, "-c", code, "weights", "list", "siglip"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def test_list_is_json_on_demand(capsys):
    objects = json.loads(run(capsys, "list", "--format", "json"))
    names = {*catalog.ENTRIES, *catalog.library_entries()}
    assert sorted(x["key"] for x in objects) == sorted(names)
    by_key = {found["key"]: found for found in objects}
    found = by_key["ViT_B16/imagenet21k"]
    assert found["num_bytes"] == 412_815_506
    assert found["classes"] == 21843
    assert found["preprocessing"]["value_range"] == [-1.0, 1.0]


def test_list_is_markdown_on_demand(capsys):
    """A table for each application, and for each library without one."""
    options = ("--format", "markdown")
    (heading, _, *table) = run(
        capsys, "list", "*base_patch16_clip_224.openai", *options
    ).splitlines()
    assert heading == "### timm"
    assert table[0].startswith("| weights | classes | pixels | MiB |")
    assert table[2].startswith(
        "| `timm/vit_base_patch16_clip_224.openai` | 512 | 224 | 330 |"
    )
    assert run(capsys, "list", "ViT_H14*", *options).startswith("### ViT_H14\n")


def test_list_of_a_model_that_is_none(capsys):
    assert "Did you mean ViT_B16" in fail(capsys, "list", "--model", "ViT_B17")


def test_info_of_a_name_needs_no_file(capsys):
    out = run(capsys, "info", "ViT_L16/imagenet")
    entry = catalog.find("ViT_L16", "imagenet")
    for part in (entry.url, "85.59", "Apache-2.0", "num_layers=24", "384x384"):
        assert part in out


def test_info_of_a_downloaded_name_tells_of_its_file(capsys):
    entry = catalog.find("ViT_S16", "imagenet")
    path = fetch.cached_path(entry)
    path.parent.mkdir(parents=True)
    assert "tensors" not in run(capsys, "info", "ViT_S16/imagenet")
    path.write_bytes(GOOGLE.read_bytes())
    out = run(capsys, "info", "ViT_S16/imagenet")
    assert str(path) in out
    assert "embedding/kernel [8, 8, 3, 32]" in out


def test_info_of_a_file_tells_its_architecture_and_shapes(capsys):
    found = json.loads(run(capsys, "info", GOOGLE, "--format", "json"))
    case = json.loads((REFERENCE / "cases.json").read_text())[GOOGLE.stem]
    assert found["family"] == "vit"
    for ours, theirs in (
        ("hidden_dim", "hidden_size"),
        ("num_layers", "num_layers"),
        ("num_heads", "num_heads"),
        ("mlp_dim", "mlp_dim"),
        ("num_classes", "num_classes"),
        ("image_size", "image_size"),
    ):
        assert found["fields"][ours] == case[theirs]
    with np.load(GOOGLE) as arrays:
        shapes = {name: list(arrays[name].shape) for name in arrays.files}
    assert found["tensors"] == shapes
    total = sum(math.prod(shape) for shape in shapes.values())
    assert found["num_parameters"] == total


def test_info_folds_the_blocks(capsys):
    out = run(capsys, "info", GOOGLE)
    kernel = "Transformer/encoderblock_*/MlpBlock_3/Dense_0/kernel"
    assert f"  {kernel} [32, 64] x 2\n" in out
    assert "  cls [1, 1, 32]\n" in out


def test_file_on_this_machine_goes_before_a_name(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "Ti_16-i1k-300ep-lr_0.001-aug_none-wd_0.1-do_0.0-sd_0.0.npz"
    assert "num_layers=12" in run(capsys, "info", name)
    (tmp_path / name).write_bytes(GOOGLE.read_bytes())
    assert "num_layers=2 " in run(capsys, "info", name)


def test_message_of_many_lines_becomes_one(capsys, monkeypatch):
    def entries(_):
        raise OSError("first\n  second")

    monkeypatch.setattr(catalog, "entries", entries)
    assert fail(capsys, "list") == "keras-vit: error: first second\n"


@pytest.mark.parametrize("command", ["info", "verify"])
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("imagenet21k", "ViT_B16/imagenet21k"),
        ("ViT_R26_B32/imagenet", "imagenet21k"),
        ("./missing.npz", "missing.npz"),
        ("missing.npz", "missing.npz"),
        (__file__, "test_cli.py"),
        ("http://host/a.npz", "https://"),
    ],
)
def test_bad_sources_are_one_line(capsys, command, source, message):
    assert message in fail(capsys, command, source)


@pytest.mark.parametrize("arguments", [[], ["weights"], ["weights", "fly"]])
def test_wrong_arguments_exit_with_2(capsys, arguments):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "usage: keras-vit" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_what_the_command_says_of_itself(name):
    module, help_ = COMMANDS[name]
    command = getattr(importlib.import_module(f"keras_vit.cli.{module}"), name)
    assert command.__doc__.partition("\n")[0] == help_


def test_module_runs_as_a_program():
    def program(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "keras_vit.cli", *arguments],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    bad = program("weights", "info", "ViT_B16/nonsense")
    assert bad.returncode == 2
    assert bad.stdout == ""
    assert bad.stderr.splitlines()[-1].startswith("keras-vit: error: ")
    assert "Traceback" not in bad.stderr


@pytest.mark.once
@pytest.mark.parametrize(
    ("words", "code"),
    [("configs", 0), ("weights info ViT_B16/nonsense", 2), ("none", 2)],
)
def test_program_ends_with_its_code_once_libraries_did(words, code):
    script = """if True:
        import atexit, sys
        from keras_vit.cli import __main__ as program

        class Part:
            def __del__(self):
                print("taken apart")

        def main(run=program.main):
            atexit.register(print, "libraries ended")
            return run()

        part, program.main = Part(), main
        program.program()
        """
    command = [sys.executable, "-c", script, *words.split()]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code
    assert ("quickstart" in done.stdout) == (words == "configs")
    lines = done.stdout.splitlines()
    last = lines[lines.index("libraries ended") + 1 :]
    # argparse's own exit is Python's.
    assert last == (["taken apart"] if words == "none" else [])


@pytest.mark.parametrize("broken", [["b: cut"], ["b: cut", "d: empty"]])
def test_images_that_cannot_be_read_are_said_after_the_others(broken, capsys):
    found = [None, *broken, None]
    message = broken[0] if len(broken) == 1 else "2 images could not be read"
    with (
        pytest.raises(ValueError, match=message),
        skipping(found, lambda error: error) as readable,
    ):
        assert list(readable) == [None, None]
    said = "".join(f"{x}\n" for x in broken) if len(broken) > 1 else ""
    assert capsys.readouterr().err == said


@pytest.mark.once
def test_a_closed_output_is_an_error_without_stacks():
    command = f"exec {sys.executable} -m keras_vit.cli configs >&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True)
    error = "keras-vit: error: standard output is closed.\n"
    assert (done.returncode, done.stderr.decode()) == (2, error)
