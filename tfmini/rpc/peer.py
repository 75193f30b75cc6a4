"""Peers: the identity and reachability of another task or client, and requests to it.

A `Peer` uses one `Link` at a time. It connects when there is a message to send, and reconnects with
back-off while calls wait for it.
"""

from __future__ import annotations

import collections
import enum
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from tfmini import errors
from tfmini.rpc.addresses import AddressBook
from tfmini.rpc.calls import CallHandle, OnReply
from tfmini.rpc.codec import encode
from tfmini.rpc.handshake import Backoff
from tfmini.rpc.link import Link
from tfmini.rpc.messages import Cancel, Goodbye
from tfmini.rpc.records import Message
from tfmini.rpc.transport import BACKLOG_LIMIT, SMALL_BYTES, MakeError, Refusal
from tfmini.rpc.waiter import Timer

if TYPE_CHECKING:
    from tfmini.rpc.endpoint import Endpoint


# ---- The messages to a peer that wait for the connection to it -----------------------------------------------------

OnDropped = Callable[[errors.OpError], Any]
_Handle = CallHandle | OnDropped | None  # the call, or the callback for a dropped message
_COUNT_LIMIT = 100_000


class WaitingMessages:
    """Encoded messages in order, bounded in bytes and number. The caller of each method holds the peer's lock."""

    def __init__(self) -> None:
        self._queue: collections.deque[tuple[Any, _Handle]] | None = None  # most peers need none, and it takes 0.8 kB
        self._bytes = 0

    def __iter__(self) -> Iterator[tuple[Any, _Handle]]:
        return iter(tuple(self._queue or ()))

    def append(self, parts: Any, handle: _Handle, must: bool = False) -> None:
        """Adds a message.

        Args:
          must: whether it has been accepted before, so that its bytes are no reason to refuse it.

        Raises:
          errors.ResourceExhaustedError: too many messages or bytes wait already.
        """
        queue = self._queue = self._queue or collections.deque()
        size = sum(map(len, parts))
        is_full = (size > SMALL_BYTES and self._bytes > BACKLOG_LIMIT) or len(queue) >= _COUNT_LIMIT
        if is_full and not must:
            raise errors.ResourceExhaustedError.of(
                f"{len(queue)} messages of {self._bytes} bytes wait for the connection already. Another one of "
                f"{size} bytes is refused. Wait until the task can be reached before you start more steps."
            )
        self._bytes += size
        queue.append((parts, handle))

    def drain(self) -> Iterator[tuple[Any, _Handle]]:
        """Removes and yields all messages."""
        while self._queue:
            parts, handle = self._queue.popleft()
            self._bytes -= sum(map(len, parts))
            yield parts, handle
        self._queue = None


# ---- A peer --------------------------------------------------------------------------------------------------------

_MIN_ATTEMPT_INTERVAL_S = 0.1  # seconds between two attempts that calls cause


class State(enum.Enum):
    """The state of the connection to a peer."""

    IDLE = "not connected yet"
    CONNECTING = "connecting"
    READY = "ready"
    LOST = "lost"
    CLOSED = "closed"


