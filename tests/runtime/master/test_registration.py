"""The parts of a plan are sent to other tasks before this task compiles its own; a failure withdraws all of them."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest

from tfmini import errors
from tfmini.placement.task_graph import TaskGraph
from tfmini.rpc.calls import CallHandle
from tfmini.rpc.messages import (
    Acknowledged,
    CreateWorkerSession,
    DeleteWorkerSession,
    DeregisterGraph,
    RegisterGraph,
    RegisterGraphReply,
)
from tfmini.rpc.peer import State
from tfmini.runtime.master.registration import Plan, Registration, SessionOnTasks

HERE, THERE = "/job:worker/replica:0/task:0", "/job:ps/replica:0/task:0"


class World:
    """A registration with a part here and one on another task; ``log`` has what happens, in order.

    Args:
      compile: what compiling the local part does; it may call ``answer``.
    """

    def __init__(self, compile: Callable[[World], Any] = lambda world: None) -> None:  # noqa: A002
        self.log: list[str] = []
        self.outcomes: list[errors.OpError | None] = []
        self.answer: Callable[[Any], None] = lambda answer: None
        self._compile = compile
        peer = types.SimpleNamespace(call=self._call, incarnation=3, address="there", why="", state=None)
        worker = types.SimpleNamespace(
            now=lambda: 0.0, incarnation=1, register_graph=self._register,
            deregister_graph=lambda handle: self.log.append(f"forget {handle} here"),
        )  # fmt: skip
        cluster = types.SimpleNamespace(task=HERE, worker=worker, reactor=None, peer=lambda task: peer, addresses=dict)
        options = types.SimpleNamespace(fold_constants=True, operation_timeout_s=None)
        session: Any = types.SimpleNamespace(
            cluster=cluster,
            handle="s",
            options=options,
            in_process=True,
            is_open_on=lambda peer, task, needed: task == THERE,
            open_here=lambda: None,
        )
        self.parts = [self._part(HERE), self._part(THERE)]
        plan: Any = types.SimpleNamespace(parts=self.parts, traced=False, local=None, trains=True)
        self.registration = Registration(session, plan, self.outcomes.append)

    @staticmethod
    def _part(task: str) -> Any:
        return types.SimpleNamespace(
            task=task, task_graph=TaskGraph({}), receivers=(), graph=None, peer=None, graph_handle=0, incarnation=0
        )

    def _register(self, *_: Any) -> Any:
        self.log.append("compile here")
        self._compile(self)
        return types.SimpleNamespace(handle=5, driver=types.SimpleNamespace(is_blocking=False))

    def _call(self, request: Any, on_reply: Callable[[Any], None], **_: Any) -> None:
        if isinstance(request, RegisterGraph):
            self.log.append("ask the other task")
            self.answer = on_reply
        elif isinstance(request, DeregisterGraph):
            self.log.append(f"forget {request.graph_handle} there")


def test_the_other_tasks_compile_at_the_same_time() -> None:
    world = World()
    world.registration.start()
    assert world.log == ["ask the other task", "compile here"]
    assert world.outcomes == []
    world.answer(RegisterGraphReply(7, []))
    assert world.outcomes == [None] and world.parts[1].graph_handle == 7


def test_an_answer_that_comes_before_the_own_part_is_compiled_does_not_end_the_registration() -> None:
    world = World(lambda world: (world.answer(RegisterGraphReply(7, [])), world.log.append(str(world.outcomes))))
    world.registration.start()
    assert world.log[-1] == "[]" and world.outcomes == [None]


def test_a_part_that_cannot_be_compiled_here_is_withdrawn_there() -> None:
    def fail(world: World) -> None:
        raise errors.InvalidArgumentError.of("no kernel")

    world = World(fail)
    world.registration.start()
    assert [error.message for error in world.outcomes if error] == ["no kernel"]
    world.answer(RegisterGraphReply(7, []))
    assert world.log[-1] == "forget 7 there" and len(world.outcomes) == 1


def test_an_interruption_of_the_compiler_is_a_failure() -> None:
    def interrupt(world: World) -> None:
        raise KeyboardInterrupt

    world = World(interrupt)
    with pytest.raises(KeyboardInterrupt):
        world.registration.start()
    assert isinstance(world.outcomes[0], errors.InternalError)
    world.answer(RegisterGraphReply(7, []))
    assert world.log[-1] == "forget 7 there" and len(world.outcomes) == 1


def test_a_failure_there_while_this_task_compiles_withdraws_the_part_here() -> None:
    world = World(lambda world: world.answer(errors.UnavailableError.of("gone")))
    world.registration.start()
    assert [error.message for error in world.outcomes if error] == ["gone"]
    assert world.log[-1] == "forget 5 here"


class Slow:
    """A registration on a task that has not opened the session when the time is up.

    Args:
      is_sent: whether the task has got the request, and answers too late.
    """

    def __init__(self, is_sent: bool) -> None:
        self.is_sent = is_sent
        self.sent: list[type] = []
        self.outcomes: list[errors.OpError | None] = []
        self.timers: list[Callable[[], Any]] = []
        self.calls: dict[int, CallHandle] = {}
        self.peer: Any = types.SimpleNamespace(
            calls=self.calls, call=self._call, incarnation=3, address="there", why="", doing="", state=None,
            send_if_ready=lambda message: None, on_lost=lambda callback: lambda: None,
        )  # fmt: skip
        self.reactor: Any = types.SimpleNamespace(call_later=self._call_later)
        worker = types.SimpleNamespace(now=lambda: 0.0, incarnation=1, delete_session=lambda *_: None)
        cluster: Any = types.SimpleNamespace(
            task=HERE, worker=worker, reactor=self.reactor, peer=lambda task: self.peer, addresses=dict,
            worker_name=lambda task: "",
        )  # fmt: skip
        options: Any = types.SimpleNamespace(
            isolate_session_state=False, operation_timeout_s=0.2, connect_timeout_s=9.0, fold_constants=True
        )
        self.session = SessionOnTasks(cluster, "s", options)
        plan: Any = types.SimpleNamespace(parts=[World._part(THERE)], traced=False, local=None)
        self.registration = Registration(self.session, plan, self.outcomes.append)

    def _call(self, request: Any, on_reply: Any, timeout_s: float | None = None, **_: Any) -> CallHandle:
        self.sent.append(type(request))
        parts = None if self.is_sent else [b"waits for the connection"]
        call = CallHandle(self.peer, type(request), len(self.sent), on_reply, None, parts)
        self.calls[call.request_id] = call
        if timeout_s is not None:
            call.expire_after(timeout_s, self.reactor)
        return call

    def _call_later(self, seconds: float, call: Callable[..., Any], *args: Any) -> Any:
        if seconds == 0.2:
            self.timers.append(lambda: call(*args))
        return types.SimpleNamespace(cancel=lambda: None)

    def time_is_up(self) -> None:
        self.registration.start()
        for fire in self.timers:
            fire()
        (error,) = self.outcomes
        assert isinstance(error, errors.DeadlineExceededError)
        assert "had no answer within 0.2 s" in error.message and f"{THERE} at there could not be" in error.message


def test_a_session_that_a_task_opens_after_it_was_closed_is_deleted_there() -> None:
    """The request to delete it may have overtaken the one to open it, which another thread sends."""
    slow = Slow(is_sent=True)
    slow.time_is_up()
    slow.session.close(lambda: errors.CancelledError.of("closed"))
    assert slow.sent == [CreateWorkerSession, DeleteWorkerSession]
    slow.calls.pop(1).finish(Acknowledged())
    assert slow.sent == [CreateWorkerSession, DeleteWorkerSession, DeleteWorkerSession]


def test_a_session_that_a_task_opens_late_and_that_is_open_stays_open_there() -> None:
    slow = Slow(is_sent=True)
    slow.time_is_up()
    slow.calls.pop(1).finish(Acknowledged())
    assert slow.session.incarnation_on(THERE) == 3 and slow.sent == [CreateWorkerSession]


def test_a_task_that_cannot_be_reached_is_not_asked_any_more_when_the_time_is_up() -> None:
    """A call that waits would let its peer connect again and again, for ever."""
    slow = Slow(is_sent=False)
    slow.time_is_up()
    assert slow.calls == {}


def test_what_keeps_a_connection_ends_with_a_session_that_is_closed_while_a_task_opens_it() -> None:
    """Another thread closes the session after the answer has been looked at, and before the connection is held."""
    slow, held = Slow(is_sent=True), list[str]()

    def watch(callback: Any) -> Callable[[], None]:
        slow.session.close(lambda: errors.CancelledError.of("closed"))
        held.append("watched")
        return lambda: held.append("let go")

    slow.peer.on_lost = watch
    slow.registration.start()
    slow.calls.pop(1).finish(Acknowledged())
    assert held == ["watched", "let go"]


def test_what_is_to_be_done_at_the_end_of_a_session_that_has_ended_is_done_at_once() -> None:
    """Its owner's entry would stay for ever."""
    slow, done = Slow(is_sent=True), list[str]()
    slow.session.at_end(lambda: done.append("before"))
    slow.session.close(lambda: errors.CancelledError.of("closed"))
    slow.session.at_end(lambda: done.append("after"))
    assert done == ["before", "after"]


