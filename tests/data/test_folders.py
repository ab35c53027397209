import unicodedata

import numpy as np
import pytest
from PIL import Image

from keras_vit.data import DataConfig, evaluation_batches, open_dataset
from keras_vit.data.image_folders import image_files

KINDS = ("a.jpg", "b.JPEG", "c.PNG", "d.bmp", "e.gif")


def grey(level, side=6):
    return Image.new("RGB", (side, side), (level,) * 3)


def fill(root, classes=("cat", "dog"), count=10):
    """Different images whose grey level is 20 times their label."""
    for label, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for number in range(count):
            kind = KINDS[number % len(KINDS)]
            image = grey(20 * label, side=6 + number)
            image.save(root / name / f"{number}{kind}")


def opened(root, **options):
    return open_dataset(DataConfig(folder=str(root), **options))


def test_a_folder_of_classes_is_cut_with_every_class_in_every_part(tmp_path):
    fill(tmp_path / "pets", ("dog", "cat", "ant"))
    dataset = opened(tmp_path / "pets")
    assert dataset.class_names == ("ant", "cat", "dog")
    assert dataset.name == "pets"
    parts = (dataset.train, dataset.validation, dataset.test)
    assert sum(len(part) for part in parts) == 30
    for part in parts:
        assert set(part.labels) == {0, 1, 2}
    paths = [path for part in parts for path in part.contents]
    assert len(set(paths)) == 30
    again = opened(tmp_path / "pets")
    assert list(again.test.contents) == list(dataset.test.contents)
    other = opened(tmp_path / "pets", split_seed=1)
    assert list(other.test.contents) != list(dataset.test.contents)


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("channels", [1, 3])
def test_every_kind_of_image_is_read_with_its_label(tmp_path, channels):
    fill(tmp_path)
    dataset = opened(tmp_path, validation_fraction=0.0, test_fraction=0.0)
    batches = evaluation_batches(
        dataset.train, image_size=6, channels=channels, batch_size=20
    )
    ((images, labels, _),) = batches
    assert images.shape == (20, 6, 6, channels)
    levels = np.asarray(images).mean((1, 2, 3))
    np.testing.assert_allclose(levels, 20 * np.asarray(labels), atol=1)


@pytest.mark.parametrize("validation", ["val", "validation", "Valid", "dev"])
def test_folders_of_splits_are_used(tmp_path, validation):
    for split, count in (("train", 4), (validation, 2), ("test", 3)):
        fill(tmp_path / split, count=count)
    dataset = opened(tmp_path)
    parts = (dataset.train, dataset.validation, dataset.test)
    assert [len(part) for part in parts] == [8, 4, 6]
    for part, split in zip(parts, ("train", validation, "test"), strict=True):
        assert all(f"/{split}/" in path for path in part.contents)


def test_a_missing_split_is_cut_off_training(tmp_path):
    fill(tmp_path / "train", count=10)
    fill(tmp_path / "test", count=3)
    dataset = opened(tmp_path)
    assert len(dataset.train) + len(dataset.validation) == 20
    assert set(dataset.validation.labels) == {0, 1}
    assert len(dataset.test) == 6
    by_position = opened(tmp_path, split_by="position")
    assert [len(by_position.train), len(by_position.validation)] == [18, 2]


def test_no_fraction_no_part(tmp_path):
    fill(tmp_path)
    dataset = opened(tmp_path, validation_fraction=0.0, test_fraction=0.0)
    assert len(dataset.train) == 20
    assert dataset.validation is dataset.test is None


def test_hidden_files_and_other_files_are_no_images(tmp_path):
    fill(tmp_path)
    (tmp_path / "cat" / "._0a.jpg").write_bytes(b"of a Macintosh")
    (tmp_path / "cat" / "labels.txt").write_text("cat")
    (tmp_path / ".git").mkdir()
    (tmp_path / "cat" / "deeper").mkdir()
    grey(0).save(tmp_path / "cat" / "deeper" / "x.png")
    dataset = opened(tmp_path, validation_fraction=0.0, test_fraction=0.0)
    assert len(dataset.train) == 21


def test_max_examples_keeps_some_of_every_part(tmp_path):
    fill(tmp_path, count=30)
    dataset = opened(tmp_path, max_examples=9)
    parts = (dataset.train, dataset.validation, dataset.test)
    all_of_it = opened(tmp_path, validation_fraction=0.1)
    whole = (all_of_it.train, all_of_it.validation, all_of_it.test)
    assert [len(x) for x in parts] == [min(len(x), 9) for x in whole]
    assert len(dataset.train) == 9
    assert set(dataset.train.labels) == {0, 1}


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ValueError, match="no folder '.*nowhere'"):
        opened(tmp_path / "nowhere")


