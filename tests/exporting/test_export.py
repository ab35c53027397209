"""`keras_vit.export`: what it writes, and what it refuses."""

import json

import keras
import numpy as np
import pytest
from export_cells import bit, randomised, vit
from reference_cases import path_of

import keras_vit
from keras_vit.cli import main
from keras_vit.data import DataConfig, PreprocessingConfig, open_dataset
from keras_vit.exporting import export as exporting
from keras_vit.exporting import writers
from keras_vit.exporting.export import Compared, images_of_run
from keras_vit.exporting.runtimes_table import refusal
from keras_vit.prediction import Classifier, as_classifier, load_classifier
from keras_vit.prediction.exported_model import ExportedModel

for name in ("onnx", "onnxruntime", "onnxscript"):
    pytest.importorskip(name)

NAMES = ("ant", "bee", "cat\x1b[31m", "döner", "=1+1")
# Files beside the one that is written.
OTHERS = ("tiny.onnx-0123abcd", "tiny")


def images(count=4, size=(20, 30)):
    shape = (count, *size, 3)
    return np.random.default_rng(3).integers(0, 256, shape).astype("uint8")


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    keras.utils.set_random_seed(0)
    model = randomised(
        vit(pixel_mean=(0.5, 0.4, 0.3), pixel_std=(0.2, 0.2, 0.3))
    )
    return as_classifier(model, NAMES, PreprocessingConfig(evaluation="squash"))


@pytest.fixture(scope="module")
def written(classifier, tmp_path_factory):
    path = tmp_path_factory.mktemp("written") / "tiny.onnx"
    for name in ("tiny.onnx", *OTHERS):  # as killed exports leave them
        left = path.parent / f".partial-{name}-0123abcd" / "tiny.onnx"
        left.parent.mkdir()
        left.write_bytes(b"half")
    with pytest.raises(ValueError, match="has no record|cannot open"):
        keras_vit.predict(left, images())
    record = keras_vit.export(classifier, path, images=images(), batch=3)
    return path, record


def classes(model):
    found = keras_vit.predict(model, images(), top=5)
    return [[name for name, _ in x.classes] for x in found]


def shares(model):
    found = keras_vit.predict(model, images(), top=5)
    return [[share for _, share in x.classes] for x in found]


def test_predict_gives_names_and_probabilities_of_the_model(
    classifier, written
):
    # Four images in calls of three: the last call is filled up.
    assert classes(written[0]) == classes(classifier)
    np.testing.assert_allclose(
        shares(written[0]), shares(classifier), rtol=1e-4
    )


def test_record_is_inside_and_beside(written):
    path, record = written
    import onnx

    inside = {x.key: x.value for x in onnx.load(path).metadata_props}
    beside = path.with_name("tiny.onnx.model.json").read_text()
    expected = json.loads(json.dumps(record))
    assert json.loads(inside["model.json"]) == json.loads(beside) == expected
    assert record["class_names"] == list(NAMES)
    assert record["preprocessing"]["evaluation"] == "squash"
    assert record["input"]["values"].startswith("[0, 1], minus [0.5, 0.4, 0.3]")
    assert record["source"] == {"weights": "a model in memory"}
    assert record["check"]["same_class"] == 1
    assert record["check"]["images"] == 4
    assert 0 < record["check"]["bytes"] <= path.stat().st_size


def test_of_itself_it_leaves_the_file_and_its_record_alone(written):
    """And takes away what a killed export of the same file left."""
    names = {x.name for x in written[0].parent.iterdir()}
    others = {f".partial-{name}-0123abcd" for name in OTHERS}
    assert names - others == {"tiny.onnx", "tiny.onnx.model.json"}
    assert names >= others


def test_a_file_that_is_not_close_enough_is_not_left(
    classifier, tmp_path, monkeypatch
):
    path = tmp_path / "tiny.onnx"
    path.write_text("what was there")
    monkeypatch.setattr(exporting, "_write", lambda *x: None)
    wrong = Wrong(classifier.model)
    monkeypatch.setattr(exporting, "ExportedModel", lambda *x: wrong.of(x[1]))
    with pytest.raises(ValueError, match="gives other scores than the model"):
        keras_vit.export(classifier, path)
    assert path.read_text() == "what was there"
    assert [x.name for x in tmp_path.iterdir()] == ["tiny.onnx"]


