"""Ops that write and read checkpoints: SaveV2, RestoreV2, MergeV2Checkpoints and the names of shards."""

from __future__ import annotations

import os
from glob import glob
from typing import Any

import numpy as np

from tfmini import dtypes, errors, protos
from tfmini.checkpoint import files
from tfmini.checkpoint.files import checked_array
from tfmini.checkpoint.reader import FULL, BundleReader, Slice, TensorEntry, checked_entry, encode_key, missing_key
from tfmini.checkpoint.reader import build as build_table
from tfmini.checkpoint.reader import parse as parse_slice
from tfmini.checkpoint.reader import read as read_table
from tfmini.checkpoint.writer import BundleWriter, merge
from tfmini.core_types import Array
from tfmini.dtypes import DType, cpp_name
from tfmini.graph.attr_values import fill_typed_field, shape_proto, tensor_from_proto
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, op, sized
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.flow.tensor_lists import TensorList
from tfmini.progress import work
from tfmini.shapes import RawShape, format_raw, merge_dims, with_rank

# ---- Checkpoints in the V1 format, which `Saver` wrote before TensorFlow 1.0: one table with the values ------------
# One record per slice holds its values as a TensorProto; the record under the key "" lists tensors and
# their slices. A sharded checkpoint is several such files, named by a pattern (``model-?????-of-00002``).
# The format is slow and limited to 2 GiB per slice; it serves for old files and old scripts.

_EMPTY = 0  # the value of a variant that holds nothing
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

    def add(self, name: str, value: Array, dtype: dtypes.DType) -> None:
        """Adds a tensor.

        Raises:
          InvalidArgumentError: when the name is taken.
        """
        shape = np.shape(value)
        self.add_slice(name, shape, Slice((FULL,) * len(shape)), value, dtype)

    def add_slice(self, name: str, full_shape: tuple[int, ...], part: Slice, value: Array, dtype: dtypes.DType) -> None:
        """Adds a slice of a tensor; raises like `add`, and UnimplementedError for a variant."""
        if dtype is dtypes.variant:
            raise errors.UnimplementedError.of(f"Saving data type {dtype.name} not yet supported")
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
        table = build_table([(b"", header.SerializeToString()), *sorted(self._records.items())])
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
            records = dict(read_table(content))
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


# ---- save restore ------------------------------------------------------------

save_v2: OpHandle[Operation] = op(
    """SaveV2(prefix: string, tensor_names: string, shape_and_slices: string, tensors: dtypes)
    dtypes: list(type) >= 1""",
    stateful=True,
    slow_io=True,
    checkpoint=True,
)
restore_v2: OpHandle[Any] = op(
    """RestoreV2(prefix: string, tensor_names: string, shape_and_slices: string) -> tensors: dtypes
    dtypes: list(type) >= 1""",
    stateful=True,
    slow_io=True,
    checkpoint=True,
)
merge_v2_checkpoints: OpHandle[Operation] = op(
    """MergeV2Checkpoints(checkpoint_prefixes: string, destination_prefix: string)
    delete_old_dirs: bool = true""",
    stateful=True,
    slow_io=True,
    shape=sized("_, () ->"),
)
sharded_filename = op("ShardedFilename(basename: string, shard: int32, num_shards: int32) -> filename: string")
sharded_filespec = op("ShardedFilespec(basename: string, num_shards: int32) -> filename: string")
all_of(sharded_filename, sharded_filespec).shape(sized("(), (), () -> ()"))
save: OpHandle[Operation] = op(
    "Save(filename: string, tensor_names: string, data: T); T: list(type) >= 1",
    stateful=True, slow_io=True, checkpoint=True,
)  # fmt: skip
save_slices: OpHandle[Operation] = op(
    "SaveSlices(filename: string, tensor_names: string, shapes_and_slices: string, data: T); T: list(type) >= 1",
    stateful=True,
    slow_io=True,
    checkpoint=True,
)
restore = op(
    "Restore(file_pattern: string, tensor_name: string) -> tensor: dt; dt: type; preferred_shard: int = -1",
    stateful=True,
    slow_io=True,
    checkpoint=True,
    shape=sized("(), () -> *"),
)
restore_slice = op(
    """RestoreSlice(file_pattern: string, tensor_name: string, shape_and_slice: string) -> tensor: dt
    dt: type
    preferred_shard: int = -1""",
    stateful=True,
    slow_io=True,
    checkpoint=True,
)
_ALL = (save_v2, restore_v2, merge_v2_checkpoints, sharded_filename, sharded_filespec, save, save_slices, restore,
        restore_slice)  # fmt: skip
