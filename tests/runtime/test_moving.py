"""Variables move between the tasks of clusters of real processes: nothing is lost, whoever dies meanwhile."""

from __future__ import annotations

import math
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.polling import poll
from tests.rpc.task_processes import Call
from tfmini.ops.variables.state import VariableState
from tfmini.rpc import messages as m
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.peer import Peer
from tfmini.rpc.reactor import get_reactor
from tfmini.runtime.client.variable_mover import VariableMover
from tfmini.runtime.moving import MovingService
from tfmini.runtime.worker.departures import Departures, VariablesMoved
from tfmini.testing import ProcessCluster

pytestmark = pytest.mark.cluster
PS = ["/job:ps/replica:0/task:0", "/job:ps/replica:0/task:1", "/job:ps/replica:0/task:2"]


def _counters(is_resource: bool = False) -> tuple[tf.Variable, tf.Variable, tf.Operation]:
    """A counter that moves, one that stays, and the op that adds one to both."""
    with tf.device("/job:ps/task:0"):
        moving = tf.get_variable("moving", [], tf.int64, tf.zeros_initializer(), use_resource=is_resource)
    with tf.device("/job:ps/task:1"):
        staying = tf.get_variable("staying", [], tf.int64, tf.zeros_initializer())
    one = tf.constant(1, tf.int64)
    return moving, staying, tf.group(tf.assign_add(moving, one).op, tf.assign_add(staying, one).op)


def _counter() -> tuple[tf.Variable, tf.Tensor]:
    """A counter on the first ps, and the tensor that adds one to it."""
    with tf.device("/job:ps/task:0"):
        counter = tf.get_variable("v", [], tf.int64, tf.zeros_initializer())
    return counter, tf.assign_add(counter, 1)


@contextmanager
def _workers(sessions: list[tf.Session], op: tf.Operation, steps: int) -> Iterator[list[BaseException]]:
    """Runs the steps in one thread for each session; after the block all have ended."""
    failures: list[BaseException] = []

    def work(session: tf.Session) -> None:
        try:
            for _ in range(steps):
                session.run(op)
        except tf.errors.OpError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    try:
        yield failures
    finally:
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("is_resource", [False, True])
def test_no_update_is_lost_while_a_variable_moves_under_load(is_resource: bool) -> None:
    steps = 1500
    with ProcessCluster(ps=3, workers=3, local=("worker", 0)) as cluster:
        moving, staying, add = _counters(is_resource)
        targets = [cluster.server.target, cluster.target("worker", 1), cluster.target("worker", 2)]
        sessions = [tf.Session(target) for target in targets]
        sessions[0].run(tf.global_variables_initializer())
        moves = 0
        with _workers(sessions, add, steps) as failures:
            for place in [1, 2, 0, 2, 1, 0, 1, 0, 2, 1]:
                assert tf.move_variables(targets[1], {"moving": PS[place]}) == {"moving": PS[place]}
                moves += 1
        assert failures == [] and moves == 10
        assert [session.run([moving, staying]) for session in sessions] == [[3 * steps, 3 * steps]] * 3
        with tf.Session(targets[2]) as later:  # whoever comes later finds it as well
            assert later.run(moving) == 3 * steps
        for session in sessions:
            session.close()


def test_variables_that_cross_on_their_ways_are_found() -> None:
    """What the tasks have told leads in a circle, and in another order for each of the two variables."""
    with ProcessCluster(ps=3, workers=1) as cluster:
        variables = []
        for index in (0, 1):
            with tf.device(PS[index]):
                variables.append(tf.get_variable(f"v{index}", [], tf.int64, tf.zeros_initializer()))
        add = tf.group(*[tf.assign_add(v, 1).op for v in variables])
        target = cluster.target("worker", 0)
        with tf.Session(target) as session:
            session.run(tf.global_variables_initializer())
            for moves in ({"v0": PS[2], "v1": PS[2]}, {"v0": PS[1], "v1": PS[0]}, {"v0": PS[0]}, {"v1": PS[1]}):
                session.run(add)
                assert tf.move_variables(target, moves) == moves
            session.run(add)
            assert session.run(variables) == [5, 5]
        with tf.Session(target) as later:
            assert later.run(variables) == [5, 5]


