"""Variables on fake GPUs, of which several threads, several handles and interrupts ask much at once."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.graph import raw_ops
from tfmini.graph.device_types import FAKE_ENV

jax = pytest.importorskip("jax")

from tfmini.xla import variables  # noqa: E402 - it imports JAX
from tfmini.xla.execution import CompiledStretch  # noqa: E402

_TIMEOUT_S = 60


@pytest.fixture(autouse=True)
def _fake_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAKE_ENV, "1")


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The variables that sessions have made on GPUs."""
    found: list[Any] = []
    make = variables.DeviceVariable.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        found.append(self)

    monkeypatch.setattr(variables.DeviceVariable, "__init__", init)
    return found


class _NotedLock:
    """A lock that says when a thread comes to it."""

    def __init__(self, come: threading.Event) -> None:
        self.lock, self.come = threading.Lock(), come

    def __enter__(self) -> None:
        if self.lock.locked():
            self.come.set()
        self.lock.acquire()

    def __exit__(self, *args: object) -> None:
        self.lock.release()


def test_a_reader_never_gets_a_buffer_that_is_being_donated(states: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    come, seen = threading.Event(), list[Any]()
    trace = CompiledStretch.trace

    def read() -> None:
        seen.append(states[0].read())
        come.set()

    reader = threading.Thread(target=read, daemon=True)

    def traced(self: Any, *args: Any) -> Any:
        reader.start()
        assert come.wait(_TIMEOUT_S)  # the reader has got something, or waits for the lock
        return trace(self, *args)

    with tf.Graph().as_default(), tf.device("/gpu:0"), tf.Session() as session:
        v = tf.get_variable("v", [3], initializer=tf.zeros_initializer())
        up = tf.assign_add(v, [1.0, 1.0, 1.0]).op
        session.run(v.initializer)
        states[0].lock = _NotedLock(come)
        monkeypatch.setattr(CompiledStretch, "trace", traced)
        session.run(up)
    reader.join(_TIMEOUT_S)
    assert np.asarray(seen[0]).tolist() == [1, 1, 1]


def test_a_step_reads_before_it_locks(states: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Else two steps whose reads and updates cross wait for each other."""
    held: list[bool] = []
    read = variables.DeviceVariable.read
    with tf.Graph().as_default(), tf.device("/gpu:0"), tf.Session() as session:
        v, w = (tf.get_variable(name, [], initializer=tf.ones_initializer()) for name in "vw")
        up = tf.assign_add(v, w * 2.0)
        session.run(tf.global_variables_initializer())

        def noted(self: Any) -> Any:
            held.append(any(state.lock.locked() for state in states))
            return read(self)

        monkeypatch.setattr(variables.DeviceVariable, "read", noted)
        assert session.run(up) == 3
    assert held and not any(held)


@pytest.mark.parametrize("count", [1, 2])
def test_an_interrupt_leaves_the_old_or_the_new_values(
    states: list[Any], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    with tf.Graph().as_default(), tf.device("/gpu:0"), tf.Session() as session:
        made = [tf.get_variable(f"v{i}", [3], initializer=tf.zeros_initializer()) for i in range(count)]
        up = tf.group(*(tf.assign_add(v, [1.0, 1.0, 1.0]) for v in made))
        session.run(tf.global_variables_initializer())
        session.run(up)
        dispatch = CompiledStretch.dispatch

        def late(self: Any, *args: Any) -> None:
            dispatch(self, *args)
            raise KeyboardInterrupt

        def early(self: Any, *args: Any) -> None:
            raise KeyboardInterrupt

        for broken, expected in ((late, 2), (early, 2)):
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(CompiledStretch, "dispatch", broken)
                session.run(up)
            assert not any(state.lock.locked() for state in states)
            assert [value.tolist() for value in session.run(made)] == [[expected] * 3] * count
        session.run(up)
        assert session.run(made[0]).tolist() == [3, 3, 3]


def test_a_variable_whose_donated_buffer_is_lost_is_uninitialised(states: list[Any]) -> None:
    with tf.Graph().as_default(), tf.device("/gpu:0"), tf.Session() as session:
        session.run(tf.get_variable("v", [3], initializer=tf.zeros_initializer()).initializer)

    def fails(values: list[Any], box: list[Any]) -> None:
        values[0].delete()  # as XLA does when it begins
        raise tf.errors.InternalError(None, None, "lost")

    with pytest.raises(tf.errors.InternalError):
        variables.exchange(states, fails)
    with pytest.raises(tf.errors.FailedPreconditionError):
        states[0].read()


@pytest.mark.parametrize("looped", [False, True])
def test_two_handles_of_one_variable(looped: bool) -> None:
    def handle(name: str) -> Any:
        return raw_ops.VarHandleOp(dtype=tf.float32, shape=[3], shared_name="shared", name=name)

    with tf.Graph().as_default(), tf.device("/gpu:0"), tf.Session() as session:
        first, second = handle("first"), handle("second")
        start = raw_ops.AssignVariableOp(first, tf.zeros([3]))
        yes = tf.placeholder_with_default(True, [])

        def add() -> Any:
            with tf.control_dependencies([raw_ops.AssignAddVariableOp(second, tf.ones([3]))]):
                return tf.constant(1.0)

        ups = [raw_ops.AssignAddVariableOp(first, tf.ones([3])), tf.cond(yes, add, lambda: 0.0) if looped else add()]
        value = raw_ops.ReadVariableOp(second, dtype=tf.float32)
        session.run(start)
        for _ in range(3):
            session.run(ups)
        assert session.run(value).tolist() == [6, 6, 6]
        with tf.control_dependencies([ups[0]]):
            after = raw_ops.ReadVariableOp(second, dtype=tf.float32) * 2.0
        assert session.run(after).tolist() == [14, 14, 14]


def test_each_compilation_has_its_own_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    both, trace = threading.Barrier(2), CompiledStretch.trace
    before = {t for t in threading.enumerate() if isinstance(t, threading.Timer)}

    def traced(self: Any, *args: Any) -> Any:
        both.wait(_TIMEOUT_S)
        return trace(self, *args)

    with tf.Graph().as_default(), tf.device("/gpu:0"), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None])
        y = tf.reduce_sum(x * 2.0)
        monkeypatch.setattr(CompiledStretch, "trace", traced)
        steps = [threading.Thread(target=session.run, args=(y, {x: [1.0] * n}), daemon=True) for n in (2, 3)]
        for step in steps:
            step.start()
        for step in steps:
            step.join(_TIMEOUT_S)
    timers = {t for t in threading.enumerate() if isinstance(t, threading.Timer)} - before
    assert all(timer.finished.is_set() for timer in timers)
