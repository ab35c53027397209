"""Each public function refuses one wrong argument beside right ones.

Of a kind of arguments all functions that take one are tried, so that none is
left out: numbers of images, blocks, names, records, classes.
"""

import inspect
import re
from typing import Any

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import (
    analysis,
    checkpoints,
    data,
    evaluation,
    exporting,
    layers,
    planning,
    prediction,
    training,
    variants,
)
from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.serving import serve
from keras_vit.text import TextConfig, retrieval_recall

pytest.importorskip("matplotlib")

CONFIG = ViTConfig(
    image_size=(16, 16),
    patch_size=(4, 4),
    hidden_dim=16,
    num_layers=2,
    mlp_dim=12,
    num_heads=2,
    num_classes=3,
)
NAMES = ("cat", "dog", "owl")
MODEL: Any = VisionTransformer(CONFIG)
IMAGES = np.random.default_rng(0).uniform(-1, 1, (3, 16, 16, 3))
PIXELS = np.random.default_rng(0).integers(0, 255, (3, 16, 16, 3), "uint8")
MAPS = np.ones((3, 4, 4))
LABELS = np.array([0, 1, 2], "int32")
EXAMPLES = data.Examples(PIXELS, LABELS)
BATCHES = [(IMAGES, LABELS, np.ones(3, bool))]
SETTINGS = planning.Settings(batch=8)
MACHINE = planning.machine("v5e-1")
CLASSIFIER = prediction.as_classifier(MODEL, NAMES)
ENCODER = prediction.as_encoder(MODEL)
PREDICTED = evaluation.Predictions(
    LABELS, LABELS[:, None], np.full((3, 1), 0.5), 3, None
)
SAVED = "its weights"
OF_IMAGES = {"model": MODEL, "images": IMAGES}
STREAM = {
    "examples": EXAMPLES,
    "num_classes": 3,
    "image_size": 16,
    "channels": 3,
    "batch_size": 2,
}
PREPARED = {name: STREAM[name] for name in STREAM if name != "num_classes"}
PLANNED = {"config": CONFIG, "settings": SETTINGS, "machine": MACHINE}
CALLS: dict[str, tuple[Any, dict[str, Any]]] = {
    "attention_distance": (analysis.attention_distance, OF_IMAGES),
    "attention_maps": (analysis.attention_maps, OF_IMAGES),
    "attention_rollout": (analysis.attention_rollout, OF_IMAGES),
    "embeddings": (analysis.embeddings, OF_IMAGES),
    "evolution": (analysis.evolution, OF_IMAGES),
    "gradient_cam": (analysis.gradient_cam, OF_IMAGES),
    "patch_scores": (analysis.patch_scores, OF_IMAGES),
    "features": (keras_vit.features, OF_IMAGES),
    "patch_filters": (analysis.patch_filters, {"model": MODEL}),
    "multiply_adds": (analysis.multiply_adds, {"model": MODEL}),
    "to_pixels": (analysis.to_pixels, {"model": MODEL, "maps": MAPS}),
    "overlay": (analysis.overlay, {"images": PIXELS, "maps": MAPS}),
    "patch_pca": (
        analysis.patch_pca,
        {"maps": IMAGES, "threshold": 0.5},
    ),
    "projection": (analysis.projection, {"vectors": np.eye(4)}),
    "saliency": (
        analysis.saliency,
        {**OF_IMAGES, "method": "gradient"},
    ),
    "plot_images": (analysis.plot_images, {"images": PIXELS, "titles": NAMES}),
    "plot_patch_filters": (analysis.plot_patch_filters, {"filters": IMAGES}),
    "plot_confusion": (
        analysis.plot_confusion,
        {"labels": LABELS, "predicted": LABELS, "class_names": NAMES},
    ),
    "plot_embeddings": (
        analysis.plot_embeddings,
        {"points": np.ones((3, 2)), "labels": LABELS, "class_names": NAMES},
    ),
    "embed": (keras_vit.embed, {"model": MODEL, "images": PIXELS}),
    "explain": (
        keras_vit.explain,
        {"model": MODEL, "source": PIXELS, "folder": "page"},
    ),
    "predict": (keras_vit.predict, {"model": MODEL, "source": PIXELS}),
    "decode_predictions": (
        keras_vit.decode_predictions,
        {"predictions": np.eye(3), "class_names": NAMES},
    ),
    "preprocess_input": (keras_vit.preprocess_input, {"images": PIXELS}),
    "patch_sequences": (
        keras_vit.patch_sequences,
        {"images": [PIXELS[0]], "patch_size": 4},
    ),
    "audit": (keras_vit.audit, {"data": "photos"}),
    "save_checkpoint": (
        keras_vit.save_checkpoint,
        {"model": MODEL, "path": "x.safetensors", "format": "timm"},
    ),
    "load_weights": (
        keras_vit.load_weights,
        {"model": MODEL, "source": SAVED},
    ),
    "load_checkpoint": (
        keras_vit.load_checkpoint,
        {"source": SAVED},
    ),
    "as_classifier": (prediction.as_classifier, {"model": MODEL}),
    "predictions": (
        prediction.predictions,
        {"classifier": CLASSIFIER, "images": list(PIXELS)},
    ),
    "embed_files": (
        prediction.embed_files,
        {
            "encoder": ENCODER,
            "files": ["a.png"],
            "path": "e.npz",
        },
    ),
    "nearest": (
        prediction.nearest,
        {"vectors": np.eye(3), "queries": np.eye(3)},
    ),
    "open_dataset": (
        data.open_dataset,
        {"config": data.DataConfig(name="digits")},
    ),
    "Examples": (data.Examples, {"contents": PIXELS, "labels": LABELS}),
    "training_stream": (data.training_stream, STREAM),
    "evaluation_batches": (data.evaluation_batches, PREPARED),
    "Share": (data.Share, {"index": 0, "count": 1}),
    "FitStream": (data.FitStream, {"data": BATCHES}),
    "predict_classes": (
        evaluation.predict_classes,
        {"model": MODEL, "batches": BATCHES, "top": 2},
    ),
    "per_class": (
        evaluation.per_class,
        {"labels": LABELS, "predicted": LABELS, "class_names": NAMES},
    ),
    "class_metrics": (
        evaluation.class_metrics,
        {"labels": LABELS, "probabilities": np.eye(3)},
    ),
    "match_classes": (
        evaluation.match_classes,
        {"names": NAMES, "model_names": NAMES},
    ),
    "multi_hot": (
        evaluation.multi_hot,
        {"label_sets": [[0], [1, 2]], "num_classes": 3},
    ),
    "nearest_neighbour_predictions": (
        evaluation.nearest_neighbour_predictions,
        {"known_images": PIXELS, "known_labels": LABELS, "images": PIXELS},
    ),
    "retrieval_recall": (
        retrieval_recall,
        {"images": np.eye(3), "texts": np.eye(3)},
    ),
    "list_models": (keras_vit.list_models, {}),
    "list_weights": (keras_vit.list_weights, {}),
    "most_probable": (
        prediction.most_probable,
        {"probabilities": np.eye(3), "top": 2},
    ),
    "load_classifier": (prediction.load_classifier, {"source": SAVED}),
    "load_network": (prediction.load_network, {"source": SAVED}),
    "average_weights": (
        checkpoints.average_weights,
        {"models": [MODEL, MODEL]},
    ),
    "count_parameters": (planning.count, {"config": CONFIG}),
    "text_memory": (planning.text_memory, {"config": TextConfig()}),
    "largest_batch": (
        planning.largest_batch,
        {**PLANNED, "way": planning.plan(CONFIG, SETTINGS, MACHINE)[0]},
    ),
    "serve": (serve, {"model": MODEL, "port": 1}),
    "machine": (planning.machine, {"text": "v5e-1"}),
    "plan": (planning.plan, PLANNED),
    "duration": (planning.duration, PLANNED),
    "memory": (planning.memory, {"config": CONFIG, "settings": SETTINGS}),
    "cost_of": (planning.cost_of, {"config": CONFIG}),
    "train": (training.train, {"recipe": training.Recipe()}),
    "attention_grids": (
        analysis.attention_grids,
        {"model": MODEL, "maps": np.ones((3, 2, 17, 17), "float32")},
    ),
    "plot_neighbours": (
        analysis.plot_neighbours,
        {
            "queries": [("a", PIXELS[0])],
            "neighbours": [[("b", PIXELS[1], 0.5)]],
        },
    ),
    "top_k_accuracy": (
        evaluation.top_k_accuracy,
        {"predictions": PREDICTED, "k": 1},
    ),
    "summarise": (evaluation.summarise, {"predictions": PREDICTED}),
    "worst_rows": (
        evaluation.worst_rows,
        {"predictions": PREDICTED, "count": 1},
    ),
    "images_at": (evaluation.images_at, {"batches": BATCHES, "rows": [0]}),
    "write_evaluation": (
        evaluation.write_evaluation,
        {
            **{"folder": "pages", "predictions": PREDICTED},
            **{"batches": BATCHES, "class_names": NAMES},
        },
    ),
    "classes_to_keep": (
        evaluation.classes_to_keep,
        {"num_images": 3, "num_classes": 3},
    ),
    "read_real_labels": (
        evaluation.read_real_labels,
        {"path": SAVED, "file_names": ["a.JPEG"]},
    ),
    "load_predictions": (evaluation.load_predictions, {"path": SAVED}),
    "load_embeddings": (prediction.load_embeddings, {"path": SAVED}),
    "embed_texts": (
        prediction.embed_texts,
        {"encoder": ENCODER, "model": MODEL, "texts": ["a"]},
    ),
    "export": (keras_vit.export, {"model": MODEL, "path": "x", "format": "no"}),
    "export_pair": (
        exporting.export_pair,
        {"model": MODEL, "path": "x", "format": "no"},
    ),
    "check_compiler": (planning.check_compiler, {"machine": MACHINE}),
    "VisionTransformer": (VisionTransformer, {"config": CONFIG}),
}
# An argument to wrong values of it, and what the message has beside its name.
WRONG: dict[str, tuple[list, str]] = {
    "batch_size": ([0, -1, 2.5, "8", None, float("nan")], "an int above 0"),
    "top": ([0, -1, 2.5, "5", None], "an int (above 0|in 1)"),
    "num_components": ([0, -1, 2.5, "3"], "an int above 0"),
    "columns": ([0, -1, 2.5, "3"], "an int above 0"),
    "num_classes": ([0, -1, 2.5, "3", None], "an int above 0"),
    "channels": ([0, -1, 2.5, "3", None], "above 0|at least 1"),
    "seed": ([-1, 2.5, "3", None], "an int of at least 0"),
    "num_heads": ([0, -1, "2"], "an int above 0"),
    "devices": ([0, -1, 2.5, "3", None], "an int above 0"),
    "parts": ([0, -1, 2.5, "3", None], "an int above 0"),
    "count": ([0, -1, 2.5, "3", None], "an int above 0"),
    "index": ([-1, 1, 2.5, "3", None], "of at least 0|from 0 to 0"),
    "block": ([2, -3, 1.5, "x", None], "int|2 blocks"),
    "blocks": ([2, -3, 1.5, "x", []], r"tuple\[int|2 blocks"),
    "class_names": (["abc", 3, [1, 2, 3], ["a", None, "b"]], r"tuple\[str"),
    "titles": (["abc", 3, [1, 2, 3]], r"tuple\[str"),
    "names": (["abc", 3, [1, 2, 3]], r"tuple\[str"),
    "model_names": (["abc", 3, [1, 2, 3]], r"tuple\[str"),
    "labels": ([[-1, 0, 1], [0, 1, 3], [0.5, 1, 2]], "classes, numbers"),
    "predicted": ([[-1, 0, 1], [0, 1, 3], [0.5, 1, 2]], "classes, numbers"),
    "preprocessing": (["x", 3, CONFIG], "PreprocessingConfig"),
    "augmentation": (["x", 3, CONFIG], "AugmentationConfig"),
    "share": (["x", 3, CONFIG], "Share"),
    "examples": (["x", 3, None], "part of a data set"),
    "config": (["x", 3, None], "Config"),
    "settings": (["x", 3, None], "Settings"),
    "recipe": (["x", 3, None, {}], "Recipe"),
    "classifier": (["x", 3, None], "Classifier"),
    "text": ([3, None], "str"),
    "blur": ([-1, "x", None, float("nan")], "float|0 or more"),
    "threshold": (["x", [], 1.5, float("nan")], "float|share of the range"),
    "method": (["nope", None, 3], "Unknown method"),
    "head_fusion": (["nope", None, 3], "Unknown head_fusion"),
    "resample": (["nope", None, 3], "Unknown resample"),
    "resampling": (["nope", 3, ["mean"]], "Unknown resampling|must be str"),
    "files": (["a.png", 3, None], "are several"),
    "mean": ([[0.5, 0.5, 0.5], 3, "x"], "and std"),
    "class_weights": ([[1.0], "xyz", [1, 2, -1]], "a number of at least 0"),
    "steps_per_epoch": ([0, -1, 2.5, "3"], "an int above 0"),
    "at": ([None, "abc", 3], r"tuple\[int"),
    "probabilities": ([np.full((3, 3), np.nan), np.ones(3)], "finite numbers"),
    "texts": ([np.full((3, 3), np.nan)], "without NaN"),
    "known_images": ([np.ones(3), np.zeros((0, 4, 4, 3))], "height, width"),
    "contents": ([None, "x", [1, 2, 3]], "ndarray"),
    "norm": (["no", 1, None], "bool"),
    "prefix_tokens": (["no", 1, None], "bool"),
    "scale": (["no", 1, None], "bool"),
    "include_top": (["no", 1, None], "bool"),
    "keep_representation": (["no", 1, None], "bool"),
    "to_evaluate": (["no", 1, None], "bool"),
    "unlabelled": (["no", 1, None], "bool"),
    "rematerialize": (["no", 1, None], "bool"),
    "tta": (["nope", 3], "Unknown tta"),
    "path": ([None, 3, MODEL], "PathLike"),
    "architecture": ([3, MODEL], "str"),
    "prefix": ([3, MODEL], "str"),
    "sources": ([None, 3, "x"], "Mapping"),
    "encoder": ([None, "x", MODEL], "Encoder"),
    "seconds": ([None, "x", float("nan")], "float"),
    "together": (["x", 3], "Together"),
    "maps": ([{}, MODEL, object()], "array"),
    "vectors": ([{}, MODEL, object()], "array of numbers"),
    "queries": ([{}, MODEL, object()], "array of numbers"),
    "lengths": ([np.ones(2), np.zeros(3), [np.nan] * 3], "above 0"),
    "label_sets": ([3, [3], [[0.5]], ["ab"], [[3]]], "classes"),
    "batches": (
        [3, [3], [(IMAGES, LABELS)], []],
        "Iterable|mask|no batches|0 images",
    ),
    "class_map": ([[0, 1, 3], [[0, 1, 2]], 0], "classes|class"),
    "known_labels": ([[0, 1], 3, "x"], "classes of 3"),
    "on_broken_image": (["nope", None], "Unknown on_broken_image"),
    "sampling": (["nope", None], "Unknown sampling"),
    "predictions": (["x", 3, None], "Predictions"),
    "file_names": ([3, None], "Iterable"),
    "folder": ([None, 3, MODEL], "PathLike|have a name"),
    "rows": ([None, 3], "Iterable"),
    "neighbours": ([None, 3], "tuple"),
    "machine": (["x", None], "Machine"),
}
# Arguments of other kinds by the same names.
ONLY: dict[str, dict[str, list]] = {
    # Without a model nothing reads them.
    "audit": {
        **{"image_size": [16, 0], "batch_size": [64]},
        "data": [None, 3, MODEL],
    },
    "FitStream": {"batch_size": [64, 0]},  # Batches have a size.
    "multiply_adds": {"model": [None, "x", 3, keras.Sequential()]},
    "projection": {"vectors": [np.eye(4) * np.nan, np.ones(3), np.eye(2)]},
    "saliency": {"classes": [3, [0], "x", [0, 1, 3]]},
    "cost_of": {"method": ["nope", 3]},
    "list_models": {"pattern": [3, None]},
    "list_weights": {"model": [3]},
    "load_classifier": {"source": [3, None]},
    "load_network": {"source": [3, None]},
    "average_weights": {
        "models": [[], [MODEL], MODEL, 3, None],
        "shares": [["a", "b"], 3, [1.0], [0.5, 0.6]],
    },
    "text_memory": {"texts": [0, "x"]},
    "largest_batch": {
        "way": ["x", None],
        "ratio": [0, -1, "x"],
        "machine": ["x", None],
    },
    "serve": {
        "port": [-1, 2**16, "x", None],
        "host": [3, None],
        "limits": ["x", {}],
    },
    "attention_rollout": {"discard_ratio": [1.0, -0.1, "x"]},
    "patch_pca": {"maps": [np.full((2, 2, 2, 4), np.nan), IMAGES[0]]},
    "overlay": {"maps": [MAPS * np.inf, MAPS[:1], MAPS[0]]},
    "plot_confusion": {"labels": [[]]},
    "plot_embeddings": {
        "labels": [None],
        "points": [np.ones((3, 3)), np.full((3, 2), np.nan), np.ones(3)],
    },
    "predict_classes": {
        "model": [None, "x", 3],
        "names": [["a"], ["a"] * 4, []],
    },
    "preprocess_input": {"model": ["ViT_B16", 3]},
    "save_checkpoint": {"model": [None, "x"]},
    "evaluation_batches": {"batch_size": [10**12]},
    "most_probable": {"probabilities": [np.ones(3), MODEL]},
    "class_metrics": {
        "labels": [np.ones(2, int), [0, 1, 3], [[0, 1]], MODEL],
        "probabilities": [MODEL],
    },
    "retrieval_recall": {"images": [MODEL], "texts": [MODEL, 3]},
    "worst_rows": {"count": [-1, 1.5, "x", None]},
    "attention_maps": {"images": [{"x": 1}, object(), IMAGES * np.nan]},
    "predictions": {"images": ["photo.png", 3, None]},
}
OTHERS = {
    ("FitStream", "batch_size"),  # It may be None.
    ("predict", "labels"),  # Words.
    ("Examples", "labels"),  # Of classes, or of several, or numbers.
    ("class_metrics", "labels"),
    ("cost_of", "method"),  # A record, or None.
    ("most_probable", "probabilities"),  # Of any kind of scores.
    ("text_memory", "texts"),  # Their number.
    ("decode_predictions", "predictions"),  # An array.
    ("plot_neighbours", "queries"),  # Names and pictures.
    ("worst_rows", "count"),  # It may be 0, as those of no classes.
    ("classes_to_keep", "num_classes"),
    ("embed_texts", "texts"),
}


