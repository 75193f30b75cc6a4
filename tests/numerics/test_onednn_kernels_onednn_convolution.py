"""Convolution by oneDNN gives what numpy gives; what it does not take is left to numpy."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.numerics.test_convolution import CASES
from tfmini.numerics import convolution, onednn, onednn_kernels
from tfmini.numerics.windows import Axes, window_axis

installed = pytest.mark.skipif(onednn.library() is None, reason="oneDNN is missing (pip install onednn-cpu-gomp)")


def arrays(shape: Any, window: Any, stride: int, dilation: int, padding: bytes) -> tuple[Any, Any, Any, Axes]:
    """A float32 image, filters, gradient of the result, and the windows."""
    random = np.random.default_rng(0)
    axes = Axes(window_axis(n, k, stride, dilation, padding) for n, k in zip(shape[1:-1], window))
    sizes = (shape, window, (shape[0], *axes.out, window[-1]))
    image, filters, grad = (random.normal(size=size).astype(np.float32) for size in sizes)
    return image, filters, grad, axes


@installed
@pytest.mark.parametrize("padding", [b"SAME", b"VALID"])
@pytest.mark.parametrize("shape,window,stride,dilation", CASES)
def test_onednn_gives_what_numpy_gives(shape: Any, window: Any, stride: int, dilation: int, padding: bytes) -> None:
    image, filters, grad, axes = arrays(shape, window, stride, dilation, padding)
    wide = [value.astype(np.float64) for value in (image, filters, grad)]  # float64 goes by numpy
    found = onednn_kernels.forward(image, filters, axes)
    np.testing.assert_allclose(found, convolution.forward(wide[0], wide[1], axes), rtol=1e-5, atol=1e-4)
    found = onednn_kernels.backprop_filter(image, grad, axes)
    np.testing.assert_allclose(found, convolution.backprop_filter(wide[0], wide[2], axes), rtol=1e-5, atol=1e-4)
    found = onednn_kernels.backprop_input(grad, filters, axes)
    if image.shape[-1] > 1:
        np.testing.assert_allclose(found, convolution.backprop_input(wide[2], wide[1], axes), rtol=1e-5, atol=1e-4)


@installed
def test_arrays_that_are_not_contiguous_are_taken() -> None:
    image, filters, _, axes = arrays((2, 5, 4, 3), (3, 2, 3, 4), 1, 1, b"SAME")
    views = [np.asfortranarray(image), np.asfortranarray(filters)]
    found = onednn_kernels.forward(views[0], views[1], axes)
    np.testing.assert_array_equal(found, onednn_kernels.forward(image, filters, axes))


@installed
def test_threads_share_a_primitive() -> None:
    image, filters, _, axes = arrays((8, 16, 16, 8), (3, 3, 8, 8), 1, 1, b"SAME")
    wanted, wrong = onednn_kernels.forward(image, filters, axes), []

    def convolve() -> None:
        for _ in range(50):
            if not np.array_equal(onednn_kernels.forward(image, filters, axes), wanted):
                wrong.append(threading.current_thread().name)

    threads = [threading.Thread(target=convolve) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@installed
def test_a_forked_child_convolves() -> None:
    """OpenMP's threads do not exist in a forked child; a convolution there must not wait for them."""
    code = """
import os, sys
import numpy as np
from tfmini.numerics import onednn_kernels
from tfmini.numerics.windows import Axes, window_axis
image, filters = np.ones((8, 16, 16, 8), np.float32), np.ones((3, 3, 8, 8), np.float32)
axes = Axes(window_axis(16, 3, 1, 1, b"SAME") for _ in range(2))
wanted = onednn_kernels.forward(image, filters, axes)
child = os.fork()
if not child:
    os._exit(0 if np.allclose(onednn_kernels.forward(image, filters, axes), wanted) else 1)
sys.exit(os.waitpid(child, 0)[1] >> 8)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=200).returncode == 0


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_other_types_are_left_to_numpy(dtype: Any) -> None:
    image, filters, _, axes = arrays((2, 5, 4, 3), (3, 2, 3, 4), 1, 1, b"SAME")
    assert onednn_kernels.forward(image.astype(dtype), filters.astype(dtype), axes) is None


def test_an_empty_batch_is_left_to_numpy() -> None:
    image, filters, grad, axes = arrays((0, 5, 4, 3), (3, 2, 3, 4), 1, 1, b"SAME")
    assert onednn_kernels.forward(image, filters, axes) is None
    assert convolution.forward(image, filters, axes).shape == grad.shape


def library_with(setting: str) -> subprocess.CompletedProcess[str]:
    code = "from tfmini.numerics import onednn; print(onednn.library())"
    env = {**os.environ, "TFMINI_ONEDNN": setting}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=200)


def test_it_can_be_switched_off() -> None:
    assert library_with("off").stdout.strip() == "None"


def test_a_wrong_file_is_an_error() -> None:
    result = library_with("/nowhere/libdnnl.so")
    assert "TFMINI_ONEDNN=/nowhere/libdnnl.so is not a library of oneDNN 3" in result.stderr


@installed
def test_nothing_reaches_onednn_that_its_layout_does_not_describe() -> None:
    """The last door: whatever a kernel forgets to check, oneDNN gets no address of a smaller array."""
    library = onednn.library()
    assert library is not None
    layout, other = (onednn.channels_last_layout(library, (1, 4, size)) for size in (8, 8))
    copy = library.reorder(layout.handle, other.handle)
    right, result = np.ones((1, 4, 8), np.float32), np.zeros((1, 4, 8), np.float32)
    copy({onednn.SOURCE: (layout, right), onednn.RESULT: (other, result)})
    assert result.all()
    for wrong in (right[:, :3], np.ones((1, 4, 8)), right[:, ::-1], right.view(np.int32), np.ones(31, np.float32)):
        for arrays_ in ((wrong, result), (right, wrong)):
            with pytest.raises(ValueError, match="does not fit the computation"):
                copy(dict(zip((onednn.SOURCE, onednn.RESULT), zip((layout, other), arrays_))))


@installed
def test_nor_does_a_matrix_that_a_product_would_read_beyond() -> None:
    library = onednn.library()
    assert library is not None
    a, b, result = (np.ones(shape, np.float32) for shape in ((3, 4), (4, 5), (3, 5)))
    library.multiply(a, b, result)
    assert (result == 4).all()
    pairs = ((a[:2], b), (a, b[:3]), (a.astype(float), b))
    for wrong in (*((*pair, result) for pair in pairs), (a, b, result.T), (a, b, np.ones((3, 6), np.float32)[:, 1:])):
        with pytest.raises(ValueError, match="does not fit the computation"):
            library.multiply(*wrong)


def _parts(rows: int, columns: int) -> Iterator[np.ndarray]:
    """The same matrix as it may lie: in rows or columns, a part of another, backwards, with gaps, and broadcast."""
    values = np.random.RandomState(0).randint(-8, 8, (rows, columns)).astype(np.float32)
    for place in (
        lambda wide: wide[1 : rows + 1, 1 : columns + 1], lambda wide: wide.T[1 : rows + 1, 1 : columns + 1],
        lambda wide: wide[rows:0:-1, :columns], lambda wide: wide[:rows, columns:0:-1],
        lambda wide: wide[: 2 * rows : 2, :columns], lambda wide: wide[:rows, : 2 * columns : 2],
    ):  # fmt: skip
        view = place(np.full([2 * max(rows, columns) + 1] * 2, np.nan, np.float32))
        view[...] = values
        yield view
    yield values
    yield np.asfortranarray(values)


@installed
@pytest.mark.parametrize(("rows", "inner", "columns"), [(3, 4, 5), (1, 7, 3), (3, 1, 2), (5, 2, 1), (1, 1, 1)])
def test_a_product_reads_a_part_of_a_matrix_where_it_lies(rows: int, inner: int, columns: int) -> None:
    library = onednn.library()
    assert library is not None
    for a in _parts(rows, inner):
        for b in (*_parts(inner, columns), np.broadcast_to(np.float32(2), (inner, columns))):
            result = np.full((rows, columns), np.nan, np.float32)
            library.multiply(a, b, result)
            assert np.array_equal(result, np.einsum("ij,jk->ik", a, b)), (a.strides, b.strides)
