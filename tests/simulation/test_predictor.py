"""The fast prediction of steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tfmini as tf
from tests.inspection.cluster_graphs import towers
from tests.simulation.profiles import plain
from tfmini.devices import task_of_device
from tfmini.placement.task_graph import Route
from tfmini.simulation.event_graph import World
from tfmini.simulation.links import Cluster
from tfmini.simulation.prediction import Prediction
from tfmini.simulation.predictor import StepModel, predict_step, tasks_of
from tfmini.simulation.profile import Profile

PS = "/job:ps/replica:0/task:{}/device:CPU:0"


def _model(rows: int = 1000, workers: int = 1) -> Any:
    """An inspection of a product with a variable on ps 0, of ``rows`` x 256 floats."""
    setter = tf.train.replica_device_setter(ps_tasks=2, worker_device="/job:worker/task:0")
    with tf.Graph().as_default() as graph, tf.device(setter):
        x = tf.placeholder(tf.float32, [16, rows], name="x")
        w = tf.get_variable("w", [rows, 256], use_resource=False)
        tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(tf.square(tf.matmul(x, w))))
    return tf.inspect(graph, ps=2, workers=workers)


def _predicted(found: Any, workers: int = 1, link: str = "8Gbit", **more: Any) -> Prediction:
    cluster = Cluster.on_own_machines(tasks_of(found), plain(), link)
    return predict_step(found, cluster, plain(), workers=workers, **more)


def test_a_step_takes_at_least_the_time_of_its_bytes() -> None:
    found = _model()
    nbytes = 1000 * 256 * 4
    slow, fast = _predicted(found, link="1Gbit").step_s, _predicted(found, link="100Gbit").step_s
    assert slow > 2 * nbytes / 125e6  # the variable and its gradient, one after the other
    assert slow - fast == pytest.approx(2 * nbytes * (1 / 125e6 - 1 / 12.5e9), rel=0.05)


@pytest.mark.parametrize(("ps", "workers"), [(1, 1), (2, 3)])
def test_the_bytes_are_those_of_the_inspector(ps: int, workers: int) -> None:
    found = tf.inspect(towers(ps, workers, layers=4), ps=ps, workers=workers)
    predicted = _predicted(found, steps=4)
    wanted: dict[tuple[str, str], int] = {}
    for transfer in found.transfers:
        if transfer.route in (Route.SENT, Route.FED, Route.FETCHED):
            link = task_of_device(transfer.src), task_of_device(transfer.dst)
            wanted[link] = wanted.get(link, 0) + 4 * (transfer.bytes or 0)
    assert {link: n for link, n in predicted.nbytes.items() if n} == {link: n for link, n in wanted.items() if n}


def test_the_critical_path_is_a_chain_without_gaps_in_causes() -> None:
    predicted = _predicted(tf.inspect(towers(2, 3), ps=2, workers=3))
    path = predicted.critical
    assert path[0].label == "Session.run"
    assert all(before.end <= after.start + 1e-12 for before, after in zip(path, path[1:]))
    assert path[-1].end - path[0].start == pytest.approx(predicted.steps_s[-1])


def test_a_placement_moves_the_work() -> None:
    found = _model()
    moved = {name: PS.format(1) for name, d in found.placement.items() if d.device == PS.format(0)}
    cluster = Cluster.on_own_machines(tasks_of(found), plain(), "8Gbit")
    model = StepModel(found, cluster, plain())
    here, there = model.predict(), model.predict(moved)
    assert here.busy["/job:ps/replica:0/task:1"] == there.busy["/job:ps/replica:0/task:0"] == 0
    assert here.step_s == pytest.approx(there.step_s)


def test_workers_share_the_link_of_the_ps() -> None:
    found = _model(rows=10_000, workers=8)
    one, eight = _predicted(found, link="1Gbit"), _predicted(found, workers=8, link="1Gbit")
    each_s = 10_000 * 256 * 4 / 125e6  # one variable on the wire
    assert one.step_s > 2 * each_s
    assert 0.8 / each_s < eight.throughput < 1.05 / each_s  # a short run ends with fewer workers
    assert "what /job:ps/replica:0/task:0" in eight.bottleneck()[0]


def test_equal_inputs_give_equal_predictions() -> None:
    found = tf.inspect(towers(2, 4), ps=2, workers=4)
    assert _predicted(found).steps_s == _predicted(found).steps_s


def test_nothing_uses_a_tensor_before_it_has_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each segment begins after all messages that it needs, and no part ends with a segment left."""
    arrived: dict[tuple[int, int], float] = {}
    from tfmini.simulation import event_graph

    complete, run = event_graph._Part.complete, event_graph._Part._run

    def noted(self: Any, key: int, cause: Any) -> Any:
        arrived[id(self), key] = self.step.world.clock.now()
        return complete(self, key, cause)

    def checked(self: Any, segment: Any, cause: Any) -> Any:
        index = [each is segment for each in self.program.segments].index(True)
        needed = [key for key, needs in self.program.arrivals.items() if needs == index]
        assert all((id(self), key) in arrived for key in needed)
        assert self.is_running
        return run(self, segment, cause)

    monkeypatch.setattr(event_graph._Part, "complete", noted)
    monkeypatch.setattr(event_graph._Part, "_run", checked)
    _predicted(tf.inspect(towers(2, 3), ps=2, workers=3), steps=1)
    assert arrived


