"""The predictions of runs by the runtime in virtual time."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import tfmini as tf
from tests.show.inspection.cluster_graphs import towers
from tests.show.simulation.profiles import plain
from tfmini.devices import task_of_device
from tfmini.placement.task_graph import Route
from tfmini.show.inspection.findings import Inspection
from tfmini.show.simulation.prediction import Prediction, Topology
from tfmini.show.simulation.predictor import StepModel, tasks_of
from tfmini.show.simulation.profile import Curve, Profile
from tfmini.show.simulation.simulated_process import SimulatedThread

PS = "/job:ps/replica:0/task:{}/device:CPU:0"


def _predicted(
    found: Inspection, workers: int = 1, link: str = "8Gbit", steps: int = 4, profile: Profile | None = None,
    seed: int = 0,
) -> Prediction:  # fmt: skip
    """``link``: ""; all tasks are on one machine."""
    profile = profile or plain()
    return StepModel(found, Topology.of(tasks_of(found), profile, link), profile, workers, steps, seed).predict()


def _with(**changes: Any) -> Profile:
    """The profile with another machine."""
    profile = plain()
    return replace(profile, machines={"plain": replace(profile.machine, **changes)})


def _trained(
    make: Callable[[Any], Any], ps: int = 1, workers: int = 1, wrapped: Callable[[Any], Any] = lambda plain: plain
) -> Inspection:
    """The inspection of a worker's graph: ``make(x)`` is its loss, where ``x`` has 16 rows of 64 floats."""
    device = "/job:worker/task:0"
    setter = tf.train.replica_device_setter(ps_tasks=ps, worker_device=device) if ps else device
    with tf.Graph().as_default() as graph, tf.device(setter):
        step = tf.train.get_or_create_global_step()
        loss = tf.reduce_mean(make(tf.placeholder(tf.float32, [None, 64], name="x")))
        optimizer: Any = wrapped(tf.train.AdagradOptimizer(0.1))
        train = optimizer.minimize(loss, global_step=step)
    return tf.inspect(graph, ps=ps or None, workers=workers, fetches=train, batch=16)


def _layers(x: Any) -> Any:
    for i in range(3):
        x = tf.nn.relu(tf.matmul(x, tf.get_variable(f"w{i}", [64, 64])))
    return x


def _rows(x: Any) -> Any:
    table = tf.get_variable("table", [1000, 64])
    return tf.nn.embedding_lookup(table, tf.cast(x[:, 0], tf.int32)) * x


def _batched(x: Any) -> Any:
    return tf.matmul(tf.train.batch([tf.random_uniform([64])], 16), tf.get_variable("w", [64, 8]))


def _synchronous(workers: int) -> Callable[[Any], Any]:
    return lambda plain: tf.train.SyncReplicasOptimizer(plain, workers, workers)


def _all_reduce(workers: int) -> Callable[[Any], Any]:
    return lambda plain: tf.train.AllReduceOptimizer(plain, workers, 0)


def _model(rows: int = 1000, workers: int = 1) -> Any:
    """An inspection of a product with a variable on ps 0, of ``rows`` x 256 floats."""
    setter = tf.train.replica_device_setter(ps_tasks=2, worker_device="/job:worker/task:0")
    with tf.Graph().as_default() as graph, tf.device(setter):
        x = tf.placeholder(tf.float32, [16, rows], name="x")
        w = tf.get_variable("w", [rows, 256], use_resource=False)
        tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(tf.square(tf.matmul(x, w))))
    return tf.inspect(graph, ps=2, workers=workers)


# What a model of its own, a graph of the step's segments and messages, predicted until it was given up: milliseconds of
# a step with a link of 8 Gbit/s, and on one machine.
_KNOWN: list[tuple[Any, int, int, Any, float, float]] = [
    (_layers, 1, 1, None, 1.469, 1.131),
    (_layers, 2, 4, None, 1.794, 2.754),
    (_rows, 2, 2, None, 0.937, 0.737),
    (_batched, 1, 2, None, 0.593, 0.409),
    (_layers, 2, 3, _synchronous, 2.021, 2.385),
    (_rows, 2, 3, _synchronous, 1.323, 1.329),
    (_layers, 0, 3, _all_reduce, 1.445, 1.489),
]


@pytest.mark.parametrize(("make", "ps", "workers", "wrapped", "far_ms", "near_ms"), _KNOWN)
def test_a_model_of_segments_and_messages_agrees(
    make: Any, ps: int, workers: int, wrapped: Any, far_ms: float, near_ms: float
) -> None:
    found = _trained(make, ps, workers, *([wrapped(workers)] if wrapped else []))
    assert 1e3 * _predicted(found, workers, "8Gbit", 6).step_s == pytest.approx(far_ms, rel=0.05)
    assert 1e3 * _predicted(found, workers, "", 6).step_s == pytest.approx(near_ms, rel=0.05)


