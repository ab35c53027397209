"""What docs/architecture.md says to touch is enough, and all of it is needed.

An option of the block, a publisher of checkpoints, published weights and an
augmentation are added to a copy of the package, at the places that their rows
name. What is left out fails.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import NamedTuple

import pytest

ROOT = pathlib.Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "architecture.md"
TINY = """
import json, pathlib, sys
import keras
import numpy as np
import keras_vit
from keras_vit.models import VisionTransformer, ViTConfig

TINY = dict(
    image_size=8, patch_size=4, hidden_dim=8, num_layers=2, mlp_dim=12,
    num_heads=2, num_classes=3, activation="gelu",
)
IMAGES = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype("float32")


def drawn(**fields):
    model = VisionTransformer(ViTConfig(**TINY, **fields))
    random = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(random.normal(size=weight.shape))
    return model


def comes_back(model, name, **options):
    keras_vit.save_checkpoint(model, name, **options)
    again = keras_vit.load_checkpoint(name)
    assert again.config == model.config, (again.config, model.config)
    np.testing.assert_allclose(
        again.predict(IMAGES, verbose=0), model.predict(IMAGES, verbose=0),
        atol=1e-5,
    )
"""
# Imports Keras, and runs each script in a copy of itself: (folder, script).
COPIES = """
import json, os, sys, traceback
import keras

for line in sys.stdin:
    folder, script = json.loads(line)
    child = os.fork()
    if not child:
        for descriptor, name in enumerate(("stdout", "stderr"), 1):
            file = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT)
            os.dup2(file, descriptor)
        os.chdir(folder)
        sys.path.insert(0, folder)
        code = 1
        try:
            exec(script, {"__name__": "__main__"})
            code = 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def places(row: str) -> set[str]:
    """The files that a row of the table names, as far as they exist."""
    found = re.search(rf"^\| {row} \| (.*) \|$", DOCUMENT.read_text(), re.M)
    assert found, f"There is no row {row!r} in {DOCUMENT.name}."
    words = re.findall(r"`([\w./]+\.\w+)`", found[1])
    return {word.removeprefix("keras_vit/") for word in words}


def copied(folder: pathlib.Path, edits: dict, left_out: str = "") -> None:
    """Copy the package and edit it, but for one file.

    Args:
        folder: an empty one.
        edits: file of the package, or of tests/, to pairs of what stands
            there and what takes its place; a text is a new file.
        left_out: name of the file that is not edited.
    """
    for name in ("keras_vit", "tests"):
        shutil.copytree(
            ROOT / name,
            folder / name,
            ignore=shutil.ignore_patterns("__pycache__", "reference"),
        )
    for name, changes in edits.items():
        inside = name.startswith("tests/")
        path = folder / name if inside else folder / "keras_vit" / name
        if name == left_out:
            continue
        if isinstance(changes, str):
            path.write_text(changes)
            continue
        text = path.read_text()
        for old, new in changes:
            assert text.count(old) == 1, f"{name}: {old!r}"
            text = text.replace(old, new)
        path.write_text(text)


