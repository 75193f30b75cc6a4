"""Convolution and its gradients by oneDNN: the functions of `convolution`, which asks here first.

Each returns None for what it leaves to numpy. Arrays have the channels last. Filters are copied to the layout that
oneDNN prefers, and their gradient back from it: they are small beside images.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tfmini.numerics import onednn
from tfmini.numerics.onednn import (
    RESULT,
    RESULT_GRADIENT,
    SOURCE,
    SOURCE_GRADIENT,
    WEIGHTS,
    WEIGHTS_GRADIENT,
    Layout,
    Library,
    Primitive,
    channels_last_layout,
    dense_layout,
)
from tfmini.numerics.windows import Array, Axes, scratch

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
        self, kind: str, filters: int, *arguments: Any, hint: Primitive | None = None
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
