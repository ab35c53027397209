"""Opens a file or folder of weights and recognises whose it is.

The names of the tensors tell it, and the config.json beside them.
"""

import dataclasses
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from keras_vit.checkpoints.dialects import LAYOUTS
from keras_vit.checkpoints.engine.layout import (
    TRANSFORMS,
    Dialect,
    Facts,
    Layout,
    Row,
    listed,
    matches,
    paths_of,
    row_of,
)
from keras_vit.checkpoints.files.config_values import ACTIVATIONS, read_json
from keras_vit.checkpoints.files.folders import (
    ADAPTED,
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    CONFIG,
    MERGE,
    RECORD,
    WEIGHT_FILES,
    open_adapter,
    open_shards,
    read_shared,
)
from keras_vit.checkpoints.files.npz import open_npz
from keras_vit.checkpoints.files.safetensors import open_safetensors
from keras_vit.checkpoints.files.tensors import (
    DAMAGED,
    TensorFile,
    check_dtype,
    read_told,
    refuse,
    refusing,
    split_stacks,
)
from keras_vit.trained_as import TrainedAs

__all__ = [
    "OPENERS",
    "Checkpoint",
    "dialects",
    "kind_of",
    "open_file",
    "open_folder",
    "recognise",
]


# What is said of a model whose source does not say how images are prepared.
USUAL = (
    "its source does not say how images are resized and cropped; they are "
    "prepared as is usual for its publisher"
)


@dataclasses.dataclass
class Checkpoint:
    """A recognised file; its arrays are read on demand.

    Args:
        file: the `TensorFile`, its names those of the layout's table.
        layout: the `Layout` that the names belong to.
        features: set of str, the variants of the table that hold here.
        rows: dict from our path to its `Row`.
        dropped: names in the file that hold no weight of the model.
        other_head: of these, the names of a head that the models here do not
            have, which is left out where no head of the file is wanted.
        dense_head: rows of that head as two dense layers, where it is that:
            what is between them, nothing in the file shows.
        is_stacked: bool, whether the file stacks its blocks.
        fields: dict, the config of the model that it holds, from `configure`
            or from the file itself; empty before that.
        facts: `Facts` for the transforms, with the fields.
        grid: (rows, columns) of the patches, None without positions.
        notes: list of str, what was assumed because the file cannot tell.
        known: what the model was trained on, where it is not the file's.
    """

    file: TensorFile
    layout: Layout
    features: set
    rows: dict
    dropped: list
    other_head: tuple = ()
    dense_head: dict = dataclasses.field(default_factory=dict)
    is_stacked: bool = False
    fields: dict = dataclasses.field(default_factory=dict)
    facts: Facts = Facts()
    grid: tuple | None = None
    notes: list = dataclasses.field(default_factory=list)
    known: TrainedAs | None = None

    def with_dense_head(self) -> "Checkpoint":
        """Return this with the two dense layers of its head as ours."""
        names = {*self.other_head}
        return dataclasses.replace(
            self,
            rows={**self.rows, **self.dense_head},
            dropped=[x for x in self.dropped if x not in names],
            other_head=(),
            dense_head={},
        )

    @property
    def trained_as(self) -> TrainedAs:
        """What the model was trained on, or what is usual for its publisher."""
        found = self.known or self.file.trained_as
        if found.preprocessing or found.obstacle:
            return found
        usual = self.layout.dialect.usual_images(self.layout, self.fields)
        assumed = (*found.assumed, USUAL)
        return found.but(**{"assumed": assumed, **usual})

    def use_feature(self, feature: str) -> None:
        """Take the rows of one more variant of the layout's table."""
        self.features = self.features | {feature}
        table = self.layout.rows(self.features)
        for path in self.rows:
            if row := row_of(path, table):
                self.rows[path] = row

    def shape_of(self, path: str, facts: Facts) -> tuple:
        """Return the shape of a weight, in our layout, without reading it."""
        row = self.rows[path]
        # One byte repeated: transforms of it take next to no memory.
        arrays = [
            np.broadcast_to(np.uint8(0), self.file.tensors[name].shape)
            for name in row.names
        ]
        return self._transformed(row, arrays, facts).shape

    def checked_shape(
        self, path: str, rank: int, facts: Facts | None = None
    ) -> tuple:
        """Return the shape of a weight that must be there and be of a rank."""
        if path not in self.rows:
            refuse(self.file.path, f"has no weight for {path}", DAMAGED)
        found = self.shape_of(path, facts or Facts())
        if len(found) != rank or 0 in found:
            refuse(
                self.file.path,
                f"has shape {found} in our layout, expected {rank} sizes "
                "above 0",
                DAMAGED,
                ", ".join(self.rows[path].names),
            )
        return found

    def read(self, path: str, facts: Facts) -> np.ndarray:
        """Read one weight as float32, in our layout."""
        row = self.rows[path]
        arrays = [self.file.read(name) for name in row.names]
        return self._transformed(row, arrays, facts)

    def _transformed(self, row, arrays, facts):
        try:
            return TRANSFORMS[row.transform].load(arrays, facts)
        except (ValueError, IndexError) as error:
            shapes = {name: self.file.tensors[name].shape for name in row.names}
            raise ValueError(
                f"{self.file.path!r}: the shapes {shapes} are not those of a "
                f"{self.layout.name} file ({error}). Check that num_heads="
                f"{facts.num_heads} is right, or fetch the file again."
            ) from error


