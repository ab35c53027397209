"""What was tried against the public commands; a case is a row.

A row: its name, what is made in the folder of the case (`setups.py`), the
command, its exit code, and words of the one line of reason, or of the output
where the exit code is 0. Files that are there before are the same afterwards.
"""

from typing import NamedTuple


class Case(NamedTuple):
    name: str
    setup: str
    command: str
    code: int = 2
    words: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    """What may not be printed."""


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
            "keras-vit predict run good.png",
            2,
            ("config.yaml' is damaged",),
        )
        for kind in ("garbage", "binary", "list", "empty")
    ),
    Case(
        "a run that resizes to 100,000 pixels",
        "run_resize_size",
        "keras-vit predict run good.png",
        2,
        ("resize_size", "at most"),
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
    # --- Weights ---
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
