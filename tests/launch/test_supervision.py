"""Which task is stopped when: the state machine of `tfmini launch`, without processes."""

from __future__ import annotations

import signal
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfmini.exit_codes import ExitCode
from tfmini.launch.supervision import (
    Dismiss,
    Event,
    GraceExpired,
    Instruction,
    PrintNote,
    RunOver,
    ScaleError,
    SendSignal,
    ServerJoined,
    SignalReceived,
    StartGrace,
    StartTasks,
    Supervision,
    TaskExited,
    TaskId,
    TaskMet,
    TaskPhase,
    TimeLimitReached,
    describe_exit,
)

PS0, PS1 = TaskId("ps", 0), TaskId("ps", 1)
W0, W1, W2 = TaskId("worker", 0), TaskId("worker", 1), TaskId("worker", 2)
CHIEF, EVALUATOR = TaskId("chief", 0), TaskId("evaluator", 0)
TERM, KILL, INT = signal.SIGTERM, signal.SIGKILL, signal.SIGINT


def feed(supervision: Supervision, *events: Event) -> list[Instruction]:
    """The instructions for the last event, without the notes."""
    answer: list[Instruction] = []
    for event in events:
        answer = supervision.handle(event)
    return [instruction for instruction in answer if not isinstance(instruction, PrintNote)]


def finished(instructions: list[Instruction]) -> RunOver:
    (finish,) = instructions
    assert isinstance(finish, RunOver)
    return finish


def test_the_run_goes_on_while_its_evaluator_has_a_last_checkpoint() -> None:
    run = Supervision([PS0, CHIEF, W0, EVALUATOR])
    assert run.handle(TaskExited(W0, 0)) == []
    assert run.handle(TaskExited(CHIEF, 0)) == [
        PrintNote("The training has ended; evaluator/0 may have its last checkpoint to evaluate.")
    ]
    assert feed(run, TaskExited(EVALUATOR, 0)) == [SendSignal((PS0,), TERM), StartGrace()]


def test_ps_are_stopped_when_all_workers_and_the_chief_have_finished() -> None:
    run = Supervision([PS0, PS1, CHIEF, W0])
    assert feed(run, TaskExited(W0, 0)) == []
    assert feed(run, TaskExited(CHIEF, 0)) == [SendSignal((PS0, PS1), TERM), StartGrace()]
    assert feed(run, TaskExited(PS1, -TERM)) == []
    assert finished(feed(run, TaskExited(PS0, 143))) == RunOver(0, None, "")
    assert run.phase is TaskPhase.FINISHED


def test_a_ps_that_exits_with_0_early_is_reported_and_no_failure() -> None:
    run = Supervision([PS0, W0])
    assert run.handle(TaskExited(PS0, 0)) == [PrintNote("ps/0 has ended (exit code 0); worker/0 still running.")]
    assert finished(feed(run, TaskExited(W0, 0))).exit_code == 0


def test_the_first_failure_stops_the_rest_and_decides_the_exit_code() -> None:
    run = Supervision([PS0, W0, W1])
    assert feed(run, TaskExited(W1, 3)) == [SendSignal((W0,), TERM), StartGrace()]
    assert feed(run, TaskExited(W0, 1)) == [SendSignal((PS0,), TERM), StartGrace()]
    assert finished(feed(run, TaskExited(PS0, 1))) == RunOver(3, W1, "worker/1 failed first: exit code 3")


@pytest.mark.parametrize("keep_going", [False, True])
def test_a_ps_that_dies_is_named_and_ends_the_run(keep_going: bool) -> None:
    run = Supervision([PS0, W0], keep_going=keep_going)
    assert feed(run, TaskExited(PS0, -KILL)) == [SendSignal((W0,), TERM), StartGrace()]
    assert finished(feed(run, TaskExited(W0, 0))) == RunOver(137, PS0, "ps/0 failed first: killed by SIGKILL")


def test_keep_going_lets_the_other_workers_finish() -> None:
    run = Supervision([PS0, W0, W1], keep_going=True)
    assert run.handle(TaskExited(W0, 2)) == [PrintNote("worker/0 failed (exit code 2); continuing with worker/1.")]
    assert feed(run, TaskExited(W1, 0)) == [SendSignal((PS0,), TERM), StartGrace()]
    assert finished(feed(run, TaskExited(PS0, 0))) == RunOver(2, W0, "worker/0 failed first: exit code 2")


