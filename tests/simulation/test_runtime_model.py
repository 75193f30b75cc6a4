"""The runtime in virtual time as a model of a run."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import tfmini as tf
from tests.inspection.cluster_graphs import towers
from tests.simulation.profiles import plain
from tfmini.devices import task_of_device
from tfmini.inspection.findings import Inspection
from tfmini.placement.task_graph import Route
from tfmini.simulation.links import Cluster
from tfmini.simulation.prediction import Prediction
from tfmini.simulation.predictor import predict_step, tasks_of
from tfmini.simulation.profile import Curve, Profile
from tfmini.simulation.runtime_model import RuntimeModel
from tfmini.simulation.simulated_process import SimulatedThread

PS = "/job:ps/replica:0/task:{}/device:CPU:0"


def _cluster(found: Inspection, link: str, profile: Profile) -> Cluster:
    tasks = tasks_of(found)
    return Cluster.on_own_machines(tasks, profile, link) if link else Cluster.on_one_machine(tasks, profile)


def _both(
    found: Inspection, workers: int = 1, link: str = "8Gbit", steps: int = 4, profile: Profile | None = None
) -> tuple[Prediction, Prediction]:
    """What the runtime and the event graph predict."""
    profile = profile or plain()
    cluster = _cluster(found, link, profile)
    own = RuntimeModel(found, cluster, profile, workers, steps).predict()
    return own, predict_step(found, cluster, profile, workers=workers, steps=steps)


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


@pytest.mark.parametrize("link", ["8Gbit", ""])
@pytest.mark.parametrize(
    ("make", "ps", "workers", "wrapped"),
    [
        (_layers, 1, 1, None),
        (_layers, 2, 4, None),
        (_rows, 2, 2, None),
        (_batched, 1, 2, None),
        (_layers, 2, 3, _synchronous),
        (_rows, 2, 3, _synchronous),
        (_layers, 0, 3, _all_reduce),
    ],
)
def test_the_event_graph_agrees(make: Any, ps: int, workers: int, wrapped: Any, link: str) -> None:
    """The event graph follows the runtime where no value decides what runs."""
    found = _trained(make, ps, workers, *([wrapped(workers)] if wrapped else []))
    own, fast = _both(found, workers, link, steps=6)
    assert own.step_s == pytest.approx(fast.step_s, rel=0.1)
    assert own.throughput == pytest.approx(fast.throughput, rel=0.1)
    for task, share in fast.busy.items():
        assert own.busy[task] == pytest.approx(share, abs=0.1)


@pytest.mark.parametrize(("workers", "wrapped"), [(3, None), (2, _synchronous)])
def test_caches_and_stalls_count_as_in_the_event_graph(workers: int, wrapped: Any) -> None:
    profile = plain()
    machine = replace(profile.machine, wake_s=90e-6, crowded_s=120e-6, beside=1.05, stall_s=80e-6, overload=1.3)
    found = _trained(_layers, 2, workers, *([wrapped(workers)] if wrapped else []))
    own, fast = _both(found, workers, "", 30, replace(profile, machines={machine.name: machine}))
    assert own.step_s == pytest.approx(fast.step_s, rel=0.02)
    assert own.step_s > 1.05 * _both(found, workers, "", 30)[0].step_s


def test_long_segments_run_in_the_pool_beside_messages() -> None:
    """Two products of 35 ms on each of two workers."""
    found = _trained(lambda x: tf.matmul(tf.tile(x, [1, 300]), tf.get_variable("w", [19_200, 256])), 1, 2)
    own, fast = _both(found, 2, "", steps=5)
    assert own.step_s == pytest.approx(fast.step_s, rel=0.1)
    assert any("MatMul" in event.label and event.end - event.start > 3e-3 for event in own.critical)


def test_updates_of_one_variable_come_one_after_the_other() -> None:
    """The pool of the ps could make two at a time; the variable's lock lets only one. The event graph has no locks."""
    profile, slow = plain(), Curve(((1.0, 5e-3), (1e9, 5e-3)))
    machine = replace(profile.machine, cores=8, kernels={**profile.machine.kernels, "ApplyAdagrad": slow})
    found = _trained(lambda x: tf.matmul(x, tf.get_variable("w", [64, 4], use_resource=False)), 1, 8)
    own, fast = _both(found, 8, "100Gbit", 10, replace(profile, machines={machine.name: machine}))
    assert own.throughput < 1.05 / 5e-3 < fast.throughput


