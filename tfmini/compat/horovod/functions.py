"""Python objects between workers (``hvd.broadcast_object``, ``hvd.allgather_object``).

An object travels as data (`object_codec`), in two collectives: its size, then its bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.compat.horovod.object_codec import decode, encode
from tfmini.compat.horovod.operations import allgather, broadcast, broadcast_variables, position
from tfmini.compat.horovod.process_sets import ProcessSet, global_process_set
from tfmini.compat.horovod.world import world
from tfmini.graph.default_session import get_default_session
from tfmini.ops.array.identity import placeholder

__all__ = ["allgather_object", "broadcast_object", "broadcast_object_fn", "broadcast_variables"]

_WORD = np.dtype(np.int64)  # bytes travel as integers of this type: collectives have no bytes


def _words(data: bytes) -> Any:
    return np.frombuffer(data + bytes(-len(data) % _WORD.itemsize), _WORD)


def _session(session: Any) -> Any:
    session = session or get_default_session()
    if session is None:
        raise ValueError("hvd sends objects in a session: give session=…, or call it inside `with tf.Session():`.")
    return session


def broadcast_object(
    obj: object,
    root_rank: int = 0,
    session: Any = None,
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
    root_rank: int = 0, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
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
    obj: object, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
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
