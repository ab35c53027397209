"""What text towers are commonly got wrong by, and what each costs.

A mistake gives embeddings that are far from the golden ones: the test of the
golden embeddings would fail. Where cosines hide one, its elements show it.
"""

import json
import shutil
from typing import Any

import keras
import numpy as np
import pytest
from text_cases import FOLDER, SOURCES, tower_of

from keras_vit.text import TextConfig, TextTransformer, load_image_text
from keras_vit.text.image_text import normalized
from keras_vit.text.pair_files import open_text

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="the same on each backend"
)
numbers = keras.ops.convert_to_numpy


def padded_with(padding, end):
    """Return a change of ids: what follows the end of the text."""

    def change(ids):
        ends = np.argmax(ids == end, axis=1)[:, None]
        return np.where(np.arange(ids.shape[1]) > ends, padding, ids)

    return change


# Case, what is mistaken in the config or in the ids, at most the worst cosine,
# at least the largest difference of an element.
TRAPS: dict[str, Any] = {
    "no causal mask": ("clip_quick_gelu", {"causal": False}, 0.9, 0.1),
    "a causal mask in SigLIP": ("siglip", {"causal": True}, 0.9, 0.1),
    "a mask of the padding in SigLIP": ("siglip", {"masked_id": 1}, 0.9, 0.1),
    "no mask of the padding in TIPS": (
        "tipsv2",
        {"masked_id": None},
        0.9,
        0.1,
    ),
    "the last token of CLIP": (
        "metaclip_2",
        {"pooling": "last"},
        0.9,
        0.1,
    ),
    "the largest id of MetaCLIP 2": (
        "metaclip_2",
        {"pooling": "largest_id"},
        0.9,
        0.1,
    ),
    "the old end of the text": (
        "clip_quick_gelu",
        {"pooled_id": 2},
        0.9,
        0.1,
    ),
    "the first token of SigLIP": ("siglip", {"pooling": "first"}, 0.9, 0.1),
    "exact GELU for quick_gelu": (
        "clip_quick_gelu",
        {"activation": "gelu"},
        1,
        1e-4,
    ),
    "exact GELU for the tanh form": ("siglip", {"activation": "gelu"}, 1, 2e-5),
    "another epsilon": (
        "clip_quick_gelu",
        {"layer_norm_epsilon": 1e-3},
        1,
        2e-5,
    ),
    "embeddings that are not scaled": (
        "tipsv2",
        {"scale_embedding": False},
        0.95,
        0.1,
    ),
    "SigLIP padded with 0": ("siglip", padded_with(0, 1), 0.9, 0.1),
    "SigLIP 2 padded with 1": (
        "open_clip_siglip2_layout",
        padded_with(1, 1),
        0.9,
        0.1,
    ),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_a_mistake_shows_in_the_embeddings(trap):
    case, mistake, worst, largest = TRAPS[trap]
    expected = np.load(FOLDER / case / "expected.npz")
    tower = tower_of(FOLDER / SOURCES[case])
    ids = expected["token_ids"]
    if callable(mistake):
        ids = mistake(ids)
    else:
        weights = tower.get_weights()
        config = {**open_text(FOLDER / SOURCES[case]).fields, **mistake}
        tower = TextTransformer(TextConfig(**config))
        tower.set_weights(weights)
    found = numbers(normalized(tower(np.asarray(ids, "int32"))))
    cosines = np.sum(found * expected["text_embeds"], axis=1)
    assert cosines.min() <= worst + 1e-6
    assert np.abs(found - expected["text_embeds"]).max() > largest


def test_a_projection_is_transposed_by_its_layout():
    """Two layouts of the same values, one of them transposed."""
    found = [
        tower_of(FOLDER / x).get_layer("projection").kernel
        for x in ("clip_quick_gelu", "open_clip_clip")
    ]
    np.testing.assert_array_equal(*map(numbers, found))


def square_pair():
    """Return transformers' CLIP whose projections are square, with numbers."""
    transformers = pytest.importorskip("transformers")
    from transformers_models import randomized

    sizes = {
        **{"hidden_size": 16, "intermediate_size": 64, "projection_dim": 16},
        **{"num_hidden_layers": 2, "num_attention_heads": 2},
    }
    config = transformers.CLIPConfig(
        text_config={
            **{**sizes, "vocab_size": 64, "max_position_embeddings": 12},
            **{"bos_token_id": 62, "eos_token_id": 63, "pad_token_id": 0},
        },
        vision_config={**sizes, "image_size": 8, "patch_size": 4},
        projection_dim=16,
    )
    return randomized(transformers.CLIPModel(config))


def open_clip_names(tensors, dense):
    """Return the tensors of transformers' CLIP as open_clip names them.

    As the state dict of its class CLIP: kernels of dense layers are
    (out, in), the bare matrices `text_projection` and `visual.proj` (in, out).
    """
    found = {
        "token_embedding.weight": "text_model.embeddings.token_embedding",
        "visual.conv1.weight": "vision_model.embeddings.patch_embedding",
    }
    found = {x: tensors[f"{y}.weight"] for x, y in found.items()}
    found["logit_scale"] = tensors["logit_scale"]
    for half, ours, last in (
        ("text_model", "", "ln_final"),
        ("vision_model", "visual.", "visual.ln_post"),
    ):
        table = f"{half}.embeddings.position_embedding.weight"
        found[f"{ours}positional_embedding"] = tensors[table]
        names = {f"{half}.final_layer_norm": last}
        names[f"{half}.post_layernorm"] = last
        names[f"{half}.pre_layrnorm"] = f"{ours}ln_pre"
        for i in range(2):
            theirs = f"{half}.encoder.layers.{i}"
            block = f"{ours}transformer.resblocks.{i}"
            for x, y in (
                *(("layer_norm1", "ln_1"), ("layer_norm2", "ln_2")),
                *(("mlp.fc1", "mlp.c_fc"), ("mlp.fc2", "mlp.c_proj")),
                ("self_attn.out_proj", "attn.out_proj"),
            ):
                names[f"{theirs}.{x}"] = f"{block}.{y}"
            for kind in ("weight", "bias"):
                found[f"{block}.attn.in_proj_{kind}"] = np.concatenate(
                    [
                        tensors[f"{theirs}.self_attn.{x}_proj.{kind}"]
                        for x in "qkv"
                    ]
                )
        for x, y in names.items():
            for kind in ("weight", "bias"):
                if f"{x}.{kind}" in tensors:
                    found[f"{y}.{kind}"] = tensors[f"{x}.{kind}"]
    token = "vision_model.embeddings.class_embedding"
    found["visual.class_embedding"] = tensors[token]
    found["visual.proj"] = tensors["visual_projection.weight"].T
    projection = tensors["text_projection.weight"]
    if dense:
        found["text_projection.weight"] = projection
        found["text_projection.bias"] = np.zeros(16, "float32")
    else:
        found["text_projection"] = projection.T
    return {x: np.ascontiguousarray(y) for x, y in found.items()}


SQUARE = {
    "embed_dim": 16,
    "quick_gelu": True,
    "vision_cfg": {
        **{"image_size": 8, "patch_size": 4, "width": 16, "layers": 2},
        "head_width": 8,
    },
    "text_cfg": {
        **{"context_length": 12, "vocab_size": 64, "width": 16},
        **{"heads": 2, "layers": 2},
    },
}


@pytest.mark.parametrize("layout", ["transformers", "bare", "dense"])
def test_square_projections_are_transposed_by_their_names(layout, tmp_path):
    """As in B/32 and L, where a wrong one loads as well as the right one."""
    torch = pytest.importorskip("torch")
    from safetensors.numpy import save_file

    model, folder = square_pair(), tmp_path / "pair"
    if layout == "transformers":
        model.save_pretrained(folder)
    else:
        tensors = {x: y.numpy() for x, y in model.state_dict().items()}
        folder.mkdir()
        config = json.loads(json.dumps(SQUARE))
        config["text_cfg"]["proj_bias"] = layout == "dense"
        (folder / "open_clip_config.json").write_text(
            json.dumps({"model_cfg": config, "preprocess_cfg": {}})
        )
        save_file(
            open_clip_names(tensors, layout == "dense"),
            folder / "open_clip_model.safetensors",
        )
    random = np.random.default_rng(0)
    images = random.uniform(-1, 1, (2, 8, 8, 3)).astype("float32")
    ids = random.integers(1, 62, (3, 12))
    ids[:, -1] = 63
    with torch.no_grad():
        expected = model(
            input_ids=torch.tensor(ids),
            pixel_values=torch.tensor(images.transpose(0, 3, 1, 2)),
        )
    pair = load_image_text(folder)
    for found, wanted in (
        (pair.encode_texts(ids), expected.text_embeds),
        (pair.encode_images(images), expected.image_embeds),
        (pair.logits(images, ids), expected.logits_per_image),
    ):
        np.testing.assert_allclose(numbers(found), wanted.numpy(), atol=2e-5)


def test_an_old_config_pools_the_largest_id(tmp_path):
    folder = tmp_path / "old"
    shutil.copytree(FOLDER / "clip_quick_gelu", folder)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["eos_token_id"] = 2
    (folder / "config.json").write_text(json.dumps(config))
    expected = np.load(FOLDER / "clip_quick_gelu" / "expected.npz")
    tower = tower_of(folder)
    found = numbers(normalized(tower(expected["token_ids"].astype("int32"))))
    np.testing.assert_allclose(found, expected["text_embeds"], atol=1e-5)


def test_the_second_text_config_of_old_folders_counts(tmp_path):
    folder = tmp_path / "old"
    shutil.copytree(FOLDER / "clip_quick_gelu", folder)
    config = json.loads((folder / "config.json").read_text())
    config["text_config_dict"] = config["text_config"]
    config["text_config"] = {"hidden_act": "gelu", "num_attention_heads": 8}
    (folder / "config.json").write_text(json.dumps(config))
    fields = open_text(folder).fields
    assert (fields["activation"], fields["num_heads"]) == ("quick_gelu", 2)


def test_an_added_token_above_the_end_is_not_pooled():
    """Largest ids would be: the end of the text is looked for instead."""
    fields = open_text(FOLDER / "clip_quick_gelu").fields
    ids = np.load(FOLDER / "clip_quick_gelu" / "expected.npz")["token_ids"]
    tower = tower_of(FOLDER / "clip_quick_gelu")
    table = numbers(tower.get_layer("token_embedding").embeddings)
    larger = TextTransformer(
        TextConfig(**{**fields, "vocabulary_size": len(table) + 1})
    )
    larger.set_weights(
        [np.concatenate([table, table[5:6]]), *tower.get_weights()[1:]]
    )
    changed = np.where(ids == 5, len(table), ids)
    changed[:, 1] = len(table)
    same = np.where(changed == len(table), 5, changed)
    np.testing.assert_allclose(
        numbers(larger(changed.astype("int32"))),
        numbers(tower(same.astype("int32"))),
        atol=1e-5,
    )


def test_scale_and_temperature():
    """A logarithm in CLIP and SigLIP; TIPS divides by a plain number."""
    import math

    from safetensors.numpy import load_file

    for case in ("clip_quick_gelu", "siglip", "open_clip_clip"):
        (file,) = (FOLDER / case).glob("*.safetensors")
        stored = load_file(file)["logit_scale"].item()
        assert open_text(FOLDER / case).logit_scale == pytest.approx(stored)
    found = open_text(FOLDER / "tipsv2").logit_scale
    assert math.exp(found) == pytest.approx(1 / 0.07)


@pytest.mark.parametrize(
    ("stored", "told", "expected"),
    [
        (None, 0.25, 0.25),  # As published: the config alone says it.
        (None, None, 0.005065968),
        (0.5, 0.25, 0.5),  # As trained further.
        (0.5, "x", 0.5),
        (-0.5, 0.25, None),
        (None, "x", None),
    ],
)
def test_temperature_of_tips(stored, told, expected, tmp_path):
    from safetensors.numpy import load_file, save_file

    folder = tmp_path / "tips"
    shutil.copytree(FOLDER / "tipsv2", folder)
    tensors = load_file(folder / "model.safetensors")
    del tensors["temperature"]
    if stored is not None:
        tensors["temperature"] = np.array(stored, "float32")
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["temperature_init_value"] = told
    if told is None:
        del config["temperature_init_value"]
    (folder / "config.json").write_text(json.dumps(config))
    if expected is None:
        with pytest.raises(ValueError, match="temperature of"):
            open_text(folder)
        return
    found = open_text(folder).logit_scale
    assert found == pytest.approx(-np.log(expected))


@pytest.mark.parametrize(
    ("quick", "options", "expected"),
    [
        (False, {"approximate": "none"}, "gelu"),
        (False, {"approximate": "tanh"}, "gelu_tanh"),
        (True, {}, "quick_gelu"),
        (True, {"approximate": "tanh"}, None),
        (False, {"negative_slope": 0.1}, None),
    ],
)
def test_options_of_an_activation(tmp_path, quick, options, expected):
    """As nn.GELU takes them; open_clip's QuickGELU takes none."""
    folder = tmp_path / "clip"
    shutil.copytree(FOLDER / "open_clip_clip", folder)
    file = folder / "open_clip_config.json"
    config = json.loads(file.read_text())
    config["model_cfg"]["quick_gelu"] = quick
    config["model_cfg"]["text_cfg"]["act_kwargs"] = options
    file.write_text(json.dumps(config))
    if expected:
        assert open_text(folder).fields["activation"] == expected
    else:
        with pytest.raises(ValueError, match="act_kwargs={'"):
            open_text(folder)
