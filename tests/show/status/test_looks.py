"""What the time of a job goes to, found by many looks."""

from __future__ import annotations

import dataclasses

from tests.show.status.test_explanation import CHIEF, OTHER, PS, cluster, task, wait
from tfmini.runtime import snapshot as s
from tfmini.show.status.looks import LEAST_LOOKS, Bottleneck, InputBound, Looks, TimeUse, share_text

PS_1 = "/job:ps/replica:0/task:1"


def look(*computing: tuple[int, str]) -> s.ClusterSnapshot:
    """Each of the steps 1 (of the chief) and 2 (of the other worker) computes on the given task."""
    waits = {name: [wait(step, s.COMPUTES, "", 0.01) for step, at in computing if at == name]
             for name in (PS, PS_1, CHIEF, OTHER)}  # fmt: skip
    runs = {CHIEF: (1,), OTHER: (2,)}
    return cluster(*(task(name, *found, runs=runs.get(name, ())) for name, found in waits.items()))


def time_use(*clusters: s.ClusterSnapshot) -> TimeUse:
    looks = Looks()
    for each in clusters:
        looks.take(each)
    return looks.time_use()


def bottleneck(*clusters: s.ClusterSnapshot) -> Bottleneck | None:
    return time_use(*clusters).bottleneck


def outside(name: str) -> s.TaskSnapshot:
    """A worker that has trained and runs nothing now."""
    return task(name, sessions=(s.SessionSnapshot("1", "this process", 9.0),), steps=7)


def test_the_ps_where_most_steps_are_is_the_bottleneck() -> None:
    busy, idle = look((1, PS_1), (2, PS_1)), look((1, CHIEF), (2, PS))
    found = bottleneck(*[busy] * 8, idle, idle)
    assert found == Bottleneck(PS_1, 0.8, (CHIEF, OTHER))
    assert share_text(found) == "ps/1 is the bottleneck: steps of worker/0, worker/1 wait for it 80 % of the time"


def test_a_step_that_computes_on_its_own_worker_waits_for_nobody() -> None:
    assert bottleneck(*[look((1, CHIEF), (2, OTHER))] * 10) is None


def test_few_looks_or_two_ps_alike_say_nothing() -> None:
    assert bottleneck(*[look((1, PS), (2, PS))] * (LEAST_LOOKS - 1)) is None
    assert bottleneck(*[look((1, PS), (2, PS_1))] * 10) is None


def test_the_straggler_of_a_synchronous_run_is_the_bottleneck() -> None:
    """Its own steps, which compute, do not count."""
    ps = task(PS, wait(1, s.TOKEN, "tokens", 0.2, OTHER))
    straggler = task(OTHER, wait(2, s.COMPUTES, "", 0.2), runs=(2,))
    found = bottleneck(*[cluster(ps, task(CHIEF, runs=(1,)), straggler)] * 10)
    assert found == Bottleneck(OTHER, 1.0, (CHIEF,))


def test_workers_that_sleep_between_short_steps_lack_input_and_the_ps_is_no_bottleneck() -> None:
    """All their steps, when they run any, wait for the ps."""
    idle = cluster(task(PS), outside(CHIEF), outside(OTHER))
    found = time_use(*[idle] * 17, *[look((1, PS), (2, PS))] * 3)
    assert found == TimeUse(None, InputBound((CHIEF, OTHER), 0.85))
    assert found.lines() == [
        "worker/0, worker/1 are outside Session.run 85 % of the time: input, or other work of the script between steps"
    ]
    assert found.words(CHIEF) == "outside Session.run 85 % of the time" and found.words(PS) == ""


def test_the_share_of_a_bottleneck_is_of_the_time_and_not_of_the_steps() -> None:
    idle = cluster(task(PS), outside(CHIEF), outside(OTHER))
    assert bottleneck(*[idle] * 4, *[look((1, PS), (2, PS))] * 6) == Bottleneck(PS, 0.6, (CHIEF, OTHER))
    assert time_use(*[idle] * 5, *[look((1, PS), (2, CHIEF))] * 5) == TimeUse(None, InputBound((CHIEF, OTHER), 0.5))