@pytest.mark.parametrize(("workers", "wrapped", "known_ms"), [(3, None, 2.958), (2, _synchronous, 2.284)])
def test_caches_and_stalls_count(workers: int, wrapped: Any, known_ms: float) -> None:
    """As in that model."""
    crowded = _with(wake_s=90e-6, crowded_s=120e-6, beside=1.05, stall_s=80e-6, overload=1.3)
    found = _trained(_layers, 2, workers, *([wrapped(workers)] if wrapped else []))
    step_s = _predicted(found, workers, "", 30, crowded).step_s
    assert 1e3 * step_s == pytest.approx(known_ms, rel=0.02)
    assert step_s > 1.05 * _predicted(found, workers, "", 30).step_s


def test_long_segments_run_in_the_pool_beside_messages() -> None:
    """Two products of 35 ms on each of two workers."""
    found = _trained(lambda x: tf.matmul(tf.tile(x, [1, 300]), tf.get_variable("w", [19_200, 256])), 1, 2)
    own = _predicted(found, 2, "", steps=5)
    assert 1e3 * own.step_s == pytest.approx(94.69, rel=0.02)
    assert any("MatMul" in event.label and event.end - event.start > 3e-3 for event in own.critical)


def test_updates_of_one_variable_come_one_after_the_other() -> None:
    """The pool of the ps could make two at a time; the variable's lock lets only one."""
    slow = Curve(((1.0, 5e-3), (1e9, 5e-3)))
    profile = _with(cores=8, kernels={**plain().machine.kernels, "ApplyAdagrad": slow})
    found = _trained(lambda x: tf.matmul(x, tf.get_variable("w", [64, 4], use_resource=False)), 1, 8)
    assert 0.9 / 5e-3 < _predicted(found, 8, "100Gbit", 10, profile).throughput < 1.05 / 5e-3


def test_a_loop_takes_the_time_of_all_of_its_iterations() -> None:
    def looped(count: int) -> float:
        def make(x: Any) -> Any:
            w = tf.get_variable("w", [64, 64])
            return tf.while_loop(lambda i, y: i < count, lambda i, y: (i + 1, tf.tanh(tf.matmul(y, w))), [0, x])[1]

        return _predicted(_trained(make)).step_s

    assert looped(20) - looped(10) == pytest.approx(looped(30) - looped(20), rel=0.05)
    assert looped(20) - looped(10) > 10 * 10e-6


def test_only_the_branch_that_is_taken_takes_time() -> None:
    def make(taken: bool) -> Callable[[Any], Any]:
        def branches(x: Any) -> Any:
            w = tf.get_variable("w", [64, 64])
            step = tf.train.get_global_step()
            far = tf.less(step, 10**6 if taken else -1)
            return tf.cond(far, lambda: tf.matmul(tf.matmul(tf.matmul(x, w), w), w), lambda: x)

        return branches

    assert _predicted(_trained(make(True))).step_s > 1.02 * _predicted(_trained(make(False))).step_s


def test_a_gradient_that_is_too_old_is_dropped() -> None:
    """Two of three gradients make an update; the third worker's is stale, or is of the next one."""
    wrapped = lambda plain: tf.train.SyncReplicasOptimizer(plain, 2, 3)  # noqa: E731
    assert len(_predicted(_trained(_layers, 1, 3, wrapped), 3, steps=8).steps_s) == 18


@pytest.mark.parametrize(("ps", "workers"), [(1, 1), (2, 3)])
def test_the_bytes_are_those_of_the_inspector(ps: int, workers: int) -> None:
    found = tf.inspect(towers(ps, workers, layers=4), ps=ps, workers=workers)
    assert _sizes(_predicted(found)) == {link: 4 * n for link, n in _inspected(found).items()}


def test_the_bytes_of_rings_are_those_of_the_inspector() -> None:
    found = _trained(_layers, 0, 3, _all_reduce(3))
    wanted = _inspected(found, Route.EXCHANGED)
    assert _sizes(_predicted(found, 3)) == {link: 4 * n for link, n in wanted.items()}


def _sizes(predicted: Prediction) -> dict[tuple[str, str], int]:
    return {link: n for link, n in predicted.nbytes.items() if n}


def _inspected(found: Inspection, *more: Route) -> dict[tuple[str, str], int]:
    wanted: dict[tuple[str, str], int] = {}
    for transfer in found.transfers:
        if transfer.bytes and transfer.route in (Route.SENT, Route.FED, Route.FETCHED, *more):
            link = task_of_device(transfer.src), task_of_device(transfer.dst)
            wanted[link] = wanted.get(link, 0) + transfer.bytes
    return wanted