class Wrong:
    """The scores of a model with the sign changed."""

    resizes = False

    def __init__(self, model):
        self.model = model

    def of(self, record):
        self.record = record
        return self

    def predict_on_batch(self, inputs):
        scores = self.model.predict_on_batch(inputs)
        return -keras.ops.convert_to_numpy(scores)


def test_images_that_change_their_class_are_counted(classifier):
    wrong = Wrong(classifier.model)
    pixels = images(4, (16, 16))
    scores = classifier.probabilities(pixels)
    labels = scores.argmax(-1)
    labels[0] = scores[0].argmin()
    compared = Compared(pixels, labels)
    with pytest.raises(ValueError, match=r"of 4 images change their class"):
        exporting._agreement(classifier, wrong, compared, 0.02)
    found = exporting._agreement(classifier, wrong, compared, 1.0)
    assert found["same_class"] == 0
    right = found["model_accuracy"]
    assert 0 < right < 1
    assert found["accuracy"] <= 1 - right


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"path": "x.h5"}, r"does not tell a format\. End it with \.onnx"),
        ({"format": "onxn"}, "Did you mean 'onnx'"),
        ({"format": "openvino"}, r"is a file \*\.xml"),
        ({"format": "saved_model"}, "is a folder"),
        ({"precision": "int4"}, "Unknown precision: 'int4'"),
        ({"precision": "bfloat16"}, "In bfloat16: openvino, saved_model"),
        ({"batch": 0}, "batch must be an int above 0"),
        ({"image_size": 32}, "takes images of 16x16.*image_size=32"),
        ({"batch": True}, "batch must be an int above 0"),
        ({"largest_change": 2}, r"a share in \[0, 1\]"),
        ({"largest_change": 0.5}, "needs images. Received: largest_change=0.5"),
        ({"validation_images": -1}, "is a number of images"),
        ({"validation_images": 5}, "the model is none"),
        ({"validation_images": 5, "images": "x"}, "either given or a run's"),
        ({"calibrate": True}, "needs images"),
        ({"calibrate": True, "precision": "int8"}, "needs images"),
        ({"path": "gone/x.onnx"}, "There is no folder"),
        ({"layout": "torchserve"}, "Unknown layout"),
        ({"layout": "tensorflow_serving", "format": "onnx"}, "is a folder of"),
        ({"model": keras.Sequential()}, "a model of keras_vit"),
        ({"model": "ViT_B61/imagenet"}, "ViT_B61"),
        ({"images": []}, "There is no image"),
    ],
)
def test_bad_input_is_refused_before_a_file_is_there(
    classifier, tmp_path, arguments, message
):
    arguments = {"model": classifier, "path": "x.onnx", **arguments}
    arguments["path"] = tmp_path / arguments["path"]
    with pytest.raises(ValueError, match=message):
        keras_vit.export(**arguments)
    assert not list(tmp_path.iterdir())


def test_a_folder_of_somebody_else_is_left_alone(classifier, tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "saved_model.pb").write_text("own")
    with pytest.raises(ValueError, match="did not export"):
        keras_vit.export(classifier, tmp_path / "own", "saved_model")
    assert (tmp_path / "own" / "saved_model.pb").read_text() == "own"


@pytest.mark.parametrize(
    ("name", "format", "message"),
    [
        ("file", "saved_model", "is a file, and saved_model is a folder"),
        ("file", "triton", "is a file, and triton is a folder"),
        ("folder.onnx", "onnx", "is a folder, and onnx is a file"),
        ("own.xml", "openvino", "is not of an earlier export"),
    ],
)
def test_what_is_in_the_way_is_refused(
    classifier, tmp_path, name, format, message
):
    (tmp_path / "file").write_text("own")
    (tmp_path / "own.bin").write_text("own")
    (tmp_path / "folder.onnx").mkdir()
    before = sorted(tmp_path.iterdir())
    path = tmp_path / name
    layout = format if format == "triton" else None
    with pytest.raises(ValueError, match=message):
        keras_vit.export(
            classifier, path, None if layout else format, layout=layout
        )
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "own.bin").read_text() == "own"


