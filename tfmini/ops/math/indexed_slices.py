"""Conversion of `IndexedSlices` to dense tensors."""

from __future__ import annotations

import warnings
from typing import Any

from tfmini import dtypes
from tfmini.graph import raw_ops
from tfmini.graph.conversion import IndexedSlices, register_tensor_conversion_function
from tfmini.graph.operation import Tensor
from tfmini.ops.array.constant_value import constant_value

_LARGE = 100_000_000


def to_dense(value: IndexedSlices, dtype: Any = None, name: str | None = None, as_ref: bool = False) -> Tensor:
    """``value`` as a dense tensor; rows with the same index are added up.

    Raises:
      ValueError: when the dense shape or the type does not allow it.
    """
    if dtype is not None and not dtypes.as_dtype(dtype).is_compatible_with(value.dtype):
        raise ValueError(
            f"Tensor conversion requested dtype {dtypes.as_dtype(dtype).name} for IndexedSlices with dtype"
            f" {value.dtype.name}"
        )
    if value.dense_shape is None:
        raise ValueError(
            f"Tensor conversion requested for IndexedSlices without dense_shape: {value!s}; give it a dense_shape"
        )
    _warn_of_size(value.dense_shape)
    rows = value.dense_shape[0]
    return raw_ops.UnsortedSegmentSum(value.values, value.indices, rows, name=name)


def _warn_of_size(dense_shape: Tensor) -> None:
    sizes = constant_value(dense_shape)
    if sizes is None:
        warnings.warn(
            "Converting sparse IndexedSlices to a dense Tensor of unknown shape. This may consume a large amount of"
            " memory.",
            stacklevel=6,
        )
    elif (count := int(sizes.prod(dtype="int64"))) >= _LARGE:
        warnings.warn(
            f"Converting sparse IndexedSlices to a dense Tensor with {count} elements. This may consume a large amount"
            " of memory.",
            stacklevel=6,
        )


register_tensor_conversion_function(IndexedSlices, to_dense)
