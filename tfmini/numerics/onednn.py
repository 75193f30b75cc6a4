"""A binding to oneDNN 3 (the package ``onednn-cpu-gomp``), for convolutions, pooling and matrix products.

oneDNN convolves without a patch matrix, and its products of matrices of unlike sizes are faster than OpenBLAS's. Both
use OpenMP's threads: where products ran in OpenBLAS's, the threads of each would spin on cores that the other needs.

A *primitive* is oneDNN's code for one operation on arrays of given shapes. It is made once per shapes and thread count,
and kept. What oneDNN does not handle is left to the caller, which computes it in numpy.

`TFMINI_ONEDNN` names the library's file, or is ``off``.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfmini.core_types import Array
from tfmini.numerics.windows import scratch

_FLOAT32 = 3  # dnnl_f32
_ANY_LAYOUT = 1  # dnnl_format_tag_any: oneDNN chooses
_CPU, _IN_ORDER = 1, 1
USER_SCRATCHPAD = 1
FORWARD_TRAINING, DIRECT, MAX = 64, 1, 0x1FF  # dnnl_forward_training, dnnl_convolution_direct, dnnl_pooling_max
# Arguments of a primitive, and the queries for their layouts.
SOURCE, RESULT, WEIGHTS, SCRATCHPAD = 1, 17, 33, 80
SOURCE_GRADIENT, RESULT_GRADIENT, WEIGHTS_GRADIENT = 129, 145, 161
WORKSPACE = 64
_LAYOUT_QUERY = {WEIGHTS: 131, WEIGHTS_GRADIENT: 132, WORKSPACE: 135, SCRATCHPAD: 136}
_MOST_DIMS = 12
_I, _F, _P, _C = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p, ctypes.c_char
_SGEMM: list[Any] = [_C, _C, _I, _I, _I, _F, _P, _I, _P, _I, _F, _P, _I]

# Multiplications of a product that one thread finishes before others, which sleep, would have woken up.
_SMALL = 1 << 23

_threads: int | None = None


class _Local(threading.local):
    threads: int | None = None


_local = _Local()


def limit_threads(threads: int | None) -> None:
    """Sets how many threads a primitive uses; None, or no call: OpenMP's default, the number of cores."""
    global _threads
    _threads = threads


class _Argument(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("memory", ctypes.c_void_p)]


class _Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_int)]


class OneDnnError(Exception):
    """A function of oneDNN has returned another status than success."""


class Layout:
    """Where the elements of an array lie: a memory descriptor.

    Args:
      sizes: of the dimensions, in oneDNN's order.
      strides: in elements; None lets oneDNN choose.

    Attributes:
      nbytes, dtype: what an array in this layout has (see `Primitive`).
    """

    dtype: np.dtype[Any] = np.dtype(np.float32)

    def __init__(self, library: Library, sizes: Sequence[int], strides: Sequence[int] | None) -> None:
        self.handle = ctypes.c_void_p()
        dims, make = library.dims, library.quick
        if strides is None:
            status = make.dnnl_memory_desc_create_with_tag(
                ctypes.byref(self.handle), len(sizes), dims(sizes), _FLOAT32, _ANY_LAYOUT
            )
        else:
            status = make.dnnl_memory_desc_create_with_strides(
                ctypes.byref(self.handle), len(sizes), dims(sizes), _FLOAT32, dims(strides)
            )
        check(status)
        self._destroy = library.quick.dnnl_memory_desc_destroy
        self.nbytes = library.bytes_of(self.handle)

    def __del__(self) -> None:
        if self.handle:
            self._destroy(self.handle)


class ChosenLayout:
    """A layout that oneDNN has chosen for an argument of a primitive: some bytes, valid as long as the primitive."""

    __slots__ = ("handle", "nbytes")
    dtype: np.dtype[Any] = np.dtype(np.uint8)

    def __init__(self, library: Library, handle: ctypes.c_void_p) -> None:
        self.handle, self.nbytes = handle, library.bytes_of(handle)


