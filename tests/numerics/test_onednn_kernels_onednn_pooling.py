"""The gradient of max pooling by oneDNN is numpy's: the first maximum of a window gets it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tfmini import float32, float64
from tfmini.numerics import onednn
from tfmini.ops.nn.pooling import max_pool_grad_of, max_pool_of

CASES = [
    ((2, 8, 6, 3), (2, 2), (2, 2)),
    ((2, 7, 9, 16), (3, 2), (2, 1)),
    ((1, 5, 5, 1), (3, 3), (1, 1)),
]


@pytest.mark.skipif(onednn.library() is None, reason="oneDNN is missing (pip install onednn-cpu-gomp)")
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("padding", [b"SAME", b"VALID"])
@pytest.mark.parametrize("shape,ksize,strides", CASES)
def test_the_gradient_equals_numpys(shape: Any, ksize: Any, strides: Any, padding: bytes, ties: bool) -> None:
    random = np.random.default_rng(0)
    image = random.integers(-1, 2, shape).astype(np.float32) if ties else random.normal(size=shape).astype(np.float32)
    image[0, 0, 0] = -np.inf
    attrs = {
        "ksize": [1, *ksize, 1], "strides": [1, *strides, 1], "padding": padding, "data_format": b"NHWC",
        "explicit_paddings": [], "T": float32,
    }  # fmt: skip
    result = max_pool_of(attrs)(image)
    grad = random.integers(1, 9, result.shape).astype(np.float32)  # sums of overlapping windows are exact
    by_numpy = max_pool_grad_of({**attrs, "T": float64})(*(value.astype(np.float64) for value in (image, result, grad)))
    np.testing.assert_array_equal(max_pool_grad_of(attrs)(image, result, grad), by_numpy)
