"""Readers as state objects: reads whose steps end early."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.fake_wait import FakeWait
from tfmini.ops.io.reader_state import ReaderState, Record
from tfmini.ops.queues.queue_state import QueueState


class Letters(ReaderState):
    """The records of a work unit are its letters."""

    def start_unit(self) -> None:
        self.letters = list(self.work)

    def read_record(self) -> Record | None:
        return (b"", bytes([self.letters.pop(0)])) if self.letters else None


class Names:
    """A queue of work units that are put in one by one."""

    dtypes = (tf.string,)

    def __init__(self) -> None:
        self.waits: list[Any] = []

    def dequeue(self, wait: Any) -> None:
        if wait.on_cancel("a name", lambda: self.waits.remove(wait)):
            self.waits.append(wait)

    def put(self, unit: bytes) -> None:
        self.waits.pop(0).done([unit])


def read(reader: Letters, queue: Any, limit: int, at_once: bool = False, wait: FakeWait | None = None) -> FakeWait:
    queue.dtypes = [tf.string]
    wait = wait or FakeWait()
    reader.read_records(wait, queue, limit, at_once)
    return wait


def letters(wait: FakeWait) -> bytes:
    return b"".join(value for _, value in wait.value)


def test_records_of_a_step_that_ends_before_the_answer_go_to_the_next_one() -> None:
    reader, queue = Letters("r"), Names()
    waits = read(reader, queue, 2)
    queue.put(b"abcde")
    assert letters(waits) == b"ab"
    ended = FakeWait()
    ended.end_step()
    read(reader, queue, 2, wait=ended)
    assert not ended.answers and reader.produced == 2
    assert letters(read(reader, queue, 1)) == b"c"
    assert letters(read(reader, queue, 2)) == b"de"
    assert reader.produced == 5


def test_records_of_a_read_that_is_given_up_while_it_waits_for_a_file_go_to_the_next_one() -> None:
    reader, queue = Letters("r"), Names()
    first = read(reader, queue, 3)
    queue.put(b"a")
    second = read(reader, queue, 2)  # waits for its turn
    assert first.is_pending and second.is_pending
    first.end_step()
    assert second.is_pending
    queue.put(b"bc")
    assert letters(second) == b"ab"
    assert letters(read(reader, queue, 9, at_once=True)) == b"c"


def test_returned_records_are_an_answer_by_themselves() -> None:
    reader, queue = Letters("r"), Names()
    ended = read(reader, queue, 5)
    queue.put(b"ab")
    ended.end_step()
    assert letters(read(reader, queue, 5, at_once=True)) == b"ab"
    reader.give_back([(b"", b"x")])
    reader.reset()
    assert read(reader, queue, 1).is_pending


def test_a_thousand_reads_that_wait_take_their_turns_without_a_deep_stack() -> None:
    reader, queue = Letters("r"), Names()
    waits = [read(reader, queue, 1) for _ in range(1000)]
    queue.put(b"ab" * 500)
    assert b"".join(map(letters, waits)) == b"ab" * 500
    assert reader.produced == 1000 and not reader.busy


def test_a_read_passes_a_thousand_work_units_without_records() -> None:
    reader, queue = Letters("r"), QueueState("q", -1, [tf.string], [()])
    queue.enqueue_many(FakeWait(), [np.array([b""] * 1000 + [b"a"], object)])
    assert letters(read(reader, queue, 1)) == b"a"
    assert reader.units_started == 1001


class Broken(Letters):
    """Its first work unit has a record that cannot be read, for a reason that is no error of TensorFlow's."""

    def read_record(self) -> Record | None:
        if self.letters == [ord("!")]:
            self.letters.clear()
            raise OSError(5, "Input/output error")
        return super().read_record()


def test_a_read_that_fails_for_any_reason_ends_its_turn() -> None:
    reader, queue = Broken("r"), Names()
    failing, later = read(reader, queue, 3), read(reader, queue, 1)
    queue.put(b"a")
    queue.put(b"!")
    with pytest.raises(tf.errors.InternalError, match="Input/output error"):
        letters(failing)
    assert later.is_pending
    queue.put(b"b")
    assert letters(later) == b"b" and not reader.busy