def test_slots_move_with_their_variable_and_a_checkpoint_is_whole(tmp_path) -> None:
    with ProcessCluster(ps=2, workers=1) as cluster:
        with tf.device("/job:ps/task:0"):
            w = tf.get_variable("w", [8], initializer=tf.ones_initializer())
        train = tf.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(w * w), colocate_gradients_with_ops=True)
        saver = tf.train.Saver(sharded=True)
        with tf.Session(cluster.target("worker", 0)) as session:
            session.run(tf.global_variables_initializer())
            session.run(train)
            before = session.run([w, *(v for v in tf.global_variables() if "Adam" in v.name)])
            moved = tf.move_variables(cluster.target("worker", 0), {"w": "/job:ps/task:1"})
            # The powers of the betas are colocated with the variable, too.
            assert set(moved) == {"w", "w/Adam", "w/Adam_1", "beta1_power", "beta2_power"}
            after = session.run([w, *(v for v in tf.global_variables() if "Adam" in v.name)])
            for a, b in zip(before, after):
                np.testing.assert_array_equal(a, b)
            path = saver.save(session, str(tmp_path / "model"))
            session.run(train)
            trained = session.run(w)
            saver.restore(session, path)
            np.testing.assert_array_equal(session.run(w), after[0])
            session.run(train)
            np.testing.assert_array_equal(session.run(w), trained)
        with tf.Session(cluster.target("worker", 0)) as later:
            np.testing.assert_array_equal(later.run(w), trained)


def test_a_task_that_tells_what_moves_nothing_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = []

    def refuse(departures: Departures, resources: Any, nodes: Any) -> None:
        refused.append(1)
        raise VariablesMoved.from_task(PS[0], 1, departures.forwarding())

    monkeypatch.setattr(Departures, "check", refuse)
    with ProcessCluster(ps=1, local=("ps", 0)) as cluster:
        counter, _ = _counter()
        expected = pytest.raises(tf.errors.InternalError, match=f"cannot be found: {PS[0]} has given away")
        with tf.Session(cluster.server.target) as session, expected:
            session.run(counter.initializer)
    assert refused == [1]


def test_a_graph_that_grows_after_a_move_puts_new_slots_beside_the_variable() -> None:
    with ProcessCluster(ps=2, workers=1, local=("worker", 0)) as cluster:
        with tf.device("/job:ps/task:0"):
            w = tf.get_variable("w", [4], initializer=tf.ones_initializer())
        with tf.Session(cluster.server.target) as session:
            session.run(w.initializer)
            tf.move_variables(cluster.server.target, {"w": PS[1]})
            session.run(w)
            train = tf.train.MomentumOptimizer(0.5, 0.9).minimize(tf.reduce_sum(w))
            session.run([v.initializer for v in tf.global_variables() if v is not w])
            session.run(train)
            np.testing.assert_array_equal(session.run(w), [0.5] * 4)


def test_uninitialized_variables_and_strings_move_too() -> None:
    with ProcessCluster(ps=2, workers=1) as cluster:
        with tf.device("/job:ps/task:0"):
            empty = tf.get_variable("empty", [2])
            names = tf.get_variable("names", initializer=tf.constant(["a", "bc"]))
            word = tf.get_variable("word", initializer=tf.constant("d"))
        with tf.Session(cluster.target("worker", 0)) as session:
            session.run([names.initializer, word.initializer, tf.report_uninitialized_variables()])
            tf.move_variables(cluster.target("worker", 0), dict.fromkeys(["empty", "names", "word"], PS[1]))
            assert session.run(tf.report_uninitialized_variables()).tolist() == [b"empty"]
            assert session.run(names).tolist() == [b"a", b"bc"] and session.run(word) == b"d"
            session.run(empty.initializer)
            assert session.run(empty).shape == (2,)


