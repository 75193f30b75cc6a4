"""Reads checkpoints: `BundleReader`; slices of tensors and their keys; the sorted string tables of index files."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from io import FileIO
from math import prod
from typing import Any, NoReturn

import numpy as np

from tfmini import dtypes, errors, protos
from tfmini.checkpoint import files
from tfmini.text import printable, similar

# ---- Slices of tensors: their text in save ops, their keys in index files, and their arithmetic --------------------
# A slice has one extent per axis: ``(start, length)``, or `FULL` for the whole axis. Save and restore
# ops name it by a text with the tensor's shape and the extents: ``"10 3 0,4:-"``. In an index file, a
# slice has its own entry, under a key that sorts before all plain names.

Extent = tuple[int, int]
FULL: Extent = (0, -1)
_MOST_SLICES = 1 << 14


@dataclass(frozen=True)
class Slice:
    """A part of a tensor, one extent per axis."""

    extents: tuple[Extent, ...]

    @staticmethod
    def from_proto(message: Any) -> Slice:
        """Reads a TensorSliceProto."""
        return Slice(tuple((e.start, e.length) if e.WhichOneof("has_length") else FULL for e in message.extent))

    def to_proto(self, message: Any) -> None:
        """Fills a TensorSliceProto."""
        for start, length in self.extents:
            if length < 0:
                message.extent.add()
            else:
                # TensorFlow leaves out a start of 0, as proto3 does.
                message.extent.add(start=start, length=length)

    def resolved(self, shape: Sequence[int]) -> Slice:
        """Returns the same slice with a start and a length on every axis of ``shape``."""
        pairs = zip(self.extents, shape)
        return Slice(tuple((0, size) if length < 0 else (start, length) for (start, length), size in pairs))

    def covers(self, shape: Sequence[int]) -> bool:
        """Whether the slice is a whole tensor of that shape."""
        return self.resolved(shape).extents == tuple((0, size) for size in shape)

    def shape(self, full: Sequence[int]) -> tuple[int, ...]:
        """Returns the shape of the slice of a tensor of shape ``full``."""
        return tuple(length for _, length in self.resolved(full).extents)

    def index(self, within: Slice) -> tuple[slice, ...]:
        """Returns the index of this resolved slice in the array of the resolved slice ``within``."""
        pairs = zip(self.extents, within.extents)
        return tuple(slice(start - base, start - base + length) for (start, length), (base, _) in pairs)

    def intersect(self, other: Slice) -> Slice | None:
        """Returns the intersection of two resolved slices, or None."""
        common = []
        for (a, n), (b, m) in zip(self.extents, other.extents):
            start, end = max(a, b), min(a + n, b + m)
            if start >= end:
                return None
            common.append((start, end - start))
        return Slice(tuple(common))

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether the slice has the rank of ``shape`` and lies within it."""
        return len(self.extents) == len(shape) and all(
            length < 0 or 0 <= start <= start + length <= size for (start, length), size in zip(self.extents, shape)
        )

    @property
    def text(self) -> str:
        """The extents as save ops write them."""
        return ":".join("-" if length < 0 else f"{start},{length}" for start, length in self.extents)


def check_disjoint(parts: Sequence[Slice], shape: Sequence[int]) -> None:
    """Checks the slices in which a tensor is stored.

    Raises:
      ValueError: one does not fit the tensor's shape, two overlap, or there are too many.
    """
    for part in parts:
        if not part.fits(shape):
            raise ValueError(f"its slice {part.text} does not lie within the shape {list(shape)}")
    if len(parts) < 2:
        return
    if len(parts) > _MOST_SLICES:
        raise ValueError(f"it has {len(parts)} slices; at most {_MOST_SLICES} can be read")
    # The slices are compared in pairs, each with all that follow at once.
    extents = np.array([part.resolved(shape).extents for part in parts], np.int64).reshape(len(parts), len(shape), 2)
    starts, ends = extents[:, :, 0], extents.sum(axis=2)
    for i, part in enumerate(parts[:-1]):
        common = (starts[i + 1 :] < ends[i]) & (starts[i] < ends[i + 1 :])
        hits = np.flatnonzero(common.all(axis=1))
        if hits.size:
            raise ValueError(f"Overlapping slices: {part.text} and {parts[i + 1 + int(hits[0])].text}")


