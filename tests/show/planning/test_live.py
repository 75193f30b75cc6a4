"""What a traced step says of single variables, and which moves follow from measured loads."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import Mock

import pytest

import tfmini as tf
from tfmini import progress
from tfmini.errors import NotFoundError
from tfmini.runtime.client.variable_mover import VariableMover, VariableUnit
from tfmini.runtime.snapshot import ClusterSnapshot
from tfmini.show.inspection.trace import OP, WIRE, Span, StepTrace
from tfmini.show.planning.live import (
    LiveCluster,
    LivePlanner,
    LiveUnit,
    PsLoad,
    VariableUse,
    measure,
    shared,
    used_in,
)
from tfmini.show.planning.models import NoRoom

PS = ("/job:ps/replica:0/task:0", "/job:ps/replica:0/task:1")
ON_PS, ON_WORKER = f"{PS[0]}/device:CPU:0", "/job:worker/replica:0/task:0/device:CPU:0"


def op(name: str, kind: str, *inputs: str, us: float = 0.0, device: str = ON_PS) -> Span:
    return Span(OP, name, kind, device, 0.0, us, inputs=inputs)


def wire(name: str, size: int, source: str, target: str) -> Span:
    return Span(WIRE, name, "", target, 0.0, 1.0, size, peer=source)


def test_reads_and_updates_belong_to_their_variable_and_the_rest_to_none() -> None:
    spans = [
        op("w", "VariableV2"),
        op("w/read", "Identity", "w", us=1.0),
        op("rows", "GatherV2", "w/read", "ids:1", us=3.0),
        op("scaled", "Mul", "gradient", us=5.0),  # it reads no variable; the update that it feeds has one
        op("update", "ApplyGradientDescent", "w", "rate", "scaled", us=7.0),
        op("take", "QueueDequeueV2", "queue", us=100.0),  # it waits, so it does not compute
        op("other", "Square", "queue", us=11.0),
        op("loss", "Sum", "rows", device=ON_WORKER, us=50.0),
        wire("ids", 8, ON_WORKER, ON_PS),
        wire("rows", 400, ON_PS, ON_WORKER),
        wire("gradient", 200, ON_WORKER, ON_PS),
    ]
    found = used_in(StepTrace(spans, {}, 0.0, 100.0), PS[0])
    assert found == {
        "w": VariableUse(pytest.approx(16e-6), sent=400, received=208, messages=3),
        "": VariableUse(pytest.approx(11e-6)),
    }
    assert used_in(StepTrace(spans, {}, 0.0, 100.0), PS[1]) == {}


def test_what_is_measured_is_divided_by_ops_and_then_by_bytes() -> None:
    uses = {"a": VariableUse(0.1, sent=1e6, messages=0.0), "b": VariableUse(0.3, sent=3e6, messages=0.0)}
    found = shared(PsLoad(0.8, 2e6, 0.0), uses)
    assert found["a"] == PsLoad(pytest.approx(0.2), pytest.approx(0.5e6), 0.0)
    assert found["b"] == PsLoad(pytest.approx(0.6), pytest.approx(1.5e6), 0.0)
    # Ops that were waiting for a CPU cannot have taken more of it than all of them have.
    uses["a"].sent = 9e6
    assert shared(PsLoad(0.2), uses)["b"] == PsLoad(pytest.approx(0.15))


def test_the_time_that_goes_with_bytes_of_others_is_not_the_variables() -> None:
    """As of queue runners, whose steps are not traced."""
    found = shared(PsLoad(0.8, 4e6, 4e6), {"a": VariableUse(0.2, sent=1e6, received=1e6)})
    assert found == {"a": PsLoad(pytest.approx(0.2 + 0.6 / 4), 1e6, 1e6)}


def cluster(*units: tuple[str, int, int, float], steps_s: float = 100.0, rest: float = 0.0) -> LiveCluster:
    """Of two ps; each unit: its name, its bytes, its ps, and how long it keeps the ps busy. ``rest``: of the first."""
    found = tuple(LiveUnit(VariableUnit((("", name),), size), ps, PsLoad(busy)) for name, size, ps, busy in units)
    loads = tuple(
        sum((unit.load for unit in found if unit.task == n), PsLoad(rest if n == 0 else 0.0)) for n in range(2)
    )
    held = tuple(sum(unit.unit.size for unit in found if unit.task == n) for n in range(2))
    return LiveCluster(PS, loads, held, found, steps_s)


def moved(found: LiveCluster, limits: tuple[float, float] = (1e9, 1e9), rate: float = float("inf")) -> list[str]:
    return [f"{move.unit.name}>{move.target[-1]}" for move in LivePlanner(found, limits, rate).moves()]


def test_moves_relieve_the_busiest_ps_not_the_fullest() -> None:
    found = cluster(("hot", 10, 0, 0.4), ("warm", 10, 0, 0.3), ("cold", 900, 0, 0.0), ("other", 10, 1, 0.1))
    moves = LivePlanner(found, (1e9, 1e9)).moves()
    assert [(move.unit.name, move.target) for move in moves] == [("warm", PS[1])]
    assert [load.busy for load in moves[0].loads] == pytest.approx([0.4, 0.4]) and moves[0].held == (910, 20)


def test_of_two_moves_that_gain_the_same_the_smaller_one_is_made() -> None:
    assert moved(cluster(("large", 800, 0, 0.3), ("small", 10, 0, 0.3))) == ["small>1"]


def test_two_variables_change_places_where_neither_alone_helps() -> None:
    found = cluster(("a", 10, 0, 0.5), ("b", 10, 0, 0.4), ("c", 10, 1, 0.2), ("d", 10, 1, 0.1))
    moves = LivePlanner(found, (1e9, 1e9)).moves()
    assert [load.busy for load in moves[-1].loads] == pytest.approx([0.6, 0.6])


def test_what_stays_counts_and_a_balanced_cluster_stays_as_it_is() -> None:
    assert moved(cluster(("a", 10, 0, 0.3), ("b", 10, 1, 0.3), rest=0.6)) == ["a>1"]
    assert moved(cluster(("a", 1000, 0, 0.31), ("b", 1, 0, 0.02), ("c", 1000, 1, 0.3))) == []
    assert moved(cluster()) == []


def test_idle_ps_are_balanced_by_their_bytes() -> None:
    assert moved(cluster(("a", 50, 0, 0.1), ("b", 60, 0, 0.0), steps_s=0.0)) == ["a>1"]


def test_memory_is_kept() -> None:
    found = cluster(("a", 50, 0, 0.1), ("b", 60, 0, 0.2))
    assert moved(found, (1e9, 40)) == []
    assert moved(found, (60, 50)) == ["a>1"]  # the first one has too much now
    with pytest.raises(NoRoom, match="hold 80 B together"):
        moved(found, (70, 10))


def test_each_move_finds_room_and_what_cannot_is_named() -> None:
    full = cluster(("a", 60, 0, 0.6), ("b", 40, 0, 0.3), ("c", 60, 1, 0.05), ("d", 40, 1, 0.05))
    planner = LivePlanner(full, (100, 100))
    assert planner.moves() == [] and {unit.name for unit in planner.left_out} == {"b", "d"}
    planner = LivePlanner(full, (140, 100))  # what relieves nobody goes first, as the other one has no room before
    found = [(move.unit.name, move.held) for move in planner.moves()]
    assert found == [("d", (140, 60)), ("b", (100, 100))] and planner.left_out == []


def test_an_order_is_found_where_the_most_useful_move_first_has_none() -> None:
    """If "y" goes first, "x" has no room, and "z" has none before "x" has left."""
    units = (("x", 40, 0, 0.48), ("y", 20, 0, 0.1), ("z", 60, 1, 0.35), ("cold", 9000, 0, 0.0))
    assert moved(cluster(*units, rest=0.34), (9080, 110)) == ["x>1", "z>0", "y>1"]


def test_an_exchange_without_room_does_not_hide_a_move_that_has_it() -> None:
    units = (("a", 60, 0, 0.4), ("b", 10, 0, 0.3), ("c", 60, 1, 0.2), ("d", 30, 1, 0.05))
    assert set(moved(cluster(*units), (75, 200))) == {"a>1", "c>0"}
    assert moved(cluster(*units), (75, 100)) == ["b>1"]


def test_a_ps_that_has_too_much_may_give_away_while_it_still_has_too_much() -> None:
    found = cluster(("a", 50, 0, 0.1), ("b", 60, 0, 0.2), ("c", 70, 0, 0.3), ("d", 20, 1, 0.1))
    held = [move.held for move in LivePlanner(found, (80, 140)).moves()]
    assert held[-1][0] <= 80 and all(second <= 140 for _, second in held) and held[0][0] > 80


def test_on_a_slow_link_bytes_keep_a_ps_busy() -> None:
    found = tuple(
        LiveUnit(VariableUnit((("", name),), 10), 0, PsLoad(busy, sent, 0.0))
        for name, busy, sent in [("sends", 0.1, 9e6), ("sends less", 0.1, 3e6), ("computes", 0.5, 0.0)]
    )
    busy = LiveCluster(PS, (PsLoad(0.7, 12e6), PsLoad()), (30, 0), found, 10.0)
    assert moved(busy) == ["computes>1"] and moved(busy, rate=1e7) == ["sends less>1"]


def test_one_ps_more_holds_nothing_at_first() -> None:
    more = cluster(("a", 10, 0, 0.9), ("b", 10, 1, 0.8), ("c", 10, 1, 0.8)).with_another()
    assert more.tasks[2] == "/job:ps/replica:0/task:2" and more.held == (10, 20, 0)
    moves = LivePlanner(more, (1e9,) * 3).moves()
    assert [move.target for move in moves] == [more.tasks[2]] and moves[0].unit.task == 1


def test_one_more_than_none_is_the_first() -> None:
    more = LiveCluster((), (), (), ()).with_another()
    assert more.tasks == (PS[0],) and LivePlanner(more, (1e9,)).moves() == []


def test_without_a_ps_there_is_nothing_to_measure(request: pytest.FixtureRequest) -> None:
    class Gatherer:
        def gather(self, timeout_s: float) -> ClusterSnapshot:
            return ClusterSnapshot("grpc://a:1", 0.0, 0.0, ())

    said: list[str] = []
    progress.listen(lambda text, total, unit: said.append(text) or Mock())
    request.addfinalizer(lambda: progress.listen(None))
    with pytest.raises(NotFoundError, match="No task of the job ps of the cluster at grpc://a:1 answers"):
        measure(cast(Any, Gatherer()), VariableMover({}, cast(Any, None)), 0.0)
    assert said == ["measuring for 0 s"]


def test_the_load_of_a_variable_with_a_shared_name_is_that_variables() -> None:
    """The trace names ops, a ps its variables by their shared names: they differ in an imported graph, for example."""
    graph = tf.Graph()
    with graph.as_default():
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[3], shared_name="kept", name="import/kept")
        other = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[3], shared_name="own", name="own")
        made = [tf.raw_ops.AssignVariableOp(resource=each, value=[1.0, 2.0, 3.0]) for each in (handle, other)]
        step = [tf.raw_ops.ReadVariableOp(resource=each, dtype=tf.float32) for each in (handle, other)]
    with tf.Session(graph=graph) as session:
        session.run(made)
        metadata = tf.RunMetadata()
        session.run(step, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata)
    trace = StepTrace.of(metadata)
    found = used_in(trace, trace.tasks[0])
    assert {"kept", "own"} <= found.keys() and "import/kept" not in found and found["kept"].op_s > 0