def test_what_cannot_move_is_refused_by_name() -> None:
    with ProcessCluster(ps=2, workers=1, local=("worker", 0)) as cluster:
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", [2], initializer=tf.zeros_initializer())
            with tf.colocate_with(v):
                queue = tf.FIFOQueue(3, tf.float32, shared_name="line", name="line_op")
        with tf.Session(cluster.server.target) as session:
            session.run([v.initializer, queue.enqueue(1.0)])
            with pytest.raises(tf.errors.FailedPreconditionError, match="cannot move: line_op"):
                tf.move_variables(cluster.server.target, {"v": PS[1]})
            with pytest.raises(tf.errors.NotFoundError, match="no_such"):
                tf.move_variables(cluster.server.target, {"no_such": PS[1]})
            with pytest.raises(tf.errors.InvalidArgumentError, match="task:7 is not in the cluster"):
                tf.move_variables(cluster.server.target, {"v": "/job:ps/task:7"})
            assert tf.move_variables(cluster.server.target, {"v": PS[0]}) == {}
            assert session.run([v, queue.size()])[1] == 1


def test_a_drained_task_gives_away_what_whoever_asks_does_not_know() -> None:
    with ProcessCluster(ps=3, workers=1, local=("worker", 0)) as cluster:
        with tf.device("/job:ps/task:0"):
            known = tf.get_variable("known", initializer=tf.constant(1.0))
            late = tf.get_variable("late", initializer=tf.constant(2.0))
            empty = tf.get_variable("empty", [2])
        with tf.Session(cluster.server.target) as session:
            session.run([known.initializer, late.initializer, tf.is_variable_initialized(empty)])
            mover = VariableMover.at(cluster.server.target)
            key = next(key for key in mover.variables(PS[:1])[PS[0]].sizes if key[1] == "known")
            moved = mover.move({PS[0]: {key: PS[1]}}, PS[2])
            assert moved.places == {"known": PS[1], "late": PS[2], "empty": PS[2]}
            assert session.run([known, late]) == [1.0, 2.0]
            with tf.Session(cluster.server.target) as later:
                assert later.run([known, late]) == [1.0, 2.0]


def test_a_task_with_a_variable_beside_a_queue_is_not_drained() -> None:
    with ProcessCluster(ps=2, workers=1, local=("worker", 0)) as cluster:
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", initializer=tf.constant(1.0))
            with tf.colocate_with(v):
                tf.FIFOQueue(3, tf.float32, name="line_op").size()  # never run, so the task does not have it
        with tf.Session(cluster.server.target) as session:
            session.run(v.initializer)
            with pytest.raises(tf.errors.FailedPreconditionError, match="cannot move: line_op"):
                VariableMover.at(cluster.server.target).move({PS[0]: {}}, PS[1])
            assert session.run(v) == 1.0


def test_a_step_that_does_not_end_is_named_and_the_others_go_on() -> None:
    with ProcessCluster(ps=2, workers=1, local=("worker", 0)) as cluster:
        moving, _, add = _counters()
        with tf.device("/job:ps/task:0"):
            queue = tf.FIFOQueue(1, tf.int64, shapes=[[]], shared_name="stuck")
        stuck = tf.assign_add(moving, queue.dequeue(), name="stuck_step")
        with tf.Session(cluster.server.target) as session:
            session.run(tf.global_variables_initializer())
            waiting = threading.Thread(target=lambda: session.run(stuck))
            waiting.start()
            size = queue.size()
            poll(lambda: session.run(size) == 0 and _runs(cluster, "stuck_step"), "the step waits")
            with pytest.raises(tf.errors.DeadlineExceededError, match="1 steps of .*computes stuck_step:0"):
                tf.move_variables(cluster.server.target, {"moving": PS[1]}, timeout_s=0.1)
            session.run(add)
            session.run(queue.enqueue(tf.constant(10, tf.int64)))
            waiting.join()
            tf.move_variables(cluster.server.target, {"moving": PS[1]})
            assert session.run(moving) == 11


def _runs(cluster: ProcessCluster, name: str) -> bool:
    steps = [step for session in cluster.server.master.sessions.values() for step in session.steps()]
    return any(f"{name}:0" in step.plan.fetches for step in steps)


