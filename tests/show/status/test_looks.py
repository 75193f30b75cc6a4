"""The task that most steps wait for, found by many looks."""

from __future__ import annotations

from tests.show.status.test_explanation import CHIEF, OTHER, PS, cluster, task, wait
from tfmini.runtime import snapshot as s
from tfmini.show.status.explanation import LEAST_LOOKS, Bottleneck, Looks, share_text

PS_1 = "/job:ps/replica:0/task:1"


def look(*computing: tuple[int, str]) -> s.ClusterSnapshot:
    """Each of the steps 1 (of the chief) and 2 (of the other worker) computes on the given task."""
    waits = {name: [wait(step, s.COMPUTES, "", 0.01) for step, at in computing if at == name]
             for name in (PS, PS_1, CHIEF, OTHER)}  # fmt: skip
    runs = {CHIEF: (1,), OTHER: (2,)}
    return cluster(*(task(name, *found, runs=runs.get(name, ())) for name, found in waits.items()))


def bottleneck(*clusters: s.ClusterSnapshot) -> Bottleneck | None:
    looks = Looks()
    for each in clusters:
        looks.take(each)
    return looks.bottleneck()


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