def parse(text: str) -> tuple[tuple[int, ...], Slice]:
    """Parses a specification like ``"10 3 0,4:-"``; returns the shape and the slice.

    Raises:
      ValueError: with TensorFlow's message.
    """
    *sizes, extents = text.split(" ")
    if not sizes:
        raise ValueError(f"Need least two elements in shape_and_slice specification: {text}")
    try:
        shape = tuple(int(size) for size in sizes)
        found = Slice(tuple(_parse_extent(part) for part in extents.split(":")))
    except ValueError:
        form = "Expected a list of sizes and a slice of 'start,length' or '-' per axis, separated by ':'"
        raise ValueError(f"{form} in shape_and_slice specification: {text}") from None
    if len(found.extents) != len(shape):
        raise ValueError(
            f"Shape rank {len(shape)} does not match slice rank {len(found.extents)} in shape_and_slice"
            f" specification: {text}"
        )
    for axis, ((start, length), size) in enumerate(zip(found.extents, shape)):
        if length >= 0 and start + length > size:
            raise ValueError(f"Extent in dimension {axis} out of bounds: shape = {list(shape)}, slice = {found.text}")
    return shape, found


def _parse_extent(text: str) -> Extent:
    if text == "-":
        return FULL
    start, length = (int(number) for number in text.split(","))
    if start < 0 or length <= 0:
        raise ValueError
    return start, length


# ---- keys -----------------------------------------------------------------------------------


def encode_key(name: str, part: Slice) -> bytes:
    """Returns the key of a slice of the tensor ``name`` in the index: an order-preserving code."""
    numbers = b"".join(_signed(number) for extent in part.extents for number in extent)
    return _unsigned(0) + _escaped(name.encode()) + _unsigned(len(part.extents)) + numbers


def _unsigned(value: int) -> bytes:
    size = (value.bit_length() + 7) // 8
    return bytes([size]) + value.to_bytes(size, "big")


def _escaped(text: bytes) -> bytes:
    # TensorFlow also escapes the byte ff, which does not occur in UTF-8.
    return text.replace(b"\0", b"\0\xff") + b"\0\1"


def _signed(value: int) -> bytes:
    """Encodes a number so that codes sort as the numbers do: as many leading ones as it has bytes, then the number.

    The code of a negative number is the complement of the code of ``~value``.
    """
    magnitude = ~value if value < 0 else value
    size = magnitude.bit_length() // 7 + 1
    code = magnitude | ((1 << size) - 1) << 7 * size  # size ones, then 7 * size bits
    if value < 0:
        code ^= (1 << 8 * size) - 1
    return code.to_bytes(size, "big")


# ---- Sorted string tables, the format of index files: sorted keys and values in blocks with checksums --------------
# ::
#
#     file    = data block*, meta-index block (empty), index block, footer
#     block   = entry*, restart offset (fixed32)*, count of restarts (fixed32),
#               compression type (1 byte, 0 = none), masked CRC-32C of the preceding bytes (fixed32)
#     entry   = varint shared, varint unshared, varint value length, key[shared:], value
#     footer  = handle of the meta-index, handle of the index, zeros up to 40 bytes, magic (fixed64)
#     handle  = varint offset, varint size without the 5 bytes of type and checksum
#
# ``shared`` is the length of the prefix that a key shares with the previous key; at a restart it is 0.
# The index has one entry per data block; its key is >= the block's last key and < the next block's first.

MAGIC = 0xDB4775248B80FB57
FOOTER_SIZE = 48
_BLOCK_SIZE = 262144
_RESTART_INTERVAL = 16
_TRAILER = struct.Struct("<BI")


class TableError(ValueError):
    """The bytes are no valid table; the text has the reason."""


# ---- writing --------------------------------------------------------------------------------