def test_a_worker_that_was_told_to_end_leaves_the_others() -> None:
    run = Supervision([PS0, W0, W1])
    assert feed(run, TaskExited(W1, ExitCode.LEFT)) == []
    assert feed(run, TaskExited(W0, 0)) == [SendSignal((PS0,), TERM), StartGrace()]
    assert finished(feed(run, TaskExited(PS0, 0))).exit_code == 0


def test_the_last_worker_that_leaves_ends_the_run_unfinished() -> None:
    run = Supervision([PS0, W0])
    assert feed(run, TaskExited(W0, ExitCode.LEFT)) == [SendSignal((PS0,), TERM), StartGrace()]
    assert finished(feed(run, TaskExited(PS0, 0))).exit_code == ExitCode.LEFT


def test_a_failure_of_the_last_task_finishes_at_once() -> None:
    run = Supervision([W0])
    assert finished(feed(run, TaskExited(W0, 5))) == RunOver(5, W0, "worker/0 failed first: exit code 5")


def test_a_cluster_of_ps_tasks_runs_until_they_end() -> None:
    run = Supervision([PS0, PS1])
    assert feed(run, TaskExited(PS0, 0)) == []
    assert finished(feed(run, TaskExited(PS1, 0))).exit_code == 0


def test_workers_inside_join_are_stopped_when_the_others_are_done() -> None:
    run = Supervision([PS0, W0, W1])
    assert feed(run, ServerJoined(PS0, True), ServerJoined(W1, True)) == []
    told, *rest = run.handle(TaskExited(W0, 0))
    assert told == PrintNote("The working tasks have finished; stopping worker/1 inside server.join().")
    assert rest == [SendSignal((PS0, W1), TERM), StartGrace()]
    assert finished(feed(run, TaskExited(PS0, 0), TaskExited(W1, 0))) == RunOver(0, None, "")


def test_a_worker_may_join_after_the_work_is_done() -> None:
    run = Supervision([PS0, W0, W1])
    assert feed(run, TaskExited(W0, 0)) == []
    assert feed(run, ServerJoined(W1, True)) == [SendSignal((PS0, W1), TERM), StartGrace()]


def test_a_worker_that_leaves_join_works_again() -> None:
    run = Supervision([PS0, W0, W1])
    assert feed(run, ServerJoined(W1, True), ServerJoined(W1, False), TaskExited(W0, 0)) == []
    assert feed(run, TaskExited(W1, 0)) == [SendSignal((PS0,), TERM), StartGrace()]


def test_a_cluster_inside_join_runs_until_a_signal() -> None:
    run = Supervision([PS0, W0])
    (note,) = run.handle(ServerJoined(W0, True))
    assert note == PrintNote("Every task is inside server.join(): the cluster runs until you end it (Ctrl-C).")
    assert feed(run, SignalReceived(INT)) == [SendSignal((PS0, W0), TERM), StartGrace()]
    assert finished(feed(run, TaskExited(PS0, 0), TaskExited(W0, 0))) == RunOver(130, None, "ended by SIGINT")


def test_when_all_that_joined_have_ended_the_ps_are_stopped() -> None:
    run = Supervision([PS0, W0, W1])
    assert feed(run, ServerJoined(W0, True), ServerJoined(W1, True), TaskExited(W0, 0)) == []
    assert feed(run, TaskExited(W1, 0)) == [SendSignal((PS0,), TERM), StartGrace()]


def test_ctrl_c_ends_the_workers_first_and_then_the_ps() -> None:
    run = Supervision([PS0, W0, W1])
    assert feed(run, SignalReceived(INT)) == [SendSignal((W0, W1), INT), StartGrace()]
    assert feed(run, TaskExited(W0, 0)) == []
    assert feed(run, TaskExited(W1, 1)) == [SendSignal((PS0,), TERM), StartGrace()]
    assert finished(feed(run, TaskExited(PS0, 0))) == RunOver(130, None, "ended by SIGINT")


@pytest.mark.parametrize("signum", [TERM, signal.SIGHUP, signal.SIGPIPE])
def test_other_signals_reach_the_tasks_as_sigterm(signum: signal.Signals) -> None:
    run = Supervision([PS0, W0])
    assert feed(run, SignalReceived(signum))[0] == SendSignal((W0,), TERM)
    assert finished(feed(run, TaskExited(PS0, 0), TaskExited(W0, 0))).exit_code == 128 + signum


