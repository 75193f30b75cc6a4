"""`tfmini place --live`: real clusters whose ps are measured while they train, and whose variables move."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

import tfmini as tf
from tests.polling import poll
from tfmini.runtime.client.variable_mover import MoveResult, TaskVariables, VariableMover, VariableUnit
from tfmini.runtime.worker.departures import VariableKey
from tfmini.show.planning.live import LiveCluster, LiveMove, LiveUnit, PsLoad
from tfmini.testing import ProcessCluster
from tfmini.tools.cli import main
from tfmini.tools.place import make_moves, memory_limits

pytestmark = pytest.mark.cluster
PS = ["/job:ps/replica:0/task:0", "/job:ps/replica:0/task:1"]
SIZE = 500_000


def placed(target: str, *options: str) -> Result:
    return CliRunner().invoke(main, ["place", "--live", target, "--seconds", "1", *options])


class Training:
    """Two weights that train on the first ps, and one there that no step uses; the second ps has little."""

    def __init__(self, cluster: ProcessCluster) -> None:
        with tf.device("/job:ps/task:0"):
            self.hot = [tf.get_variable(name, [SIZE], initializer=tf.zeros_initializer()) for name in ("a", "b")]
            self.cold = tf.get_variable("cold", [2 * SIZE], initializer=tf.ones_initializer())
        with tf.device("/job:ps/task:1"):
            self.step = tf.train.get_or_create_global_step()
        with tf.device("/job:worker/task:0"):
            loss = -tf.add_n([tf.reduce_sum(each) for each in self.hot])
        self.train = tf.train.GradientDescentOptimizer(1.0).minimize(loss, global_step=self.step)
        self.session = tf.Session(cluster.target("worker", 0))
        self.session.run(tf.global_variables_initializer())
        self.done = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Trains within the block."""
        is_over = threading.Event()

        def work() -> None:
            while not is_over.is_set():
                self.session.run(self.train)
                self.done += 1

        thread = threading.Thread(target=work)
        thread.start()
        try:
            poll(lambda: self.done > 5, "training")
            yield
        finally:
            is_over.set()
            thread.join()


def test_it_relieves_the_busiest_ps_and_no_update_is_lost() -> None:
    with ProcessCluster(ps=2, workers=1) as cluster:
        training = Training(cluster)
        target = cluster.target("worker", 0)
        with training.running():
            result = placed(target, "--full")
            assert result.exit_code == 0, result.output
            moves = re.findall(
                r"^  (\w+) \(.* busy .*\) from (ps/\d) to (ps/\d): the busiest ps from \d+ %", result.output, re.M
            )
            # Small ones may change places as well, but one of the weights that train comes first.
            assert moves[0] in [("a", "ps/0", "ps/1"), ("b", "ps/0", "ps/1")], result.output
            assert "cold" not in [name for name, *_ in moves], result.output
            assert f'tf.move_variables("{target}", {{"{moves[0][0]}": "/job:ps/task:1"' in result.output
            made = placed(target, "--apply")
            assert made.exit_code == 0 and "moved " in made.output and "measured again" in made.output, made.output
            before = training.done
            poll(lambda: training.done > before + 5, "training goes on")
        at = {v.name: task.task for task in tf.cluster_status(target).tasks for v in task.variables}
        assert sorted([at["a"], at["b"]]) == PS and at["cold"] == PS[0]
        found = training.session.run([*training.hot, training.step])
        assert found[2] == training.done
        for value in found[:2]:
            np.testing.assert_array_equal(value, np.full(SIZE, training.done, np.float32))
        training.session.close()


def test_idle_ps_are_balanced_by_bytes_and_within_their_memory() -> None:
    with ProcessCluster(ps=2, workers=1) as cluster:
        training = Training(cluster)
        target = cluster.target("worker", 0)
        result = placed(target)
        assert "no training step ran" in result.output and "the fullest ps from 8 MB to 4 MB" in result.output
        result = placed(target, "--ps-memory", "1=2.5MB")
        assert "the fullest ps from 8 MB to 6 MB" in result.output, result.output
        result = placed(target, "--ps-memory", "3MB")
        assert result.exit_code == 1 and "cold has 4 MB of state, a ps may hold 3 MB" in result.output
        assert placed(target, "--apply").exit_code == 0
        assert "No move of variables makes the fullest ps noticeably emptier" in placed(target).output
        assert training.session.run(training.step) == 0
        training.session.close()