def cases():
    """Each function with each wrong value of an argument that it takes."""
    for name, (function, _) in CALLS.items():
        taken = inspect.signature(function).parameters
        for argument, (values, message) in WRONG.items():
            if argument not in taken or (name, argument) in OTHERS:
                continue
            for number, value in enumerate(values):
                yield pytest.param(
                    name, argument, value, message,
                    id=f"{name}-{argument}-{number}",
                )  # fmt: skip
        for argument, values in ONLY.get(name, {}).items():
            for number, value in enumerate(values):
                yield pytest.param(
                    name, argument, value, "Received",
                    id=f"{name}-{argument}-{number}-only",
                )  # fmt: skip


# What layers are made with.
LAYERS: dict[str, dict[str, Any]] = {
    "AddPositionEmbedding": {"grid": (2, 2)},
    "Affine": {},
    "AttentionPooling": {"num_heads": 2, "mlp_dim": 8},
    "ClassAttention": {"num_heads": 2},
    "ClassAttentionBlock": {"num_heads": 2, "mlp_dim": 8},
    "ClassToken": {"num_tokens": 2},
    "DecomposedPositionBias": {"grid": (2, 2), "head_dim": 4},
    "EvolvedNormalization": {},
    "GatedMLP": {"mlp_dim": 8},
    "LayerScale": {},
    "MLP": {"mlp_dim": 8},
    "MixerBlock": {"tokens_mlp_dim": 8, "channels_mlp_dim": 8},
    "Neck": {"neck_dim": 8, "grid": (2, 2)},
    "ParallelBlock": {"num_heads": 2, "mlp_dim": 8},
    "PatchEmbed": {"hidden_dim": 8, "patch_size": 4},
    "RelativePositionBias": {"grid": (2, 2), "num_heads": 2},
    "RotaryEmbedding": {"grid": (2, 2)},
    "SelfAttention": {"num_heads": 2},
    "SpatialGatingBlock": {"channels_mlp_dim": 8},
    "SpatialGatingUnit": {},
    "StandardizedConv2D": {"filters": 8, "kernel_size": 3},
    "TokenPooling": {},
    "TokenRMSNormalization": {},
    "TransformerBlock": {"num_heads": 2, "mlp_dim": 8},
    "WindowAttention": {"num_heads": 2, "grid": (2, 2), "window_size": 2},
    # Of the variants.
    "AddPositionEmbedding2D": {"grid": (2, 2)},
    "AxialAttention": {"num_heads": 2, "grid": (2, 2)},
    "LocalMLP": {"mlp_dim": 8, "grid": (2, 2)},
    "RelativePositionEmbedding": {"grid": (2, 2)},
    "VariantBlock": {"num_heads": 2, "mlp_dim": 8, "grid": (2, 2)},
}
OF_KERAS = {"StandardizedConv2D"}  # Whose arguments are those of Conv2D.
# By the type of an argument, what is none.
NONE_OF: dict[Any, tuple] = {
    int: (-1, 1.5, "x", None, True, float("nan")),
    float: (float("nan"), "x", None, [0.1], True),
    bool: ("no", 1, None),
    str: ("nope", 3, None),
}
# Almost no argument takes these.
RUBBISH = (None, "x", -1.5, {}, object(), MODEL, np.zeros(3))
UNTRIED = {"train", "serve", "explain"}  # They would begin, or draw pages.


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "x.safetensors"
    keras_vit.save_checkpoint(MODEL, path, format="timm")
    return path