def test_a_placement_moves_the_work() -> None:
    found = _trained(_layers, 2)
    moved = {name: PS.format(1) for name, d in found.placement.items() if d.device == PS.format(0)}
    model = StepModel(found, Topology.of(tasks_of(found), plain(), "8Gbit"), plain())
    here, there = model.predict(), model.predict(moved)
    assert here.busy["/job:ps/replica:0/task:0"] > there.busy["/job:ps/replica:0/task:0"] == 0
    assert here.step_s != there.step_s


def test_a_move_to_another_ps_that_is_alike_changes_nothing() -> None:
    found = _model()
    moved = {name: PS.format(1) for name, d in found.placement.items() if d.device == PS.format(0)}
    model = StepModel(found, Topology.of(tasks_of(found), plain(), "8Gbit"), plain())
    here, there = model.predict(), model.predict(moved)
    assert here.busy["/job:ps/replica:0/task:1"] == there.busy["/job:ps/replica:0/task:0"] == 0
    assert here.step_s == pytest.approx(there.step_s)


def test_the_critical_path_is_a_chain_from_the_call_to_its_end() -> None:
    own = _predicted(_trained(_layers, 2))
    path = own.critical
    assert path[0].label == "Session.run"
    assert all(before.end <= after.start + 1e-12 for before, after in zip(path, path[1:]))
    assert path[-1].end - path[0].start == pytest.approx(own.steps_s[-1], rel=0.01)


def test_the_same_seed_gives_the_same_result() -> None:
    found = _trained(_layers, 2, 3)
    one, again, other = (_predicted(found, 3, seed=seed) for seed in (1, 1, 2))
    assert one.steps_s == again.steps_s != other.steps_s
    assert one.busy == again.busy
    assert [e.label for e in one.critical] == [e.label for e in again.critical]


def test_steps_that_wait_for_ever_are_an_error() -> None:
    found = _trained(_layers, 1, 3, _synchronous(3))
    with pytest.raises(RuntimeError, match="wait for each other"):
        _predicted(found, workers=2)


def test_an_error_of_the_runtime_is_the_prediction_s() -> None:
    found = _trained(_layers)
    nowhere = dict.fromkeys(found.nodes, "/job:ps/replica:0/task:7/device:CPU:0")
    with pytest.raises(tf.errors.InvalidArgumentError):
        StepModel(found, Topology.of(tasks_of(found), plain(), "8Gbit"), plain()).predict(nowhere)


def test_no_thread_is_left() -> None:
    _predicted(_trained(_layers, 1, 2, _synchronous(2)), 2)
    assert not [t for t in threading.enumerate() if isinstance(t, SimulatedThread) and t.is_alive()]


def test_a_step_may_take_longer_than_a_silent_peer_is_waited_for() -> None:
    """A message that is 8 s under way shows that its sender lives."""
    found = _trained(lambda x: tf.matmul(x, tf.get_variable("w", [64, 1_000_000])))
    assert _predicted(found, link="1Gbit").step_s == pytest.approx(5.537, rel=0.01)


def test_large_values_take_no_memory() -> None:
    """A gigabyte, there and back."""
    found = _trained(lambda x: tf.matmul(x, tf.get_variable("w", [64, 4_000_000])))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    own = _predicted(found, link="100Gbit")
    assert own.nbytes["/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0"] >= 3 * 1_024_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


def test_a_step_takes_at_least_the_time_of_its_bytes() -> None:
    found = _model()
    nbytes = 1000 * 256 * 4
    slow, fast = _predicted(found, link="1Gbit").step_s, _predicted(found, link="100Gbit").step_s
    assert slow > 2 * nbytes / 125e6  # the variable and its gradient, one after the other
    assert slow - fast == pytest.approx(2 * nbytes * (1 / 125e6 - 1 / 12.5e9), rel=0.05)


def test_workers_share_the_link_of_the_ps() -> None:
    found = _model(rows=10_000, workers=8)
    one, eight = _predicted(found, link="1Gbit"), _predicted(found, workers=8, link="1Gbit")
    each_s = 10_000 * 256 * 4 / 125e6  # one variable on the wire
    assert one.step_s > 2 * each_s
    assert 0.8 / each_s < eight.throughput < 1.05 / each_s  # a short run ends with fewer workers
    name, share = eight.bottleneck()
    assert name in ("ps/0 sending", "ps/0 receiving")
    assert share == pytest.approx(eight.throughput * each_s, rel=0.08)  # both of the steps that count


def test_two_workers_take_turns_on_the_link_of_the_ps() -> None:
    """While one sends its gradient, the other reads: its request does not wait behind the gradient."""
    found = _model(rows=10_000, workers=2)
    alone, both = _predicted(found, link="1Gbit").step_s, _predicted(found, workers=2, link="1Gbit", steps=6).step_s
    assert both < 1.1 * alone


