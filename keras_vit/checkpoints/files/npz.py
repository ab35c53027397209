"""`.npz` files, read and written one array at a time, without pickle."""

import struct
import warnings
import weakref
import zipfile
import zlib
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

__all__ = ["aligned_member", "map_array", "open_npz", "write_npz"]

END_OF_ARCHIVE = 22  # bytes before its comment
LOCAL_HEADER = 30  # bytes before the name of a member
ZIP64 = 20  # bytes of the sizes that zipfile adds behind the name
ALIGNMENT = 64  # bytes, as within a `.npy` file
PADDING = 0xD935  # What Android's zipalign calls its extra field.
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


def aligned_member(name: str, begin: int) -> zipfile.ZipInfo:
    """Describe a member whose contents begin where an array can be mapped.

    Args:
        name: of the member, which is written with zip64 sizes.
        begin: its first byte in the archive.
    """
    padding = -(begin + LOCAL_HEADER + len(name) + ZIP64 + 4) % ALIGNMENT
    member = zipfile.ZipInfo(name)
    member.extra = struct.pack("<HH", PADDING, padding) + bytes(padding)
    return member


def map_array(path, name: str) -> np.ndarray | None:
    """Map an array of an `.npz` file into memory, which takes none of it.

    The checksum is compared, the file read once. What is written to the array
    stays in memory.

    Returns:
        The array, or None where it is packed or not aligned.

    Raises:
        ValueError: for another checksum.
    """
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{name}.npy")
        with archive.open(member) as file:
            shape, fortran_order, dtype, offset = _read_header(file)
    with Path(path).open("rb") as file:
        file.seek(member.header_offset)
        head = file.read(LOCAL_HEADER)
    begin = member.header_offset + LOCAL_HEADER
    begin += sum(struct.unpack("<HH", head[-4:]))
    packed = member.compress_type != zipfile.ZIP_STORED
    if packed or not member.file_size or (begin + offset) % dtype.itemsize:
        return None
    size = member.file_size
    content = np.memmap(path, np.uint8, "c", begin, (size,))
    found = 0
    for start in range(0, size, CHUNK):
        found = zlib.crc32(content[start : start + CHUNK].data, found)
    if found != member.CRC:
        refuse(path, "has another checksum than it says", DAMAGED, name)
    array = np.asarray(content)[offset:].view(dtype)
    return array.reshape(shape, order="F" if fortran_order else "C")


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
