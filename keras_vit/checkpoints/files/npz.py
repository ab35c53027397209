"""`.npz` files, read and written one array at a time, without pickle."""

import warnings
import weakref
import zipfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from keras_vit.checkpoints.files.tensors import (
    DAMAGED,
    HARMFUL,
    MAX_TENSORS,
    Tensor,
    TensorFile,
    as_bfloat16,
    check_name,
    check_plausible,
    check_unpacked,
    empty,
    read_record,
    refuse,
    refusing,
)

__all__ = ["open_npz", "write_npz"]

END_OF_ARCHIVE = 22  # bytes before its comment
CHUNK = 2**18  # bytes, which stay in the cache of a core


def open_npz(path) -> TensorFile:
    """List the arrays of an `.npz` file; each is read on demand.

    bfloat16, which NumPy writes as void of 2 bytes, is read as bfloat16. The
    comment of the archive may hold a record, see `read_record`.

    Raises:
        ValueError: for a file that is damaged, too good to be true, or holds
            pickled objects.
        OSError: when the file cannot be opened.
    """
    path = Path(path)
    with refusing(path, "the file"), ExitStack() as stack:
        archive = zipfile.ZipFile(stack.enter_context(path.open("rb")))
        _check_comment(path)
        members = archive.infolist()
        _check_members(path, members)
        tensors = {}
        for member in members:
            name = member.filename.removesuffix(".npy")
            with refusing(path, "the header", name):
                tensors[name] = _tensor_of(path, archive, member, name)
        # Closed with the last of the readers, even where they are garbage in
        # a cycle, in which Python may find the file before the archive.
        weakref.finalize(archive, stack.pop_all().close)
    fields, known = read_record(path, archive.comment)
    return TensorFile(str(path), tensors, fields, trained_as=known)


def _check_comment(path) -> None:
    """Raise a ValueError unless the comment, our record, is there as a whole.

    It is the last of a zip archive, and zipfile takes what is left of it.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - END_OF_ARCHIVE - 2**16))
        tail = file.read()
    place = tail.rfind(b"PK\5\6")
    length = int.from_bytes(tail[place + 20 : place + 22], "little")
    if place + END_OF_ARCHIVE + length != len(tail):
        refuse(path, "ends within its record, or goes on after it", DAMAGED)


def _check_members(path, members) -> None:
    """Raise a ValueError for duplicates, bombs, encryption, bad names."""
    names = [member.filename for member in members]
    packed = sum(member.compress_size for member in members)
    size = path.stat().st_size
    if len(names) > MAX_TENSORS:
        refuse(
            path,
            f"holds {len(names):,} arrays, where at most {MAX_TENSORS:,} are "
            "read",
            HARMFUL,
        )
    if len(set(names)) < len(names):
        refuse(path, "holds the same name twice", HARMFUL)
    if packed > size:
        refuse(path, f"packs {packed} bytes into {size}", HARMFUL)
    check_unpacked(path, size, sum(member.file_size for member in members))
    for name in names:
        check_name(path, name)
        if not name.endswith(".npy"):
            refuse(
                path,
                "is no array of NumPy",
                "Expected a file that numpy.savez wrote.",
                name,
            )


def _tensor_of(path, archive, member, name) -> Tensor:
    """Read the header of one member."""
    with archive.open(member) as file:
        shape, fortran_order, dtype, offset = _read_header(file)
    if dtype.hasobject:
        refuse(
            path,
            "is an array of pickled Python objects",
            "Unpickling runs code of the file's author, so it is not done: "
            "save arrays of numbers.",
            name,
        )
    check_plausible(path, name, shape, dtype, member.file_size - offset)
    filename = member.filename

    def read():
        with archive.open(filename) as file:
            file.read(offset)
            return _read_array(file, shape, fortran_order, dtype)

    return Tensor(shape, as_bfloat16(dtype), read)


def _read_header(file):
    """Read (shape, fortran_order, dtype, bytes) of the header of a `.npy`."""
    version = np.lib.format.read_magic(file)
    reader = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    with warnings.catch_warnings():
        # NumPy warns of headers that Python 2 wrote; it reads them well.
        warnings.simplefilter("ignore")
        shape, fortran_order, dtype = reader(file)
    return shape, fortran_order, dtype, file.tell()


def _read_array(file, shape, fortran_order, dtype) -> np.ndarray:
    """Read what follows a header; the zip's checksum is checked."""
    array = empty(shape, dtype, order="F" if fortran_order else "C")
    flat = array.reshape(-1, order="A").view(np.uint8)
    done = 0
    while done < flat.size:
        chunk = file.read(min(CHUNK, flat.size - done))
        if not chunk:
            raise EOFError(f"ends after {done} of {flat.size} bytes")
        flat[done : done + len(chunk)] = np.frombuffer(chunk, np.uint8)
        done += len(chunk)
    if file.read(1):  # the checksum is compared at the very end
        raise EOFError("goes on after its last number")
    return array.view(as_bfloat16(dtype)) if dtype.kind == "V" else array


def write_npz(path, arrays: Iterable, record: str = "") -> None:
    """Write pairs of name and array as an uncompressed `.npz` file.

    The record becomes the comment of the archive, which `numpy.load` does not
    look at.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = record.encode()
        for name, array in arrays:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(
                    file, np.asarray(array, order="C"), allow_pickle=False
                )