for _handle in _ALL:
    _handle.not_differentiable()


# ---- shapes ---------------------------------------------------------------------------------


def _check_count(tensor: Tensor, count: int) -> None:
    """Refuses a tensor whose static shape is not that of a vector of ``count`` elements."""
    (size,) = with_rank(tensor.raw_shape, 1)
    merge_dims(size, count)


def _sliced_shape(spec: bytes) -> RawShape:
    if not spec:
        return None
    shape, part = parse_slice(spec.decode())
    return part.shape(shape)


@all_of(save_v2, save_slices).shape
def _save_v2_shape(node: Operation) -> list[RawShape]:
    with_rank(node.inputs[0].raw_shape, 0)
    count = len(node.inputs) - 3
    _check_count(node.inputs[1], count)
    _check_count(node.inputs[2], count)
    return []


@save.shape
def _save_shape(node: Operation) -> list[RawShape]:
    with_rank(node.inputs[0].raw_shape, 0)
    _check_count(node.inputs[1], len(node.inputs) - 2)
    return []


@restore_v2.shape
def _restore_v2_shape(node: Operation) -> list[RawShape]:
    with_rank(node.inputs[0].raw_shape, 0)
    types = node.attrs["dtypes"]
    _check_count(node.inputs[1], len(types))
    _check_count(node.inputs[2], len(types))
    specs = constant_value(node.inputs[2])
    return [None] * len(types) if specs is None else [_sliced_shape(spec) for spec in specs]


@restore_slice.shape
def _restore_slice_shape(node: Operation) -> list[RawShape]:
    for tensor in node.inputs:
        with_rank(tensor.raw_shape, 0)
    spec = constant_value(node.inputs[2])
    return [None if spec is None else _sliced_shape(_scalar(spec))]


# ---- kernels --------------------------------------------------------------------------------


def _scalar(value: Any) -> bytes:
    if np.ndim(value):
        refuse(f"Expected a scalar string, got shape {list(np.shape(value))}")
    return value if isinstance(value, bytes) else value.item()


def _texts(values: Array, count: int | None = None) -> list[str]:
    """The strings of a vector, which must have ``count`` of them."""
    if np.ndim(values) != 1 or count is not None and len(values) != count:
        wanted = "a vector of strings" if count is None else f"{count} strings"
        refuse(f"Expected {wanted}, got shape {list(np.shape(values))}")
    return [text.decode() for text in values.tolist()]


def _parse(spec: str) -> tuple[tuple[int, ...], Slice]:
    try:
        return parse_slice(spec)
    except ValueError as error:
        raise errors.InvalidArgumentError.of(str(error)) from None


def _write(
    writer: BundleWriter | V1Writer, path: str, names: Array, specs: Array, tensors: list[Any], types: list[DType]
) -> None:
    with work(f"saving {path}", sum(np.asarray(tensor).nbytes for tensor in tensors), "B") as advance:
        for name, spec, tensor, dtype in zip(*(_texts(t, len(types)) for t in (names, specs)), tensors, types):
            _write_tensor(writer, name, spec, tensor, dtype)
            advance(np.asarray(tensor).nbytes)
        writer.finish()


def _write_tensor(writer: BundleWriter | V1Writer, name: str, spec: str, tensor: Array, dtype: DType) -> None:
    if dtype is dtypes.variant:
        tensor = _messages(tensor)
    if not spec:
        writer.add(name, tensor, dtype)
        return
    shape, part = _parse(spec)
    if part.shape(shape) != np.shape(tensor):
        refuse(
            "Slice in shape_and_slice specification does not match the shape of the tensor to  save:"
            f" {spec}, tensor {name}: {list(np.shape(tensor))}"
        )
    writer.add_slice(name, shape, part, tensor, dtype)


@save_v2.kernel("CPU")
def _save_v2(
    prefix: Array, tensor_names: Array, shape_and_slices: Array, tensors: list[Any], *, dtypes: list[DType]
) -> Any:
    path = _scalar(prefix).decode()
    with BundleWriter(path) as writer:
        _write(writer, path, tensor_names, shape_and_slices, tensors, dtypes)


