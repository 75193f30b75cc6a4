"""Fourier transforms over the last one, two or three axes (``tf.signal``, ``tf.fft``, …)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.export import export_names
from tfmini.graph.families import Operation, Tensor, convert_to_tensor, op
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.casting import cast
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.filling import ones, zeros
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.slicing import getitem
from tfmini.ops.math.broadcast import named
from tfmini.ops.math.complex import real
from tfmini.ops.math.elementwise import floormod, multiply
from tfmini.ops.math.reduce_functions import reduce_prod
from tfmini.shapes import RawShape

_COMPLEX = "(input: Tcomplex) -> output: Tcomplex; Tcomplex: {complex64, complex128} = DT_COMPLEX64"
_TYPES = "; Treal: {float, double} = DT_FLOAT; Tcomplex: {complex64, complex128} = DT_COMPLEX64"
_REAL = "(input: Treal, fft_length: int32) -> output: Tcomplex" + _TYPES
_BACK = "(input: Tcomplex, fft_length: int32) -> output: Treal" + _TYPES

forward_ops = [op(f"FFT{kind}{_COMPLEX}") for kind in ("", "2D", "3D")]
inverse_ops = [op(f"IFFT{kind}{_COMPLEX}") for kind in ("", "2D", "3D")]
real_ops = [op(f"RFFT{kind}{_REAL}") for kind in ("", "2D", "3D")]
real_inverse_ops = [op(f"IRFFT{kind}{_BACK}") for kind in ("", "2D", "3D")]
real_ops[2].not_differentiable()
real_inverse_ops[2].not_differentiable()


# ---- complex to complex ---------------------------------------------------------------------


def _rank_at_least(shape: RawShape, rank: int) -> None:
    if shape is not None and len(shape) < rank:
        raise ValueError(f"Shape must be at least rank {rank} but is rank {len(shape)}")


def _register_complex(handle: Any, other: Any, rank: int, transform: Callable[..., Any], inverse: bool) -> None:
    axes = tuple(range(-rank, 0))

    def kernel(value: Any) -> Any:
        return transform(value, axes=axes).astype(value.dtype, copy=False)

    def output_shape(node: Operation) -> list[RawShape]:
        _rank_at_least(node.inputs[0].raw_shape, rank)
        return [node.inputs[0].raw_shape]

    def gradient(node: Operation, grad: Tensor) -> Any:
        # The transposed transform is the inverse one up to a scale: the number of elements.
        count = cast(reduce_prod(array_shape.shape(grad)[-rank:]), grad.dtype.real_dtype)
        scale = cast(1 / count if inverse else count, grad.dtype)
        return multiply(other(grad), scale)

    handle.shape(output_shape)
    handle.kernel("CPU")(kernel)
    handle.gradient(gradient)


for _rank in (1, 2, 3):
    _register_complex(forward_ops[_rank - 1], inverse_ops[_rank - 1], _rank, np.fft.fftn, inverse=False)
    _register_complex(inverse_ops[_rank - 1], forward_ops[_rank - 1], _rank, np.fft.ifftn, inverse=True)


# ---- real to complex and back ---------------------------------------------------------------


def _lengths_shape(node: Operation, rank: int, halved: bool) -> list[RawShape]:
    shape = node.inputs[0].raw_shape
    _rank_at_least(shape, rank)
    lengths_shape = node.inputs[1].raw_shape
    if lengths_shape is not None and lengths_shape != (rank,) and None not in lengths_shape:
        raise ValueError(f"Dimension must be {rank} but is {(*lengths_shape, '?')[0]}")
    if shape is None:
        return [None]
    known = constant_value(node.inputs[1])
    tail: list[int | None] = [None] * rank if known is None else [int(n) for n in known]
    if halved and tail[-1] is not None:
        tail[-1] = tail[-1] // 2 + 1 if tail[-1] else 0
    return [(*shape[: len(shape) - rank], *tail)]


def _check_lengths(value: Any, lengths: Any, rank: int, halved: bool) -> None:
    for axis, length in zip(range(-rank, 0), lengths):
        wanted = int(length) // 2 + 1 if halved and axis == -1 else int(length)
        if length < 0:
            refuse("fft_length[" + str(rank + axis) + "] must be >= 0, but got: " + str(int(length)))
        if value.shape[axis] < wanted:
            refuse(f"Input dimension {value.ndim + axis} must have length of at least {wanted} but got:"
                   f" {value.shape[axis]}")  # fmt: skip


def _register_real(handle: Any, back: Any, rank: int) -> None:
    axes = tuple(range(-rank, 0))

    def forward(value: Any, lengths: Any, *, Tcomplex: Any) -> Any:
        _check_lengths(value, lengths, rank, halved=False)
        sizes = tuple(int(n) for n in lengths)
        if 0 in sizes:
            return np.zeros((*value.shape[:-rank], *sizes[:-1], sizes[-1] // 2 + 1 if sizes[-1] else 0), Tcomplex.numpy)
        return np.fft.rfftn(value, sizes, axes).astype(Tcomplex.numpy, copy=False)

    def backward(value: Any, lengths: Any, *, Treal: Any) -> Any:
        _check_lengths(value, lengths, rank, halved=True)
        sizes = tuple(int(n) for n in lengths)
        if 0 in sizes:
            return np.zeros((*value.shape[:-rank], *sizes), Treal.numpy)
        return np.fft.irfftn(value, sizes, axes).astype(Treal.numpy, copy=False)

    handle.shape(lambda node: _lengths_shape(node, rank, halved=True))
    back.shape(lambda node: _lengths_shape(node, rank, halved=False))
    handle.kernel("CPU")(forward)
    back.kernel("CPU")(backward)


for _rank in (1, 2, 3):
    _register_real(real_ops[_rank - 1], real_inverse_ops[_rank - 1], _rank)


def _count(value: Tensor, rank: int, dtype: Any) -> Tensor:
    """The number of elements of one transform of ``value``."""
    return cast(reduce_prod(array_shape.shape(value)[-rank:]), dtype)


def _register_real_gradients(rank: int) -> None:
    handle, back = real_ops[rank - 1], real_inverse_ops[rank - 1]

    def gradient(node: Operation, grad: Tensor) -> list[Any]:
        # The omitted half has a zero gradient: pad with zeros, then apply the transposed full transform.
        wide = getitem(node.inputs[1], -1) - getitem(array_shape.shape(grad), -1)
        blank = zeros(concat([array_shape.shape(grad)[:-1], array_shape.reshape(wide, [1])], 0), grad.dtype)
        full = real(inverse_ops[rank - 1](concat([grad, blank], -1)))
        return [multiply(full, _count(full, rank, full.dtype)), None]

    def back_gradient(node: Operation, grad: Tensor) -> list[Any]:
        # Every bin but the first (and, for an even length, the last) also stands for its mirror image.
        odd = floormod(getitem(node.inputs[1], -1), 2)
        inner = getitem(array_shape.shape(node.inputs[0]), -1) - 2 + odd
        twice = [ones([1], grad.dtype), 2 * ones(stack([inner]), grad.dtype), ones(stack([1 - odd]), grad.dtype)]
        scale = concat(twice, 0) / _count(grad, rank, grad.dtype)
        return [multiply(handle(grad, node.inputs[1]), cast(scale, node.inputs[0].dtype)), None]

    handle.gradient(gradient)
    back.gradient(back_gradient)


for _rank in (1, 2):
    _register_real_gradients(_rank)


# ---- public functions -----------------------------------------------------------------------


def _complex_function(handle: Any, name: str, what: str) -> Callable[..., Tensor]:
    def function(input: Any, name: str | None = None) -> Tensor:
        return handle(input, name=name)  # type: ignore[no-any-return]

    return named(function, name, f"{what} (``tf.{name}``), complex64 or complex128.")


fft, fft2d, fft3d = (
    _complex_function(handle, name, f"The Fourier transform over the last {i} axes")
    for i, (handle, name) in enumerate(zip(forward_ops, ("fft", "fft2d", "fft3d")), 1)
)
ifft, ifft2d, ifft3d = (
    _complex_function(handle, name, f"The inverse Fourier transform over the last {i} axes")
    for i, (handle, name) in enumerate(zip(inverse_ops, ("ifft", "ifft2d", "ifft3d")), 1)
)


def _inferred(value: Tensor, rank: int, inverse: bool) -> Any:
    """The lengths of the last axes of a real signal; with ``inverse``, ``value`` is its transform."""
    known = value.raw_shape
    if known is not None and len(known) >= rank and None not in known[-rank:]:
        sizes: list[Any] = list(known[-rank:])
        if inverse:
            sizes[-1] = max(2 * (sizes[-1] - 1), 0)
        return convert_to_tensor(sizes, dtypes.int32)
    lengths = array_shape.shape(value)[-rank:]
    if not inverse:
        return lengths
    from_last = [0] * (rank - 1) + [2]
    return lengths * convert_to_tensor([1] * (rank - 1) + [2]) - convert_to_tensor(from_last)


def _real_function(handle: Any, name: str, rank: int, inverse: bool) -> Callable[..., Tensor]:
    def function(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
        value = convert_to_tensor(input_tensor, dtypes.complex64 if inverse else dtypes.float32)
        lengths = _inferred(value, rank, inverse) if fft_length is None else fft_length
        return handle(value, convert_to_tensor(lengths, dtypes.int32), name=name)  # type: ignore[no-any-return]

    kind = "inverse Fourier transform to" if inverse else "Fourier transform of"
    return named(function, name, f"The {kind} a real signal over the last {rank} axes (``tf.signal.{name}``).")


rfft, rfft2d, rfft3d = (
    _real_function(handle, name, i, False)
    for i, (handle, name) in enumerate(zip(real_ops, ("rfft", "rfft2d", "rfft3d")), 1)
)
irfft, irfft2d, irfft3d = (
    _real_function(handle, name, i, True)
    for i, (handle, name) in enumerate(zip(real_inverse_ops, ("irfft", "irfft2d", "irfft3d")), 1)
)

export_names("tf tf.signal tf.spectral", "fft fft2d fft3d ifft ifft2d ifft3d")
export_names("tf.signal tf.spectral", "irfft irfft2d irfft3d rfft rfft2d rfft3d")