def test_a_folder_that_cannot_be_replaced_stays(tmp_path):
    path, aside = tmp_path / "model", tmp_path / "aside"
    path.mkdir()
    (path / "weights").write_text("old")
    with pytest.raises(FileNotFoundError):
        exporting.move_folder(tmp_path / "gone", path, aside)
    assert (path / "weights").read_text() == "old"
    assert not aside.exists()


def test_preprocessing_of_a_quantised_model_stays(tmp_path):
    model = vit()
    model.quantize("int8")
    with pytest.raises(ValueError, match="preprocessing of a quantised model"):
        keras_vit.export(model, tmp_path / "x.onnx", include_preprocessing=True)


def test_preprocessing_is_put_inside(classifier):
    inside = exporting._with_preprocessing(classifier, True)
    assert inside.model.config.include_preprocessing
    assert classes(inside) == classes(classifier)
    np.testing.assert_allclose(shares(inside), shares(classifier), rtol=1e-4)


def test_the_source_has_the_licence(tmp_path):
    source = exporting.source_of("ViT_B16/imagenet")
    recommended = "ViT_B16/augreg_imagenet21k_imagenet2012"
    assert source["weights"] == recommended
    assert source["licence"] == "Apache-2.0"
    (tmp_path / "keras_vit_run.json").write_text("{}")
    config = "model: {name: ViT_B16, weights: imagenet}\n"
    (tmp_path / "config.yaml").write_text(config)
    source = exporting.source_of(tmp_path)
    assert source["weights"] == tmp_path.name
    assert source["started_from"] == recommended
    assert source["licence"] == "Apache-2.0"


def test_validation_images_of_a_run_are_those_of_its_data(tmp_path):
    (tmp_path / "keras_vit_run.json").write_text("{}")
    (tmp_path / "config.yaml").write_text("data: {name: digits, seed: 0}\n")
    model = vit(image_size=(8, 8), channels=1, num_classes=10)
    squash = PreprocessingConfig(evaluation="squash")
    digits = as_classifier(model, tuple("0123456789"), squash)
    with pytest.raises(ValueError, match="config of the run.*'seed'"):
        images_of_run(digits, tmp_path, 40)
    (tmp_path / "config.yaml").write_text("data: {name: digits}\n")
    found, calibration = images_of_run(digits, tmp_path, 40)
    known = open_dataset(DataConfig(name="digits")).validation
    pairs = zip(known.contents, known.labels, strict=True)
    rows = {image.tobytes(): label for image, label in pairs}
    assert found.images.shape == (40, 8, 8, 1)
    assert calibration.shape == (128, 8, 8, 1)
    drawn = [rows[x.astype("uint8").tobytes()] for x in found.images]
    np.testing.assert_array_equal(found.labels, drawn)
    assert len(set(drawn)) > 5


def test_a_missing_package_is_named_with_its_command(
    classifier, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        exporting.importlib.util, "find_spec", lambda name: name != "openvino"
    )
    with pytest.raises(ValueError, match="needs openvino: pip install torch"):
        keras_vit.export(classifier, tmp_path / "x.xml")


def test_what_cannot_be_had_names_what_can():
    assert refusal("onnx", "float32", None) == ""
    assert "saved_model, stablehlo or pt2" in refusal("onnx", "float32", "int4")
    assert "quantised to int8 already" in refusal("onnx", "int8", "int8")


def test_exported_models_take_no_other_size(written):
    assert load_classifier(written[0], 16).model.input_shape == (3, 16, 16, 3)
    with pytest.raises(ValueError, match="takes images of 16x16"):
        load_classifier(written[0], 32)


def test_an_onnx_file_of_others_is_refused(written, tmp_path):
    import onnx

    content = onnx.load(written[0])
    del content.metadata_props[:]
    onnx.save(content, tmp_path / "other.onnx")
    with pytest.raises(ValueError, match="has no record of keras_vit"):
        keras_vit.predict(tmp_path / "other.onnx", images())


