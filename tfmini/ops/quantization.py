"""Simulated quantisation: floating numbers rounded to those that a few bits can hold (``FakeQuantWithMinMax…``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfmini.core_types import Array, TensorLike
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, op, same_shape
from tfmini.graph.node import Node
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.shapes import RawShape, at_least_rank, at_most_rank, merge_dims, merge_raw, with_rank

_BITS = "; num_bits: int = 8; narrow_range: bool = false"
_RANGE = "; min: float = -6.0; max: float = 6.0" + _BITS
_VARS = "(inputs: float, min: float, max: float) -> outputs: float" + _BITS
_VARS_GRAD = (
    "(gradients: float, inputs: float, min: float, max: float)"
    " -> backprops_wrt_input: float, backprop_wrt_min: float, backprop_wrt_max: float" + _BITS
)
args_op = op("FakeQuantWithMinMaxArgs(inputs: float) -> outputs: float" + _RANGE, shape=same_shape)
args_grad_op = op(
    "FakeQuantWithMinMaxArgsGradient(gradients: float, inputs: float) -> backprops: float" + _RANGE,
    shape=same_shape, differentiable=None,
)  # fmt: skip
vars_op = op("FakeQuantWithMinMaxVars" + _VARS)
vars_grad_op: OpHandle[Any] = op("FakeQuantWithMinMaxVarsGradient" + _VARS_GRAD, differentiable=None)
channels_op = op("FakeQuantWithMinMaxVarsPerChannel" + _VARS)
channels_grad_op: OpHandle[Any] = op("FakeQuantWithMinMaxVarsPerChannelGradient" + _VARS_GRAD, differentiable=None)


# ---- shapes -------------------------------------------------------------------------------------


@vars_op.shape
def _vars_shape(node: Operation) -> list[RawShape]:
    for bound in node.inputs[1:]:
        with_rank(bound.raw_shape, 0)
    return [node.inputs[0].raw_shape]


@vars_grad_op.shape
def _vars_grad_shape(node: Operation) -> list[RawShape]:
    for bound in node.inputs[2:]:
        with_rank(bound.raw_shape, 0)
    return [merge_raw(node.inputs[0].raw_shape, node.inputs[1].raw_shape), (), ()]


@channels_op.shape
def _channels_shape(node: Operation) -> list[RawShape]:
    inputs = at_least_rank(node.inputs[0].raw_shape, 1)
    _channels(inputs, node.inputs[1:])
    return [inputs]


@channels_grad_op.shape
def _channels_grad_shape(node: Operation) -> list[RawShape]:
    inputs = at_most_rank(at_least_rank(node.inputs[0].raw_shape, 1), 4)
    inputs = merge_raw(inputs, node.inputs[1].raw_shape)
    depth = (_channels(inputs, node.inputs[2:]),)
    return [inputs, depth, depth]


def _channels(inputs: RawShape, bounds: Sequence[Tensor]) -> int | None:
    depth = inputs[-1] if inputs else None
    for bound in bounds:
        depth = merge_dims(depth, with_rank(bound.raw_shape, 1)[0])
    return depth


# ---- kernels ------------------------------------------------------------------------------------


class _Steps(NamedTuple):
    """The numbers that remain: from ``low`` to ``high``, with 0 among them, and the distance between two of them."""

    low: Array
    high: Array
    scale: Array


def _levels(attrs: Mapping[str, Any]) -> tuple[Any, Any]:
    """The smallest and the largest integer that stand for numbers."""
    if not 2 <= attrs["num_bits"] <= 16:
        refuse(f"num_bits must be between 2 and 16, inclusive, was: {attrs['num_bits']}")
    return np.float32(1 if attrs["narrow_range"] else 0), np.float32((1 << attrs["num_bits"]) - 1)


@np.errstate(all="ignore")
def _nudged(low: Any, high: Any, levels: tuple[Any, Any]) -> _Steps:
    """The range moved until 0 is one of its numbers. All steps are in float32, as TensorFlow's."""
    least, most = levels
    scale = (high - low) / (most - least)
    zero = np.clip(np.floor((least - low / scale).astype(np.float64) + 0.5), least, most).astype(np.float32)
    return _Steps((least - zero) * scale, (most - zero) * scale, scale)


