"""The label lists that the package carries, against what is published."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from keras_vit import preprocessing
from keras_vit.preprocessing import class_names, decode_predictions
from keras_vit.text.templates import imagenet_names

LABELS = Path(preprocessing.__file__).parent / "labels"


def rows_of(file):
    text = (LABELS / file).read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines()]


def test_imagenet_list_is_the_one_of_keras_applications():
    classes = decode_predictions(-np.arange(1000.0)[np.newaxis], top=1000)[0]
    index = {
        str(number): [wordnet_id, name]
        for number, (wordnet_id, name, _) in enumerate(classes)
    }
    # The checksum with which keras.applications verifies its download of
    # imagenet_class_index.json (keras/src/applications/imagenet_utils.py).
    checksum = hashlib.md5(json.dumps(index).encode()).hexdigest()
    assert checksum == "c2c37ea517e94d9795004a39431a14cb"


def test_imagenet_lemmas_have_the_size_of_those_of_google():
    # ilsvrc2012_wordnet_lemmas.txt, published with Google's BiT models.
    lemmas = "".join(f"{lemmas}\n" for _, lemmas in rows_of("imagenet.txt"))
    assert len(lemmas.encode()) == 21675


@pytest.mark.parametrize(
    "file, num_classes", [("imagenet.txt", 1000), ("imagenet21k.txt", 21843)]
)
def test_lists_are_sorted_by_wordnet_id(file, num_classes):
    rows = rows_of(file)
    wordnet_ids = [wordnet_id for wordnet_id, _ in rows]
    assert len(rows) == num_classes
    assert wordnet_ids == sorted(set(wordnet_ids))
    assert all(re.fullmatch(r"n\d{8}", name) for name in wordnet_ids)
    assert all(lemmas.strip() for _, lemmas in rows)


def test_imagenet_21k_is_the_list_of_google():
    names = dict(rows_of("imagenet21k.txt"))
    assert list(names)[:2] == ["n00004475", "n00005787"]
    # The two classes that the release of fall 2011 has not.
    assert {"n03931044", "n09859684"} <= set(names)


def test_the_teddy_is_the_one_imagenet_class_that_21k_lacks():
    small, large = dict(rows_of("imagenet.txt")), rows_of("imagenet21k.txt")
    assert set(small) - set(dict(large)) == {"n04399382"}


def test_class_names():
    names = class_names(1000)
    assert (len(names), names[0], names[386], names[999]) == (
        1000,
        "tench",
        "African_elephant",
        "toilet_tissue",
    )
    assert class_names(21843)[:2] == ("organism", "benthos")


def test_class_names_of_an_unknown_list():
    with pytest.raises(ValueError, match=r"\(1000, 21843\).*21841"):
        class_names(21841)


def test_names_of_imagenet_by_words_are_in_the_order_of_its_classes():
    names = imagenet_names()
    repeated = {x for x in names if names.count(x) > 1}
    assert (len(names), repeated) == (1000, {"missile", "sunglasses"})
    same = sum(
        any(word in lemmas.lower() for word in re.findall(r"\w{4,}", name))
        for name, (_, lemmas) in zip(
            map(str.lower, names), rows_of("imagenet.txt"), strict=True
        )
    )
    assert same == 934  # The others have other words, as "roundworm".


def test_licences_travel_with_the_lists():
    readme = (LABELS / "README.md").read_text(encoding="utf-8")
    assert "Apache License 2.0" in readme
    assert "MIT License" in readme
    assert "WordNet 3.0 Copyright 2006 by Princeton University" in readme


FRESH_IMPORT = """
import importlib.util, json, sys
import keras
before = set(sys.modules)
spec = importlib.util.spec_from_file_location("preprocessing", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
modules = sorted({name.split(".")[0] for name in set(sys.modules) - before})
print(json.dumps([modules, module._wordnet_classes.cache_info().currsize]))
"""


def test_import_is_cheap():
    output = subprocess.run(
        [sys.executable, "-c", FRESH_IMPORT, preprocessing.__file__],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    modules, lists_read = json.loads(output)
    assert not {"tensorflow", "jax", "torch", "PIL"} & set(modules)
    assert lists_read == 0