def test_an_empty_class_is_named(tmp_path):
    fill(tmp_path)
    (tmp_path / "bird").mkdir()
    with pytest.raises(ValueError, match="No images .*'bird'"):
        opened(tmp_path)


@pytest.mark.parametrize("classes", [(), ("cat",)])
def test_fewer_than_two_classes_are_refused(tmp_path, classes):
    fill(tmp_path, classes)
    with pytest.raises(ValueError, match="at least two classes"):
        opened(tmp_path)


def test_a_class_that_training_lacks_is_named(tmp_path):
    fill(tmp_path / "train")
    fill(tmp_path / "test", ("cat", "dgo"))
    with pytest.raises(ValueError, match="lack: 'dgo'.*may be 'dog'"):
        opened(tmp_path)


def test_splits_without_training_are_refused(tmp_path):
    fill(tmp_path / "val")
    fill(tmp_path / "test")
    with pytest.raises(ValueError, match="none named 'train'"):
        opened(tmp_path)


def test_classes_too_small_to_cut_say_what_to_do(tmp_path):
    fill(tmp_path, count=2)
    with pytest.raises(ValueError, match="4 images of .*choose other fract"):
        opened(tmp_path)


def test_equal_images_cannot_be_cut_into_parts(tmp_path):
    fill(tmp_path)
    for number in range(5):
        (tmp_path / "ant").mkdir(exist_ok=True)
        grey(99).save(tmp_path / "ant" / f"{number}.png")
    with pytest.raises(ValueError, match="class 'ant' has 1. Equal ones"):
        opened(tmp_path)


def sizes(dataset):
    parts = (dataset.train, dataset.validation, dataset.test)
    return [0 if part is None else len(part) for part in parts]


NO_CUT: dict = {"validation_fraction": 0.0, "test_fraction": 0.0}


def test_links_are_followed(tmp_path):
    fill(tmp_path / "pets")
    fill(tmp_path / "elsewhere", ("x",))
    (tmp_path / "pets" / "cat" / "more").symlink_to(tmp_path / "elsewhere")
    other = grey(7)
    other.save(tmp_path / "one.png")
    (tmp_path / "pets" / "dog" / "one.png").symlink_to(tmp_path / "one.png")
    dataset = opened(tmp_path / "pets", **NO_CUT)
    assert np.bincount(dataset.train.labels).tolist() == [20, 11]
    assert len(image_files(tmp_path / "pets")) == 31


def test_a_link_in_a_circle_is_named(tmp_path):
    fill(tmp_path)
    (tmp_path / "cat" / "up").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="cat/up' is a link to .*no end"):
        opened(tmp_path)


def test_what_is_hidden_is_left_out_and_noted(tmp_path):
    fill(tmp_path)
    for name in ("cat/.ipynb_checkpoints", "__MACOSX/cat"):
        (tmp_path / name).mkdir(parents=True)
        grey(1).save(tmp_path / name / "copy.png")
    grey(2).save(tmp_path / "dog" / "._a.jpg")
    grey(3).save(tmp_path / "dog" / ".b.jpg")
    dataset = opened(tmp_path, **NO_CUT)
    assert dataset.class_names == ("cat", "dog")
    assert len(dataset.train) == 20
    assert dataset.notes == (
        "hidden, left out: 2 file(s): 'cat/.ipynb_checkpoints', 'dog/.b.jpg'",
    )
    assert len(image_files(tmp_path)) == 20


@pytest.mark.parametrize("several", [("val", "valid"), ("test", "testing")])
def test_two_folders_of_one_part_are_refused(tmp_path, several):
    fill(tmp_path / "train")
    for name in several:
        fill(tmp_path / name, count=2)
    with pytest.raises(ValueError, match="several folders of the (val|test)"):
        opened(tmp_path)


def test_folders_beside_parts_are_noted(tmp_path):
    for name in ("train", "val", "test", "extra"):
        fill(tmp_path / name, count=2)
    dataset = opened(tmp_path)
    assert sizes(dataset) == [4, 4, 4]
    assert dataset.notes == (
        "left out beside 'train', 'val', 'test': the folder(s) 'extra'",
    )


def test_classes_may_be_called_as_parts(tmp_path):
    """Of layout "auto" where they can be no parts, else on request."""
    fill(tmp_path / "plain", ("bus", "car", "train"))
    assert opened(tmp_path / "plain").class_names == ("bus", "car", "train")
    for name in ("bus", "car", "train"):
        fill(tmp_path / "deep" / name, ("front", "rear"))
    with pytest.raises(ValueError, match="'train', as a part .*'bus', 'car'"):
        opened(tmp_path / "deep")
    deep = opened(tmp_path / "deep", layout="classes")
    assert deep.class_names == ("bus", "car", "train")
    parts = opened(tmp_path / "deep", layout="parts")
    assert parts.class_names == ("front", "rear")
    fill(tmp_path / "trial", ("control", "placebo", "test"))
    with pytest.raises(ValueError, match="'test', as a part.*layout classes"):
        opened(tmp_path / "trial")
    trial = opened(tmp_path / "trial", layout="classes")
    assert trial.class_names == ("control", "placebo", "test")
    with pytest.raises(ValueError, match="no folder of a part"):
        fill(tmp_path / "pets")
        opened(tmp_path / "pets", layout="parts")