DOWNLOAD = "Fetch it again, and look at what the server sent."
PICKLE = (
    "Unpickling runs code of the file's author, so it is not done. Where you "
    "trust it, convert it: safetensors.torch.save_file(torch.load(path, "
    'weights_only=True), "model.safetensors"), of a file with more than '
    "tensors its state_dict."
)
MODEL_FIRST = "Give the model, and then the pictures."
MAGIC = {b"PK\x03\x04": "zip", b"\x89HDF\r\n\x1a\n": "h5"}
# How other files begin: what they are, what to do about it.
REFUSED = {
    b"<": ("a web page, not a file of weights", DOWNLOAD),
    b"{": ("JSON, not a file of weights", DOWNLOAD),
    b"version https://": (
        "a pointer of Git LFS, not the file itself",
        DOWNLOAD,
    ),
    b"\x80": ("a Python pickle", PICKLE),
    b"\x1f\x8b": ("compressed by gzip", "Unpack it."),
    b"GGUF": (
        "a GGUF file, whose tensors were made for another program",
        "Take the safetensors of the model that it was made from.",
    ),
    b"\x08": (
        "a protobuf, such as an ONNX model",
        "Take the weights that it was exported from.",
    ),
    b"PK": ("an empty or damaged zip archive", DOWNLOAD),
    b"\x89PNG": ("a picture, not a file of weights", MODEL_FIRST),
    b"\xff\xd8\xff": ("a picture, not a file of weights", MODEL_FIRST),
}
# What the package writes besides weights: its tensors, and where they belong.
WRITTEN = {
    frozenset({"files", "metadata", "vectors"}): (
        "holds embeddings of images, and no weights",
        "Give it to `keras-vit search`, or the model that they are of.",
    ),
    frozenset({"names", "metadata", "vectors"}): (
        "holds embeddings of classes, and no weights",
        "Give it as --labels, and the model that they are of.",
    ),
}


def kind_of(path) -> str:
    """Recognise the kind of a file or folder by its first bytes.

    Returns:
        "folder", "npz", "safetensors", "h5" or "keras".

    Raises:
        ValueError: for other kinds, with their name where it is known.
        OSError: when the file cannot be opened.
    """
    path = Path(path)
    if path.is_dir():
        return "folder"
    with path.open("rb") as file:
        start = file.read(16)
    for magic, kind in MAGIC.items():
        if start.startswith(magic):
            return _kind_of_zip(path) if kind == "zip" else kind
    if start[8:9] == b"{" or path.suffix == ".safetensors":
        return "safetensors"
    for magic, (what, cure) in REFUSED.items():
        if start.lstrip().startswith(magic):
            refuse(path, f"is {what}", cure)
    what = f"begins with {start[:8]!r}, which no file of weights does"
    refuse(path, what if start else "is empty", DOWNLOAD)