def test_a_task_is_not_asked_to_open_a_session_that_has_been_closed() -> None:
    """`close` would not find it among those to tell, if the answer got lost."""
    slow = Slow(is_sent=True)
    slow.session.close(lambda: errors.CancelledError.of("closed"))
    slow.registration.start()
    assert slow.sent == [] and [str(error.message) for error in slow.outcomes if error] == ["closed"]


def test_a_task_that_compiles_for_long_is_told_as_such(caplog: pytest.LogCaptureFixture) -> None:
    """It has opened the session: it said that CreateSession waits for it."""
    slow, reports = Slow(is_sent=True), list[Callable[[], Any]]()
    slow.peer.why, slow.peer.state = "no route", State.READY
    later = slow.reactor.call_later
    slow.reactor.call_later = lambda s, call, *args: (
        reports.append(call) if s == 5.0 else None,
        later(s, call, *args),
    )[1]
    slow.registration.start()
    reports[0]()
    slow.calls.pop(1).finish(Acknowledged())
    reports[1]()
    opens, compiles = [record.getMessage() for record in caplog.records]
    assert opens.startswith(f"CreateSession still waiting for response from worker: {THERE} at there")
    assert opens.endswith("(5 s; gives up after 0.2 s)")
    assert compiles.startswith(f"RegisterGraph still waiting for response from worker: {THERE} at there: it compiles")
    assert "CreateSession" not in compiles and "it compiles" in slow.registration.describe_wait()


