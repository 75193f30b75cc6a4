"""Complex numbers whose parts are zero, infinite or NaN. The answers of TensorFlow 1.15.5: `tests.programs.era`."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf
from tfmini.numerics import complex_numbers


def parts(z: np.ndarray) -> list[str]:
    return [f"{x.real + 0:g} {x.imag + 0:g}" for x in np.ravel(z)]


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_a_quotient_by_zero_has_the_signs_of_its_operands(dtype: type) -> None:
    zeros = np.array([complex(0.0, 0.0), complex(-0.0, 0.0)], dtype)
    with np.errstate(all="ignore"):
        found = complex_numbers.divide(np.array([1 + 2j, 1 - 2j], dtype), zeros)
        assert found.dtype == dtype and parts(found) == ["inf inf", "-inf inf"]
        assert parts(complex_numbers.reciprocal(zeros)) == ["inf nan", "-inf nan"]
        assert parts(complex_numbers.power(zeros[:1], np.array([0, -1, 2], dtype))) == ["nan nan", "inf nan", "0 0"]


def test_finite_numbers_are_those_of_numpy_and_keep_their_type() -> None:
    x, y = np.exp(1j * np.arange(1, 7)).astype(np.complex64), np.complex64(3 - 4j)
    assert np.array_equal(complex_numbers.divide(x, y), x / y)
    assert np.array_equal(complex_numbers.multiply(x, y), x * y)
    assert complex_numbers.reciprocal(y) == 1 / y and complex_numbers.power(x, y).dtype == np.complex64


def test_the_logarithm_keeps_the_digits_of_what_is_small() -> None:
    assert complex_numbers.log1p(np.complex128([1e-20, 1e-20j])).tolist() == [1e-20, 5e-41 + 1e-20j]


@pytest.mark.parametrize("size", [1, 4, 50_000])
def test_an_op_divides_by_zero_alike_in_tensors_of_all_sizes(size: int) -> None:
    x = tf.placeholder(tf.complex64, [size])
    with tf.Session() as session:
        found = session.run([1 / (x + 0), tf.math.rsqrt(x * 1), (x + 1) / x], {x: np.zeros(size)})
    assert all({*parts(one)} == {"inf nan"} for one in found)
