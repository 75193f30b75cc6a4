"""Reads that wait: deadlines, cancellation, and that nobody else is held up by them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import tfmini as tf
from tests.ops.fake_wait import FakeWait
from tfmini.data.prefetching import AsyncReader

Dataset = tf.data.Dataset


class Gate:
    """A generator of numbers that waits before each one until it is let on."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.open = threading.Semaphore(0)

    def numbers(self) -> Iterator[int]:
        for i in range(100):
            self.asked.release()
            assert self.open.acquire(timeout=60)
            yield i


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    for _ in range(100):
        made.open.release()


def failing(call: Any) -> tuple[threading.Thread, list[BaseException]]:
    """Runs a call in a thread; what it raises is put into the list."""
    raised: list[BaseException] = []

    def body() -> None:
        try:
            call()
        except tf.errors.OpError as error:
            raised.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    return thread, raised


@pytest.mark.parametrize("prefetch", [0, 1])
def test_a_read_has_a_deadline_and_loses_no_element(gate: Gate, prefetch: int) -> None:
    data = Dataset.from_generator(gate.numbers, tf.int32, []).prefetch(prefetch)
    element = data.make_one_shot_iterator().get_next()
    with tf.Session() as session:
        with pytest.raises(tf.errors.DeadlineExceededError, match='waits for an element of iterator ".*OneShotIt'):
            session.run(element, options=tf.RunOptions(timeout_in_ms=100))
        gate.open.release()
        gate.open.release()
        assert [session.run(element) for _ in range(2)] == [0, 1]


def test_closing_the_session_ends_a_read(gate: Gate) -> None:
    element = Dataset.from_generator(gate.numbers, tf.int32, []).make_one_shot_iterator().get_next()
    session = tf.Session()
    thread, raised = failing(lambda: session.run(element))
    assert gate.asked.acquire(timeout=60)
    session.close()
    thread.join(60)
    assert [type(error) for error in raised] == [tf.errors.CancelledError]


def test_initializing_an_iterator_again_ends_its_pending_reads(gate: Gate) -> None:
    iterator = Dataset.from_generator(gate.numbers, tf.int32, []).make_initializable_iterator()
    element = iterator.get_next()
    with tf.Session() as session:
        session.run(iterator.initializer)
        thread, raised = failing(lambda: session.run(element))
        assert gate.asked.acquire(timeout=60)
        session.run(iterator.initializer)
        thread.join(60)
        assert len(raised) == 1 and "it was initialized again" in str(raised[0])
        for _ in range(2):
            gate.open.release()
        assert session.run(element) == 0


def test_several_steps_wait_for_one_iterator(gate: Gate) -> None:
    element = Dataset.from_generator(gate.numbers, tf.int32, []).make_one_shot_iterator().get_next()
    found: list[int] = []
    with tf.Session() as session:
        threads = [threading.Thread(target=lambda: found.append(int(session.run(element)))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(4):
            gate.open.release()
        for thread in threads:
            thread.join(60)
    assert sorted(found) == [0, 1, 2, 3]


ENDLESS = {
    "filter": lambda: Dataset.range(1).repeat().filter(lambda x: x > 3),
    "skip": lambda: Dataset.range(1).repeat().skip(2**60),
    "ignore_errors": lambda: (
        Dataset.range(1).repeat().map(lambda x: tf.check_numerics(1 / tf.cast(x, tf.float32), "no"))
        .apply(tf.data.experimental.ignore_errors())
    ),
    "flat_map": lambda: Dataset.range(1).repeat().flat_map(lambda x: Dataset.range(0)),
    "loop": lambda: Dataset.range(1).map(lambda x: tf.while_loop(lambda i: i >= 0, lambda i: i * 0, [x])),
}  # fmt: skip


@pytest.mark.parametrize("prefetch", [0, 1])
@pytest.mark.parametrize("name", list(ENDLESS))
def test_an_endless_search_has_a_deadline(name: str, prefetch: int) -> None:
    element = ENDLESS[name]().prefetch(prefetch).make_one_shot_iterator().get_next()
    with tf.Session() as session, pytest.raises(tf.errors.DeadlineExceededError):
        session.run(element, options=tf.RunOptions(timeout_in_ms=50))


def test_an_endless_reduction_has_a_deadline() -> None:
    data = Dataset.from_tensors(1).repeat()
    total = data.reduce(0, lambda state, x: state + x)
    session = tf.Session()
    with pytest.raises(tf.errors.DeadlineExceededError):
        session.run(total, options=tf.RunOptions(timeout_in_ms=50))
    began = threading.Event()
    seen = data.reduce(0, lambda state, x: tf.py_func(lambda s: began.set() or s, [state], tf.int32))
    thread, raised = failing(lambda: session.run(seen))
    assert began.wait(60)
    session.close()
    thread.join(60)
    assert [type(error) for error in raised] == [tf.errors.CancelledError]


def test_an_element_whose_step_ends_before_the_answer_goes_to_the_next_step() -> None:
    class Deaf(FakeWait):
        def done(self, result: Any = None) -> bool:
            return False

    stage: Any = iter([(1,), (2,)])
    reader = AsyncReader(_Ready(stage), "it")  # type: ignore[arg-type]
    reader.ask(Deaf())
    waits = [FakeWait(), FakeWait()]
    for wait in waits:
        reader.ask(wait)
    assert [wait.value for wait in waits] == [(1,), (2,)]
    assert reader.turns == 2


def test_an_element_is_counted_before_its_step_ends() -> None:
    counts = []

    class Looking(FakeWait):
        def done(self, result: Any = None) -> bool:
            counts.append(reader.turns)
            return super().done(result)

    stage: Any = iter([(1,), (2,)])
    reader = AsyncReader(_Ready(stage), "it")  # type: ignore[arg-type]
    for _ in range(3):
        reader.ask(Looking())
    assert counts == [1, 2, 2]


class _Ready:
    """A stage whose next element is always available."""

    ready = True

    def __init__(self, elements: Iterator[Any]) -> None:
        self._elements = elements

    def __next__(self) -> Any:
        return next(self._elements)


@pytest.mark.parametrize("ahead", [0, 2])
def test_a_function_or_generator_that_exits_ends_the_step(ahead: int) -> None:
    def numbers() -> Iterator[int]:
        yield 1
        sys.exit(3)

    def exit_at_one(x: int) -> int:
        return sys.exit(3) if x == 1 else x

    Dataset = tf.data.Dataset
    made = Dataset.range(1, 3).map(lambda x: tf.py_func(exit_at_one, [x - 1], tf.int64))
    for dataset in (Dataset.from_generator(numbers, tf.int64), made):
        with tf.Session() as session:
            iterator = dataset.prefetch(ahead).make_initializable_iterator()
            element = iterator.get_next()
            session.run(iterator.initializer)
            session.run(element)
            with pytest.raises(tf.errors.UnknownError, match="SystemExit: 3"):
                session.run(element, options=tf.RunOptions(timeout_in_ms=20000))