class Peer:
    """A task or client at the other end of a connection. Methods may be called from any thread."""

    def __init__(
        self, endpoint: Endpoint, address: str, expected_task: str | None, key: bytes = b"", host: str = ""
    ) -> None:
        self.address = address
        self.expected_task = expected_task
        self.where = address  # to which it has connected last, or tries to
        self.found_incarnation = 0  # what the address book says about the task that should answer; 0: nothing
        self.dialer = endpoint.randbits(62) if address else 0
        self.task = expected_task or ""
        self.incarnation = 0
        self.key = key  # the public key by which it was admitted, where it has connected to this side
        self.host = host  # from where it has connected, if known
        self.identity = ("", 0, b"")  # task, incarnation, key
        self.state = State.IDLE
        self.why = ""
        self._ended_ready = False  # whether the latest connection had been established when it ended
        self.calls: dict[int, CallHandle] = {}
        self.endpoint = endpoint
        self._link: Link | None = None
        self._lock = threading.RLock()  # guards everything below and changes of state
        self._waiting = WaitingMessages()
        self._lost_callbacks: list[Callable[[Peer, str], Any]] = []
        self._backoff = Backoff()
        self._retry: Timer | None = None
        self._last_attempt = float("-inf")
        self._refused = False  # whether the last attempt to connect was refused

    def __str__(self) -> str:
        # A task's name is known after the handshake. Only servers have an address.
        name = self.task or ("the server" if self.address else "client")
        return f"{name} at {self.where}" if self.address else name

    def describe(self) -> str:
        """Who it is, for logs and errors: its task, from where it has connected and with whose key."""
        name = self.task or "a client"
        keys = self.endpoint.keys
        known = keys.name_of(self.key) if keys is not None and self.key else ""
        return name + (f" at {self.host}" if self.host else "") + (f" with {known}" if known else "")

    @property
    def backlog(self) -> int:
        """Bytes queued for the peer that the transport has not sent yet."""
        link = self._link
        return link.backlog if link is not None else 0

    @property
    def has_unsent(self) -> bool:
        """Whether one-way messages wait for a connection, or bytes for the transport.

        The connection may be being made, or its next attempt be due soon, after one that was refused.
        """
        with self._lock:  # else neither is true while `link_ready` takes them from here to the transport
            if self.state is State.READY:
                return self.backlog > 0
            return any(not isinstance(handle, CallHandle) for _, handle in self._waiting)

    @property
    def doing(self) -> str:
        """What it does instead of handling messages, as its latest heartbeat says; usually ""."""
        link = self._link
        return link.watch.doing if link is not None else ""

    @property
    def link(self) -> Link | None:
        """The current connection."""
        return self._link

    def on_lost(self, callback: Callable[[Peer, str], Any]) -> Callable[[], None]:
        """Calls ``callback(peer, reason)`` whenever the connection is lost; returns a function that unregisters it."""
        self._lost_callbacks.append(callback)

        def forget() -> None:
            if callback in self._lost_callbacks:
                self._lost_callbacks.remove(callback)

        return forget

    # -- sending -------------------------------------------------------------------------

    def part_memory(self, nbytes: int) -> Any:
        """Memory in which a large tensor can be computed before it is sent to this peer; see `Connection`."""
        link = self._link
        return link.connection.part_memory(nbytes) if link is not None and self.state is State.READY else None

    def send(self, message: Message, on_dropped: OnDropped | None = None) -> None:
        """Sends a one-way message; if the peer cannot be reached, drops and counts the message.

        Args:
          on_dropped: gets the error if the message was dropped before it was sent: UnavailableError, or
            ResourceExhaustedError if too much is queued for the peer already. Messages in flight on a connection
            that breaks are lost without notice; see `on_lost`.
        """
        parts = encode(message)
        link = self._link
        if link is not None and self.state is State.READY:
            self._transmit(link, parts, on_dropped)
        else:
            self._enqueue(parts, on_dropped)

    def send_if_ready(self, message: Message) -> None:
        """Sends a one-way message if the peer is connected; otherwise drops it."""
        link = self._link
        if link is None or self.state is not State.READY:
            with self._lock:  # `link_ready` may just be sending what has waited, as the request that this one is about
                link = self._link if self.state is State.READY else None
        if link is not None:
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
          incarnation: fail with AbortedError if the task has another incarnation.
          wait_for_ready: keep trying to connect instead of failing with UnavailableError; a `Retry.SAFE`
            request is also sent again after a connection that breaks.
        """
        request_id = self.endpoint.next_id()
        parts = encode(request, request_id)
        kept = parts if wait_for_ready else None
        handle = CallHandle(self, type(request), request_id, on_reply, incarnation, kept)
        # The call enters the table before the timer starts, which may be due at once and looks for it there, and
        # before the state is read, so that a concurrent loss finds it.
        self.calls[request_id] = handle
        if timeout_s is not None:
            handle.expire_after(timeout_s, self.endpoint.reactor)
        link = self._link
        if link is None or self.state is not State.READY:
            self._enqueue(parts, handle)
        elif incarnation is not None and incarnation != self.incarnation:
            self._fail(handle, self._restarted(incarnation))
        else:
            self._transmit(link, parts, handle)
        return handle

    def _transmit(self, link: Link, parts: Any, handle: CallHandle | OnDropped | None) -> None:
        if isinstance(handle, CallHandle):
            handle.begins()
            # One that has ended here is not sent: what its caller has sent since, to undo it, would be overtaken.
            if handle.request_id not in self.calls:
                return
        try:
            link.send(parts)
        except errors.ResourceExhaustedError as error:
            self._refused_here(handle, error)
            return
        if isinstance(handle, CallHandle) and handle.is_given_up:  # meanwhile: its Cancel may have overtaken it
            link.post(Cancel(handle.request_id))

    def _refused_here(self, handle: CallHandle | OnDropped | None, error: errors.ResourceExhaustedError) -> None:
        """A message was not sent, since too much is queued for the peer or waits for a connection to it."""
        self._drop(handle, errors.ResourceExhaustedError.of(f"{self}: {error.message}", task=self.task))

    def connect(self) -> None:
        """Starts connecting now instead of at the first message."""
        with self._lock:
            if self.state in (State.IDLE, State.LOST) and self.address and self._retry is None:
                self._attempt_soon()

    def _enqueue(self, parts: Any, handle: CallHandle | OnDropped | None) -> None:
        with self._lock:
            # A connection has ended since the call entered the table: what requeued it there will send it.
            if isinstance(handle, CallHandle) and handle.is_queued:
                return
            if self.state is State.READY and self._link is not None:  # it became ready meanwhile
                self._transmit(self._link, parts, handle)
                return
            if self.state is State.CLOSED or not self.address:
                self._drop(handle, self.unavailable())
                return
            try:
                self._waiting.append(parts, handle)
            except errors.ResourceExhaustedError as error:
                self._refused_here(handle, error)
                return
            if self.state is not State.CONNECTING:
                self._attempt_soon()

    def _drop(self, handle: CallHandle | OnDropped | None, error: errors.OpError) -> None:
        if isinstance(handle, CallHandle):
            self.endpoint.reactor.call_soon(self._fail, handle, error)
            return
        self.endpoint.counters["dropped"] += 1
        if handle is not None:
            self.endpoint.reactor.call_soon(handle, error)

    def _fail(self, handle: CallHandle, error: errors.OpError) -> None:
        if self.calls.pop(handle.request_id, None) is not None:
            handle.finish(error)

    def unavailable(self) -> errors.UnavailableError:
        """The error for a request that cannot be answered."""
        return errors.UnavailableError.of(f"{self} is unavailable: {self.why or self.state.value}.")

    def _restarted(self, incarnation: int) -> errors.AbortedError:
        return errors.AbortedError.of(
            f"{self} was restarted: its incarnation was {incarnation:016x} and is {self.incarnation:016x}, "
            f"so its state is gone. Create a new session."
        )

    # -- connecting ----------------------------------------------------------------------

    def locate(self, book: AddressBook) -> tuple[str, ...]:
        """Looks up the addresses of its task; none if the book does not have it. It reads a file."""
        entry = book.find(self.expected_task or "")
        self.found_incarnation = entry.incarnation if entry is not None else 0
        return entry.addresses if entry is not None else ()

    def describe_other_process(self, task: str, incarnation: int) -> str:
        """What is wrong if not the process answers whose address was found; "" if it does."""
        if self.found_incarnation in (0, incarnation):
            return ""
        return (
            f"{task or 'a client'} answers, but as another process than the one that {self.endpoint.book} says is "
            f"there: it is being restarted, or the address belongs to another cluster now"
        )

    def _attempt_soon(self) -> None:
        reactor = self.endpoint.reactor
        wait = self._last_attempt + _MIN_ATTEMPT_INTERVAL_S - reactor.now()
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
            self._last_attempt = self.endpoint.reactor.now()
            self.endpoint.dial(self)  # its link may be over by now

    def dialled(self, link: Link) -> None:
        """A connection is being made, as `dial` was asked for."""
        self._link = link

    def link_ready(self, link: Link, task: str, incarnation: int) -> None:
        """The handshake has succeeded: sends the waiting messages in order; later ones are sent at once."""
        with self._lock:
            if link.is_over:  # `link_ended` has come first, or waits for this lock
                return
            self._link = link
            if self.address:
                self.where = link.first_address
            self.task, self.incarnation = task, incarnation
            self.identity = task, incarnation, self.key
            for parts, handle in self._waiting.drain():
                if isinstance(handle, CallHandle) and handle.incarnation not in (None, incarnation):
                    self.endpoint.reactor.call_soon(self._fail, handle, self._restarted(handle.incarnation or 0))
                    continue
                self._transmit(link, parts, handle)
            self.state, self.why = State.READY, ""
            self._refused = False
            self._backoff.succeeded()
        self.endpoint.peer_ready(self)

    @property
    def trouble(self) -> str:
        """Why it cannot be reached; "" also after the end of a connection that no call needs now."""
        return "" if self.state is State.READY or self._ended_ready and not self.calls else self.why

    def final_error(self, refusal: Refusal | None) -> MakeError | None:
        """The error if a refused connection is final: the second in a row, or the first if that is certain."""
        again, self._refused = self._refused, refusal is not None
        return refusal.error if refusal is not None and (again or refusal.is_certain) else None

    def link_ended(self, link: Link, reason: str, permanent: MakeError | None) -> None:
        """The link has ended, whether it was established or not.

        Args:
          permanent: makes the error of all calls, if connecting again is useless.
        """
        with self._lock:
            if link is not self._link:
                return
            was_ready = self.state is State.READY
            self.where = link.first_address
            if self.state is not State.CLOSED:
                self.state = State.LOST
            self.why, self._link, self._ended_ready = reason, None, was_ready
            failed = self._split_calls(permanent is not None)
        error: errors.OpError = self.unavailable()
        if permanent is not None and not was_ready:
            error = permanent(f"{self} cannot be used: {reason}.")
        for handle in failed:
            self._fail(handle, error)
        if was_ready:
            for callback in list(self._lost_callbacks):
                callback(self, reason)

    def _split_calls(self, permanent: bool) -> list[CallHandle]:
        """Requeues the calls that wait for the next attempt; returns the calls that fail with the link."""
        for _, handle in self._waiting.drain():
            if not isinstance(handle, CallHandle):
                self._drop(handle, self.unavailable())
        keep = not permanent and self.state is not State.CLOSED and bool(self.address)
        # Calls and parts are read once. A call that enters the table meanwhile finds the connection lost and queues by
        # itself; one that is being sent may lose its parts.
        found = [(handle, handle.parts if keep else None) for handle in list(self.calls.values())]
        staying = [(handle, parts) for handle, parts in found if parts is not None]
        for handle, parts in staying:
            handle.is_queued = True
            self._waiting.append(parts, handle, must=True)
        if staying and self._retry is None:
            self._retry = self.endpoint.reactor.call_later(self._backoff.failed(), self._attempt)
        return [handle for handle, parts in found if parts is None]

    def close(self, reason: str) -> None:
        """Closes the connection with a Goodbye and fails all calls; the peer cannot be used afterwards."""
        with self._lock:
            link, ready = self._link, self.state is State.READY
            self.state, self.why = State.CLOSED, reason
            if self._retry is not None:
                self._retry.cancel()
            waiting = list(self._waiting.drain())
        for _, handle in waiting:
            if not isinstance(handle, CallHandle):
                self._drop(handle, self.unavailable())
        error = errors.CancelledError.of(f"The connection to {self} was closed here: {reason}.")
        for call in list(self.calls.values()):
            self._fail(call, error)
        if link is not None:
            if ready:
                link.post(Goodbye(reason))
            link.end(reason)


# ---- What has gone over connections that have ended, by the peer at their other end --------------------------------

Traffic = tuple[int, int, int, int]
"""Bytes sent and received, messages sent and received."""

_PEERS = 1000
_OTHERS = "other clients"


class CountedPeer(Protocol):
    """A peer, as far as counters name it."""

    task: str
    host: str


class PastTraffic:
    """The sums by peer; beyond `_PEERS` peers they are added up under one name. The caller holds its lock."""

    def __init__(self) -> None:
        self._sums: dict[str, Traffic] = {}

    def add(self, peer: CountedPeer, traffic: Traffic) -> None:
        """A connection has ended."""
        name = label(peer)
        if name not in self._sums and len(self._sums) >= _PEERS:
            name = _OTHERS
        self._sums[name] = plus(self._sums.get(name, (0, 0, 0, 0)), traffic)

    def sums(self) -> dict[str, Traffic]:
        """The sums by `label`."""
        return dict(self._sums)


def plus(one: Traffic, other: Traffic) -> Traffic:
    """The sum of two."""
    return one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3]


def label(peer: CountedPeer) -> str:
    """A task's full name, or a client by its host. A client's incarnation is a secret and stays unsaid."""
    return peer.task or f"client at {peer.host or 'this host'}"
