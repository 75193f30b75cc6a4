"""Convolution in blocks, over two and three spatial axes, against a sum over the window's elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tfmini.numerics import convolution
from tfmini.numerics.windows import Axes, padded, patches, window_axis

CASES = [
    ((2, 5, 4, 3), (3, 2, 3, 4), 1, 1),
    ((2, 7, 6, 1), (2, 3, 1, 2), 2, 1),
    ((1, 6, 6, 20), (3, 3, 20, 2), 1, 2),
    ((2, 4, 5, 3, 2), (2, 3, 2, 2, 3), 1, 1),
    ((2, 6, 5, 3), (3, 5, 3, 4), 1, 1),
    ((2, 6, 5, 1), (3, 5, 1, 4), 2, 1),
    ((2, 4, 5, 3, 2), (2, 3, 3, 2, 3), 1, 1),
    ((1, 5, 4, 4, 2), (1, 2, 3, 2, 1), 2, 1),
]


def expected(image: Any, filters: Any, axes: Axes) -> Any:
    source = padded(image, axes, keep=True)
    return sum(source[where] @ filters[place] for place, where in axes.elements())


@pytest.mark.parametrize("block", [64, 4 << 20])
@pytest.mark.parametrize("padding", [b"SAME", b"VALID"])
@pytest.mark.parametrize("shape,window,stride,dilation", CASES)
def test_convolution_in_blocks_equals_convolution_at_once(
    shape: Any, window: Any, stride: int, dilation: int, padding: bytes, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolution, "BLOCK_BYTES", block)
    random = np.random.default_rng(0)
    image, filters = random.normal(size=shape), random.normal(size=window)
    axes = Axes(window_axis(n, k, stride, dilation, padding) for n, k in zip(shape[1:-1], window))
    result = convolution.forward(image, filters, axes)
    np.testing.assert_allclose(result, expected(image, filters, axes), atol=1e-12)
    # The gradients are transposes: <grad, forward(image, filters)> is linear in both.
    grad = random.normal(size=result.shape)
    by_image = convolution.backprop_input(grad, filters, axes)
    by_filter = convolution.backprop_filter(image, grad, axes)
    assert (by_image.shape, by_filter.shape) == (image.shape, filters.shape)
    np.testing.assert_allclose([(by_image * image).sum(), (by_filter * filters).sum()], [(grad * result).sum()] * 2)


@pytest.mark.parametrize("wrong", [{"window": 0}, {"stride": 0}, {"stride": -1}, {"dilation": 0}, {"dilation": -3},
                                   {"size": -1}, {"explicit": (-1, 0)}])  # fmt: skip
@pytest.mark.parametrize("padding", [b"SAME", b"VALID", b"EXPLICIT"])
def test_windows_that_would_lead_out_of_the_array_are_refused(wrong: dict[str, Any], padding: bytes) -> None:
    right: dict[str, Any] = {"size": 8, "window": 3, "stride": 1, "dilation": 1}
    window_axis(**right, padding=padding)
    with pytest.raises(ValueError, match="must be positive"):
        window_axis(**{**right, **wrong}, padding=padding)


def test_patches_are_of_the_whole_array() -> None:
    axes = Axes([window_axis(8, 3, 1, 1, b"VALID")])
    assert patches(np.zeros((2, 8, 1)), axes).shape == (2, 6, 3, 1)
    with pytest.raises(ValueError, match=r"images of \[8\], not of \[7\]"):
        patches(np.zeros((2, 7, 1)), axes)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_a_product_with_one_number_keeps_what_is_not_finite(bad: float, dtype: Any) -> None:
    """BLAS leaves the matrix unread if the number is 0: the first loss of a model of one feature was 0, not NaN."""
    column, zero = np.full((4, 1), bad, dtype), np.zeros((1, 1), dtype)
    with np.errstate(invalid="ignore"):
        for new in (None, np.empty):
            assert np.isnan(convolution.dot(column, zero, new)).all()
            assert np.isnan(convolution.dot(zero, column.T, new)).all()