def _kind_of_zip(path):
    with refusing(path, "the file"), zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    if "model.weights.h5" in names:
        return "keras"
    if any(name.endswith("data.pkl") for name in names):
        refuse(path, "is a Python pickle of torch", PICKLE)
    return "npz"


def dialects() -> tuple[Dialect, ...]:
    """Return the publishers of all layouts."""
    return tuple({x.dialect.name: x.dialect for x in LAYOUTS}.values())


def open_folder(path) -> TensorFile:
    """Open a folder with `config.json` and safetensors, or a publisher's own.

    Raises:
        ValueError: for a folder without weights, an index that names files
            outside of it, or a config that is none.
        OSError: when a file cannot be opened.
    """
    path = Path(path)
    for dialect in dialects():
        if found := dialect.open_folder(path):
            return dataclasses.replace(found, adapter=_adapter(path))
    dialect, content, fields = _read_config(path)
    tensors, metadata = {}, _words_of_config(content)
    known = TrainedAs()
    for part in open_shards(path):
        tensors |= part.tensors
        metadata |= part.metadata
        fields = _agreed(path, fields, part.config)
        known = part.trained_as if known == TrainedAs() else known
    told = read_told(metadata)
    known = _trained_as(path, dialect, content, known, told)
    dialect.check_config(path / CONFIG, content, tensors)
    notes = dialect.folder_notes(path, fields)
    file = TensorFile(
        str(path), tensors, fields, metadata, notes, known, _adapter(path)
    )
    return dataclasses.replace(file, publisher=dialect.name)


def open_file(path) -> TensorFile:
    """Open a `.safetensors` file, with the config.json that is beside it.

    Only under a name that it has in such a folder: another may be of another
    model than its neighbour.

    Raises:
        ValueError: when the header does not describe the file, or the config
            does not describe a model.
        OSError: when it cannot be opened.
    """
    path, file = Path(path), open_safetensors(path)
    if path.name not in WEIGHT_FILES:
        return file
    file = dataclasses.replace(file, adapter=_adapter(path.parent))
    dialect, content, fields = _read_config(path.parent)
    known = _trained_as(
        path.parent, dialect, content, file.trained_as, read_told(file.metadata)
    )
    if dialect is NOBODY:
        return dataclasses.replace(file, trained_as=known)
    fields = _agreed(path.parent, fields, file.config)
    dialect.check_config(path.parent / CONFIG, content, file.tensors)
    return dataclasses.replace(
        file,
        publisher=dialect.name,
        trained_as=known,
        config=fields,
        metadata={**_words_of_config(content), **file.metadata},
        notes=dialect.folder_notes(path.parent, fields),
    )


NOBODY = Dialect("nobody known")


def _read_config(path) -> tuple[Dialect, dict, dict]:
    """Read a config.json: whose it is, its content, and our fields of it."""
    config = path / CONFIG
    if not config.is_file():
        return NOBODY, {}, {}
    content = read_json(config)
    for dialect in dialects():
        if dialect.is_config(content):
            fields = dialect.read_config(config, content)
            scaling = dialect.read_preprocessing(path, content)
            return dialect, content, {**fields, **scaling}
    return NOBODY, content, {}


def _trained_as(path, dialect, content, recorded, told) -> TrainedAs:
    """Read what the model in a folder was trained on.

    The record of this package, in a file beside the weights or in their
    header, knows all of it. The files of others win where they are not as they
    were written with that header.
    """
    if (path / RECORD).is_file():
        return read_shared(path / RECORD)
    found = dialect.read_trained_as(path, content)
    if not found:
        return recorded
    if recorded.preprocessing and TrainedAs(**found).to_fields() == told:
        return recorded
    return recorded.but(source=str(path), **found)


# Keys of a config.json that name the model, for messages.
NAMING = ("architecture", "model_type", "architectures")


def _words_of_config(content) -> dict:
    """Return what a config.json calls its model, for messages."""
    says = {x: str(content[x])[:100] for x in NAMING if content.get(x)}
    return {CONFIG: says} if says else {}