class Primitive:
    """The code of one operation; may run in several threads at once.

    Args:
      description: oneDNN's primitive descriptor.
    """

    def __init__(self, library: Library, description: ctypes.c_void_p) -> None:
        self._library, self.description = library, description
        self._handle = ctypes.c_void_p()
        check(library.slow.dnnl_primitive_create(ctypes.byref(self._handle), description))
        self._scratchpad = self.layout(SCRATCHPAD)

    def __del__(self) -> None:
        self._library.quick.dnnl_primitive_destroy(self._handle)
        self._library.quick.dnnl_primitive_desc_destroy(self.description)

    def layout(self, kind: int) -> ChosenLayout:
        """The layout that oneDNN has chosen for an argument, valid as long as the primitive."""
        found = self._library.quick.dnnl_primitive_desc_query_md(self.description, _LAYOUT_QUERY[kind], 0)
        return ChosenLayout(self._library, ctypes.c_void_p(found))

    def __call__(self, arguments: dict[int, tuple[Layout | ChosenLayout, Array]]) -> None:
        """Runs the code; ``arguments`` are layouts and arrays by kind.

        Raises:
          ValueError: when an array is not what its layout says. oneDNN would read and write memory beyond it.
        """
        library, space = self._library, self._scratchpad
        if space.nbytes:
            own = scratch("oneDNN", (space.nbytes,), space.dtype)
            arguments = {**arguments, SCRATCHPAD: (space, own)}
        given = []
        for kind, (layout, array) in arguments.items():
            dtype = array.dtype
            is_right = array.nbytes == layout.nbytes and (dtype is layout.dtype or dtype == layout.dtype)
            if not (is_right and array.flags.c_contiguous):
                raise ValueError(_misfit(array, f"{layout.nbytes} contiguous bytes of {layout.dtype} are"))
            given.append((kind, layout.handle, data_address(array)))
        values = (_Argument * len(given))()
        try:
            for value, (kind, handle, address) in zip(values, given):
                value.kind, value.memory = kind, library.memory(handle, address)
            check(library.slow.dnnl_primitive_execute(self._handle, library.stream, len(given), values))
        finally:
            for value in values:
                library.quick.dnnl_memory_destroy(ctypes.c_void_p(value.memory))


