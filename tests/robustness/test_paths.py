"""Paths that are not what they should be, at every public entry."""

import errno
import functools

import pytest
import setups
import surfaces

import keras_vit
from keras_vit.checkpoints import load_checkpoint, load_weights, read_info
from keras_vit.prediction import load_embeddings

# Name -> what makes it in a folder, where something is there.
PATHS = {
    "./nowhere": None,
    "nowhere.keras": None,
    "no/where.npz": None,
    "~/nowhere-at-all.keras": None,
    "": None,
    "nu\0l": None,
    "x" * 300: None,
    "model.keras/inside": None,
    "empty folder": lambda path: path.mkdir(),
    "other folder": lambda path: folder_of_a_text(path),
    "folder.keras": lambda path: path.mkdir(),
    "folder.png": lambda path: path.mkdir(),
    "folder.npz": lambda path: path.mkdir(),
    "empty": lambda path: path.touch(),
    **{
        f"empty{suffix}": lambda path: path.touch()
        for suffix in (
            *(".npz", ".safetensors", ".h5", ".keras", ".onnx", ".xml"),
            *(".tflite", ".stablehlo", ".pt2", ".png", ".csv", ".parquet"),
            *(".yaml", ".tar"),
        )
    },
    "text": lambda path: path.write_text("hello\n"),
    "/dev/null": None,
    "link": lambda path: path.symlink_to("nowhere"),
    "loop": lambda path: path.symlink_to("loop"),
}
# What the system says of them; that a name is too long is enough.
BARE = (errno.ENOENT, errno.EISDIR, errno.ENOTDIR)
MODEL, IMAGE = "model.keras", "good.png"


def folder_of_a_text(path):
    path.mkdir()
    (path / "notes.txt").write_text("hello\n")


def command(*words):
    return lambda path: surfaces.command(
        [path if x is None else x for x in words]
    )


@functools.cache
def loaded():
    return load_checkpoint(MODEL)


# Name -> what is done with a path.
ENTRIES = {
    "load_checkpoint": load_checkpoint,
    "load_weights": lambda x: load_weights(loaded(), x),
    "read_info": read_info,
    "predict, model": lambda x: keras_vit.predict(x, IMAGE),
    "predict, image": lambda x: keras_vit.predict(loaded(), x),
    "embed, model": lambda x: keras_vit.embed(x, IMAGE),
    "embed, image": lambda x: keras_vit.embed(loaded(), x),
    "explain, model": lambda x: keras_vit.explain(x, IMAGE, "out"),
    "explain, image": lambda x: keras_vit.explain(loaded(), x, "out"),
    "export, model": lambda x: keras_vit.export(x, "out.onnx"),
    "audit": lambda x: keras_vit.audit(x, out="out"),
    "audit, model": lambda x: keras_vit.audit("data", x, out="out"),
    "push": lambda x: keras_vit.push_to_hub(x, "a/b", dry_run="out"),
    "load_embeddings": load_embeddings,
    "keras-vit predict": command("predict", None, IMAGE),
    "keras-vit predict, image": command("predict", MODEL, None),
    "keras-vit embed": command("embed", None, IMAGE, "-o", "out.npz"),
    "keras-vit embed, image": command("embed", MODEL, None, "-o", "out.npz"),
    "keras-vit explain": command("explain", None, IMAGE, "-o", "out"),
    "keras-vit export": command("export", None, "out.onnx"),
    "keras-vit page": command("page", None, "out.html"),
    "keras-vit push": command("push", None, "a/b", "--dry_run", "out"),
    "keras-vit search": command("search", None, IMAGE),
    "keras-vit serve": command("serve", "--port", "0", None),
    "keras-vit summary": command("summary", None),
    "keras-vit plan": command("plan", "--model", None),
    "keras-vit benchmark": command("benchmark", None),
    "keras-vit audit": command("audit", None, "-o", "out"),
    "keras-vit weights info": command("weights", "info", None),
    "keras-vit weights verify": command("weights", "verify", None),
    "keras-vit weights convert": command("weights", "convert", None, "o.npz"),
    "keras-vit finetune": command("finetune", "--config", None),
    "keras-vit finetune, weights": command(
        *("finetune", "--data.name", "digits", "--model.weights", None)
    ),
    "keras-vit finetune, folder": command("finetune", "--data.folder", None),
    "keras-vit finetune, csv": command("finetune", "--data.csv", None),
    "keras-vit evaluate": command(
        *("evaluate", "--data.name", "digits", "--model.weights", None)
    ),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paths")
    setups.base(folder)
    for name, make in PATHS.items():
        if make is not None:
            make(folder / name)
    return folder


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(x, marks=[pytest.mark.slow] if "finetune" in x else [])
        for x in ENTRIES
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_path_that_is_not_right_is_named_in_one_line(base, name, monkeypatch):
    monkeypatch.chdir(base)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    before = sorted(base.rglob("*"))
    wrong = {}
    for path in PATHS:
        told = ""
        try:
            ENTRIES[name](path)
        except (ValueError, OSError) as error:
            told = str(error)
            if isinstance(error, OSError) and error.errno in BARE:
                wrong[path] = f"bare: {told}"
        except BaseException as error:
            wrong[path] = f"{type(error).__name__}: {error}"
            continue
        else:
            wrong[path] = "taken"
        if "\n" in told:
            wrong[path] = told
        if sorted(base.rglob("*")) != before:
            wrong[path] = f"{wrong.get(path)}, and it wrote something"
            before = sorted(base.rglob("*"))
    assert not wrong, "\n".join(
        f"{x[:40]!r}: {y[:250]}" for x, y in wrong.items()
    )
