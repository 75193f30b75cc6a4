"""The two ends of a request, the caller's `CallHandle` and the server's `Responder`, and how many may be open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from tfmini import errors
from tfmini.rpc.messages import Cancel, Status, error_of, status_of
from tfmini.rpc.records import Message, Retry
from tfmini.rpc.waiter import Clock, Timer

T = TypeVar("T")
Outcome: TypeAlias = T | errors.OpError
"""What becomes of something that was asked for: its result, or the error in place of it.

It is passed on and not raised, since it is known in another thread than the one that asked. `isinstance` with `OpError`
tells the two apart, for type checkers as well, and costs nothing where a step has thousands of them.
"""
Answer = Outcome[Message]
OnReply = Callable[[Answer], Any]


class CalledPeer(Protocol):
    """The peer that a request is for, as far as the request knows it."""

    calls: dict[int, CallHandle]
    why: str

    @property
    def doing(self) -> str: ...
    def send_if_ready(self, message: Message) -> None: ...


class AskingLink(Protocol):
    """The link by which a request has come, as far as its answer knows it."""

    active: dict[int, Responder]

    @property
    def own_task(self) -> str: ...
    def post(self, message: Message, request_id: int = 0) -> None: ...


class CallHandle:
    """A request in flight. Its callback is called exactly once, with a reply or an error.

    Attributes:
      parts: the encoded request, as long as the next connection may send it (again).
      is_queued: whether the peer has requeued it, so that it waits for the next connection or was sent by that.
      is_given_up: whether the caller wants no answer any more.
    """

    __slots__ = (
        "_timer",
        "incarnation",
        "is_given_up",
        "is_queued",
        "on_reply",
        "parts",
        "peer",
        "request",
        "request_id",
    )

    def __init__(
        self,
        peer: CalledPeer,
        request: type[Message],
        request_id: int,
        on_reply: OnReply,
        incarnation: int | None,
        parts: list[Any] | None,
    ) -> None:
        self.peer = peer
        self.request = request
        self.request_id = request_id
        self.on_reply = on_reply
        self.incarnation = incarnation
        self.parts = parts
        self.is_queued = self.is_given_up = False
        self._timer: Timer | None = None

    def expire_after(self, timeout_s: float, clock: Clock) -> None:
        """Fails the request if there is no answer in time. It is in the peer's table already: it may be due at once."""
        self._timer = clock.call_later(timeout_s, self.expire, timeout_s)

    def begins(self) -> None:
        """It is being sent. Unless it may be repeated, nobody knows whether the peer has executed it if this breaks."""
        if self.request.row.retry is not Retry.SAFE:
            self.parts = None

    def cancel(self) -> None:
        """Cancels the request: the callback gets `CancelledError` now, and the peer gets a Cancel message."""
        self._give_up(errors.CancelledError.of(f"{self.request.__name__} to {self.peer} was cancelled."))

    def withdraw(self) -> None:
        """Asks the peer to give up a request; the callback still gets the peer's answer, whichever it is."""
        if self.parts is not None:  # it has not been sent
            self.cancel()
        elif self.is_open:
            self.peer.send_if_ready(Cancel(self.request_id))

    def expire(self, timeout_s: float) -> None:
        """Fails the request with `DeadlineExceededError`."""
        self._give_up(errors.DeadlineExceededError.of(self.describe_wait(timeout_s)))

    def describe_wait(self, waited_s: float) -> str:
        """The sentence that it has had no answer for so long, and why if that is known."""
        peer = self.peer
        state = f"; {peer.why}" if peer.why else f"; it {peer.doing}" if peer.doing else ""
        return f"{self.request.__name__} to {peer} had no answer within {waited_s:g} s{state}."

    @property
    def is_open(self) -> bool:
        """Whether the callback is still to be called."""
        return self.request_id in self.peer.calls

    def _give_up(self, error: errors.OpError) -> None:
        if self.peer.calls.pop(self.request_id, None) is not None:
            self.is_given_up = True  # before the Cancel: see `Peer._transmit`
            self.peer.send_if_ready(Cancel(self.request_id))
            self.finish(error)

    def finish(self, answer: Answer) -> None:
        """Passes the answer to the callback. The handle must be out of the peer's table already."""
        if self._timer is not None:
            self._timer.cancel()
        if type(answer) is self.request.row.reply or isinstance(answer, errors.OpError):
            self.on_reply(answer)
        elif isinstance(answer, Status):
            self.on_reply(error_of(answer))
        else:
            text = f"{self.peer} answered {self.request.__name__} with {type(answer).__name__}."
            self.on_reply(errors.InternalError.of(text))


