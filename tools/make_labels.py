"""Makes the label lists in keras_vit/labels from a timm wheel.

Run by hand, once; the package reads the lists that this script has written:

    pip download --no-deps timm==1.0.31
    python tools/make_labels.py timm-1.0.31-py3-none-any.whl

The lists come out the same, byte for byte, from the same wheel. A line is
`<WordNet id><tab><lemmas>`; line i (from 0) is class i of the models.
"""

import argparse
import csv
import io
import zipfile
from pathlib import Path

LABELS = Path(__file__).resolve().parents[1] / "keras_vit" / "labels"
SOURCE = "timm/data/_info/"
LEMMAS = "imagenet_synset_to_lemma.txt"
# What is written, what it is made from, and how many classes it must have.
LISTS = {
    "imagenet.txt": ("imagenet_synsets.txt", 1000),
    "imagenet21k.txt": ("imagenet21k_goog_synsets.txt", 21843),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes the label lists.")
    parser.add_argument("wheel", type=Path, help="the wheel of timm")
    arguments = parser.parse_args()
    with zipfile.ZipFile(arguments.wheel) as wheel:
        lemmas = read_lemmas(wheel)
        for name, (source, num_classes) in LISTS.items():
            synsets = read(wheel, source).split()
            check(source, synsets, num_classes)
            text = "".join(f"{wnid}\t{lemmas[wnid]}\n" for wnid in synsets)
            (LABELS / name).write_bytes(text.encode())
            print(f"{LABELS / name}: {num_classes} classes")


def read(wheel: zipfile.ZipFile, name: str) -> str:
    """Reads one of timm's data files."""
    return wheel.read(SOURCE + name).decode("utf-8")


def read_lemmas(wheel: zipfile.ZipFile) -> dict[str, str]:
    """Reads the names of all WordNet ids; names are separated by ", "."""
    return dict(csv.reader(io.StringIO(read(wheel, LEMMAS)), delimiter="\t"))


def check(source: str, synsets: list[str], num_classes: int) -> None:
    """Raises a ValueError unless the ids are those of the checkpoints.

    Google's checkpoints number the classes in the order of the sorted ids.
    """
    if len(synsets) != num_classes or synsets != sorted(set(synsets)):
        raise ValueError(
            f"{source} should list {num_classes} different WordNet ids in "
            f"sorted order. It lists {len(synsets)} ids, "
            f"{len(set(synsets))} of them different. Use timm 1.0.31."
        )


if __name__ == "__main__":
    main()
