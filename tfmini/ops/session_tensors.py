"""Tensors that stay on their device between steps (``tf.get_session_handle``, …); ops that only tests build.

A handle is a string of three parts: the node's name, a number and a device. The task of that device
keeps the tensor until the session closes.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tfmini import dtypes, errors
from tfmini.core_types import DTypeLike, TensorLike
from tfmini.devices import DeviceSpec
from tfmini.export import export
from tfmini.graph.families import (
    Operation,
    OpHandle,
    Tensor,
    all_of,
    colocate_with,
    device,
    op,
    unknown_shapes,
)
from tfmini.graph.node import Node
from tfmini.graph.op_types import DeviceResources
from tfmini.ops.array.identity import placeholder
from tfmini.ops.array.kernel_arguments import refuse

_get_handle = op("GetSessionHandle(value: T) -> handle: string; T: type", stateful=True, shape=[()])
_get_tensor = op("GetSessionTensor(handle: string) -> value: dtype; dtype: type", stateful=True, shape=[None])
_delete_tensor: OpHandle[Operation] = op("DeleteSessionTensor(handle: string)", stateful=True, shape=[])
all_of(_get_handle, _get_tensor, _delete_tensor).not_differentiable()

_numbers = itertools.count(1)


def _tensors(resources: Any) -> dict[str, Any]:
    """The tensors that the session keeps, by handle."""
    return resources.lookup_or_create(  # type: ignore[no-any-return]
        "", "session tensors", f"{resources.session}/session_tensors", dict
    )


@_get_handle.kernel("CPU")
def _keep(value: np.ndarray, *, node: Node, resources: DeviceResources) -> Any:
    handle = f"{node.name};{next(_numbers)};{node.device}"
    # The array may belong to a variable, which changes.
    _tensors(resources)[handle] = value.copy() if isinstance(value, np.ndarray) else value
    return handle.encode()


@_get_tensor.kernel("CPU")
def _find(handle: bytes, *, dtype: dtypes.DType, resources: DeviceResources) -> Any:
    name = _text(handle)
    tensors = _tensors(resources)
    if name not in tensors:
        raise _missing(name)
    value = tensors[name]
    if not isinstance(value, bytes) and np.asarray(value).dtype != dtype.numpy:
        refuse(f"The tensor with handle '{name}' has type {np.asarray(value).dtype}, not {dtype.name}.")
    return value


@_delete_tensor.kernel("CPU")
def _delete(handle: bytes, *, resources: DeviceResources) -> tuple[()]:
    name = _text(handle)
    if _tensors(resources).pop(name, None) is None:
        raise _missing(name)
    return ()


def _text(handle: TensorLike) -> str:
    raw = handle if isinstance(handle, bytes) else np.asarray(handle, object).item()
    return raw.decode() if isinstance(raw, bytes) else str(raw)


def _missing(name: str) -> errors.OpError:
    return errors.InvalidArgumentError.of(f"The tensor with handle '{name}' is not in the session store of this task.")


def device_of_handle(handle: TensorLike) -> str:
    """The device that holds the tensor of a handle."""
    text = handle if isinstance(handle, str) else _text(handle)
    return DeviceSpec.from_string(text.split(";")[-1]).to_string()


@export("tf.get_session_handle")
def get_session_handle(data: TensorLike, name: str | None = None) -> Tensor:
    """A handle of ``data``, which stays in the session (``tf.get_session_handle``).

    Fetching the result gives a `TensorHandle`. Its ``handle`` string can be fed to the placeholder of
    `get_session_tensor`, and the object itself to any tensor. The tensor is freed with the object.

    Raises:
      TypeError: when ``data`` is not a tensor.
    """
    if not isinstance(data, Tensor):
        raise TypeError("`data` must be of type Tensor.")
    with colocate_with(data):
        return _get_handle(data, name=name)


@export("tf.get_session_tensor")
def get_session_tensor(handle: TensorLike, dtype: DTypeLike, name: str | None = None) -> tuple[Tensor, Tensor]:
    """A string placeholder for a handle and the tensor behind it (``tf.get_session_tensor``).

    Args:
      handle: a handle; its device is the one that looks up the tensor.
      dtype: the type of the tensor.
      name: of the op.
    """
    with device(device_of_handle(handle)):
        holder = placeholder(dtypes.string)
        return holder, _get_tensor(holder, dtype=dtypes.as_dtype(dtype), name=name)


@export("tf.delete_session_tensor")
def delete_session_tensor(handle: TensorLike, name: str | None = None) -> tuple[Tensor, Operation]:
    """A string placeholder for a handle, and the op that frees its tensor (``tf.delete_session_tensor``)."""
    with device(device_of_handle(handle)):
        holder = placeholder(dtypes.string)
        return holder, _delete_tensor(holder, name=name)


# ---- Ops without kernels that TensorFlow declares for tests of code that builds graphs -----------------------------
# Programs that test changes of graphs (``Graph.create_op("FloatOutput", …)``) use them. Running one fails because
# it has no kernel, as in TensorFlow.

_DECLARATIONS = """
    A() -> out: float32
    B() -> out: float32
    Binary(a: T, b: T) -> out: T; T: type
    CopyOp(a: T) -> b: T; T: type
    FiveFloatOutputs() -> a: float32, b: float32, c: float32, d: float32, e: float32
    FloatInput(a: float32)
    FloatOutput() -> a: float32
    FloatOutputStringOutput() -> a: float32, b: string
    Foo1(a: float32, b: int32, c: int32) -> d: float32, e: int32
    Foo2(a: float32, b: string, c: string) -> d: float32, e: int32
    Foo3(a: float32, b: string, c: float32) -> d: float32, e: int32
    Int64Output() -> out: int64
    IntAttr() -> out: int64; foo: int = 1
    IntInput(a: int32)
    IntInputFloatInput(a: int32, b: float32)
    IntInputIntOutput(a: int32) -> b: int32
    IntOutput() -> a: int32
    IntOutputFloatOutput() -> a: int32, b: float32
    ListInput(a: N * T); N: int >= 1; T: type
    ListOutput() -> a: T; T: list(type) >= 1
    NIntsIn(a: N * int32); N: int >= 2
    NIntsOut() -> a: N * int32; N: int >= 2
    NPolymorphicIn(a: N * T); T: type; N: int >= 2
    NPolymorphicOut() -> a: N * T; T: type; N: int >= 2
    None()
    Old()
    OpWithDefaultAttr() -> a: int32; default_float: float = 123.0
    Polymorphic(a: T) -> out: T; T: type
    PolymorphicOut() -> out: T; T: type
    RefIn(a: Ref(T)); T: type
    RefInputFloatInput(a: Ref(float32), b: float32)
    RefInputFloatInputIntOutput(a: Ref(float32), b: float32) -> c: int32
    RefInputIntInput(a: Ref(int32), b: int32)
    RefOut() -> a: Ref(T); T: type
    RefOutput() -> a: Ref(int32)
    RefOutputFloatOutput() -> a: Ref(float32), b: float32
    Simple(a: int32) -> out: float32
    TwoFloatInputs(a: float32, b: float32)
    TwoFloatInputsFloatOutput(a: float32, b: float32) -> c: float32
    TwoFloatInputsIntOutput(a: float32, b: float32) -> c: int32
    TwoFloatOutputs() -> a: float32, b: float32
    TwoIntInputs(a: int32, b: int32)
    TwoIntOutputs() -> a: int32, b: int32
    TwoRefsIn(a: Ref(T), b: Ref(T)); T: type
    TypeList(a: T); T: list(type) >= 0
"""


sample_ops = {}
for _line in _DECLARATIONS.strip().splitlines():
    _handle = op(_line.strip())
    _handle.shape(unknown_shapes)
    sample_ops[_handle.name] = _handle
