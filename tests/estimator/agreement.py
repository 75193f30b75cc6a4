"""Compares nested results of tfmini and TensorFlow: numbers nearly, all else exactly."""

from __future__ import annotations

from typing import Any

import numpy as np


def assert_same(ours: Any, theirs: Any, where: str = "") -> None:
    """Both have the same structure, types and values; floats may differ by rounding."""
    assert type(ours) is type(theirs), f"{where}: {ours!r}, TensorFlow {theirs!r}"
    if isinstance(ours, dict):
        assert sorted(ours, key=str) == sorted(theirs, key=str), where
        for key in ours:
            assert_same(ours[key], theirs[key], f"{where}/{key}")
    elif isinstance(ours, list):
        assert len(ours) == len(theirs), f"{where}: {ours}, TensorFlow {theirs}"
        for index, pair in enumerate(zip(ours, theirs)):
            assert_same(*pair, f"{where}/{index}")
    elif isinstance(ours, (np.ndarray, np.generic)):
        assert ours.dtype == theirs.dtype, where
        if ours.dtype.kind == "f":
            np.testing.assert_allclose(ours, theirs, 1e-4, 1e-5, err_msg=where)
        else:
            np.testing.assert_array_equal(ours, theirs, err_msg=where)
    else:
        assert ours == theirs, f"{where}: {ours!r}, TensorFlow {theirs!r}"