@np.errstate(all="ignore")
def _rounded(values: Array, low: Any, high: Any, levels: tuple[Any, Any]) -> Array:
    steps, half = _nudged(low, high, levels), np.float32(0.5)
    zero = np.trunc(np.nan_to_num(-steps.low / steps.scale + half))
    shifted = np.clip(values, steps.low, steps.high) - steps.low
    result = (np.floor(shifted / steps.scale + half) - zero) * steps.scale
    return np.where((low == 0) & (high == 0), np.float32(0), result).astype(np.float32)


def _backprops(grad: Array, values: Array, low: Any, high: Any, levels: tuple[Any, Any]) -> tuple[Array, Array, Array]:
    """The gradients of the values, and those that values below and above the range have."""
    if grad.shape != values.shape:
        refuse(f"gradient and input must be the same size, got {list(grad.shape)} and {list(values.shape)}")
    steps = _nudged(low, high, levels)
    nothing = (low == 0) & (high == 0)  # TensorFlow lets the gradients through
    inside = nothing | ((values >= steps.low) & (values <= steps.high))
    below, above = ~nothing & (values < steps.low), ~nothing & (values > steps.high)
    return grad * inside, grad * below, grad * above


def _fixed(node: Node) -> tuple[Any, Any, tuple[Any, Any]]:
    """The range in the attrs, and the levels."""
    low, high = np.float32(node.attrs["min"]), np.float32(node.attrs["max"])
    if not low < high:
        refuse(f"min has to be smaller than max, was: {low:g} >= {high:g}")
    return low, high, _levels(node.attrs)


def _check_bounds(values: Array, low: Array, high: Array, per_channel: bool) -> None:
    if per_channel and not values.ndim:
        refuse("inputs must have a last dimension of channels, got a scalar")
    wanted = values.shape[-1:] if per_channel else ()
    for name, bound in (("min", low), ("max", high)):
        if np.shape(bound) != wanted:
            refuse(f"{name} has incorrect size, expected {list(wanted)} was {list(np.shape(bound))}")


@args_op.kernel_factory("CPU")
def _args_factory(node: Node) -> Callable[[Array], Array]:
    fixed = _fixed(node)
    return lambda values: _rounded(values, *fixed)


@args_grad_op.kernel_factory("CPU")
def _args_grad_factory(node: Node) -> Callable[[Array, Array], Array]:
    fixed = _fixed(node)
    return lambda grad, values: _backprops(grad, values, *fixed)[0]


@all_of(vars_op, channels_op).kernel_factory("CPU")
def _vars_factory(node: Node) -> Callable[..., Array]:
    levels, per_channel = _levels(node.attrs), node.op == channels_op.name

    def fake_quant(values: Array, low: Array, high: Array) -> Array:
        _check_bounds(values, low, high, per_channel)
        return _rounded(values, low, high, levels)

    return fake_quant


@all_of(vars_grad_op, channels_grad_op).kernel_factory("CPU")
def _vars_grad_factory(node: Node) -> Callable[..., tuple[Array, ...]]:
    levels, per_channel = _levels(node.attrs), node.op == channels_grad_op.name

    def fake_quant_grad(grad: Array, values: Array, low: Array, high: Array) -> tuple[Array, ...]:
        _check_bounds(values, low, high, per_channel)
        inside, *outside = _backprops(grad, values, low, high, levels)
        axes = tuple(range(np.ndim(values) - per_channel))
        return inside, *(np.asarray(np.sum(part, axis=axes, dtype=np.float32)) for part in outside)

    return fake_quant_grad


# ---- gradients ----------------------------------------------------------------------------------


def _attrs(node: Operation) -> dict[str, Any]:
    return {name: node.attrs[name] for name in ("min", "max", "num_bits", "narrow_range") if name in node.attrs}


args_op.gradient(lambda node, grad: [args_grad_op(grad, node.inputs[0], **_attrs(node))])
vars_op.gradient(lambda node, grad: list(vars_grad_op(grad, *node.inputs, **_attrs(node))))
channels_op.gradient(lambda node, grad: list(channels_grad_op(grad, *node.inputs, **_attrs(node))))


