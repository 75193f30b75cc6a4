"""All-reduce training that goes on with fewer ranks, and with more again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import tfmini as tf
from tfmini.launch.supervision import TaskId
from tfmini.runtime.collectives import calls
from tfmini.testing import ProcessCluster

_RANK = """
import sys
sys.path.insert(0, sys.argv[5])
from tests.hosts import task
task.main(sys.argv[1], sys.argv[2], sys.argv[3], "ranks", sys.argv[4], "2")
"""
_ROOT = Path(__file__).parents[3]


class Ranks:
    """Processes that train together."""

    def __init__(self, cluster: ProcessCluster, go: Path) -> None:
        self.cluster, self._go = cluster, go

    def until(self, index: int, size: int, after: int = 0) -> int:
        """Reads the output of a rank until so many take part in a step after another one; returns the step."""
        for words in self._lines(index):
            if words[0] == "step" and int(words[2]) == size and int(words[1]) > after:
                return int(words[1])
        raise AssertionError(f"rank {index} ended")

    def finish(self, count: int) -> set[str]:
        """Lets them come to the end; returns what they have come to."""
        self._go.touch()
        return {words[1] for index in range(count) for words in self._lines(index) if words[0] == "done"}

    def _lines(self, index: int) -> Iterator[list[str]]:
        stdout = self.cluster.processes[TaskId("worker", index)].stdout
        assert stdout is not None
        return (line.split() for line in iter(stdout.readline, "") if line.strip())


@pytest.mark.cluster
def test_three_ranks_go_on_as_two_and_again_as_three(tmp_path: Path) -> None:
    arguments = (str(tmp_path / "go"), str(_ROOT))
    with ProcessCluster(ps=0, workers=3, program=_RANK, arguments=arguments) as cluster:
        ranks = Ranks(cluster, tmp_path / "go")
        at = [ranks.until(index, 3, after=25) for index in range(3)]
        cluster.kill("worker", 2)
        smaller = [ranks.until(index, 2, after=at[index] - 20) for index in range(2)]
        assert min(smaller) >= 20  # they go on from their last commit
        later = [ranks.until(index, 2, after=smaller[index] + 15) for index in range(2)]
        cluster.start_task("worker", 2)
        assert ranks.until(2, 3) >= max(later) - 20  # the one that is back has taken over what the others have
        for index in range(2):
            ranks.until(index, 3)
        cluster.kill("worker", 0, signal.SIGTERM)  # the leader leaves; it comes back without a commit
        cluster.processes[TaskId("worker", 0)].wait()
        cluster.start_task("worker", 0)
        assert ranks.until(0, 3) >= max(later) - 20
        assert len(ranks.finish(3)) == 1


class Group:
    """The leader's table, and the answers to members of an elastic group of four that may be of two."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, object, tuple[object, ...]]] = []
        self.leader = calls.GroupLeader({}, lambda bits: 4, "/job:worker/task:0", self._later)
        self.answers: dict[int, object] = {}

    def _later(self, seconds: float, call: object, *args: object) -> Group:
        self.timers.append((seconds, call, args))
        return self

    def cancel(self) -> None:
        self.timers.clear()

    def join(self, index: int) -> None:
        device = f"/job:worker/task:{index}/device:CPU:0"
        self.leader.join(1, 4, device, "", lambda answer: self.answers.update({index: answer}), -1, 2)

    def pass_time(self) -> None:
        timers, self.timers = self.timers, []
        for seconds, call, args in timers:
            assert seconds == calls.SETTLE_S
            call(*args)  # type: ignore[operator]


def test_a_full_group_begins_at_once() -> None:
    group = Group()
    for index in range(4):
        group.join(index)
    assert sorted(group.answers) == [0, 1, 2, 3] and not group.timers


def test_a_smaller_group_begins_when_the_leader_has_waited() -> None:
    group = Group()
    for index in (2, 0, 1):
        group.join(index)
    assert not group.answers
    group.pass_time()
    assert sorted(group.answers) == [0, 1, 2]
    assert {len(answer.members) for answer in group.answers.values()} == {3}  # type: ignore[attr-defined]


def test_too_few_members_wait_for_another_one() -> None:
    group = Group()
    group.join(0)
    group.pass_time()
    assert not group.answers
    group.join(3)
    assert sorted(group.answers) == [0, 3]


def test_members_that_come_while_the_group_is_at_work_form_none_of_their_own() -> None:
    group = Group()
    for index in (1, 2, 3):
        group.join(index)
    group.pass_time()
    assert not group.answers and group.leader.present(1)


def test_the_time_begins_anew_when_the_leader_does() -> None:
    group = Group()
    group.join(0)
    group.join(1)
    leader = "/job:worker/task:0/device:CPU:0"
    group.leader.withdraw(1, leader, group.leader._joining[1][leader].respond)
    assert not group.timers
    group.join(0)
    assert list(group.answers) == [0] and group.timers  # the answer to the withdrawal


def test_what_elastic_training_needs_is_an_error_without_it() -> None:
    with pytest.raises(ValueError, match="least number of workers"):
        tf.train.AllReduceOptimizer(tf.train.GradientDescentOptimizer(0.1), 2, least_workers=3)
    with tf.Graph().as_default():
        optimizer = tf.train.AllReduceOptimizer(tf.train.GradientDescentOptimizer(0.1), 2, least_workers=1)
        with pytest.raises(ValueError, match="needs a global step"):
            optimizer.make_session_run_hook().begin()
        with pytest.raises(ValueError, match="commit_every_steps must be at least 1"):
            optimizer.make_session_run_hook(commit_every_steps=0)
        tf.train.get_or_create_global_step()
        with pytest.raises(tf.errors.FailedPreconditionError, match="needs a tf.train.Server in this process"):
            tf.train.MonitoredTrainingSession(hooks=[optimizer.make_session_run_hook()])
