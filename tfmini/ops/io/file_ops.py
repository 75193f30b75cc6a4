"""Files in the graph: ``ReadFile``, ``WriteFile``, ``MatchingFiles``."""

from __future__ import annotations

import glob
import os
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, op
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.io.record_files import InflatedFile
from tfmini.shapes import RawShape, format_raw

read_file_op = op("ReadFile(filename: string) -> contents: string", stateful=True, slow_io=True)
write_file_op: OpHandle[Operation] = op("WriteFile(filename: string, contents: string)", stateful=True, slow_io=True)
matching_files_op = op(
    "MatchingFiles(pattern: string) -> filenames: string", stateful=True, shape=[(None,)], copyable=True
)
all_of(read_file_op, write_file_op, matching_files_op).not_differentiable()


def _check_scalar(node: Operation) -> None:
    for tensor in node.inputs:
        if tensor.raw_shape:
            raise ValueError(f"Shape must be rank 0 but is rank {len(tensor.raw_shape)}")


@read_file_op.shape
def _read_shape(node: Operation) -> list[RawShape]:
    _check_scalar(node)
    return [()]


@write_file_op.shape
def _write_shape(node: Operation) -> list[RawShape]:
    _check_scalar(node)
    return []


def _scalar(value: Any, what: str) -> bytes:
    if isinstance(value, bytes):
        return value
    if np.ndim(value):
        refuse(f"{what} tensor must be scalar, but had shape: {format_raw(np.shape(value))}")
    return np.asarray(value, object).item()  # type: ignore[no-any-return]


@read_file_op.kernel("CPU")
def _read_file(filename: Any) -> bytes:
    file = InflatedFile(_scalar(filename, "Input filename"))
    try:
        return file.read(-1)
    finally:
        file.close()


@write_file_op.kernel("CPU")
def _write_file(filename: Any, contents: Any) -> tuple[()]:
    path, data = _scalar(filename, "Input filename"), _scalar(contents, "Contents")
    try:
        os.makedirs(os.path.dirname(path) or b".", exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise errors.from_os_error(error, path) from error
    return ()


@matching_files_op.kernel("CPU")
def _matching_files(pattern: Any) -> Any:
    patterns = [pattern] if isinstance(pattern, bytes) else np.asarray(pattern, object).ravel().tolist()
    # Sorted, because the file system's order is arbitrary.
    found = sorted(name for one in patterns for name in glob.glob(one))
    out = np.empty(len(found), object)
    out[:] = found
    return out


@export("tf.read_file", "tf.io.read_file")
def read_file(filename: Any, name: str | None = None) -> Tensor:
    """The content of a file, a string scalar (``tf.read_file``)."""
    return read_file_op(filename, name=name)


@export("tf.write_file", "tf.io.write_file")
def write_file(filename: Any, contents: Any, name: str | None = None) -> Operation:
    """Writes a file; makes its directory if needed (``tf.write_file``)."""
    return write_file_op(filename, contents, name=name)


@export("tf.matching_files", "tf.io.matching_files")
def matching_files(pattern: Any, name: str | None = None) -> Tensor:
    """The names of the files that match glob patterns, sorted: string [n] (``tf.matching_files``)."""
    return matching_files_op(pattern, name=name)
