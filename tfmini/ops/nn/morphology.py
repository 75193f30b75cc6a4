"""Grey-scale dilation and erosion of images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.registry import op
from tfmini.ops.array_layout import reverse
from tfmini.ops.array_values import refuse
from tfmini.ops.math_elementwise import negative
from tfmini.ops.nn_arguments import either
from tfmini.ops.nn_windows import Array, Axis, output_size, window_axis
from tfmini.ops.scoping import name_scope
from tfmini.shapes import RawShape, merge_dims, with_rank

_ATTRS = "; T: realnumbertype; strides: list(int) >= 4; rates: list(int) >= 4; padding: {'SAME', 'VALID'}"
dilation_op = op("Dilation2D(input: T, filter: T) -> output: T" + _ATTRS)
dilation_input_op = op(
    "Dilation2DBackpropInput(input: T, filter: T, out_backprop: T) -> in_backprop: T" + _ATTRS
)
dilation_filter_op = op(
    "Dilation2DBackpropFilter(input: T, filter: T, out_backprop: T) -> filter_backprop: T" + _ATTRS
)
dilation_input_op.not_differentiable()
dilation_filter_op.not_differentiable()


@dilation_op.shape
def _dilation_shape(node: Operation) -> list[RawShape]:
    image, window = with_rank(node._inputs[0]._shape, 4), with_rank(node._inputs[1]._shape, 3)
    strides, rates = node.attrs["strides"], node.attrs["rates"]
    for name, values in (("strides", strides), ("rates", rates)):
        if len(values) != 4:
            raise ValueError(f"Dilation2D requires the {name} attribute to contain 4 values, but got: {len(values)}")
        if values[0] != 1 or values[3] != 1:
            raise ValueError(f"Current implementation does not yet support {name} in the batch and depth dimensions.")
    rows, columns = (
        output_size(image[i], window[i - 1], strides[i], rates[i], node.attrs["padding"]) for i in (1, 2)
    )
    return [(image[0], rows, columns, merge_dims(image[3], window[2]))]


@dilation_input_op.shape
def _input_shape(node: Operation) -> list[RawShape]:
    return [node._inputs[0]._shape]


@dilation_filter_op.shape
def _filter_shape(node: Operation) -> list[RawShape]:
    return [node._inputs[1]._shape]


def _placed(node: Any, image: Array, window: Array) -> tuple[Array, Axis, Axis]:
    """The image with a border that never wins, and where the windows lie."""
    attrs = node.attrs
    try:
        rows, columns = (
            window_axis(image.shape[i], window.shape[i - 1], attrs["strides"][i], attrs["rates"][i], attrs["padding"])
            for i in (1, 2)
        )
    except ValueError as error:
        refuse(str(error))
    lowest = np.iinfo(image.dtype).min if image.dtype.kind in "iu" else -np.inf
    widths = [(0, 0), (rows.before, rows.after), (columns.before, columns.after), (0, 0)]
    return np.pad(image, widths, constant_values=lowest), rows, columns


def _offsets(rows: Axis, columns: Axis) -> Iterator[tuple[int, int, slice, slice]]:
    for i in range(rows.window):
        for j in range(columns.window):
            yield i, j, rows.offsets(i), columns.offsets(j)


def _largest(source: Array, window: Array, rows: Axis, columns: Axis) -> tuple[Array, Array]:
    """The largest sum of each window, and the number of the first offset that has it."""
    best: Any = None
    for number, (i, j, row, column) in enumerate(_offsets(rows, columns)):
        here = source[:, row, column] + window[i, j]
        if best is None:
            best, first = here, np.zeros(here.shape, np.int32)
            continue
        better = here > best
        np.copyto(best, here, where=better)
        first[better] = number
    return best, first


@dilation_op.kernel_factory("CPU")
def _dilation_factory(node: Any) -> Callable[[Array, Array], Array]:
    def dilation(image: Array, window: Array) -> Array:
        source, rows, columns = _placed(node, image, window)
        return _largest(source, window, rows, columns)[0]

    return dilation


@dilation_input_op.kernel_factory("CPU")
def _input_factory(node: Any) -> Callable[[Array, Array, Array], Array]:
    def backprop(image: Array, window: Array, grad: Array) -> Array:
        source, rows, columns = _placed(node, image, window)
        _, first = _largest(source, window, rows, columns)
        total = np.zeros(source.shape, grad.dtype)
        for number, (_, _, row, column) in enumerate(_offsets(rows, columns)):
            total[:, row, column] += np.where(first == number, grad, 0)
        return total[:, rows.before : rows.before + rows.size, columns.before : columns.before + columns.size]

    return backprop


@dilation_filter_op.kernel_factory("CPU")
def _filter_factory(node: Any) -> Callable[[Array, Array, Array], Array]:
    def backprop(image: Array, window: Array, grad: Array) -> Array:
        source, rows, columns = _placed(node, image, window)
        _, first = _largest(source, window, rows, columns)
        total = np.zeros_like(window)
        for number, (i, j, _, _) in enumerate(_offsets(rows, columns)):
            total[i, j] = np.where(first == number, grad, 0).sum(axis=(0, 1, 2))
        return total

    return backprop


@dilation_op.gradient
def _dilation_gradient(node: Operation, grad: Tensor) -> list[Any]:
    attrs = {name: node.attrs[name] for name in ("strides", "rates", "padding")}
    return [dilation_input_op(*node._inputs, grad, **attrs), dilation_filter_op(*node._inputs, grad, **attrs)]


def dilation2d(
    input: Any, filter: Any = None, strides: Any = None, rates: Any = None, padding: Any = None,
    name: str | None = None, filters: Any = None, dilations: Any = None,
) -> Tensor:  # fmt: skip
    """The largest of pixel plus filter over each window, channel by channel (``tf.nn.dilation2d``).

    Args:
      input: [batch, rows, columns, channels].
      filter: [rows, columns, channels].
      strides, rates: ``[1, rows, columns, 1]``.
      padding: "SAME" or "VALID".
    """
    return dilation_op(  # type: ignore[no-any-return]
        input, either("filters", filters, "filter", filter), strides=strides,
        rates=either("dilations", dilations, "rates", rates), padding=padding, name=name,
    )  # fmt: skip


def erosion2d(value: Any, kernel: Any, strides: Any, rates: Any, padding: Any, name: str | None = None) -> Tensor:
    """The smallest of pixel minus kernel over each window (``tf.nn.erosion2d``); see `dilation2d`."""
    with name_scope(name, "erosion2d", [value, kernel]) as scope:
        mirrored = reverse(kernel, [0, 1])
        dilated = dilation_op(negative(value), mirrored, strides=strides, rates=rates, padding=padding)
        return negative(dilated, name=scope)
