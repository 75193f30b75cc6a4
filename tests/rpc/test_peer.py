"""Calls of a peer whose connection ends while other threads make and send calls."""

from __future__ import annotations

import errno
import operator
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

from tfmini import errors
from tfmini.rpc import messages as m
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.link import HELLO_TIMEOUT_S
from tfmini.rpc.peer import CallHandle, Peer, State
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.waiter import Waiter
from tfmini.rpc.zmq_transport import ZmqTransport
from tfmini.testing import SimulatedNetwork


class Losing(CallHandle):
    """A call whose message another thread sends, for good, once it has been seen: it cannot be sent again."""

    @property
    def parts(self) -> Any:
        found, self._parts = self._parts, None
        return found

    @parts.setter
    def parts(self, parts: Any) -> None:
        self._parts = parts


def calls_that_fail(peer: Peer) -> list[CallHandle]:
    """Those that end with the connection."""
    return peer._split_calls(permanent=False)


@pytest.mark.parametrize("parts", [[b"message"], None])
def test_a_call_that_is_sent_while_its_link_ends_waits_or_fails(parts: Any) -> None:
    """It is in one of both lists, and waits only with its message."""
    host = SimulatedNetwork().host("w")
    peer = Endpoint(host, "/job:w", 7, transports={"sim": host.transport}).peer("sim://ps", "/job:ps")
    call = Losing(peer, m.GetStatus, 1, lambda answer: None, None, parts)
    peer.calls[1] = call
    failed = calls_that_fail(peer)
    waiting = list(peer._waiting.drain())
    assert (failed, waiting) == (([], [(parts, call)]) if parts else ([call], []))


def test_a_call_that_is_made_while_a_connection_ends_waits_for_the_next_one() -> None:
    """It enters the table after the calls have been counted, and queues when it finds the connection lost."""
    host = SimulatedNetwork().host("w")
    peer = Endpoint(host, "/job:w", 7, transports={"sim": host.transport}).peer("sim://ps", "/job:ps")
    made = CallHandle(peer, m.GetStatus, 2, lambda answer: None, None, [b"later"])

    class Making(Losing):
        @property
        def parts(self) -> Any:
            peer.calls[2] = made
            return None

        @parts.setter
        def parts(self, parts: Any) -> None: ...

    first = peer.calls[1] = Making(peer, m.GetStatus, 1, lambda answer: None, None, None)
    assert calls_that_fail(peer) == [first]


def _hasty(monkeypatch: pytest.MonkeyPatch, reactor: Any, hasty_s: float) -> None:
    """Timers of that delay are due before `call_later` returns, as in a thread that stops there for longer."""
    call_as_usual = reactor.call_later

    def call_later(delay: float, call: Any, *args: Any) -> Any:
        if delay != hasty_s:
            return call_as_usual(delay, call, *args)
        call(*args)
        return SimpleNamespace(cancel=lambda: None)

    monkeypatch.setattr(reactor, "call_later", call_later)


def test_a_call_whose_time_is_up_before_its_timer_is_noted_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    host = SimulatedNetwork().host("w")
    peer = Endpoint(host, "/job:w", 7, transports={"sim": host.transport}).peer("sim://ps", "/job:ps")
    peer.state = State.CONNECTING
    _hasty(monkeypatch, host, 0.001)
    answers: list[Any] = []
    peer.call(m.GetStatus(), answers.append, timeout_s=0.001, wait_for_ready=True)
    assert [type(answer) for answer in answers] == [errors.DeadlineExceededError]
    assert not peer.calls


def test_a_call_that_ends_before_it_is_sent_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller may have sent meanwhile what undoes it."""
    host = SimulatedNetwork().host("w")
    peer = Endpoint(host, "/job:w", 7, transports={"sim": host.transport}).peer("sim://ps", "/job:ps")
    sent: list[Any] = []
    link: Any = SimpleNamespace(send=sent.append, post=lambda *_: None, watch=SimpleNamespace(doing=""))
    peer.dialled(link)
    peer.state = State.READY
    _hasty(monkeypatch, host, 0.001)
    answers: list[Any] = []
    peer.call(m.GetStatus(), answers.append, timeout_s=0.001)
    assert [type(answer) for answer in answers] == [errors.DeadlineExceededError] and sent == []
    peer.call(m.GetStatus(), answers.append)
    assert len(sent) == 1


def test_a_link_whose_handshake_is_late_before_its_timer_is_noted_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    host = SimulatedNetwork().host("w")
    endpoint = Endpoint(host, "/job:w", 7, transports={"sim": host.transport})
    peer = endpoint.peer("sim://ps", "/job:ps")
    _hasty(monkeypatch, host, HELLO_TIMEOUT_S)
    peer.connect()
    assert not endpoint.links() and peer.link is None and "did not complete the handshake" in peer.why


def test_a_call_that_a_lost_connection_has_requeued_is_not_queued_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller waits for the lock meanwhile. A request that may come only once would be refused."""
    host = SimulatedNetwork().host("w")
    peer = Endpoint(host, "/job:w", 7, transports={"sim": host.transport}).peer("sim://ps", "/job:ps")
    peer.connect()
    call_later = host.call_later

    def ends_first(delay: float, call: Any, *args: Any) -> Any:
        if delay == 7.0 and peer.link is not None:
            peer.link_ended(peer.link, "refused", None)
        return call_later(delay, call, *args)

    monkeypatch.setattr(host, "call_later", ends_first)
    call = peer.call(m.CreateSession([], b"", ""), lambda answer: None, timeout_s=7.0, wait_for_ready=True)
    assert [handle for _, handle in operator.attrgetter("_waiting")(peer)] == [call]


def test_a_cancel_comes_after_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is up between the look at the table and the sending."""
    host = SimulatedNetwork().host("w")
    peer = Endpoint(host, "/job:w", 7, transports={"sim": host.transport}).peer("sim://ps", "/job:ps")
    sent: list[str] = []

    def send(parts: Any) -> None:
        for call in list(peer.calls.values()):
            call.cancel()
        sent.append("request")

    watch = SimpleNamespace(doing="")
    link: Any = SimpleNamespace(send=send, post=lambda message: sent.append(type(message).__name__), watch=watch)
    peer.dialled(link)
    peer.state = State.READY
    peer.call(m.GetStatus(), lambda answer: None)
    assert sent == ["Cancel", "request", "Cancel"]


def test_a_socket_that_zeromq_does_not_make_is_an_attempt_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may have taken the descriptors since there was room for them."""
    endpoint = Endpoint(get_reactor(), "/job:w", 7)
    answers: list[Any] = []
    came = Waiter()

    def new_socket(transport: ZmqTransport, kind: int) -> Any:
        raise zmq.ZMQError(errno.EMFILE)

    try:
        monkeypatch.setattr(ZmqTransport, "new_socket", new_socket)
        endpoint.peer("127.0.0.1:9").call(m.GetStatus(), lambda answer: (answers.append(answer), came.set()))
        assert get_reactor().drive(came, get_reactor().now() + 60)
    finally:
        endpoint.close()
    assert isinstance(answers[0], errors.UnavailableError) and "Too many open files" in answers[0].message