class Responder:
    """Answers one request, once: call it with the reply or an `OpError`, from any thread.

    ``cancelled`` turns true when the caller cancels the request or its connection ends; `on_cancel` reports it.
    """

    __slots__ = ("_callbacks", "_link", "_request", "cancelled", "is_refused", "nbytes", "request_id")

    def __init__(self, link: AskingLink, request: type[Message], request_id: int) -> None:
        self.request_id = request_id
        self.cancelled = self.is_refused = False
        self.nbytes = 0  # of a large request; see `count_bytes`
        self._link: AskingLink | None = link
        self._request = request
        self._callbacks: list[Callable[[], Any]] = []

    def __call__(self, answer: Answer) -> None:
        link = self._link
        if link is None:
            if self.is_refused:
                return
            raise RuntimeError(f"{self._request.__name__} {self.request_id} was answered twice")
        self._link = None
        link.active.pop(self.request_id, None)
        if type(answer) is not self._request.row.reply:
            if not isinstance(answer, errors.OpError):
                name = type(answer).__name__
                answer = errors.InternalError.of(f"the answer to {self._request.__name__} was a {name}")
            answer = status_of(answer, link.own_task)
        try:
            link.post(answer, self.request_id)
        except errors.ResourceExhaustedError as error:  # the small answer has room
            text = f"{self._request.__name__} has run, and its answer cannot be sent: {error.message}"
            link.post(status_of(errors.ResourceExhaustedError.of(text), link.own_task), self.request_id)
        except Exception as error:  # noqa: BLE001 - without an answer the caller would wait for ever
            text = f"the answer to {self._request.__name__} cannot be sent: {type(error).__name__}: {error}"
            link.post(status_of(errors.InternalError.of(text), link.own_task), self.request_id)

    @property
    def is_open(self) -> bool:
        """Whether the request has not been answered yet."""
        return self._link is not None

    def on_cancel(self, callback: Callable[[], Any]) -> None:
        """Calls back when the request is cancelled before it is answered; at once if it is already."""
        self._callbacks.append(callback)
        if self.cancelled:  # possibly since the line above: `cancel` has seen the callback, or this does
            self._call_back()

    def refuse(self, error: errors.OpError) -> None:
        """Answers with an error and cancels the request; a later answer is ignored."""
        self.is_refused = True
        if self.is_open:
            self(error)
        self.cancel()

    def cancel(self) -> None:
        """Marks the request as cancelled and runs the callbacks."""
        self.cancelled = True
        self._call_back()

    def _call_back(self) -> None:
        """Calls each callback once, also if two threads are here."""
        while self._callbacks:
            try:
                callback = self._callbacks.pop(0)
            except IndexError:  # the other thread has taken the last one
                return
            callback()


# ---- Bounds of the requests that a server has not answered yet: their number and the bytes that they hold ----------

CONNECTION_LIMIT, SERVER_LIMIT = 20_000, 200_000  # requests; checked at ticks
CONNECTION_BYTES, SERVER_BYTES = 4 << 30, 16 << 30  # of fed values and other large parts
FAIR_SHARE = 64 << 20  # bytes that every connection may hold


class BusyEndpoint(Protocol):
    """The endpoint that has not answered yet."""

    def links(self) -> Sequence[BusyLink]: ...


class BusyLink(Protocol):
    """A link with requests that have no answer yet."""

    active: dict[int, Responder]

    @property
    def endpoint(self) -> BusyEndpoint: ...
    @property
    def peer(self) -> object: ...


def refuse_excess(links: Iterable[BusyLink]) -> None:
    """Refuses the latest requests of peers that have too many without an answer.

    A client that connects with ever new identities has no more than others: where the server has too many
    requests, each connection keeps an equal share.
    """
    busy = [link for link in links if link.active]
    limit = CONNECTION_LIMIT
    if sum(len(link.active) for link in busy) > SERVER_LIMIT:
        limit = min(limit, SERVER_LIMIT // len(busy))
    for link in busy:
        if len(link.active) <= limit:
            continue
        text = (
            f"{link.endpoint} has not answered {len(link.active)} requests of {link.peer} yet, more than the {limit} "
            "that one connection may have. Wait for steps to end before you start others."
        )
        for responder in list(link.active.values())[limit:]:
            responder.refuse(errors.ResourceExhaustedError.of(text))


def count_bytes(link: BusyLink, responder: Responder, parts: Sequence[Any]) -> None:
    """Counts the bytes of a request that has not been answered at once, and refuses it if they are too many."""
    size, held = sum(map(len, parts)), _pending_bytes(link)
    responder.nbytes = size
    if held <= FAIR_SHARE:
        return
    whose, limit = str(link.peer), CONNECTION_BYTES
    if held + size <= limit:
        others = [_pending_bytes(other) for other in link.endpoint.links() if other is not link]
        held += sum(nbytes for nbytes in others if nbytes > FAIR_SHARE)
        whose, limit = "all peers", SERVER_BYTES
        if held + size <= limit:
            return
    text = (
        f"Requests of {whose} that {link.endpoint} has not answered yet hold {held} bytes; another {size} would exceed "
        f"the limit of {limit}. Wait for steps to end before you feed others."
    )
    responder.refuse(errors.ResourceExhaustedError.of(text))


def _pending_bytes(link: BusyLink) -> int:
    return sum(responder.nbytes for responder in list(link.active.values()))


# ---- How many errors of its peers an endpoint logs: a peer could fill the disk with them ---------------------------

LINES, PERIOD_S = 200, 10.0


class ReportLimit:
    """Lets `LINES` lines pass in each `PERIOD_S` seconds. Its callers may race: then a line more or less passes."""

    __slots__ = ("_begun", "_passed", "_left_out")

    def __init__(self) -> None:
        self._begun = float("-inf")
        self._passed = self._left_out = 0

    def passes(self, now: float) -> str | None:
        """What to say behind the line, "" mostly; None: the line is left out."""
        text = ""
        if now - self._begun >= PERIOD_S:
            if self._left_out:
                text = f" ({self._left_out} more such errors were not logged before)"
            self._begun, self._passed, self._left_out = now, 0, 0
        if self._passed >= LINES:
            self._left_out += 1
            return None
        self._passed += 1
        return text
