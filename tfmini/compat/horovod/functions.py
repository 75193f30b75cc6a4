"""Python objects between workers (``hvd.broadcast_object``, ``hvd.allgather_object``).

An object travels as data (`encode`), in two collectives: its size, then its bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np

from tfmini.compat.horovod.operations import allgather, broadcast, broadcast_variables, position
from tfmini.compat.horovod.world import ProcessSet, global_process_set, world
from tfmini.graph.scopes import get_default_session
from tfmini.ops.array.identity import placeholder
from tfmini.runtime.client.session import BaseSession

__all__ = ["allgather_object", "broadcast_object", "broadcast_object_fn", "broadcast_variables"]

_WORD = np.dtype(np.int64)  # bytes travel as integers of this type: collectives have no bytes


def _words(data: bytes) -> Any:
    return np.frombuffer(data + bytes(-len(data) % _WORD.itemsize), _WORD)


def _session(session: BaseSession | None) -> Any:
    session = session or get_default_session()
    if session is None:
        raise ValueError("hvd sends objects in a session: give session=…, or call it inside `with tf.Session():`.")
    return session


def broadcast_object(
    obj: object,
    root_rank: int = 0,
    session: BaseSession | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the object of ``root_rank`` on all workers. It adds ops to the graph; see `broadcast_object_fn`.

    Args:
      obj: numbers, strings, bytes, NumPy arrays, and lists, tuples, sets and dictionaries of those.
      root_rank: the worker that sends its object.
      session: default: the default session.
      name: for messages.
      process_set: the workers that take part.

    Raises:
      TypeError: for an object of another type.
      ValueError: there is no session, or ``root_rank`` is not in the process set.
    """
    return broadcast_object_fn(root_rank, session, name or "broadcast_object", process_set)(obj)


def broadcast_object_fn(
    root_rank: int = 0,
    session: BaseSession | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """Returns a function that broadcasts objects as `broadcast_object` does, with the same ops in each call."""
    name = name or "broadcast_object_fn"
    position(root_rank, process_set)
    size = placeholder("int64", [1])
    data = placeholder("int64", [None])
    sent_size = broadcast(size, root_rank, f"{name}.sz", process_set=process_set)
    sent_data = broadcast(data, root_rank, f"{name}.t", process_set=process_set)

    def send(obj: object) -> Any:
        run = _session(session).run
        is_root = world().ranks.rank == root_rank
        own = encode(obj) if is_root else b""
        (count,) = run(sent_size, {size: [len(own)]})
        words = _words(own) if is_root else np.zeros(-(-int(count) // _WORD.itemsize), _WORD)
        got = run(sent_data, {data: words})
        return obj if is_root else decode(got.tobytes()[: int(count)])

    return send


def allgather_object(
    obj: object,
    session: BaseSession | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Returns the objects of all workers, in the order of their ranks.

    Args:
      obj, session, name, process_set: as in `broadcast_object`.

    Raises:
      TypeError, ValueError: as `broadcast_object`.
    """
    name = name or "allgather_object"
    own = encode(obj)
    run = _session(session).run
    sizes = run(allgather(np.array([len(own)], _WORD), f"{name}.sz", process_set=process_set))
    data = run(allgather(_words(own), f"{name}.t", process_set=process_set))
    counts = [-(-int(size) // _WORD.itemsize) for size in sizes]
    parts = np.split(data, np.cumsum(counts)[:-1])
    return [decode(part.tobytes()[: int(size)]) for part, size in zip(parts, sizes)]


# ---- object codec ----------------------------------------
# Python objects as bytes, for `broadcast_object`: data only, since nothing that a peer sends may run here.
# Horovod pickles objects; this takes None, booleans, numbers, strings, bytes, NumPy arrays and scalars, and lists,
# tuples, sets and dictionaries of those.

_LARGE, _COMPLEX, _TUPLE, _SET, _FROZENSET, _ARRAY, _SCALAR = range(1, 8)
_INT_BITS = 64
_GROUPS = {_TUPLE: tuple, _SET: set, _FROZENSET: frozenset}
_KINDS = "biufcSUmM"  # of NumPy dtypes that are plain numbers, times or strings


def encode(value: object) -> bytes:
    """Returns an object as bytes.

    Raises:
      TypeError: for an object of another type; the message names it.
    """
    packed: bytes = msgpack.packb(_prepared(value), use_bin_type=True)
    return packed


def decode(data: bytes) -> Any:
    """The inverse of `encode`.

    Raises:
      ValueError: for other bytes.
    """
    return msgpack.unpackb(data, raw=False, strict_map_key=False, ext_hook=_restored, use_list=True)


def _prepared(value: Any) -> Any:
    kind = type(value)
    if value is None or kind in (bool, float, str, bytes):
        return value
    if kind is int:
        is_small = -(2 ** (_INT_BITS - 1)) <= value < 2**_INT_BITS
        return value if is_small else msgpack.ExtType(_LARGE, str(value).encode())
    if kind is list:
        return [_prepared(item) for item in value]
    if kind is dict:
        return {_prepared(key): _prepared(item) for key, item in value.items()}
    if kind is complex:
        return msgpack.ExtType(_COMPLEX, msgpack.packb([value.real, value.imag]))
    for code, group in _GROUPS.items():
        if kind is group:
            return msgpack.ExtType(code, msgpack.packb([_prepared(item) for item in value], use_bin_type=True))
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in _KINDS:
        code = _ARRAY if isinstance(value, np.ndarray) else _SCALAR
        content = [value.dtype.str, list(np.shape(value)), np.asarray(value, order="C").tobytes()]
        return msgpack.ExtType(code, msgpack.packb(content, use_bin_type=True))
    raise TypeError(
        f"hvd sends no objects of {kind.__module__}.{kind.__qualname__} ({value!r:.60}): objects from other workers may"
        " hold data only. Send numbers, strings, bytes, NumPy arrays, and lists, tuples, sets or dictionaries of those."
    )


def _restored(code: int, data: bytes) -> Any:
    if code == _LARGE:
        return int(data)
    content = decode(data)
    if code == _COMPLEX:
        return complex(*content)
    if code in _GROUPS:
        return _GROUPS[code](content)
    if code not in (_ARRAY, _SCALAR):
        raise ValueError(f"{code} is no type of object that hvd sends.")
    dtype = np.dtype(content[0])
    if dtype.kind not in _KINDS:
        raise ValueError(f"{content[0]!r} is no dtype of arrays that hvd sends.")
    array = np.frombuffer(content[2], dtype).reshape(content[1])
    return array.copy() if code == _ARRAY else array[()]