class _BlockBuilder:
    def __init__(self, restart_interval: int) -> None:
        self._interval = restart_interval
        self.reset()

    def reset(self) -> None:
        self._buffer = bytearray()
        self._restarts = [0]
        self._since_restart = 0
        self.last_key = b""

    def add(self, key: bytes, value: bytes) -> None:
        shared = 0
        if self._since_restart < self._interval:
            shared = _common(self.last_key, key)
        else:
            self._restarts.append(len(self._buffer))
            self._since_restart = 0
        for number in (shared, len(key) - shared, len(value)):
            self._buffer += files.encode(number)
        self._buffer += key[shared:]
        self._buffer += value
        self.last_key = key
        self._since_restart += 1

    @property
    def size(self) -> int:
        return len(self._buffer) + 4 * len(self._restarts) + 4

    def finish(self) -> bytes:
        restarts = struct.pack(f"<{len(self._restarts) + 1}I", *self._restarts, len(self._restarts))
        return bytes(self._buffer) + restarts


def build(items: Iterable[tuple[bytes, bytes]], block_size: int = _BLOCK_SIZE) -> bytes:
    """Builds the table of ``items``, whose keys must be strictly increasing.

    Raises:
      ValueError: when they are not.
    """
    out = bytearray()
    index: list[tuple[bytes, bytes]] = []
    data = _BlockBuilder(_RESTART_INTERVAL)
    ended: tuple[bytes, bytes] | None = None  # last key and handle of a finished block without an index entry
    last: bytes | None = None
    for key, value in items:
        if last is not None and key <= last:
            raise ValueError(f"keys out of order: {key!r} after {last!r}")
        if ended is not None:
            index.append((_separator(ended[0], key), ended[1]))
            ended = None
        data.add(key, value)
        last = key
        if data.size >= block_size:
            ended = (key, _append_block(out, data.finish()))
            data.reset()
    if last is not None and ended is None:
        ended = (last, _append_block(out, data.finish()))
    if ended is not None:
        index.append((_successor(ended[0]), ended[1]))
    return bytes(out + _append_index(out, index))


def _append_index(out: bytearray, index: list[tuple[bytes, bytes]]) -> bytes:
    """Appends the meta-index and the index to ``out``; returns the footer."""
    meta_handle = _append_block(out, _BlockBuilder(_RESTART_INTERVAL).finish())
    block = _BlockBuilder(1)
    for key, handle in index:
        block.add(key, handle)
    handles = meta_handle + _append_block(out, block.finish())
    return handles.ljust(FOOTER_SIZE - 8, b"\0") + struct.pack("<Q", MAGIC)


def _append_block(out: bytearray, content: bytes) -> bytes:
    handle = files.encode(len(out)) + files.encode(len(content))
    checksum = files.masked(files.extend(0, content + b"\0"))
    out += content
    out += _TRAILER.pack(0, checksum)
    return handle


def _common(a: bytes, b: bytes) -> int:
    limit = min(len(a), len(b))
    for i in range(limit):
        if a[i] != b[i]:
            return i
    return limit


def _separator(start: bytes, limit: bytes) -> bytes:
    """Returns a short key k with start <= k < limit."""
    i = _common(start, limit)
    if i < min(len(start), len(limit)) and start[i] < 0xFF and start[i] + 1 < limit[i]:
        return start[:i] + bytes([start[i] + 1])
    return start


def _successor(key: bytes) -> bytes:
    """Returns a short key k with key <= k."""
    for i, byte in enumerate(key):
        if byte != 0xFF:
            return key[:i] + bytes([byte + 1])
    return key


# ---- reading --------------------------------------------------------------------------------


