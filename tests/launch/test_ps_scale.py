"""Which variables move when a job gets another number of ps."""

from __future__ import annotations

import os
import time

import pytest

import tfmini as tf
from tfmini.jobs import Job
from tfmini.launch.ps_scale import PsScale, balanced, drained
from tfmini.runtime.client.variable_mover import TaskVariables
from tfmini.runtime.master.following import VariableGroup
from tfmini.runtime.worker.departures import Forwarding
from tfmini.testing import ProcessCluster

PS = ["/job:ps/replica:0/task:0", "/job:ps/replica:0/task:1", "/job:ps/replica:0/task:2"]


def task(sizes: dict[str, int], *groups: str, fixed: str = "") -> TaskVariables:
    """A task with variables of one letter; each group is a text of such letters."""
    found = [VariableGroup((), frozenset(("ps", name) for name in group), ()) for group in groups]
    found += [VariableGroup((), frozenset([("ps", name)]), ("queue",)) for name in fixed]
    return TaskVariables({("ps", name): size for name, size in sizes.items()}, found, (), Forwarding({}, frozenset()))


def names(moves: dict[str, dict[tuple[str, str], str]]) -> dict[str, dict[str, str]]:
    return {source: {name: target for (_, name), target in found.items()} for source, found in moves.items()}


def test_what_is_in_overlapping_groups_moves_together_and_beside_a_queue_nothing() -> None:
    found = task({"a": 1, "b": 2, "c": 4, "d": 8, "e": 16}, "ab", "bcx", fixed="e").units()
    assert [("".join(name for _, name in unit.keys), unit.size) for unit in found] == [("d", 8), ("abc", 7)]


def test_new_tasks_get_their_shares_from_the_fullest() -> None:
    variables = {PS[0]: task({"a": 50, "b": 20, "c": 20, "z": 0}), PS[1]: task({"d": 30}), PS[2]: task({})}
    assert names(balanced(variables, [PS[2]])) == {PS[0]: {"a": PS[2]}}
    variables[PS[1]] = task({})
    assert names(balanced(variables, PS[1:])) == {PS[0]: {"a": PS[1], "b": PS[2]}}


def test_nothing_moves_that_relieves_no_full_task() -> None:
    variables = {PS[0]: task({"a": 5, "b": 5}), PS[1]: task({"d": 50, "z": 0}, fixed="d"), PS[2]: task({})}
    assert names(balanced(variables, [PS[2]])) == {}
    assert names(balanced({PS[0]: task({"a": 5}), PS[1]: task({})}, [PS[1]])) == {}  # one would be as full as before


def test_a_drained_task_gives_all_away_the_largest_to_the_emptiest() -> None:
    variables = {PS[0]: task({"a": 5}), PS[1]: task({"d": 9}), PS[2]: task({"e": 0, "f": 6, "g": 3})}
    moves, rest = drained(variables, PS[2])
    assert names(moves) == {PS[2]: {"f": PS[0], "g": PS[1], "e": PS[0]}} and rest == PS[0]


@pytest.mark.cluster
def test_an_order_that_has_failed_goes_on_when_it_is_given_again() -> None:
    with ProcessCluster(ps=2, workers=1, local=("worker", 0)) as cluster:
        with tf.device("/job:ps/task:0"):
            both = [tf.get_variable(name, [8], initializer=tf.ones_initializer()) for name in ("a", "b")]
        with tf.Session(cluster.server.target) as session:
            session.run(tf.global_variables_initializer())
            job = Job("script", os.getpid(), 0, "", time.time(), dict(cluster.server.master.addresses()))
            order = PsScale(job, lambda: job, lambda more: f"starting {more}")
            # The new ps has started, and then its variables could not move.
            lines = order.to(2)
            assert lines[0] == "moved 1 variables (0.0 MB) to ps/1." and "tfmini place --live" in lines[-1]
            assert order.to(2) == ["2 ps have the variables already."]
            order.close()
            assert [value.sum() for value in session.run(both)] == [8, 8]