def test_a_second_ctrl_c_kills() -> None:
    run = Supervision([PS0, W0])
    assert feed(run, SignalReceived(INT), SignalReceived(INT)) == [SendSignal((PS0, W0), KILL)]


def test_tasks_are_killed_after_the_grace_time() -> None:
    run = Supervision([PS0, W0])
    assert feed(run, GraceExpired()) == []
    assert feed(run, TaskExited(W0, 0), GraceExpired()) == [SendSignal((PS0,), KILL)]
    assert feed(run, GraceExpired()) == []
    assert finished(feed(run, TaskExited(PS0, -KILL))).exit_code == 0


def test_the_time_limit_ends_the_run() -> None:
    run = Supervision([PS0, W0, W1])
    assert feed(run, TaskExited(W0, 0), TimeLimitReached(2.5)) == [SendSignal((W1,), TERM), StartGrace()]
    assert feed(run, TaskExited(W1, -TERM)) == [SendSignal((PS0,), TERM), StartGrace()]
    finish = finished(feed(run, TaskExited(PS0, -TERM)))
    assert finish == RunOver(124, None, "timed out after 2.5 s; still running then: ps/0, worker/1")


@pytest.mark.parametrize("end", [SignalReceived(INT), TimeLimitReached(1.0), TaskExited(W1, 3)])
def test_a_worker_that_joins_its_server_when_it_is_told_to_end_is_stopped_with_the_ps(end: Event) -> None:
    run = Supervision([PS0, W0, W1] if isinstance(end, TaskExited) else [PS0, W0])
    assert feed(run, end, ServerJoined(W0, True)) == [SendSignal((PS0, W0), TERM), StartGrace()]


def test_a_time_limit_after_the_end_has_begun_changes_nothing() -> None:
    run = Supervision([PS0, W0])
    assert feed(run, TaskExited(W0, 0), TimeLimitReached(1)) == []
    assert finished(feed(run, TaskExited(PS0, -TERM))).exit_code == 0


def test_events_of_unknown_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one task"):
        Supervision([])
    with pytest.raises(ValueError, match="worker/1 is not running"):
        Supervision([W0]).handle(TaskExited(W1, 0))


@pytest.mark.parametrize("event, facts", [
    (TaskExited(W1, 3), {"level": "ERROR", "task": "worker/1", "exit_code": 3}),
    (TaskExited(PS0, -KILL), {"level": "ERROR", "task": "ps/0", "exit_code": 137, "signal": "SIGKILL"}),
    (TaskExited(PS0, 0), {"level": "INFO", "task": "ps/0", "exit_code": 0}),
    (TaskExited(W1, ExitCode.LEFT), {"level": "INFO", "task": "worker/1", "exit_code": 143}),
    (TimeLimitReached(1.0), {"level": "ERROR"}),
    (SignalReceived(INT), {"level": "WARNING"}),
])  # fmt: skip
def test_a_note_tells_programs_its_level_and_how_a_task_has_ended(event: Event, facts: dict[str, Any]) -> None:
    note, *_ = Supervision([PS0, W0, W1]).handle(event)
    assert isinstance(note, PrintNote) and note.facts() == facts


def test_exit_codes_and_signals_are_described() -> None:
    assert describe_exit(3) == "exit code 3"
    assert describe_exit(-11) == "killed by SIGSEGV"
    assert describe_exit(-50) == "killed by signal 50"


tasks = st.sets(st.sampled_from([PS0, PS1, CHIEF, W0, W1]), min_size=1)
disturbances = st.lists(
    st.sampled_from([None, SignalReceived(INT), SignalReceived(TERM), TimeLimitReached(1.0), GraceExpired()]),
    max_size=6,
)


