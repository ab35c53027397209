"""What was tried against the public commands; a case is a row.

A row: its name, what is made in the folder of the case (`setups.py`), the
command, its exit code, and words of the one line of reason, or of the output
where the exit code is 0. Files that are there before are the same afterwards.

    python tests/robustness/cases_table.py

tries the surfaces of `surfaces.py` as well, in one process, and counts what
held.
"""

import collections
import pathlib
import sys
import time
from typing import Any, NamedTuple


class Case(NamedTuple):
    name: str
    setup: str
    command: str
    code: int = 2
    words: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    """What may not be printed."""


class Finding(NamedTuple):
    """What `fuzz.py` found."""

    target: str
    given: Any


PREDICT = "keras-vit predict model.keras "
EXPLAIN = "keras-vit explain model.keras "
TRAIN = "finetune "

CASES = (
    # --- Images ---
    Case("an image", "", PREDICT + "good.png", 0, ("good.png",)),
    *(
        Case(
            f"a missing image among others, as {kind}",
            "",
            PREDICT + f"good.png gone.png --format {kind}",
            2,
            ("There is no file 'gone.png'",),
        )
        for kind in ("table", "json", "csv")
    ),
    Case(
        "a FIFO as an image",
        "fifo",
        PREDICT + "fifo.png",
        2,
        ("'fifo.png' is no regular file",),
    ),
    Case(
        "a FIFO as weights",
        "fifo",
        "keras-vit predict fifo.npz good.png",
        2,
        ("fifo.npz' is no regular file",),
    ),
    Case(
        "files that macOS puts beside images",
        "apple_double",
        PREDICT + "photos",
        0,
        ("a.png",),
        ("._a.png",),
    ),
    Case(
        "a name that is no UTF-8",
        "undecodable_name",
        PREDICT + "photos",
        0,
        ("\\udcff.png",),
    ),
    Case(
        "a name with an escape character",
        "escape_in_name",
        PREDICT + "photos",
        0,
        ("\\x1b[31m",),
        ("\x1b[31m",),
    ),
    Case(
        "images of 1x10000 and 10000x1 pixels",
        "long_images",
        PREDICT + "wide.png tall.png",
        0,
        ("wide.png", "tall.png"),
    ),
    Case(
        "pictures of names that differ in their suffix",
        "same_stems",
        EXPLAIN + "a.png a_2.png a.jpg -o out",
        0,
    ),
    Case(
        "pictures of a name of 250 characters",
        "long_name",
        EXPLAIN + "photos -o out",
        0,
    ),
    Case(
        "a page of names that are no UTF-8",
        "undecodable_name",
        EXPLAIN + "photos -o out",
        0,
        ("index.html",),
    ),
    *(
        Case(
            f"images of {size} pixels a side",
            "",
            PREDICT + f"good.png --image_size {size}",
            2,
            words,
        )
        for size, words in {
            0: ("image_size=0", "positive"),
            -8: ("image_size=-8", "positive"),
            400_000: ("no room", "400000x400000", "GB are free"),
        }.items()
    ),
    # --- Models ---
    Case(
        "class names that unpack to 512 MB",
        "class_names_bomb",
        "keras-vit predict bomb.keras good.png",
        2,
        ("bomb.keras", "unpacks"),
    ),
    *(
        Case(
            f"class names that are {kind}",
            f"class_names_{kind.replace(' ', '_')}",
            "keras-vit predict odd.keras good.png",
            2,
            ("class names", "list of"),
        )
        for kind in ("a string", "an object", "numbers", "surrogates")
    ),
    Case(
        "class names that are nested deeply",
        "class_names_nested",
        "keras-vit predict odd.keras good.png",
        2,
        ("odd.keras", "class names"),
    ),
    Case(
        "class names that are formulas",
        "class_names_formulas",
        "keras-vit predict odd.keras good.png --format csv",
        0,
        ("'=1+1", "'@a", "'+b"),
        (",=1+1", ",@a", ",+b"),
    ),
    Case(
        "class names that move the cursor",
        "class_names_escapes",
        "keras-vit predict odd.keras good.png",
        0,
        ("\\x1b]0;owned",),
        ("\x1b]0;",),
    ),
    Case(
        "a model that is no zip",
        "not_a_zip",
        "keras-vit predict odd.keras good.png",
        2,
        ("odd.keras",),
    ),
    Case(
        "a run whose model is no zip",
        "run_not_a_zip",
        "keras-vit predict run good.png",
        2,
        ("model.keras",),
    ),
    *(
        Case(
            f"a run whose config.yaml is {kind}",
            f"run_config_{kind}",
            # What it was trained on stands in its model.
            "keras-vit predict run good.png",
            0,
            ("good.png",),
        )
        for kind in ("garbage", "binary", "list", "empty")
    ),
    # --- Terminals ---
    Case(
        "standard input is closed",
        "",
        PREDICT + "- <closed",
        2,
        ("standard input is closed",),
    ),
    Case("standard output is closed", "", PREDICT + "good.png >closed", 2),
    Case(
        "a terminal of ASCII",
        "class_names_unicode",
        "keras-vit predict odd.keras good.png --format csv ascii",
        0,
        ("caf\\xe9",),
    ),
    # --- Data ---
    Case(
        "an unset variable as the folder",
        "",
        TRAIN + "--data.folder=",
        2,
        ("folder=''",),
    ),
    *(
        Case(
            f"the label {label} in a CSV file",
            f"csv_label {label}",
            TRAIN + "--data.csv=data.csv",
            2,
            (f"'{label}'", "data.csv"),
        )
        for label in (10**9, 10**12, 10**30)
    ),
    Case(
        "colours for a grey model that nobody chose",
        "",
        TRAIN + "--data.folder=data --model.channels=null",
        2,
        ("have colours", "--model.channels 3"),
    ),
    Case(
        "nothing to compute a result on",
        "",
        TRAIN + "--data.folder=data --data.validation_fraction=0 "
        "--data.test_fraction=0",
        2,
        ("no test and no validation images", "--data.test_fraction"),
        ("Epoch",),
    ),
    Case(
        "images of kinds that training does not read",
        "others_beside_png",
        TRAIN + "--data.folder=data",
        0,
        ("2 file(s): 'a/more.heic', 'notes.txt'", "are left out"),
    ),
    Case(
        "labels with gaps",
        "csv_gaps",
        TRAIN + "--data.csv=data.csv",
        0,
        ("no images of 6 of 8 classes: 1, 2, 3, 4, 5 ...",),
    ),
    Case(
        "a class whose name is no UTF-8",
        "undecodable_class",
        TRAIN + "--data.folder=data",
        2,
        ("names that are no UTF-8", "\\udcff"),
    ),
    Case(
        "a class of 245 characters",
        "long_class",
        TRAIN + "--data.folder=data",
        0,
        ("images are right",),
    ),
    Case(
        "an image that is damaged in its midst",
        "damaged_image",
        TRAIN + "--data.folder=data",
        2,
        ("damaged.png",),
    ),
    Case(
        "images that are gone when they are read",
        "gone_images",
        TRAIN + "--data.folder=data --data.check_images=none",
        2,
        ("An image cannot be read", "gone.png"),
    ),
    Case(
        "images that are gone when they are read, left out",
        "gone_images",
        TRAIN + "--data.folder=data --data.check_images=none "
        "--data.on_broken_image=skip",
        0,
        ("images are right",),
    ),
    Case(
        "files that macOS puts beside images, in training",
        "apple_double_data",
        TRAIN + "--data.folder=data --data.check_images=all",
        0,
        ("images are right",),
        ("._",),
    ),
    Case(
        "a file that macOS puts beside an image, in a CSV file",
        "apple_double_csv",
        TRAIN + "--data.csv=data.csv",
        2,
        ("._0.png", "cannot be read"),
    ),
    Case(
        "CMYK on a grey model",
        "cmyk",
        TRAIN + "--data.folder=cmyk",
        0,
        ("images are right",),
    ),
    # --- Run folders ---
    Case(
        "a begun run without its config",
        "begun_without_config",
        TRAIN + "--data.folder=data --run_dir=run",
        2,
        ("config.yaml' is gone",),
    ),
    *(
        Case(
            f"a begun run whose config is {kind}",
            f"begun_config_{kind}",
            TRAIN + "--data.folder=data --run_dir=run",
            2,
            ("config.yaml' is damaged",),
        )
        for kind in ("garbage", "binary", "list", "empty")
    ),
    Case(
        "somebody's own folder",
        "own_folder",
        TRAIN + "--data.folder=data --run_dir=own --overwrite=true",
        2,
        ("files that are not of a run",),
    ),
    Case(
        "own files in the examples of a run that is replaced",
        "own_examples",
        TRAIN + "--data.folder=data --run_dir=run --overwrite=true",
        0,
        ("images are right",),
    ),
    Case(
        "a run folder that is a file",
        "",
        TRAIN + "--data.folder=data --run_dir=good.png",
        2,
        ("not a folder",),
    ),
    # --- Weights ---
    Case(
        "a header of 11 MB",
        "long_header",
        "keras-vit weights info odd.safetensors",
        2,
        ("header of 11,000,000 bytes", "at most 10,000,000"),
    ),
    Case(
        "an archive of 99,000 arrays",
        "many_arrays",
        "keras-vit weights info odd.npz",
        2,
        ("99,000 arrays", "at most 20,000"),
    ),
    *(
        Case(
            f"the address {address}",
            "",
            f"keras-vit predict {address} good.png",
            2,
            (words,),
            ("secret",),
        )
        for address, words in {
            "http://host/a.npz?token=secret": "starts with https://",
            "ftp://host/a.npz": "starts with https://",
            "https://me:secret@host/a.npz": "has a password",
            "https://host:port/a.npz": "no address",
        }.items()
    ),
    *(
        Case(
            f"weights of {dtype} in a .keras file",
            f"weights_{dtype}",
            "keras-vit weights info odd.keras",
            2,
            ("dtype",),
        )
        for dtype in ("complex64", "int8", "bool")
    ),
    *(
        Case(
            f"a layer_norm_epsilon of {value}",
            f"epsilon {value}",
            "keras-vit weights info odd.keras",
            2,
            ("layer_norm_epsilon",),
        )
        for value in ("NaN", "-5", "1e308")
    ),
)

