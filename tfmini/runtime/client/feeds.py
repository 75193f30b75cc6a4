"""Feeds: from a feed_dict to arrays of the right type and shape."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.errors import InternalError
from tfmini.graph.conversion import IndexedSlices, SparseComponents
from tfmini.graph.graph import Graph
from tfmini.graph.operation import Tensor
from tfmini.ops.session_tensors import delete_session_tensor, device_of_handle, get_session_tensor
from tfmini.runtime.client.fetches import conversion_of, explained
from tfmini.shapes import RawShape, TensorShape, compatible_raw

# ---- `TensorHandle`: the client's side of a tensor that stays in its session ---------------------------------------

# Tensors of handles that are gone are deleted in batches: each is a step.
_DELETE_AFTER = 10


class SessionHandles:
    """The handles that one session has given out."""

    def __init__(self, session: Any) -> None:
        self._session = weakref.ref(session)
        self._dead: list[str] = []
        self._readers: dict[tuple[str, dtypes.DType], Any] = {}
        self._deleters: dict[str, Any] = {}

    def wrap(self, handle: bytes, dtype: dtypes.DType) -> TensorHandle:
        """The object for a handle that has been fetched."""
        if len(self._dead) > _DELETE_AFTER:
            dead, self._dead = self._dead, []
            for text in dead:
                self.delete(text)
        return TensorHandle(handle.decode(), dtype, self)

    def value(self, handle: str, dtype: dtypes.DType) -> Any:
        """The tensor of a handle."""
        key = (device_of_handle(handle), dtype)
        session = self._open_session()
        if key not in self._readers:
            with session.graph.as_default():
                self._readers[key] = get_session_tensor(handle, dtype)
        holder, tensor = self._readers[key]
        return session.run(tensor, {holder: handle})

    def delete(self, handle: str) -> None:
        """Forgets the tensor of a handle."""
        place = device_of_handle(handle)
        session = self._open_session()
        if place not in self._deleters:
            with session.graph.as_default():
                self._deleters[place] = delete_session_tensor(handle)
        holder, deleter = self._deleters[place]
        session.run(deleter, {holder: handle})

    def drop(self, handle: str) -> None:
        """A `TensorHandle` is gone: its tensor is deleted later, since this may run in a garbage collection."""
        self._dead.append(handle)

    def _open_session(self) -> Any:
        session = self._session()
        if session is None:
            raise RuntimeError("Attempted to use a closed Session.")
        return session


class TensorHandle:
    """A tensor that has stayed in the session, as `Session.run` returns it for ``tf.get_session_handle``.

    It can be fed in place of a value. When it is garbage, its tensor is deleted.
    """

    def __init__(self, handle: str, dtype: dtypes.DType, handles: SessionHandles) -> None:
        self._handle = handle
        self._dtype = dtype
        self._handles = handles
        self._owned = True

    def __del__(self) -> None:
        if self._owned:
            self._handles.drop(self._handle)

    def __str__(self) -> str:
        return self._handle

    @property
    def handle(self) -> str:
        """The string: name of the op, number, device, separated by semicolons."""
        return self._handle

    def eval(self) -> Any:
        """The tensor's value.

        Raises:
          TypeError: when the tensor may be gone, after `delete` or `get_raw_handle`.
        """
        self._check_owned()
        return self._handles.value(self._handle, self._dtype)

    def delete(self) -> None:
        """Deletes the tensor now.

        Raises:
          TypeError: as `eval`.
        """
        self._check_owned()
        self._owned = False
        self._handles.delete(self._handle)

    def get_raw_handle(self) -> str:
        """The string; from now on the caller decides when the tensor is deleted."""
        self._owned = False
        return self._handle

    def _check_owned(self) -> None:
        if not self._owned:
            raise TypeError(f"Persistent tensor {self._handle} may have already been deleted.")


# ---- From the entries of a feed_dict to arrays ---------------------------------------------------------------------

Convert = Callable[[Any], Any]


def flatten_feed(graph: Graph, key: Any, value: Any) -> list[tuple[Tensor, Any]]:
    """The (tensor, value) pairs of one entry of a feed_dict.

    Raises:
      TypeError: when the key is no tensor of this graph.
      ValueError: when a structured key and its value do not match.
    """
    if isinstance(key, tuple) and not hasattr(key, "_as_graph_element"):
        if not isinstance(value, (list, tuple)) or len(key) != len(value):
            raise ValueError(
                f"Could not flatten dictionary: the key {key} has {len(key)} elements,"
                f" but the value {value!r} does not."
            )
        return [pair for k, v in zip(key, value) for pair in flatten_feed(graph, k, v)]
    conversion = conversion_of(key)
    if conversion is not None:
        if conversion.feed is None:
            raise TypeError(f"Cannot interpret feed_dict key as Tensor: {type(key)} was registered without feeds.")
        return [pair for k, v in conversion.feed(key, value) for pair in flatten_feed(graph, k, v)]
    if isinstance(key, (IndexedSlices, SparseComponents)):
        return list(zip(key._fetch_parts()[0], list(value)))
    try:
        tensor = graph.as_graph_element(key, allow_operation=False)
    except (TypeError, KeyError, ValueError) as error:
        raise TypeError(f"Cannot interpret feed_dict key as Tensor: {explained(error, graph, key)}") from None
    if not graph.is_feedable(tensor):
        raise ValueError(f"Tensor {tensor} may not be fed.")
    return [(tensor, value)]


def converter(tensor: Tensor) -> Convert:
    """The function that turns values fed for ``tensor`` into arrays.

    For a value that does not fit the function raises TypeError, ValueError or OverflowError, with the tensor's name,
    and InternalError for an element that is no text where text is wanted.
    """
    dtype = tensor.dtype.base_dtype
    wanted = dtype.numpy
    shape = tensor.raw_shape
    any_shape = shape is None
    if dtype is dtypes.string:
        return lambda value: _check_shape(tensor, shape, _strings(tensor, value))
    if dtype in (dtypes.resource, dtypes.variant):
        return lambda value: value

    def convert(value: TensorLike) -> Any:
        if type(value) is np.ndarray and value.dtype == wanted:
            array = value
        else:
            _refuse_tensor(tensor, value)
            try:
                array = _cast(value, dtype)
            except (TypeError, ValueError, OverflowError) as error:  # numpy's does not say whose value it is
                kind = next(c for c in (TypeError, OverflowError, ValueError) if isinstance(error, c))
                raise kind(f"{error} (fed for {tensor.name!r}, which is {dtype.name})") from None
        return array if any_shape or array.shape == shape else _check_shape(tensor, shape, array)

    return convert


def _cast(value: TensorLike, dtype: dtypes.DType) -> Any:
    """The value as an array of exactly numpy's own class: matrices and masked arrays compute by other rules."""
    if isinstance(value, TensorHandle):
        value = value.eval()
    if isinstance(value, int) and not isinstance(value, bool) and (dtype.is_integer or dtype.is_bool):
        low, high = (0, 1) if dtype.is_bool else dtype.limits
        if not low <= value <= high:
            raise _incompatible(value, dtype)
    if isinstance(value, np.ndarray):
        return value.astype(dtype.numpy, subok=False)
    return np.asarray(value, dtype=dtype.numpy)