# torch's compiler forks when it is imported, of which JAX warns.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_rubbish_is_refused_in_one_line(tmp_path):
    for suffix in (".onnx", ".xml", ".tflite", ".stablehlo", ".pt2"):
        path = tmp_path / f"rubbish{suffix}"
        path.write_bytes(b"rubbish" * 20)
        with pytest.raises(ValueError, match=f"rubbish{suffix}") as error:
            ExportedModel(path)
        assert "\n" not in str(error.value)


def test_explain_says_that_it_needs_the_model(written, tmp_path):
    with pytest.raises(ValueError, match="ExportedModel.*tiny.*program"):
        keras_vit.explain(written[0], images(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_server_takes_exported_models(classifier, written):
    from keras_vit.serving import Service, ServingLimits

    service = Service(load_classifier(written[0]), "tiny", ServingLimits())
    assert "An exported model shows no attention" in (service.unexplained or "")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny.onnx", "tiny.xml", "tiny.tflite"])
def test_calibration_gives_products_of_8_bits(classifier, tmp_path, name):
    record = keras_vit.export(
        classifier,
        tmp_path / name,
        precision="int8",
        images=images(16),
        calibrate=True,
        largest_change=1.0,
    )
    assert 1e-4 < record["check"]["relative_error"] <= 0.2
    assert record["check"]["images"] == 16


@pytest.mark.once
def test_a_model_of_any_size_is_written_for_one():
    model = keras_vit.load_checkpoint(path_of("bit_tiny_google"))
    taken = exporting._with_preprocessing(
        as_classifier(model, image_size=(40, 32), needs_classes=False), None
    )
    assert taken.model.input_shape == (None, 40, 32, 3)
    x = np.random.default_rng(0).uniform(-1, 1, (2, 40, 32, 3))
    np.testing.assert_allclose(
        taken.model.predict_on_batch(x), model.predict_on_batch(x), atol=1e-5
    )


@pytest.mark.once
def test_a_kernel_of_small_numbers_is_scaled_as_the_model_does(tmp_path):
    """BiT adds 1e-10 to its variance, which ONNX's exporter takes for zero."""
    model = randomised(bit())
    for name in ("root_conv", "stage1_unit1_conv2"):
        kernel = model.get_layer(name).kernel
        kernel.assign(kernel * 1e-4)
        kernel.assign(kernel * np.arange(kernel.shape[-1]))  # The first is 0.
    path = tmp_path / "bit.onnx"
    keras_vit.export(model, path)
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (2, 64, 64, 3)).astype("float32")
    np.testing.assert_allclose(
        ExportedModel(path).predict_on_batch(x),
        model.predict_on_batch(x),
        rtol=0,
        atol=1e-4,
    )


def saved_graph(path, nodes, constants, shape):
    """Of `image` to `scores`; the batch is of any size."""
    import onnx

    kind, image = onnx.TensorProto.FLOAT, (None, *shape[1:])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(x, i, o, **more) for x, i, o, more in nodes],
        "graph",
        [onnx.helper.make_tensor_value_info("image", kind, image)],
        [onnx.helper.make_tensor_value_info("scores", kind, None)],
        [onnx.numpy_helper.from_array(y, x) for x, y in constants.items()],
    )
    opsets = [onnx.helper.make_opsetid("", 18)]
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), path
    )
    return onnx.load(path)


def run_graph(path, image):
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path))
    return session.run(None, {"image": image})[0]


@pytest.mark.once
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("value", [None, 0.0, -np.inf, -0.25])
def test_a_maximum_is_of_the_padding_of_the_model(tmp_path, value, transposed):
    import onnx

    random = np.random.default_rng(0)
    image = -random.uniform(0.1, 1, (1, 2, 6, 6)).astype("float32")
    around = [(0, 0), (0, 0), (1, 1), (1, 1)]
    names, constants = ["image", "sides"], {}
    if value is not None:
        names.append("value")
        constants["value"] = np.float32(value)
    padded = np.pad(image, around, constant_values=value or 0)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    expected = windows[:, :, ::2, ::2].max((-2, -1))
    order, back = (0, 2, 3, 1), (0, 3, 1, 2)
    if transposed:
        image, around = image.transpose(order), [around[i] for i in order]
    constants["sides"] = np.array(around).T.reshape(-1)
    turned = [("Transpose", ["padded"], ["turned"], {"perm": back})]
    pool = {"kernel_shape": (3, 3), "strides": (2, 2)}
    nodes = [
        ("Pad", names, ["padded"], {}),
        *turned * transposed,
        ("MaxPool", ["turned" if transposed else "padded"], ["scores"], pool),
    ]
    path = tmp_path / "graph.onnx"
    content = saved_graph(path, nodes, constants, image.shape)
    writers._keep_padding(content)
    onnx.save(content, path)
    np.testing.assert_allclose(run_graph(path, image), expected, atol=1e-20)