def test_a_move_that_fails_in_the_middle_lets_later_ones_and_graphs_through(monkeypatch: pytest.MonkeyPatch) -> None:
    with ProcessCluster(ps=2, workers=1, local=("ps", 0)) as cluster:
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", [], tf.int64, tf.zeros_initializer())
        with tf.Session(cluster.target("worker", 0)) as session:
            session.run(v.initializer)
            departures = cluster.server.worker.departures

            def failing(*_: object) -> None:
                raise MemoryError("no room")

            monkeypatch.setattr(departures, "origins_on", failing)
            with pytest.raises(tf.errors.InternalError, match="MemoryError: no room"):
                tf.move_variables(cluster.target("worker", 0), {"v": PS[1]}, timeout_s=0.1)
            monkeypatch.undo()
            assert session.run(tf.assign_add(v, 1)) == 1
            assert tf.move_variables(cluster.target("worker", 0), {"v": PS[1]}) == {"v": PS[1]}
            assert session.run(v) == 1


@pytest.mark.parametrize("rest, timeout_s", [("", math.inf), (PS[1], 60.0), ("", 0.0)])
def test_an_attempt_whose_answer_is_lost_has_moved_them_all_the_same(
    monkeypatch: pytest.MonkeyPatch, rest: str, timeout_s: float
) -> None:
    with ProcessCluster(ps=2, workers=1, local=("worker", 0)) as cluster:
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", initializer=tf.constant(1.0))
        with tf.Session(cluster.server.target) as session:
            session.run(v.initializer)
            mover = VariableMover.at(cluster.server.target)
            wanted = dict.fromkeys(mover.variables(PS[:1])[PS[0]].sizes, PS[1])
            call = Peer.call

            def losing(self: Peer, request: m.Message, answered, *args, **kwargs):
                def lost(answer: object) -> None:
                    answered(tf.errors.UnavailableError(None, None, "The connection is lost."))

                is_move = isinstance(request, m.MoveVariables)
                return call(self, request, lost if is_move else answered, *args, **kwargs)

            monkeypatch.setattr(Peer, "call", losing)
            assert mover.move({PS[0]: wanted}, rest, timeout_s).places == {"v": PS[1]}
            assert session.run(v) == 1.0


def test_steps_that_go_on_while_a_move_begins_change_a_large_variable_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    with ProcessCluster(ps=2, workers=1, local=("ps", 0)) as cluster:
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", [1 << 18, 5], initializer=tf.ones_initializer())
        with tf.Session(cluster.target("worker", 0)) as session:
            session.run(v.initializer)
            state = next(iter(cluster.server.worker.departures.variables().values()))
            before, holders, reserved, call = sys.getrefcount(state.pinned()), list[int](), list[int](), Peer.call

            def counting(self: Peer, request: m.Message, *args, **kwargs):
                if isinstance(request, m.StoreVariables) and not request.values:
                    holders.append(sys.getrefcount(state.pinned()))
                    reserved.extend(row[-1] for row in request.variables)
                return call(self, request, *args, **kwargs)

            monkeypatch.setattr(Peer, "call", counting)
            tf.move_variables(cluster.target("worker", 0), {"v": PS[1]})
            assert set(holders) == {before} and sum(reserved) == 5 << 18
            assert session.run(tf.reduce_sum(v)) == 5 << 18


def test_while_steps_do_not_end_the_new_task_keeps_the_memory_that_it_has_got(monkeypatch: pytest.MonkeyPatch) -> None:
    with ProcessCluster(ps=2, workers=1, local=("ps", 0)) as cluster:
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", [1 << 18, 5], initializer=tf.ones_initializer())
            queue = tf.FIFOQueue(1, tf.float32, shapes=[[]])
        add = tf.scatter_add(v, [0], tf.fill([1, 5], queue.dequeue())).op
        size, feed = queue.size(), queue.enqueue(1.0)
        with tf.Session(cluster.target("worker", 0)) as session:
            session.run(v.initializer)
            slow = threading.Thread(target=session.run, args=(add,))
            slow.start()
            held, reserved, call = threading.Semaphore(0), list[int](), Peer.call

            def counting(self: Peer, request: m.Message, *args, **kwargs):
                if isinstance(request, m.StoreVariables) and not request.values:
                    reserved.extend(row[-1] for row in request.variables)
                if isinstance(request, m.HoldSteps) and request.variables:
                    held.release()
                return call(self, request, *args, **kwargs)

            monkeypatch.setattr(Peer, "call", counting)
            moving = threading.Thread(target=tf.move_variables, args=(cluster.target("worker", 0), {"v": PS[1]}))
            moving.start()
            assert held.acquire(timeout=60) and held.acquire(timeout=60)  # the second one, since the step has not ended
            session.run(feed)
            slow.join()
            moving.join()
            assert sum(reserved) == 5 << 18
            assert session.run([tf.reduce_sum(v), size]) == [5 * (1 << 18) + 5, 0]


