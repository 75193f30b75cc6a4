"""The files of checkpoints: their names, and atomic, durable changes of the file system."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from glob import escape, glob
from typing import IO, Any, TypeVar, overload

import google_crc32c
import numpy as np

from tfmini import dtypes, errors
from tfmini.core_types import Array

T = TypeVar("T")
_TEMPORARY = ".tempstate"
_WRITE_BACK = 8 << 20  # bytes that the device writes while the following ones are computed


@overload
def local_path(path: str) -> str: ...
@overload
def local_path(path: bytes) -> bytes: ...
@overload
def local_path(path: os.PathLike[Any]) -> str | bytes: ...
@overload
def local_path(path: str | bytes | os.PathLike[Any]) -> str | bytes: ...
def local_path(path: Any) -> Any:
    """Removes the ``file://`` prefix of a path, if it has one."""
    found = os.fspath(path)
    return found.removeprefix(b"file://" if isinstance(found, bytes) else "file://")


def index_file(prefix: str) -> str:
    """Returns the path of a checkpoint's index file. The checkpoint exists if this file exists."""
    return f"{local_path(prefix)}.index"


def data_file(prefix: str, shard: int, shards: int) -> str:
    """Returns the path of the file with one shard's tensors."""
    return f"{local_path(prefix)}.data-{shard:05d}-of-{shards:05d}"


def data_files(prefix: str) -> list[str]:
    """Returns all existing data files of a prefix, including those that its index does not mention."""
    prefix = local_path(prefix)
    named = re.compile(re.escape(prefix) + r"\.data-\d{5}-of-\d{5}$")
    return sorted(path for path in glob(f"{escape(prefix)}.data-*") if named.match(path))


class Disk:
    """The changes of the file system, one method each, so that a test can simulate a crash before each of them."""

    def make_directory(self, path: str) -> None:
        """Creates a directory if it does not exist; its parent must exist."""
        if path and not os.path.isdir(path):
            with suppress(FileExistsError):  # another task created it meanwhile
                os.mkdir(path)

    def create(self, path: str) -> IO[bytes]:
        """Creates a file for writing."""
        return open(path, "wb", buffering=1 << 16)

    def write_back(self, file: IO[bytes], offset: int, nbytes: int) -> None:
        """Starts writing a part of the content to the device, so that `sync` has little left to wait for.

        A helper's thread may call it: it leaves the buffer alone, which may be in use.
        """
        if hasattr(os, "posix_fadvise"):
            with suppress(OSError):  # advisory: DONTNEED starts the write-back of dirty pages
                os.posix_fadvise(file.fileno(), offset, nbytes, os.POSIX_FADV_DONTNEED)

    def sync(self, file: IO[bytes]) -> None:
        """Waits until the file's content is on the device."""
        file.flush()
        os.fsync(file.fileno())

    def rename(self, source: str, target: str) -> None:
        """Renames a file and replaces an existing target."""
        os.replace(source, target)

    def sync_directory(self, path: str) -> None:
        """Waits until the entries of the directory of ``path`` are on the device."""
        try:
            handle = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
        except OSError:  # some file systems cannot open directories
            return
        try:
            with suppress(OSError):  # some cannot synchronise them
                os.fsync(handle)
        finally:
            os.close(handle)

    def remove(self, path: str) -> None:
        """Removes a file if it exists."""
        with suppress(FileNotFoundError):
            os.remove(path)

    def remove_directory(self, path: str) -> None:
        """Removes a directory if it is empty."""
        with suppress(OSError):  # not empty, or already removed
            os.rmdir(path)


DISK = Disk()