@pytest.mark.once
@pytest.mark.parametrize("calibrated", [False, True])
def test_sums_of_8_bits_do_not_overflow(tmp_path, calibrated):
    """Two products of 255 and 127 are too many for 16 bits with a sign."""
    import onnx

    image = np.ones((2, 64), "float32")
    image[1] /= 2
    image[:, 0] = -0.1
    kernel = np.ones((64, 3), "float32")
    kernel[:, 1] = -1
    kernel[::2, 2] = -1
    nodes = [("MatMul", ["image", "kernel"], ["scores"], {})]
    path, images = tmp_path / "graph.onnx", tmp_path / "images.npy"
    saved_graph(path, nodes, {"kernel": kernel}, image.shape)
    np.save(images, image)
    writers._quantize_onnx(path, images if calibrated else None)
    found = run_graph(path, image)
    np.testing.assert_allclose(found, image @ kernel, atol=0.5)
    # Processors with VNNI sum both in 32 bits.
    kinds = {
        x.data_type
        for x in onnx.load(path).graph.initializer
        if list(x.dims) == [64, 3]
    }
    assert kinds == {onnx.TensorProto.UINT8}


@pytest.mark.parametrize("batch", [None, 4])
def test_triton_finds_the_shapes_of_the_model(tmp_path, batch):
    record = {
        "input": {"shape": [batch, 16, 24, 3]},
        "output": {"shape": [batch, 5]},
    }
    for version in ("1", "2"):
        folder = tmp_path / f"partial{version}"
        folder.mkdir()
        (folder / "model.onnx").write_text("content")
        path = tmp_path / "models"
        writers.LAYOUTS["triton"].arrange(folder / "model.onnx", path, record)
        assert (path / version / "model.onnx").read_text() == "content"
    config = (path / "config.pbtxt").read_text()
    (path / "config.pbtxt").write_text("tuned")
    record["output"]["shape"] = [batch, 6]
    (folder := tmp_path / "partial3").mkdir()
    (folder / "model.onnx").write_text("content")
    with pytest.warns(UserWarning, match="is kept as it is"):
        writers.LAYOUTS["triton"].arrange(folder / "model.onnx", path, record)
    assert (path / "config.pbtxt").read_text() == "tuned"
    wanted = ["16, 24, 3", "[ 5 ]", "max_batch_size: 32"]
    if batch:
        wanted = ["4, 16, 24, 3", "[ 4, 5 ]", "max_batch_size: 0"]
    assert all(x in config for x in wanted)
    assert ("dynamic_batching" in config) == (batch is None)


def test_versions_of_tensorflow_serving_count_up(tmp_path):
    for version in ("1", "2"):
        (tmp_path / "partial").mkdir()
        path = tmp_path / "models"
        writers.LAYOUTS["tensorflow_serving"].arrange(
            tmp_path / "partial", path, {"format": "saved_model"}
        )
        assert (path / version).is_dir()


@pytest.mark.once
def test_the_command_prints_what_was_checked(
    classifier, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    classifier.model.save("tiny.keras")
    command = ["export", "tiny.keras", "tiny", "--format", "saved_model"]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert "largest difference" in printed.out
    assert "TensorFlow" in printed.out
    assert (tmp_path / "tiny" / "saved_model.pb").is_file()
    assert main(["export", "tiny.keras", "tiny.onx"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("keras-vit: error: The name 'tiny.onx'")
    assert error.count("\n") == 1
