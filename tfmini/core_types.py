"""The types of arguments that users know from TensorFlow: what may stand for a tensor, a shape, a type or a path.

They are for annotations, in the style of TensorFlow's ``core.types``. Each is the union of what the function that
converts it accepts: `convert_to_tensor` of `tfmini.graph.conversion`, `TensorShape`, `as_dtype`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from tfmini.dtypes import DType
from tfmini.shapes import Dimension, TensorShape

PathLike: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]
# The Python type is one such as ``float``; the number is a DataType of TensorFlow.
DTypeLike: TypeAlias = DType | np.dtype[Any] | type | str | int
DimensionLike: TypeAlias = int | Dimension | None


class ShapeProto(Protocol):
    """A TensorShapeProto."""

    @property
    def dim(self) -> Any: ...

    @property
    def unknown_rank(self) -> bool: ...


class GraphTensor(Protocol):
    """A value in a graph: `Tensor`, `Variable` and all else that has an op, sparse tensors as well."""

    @property
    def op(self) -> Any: ...

    @property
    def graph(self) -> Any: ...

    @property
    def dtype(self) -> DType: ...

    @property
    def shape(self) -> Any: ...


# A value as kernels have it. At rank 0 it may be a numpy scalar instead, which has the methods of an array; a string is
# `bytes` then.
Array: TypeAlias = np.ndarray[Any, Any]
Scalar: TypeAlias = bool | int | float | complex | str | bytes | np.generic
ArrayLike: TypeAlias = np.ndarray[Any, Any] | Scalar | Sequence["ArrayLike"]
TensorLike: TypeAlias = GraphTensor | np.ndarray[Any, Any] | Scalar | Dimension | TensorShape | Sequence["TensorLike"]
# A shape that is known when the graph is built. Where an op has it as an input, it may be a `TensorLike` as well.
ShapeLike: TypeAlias = TensorShape | ShapeProto | Sequence[DimensionLike] | DimensionLike
# A shape that is an input of an op. (The type of ``as_list()`` has None in it, whatever is known.)
SizesLike: TypeAlias = TensorLike | ShapeLike | Sequence[TensorLike | DimensionLike]
AxisLike: TypeAlias = (
    int | np.integer[Any] | Sequence[int | np.integer[Any] | GraphTensor] | GraphTensor | np.ndarray[Any, Any]
)
# "SAME", "VALID" or, for each axis, the padding before and after it.
PaddingLike: TypeAlias = str | bytes | Sequence[Sequence[int]]
