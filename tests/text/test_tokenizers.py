"""Ids of tokens against those of the original tokenizers."""

import importlib.util
import json
import shutil

import keras
import numpy as np
import pytest
from text_cases import FOLDER, SOURCES

from keras_vit.text.pair_files import open_text
from keras_vit.text.tokenizer import MAX_TEXT, Tokenizer

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="the same on each backend"
)
for module in ("tokenizers", "sentencepiece", "ftfy"):
    pytest.importorskip(module)
# Files that a folder shares with another.
BORROWED = {
    "big_vision_siglip": "siglip/spiece.model",
    "open_clip_siglip2_layout": "siglip2_fixed/tokenizer.json",
}


def tokenizer_of(name, folder) -> Tokenizer:
    shutil.copytree(FOLDER / name, folder / name)
    if name in BORROWED:
        shutil.copy(FOLDER / BORROWED[name], folder / name)
    return Tokenizer.of_files(
        open_text(folder / SOURCES.get(name, name)).tokenizer
    )


@pytest.fixture
def siglip2(tmp_path):
    """The tokenizer of SigLIP 2, beside weights and config of SigLIP."""
    folder = tmp_path / "siglip2"
    shutil.copytree(FOLDER / "siglip2_fixed", folder)
    for name in ("model.safetensors", "config.json"):
        shutil.copy(FOLDER / "siglip" / name, folder)
    return folder


def check(tokenizer, name):
    told = json.loads((FOLDER / name / "tokens.json").read_text())
    length = told["context_length"]
    found = tokenizer([x["text"] for x in told["items"]], length)
    for ids, item in zip(found.tolist(), told["items"], strict=True):
        assert ids == item["ids_padded"], item["text"]
        if "ids" in item:
            assert tokenizer.ids([item["text"]]) == [item["ids"]]
    assert len(found) > 70


@pytest.mark.parametrize("name", SOURCES)
def test_ids_are_those_of_the_original(name, tmp_path):
    check(tokenizer_of(name, tmp_path), name)


OF_TRANSFORMERS = ("clip_quick_gelu", "siglip", "metaclip_2", "tipsv2")


@pytest.mark.filterwarnings("ignore:This sequence already has")
@pytest.mark.parametrize("name", [*OF_TRANSFORMERS, "siglip2"])
def test_ids_of_2_000_mixed_strings(name, tmp_path, request):
    """Ends of one string with beginnings of another, of 20 languages."""
    transformers = pytest.importorskip("transformers")
    if name == "siglip2":
        folder = request.getfixturevalue("siglip2")
        original = transformers.Siglip2Tokenizer.from_pretrained(folder)
    else:
        shutil.copytree(FOLDER / name, folder := tmp_path / name)
        original = transformers.AutoTokenizer.from_pretrained(folder)
    told = json.loads((FOLDER / "siglip" / "tokens.json").read_text())
    texts = [x["text"] for x in told["items"]]
    random = np.random.default_rng(0)
    # Where the mark of sentencepiece follows one of SigLIP's.
    mixed = ["</s>, \u2581under \u2581b", "<unk>\n\u2581un"]
    for _ in range(2000):
        first, last = random.choice(texts, 2)
        cuts = [random.integers(len(x) + 1) for x in (first, last)]
        blank = random.choice(["", " ", "  ", "\n", ", ", "!"])
        mixed.append(f"{first[cuts[0] :]}{blank}{last[: cuts[1]]}")
    options = {"padding": "max_length", "truncation": True, "max_length": 16}
    expected = original(mixed, **options)["input_ids"]
    found = Tokenizer.of_files(open_text(folder).tokenizer)(mixed, 16).tolist()
    differing = [
        text
        for text, *ids in zip(mixed, found, expected, strict=True)
        if ids[0] != ids[1]
    ]
    assert not differing


def test_siglip_2_has_the_config_of_siglip_and_another_tokenizer(siglip2):
    check(Tokenizer.of_files(open_text(siglip2).tokenizer), "siglip2_fixed")


def test_siglip_2_is_lower_cased_whatever_its_file_says(siglip2):
    """Published tokenizer.json do not do it, and their class is Gemma's."""
    content = json.loads((siglip2 / "tokenizer.json").read_text())
    steps = content["normalizer"]["normalizers"]
    steps[:] = [x for x in steps if x["type"] != "Lowercase"]
    (siglip2 / "tokenizer.json").write_text(json.dumps(content))
    config = json.loads((siglip2 / "tokenizer_config.json").read_text())
    config["tokenizer_class"] = "GemmaTokenizer"
    (siglip2 / "tokenizer_config.json").write_text(json.dumps(config))
    check(Tokenizer.of_files(open_text(siglip2).tokenizer), "siglip2_fixed")


def test_older_folders_of_clip_have_two_files(tmp_path):
    folder = tmp_path / "clip_quick_gelu"
    tokenizer_of("clip_quick_gelu", tmp_path)
    (folder / "tokenizer.json").unlink()
    rule = open_text(folder).tokenizer
    assert [x.split("/")[-1] for x in rule["files"]][0] == "vocab.json"
    check(Tokenizer.of_files(rule), "clip_quick_gelu")


def test_the_end_survives_a_text_of_100_000_letters(tmp_path):
    for name, end in (("clip_quick_gelu", 593), ("siglip", 1)):
        tokenizer = tokenizer_of(name, tmp_path)
        for text in ("cat " * 25_000, "x" * 100_000):
            assert tokenizer([text], 16)[0, -1] == end
        with pytest.raises(
            ValueError, match="1,000,000 letters. Received: 1,000,001, 'x{40}'"
        ):
            tokenizer(["x" * (MAX_TEXT + 1)], 16)


@pytest.mark.parametrize("texts", [[], [b"cat"], ["cat", None]])
def test_what_is_no_text_is_refused(texts, tmp_path):
    tokenizer = tokenizer_of("clip_quick_gelu", tmp_path)
    with pytest.raises(ValueError, match="takes a text or several"):
        tokenizer(texts, 16)


def test_a_folder_without_tokenizer_takes_ids_alone(tmp_path):
    from keras_vit.text import load_image_text

    folder = tmp_path / "siglip"
    shutil.copytree(FOLDER / "siglip", folder)
    (folder / "spiece.model").unlink()
    pair = load_image_text(folder)
    with pytest.raises(ValueError, match="has no tokenizer"):
        pair.encode_texts(["a cat"])
    assert pair.encode_texts(np.ones((1, 16), "int32")).shape == (1, 32)


@pytest.mark.parametrize(
    ("name", "module"),
    [("clip_quick_gelu", "tokenizers"), ("siglip", "sentencepiece")],
)
def test_a_package_that_is_missing_is_named(
    name, module, tmp_path, monkeypatch
):
    tokenizer = tokenizer_of(name, tmp_path)
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda x: None if x == module else find(x)
    )
    with pytest.raises(ValueError, match=rf"needs {module}.*\[text\]"):
        tokenizer(["cat"], 16)


@pytest.mark.parametrize("name", ["clip_quick_gelu", "siglip"])
def test_a_damaged_tokenizer_is_named(name, tmp_path):
    tokenizer = tokenizer_of(name, tmp_path)
    broken = Tokenizer(tokenizer.rule, dict.fromkeys(tokenizer.contents, b"{}"))
    with pytest.raises(ValueError, match="is not a tokenizer"):
        broken(["cat"], 16)