@given(tasks, st.randoms(use_true_random=False), disturbances, st.booleans())
def test_every_run_ends_once_with_the_right_result(
    tasks: set[TaskId], random: Random, disturbances: list[Event | None], keep_going: bool
) -> None:
    order = sorted(tasks)
    random.shuffle(order)
    codes = [random.choice([0, 0, 1, -9]) for _ in order]
    events: list[Event] = [TaskExited(task, code) for task, code in zip(order, codes, strict=True)]
    for disturbance in disturbances:
        if disturbance is not None:
            events.insert(random.randrange(len(events)), disturbance)
    run = Supervision(sorted(tasks), keep_going=keep_going)
    alive = set(tasks)
    answers = []
    for event in events:
        if isinstance(event, TaskExited):
            alive.discard(event.task)
        answers += [(set(alive), instruction) for instruction in run.handle(event)]
    for still_alive, instruction in answers:
        if isinstance(instruction, SendSignal):
            assert instruction.tasks
            assert set(instruction.tasks) <= still_alive  # the dead are left in peace
    finishes = [instruction for _, instruction in answers if isinstance(instruction, RunOver)]
    assert finishes == [answers[-1][1]]
    assert not finishes[0].failed or finishes[0].exit_code != 0
    if all(code == 0 for code in codes) and not any(disturbances):
        assert finishes[0].exit_code == 0


def test_a_task_that_was_killed_or_preempted_starts_again_so_many_times() -> None:
    run = Supervision([PS0, W0, W1], restarts=1)
    assert feed(run, TaskExited(PS0, -KILL)) == [StartTasks((PS0,))]
    assert feed(run, TaskExited(W1, ExitCode.LEFT)) == [StartTasks((W1,))]
    assert feed(run, TaskExited(W1, ExitCode.LEFT)) == []  # it has left, as without restarts
    assert feed(run, TaskExited(PS0, -KILL)) == [SendSignal((W0,), TERM), StartGrace()]
    assert finished(feed(run, TaskExited(W0, 0))) == RunOver(137, PS0, "ps/0 failed first: killed by SIGKILL")


@pytest.mark.parametrize("elastic", [True, False])
def test_a_rank_that_is_killed_when_the_others_have_finished_is_not_started_again(elastic: bool) -> None:
    run = Supervision([W0, W1, W2], restarts=3)
    meet = [TaskMet(task, elastic) for task in (W0, W1, W2)]
    assert feed(run, *meet, TaskExited(W1, -KILL)) == [StartTasks((W1,))]  # the others still train
    assert feed(run, TaskMet(W1, elastic), TaskExited(W0, 0)) == []
    assert feed(run, TaskExited(W1, -KILL)) == []
    assert finished(feed(run, TaskExited(W2, 0))) == RunOver(0, None, "")


def test_an_elastic_rank_starts_again_as_long_as_its_leader_is_there() -> None:
    run = Supervision([W0, W1, W2], restarts=3)
    meet = [TaskMet(task, True) for task in (W0, W1, W2)]
    assert feed(run, *meet, TaskExited(W2, 0), TaskExited(W1, -KILL)) == [StartTasks((W1,))]
    assert feed(run, TaskMet(W1, True), TaskExited(W0, 0)) == []  # which is an error for the other one
    assert finished(feed(run, TaskExited(W1, 1))) == RunOver(0, None, "")


@pytest.mark.parametrize("elastic", [True, False])
def test_a_rank_that_has_come_back_when_the_others_finish_is_stopped(elastic: bool) -> None:
    run = Supervision([W0, W1], restarts=3)
    assert feed(run, TaskMet(W0, elastic), TaskMet(W1, elastic), TaskExited(W1, -KILL)) == [StartTasks((W1,))]
    assert feed(run, TaskExited(W0, 0)) == [Dismiss((W1,))]
    assert finished(feed(run, TaskExited(W1, -TERM))) == RunOver(0, None, "")


def test_workers_that_are_no_ranks_are_started_again_whoever_has_finished() -> None:
    run = Supervision([W0, W1], restarts=3)
    assert feed(run, TaskExited(W0, 0), TaskExited(W1, -KILL)) == [StartTasks((W1,))]
    assert finished(feed(run, TaskExited(W1, 1))).exit_code == 1


def test_a_rank_whose_script_fails_when_the_others_have_finished_fails_the_run() -> None:
    run = Supervision([W0, W1], restarts=3)
    feed(run, TaskMet(W0, False), TaskMet(W1, False), TaskExited(W0, 0))
    assert finished(feed(run, TaskExited(W1, 1))).exit_code == 1


def test_a_script_that_failed_would_fail_again_and_nothing_starts_while_the_run_ends() -> None:
    run = Supervision([PS0, W0, W1], restarts=9)
    assert feed(run, TaskExited(W0, 3)) == [SendSignal((W1,), TERM), StartGrace()]
    assert feed(run, TaskExited(W1, -KILL)) == [SendSignal((PS0,), TERM), StartGrace()]


