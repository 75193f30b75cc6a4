"""`TensorHandle`: the client's side of a tensor that stays in its session."""

from __future__ import annotations

import weakref
from typing import Any

from tfmini import dtypes
from tfmini.ops.session_tensors import delete_session_tensor, device_of_handle, get_session_tensor

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
