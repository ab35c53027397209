"""What a model was trained on travels with it: into each way in and out."""

import dataclasses
import json
import warnings
from pathlib import Path

import keras
import numpy as np
import PIL
import pytest
import served
from packaging.version import Version
from PIL import Image
from tiny_models import tiny_vit

import keras_vit
from keras_vit.checkpoints import load_checkpoint, save_checkpoint
from keras_vit.checkpoints.dialects import (
    hugging_face_config,
    hugging_face_images,
    timm_config,
)
from keras_vit.checkpoints.public import catalog
from keras_vit.data.config import PreprocessingConfig, evaluation_of
from keras_vit.data.resizing import Geometry, evaluation_crop
from keras_vit.prediction import load_classifier
from keras_vit.preprocessing import standardize
from keras_vit.trained_as import TrainedAs

REFERENCE = Path(__file__).parents[1] / "reference"
NAMES = ("ant", "bee", "cat")
SQUASH = {"evaluation": "squash", "rounding": "float32"}


def prepared(image, fields, pixels):
    """The input of a model, from a publisher's own words for it."""
    known = TrainedAs(**fields)
    config = evaluation_of(known, known.image_size)
    assert known.image_size is not None
    cut = evaluation_crop(image, Geometry(known.image_size, 3, config))
    mean, std = pixels.get("pixel_mean"), pixels.get("pixel_std")
    return standardize(cut.astype("float32"), mean, std)


# --- transformers, by its own processors ---

CROPPED = ("CLIPImageProcessor", "BitImageProcessor", "ViTHybridImageProcessor")
SQUASHED = ("ViTImageProcessor", "SiglipImageProcessor", "BlipImageProcessor")
EITHER = ("DeiTImageProcessor", "BeitImageProcessor")


def processor_options(random):
    """A processor and its options, as its file may have them."""
    name = random.choice([*CROPPED[:2], *SQUASHED, *EITHER])
    side, *sides = map(int, random.integers(8, 40, 5))
    both = {"height": sides[0], "width": sides[1]}
    options = {"resample": int(random.integers(6))}
    if name in CROPPED:
        options["size"] = [side, {"shortest_edge": side}, both][
            random.integers(3)
        ]
    else:
        one = both if name == "SiglipImageProcessor" else side
        options["size"] = [one, both][random.integers(2)]
    if name not in SQUASHED and random.random() < 0.7:
        options["do_center_crop"] = True
        options["crop_size"] = [
            sides[2],
            {"height": sides[2], "width": sides[3]},
        ][random.integers(2)]
    elif name in CROPPED:
        options["crop_size"] = sides[2]
    options |= [
        {},
        {"do_rescale": False},
        {"rescale_factor": 1 / 127.5},
        {"do_normalize": False},
        {"rescale_factor": 1 / 127.5, "do_normalize": False},
        {"image_mean": [0.2, 0.3, 0.4], "image_std": [0.5, 0.6, 0.7]},
    ][random.integers(6)]
    if options.get("do_center_crop") and random.random() < 0.3:
        options["do_resize"] = False
    return name, options


def test_a_size_that_is_assumed_is_no_source():
    """Such as that of positions, which then decides."""
    known = TrainedAs(image_size=(20, 28))
    assert known.told_size == (20, 28)
    assert known.but(assumed=("image_size",)).told_size is None


def test_names_of_other_outputs_are_left_out_with_what_they_mean():
    known = TrainedAs(
        problem="multilabel", activation="linear", class_names=NAMES, source="a"
    )
    assert known.for_outputs(3) is known
    assert known.for_outputs(4) == TrainedAs(source="a")
    unnamed = TrainedAs(problem="multilabel")
    assert unnamed.for_outputs(4) is unnamed


