"""`tf.ParameterStore`: named arrays without a graph."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.launch.local_cluster import ProcessCluster
from tfmini.ops.queues.rounds import Push, RoundGradients

WORKERS = 3
LATE_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[tf.LocalCluster]:
    with tf.LocalCluster(ps=2, workers=WORKERS) as cluster:
        yield cluster


@pytest.fixture
def fresh(cluster: tf.LocalCluster) -> tf.LocalCluster:
    """The cluster, without what other tests have left on it."""
    tf.Session.reset(cluster.target)
    return cluster


def test_without_a_cluster_it_is_in_this_process() -> None:
    with tf.ParameterStore() as store:
        store.declare("n", (), tf.int64, 5)
        store.push({"n": 2})
        assert store.pull("n") == 7 and store.version("n") == 1
        assert store.pull("n").dtype == np.int64


def test_arrays_of_two_stores_are_the_same(fresh: tf.LocalCluster) -> None:
    with tf.ParameterStore(fresh) as one, tf.ParameterStore(fresh) as other:
        names = [f"v{i}" for i in range(8)]
        for name in names:
            one.declare(name, [2], init=1.0)
        one.push({names[0]: np.ones(2)})
        for name in reversed(names):  # declared in another order, by another type of number
            other.declare(name, [2], init=1)
        one.push({names[0]: -np.ones(2)})
        one.push({name: np.full(2, float(i)) for i, name in enumerate(names)})
        assert {name: value.tolist() for name, value in other.pull().items()} == {
            name: [1.0 + i, 1.0 + i] for i, name in enumerate(names)
        }
        assert {place for name in names for place in one.places(name)} == {"/job:ps/task:0", "/job:ps/task:1"}


def test_values_cannot_be_written_and_do_not_change(fresh: tf.LocalCluster) -> None:
    with tf.ParameterStore(fresh) as store:
        store.declare("w", [3])
        before = store.pull("w")
        fed = np.ones(3, np.float32)
        store.assign({"w": fed})
        fed[:] = 7
        store.push({"w": np.ones(3)})
        assert before.tolist() == [0, 0, 0] and store.pull("w").tolist() == [2, 2, 2]
        with pytest.raises(ValueError, match="read-only"):
            before[0] = 1


@pytest.mark.parametrize("partition", [1, 3, tf.fixed_size_partitioner(4)])
def test_rows_are_read_and_pushed(fresh: tf.LocalCluster, partition: Any) -> None:
    with tf.ParameterStore(fresh, tf.train.GradientDescentOptimizer(1.0), partition=partition) as store:
        start = np.arange(20, dtype=np.float32).reshape(10, 2)
        store.declare("e", [10, 2], init=start)
        ids = np.array([9, 0, 4, 9])
        rows = np.random.RandomState(0).randn(4, 2).astype(np.float32)
        found = store.push_pull({"e": tf.IndexedSlices(rows, ids)}, {"e": [4, 9, 4, 1]})["e"]
        want = start.copy()
        np.subtract.at(want, ids, rows)
        np.testing.assert_allclose(found, want[[4, 9, 4, 1]], rtol=1e-6)
        np.testing.assert_allclose(store.pull("e"), want, rtol=1e-6)
        assert store.pull({"e": []})["e"].shape == (0, 2)
        assert len(store.places("e")) == {1: 1, 3: 3}.get(partition, 4)


def test_each_array_counts_its_own_updates_of_adam() -> None:
    """The reference is a graph that trains each array alone."""

    def alone(pushes: int) -> float:
        with tf.Graph().as_default(), tf.Session() as session:
            w = tf.Variable(1.0)
            train = tf.train.AdamOptimizer(0.1).apply_gradients([(tf.constant(0.5), w)])
            session.run(tf.global_variables_initializer())
            for _ in range(pushes):
                session.run(train)
            return float(session.run(w))

    with tf.ParameterStore(optimizer=tf.train.AdamOptimizer(0.1)) as store:
        store.declare("a", (), init=1.0)
        store.declare("b", (), init=1.0)
        for turn in range(4):
            store.push({"a": 0.5, "b": 0.5} if turn % 2 else {"a": 0.5})
        assert store.pull("a") == pytest.approx(alone(4)) and store.pull("b") == pytest.approx(alone(2))


def test_asynchronous_sums_are_exact(fresh: tf.LocalCluster) -> None:
    def add(task: Any) -> int:
        with tf.ParameterStore(task, partition=2) as store:
            store.declare("n", [1000], tf.int64)
            for _ in range(50):
                store.push({"n": np.ones(1000, np.int64)})
            store.barrier()
            return int(store.pull("n").sum())

    assert fresh.run(add, timeout_s=LATE_S) == [50 * WORKERS * 1000] * WORKERS


@pytest.mark.parametrize("staleness", [1, 3])
def test_staleness_is_never_beyond_its_bound(fresh: tf.LocalCluster, staleness: int) -> None:
    turns = 25
    held = threading.Event()  # lets worker 1 begin when the others have come as far as they may

    def train(task: Any) -> list[int]:
        behind = []
        with tf.ParameterStore(task, staleness=staleness) as store:
            store.declare("turns", [WORKERS], tf.int64)
            own = (np.arange(WORKERS) == task.index).astype(np.int64)
            for turn in range(turns):
                if task.index == 1 and turn == 0:
                    assert held.wait(LATE_S)
                seen = store.pull("turns")
                assert seen[task.index] == turn
                behind.append(turn - int(seen.min()))
                store.push({"turns": own})
                if task.index == 0 and turn + 1 == staleness:
                    held.set()
        return behind

    behind = fresh.run(train, timeout_s=LATE_S)
    assert max(map(max, behind)) == staleness


def test_who_leaves_is_not_waited_for(fresh: tf.LocalCluster) -> None:
    stores = [tf.ParameterStore(task, staleness=1, timeout_s=LATE_S) for task in fresh.tasks]
    for store in stores:
        store.declare("n", ())
    stores[2].close()
    for _ in range(3):
        stores[1].push({"n": 1.0})
    stores[1].close()
    for _ in range(5):
        stores[0].push({"n": 1.0})
        stores[0].pull("n")
    assert stores[0].pull("n") == 8
    with tf.ParameterStore(fresh.tasks[2], staleness=1) as again:  # it enters with those who are there
        again.declare("n", ())
        again.push({"n": 1.0})
        assert again.pull("n") == 9
    stores[0].close()


def test_a_barrier_does_not_wait_for_one_that_has_ended_before_it(fresh: tf.LocalCluster) -> None:
    stores = [tf.ParameterStore(task, timeout_s=LATE_S) for task in fresh.tasks]
    stores[2].close()
    threads = [threading.Thread(target=store.barrier) for store in stores[:2]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LATE_S)
        assert not thread.is_alive()
    for store in stores[:2]:
        store.close()


def test_a_barrier_that_was_given_up_is_entered_again_once(fresh: tf.LocalCluster) -> None:
    first, second = (tf.ParameterStore(task, workers=2, timeout_s=1.0) for task in fresh.tasks[:2])
    with first, second:
        with pytest.raises(tf.errors.DeadlineExceededError, match=r"worker 1 \(0 ended\) to end 1"):
            first.barrier()
        for _ in range(2):  # they go on together
            thread = threading.Thread(target=second.barrier)
            thread.start()
            first.barrier()
            thread.join(LATE_S)


def test_the_end_of_the_cluster_does_not_hide_the_error_of_the_block() -> None:
    cluster = tf.LocalCluster(ps=1, workers=2)
    with pytest.raises(KeyError, match="mine"), tf.ParameterStore(cluster.tasks[0], timeout_s=LATE_S):
        cluster.close()
        raise KeyError("mine")


def test_a_name_can_be_declared_after_an_initial_value_that_was_wrong() -> None:
    with tf.ParameterStore() as store:
        with pytest.raises(tf.errors.InvalidArgumentError, match="initial value of shape"):
            store.declare("x", [3], init=np.ones(2))
        store.declare("x", [3], init=np.ones(3))
        assert store.pull("x").tolist() == [1, 1, 1]


def test_the_order_of_names_is_that_of_the_caller(fresh: tf.LocalCluster) -> None:
    with tf.ParameterStore(fresh) as store:
        for value, name in enumerate(("c", "a", "b")):
            store.declare(name, (), init=value)
        counts = []
        for order in (["b", "c", "a"], ["a", "b", "c"]):
            found = store.push_pull(dict.fromkeys(order, 0.0))
            assert list(found) == order and found == {"c": 0.0, "a": 1.0, "b": 2.0}
            counts.append(len(store.graph.get_operations()))
        assert counts[0] == counts[1]  # another order makes no other step


@pytest.mark.parametrize("parts", [(2, 1), (1, 4), (2, 4)])
def test_powers_of_adam_are_restored_into_other_parts(fresh: tf.LocalCluster, tmp_path: Path, parts: Any) -> None:
    values = []
    for partition in parts:
        tf.Session.reset(fresh.target)
        with tf.ParameterStore(fresh, tf.train.AdamOptimizer(0.1), partition=partition) as store:
            store.declare("a", [4])  # has no updates
            store.declare("b", [8], init=1.0)
            if not values:
                for turn in range(5):
                    store.push({"b": np.full(8, 0.5 + turn)})
                path = store.save(str(tmp_path / "model"))
            else:
                store.restore(path)
            values.append(store.push_pull({"b": np.ones(8)})["b"])
    np.testing.assert_allclose(*values, rtol=1e-6)


def test_a_wait_for_a_slow_worker_names_it(fresh: tf.LocalCluster) -> None:
    with tf.ParameterStore(fresh.tasks[0], staleness=1, timeout_s=1.0) as store:
        store.declare("n", ())
        store.push({"n": 1.0})
        store.push({"n": 1.0})
        with pytest.raises(
            tf.errors.DeadlineExceededError, match=r"worker 1 \(0 ended\), worker 2 \(0 ended\) to end 1"
        ):
            store.pull("n")


@pytest.mark.parametrize("partition", [1, 2])
def test_checkpoints_are_read_by_graphs_and_theirs_by_the_store(
    fresh: tf.LocalCluster, tmp_path: Path, partition: int
) -> None:
    def graph() -> tuple[Any, Any, Any]:
        w = tf.get_variable("w", [4, 2])
        train = tf.train.AdamOptimizer(0.1).apply_gradients([(tf.ones([4, 2]), w)])
        return w, train, tf.train.Saver()

    with tf.ParameterStore(fresh, tf.train.AdamOptimizer(0.1), partition=partition) as store:
        store.declare("w", [4, 2], init=tf.glorot_uniform_initializer(seed=1))
        store.push({"w": np.ones((4, 2))})
        path = store.save(str(tmp_path / "of-store"), step=7)
        want = store.push_pull({"w": np.ones((4, 2))})["w"]
        with tf.Graph().as_default(), tf.Session() as session:
            w, train, saver = graph()
            saver.restore(session, path)
            session.run(train)
            np.testing.assert_allclose(session.run(w), want, rtol=1e-6)
            theirs = saver.save(session, str(tmp_path / "of-graph"))
            session.run(train)
            want = session.run(w)
        store.restore(theirs)
        np.testing.assert_allclose(store.push_pull({"w": np.ones((4, 2))})["w"], want, rtol=1e-6)
        store.restore(path)
        assert path.endswith("-7") and store.version("w") == 1
        store.declare("new", ())
        with pytest.raises(tf.errors.NotFoundError, match="has no array 'new'"):
            store.restore(path)


def test_mistakes_are_told_before_anything_is_sent(fresh: tf.LocalCluster) -> None:
    with tf.ParameterStore(fresh) as store:
        store.declare("w", [4, 3])
        store.declare("n", (), tf.int64)
        for message, call in {
            "no array 'q'; declared are: n, w": lambda: store.pull("q"),
            "shape \\(3,\\) is no gradient of array 'w'": lambda: store.push({"w": np.ones(3)}),
            "Ids from 0 to 4 are not all rows": lambda: store.pull({"w": [0, 4]}),
            "Rows of shape \\(1, 2\\) with 1 ids": lambda: store.push({"w": tf.IndexedSlices(np.ones((1, 2)), [0])}),
            "declared already, as array 'w' \\(float32, shape \\[4, 3\\]\\)": lambda: store.declare("w", [4, 4]),
            "Numbers of float64 lose what array 'n'": lambda: store.push({"n": 0.9}),
            "are integers; got bool": lambda: store.pull({"w": [True, False]}),
            "initial value of shape \\(2,\\)": lambda: store.declare("x", [3], init=np.ones(2)),
        }.items():
            with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.NotFoundError), match=message):
                call()
        assert store.version("w") == 0


_MISTAKES: dict[str, tuple[str, Callable[[tf.ParameterStore], Any]]] = {
    "wrap": ("number 300 does not fit array 'i'", lambda store: store.push({"i": [300, 0]})),
    "no sign": ("number -1 does not fit array 'u'", lambda store: store.push({"u": [-1, 0]})),
    "infinity": ("number 1e\\+300 does not fit", lambda store: store.push({"f": np.full(2, 1e300)})),
    "assigned": ("value of shape \\(3,\\) is no value of", lambda store: store.assign({"f": np.ones(3)})),
    "no text": ("There is no array b'f'; declared are: f, i, u", lambda store: store.pull(b"f")),
    "ids beyond int64": (f"Ids from {2**63} to", lambda store: store.pull({"f": np.array([2**63], np.uint64)})),
    "fraction": ("float64 lose what array 'x'", lambda store: store.declare("x", [2], tf.int32, 0.5)),
    "initial None": ("no numbers for array 'x'", lambda store: store.declare("x", [2], tf.float32, None)),
    "tensor": ("shape \\(3,\\)", lambda store: store.declare("x", [2], init=lambda shape, dtype: tf.zeros([3], dtype))),
    "function": ("shape \\(3,\\)", lambda store: store.declare("x", [2], init=lambda shape, dtype: np.zeros(3))),
    "other init": ("value 7 .* this store has declared .* value 0 ", lambda store: store.declare("f", [2], init=7)),
    "size": ("cannot be the shape of array 'x'", lambda store: store.declare("x", [2.5])),
    "no size": ("cannot be the shape of array 'x'", lambda store: store.declare("x", [None, 2])),
    "below zero": ("cannot be the shape of array 'x'", lambda store: store.declare("x", [-2])),
    "unicode": ("cannot be the name of an array", lambda store: store.declare("gr\u00f6\u00dfe", [2])),
    "no name": ("cannot be the name of an array", lambda store: store.declare("", [2])),
    "bool": ("a ParameterStore holds numbers", lambda store: store.declare("x", [2], tf.bool)),
    "string": ("a ParameterStore holds numbers", lambda store: store.declare("x", [2], tf.string)),
}


@pytest.mark.parametrize("name", _MISTAKES)
def test_what_an_array_cannot_hold_is_refused(name: str) -> None:
    message, call = _MISTAKES[name]
    with tf.ParameterStore() as store:
        for each, dtype in {"f": tf.float32, "i": tf.int8, "u": tf.uint8}.items():
            store.declare(each, [2], dtype)
        with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.NotFoundError), match=message):
            call(store)
        assert not any(value.any() for value in store.pull().values())


def test_python_numbers_and_other_types_that_fit_are_taken() -> None:
    with tf.ParameterStore() as store:
        for name, dtype in {"u": tf.uint8, "h": tf.float16, "f": tf.float32}.items():
            store.declare(name, [2], dtype, 1)
            store.push({name: [2, 3]})
            store.push({name: np.array([1, 1], np.int64)})
            assert store.pull(name).tolist() == [4, 5]
        store.push({"f": [np.inf, np.nan]})  # the caller's own
        assert np.isinf(store.pull("f")[0]) and np.isnan(store.pull("f")[1])


def test_an_array_that_is_too_large_for_the_memory_is_not_made() -> None:
    with tf.ParameterStore() as store:
        with pytest.raises(tf.errors.ResourceExhaustedError, match=r"shape \[1099511627776\]"):
            store.declare("x", [1 << 40])
        with pytest.raises(tf.errors.NotFoundError):
            store.pull("x")


def test_an_optimizer_takes_floating_point_numbers_only() -> None:
    with tf.ParameterStore(optimizer=tf.train.AdagradOptimizer(0.5)) as store:
        with pytest.raises(tf.errors.InvalidArgumentError, match="AdagradOptimizer cannot update array 'n' .*int32"):
            store.declare("n", [2], tf.int32)
        store.declare("n", [2])


@pytest.mark.parametrize("staleness", [None, 0, 1])
def test_a_store_that_is_closed_says_so(staleness: int | None) -> None:
    with tf.ParameterStore(staleness=staleness) as store:
        store.declare("w", [2])
        store.push_pull({"w": [1, 1]})
    for call in (
        store.pull,
        store.barrier,
        lambda: store.push({"w": [1, 1]}),
        lambda: store.push_pull({"w": [1, 1]}),
        lambda: store.assign({"w": [1, 1]}),
        lambda: store.declare("v", [2]),
        lambda: store.version("w"),
    ):
        with pytest.raises(RuntimeError, match="This ParameterStore is closed"):
            call()


def test_what_is_pushed_has_names_and_ends_a_round() -> None:
    with tf.ParameterStore(staleness=0) as store:
        store.declare("w", [2])
        for call in (lambda: store.push(np.ones(2)), lambda: store.assign([np.ones(2)])):
            with pytest.raises(TypeError, match="as a dict from their names"):
                call()
        with pytest.raises(tf.errors.InvalidArgumentError, match="others wait"):
            store.push({})


@pytest.mark.parametrize(
    ("settings", "declaration", "text"),
    [
        ({}, {"shape": [4, 4]}, r"shape \[4, 4\]\)"),
        ({}, {"dtype": tf.float64}, "float64"),
        ({}, {"init": 1.0}, "initial value 1 "),
        ({}, {"init": np.ones((4, 3))}, "initial value an array with checksum"),
        ({}, {"init": tf.random_normal_initializer(seed=1)}, r"RandomNormal\(mean=0, seed=1, stddev=1\)"),
        ({"partition": 2}, {}, "in 2 parts"),
        ({"optimizer": tf.train.AdamOptimizer(0.25)}, {}, r"AdamOptimizer\(.*learning_rate=0.25"),
        ({"optimizer": None}, {}, "updates by addition"),
        ({"staleness": 0}, {}, " synchronous updates"),
        ({"staleness": 2}, {}, r" asynchronous \(staleness 2\) updates"),
    ],
)
def test_another_stores_other_declaration_is_refused(
    fresh: tf.LocalCluster, settings: dict[str, Any], declaration: dict[str, Any], text: str
) -> None:
    adam = {"optimizer": tf.train.AdamOptimizer(0.5)}
    with (
        tf.ParameterStore(fresh.tasks[0], **adam) as one,
        tf.ParameterStore(fresh.tasks[1], **{**adam, **settings}) as two,
    ):
        one.declare("w", [4, 3])
        one.push({"w": np.ones((4, 3))})
        of_one = r"of worker 0 has declared array 'w' \(float32, shape \[4, 3\]\) in 1 parts, .*learning_rate=0.5"
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=f"store of worker 1 declares array 'w' .*{text}.*{of_one}"
        ):
            two.declare("w", **{"shape": [4, 3], **declaration})
        with pytest.raises(tf.errors.NotFoundError, match="no array 'w'"):
            two.pull("w")


def test_a_seeded_initializer_gives_each_part_other_numbers(fresh: tf.LocalCluster) -> None:
    values = []
    for _ in range(2):
        tf.Session.reset(fresh.target)
        with tf.ParameterStore(fresh, partition=3) as store:
            store.declare("w", [6, 50], init=tf.variance_scaling_initializer(seed=3))
            values.append(store.pull("w"))
    assert (values[0] == values[1]).all() and len(np.unique(values[0])) == values[0].size
    assert np.abs(values[0]).max() == pytest.approx(2 / 6**0.5, rel=0.3)  # two deviations, by the whole array's rows


def _gradients(worker: int, step: int) -> dict[str, Any]:
    random = np.random.RandomState(100 * worker + step)
    ids = random.randint(6, size=3)
    rows = tf.IndexedSlices(random.randn(3, 2).astype(np.float32), ids)
    return {"w": random.randn(5, 2).astype(np.float32), "e": rows}


def _numpy_training(steps: int, workers: Sequence[int], rate: float = 0.125) -> list[dict[str, np.ndarray]]:
    """The reference of synchronous updates: gradients are summed in the order of workers, as float32."""
    values = {"w": np.ones((5, 2), np.float32), "e": np.zeros((6, 2), np.float32)}
    found = []
    count = np.float32(len(workers))
    for step in range(steps):
        each = [_gradients(worker, step) for worker in workers]
        total = each[0]["w"].copy()
        for gradients in each[1:]:
            total += gradients["w"]
        ids = np.concatenate([gradients["e"].indices for gradients in each])
        rows = np.concatenate([gradients["e"].values for gradients in each]) / count
        values = {"w": values["w"] - np.float32(rate) * (total / count), "e": values["e"].copy()}
        np.subtract.at(values["e"], ids, np.float32(rate) * rows)
        found.append(values)
    return found


@pytest.mark.parametrize("partition", [1, 2])
def test_synchronous_training_is_exactly_that_of_numpy(fresh: tf.LocalCluster, partition: int) -> None:
    steps = 12

    def train(task: Any) -> list[dict[str, np.ndarray]]:
        settings = {"staleness": 0, "partition": partition, "timeout_s": LATE_S}
        with tf.ParameterStore(task, tf.train.GradientDescentOptimizer(0.125), **settings) as store:
            store.declare("w", [5, 2], init=1.0)
            store.declare("e", [6, 2])
            found = [store.push_pull(_gradients(task.index, step)) for step in range(steps)]
            assert store.version("w") == store.version("e") == steps and store.late() == [0] * WORKERS
            return found

    want = _numpy_training(steps, range(WORKERS))
    for found in fresh.run(train, timeout_s=LATE_S):
        for step in range(steps):
            for name in ("w", "e"):
                np.testing.assert_array_equal(found[step][name], want[step][name], err_msg=f"{name}, step {step}")


def test_late_gradients_of_backup_workers_are_dropped_and_counted(fresh: tf.LocalCluster) -> None:
    settings = {"staleness": 0, "backup": 1, "timeout_s": LATE_S}
    stores = [tf.ParameterStore(task, **settings) for task in fresh.tasks]
    for store in stores:
        store.declare("n", (), tf.int64)

    def push(worker: int, value: int, rounds: int) -> threading.Thread:
        thread = threading.Thread(target=lambda: [stores[worker].push({"n": value}) for _ in range(rounds)])
        thread.start()
        return thread

    for thread in (push(0, 1, 10), push(1, 1, 10)):
        thread.join(LATE_S)
    stores[2].push({"n": 1000})  # of the first round; its worker goes on with the others
    assert stores[2].late() == [0, 0, 1] and stores[0].pull("n") == 20 and stores[0].version("n") == 10
    for thread in (push(0, 1, 1), push(2, 1000, 1)):
        thread.join(LATE_S)
    assert stores[1].pull("n") == 20 + 1001
    for store in stores:
        store.close()


def test_a_round_without_a_worker_ends_at_its_deadline_and_can_be_repeated(fresh: tf.LocalCluster) -> None:
    first, second = (tf.ParameterStore(task, staleness=0, workers=2, timeout_s=1.0) for task in fresh.tasks[:2])
    with first, second:
        for store in (first, second):
            store.declare("n", (), tf.int64)
        for value in (100, 200):
            with pytest.raises(tf.errors.DeadlineExceededError, match="the gradients of workers 1 for round 0"):
                first.push({"n": value})
        for turn in range(2):
            thread = threading.Thread(target=second.push, args=({"n": 1},))
            thread.start()
            assert first.push_pull({"n": 2})["n"] == 3 * (turn + 1)  # what was given up is in no round
            thread.join(LATE_S)


def test_a_push_that_is_made_again_and_again_leaves_no_gradients_of_failed_attempts(
    fresh: tf.LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    puts: list[tuple[RoundGradients, Push]] = []
    put = RoundGradients.put

    def failing(state: RoundGradients, push: Push, gradients: list[Any]) -> None:
        put(state, push, gradients)
        puts.append((state, push))
        if len(puts) <= 3:
            raise tf.errors.InternalError(None, None, "cut after its gradients have come")

    monkeypatch.setattr(RoundGradients, "put", failing)
    first, second = (tf.ParameterStore(task, staleness=0, workers=2, timeout_s=LATE_S) for task in fresh.tasks[:2])
    with first:
        first.declare("w", [4])
        for _ in range(3):
            with pytest.raises(tf.errors.InternalError, match="cut after"):
                first.push({"w": np.ones(4)})
            assert all(len(state.kept[push.key]) == 1 for state, push in puts)
        second.close()
        assert first.push_pull({"w": np.ones(4)})["w"].tolist() == [1] * 4


def test_a_worker_that_begins_again_replaces_its_earlier_life(fresh: tf.LocalCluster) -> None:
    settings = {"staleness": 0, "workers": 2, "timeout_s": LATE_S}
    with (
        tf.ParameterStore(fresh.tasks[0], **settings) as other,
        tf.ParameterStore(fresh.tasks[1], **settings) as old,
        tf.ParameterStore(fresh.tasks[1], **settings) as new,
    ):
        for store in (other, old, new):
            store.declare("n", (), tf.int64)
        with pytest.raises(tf.errors.AbortedError, match="Another process has entered .* as worker 1"):
            old.push({"n": 1000})
        thread = threading.Thread(target=other.push, args=({"n": 1},))
        thread.start()
        assert new.push_pull({"n": 2})["n"] == 3
        thread.join(LATE_S)


def test_pushes_of_a_round_are_of_the_same_arrays(fresh: tf.LocalCluster) -> None:
    first, second = (tf.ParameterStore(task, staleness=0, workers=2, timeout_s=LATE_S) for task in fresh.tasks[:2])
    with first, second:
        for store in (first, second):
            for name in ("a", "b"):
                store.declare(name, ())
        refused = []

        def push(store: tf.ParameterStore, name: str) -> None:
            try:
                store.push({name: 1.0})
            except tf.errors.InvalidArgumentError as error:  # whoever comes second
                refused.append(str(error))
                store.push({"a" if name == "b" else "b": 1.0})

        threads = [threading.Thread(target=push, args=each) for each in ((first, "a"), (second, "b"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LATE_S)
        (text,) = refused
        assert re.search(r"pushes '(\w)' in round 0, in which worker \d pushes '(\w)'", text)
        assert sum(first.pull().values()) == 2


@pytest.mark.parametrize("name", ["w/version", "w/declared", "e/part_1"])
def test_a_name_inside_of_another_array_is_refused(fresh: tf.LocalCluster, name: str) -> None:
    with tf.ParameterStore(fresh, partition=2) as store:
        store.declare("w", ())
        store.declare("e", [4])
        with pytest.raises(tf.errors.InvalidArgumentError, match="is a name of another array"):
            store.declare(name, ())


def test_settings_that_make_no_sense_are_refused(fresh: tf.LocalCluster) -> None:
    for message, settings in {
        "staleness must be None, 0 or": {"staleness": -1},
        "staleness must be a whole number": {"staleness": 1.5},
        "workers must be at least 1": {"workers": 0},
        "partition must be at least 1": {"partition": 0},
        "partition must be .*: 2.5": {"partition": 2.5},
        "timeout_s must be": {"timeout_s": 0},
        "optimizer must be None or an Optimizer": {"optimizer": "adam"},
        r"worker must be in \[0, 3\)": {"worker": 3},
        "backup is for synchronous": {"backup": 1},
        "backup must be below the number of workers, 3": {"backup": 3, "staleness": 0},
    }.items():
        with pytest.raises(ValueError, match=message):
            tf.ParameterStore(fresh, **settings)
    with (
        tf.ParameterStore(fresh, staleness=0),
        pytest.raises(tf.errors.InvalidArgumentError, match="of 3 workers, 0 of them backup workers; not of 3 and 1"),
    ):
        tf.ParameterStore(fresh, staleness=0, backup=1)
    with pytest.raises(ValueError, match="Say workers="), ProcessCluster(ps=1, workers=0) as remote:
        tf.ParameterStore(remote.target("ps", 0), staleness=1, workers=2)


def test_a_store_needs_no_worker_but_its_own(fresh: tf.LocalCluster) -> None:
    """Another one may have died, or be about to begin again."""
    with ProcessCluster(ps=1, workers=2) as cluster:
        cluster.wait_ready("worker", 0)
        cluster.wait_ready("ps", 0)
        cluster.kill("worker", 1)
        with tf.ParameterStore(cluster.target("worker", 0), timeout_s=LATE_S) as store:
            store.declare("n", ())
            store.push({"n": 2.0})
            assert store.pull("n") == 2 and store.tasks == ["/job:ps/task:0"]
            with pytest.raises(ValueError, match="Say workers="):
                store.barrier()


def test_without_ps_the_arrays_are_at_the_target() -> None:
    with tf.LocalCluster(ps=0, workers=2) as cluster, tf.ParameterStore(cluster.tasks[1]) as store:
        store.declare("n", ())
        store.push({"n": 2.0})
        assert store.pull("n") == 2 and store.places("n") == ["/job:worker/task:1"] and store.worker == 1


def test_threads_share_a_store(fresh: tf.LocalCluster) -> None:
    with tf.ParameterStore(fresh) as store:
        for i in range(4):
            store.declare(f"v{i}", (), tf.int64)

        def add(first: int) -> None:
            for turn in range(40):
                store.push({f"v{(first + turn) % 4}": 1, f"v{(first + turn + 1) % 4}": 1})

        threads = [threading.Thread(target=add, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(int(value) for value in store.pull().values()) == 4 * 40 * 2


def test_a_known_call_does_not_wait_for_a_declaration_that_lasts() -> None:
    began, go_on = threading.Event(), threading.Event()

    def slow(shape: Any, dtype: Any) -> Any:
        began.set()
        assert go_on.wait(LATE_S)
        return np.zeros(shape, np.float32)

    with tf.ParameterStore() as store:
        store.declare("known", (), init=1.0)
        assert store.pull("known") == 1.0
        declares = threading.Thread(target=store.declare, args=("new", [2]), kwargs={"init": slow})
        declares.start()
        assert began.wait(LATE_S)
        pulls = threading.Thread(target=store.pull, args=("known",), daemon=True)
        pulls.start()
        pulls.join(10)
        assert not pulls.is_alive()
        go_on.set()
        declares.join(LATE_S)
        assert store.pull("new").tolist() == [0, 0]


_STEPS: dict[str, Callable[[tf.ParameterStore, Path], Any]] = {
    "declare": lambda store, path: store.declare("held", [2]),
    "table": lambda store, path: tf.EmbeddingTable(store, "held", 2),
    "restore": lambda store, path: store.restore(str(path)),
}


@pytest.mark.parametrize("step", _STEPS)
def test_nobody_waits_for_the_steps_of_a_declaration_or_restore(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go_on = threading.Event(), threading.Event()
    with tf.ParameterStore(optimizer=tf.train.AdamOptimizer(0.1)) as store:
        run = store.session.run

        def held(*args: Any, **options: Any) -> Any:
            if threading.current_thread() is first:
                began.set()
                assert go_on.wait(LATE_S)
            return run(*args, **options)

        def others() -> None:
            store.declare("new", [3], init=2.0)
            assert store.push_pull({"known": 0.0}, ["new"])["new"].tolist() == [2.0] * 3
            table = tf.EmbeddingTable(store, "other", 2)
            assert table.pull([1]).shape == (1, 2)
            store.assign({"new": np.ones(3)})
            store.save(str(tmp_path / "meanwhile"))
            table.restore(str(tmp_path / "meanwhile"))
            if step != "restore":  # the name is taken before it can be used
                with pytest.raises(ValueError, match="something else by the name of 'held'"):
                    store.shards("held", 10)
                with pytest.raises(tf.errors.NotFoundError):
                    store.pull("held")
            passed.set()

        store.declare("known", (), init=1.0)
        path = Path(store.save(str(tmp_path / "before")))
        passed = threading.Event()
        first = threading.Thread(target=_STEPS[step], args=(store, path))
        second = threading.Thread(target=others, daemon=True)
        monkeypatch.setattr(store.session, "run", held)
        first.start()
        assert began.wait(LATE_S)
        second.start()
        second.join(LATE_S)
        assert passed.is_set()
        go_on.set()
        first.join(LATE_S)
        assert store.pull("new").tolist() == [1.0] * 3
        if step == "declare":
            assert store.pull("held").tolist() == [0.0] * 2


def test_two_threads_declare_an_array_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is in a step before the other has ended one; the first value counts."""
    together = threading.Barrier(2, timeout=LATE_S)
    seen: list[Any] = []
    with tf.ParameterStore() as store:
        run, met = store.session.run, threading.local()

        def meets(*args: Any, **options: Any) -> Any:
            if not hasattr(met, "other"):
                met.other = together.wait()
            return run(*args, **options)

        def declares() -> None:
            store.declare("w", [4], init=tf.random_normal_initializer())
            seen.append(store.pull("w"))

        threads = [threading.Thread(target=declares, daemon=True) for _ in range(2)]
        with monkeypatch.context() as patched:
            patched.setattr(store.session, "run", meets)
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(LATE_S)
        np.testing.assert_array_equal(*seen)


