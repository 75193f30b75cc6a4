"""`tf.WorkQueue` in graphs, `ParameterStore.shards`, and workers that are killed and join."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tfmini.launch.local_cluster import ProcessCluster

LATE_S = 90.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[tf.LocalCluster]:
    with tf.LocalCluster(ps=2, workers=2) as cluster:
        yield cluster


@pytest.fixture
def fresh(cluster: tf.LocalCluster) -> tf.LocalCluster:
    """The cluster, without what other tests have left on it."""
    tf.Session.reset(cluster.target)
    return cluster


def test_workers_share_ranges_of_rows(fresh: tf.LocalCluster) -> None:
    def train(task: Any) -> list[range]:
        with tf.ParameterStore(task) as store:
            return list(store.shards("train", 1000, num_slices=30, num_epochs=2))

    found = fresh.run(train, timeout_s=LATE_S)
    assert Counter(row for shards in found for rows in shards for row in rows) == Counter([*range(1000)] * 2)


def test_a_shard_whose_body_failed_is_for_others(fresh: tf.LocalCluster) -> None:
    with pytest.raises(ZeroDivisionError), tf.ParameterStore(fresh.tasks[0]) as store:
        for name in store.shards("files", ["a", "b"], shuffle=False):
            assert name == "a"
            raise ZeroDivisionError
    with tf.ParameterStore(fresh.tasks[1]) as store:
        shards = store.shards("files", ["a", "b"], shuffle=False)
        assert list(shards) == ["a", "b"] and shards.left() == 0
        shards.add(["c"])
        assert shards.left() == 1
        shard = shards.take()
        assert shard is not None and shard.work == "c"
        assert shards.renew(shard) and shards.acknowledge(shard) and not shards.acknowledge(shard)
        assert shards.take() is None


def test_shards_of_other_settings_are_refused(fresh: tf.LocalCluster) -> None:
    with tf.ParameterStore(fresh.tasks[0]) as one, tf.ParameterStore(fresh.tasks[1]) as two:
        one.shards("train", 100).left()
        with pytest.raises(tf.errors.InvalidArgumentError, match="with 100 works .*, num_epochs=1, .* not with 100"):
            two.shards("train", 100, num_epochs=2).left()
        with pytest.raises(ValueError, match="something else by the name of 'train'"):
            one.shards("train", 100)
        with pytest.raises(ValueError, match="a list of texts, or a number of rows"):
            one.shards("none", [])
        with pytest.raises(ValueError, match="'train.csv' is one text"):
            one.shards("text", "train.csv")


def test_a_restored_store_hands_out_what_was_left(fresh: tf.LocalCluster, tmp_path: Path) -> None:
    with tf.ParameterStore(fresh) as store:
        store.declare("n", (), tf.int64)
        shards = store.shards("train", 100, num_slices=10)
        for _ in range(4):
            shard = shards.take()
            assert shard is not None
            store.push({"n": len(shard.work)})
            shards.acknowledge(shard)
        unfinished = shards.take()
        path = store.save(str(tmp_path / "model"))
    tf.Session.reset(fresh.target)
    with tf.ParameterStore(fresh) as store:
        store.declare("n", (), tf.int64)
        shards = store.shards("train", 100, num_slices=10)
        store.restore(path)
        later = list(shards)
        assert unfinished is not None and unfinished.work in later and len(later) == 6
        assert store.pull("n") + sum(map(len, later)) == 100


def test_files_are_read_as_a_dataset_by_monitored_sessions(fresh: tf.LocalCluster, tmp_path: Path) -> None:
    """Each worker reads its files line by line; each line is read once."""
    lines = []
    for i in range(6):
        found = [f"{i}-{j}" for j in range(i)]  # the first file is empty
        (tmp_path / f"{i}.txt").write_text("".join(f"{line}\n" for line in found))
        lines += found

    def read(task: Any) -> list[str]:
        queue = tf.WorkQueue([f"{i}.txt" for i in range(6)], num_epochs=2, prefix=f"{tmp_path}/", name="files")
        queue.add_summary()
        iterator = tf.data.TextLineDataset(queue.input_dataset()).make_initializable_iterator()
        line = iterator.get_next()
        tf.train.get_or_create_global_step()
        scaffold = tf.train.Scaffold(local_init_op=iterator.initializer)
        found = []
        with tf.train.MonitoredTrainingSession(task.target, task.is_chief, scaffold=scaffold) as session:
            while not session.should_stop():
                found.append(session.run(line).decode())
        assert len(queue) == 6 and queue.works[0] == b"0.txt"
        return found

    found = fresh.run(read, timeout_s=LATE_S)
    assert Counter(found[0] + found[1]) == Counter(lines * 2)


def test_a_reader_reads_files_of_the_queue(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"{i}").write_text(f"{i}\n")
    with tf.Graph().as_default(), tf.Session() as session:
        queue = tf.WorkQueue([str(tmp_path / f"{i}") for i in range(3)], shuffle=False)
        _, value = tf.TextLineReader().read(queue.input_producer())
        left = queue.size()
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        found = []
        with pytest.raises(tf.errors.OutOfRangeError):
            while True:
                found.append(session.run(value).decode())
        coordinator.request_stop()
        coordinator.join(threads)
        assert found == ["0", "1", "2"] and session.run(left) == 0


def test_a_saver_restores_the_queue_of_a_graph(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        queue = tf.WorkQueue(["a", "b", "c"], shuffle=False)
        work, ticket = queue.lease()
        saver = tf.train.Saver()
        session.run(tf.report_uninitialized_variables())
        first = session.run([work, ticket])
        second = session.run([work, ticket])
        assert session.run(queue.acknowledge(first[1]))
        path = saver.save(session, str(tmp_path / "model"))
        assert session.run(queue.renew(second[1])) and session.run(queue.acknowledge(second[1]))
        assert session.run(work) == b"c"
        saver.restore(session, path)
        assert [session.run(work) for _ in range(2)] == [b"b", b"c"]


_WORKER = """
import json, sys
import numpy as np
import tfmini as tf

