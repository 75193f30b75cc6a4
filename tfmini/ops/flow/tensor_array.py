"""``tf.TensorArray``: write-once tensors by index, which carry data into and out of loops."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tfmini import dtypes
from tfmini.core_types import DTypeLike, ShapeLike, TensorLike
from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, Tensor, convert_to_tensor
from tfmini.graph.scoping import colocate_with, control_dependencies, device, name_scope
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.filling import range as range_
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.flow import tensor_array_ops as array_ops
from tfmini.shapes import RawShape, TensorShape, as_raw, compatible_raw, merge_raw

_log = logging.getLogger("tensorflow")


@export("tf.TensorArray")
class TensorArray:
    """Tensors of one type by index, each written once (``tf.TensorArray``).

    Every write returns a new object, whose ``flow`` depends on all writes so far. Use that object
    afterwards. An instance can be a loop variable.

    Args:
      dtype: of the elements.
      size: int32 scalar, the number of elements; required without ``handle``.
      dynamic_size: whether writes beyond the end make the array longer.
      clear_after_read: whether an element is freed by its first read (the default).
      tensor_array_name: for error messages of the runtime.
      handle: of an existing array, instead of ``size``.
      flow: scalar that depends on the writes to that array.
      infer_shape: whether all elements must have the same shape.
      element_shape: the static shape of the elements, as far as it is known.
      colocate_with_first_write_call: whether the array is placed with the first value written to it.
      name: of the op.

    Raises:
      ValueError: for arguments that exclude each other, and without size and handle.
      TypeError: when ``handle`` is no tensor.
    """

    def __init__(
        self, dtype: DTypeLike, size: Any = None, dynamic_size: bool | None = None,
        clear_after_read: bool | None = None, tensor_array_name: str | None = None, handle: Any = None,
        flow: Any = None, infer_shape: bool = True, element_shape: ShapeLike = None,
        colocate_with_first_write_call: bool = True, name: str | None = None,
    ) -> None:  # fmt: skip
        if handle is not None:
            _check_exclusive(handle, tensor_array_name, size, element_shape, dynamic_size, clear_after_read)
        elif size is None:
            raise ValueError("Size must be provided if handle is not provided")
        self._dynamic_size = bool(dynamic_size)
        self._dtype = dtypes.as_dtype(dtype).base_dtype
        self._infer_shape = infer_shape
        self._colocate_with_first_write_call = colocate_with_first_write_call
        # Lists, because all objects of one array share the element shape and the device.
        self._colocate_with: list[Tensor] = []
        self._known_shape: list[RawShape] = [as_raw(element_shape)]
        with name_scope(name, "TensorArray", [handle, size, flow]) as scope:
            if handle is not None:
                if flow is None:
                    raise ValueError("flow must not be None if handle is not None.")
                self._handle, self._flow = handle, flow
                return
            attrs = {
                "dtype": self._dtype,
                "element_shape": as_raw(element_shape),
                "identical_element_shapes": bool(infer_shape),
                "dynamic_size": self._dynamic_size,
                "clear_after_read": True if clear_after_read is None else clear_after_read,
                "tensor_array_name": tensor_array_name or "",
            }
            self._handle, self._flow = self._make(size, scope, attrs)

    def _make(self, size: TensorLike, scope: str, attrs: dict[str, Any]) -> Any:
        if not self._colocate_with_first_write_call:
            return array_ops.tensor_array_op(size, name=scope, **attrs)
        # The device is that of the first write, which the handle is colocated with.
        with device(None), colocate_with(None, ignore_existing=True):
            return array_ops.tensor_array_op(size, name=scope, **attrs)

    @property
    def flow(self) -> Tensor:
        """The scalar that depends on all writes so far."""
        return self._flow  # type: ignore[no-any-return]

    @property
    def dtype(self) -> dtypes.DType:
        return self._dtype

    @property
    def handle(self) -> Tensor:
        return self._handle  # type: ignore[no-any-return]

    @property
    def element_shape(self) -> TensorShape:
        """The static shape of the elements."""
        return TensorShape.from_raw(self._known_shape[0])

    @property
    def dynamic_size(self) -> bool:
        return self._dynamic_size

    def with_flow(self, flow: Tensor) -> TensorArray:
        """The same array after the writes that ``flow`` depends on."""
        twin: TensorArray = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._flow = flow
        return twin

    def identity(self) -> TensorArray:
        """The same array after the current control dependencies."""
        return self.with_flow(identity(self._flow))

    def grad(self, source: str, flow: Any = None, name: str | None = None) -> TensorArray:
        """The array of gradients that the call of ``tf.gradients`` named ``source`` writes to."""
        flow = self._flow if flow is None else flow
        with name_scope(name, "TensorArrayGrad", [self._handle]), colocate_with(self._handle):
            handle, _ = array_ops.grad_op(self._handle, flow, source=source, name=name)
            with control_dependencies([handle]):
                flow = identity(flow, name="gradient_flow")
            found = TensorArray(
                self._dtype, handle=handle, flow=flow, infer_shape=self._infer_shape,
                colocate_with_first_write_call=False,
            )  # fmt: skip
            found._known_shape = self._known_shape
            return found

    # ---- reading -------------------------------------------------------------------------------

    def read(self, index: TensorLike, name: str | None = None) -> Tensor:
        """The element at ``index``."""
        value: Tensor = array_ops.read_op(self._handle, index, self._flow, dtype=self._dtype, name=name)
        value.raw_shape = merge_raw(value.raw_shape, self._known_shape[0])
        return value

    def stack(self, name: str | None = None) -> Tensor:
        """All elements along a new first axis; they must have one shape."""
        with colocate_with(self._handle), name_scope(name, "TensorArrayStack", [self._handle]):
            return self.gather(range_(0, self.size()), name=name)

    def gather(self, indices: TensorLike, name: str | None = None) -> Tensor:
        """The elements at ``indices`` along a new first axis."""
        known = self._known_shape[0]
        value: Tensor = array_ops.gather_op(
            self._handle, indices, self._flow, dtype=self._dtype, name=name, element_shape=known
        )
        if known is not None:
            value.raw_shape = merge_raw(value.raw_shape, (None, *known))
        return value

    def concat(self, name: str | None = None) -> Tensor:
        """All elements concatenated along their first axis."""
        known = self._known_shape[0]
        rest = None if known is None else known[1:]
        value, _ = array_ops.concat_op(
            self._handle, self._flow, dtype=self._dtype, name=name, element_shape_except0=rest
        )
        if rest is not None:
            value.raw_shape = merge_raw(value.raw_shape, (None, *rest))
        return value  # type: ignore[no-any-return]

    def size(self, name: str | None = None) -> Tensor:
        """The number of elements."""
        return array_ops.size_op(self._handle, self._flow, name=name)

    # ---- writing -------------------------------------------------------------------------------

    def write(self, index: TensorLike, value: TensorLike, name: str | None = None) -> TensorArray:
        """Writes the element at ``index``.

        Raises:
          ValueError: when the static shape does not fit.
        """
        with name_scope(name, "TensorArrayWrite", [self._handle, index, value]):
            value = self._element(value)
            self._learn_shape(value.raw_shape)
            with self._beside(value):
                flow = array_ops.write_op(self._handle, index, value, self._flow, name=name)
            return self.with_flow(flow)

    def unstack(self, value: TensorLike, name: str | None = None) -> TensorArray:
        """Writes the rows of ``value`` as elements 0, 1, …"""
        with name_scope(name, "TensorArrayUnstack", [self._handle, value]):
            count = raw_ops.StridedSlice(shape_of(value), [0], [1], [1], shrink_axis_mask=1)
            return self.scatter(range_(0, count), value, name=name)

    def scatter(self, indices: TensorLike, value: TensorLike, name: str | None = None) -> TensorArray:
        """Writes the rows of ``value`` as the elements at ``indices``."""
        with name_scope(name, "TensorArrayScatter", [self._handle, value, indices]):
            value = self._element(value)
            self._learn_shape(None if value.raw_shape is None else value.raw_shape[1:])
            with self._beside(value):
                flow = array_ops.scatter_op(self._handle, indices, value, self._flow, name=name)
            return self.with_flow(flow)

    def split(self, value: TensorLike, lengths: Any, name: str | None = None) -> TensorArray:
        """Writes consecutive parts of ``value``, of ``lengths`` rows each, as elements 0, 1, …"""
        with name_scope(name, "TensorArraySplit", [self._handle, value, lengths]):
            value = convert_to_tensor(value, dtype=self._dtype, name="value")
            with self._beside(value):
                lengths = cast(lengths, dtypes.int64)
                known = constant_value(lengths)
                if value.raw_shape is not None and known is not None and known.shape and known.max() == known.min():
                    self._learn_shape((int(known[0]), *value.raw_shape[1:]))
                flow = array_ops.split_op(self._handle, value, lengths, self._flow, name=name)
            return self.with_flow(flow)

    def close(self, name: str | None = None) -> Operation:
        """An operation that frees the elements."""
        return array_ops.close_op(self._handle, name=name)

    def _element(self, value: TensorLike) -> Tensor:
        tensor = convert_to_tensor(value, preferred_dtype=self._dtype, name="value")
        if tensor.dtype.base_dtype is not self._dtype:
            _log.error("Input value %s has dtype %s, but expected dtype %s.", tensor, tensor.dtype, self._dtype)
        return tensor

    def _learn_shape(self, raw: RawShape) -> None:
        known = self._known_shape[0]
        if not compatible_raw(raw, known):
            shapes = TensorShape.from_raw(raw), TensorShape.from_raw(known)
            raise ValueError(f"Inconsistent shapes: saw {shapes[0]} but expected {shapes[1]} ")
        if self._infer_shape:
            self._known_shape[0] = merge_raw(known, raw)

    @contextmanager
    def _beside(self, value: Tensor) -> Iterator[None]:
        """While it lasts, ops are placed with the first value written."""
        if not self._colocate_with_first_write_call:
            yield
            return
        if not self._colocate_with:
            self._colocate_with.append(value)
        with colocate_with(self._colocate_with[0]):
            yield


def _check_exclusive(
    handle: object, tensor_array_name: str | None, size: int | None, element_shape: ShapeLike, dynamic_size: object,
    clear_after_read: object,
) -> None:  # fmt: skip
    if tensor_array_name:
        raise ValueError("Cannot construct with both handle and tensor_array_name")
    if not isinstance(handle, Tensor):
        raise TypeError("Handle must be a Tensor")
    others = {
        "size": size, "element_shape": element_shape, "dynamic_size": dynamic_size,
        "clear_after_read": clear_after_read,
    }  # fmt: skip
    for other, value in others.items():
        if value is not None:
            raise ValueError(f"Cannot provide both a handle and {other} at the same time")


# ---- Gradients of tensor arrays: reads become writes to a second array, and writes become reads --------------------
# Each call of ``tf.gradients`` has a second array of its own, so that two calls in one step do not add to
# each other's gradients. The name scope of an arriving gradient identifies the call.


def _gradient_array(node: Operation, arriving: Tensor, flow: Tensor) -> TensorArray:
    dtype = node.attrs["T"] if "T" in node.attrs else node.attrs["dtype"]
    array = TensorArray(dtype, handle=node.inputs[0], flow=flow, colocate_with_first_write_call=False)
    return array.grad(source=_source_of(arriving), flow=flow)


def _source_of(arriving: Tensor) -> str:
    """The name scope of the innermost ``tf.gradients`` call that made a gradient.

    Raises:
      ValueError: when there is none.
    """
    parts = arriving.name.split("/")
    places = [i for i, part in enumerate(parts) if part.startswith("gradients")]
    if not places:
        raise ValueError(
            f"Expected op/tensor name to start with gradients (excluding scope), got: {arriving.name}. This means that"
            " a tf.gradients op with this op in its dependency path has a custom name that does not start with"
            " 'gradients'. Please make sure all calls to tf.gradients that have non-empty 'name' arguments use names"
            " that start with 'gradients'."
        )
    return "/".join(parts[: places[-1] + 1])


@array_ops.read_op.gradient
def _read_gradient(node: Operation, grad: Tensor) -> list[Any]:
    # The forward flow makes the array wait until the size of a growing one is final.
    array = _gradient_array(node, grad, node.inputs[2])
    return [None, None, array.write(node.inputs[1], grad).flow]


@array_ops.write_op.gradient
def _write_gradient(node: Operation, flow: Tensor) -> list[Any]:
    array = _gradient_array(node, flow, flow)
    return [None, None, array.read(node.inputs[1]), flow]


@array_ops.gather_op.gradient
def _gather_gradient(node: Operation, grad: Tensor) -> list[Any]:
    array = _gradient_array(node, grad, node.inputs[2])
    return [None, None, array.scatter(node.inputs[1], grad).flow]


@array_ops.scatter_op.gradient
def _scatter_gradient(node: Operation, flow: Tensor) -> list[Any]:
    array = _gradient_array(node, flow, flow)
    return [None, None, array.gather(node.inputs[1]), flow]


@array_ops.concat_op.gradient
def _concat_gradient(node: Operation, grad: Tensor, lengths_grad: Tensor | None) -> list[Any]:
    array = _gradient_array(node, grad, node.inputs[1])
    return [None, array.split(grad, lengths=node.outputs[1]).flow]


@array_ops.split_op.gradient
def _split_gradient(node: Operation, flow: Tensor) -> list[Any]:
    array = _gradient_array(node, flow, flow)
    return [None, array.concat(), None, flow]
