"""Convolution and its gradients by oneDNN: the functions of `convolution`, which asks here first.

Each returns None for what it leaves to numpy. Arrays have the channels last. Filters are copied to the layout that
oneDNN prefers, and their gradient back from it: they are small beside images.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini.core_types import Array
from tfmini.numerics import onednn
from tfmini.numerics.onednn import (
    RESULT,
    RESULT_GRADIENT,
    SOURCE,
    SOURCE_GRADIENT,
    WEIGHTS,
    WEIGHTS_GRADIENT,
    WORKSPACE,
    Layout,
    Library,
    Primitive,
    channels_last_layout,
    check,
    dense_layout,
)
from tfmini.numerics.windows import Axes, scratch

_FLOAT32 = np.dtype(np.float32)
# A program has a few dozen shapes. One that makes ever new ones must not fill the memory with code.
_MOST_SHAPES = 256


def forward(image: Array, filters: Array, axes: Axes) -> Array | None:
    """See `convolution.forward`."""
    found = _find(image, filters, image.shape, filters.shape, axes)
    return found.forward(image, filters) if found else None


def backprop_filter(image: Array, grad: Array, axes: Axes) -> Array | None:
    """See `convolution.backprop_filter`."""
    filters = (*axes.window, image.shape[-1], grad.shape[-1])
    found = _find(image, grad, image.shape, filters, axes)
    return found.backprop_filter(image, grad) if found else None


def backprop_input(grad: Array, filters: Array, axes: Axes) -> Array | None:
    """See `convolution.backprop_input`."""
    image = (grad.shape[0], *(axis.size for axis in axes), filters.shape[-2])
    if image[-1] == 1:  # measured: 2 to 4 times as slow as numpy
        return None
    found = _find(grad, filters, image, filters.shape, axes)
    return found.backprop_input(grad, filters) if found else None


def _find(
    first: Array, second: Array, image: tuple[int, ...], filters: tuple[int, ...], axes: Axes
) -> _Convolution | None:
    """The convolution of these shapes, if oneDNN takes the two arrays."""
    library = onednn.library()
    if library is None or not first.dtype == second.dtype == _FLOAT32 or first.size == 0 or second.size == 0:
        return None
    return _for_shapes(image, filters, axes, library.use_threads())


@functools.lru_cache(_MOST_SHAPES)
def _for_shapes(
    image: tuple[int, ...], filters: tuple[int, ...], axes: Axes, threads: int | None
) -> _Convolution | None:
    """``threads`` is part of the key: a primitive divides its work among that many when it is made."""
    library = onednn.library()
    assert library is not None
    try:
        return _Convolution(library, image, filters, axes)
    except onednn.OneDnnError:
        return None


class _Convolution:
    """One convolution's primitives; those of a gradient are made when they are first needed.

    Args:
      image, filters: shapes, (N, *space, C) and (*window, C, F).

    Raises:
      OneDnnError: when oneDNN has no code for it.
    """

    def __init__(self, library: Library, image: tuple[int, ...], filters: tuple[int, ...], axes: Axes) -> None:
        self._library = library
        self._image_shape, self._filters_shape = image, filters
        self._result_shape = (image[0], *axes.out, filters[-1])
        self._image = channels_last_layout(library, image)
        self._result = channels_last_layout(library, self._result_shape)
        out_in_window = (len(filters) - 1, len(filters) - 2, *range(len(filters) - 2))
        self._plain = dense_layout(library, filters, out_in_window)
        self._chosen = Layout(library, [filters[axis] for axis in out_in_window], None)
        self._geometry = (
            library.dims([axis.stride for axis in axes]),
            library.dims([axis.dilation - 1 for axis in axes]),
            library.dims([axis.before for axis in axes]),
            library.dims([axis.after for axis in axes]),
        )
        self._forward = self._primitives(
            "forward", WEIGHTS, onednn.FORWARD_TRAINING, onednn.DIRECT, self._image, self._chosen, None, self._result
        )

    @functools.cached_property
    def _by_input(self) -> tuple[Primitive, Primitive]:
        return self._primitives(
            "backward_data", WEIGHTS, onednn.DIRECT, self._image, self._chosen, self._result, hint=self._forward[0]
        )

    @functools.cached_property
    def _by_filter(self) -> tuple[Primitive, Primitive]:
        layouts = (self._image, self._chosen, None, self._result)
        return self._primitives("backward_weights", WEIGHTS_GRADIENT, onednn.DIRECT, *layouts, hint=self._forward[0])

    def _primitives(
        self, kind: str, filters: int, *arguments: object, hint: Primitive | None = None
    ) -> tuple[Primitive, Primitive]:
        """The convolution of a kind, and the copy of its filters, argument ``filters``, to or from their layout."""
        library = self._library
        handles = [value.handle if isinstance(value, Layout) else value for value in arguments]
        last = [library.attributes] if hint is None else [hint.description, library.attributes]
        description = library.describe(f"convolution_{kind}", library.engine, *handles, *self._geometry, *last)
        main = Primitive(library, description)
        chosen, plain = main.layout(filters).handle, self._plain.handle
        copy = (chosen, plain) if filters == WEIGHTS_GRADIENT else (plain, chosen)
        return main, library.reorder(*copy)

    def forward(self, image: Array, filters: Array) -> Array:
        """See `convolution.forward`."""
        result = np.empty(self._result_shape, np.float32)
        image, (main, copy) = np.ascontiguousarray(image), self._forward
        chosen = self._copied(filters, main, copy)
        main({SOURCE: (self._image, image), WEIGHTS: chosen, RESULT: (self._result, result)})
        return result

    def backprop_input(self, grad: Array, filters: Array) -> Array:
        """See `convolution.backprop_input`."""
        result = np.empty(self._image_shape, np.float32)
        grad, (main, copy) = np.ascontiguousarray(grad), self._by_input
        chosen = self._copied(filters, main, copy)
        gradient = (self._result, grad)
        main({RESULT_GRADIENT: gradient, WEIGHTS: chosen, SOURCE_GRADIENT: (self._image, result)})
        return result

    def backprop_filter(self, image: Array, grad: Array) -> Array:
        """See `convolution.backprop_filter`."""
        result = np.empty(self._filters_shape, np.float32)
        image, grad, (main, copy) = np.ascontiguousarray(image), np.ascontiguousarray(grad), self._by_filter
        chosen, gradient = self._space_for(main, WEIGHTS_GRADIENT), (self._result, grad)
        main({SOURCE: (self._image, image), RESULT_GRADIENT: gradient, WEIGHTS_GRADIENT: chosen})
        copy({SOURCE: chosen, RESULT: (self._plain, result)})
        return result

    def _copied(self, filters: Array, main: Primitive, copy: Primitive) -> tuple[Any, Array]:
        """The filters in the layout of a convolution."""
        chosen = self._space_for(main, WEIGHTS)
        copy({SOURCE: (self._plain, np.ascontiguousarray(filters)), RESULT: chosen})
        return chosen

    def _space_for(self, main: Primitive, kind: int) -> tuple[Any, Array]:
        layout = main.layout(kind)
        return layout, scratch("oneDNN filters", (layout.nbytes,), layout.dtype)


# ---- Chains of element-wise operations on arrays of float32 by oneDNN: one pass over memory, on all cores ----------
# numpy makes a pass for each operation, on one core. A chain is ``target = step(…step(first(a, b), operand)…)``. All of
# its operations round as numpy's do, so that the results are equal bit by bit.


_SECOND_SOURCE = 2
_STEP_OPERAND = 32768  # DNNL_ARG_ATTR_MULTIPLE_POST_OP_BASE, times the number of the step (from 1)
_BINARY = {"add": 0x1FFF0, "multiply": 0x1FFF1, "divide": 0x1FFF4, "subtract": 0x1FFF5}
_UNARY = {"sqrt": 0x25}
_MOST_CHAINS = 1024  # one for each size of a variable and pass of its rule


def accepts(*arrays: Array) -> bool:
    """Whether oneDNN computes chains here, and all arrays are contiguous, of float32 and not empty."""
    return all(a.dtype == _FLOAT32 and a.flags.c_contiguous and a.size for a in arrays) and _available()


def several_threads() -> bool:
    """Whether a chain on this thread is divided among several."""
    library = onednn.library()
    return library is not None and library.use_threads() > 1


@functools.cache
def _available() -> bool:
    """Whether oneDNN is there, has code for all operations on this processor, and rounds as numpy does."""
    if onednn.library() is None:
        return False
    a = np.linspace(0.1, 3, 37, dtype=np.float32)
    b, found = a[::-1].copy(), np.empty_like(a)
    try:
        run(found, a, "multiply", 0.3, "add", b, "divide", a, "sqrt", "subtract", 0.7, "multiply", b)
    except onednn.OneDnnError:
        return False
    return np.array_equal(found, (np.sqrt((a * np.float32(0.3) + b) / a) - np.float32(0.7)) * b)


def run(target: Array, a: Array, first: str, b: Array | float, *steps: Array | float | str) -> None:
    """Computes a chain on arrays of one size, which `accepts` has accepted; ``target`` may be one of them.

    Args:
      first, steps: "add", "subtract", "multiply" or "divide", each with its right operand behind it, an array or a
        number; a step may also be "sqrt".
    """
    library = onednn.library()
    assert library is not None
    threads = library.use_threads()
    operands = [_operand(x) for x in (b, *steps) if not isinstance(x, str)]
    kinds = [first, operands[0].size > 1, *(x if isinstance(x, str) else _operand(x).size > 1 for x in steps)]
    _chain(a.size, tuple(kinds), threads)(target, a, operands)


def _operand(value: Array | float) -> Array:
    """An array as it is; a number as an array of one element."""
    return value if isinstance(value, np.ndarray) and value.size > 1 else np.array([value], np.float32)


@functools.lru_cache(_MOST_CHAINS)
def _chain(size: int, kinds: tuple[Any, ...], threads: int) -> OperationChain:
    """``threads`` is part of the key: a primitive divides its work among that many when it is made."""
    library = onednn.library()
    assert library is not None
    return OperationChain(library, size, kinds)


class OperationChain:
    """The primitive of one chain.

    Args:
      kinds: the operations, each with a right operand behind it: whether that is an array.
    """

    def __init__(self, library: Library, size: int, kinds: Sequence[Any]) -> None:
        self._array = Layout(library, [size], [1])
        self._number = Layout(library, [1], [1])
        self._layouts: list[tuple[int, Layout]] = []
        first, b, *steps = kinds
        self._layouts.append((_SECOND_SOURCE, self._layout(b)))
        attributes = self._attributes(library, steps)
        try:
            self._primitive = Primitive(library, library.describe(
                "binary", library.engine, _BINARY[first], self._array.handle, self._layout(b).handle,
                self._array.handle, attributes,
            ))  # fmt: skip
        finally:
            library.quick.dnnl_primitive_attr_destroy(attributes)

    def _layout(self, is_array: bool) -> Layout:
        return self._array if is_array else self._number

    def _attributes(self, library: Library, steps: Sequence[Any]) -> ctypes.c_void_p:
        """The attributes of a primitive that runs the steps behind its own operation."""
        quick, made, after = library.quick, ctypes.c_void_p(), ctypes.c_void_p()
        check(quick.dnnl_post_ops_create(ctypes.byref(after)))
        number = 0
        for step, operand in zip(steps, [*steps[1:], ""]):
            if step in _UNARY:
                check(quick.dnnl_post_ops_append_eltwise(after, _UNARY[step], ctypes.c_float(0), ctypes.c_float(0)))
                number += 1
            elif step in _BINARY:
                check(quick.dnnl_post_ops_append_binary(after, _BINARY[step], self._layout(operand).handle))
                number += 1
                self._layouts.append((_STEP_OPERAND * number | _SECOND_SOURCE, self._layout(operand)))
        check(quick.dnnl_primitive_attr_create(ctypes.byref(made)))
        check(quick.dnnl_primitive_attr_set_scratchpad_mode(made, onednn.USER_SCRATCHPAD))
        check(quick.dnnl_primitive_attr_set_post_ops(made, after))
        check(quick.dnnl_post_ops_destroy(after))
        return made

    def __call__(self, target: Array, a: Array, operands: Sequence[Array]) -> None:
        """Runs the chain."""
        arguments = {kind: (layout, x) for (kind, layout), x in zip(self._layouts, operands)}
        layout = self._array
        self._primitive({SOURCE: (layout, a), RESULT: (layout, target), **arguments})


# ---- The gradient of max pooling by oneDNN; None where it is left to numpy -----------------------------------------
# oneDNN's maxima ignore NaN, so the pooling itself stays in numpy.


def max_gradient(image: Array, grad: Array, axes: Axes) -> Array | None:
    """Gives the gradient of each window to its first maximum. The images, (N, *space, C), have no NaN."""
    library = onednn.library()
    if library is None or not image.dtype == grad.dtype == _FLOAT32 or grad.size == 0:
        return None
    found = _for_shape(image.shape, axes, library.use_threads())
    return found.gradient(np.ascontiguousarray(image), np.ascontiguousarray(grad)) if found else None


@functools.lru_cache(_MOST_SHAPES)
def _for_shape(image: tuple[int, ...], axes: Axes, threads: int | None) -> _MaxPooling | None:
    """``threads`` is part of the key: a primitive divides its work among that many when it is made."""
    library = onednn.library()
    assert library is not None
    try:
        return _MaxPooling(library, image, axes)
    except onednn.OneDnnError:
        return None


class _MaxPooling:
    """The primitives for images of one shape.

    Raises:
      OneDnnError: when oneDNN has no code for it.
    """

    def __init__(self, library: Library, image: tuple[int, ...], axes: Axes) -> None:
        self._result_shape = (image[0], *axes.out, image[-1])
        self._image = channels_last_layout(library, image)
        self._result = channels_last_layout(library, self._result_shape)
        dims = library.dims
        geometry = (
            dims([axis.stride for axis in axes]),
            dims([axis.window for axis in axes]),
            dims([axis.dilation - 1 for axis in axes]),
            dims([axis.before for axis in axes]),
            dims([axis.after for axis in axes]),
        )
        layouts = (self._image.handle, self._result.handle)
        self._forward = Primitive(library, library.describe(
            "pooling_forward", library.engine, onednn.FORWARD_TRAINING, onednn.MAX, *layouts, *geometry,
            library.attributes,
        ))  # fmt: skip
        self._backward = Primitive(library, library.describe(
            "pooling_backward", library.engine, onednn.MAX, *layouts, *geometry, self._forward.description,
            library.attributes,
        ))  # fmt: skip
        self._places = self._forward.layout(WORKSPACE)

    def gradient(self, image: Array, grad: Array) -> Array:
        """See `max_gradient`."""
        places = (self._places, scratch("oneDNN places", (self._places.nbytes,), self._places.dtype))
        maxima = scratch("oneDNN maxima", self._result_shape, _FLOAT32)
        result = np.empty(image.shape, np.float32)
        self._forward({
            SOURCE: (self._image, image), RESULT: (self._result, maxima), WORKSPACE: places,
        })  # fmt: skip
        self._backward({
            RESULT_GRADIENT: (self._result, grad), SOURCE_GRADIENT: (self._image, result),
            WORKSPACE: places,
        })  # fmt: skip
        return result


# ---- onednn updates ----------------------------------------
# The commonest optimizers' rules by oneDNN: the functions of `update_rules`, which asks here first for large arrays.
# Each needs one pass over memory for an array that changes, on all cores, where numpy needs three to five on one core.
# The operations and their order are those of `update_rules`, so the results are equal bit by bit. A number that is
# subtracted there is added here with the other sign.


def _space(like: Array) -> Any:
    return scratch("oneDNN updates", like.shape, like.dtype)


def gradient_descent(var: Array, grad: Array, lr: Array) -> None:
    """See `update_rules.gradient_descent`."""
    run(var, grad, "multiply", -lr, "add", var)


def momentum(var: Array, accum: Array, grad: Array, lr: Array, mu: Array, *, use_nesterov: bool) -> None:
    """See `update_rules.momentum`."""
    run(accum, accum, "multiply", mu, "add", grad)
    if use_nesterov:
        run(var, accum, "multiply", mu, "add", grad, "multiply", -lr, "add", var)
    else:
        run(var, accum, "multiply", -lr, "add", var)


def adagrad(var: Array, accum: Array, grad: Array, lr: Array, *, update_slots: bool) -> None:
    """See `update_rules.adagrad`."""
    if update_slots:
        run(accum, grad, "multiply", grad, "add", accum)
    t = _space(var)
    run(t, accum, "multiply", _one(var), "sqrt")
    run(var, grad, "divide", t, "multiply", -lr, "add", var)


def adagrad_v2(var: Array, accum: Array, grad: Array, lr: Array, epsilon: Array, *, update_slots: bool) -> None:
    """See `update_rules.adagrad_v2`."""
    if update_slots:
        run(accum, grad, "multiply", grad, "add", accum)
    t = _space(var)
    run(t, accum, "multiply", _one(var), "sqrt", "add", epsilon)
    run(var, grad, "divide", t, "multiply", -lr, "add", var)


def adam(
    var: Array, m: Array, v: Array, grad: Array, beta1_power: Array, beta2_power: Array, lr: Array, beta1: Array,
    beta2: Array, epsilon: Array, *, use_nesterov: bool,
) -> None:  # fmt: skip
    """See `update_rules.adam`."""
    one, t = _one(var), _space(var)
    run(m, grad, "subtract", m, "multiply", one - beta1, "add", m)
    run(v, grad, "multiply", grad, "subtract", v, "multiply", one - beta2, "add", v)
    step = m
    if use_nesterov:
        step = np.empty_like(var)
        run(t, m, "multiply", beta1)
        run(step, grad, "multiply", one - beta1, "add", t)
    run(t, v, "multiply", one, "sqrt", "add", epsilon)
    rate = lr * np.sqrt(one - beta2_power) / (one - beta1_power)
    run(var, step, "divide", t, "multiply", -rate, "add", var)


def rms_prop(var: Array, ms: Array, mom: Array, grad: Array, lr: Array, rho: Array, mu: Array, epsilon: Array) -> None:
    """See `update_rules.rms_prop`."""
    t = _space(var)
    run(ms, grad, "multiply", grad, "subtract", ms, "multiply", _one(var) - rho, "add", ms)
    run(t, ms, "add", epsilon, "sqrt")
    run(t, grad, "divide", t, "multiply", lr)
    run(mom, mom, "multiply", mu, "add", t)
    run(var, var, "subtract", mom)


def _one(array: Array) -> Any:
    return array.dtype.type(1)
