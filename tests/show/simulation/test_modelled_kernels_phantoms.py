"""Phantom arrays."""

from __future__ import annotations

import resource

import numpy as np
import pytest

import tfmini as tf
from tfmini.show.simulation.modelled_kernels import Phantom, as_phantom, phantom


def test_a_phantom_has_its_type_and_its_shape() -> None:
    found = phantom(tf.int64, (3, 4))
    assert (found.dtype, found.shape, found.sum()) == (np.int64, (3, 4), 0)
    assert phantom(tf.as_dtype("float32_ref"), ()).shape == ()


def test_unknown_sizes_count_as_nothing() -> None:
    assert phantom(tf.float32, (None, 4)).nbytes == phantom(tf.float32, None).nbytes == 0


def test_strings_are_empty_and_handles_are_nothing() -> None:
    assert phantom(tf.string, ()) == b""
    assert phantom(tf.string, (2,)).tolist() == [b"", b""]
    assert phantom(tf.resource, ()) is None


def test_a_large_phantom_takes_no_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = phantom(tf.float32, (1 << 28,))
    (found + found).copy()
    assert found.nbytes == 1 << 30
    assert found.flags.c_contiguous
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_arithmetic_gives_phantoms_of_the_right_type_and_shape() -> None:
    a, b = phantom(tf.float32, (4, 1)), phantom(tf.float64, (3,))
    assert isinstance(a + b, Phantom)
    assert ((a + b).shape, (a + b).dtype) == ((4, 3), np.float64)
    assert (a < 1).dtype == np.bool_
    assert np.divide(a, np.float32(2), out=a) is a


def test_nobody_writes_into_the_memory_of_all() -> None:
    with pytest.raises(ValueError, match="read-only"):
        phantom(tf.float32, (4,))[0] = 1.0


def test_an_array_becomes_a_phantom_and_a_scalar_does_not() -> None:
    assert isinstance(as_phantom(np.ones((2, 3), np.float32)), Phantom)
    assert as_phantom(np.float32(3)) == 3
