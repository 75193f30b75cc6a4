"""The state of a work queue: leases, acknowledgements, epochs, checkpoints."""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import Any

import pytest

from tests.ops.fake_wait import FakeWait
from tfmini import errors
from tfmini.ops.queues.work_queue import ShardSettings, Ticket, WorkQueueState, WorkTaker


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def made(
    works: int = 3, epochs: int = 1, shuffle: bool = False, lease_s: float = 10, **settings: Any
) -> WorkQueueState:
    texts = tuple(b"%d" % i for i in range(works))
    clock = _Clock()
    queue = WorkQueueState("q", ShardSettings(texts, epochs, shuffle, 7, int(lease_s * 1e3)), clock)
    queue.test_clock = clock  # type: ignore[attr-defined]
    return queue


def pass_time(queue: WorkQueueState, seconds: float) -> None:
    queue.test_clock.now += seconds  # type: ignore[attr-defined]
    queue.changed()


def take(queue: WorkQueueState, taker: WorkTaker, acknowledges: bool = False) -> FakeWait:
    wait = FakeWait()
    queue.take(wait, taker, acknowledges)
    return wait


def work(wait: FakeWait) -> bytes:
    return wait.value[0].item()  # type: ignore[no-any-return]


def ticket(wait: FakeWait) -> Ticket:
    return Ticket(*wait.value[1].tolist())


A, B = WorkTaker("a"), WorkTaker("b")


def test_each_epoch_has_each_work_once_in_an_order_of_its_own() -> None:
    queue = made(works=20, epochs=2, shuffle=True)
    found = [work(take(queue, A, acknowledges=True)) for _ in range(40)]
    assert sorted(found[:20]) == sorted(found[20:]) == sorted(b"%d" % i for i in range(20)) and found[:20] != found[20:]
    with pytest.raises(errors.OutOfRangeError, match='All works of the queue "q" are done'):
        _ = take(queue, A, acknowledges=True).value


def test_an_acknowledged_work_is_never_handed_out_again() -> None:
    queue = made(works=2)
    first, second = take(queue, A), take(queue, A)
    assert queue.acknowledge(ticket(first)) and not queue.acknowledge(ticket(first))
    pass_time(queue, 11)
    again = take(queue, B)
    assert work(again) == work(second) == b"1"
    assert not queue.acknowledge(ticket(second))  # the slow worker is too late
    waiting = take(queue, A)
    assert waiting.is_pending and waiting.cause == 'a work of "q": all that are left are on lease'
    assert queue.acknowledge(ticket(again)) and queue.left == 0
    with pytest.raises(errors.OutOfRangeError):
        _ = waiting.value


def test_a_worker_may_acknowledge_late_what_nobody_else_has_got() -> None:
    queue = made(works=2)
    slow = WorkTaker("slow")
    first = take(queue, slow)
    slow.clear()  # its session has ended
    assert queue.acknowledge(ticket(first)) and work(take(queue, B)) == b"1"
    queue = made(works=2)
    take(queue, A)
    pass_time(queue, 11)
    assert work(take(queue, B)) == b"0"  # the one whose lease is over goes first


def test_a_renewed_lease_does_not_end() -> None:
    queue = made(works=1)
    first = take(queue, A)
    pass_time(queue, 6)
    assert queue.renew(ticket(first))
    pass_time(queue, 6)
    assert take(queue, B).is_pending
    pass_time(queue, 5)
    assert not queue.renew(ticket(first))


def test_a_waiting_taker_gets_the_work_when_a_lease_ends_without_another_event() -> None:
    queue = WorkQueueState("q", ShardSettings((b"x",), 1, False, 0, 50))
    take(queue, A)
    came, threads = threading.Event(), []

    class Told(FakeWait):
        def done(self, result: Any = None) -> bool:
            threads.append(threading.current_thread().name)
            came.set()
            return super().done(result)

    waiting = Told()
    queue.take(waiting, B, False)
    assert came.wait(30) and work(waiting) == b"x" and threads == ["tfmini-leases"]