# ---- public functions ---------------------------------------------------------------------------


@export("tf.fake_quant_with_min_max_args", "tf.quantization.fake_quant_with_min_max_args")
def fake_quant_with_min_max_args(
    inputs: TensorLike, min: float = -6, max: float = 6, num_bits: int = 8, narrow_range: bool = False,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Rounds to the nearest of the numbers that so many bits hold (``tf.quantization.fake_quant_with_min_max_args``).

    Args:
      inputs: float32, of any shape.
      min, max: the range of these numbers, which is moved so that 0 is one of them.
      num_bits: how many there are: ``2 ** num_bits``; 2 to 16.
      narrow_range: one number less, at the lower end.

    Returns:
      float32, as ``inputs``. The gradients of inputs within the range pass.
    """
    return args_op(inputs, min=min, max=max, num_bits=num_bits, narrow_range=narrow_range, name=name)


@export("tf.fake_quant_with_min_max_args_gradient", "tf.quantization.fake_quant_with_min_max_args_gradient")
def fake_quant_with_min_max_args_gradient(
    gradients: TensorLike, inputs: TensorLike, min: float = -6, max: float = 6, num_bits: int = 8,
    narrow_range: bool = False, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The gradients of inputs from those of the results (``tf.quantization.fake_quant_with_min_max_args_gradient``)."""
    return args_grad_op(
        gradients, inputs, min=min, max=max, num_bits=num_bits, narrow_range=narrow_range, name=name
    )  # fmt: skip


@export("tf.fake_quant_with_min_max_vars", "tf.quantization.fake_quant_with_min_max_vars")
def fake_quant_with_min_max_vars(
    inputs: TensorLike, min: TensorLike, max: TensorLike, num_bits: int = 8, narrow_range: bool = False,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """`fake_quant_with_min_max_args` with scalar tensors (``tf.quantization.fake_quant_with_min_max_vars``).

    They have gradients, too: the sums of those of the inputs below and above the range.
    """
    return vars_op(inputs, min, max, num_bits=num_bits, narrow_range=narrow_range, name=name)


@export("tf.fake_quant_with_min_max_vars_gradient", "tf.quantization.fake_quant_with_min_max_vars_gradient")
def fake_quant_with_min_max_vars_gradient(
    gradients: TensorLike, inputs: TensorLike, min: TensorLike, max: TensorLike, num_bits: int = 8,
    narrow_range: bool = False, name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of inputs, ``min`` and ``max`` (``tf.quantization.fake_quant_with_min_max_vars_gradient``)."""
    return vars_grad_op(  # type: ignore[no-any-return]
        gradients, inputs, min, max, num_bits=num_bits, narrow_range=narrow_range, name=name
    )  # fmt: skip


@export("tf.fake_quant_with_min_max_vars_per_channel", "tf.quantization.fake_quant_with_min_max_vars_per_channel")
def fake_quant_with_min_max_vars_per_channel(
    inputs: TensorLike, min: TensorLike, max: TensorLike, num_bits: int = 8, narrow_range: bool = False,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """`fake_quant_with_min_max_vars` by channel (``tf.quantization.fake_quant_with_min_max_vars_per_channel``).

    Args:
      inputs: float32, the channels last.
      min, max: [channels].
    """
    return channels_op(inputs, min, max, num_bits=num_bits, narrow_range=narrow_range, name=name)


@export(
    "tf.fake_quant_with_min_max_vars_per_channel_gradient",
    "tf.quantization.fake_quant_with_min_max_vars_per_channel_gradient",
)
def fake_quant_with_min_max_vars_per_channel_gradient(
    gradients: TensorLike, inputs: TensorLike, min: TensorLike, max: TensorLike, num_bits: int = 8,
    narrow_range: bool = False, name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients (``tf.quantization.fake_quant_with_min_max_vars_per_channel_gradient``)."""
    return channels_grad_op(  # type: ignore[no-any-return]
        gradients, inputs, min, max, num_bits=num_bits, narrow_range=narrow_range, name=name
    )  # fmt: skip
