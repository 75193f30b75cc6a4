"""Arrays of a type and a shape whose elements do not matter: they are all zero, and share one piece of memory.

The memory is never written, so it takes none of the machine's; an array of a gigabyte costs as little as a scalar.
Arithmetic with a phantom gives a phantom of the result's type and shape.
"""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.shapes import RawShape

_FEW = 4096  # bytes; the first piece of memory


class Phantom(np.ndarray[Any, Any]):
    """See the module. Made by `phantom`."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        """Makes phantoms of the right type and shape; an output that is given stays as it is."""
        if out is not None:
            return out[0] if len(out) == 1 else out
        values = [_element(value) for value in inputs]
        if method != "__call__":
            return getattr(ufunc, method)(*[np.asarray(value) for value in inputs], **options)
        result = ufunc(*values, **options)
        shape = np.broadcast_shapes(*(np.shape(value) for value in inputs))
        if isinstance(result, tuple):
            return tuple(_of(np.asarray(each).dtype, shape) for each in result)
        return _of(np.asarray(result).dtype, shape)

    def copy(self, order: Any = "C") -> Any:
        """Returns the phantom itself, since nobody can write into it."""
        return self


def _element(value: Any) -> Any:
    return np.zeros((), value.dtype) if isinstance(value, np.ndarray) else value


_memory: Any = np.zeros(_FEW, np.uint8)


def _of(dtype: Any, shape: tuple[int, ...]) -> Any:
    global _memory
    dtype = np.dtype(dtype)
    if dtype.hasobject:
        return np.full(shape, b"", object)
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes > _memory.nbytes:
        _memory = _unwritten(nbytes)
    found = _memory[:nbytes].view(dtype).reshape(shape).view(Phantom)
    found.flags.writeable = False
    return found


def _unwritten(nbytes: int) -> Any:
    """Zeros that take no memory, even where there is less than that: pages that are only read are one and the same."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    return np.frombuffer(mmap.mmap(-1, nbytes, flags, mmap.PROT_READ), np.uint8)


def phantom(dtype: dtypes.DType, shape: RawShape) -> Any:
    """A phantom of a static shape. Unknown sizes count as nothing, as in the costs of ops and in the inspector's bytes.

    Strings are empty ones. A resource or variant is None.
    """
    base = dtype.base_dtype
    if base in (dtypes.resource, dtypes.variant):
        return None
    sizes = (0,) if shape is None else tuple(size or 0 for size in shape)
    if base is dtypes.string and sizes == ():
        return b""
    return _of(base.as_numpy_dtype, sizes)


def as_phantom(value: Any) -> Any:
    """A phantom of an array's type and shape."""
    return _of(value.dtype, value.shape) if isinstance(value, np.ndarray) and value.ndim else value