def _incompatible(value: Any, dtype: dtypes.DType) -> TypeError:
    return TypeError(
        f"Type of feed value {value} with type {type(value)} is not compatible with Tensor type"
        f" {dtype.as_numpy_dtype}. Try explicitly setting the type of the feed tensor to a larger type (e.g. int64)."
    )


def _refuse_tensor(tensor: Tensor, value: TensorLike) -> None:
    if isinstance(value, Tensor):
        raise TypeError(
            "The value of a feed cannot be a tf.Tensor object. Acceptable feed values include Python scalars, strings,"
            f" lists, numpy ndarrays, or TensorHandles. For reference, the tensor object was {value} which was passed"
            f" to the feed with key {tensor}."
        )


def _strings(tensor: Tensor, value: TensorLike) -> Any:
    _refuse_tensor(tensor, value)
    if isinstance(value, TensorHandle):
        value = value.eval()
    if isinstance(value, int):
        raise _incompatible(value, dtypes.string)
    array = np.asarray(value, dtype=object)
    result = np.empty(array.size, dtype=object)
    for i, item in enumerate(array.ravel().tolist()):
        if isinstance(item, str):
            item = item.encode()
        elif not isinstance(item, bytes):  # such as the NaN of a missing value, which would become a word
            raise InternalError.of(
                f"Unsupported object type {type(item).__name__}: element {i} of the value fed for {tensor.name!r},"
                f" which is string, is {item!r}. Feed str or bytes."
            )
        result[i] = bytes(item)
    return result.reshape(array.shape)


def _check_shape(tensor: Tensor, shape: RawShape, array: Any) -> Any:
    if not compatible_raw(shape, array.shape):
        raise ValueError(
            f"Cannot feed value of shape {array.shape!r} for Tensor {tensor.name!r}, which has shape"
            f" {str(TensorShape.from_raw(shape))!r}"
        )
    return array
