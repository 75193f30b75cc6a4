"""What a calibration takes from the traced steps of its models."""

from __future__ import annotations

from tfmini.simulation.calibration import curves, samples_of
from tfmini.simulation.calibration_models import table


def test_ops_of_unknown_size_give_no_point() -> None:
    """Adagrad's sparse update has no shape in the graph: as a point of size 1 it would cost hours per megabyte."""
    samples = samples_of(table(rows=1000, width=8, batch=16, optimizer=1))
    kinds = {kind for _, kind, _, _ in samples}
    assert "rows" in kinds and all(amount > 1 for _, kind, amount, _ in samples if kind != "view")
    assert all(curve.points[-1][0] > 1 for name, curve in curves(samples).items() if name in kinds - {"view"})
