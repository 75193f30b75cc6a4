"""The gradient of max pooling by oneDNN; None where it is left to numpy.

oneDNN's maxima ignore NaN, so the pooling itself stays in numpy.
"""

from __future__ import annotations

import functools

import numpy as np

from tfmini.numerics import onednn
from tfmini.numerics.onednn import (
    RESULT,
    RESULT_GRADIENT,
    SOURCE,
    SOURCE_GRADIENT,
    WORKSPACE,
    Library,
    Primitive,
    channels_last_layout,
)
from tfmini.numerics.windows import Array, Axes, scratch

_FLOAT32 = np.dtype(np.float32)
_MOST_SHAPES = 256


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
