"""Checkpoints in the V1 format, which `Saver` wrote before TensorFlow 1.0: one table with the values.

One record per slice holds its values as a TensorProto; the record under the key "" lists tensors and
their slices. A sharded checkpoint is several such files, named by a pattern (``model-?????-of-00002``).
The format is slow and limited to 2 GiB per slice; it serves for old files and old scripts.
"""

from __future__ import annotations

import os
from glob import glob
from typing import Any

import numpy as np

from tfmini import dtypes, errors, protos
from tfmini.checkpoint import files, sstable
from tfmini.checkpoint.encoding import Array, checked_array
from tfmini.checkpoint.reader import BundleReader, TensorEntry, checked_entry, missing_key
from tfmini.checkpoint.slices import FULL, Slice, encode_key
from tfmini.graph.attr_values import fill_typed_field, shape_proto, tensor_from_proto
from tfmini.ops.array.kernel_arguments import refuse

_REMEDY = "It is truncated, corrupt or no checkpoint"


class V1Writer:
    """Writes tensors into one V1 file; the interface of `BundleWriter`."""

    def __init__(self, path: str, disk: files.Disk = files.DISK) -> None:
        self._path = path
        self._disk = disk
        self._tensors: dict[str, Any] = {}
        self._records: dict[bytes, bytes] = {}

    def __enter__(self) -> V1Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._records.clear()

    def add(self, name: str, value: Any, dtype: dtypes.DType) -> None:
        """Adds a tensor.

        Raises:
          InvalidArgumentError: when the name is taken.
        """
        shape = np.shape(value)
        self.add_slice(name, shape, Slice((FULL,) * len(shape)), value, dtype)

    def add_slice(self, name: str, full_shape: tuple[int, ...], part: Slice, value: Any, dtype: dtypes.DType) -> None:
        """Adds a slice of a tensor; raises like `add`."""
        key = encode_key(name, part)
        if key in self._records:
            refuse(f"Adding duplicate key: {name}")
        meta = self._tensors.setdefault(name, protos.SavedSliceMeta(name=name))
        if not meta.slice:
            meta.type = dtype.as_datatype_enum
            meta.shape.CopyFrom(shape_proto(full_shape))
        part.to_proto(meta.slice.add())
        record = protos.SavedTensorSlices()
        record.data.name = name
        part.to_proto(record.data.slice)
        fill_typed_field(record.data.data, checked_array(value, dtype))
        self._records[key] = record.SerializeToString()

    def finish(self) -> None:
        """Writes the whole file."""
        header = protos.SavedTensorSlices()
        header.meta.versions.producer = 1
        header.meta.tensor.extend(self._tensors[name] for name in sorted(self._tensors))
        table = sstable.build([(b"", header.SerializeToString()), *sorted(self._records.items())])
        files.write_atomically(self._path, table, self._disk)


class V1Reader(BundleReader):
    """The tensors of the V1 files that a path or pattern names."""

    def __init__(self, pattern: str, paths: list[str]) -> None:
        self.prefix = pattern
        self._records: dict[bytes, tuple[str, bytes]] = {}
        self._entries: dict[str, TensorEntry] = {}
        for path in paths:
            self._add_file(path)

    @staticmethod
    def matching(pattern: str) -> V1Reader | None:
        """The reader of the existing files that match, or None."""
        pattern = files.local_path(pattern)
        paths = [pattern] if os.path.isfile(pattern) else sorted(glob(pattern))
        return V1Reader(pattern, paths) if paths else None

    def _add_file(self, path: str) -> None:
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError as error:
            raise errors.from_os_error(error, path) from None
        with errors.reading(f"Unable to open table file {path}", remedy=_REMEDY):
            records = dict(sstable.read(content))
            header: Any = protos.SavedTensorSlices.FromString(records.pop(b"", b""))
            self._records.update((key, (path, record)) for key, record in records.items())
        for meta in header.meta.tensor:
            with errors.reading(f"Unable to open table file {path}: tensor {meta.name}", remedy=_REMEDY):
                self._add_tensor(meta)

    def _add_tensor(self, meta: Any) -> None:
        before = self._entries.get(meta.name)
        parts = tuple(Slice.from_proto(part) for part in meta.slice)
        if not parts:
            raise ValueError("it has no slices")
        shape = [dim.size for dim in meta.shape.dim]
        found = checked_entry(meta.type, shape, 0, 0, 0, 0, (before.slices if before else ()) + parts)
        if before is not None and (before.dtype, before.shape) != (found.dtype, found.shape):
            raise ValueError("it has another type or shape in another file")
        self._entries[meta.name] = found

    def names(self) -> list[str]:
        """The names of the tensors, in order."""
        return sorted(self._entries)

    def stored(self) -> list[tuple[bytes, TensorEntry]]:
        """The tensors, in order."""
        return [(name.encode(), self._entries[name]) for name in self.names()]

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def entry(self, name: str) -> TensorEntry:
        """The description of a tensor.

        Raises:
          NotFoundError: for an unknown name.
        """
        if name not in self._entries:
            raise errors.NotFoundError.of(missing_key(name, self.prefix, self.names()))
        return self._entries[name]

    def _capacity(self) -> int:
        return sum(len(record) for _, record in self._records.values())

    def _piece(self, name: str, entry: TensorEntry, part: Slice) -> Array:
        key = encode_key(name, part)
        if key not in self._records:
            self._refuse(self.prefix, name, f"its slice {part.text} has no record")
        path, record = self._records[key]
        with self._reading(path, name):
            data = protos.SavedTensorSlices.FromString(record).data.data
            data.dtype = entry.dtype.as_datatype_enum  # type: ignore[assignment, unused-ignore]
            shape = part.shape(entry.shape)
            # A record holds every value: one that repeats would let a small file ask for any amount of memory.
            return tensor_from_proto(data, shape, repeats=False)


def open_checkpoint(prefix: str) -> BundleReader:
    """The reader of a checkpoint, V2 before V1.

    Raises:
      NotFoundError: when neither exists.
      DataLossError: when it is truncated or corrupt.
    """
    try:
        return BundleReader(prefix)
    except errors.NotFoundError:
        found = V1Reader.matching(prefix)
        if found is None:
            raise
        return found