def _agreed(path, fields, record) -> dict:
    """Join the fields of a config.json and those of the record in the weights.

    The record tells more. Where both tell, they have to agree, so that a
    config.json that somebody edited is not ignored.
    """
    for name in ("num_heads", "activation", "layer_norm_epsilon"):
        known = record.get(name, fields.get(name))
        if name == "activation":
            known = ACTIVATIONS.get(known, known)
        if name in fields and fields[name] != known:
            refuse(
                path,
                f"has {name}={fields[name]}, but the weights beside it were "
                f"written with {name}={known}",
                "Restore it, or write the weights anew.",
            )
    return fields | record


OPENERS = {
    "folder": open_folder,
    "npz": open_npz,
    "safetensors": open_file,
}

# What training leaves in a file beside the model, without influence on it.
LEFTOVERS = re.compile(
    r"(?:.*\.)?(?:n_averaged|num_updates|initted)"
    r"|(?:.*\.)?(?:criterion|loss|loss_fn|dino_loss|ibot_patch_loss)\..*"
    r"|(?:optimi[sz]ers?|optim|(?:lr_)?schedulers?|(?:\w+_)?scaler)(?:[._/].*)?"
    r"|epoch|step|global_step|iteration|best_\w+|args(?:\..*)?"
    # Heads of self-distillation.
    r"|(?:.*\.)?(?:dino|ibot)_head\..*"
)
TOP = re.compile(r"[^./]+[./]")
MAX_DEPTH = 6  # of wrappers around a model
MAX_SEARCHED = 5000  # tensors of a part in which a model is looked for


class Part(NamedTuple):
    """A model inside a file: what stands before its names, and its layout."""

    prefix: str
    layout: Layout
    tensors: dict
    """Under the names of the layout's table."""

    @property
    def wrapper(self) -> str:
        """Return the prefix without its last name."""
        return re.sub(r"[^./]+[./]$", "", self.prefix)


def recognise(
    file: TensorFile, prefix: str = "", layouts: tuple = ()
) -> Checkpoint:
    """Find the layout of a file by the names in it.

    Whatever stands in front of all names of the model is left away, and what
    training leaves in files beside it.

    Args:
        file: an opened file.
        prefix: str, what stands before the names of the model to take, such
            as "img" or "teacher.backbone", in a file of several.
        layouts: the `Layout`s that it may have, by default of images.

    Raises:
        ValueError: for an unknown layout, for tensors that the layout does
            not know, for weights of which a part is missing, and for several
            models without a prefix.
    """
    layouts = layouts or LAYOUTS
    _check_no_adapter(file)
    tensors, outside = _under(file, prefix)
    leftovers = [x for x in tensors if LEFTOVERS.fullmatch(x)]
    for name in leftovers:
        del tensors[name]
    outside += leftovers
    parts = list(_parts_of(file, tensors, layouts))
    if not parts:
        _refuse_unknown(file, layouts)
    rests = [[x for x in tensors if not x.startswith(y.prefix)] for y in parts]
    whole = [
        i
        for i, (part, rest) in enumerate(zip(parts, rests, strict=True))
        if not _strangers(part, rest)
    ]
    chosen = whole if len(parts) > 1 else [0]
    if len(chosen) != 1:
        _refuse_several(file, parts)
    part, rest = parts[chosen[0]], rests[chosen[0]]
    if file.adapter:
        file, part = _adapted(file, part)
    if leftovers:
        note = (
            f"{len(leftovers)} tensors are of training and no part of the "
            f"model: {listed(leftovers)}"
        )
        file = dataclasses.replace(file, notes=(*file.notes, note))
    return _checkpoint(file, part, rest, outside)


def _check_no_adapter(file) -> None:
    """Refuse names that an adapter alone has, or a model around its layers."""
    if found := [x for x in file.tensors if ADAPTED.fullmatch(x)]:
        refuse(
            file.path,
            f"holds an adapter ({found[0]} and {len(found) - 1} more), whose "
            "scale is not in the file",
            f"Put {ADAPTER_CONFIG} and {ADAPTER_WEIGHTS} into the folder of "
            f"the model that it was trained for, and load that. Or: {MERGE}",
        )


