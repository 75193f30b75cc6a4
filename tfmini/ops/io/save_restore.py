"""Ops that write and read checkpoints: SaveV2, RestoreV2, MergeV2Checkpoints and the names of shards."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini import errors
from tfmini.checkpoint import merging, slices
from tfmini.checkpoint.reader import BundleReader
from tfmini.checkpoint.writer import BundleWriter
from tfmini.dtypes import DType, cpp_name
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, op, sized
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.io.checkpoint_v1 import V1Writer, open_checkpoint
from tfmini.progress import work
from tfmini.shapes import RawShape, format_raw, merge_dims, with_rank

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
    shape, part = slices.parse(spec.decode())
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


def _texts(values: Any, count: int | None = None) -> list[str]:
    """The strings of a vector, which must have ``count`` of them."""
    if np.ndim(values) != 1 or count is not None and len(values) != count:
        wanted = "a vector of strings" if count is None else f"{count} strings"
        refuse(f"Expected {wanted}, got shape {list(np.shape(values))}")
    return [text.decode() for text in values.tolist()]


def _parse(spec: str) -> tuple[tuple[int, ...], slices.Slice]:
    try:
        return slices.parse(spec)
    except ValueError as error:
        raise errors.InvalidArgumentError.of(str(error)) from None


def _write(
    writer: BundleWriter | V1Writer, path: str, names: Any, specs: Any, tensors: list[Any], types: list[DType]
) -> None:
    with work(f"saving {path}", sum(np.asarray(tensor).nbytes for tensor in tensors), "B") as advance:
        for name, spec, tensor, dtype in zip(*(_texts(t, len(types)) for t in (names, specs)), tensors, types):
            _write_tensor(writer, name, spec, tensor, dtype)
            advance(np.asarray(tensor).nbytes)
        writer.finish()


def _write_tensor(writer: BundleWriter | V1Writer, name: str, spec: str, tensor: Any, dtype: DType) -> None:
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
def _save_v2(prefix: Any, tensor_names: Any, shape_and_slices: Any, tensors: list[Any], *, dtypes: list[DType]) -> Any:
    path = _scalar(prefix).decode()
    with BundleWriter(path) as writer:
        _write(writer, path, tensor_names, shape_and_slices, tensors, dtypes)


@save_slices.kernel("CPU")
def _save_slices(filename: Any, tensor_names: Any, shapes_and_slices: Any, data: list[Any], *, T: list[DType]) -> Any:
    path = _scalar(filename).decode()
    with V1Writer(path) as writer:
        _write(writer, path, tensor_names, shapes_and_slices, data, T)


@save.kernel("CPU")
def _save(filename: Any, tensor_names: Any, data: list[Any], *, T: list[DType]) -> Any:
    _save_slices(filename, tensor_names, np.full(len(data), b"", object), data, T=T)


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
    return value if value.ndim else value[()]


@restore_v2.kernel("CPU")
def _restore_v2(prefix: Any, tensor_names: Any, shape_and_slices: Any, *, dtypes: list[DType]) -> Any:
    reader = open_checkpoint(_scalar(prefix).decode())
    found = []
    with work(f"restoring {reader.prefix}", len(dtypes), "tensors") as advance:
        for name, spec, dtype in zip(*(_texts(t, len(dtypes)) for t in (tensor_names, shape_and_slices)), dtypes):
            found.append(_read(reader, name, spec, dtype))
            advance(1)
    return tuple(found)


@restore_slice.kernel("CPU")
def _restore_slice(file_pattern: Any, tensor_name: Any, shape_and_slice: Any, *, dt: DType) -> Any:
    reader = open_checkpoint(_scalar(file_pattern).decode())
    return _read(reader, _scalar(tensor_name).decode(), _scalar(shape_and_slice).decode(), dt)


restore.kernel("CPU")(lambda file_pattern, tensor_name, *, dt: _restore_slice(file_pattern, tensor_name, b"", dt=dt))


@merge_v2_checkpoints.kernel("CPU")
def _merge(checkpoint_prefixes: Any, destination_prefix: Any, *, delete_old_dirs: bool) -> Any:
    merging.merge(_texts(checkpoint_prefixes), _scalar(destination_prefix).decode(), delete_old_dirs)


def _check_scalars(**values: Any) -> None:
    for name, value in values.items():
        if np.ndim(value):
            refuse(f"{name} must be a scalar, got shape {list(np.shape(value))}")


@sharded_filename.kernel("CPU")
def _sharded_filename(basename: Any, shard: Any, num_shards: Any) -> bytes:
    _check_scalars(shard=shard, num_shards=num_shards)
    return b"%s-%05d-of-%05d" % (_scalar(basename), shard, num_shards)


@sharded_filespec.kernel("CPU")
def _sharded_filespec(basename: Any, num_shards: Any) -> bytes:
    _check_scalars(num_shards=num_shards)
    return b"%s-?????-of-%05d" % (_scalar(basename), num_shards)