def test_threads_of_a_ps_share_its_messages() -> None:
    """A ps of one core gains nothing by threads; with two cores it handles twice the messages of its workers."""
    found = _trained(_layers, 1, 16)

    def step_s(cores: int, threads: int) -> float:
        profile = plain()
        own = replace(profile.machine, cores=cores, threads=threads)
        tasks = tasks_of(found)
        machines = {task: own if "/job:ps" in task else profile.machine for task in tasks}
        cluster = Topology(dict(zip(tasks, tasks)), machines, profile.local, profile.link("100Gbit"))
        return StepModel(found, cluster, profile, workers=16, steps=6).predict().step_s

    assert step_s(1, 2) == pytest.approx(step_s(1, 1), rel=0.1)
    assert step_s(2, 2) < 0.65 * step_s(2, 1)


@pytest.mark.parametrize(("ps", "workers"), [(1, 1), (4, 1), (1, 12), (4, 12)])
def test_a_dense_synchronous_step_keeps_the_links_busy(ps: int, workers: int) -> None:
    """All workers fetch one variable from each ps and send its gradient: (workers + ps) shares pass one NIC."""
    setter = tf.train.replica_device_setter(ps_tasks=ps, worker_device="/job:worker/task:0")
    with tf.Graph().as_default() as graph, tf.device(setter):
        step = tf.train.get_or_create_global_step()
        variables = [tf.get_variable(f"v{i}", [2_500_000], use_resource=False) for i in range(ps)]
        plain_optimizer: Any = tf.train.GradientDescentOptimizer(0.1)
        optimizer = tf.train.SyncReplicasOptimizer(plain_optimizer, workers, workers)
        train = optimizer.apply_gradients([(tf.negative(v), v) for v in variables], global_step=step)
    found = tf.inspect(graph, ps=ps, workers=workers, fetches=train)
    share_s = 10_000_000 / 125e6
    assert _predicted(found, workers, "1Gbit").step_s == pytest.approx((workers + ps) * share_s, rel=0.25)


def test_synchronous_workers_wait_for_each_other() -> None:
    found = _trained(_layers, 1, 3, _synchronous(3))
    alone = _predicted(_trained(_layers), steps=10)
    together = _predicted(found, workers=3, steps=10)
    assert len(together.steps_s) == 24
    assert together.step_s > alone.step_s
    assert together.throughput * together.step_s == pytest.approx(3, rel=0.1)
    assert together.staleness == 0  # they end their steps together, but all have read what the last update has made


def test_asynchronous_updates_are_stale() -> None:
    found = _trained(_layers, 1, 4)
    assert _predicted(found, workers=4, steps=20).staleness == pytest.approx(3, abs=0.5)
    assert _predicted(found, steps=3).staleness == 0


def test_a_step_after_a_wait_and_on_a_crowded_machine_takes_longer() -> None:
    """Two cores: with three workers beside the ps they take turns."""
    warm, cold = plain(), _with(cores=2, wake_s=200e-6, crowded_s=2e-3)

    def step_s(costs: Profile, workers: int) -> float:
        found = tf.inspect(towers(1, workers), ps=1, workers=workers)
        return _predicted(found, link="", profile=costs).step_s

    assert step_s(warm, 1) < step_s(cold, 1) < step_s(warm, 1) * 1.4 + 1e-6
    assert step_s(cold, 3) / step_s(warm, 3) > step_s(cold, 1) / step_s(warm, 1)


def test_long_segments_beside_each_other_share_the_memory() -> None:
    def step_s(beside: float, workers: int, rows: int) -> float:
        return _predicted(_model(rows, workers), workers, "", 6, _with(cores=8, beside=beside)).step_s

    assert step_s(1.5, 1, 20_000) == pytest.approx(step_s(1.0, 1, 20_000), rel=0.05)  # nobody computes beside it
    assert step_s(1.5, 2, 20_000) > 1.2 * step_s(1.0, 2, 20_000)
    assert step_s(1.5, 2, 100) == step_s(1.0, 2, 100)  # no segment of 3 ms


def test_a_task_that_wakes_up_on_a_crowded_machine_may_wait_for_a_core() -> None:
    """Only where there are more tasks than cores, and while some cores are idle."""

    def step_s(stall_s: float, cores: int) -> float:
        found = tf.inspect(towers(1, 2), ps=1, workers=2)
        return _predicted(found, 1, "", 8, _with(cores=cores, stall_s=stall_s)).step_s

    assert step_s(2e-4, 3) == step_s(0.0, 3)
    assert step_s(2e-4, 1) == step_s(0.0, 1)
    assert step_s(0.0, 2) < step_s(2e-4, 2) < step_s(6e-4, 2)
    assert step_s(2e-4, 2) == step_s(2e-4, 2)