def _adapter(folder):
    """Return the adapter in a folder, None where there is none."""
    here = (folder / ADAPTER_CONFIG).is_file()
    return open_adapter(folder) if here else None


def _adapted(file, part) -> tuple[TensorFile, Part]:
    """Return both with the adapter that is beside the file."""

    def rename(name):
        return _renamed(name.removeprefix(part.prefix), part.layout)

    changed = file.adapter.merged(part.tensors, rename)
    whole = [rename(x) for x in file.adapter.whole]
    note = (
        f"the adapter beside it is merged: LoRA of {len(file.adapter.factors)} "
        f"layers, and in place of the file's {listed(whole)}"
    )
    file = dataclasses.replace(file, notes=(*file.notes, note))
    return file, Part(part.prefix, part.layout, changed)


def _under(file, prefix) -> tuple[dict, list]:
    """Return the tensors behind a prefix that somebody gave, and the others.

    Wrappers may stand in front of it.
    """
    if not prefix:
        return dict(file.tensors), []
    wanted = re.compile(
        rf"((?:.*?[./])??){re.escape(prefix.strip('./'))}[./](.+)"
    )
    found = {x: y for x in file.tensors if (y := wanted.fullmatch(x))}
    if not found:
        tops = sorted({(TOP.match(x) or [x])[0] for x in file.tensors})
        refuse(
            file.path,
            f"has no part {prefix!r}",
            f"At the top it holds {tops[:20]}.",
        )
    wrapper = min((x[1] for x in found.values()), key=len)
    inside = {
        match[2]: file.tensors[name]
        for name, match in found.items()
        if match[1] == wrapper
    }
    names = {x for x, match in found.items() if match[1] == wrapper}
    return inside, [x for x in file.tensors if x not in names]


def _parts_of(file, tensors, layouts, prefix="", depth=0) -> Iterator[Part]:
    """Find the models in a file, behind as few names as possible."""
    # Two publishers may have the same names: a config tells whose they are.
    order = sorted(
        layouts,
        key=lambda x: (not x.is_specific, x.dialect.name != file.publisher),
    )
    for layout in order:
        renamed, twice = _with_aliases(tensors, layout)
        if any(set(mark) <= set(renamed) for mark in layout.marks):
            if twice:
                refuse(
                    file.path,
                    "is there under two names",
                    "Expected each tensor once: the file was put together "
                    "wrongly.",
                    twice,
                )
            yield Part(prefix, layout, renamed)
            return
    if depth == MAX_DEPTH:
        return
    inner: dict = {}
    for name, tensor in tensors.items():
        if top := TOP.match(name):
            inner.setdefault(top[0], {})[name[top.end() :]] = tensor
    for top, found in inner.items():
        if len(found) <= MAX_SEARCHED:
            inside = prefix + top
            yield from _parts_of(file, found, layouts, inside, depth + 1)


def _strangers(part, rest) -> list:
    """List tensors outside of a part that its layout does not leave out."""
    ends = [0, *(x.end() for x in re.finditer(r"[./]", part.prefix))]
    wrappers = [part.prefix[:end] for end in ends]
    known = (*part.layout.ignored, *part.layout.beside)
    return [
        name
        for name in rest
        if not any(
            name.startswith(x) and matches(name.removeprefix(x), known)
            for x in wrappers
        )
    ]


def _refuse_several(file, parts) -> NoReturn:
    shown = ", ".join(repr(x.prefix) for x in parts[:20])
    refuse(
        file.path,
        f"holds {len(parts)} models, with {shown} in front of their names",
        f"Choose one, such as prefix={parts[0].prefix!r}.",
    )


def _refuse_unknown(file, layouts) -> NoReturn:
    if written := WRITTEN.get(frozenset(file.tensors)):
        refuse(file.path, *written)
    shown = ", ".join(list(file.tensors)[:5]) or "nothing"
    says = file.metadata.get(CONFIG)
    refuse(
        file.path,
        f"is of no known format: it holds {len(file.tensors)} tensors "
        f"({shown[:300]} ...)"
        + (f", and its config.json says {says}" if says else ""),
        f"Known are {', '.join(sorted({x.name for x in layouts}))} and "
        "Keras's own files. Is it another model's, or a file of the "
        "optimiser?",
    )