def test_a_plan_that_is_halted_while_it_is_registered_is_not_the_clients_thread_s_to_run() -> None:
    nothing: Any = object()
    plan, graph = Plan((), (), nothing, []), nothing
    plan.halt(True)
    plan.set_local(graph)
    assert plan.local is None
    plan.halt(False)
    assert plan.local is graph


def test_a_task_is_told_the_addresses_of_those_to_which_it_sends() -> None:
    """Those of all tasks would be workers * ps * tasks in a job. What it knows it is not told again."""
    slow = Slow(is_sent=True)
    addresses = {f"/job:worker/replica:0/task:{i}": f"host{i}:1" for i in range(9)}
    slow.session.cluster.addresses = lambda: addresses
    told: list[list[str]] = []
    call = slow.peer.call

    def answered(request: Any, *args: Any, **options: Any) -> Any:
        handle = call(request, *args, **options)
        if isinstance(request, CreateWorkerSession):
            told.append(list(request.tasks))
            slow.calls.pop(len(slow.sent)).finish(Acknowledged())
        return handle

    slow.peer.call = answered
    for receivers in ([1], [1], [1, 2], [2]):
        part = World._part(THERE)
        part.receivers = {f"/job:worker/replica:0/task:{i}" for i in receivers}
        plan: Any = types.SimpleNamespace(parts=[part], traced=False, local=None)
        Registration(slow.session, plan, slow.outcomes.append).start()
    assert told == [list(addresses)[1:2], list(addresses)[1:3]]
