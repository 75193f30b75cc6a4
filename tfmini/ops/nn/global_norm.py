"""The deprecated batch normalisation of whole images (``tf.nn.batch_norm_with_global_normalization``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini.deprecated_arguments import either
from tfmini.export import export
from tfmini.graph.families import Operation, Tensor, op
from tfmini.numerics.windows import Array
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.nn.normalization import batch_normalization
from tfmini.shapes import RawShape, merge_dims, with_rank

_ATTRS = "; T: numbertype; variance_epsilon: float; scale_after_normalization: bool"
norm_op = op("BatchNormWithGlobalNormalization(t: T, m: T, v: T, beta: T, gamma: T) -> result: T" + _ATTRS)
norm_grad_op = op(
    "BatchNormWithGlobalNormalizationGrad(t: T, m: T, v: T, gamma: T, backprop: T)"
    " -> dx: T, dm: T, dv: T, db: T, dg: T" + _ATTRS,
    differentiable=False,
)


def _depth(node: Operation, vectors: Any) -> int | None:
    depth = with_rank(node.inputs[0].raw_shape, 4)[3]
    for vector in vectors:
        depth = merge_dims(depth, with_rank(vector.raw_shape, 1)[0])
    return depth


@norm_op.shape
def _norm_shape(node: Operation) -> list[RawShape]:
    depth = _depth(node, node.inputs[1:])
    return [(*with_rank(node.inputs[0].raw_shape, 4)[:3], depth)]


@norm_grad_op.shape
def _norm_grad_shape(node: Operation) -> list[RawShape]:
    depth = _depth(node, node.inputs[1:4])
    return [(*with_rank(node.inputs[0].raw_shape, 4)[:3], depth), (depth,), (depth,), (depth,), (depth,)]


def _check_whole(t: Array, *vectors: Array) -> None:
    if t.ndim != 4 or any(vector.shape != t.shape[3:] for vector in vectors):
        shapes = [list(array.shape) for array in (t, *vectors)]
        refuse(f"Images must be 4-dimensional and the others vectors of their depth, but the shapes are {shapes}")


@norm_op.kernel("CPU")
def _norm_kernel(
    t: Array, m: Array, v: Array, beta: Array, gamma: Array, *, variance_epsilon: float,
    scale_after_normalization: bool,
) -> Array:  # fmt: skip
    _check_whole(t, m, v, beta, gamma)
    inverse = 1 / np.sqrt(v + v.dtype.type(variance_epsilon))
    if scale_after_normalization:
        inverse = inverse * gamma
    result: Array = (t - m) * inverse
    result += beta
    return result


@norm_grad_op.kernel("CPU")
def _norm_grad_kernel(
    t: Array, m: Array, v: Array, gamma: Array, backprop: Array, *, variance_epsilon: float,
    scale_after_normalization: bool,
) -> tuple[Array, ...]:  # fmt: skip
    _check_whole(t, m, v, gamma)
    if backprop.shape != t.shape:
        refuse(f"backprop must have the shape of t, {list(t.shape)}, but has {list(backprop.shape)}")
    shifted = v + v.dtype.type(variance_epsilon)
    inverse = 1 / np.sqrt(shifted)
    db = backprop.sum(axis=(0, 1, 2))
    centred = (backprop * (t - m)).sum(axis=(0, 1, 2))
    scale = inverse * gamma if scale_after_normalization else inverse
    dv = centred * scale / shifted * v.dtype.type(-0.5)
    dg = centred * inverse if scale_after_normalization else np.zeros_like(gamma)
    return backprop * scale, -db * scale, dv, db, dg


@norm_op.gradient
def _norm_gradient(node: Operation, grad: Tensor) -> Any:
    t, m, v, _, gamma = node.inputs
    attrs = {name: node.attrs[name] for name in ("variance_epsilon", "scale_after_normalization")}
    return list(norm_grad_op(t, m, v, gamma, grad, **attrs))


@export("tf.nn.batch_norm_with_global_normalization")
def batch_norm_with_global_normalization(
    t: Any = None, m: Any = None, v: Any = None, beta: Any = None, gamma: Any = None, variance_epsilon: Any = None,
    scale_after_normalization: Any = None, name: str | None = None, input: Any = None, mean: Any = None,
    variance: Any = None,
) -> Tensor:  # fmt: skip
    """`batch_normalization` of images ``[batch, rows, columns, channels]`` with statistics per channel.

    (``tf.nn.batch_norm_with_global_normalization``.) ``gamma`` is used only with ``scale_after_normalization``.
    """
    t, m, v = either("input", input, "t", t), either("mean", mean, "m", m), either("variance", variance, "v", v)
    scale = gamma if scale_after_normalization else None
    return batch_normalization(t, m, v, beta, scale, variance_epsilon, name)