def test_fields_come_back_from_json_and_defaults_are_left_out():
    every = TrainedAs(
        preprocessing={"evaluation": "squash", "resize_size": (9, 7)},
        image_size=(1, 1),
        problem="multilabel",
        activation="linear",
        class_names=NAMES,
        source="a file",
        assumed=("antialias",),
        obstacle="no such resampling",
    )
    for known in (every, TrainedAs(), TrainedAs(activation="sigmoid")):
        fields = json.loads(json.dumps(known.to_fields()))
        assert TrainedAs.from_fields(fields, "a file") == known
    assert TrainedAs().to_fields() == {}
    assert len(every.to_fields()) == len(dataclasses.fields(every))
    assert str(every) == (
        "1x1, evaluation=squash, resize_size=(9, 7), multilabel, linear, "
        "3 class names; no such resampling"
    )
    rules = {"evaluation": "squash", "resize_size": None}
    assert str(TrainedAs(preprocessing=rules)) == (
        "evaluation=squash, classification, softmax"
    )
    with pytest.raises(ValueError, match=r"\['shape', 'sort'\] is unknown"):
        TrainedAs.from_fields(
            {"sort": 1, "shape": 2, "source": "a"}, "config.json"
        )


@pytest.mark.parametrize(
    "fields",
    [
        {"image_size": (16, 0)},
        {"image_size": (16, 16, 3)},
        {"image_size": [16, 16]},
        {"image_size": (16.0, 16)},
        {"class_names": ("ant", 3)},
        {"class_names": ("ant", "b\ud800")},
        {"class_names": ["ant", "bee"]},
        {"source": 3},
        {"problem": "detection"},
        {"activation": "relu"},
        {"preprocessing": ["squash"]},
    ],
)
def test_values_of_another_kind_are_refused(fields):
    with pytest.raises(ValueError, match="Received: ") as raised:
        TrainedAs(**fields)
    received = str(raised.value).partition("Received: ")[2]
    assert repr(fields).partition(":")[2].strip("{}") in received


def test_a_long_value_is_cut_in_the_message():
    long = tuple(str(x) for x in range(999)) + (1,)
    with pytest.raises(ValueError, match="problem") as raised:
        TrainedAs(class_names=long)  # pyright: ignore[reportArgumentType]
    assert len(str(raised.value).partition("Received: ")[2]) == 301


@pytest.mark.parametrize("seed", range(60))
def test_pixels_are_those_of_the_processors_of_transformers(seed):
    transformers = pytest.importorskip("transformers")
    random = np.random.default_rng(seed)
    name, options = processor_options(random)
    height, width = random.integers(4, 90, 2)
    image = random.integers(0, 256, (height, width, 3)).astype("uint8")
    processor = getattr(transformers, f"{name}Pil")(**options)
    (expected,) = processor(Image.fromarray(image), return_tensors="np")[
        "pixel_values"
    ]
    content = {"image_processor_type": name, **options}
    path = Path("preprocessor_config.json")
    found = prepared(
        image,
        hugging_face_images.read(path, content),
        hugging_face_images.pixels(path, content),
    )
    np.testing.assert_allclose(
        found, expected.transpose(1, 2, 0), atol=1e-5 * np.abs(expected).max()
    )


def test_fractions_of_pixels_are_kept_where_the_original_resizes_floats():
    """DINOv3's processor rescales pixels before it resizes them."""
    path, found = Path("preprocessor_config.json"), {}
    for name in ("DINOv3ViTImageProcessor", "ViTImageProcessor"):
        content = {"image_processor_type": f"{name}Fast"}
        rule = hugging_face_images.read(path, content)["preprocessing"]
        found[name] = rule["rounding"]
    assert found == {
        "DINOv3ViTImageProcessor": "float32",
        "ViTImageProcessor": "nearest",
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"size": "224"}, "Expected sides"),
        ({"size": {"height": 0, "width": 8}}, "Expected 1 to"),
        ({"size": {"height": 10**9, "width": 8}}, "Expected 1 to"),
        ({"do_center_crop": True, "crop_size": [8, 8]}, "a height and a width"),
        ({"resample": 9}, "Pillow's numbers"),
        ({"image_mean": "grey"}, "Expected numbers"),
        ({"rescale_factor": 0}, "above 0"),
    ],
)
def test_sizes_and_methods_that_are_none_are_refused(content, message):
    path = Path("preprocessor_config.json")
    with pytest.raises(ValueError, match=message):
        hugging_face_images.read(path, content)
        hugging_face_images.pixels(path, content)


# --- timm, by pixels that its transforms made ---