def test_a_loop_takes_the_time_of_all_of_its_iterations() -> None:
    """The event graph counts one."""

    def looped(count: int) -> float:
        def make(x: Any) -> Any:
            w = tf.get_variable("w", [64, 64])
            return tf.while_loop(lambda i, y: i < count, lambda i, y: (i + 1, tf.tanh(tf.matmul(y, w))), [0, x])[1]

        return _both(_trained(make))[0].step_s

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

    assert _both(_trained(make(True)))[0].step_s > 1.02 * _both(_trained(make(False)))[0].step_s


def test_a_gradient_that_is_too_old_is_dropped() -> None:
    """Two of three gradients make an update; the third worker's is stale, or is of the next one."""
    wrapped = lambda plain: tf.train.SyncReplicasOptimizer(plain, 2, 3)  # noqa: E731
    own, _ = _both(_trained(_layers, 1, 3, wrapped), 3, steps=8)
    assert len(own.steps_s) == 18


@pytest.mark.parametrize(("ps", "workers"), [(1, 1), (2, 3)])
def test_the_bytes_are_those_of_the_inspector(ps: int, workers: int) -> None:
    found = tf.inspect(towers(ps, workers, layers=4), ps=ps, workers=workers)
    own, _ = _both(found, steps=4)
    assert _sizes(own) == {link: 4 * n for link, n in _inspected(found).items()}


def test_the_bytes_of_rings_are_those_of_the_inspector() -> None:
    found = _trained(_layers, 0, 3, _all_reduce(3))
    wanted = _inspected(found, Route.EXCHANGED)
    own, _ = _both(found, 3, steps=4)
    assert _sizes(own) == {link: 4 * n for link, n in wanted.items()}


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
    cluster = _cluster(found, "8Gbit", plain())
    own = RuntimeModel(found, cluster, plain()).predict(moved)
    assert own.busy["/job:ps/replica:0/task:0"] == 0
    assert own.step_s == pytest.approx(predict_step(found, cluster, plain(), moved).step_s)


def test_the_critical_path_is_a_chain_from_the_call_to_its_end() -> None:
    own, _ = _both(_trained(_layers, 2))
    path = own.critical
    assert path[0].label == "Session.run"
    assert all(before.end <= after.start + 1e-12 for before, after in zip(path, path[1:]))
    assert path[-1].end - path[0].start == pytest.approx(own.steps_s[-1], rel=0.01)


def test_the_same_seed_gives_the_same_result() -> None:
    found = _trained(_layers, 2, 3)
    cluster = _cluster(found, "8Gbit", plain())
    one, again, other = (RuntimeModel(found, cluster, plain(), 3, seed=seed).predict() for seed in (1, 1, 2))
    assert one.steps_s == again.steps_s != other.steps_s
    assert one.busy == again.busy
    assert [e.label for e in one.critical] == [e.label for e in again.critical]


def test_steps_that_wait_for_ever_are_an_error() -> None:
    found = _trained(_layers, 1, 3, _synchronous(3))
    with pytest.raises(RuntimeError, match="wait for each other"):
        RuntimeModel(found, _cluster(found, "8Gbit", plain()), plain(), workers=2).predict()


def test_an_error_of_the_runtime_is_the_prediction_s() -> None:
    found = _trained(_layers)
    nowhere = dict.fromkeys(found.nodes, "/job:ps/replica:0/task:7/device:CPU:0")
    with pytest.raises(tf.errors.InvalidArgumentError):
        RuntimeModel(found, _cluster(found, "8Gbit", plain()), plain()).predict(nowhere)


def test_no_thread_is_left() -> None:
    _both(_trained(_layers, 1, 2, _synchronous(2)), 2)
    assert not [t for t in threading.enumerate() if isinstance(t, SimulatedThread) and t.is_alive()]


def test_a_step_may_take_longer_than_a_silent_peer_is_waited_for() -> None:
    """A message that is 8 s under way shows that its sender lives."""
    found = _trained(lambda x: tf.matmul(x, tf.get_variable("w", [64, 1_000_000])))
    own, fast = _both(found, link="1Gbit")
    assert own.step_s > 4.0
    assert own.step_s == pytest.approx(fast.step_s, rel=0.01)


def test_large_values_take_no_memory() -> None:
    """A gigabyte, there and back."""
    found = _trained(lambda x: tf.matmul(x, tf.get_variable("w", [64, 4_000_000])))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    own, _ = _both(found, link="100Gbit")
    assert own.nbytes["/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0"] >= 3 * 1_024_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB
