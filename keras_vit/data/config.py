"""The options of data, preprocessing and augmentation, as typed records.

A field's docstring is its text in `--help` of a recipe.
"""

import dataclasses
import importlib.util
from collections.abc import Container, Mapping

import numpy as np

from keras_vit.io.checks import (
    EXTRAS,
    check_at_least,
    check_choice,
    check_fraction,
    check_installed,
    check_limits,
    check_types,
    check_unread,
)
from keras_vit.trained_as import TrainedAs

__all__ = [
    "AugmentationConfig",
    "DataConfig",
    "PreprocessingConfig",
    "chosen_reader",
    "data_of_run",
    "data_packages",
    "evaluation_of",
    "hide_accelerators",
    "options_before",
    "preprocessing_in",
]


@dataclasses.dataclass(frozen=True)
class AugmentationConfig:
    """How training images are augmented; by default not at all.

    Raises:
        ValueError: for values out of range.

    Example:
        >>> light = AugmentationConfig(
        ...     rand_augment_layers=2, rand_augment_magnitude=10,
        ...     mixup_alpha=0.2,
        ... )  # "light2" of AugReg, arXiv 2106.10270, section 3.3.
    """

    shift: float = 0.0
    """Largest random shift along each axis, as a fraction of the side."""

    rotation: float = 0.0
    """Largest random angle to either side, in degrees below 180."""

    zoom: float = 0.0
    """Largest relative change of size: 0.1 draws factors in [0.9, 1.1]."""

    rand_augment_layers: int = 0
    """l of RandAugment(l, m): how many operations are applied to an image."""

    rand_augment_magnitude: float = 10.0
    """m of RandAugment(l, m): their magnitude, 10 for the whole range."""

    mixup_alpha: float = 0.0
    """Mixup: images and labels of a batch are mixed with their neighbours, by
    a weight drawn from Beta(alpha, alpha); 0 for none."""

    cutmix_alpha: float = 0.0
    """CutMix: a box of an image is replaced by that of another image, and the
    labels are mixed; its area is drawn from Beta(alpha, alpha), alpha at most
    1; 0 for none."""

    random_erasing_rate: float = 0.0
    """Probability that a box of an image is filled with noise."""

    keras_cv: str | None = None
    """Name of a layer in keras_cv.layers to run on batches. It draws its own
    random numbers, so that a resumed run differs."""

    keras_cv_arguments: dict | None = None
    """Arguments of that layer; value_range is (0, 255) where it takes one."""

    def __post_init__(self):
        check_types(self)
        check_limits(self, 1, "shift", "zoom")
        check_limits(self, 180, "rotation")
        check_at_least(
            self,
            0,
            "rand_augment_layers",
            "rand_augment_magnitude",
            "mixup_alpha",
        )
        # Keras's CutMix takes no parameter above 1.
        check_fraction(self, "cutmix_alpha", "random_erasing_rate")
        if not self.rand_augment_layers:
            case = "rand_augment_layers=0"
            check_unread(self, case, "rand_augment_magnitude")
        if self.keras_cv is None:
            check_unread(self, "keras_cv=None", "keras_cv_arguments")
        if self.mixup_alpha and self.cutmix_alpha:
            raise ValueError(
                "Mixup and CutMix both mix the labels: set mixup_alpha or "
                f"cutmix_alpha to 0. Received: mixup_alpha={self.mixup_alpha}"
                f", cutmix_alpha={self.cutmix_alpha}."
            )


