"""How a run meets its engine, with an engine that starts nothing."""

from __future__ import annotations

import os
import selectors
import signal
import threading
from collections.abc import Callable, Mapping, Sequence

import pytest

from tfmini.cluster import ClusterSpec
from tfmini.launch import cluster_run
from tfmini.launch.cluster_run import ClusterRun, RunLimits
from tfmini.launch.engine import EngineError, Events, TaskCommand, TaskRequest
from tfmini.launch.output import Sink
from tfmini.launch.supervision import PrintNote, Supervision, TaskId

PS, WORKER = TaskId("ps", 0), TaskId("worker", 0)


class Scripted:
    """An engine that does in `reserve` and `start` what a test says, and records the rest."""

    adds_tasks = True
    restarts_all = False

    def __init__(self, reserve: Callable[[Events], None], start: Callable[[Events], None] = lambda _: None) -> None:
        self._reserve, self._start = reserve, start
        self.added_at = "c:3"
        self.commands: Mapping[TaskId, TaskCommand] = {}
        self.signals: list[tuple[Sequence[TaskId], int]] = []
        self.closed: list[int] = []
        self.withdrawn: list[TaskId] = []
        self.holds: list[bool] = []

    def reserve(self, requests: Sequence[TaskRequest], events: Events, selector: selectors.BaseSelector) -> None:
        self.events = events
        self._reserve(events)

    def start(self, commands: Mapping[TaskId, TaskCommand]) -> None:
        self.commands = commands
        self._start(self.events)

    def add(self, requests: Sequence[TaskRequest]) -> None:
        self.added = [request.task for request in requests]
        if not self.added_at:
            raise EngineError("no place is free")
        for task in self.added:
            self.events.placed(task, self.added_at, 1)

    def withdraw(self, task: TaskId) -> None:
        self.withdrawn.append(task)

    def signal(self, tasks: Sequence[TaskId], signum: int) -> None:
        self.signals.append((tuple(tasks), signum))
        for task in tasks:
            self.events.ended(task, -signum)

    def hold_output(self, is_held: bool) -> None:
        self.holds.append(is_held)

    def reap(self) -> None:
        pass

    def close(self, exit_code: int) -> None:
        self.closed.append(exit_code)


def run_of(engine: Scripted, start_s: float = 100.0, restarts: int = 0, fd: int = 1) -> ClusterRun:
    def commands(spec: ClusterSpec, cpus: Mapping[TaskId, int]) -> dict[TaskId, TaskCommand]:
        return {task: TaskCommand([str(spec.as_dict())], {"CPUS": str(count)}, {}) for task, count in cpus.items()}

    return ClusterRun(
        engine=engine, requests=[TaskRequest(PS), TaskRequest(WORKER)], commands_of=commands,
        supervision=Supervision([PS, WORKER], restarts=restarts), limits=RunLimits(grace_s=1.0, start_s=start_s),
        sink=Sink(fd), prefixes={PS: b"", WORKER: b""}, say=lambda note: None,
    )  # fmt: skip


def place_both(events: Events) -> None:
    events.placed(PS, "a:1", 3)
    events.placed(WORKER, "b:2", 5)


def test_commands_are_made_from_all_places_and_services_end_with_the_workers() -> None:
    engine = Scripted(place_both, lambda events: events.ended(WORKER, 0))
    finish = run_of(engine).run()
    assert finish.exit_code == 0 and engine.closed == [0]
    assert engine.signals == [((PS,), signal.SIGTERM)]
    assert engine.commands[WORKER] == TaskCommand(["{'ps': ['a:1'], 'worker': ['b:2']}"], {"CPUS": "5"}, {})


def test_services_come_first_in_the_cluster_whoever_has_a_place_first() -> None:
    def place_the_worker_first(events: Events) -> None:
        events.placed(WORKER, "b:2", 5)
        events.placed(PS, "a:1", 3)

    engine = Scripted(place_the_worker_first, lambda events: events.ended(WORKER, 0))
    run_of(engine).run()
    assert engine.commands[WORKER].arguments == ["{'ps': ['a:1'], 'worker': ['b:2']}"]


def test_tasks_without_a_place_are_named() -> None:
    engine = Scripted(lambda events: events.placed(PS, "a:1", 3))
    with pytest.raises(EngineError, match=r"these tasks have no place: worker/0\. .*--start-within"):
        run_of(engine, start_s=0.01).run()
    assert engine.closed == [1] and not engine.commands