def _with_aliases(tensors, layout) -> tuple[dict, str]:
    """Return the tensors under the names of the layout's table.

    And a name that two of them get, "" where there is none.
    """
    renamed, twice = {}, ""
    for name, tensor in tensors.items():
        name = _renamed(name, layout)
        if name in renamed:
            twice = name
        renamed[name] = tensor
    return renamed, twice


def _renamed(name, layout) -> str:
    for pattern, replacement in layout.aliases:
        if match := re.fullmatch(pattern, name):
            name = match.expand(replacement)
    return name


def _checkpoint(file, part, rest, outside) -> Checkpoint:
    """Map the tensors to weights, and refuse what does not fit.

    Args:
        file: the file.
        part: of it, the model.
        rest: names beside the part, of which the layout has to know what to
            leave out.
        outside: names that are left out in any case.
    """
    layout = part.layout
    tensors, is_stacked = split_stacks(file.path, part.tensors, layout.stacks)
    inside = dataclasses.replace(file, tensors=tensors)
    ignored = [x for x in tensors if matches(x, layout.ignored)]
    beside = _strangers(part, rest)
    head = [
        x for x in beside if HEADS_BESIDE.match(x.removeprefix(part.wrapper))
    ]
    strangers = [x for x in beside if x not in head]
    features = _features_of(tensors, layout)
    names = [name for name in tensors if name not in ignored]
    rows, unknown = paths_of(names, layout.rows(features))
    head += [
        x
        for x in unknown
        if HEADS.match(x) and not matches(x, layout.unsupported)
    ]
    unknown = [x for x in unknown if x not in head]
    found = _rows_of_head(head, tensors, rows, layout)
    if len(found) == len(HEAD):
        rows, head = {**rows, **found}, []
    if _is_half_head(rows, layout.rows(features)):
        kernel = rows.get(HEAD[0])
        if kernel and kernel.transform == "linear":
            rows[HEAD[1]] = Row(kernel.names, "no_bias")
        else:
            head += [y for x in HEAD if x in rows for y in rows[x].names]
    if head:
        rows = {x: y for x, y in rows.items() if x not in HEAD}
    missing = [
        name
        for row in rows.values()
        for name in row.names
        if name not in tensors
    ]
    missing += _missing_of_pairs(rows, layout)
    _refuse_unsupported(file, layout, unknown)
    if missing or strangers or unknown:
        refuse(
            file.path,
            f"does not fit as a {layout.name} file. Missing: "
            f"{listed(missing)}. Unused: {listed(unknown + strangers)}",
            "Loading it in part would give a model that looks right and is "
            f"not. {_taken_for(layout, tensors)}; "
            f"{_cure(file, missing, strangers and part.prefix)}",
        )
    for row in rows.values():
        for name in row.names:
            check_dtype(file.path, name, tensors[name].dtype)
    dropped = ignored + outside + [x for x in rest if x not in beside] + head
    return Checkpoint(
        inside,
        layout,
        features,
        rows,
        dropped,
        tuple(head),
        found if head else {},
        is_stacked,
    )


HEAD = ("predictions/kernel", "predictions/bias")
REPRESENTATION = ("pre_logits/kernel", "pre_logits/bias")
# What people call the layers that they put in the place of a head.
HEADS = re.compile(r"(?:\w+_)?(?:heads?|fc|classifier|linear|last_layer)\.")
HEADS_BESIDE = re.compile(rf"{HEADS.pattern}|\d+\.")


def _is_half_head(rows, table) -> bool:
    """Return whether a kernel is without its bias, or the other way round."""
    kernel, bias = (table.get(x, ("", ""))[0] for x in HEAD)
    pairs = isinstance(kernel, str) and isinstance(bias, str)
    pairs = (
        pairs
        and re.split(r"[./]", kernel)[:-1] == (re.split(r"[./]", bias)[:-1])
    )
    return bool(bias) and pairs and len({*rows} & {*HEAD}) == 1


