"""Damaged and hostile files end in an error that names file and cure."""

import io
import pickle
import struct
import zipfile

import numpy as np
import pytest
from arrays import read_arrays
from reference_cases import path_of
from refusals import check

from keras_vit.checkpoints import load_checkpoint
from keras_vit.checkpoints.files.npz import write_npz

NPZ = path_of("vit_tiny_google")
KERNEL = "embedding/kernel"


@pytest.fixture(autouse=True, scope="module")
def warm():
    load_checkpoint(NPZ)


def npz_arrays(**changes):
    return {**read_arrays(NPZ), **changes}


def write(path, **changes):
    arrays = {k: x for k, x in npz_arrays(**changes).items() if x is not None}
    write_npz(path, arrays.items())


def truncated(path):
    path.write_bytes(NPZ.read_bytes()[:-2000])


def flipped(path):
    data = bytearray(NPZ.read_bytes())
    with zipfile.ZipFile(NPZ) as archive:
        member = archive.getinfo(f"{KERNEL}.npy")
    data[member.header_offset + 2000] ^= 0xFF
    path.write_bytes(data)


def web_page(path):
    path.write_text("<!DOCTYPE html><html>404: not found</html>")


def git_lfs(path):
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:")


def pickled(path):
    with path.open("wb") as file:
        np.savez(file, allow_pickle=True, **{KERNEL: np.array([{}], object)})


def raw_pickle(path):
    path.write_bytes(pickle.dumps({"a": 1}))


def bomb(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        buffer = io.BytesIO()
        np.save(buffer, np.zeros((25, 2**20), "float32"))
        archive.writestr("cls.npy", buffer.getvalue())


def absurd_shape(path):
    header = (
        b"{'descr': '<f4', 'fortran_order': False, "
        b"'shape': (1000000, 1000000, 1000), }"
    ).ljust(117) + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        start = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header))
        archive.writestr("cls.npy", start + header + b"\0" * 100)


def traversing(path):
    write(path, **{"../../etc/passwd": np.zeros(3, "float32")})


def not_a_number(path):
    kernel = npz_arrays()[KERNEL].copy()
    kernel[0, 0, 0, 0] = np.nan
    write(path, **{KERNEL: kernel})


def infinite(path):
    write(path, cls=np.full((1, 1, 32), np.inf, "float32"))


def integers(path):
    write(path, cls=np.zeros((1, 1, 32), "int64"))


def missing(path):
    write(path, cls=None)


def missing_block(path):
    arrays = {
        key: x for key, x in npz_arrays().items() if "encoderblock_0" not in key
    }
    write_npz(path, arrays.items())


def unused(path):
    write(path, surprise=np.zeros(3, "float32"))


def wrong_width(path):
    write(path, cls=np.zeros((1, 1, 33), "float32"))


def empty(path):
    path.touch()


def optimiser_only(path):
    write_npz(path, [("opt/state/step", np.zeros(1, "float32"))])


HOSTILE_NPZ = {
    truncated: "damaged|read",
    flipped: "embedding/kernel.*(CRC|damaged)",
    web_page: "web page",
    git_lfs: "Git LFS",
    pickled: "embedding/kernel.*pickled",
    raw_pickle: "pickle",
    bomb: "unpacks",
    absurd_shape: "cls.*(1000000|shape)",
    traversing: "outside",
    not_a_number: "embedding/kernel.*NaN",
    infinite: "cls.*infinity",
    integers: "cls.*int64.*float",
    missing: "class_token|cls",
    missing_block: "block",
    unused: "Unused: surprise",
    wrong_width: "class_token/token.*33",
    empty: "empty",
    optimiser_only: "no known format",
}


@pytest.mark.parametrize("make", HOSTILE_NPZ, ids=lambda x: x.__name__)
def test_hostile_npz(make, tmp_path):
    path = tmp_path / "weights.npz"
    make(path)
    check(path, HOSTILE_NPZ[make])


@pytest.mark.parametrize("suffix", [".keras", ".weights.h5"])
def test_rubbish_in_keras_files(suffix, tmp_path):
    model = load_checkpoint(NPZ)
    good = tmp_path / f"good{suffix}"
    (model.save if suffix == ".keras" else model.save_weights)(good)
    path = tmp_path / f"bad{suffix}"
    path.write_bytes(good.read_bytes()[:-3000])
    check(path, "bad")