# ---- who dies meanwhile --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["gone", "given up"])
def test_a_move_whose_client_has_gone_ends_with_its_hold_and_lets_later_ones_begin(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    with ProcessCluster(ps=2, workers=1, local=("ps", 0)) as cluster:
        counter, add = _counter()
        with tf.device("/job:ps/task:0"):
            queue = tf.FIFOQueue(1, tf.int64, shapes=[[]])
        stuck = tf.assign_add(counter, queue.dequeue(), name="stuck_step")
        feed = queue.enqueue(tf.constant(10, tf.int64))
        departures, holds = cluster.server.worker.departures, cluster.server.master.holds
        held, hold = threading.Event(), holds.hold

        def telling(*args: Any) -> None:
            hold(*args)
            held.set()

        monkeypatch.setattr(holds, "hold", telling)
        with tf.Session(cluster.server.target) as session:
            session.run(counter.initializer)
            slow = threading.Thread(target=session.run, args=(stuck,), daemon=True)
            slow.start()
            poll(lambda: _runs(cluster, "stuck_step"), "the step waits")
            client = Endpoint(get_reactor(), "", 1)
            own, other = (cluster.target("ps", task).partition("://")[2] for task in range(2))
            rows = [[*key, PS[1]] for key in departures.variables()]
            request = m.MoveVariables(rows, [[PS[1], other]], "", 600_000)
            answers: list[Any] = []
            call = client.peer(own).call(request, answers.append)
            poll(lambda: held.is_set() or answers, "the hold")
            assert not answers
            client.close() if how == "gone" else call.cancel()
            poll(departures.begin_move, "the end of the move")
            departures.open_gate()
            session.run(feed)
            slow.join()
            client.close()
            assert len(departures.variables()) == len(rows)  # nothing has moved
            assert tf.move_variables(cluster.server.target, {"v": PS[1]}) == {"v": PS[1]}
            assert session.run(add) == 11


def _killing(
    monkeypatch: pytest.MonkeyPatch, cluster: ProcessCluster, kind: type[m.Message], victim: tuple[str, int]
) -> None:
    """Kills a task just before the process of the test sends the first message of a kind, or just before its answer."""
    call = Peer.call

    def killing(self: Peer, request: m.Message, *args, **kwargs):
        if isinstance(request, kind) and request.move:  # a hold of the number 0 belongs to a list of variables
            monkeypatch.setattr(Peer, "call", call)
            cluster.kill(*victim)
        return call(self, request, *args, **kwargs)

    monkeypatch.setattr(Peer, "call", killing)


@pytest.mark.parametrize("kind", [m.HoldSteps, m.StoreVariables])
def test_a_new_ps_that_dies_before_the_move_costs_nothing(monkeypatch: pytest.MonkeyPatch, kind) -> None:
    with ProcessCluster(ps=2, workers=1, local=("ps", 0)) as cluster:
        v, add = _counter()
        with tf.Session(cluster.target("worker", 0)) as session:
            session.run(v.initializer)
            session.run(add)
            _killing(monkeypatch, cluster, kind, ("ps", 1))
            with pytest.raises((tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.AbortedError)):
                tf.move_variables(cluster.target("worker", 0), {"v": PS[1]}, timeout_s=0.1)
            assert session.run(add) == 2
            cluster.start_task("ps", 1)
            tf.move_variables(cluster.target("worker", 0), {"v": PS[1]})
            assert session.run(add) == 3


def test_a_new_ps_that_dies_at_the_moment_of_the_move_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    with ProcessCluster(ps=2, workers=1, local=("ps", 0)) as cluster:
        v, add = _counter()
        with tf.Session(cluster.target("worker", 0)) as session:
            session.run(v.initializer)
            session.run(add)
            _killing(monkeypatch, cluster, m.SettleVariables, ("ps", 1))
            tf.move_variables(cluster.target("worker", 0), {"v": PS[1]})
            cluster.start_task("ps", 1)
            cluster.wait_ready("ps", 1)
            with pytest.raises((tf.errors.AbortedError, tf.errors.UnavailableError)):
                session.run(add)
        with tf.Session(cluster.target("worker", 0)) as fresh:
            with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized value v"):
                fresh.run(add)
            fresh.run(v.initializer)
            assert fresh.run(add) == 1


def test_an_old_ps_that_restarts_ends_the_sessions_that_it_has_told() -> None:
    with ProcessCluster(ps=2, workers=2) as cluster:
        v, add = _counter()
        with tf.Session(cluster.target("worker", 0)) as session:
            session.run(v.initializer)
            tf.move_variables(cluster.target("worker", 0), {"v": PS[1]})
            assert session.run(add) == 1
            cluster.kill("ps", 0)
            assert session.run(add) == 2  # it needs the new one alone
            cluster.start_task("ps", 0)
            cluster.wait_ready("ps", 0)

            def ended() -> bool:
                try:
                    session.run(add)
                except (tf.errors.AbortedError, tf.errors.CancelledError) as error:
                    return "was restarted, and has forgotten it" in error.message
                return False

            poll(ended, "the end of the session")
        fresh = tf.Session(cluster.target("worker", 1))  # as after the loss of any ps
        with fresh, pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized value v"):
            fresh.run(add)


def test_a_copy_that_a_restart_has_cut_off_replaces_nothing() -> None:
    with ProcessCluster(ps=3, workers=1) as cluster:
        (v, add), target = _counter(), cluster.target("worker", 0)
        with tf.Session(target) as session:
            session.run(v.initializer)
            session.run(add)
            tf.move_variables(target, {"v": PS[1]})
            session.run(add)
        cluster.kill("ps", 0)  # with the only trace of where v is
        cluster.start_task("ps", 0)
        with tf.Session(target) as fresh:
            fresh.run(v.initializer)
            # Two tasks have a variable of that name, and both would have to give it away.
            assert tf.move_variables(target, {"v": PS[2]}) == {"v": PS[2]}
            assert fresh.run(add) == 1
            assert cluster_variables(target) == {"v": [PS[2]]}


def cluster_variables(target: str) -> dict[str, list[str]]:
    """Name of each variable -> the tasks that have one."""
    found: dict[str, list[str]] = {}
    mover = VariableMover.at(target)
    for task, found_here in mover.variables(task for task in mover.tasks() if "ps" in task).items():
        for _, name in found_here.sizes:
            found.setdefault(name, []).append(task)
    return found


def test_a_worker_that_dies_while_its_steps_are_held_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with ProcessCluster(ps=2, workers=2, local=("ps", 0)) as cluster:
        v, add = _counter()
        with tf.Session(cluster.target("worker", 0)) as session:
            session.run(v.initializer)
            lost = tf.Session(cluster.target("worker", 1))
            lost.run(add)
            _killing(monkeypatch, cluster, m.StoreVariables, ("worker", 1))
            tf.move_variables(cluster.target("worker", 0), {"v": PS[1]})
            assert session.run(add) == 2
            lost.close()


def test_an_old_ps_that_dies_while_it_copies_lets_the_steps_go(monkeypatch: pytest.MonkeyPatch) -> None:
    with ProcessCluster(ps=2, workers=1, local=("ps", 1)) as cluster:
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", [], tf.int64, tf.zeros_initializer())
        with tf.device("/job:ps/task:1"):
            w = tf.get_variable("w", [], tf.int64, tf.zeros_initializer())
        both = tf.group(tf.assign_add(v, 1), tf.assign_add(w, 1))
        with tf.Session(cluster.target("worker", 0)) as session:
            session.run(tf.global_variables_initializer())
            session.run(both)
            stage, copies = cluster.server.worker.resources.staged, list[weakref.ref[VariableState]]()

            def staged(*args: Any) -> VariableState:
                cluster.kill("ps", 0)
                state = stage(*args)
                copies.append(weakref.ref(state))
                return state

            monkeypatch.setattr(cluster.server.worker.resources, "staged", staged)
            with pytest.raises((tf.errors.UnavailableError, tf.errors.DeadlineExceededError)):
                tf.move_variables(cluster.target("worker", 0), {"v": PS[1]}, timeout_s=0.1)
            monkeypatch.undo()
            with pytest.raises(tf.errors.UnavailableError):
                session.run(both)
            assert session.run(w) in (1, 2)  # the step that failed may have made its part here
        assert [copy() is None for copy in copies] == [False]
        cluster.start_task("ps", 0)
        with tf.Session(cluster.target("worker", 0)) as session:
            session.run(v.initializer)
            assert tf.move_variables(cluster.target("worker", 0), {"v": PS[1]}) == {"v": PS[1]}
            session.run(both)
        poll(lambda: copies[0]() is None, "the end of the copy that nobody can find")


def test_a_variable_that_is_reset_during_its_move_has_no_value_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new task has memory for it by then, in which anything may lie."""
    with ProcessCluster(ps=2, workers=1, local=("ps", 0)) as cluster:
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", [600_000], initializer=tf.ones_initializer())
        with tf.Session(cluster.target("worker", 0)) as session:
            session.run(v.initializer)
        call = Peer.call

        def resetting(self: Peer, request: m.Message, *args, **kwargs):
            if isinstance(request, m.StoreVariables):
                monkeypatch.setattr(Peer, "call", call)
                cluster.server.worker.resources.clear(["localhost", ""])
            return call(self, request, *args, **kwargs)

        monkeypatch.setattr(Peer, "call", resetting)
        with pytest.raises(tf.errors.OpError):
            tf.move_variables(cluster.target("worker", 0), {"v": PS[1]}, timeout_s=5.0)
        with tf.Session(cluster.target("worker", 0)) as session:
            assert not session.run(tf.is_variable_initialized(v))


# ---- Whom a task believes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["", PS[1], PS[0]])
def test_no_other_than_the_task_that_has_the_variables_holds_steps(who: str) -> None:
    with tf.train.Server({"ps": ["localhost:0"]}, "ps", 0) as server, tf.Session(server.target) as session:
        v = tf.Variable(1)
        session.run(v.initializer)
        endpoint = Endpoint(get_reactor(), who, 1)
        try:
            hold = m.HoldSteps(7, PS[0], [], True, 1 << 40, 1000)
            answer = Call(endpoint.peer(server.target.partition("://")[2]), hold).wait()
        finally:
            endpoint.close()
        assert isinstance(answer, tf.errors.PermissionDeniedError) and "only that task can" in answer.message
        assert session.run(v, options=tf.RunOptions(timeout_in_ms=20_000)) == 1


def test_a_hold_is_never_longer_than_a_move_needs() -> None:
    leases: list[float] = []
    holds = SimpleNamespace(hold=lambda move, task, keys, whole, lease_s, patience_s, held: leases.append(lease_s))
    service: Any = MovingService(SimpleNamespace(task=PS[0]), SimpleNamespace(holds=holds), None)
    for lease_ms in (1000, 1 << 40):
        service.hold_steps(SimpleNamespace(task=PS[1]), m.HoldSteps(7, PS[1], [], True, lease_ms, 1000), None)
    assert leases == [1.0, 30.0]


def test_an_interrupt_gives_up_what_it_does_not_wait_for() -> None:
    calls: list[Any] = []

    class Silent:
        def call(self, *_: Any, **__: Any) -> Any:
            calls.append(SimpleNamespace(cancelled=False))
            calls[-1].cancel = lambda call=calls[-1]: setattr(call, "cancelled", True)
            return calls[-1]

    def interrupted(waiter: Any) -> None:
        raise KeyboardInterrupt

    endpoint: Any = SimpleNamespace(reactor=SimpleNamespace(drive=interrupted), peer=lambda *_: Silent())
    mover = VariableMover({PS[0]: "a", PS[1]: "b"}, endpoint)
    with pytest.raises(KeyboardInterrupt):
        mover.variables(PS[:2])
    assert [call.cancelled for call in calls] == [True, True]