@pytest.mark.cluster
def test_a_killed_worker_loses_nothing_that_was_pushed() -> None:
    """A worker is killed while it pushes; each push adds to two arrays on two tasks or, if it was cut, at most once."""
    with ProcessCluster(ps=2, workers=2) as cluster:
        target = cluster.target("worker", 1)
        with tf.ParameterStore(target, timeout_s=LATE_S) as store:
            store.declare("a", [1000], tf.int64)
            store.declare("b", [1000], tf.int64)
            other = tf.ParameterStore(cluster.target("worker", 0))  # its steps run in the task that is killed
            for name in ("a", "b"):
                other.declare(name, [1000], tf.int64)
            done = 0
            failed = threading.Event()

            def push() -> None:
                nonlocal done
                try:
                    while True:
                        other.push({"a": np.ones(1000, np.int64), "b": np.ones(1000, np.int64)})
                        done += 1
                        if done == 20:
                            begun.set()
                except tf.errors.OpError:
                    failed.set()

            begun = threading.Event()
            thread = threading.Thread(target=push)
            thread.start()
            assert begun.wait(LATE_S)
            cluster.kill("worker", 0)
            assert failed.wait(LATE_S)
            thread.join()
            for name in ("a", "b"):
                found = store.pull(name)
                assert found.min() == found.max() and done <= found[0] <= done + 1
                assert store.version(name) == found[0]


def test_what_is_no_gradient_is_named() -> None:
    with tf.ParameterStore(optimizer=tf.train.GradientDescentOptimizer(0.5)) as store:
        store.declare("w", [3])
        with pytest.raises(tf.errors.InvalidArgumentError, match="These are no numbers for array 'w' .*: None"):
            store.push({"w": None})  # type: ignore[dict-item]