def test_a_test_folder_without_classes_is_left_out(tmp_path):
    """As those of Kaggle's competitions."""
    fill(tmp_path / "train")
    (tmp_path / "test").mkdir()
    for number in range(3):
        grey(number).save(tmp_path / "test" / f"{number}.png")
    dataset = opened(tmp_path, split_by="position")
    assert sizes(dataset) == [14, 2, 4]
    (note,) = dataset.notes
    assert note.startswith("3 image(s) of ")
    assert "/test' are left out: they are in no folder of a class" in note


def test_a_part_may_lack_a_class(tmp_path):
    fill(tmp_path / "train", ("ant", "cat", "dog"))
    fill(tmp_path / "val", ("ant", "dog"), count=2)
    (tmp_path / "val" / "cat").mkdir()
    dataset = opened(tmp_path, test_fraction=0.0)
    assert dataset.validation.labels.tolist() == [0, 0, 2, 2]


def test_a_class_has_one_name_in_every_form_of_unicode(tmp_path):
    forms = [unicodedata.normalize(x, "caf\u00e9") for x in ("NFC", "NFD")]
    assert forms[0] != forms[1]
    for part, name in zip(("train", "val"), forms, strict=True):
        fill(tmp_path / part, ("bee", name), count=4)
    dataset = opened(tmp_path, test_fraction=0.0)
    assert dataset.class_names == ("bee", "caf\u00e9")
    assert sizes(dataset) == [8, 8, 0]


def test_to_evaluate_a_folder_is_scored_as_a_whole(tmp_path):
    """All of a folder of classes, the test part of one with parts."""
    fill(tmp_path / "flat")
    fill(tmp_path / "one", ("cat",))
    fill(tmp_path / "only" / "test", ("cat", "dog"), count=3)
    fill(tmp_path / "all" / "train", ("cat", "dog"))
    fill(tmp_path / "all" / "test", ("cat", "new"), count=2)
    expected = {
        "flat": ([0, 0, 20], ("cat", "dog")),
        "one": ([0, 0, 10], ("cat",)),
        "only": ([0, 0, 6], ("cat", "dog")),
        "all": ([20, 0, 4], ("cat", "dog", "new")),
    }
    for name, (counts, classes) in expected.items():
        config = DataConfig(folder=str(tmp_path / name))
        dataset = open_dataset(config, to_evaluate=True)
        assert (sizes(dataset), dataset.class_names) == (counts, classes)
    grey(1).save(tmp_path / "x.png")
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="no folders of classes.*predict"):
        config = DataConfig(folder=str(tmp_path / "none"))
        open_dataset(config, to_evaluate=True)


@pytest.mark.usefixtures("reader")
def test_without_labels_all_images_are_of_one_class_without_a_name(tmp_path):
    """In the folder itself, in one folder in it, and in those of parts."""
    fill(tmp_path / "photos", ("2025/may", "2026"), count=8)
    for number in range(4):
        grey(100, side=20 + number).save(tmp_path / "photos" / f"{number}.png")
    with pytest.raises(ValueError, match=r"pretrain --method mae"):
        opened(tmp_path / "photos" / "2026")
    config = DataConfig(folder=str(tmp_path / "photos"))
    dataset = open_dataset(config, unlabelled=True)
    assert dataset.class_names == ("",)
    assert sum(sizes(dataset)) == 20
    assert min(sizes(dataset)) > 0
    assert not dataset.notes
    config = DataConfig(folder=str(tmp_path / "photos" / "2026"))
    dataset = open_dataset(config, unlabelled=True)
    assert sum(sizes(dataset)) == 8
    ((images, labels, mask),) = evaluation_batches(
        dataset.train, image_size=6, channels=1, batch_size=8
    )
    assert not np.asarray(labels)[np.asarray(mask)].any()
    assert np.asarray(images)[np.asarray(mask)].mean() == pytest.approx(20, 0.1)
    fill(tmp_path / "parts" / "train", ("a", "b"), count=3)
    fill(tmp_path / "parts" / "val", ("new",), count=2)
    config = DataConfig(folder=str(tmp_path / "parts"), test_fraction=0.0)
    assert sizes(open_dataset(config, unlabelled=True)) == [6, 2, 0]
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="No images .* in '.*none'"):
        config = DataConfig(folder=str(tmp_path / "none"))
        open_dataset(config, unlabelled=True)
