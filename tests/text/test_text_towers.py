"""Both towers against the original libraries' numbers."""

import json
import shutil

import keras
import numpy as np
import pytest
from text_cases import FOLDER, SOURCES, tower_of

import keras_vit
from keras_vit.text import TextConfig, load_image_text
from keras_vit.text.image_text import checked_ids, normalized
from keras_vit.text.pair_files import open_text

PAIRS = ("clip_quick_gelu", "siglip")
numbers = keras.ops.convert_to_numpy
one_backend = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="the same on each backend"
)


@pytest.mark.parametrize("name", SOURCES)
def test_embeddings_are_those_of_the_original(name):
    expected = np.load(FOLDER / name / "expected.npz")
    tower = tower_of(FOLDER / SOURCES[name])
    ids = checked_ids(expected["token_ids"], tower.config)
    found = numbers(normalized(tower(ids)))
    np.testing.assert_allclose(found, expected["text_embeds"], atol=1e-5)


@pytest.mark.parametrize("name", PAIRS)
def test_logits_are_those_of_the_original(name):
    expected = np.load(FOLDER / name / "expected.npz")
    pair = load_image_text(FOLDER / name)
    images, ids = expected["images"], expected["token_ids"]
    for key, found, atol in (
        ("image_embeds", pair.encode_images(images), 1e-5),
        ("text_embeds", pair.encode_texts(ids), 1e-5),
        ("logits_per_image", pair.logits(images, ids), 5e-5),
        ("logits_per_image", pair((images, ids.astype("int32"))), 5e-5),
        ("scores", pair.scores(images, ids), 1e-5),
    ):
        np.testing.assert_allclose(
            numbers(found), expected[key], atol=atol, err_msg=key
        )


@one_backend
@pytest.mark.parametrize("name", PAIRS)
def test_texts_are_read_by_the_tokenizer_of_a_saved_pair(name, tmp_path):
    pytest.importorskip("tokenizers")
    pytest.importorskip("sentencepiece")
    expected = np.load(FOLDER / name / "expected.npz")
    load_image_text(FOLDER / name).save(tmp_path / "pair.keras")
    pair = load_image_text(tmp_path / "pair.keras")
    texts = ["a photo of a cat", "a photo of a dog"]  # The first two of these.
    np.testing.assert_allclose(
        numbers(pair.encode_texts(texts)),
        expected["text_embeds"][:2],
        atol=1e-5,
    )
    np.testing.assert_allclose(
        numbers(pair.logits(expected["images"], expected["token_ids"])),
        expected["logits_per_image"],
        atol=5e-5,
    )
    assert pair.trained_as == load_image_text(FOLDER / name).trained_as
    alone = keras_vit.load_checkpoint(tmp_path / "pair.keras")
    found = numbers(alone(expected["images"]))
    found /= np.linalg.norm(found, axis=-1, keepdims=True)
    np.testing.assert_allclose(found, expected["image_embeds"], atol=1e-5)
    assert alone.trained_as == pair.image_tower.trained_as


@one_backend
def test_the_image_tower_alone_is_the_same():
    images = np.load(FOLDER / "siglip" / "expected.npz")["images"]
    alone = keras_vit.load_checkpoint(FOLDER / "siglip")
    pair = load_image_text(FOLDER / "siglip")
    np.testing.assert_array_equal(
        numbers(alone(images)), numbers(pair.image_tower(images))
    )


def test_a_pair_takes_a_step_of_fit():
    pair = load_image_text(FOLDER / "siglip")
    expected = np.load(FOLDER / "siglip" / "expected.npz")
    images, ids = expected["images"], expected["token_ids"].astype("int32")
    pair.compile("sgd", keras.losses.BinaryCrossentropy(from_logits=True))
    count = min(len(images), len(ids))
    found = pair.fit(
        (images[:count], ids[:count]), np.eye(count), count, verbose=0
    )
    assert np.isfinite(found.history["loss"]).all()


@one_backend
def test_a_bfloat16_pair_compares_in_float32():
    pair = load_image_text(FOLDER / "clip_quick_gelu", dtype="mixed_bfloat16")
    expected = np.load(FOLDER / "clip_quick_gelu" / "expected.npz")
    found = numbers(pair.encode_texts(expected["token_ids"]))
    cosines = np.sum(found * expected["text_embeds"], axis=1)
    assert found.dtype == "float32" and cosines.min() > 0.995


