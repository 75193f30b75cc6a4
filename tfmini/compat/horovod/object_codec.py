"""Python objects as bytes, for `broadcast_object`: data only, since nothing that a peer sends may run here.

Horovod pickles objects; this takes None, booleans, numbers, strings, bytes, NumPy arrays and scalars, and lists,
tuples, sets and dictionaries of those.
"""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np

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