def test_a_world_has_all_tasks_of_its_cluster() -> None:
    from tfmini.simulation.cores import Events

    world = World(Events(), Cluster.on_one_machine(["a", "b"], plain()))
    assert set(world.tasks) == {"a", "b"}


def test_threads_of_a_ps_share_its_messages() -> None:
    """A ps of one core gains nothing by threads; with two cores it handles twice the messages of its workers."""
    found = tf.inspect(towers(1, 16, layers=4), ps=1, workers=16)

    def step_s(cores: int, threads: int) -> float:
        profile = plain()
        own = replace(profile.machine, cores=cores, threads=threads)
        tasks = tasks_of(found)
        machines = {task: own if "/job:ps" in task else profile.machine for task in tasks}
        cluster = Cluster(dict(zip(tasks, tasks)), machines, profile.local, profile.link("100Gbit"))
        return predict_step(found, cluster, profile, workers=16, steps=6).step_s

    assert step_s(1, 2) == pytest.approx(step_s(1, 1), rel=0.1)
    assert step_s(2, 2) < 0.65 * step_s(2, 1)


def _trained_by(optimizer: Any, workers: int) -> Any:
    setter = tf.train.replica_device_setter(ps_tasks=1, worker_device="/job:worker/task:0")
    with tf.Graph().as_default() as graph, tf.device(setter):
        step = tf.train.get_or_create_global_step()
        w = tf.get_variable("w", [100, 10])
        loss = tf.reduce_mean(tf.square(tf.matmul(tf.ones([16, 100]), w)))
        train = optimizer(tf.train.GradientDescentOptimizer(0.1)).minimize(loss, global_step=step)
    return tf.inspect(graph, ps=1, workers=workers, fetches=train)


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
    found = _trained_by(lambda plain: tf.train.SyncReplicasOptimizer(plain, 3, 3), 3)
    alone = _predicted(_trained_by(lambda plain: plain, 1), steps=10)
    together = _predicted(found, workers=3, steps=10)
    assert len(together.steps_s) == 24
    assert together.step_s > alone.step_s
    assert together.throughput * together.step_s == pytest.approx(3, rel=0.1)


def test_a_synchronous_step_with_too_few_workers_is_refused() -> None:
    found = _trained_by(lambda plain: tf.train.SyncReplicasOptimizer(plain, 3, 3), 3)
    with pytest.raises(RuntimeError, match="wait for each other"):
        _predicted(found, workers=2)


def test_asynchronous_updates_are_stale() -> None:
    found = _trained_by(lambda plain: plain, 4)
    assert _predicted(found, workers=4, steps=20).staleness == pytest.approx(3, abs=0.5)
    assert _predicted(found, steps=3).staleness == 0


def test_a_step_after_a_wait_and_on_a_crowded_machine_takes_longer() -> None:
    """Two cores: with three workers beside the ps they take turns."""
    profile = plain()
    machine = replace(profile.machine, cores=2, wake_s=200e-6, crowded_s=2e-3)
    cold = replace(profile, machines={machine.name: machine})

    def step_s(costs: Profile, workers: int) -> float:
        found = tf.inspect(towers(1, workers), ps=1, workers=workers)
        cluster = Cluster.on_one_machine(tasks_of(found), costs)
        return predict_step(found, cluster, costs, steps=4).step_s

    assert step_s(profile, 1) < step_s(cold, 1) < step_s(profile, 1) * 1.4 + 1e-6
    assert step_s(cold, 3) / step_s(profile, 3) > step_s(cold, 1) / step_s(profile, 1)


def test_long_segments_beside_each_other_share_the_memory() -> None:
    profile = plain()

    def step_s(beside: float, workers: int, rows: int) -> float:
        machine = replace(profile.machine, cores=8, beside=beside)
        costs = replace(profile, machines={machine.name: machine})
        found = _model(rows, workers)
        cluster = Cluster.on_one_machine(tasks_of(found), costs)
        return predict_step(found, cluster, costs, workers=workers, steps=6).step_s

    assert step_s(1.5, 1, 20_000) == pytest.approx(step_s(1.0, 1, 20_000), rel=0.05)  # nobody computes beside it
    assert step_s(1.5, 2, 20_000) > 1.2 * step_s(1.0, 2, 20_000)
    assert step_s(1.5, 2, 100) == step_s(1.0, 2, 100)  # no segment of 3 ms


def test_a_task_that_wakes_up_on_a_crowded_machine_may_wait_for_a_core() -> None:
    """Only where there are more tasks than cores, and while some cores are idle."""
    profile = plain()

    def step_s(stall_s: float, cores: int) -> float:
        machine = replace(profile.machine, cores=cores, stall_s=stall_s)
        costs = replace(profile, machines={machine.name: machine})
        found = tf.inspect(towers(1, 2), ps=1, workers=2)
        return predict_step(found, Cluster.on_one_machine(tasks_of(found), costs), costs, steps=8).step_s

    assert step_s(2e-4, 3) == step_s(0.0, 3)
    assert step_s(2e-4, 1) == step_s(0.0, 1)
    assert step_s(0.0, 2) < step_s(2e-4, 2) < step_s(6e-4, 2)
    assert step_s(2e-4, 2) == step_s(2e-4, 2)
