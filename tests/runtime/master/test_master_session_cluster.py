"""``ConfigProto.cluster_def``: sessions that bring their own cluster to servers that know less."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

import tfmini as tf
from tfmini import protos
from tfmini.show.inspection.trace import OP, StepTrace
from tfmini.testing import ProcessCluster


@contextlib.contextmanager
def local_servers(count: int, config: tf.ConfigProto | None = None) -> Iterator[list[tf.train.Server]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(tf.train.Server.create_local_server(config)) for _ in range(count)]


def config_of(*targets: str, job: str = "crew", share: bool = False) -> tf.ConfigProto:
    config = tf.ConfigProto()
    tasks = config.cluster_def.job.add(name=job).tasks
    for index, target in enumerate(targets):
        tasks[index] = target.partition("://")[2]
    config.experimental.share_session_state_in_clusterspec_propagation = share
    return config


def test_servers_that_do_not_know_each_other_share_a_step() -> None:
    with tf.device("/job:crew/task:1"):
        there = tf.random_uniform([], name="there") + 1.0
    with tf.device("/job:crew/task:0"):
        here = tf.add(there, 10.0, name="here")
    with tf.device("/job:crew/task:1"):
        back = tf.add(here, 100.0, name="back")
    metadata = tf.RunMetadata()
    options = protos.RunOptions(trace_level=protos.RunOptions.FULL_TRACE)
    with local_servers(2) as [one, two]:
        for target in (one.target, two.target):
            with tf.Session(target, config=config_of(one.target, two.target)) as session:
                assert 111.0 <= session.run(back) <= 112.0
                session.run(back, options=options, run_metadata=metadata)
                names = [device.name for device in session.list_devices()]
    assert sorted(names) == [f"/job:crew/replica:0/task:{i}/device:CPU:0" for i in range(2)]
    trace = StepTrace.of(metadata.step_stats)
    assert {span.name: span.task for span in trace.of_kind(OP) if span.name in ("here", "back")} == {
        "here": "/job:crew/replica:0/task:0", "back": "/job:crew/replica:0/task:1",
    }  # fmt: skip
    assert set(trace.clocks) == {"/job:crew/replica:0/task:0", "/job:crew/replica:0/task:1"}


def test_servers_of_one_name_all_talk_to_each_other() -> None:
    """Each is ``/job:local/task:0`` by itself: the later ones are no restart of the earlier."""
    numbers = []
    for index in range(3):
        with tf.device(f"/job:crew/task:{index}"):
            numbers.append(tf.random_uniform([]) * 0.0 + float(index))
    sums = []
    for index in range(3):
        with tf.device(f"/job:crew/task:{index}"):
            sums.append(tf.add_n([tf.identity(number) for number in numbers]))
    with local_servers(3) as servers:
        targets = [server.target for server in servers]
        for _ in range(2):
            for target in targets:
                with tf.Session(target, config=config_of(*targets)) as session:
                    assert session.run(sums) == [3.0] * 3


def test_its_steps_count_as_those_of_the_server() -> None:
    with tf.device("/job:crew/task:1"):
        there = tf.random_uniform([]) * 0.0
    with tf.device("/job:crew/task:0"):
        total = there + 1.0
    with (
        local_servers(2) as [one, two],
        tf.Session(one.target, config=config_of(one.target, two.target)) as session,
    ):
        assert [session.run(total) for _ in range(3)] == [1.0] * 3
        assert (one.master.counts.runs, two.master.counts.runs) == (3, 0)


def test_all_devices_of_a_server_are_there_under_its_new_name() -> None:
    with tf.device("/job:crew/task:1/cpu:2"):
        value = tf.random_uniform([]) * 0.0 + 5.0
    with local_servers(2, tf.ConfigProto(device_count={"CPU": 3})) as [one, two]:
        session = tf.Session(one.target, config=config_of(one.target, two.target))
        assert session.run(value) == 5.0
        assert len(session.list_devices()) == 6
        session.close()


@pytest.mark.parametrize("share", [False, True])
def test_state_is_the_sessions_own_unless_it_is_to_be_shared(share: bool) -> None:
    with tf.device("/job:crew/task:1"):
        v = tf.Variable(1.0, name="v")
    with local_servers(2) as [one, two]:
        config = config_of(one.target, two.target, share=share)
        with tf.Session(one.target, config=config) as first, tf.Session(one.target, config=config) as second:
            first.run(v.initializer)
            if share:
                assert second.run(v) == 1.0
            else:
                with pytest.raises(tf.errors.FailedPreconditionError):
                    second.run(v)


def test_a_server_may_have_two_names_at_once() -> None:
    with local_servers(3) as [one, two, three]:
        values = []
        for job, other in (("left", two), ("right", three)):
            with tf.Graph().as_default(), tf.device(f"/job:{job}/task:1"):
                value = tf.random_uniform([]) * 0.0 + (1.0 if other is two else 2.0)
                session = tf.Session(one.target, config=config_of(one.target, other.target, job=job))
            values.append((session, value))
        assert [session.run(value) for session, value in values] == [1.0, 2.0]
        for session, _ in values:
            session.close()


def test_clusters_that_do_not_contain_the_target_are_refused() -> None:
    value = tf.constant(1.0)
    with local_servers(2) as [one, two]:
        with pytest.raises(tf.errors.InvalidArgumentError, match="is not included in the provided cluster_def"):
            tf.Session(one.target, config=config_of(two.target)).run(value)
        with pytest.raises(tf.errors.InvalidArgumentError, match="Found multiple matching tasks"):
            tf.Session(one.target, config=config_of(one.target, one.target)).run(value)
        with pytest.raises(tf.errors.InvalidArgumentError, match="provided when the server booted"):
            tf.Session(one.target, config=config_of(one.target, job="local")).run(value)


def test_a_session_without_a_target_has_no_use_for_a_cluster() -> None:
    with tf.Session(config=config_of("grpc://localhost:1")) as session:
        assert session.run(tf.constant(1.0) + 1.0) == 2.0


@pytest.mark.cluster
def test_a_client_in_another_process_brings_a_cluster() -> None:
    with ProcessCluster(ps=1, workers=1) as cluster:
        targets = [cluster.target("worker", 0), cluster.target("ps", 0)]
        with tf.device("/job:crew/task:1"):
            there = tf.random_uniform([]) * 0.0 + 3.0
        with tf.Session(targets[0], config=config_of(*targets)) as session:
            assert session.run(there) == 3.0
            assert len(session.list_devices()) == 2
        with pytest.raises(tf.errors.InvalidArgumentError, match="is not included"):
            tf.Session(targets[0], config=config_of(targets[1])).run(there)