class Ran(NamedTuple):
    """What a script ended with."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def ran():
    """Run a script in a folder, in a process that has imported Keras alone."""
    process = subprocess.Popen(
        [sys.executable, "-c", COPIES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin and process.stdout
    requests, codes = process.stdin, process.stdout

    def run(folder: pathlib.Path, script: str) -> Ran:
        requests.write(json.dumps([str(folder), script]) + "\n")
        requests.flush()
        code = int(codes.readline())
        outputs = ((folder / x).read_text() for x in ("stdout", "stderr"))
        return Ran(code, *outputs)

    with process:
        yield run
        requests.close()


OPTION = {
    "models/options.py": [
        (
            "        attention_inner_norm: bool, whether",
            "        attention_gate: bool, whether each head has a gate.\n"
            "        attention_inner_norm: bool, whether",
        ),
        (
            "    talking_heads: bool = option(",
            "    attention_gate: bool = option(\n"
            '        False, TENSORS, later=True, weights=("attention/gate",)\n'
            "    )\n"
            "    talking_heads: bool = option(",
        ),
    ],
    "layers/attention.py": [
        (
            "        talking_heads: bool = False,\n"
            "        differential_lambda: float | None = None,\n",
            "        talking_heads: bool = False,\n"
            "        attention_gate: bool = False,\n"
            "        differential_lambda: float | None = None,\n",
        ),
        (
            "        self.talking_heads = talking_heads\n",
            "        self.talking_heads = talking_heads\n"
            "        self.attention_gate = attention_gate\n",
        ),
        (
            "        if self.attention_inner_norm:\n",
            "        if self.attention_gate:\n"
            "            self.gate = self.add_weight(\n"
            '                name="gate", shape=(self.num_heads,),\n'
            '                initializer="ones",\n'
            "            )\n"
            "        if self.attention_inner_norm:\n",
        ),
        (
            "        return self.out(self.inner_norm(merge_heads(x)))",
            "        if self.attention_gate:\n"
            "            x = x * ops.cast(self.gate, x.dtype)[:, None]\n"
            "        return self.out(self.inner_norm(merge_heads(x)))",
        ),
    ],
    "checkpoints/dialects/timm.py": [
        (
            '    **torch_norm("block_{i}/attention/inner_norm", '
            '"blocks.{i}.attn.norm"),\n',
            '    "block_{i}/attention/gate": ("blocks.{i}.attn.gate", "same"),'
            '\n    **torch_norm("block_{i}/attention/inner_norm", '
            '"blocks.{i}.attn.norm"),\n',
        ),
        (
            '        *("projection_bias", "qk_norm", "attention_inner_norm"),',
            '        *("attention_gate", "projection_bias", "qk_norm"),\n'
            '        "attention_inner_norm",',
        ),
    ],
    "tests/checkpoints/test_save_every_option.py": [
        (
            '        "talking_heads": [',
            '        "attention_gate": [True],\n        "talking_heads": [',
        ),
    ],
}
GATED = """
model = drawn(attention_gate=True)
gates = [x for x in model.weights if x.path.endswith("attention/gate")]
assert len(gates) == 2
before = model.predict(IMAGES, verbose=0)
comes_back(model, "gated.safetensors", format="timm")
gates[0].assign(gates[0] * 2)
assert np.abs(model.predict(IMAGES, verbose=0) - before).max() > 1e-3
"""
EVERY = "tests/checkpoints/test_save_every_option.py"


def test_the_row_of_an_option_names_four_files():
    alternative = {"layers/transformer_block.py"}
    assert places("an option of the block") - alternative == set(OPTION)


def test_an_option_is_four_files(ran, tmp_path):
    copied(tmp_path, OPTION)
    done = ran(tmp_path, TINY + GATED)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        ("models/options.py", "unexpected keyword argument 'attention_gate'"),
        ("layers/attention.py", "No layer .* reads attention_gate"),
        ("checkpoints/dialects/timm.py", "attention_gate"),
    ],
)
def test_an_option_that_lacks_a_file_fails(ran, tmp_path, left_out, message):
    copied(tmp_path, OPTION, left_out)
    done = ran(tmp_path, TINY + GATED)
    assert done.returncode != 0
    assert re.search(message, done.stderr.splitlines()[-1])


def test_an_option_without_values_to_try_fails(tmp_path):
    copied(tmp_path, OPTION, EVERY)
    options = ["-o", f"pythonpath={tmp_path / 'tests' / 'support'}"]
    options += ["-c", os.devnull, "--import-mode=importlib", "-k", "every"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, EVERY, "-x"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout[-2000:]
    assert "attention_gate" in done.stdout


PUBLISHER = {
    "checkpoints/dialects/acme.py": '''"""Files of Acme."""

from keras_vit.checkpoints.dialects.torchvision import LAYOUTS as THEIRS
from keras_vit.checkpoints.engine.layout import Dialect, Layout

DIALECT = Dialect("acme")
TABLE = {
    ours: (f"acme.{names}", transform)
    for ours, (names, transform) in THEIRS[0].table.items()
}
LAYOUTS = (
    Layout(
        DIALECT,
        "acme",
        "vit",
        TABLE,
        marks=(("acme.conv_proj.weight", "acme.encoder.pos_embedding"),),
        constants=THEIRS[0].constants,
        container="safetensors",
        options=THEIRS[0].options,
        poolings=("token",),
    ),
)
''',
    "checkpoints/dialects/__init__.py": [
        ("    big_vision,\n", "    acme,\n    big_vision,\n"),
        (
            "    *google.LAYOUTS,\n",
            "    *acme.LAYOUTS,\n    *google.LAYOUTS,\n",
        ),
    ],
}
OF_ACME = """
comes_back(drawn(), "acme.safetensors", format="acme")
"""


def test_the_row_of_a_publisher_names_its_module_and_its_line():
    assert places("a publisher of checkpoints") == {
        "checkpoints/dialects/__init__.py"
    }


def test_a_publisher_is_a_module_and_its_line(ran, tmp_path):
    copied(tmp_path, PUBLISHER)
    done = ran(tmp_path, TINY + OF_ACME)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_publisher_without_its_line_fails(ran, tmp_path):
    copied(tmp_path, PUBLISHER, "checkpoints/dialects/__init__.py")
    done = ran(tmp_path, TINY + OF_ACME)
    assert "acme" in done.stderr.splitlines()[-1]


def test_published_weights_are_a_row(ran, tmp_path):
    path = "checkpoints/public/catalog.csv"
    assert places("published weights") >= {path}
    first = (ROOT / "keras_vit" / path).read_text().splitlines()[1]
    new = first.replace("augreg_imagenet21k,", "acme,", 1)
    new = new.replace("Ti_16-i21k", "Ti_16-acme").rsplit(",", 1)[0] + ","
    copied(tmp_path, {path: [(f"{first}\n", f"{first}\n{new}\n")]})
    script = "import keras_vit; print(keras_vit.list_weights('ViT_Ti16'))"
    done = ran(tmp_path, script)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "'acme'" in done.stdout


AUGMENTATION = {
    "data/config.py": [
        (
            "    shift: float = 0.0\n",
            "    darkness: float = 0.0\n"
            '    """Largest part of the brightness that is taken away."""\n\n'
            "    shift: float = 0.0\n",
        ),
    ],
    "data/augmentation.py": [
        (
            "        if config.rand_augment_layers:\n",
            "        if config.darkness:\n"
            '            drawn = key("darkness", seed, epoch, example)\n'
            "            image = _random_darkness(image, config, drawn)\n"
            "        if config.rand_augment_layers:\n",
        ),
        (
            "def _random_flip(image, key):\n",
            "def _random_darkness(image, config, key):\n"
            "    tf = ops_of(image)\n"
            "    kept = 1 - config.darkness * uniform((), key)\n"
            '    image = tf.cast(image, "float32")\n'
            "    return image * kept\n\n\n"
            "def _random_flip(image, key):\n",
        ),
    ],
}
DARK = """
import numpy as np
from keras_vit.data.augmentation import image_augmenter
from keras_vit.data.config import AugmentationConfig

augment = image_augmenter(AugmentationConfig(darkness=0.5), flip=False, seed=0)
image = np.full((4, 4, 3), 200, "uint8")
first, second = (augment(image, 0, i) for i in (1, 2))
assert np.array_equal(first, augment(image, 0, 1))
assert not np.array_equal(first, second)
assert 100 <= first.min() <= first.max() < 200
"""


def test_the_row_of_an_augmentation_names_its_files():
    others = {"data/array_ops.py", "tests/training/test_fields.py"}
    assert places("an augmentation of single images") - others == set(
        AUGMENTATION
    )


def test_an_augmentation_is_its_option_and_its_function(ran, tmp_path):
    copied(tmp_path, AUGMENTATION)
    done = ran(tmp_path, DARK)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("left_out", AUGMENTATION)
def test_an_augmentation_that_lacks_a_file_fails(ran, tmp_path, left_out):
    copied(tmp_path, AUGMENTATION, left_out)
    assert ran(tmp_path, DARK).returncode != 0