class WriteHelper:
    """A thread that makes calls in order, beside the thread that writes; it begins with the first call.

    Where no thread can be started, as while Python exits, calls are made at once.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    def submit(self, call: Callable[..., T], *args: Any) -> Future[T]:
        """Makes a call now or soon; returns its future result."""
        self._pool = self._pool or ThreadPoolExecutor(1, "tfmini-checksum")
        try:
            return self._pool.submit(call, *args)
        except RuntimeError:
            made: Future[T] = Future()
            made.set_result(call(*args))
            return made

    def finish(self, drop: bool = False) -> None:
        """Waits for the calls and ends the thread.

        Args:
          drop: whether the calls that have not begun are left out.
        """
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=drop)
            self._pool = None


class NewFile:
    """A file written under a temporary name; `commit` renames it atomically.

    Attributes:
      path: its final name.

    Args:
      helper: starts the write-back of what has been written; None: the writing thread does.

    Raises:
      OpError: from every method, when the file system refuses; it names the file.
    """

    def __init__(self, path: str, disk: Disk = DISK, helper: WriteHelper | None = None) -> None:
        self.path = path
        self._disk = disk
        self._helper = helper
        self._written = self._begun = 0  # bytes: all, and those whose write-back has begun
        self._temporary = f"{path}{_TEMPORARY}{os.urandom(8).hex()}"
        try:
            disk.make_directory(os.path.dirname(path))
            self._file = disk.create(self._temporary)
        except OSError as error:
            raise errors.from_os_error(error, os.path.dirname(path) or path) from None

    def write(self, data: Any) -> None:
        """Appends bytes."""
        try:
            self._file.write(data)
            self._written += len(data)
            if self._written - self._begun >= _WRITE_BACK:
                self._start_write_back()
        except OSError as error:
            raise errors.from_os_error(error, self.path) from None

    def _start_write_back(self) -> None:
        self._file.flush()
        part = self._file, self._begun, self._written - self._begun
        if self._helper is None:
            self._disk.write_back(*part)
        else:
            self._helper.submit(self._disk.write_back, *part)
        self._begun = self._written

    def commit(self) -> None:
        """Makes the content durable, then visible under the file's final name."""
        try:
            self._disk.sync(self._file)
            self._file.close()
            self._disk.rename(self._temporary, self.path)
        except OSError as error:
            raise errors.from_os_error(error, self.path) from None

    def discard(self) -> None:
        """Removes the temporary file; does nothing after `commit`."""
        with suppress(OSError):  # closing writes what is buffered, and the disk may be full
            self._file.close()
        with errors.naming_file(self.path):
            self._disk.remove(self._temporary)


def write_atomically(path: str, content: bytes, disk: Disk = DISK) -> None:
    """Replaces a whole file: readers see the old content or the new, also after a crash.

    Raises:
      OpError: when the file system refuses.
    """
    path = local_path(path)
    file = NewFile(path, disk)
    try:
        file.write(content)
        file.commit()
    except BaseException:  # KeyboardInterrupt, too, must not leave a temporary file
        file.discard()
        raise
    disk.sync_directory(path)


# ---- CRC-32C checksums in the form that checkpoints store ----------------------------------------------------------

# Computing the checksum holds the interpreter lock; other threads can run between pieces of this size.
PIECE = 1 << 20


def extend(crc: int, data: bytes | np.ndarray[Any, Any]) -> int:
    """Extends the CRC-32C of earlier bytes, ``crc``, by ``data`` (bytes, or a contiguous uint8 array)."""
    if len(data) <= PIECE:
        return google_crc32c.extend(crc, data)  # type: ignore[no-any-return]
    for start in range(0, len(data), PIECE):
        crc = google_crc32c.extend(crc, data[start : start + PIECE])
    return crc


def masked(crc: int) -> int:
    """Masks a CRC for storage, since the CRC of data that contains CRCs is a weak check."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


# ---- Variable-length integers: seven bits per byte, the lowest first -----------------------------------------------


def encode(value: int) -> bytes:
    """Encodes a non-negative integer as a varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode(data: bytes, position: int) -> tuple[int, int]:
    """Returns the integer at ``position`` and the position after it.

    Raises:
      ValueError: when the data ends inside the varint or it has more than 64 bits.
    """
    value = shift = 0
    while shift < 64 and position < len(data):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80 and value < 1 << 64:
            return value, position
        shift += 7
    raise ValueError("a varint is truncated or too long")


