"""What the cases of the table find in their folder."""

import io
import json
import os
import pathlib
import shutil
import zipfile

import keras
import numpy as np
from PIL import Image
from tiny_models import tiny_vit

from keras_vit.training.run import files as run_folder

NAMES = "class_names.json"
BYTES_OF_A_BOMB = 512 * 2**20


def base(folder: pathlib.Path) -> None:
    """A model, an image, images of two classes: what every case starts from."""
    keras.utils.set_random_seed(0)
    model = tiny_vit()
    head = model.get_layer("predictions")
    head.kernel.assign(keras.random.normal(head.kernel.shape))
    run_folder.save_model(model, ["a", "b", "c"], folder / "model.keras")
    pixels = np.random.default_rng(0).integers(0, 255, (20, 16, 16, 3), "uint8")
    Image.fromarray(pixels[0]).save(folder / "good.png")
    for number, image in enumerate(pixels):
        name = folder / "data" / "ab"[number % 2] / f"{number}.png"
        name.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(name)


def make(name: str, folder: pathlib.Path) -> None:
    """Makes what a row names, with the words that follow as arguments."""
    if name:
        function, *arguments = name.split()
        for prefix, maker in PREFIXES.items():
            if function.startswith(prefix):
                return maker(folder, function.removeprefix(prefix))
        MAKERS[function](folder, *arguments)
    return None


def _copied(folder, target):
    (folder / target).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "good.png", folder / target)


def fifo(folder):
    os.mkfifo(folder / "fifo.png")
    os.mkfifo(folder / "fifo.npz")


def apple_double(folder):
    _copied(folder, "photos/a.png")
    (folder / "photos" / "._a.png").write_bytes(b"\0\5\x16\7")


def undecodable_name(folder):
    _copied(folder, "photos/a.png")
    os.rename(
        os.fsencode(folder / "photos" / "a.png"),
        os.fsencode(folder / "photos") + b"/\xff.png",
    )


def escape_in_name(folder):
    _copied(folder, "photos/\x1b[31mred.png")


def same_stems(folder):
    _copied(folder, "a.png")
    _copied(folder, "a_2.png")
    Image.open(folder / "good.png").save(folder / "a.jpg")


def long_images(folder):
    Image.new("RGB", (10_000, 1)).save(folder / "wide.png")
    Image.new("RGB", (1, 10_000)).save(folder / "tall.png")


def long_name(folder):
    _copied(folder, f"photos/{'x' * 250}.png")


def _with_entry(folder, name, content, target):
    """The model with another file in its archive."""
    with (
        zipfile.ZipFile(folder / "model.keras") as source,
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for entry in source.namelist():
            given = content if entry == name else source.read(entry)
            archive.writestr(entry, given)


CLASS_NAMES = {
    "a_string": json.dumps("abc"),
    "an_object": json.dumps({"a": 1, "b": 2, "c": 3}),
    "numbers": json.dumps([1, 2, 3]),
    "surrogates": r'["a", "b", "\ud800"]',
    "escapes": json.dumps(["\x1b]0;owned\x07"] * 3),
    "unicode": json.dumps(["caf\u00e9", "\u4e2d", "c"]),
    "nested": "[" * 100_000 + "]" * 100_000,
    "formulas": json.dumps(["=1+1", "@a", "+b"]),
    "bomb": '["a", "b", "c"]',
}


def class_names(folder, kind):
    name, blanks = "odd.keras", ""
    if kind == "bomb":
        name, blanks = "bomb.keras", " " * BYTES_OF_A_BOMB
    _with_entry(folder, NAMES, blanks + CLASS_NAMES[kind], folder / name)


def not_a_zip(folder):
    (folder / "odd.keras").write_bytes(b"PK\x03\x04 but not for long")


def _run(folder):
    run = folder / "run"
    run_folder.begin(run, {"preprocessing": {}}, {})
    run_folder.write_result(run, {})
    shutil.copy(folder / "model.keras", run / "model.keras")
    return run


def run_not_a_zip(folder):
    (_run(folder) / "model.keras").write_bytes(b"nothing")


DAMAGED = {
    "garbage": b"a: [",
    "binary": b"\xff\x00\x01",
    "list": b"- 1",
    "empty": b"",
}


def run_config(folder, kind):
    (_run(folder) / "config.yaml").write_bytes(DAMAGED[kind])


def csv_label(folder, label):
    lines = ["image,label"]
    lines += [f"data/a/{n}.png,{n // 2 % 2}" for n in range(0, 20, 2)]
    lines += [f"data/b/1.png,{label}"]
    (folder / "data.csv").write_text("\n".join(lines) + "\n")


def others_beside_png(folder):
    (folder / "data" / "a" / "more.heic").write_bytes(b"ftypheic")
    (folder / "data" / "notes.txt").write_text("What these are.")


def csv_gaps(folder):
    lines = [f"data/{'ab'[n % 2]}/{n}.png,{7 * (n % 2)}\n" for n in range(20)]
    (folder / "data.csv").write_text("".join(["image,label\n", *lines]))


def undecodable_class(folder):
    data = os.fsencode(folder / "data")
    os.rename(data + b"/b", data + b"/\xff")


def long_class(folder):
    (folder / "data" / "b").rename(folder / "data" / ("x" * 245))


def damaged_image(folder):
    """Whole at its beginning and its end."""
    content = bytearray((folder / "good.png").read_bytes())
    middle = len(content) // 2
    content[middle : middle + 50] = bytes(50)
    for name in "ab":
        path = folder / "data" / name / "damaged.png"
        path.write_bytes(content)


def gone_images(folder):
    """Files that were there when the folder was listed."""
    for name in "ab":
        (folder / "data" / name / "gone.png").symlink_to(folder / "removed")


def apple_double_data(folder):
    for name in "ab":
        path = folder / "data" / name / "._0.png"
        path.write_bytes(b"\0\5\x16\7")


def apple_double_csv(folder):
    apple_double_data(folder)
    names = [f"{'ab'[n % 2]}/{n}.png,{n % 2}" for n in range(20)]
    lines = [f"data/{x}\n" for x in [*names, "a/._0.png,0"]]
    (folder / "data.csv").write_text("".join(["image,label\n", *lines]))


def cmyk(folder):
    pixels = np.random.default_rng(0).integers(0, 255, (20, 16, 16, 4), "uint8")
    for number, image in enumerate(pixels):
        path = folder / "cmyk" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image, "CMYK").save(path)


