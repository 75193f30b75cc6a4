"""A session that is closed during its first run: the run ends with an error, and nothing stays open anywhere."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.polling import poll
from tfmini.locks import made_by
from tfmini.rpc.calls import CallHandle
from tfmini.rpc.messages import CloseSession, CreateSession, CreateSessionReply
from tfmini.rpc.peer import Peer
from tfmini.runtime.client import answer, master_clients
from tfmini.runtime.client.master_clients import RemoteMaster
from tfmini.runtime.master.master_session import MasterSession
from tfmini.runtime.options import SessionOptions
from tfmini.runtime.worker.worker import Worker
from tfmini.testing import ProcessCluster

PLACES = ["local", "this process", "another process"]
MESSAGE = "explicit call to `Session::Close"


@pytest.fixture
def server() -> Iterator[Any]:
    with tf.train.Server.create_local_server() as server:
        yield server


def session_at(place: str, server: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    if place == "another process":
        monkeypatch.setattr("tfmini.runtime.process.server_at", lambda address: None)
    return tf.Session("" if place == "local" else server.target)


class Interrupting:
    """A fed value during whose conversion something happens in another thread, as during that of a large list."""

    def __init__(self, action: Callable[[], Any]) -> None:
        self._action = action

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self._action()
        return np.zeros([], dtype or np.float32)


class MadeLocks:
    """Makes the locks of the library and remembers them by name."""

    def __init__(self) -> None:
        self._locks: list[tuple[str, Any]] = []

    def __call__(self, name: str, reentrant: bool) -> Any:
        made = threading.RLock() if reentrant else threading.Lock()
        self._locks.append((name, made))
        return made

    @contextlib.contextmanager
    def held(self, *names: str) -> Iterator[None]:
        """Holds the locks of those names, in the order in which a thread may take them."""
        with contextlib.ExitStack() as stack:
            for name in names:
                found = [lock for own, lock in self._locks if own == name]
                assert found, f"no lock {name!r} was made"
                for lock in found:
                    stack.enter_context(lock)
            yield


def waiting_step() -> tuple[Any, Any]:
    fed = tf.placeholder(tf.float32, [])
    with tf.control_dependencies([fed + 1.0]):
        return fed, tf.FIFOQueue(1, [tf.int32]).dequeue()


@pytest.mark.parametrize("place", PLACES)
def test_a_first_run_ends_if_its_session_is_closed_before_it_is_open(
    place: str, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed, wait = waiting_step()
    session = session_at(place, server, monkeypatch)
    with pytest.raises(tf.errors.CancelledError, match=MESSAGE):
        session.run(wait, {fed: Interrupting(session.close)})
    assert not server.master.sessions
    with pytest.raises(RuntimeError, match="closed Session"):
        session.run(wait, {fed: 0.0})


@pytest.mark.parametrize("place", PLACES)
def test_a_session_that_opens_after_it_was_closed_is_closed_at_its_master(
    place: str, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of the master is on its way when the session is closed."""
    fed, wait = waiting_step()
    session = session_at(place, server, monkeypatch)
    opened: list[Any] = []
    if place == "another process":
        call = Peer.call

        def call_late(peer: Peer, request: Any, on_reply: Any, *args: Any, **options: Any) -> Any:
            if not isinstance(request, CreateSession):
                return call(peer, request, on_reply, *args, **options)
            return call(peer, request, lambda reply: (opened.append(1), session.close(), on_reply(reply)), **options)

        monkeypatch.setattr(Peer, "call", call_late)
    else:
        open_session = master_clients.open_session

        def open_late(*args: Any, **options: Any) -> None:
            *rest, on_done = args
            open_session(*rest, lambda *found: (opened.append(1), session.close(), on_done(*found)), **options)

        monkeypatch.setattr(master_clients, "open_session", open_late)
    with pytest.raises(tf.errors.CancelledError, match=MESSAGE):
        session.run(wait, {fed: 0.0})
    assert opened == [1]
    poll(lambda: not server.master.sessions, "the end of the session")


