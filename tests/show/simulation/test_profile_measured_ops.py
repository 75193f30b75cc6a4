"""Times of a traced step in a profile."""

from __future__ import annotations

from pathlib import Path

from tests.show.simulation.profiles import TEXT
from tfmini.show.inspection.trace import OP, WAIT, Span, StepTrace
from tfmini.show.simulation.profile import add_ops, op_times, read_profile

_DEVICE = "/job:worker/replica:0/task:0/device:CPU:0"


def test_ops_that_compute_get_their_times(tmp_path: Path) -> None:
    spans = [
        Span(OP, "layer/MatMul", "MatMul", _DEVICE, 100.0, 350.0),
        Span(OP, "queue_Dequeue", "QueueDequeueV2", _DEVICE, 0.0, 900.0),
        Span(WAIT, "layer/w", "", _DEVICE, 0.0, 90.0),
    ]
    times = op_times(StepTrace(spans, {}, 0.0, 900.0))
    assert times == {"layer/MatMul": 250e-6}
    path = tmp_path / "p.toml"
    path.write_text("# Of this machine.\n" + TEXT + '[ops]\n"layer/MatMul" = 3.0\nother = 7.0\n')
    before = read_profile(path)
    add_ops(path, times)
    after = read_profile(path)
    assert after.ops == {"layer/MatMul": 250e-6, "other": 7e-6}
    assert (after.machines, after.links) == (before.machines, before.links)
    assert path.read_text().startswith("# Of this machine.\n")
