"""Max pooling that also tells where each maximum was (``tf.nn.max_pool_with_argmax``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.registry import op
from tfmini.ops.array_values import refuse
from tfmini.ops.nn_arguments import either
from tfmini.ops.nn_windows import Array, Axis, output_size, window_axis
from tfmini.shapes import RawShape, with_rank

_ATTRS = (
    "; ksize: list(int) >= 4; strides: list(int) >= 4; padding: {'SAME', 'VALID'};"
    " include_batch_in_index: bool = false; Targmax: {int32, int64}"
)
argmax_op = op("MaxPoolWithArgmax(input: T) -> output: T, argmax: Targmax" + _ATTRS + " = DT_INT64; T: realnumbertype")
argmax_grad_op = op(
    "MaxPoolGradWithArgmax(input: T, grad: T, argmax: Targmax) -> output: T" + _ATTRS + "; T: realnumbertype"
)
argmax_grad_grad_op = op(
    "MaxPoolGradGradWithArgmax(input: T, grad: T, argmax: Targmax) -> output: T" + _ATTRS + "; T: realnumbertype"
)


@argmax_op.shape
def _argmax_shape(node: Operation) -> list[RawShape]:
    image = with_rank(node._inputs[0]._shape, 4)
    windows, strides = node.attrs["ksize"], node.attrs["strides"]
    for name, values in (("ksize", windows), ("strides", strides)):
        if len(values) != 4:
            raise ValueError(
                f"MaxPoolWithArgmax requires the {name} attribute to contain 4 values, but got: {len(values)}"
            )
    if any(values[axis] != 1 for values in (windows, strides) for axis in (0, 3)):
        raise ValueError("Pooling is not yet supported on the batch or depth dimension.")
    rows, columns = (output_size(image[i], windows[i], strides[i], 1, node.attrs["padding"]) for i in (1, 2))
    return [(image[0], rows, columns, image[3])] * 2


@argmax_grad_op.shape
def _argmax_grad_shape(node: Operation) -> list[RawShape]:
    return [with_rank(node._inputs[0]._shape, 4)]


@argmax_grad_grad_op.shape
def _argmax_grad_grad_shape(node: Operation) -> list[RawShape]:
    return [with_rank(node._inputs[2]._shape, 4)]


def _axes(node: Any, image: Array) -> tuple[Axis, Axis]:
    attrs = node.attrs
    try:
        rows, columns = (
            window_axis(image.shape[i], attrs["ksize"][i], attrs["strides"][i], 1, attrs["padding"]) for i in (1, 2)
        )
    except ValueError as error:
        refuse(str(error))
    return rows, columns


@argmax_op.kernel_factory("CPU")
def _argmax_factory(node: Any) -> Callable[[Array], tuple[Array, Array]]:
    kind = node.attrs["Targmax"].numpy

    def max_pool(image: Array) -> tuple[Array, Array]:
        rows, columns = _axes(node, image)
        lowest = np.iinfo(image.dtype).min if image.dtype.kind in "iu" else -np.inf
        borders = [(0, 0), (rows.before, rows.after), (columns.before, columns.after), (0, 0)]
        source = np.pad(image, borders, constant_values=lowest)
        places = np.pad(np.arange(image[0].size, dtype=kind).reshape(1, *image.shape[1:]), borders,
                        constant_values=-1)  # fmt: skip
        best: Any = None
        for i in range(rows.window):
            for j in range(columns.window):
                here, place = (x[:, rows.offsets(i), columns.offsets(j)] for x in (source, places))
                if best is None:
                    best, found = here.copy(), np.repeat(place, len(image), axis=0)
                    continue
                better = (here > best) | ((found < 0) & (place >= 0))  # the border never counts
                np.copyto(best, here, where=better)
                np.copyto(found, place, where=better)
        if node.attrs["include_batch_in_index"]:
            found += (np.arange(len(image), dtype=kind) * image[0].size)[:, None, None, None]
        return best, found

    return max_pool


def _flat_places(node: Any, places: Array, image: Array) -> Array:
    """Positions in the whole batch, checked."""
    if not node.attrs["include_batch_in_index"]:
        places = places + (np.arange(len(image), dtype=places.dtype) * (image.size // max(len(image), 1)))[
            :, None, None, None
        ]
    if places.size and (places.min() < 0 or places.max() >= image.size):
        refuse(f"Invalid argmax: positions must be in [0, {image.size})")
    return places


@argmax_grad_op.kernel_factory("CPU")
def _argmax_grad_factory(node: Any) -> Callable[[Array, Array, Array], Array]:
    def spread(image: Array, grad: Array, places: Array) -> Array:
        total = np.zeros(image.size, grad.dtype)
        np.add.at(total, _flat_places(node, places, image).ravel(), grad.ravel())
        return total.reshape(image.shape)

    return spread


@argmax_grad_grad_op.kernel_factory("CPU")
def _argmax_grad_grad_factory(node: Any) -> Callable[[Array, Array, Array], Array]:
    def collect(image: Array, grad: Array, places: Array) -> Array:
        return grad.ravel()[_flat_places(node, places, image)]

    return collect


def _attrs(node: Operation) -> dict[str, Any]:
    return {name: node.attrs[name] for name in ("ksize", "strides", "padding", "include_batch_in_index")}


@argmax_op.gradient
def _argmax_gradient(node: Operation, grad: Tensor, _: Any) -> list[Any]:
    return [argmax_grad_op(node._inputs[0], grad, node._outputs[1], **_attrs(node))]


@argmax_grad_op.gradient
def _argmax_grad_gradient(node: Operation, grad: Tensor) -> list[Any]:
    return [None, argmax_grad_grad_op(node._inputs[0], grad, node._inputs[2], **_attrs(node)), None]


@argmax_grad_grad_op.gradient
def _argmax_grad_grad_gradient(node: Operation, grad: Tensor) -> list[Any]:
    return [None, argmax_grad_op(node._inputs[0], grad, node._inputs[2], **_attrs(node)), None]


def max_pool_with_argmax(
    input: Any, ksize: Any, strides: Any, padding: str, data_format: str = "NHWC", Targmax: Any = None,
    name: str | None = None, output_dtype: Any = None, include_batch_in_index: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The maximum of each window and its position (``tf.nn.max_pool_with_argmax``).

    Args:
      input: [batch, rows, columns, channels].
      ksize, strides: ``[1, rows, columns, 1]``.
      Targmax: the type of positions, int64 or int32.
      include_batch_in_index: count positions through the batch, and not from each image's start.

    Raises:
      ValueError: for another data format.
    """
    if data_format != "NHWC":
        raise ValueError("Data formats other than 'NHWC' are not yet supported")
    kind = either("output_dtype", output_dtype, "Targmax", Targmax)
    return argmax_op(  # type: ignore[no-any-return]
        input, ksize=ksize, strides=strides, padding=padding, Targmax=dtypes.int64 if kind is None else kind,
        include_batch_in_index=include_batch_in_index, name=name,
    )  # fmt: skip
