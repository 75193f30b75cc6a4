"""What a calibration takes from the traced steps of its models."""

from __future__ import annotations

import math
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfmini as tf
from tfmini.show.simulation.calibration_kernels import Kernels, curves, rising, table


def test_ops_of_unknown_size_give_no_point() -> None:
    """Adagrad's sparse update has no shape in the graph: as a point of size 1 it would cost hours per megabyte."""
    with ExitStack() as stack:
        kernels = Kernels(tf, [table(rows=1000, width=8, batch=16, optimizer=1)], stack)
        for _ in range(2):
            kernels.take_turn()
        samples = kernels.samples()
    kinds = {kind for _, kind, _, _ in samples}
    assert "rows" in kinds and all(amount > 1 for _, kind, amount, _ in samples if kind != "view")
    assert all(curve.points[-1][0] > 1 for name, curve in curves(samples).items() if name in kinds - {"view"})


def test_more_work_never_takes_less_time() -> None:
    assert rising([(1.0, 1), (4.0, 1), (2.0, 3), (8.0, 1)]) == pytest.approx([1.0, 2**1.25, 2**1.25, 8.0])


@given(st.lists(st.tuples(st.floats(1e-6, 1.0), st.integers(1, 9)), min_size=1))
def test_rising_values_keep_their_number_and_mean(values: list[tuple[float, int]]) -> None:
    found = rising(values)
    assert len(found) == len(values)
    assert all(a <= b * (1 + 1e-9) for a, b in zip(found, found[1:]))
    weights = [weight for _, weight in values]
    before = sum(weight * math.log(value) for value, weight in values)
    assert sum(w * math.log(v) for v, w in zip(found, weights)) == pytest.approx(before, abs=1e-6)
