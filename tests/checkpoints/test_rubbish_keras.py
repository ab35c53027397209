"""Damaged and hostile files of Keras's own formats are refused by name."""

import functools
import io
import json
import pathlib
import tempfile
import warnings
import zipfile

import h5py
import keras
import numpy as np
import pytest
from reference_cases import path_of
from refusals import check

from keras_vit.checkpoints import load_checkpoint, load_weights

CONFIG, WEIGHTS = "config.json", "model.weights.h5"


@pytest.fixture(autouse=True, scope="module")
def warm():
    load_checkpoint(path_of("vit_tiny_google"))


@functools.cache
def members():
    """The members of a good file, by name."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.keras"
        load_checkpoint(path_of("vit_tiny_google")).save(path)
        with zipfile.ZipFile(path) as archive:
            return {x: archive.read(x) for x in archive.namelist()}


def write(path, parts, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a name that is there twice
        with zipfile.ZipFile(path, "w", **options) as archive:
            for name, data in parts:
                archive.writestr(name, data)


def with_config(change):
    """The archive, its config changed."""

    def make(path):
        config = json.loads(members()[CONFIG])
        text = change(config)
        text = text if isinstance(text, str) else json.dumps(config)
        write(path, {**members(), CONFIG: text}.items())

    return make


def field(**fields):
    return with_config(lambda c: c["config"]["config"].update(fields))


def named(module, class_name, registered_name, inner=None):
    config = {
        "module": module,
        "class_name": class_name,
        "registered_name": registered_name,
        "config": inner or {},
    }
    return with_config(lambda c: json.dumps(config))


def lambda_layer():
    """Keras's own saving of a model that runs code when it is loaded."""
    inputs = keras.Input((4,))
    outputs = keras.layers.Lambda(lambda x: x + 1)(inputs)
    return keras.Model(inputs, outputs)


def lambda_model(path):
    lambda_layer().save(path)


def lambda_within(path):
    with_config(
        lambda c: c["config"].update(
            dtype=keras.saving.serialize_keras_object(lambda_layer())
        )
    )(path)


def foreign_policy(path):
    policy = keras.saving.serialize_keras_object(keras.DTypePolicy("float32"))
    policy["module"] = "os.path"
    with_config(lambda c: c["config"].update(dtype=policy))(path)


def bomb(path):
    parts = {**members(), WEIGHTS: bytes(2**26)}
    write(path, parts.items(), compression=zipfile.ZIP_DEFLATED)


def h5_bomb(path):
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as h5:
        h5.create_dataset("layers/a/vars/0", (2**20, 2**20), "float32")
    write(path, {**members(), WEIGHTS: buffer.getvalue()}.items())


def traversing(path):
    write(path, [*members().items(), ("../../evil.py", b"import os")])


def absolute(path):
    write(path, [*members().items(), ("/etc/evil.py", b"import os")])


def another_member(path):
    write(path, [*members().items(), ("assets/evil.py", b"import os")])


def twice(path):
    write(path, [*members().items(), (CONFIG, members()[CONFIG])])


def oversized_config(path):
    write(path, {**members(), CONFIG: b" " * 2**21}.items())