def test_works_of_a_session_that_ends_are_for_others() -> None:
    queue = made(works=3, lease_s=1000)
    gone = WorkTaker("gone")
    take(queue, gone), take(queue, gone)
    last = take(queue, A)
    waiting = take(queue, B)
    gone.clear()
    assert [work(last), work(waiting)] == [b"2", b"0"] and work(take(queue, B)) == b"1"


def test_a_work_whose_taker_has_ended_before_the_answer_is_not_lost() -> None:
    queue = made(works=1)
    ended = FakeWait()
    ended.ended = True
    queue.take(ended, A, False)
    assert work(take(queue, B)) == b"0"


def test_works_are_added_to_this_epoch_and_later_ones() -> None:
    queue = made(works=1, epochs=2)
    assert work(take(queue, A, True)) == b"0"
    queue.add([b"new"])
    assert queue.left == 1 + 1 + 2
    assert [work(take(queue, A, True)) for _ in range(3)] == [b"new", b"0", b"new"]


def test_a_checkpoint_has_what_is_not_acknowledged() -> None:
    queue = made(works=4, epochs=2)
    first, second = take(queue, A), take(queue, A)
    queue.add([b"new"])
    queue.acknowledge(ticket(first))
    left, added = queue.save()
    restored = made(works=4, epochs=2)
    restored.restore(left, added)
    later = [work(take(restored, B, True)) for _ in range(9)]
    assert later == [b"1", b"2", b"3", b"new", b"0", b"1", b"2", b"3", b"new"]
    queue.restore(left, added)
    assert not queue.acknowledge(ticket(second))  # of before the restore: the model has lost what it learnt
    for wrong in (made(works=3), made(works=4, shuffle=True)):
        with pytest.raises(errors.FailedPreconditionError, match="has another work queue"):
            wrong.restore(left, added)


def test_a_restored_queue_with_fewer_epochs_ends_after_the_works_of_the_checkpoint() -> None:
    queue = made(works=2, epochs=5)
    for _ in range(7):
        take(queue, WorkTaker("before"), acknowledges=True)  # each has its work on lease
    restored = made(works=2, epochs=3)
    restored.restore(*queue.save())
    assert restored.left == 8  # seven on lease, and the other work of the fourth epoch
    found = [work(take(restored, A, acknowledges=True)) for _ in range(8)]
    assert Counter(found) == {b"0": 4, b"1": 4} and restored.left == 1
    with pytest.raises(errors.OutOfRangeError):
        _ = take(restored, A, acknowledges=True).value
    assert restored.left == 0


@pytest.mark.parametrize("seed", range(20))
def test_random_histories_acknowledge_each_work_once(seed: int) -> None:
    """Takers that are slow, end, take back and begin again: the counts of acknowledgements are exact."""
    rng = random.Random(seed)
    queue = made(works=rng.randint(1, 8), epochs=rng.randint(1, 3), shuffle=True)
    takers = [WorkTaker(f"t{i}") for i in range(3)]
    held: list[tuple[WorkTaker, FakeWait]] = []
    acknowledged: Counter[tuple[int, int]] = Counter()
    for _ in range(400):
        action, taker = rng.random(), rng.choice(takers)
        if action < 0.45:
            wait = take(queue, taker)
            held.append((taker, wait))
            if wait.answers and not isinstance(wait.answers[0], errors.OpError):
                assert not acknowledged[ticket(wait).key]  # never handed out again
        elif action < 0.8 and held:
            _, wait = rng.choice(held)
            if wait.answers and not isinstance(wait.answers[0], errors.OpError):
                acknowledged[ticket(wait).key] += queue.acknowledge(ticket(wait))
        elif action < 0.9:
            taker.clear()
        else:
            pass_time(queue, rng.choice((1, 11)))
    for _, wait in held:
        wait.end_step()
    while queue.left:
        pass_time(queue, 11)
        wait = take(queue, A)
        acknowledged[ticket(wait).key] += queue.acknowledge(ticket(wait))
    settings = queue.settings
    keys = {(epoch, number) for epoch in range(settings.num_epochs) for number in range(len(settings.works))}
    assert acknowledged == Counter(keys) and len(queue.save()[0]) == 1