BROKEN = ("stop", "skip")
CHECKS = ("auto", "ends", "all", "none")
CROPS = (
    "inception_crop",
    "resize_small_random_crop",
    "resize_random_crop",
    "resize_small_central_crop",
    "resize_central_crop",
    "squash",
)
EVALUATION_CROPS = (
    "resize_small_central_crop",
    "resize_central_crop",
    "squash",
    "shorter_side_crop",
    "both_sides_crop",
    "longer_side_pad",
    "cover_crop",
    "stretch_crop",
    "contain_pad",
    "central_crop",
    "aspect_crop",
)
# Those that fill up what is smaller than the crop, and whose images are scaled
# to the crop itself where no size is given.
FILLING = EVALUATION_CROPS[3:]
# Those before which nothing is resized to another size than the model's.
UNSIZED = ("inception_crop", "squash", "central_crop", "aspect_crop")
# Those of an image whose shorter side is scaled, and which fill nothing up.
BY_SHORTER_SIDE = {"resize_small_central_crop", "resize_small_random_crop"}
# Fields that data of tensorflow-datasets alone reads, and those of others.
OF_NAMES = (
    *("train_split", "validation_split", "test_split"),
    *("download", "data_dir"),
)
KEYS = ("image_key", "label_key")
OF_FOLDERS = ("layout",)
OF_CSV = (
    *("image_root", "image_suffix", "skip_missing", "on_missing_label"),
    *("label_kind", "label_separator", "split_key", "fold_key"),
)
UNREAD = {
    "folder": (*OF_NAMES, *KEYS, *OF_CSV),
    "csv": (*OF_NAMES, *OF_FOLDERS),
    "shards": (*OF_NAMES, *OF_FOLDERS, *OF_CSV),
    "name": (*OF_FOLDERS, *OF_CSV),
}
READERS = ("auto", "tensorflow", "pillow")
METHODS = ("bilinear", "bicubic", "area", "lanczos3", "nearest")
# Of Pillow alone: TensorFlow reads training images without them.
METHODS = (*METHODS, "box", "hamming")
MAX_SIDE = 16_384  # pixels; an image of that takes 3 GB
ROUNDINGS = ("uint8", "float32", "nearest")
LABEL_KINDS = ("auto", "one", "several", "number")
SAMPLINGS = ("uniform", "balanced")
LAYOUTS = ("auto", "parts", "classes")
SPLIT_BY = ("content", "position")
# What the options of a run were before there was one, of each source.
OPTIONS_BEFORE = {"reader": "tensorflow", "split_by": "position"}
OF_CSV_BEFORE = {"label_kind": "one"}


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Where the images are, and which of them to train, choose and test on.

    Give one of `name`, `folder`, `csv` and `shards`.

    Raises:
        ValueError: for values that are out of range or contradict.

    Example:
        >>> DataConfig(folder="flowers").name is None
        True
        >>> DataConfig(name="cifar10", test_split="test[:1000]").folder is None
        True
    """

    name: str | None = None
    """A preset ("digits", "cifar10", "cifar100", "oxford_iiit_pet",
    "oxford_flowers102", "imagenet2012", "imagenette", "imagenet21k") or any
    name of tensorflow-datasets, "name/config:version"; parquet or tar files of
    the Hugging Face hub, "hf://datasets/user/name"; and in the recipes a task
    of VTAB-1k, "vtab/clevr_count", or fractals made by formulas,
    "fractals/num_classes=100,images_per_class=200,image_size=32".
    Without name, folder, csv and shards: "digits", which ship inside
    scikit-learn."""

    folder: str | None = None
    """A folder of images: folder/{train,val,test}/class/* or folder/class/*,
    which is cut by the fractions below. Where no labels are learned, all
    images in it or in folder/{train,val,test}, in whatever folders. On a disk
    or at a gs:// or s3:// address, as the files of csv and shards."""

    layout: str = "auto"
    """What the folders in `folder` are: "parts", as train and val, or
    "classes", though they be called train or test; "auto" takes for parts
    what is called so, and asks where that is open."""

    csv: str | None = None
    """A CSV file whose columns image_key and label_key hold paths (relative
    to the file) and labels; a column "split" is used where there is one.
    Without a column "label", columns of 0 and 1 are the classes."""

    image_root: str | None = None
    """Folder of the images of a CSV file, relative to the file; null is that
    of the file."""

    image_suffix: str | None = None
    """What the paths of a CSV file lack at their end, as ".jpg"."""

    skip_missing: bool = False
    """Whether lines of a CSV file whose images are not there are left out and
    counted."""

    on_missing_label: str = "stop"
    """A line of a CSV file without a label (empty, nan, null, n/a) stops the
    run ("stop"), or is left out and counted ("skip")."""

    label_kind: str = "auto"
    """What a label of a CSV file is: "one" class, as it is written; "several",
    as "scab|rust" or "[0, 3]"; or a "number" to predict (regression), several
    with label_key "width,height"; "auto" finds that out."""

    label_separator: str | None = None
    """What is between several labels of an image; null finds out which of
    "|", ";", "," and a space."""

    split_key: str | None = None
    """Column of a CSV file that says train, validation or test; null is
    "split", "part", "set", "subset" or "partition", where there is one."""

    fold_key: str = "fold"
    """Column of a CSV file with the number of the fold of a line."""

    folds: int | None = None
    """Number of folds that the training images are divided into for
    cross-validation, by the hash of their contents, so that equal images are
    in one fold. Null takes those of the column fold_key."""

    fold: int | None = None
    """Fold to make choices on, from 0; the others are trained on, and nothing
    is cut off. Null uses no folds."""

    shards: str | None = None
    """Tar files of WebDataset or parquet files of Hugging Face: a folder, or
    paths as "train-{000..099}.tar" or "data/*.parquet". The word train,
    validation or test in a path is its split."""

    data_dir: str | None = None
    """Folder of tensorflow-datasets, or its address in a store; its own
    default if not given."""

    download: bool = True
    """Whether a named data set that is not in data_dir is downloaded."""

    train_split: str | None = None
    """Split of tensorflow-datasets to train on, as "train[:98%]"."""

    validation_split: str | None = None
    """Split to make choices on, as "train[98%:]"."""

    test_split: str | None = None
    """Split that only the result is computed on, as "test"."""

    image_key: str = "image"
    """Feature, or column of a CSV or parquet file, that holds the image."""

    label_key: str = "label"
    """Feature, column of a CSV or parquet file, or key of the JSON in a tar
    file that holds the label."""

    validation_fraction: float = 0.1
    """Share of the images to make choices on, the same of each class; for data
    without a validation split."""

    test_fraction: float = 0.2
    """Share of the images for the result; for data without a test split."""

    split_seed: int = 0
    """Seed of these fractions, independent of the seed of the run."""

    split_by: str = "content"
    """How the images of a folder or a CSV file of a disk are cut by these
    fractions. "content": by the hash of each file, so that files which are
    added or removed move no other image, unless a part would have none of a
    class, and equal images are in one part; the fractions are met
    approximately. "position": by number in the list of all images. Data by
    name, in shards and in stores, whose contents are not at hand, is cut by
    position."""

    sampling: str = "uniform"
    """How often an image is trained on: "uniform", once in each epoch; or
    "balanced", each class equally often, so that an epoch has images of rare
    classes several times, and not all of frequent ones."""

    accept_changes: bool = False
    """Whether a run that is resumed goes on over images that have changed
    since it began. Its classes are those of the same names."""

    max_examples: int | None = None
    """Keep only this many images of each split, for trials."""

    memory_limit_mib: int = 2048
    """A split of tensorflow-datasets up to this size is kept in memory; of a
    larger one, each image is read from its file when it is needed. Both are
    shuffled as a whole."""

    shuffle_buffer: int = 50_000
    """Number of undecoded images in memory of parquet files, which are read in
    groups of rows: the groups are shuffled, then the images within so many."""

    index_dir: str | None = None
    """Folder in which it is kept where the images are in shards, and their
    labels, so that it is looked up once; processes that share it divide the
    work. keras_vit/indexes in KERAS_HOME (~/.keras) if not given."""

    check_images: str = "auto"
    """What is checked before the first step: "all" to decode every image,
    "ends" of every file (its kind and whether it is cut off), "none"; "auto"
    decodes the images of a split whose files have up to 256 MiB together, and
    checks the ends of more and of shards."""

    on_broken_image: str = "stop"
    """An image that cannot be read stops the run ("stop"), or is left out and
    counted ("skip")."""

    reader: str = "auto"
    """What reads and varies the images: "tensorflow" (tf.data), or "pillow"
    with NumPy, in threads; "auto" takes TensorFlow where it is installed. Both
    give the same images in the same order, but for what decoders round
    otherwise. Data sets of tensorflow-datasets need TensorFlow."""

    def __post_init__(self):
        check_types(self)
        fields = ("name", "folder", "csv", "shards")
        sources = [getattr(self, field) for field in fields]
        received = ", ".join(map("{}={!r}".format, fields, sources))
        if sum(source is not None for source in sources) > 1:
            raise ValueError(
                "Give one of name, folder, csv and shards. Received: "
                f"{received}."
            )
        if "" in sources:
            raise ValueError(
                "name, folder, csv and shards are not empty; an unset variable "
                f"of the shell is. Received: {received}."
            )
        if not any(sources):
            object.__setattr__(self, "name", "digits")
        check_fraction(self, "validation_fraction", "test_fraction")
        if self.validation_fraction + self.test_fraction >= 1:
            raise ValueError(
                "Nothing is left to train on: validation_fraction="
                f"{self.validation_fraction} and test_fraction="
                f"{self.test_fraction} must add up to less than 1."
            )
        check_at_least(self, 0, "split_seed", "memory_limit_mib")
        check_at_least(self, 1, "shuffle_buffer", "max_examples")
        check_choice("check_images", self.check_images, CHECKS)
        check_choice("on_broken_image", self.on_broken_image, BROKEN)
        check_choice("reader", self.reader, READERS)
        check_choice("on_missing_label", self.on_missing_label, BROKEN)
        check_choice("label_kind", self.label_kind, LABEL_KINDS)
        self._check_folds()
        if self.label_kind in ("one", "number"):
            case = f"label_kind={self.label_kind!r}"
            check_unread(self, case, "label_separator")
        if self.label_separator == "":
            raise ValueError(
                "label_separator is not empty. Received: label_separator=''. "
                'Set label_kind to "one" for one label per image.'
            )
        check_choice("layout", self.layout, LAYOUTS)
        check_choice("split_by", self.split_by, SPLIT_BY)
        check_choice("sampling", self.sampling, SAMPLINGS)
        self._check_source()

    def _check_folds(self):
        check_at_least(self, 0, "fold")
        check_at_least(self, 2, "folds")
        if self.fold is None or self.folds is not None:
            case = f"fold={self.fold}, folds={self.folds}"
            check_unread(self, case, "fold_key")
        if self.folds is not None and (self.fold or 0) >= self.folds:
            raise ValueError(
                f"fold is from 0 to {self.folds - 1}. Received: "
                f"fold={self.fold}, folds={self.folds}."
            )
        if self.folds is None and self.csv is None:
            check_unread(self, "folds=None", "fold")

    @property
    def fold_of_column(self) -> bool:
        """Whether a column of a CSV file says the fold of each line."""
        return self.fold is not None and self.folds is None

    def _check_source(self):
        if self.name is not None:
            parts = self.name.split("/")
            is_path = {".", ".."} & {*parts} or parts[0] in ("", "~")
            # "digits" has no configs, as data sets of tensorflow-datasets do.
            if is_path or parts[0] == "digits" != self.name:
                raise ValueError(
                    "name is that of a data set, and no path. Received: "
                    f"name={self.name!r}. Set folder for images in a folder, "
                    "csv for a table, shards for tar or parquet files."
                )
            if self.name == "digits":
                # A recipe of several data sets has one data_dir for all.
                check_unread(self, 'name="digits"', *KEYS)
        for source, unread in UNREAD.items():
            value = getattr(self, source)
            if value is not None:
                check_unread(self, f"{source}={value!r}", *unread)


@dataclasses.dataclass(frozen=True)
class PreprocessingConfig:
    """How decoded images are cropped and resized to the size of the model.

    Images stay in [0, 255]; the model scales them itself.

    The names are those of big_vision's `pp/ops_image.py`, whose arithmetic
    this is: "inception_crop" cuts `least_area` to all of the area at a ratio
    of 3/4 to 1.33; "resize_small" scales the shorter side to `resize_size`;
    "resize" and "squash" scale both sides, whatever the ratio; "random_crop"
    and "central_crop" then cut out the image size.

    Raises:
        ValueError: for unknown names.

    Example:
        >>> PreprocessingConfig(evaluation="squash", rounding="float32")
        ... # What vision_transformer evaluates with.
    """

    train: str = "inception_crop"
    """Crop of training images: "inception_crop", "resize_small_random_crop",
    "resize_random_crop", "resize_small_central_crop", "resize_central_crop"
    or "squash"."""

    evaluation: str = "resize_small_central_crop"
    """Crop of evaluation images: "resize_small_central_crop" (big_vision),
    "squash" (vision_transformer), "resize_central_crop" (few-shot);
    "shorter_side_crop", "both_sides_crop" and "longer_side_pad"
    (transformers); "cover_crop", "stretch_crop" and "contain_pad" ("center",
    "squash" and "border" of timm); "central_crop", which resizes nothing;
    "aspect_crop" (Keras) cuts to the ratio first. What a crop of the last
    eight is larger than the image is filled up."""

    least_area: float | None = None
    """The smallest share of an image's area that "inception_crop" cuts out;
    0.05 as in big_vision if not given, 0.2 for mae (arXiv:2111.06377,
    appendix A.1) and 0.67 for its SimMIM (arXiv:2111.09886, section 4.1)."""

    flip: bool = True
    """Whether half of the training images are mirrored, at random."""

    resize_size: int | tuple[int, int] | None = None
    """Size before a random or central crop, in pixels, one side or [height,
    width]. If not given, 256 for images of 224, 448 for 384, else 8/7 of the
    image size; the image size of a crop that fills up. "inception_crop",
    "squash", "central_crop" and "aspect_crop" have none."""

    resize_method: str | None = None
    """Resampling: "bilinear", "bicubic", "area", "lanczos3", "nearest", "box"
    or "hamming"; as the originals, "bilinear" and for resize_small "area", if
    not given."""

    antialias: bool = False
    """Whether bilinear and bicubic average over all pixels when an image gets
    smaller; the originals do not."""

    rounding: str = "uint8"
    """"uint8" rounds down after resizing, as big_vision does; "float32"
    keeps fractions, as vision_transformer does; "nearest" rounds after each
    axis, as Pillow and so transformers and timm do."""

    padding_colour: tuple[int, ...] | None = None
    """What a crop that fills up fills with, a level of each channel; 0 if not
    given."""

    def __post_init__(self):
        check_types(self)
        check_choice("train", self.train, CROPS)
        check_choice("evaluation", self.evaluation, EVALUATION_CROPS)
        check_choice("resize_method", self.resize_method, (None, *METHODS))
        check_choice("rounding", self.rounding, ROUNDINGS)
        if self.evaluation not in FILLING:
            check_unread(
                self, f"evaluation={self.evaluation!r}", "padding_colour"
            )
        if self.resize_size is not None:
            self._check_resize_size()
        if self.train in UNSIZED and self.evaluation in UNSIZED:
            case = f"train={self.train!r} and evaluation={self.evaluation!r}"
            check_unread(self, case, "resize_size")
        if self.train != "inception_crop":
            check_unread(self, f"train={self.train!r}", "least_area")
        if self.least_area is not None and not 0 < self.least_area <= 1:
            raise ValueError(
                "least_area is a share of the area of an image, above 0 and at "
                f"most 1. Received: least_area={self.least_area!r}. 0.05 is "
                "usual, and 0.2 for mae."
            )

    def _check_resize_size(self):
        given = self.resize_size
        sides = given if isinstance(given, (list, tuple)) else (given or 0,) * 2
        if not all(0 < x <= MAX_SIDE for x in sides):
            raise ValueError(
                "resize_size is one side or (height, width), of 1 to "
                f"{MAX_SIDE:,} pixels. Received: resize_size={given!r}."
            )
        if isinstance(given, list):
            object.__setattr__(self, "resize_size", tuple(given))


def options_before(options: Mapping) -> dict:
    """Return what options of a run were that did not exist when it began.

    Args:
        options: the "data" of its config.yaml.
    """
    found = {**OPTIONS_BEFORE, **(OF_CSV_BEFORE if options.get("csv") else {})}
    return {name: x for name, x in found.items() if name not in options}


def data_of_run(run: Mapping, **changes) -> DataConfig:
    """Return the data of a run, by the content of its config.yaml.

    An option that is missing there, in the file of an earlier version, is what
    it was before it could be chosen.

    Args:
        run: the config.yaml as `keras_vit.io.run_folder.read_config` reads it.
        **changes: fields that are to be otherwise here, as `reader`.

    Raises:
        ValueError: for options that there are not, or of wrong values.

    Example:
        >>> data_of_run({"data": {"folder": "flowers"}}).split_by
        'position'
    """
    options = run.get("data") or {}
    try:
        return DataConfig(**{**options, **options_before(options), **changes})
    except TypeError as error:
        raise ValueError(f"data in the config of the run: {error}") from error


def evaluation_of(
    trained_as: TrainedAs, image_size: tuple[int, int] | None = None
) -> PreprocessingConfig:
    """Return how images are prepared for a model in an evaluation.

    Args:
        trained_as: what the model was trained on.
        image_size: (height, width) of the model; at another size than its own
            images are resized in proportion before a crop.

    Raises:
        ValueError: when the source prepares them in a way that is not known
            here.
    """
    if trained_as.obstacle:
        raise ValueError(trained_as.obstacle)
    fields = dict(trained_as.preprocessing)
    own, before = trained_as.image_size, fields.get("resize_size")
    if before is not None and own and image_size not in (None, own):
        crop = fields.get("evaluation")
        if np.ndim(before) and crop not in BY_SHORTER_SIDE:
            ratio = np.divide(image_size, own)
        else:  # One side, which the longer side of the image has to fit.
            before, ratio = np.min(before), max(image_size) / max(own)
        sides = np.floor(np.multiply(before, ratio) + 1e-6).astype(int)
        fields["resize_size"] = (
            tuple(sides.tolist()) if sides.ndim else int(sides)
        )
    return preprocessing_in(fields, trained_as.source or "the model")


def preprocessing_in(fields: Mapping, place: str) -> PreprocessingConfig:
    """Make the config of fields in a file; a ValueError names the place."""
    try:
        return PreprocessingConfig(**fields)
    except TypeError as error:
        raise ValueError(f"preprocessing in {place}: {error}") from error


# The first part of the name of data that were given in Python, opened.
GIVEN = "given"
# Data sets by name that are none of tensorflow-datasets.
WITHOUT_TENSORFLOW = ("digits", "hf:", GIVEN)


def chosen_reader(reader: str, begun: str | None = None) -> str:
    """Return the reader that "auto" stands for; any other as it is.

    Args:
        reader: one of `READERS`.
        begun: what read the images of a run; "auto" keeps it if it is here.

    Example:
        >>> chosen_reader("auto")
        'tensorflow'
    """
    check_choice("reader", reader, READERS)
    if reader != "auto":
        return reader
    if begun == "pillow":
        return begun
    found = importlib.util.find_spec("tensorflow") is not None
    return "tensorflow" if found else "pillow"


def data_packages(
    config: DataConfig, sources: Container[str] = ()
) -> tuple[str, ...]:
    """List the modules that the images of a config need besides Pillow.

    Args:
        config: a `DataConfig`.
        sources: first parts of names whose functions check for themselves.

    Example:
        >>> data_packages(DataConfig(folder="flowers", reader="pillow"))
        ()
    """
    base = (config.name or "").split("/")[0]
    if base and base not in WITHOUT_TENSORFLOW and base not in sources:
        return ("tensorflow", *EXTRAS["data"])
    return ("tensorflow",) if config.reader == "tensorflow" else ()


def hide_accelerators(reader: str) -> None:
    """Hide the GPUs from TensorFlow where another backend computes.

    It would take all of their memory as soon as it starts.

    Args:
        reader: what reads the images; nothing is done unless it is
            "tensorflow".

    Raises:
        ValueError: where TensorFlow is not installed.
    """
    import keras

    if reader != "tensorflow" or keras.backend.backend() == "tensorflow":
        return
    check_installed("Reading images with TensorFlow", "tensorflow")
    import tensorflow as tf

    try:
        tf.config.set_visible_devices([], "GPU")
    except RuntimeError:
        pass  # It has started; its devices cannot be changed any more.