@one_backend
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x[:, :8], "integers"),
        (lambda x: x.astype("float32"), "integers"),
        (lambda x: x + 500, "vocabulary"),
        (lambda x: np.where(x == 593, 5, x), "without the end"),
        (lambda x: x[:0], "integers"),
    ],
)
def test_ids_of_another_tower_are_refused(change, message):
    tower = tower_of(FOLDER / "clip_quick_gelu")
    ids = np.load(FOLDER / "clip_quick_gelu" / "expected.npz")["token_ids"]
    with pytest.raises(ValueError, match=message):
        checked_ids(change(ids), tower.config)


@one_backend
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "pooled_id=49407, vocabulary_size=500"),
        ({"pooling": "mean", "masked_id": 500}, "masked_id=500, vocabulary"),
    ],
)
def test_ids_that_no_token_has_are_refused(options, message):
    """The first token of each text would stand for it, unseen."""
    with pytest.raises(ValueError, match=message):
        TextConfig(vocabulary_size=500, **options)
    assert TextConfig(vocabulary_size=500, pooled_id=499, masked_id=499)
    assert TextConfig(vocabulary_size=500, pooling="last")


@one_backend
def test_an_empty_text_has_no_mean():
    tower = tower_of(FOLDER / "tipsv2")
    with pytest.raises(ValueError, match="Text 1 is without a token"):
        checked_ids(np.array([[5] * 16, [0] * 16]), tower.config)


@one_backend
def test_what_does_not_fit_is_refused(tmp_path):
    copy = tmp_path / "pair"
    shutil.copytree(FOLDER / "open_clip_clip", copy)
    config = json.loads((copy / "open_clip_config.json").read_text())
    config["model_cfg"]["text_cfg"]["hf_model_name"] = "roberta-base"
    (copy / "open_clip_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="roberta-base"):
        open_text(copy)
    with pytest.raises(ValueError, match="no known format"):
        open_text(FOLDER.parent / "hf_vit_tiny")
    pair = load_image_text(FOLDER / "clip_quick_gelu")
    other = tower_of(FOLDER / "siglip")
    with pytest.raises(ValueError, match="embeddings of one size"):
        keras_vit.text.ImageTextModel(pair.image_tower, other)


@one_backend
@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("clip_quick_gelu", ("text_config", "num_hidden_layers")),
        ("clip_quick_gelu", ("text_config", "vocab_size")),
        ("open_clip_clip", ("model_cfg", "text_cfg", "width")),
    ],
)
def test_a_config_of_other_sizes_than_the_tensors_is_refused(
    source, path, tmp_path
):
    shutil.copytree(FOLDER / source, tmp_path / "pair")
    name = "open_clip_config.json" if "open" in source else "config.json"
    file = tmp_path / "pair" / name
    content = json.loads(file.read_text())
    *parents, field = path
    part = content
    for parent in parents:
        part = part[parent]
    part[field] += 1
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="by its tensors of texts, but"):
        open_text(tmp_path / "pair")


# Of transformers: class of the model -> fields of both towers, and of texts.
SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
FAMILIES = {
    "CLIP": ({"hidden_act": "gelu"}, {"eos_token_id": 99}),
    "MetaClip2": ({}, {"eos_token_id": 2}),
    "Siglip": ({}, {"projection_size": 32}),
}


@one_backend
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_of_images_are_those_of_the_original(family, tmp_path):
    """Of the score of an image and a text, also of a random model."""
    import torch

    transformers = pytest.importorskip("transformers")
    both, texts = FAMILIES[family]
    text = {**SMALL, **both, **texts, "vocab_size": 100}
    text["max_position_embeddings"] = 8
    vision = {**SMALL, **both, "image_size": 16, "patch_size": 8}
    config = getattr(transformers, f"{family}Config")(
        text_config=text, vision_config=vision, projection_dim=24
    )
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}Model")(config).eval()
    with torch.no_grad():
        for x in model.parameters():
            x.add_(0.1 * torch.randn_like(x))
    model.save_pretrained(tmp_path)
    pixels = torch.randn(2, 3, 16, 16)
    ids = torch.randint(3, 98, (3, 8))
    ids[:, -1] = texts.get("eos_token_id", 1)
    (original := pixels.clone()).requires_grad_()
    scores = model(input_ids=ids, pixel_values=original).logits_per_image
    scores[1, 2].backward()
    pair = load_image_text(tmp_path)
    (images := pixels.movedim(1, -1).clone()).requires_grad_()
    found = pair.logits(images, ids.numpy())
    found[1, 2].backward()
    assert original.grad is not None and images.grad is not None
    np.testing.assert_allclose(
        numbers(found), scores.detach().numpy(), atol=5e-5
    )
    expected = original.grad.movedim(1, -1)
    assert float(expected.abs().max()) > 1e-3
    torch.testing.assert_close(images.grad, expected, rtol=1e-3, atol=1e-5)
