"""`VariableState`: exact under threads, never torn, snapshots stay, and no copy where none is needed."""

from __future__ import annotations

import signal
import threading
import tracemalloc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.polling import poll
from tfmini import dtypes
from tfmini.errors import FailedPreconditionError, InvalidArgumentError
from tfmini.ops.variables import state as state_module
from tfmini.ops.variables.state import VariableState, move_away, update_together


def _state(value: Any, dtype: dtypes.DType = dtypes.float64) -> VariableState:
    state = VariableState("v", dtype, None)
    state.assign(np.asarray(value, dtype.numpy))
    return state


def _add(buffer: Any, delta: Any) -> None:
    buffer += delta


def _in_threads(count: int, work: Any) -> None:
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_updates_of_many_threads_add_up() -> None:
    state = _state(np.zeros(64))
    _in_threads(8, lambda _: [state.update(_add, 1.0) for _ in range(500)])
    assert (state.read() == 4000).all()


def test_updates_of_several_variables_are_one_update() -> None:
    a, b = _state(np.zeros(8)), _state(np.zeros(8))

    def both(x: Any, y: Any, delta: float) -> None:
        assert (x == y).all()
        x += delta
        y += delta

    def work(i: int) -> None:
        for _ in range(300):
            first, second = (a, b) if i % 2 else (b, a)
            update_together([first, second], both, 1.0)

    _in_threads(4, work)
    assert a.read()[0] == b.read()[0] == 1200


def test_readers_never_see_half_an_update() -> None:
    state = _state(np.zeros(20_000))
    done = threading.Event()
    torn: list[Any] = []

    def read(_: int) -> None:
        while not done.is_set():
            value = state.read()
            first, last = value[0], value[-1]
            if first != last or (value != first).any():
                torn.append((first, last))

    readers = [threading.Thread(target=read, args=(i,)) for i in range(2)]
    for reader in readers:
        reader.start()
    for i in range(100):
        state.update(_add, 1.0)
        state.assign(np.full(20_000, float(i)))
    done.set()
    for reader in readers:
        reader.join(60)
    assert not torn


def test_a_value_that_was_read_does_not_change() -> None:
    state = _state([1.0, 2.0])
    before = state.read()
    view = state.read()[1:]
    state.update(_add, 1.0)
    state.assign(np.array([7.0, 8.0]))
    assert before.tolist() == [1.0, 2.0] and view.tolist() == [2.0]
    assert state.read().tolist() == [7.0, 8.0]


def test_a_value_without_other_references_is_updated_in_place() -> None:
    state = _state(np.zeros(10))
    address = state.read().ctypes.data
    state.update(_add, 1.0)
    state.assign(np.ones(10))
    assert state.read().ctypes.data == address


def test_assignment_copies_the_value() -> None:
    value = np.ones(3)
    state = _state(np.zeros(3))
    state.assign(value)
    value[:] = 5
    assert state.read().tolist() == [1, 1, 1]


def test_a_variable_can_be_assigned_from_itself() -> None:
    state = _state([1.0, 2.0])
    state.assign(state.read()[::-1])
    assert state.read().tolist() == [2.0, 1.0]


def test_the_first_assignment_makes_one_copy() -> None:
    value = np.zeros(1_000_000)
    state = VariableState("v", dtypes.float64, (None,))
    tracemalloc.start()
    state.assign(value)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.1 * value.nbytes


def test_an_update_that_fails_leaves_the_variable_usable() -> None:
    state = _state([1.0])

    def fail(buffer: Any) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        state.update(fail)
    state.update(_add, 1.0)
    assert state.read().tolist() == [2.0]


class _Uncopyable(np.ndarray[Any, Any]):
    """An array whose copy fails, as for lack of memory or on Ctrl-C."""

    failure: type[BaseException] = MemoryError

    def copy(self, *_: Any) -> Any:  # type: ignore[override]
        raise self.failure


@pytest.mark.parametrize("failure", [MemoryError, KeyboardInterrupt])
def test_a_copy_that_fails_leaves_the_variables_as_they_were(
    failure: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Uncopyable, "failure", failure)
    state, other = _state([1.0]), _state([2.0])
    state._value = np.ones(1).view(_Uncopyable)
    held = state.read()
    with pytest.raises(failure):
        state.update(_add, 1.0)
    for states in ([state, other], [other, state]):
        with pytest.raises(failure):
            update_together(states, lambda *buffers: None)
    assert state.read() is held and other.read().tolist() == [2.0]
    state.assign(np.zeros(1))
    state.update(_add, 1.0)
    assert state.read().tolist() == [1.0]


def test_an_assignment_without_memory_for_a_copy_leaves_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise MemoryError

    state = _state([1.0])
    held, _also = state.read(), state.read()  # a reader and the caller's name, after `assign` has counted
    with monkeypatch.context() as patch:
        patch.setattr(state_module, "np", SimpleNamespace(array=fail, empty_like=fail, copyto=np.copyto))
        with pytest.raises(MemoryError):
            state._assign_in_place(np.zeros(1))
    assert state.read() is held and held.tolist() == [1.0]


