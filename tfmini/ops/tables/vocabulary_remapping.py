"""Loads a matrix whose rows or columns belong to words, for a vocabulary that has changed since it was saved."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.graph.families import OpHandle, op, sized
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.io.checkpoint_v1 import open_checkpoint

generate_vocab_remapping: OpHandle[Any] = op(
    """GenerateVocabRemapping(new_vocab_file: string, old_vocab_file: string) -> remapping: int64, num_present: int32
    new_vocab_offset: int >= 0
    num_new_vocab: int >= 0
    old_vocab_size: int >= -1 = -1""",
    slow_io=True,
    differentiable=False,
    shape=sized("(), () -> {num_new_vocab}, ()"),
)
load_and_remap_matrix = op(
    """LoadAndRemapMatrix(ckpt_path: string, old_tensor_name: string, row_remapping: int64, col_remapping: int64,
    initializing_values: float) -> output_matrix: float
    num_rows: int >= 0
    num_cols: int >= 1
    max_rows_in_memory: int = -1""",
    stateful=True,
    slow_io=True,
    differentiable=False,
    shape=sized("*, (), _, _ -> {num_rows} {num_cols}"),
)


def _text(value: Any) -> str:
    return (value if isinstance(value, bytes) else value.item()).decode()


def _lines(path: str, start: int, end: int | None) -> list[bytes]:
    try:
        with open(path, "rb") as file:
            return [line.rstrip(b"\n") for line in islice(file, start, end)]
    except OSError as error:
        raise errors.from_os_error(error, path) from None


@generate_vocab_remapping.kernel("CPU")
def _remapping(
    new_vocab_file: Any, old_vocab_file: Any, *, new_vocab_offset: int, num_new_vocab: int, old_vocab_size: int
) -> Any:
    old = _lines(_text(old_vocab_file), 0, None if old_vocab_size < 0 else old_vocab_size)
    path = _text(new_vocab_file)
    new = _lines(path, new_vocab_offset, new_vocab_offset + num_new_vocab)
    if len(new) < num_new_vocab:
        refuse(f"{path} has only {new_vocab_offset + len(new)} lines, {new_vocab_offset + num_new_vocab} are asked for")
    places = {word: i for i, word in enumerate(old)}
    remapping = np.array([places.get(word, -1) for word in new], np.int64)
    return remapping, np.int32((remapping >= 0).sum())


def _check_remapping(remapping: Any, length: int, what: str) -> None:
    if remapping.size != length:
        refuse(f"Size of {what} remapping is {remapping.size} instead of being equal to num_{what}s={length}")
    present = remapping[remapping >= 0]
    ids, counts = np.unique(present, return_counts=True)
    if (counts > 1).any():
        text = f"Old {what} {ids[counts > 1][0]} is mapped to several new {what}s, which is not supported"
        raise errors.UnimplementedError.of(text)


@load_and_remap_matrix.kernel("CPU")
def _load_and_remap(
    ckpt_path: Any,
    old_tensor_name: Any,
    row_remapping: Any,
    col_remapping: Any,
    initializing_values: Any,
    *,
    num_rows: int,
    num_cols: int,
) -> Any:
    _check_remapping(row_remapping, num_rows, "row")
    if col_remapping.size:
        _check_remapping(col_remapping, num_cols, "col")
    name = _text(old_tensor_name)
    old = open_checkpoint(_text(ckpt_path)).read(name)
    if old.ndim != 2 or (not col_remapping.size and old.shape[1] != num_cols):
        refuse(f"Tensor {name} of shape {list(old.shape)} is no matrix with the {num_cols} columns asked for")
    columns = col_remapping if col_remapping.size else np.arange(num_cols)
    if max(row_remapping.max(initial=-1), -1) >= old.shape[0] or columns.max(initial=-1) >= old.shape[1]:
        refuse(f"The remapping goes beyond tensor {name} of shape {list(old.shape)}")
    missing = (row_remapping < 0)[:, None] | (columns < 0)[None, :]
    values = initializing_values.ravel()
    if missing.sum() != values.size:
        refuse(f"{missing.sum()} elements are missing, but there are {values.size} initializing_values")
    out = old[np.ix_(row_remapping, columns)].astype(np.float32, copy=False)
    out[missing] = values
    return out