@save_slices.kernel("CPU")
def _save_slices(
    filename: Array, tensor_names: Array, shapes_and_slices: Array, data: list[Any], *, T: list[DType]
) -> Any:
    path = _scalar(filename).decode()
    with V1Writer(path) as writer:
        _write(writer, path, tensor_names, shapes_and_slices, data, T)


@save.kernel("CPU")
def _save(filename: Array, tensor_names: Array, data: list[Any], *, T: list[DType]) -> Any:
    _save_slices(filename, tensor_names, np.full(len(data), b"", object), data, T=T)


def _messages(variants: Any) -> Array:
    """The serialized messages of variants: lists of tensors have one, and that of an empty variant has no bytes."""
    values = np.asarray(variants, object)
    found = np.empty(values.size, object)
    for place, value in enumerate(values.ravel().tolist()):
        if not isinstance(value, TensorList) and value != _EMPTY:
            raise errors.UnimplementedError.of(f"Saving a variant that is a {type(value).__name__} is not supported")
        found[place] = value.message().SerializeToString() if isinstance(value, TensorList) else b""
    return found.reshape(values.shape)


def stored_variants(messages: Array, prefix: str, name: str) -> Array:
    """The lists of tensors of a variant tensor that was stored."""
    found = np.empty(messages.size, object)
    with errors.reading(f"TensorBundle at {prefix}: tensor {name}", remedy=_REMEDY):
        for place, data in enumerate(messages.ravel().tolist()):
            message = protos.VariantTensorDataProto.FromString(data)
            found[place] = TensorList.of_message(message) if data else _EMPTY
    return found.reshape(messages.shape)


def _read(reader: BundleReader, name: str, spec: str, dtype: DType) -> Any:
    entry = reader.entry(name)
    if entry.dtype is not dtype.base_dtype:
        text = f"expected dtype {cpp_name(dtype)} does not equal original dtype {cpp_name(entry.dtype)}"
        refuse(f"tensor_name = {name}; {text}")
    if not spec:
        value = reader.read(name)
    else:
        shape, part = _parse(spec)
        if shape != entry.shape:
            refuse(
                f"tensor_name = {name}; shape in shape_and_slice spec {format_raw(shape)} does not match the shape"
                f" stored in checkpoint: {format_raw(entry.shape)}"
            )
        value = reader.read_slice(name, part)
    if entry.dtype is dtypes.variant:
        value = stored_variants(value, reader.prefix, name)
    return value if value.ndim else value[()]


@restore_v2.kernel("CPU")
def _restore_v2(prefix: Array, tensor_names: Array, shape_and_slices: Array, *, dtypes: list[DType]) -> Any:
    reader = open_checkpoint(_scalar(prefix).decode())
    found = []
    with work(f"restoring {reader.prefix}", len(dtypes), "tensors") as advance:
        for name, spec, dtype in zip(*(_texts(t, len(dtypes)) for t in (tensor_names, shape_and_slices)), dtypes):
            found.append(_read(reader, name, spec, dtype))
            advance(1)
    return tuple(found)


@restore_slice.kernel("CPU")
def _restore_slice(file_pattern: Array, tensor_name: Array, shape_and_slice: Any, *, dt: DType) -> Any:
    reader = open_checkpoint(_scalar(file_pattern).decode())
    return _read(reader, _scalar(tensor_name).decode(), _scalar(shape_and_slice).decode(), dt)


restore.kernel("CPU")(lambda file_pattern, tensor_name, *, dt: _restore_slice(file_pattern, tensor_name, b"", dt=dt))


@merge_v2_checkpoints.kernel("CPU")
def _merge(checkpoint_prefixes: Array, destination_prefix: Array, *, delete_old_dirs: bool) -> Any:
    merge(_texts(checkpoint_prefixes), _scalar(destination_prefix).decode(), delete_old_dirs)


def _check_scalars(**values: Any) -> None:
    for name, value in values.items():
        if np.ndim(value):
            refuse(f"{name} must be a scalar, got shape {list(np.shape(value))}")


@sharded_filename.kernel("CPU")
def _sharded_filename(basename: Array, shard: Array, num_shards: Array) -> bytes:
    _check_scalars(shard=shard, num_shards=num_shards)
    return b"%s-%05d-of-%05d" % (_scalar(basename), shard, num_shards)


@sharded_filespec.kernel("CPU")
def _sharded_filespec(basename: Array, num_shards: Array) -> bytes:
    _check_scalars(num_shards=num_shards)
    return b"%s-?????-of-%05d" % (_scalar(basename), num_shards)
