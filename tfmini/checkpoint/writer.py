"""Writes checkpoints atomically: `BundleWriter`.

A checkpoint exists if its index exists, so the index is renamed to its final name last. The data files
of an old checkpoint with the same prefix must stay intact until then: the names of data files contain the
number of shards, and the new checkpoint has another number than the old one (``data-00000-of-00002``;
readers open only the shards that entries mention). So a reader at any time, also after a crash, finds the
whole old checkpoint or the whole new one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from tfmini import dtypes, errors, protos
from tfmini.checkpoint import files, reader
from tfmini.checkpoint.reader import Slice, encode_key, load_index, shard_count

HEADER_KEY = b""
_PIECE = 2 << 20  # bytes that are written at once; of a tensor with more, a second thread computes the checksum


class BundleWriter:
    """Writes tensors under a prefix; they become visible in `finish`.

    Use it as a context manager: leaving it without `finish` removes the written data.

    Raises:
      OpError: from every method, when the file system refuses.
    """

    def __init__(self, prefix: str, disk: files.Disk = files.DISK) -> None:
        self._prefix = prefix
        self._disk = disk
        self._shards = free_shard_count(prefix, 1)
        self._helper = files.WriteHelper()
        self._data = files.NewFile(files.data_file(prefix, 0, self._shards), disk, self._helper)
        self._offset = 0
        self._entries: dict[bytes, Any] = {}

    def __enter__(self) -> BundleWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._helper.finish(drop=True)
        self._data.discard()

    def add(self, name: str, value: Any, dtype: dtypes.DType) -> None:
        """Appends a tensor. The elements of a variant are serialized messages.

        Raises:
          InvalidArgumentError: when the name is already used.
        """
        self._append(name.encode(), name, files.checked_array(value, dtype), dtype)

    def add_slice(self, name: str, full_shape: tuple[int, ...], part: Slice, value: Any, dtype: dtypes.DType) -> None:
        """Appends a slice of a tensor; its other slices are in this bundle or in bundles that are merged with it.

        Raises:
          InvalidArgumentError: when the name is already used for a whole tensor or with another shape.
        """
        if part.covers(full_shape):
            self.add(name, value, dtype)
            return
        whole = self._entries.get(name.encode())
        if whole is None:
            whole = protos.BundleEntryProto(dtype=_enum(dtype))
            _set_shape(whole, full_shape)
            self._entries[name.encode()] = whole
        elif not whole.slices or tuple(d.size for d in whole.shape.dim) != tuple(full_shape):
            raise errors.InvalidArgumentError.of(f"Tensor {name} is saved twice, with different shapes")
        part.to_proto(whole.slices.add())
        self._append(encode_key(name, part), name, files.checked_array(value, dtype), dtype)

    def _append(self, key: bytes, name: str, array: files.Array, dtype: dtypes.DType) -> None:
        if key in self._entries:
            raise errors.InvalidArgumentError.of(f"Adding duplicate key: {name}")
        plain = dtype is not dtypes.string and dtype is not dtypes.variant
        size, crc = self._write_numbers(array) if plain else self._write_texts(array, dtype)
        entry = protos.BundleEntryProto(dtype=_enum(dtype), offset=self._offset, size=size, crc32c=files.masked(crc))
        _set_shape(entry, array.shape)
        self._entries[key] = entry
        self._offset += size

    def _write_numbers(self, array: files.Array) -> tuple[int, int]:
        data = files.raw_bytes(array)
        if data.size <= _PIECE:
            self._data.write(data)
            return data.size, files.extend(0, data)
        # The helper computes the checksum of each piece while the file system copies it, which leaves Python to others.
        crc: Future[int] | None = None
        for start in range(0, data.size, _PIECE):
            piece = data[start : start + _PIECE]
            crc = self._helper.submit(_extended, crc, piece)
            self._data.write(piece)
        return data.size, crc.result() if crc is not None else 0  # now: the caller may change the array afterwards

    def _write_texts(self, array: files.Array, dtype: dtypes.DType) -> tuple[int, int]:
        texts = [text.encode() if isinstance(text, str) else text for text in np.ravel(array).tolist()]
        data, crc = (files.encode_strings if dtype is dtypes.string else files.encode_variants)(texts)
        self._data.write(data)
        return len(data), crc

    def finish(self) -> None:
        """Makes the checkpoint visible atomically; replaces an old one with the same prefix."""
        self._helper.finish()
        self._data.commit()
        commit_index(self._prefix, self._shards, self._entries, self._disk)


def _extended(crc: Future[int] | None, piece: files.Array) -> int:
    """The checksum of the pieces before, which the same thread has computed, and of one more."""
    return files.extend(0 if crc is None else crc.result(), piece)


def commit_index(prefix: str, shards: int, entries: dict[bytes, Any], disk: files.Disk) -> None:
    """Writes the index, when the data files are in place; then removes the data files of the previous checkpoint."""
    header = protos.BundleHeaderProto(num_shards=shards, version=protos.VersionDef(producer=1))
    items = [(HEADER_KEY, header), *sorted(entries.items())]
    table = reader.build((key, message.SerializeToString(deterministic=True)) for key, message in items)
    disk.sync_directory(files.index_file(prefix))  # the data files must be durable before the index mentions them
    files.write_atomically(files.index_file(prefix), table, disk)
    mine = f"-of-{shards:05d}"
    for path in files.data_files(prefix):
        if not path.endswith(mine):
            disk.remove(path)


def free_shard_count(prefix: str, needed: int) -> int:
    """Returns a number of shards, at least ``needed``, that differs from the current checkpoint's number."""
    return needed + 1 if shard_count(prefix) == needed else needed


