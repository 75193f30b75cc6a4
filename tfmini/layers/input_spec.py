"""``tf.layers.InputSpec``: the requirements of a layer on its input, and their check."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tfmini.export import export
from tfmini.shapes import TensorShape


@export("tf.layers.InputSpec")
@dataclass(frozen=True)
class InputSpec:
    """Requirements on an input (``tf.layers.InputSpec``); None means no requirement.

    Attributes:
      dtype: the type.
      shape: the shape; None for an axis of any length.
      ndim, min_ndim, max_ndim: the rank and its bounds.
      axes: axis -> required length.
    """

    dtype: Any = None
    shape: Any = None
    ndim: int | None = None
    max_ndim: int | None = None
    min_ndim: int | None = None
    axes: dict[int, Any] = field(default_factory=dict)


def check_inputs(spec: InputSpec | None, inputs: Any, name: str) -> None:
    """Raises ValueError, with TensorFlow's message, if the input of layer ``name`` does not match ``spec``."""
    if spec is None or isinstance(inputs, (list, tuple, dict)):
        return
    shape: TensorShape = inputs.shape
    rank = shape.ndims
    start = f"Input 0 of layer {name} is incompatible with the layer: "
    if rank is None:
        if spec.ndim is not None or spec.min_ndim is not None or spec.max_ndim is not None:
            raise ValueError(start + "its rank is undefined, but the layer requires a defined rank.")
        return
    if spec.ndim is not None and rank != spec.ndim:
        raise ValueError(f"{start}expected ndim={spec.ndim}, found ndim={rank}. Full shape received: {shape.as_list()}")
    if spec.max_ndim is not None and rank > spec.max_ndim:
        raise ValueError(f"{start}expected max_ndim={spec.max_ndim}, found ndim={rank}")
    if spec.min_ndim is not None and rank < spec.min_ndim:
        raise ValueError(
            f"{start}: expected min_ndim={spec.min_ndim}, found ndim={rank}. Full shape received: {shape.as_list()}"
        )
    sizes = shape.as_list()
    for axis, size in spec.axes.items():
        if size is not None and sizes[axis] not in (size, None):
            raise ValueError(
                f"{start}expected axis {axis} of input shape to have value {size} but received input with shape {sizes}"
            )
    for axis, size in enumerate(spec.shape or ()):
        if size is not None and sizes[axis] not in (size, None):
            raise ValueError(f"{start}expected shape={spec.shape}, found shape={sizes}")
