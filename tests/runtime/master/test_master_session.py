"""A master's side of a session: what may be called while others wait."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tfmini.errors import AbortedError, CancelledError, InternalError, InvalidArgumentError
from tfmini.graph.node import Node
from tfmini.locks import made_by
from tfmini.placement.placer import place
from tfmini.runtime.client.session import local_master
from tfmini.runtime.master import master_session
from tfmini.runtime.master.master_session import MasterSession
from tfmini.runtime.options import SessionOptions


def test_waits_are_told_without_the_lock_of_the_session() -> None:
    """The callback may send, or call into another session."""
    session = local_master(SessionOptions()).create_session((), SessionOptions())
    waiting: Any = type("Waiting", (), {"describe_wait": lambda self: "it waits"})()
    session.book.registrations[waiting] = None
    told: list[str] = []

    def tell(text: str) -> None:
        other = threading.Thread(target=lambda: told.append(text) if session._book.lock.acquire(timeout=10) else None)
        other.start()
        other.join()

    session.describe_wait(((), (), ()), tell)
    assert told == ["it waits"]


def test_a_placement_is_printed_without_the_lock_of_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output may be a pipe that nobody reads, and every step needs that lock for its plan."""
    locks: dict[str, Any] = {}
    with made_by(lambda name, reentrant: locks.setdefault(name, threading.Lock())):
        session = MasterSession(
            local_master(SessionOptions()), "s", SessionOptions(log_device_placement=True), bool, lambda closed: None
        )
    printed: list[tuple[str, bool]] = []
    monkeypatch.setattr("builtins.print", lambda line: printed.append((line, locks["session graph"].locked())))
    session.extend([Node("c", "NoOp")])
    assert printed == [("c: (NoOp): /job:localhost/replica:0/task:0/device:CPU:0", False)]


def test_a_bug_while_a_graph_is_placed_after_a_question_to_tasks_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is raised where nobody waits for it: the client waits for the answer."""
    session = local_master(SessionOptions()).create_session((), SessionOptions())
    asked: list[Any] = []
    monkeypatch.setattr(session.cluster, "learn_devices", lambda nodes, options, known: asked.append(known))

    def place(*_: Any, **__: Any) -> Any:
        raise RecursionError("too deep")

    monkeypatch.setattr(master_session, "place", place)
    outcomes: list[Any] = []
    session.extend_when_known([Node("c", "NoOp")], outcomes.append)
    with pytest.raises(RecursionError):
        asked[0]()
    assert [(type(error), error.message) for error in outcomes] == [(InternalError, "RecursionError: too deep")]


def test_another_session_asks_whether_a_graph_trains_while_it_grows() -> None:
    """Its thread goes through the op types of this one, which may be extended meanwhile."""
    session = local_master(SessionOptions()).create_session((), SessionOptions())

    class Growing(str):
        """An op type that, when it is looked at, makes the graph grow once."""

        grows = False

        def __hash__(self) -> int:
            if Growing.grows:
                Growing.grows = False
                session.extend([Node("v", "VariableV2")])
            return str.__hash__(self)

    session.extend([Node("c", Growing("NoOp"))])
    Growing.grows = True
    assert not session.has_training
    assert not Growing.grows and len(session.nodes) == 2


def test_a_graph_that_grows_is_placed_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that adds an op per run takes linear time; an op that cannot be placed leaves nothing behind."""
    session = local_master(SessionOptions()).create_session((), SessionOptions())
    sizes: list[int] = []

    def counting(nodes: Any, *args: Any, **options: Any) -> Any:
        sizes.append(len(nodes))
        return place(nodes, *args, **options)

    monkeypatch.setattr(master_session, "place", counting)
    for i in range(20):
        session.extend([Node(f"c{i}", "NoOp", controls=[f"c{i - 1}"] if i else [])])
    with pytest.raises(InvalidArgumentError):
        session.extend([Node("wrong", "NoOp", "/job:nowhere")])
    assert sizes == [1] * 21 and len(session.nodes) == len(session.placement) == 20
    session.close()


def test_an_extension_whose_answer_is_lost_is_repeated_with_what_has_come_since() -> None:
    session = local_master(SessionOptions()).create_session((), SessionOptions())
    a, b, c, d = (Node(name, "NoOp") for name in "abcd")
    assert session.extend([a], since=0) == 1
    assert session.extend([b], since=1) == 2 and session.extend([b, c], since=1) == 3  # neither was heard of
    assert session.extend([b, c], since=1) == 3 and list(session.nodes) == ["a", "b", "c"]
    assert session.extend([b, c, d], since=1) == 4
    for nodes, since in (([b], 1), ([Node("x", "NoOp"), c, d], 1), ([Node("e", "NoOp")], 9), ([], 0)):
        with pytest.raises(AbortedError, match=f"Current version is 4 but caller expected {since}"):
            session.extend(nodes, since)
    with pytest.raises(InvalidArgumentError, match="'a', which was created by a previous call"):
        session.extend([a], since=4)
    session.close()


def test_a_step_that_waits_in_a_hold_ends_with_its_session() -> None:
    session = local_master(SessionOptions()).create_session((), SessionOptions())
    session.extend([Node("nothing", "NoOp")])
    plans: list[Any] = []
    session.prepare(((), (), ("nothing",)), lambda error, plan: plans.append(plan))
    session.hold(lambda plan: True, "/job:ps/replica:0/task:0")
    ended: list[Any] = []
    session.new_step(plans[0], lambda error, values, trace: ended.append(error), None).start([])
    assert ended == []
    session.close()
    assert [type(error) for error in ended] == [CancelledError]
