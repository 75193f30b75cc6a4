"""Permutations of axes: ``tf.transpose`` and ``tf.matrix_transpose``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, Tensor, all_of, convert_to_tensor, name_scope, op
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.joining import concat
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.shape import rank
from tfmini.shapes import RawShape, merge_dims

_PERM = "perm: Tperm) -> y: T; T: type; Tperm: {int32, int64} = DT_INT32"
_transpose = op(f"Transpose(x: T, {_PERM}", work="none")
_transpose.gradient(lambda node, grad: [_transpose(grad, raw_ops.InvertPermutation(node.inputs[1])), None])
_conjugate_transpose = op(f"ConjugateTranspose(x: T, {_PERM}")
_conjugate_transpose.gradient(
    lambda node, grad: [_conjugate_transpose(grad, raw_ops.InvertPermutation(node.inputs[1])), None]
)


@all_of(_transpose, _conjugate_transpose).shape
def _transpose_shape(node: Operation) -> list[RawShape]:
    before, perm = node.inputs[0].raw_shape, constant_value(node.inputs[1])
    length = node.inputs[1].raw_shape
    if before is None:
        # A permutation of one element also fits a scalar.
        return [None if not length or length[0] is None or length[0] < 2 else (None,) * length[0]]
    if length and length[0] is not None:
        merge_dims(len(before), length[0])
    if perm is None:
        return [(None,) * len(before)]
    for axis in perm.tolist():
        if not -len(before) <= axis < len(before):
            raise ValueError(f"perm dim {axis} is out of range of input rank {len(before)}")
    return [tuple(before[axis] for axis in perm.tolist())]


@_transpose.kernel("CPU")
def _transpose_kernel(x: Any, perm: Any) -> Any:
    try:
        return x.transpose(perm.tolist()) if x.ndim else x
    except ValueError:
        return refuse(f"transpose expects a vector of size {x.ndim}. But input(1) is {perm.tolist()}")


@_conjugate_transpose.kernel("CPU")
def _conjugate_transpose_kernel(x: Any, perm: Any) -> Any:
    transposed = _transpose_kernel(x, perm)
    return np.conj(transposed) if transposed.dtype.kind == "c" else transposed


# ---- public functions ---------------------------------------------------------------------------


@export("tf.transpose")
def transpose(a: Any, perm: Any = None, name: str = "transpose", conjugate: bool = False) -> Tensor:
    """``a`` with its axes in the order ``perm``, by default reversed (``tf.transpose``)."""
    with name_scope(name, "transpose", [a]) as scope:
        a = convert_to_tensor(a, name="a")
        if perm is None:
            if a.raw_shape is not None:
                perm = np.arange(len(a.raw_shape))[::-1].astype(np.int32)
            else:
                last = raw_ops.Sub(rank(a), 1)
                perm = raw_ops.Sub(last, raw_ops.Range(0, rank(a), 1))
        apply = _conjugate_transpose if conjugate and a.dtype.is_complex else _transpose
        return apply(a, perm, name=scope)


@export("tf.matrix_transpose", "tf.linalg.matrix_transpose", "tf.linalg.transpose")
def matrix_transpose(a: Any, name: str = "matrix_transpose", conjugate: bool = False) -> Tensor:
    """``a`` with its last two axes exchanged (``tf.matrix_transpose``).

    Raises:
      ValueError: when its rank is less than 2.
    """
    with name_scope(name, values=[a]):
        a = convert_to_tensor(a, name="a")
        if a.raw_shape is None:
            count: Any = rank(a)
            head = raw_ops.Range(0, count - 2, 1)
            return transpose(a, concat([head, [count - 1, count - 2]], 0), conjugate=conjugate)
        count = len(a.raw_shape)
        if count < 2:
            raise ValueError(f"Argument 'a' should be a (batch) matrix, with rank >= 2.  Found: {a.shape}")
        return transpose(a, [*range(count - 2), count - 1, count - 2], conjugate=conjugate)