@pytest.mark.skipif(
    Version(PIL.__version__) < Version("13"),
    reason="Pillow 13, which made these pixels, resizes thin images otherwise.",
)
def test_pixels_are_those_of_the_transforms_of_timm(tmp_path):
    with np.load(REFERENCE / "timm_pixels.npz") as golden:
        for i, options in enumerate(json.loads(str(golden["cases"]))):
            content = {"architecture": "vit", "pretrained_cfg": options}
            fields = timm_config.read_trained_as(tmp_path, content)
            known = TrainedAs(**fields)
            config = evaluation_of(known, known.image_size)
            geometry = Geometry(tuple(options["input_size"][1:]), 3, config)
            found = evaluation_crop(golden[f"image_{i}"], geometry)
            np.testing.assert_array_equal(found, golden[f"pixels_{i}"])


# --- big_vision, by pixels that its operations made ---


def test_pixels_are_those_of_big_vision():
    (entry,) = (
        x
        for x in catalog.entries("ViT_S16")
        if x.name == "big_vision_imagenet2012_90ep"
    )
    ways = {
        "shorter_side": entry.preprocessing,
        "squash": dataclasses.replace(
            entry.preprocessing, resize="squash", interpolation="bilinear"
        ),
    }
    with np.load(REFERENCE / "big_vision_pixels.npz") as golden:
        for i, case in enumerate(json.loads(str(golden["cases"]))):
            size = case["image_size"]
            known = ways[case["resize"]].trained_as(size, "test")
            geometry = Geometry((size, size), 3, evaluation_of(known, None))
            found = evaluation_crop(golden[f"image_{i}"], geometry)
            apart = np.abs(found.astype(int) - golden[f"pixels_{i}"])
            # Sums of floats that are whole numbers may end a little below.
            assert apart.max() <= 1 and np.mean(apart) < 0.15, case


def test_a_larger_image_is_resized_in_proportion(tmp_path):
    options = {"input_size": [3, 224, 224], "crop_pct": 0.875}
    content = {"architecture": "vit", "pretrained_cfg": options}
    known = TrainedAs(**timm_config.read_trained_as(tmp_path, content))
    assert evaluation_of(known, (224, 224)).resize_size == (256, 256)
    assert evaluation_of(known, (384, 384)).resize_size == (438, 438)


# --- Kinds of problems, by the pipeline of transformers ---


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (4, None),
        (4, "single_label_classification"),
        (4, "multi_label_classification"),
        (2, "regression"),
        (1, "regression"),
        (1, None),
    ],
)
def test_answers_are_those_of_the_pipeline(tmp_path, labels, problem):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    names = {i: f"class {i}" for i in range(labels)}
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=16,
        patch_size=8,
        id2label=names,
        problem_type=problem,
    )
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(config).eval()
    torch.nn.init.normal_(model.classifier.weight)
    processor = transformers.ViTImageProcessorPil(
        size={"height": 16, "width": 16}, resample=3
    )
    for part in (model, processor):
        part.save_pretrained(tmp_path)
    random = np.random.default_rng(0)
    image = Image.fromarray(random.integers(0, 256, (30, 50, 3)).astype("u1"))
    pipeline = transformers.pipeline(
        "image-classification", model, image_processor=processor, device="cpu"
    )
    expected = [(x["label"], x["score"]) for x in pipeline(image)]
    (found,) = keras_vit.predict(tmp_path, image)
    assert [x for x, _ in found.classes] == [x for x, _ in expected]
    np.testing.assert_allclose(
        [x for _, x in found.classes], [x for _, x in expected], atol=1e-5
    )