@pytest.mark.parametrize("end", ["deadline", "Ctrl-C"])
def test_a_session_that_its_master_creates_too_late_is_closed_there(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of the master is on its way when the client gives up."""
    sent: list[Any] = []
    calls: list[CallHandle] = []

    def call(
        peer: Peer, request: Any, on_reply: Any, timeout_s: float | None = None, wait_for_ready: bool = False
    ) -> CallHandle:
        sent.append(request)
        handle = peer.calls[len(sent)] = CallHandle(peer, type(request), len(sent), on_reply, None, None)
        if timeout_s is not None:
            handle.expire_after(timeout_s, peer.endpoint.reactor)
        calls.append(handle)
        return handle

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Peer, "call", call)
    if end == "Ctrl-C":
        monkeypatch.setattr(answer.Answer, "result", interrupt)
    master = RemoteMaster("localhost:1", b"", SessionOptions(operation_timeout_s=0.05))
    with pytest.raises(tf.errors.UnavailableError if end == "deadline" else KeyboardInterrupt):
        master.extend([])
    (peer,) = {created.peer for created in calls}
    peer.calls.pop(1).finish(CreateSessionReply("h", 0))
    assert [type(request) for request in sent] == [CreateSession, CloseSession] and sent[1].session_handle == "h"
    peer.calls.clear()


MOMENTS = ["extend", "prepare", "find_plan", "create_session", "new_step", "add_step"]


@pytest.mark.parametrize("is_reset", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_a_first_run_says_why_its_session_has_ended_whenever_that_was(
    place: str, is_reset: bool, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed session is no lost task, from which a MonitoredSession recovers, and one that was reset is."""
    fed, wait = waiting_step()
    opened: list[MasterSession] = []
    begin = MasterSession.__init__

    def noted(self: MasterSession, *args: Any, **options: Any) -> None:
        opened.append(self)
        begin(self, *args, **options)

    monkeypatch.setattr(MasterSession, "__init__", noted)
    reason = ("was reset", tf.errors.AbortedError.of) if is_reset else ()
    kind, text = (tf.errors.AbortedError, "was reset") if is_reset else (tf.errors.CancelledError, MESSAGE)
    for moment in MOMENTS:
        if moment == "find_plan" and place == "another process":  # only a client in the master's process calls it
            continue
        owner: Any = Worker if moment == "create_session" else MasterSession
        call = getattr(owner, moment)

        def closed_before(*args: Any, call: Any = call, **options: Any) -> Any:
            opened[-1].close(*reason)
            return call(*args, **options)

        with monkeypatch.context() as patch:
            patch.setattr(owner, moment, closed_before)
            session = session_at(place, server, monkeypatch)
            with pytest.raises(kind, match=text):
                session.run(wait, {fed: 0.0})
        master: Any = opened[-1].cluster
        assert not master.sessions and not master.worker.sessions, moment


@pytest.mark.cluster
@pytest.mark.parametrize("is_remote", [False, True])
def test_closing_ends_the_wait_for_a_task_that_a_first_run_asks_for_its_devices(
    is_remote: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(answer, "FIRST_S", 0.2)
    cluster = ProcessCluster(ps=1, workers=2, local=("worker", 0))
    try:
        cluster.start_task("worker", 1)
        cluster.start_local()
        with tf.device("/job:ps/task:0/device:CPU:1"):  # a task that is never started
            result = tf.constant(1.0) + tf.placeholder_with_default(1.0, [])
        session = tf.Session(cluster.target("worker", 1) if is_remote else cluster.server.target)
        ended: list[Any] = []

        def run() -> None:
            try:
                session.run(result)
            except tf.errors.OpError as error:
                ended.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        waits = "its session has not been created" if is_remote else "asks tasks for devices"
        poll(lambda: waits in caplog.text, "the question")
        session.close()
        thread.join(60)
        assert [type(error) for error in ended] == [tf.errors.CancelledError]
    finally:
        cluster.stop()


@pytest.mark.parametrize("place", PLACES[1:])
def test_a_session_that_is_dropped_is_closed_at_its_master(
    place: str, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a session of a helper function, which nobody closes."""
    one = tf.constant(1.0) + tf.placeholder_with_default(0.0, [])

    def evaluate() -> Any:
        return session_at(place, server, monkeypatch).run(one)

    for _ in range(3):
        assert evaluate() == 1.0
    poll(lambda: not (server.master.sessions or server.worker.sessions), "the end of the sessions")
    session_at(place, server, monkeypatch)  # which has never run anything


@pytest.mark.parametrize("place", PLACES[1:])
def test_a_session_may_be_dropped_while_its_thread_holds_any_lock(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A garbage collection may come in the middle of everything, also of the opening of another session."""
    with made_by(made := MadeLocks()), tf.train.Server.create_local_server() as server:
        session = session_at(place, server, monkeypatch)
        session.run(tf.constant(1.0))
        endpoint = master_clients.client_endpoint()
        with made.held("client pending", "master", "task"), endpoint._lock:
            del session
        poll(lambda: not server.master.sessions, "the end of the session")


@pytest.mark.parametrize("runs", [True, False])
def test_a_local_session_may_be_dropped_in_a_lock_of_its_running_step(runs: bool) -> None:
    """The thread of a Python function, say, outlives the step that has waited for it."""
    with made_by(made := MadeLocks()):
        session = tf.Session()
        session.run(tf.constant(1.0))
    master = session.master.master  # type: ignore[attr-defined]
    if runs:
        master.worker.runs[1] = SimpleNamespace(graph=SimpleNamespace(session_handle=""))
    with made.held("client pending", "session plans", "task"):
        del session
    poll(lambda: not master.sessions, "the end of the session")


_EXIT = """
import sys
import tfmini as tf
import tfmini.runtime.process as targets
server = tf.train.Server.create_local_server()
if sys.argv[1] == "another process":
    targets.server_at = lambda address: None
session = tf.Session("" if sys.argv[1] == "local" else server.target)
print(session.run(tf.constant(1.0)))
"""


@pytest.mark.parametrize("place", PLACES)
def test_a_session_that_is_open_when_its_script_ends_says_nothing(place: str) -> None:
    """Its destructor may run when the modules that it needs are gone."""
    found = subprocess.run(
        [sys.executable, "-c", _EXIT, place], capture_output=True, text=True, timeout=100, check=True
    )
    assert (found.stdout, found.stderr) == ("1.0\n", "")