FUZZED = (
    Finding("config_file", "augmentation:\n cutmix_alpha: null"),
    Finding("config_file", "data: []"),
    Finding("class_names", '["\\u0000"]'),
    Finding("command_words", ["plan", "--model=ViT_B16", "\x1b"]),
    Finding(
        "run_folder",
        {
            ".keras_vit_lock.json": "",
            "keras_vit_run.json": '{"files":[]}',
            "config.yaml": "",
        },
    ),
)


def main() -> int:
    """Try each surface of `surfaces.py`; print what held and what did not."""
    import surfaces

    counts: collections.Counter = collections.Counter()
    for name in (*surfaces.SURFACES, *surfaces.CALLS):
        begin = time.monotonic()
        found = surfaces.run(name)
        counts.update(verdict for _, verdict, _ in found)
        for case, verdict, reason in found:
            if verdict != "held":
                print(f"{verdict}: {name}: {case}: {reason}")
        seconds = time.monotonic() - begin
        print(f"{len(found):5,} {name} ({seconds:.1f} s)", flush=True)
    shown = ", ".join(f"{counts[x]:,} {x}" for x in ("held", "poor", "bad"))
    print(f"{sum(counts.values()):,} cases: {shown}")
    return int(counts["bad"] > 0)


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
    sys.exit(main())
