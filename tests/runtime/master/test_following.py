"""The way to variables that have moved several times, by what single tasks tell at different times."""

from __future__ import annotations

import random

import pytest

from tfmini import dtypes
from tfmini.graph.node import Node
from tfmini.runtime.master.following import followed
from tfmini.runtime.worker.departures import Forwarding, NewPlace

TASKS = [f"/job:ps/replica:0/task:{i}" for i in range(4)]
NAMES = "abc"
NODES = {name: Node(name, "VariableV2", attrs={"dtype": dtypes.float32, "shape": ()}) for name in NAMES}


class Cluster:
    """Tasks that have variables, and give them to each other; all begin on the first one."""

    def __init__(self) -> None:
        self.at = dict.fromkeys(NAMES, TASKS[0])
        self.moved: dict[str, dict[str, str]] = {task: {} for task in TASKS}

    def move(self, name: str, task: str) -> None:
        self.moved[self.at[name]][name] = task
        self.moved[task].pop(name, None)
        self.at[name] = task

    def tells(self, task: str) -> Forwarding:
        places = {("ps", name): NewPlace(to, "", 1, 0) for name, to in self.moved[task].items()}
        return Forwarding(places, frozenset(("ps", name) for name, at in self.at.items() if at == task))


def found(told: dict[str, Forwarding]) -> tuple[dict[str, str], set[str]]:
    """The task of each variable, and the tasks to which the latest telling leads."""
    placement = dict.fromkeys(NAMES, f"{TASKS[0]}/device:CPU:0")
    devices, places = followed(NODES, placement, told)
    for new in devices.values():
        placement |= new
    return {name: device.partition("/device")[0] for name, device in placement.items()}, {each.task for each in places}


def test_variables_go_ways_of_their_own() -> None:
    cluster = Cluster()
    for name, *way in [("a", 1, 2), ("b", 2, 1), ("c", 3, 1, 2)]:
        for task in way:
            cluster.move(name, TASKS[task])
    told = {task: cluster.tells(task) for task in (TASKS[2], TASKS[3], TASKS[1], TASKS[0])}
    assert found(told)[0] == cluster.at


def test_of_two_that_send_to_each_other_the_later_one_is_right() -> None:
    cluster = Cluster()
    told = {}
    for task in (1, 2):
        cluster.move("a", TASKS[task])
        told[TASKS[task - 1]] = cluster.tells(TASKS[task - 1])
    cluster.move("a", TASKS[1])  # the first one is back; nobody has told of that
    assert found(told)[0]["a"] == TASKS[2]
    told[TASKS[2]] = cluster.tells(TASKS[2])
    assert found(told) == ({**cluster.at}, {TASKS[1]})


@pytest.mark.parametrize("seed", range(20))
def test_whoever_asks_where_it_was_led_gets_there(seed: int) -> None:
    """As a master does: it asks the task where it believes a variable to be, while the variables go on moving."""
    rng, cluster, told = random.Random(seed), Cluster(), dict[str, Forwarding]()
    for _ in range(30):
        for _ in range(rng.randrange(4)):
            name = rng.choice(NAMES)
            cluster.move(name, rng.choice([task for task in TASKS if task != cluster.at[name]]))
        for _ in range(20):
            believed = found(told)[0]
            wrong = [task for name, task in believed.items() if cluster.at[name] != task]
            if not wrong:
                break
            told.pop(wrong[0], None)
            told[wrong[0]] = cluster.tells(wrong[0])
            assert found(told)[1], "the task that was asked leads on"
        assert believed == cluster.at