@pytest.mark.once
@pytest.mark.parametrize(
    ("name", "argument", "value", "message"), list(cases())
)
def test_it_is_refused(
    name, argument, value, message, saved, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    function, given = CALLS[name]
    if "source" in given and given["source"] is SAVED:
        given = {**given, "source": saved}
    with pytest.raises(ValueError, match=f"(?is){argument}") as error:
        found = function(**{**given, argument: value})
        list(found) if inspect.isgenerator(found) else None
    assert re.search(message, str(error.value))
    assert not list(tmp_path.iterdir())  # No file was touched.


@pytest.mark.once
@pytest.mark.filterwarnings("ignore::UserWarning")  # The head is of zeros.
@pytest.mark.parametrize("name", sorted(CALLS.keys() - UNTRIED))
def test_rubbish_is_taken_or_refused(name, saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function, given = CALLS[name]
    if given.get("source") is SAVED:
        given = {**given, "source": saved}
    for argument in inspect.signature(function).parameters:
        for value in RUBBISH:
            try:
                found = function(**{**given, argument: value})
                list(found) if inspect.isgenerator(found) else None
            except (ValueError, FileNotFoundError):
                pass
            except Exception as error:
                pytest.fail(f"{argument}={value!r:.40}: {error!r}")


def layer_of(name):
    return getattr(layers if name in layers.__all__ else variants, name)


@pytest.mark.once
def test_all_layers_are_tried():
    names = [x for x in layers.__all__ if inspect.isclass(getattr(layers, x))]
    assert {*names} <= {*LAYERS}


@pytest.mark.once
@pytest.mark.parametrize("name", sorted(LAYERS.keys() - OF_KERAS))
def test_a_layer_refuses_what_is_none_of_the_type(name):
    layer = layer_of(name)
    for argument, kind in layer.argument_kinds().items():
        assert kind is not inspect.Parameter.empty, argument
        for value in (*NONE_OF.get(kind, ()), object()):
            with pytest.raises(ValueError, match=argument):
                layer(**{**LAYERS[name], argument: value})
                pytest.fail(f"{argument}={value!r:.40}")


@pytest.mark.once
@pytest.mark.parametrize(
    ("name", "argument", "value"),
    [
        ("ClassToken", "num_tokens", 0),
        ("DecomposedPositionBias", "head_dim", 0),
        ("EvolvedNormalization", "groups", 0),
        ("MLP", "mlp_dim", 0),
        ("MixerBlock", "layer_norm_epsilon", -1e-6),
        ("StandardizedConv2D", "epsilon", -1e-6),
        ("TokenPooling", "num_prefix_tokens", -1),
        ("TransformerBlock", "dropout_rate", -0.1),
    ],
)
def test_a_layer_refuses_numbers_out_of_range(name, argument, value):
    with pytest.raises(ValueError, match=f"{argument} must be at least"):
        layer_of(name)(**{**LAYERS[name], argument: value})