def _rows_of_head(names, tensors, rows, layout) -> dict:
    """Return the rows of one or two dense layers where the layout has its head.

    Layers without weights may be around them, such as dropout. One without a
    bias has a bias of zeros.
    """
    own, _ = layout.table.get(HEAD[0], ("", ""))
    if not isinstance(own, str) or not {*rows}.isdisjoint(HEAD):
        return {}
    kernels = [x for x in names if x.endswith(".weight") and x in tensors]
    order = {x: [int(y) for y in re.findall(r"\d+", x)] for x in kernels}
    kernels.sort(key=order.__getitem__)
    # Names without numbers do not say which layer is the first.
    if len({*map(tuple, order.values())}) < len(kernels) or not (
        1 <= len(kernels) <= 2
    ):
        return {}
    found, size = {}, None
    layers = (REPRESENTATION, HEAD)[-len(kernels) :]
    for paths, kernel in zip(layers, kernels, strict=True):
        bias = kernel.removesuffix("weight") + "bias"
        shape = tensors[kernel].shape
        is_dense = (
            kernel.split(".")[0] == own.split(".")[0]
            and len(shape) == 2
            and size in (None, shape[1])
            and (bias not in names or tensors[bias].shape == shape[:1])
        )
        if not is_dense:
            return {}
        size = shape[0]
        has_bias = bias in names
        dense = (
            Row((kernel,), "linear"),
            Row((bias,), "same") if has_bias else Row((kernel,), "no_bias"),
        )
        found |= dict(zip(paths, dense, strict=True))
    used = {name for row in found.values() for name in row.names}
    return found if used == {*names} else {}


def _missing_of_pairs(rows, layout) -> list:
    """List the kernel or bias that a layer before the head lacks."""
    pair = {"pre_logits/kernel", "pre_logits/bias"}
    if not pair <= {*layout.table} or not pair & {*rows}:
        return []
    return [f"what is {path} here" for path in pair - {*rows}]


FAMILIES = {
    "vit": "a Vision Transformer",
    "mixer": "an MLP-Mixer",
    "bit": "a BiT",
    "text": "a tower of texts",
}


def _taken_for(layout, tensors) -> str:
    marks = next(x for x in layout.marks if set(x) <= set(tensors))
    return (
        f"It is taken for {FAMILIES[layout.family]} in {layout.name} format "
        f"because it holds {' and '.join(marks)}"
    )


def _cure(file, missing, prefix) -> str:
    if prefix and not missing:
        return f"prefix={prefix!r} loads it and leaves out what is beside it."
    says = file.metadata.get("config.json")
    quoted = f" (its config.json says {says})" if says else ""
    cause = (
        "the file may be in order and of an architecture that the models here "
        f"do not have{quoted}"
    )
    if missing:
        return f"{cause}, or cut off: choose another, or fetch the file again."
    return f"{cause}: choose another one."


def _refuse_unsupported(file, layout, unknown):
    """Name all that the models here do not have, not only the first."""
    found = {}
    for pattern, what in layout.unsupported.items():
        names = [name for name in unknown if re.fullmatch(pattern, name)]
        if names:
            found.setdefault(what, []).extend(names)
    if not found:
        return
    named = [name for names in found.values() for name in names]
    rest = [name for name in unknown if name not in named]
    if rest:
        found["tensors of unknown use"] = rest
    obstacles = [f"{what} ({_shortly(x)})" for what, x in found.items()]
    refuse(
        file.path,
        f"holds {'; '.join(obstacles)}, which the models here do not have",
        "Without it the file's numbers would not come out, so it is not "
        "loaded: choose another file.",
    )


def _shortly(names) -> str:
    """Return one name for what is alike in all blocks."""
    alike = {re.sub(r"\d+", "*", name): name for name in reversed(names)}
    shown = [x if len(names) == len(alike) else y for y, x in alike.items()]
    return listed(shown)


def _features_of(tensors, layout) -> set:
    """Return the variants of the table that a file follows."""
    features = {x for x, name in layout.signs.items() if name in tensors}
    token = layout.table.get("class_token/token", ("", ""))[0]
    if "registers" in features and token not in tensors:
        features = features - {"registers"} | {"registers_alone"}
    return features