def test_uninitialized_reads_and_wrong_shapes_are_refused() -> None:
    state = VariableState("w", dtypes.float32, (2, None))
    for use in (state.read, lambda: state.update(_add, 1)):
        with pytest.raises(FailedPreconditionError, match="Attempting to use uninitialized value w"):
            use()
    with pytest.raises(InvalidArgumentError, match=r"lhs shape= \[2,\?\] rhs shape= \[3\]"):
        state.assign(np.zeros(3, np.float32))
    state.assign(np.zeros((2, 1), np.float32))
    with pytest.raises(InvalidArgumentError, match=r"lhs shape= \[2,1\] rhs shape= \[2,3\]"):
        state.assign(np.zeros((2, 3), np.float32))
    state.assign(np.zeros((2, 3), np.float32), validate_shape=False)
    assert state.read().shape == (2, 3)
    state.clear()
    assert not state.is_initialized


def test_a_scalar_string_reads_as_bytes() -> None:
    state = VariableState("s", dtypes.string, ())
    state.assign(b"abc")
    assert state.read() == b"abc" and isinstance(state.read(), bytes)


def _temporary(name: str, destroyed_as: str) -> tuple[Any, Any]:
    """A temporary variable of this name in the default graph, and its destruction under the other name."""
    variable = tf.raw_ops.TemporaryVariable(shape=[2], dtype=tf.float32, var_name=name)
    assigned = tf.raw_ops.Assign(ref=variable, value=[1.0, 2.0])
    return assigned, tf.raw_ops.DestroyTemporaryVariable(ref=assigned, var_name=destroyed_as)


def test_a_temporary_variable_is_destroyed_once_and_by_its_name() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        assert session.run(_temporary("a", "a")[1]).tolist() == [1.0, 2.0]
        with pytest.raises(tf.errors.NotFoundError, match="no temporary variable 'bad' in this step; the input is 'b'"):
            session.run(_temporary("b", "bad")[1])
        variable, first = _temporary("c", "c")
        with tf.control_dependencies([first]):
            second = tf.raw_ops.DestroyTemporaryVariable(ref=variable, var_name="c")
        with pytest.raises(tf.errors.NotFoundError, match="it was destroyed before"):
            session.run(second)


def test_a_graph_tells_its_container_and_the_old_name_of_an_aggregation_stays() -> None:
    with tf.Graph().as_default() as graph:
        assert graph._container == ""
        with tf.container("shared"):
            assert graph._container == "shared"
    assert tf.VariableAggregation.ONLY_FIRST_TOWER is tf.VariableAggregation.ONLY_FIRST_REPLICA


@pytest.mark.parametrize("how", ["update_together", "move_away"])
def test_an_interrupt_while_one_of_several_locks_is_waited_for_lets_the_others_go(how: str) -> None:
    first, last = sorted((_state(np.zeros(2)), _state(np.zeros(2))), key=id)
    main, pinned = threading.get_ident(), {state: state.pinned() for state in (first, last)}
    told: list[int] = []

    def raise_once(*_: object) -> None:
        told.append(1)
        if len(told) == 1:
            raise KeyboardInterrupt

    def interrupt() -> None:
        poll(first.lock.locked, "the first lock")
        # Python does not wake for a signal that comes just before it waits; so one comes after the other.
        poll(lambda: told or signal.pthread_kill(main, signal.SIGINT), "the interrupt")

    usual = signal.signal(signal.SIGINT, raise_once)
    thread = threading.Thread(target=interrupt)
    with last.lock, pytest.raises(KeyboardInterrupt):
        thread.start()
        if how == "update_together":
            update_together([last, first], lambda *_: None)
        else:
            move_away(pinned, {})
    thread.join()
    signal.signal(signal.SIGINT, usual)
    assert not first.lock.locked() and not last.lock.locked()
    first.update(_add, 1.0)
    assert first.read().tolist() == [1, 1] and last.read().tolist() == [0, 0]


def test_a_reference_and_a_resource_variable_of_one_name_are_two_variables() -> None:
    """Graphs of two clients, with the answers of TensorFlow 1.15.5."""

    def client(use_resource: bool) -> Any:
        with tf.Graph().as_default() as graph:
            v = tf.get_variable("v", [2], initializer=tf.zeros_initializer(), use_resource=use_resource)
            return tf.Session(server.target, graph), v, v.assign_add([1.0, 2.0]), v.initializer

    with tf.train.Server.create_local_server() as server:
        (one, a, add_a, start_a), (other, b, add_b, start_b) = client(False), client(True)
        with one, other:
            one.run([start_a])
            with pytest.raises(tf.errors.FailedPreconditionError, match="reading resource variable v from Container"):
                other.run(b)
            other.run(start_b)
            one.run(add_a.op)
            for _ in range(2):
                other.run(add_b.op)
            assert one.run(a).tolist() == [1, 2] and other.run(b).tolist() == [2, 4]
        with client(False)[0] as again, again.graph.as_default():
            assert again.run("v:0").tolist() == [1, 2]
