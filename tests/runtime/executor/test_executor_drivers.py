"""Drivers of partition runs: registration chooses one, and each of them traces, waits, ends and describes itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini import protos
from tfmini.launch.local import reserve_cluster
from tfmini.launch.supervision import TaskId
from tfmini.ops import collectives
from tfmini.runtime.executor.dataflow_run import DataflowRun
from tfmini.runtime.executor.dispatch import BlockingRun
from tfmini.runtime.executor.registered_graph import FunctionRun
from tfmini.show.inspection.trace import OP, StepTrace

FULL = protos.RunOptions(trace_level=protos.RunOptions.FULL_TRACE)


def driver_of(server: tf.train.Server) -> Any:
    """The driver of the graph that was registered last."""
    return list(server.worker.graphs.values())[-1].driver


@pytest.fixture
def two_workers() -> Iterator[list[tf.train.Server]]:
    reserved = reserve_cluster([TaskId("worker", i) for i in range(2)])
    spec = reserved.spec
    reserved.close()
    with tf.train.Server(spec, "worker", 0) as one, tf.train.Server(spec, "worker", 1) as other:
        yield [one, other]


def on_both(servers: list[tf.train.Server], work: Callable[[int, tf.Session], Any]) -> list[Any]:
    """The results of ``work(rank, session)``, called in a thread per rank with a graph and a session of its own."""
    results: list[Any] = [None] * len(servers)

    def run(rank: int) -> None:
        with (
            tf.Graph().as_default(), tf.device(f"/job:worker/task:{rank}"), tf.Session(servers[rank].target) as session
        ):  # fmt: skip
            try:
                results[rank] = work(rank, session)
            except BaseException as error:  # noqa: BLE001 - raised below
                results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(servers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def sum_of_ranks(rank: int, instance: int = 1) -> tf.Tensor:
    return collectives.all_reduce(tf.fill([3], rank + 1.0), 2, 1, instance, "Add", "Id")


def test_registration_chooses_the_driver(two_workers: list[tf.train.Server]) -> None:
    drivers: list[Any] = []

    def work(rank: int, session: tf.Session) -> None:
        plain, queue = tf.placeholder_with_default(1.0, []) + 1.0, tf.FIFOQueue(1, tf.float32)
        reduced = sum_of_ranks(rank)
        for fetch in (plain, queue.enqueue(1.0), reduced):
            session.run(fetch)
            drivers.append(driver_of(two_workers[rank]))

    on_both(two_workers, work)
    assert sorted(driver.__name__ for driver in drivers) == sorted(2 * ["FunctionRun", "DataflowRun", "BlockingRun"])
    assert all(driver in (FunctionRun, BlockingRun, DataflowRun) for driver in drivers)


def test_a_part_of_a_plan_of_several_tasks_never_blocks(two_workers: list[tf.train.Server]) -> None:
    with tf.device("/job:worker/task:1"):
        there = tf.random_uniform([])
    with tf.device("/job:worker/task:0"):
        here = there + 1.0
    with tf.Session(two_workers[0].target) as session:
        assert session.run(here) >= 1.0
        assert [driver_of(server) for server in two_workers] == [DataflowRun] * 2


def test_a_client_of_another_process_gets_no_blocking_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if the server were in another process: the session speaks to it by messages.
    monkeypatch.setattr("tfmini.runtime.process.server_at", lambda address: None)
    with tf.train.Server.create_local_server() as server, tf.Session(server.target) as session:
        assert session.run(tf.placeholder_with_default(1.0, []) + 1.0) == 2.0
        assert driver_of(server) is DataflowRun


def test_a_step_with_a_collective_is_traced(two_workers: list[tf.train.Server]) -> None:
    def work(rank: int, session: tf.Session) -> Any:
        reduced = sum_of_ranks(rank)
        total = tf.reduce_sum(reduced, name="total")
        metadata = tf.RunMetadata()
        untraced = session.run([reduced, total])
        traced = session.run([reduced, total], options=FULL, run_metadata=metadata)
        np.testing.assert_array_equal(untraced[0], traced[0])
        assert untraced[1] == traced[1] == 9.0 and driver_of(two_workers[rank]) is BlockingRun
        return StepTrace.of(metadata.step_stats)

    for trace in on_both(two_workers, work):
        [reduce] = [span for span in trace.of_kind(OP) if span.op == "CollectiveReduce"]
        [total] = [span for span in trace.of_kind(OP) if span.name == "total"]
        assert reduce.bytes == 12 and reduce.start <= reduce.end <= total.start
        assert trace.attributed() > 0.95


def test_a_collective_in_a_branch_that_is_not_taken(two_workers: list[tf.train.Server]) -> None:
    def work(rank: int, session: tf.Session) -> list[float]:
        taken = tf.placeholder(tf.bool, [])
        value = tf.cond(taken, lambda: sum_of_ranks(rank), lambda: tf.fill([3], -1.0))
        found = [float(session.run(value, {taken: way})[0]) for way in (True, False, True)]
        assert driver_of(two_workers[rank]) is BlockingRun
        return found

    assert on_both(two_workers, work) == [[3.0, -1.0, 3.0]] * 2


def test_the_pool_runs_long_segments_of_a_blocking_run(two_workers: list[tf.train.Server]) -> None:
    def work(rank: int, session: tf.Session) -> list[str]:
        threads: list[str] = []

        value = tf.reduce_sum(sum_of_ranks(rank) * 2.0)
        session.run(value)
        worker = two_workers[rank].worker
        for segment in list(worker.graphs.values())[-1].program.segments:
            segment.seconds = 1.0
            segment.run = noted(segment.run, threads)
        assert session.run(value) == 18.0
        return threads

    def noted(run: Callable[..., None], threads: list[str]) -> Callable[..., None]:
        def noting(step: Any, slots: list[Any]) -> None:
            threads.append(threading.current_thread().name)
            run(step, slots)

        return noting

    for threads in on_both(two_workers, work):
        assert len(threads) >= 2 and all(name.startswith("tfmini-kernels") for name in threads)


def test_a_wait_for_a_rank_that_is_missing_ends_in_time(two_workers: list[tf.train.Server]) -> None:
    with tf.device("/job:worker/task:0"):
        reduced = sum_of_ranks(0)
    text = r"step \d+ did not end within 0.1 s. /job:worker/replica:0/task:0 waits for collective"
    wrong = pytest.raises(tf.errors.DeadlineExceededError, match=text)
    with tf.Session(two_workers[0].target) as session, wrong:
        session.run(reduced, options=tf.RunOptions(timeout_in_ms=100))
    assert not two_workers[0].worker.runs


@pytest.mark.parametrize("trace_level", [0, 3])
def test_a_loop_beside_a_queue_ends_in_time(trace_level: int) -> None:
    options = tf.RunOptions(timeout_in_ms=50, trace_level=trace_level)
    queue = tf.FIFOQueue(1, tf.float32)
    forever = tf.while_loop(lambda i: True, lambda i: i + 1, [0])
    with tf.Session() as session, pytest.raises(tf.errors.DeadlineExceededError, match="node while"):
        session.run([queue.enqueue(1.0), forever], options=options, run_metadata=tf.RunMetadata())


@pytest.mark.parametrize("options", [None, FULL], ids=["untraced", "traced"])
def test_an_interrupted_function_leaves_no_run_behind(options: Any) -> None:
    def interrupt() -> np.float32:
        raise KeyboardInterrupt

    value = tf.py_func(interrupt, [], tf.float32)
    with tf.Session() as session:
        with pytest.raises(BaseException, match=r"KeyboardInterrupt|^$"):
            session.run(value, options=options, run_metadata=tf.RunMetadata())
        master: Any = session.master
        assert not master.master.worker.runs and not master.session.steps()
