"""Peers: who is at the other end, whether it can be reached, and requests to it.

A `Peer` is a task (or client) that may be reached by several `Link`s one after the other. It
connects when there is something to send, and again, with back-off, while somebody waits for it.
"""

from __future__ import annotations

import collections
import enum
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.rpc.calls import CallHandle, OnReply
from tfmini.rpc.codec import encode
from tfmini.rpc.connection_messages import Goodbye
from tfmini.rpc.link import Link
from tfmini.rpc.membership import Backoff
from tfmini.rpc.records import Message, Retry

if TYPE_CHECKING:
    from tfmini.rpc.endpoint import Endpoint

OnDropped = Callable[[errors.OpError], Any]
_RETRY_AT_ONCE_S = 0.1  # a call may cause a new attempt this long after the last one


class State(enum.Enum):
    """Whether a peer can be talked to."""

    IDLE = "not connected yet"
    CONNECTING = "connecting"
    READY = "ready"
    LOST = "lost"
    CLOSED = "closed"


class Peer:
    """A task or client that this endpoint talks to. Methods may be called from any thread."""

    def __init__(self, endpoint: Endpoint, address: str, expected_task: str | None) -> None:
        self.address = address
        self.expected_task = expected_task
        self.task = expected_task or ""
        self.incarnation = 0
        self.state = State.IDLE
        self.why = ""
        self.calls: dict[int, CallHandle] = {}
        self._endpoint = endpoint
        self._link: Link | None = None
        self._lock = threading.RLock()  # guards everything below and changes of state
        # What waits for the connection: the parts and either the call or whom to tell if it is dropped.
        self._waiting: collections.deque[tuple[Any, CallHandle | OnDropped | None]] = collections.deque()
        self._lost_callbacks: list[Callable[[Peer, str], Any]] = []
        self._backoff = Backoff()
        self._retry: Any = None
        self._last_attempt = float("-inf")

    def __str__(self) -> str:
        # A task has its name as soon as it has answered; whoever we connect to serves.
        who = self.task or ("the server" if self.address else "client")
        return f"{who} at {self.address}" if self.address else who

    @property
    def backlog(self) -> int:
        """Bytes sent to it that the layers below have not taken yet."""
        link = self._link
        return link.connection.backlog if link is not None else 0

    @property
    def link(self) -> Link | None:
        """The current connection."""
        return self._link

    def on_lost(self, callback: Callable[[Peer, str], Any]) -> Callable[[], None]:
        """Calls ``callback(peer, why)`` at each loss of the connection; returns a function that ends that."""
        self._lost_callbacks.append(callback)

        def forget() -> None:
            if callback in self._lost_callbacks:
                self._lost_callbacks.remove(callback)

        return forget

    # -- sending -------------------------------------------------------------------------

    def send(self, message: Message, on_dropped: OnDropped | None = None) -> None:
        """Sends a one-way message; if the peer cannot be reached it is dropped and counted.

        Args:
          on_dropped: gets an UnavailableError if it was dropped before it went out. What a connection
            that breaks had taken already is lost without a word; see `on_lost`.
        """
        parts = encode(message)
        link = self._link
        if link is not None and self.state is State.READY:
            link.sent += 1
            link.send(parts)
        else:
            self._enqueue(parts, on_dropped)

    def send_if_ready(self, message: Message) -> None:
        """Sends a one-way message that is worth nothing later."""
        link = self._link
        if link is not None and self.state is State.READY:
            link.post(message)

    def call(
        self,
        request: Message,
        on_reply: OnReply,
        timeout_s: float | None = None,
        incarnation: int | None = None,
        wait_for_ready: bool = False,
    ) -> CallHandle:
        """Sends a request.

        Args:
          request: a message whose kind has a reply.
          on_reply: gets the reply message or an `OpError`, once, in the thread that learns of it.
          timeout_s: seconds until it fails with DeadlineExceededError.
          incarnation: fail with AbortedError unless this life of the task gets it.
          wait_for_ready: keep trying to connect instead of failing with UnavailableError; a request
            that may be repeated (`Retry.SAFE`) then also outlasts a connection that breaks.
        """
        request_id = self._endpoint.next_id()
        parts = encode(request, request_id)
        handle = CallHandle(self, type(request), request_id, on_reply, incarnation)
        if timeout_s is not None:
            handle.timer = self._endpoint.reactor.call_later(timeout_s, handle.expire, timeout_s)
        if wait_for_ready:
            handle.parts = parts
        self.calls[request_id] = handle
        # The table first, then the state: a loss in between finds the call in the table.
        link = self._link
        if link is None or self.state is not State.READY:
            self._enqueue(parts, handle)
        elif incarnation is not None and incarnation != self.incarnation:
            self._fail(handle, self._restarted(incarnation))
        elif wait_for_ready:
            self._transmit(link, parts, handle)
        else:
            link.sent += 1
            link.send(parts)
        return handle

    @staticmethod
    def _transmit(link: Link, parts: Any, handle: CallHandle | OnDropped | None) -> None:
        if isinstance(handle, CallHandle) and handle.parts is not None and handle.request.row.retry is not Retry.SAFE:
            handle.parts = None  # its fate is unknown from now on if the link breaks
        link.sent += 1
        link.send(parts)

    def connect(self) -> None:
        """Starts connecting now instead of at the first message."""
        with self._lock:
            if self.state in (State.IDLE, State.LOST) and self.address and self._retry is None:
                self._attempt_soon()

    def _enqueue(self, parts: Any, handle: CallHandle | OnDropped | None) -> None:
        with self._lock:
            if self.state is State.READY and self._link is not None:  # since we looked
                self._transmit(self._link, parts, handle)
                return
            if self.state is State.CLOSED or not self.address:
                self._drop(handle)
                return
            self._waiting.append((parts, handle))
            if self.state is not State.CONNECTING:
                self._attempt_soon()

    def _drop(self, handle: CallHandle | OnDropped | None) -> None:
        if isinstance(handle, CallHandle):
            self._endpoint.reactor.call_soon(self._fail, handle, self.unavailable())
            return
        self._endpoint.counters["dropped"] += 1
        if handle is not None:
            self._endpoint.reactor.call_soon(handle, self.unavailable())

    def _fail(self, handle: CallHandle, error: errors.OpError) -> None:
        if self.calls.pop(handle.request_id, None) is not None:
            handle.finish(error)

    def unavailable(self) -> errors.UnavailableError:
        """The error for a request that cannot be answered."""
        return errors.UnavailableError(None, None, f"{self} is unavailable: {self.why or self.state.value}.")

    def _restarted(self, incarnation: int) -> errors.AbortedError:
        return errors.AbortedError(
            None,
            None,
            f"{self} was restarted: its incarnation was {incarnation:016x} and is {self.incarnation:016x}, "
            f"so its state is gone. Create a new session.",
        )

    # -- connecting ----------------------------------------------------------------------

    def _attempt_soon(self) -> None:
        reactor = self._endpoint.reactor
        wait = self._last_attempt + _RETRY_AT_ONCE_S - reactor.now()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if wait <= 0:
            self._attempt()
        else:
            self._retry = reactor.call_later(wait, self._attempt)

    def _attempt(self) -> None:
        with self._lock:
            self._retry = None
            if self.state in (State.CONNECTING, State.READY, State.CLOSED):
                return
            self.state = State.CONNECTING
            self._last_attempt = self._endpoint.reactor.now()
            self._link = self._endpoint.dial(self)

    def link_ready(self, link: Link, task: str, incarnation: int) -> None:
        """The Hello is done: sends what has been waiting, then everything goes straight through."""
        with self._lock:
            self._link = link
            self.task, self.incarnation = task, incarnation
            while self._waiting:
                parts, handle = self._waiting.popleft()
                if isinstance(handle, CallHandle):
                    if handle.request_id not in self.calls:
                        continue  # cancelled
                    if handle.incarnation is not None and handle.incarnation != incarnation:
                        self._endpoint.reactor.call_soon(self._fail, handle, self._restarted(handle.incarnation))
                        continue
                self._transmit(link, parts, handle)
            self.state, self.why = State.READY, ""
            self._backoff.succeeded()
        self._endpoint.peer_ready(self)

    def link_ended(self, link: Link, reason: str, permanent: bool) -> None:
        """The link is over, established or not."""
        with self._lock:
            if link is not self._link:
                return
            was_ready = self.state is State.READY
            if self.state is not State.CLOSED:
                self.state = State.LOST
            self.why, self._link = reason, None
            failed = self._sort_out(permanent)
        error: errors.OpError = self.unavailable()
        if permanent and not was_ready:
            error = errors.FailedPreconditionError(None, None, f"{self} cannot be used: {reason}.")
        for handle in failed:
            self._fail(handle, error)
        if was_ready:
            for callback in list(self._lost_callbacks):
                callback(self, reason)

    def _sort_out(self, permanent: bool) -> list[CallHandle]:
        """Which calls the end of the link fails; the others wait for the next attempt."""
        for _, handle in self._waiting:
            if not isinstance(handle, CallHandle):
                self._drop(handle)
        self._waiting.clear()
        keep = not permanent and self.state is not State.CLOSED and bool(self.address)
        staying = [handle for handle in list(self.calls.values()) if handle.parts is not None and keep]
        self._waiting.extend((handle.parts, handle) for handle in staying)
        waiting = {handle.request_id for handle in staying}
        if staying and self._retry is None:
            self._retry = self._endpoint.reactor.call_later(self._backoff.failed(), self._attempt)
        return [handle for request_id, handle in list(self.calls.items()) if request_id not in waiting]

    def close(self, reason: str) -> None:
        """Says goodbye; the peer is of no more use."""
        with self._lock:
            link, ready = self._link, self.state is State.READY
            self.state, self.why = State.CLOSED, reason
            if self._retry is not None:
                self._retry.cancel()
            waiting, self._waiting = self._waiting, collections.deque()
        for _, handle in waiting:
            if not isinstance(handle, CallHandle):
                self._drop(handle)
        error = errors.CancelledError(None, None, f"The connection to {self} was closed here: {reason}.")
        for call in list(self.calls.values()):
            self._fail(call, error)
        if link is not None:
            if ready:
                link.post(Goodbye(reason))
            link.end(reason)