def test_a_long_wait_for_places_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_run, "WARN_S", 0.01)
    run = run_of(Scripted(lambda events: events.placed(PS, "a:1", 3)), start_s=0.1)
    said: list[PrintNote] = []
    run.say = said.append
    with pytest.raises(EngineError):
        run.run()
    assert [note.text for note in said][:2] == [
        "for 0.01 s, worker/0 wait for a place; the run gives up after 0.1 s.",
        "for 0.02 s, worker/0 wait for a place; the run gives up after 0.1 s.",
    ]
    assert said[0].level == "WARNING"


def test_an_engine_that_breaks_before_the_start_ends_the_run() -> None:
    engine = Scripted(lambda events: events.broken("no such partition"))
    with pytest.raises(EngineError, match="no such partition"):
        run_of(engine).run()
    assert engine.closed == [1]


def test_ctrl_c_while_tasks_wait_for_places_ends_the_run() -> None:
    engine = Scripted(lambda events: os.kill(os.getpid(), signal.SIGTERM))
    finish = run_of(engine).run()
    assert (finish.exit_code, finish.summary) == (143, "ended by SIGTERM before all tasks had a place")
    assert engine.closed == [143] and not engine.commands


def lose_the_ps_once(events: Events) -> None:
    """What an engine does at each start: the ps is lost at the first one, and the worker ends after the second."""
    run = events
    assert isinstance(run, ClusterRun) and isinstance(run.engine, Scripted)
    if len(run.engine.commands) == 2:
        events.ended(PS, -signal.SIGKILL)
    else:
        events.ended(WORKER, 0)


def test_a_lost_task_is_started_at_its_new_place() -> None:
    engine = Scripted(place_both, lose_the_ps_once)
    finish = run_of(engine, restarts=1).run()
    assert finish.exit_code == 0 and engine.added == [PS]
    assert engine.commands == {PS: TaskCommand(["{'ps': ['c:3'], 'worker': ['b:2']}"], {"CPUS": "1"}, {})}


def test_a_lost_task_without_another_place_fails_the_run() -> None:
    engine = Scripted(place_both, lose_the_ps_once)
    engine.added_at = ""
    finish = run_of(engine, restarts=1).run()
    assert (finish.exit_code, finish.failed) == (127, PS)


@pytest.mark.parametrize("lost", [(PS, WORKER), (WORKER, PS)])
def test_a_task_that_cannot_be_started_again_ends_alone(lost: tuple[TaskId, TaskId]) -> None:
    """The ps cannot. The worker, if it has been started before, is told to end, and reports its end once."""
    started: list[TaskId] = []

    def start(events: Events) -> None:
        commands = engine.commands
        if len(commands) == 2:
            for task in lost:
                events.ended(task, -signal.SIGKILL)
        elif PS in commands:
            raise OSError("too many open files")
        else:
            started.extend(commands)

    engine = Scripted(place_both, start)
    finish = run_of(engine, restarts=1).run()
    assert (finish.exit_code, finish.failed) == (127, PS)
    assert started == ([WORKER] if lost[0] == WORKER else []) and PS in engine.withdrawn
    assert [told for told in engine.signals if told[0]] == ([((WORKER,), signal.SIGTERM)] if started else [])


@pytest.mark.parametrize("is_read", [True, False])
def test_tasks_wait_while_nobody_reads_their_output_and_not_when_they_are_to_end(is_read: bool) -> None:
    read, write = os.pipe()

    def fill(events: Events) -> None:
        for _ in range(40):
            events.output(WORKER, b"x" * 65535 + b"\n")
        threading.Thread(target=take).start()

    def take() -> None:
        left = 40 << 16 if is_read else 0
        while left:
            left -= len(os.read(read, 1 << 16))
        os.kill(os.getpid(), signal.SIGTERM)

    engine = Scripted(place_both, fill)
    assert run_of(engine, fd=write).run().exit_code == 143
    assert engine.holds == [True, False]
    os.close(read)


def test_a_line_without_an_end_is_shown_while_its_task_waits() -> None:
    read, write = os.pipe()

    def ask(events: Events) -> None:
        events.output(WORKER, b"? ")
        threading.Thread(target=answer).start()

    def answer() -> None:
        assert os.read(read, 10) == b"? "
        os.kill(os.getpid(), signal.SIGTERM)

    assert run_of(Scripted(place_both, ask), fd=write).run().exit_code == 143
    os.close(read)