def begun_without_config(folder):
    run = folder / "run"
    run_folder.begin(run, {"seed": 0}, {})
    (run / "config.yaml").unlink()
    (run / "metrics.jsonl").write_text("{}\n")


def begun_config(folder, kind):
    begun_without_config(folder)
    (folder / "run" / "config.yaml").write_bytes(DAMAGED[kind])


def own_folder(folder):
    for name in ("environment.json", "examples/a.png", "checkpoints/mine.npz"):
        path = folder / "own" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")


def own_examples(folder):
    run_folder.begin(folder / "run", {"seed": 0}, {})
    run_folder.write_result(folder / "run", {})
    _copied(folder, "run/examples/mine.png")
    _copied(folder, "run/mine.txt")


def long_header(folder):
    length = 11_000_000
    path = folder / "odd.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + b"{" * length)


def many_arrays(folder):
    content = io.BytesIO()
    np.save(content, np.zeros(1, "float32"))
    with zipfile.ZipFile(folder / "odd.npz", "w") as archive:
        for number in range(99_000):
            archive.writestr(f"{number}.npy", content.getvalue())


def weights(folder, dtype):
    import h5py

    with zipfile.ZipFile(folder / "model.keras") as archive:
        content = archive.read("model.weights.h5")
    file = io.BytesIO(content)
    with h5py.File(file, "r+") as h5:
        found = []
        h5.visititems(
            lambda name, x: found.append(name) if hasattr(x, "shape") else None
        )
        name = max(found, key=lambda name: h5[name].size)
        values = h5[name][()].astype(dtype)
        del h5[name]
        h5[name] = values
    _with_entry(
        folder, "model.weights.h5", file.getvalue(), folder / "odd.keras"
    )


def epsilon(folder, value):
    with zipfile.ZipFile(folder / "model.keras") as archive:
        config = json.loads(archive.read("config.json"))
    config["config"]["config"]["layer_norm_epsilon"] = float(value)
    _with_entry(folder, "config.json", json.dumps(config), folder / "odd.keras")


PREFIXES = {
    "begun_config_": begun_config,
    "class_names_": class_names,
    "run_config_": run_config,
    "weights_": weights,
}
MAKERS = {
    function.__name__: function
    for function in (
        *(fifo, apple_double, undecodable_name, escape_in_name, same_stems),
        *(
            long_images,
            long_name,
            not_a_zip,
            run_not_a_zip,
            csv_label,
        ),
        *(epsilon, others_beside_png, csv_gaps, undecodable_class, long_class),
        *(damaged_image, cmyk, begun_without_config, own_folder, own_examples),
        *(long_header, many_arrays, gone_images, apple_double_data),
        *(apple_double_csv,),
    )
}
