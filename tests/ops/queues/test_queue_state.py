"""Queues as state objects: order, closing, batches, cancelled waits; no session, no threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.fake_wait import FakeWait
from tests.ops.queues.queue_calls import KINDS, close, full, put, queue_of, take, take_many
from tfmini import dtypes, errors
from tfmini.ops.queues.queue_state import PriorityQueueState, QueueState, ShuffleQueueState


@pytest.mark.parametrize("kind", KINDS)
def test_closing_fails_dequeues_that_cannot_be_satisfied(kind: type[QueueState]) -> None:
    queue = queue_of(kind)
    waits = [take(queue), take_many(queue, 2), take_many(queue, 2, allow_fewer=True)]
    assert close(queue).value == ()
    for wait in waits:
        with pytest.raises(errors.OutOfRangeError, match=f"{kind.kind} 'q' is closed and has insufficient elements"):
            _ = wait.value


@pytest.mark.parametrize("kind", KINDS)
def test_closing_waits_for_earlier_enqueues_and_refuses_later_ones(kind: type[QueueState]) -> None:
    queue = full(kind)
    before, closing, behind = put(queue, 3), close(queue), put(queue, 4)
    assert before.is_pending and closing.is_pending and behind.is_pending
    take(queue)
    assert before.value == () and closing.value == ()
    with pytest.raises(errors.CancelledError, match=f"{kind.kind} 'q' is closed."):
        _ = behind.value
    with pytest.raises(errors.CancelledError, match="Queue 'q' is already closed."):
        _ = close(queue).value


@pytest.mark.parametrize("kind", KINDS)
def test_closing_with_cancel_cancels_waiting_enqueues(kind: type[QueueState]) -> None:
    queue = full(kind)
    wait = put(queue, 3)
    assert close(queue, cancel=True).value == ()
    with pytest.raises(errors.CancelledError, match="Enqueue operation was cancelled"):
        _ = wait.value
    assert [len(take(queue).value) for _ in range(2)] == [2, 2]


def test_dequeue_up_to_returns_the_rest_of_a_closed_queue() -> None:
    queue = queue_of(capacity=10)
    put(queue, 1, 2, 3)
    wait = take_many(queue, 5, allow_fewer=True)
    close(queue)
    assert wait.value[0].tolist() == [1, 2, 3]


def test_dequeue_many_that_fails_returns_its_elements_to_the_queue() -> None:
    queue = queue_of(capacity=10)
    wait = take_many(queue, 5)
    put(queue, 1, 2, 3)
    assert queue.size() == 0  # they are the waiting batch's
    close(queue)
    with pytest.raises(errors.OutOfRangeError, match=r"requested 2, current size 0"):
        _ = wait.value
    assert [int(take(queue).value[0]) for _ in range(3)] == [1, 2, 3]


def test_elements_of_a_cancelled_dequeue_many_go_to_the_next_dequeue() -> None:
    queue = queue_of(capacity=10)
    gone, following = take_many(queue, 3), take(queue)
    put(queue, 1, 2)
    assert following.is_pending
    gone.end_step()
    assert int(following.value[0]) == 1
    assert queue.size() == 1


def test_dequeues_are_served_in_order() -> None:
    queue = queue_of(capacity=10)
    many, one = take_many(queue, 2), take(queue)
    put(queue, 1)
    assert many.is_pending and one.is_pending
    put(queue, 2, 3)
    assert many.value[0].tolist() == [1, 2] and int(one.value[0]) == 3


def test_a_batch_may_be_larger_than_the_queue() -> None:
    queue = queue_of(capacity=2)
    adding, taking = put(queue, *range(7)), take_many(queue, 7)
    assert adding.value == ()
    assert taking.value[0].tolist() == list(range(7))


def test_a_shuffle_queue_keeps_its_minimum_until_it_is_closed() -> None:
    queue = ShuffleQueueState("q", 10, [dtypes.int64, dtypes.int64], [(), ()], min_after_dequeue=2)
    put(queue, 1, 2, 3)
    first, second = take(queue), take(queue)
    assert not first.is_pending and second.is_pending
    close(queue)
    assert {int(w.value[0]) for w in (first, second, take(queue))} == {1, 2, 3}


def test_elements_are_dequeued_by_priority() -> None:
    queue = queue_of(PriorityQueueState, capacity=10)
    put(queue, 5, 1, 3)
    assert take_many(queue, 3).value[0].tolist() == [1, 3, 5]
    vector = PriorityQueueState("q", 5, [dtypes.int64], [])
    wait = FakeWait()
    vector.enqueue(wait, [np.array([1, 2])])
    with pytest.raises(errors.InvalidArgumentError, match=r"priority element to be a scalar.*\[2\]"):
        _ = wait.value


def test_ten_thousand_waits_cost_little_and_end_in_order() -> None:
    queue = queue_of(capacity=-1)
    waits = [take(queue) for _ in range(10_000)]
    for wait in waits[::2]:
        wait.end_step()
    put(queue, *range(5_000))
    assert [int(w.value[0]) for w in waits[1::2]] == list(range(5_000))


@given(st.lists(st.sampled_from(["put", "take", "many", "end", "close"]), max_size=40), st.data())
def test_no_element_is_lost_or_given_twice(actions: list[str], data: st.DataObject) -> None:
    queue = queue_of(capacity=3)
    put_in: list[tuple[int, FakeWait]] = []
    takers: list[FakeWait] = []
    for i, action in enumerate(actions):
        if action == "put":
            put_in.append((i, put(queue, i)))
        elif action == "take":
            takers.append(take(queue))
        elif action == "many":
            takers.append(take_many(queue, 2, allow_fewer=data.draw(st.booleans())))
        elif action == "end" and takers:
            data.draw(st.sampled_from(takers)).end_step()
        elif action == "close":
            close(queue)
    for wait in takers:
        wait.end_step()  # what incomplete batches hold comes back
    accepted = [i for i, wait in put_in if wait.answers and not isinstance(wait.answers[0], errors.OpError)]
    given_out = [
        int(value)
        for wait in takers
        if wait.answers and not isinstance(wait.answers[0], errors.OpError)
        for value in np.ravel(wait.answers[0][0])
    ]
    left = [int(element[0]) for element in queue._elements]
    waiting = [i for i, wait in put_in if wait.is_pending]
    assert sorted(given_out + left) == sorted(accepted + [i for i in left if i in waiting])
    assert given_out == sorted(given_out)


def test_a_renewed_queue_is_open_and_empty_and_ends_the_waits_before() -> None:
    queue = queue_of()
    waiting = take_many(queue, 2)
    put(queue, 1)
    queue.renew()
    with pytest.raises(errors.AbortedError, match="'q' was emptied"):
        _ = waiting.value
    assert queue.size() == 0 and queue.is_fresh
    put(queue, 2)
    assert not queue.is_fresh
    close(queue)
    queue.renew()
    assert put(queue, 3).value == () and len(take(queue).value) == 2