def flipped(path):
    write(path, members().items())
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo(WEIGHTS).header_offset
    data[start + len(members()[WEIGHTS]) // 2] ^= 0xFF
    path.write_bytes(data)


def arrays_with(change):
    def make(path):
        buffer = io.BytesIO(members()[WEIGHTS])
        with h5py.File(buffer, "r+") as h5:
            change(h5)
        write(path, {**members(), WEIGHTS: buffer.getvalue()}.items())

    return make


def endless(number, size):
    """An object in the heap of the names, after which libhdf5 does not move.

    Reading the names would never end, and hold Python's lock.
    """

    def make(path, **options):
        data = bytearray(members()[WEIGHTS])
        second = data.index(b"GCOL\1") + 16
        second += 16 + (data[second + 8] + 7) // 8 * 8
        data[second : second + 2] = number.to_bytes(2, "little")
        data[second + 8 : second + 16] = size.to_bytes(8, "little")
        write(path, {**members(), WEIGHTS: bytes(data)}.items(), **options)

    return make


def endless_compressed(path):
    endless(0, 0)(path, compression=zipfile.ZIP_DEFLATED)


def pair(tower=None, link=None):
    """A pair of towers, that of images a model or where a link leads."""

    def make(path):
        held = {"image_tower": tower or json.loads(members()[CONFIG])}
        config = {"registered_name": PAIR, "config": held}
        buffer = io.BytesIO(members()[WEIGHTS])
        with h5py.File(buffer, "r+") as h5:
            h5["image_tower"] = link or h5py.SoftLink("/")
        parts = {CONFIG: json.dumps(config), WEIGHTS: buffer.getvalue()}
        write(path, {**members(), **parts}.items())

    return make


PAIR = "keras_vit>ImageTextModel"
TOKEN = "layers/class_token/vars/0"


def not_a_number(h5):
    h5[TOKEN][...] = np.nan


def missing(h5):
    del h5[TOKEN]


def unused(h5):
    h5["layers/surprise/vars/0"] = np.zeros(3, "float32")


def external(h5):
    del h5[TOKEN]
    h5[TOKEN] = h5py.ExternalLink("/etc/passwd", "/a")


HOSTILE = {
    "foreign_class": (named("os", "system", "os>system"), "no model of keras"),
    "foreign_function": (named("builtins", "eval", None), "no model of keras"),
    "unregistered": (
        named("keras.src.models.sequential", "Sequential", None),
        "no model of keras",
    ),
    "module_to_import": (
        named("keras_hub.evil", "Evil", "Evil"),
        "no model of keras",
    ),
    "lambda": (lambda_model, "no model of keras"),
    "lambda_within": (lambda_within, "names .* as its dtype"),
    "foreign_policy": (foreign_policy, "names 'DTypePolicy' as its dtype"),
    "pair_of_none": (named("keras_vit", "Pair", PAIR), "image_tower"),
    "pair_of_others": (pair({"registered_name": "os"}), "no model of keras"),
    "pair_by_a_link": (pair(), "no weights of images"),
    "pair_elsewhere": (
        pair(link=h5py.ExternalLink("/etc/passwd", "/")),
        "no weights of images",
    ),
    "no_object": (with_config(lambda c: "[1]"), "no model of keras"),
    "no_json": (with_config(lambda c: "{"), "cannot be read"),
    "nested": (with_config(lambda c: "[" * 200_000), "cannot be read"),
    "strange_key": (
        with_config(lambda c: c["config"].update(evil=1)),
        "unknown fields",
    ),
    "strange_field": (field(evil=1), "evil"),
    "layers": (field(num_layers=10**8), "num_layers=2 by its tensors"),
    "width": (field(hidden_dim=10**6), "hidden_dim=32 by its tensors"),
    "mlp": (field(mlp_dim=10**9), "mlp_dim=64 by its tensors"),
    "classes": (field(num_classes=10**9), "num_classes=10 by its tensors"),
    "patches": (
        field(image_size=[80_000, 80_000]),
        r"image_size=\(80000, 80000\) by its config",
    ),
    "stages": (field(resnet_units=[1] * 10_000), "cannot be cut"),
    "text": (field(hidden_dim="32"), "hidden_dim='32'"),
    "negative": (field(num_layers=-1), "num_layers='-1'"),
    "other_width": (field(mlp_dim=65), "mlp_dim=64 by its tensors"),
    "bomb": (bomb, "unpacks"),
    "h5_bomb": (h5_bomb, "unpacks"),
    "endless": (endless(0, 0), "an object of no size"),
    "endless_by_overflow": (endless(1, 2**64 - 16), "an object of no size"),
    "endless_compressed": (endless_compressed, "an object of no size"),
    "traversing": (traversing, "outside"),
    "absolute": (absolute, "outside"),
    "another_member": (another_member, "assets/evil.py"),
    "twice": (twice, "twice"),
    "oversized_config": (oversized_config, "oversized config.json"),
    "flipped": (flipped, "CRC-32 .*model.weights.h5"),
    "not_a_number": (arrays_with(not_a_number), "class_token.*NaN"),
    "missing": (arrays_with(missing), "no weight class_token/"),
    "unused": (arrays_with(unused), "unused: layers/surprise/vars/0"),
    "external": (arrays_with(external), "no weight class_token/"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_keras_file(name, tmp_path):
    make, message = HOSTILE[name]
    path = tmp_path / "weights.keras"
    make(path)
    check(path, message)


def test_good_archive_is_read(tmp_path):
    write(tmp_path / "weights.keras", members().items())
    model = load_checkpoint(tmp_path / "weights.keras")
    assert len(model.weights) == 34


@pytest.mark.parametrize("change", [not_a_number, missing, unused, external])
def test_hostile_weights_change_nothing(change, tmp_path):
    path = tmp_path / "bad.weights.h5"
    path.write_bytes(members()[WEIGHTS])
    with h5py.File(path, "r+") as h5:
        change(h5)
    model = load_checkpoint(path_of("vit_tiny_google"), classes=10)
    before = [keras.ops.convert_to_numpy(x).copy() for x in model.variables]
    with pytest.raises(ValueError, match=r"bad\.weights\.h5"):
        load_weights(model, path)
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(variable), value
        )


def test_weights_of_a_trained_model_are_read(tmp_path):
    model = load_checkpoint(path_of("vit_tiny_google"), dropout_rate=0.1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    model.fit(np.zeros((2, 32, 32, 3)), np.zeros(2), verbose=0)
    wanted = model.predict(np.ones((1, 32, 32, 3)), verbose=0)
    model.save_weights(tmp_path / "trained.weights.h5")
    model.save(tmp_path / "trained.keras")
    again = load_checkpoint(path_of("vit_tiny_google"))
    load_weights(again, tmp_path / "trained.weights.h5")
    for reader in (again, load_checkpoint(tmp_path / "trained.keras")):
        found = reader.predict(np.ones((1, 32, 32, 3)), verbose=0)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