def test_one_that_lacks_input_is_named_beside_the_ps_for_which_the_others_wait() -> None:
    third = "/job:worker/replica:0/task:2"
    busy = look((1, PS), (2, PS))
    found = time_use(*[cluster(*busy.tasks, outside(third))] * 10)
    assert found == TimeUse(Bottleneck(PS, 1.0, (CHIEF, OTHER)), InputBound((third,), 1.0))
    assert found.lines()[1].startswith("worker/2 is outside Session.run 100 % of the time: input")


def test_a_straggler_that_reads_input_is_the_bottleneck_of_a_synchronous_run() -> None:
    ps = task(PS, wait(1, s.GRADIENT, "W/grad", 0.2, OTHER))
    found = time_use(*[cluster(ps, task(CHIEF, runs=(1,)), outside(OTHER))] * 10)
    assert found == TimeUse(Bottleneck(OTHER, 1.0, (CHIEF,)), InputBound((OTHER,), 1.0))


def test_steps_of_queue_runners_are_no_steps_of_the_client() -> None:
    filling = s.StepSnapshot("5", "", "this process", 0.2, trains=False, fills=True)
    full = s.WaitSnapshot("5", "", s.ROOM, 'room in FIFOQueue "q" (3 of 3 elements)', 0.2, on="q", from_tasks=(CHIEF,))
    worker = task(CHIEF, full, sessions=(s.SessionSnapshot("1", "", 9.0),), steps=7)
    worker = dataclasses.replace(worker, running=(filling,))
    assert time_use(*[cluster(task(PS), worker)] * 10) == TimeUse(None, InputBound((CHIEF,), 1.0))


def test_a_step_that_waits_for_its_own_queue_lacks_input() -> None:
    text = 'an element of FIFOQueue "q" (0 of 3 elements)'
    empty = s.WaitSnapshot("1", "", s.ELEMENT, text, 0.2, on="q", from_tasks=(CHIEF,))
    reading, put = wait(5, s.COMPUTES, "", 0.2), s.PendingSnapshot("5", s.PUT, "q")
    running = (s.StepSnapshot("1", "", "", 0.2), s.StepSnapshot("5", "", "", 0.2, trains=False))
    worker = s.TaskSnapshot(CHIEF, "", waits=(empty, reading), running=running, pending=(put,))
    found = time_use(*[cluster(task(PS), worker)] * 10)
    assert found == TimeUse(None, InputBound((CHIEF,), 1.0, 'an element of FIFOQueue "q"'))
    expected = 'input: steps of worker/0 wait for an element of FIFOQueue "q" 100 % of the time'
    assert found.lines() == [expected] and found.words(CHIEF) == "waits for input 100 % of the time"


def test_a_step_that_waits_for_its_dataset_lacks_input() -> None:
    late = wait(1, s.ITERATOR, "i", 0.2)
    found = time_use(*[cluster(task(PS), task(CHIEF, late, runs=(1,)))] * 10)
    assert found.input == InputBound((CHIEF,), 1.0, "iterator i")


def test_a_server_without_a_client_that_trains_lacks_no_input() -> None:
    new = task(CHIEF, sessions=(s.SessionSnapshot("1", "this process", 9.0),))
    done = task(OTHER, steps=7)
    assert time_use(*[cluster(task(PS), new, done)] * 10) == TimeUse()


def test_the_looks_in_which_anything_ran_on_a_task_are_counted() -> None:
    looks = Looks()
    for each in [look((1, PS), (2, PS)), cluster(task(PS), outside(CHIEF))]:
        looks.take(each)
    assert (looks.busy(PS), looks.busy(CHIEF), looks.busy(OTHER), len(looks)) == (1, 1, 1, 2)