def test_200_pictures_are_of_the_class_that_the_original_gives(tmp_path):
    """Pictures of any size, saved as JPEG, through a crop of the processor."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "patch_size": 8}
    config = transformers.ViTConfig(
        **sizes,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=24,
        id2label={i: f"class {i}" for i in range(20)},
    )
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    with torch.no_grad():  # The usual picture is of no class.
        model.classifier.bias -= model(torch.randn(99, 3, 24, 24)).logits.mean(
            0
        )
    processor = transformers.CLIPImageProcessorPil(
        size={"shortest_edge": 28}, crop_size={"height": 24, "width": 24}
    )
    for part in (model, processor):
        part.save_pretrained(tmp_path / "model")
    random = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for i in range(200):
        small = random.integers(0, 256, (6, 7, 3)).astype("u1")
        size = random.integers(20, 90, 2).tolist()
        image = Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)
        image.save(tmp_path / "photos" / f"{i:03}.jpg", quality=80)
    pipeline = transformers.pipeline(
        "image-classification", model, image_processor=processor, device="cpu"
    )
    paths = sorted(map(str, (tmp_path / "photos").iterdir()))
    expected = [x[0]["label"] for x in pipeline(paths, top_k=1)]
    found = keras_vit.predict(tmp_path / "model", tmp_path / "photos")
    assert len(set(expected)) > 10
    assert [x.classes[0][0] for x in found] == expected


def test_classes_are_named_by_either_table_of_the_config(tmp_path):
    tables = {
        "id2label": {"1": "b", "0": "a", "2": "c"},
        "label2id": {"b": 1, "a": 0, "c": 2},
    }
    for name, table in tables.items():
        content = {"model_type": "vit", name: table}
        found = hugging_face_config.read_trained_as(tmp_path, content)
        assert found["class_names"] == ("a", "b", "c")


# --- Ways out ---


def known_model(**record):
    """A tiny model with a record that differs from all defaults."""
    keras.utils.set_random_seed(0)
    model = tiny_vit(
        image_size=(16, 16),
        pixel_mean=(0.2, 0.3, 0.4),
        pixel_std=(0.5, 0.6, 0.7),
    )
    head = model.get_layer("predictions")
    random = np.random.default_rng(0)
    head.set_weights([random.normal(size=x.shape) for x in head.weights])
    fields = {
        "preprocessing": {
            "evaluation": "cover_crop",
            "resize_size": (20, 20),
            "resize_method": "bicubic",
            "antialias": True,
            "rounding": "nearest",
        },
        "image_size": (16, 16),
        "problem": "multilabel",
        "class_names": NAMES,
        **record,
    }
    model.trained_as = TrainedAs(**fields)
    return model


def answers(source, **options):
    random = np.random.default_rng(1)
    image = random.integers(0, 256, (37, 50, 3)).astype("uint8")
    (found,) = keras_vit.predict(source, image, **options)
    return dict(found.classes)


WRITERS = {
    "model.keras": lambda model, path: model.save(path),
    "folder": lambda model, path: save_checkpoint(
        model, path, format="hugging_face"
    ),
    "timm": lambda model, path: save_checkpoint(model, path, format="timm"),
    "timm.safetensors": lambda model, path: save_checkpoint(
        model, path, format="timm"
    ),
    "shared": lambda model, path: keras_vit.push_to_hub(
        model, "me/shapes", dry_run=path
    ),
}


@pytest.mark.parametrize("name", WRITERS)
def test_the_record_is_in_each_format(tmp_path, name):
    model = known_model()
    WRITERS[name](model, tmp_path / name)
    found = load_checkpoint(tmp_path / name)
    assert found.trained_as == model.trained_as
    assert "multilabel" in str(found.load_report)
    assert answers(tmp_path / name) == pytest.approx(answers(model), abs=1e-6)


@pytest.mark.parametrize(
    "name",
    [
        "x.onnx",
        *(
            pytest.param(x, marks=pytest.mark.slow)
            for x in ("x.xml", "x.tflite", "x.pt2", "saved_model")
        ),
    ],
)
def test_an_exported_file_and_a_server_answer_by_the_record(tmp_path, name):
    for module in ("torch", "onnxscript", "onnxruntime"):
        pytest.importorskip(module)
    model = known_model()
    save_checkpoint(model, tmp_path / "folder", format="hugging_face")
    expected = answers(model)
    path = tmp_path / name
    kind = name if name == "saved_model" else None
    keras_vit.export(tmp_path / "folder", path, kind)
    assert answers(path) == pytest.approx(expected, abs=1e-4)
    image = np.random.default_rng(1).integers(0, 256, (37, 50, 3))
    for served_path in (tmp_path / "folder", path):
        server = served.Server(served_path)
        try:
            answer = server.post(served.encoded(image.astype("uint8")))
        finally:
            server.process.kill()
            server.process.communicate()
        found = answered(answer)
        assert found == pytest.approx(expected, abs=1e-4)


def answered(answer):
    status, _, content = answer
    assert status == 200, content
    return served.shares(content["predictions"][0]["classes"])


def test_the_processor_that_is_written_makes_the_same_pixels(tmp_path):
    transformers = pytest.importorskip("transformers")
    model = known_model()
    rule = {**model.trained_as.preprocessing, "evaluation": "shorter_side_crop"}
    model.trained_as = model.trained_as.but(preprocessing=rule)
    save_checkpoint(model, tmp_path / "out", format="hugging_face")
    processor = transformers.CLIPImageProcessorPil.from_pretrained(
        tmp_path / "out"
    )
    random = np.random.default_rng(1)
    image = random.integers(0, 256, (36, 50, 3)).astype("uint8")
    (expected,) = processor(Image.fromarray(image), return_tensors="np")[
        "pixel_values"
    ]
    pixels = load_classifier(tmp_path / "out").read(image)
    found = keras_vit.preprocess_input(pixels, model=model)
    np.testing.assert_allclose(found, expected.transpose(1, 2, 0), atol=1e-5)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    assert config["id2label"] == {"0": "ant", "1": "bee", "2": "cat"}


def test_a_processor_that_somebody_edited_is_read(tmp_path):
    save_checkpoint(known_model(), tmp_path / "out", format="hugging_face")
    file = tmp_path / "out" / "preprocessor_config.json"
    content = json.loads(file.read_text()) | {"resample": 0}
    file.write_text(json.dumps(content))
    known = load_checkpoint(tmp_path / "out").trained_as
    assert known.preprocessing["resize_method"] == "nearest"
    assert known.class_names == NAMES


def test_a_file_of_npz_leaves_out_names_that_are_too_long(tmp_path):
    names = tuple(f"{'x' * 30_000}{i}" for i in range(3))
    model = known_model(preprocessing=SQUASH, class_names=names)
    save_checkpoint(model, tmp_path / "a.npz", format="google")
    found = load_checkpoint(tmp_path / "a.npz").trained_as
    assert found == model.trained_as.but(class_names=None)


def test_a_keras_file_leaves_out_names_that_are_too_long(tmp_path):
    names = tuple(f"{'x' * 400_000}{i}" for i in range(3))
    model = known_model(preprocessing=SQUASH, class_names=names)
    model.save(tmp_path / "a.keras")
    found = load_checkpoint(tmp_path / "a.keras").trained_as
    assert found == model.trained_as.but(class_names=None)


def test_another_head_has_other_names_and_the_same_images(tmp_path):
    model = known_model()
    model.save(tmp_path / "a.keras")
    for other in (
        load_checkpoint(tmp_path / "a.keras", classes=5),
        load_checkpoint(tmp_path / "a.keras", include_top=False),
    ):
        known = other.trained_as
        assert known.preprocessing == model.trained_as.preprocessing
        assert (known.class_names, known.problem) == (None, "classification")


def test_preprocess_input_scales_as_the_model_does():
    images = np.array([[[0.0, 127.5, 255.0]]])
    found = keras_vit.preprocess_input(images, model=known_model())
    expected = (images / 255 - [0.2, 0.3, 0.4]) / [0.5, 0.6, 0.7]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    scales = tiny_vit(include_preprocessing=True)
    np.testing.assert_array_equal(
        keras_vit.preprocess_input(images, model=scales), images
    )
    with pytest.raises(ValueError, match="3 channels"):
        keras_vit.preprocess_input(images[..., :1], model=known_model())


# --- What nothing says ---


def test_what_is_assumed_is_said_once(tmp_path):
    model = known_model()
    model.trained_as = TrainedAs()
    save_checkpoint(model, tmp_path / "a.safetensors", format="timm")
    with pytest.warns(UserWarning, match="usual for its publisher") as said:
        answers(tmp_path / "a.safetensors")
    assert sum("usual for its" in str(x.message) for x in said) == 1
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*usual for its publisher")
        answers(tmp_path / "a.safetensors")
    assert "assumed" in str(
        load_checkpoint(tmp_path / "a.safetensors").load_report
    )


def test_a_preparation_that_is_not_known_is_refused_and_can_be_given(tmp_path):
    save_checkpoint(known_model(), tmp_path / "out", format="hugging_face")
    file = tmp_path / "out" / "preprocessor_config.json"
    file.write_text(json.dumps({"image_processor_type": "LevitImageProcessor"}))
    with pytest.raises(ValueError, match="LevitImageProcessor.*Give prepr"):
        answers(tmp_path / "out")
    assert answers(
        tmp_path / "out", preprocessing=PreprocessingConfig(evaluation="squash")
    )