# Handles shards, and prints each one before it acknowledges it. Argument: the target, its number, how many it handles.
target, index, limit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with tf.ParameterStore(target, worker=index, workers=8, timeout_s=90) as store:
    store.declare("seen", [200], tf.int64)
    shards = store.shards("train", 200, num_slices=40, num_epochs=2, lease_s=5.0)
    while (shard := shards.take()) is not None:
        rows = np.zeros(200, np.int64)
        rows[shard.work] = 1
        print("has", shard.work.start, flush=True)
        store.push({"seen": rows})
        print("done" if shards.acknowledge(shard) else "late", shard.work.start, flush=True)
        limit -= 1
        if not limit:
            print("waits", flush=True)
            sys.stdin.read()  # until it is killed, with a shard on lease
            shards.take()
    print("end", flush=True)
"""


@pytest.mark.cluster
def test_each_shard_is_acknowledged_once_while_workers_are_killed_and_join() -> None:
    """Client processes are killed with a shard in their hands, or between two; another one joins in the middle."""
    lines: list[str] = []
    with ProcessCluster(ps=2, workers=1) as cluster:
        for task in cluster.processes:
            cluster.wait_ready(task.job, task.task)

        def start(index: int, limit: int) -> subprocess.Popen[str]:
            arguments = [cluster.target("worker", 0), str(index), str(limit)]
            pipe = subprocess.PIPE
            return subprocess.Popen([sys.executable, "-c", _WORKER, *arguments], stdin=pipe, stdout=pipe, text=True)

        def read(process: subprocess.Popen[str], until: str) -> None:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if line.startswith(until):
                    return
            raise AssertionError(f"a worker ended before it said {until}: {lines}")

        def kill(process: subprocess.Popen[str]) -> None:
            process.kill()
            process.wait(LATE_S)
            assert process.stdout is not None and process.stdin is not None
            lines.extend(process.stdout)  # what `read` has left
            process.stdout.close()
            process.stdin.close()

        first, second = start(0, 7), start(1, 11)
        read(first, "waits")
        read(second, "has")
        kill(second)  # perhaps before its push, perhaps after
        kill(first)
        last = [start(2, 0), start(3, 0)]
        for process in last:
            lines.extend(process.communicate(timeout=LATE_S)[0].splitlines(keepends=True))
            assert process.returncode == 0
        with tf.ParameterStore(cluster.target("worker", 0), worker=4, workers=8, timeout_s=LATE_S) as store:
            store.declare("seen", [200], tf.int64)
            seen = store.pull("seen")
    done = Counter(int(line.split()[1]) for line in lines if line.startswith("done"))
    handled = Counter(int(line.split()[1]) for line in lines if line.startswith("has"))
    assert lines[-1] == "end\n" and set(done) == set(range(0, 200, 5))
    # Each work of both epochs was handled at least once, and acknowledged once; the client may not hear of the last
    # acknowledgement of a process that is killed.
    assert all(count <= 2 for count in done.values()) and sum(done.values()) >= 2 * 40 - 2
    assert seen.min() >= 2 and all(handled[row] >= count for row, count in done.items())
    assert seen.sum() <= 5 * sum(handled.values()) and sum(handled.values()) <= 2 * 40 + 2