class Moving(VariableMover):
    """Notes what it is asked for, and refuses what one task is to give away."""

    def __init__(self, refused: str) -> None:
        super().__init__({}, cast(Any, None))
        self.refused, self.asked = refused, list[Any]()

    def variables(self, tasks: Iterable[str], timeout_s: float = 0.0) -> dict[str, TaskVariables]:
        """None."""
        return {}

    def move(
        self, places: Mapping[str, Mapping[VariableKey, str]], rest: str = "", timeout_s: float = 0.0
    ) -> MoveResult:
        """All, at once."""
        self.asked.append({task: dict(each) for task, each in places.items()})
        if self.refused in places:
            raise tf.errors.FailedPreconditionError.of(f"{self.refused} keeps a queue beside it.")
        return MoveResult({name: new for each in places.values() for (_, name), new in each.items()}, {})


def planned(*rows: tuple[str, int]) -> tuple[LiveCluster, list[LiveMove]]:
    """Moves of variables from these ps to the other one."""
    units = [LiveUnit(VariableUnit((("ps", name),), 10), ps, PsLoad()) for name, ps in rows]
    cluster = LiveCluster(tuple(PS), (PsLoad(),) * 2, (0, 0), tuple(units))
    return cluster, [LiveMove(unit, PS[1 - unit.task], (PsLoad(),) * 2, (0, 0)) for unit in units]


def test_moves_are_made_in_the_order_in_which_they_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    mover = Moving("")
    make_moves(mover, *planned(("a", 0), ("b", 0), ("c", 1), ("d", 0)))
    key = {name: ("ps", name) for name in "abcd"}
    there = [{PS[0]: {key["a"]: PS[1], key["b"]: PS[1]}}, {PS[1]: {key["c"]: PS[0]}}, {PS[0]: {key["d"]: PS[1]}}]
    assert mover.asked == there
    assert re.findall(r"moved (\d) variables .* to ps/(\d)", capsys.readouterr().out) == [
        ("2", "1"),
        ("1", "0"),
        ("1", "1"),
    ]


def test_a_plan_that_stops_half_way_says_what_has_moved(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(click.ClickException) as raised:
        make_moves(Moving(PS[1]), *planned(("a", 0), ("c", 1), ("d", 0)))
    assert "keeps a queue beside it. Moved before: a to ps/1. Not moved: c to ps/0, d to ps/1." in raised.value.message
    assert "moved 1 variables" in capsys.readouterr().out
    with pytest.raises(click.ClickException, match=r"Moved before: nothing\. Not moved: c to ps/0\."):
        make_moves(Moving(PS[1]), *planned(("c", 1)))


def test_limits_are_of_the_tasks_that_they_name() -> None:
    """The first ps is drained, so those that are measured begin with the second."""
    tasks = ["/job:ps/replica:0/task:1", "/job:ps/replica:0/task:2"]
    assert memory_limits(("2=1G", "5GB"), tasks) == [5e9, 1e9]
    with pytest.raises(click.BadParameter, match=r"there is no ps 0 of 2 \(task 1, 2\)"):
        memory_limits(("0=1G",), tasks)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--live", "--ps", "2"), "takes no --ps"),
        (("--live", "--trials", "5"), "takes no --trials"),
        (("--apply", "--ps", "2", "--entry", "a:b"), "--apply needs --live"),
        (("--live", "localhost:1"), "No task of the cluster at localhost:1 answers"),
        (("--live", "localhost:1", "--link", "fast"), "The profile has no link 'fast'"),
        (("--live", "no_such_job"), "No such job 'no_such_job'"),
    ],
)
def test_errors_of_live_are_one_line(words: tuple[str, ...], error: str) -> None:
    result = CliRunner().invoke(main, ["place", *words])
    assert result.exit_code != 0 and error in result.output and "Traceback" not in result.output