def _enum(dtype: dtypes.DType) -> Any:
    # A proto field accepts enum numbers, but its type stub does not.
    return dtype.as_datatype_enum


def _set_shape(entry: Any, shape: tuple[int, ...]) -> None:
    entry.shape.SetInParent()  # the shape of a scalar is empty, but present
    for size in shape:
        entry.shape.dim.add(size=size)


# ---- merging ----------------------------------------
# Merges the bundles that several tasks wrote into one checkpoint: renames the data files, joins the indexes.


def merge(
    prefixes: Sequence[str], destination: str, delete_old_dirs: bool = True, disk: files.Disk = files.DISK
) -> None:
    """Merges several bundles into one checkpoint and removes them.

    Args:
      prefixes: the bundles, in the order of their shards.
      destination: the prefix of the checkpoint.
      delete_old_dirs: remove the directories of the bundles if they are empty afterwards.

    Raises:
      InvalidArgumentError: when a bundle is missing or two have a tensor in common.
      OpError: when the file system refuses.
    """
    entries: dict[bytes, Any] = {}
    moves: list[str] = []
    for prefix in prefixes:
        _add(prefix, entries, moves)
    shards = free_shard_count(destination, max(1, len(moves)))
    try:
        for number, source in enumerate(moves):
            disk.rename(source, files.data_file(destination, number, shards))
    except OSError as error:
        raise errors.from_os_error(error, destination) from None
    commit_index(destination, shards, entries, disk)
    for prefix in prefixes:
        if prefix != destination:
            disk.remove(files.index_file(prefix))
    if delete_old_dirs:
        old = {os.path.dirname(files.local_path(prefix)) for prefix in prefixes}
        old.discard(os.path.dirname(files.local_path(destination)))
        for directory in sorted(old):
            disk.remove_directory(directory)


def _add(prefix: str, entries: dict[bytes, Any], moves: list[str]) -> None:
    """Adds a bundle's index to ``entries`` and its data files to ``moves``."""
    try:
        shards, index = load_index(prefix)
    except errors.NotFoundError:
        raise errors.InvalidArgumentError.of(
            f"allow_missing_files was set to false and {prefix} did not exist. The shards of a checkpoint must be"
            " written to a file system that all tasks share"
        ) from None
    numbers: dict[int, int] = {}
    for key, data in index.items():
        if key == HEADER_KEY:
            continue
        with errors.reading(f"{prefix}: the entry of {key.decode(errors='replace')}"):
            entry = protos.BundleEntryProto.FromString(data)
        if entry.slices and key in entries and entries[key].slices:
            entries[key].slices.extend(entry.slices)
            continue
        if key in entries:
            name = key.decode(errors="replace")
            text = f"Duplicate tensor keyed by {name} encountered, when merging prefix: {prefix}"
            raise errors.InvalidArgumentError.of(text)
        if not entry.slices:
            entry.shard_id = numbers.setdefault(entry.shard_id, len(moves) + len(numbers))
        entries[key] = entry
    moves.extend(files.data_file(prefix, old, shards) for old in sorted(numbers, key=numbers.__getitem__))