def read(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the keys and values of a table, in order.

    Raises:
      TableError: when the bytes are no table or corrupt.
    """
    if len(table) < FOOTER_SIZE:
        raise TableError("file is too short to be an sstable")
    footer = table[-FOOTER_SIZE:]
    if struct.unpack("<Q", footer[-8:])[0] != MAGIC:
        raise TableError("not an sstable (bad magic number)")
    try:
        _, position = _handle(footer, 0)
        index_handle, _ = _handle(footer, position)
        for _, encoded in _entries(_block(table, index_handle)):
            yield from _entries(_block(table, _handle(encoded, 0)[0]))
    except TableError:
        raise
    except (ValueError, IndexError, struct.error) as error:
        raise TableError(f"malformed sstable: {error}") from None


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    offset, position = files.decode(data, position)
    size, position = files.decode(data, position)
    return (offset, size), position


def _block(table: bytes, handle: tuple[int, int]) -> bytes:
    offset, size = handle
    if offset + size + _TRAILER.size > len(table):
        raise TableError("truncated block read")
    kind, stored = _TRAILER.unpack_from(table, offset + size)
    if files.masked(files.extend(0, table[offset : offset + size + 1])) != stored:
        raise TableError("block checksum mismatch")
    if kind != 0:
        raise TableError(f"block compression type {kind} is not supported (1 is snappy)")
    return table[offset : offset + size]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    (restarts,) = struct.unpack_from("<I", block, len(block) - 4)
    end = len(block) - 4 - 4 * restarts
    position, key = 0, b""
    while position < end:
        shared, position = files.decode(block, position)
        unshared, position = files.decode(block, position)
        length, position = files.decode(block, position)
        if shared > len(key) or position + unshared + length > end:
            raise TableError("bad entry in block")
        key = key[:shared] + block[position : position + unshared]
        position += unshared
        yield key, block[position : position + length]
        position += length


# ---- `BundleReader`: finds and reads the tensors of a checkpoint ---------------------------------------------------

_CHUNK = 1 << 20
_LARGEST_RANK = 64  # numpy's
_REMEDY = "The file is truncated or corrupt: restore another checkpoint"
_NAMES_COMPARED = 5000  # with one that is missing, which takes tens of milliseconds


@dataclass(frozen=True)
class TensorEntry:
    """The index entry of a tensor.

    Attributes:
      shape: the shape of the whole tensor.
      slices: the slices in which it is stored; empty if it is stored whole.
    """

    dtype: dtypes.DType
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int
    slices: tuple[Slice, ...]


class BundleReader:
    """The tensors of a checkpoint by name. It keeps no file open between calls.

    Raises:
      NotFoundError: when there is no such checkpoint.
      DataLossError: when the index is truncated or corrupt.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._shards, self._index = load_index(prefix)

    def stored(self) -> list[tuple[bytes, TensorEntry]]:
        """Returns key and entry of each stored piece, in order: slices first, under their own keys, then tensors."""
        entries = ((key, self.entry_of_key(key)) for key in self._index if key)
        return [(key, entry) for key, entry in entries if not entry.slices]

    def names(self) -> list[str]:
        """Returns the names of the tensors, in order."""
        return [key.decode() for key in self._index if key and key[0]]

    def __contains__(self, name: str) -> bool:
        return bool(name) and name.encode() in self._index

    def entry(self, name: str) -> TensorEntry:
        """Returns the index entry of a tensor.

        Raises:
          NotFoundError: when the checkpoint has no such tensor.
        """
        if name not in self:
            raise errors.NotFoundError.of(missing_key(name, self.prefix, self.names()))
        return self.entry_of_key(name.encode())

    def entry_of_key(self, key: bytes) -> TensorEntry:
        """Returns the index entry with a key."""
        with self._reading(files.index_file(self.prefix), _readable(key)):
            return _parse_entry(self._index[key], self._shards)

    def read(self, name: str) -> files.Array:
        """Reads a whole tensor.

        Raises:
          NotFoundError: when the checkpoint has no such tensor or lacks a data file.
          DataLossError: when its bytes are truncated or corrupt.
        """
        entry = self.entry(name)
        if not entry.slices:
            return self._stored(name, entry)
        return self._assembled(name, entry, Slice(tuple((0, size) for size in entry.shape)))

    def read_slice(self, name: str, part: Slice) -> files.Array:
        """Reads a slice of a tensor that is stored whole or in other slices; otherwise as `read`."""
        entry = self.entry(name)
        wanted = part.resolved(entry.shape)
        if entry.slices:
            return self._assembled(name, entry, wanted)
        whole = Slice(tuple((0, size) for size in entry.shape))
        if wanted == whole:
            return self._stored(name, entry)
        return np.ascontiguousarray(self._stored(name, entry)[wanted.index(whole)])

    def _assembled(self, name: str, entry: TensorEntry, wanted: Slice) -> files.Array:
        shape = wanted.shape(entry.shape)
        needed = []
        for stored in entry.slices:
            region = stored.resolved(entry.shape)
            common = region.intersect(wanted)
            if common is not None:
                needed.append((stored, region, common))
        # The slices are disjoint (`_parse_entry` has checked that), so equal sizes mean that they cover everything.
        if sum(prod(common.shape(entry.shape)) for *_, common in needed) != prod(shape):
            self._refuse(files.index_file(self.prefix), name, "the stored slices do not cover the requested one")
        if len(needed) == 1 and needed[0][1] == wanted:
            return self._piece(name, entry, needed[0][0])
        if prod(shape) > self._capacity():  # each element takes a byte or more: this is checked before memory is taken
            self._refuse(files.index_file(self.prefix), name, f"no file holds {prod(shape)} elements")
        with self._reading(files.index_file(self.prefix), name):
            out = np.empty(shape, entry.dtype.numpy)
        for stored, region, common in needed:
            out[common.index(wanted)] = self._piece(name, entry, stored)[common.index(region)]
        return out

    def _capacity(self) -> int:
        """The bytes in which values are stored."""
        return sum(os.path.getsize(path) for path in files.data_files(self.prefix))

    def _piece(self, name: str, entry: TensorEntry, part: Slice) -> files.Array:
        """Reads one of the slices in which a tensor is stored."""
        key = encode_key(name, part)
        if key not in self._index:
            self._refuse(files.index_file(self.prefix), name, f"its slice {part.text} has no entry")
        piece = self.entry_of_key(key)
        if piece.slices or piece.dtype is not entry.dtype or piece.shape != part.shape(entry.shape):
            self._refuse(files.index_file(self.prefix), name, f"its slice {part.text} has another type or shape")
        return self._stored(name, piece)

    # ---- data files ---------------------------------------------------------------------------

    def _stored(self, name: str, entry: TensorEntry) -> files.Array:
        path = files.data_file(self.prefix, entry.shard, self._shards)
        try:
            with self._reading(path, name), open(path, "rb", buffering=0) as file:
                if entry.offset + entry.size > os.fstat(file.fileno()).st_size:
                    self._refuse(path, name, "Read less bytes than requested")
                file.seek(entry.offset)
                if entry.dtype in (dtypes.string, dtypes.variant):
                    return self._read_texts(file, path, name, entry)
                return self._read_numbers(file, path, name, entry)
        except OSError as error:
            raise errors.from_os_error(error, path) from None

    def _read_numbers(self, file: FileIO, path: str, name: str, entry: TensorEntry) -> files.Array:
        size = prod(entry.shape) * entry.dtype.numpy.itemsize
        if size != entry.size:
            self._refuse(path, name, f"{entry.size} bytes are stored, but its type and shape need {size}")
        array = np.empty(entry.shape, entry.dtype.numpy)
        data = array.reshape(-1).view(np.uint8)
        crc = 0
        for start in range(0, size, _CHUNK):
            chunk = data[start : start + _CHUNK]
            if not _fill(file, chunk):
                self._refuse(path, name, "Read less bytes than requested")
            crc = files.extend(crc, chunk)
        self._check(crc, path, name, entry)
        return array

    def _read_texts(self, file: FileIO, path: str, name: str, entry: TensorEntry) -> files.Array:
        data = np.empty(entry.size, np.uint8)
        _fill(file, data)
        decode = files.decode_strings if entry.dtype is dtypes.string else files.decode_variants
        strings, crc = decode(data.tobytes(), prod(entry.shape))
        self._check(crc, path, name, entry)
        array = np.empty(len(strings), object)
        array[:] = strings
        return array.reshape(entry.shape)

    def _check(self, crc: int, path: str, name: str, entry: TensorEntry) -> None:
        actual = files.masked(crc)
        if actual != entry.crc:
            reason = f"Checksum does not match: stored {entry.crc} vs. calculated on the restored bytes {actual}"
            self._refuse(path, name, reason)

    def _refuse(self, path: str, name: str, reason: str) -> NoReturn:
        raise errors.DataLossError.of(f"{self._place(path, name)}: {reason}. {_REMEDY}")

    def _reading(self, path: str, name: str) -> AbstractContextManager[None]:
        return errors.reading(self._place(path, name), remedy=_REMEDY)

    def _place(self, path: str, name: str) -> str:
        return f"TensorBundle at {self.prefix}: {path}: tensor {name}"


def shard_count(prefix: str) -> int:
    """Returns the number of shards of the checkpoint under ``prefix``; 0 if there is no readable one."""
    try:
        return load_index(prefix)[0]
    except errors.OpError:
        return 0


def _fill(file: FileIO, data: files.Array) -> bool:
    """Fills ``data`` from the file; returns False if the file ends before."""
    view = data.data
    position = 0
    while position < len(view):
        count = file.readinto(view[position:])
        if not count:
            return False
        position += count
    return True


def load_index(prefix: str) -> tuple[int, dict[bytes, bytes]]:
    """Returns the number of shards of a checkpoint, and its index, whose values are BundleEntryProtos.

    Raises:
      NotFoundError: when there is no such checkpoint.
      DataLossError: when the index is truncated or corrupt.
    """
    path = files.index_file(prefix)
    try:
        stat = os.stat(path)
        return _parse_index(prefix, path, (stat.st_ino, stat.st_size, stat.st_mtime_ns))
    except FileNotFoundError:
        text = f"Unsuccessful TensorSliceReader constructor: Failed to find any matching files for {prefix}"
        raise errors.NotFoundError.of(text) from None
    except OSError as error:
        raise errors.from_os_error(error, path) from None


# Cached, because restoring variable by variable reads the index once per variable.
@lru_cache(maxsize=4)
def _parse_index(prefix: str, path: str, identity: tuple[int, ...]) -> tuple[int, dict[bytes, bytes]]:
    with open(path, "rb") as file:
        table = file.read()
    with errors.reading(f"Unable to read file ({path})", remedy=_REMEDY):
        index = dict(read(table))
        for key in index:
            if key and key[0]:
                key.decode()
        if b"" not in index:
            raise ValueError("no header entry")
        header = protos.BundleHeaderProto.FromString(index[b""])
    if header.endianness != 0:
        text = f"{path} was written on a big-endian machine; tfmini reads little-endian checkpoints"
        raise errors.UnimplementedError.of(text)
    return header.num_shards, index


def _parse_entry(data: bytes, shards: int) -> TensorEntry:
    message: Any = protos.BundleEntryProto.FromString(data)
    if not (0 <= message.shard_id < shards and message.offset >= 0 and message.size >= 0):
        raise ValueError("its place in the data files is invalid")
    parts = tuple(Slice.from_proto(part) for part in message.slices)
    place = (message.shard_id, message.offset, message.size, message.crc32c)
    return checked_entry(message.dtype, [dim.size for dim in message.shape.dim], *place, parts)


def checked_entry(dtype: int, shape: Sequence[int], shard: int, offset: int, size: int, crc: int,
                  parts: tuple[Slice, ...]) -> TensorEntry:  # fmt: skip
    """Makes the entry of a tensor that can be read.

    Raises:
      ValueError, TypeError: no tensor has that type and shape, or its slices overlap or lie outside of it.
    """
    kind = dtypes.as_dtype(dtype)
    if not (kind in (dtypes.string, dtypes.variant) or kind.is_numpy_compatible) or kind.base_dtype is not kind:
        raise ValueError(f"tensors of type {kind.name} are not stored")
    if len(shape) > _LARGEST_RANK or any(not 0 <= size < 1 << 62 for size in shape):
        raise ValueError(f"its shape {list(shape[:9])} is invalid")
    check_disjoint(parts, shape)
    return TensorEntry(kind, tuple(shape), shard, offset, size, crc, parts)


def _readable(key: bytes) -> str:
    return key.decode(errors="replace")


def missing_key(name: str, prefix: str, names: Sequence[str]) -> str:
    """The message for a tensor that a checkpoint does not have, with the names in it that are most similar."""
    near = similar(name, names[:_NAMES_COMPARED])
    has = f"; it has {', '.join(map(printable, near))}" if near else f"; it has {len(names)} other tensors"
    return f"Key {name} not found in checkpoint {prefix}{has}"
