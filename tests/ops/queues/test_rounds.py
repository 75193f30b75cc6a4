"""Rounds of synchronous updates: the decision, and the gradients of one task."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.ops.fake_wait import PENDING, FakeWait
from tfmini import dtypes, errors
from tfmini.ops.queues.rounds import DECIDED, FIRST, VOID, Push, RoundGradients, RoundsState


def entered(rounds: RoundsState, worker: int) -> Push:
    generation, number, token = rounds.enter(worker)
    return Push(generation, number, worker, token, 0)


def arrive(rounds: RoundsState, push: Push, what: str = "'w'") -> FakeWait:
    wait = FakeWait()
    rounds.arrive(wait, push, what)
    return wait


def members(wait: FakeWait) -> tuple[int, list[list[int]]]:
    (_, number), found = wait.value
    return number, found.tolist()


def test_a_round_has_a_gradient_of_each_worker_in_their_order() -> None:
    rounds = RoundsState("r", 3, backup=0)
    pushes = [entered(rounds, worker) for worker in range(3)]
    late, first = arrive(rounds, pushes[2]), arrive(rounds, pushes[0])
    assert late.is_pending and first.cause == 'the gradients of workers 1 for round 0, in rounds "r"'
    last = arrive(rounds, pushes[1]._replace(attempt=7))
    want = [[pushes[0].token, 0], [pushes[1].token, 7], [pushes[2].token, 0]]
    assert members(late) == members(first) == members(last) == (0, want)


def test_a_gradient_after_its_round_is_dropped_and_counted_once() -> None:
    rounds = RoundsState("r", 3, backup=1)
    pushes = [entered(rounds, worker) for worker in range(3)]
    arrive(rounds, pushes[0]), arrive(rounds, pushes[1])
    helping = arrive(rounds, pushes[2])  # the round is not applied everywhere yet
    assert members(helping) == (0, [[pushes[0].token, 0], [pushes[1].token, 0]]) and rounds.late == [0, 0, 1]
    rounds.settle(pushes[0].generation, 0)
    assert members(arrive(rounds, pushes[1])) == (0, [])  # one that counts, told again
    assert rounds.late == [0, 0, 1]


def test_who_comes_for_the_next_round_applies_the_one_that_was_left() -> None:
    rounds = RoundsState("r", 1, backup=0)
    first = entered(rounds, 0)
    arrive(rounds, first)
    second = entered(rounds, 0)  # its earlier life has ended before it applied the round
    assert second.round == 1
    assert members(arrive(rounds, second)) == (0, [[first.token, 0]])
    other = arrive(rounds, second, "'q'")  # has no ops for the arrays of that round
    assert other.is_pending and other.cause.startswith("the update of round 0, of 'w'; if all workers of that round")
    rounds.settle(second.generation, 0)
    assert members(other) == (1, [[second.token, 0]])


def test_an_arrival_whose_step_ends_is_taken_back() -> None:
    rounds = RoundsState("r", 2, backup=0)
    pushes = [entered(rounds, worker) for worker in range(2)]
    arrive(rounds, pushes[0]).end_step()
    assert arrive(rounds, pushes[1]).is_pending
    assert members(arrive(rounds, pushes[0]._replace(attempt=1)))[1][0] == [pushes[0].token, 1]


def test_another_life_of_a_worker_ends_what_the_earlier_one_waits_for() -> None:
    rounds = RoundsState("r", 2, backup=0)
    old, other = entered(rounds, 0), entered(rounds, 1)
    waiting = arrive(rounds, old)
    new = entered(rounds, 0)
    with pytest.raises(errors.AbortedError, match="Another process has entered .* as worker 0"):
        _ = waiting.value
    rounds.leave(old.generation, 0, old.token)  # says nothing about the new one
    assert arrive(rounds, other).is_pending
    assert members(arrive(rounds, new)) == (0, [[new.token, 0], [other.token, 0]])


def test_nobody_waits_for_one_that_has_left_and_all_who_leave_end_a_generation() -> None:
    rounds = RoundsState("r", 3, backup=1)
    pushes = [entered(rounds, worker) for worker in range(3)]
    waiting = arrive(rounds, pushes[0])
    rounds.leave(pushes[1].generation, 1, pushes[1].token)
    assert waiting.is_pending  # two are left, as many as a round needs
    rounds.leave(pushes[2].generation, 2, pushes[2].token)
    assert members(waiting) == (0, [[pushes[0].token, 0]])
    rounds.leave(pushes[0].generation, 0, pushes[0].token)
    again = entered(rounds, 1)
    assert again.generation > pushes[1].generation and again.round == 0
    with pytest.raises(errors.AbortedError, match="began anew"):
        _ = arrive(rounds, pushes[0]).value
    assert arrive(rounds, again).is_pending  # two are awaited again


def test_pushes_of_other_arrays_are_refused() -> None:
    rounds = RoundsState("r", 3, backup=0)
    pushes = [entered(rounds, worker) for worker in range(3)]
    first = arrive(rounds, pushes[0])
    with pytest.raises(errors.InvalidArgumentError, match="worker 1 pushes 'q' in round 0, in which worker 0 pushes"):
        _ = arrive(rounds, pushes[1], "'q'").value
    arrive(rounds, pushes[1])
    arrive(rounds, pushes[2])
    assert not first.is_pending


def test_an_attempt_that_was_taken_back_is_in_no_round() -> None:
    rounds = RoundsState("r", 2, backup=0)
    mine, other = entered(rounds, 0), entered(rounds, 1)
    waiting = arrive(rounds, mine)
    assert rounds.take_back(mine) == rounds.take_back(mine) == VOID  # the answer may have been lost
    with pytest.raises(errors.AbortedError, match="was taken back"):
        _ = waiting.value
    assert arrive(rounds, other).is_pending
    with pytest.raises(errors.AbortedError, match="was taken back"):
        _ = arrive(rounds, mine).value  # which was on its way
    again = mine._replace(attempt=1, earlier=VOID)
    assert members(arrive(rounds, again)) == (0, [[mine.token, 1], [other.token, 0]])
    assert rounds.take_back(again) == DECIDED


# ---- one task --------------------------------------------------------------------------------


def lead(gradients: RoundGradients, pushes: list[Push]) -> FakeWait:
    wait = FakeWait()
    gradients.lead(wait, pushes[0].key, [push.member for push in pushes])
    return wait


PUSHES = [Push(5, 0, 0, 10, 1), Push(5, 0, 1, 11, 1)]


TYPES = [dtypes.float32, dtypes.int64, dtypes.float32]


def filled(pushes: list[Push] = PUSHES) -> RoundGradients:
    gradients = RoundGradients("g")
    for push in pushes:
        gradients.put(push, [np.full(2, push.token, np.float32), np.array([push.worker]), np.ones((1, 2), np.float32)])
    return gradients


def test_one_step_applies_a_round_and_the_others_wait() -> None:
    gradients = filled()
    gradients.put(PUSHES[1]._replace(attempt=2), [np.zeros(2)])  # another attempt, which is not in the round
    first, second = lead(gradients, PUSHES), lead(gradients, PUSHES)
    leads, hold = first.value
    assert leads and second.is_pending and second.cause == 'the update of round 0, in "g"'
    dense, ids, rows = gradients.begin("dir", TYPES, True)
    assert dense.tolist() == [10.5, 10.5] and ids.tolist() == [0, 1] and rows.tolist() == [[0.5, 0.5]] * 2
    gradients.end()
    hold.release()
    assert not second.value[0] and not lead(gradients, PUSHES).value[0]
    gradients.put(PUSHES[0], [np.zeros(2)])  # comes late, and is not kept
    assert gradients.done == (5, 0) and not gradients.kept


def test_sums_of_numbers_are_in_their_type() -> None:
    gradients = filled()
    _held = lead(gradients, PUSHES)  # or the lead would end with the hold
    dense, _, rows = gradients.begin("dir", TYPES, False)
    assert dense.tolist() == [21, 21] and dense.dtype == rows.dtype == np.float32
    assert gradients.kept[5, 0][10, 1][1][0].tolist() == [10, 10]  # the sum is another array


def test_the_lead_goes_on_when_its_step_ends_before_it_has_begun() -> None:
    gradients = filled()
    first, second = lead(gradients, PUSHES), lead(gradients, PUSHES)
    first.value[1].release()  # what the end of its step does
    assert second.value[0]


def test_an_update_that_is_cut_is_not_repeated_and_fails_once() -> None:
    gradients = filled()
    first, second, third = (lead(gradients, PUSHES) for _ in range(3))
    gradients.begin("dir", TYPES, True)
    first.value[1].release()
    with pytest.raises(errors.AbortedError, match="The update of round 0 was cut on this task"):
        _ = second.value
    assert not third.value[0] and not lead(gradients, PUSHES).value[0]
    again = [push._replace(round=1) for push in PUSHES]
    for push in again:
        gradients.put(push, [np.ones(2)])
    assert lead(gradients, again).value[0]


def test_a_task_without_the_gradients_says_so_once() -> None:
    gradients = filled(PUSHES[:1])
    with pytest.raises(errors.AbortedError, match="has lost gradients of round 0"):
        _ = lead(gradients, PUSHES).value
    assert not lead(gradients, PUSHES).value[0]


def test_a_step_that_ends_before_it_knows_that_it_leads_gives_that_back() -> None:
    gradients = filled()
    ended = FakeWait()
    ended.ended = True
    gradients.lead(ended, PUSHES[0].key, [push.member for push in PUSHES])
    assert lead(gradients, PUSHES).value[0] and ended.value is PENDING


def test_a_newer_generation_drops_what_an_earlier_one_has_left() -> None:
    gradients = filled()
    new = Push(6, 0, 0, 12, 1)
    gradients.put(new, [np.ones(2)])
    _held = lead(gradients, [new])
    gradients.begin("d", [dtypes.float64], True)
    gradients.end()
    assert not gradients.kept


def test_an_attempt_takes_the_place_of_void_ones_of_its_worker_only() -> None:
    gradients = filled()
    gradients.put(PUSHES[1]._replace(attempt=2, earlier=VOID), [np.ones(2)])
    assert gradients.kept[5, 0].keys() == {(10, 1), (11, 2)}
    gradients.put(PUSHES[0]._replace(attempt=2, earlier=DECIDED), [np.ones(2)])
    assert gradients.kept[5, 0].keys() == {(10, 1), (11, 2)}  # which one of it counts, this worker does not know


def test_a_life_of_a_worker_drops_what_its_earlier_lives_have_left_in_the_round() -> None:
    """One that dies again and again before its round is decided leaves one gradient, and a late one is not kept."""
    rounds, gradients = RoundsState("r", 2, backup=0), RoundGradients("g")
    other, lives = entered(rounds, 1), [entered(rounds, 0) for _ in range(5)]
    gradients.put(other, [np.ones(2)])
    for life in lives:
        gradients.put(life, [np.ones(2)])
        assert gradients.kept[life.key].keys() == {other.member, life.member}
    gradients.put(lives[0], [np.ones(2)])  # it was on its way when the process died
    assert gradients.kept[other.key].keys() == {other.member, lives[-1].member}
    arrive(rounds, lives[-1]), arrive(rounds, other)
    after = entered(rounds, 0)
    gradients.put(after, [np.ones(2)])  # a round that is decided keeps the gradients of lives that have ended
    assert after.round == 1 and gradients.kept[other.key].keys() == {other.member, lives[-1].member}


@dataclass
class Worker:
    """The client's part of the protocol, as in `tfmini.train.store.pace`, with failures.

    Attributes:
      push: of its latest attempt.
      has_failed: whether the worker has given that one up.
      orphans: arrivals of attempts that it has given up, whose steps go on.
      unsent: tasks that the gradients of such attempts reach late.
    """

    push: Push
    wait: FakeWait | None = None
    has_failed: bool = False
    orphans: list[FakeWait] = field(default_factory=list)
    unsent: list[tuple[RoundGradients, Push]] = field(default_factory=list)


@pytest.mark.parametrize("seed", range(40))
def test_in_random_histories_no_attempt_that_counts_is_dropped_and_few_are_kept(seed: int) -> None:
    """Steps fail before, while and after their round is decided, and go on after they were given up."""
    rng = random.Random(seed)
    rounds = RoundsState("r", 3, backup=seed % 2)
    tasks = [RoundGradients(f"t{i}") for i in range(2)]
    workers = [Worker(entered(rounds, index)) for index in range(3)]
    applied: Counter[int] = Counter()

    def apply(wait: FakeWait) -> int:
        (generation, number), found = wait.value
        for task in tasks if len(found) else []:
            leader = FakeWait()
            task.lead(leader, (generation, number), [(token, attempt) for token, attempt in found.tolist()])
            leads, hold = leader.value  # or AbortedError: an attempt that counts is not here
            if leads:
                (total,) = task.begin("d", [dtypes.float32], False)
                assert (total <= 1).all() and total.sum() == len(found)
                task.end()
                hold.release()
                applied[number] += 1
        rounds.settle(generation, number)
        return int(number)

    def begin(worker: Worker) -> None:
        if worker.has_failed:
            worker.push = worker.push._replace(earlier=rounds.take_back(worker.push))
        worker.push = worker.push._replace(attempt=worker.push.attempt + 1)
        worker.has_failed = False
        reached = tasks if rng.random() < 0.8 else tasks[:1]
        for task in reached:
            task.put(worker.push, [np.eye(3, dtype=np.float32)[worker.push.worker]])
        if len(reached) < 2:  # it is given up before it has arrived
            worker.unsent.append((tasks[1], worker.push))
            worker.has_failed = True
        else:
            worker.wait = arrive(rounds, worker.push)

    def give_up(worker: Worker) -> None:
        assert worker.wait is not None
        if worker.wait.is_pending and rng.random() < 0.5:
            worker.wait.end_step()
        else:
            worker.orphans.append(worker.wait)
        worker.wait, worker.has_failed = None, True

    for _ in range(600):
        worker, chance = rng.choice(workers), rng.random()
        if rng.random() < 0.05:  # it dies, perhaps between two tasks or before it has the answer, and begins again
            worker.orphans += [worker.wait] if worker.wait is not None else []
            worker.push, worker.wait, worker.has_failed = entered(rounds, worker.push.worker), None, False
        elif worker.wait is None:
            begin(worker)
        elif chance < 0.35:
            give_up(worker)
        elif not worker.wait.is_pending:
            ended, mine = apply(worker.wait), worker.push.round
            worker.push = worker.push._replace(round=ended + 1, earlier=FIRST if ended >= mine else VOID)
            worker.wait = None
        if chance < 0.2 and worker.unsent:
            task, push = worker.unsent.pop(0)
            task.put(push, [np.eye(3, dtype=np.float32)[push.worker]])
        if chance > 0.9 and worker.orphans and not worker.orphans[0].is_pending:
            orphan = worker.orphans.pop(0)
            if not isinstance(orphan.answers[0], errors.OpError):
                apply(orphan)
        late = sum(len(each.unsent) for each in workers)
        assert all(len(kept) <= 9 + late for task in tasks for kept in task.kept.values())
    assert rounds.round > 20 and set(applied.values()) == {2} and len(applied) >= rounds.round - 1