class Library:
    """oneDNN as loaded from ``path``.

    Raises:
      OSError: when it cannot be loaded.
      OneDnnError: when it isn't version 3.
    """

    def __init__(self, path: str) -> None:
        self.slow = ctypes.CDLL(path)  # releases the interpreter lock during a call
        self.quick = ctypes.PyDLL(path)  # does not: for calls of less than a microsecond
        self.quick.dnnl_primitive_desc_query_md.restype = ctypes.c_void_p
        self.quick.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
        self.quick.dnnl_version.restype = ctypes.POINTER(_Version)
        self.slow.dnnl_sgemm.argtypes = _SGEMM
        self._all_threads: int = self.quick.omp_get_max_threads()
        if (major := self.quick.dnnl_version().contents.major) != 3:
            raise OneDnnError(f"{path} is oneDNN {major}; version 3 is needed")
        self.engine, self.stream, self.attributes = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        check(self.slow.dnnl_engine_create(ctypes.byref(self.engine), _CPU, ctypes.c_size_t(0)))
        check(self.slow.dnnl_stream_create(ctypes.byref(self.stream), self.engine, _IN_ORDER))
        check(self.quick.dnnl_primitive_attr_create(ctypes.byref(self.attributes)))
        # A scratchpad of the library's own could serve one thread only.
        check(self.quick.dnnl_primitive_attr_set_scratchpad_mode(self.attributes, USER_SCRATCHPAD))

    @staticmethod
    def dims(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
        """Sizes or strides as oneDNN takes them."""
        return (ctypes.c_int64 * _MOST_DIMS)(*values)

    def memory(self, layout: ctypes.c_void_p, address: int) -> int | None:
        """A memory object on an array's data."""
        made = ctypes.c_void_p()
        check(self.quick.dnnl_memory_create(ctypes.byref(made), layout, self.engine, ctypes.c_void_p(address)))
        return made.value

    def bytes_of(self, layout: ctypes.c_void_p) -> int:
        """The size of an array in a layout."""
        size: int = self.quick.dnnl_memory_desc_get_size(layout)
        return size

    def describe(self, function: str, *arguments: object) -> ctypes.c_void_p:
        """A primitive descriptor from one of the functions ``dnnl_…_primitive_desc_create``."""
        made = ctypes.c_void_p()
        check(getattr(self.slow, f"dnnl_{function}_primitive_desc_create")(ctypes.byref(made), *arguments))
        return made

    def reorder(self, source: ctypes.c_void_p, target: ctypes.c_void_p) -> Primitive:
        """Copies an array from one layout to another."""
        return Primitive(self, self.describe("reorder", source, self.engine, target, self.engine, self.attributes))

    def multiply(self, a: Array, b: Array, result: Array) -> None:
        """Puts ``a @ b``, matrices of float32, into a contiguous ``result``.

        Raises:
          ValueError: for other arrays, or sizes that do not fit.
        """
        (rows, columns), inner = result.shape, a.shape[1]
        if a.shape[0] != rows:
            raise ValueError(_misfit(a, f"a matrix of {rows} and {inner} rows and columns is"))
        if b.shape != (inner, columns):
            raise ValueError(_misfit(b, f"a matrix of {inner} and {columns} rows and columns is"))
        for array in (a, b, result):
            if array.dtype is not Layout.dtype and array.dtype != Layout.dtype:
                raise ValueError(_misfit(array, "a matrix of float32 is"))
        if not result.flags.c_contiguous:
            raise ValueError(_misfit(result, "a contiguous matrix is"))
        (a, turned_a, step_a), (b, turned_b, step_b) = _as_read(a), _as_read(b)
        self.use_threads(alone=rows * columns * inner < _SMALL)
        check(self.slow.dnnl_sgemm(
            turned_a, turned_b, rows, columns, inner, 1.0, data_address(a), step_a, data_address(b), step_b, 0.0,
            data_address(result), columns,
        ))  # fmt: skip

    def use_threads(self, alone: bool = False) -> int:
        """Gives OpenMP the number of threads of `limit_threads`, which it keeps per calling thread; returns it.

        Args:
          alone: use no other thread than the calling one.
        """
        wanted = 1 if alone else _threads or self._all_threads
        if _local.threads != wanted:
            self.quick.omp_set_num_threads(wanted)
            _local.threads = wanted
        return wanted


def data_address(array: Array) -> int:
    """Where an array's data begin; 2 us faster than ``array.ctypes.data``.

    numpy's C interface has the pointer as the first field of an array object, behind what all objects have.
    """
    found: int = ctypes.c_size_t.from_address(id(array) + object.__basicsize__).value
    return found


def _as_read(matrix: Array) -> tuple[Array, bytes, int]:
    """How BLAS reads a matrix of float32: where it lies, whether turned, and the elements between two of its lines.

    Its rows or its columns are in one piece each, as those of a part of a matrix are; another one is copied.
    """
    flags = matrix.flags
    if flags.c_contiguous:
        return matrix, b"N", max(matrix.shape[1], 1)
    if flags.f_contiguous:
        return matrix, b"T", max(matrix.shape[0], 1)
    size = Layout.dtype.itemsize
    for turned, (step, element), length in (
        (b"N", matrix.strides, matrix.shape[1]), (b"T", matrix.strides[::-1], matrix.shape[0]),
    ):  # fmt: skip
        if element == size and step >= size * length and not step % size:
            return matrix, turned, step // size
    matrix = np.ascontiguousarray(matrix)
    return matrix, b"N", max(matrix.shape[1], 1)


def _misfit(array: Array, wanted: str) -> str:
    return f"an array of shape {list(array.shape)} and type {array.dtype} does not fit the computation: {wanted} needed"


def dense_layout(library: Library, shape: tuple[int, ...], order: tuple[int, ...]) -> Layout:
    """The layout of a contiguous array; ``order`` has its axes as oneDNN orders them."""
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return Layout(library, [shape[axis] for axis in order], [strides[axis] for axis in order])


def channels_last_layout(library: Library, shape: tuple[int, ...]) -> Layout:
    """The layout of contiguous images (N, *space, C); oneDNN's order has the channels second."""
    return dense_layout(library, shape, (0, len(shape) - 1, *range(1, len(shape) - 1)))


def check(status: int) -> None:
    """Raises OneDnnError for a status that isn't success."""
    if status:
        raise OneDnnError(f"status {status}")


@functools.cache
def library() -> Library | None:
    """oneDNN, or None where it isn't installed or is switched off."""
    setting = os.environ.get("TFMINI_ONEDNN", "")
    if setting == "off":
        return None
    for path in [setting] if setting else _candidates():
        with contextlib.suppress(OSError, OneDnnError, AttributeError), _briefly_spinning():
            found = Library(path)
            # OpenMP's threads do not exist in a forked child, and it would wait for them; one thread needs no others.
            os.register_at_fork(after_in_child=functools.partial(limit_threads, 1))
            return found
    if setting:
        raise ValueError(f"TFMINI_ONEDNN={setting} is not a library of oneDNN 3, nor 'off'")
    return None


@contextlib.contextmanager
def _briefly_spinning() -> Iterator[None]:
    """Lets OpenMP's threads, if they are not loaded yet, wait for work for some 5 us before they sleep.

    By default they spin for milliseconds, on cores that the ops between two primitives need.
    """
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    if any(name in os.environ for name in names):
        yield
        return
    os.environ[names[0]] = "2000"
    try:
        yield
    finally:
        del os.environ[names[0]]


def _candidates() -> Iterator[str]:
    """Where the wheel ``onednn-cpu-gomp`` or the system may have the library."""
    for prefix in dict.fromkeys([sys.prefix, os.path.expanduser("~/.local")]):
        path = os.path.join(prefix, "lib", "libdnnl.so.3")
        if os.path.exists(path):
            yield path
    yield "libdnnl.so.3"