def test_workers_join_with_the_lowest_free_numbers_and_leave_from_the_highest() -> None:
    run = Supervision([PS0, W0, W1])
    w2, w3 = TaskId("worker", 2), TaskId("worker", 3)
    assert run.scale(4)[1:] == [StartTasks((w2, w3))]
    assert run.scale(1)[1:] == [Dismiss((W1, w2, w3))]
    assert feed(run, TaskExited(W1, -TERM), TaskExited(w3, 143), TaskExited(w2, -KILL)) == []
    assert run.scale(2)[1:] == [StartTasks((W1,))]
    assert run.scale(2)[1:] == []
    assert feed(run, TaskExited(W0, 0), TaskExited(W1, 0)) == [SendSignal((PS0,), TERM), StartGrace()]
    assert finished(feed(run, TaskExited(PS0, 0))).exit_code == 0


def test_a_worker_that_has_joined_does_not_fail_the_run() -> None:
    run = Supervision([PS0, W0])
    run.scale(2)
    (note,) = run.handle(TaskExited(W1, 1))
    assert note == PrintNote("worker/1, which had joined the run, failed (exit code 1); worker/0 still running.")
    assert feed(run, TaskExited(W0, 0)) == [SendSignal((PS0,), TERM), StartGrace()]


def test_a_worker_with_the_number_of_one_that_had_joined_is_waited_for() -> None:
    run = Supervision([PS0, W0, W1])
    run.handle(ServerJoined(W1, True))
    assert feed(run, TaskExited(W1, 0)) == []
    assert run.scale(2)[1:] == [StartTasks((W1,))]
    assert feed(run, TaskExited(W0, 0)) == []  # worker/1 is at work
    assert feed(run, TaskExited(W1, 0)) == [SendSignal((PS0,), TERM), StartGrace()]


def test_a_run_gets_no_more_workers_than_its_machine_can_hold() -> None:
    run = Supervision([PS0, W0], most_workers=128)
    with pytest.raises(ScaleError, match="this machine has too few cores; at most 128 workers may share them"):
        run.scale(5000)
    (note, starts) = run.scale(128)
    assert note == PrintNote("starting worker/1 … worker/127 (127 tasks), to join the run.")
    assert isinstance(starts, StartTasks) and len(starts.tasks) == 127


@pytest.mark.parametrize("returncode", [ExitCode.LEFT, -TERM, -KILL])
def test_a_worker_may_be_asked_to_leave_and_go_after_all_others_have_finished(returncode: int) -> None:
    run = Supervision([PS0, W0, W1])
    run.scale(1)
    assert feed(run, TaskExited(W0, 0)) == []
    (note, *rest) = run.handle(TaskExited(W1, returncode))
    assert note == PrintNote("worker/1 has left the run, as asked.")
    assert rest == [SendSignal((PS0,), TERM), StartGrace()]
    assert finished(feed(run, TaskExited(PS0, 0))).exit_code == 0


def test_a_worker_that_joined_or_was_told_to_end_fails_no_run_whose_others_have_finished() -> None:
    run = Supervision([PS0, W0, W1])
    run.scale(3)
    run.handle(TaskExited(W0, 0))
    (late,) = run.handle(TaskExited(TaskId("worker", 2), 1))
    assert late == PrintNote("worker/2, which had joined the run, failed (exit code 1); worker/1 still running.")
    (told, *_) = run.handle(TaskExited(W1, ExitCode.LEFT))
    assert told == PrintNote("worker/1 was told to end (SIGTERM) and has left; the others have finished.")
    assert finished(feed(run, TaskExited(PS0, 0))).exit_code == 0


def test_a_run_that_ends_or_serves_one_graph_is_not_scaled() -> None:
    run = Supervision([PS0, W0, W1])
    run.handle(ServerJoined(W1, True))
    with pytest.raises(ScaleError, match=r"worker/1 serves inside server.join\(\)"):
        run.scale(3)
    run.handle(ServerJoined(W1, False))
    run.handle(TaskExited(W1, 0))
    with pytest.raises(ScaleError, match="the run is ending"):
        run.scale(3)
    with pytest.raises(ScaleError, match="no workers of its own"):
        Supervision([PS0]).scale(3)
