"""Reads checkpoints: `BundleReader`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from io import FileIO
from math import prod
from typing import Any, NoReturn

import numpy as np

from tfmini import dtypes, errors, protos
from tfmini.checkpoint import checksums, encoding, files, sstable
from tfmini.checkpoint.slices import Slice, check_disjoint, encode_key
from tfmini.printable import printable
from tfmini.suggestions import similar

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

    def read(self, name: str) -> encoding.Array:
        """Reads a whole tensor.

        Raises:
          NotFoundError: when the checkpoint has no such tensor or lacks a data file.
          DataLossError: when its bytes are truncated or corrupt.
        """
        entry = self.entry(name)
        if not entry.slices:
            return self._stored(name, entry)
        return self._assembled(name, entry, Slice(tuple((0, size) for size in entry.shape)))

    def read_slice(self, name: str, part: Slice) -> encoding.Array:
        """Reads a slice of a tensor that is stored whole or in other slices; otherwise as `read`."""
        entry = self.entry(name)
        wanted = part.resolved(entry.shape)
        if entry.slices:
            return self._assembled(name, entry, wanted)
        whole = Slice(tuple((0, size) for size in entry.shape))
        if wanted == whole:
            return self._stored(name, entry)
        return np.ascontiguousarray(self._stored(name, entry)[wanted.index(whole)])

    def _assembled(self, name: str, entry: TensorEntry, wanted: Slice) -> encoding.Array:
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

    def _piece(self, name: str, entry: TensorEntry, part: Slice) -> encoding.Array:
        """Reads one of the slices in which a tensor is stored."""
        key = encode_key(name, part)
        if key not in self._index:
            self._refuse(files.index_file(self.prefix), name, f"its slice {part.text} has no entry")
        piece = self.entry_of_key(key)
        if piece.slices or piece.dtype is not entry.dtype or piece.shape != part.shape(entry.shape):
            self._refuse(files.index_file(self.prefix), name, f"its slice {part.text} has another type or shape")
        return self._stored(name, piece)

    # ---- data files ---------------------------------------------------------------------------

    def _stored(self, name: str, entry: TensorEntry) -> encoding.Array:
        path = files.data_file(self.prefix, entry.shard, self._shards)
        try:
            with self._reading(path, name), open(path, "rb", buffering=0) as file:
                if entry.offset + entry.size > os.fstat(file.fileno()).st_size:
                    self._refuse(path, name, "Read less bytes than requested")
                file.seek(entry.offset)
                if entry.dtype is dtypes.string:
                    return self._read_strings(file, path, name, entry)
                return self._read_numbers(file, path, name, entry)
        except OSError as error:
            raise errors.from_os_error(error, path) from None

    def _read_numbers(self, file: FileIO, path: str, name: str, entry: TensorEntry) -> encoding.Array:
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
            crc = checksums.extend(crc, chunk)
        self._check(crc, path, name, entry)
        return array

    def _read_strings(self, file: FileIO, path: str, name: str, entry: TensorEntry) -> encoding.Array:
        data = np.empty(entry.size, np.uint8)
        _fill(file, data)
        strings, crc = encoding.decode_strings(data.tobytes(), prod(entry.shape))
        self._check(crc, path, name, entry)
        array = np.empty(len(strings), object)
        array[:] = strings
        return array.reshape(entry.shape)

    def _check(self, crc: int, path: str, name: str, entry: TensorEntry) -> None:
        actual = checksums.masked(crc)
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


def _fill(file: FileIO, data: encoding.Array) -> bool:
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
        index = dict(sstable.read(table))
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
    if not (kind is dtypes.string or kind.is_numpy_compatible) or kind.base_dtype is not kind:
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
