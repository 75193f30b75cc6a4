"""Requests of remote clients that are cancelled before their plan or session is ready."""

from __future__ import annotations

import types
from typing import Any

import pytest

from tfmini import errors
from tfmini.rpc import messages as m
from tfmini.runtime.client.session import local_master
from tfmini.runtime.master import master_service
from tfmini.runtime.master.master_service import master_handlers
from tfmini.runtime.options import SessionOptions
from tfmini.runtime.resources import SessionOwners

CLIENT: Any = types.SimpleNamespace(task="", identity=("", 7, b""), backlog=0)


class Respond:
    """The responder of a request that its client cancels."""

    cancelled = False
    is_open = True

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def __call__(self, answer: Any) -> None:
        self.answers.append(answer)


def test_a_step_that_its_client_has_cancelled_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Any] = []
    master, respond = local_master(SessionOptions()), Respond()
    session = master.create_session((), SessionOptions())
    monkeypatch.setattr(session, "prepare", lambda signature, on_plan, *rest: plans.append(on_plan))
    owners: Any = types.SimpleNamespace(check=lambda handle, peer: None)
    handler = master_handlers(master, owners)[m.RunStep]
    handler(CLIENT, m.RunStep(session.handle, (), (), (), ("x",), b""), respond)
    respond.cancelled = True
    plans[0](None, types.SimpleNamespace(traced=False, parts=[None], fetches=()))  # a plan that cannot be run
    assert [type(answer) for answer in respond.answers] == [errors.CancelledError]
    assert session.counts.runs == 0 and session.steps() == []


def test_a_session_that_its_client_has_cancelled_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    monkeypatch.setattr(master_service, "open_session", lambda *args: opened.append(args[-1]))
    master, respond = local_master(SessionOptions()), Respond()
    owners = SessionOwners(types.SimpleNamespace(call_later=None))  # type: ignore[arg-type]
    master_handlers(master, owners)[m.CreateSession](CLIENT, m.CreateSession([], b"", ""), respond)
    respond.cancelled = True
    session = master.create_session((), SessionOptions())
    opened[0](None, session)
    assert session.closed and [type(answer) for answer in respond.answers] == [errors.CancelledError]