# ---- Encodes tensors as bytes of data files: numbers as little-endian memory, strings after their lengths ----------
# ::
#
#     string tensor = varint length*, masked CRC-32C of the lengths (fixed32), bytes of the strings
#
# The checksum of the lengths is computed over fixed32 values (fixed64 where a length needs it), not over the varints.


def raw_bytes(array: Array) -> Array:
    """Returns the memory of a numeric array as a flat uint8 array, without a copy if it is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def encode_strings(strings: list[bytes]) -> tuple[bytes, int]:
    """Returns the bytes of a string tensor and their (unmasked) checksum."""
    lengths = b"".join(encode(len(text)) for text in strings)
    crc = _crc_of_lengths([len(text) for text in strings])
    check = struct.pack("<I", masked(crc))
    body = b"".join(strings)
    return lengths + check + body, extend(extend(crc, check), body)


def decode_strings(data: bytes, count: int) -> tuple[list[bytes], int]:
    """Returns the strings of a tensor of ``count`` elements, and the (unmasked) checksum of the bytes.

    Raises:
      ValueError: the bytes are inconsistent; the text has the reason.
    """
    position, lengths = 0, []
    for _ in range(count):
        length, position = decode(data, position)
        lengths.append(length)
    crc = _crc_of_lengths(lengths)
    check = data[position : position + 4]
    if len(check) < 4:
        raise ValueError("Read less bytes than requested")
    stored, actual = struct.unpack("<I", check)[0], masked(crc)
    if stored != actual:
        raise ValueError(f"The length checksum does not match: expected {stored} but actual is {actual}")
    position += 4
    if position + sum(lengths) != len(data):
        raise ValueError(f"The strings have {sum(lengths)} bytes, but {len(data) - position} are stored")
    crc = extend(extend(crc, check), data[position:])
    strings = []
    for length in lengths:
        strings.append(data[position : position + length])
        position += length
    return strings, crc


def encode_variants(messages: list[bytes]) -> tuple[bytes, int]:
    """Returns the bytes of a variant tensor, whose elements are messages, and their (unmasked) checksum."""
    pieces, crc = [], 0
    for message in messages:
        crc = extend(extend(crc, struct.pack("<Q", len(message))), message)
        check = struct.pack("<I", masked(crc))
        crc = extend(crc, check)
        pieces += [encode(len(message)), message, check]
    return b"".join(pieces), crc


def decode_variants(data: bytes, count: int) -> tuple[list[bytes], int]:
    """Returns the messages of a variant tensor of ``count`` elements, and the (unmasked) checksum of the bytes.

    Raises:
      ValueError: the bytes are inconsistent; the text has the reason.
    """
    messages, position, crc = list[bytes](), 0, 0
    for _ in range(count):
        length, position = decode(data, position)
        message, check = data[position : position + length], data[position + length : position + length + 4]
        crc = extend(extend(crc, struct.pack("<Q", length)), message)
        if check != struct.pack("<I", masked(crc)):
            raise ValueError("The checksum of a variant does not match, or less bytes are stored than it has")
        crc, position = extend(crc, check), position + length + 4
        messages.append(message)
    if position != len(data):
        raise ValueError(f"The variants end after {position} bytes, but {len(data)} are stored")
    return messages, crc


def _crc_of_lengths(lengths: list[int]) -> int:
    packed = b"".join(struct.pack("<I" if length < 1 << 32 else "<Q", length) for length in lengths)
    return extend(0, packed)


def checked_array(value: Any, dtype: dtypes.DType) -> Array:
    """Converts a kernel's value to an array of its declared type."""
    if dtype is dtypes.string or dtype is dtypes.variant:
        return value if isinstance(value, np.ndarray) else np.array(value, object)
    return np.asarray(value, dtype.numpy)
