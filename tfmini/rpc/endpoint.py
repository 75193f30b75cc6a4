"""Endpoints: one task's (or client's) listeners, handlers and connections.

::

    endpoint = Endpoint(get_reactor(), "/job:ps/replica:0/task:0", incarnation)
    endpoint.serve({GetStatus: on_get_status})
    address = endpoint.listen("localhost:2222")
    endpoint.peer("localhost:2223", "/job:worker/replica:0/task:0").call(GetStatus(), on_reply)

A handler is called as ``handler(peer, request, respond)`` in the thread that drives the reactor. It
must not block, and calls ``respond(reply or OpError)`` once, now or later (``respond`` is None for
one-way messages). Requests of one peer are handled in the order in which it sent them.
"""

from __future__ import annotations

import collections
import functools
import itertools
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tfmini import errors
from tfmini.rpc.addresses import AddressBook, parse_address
from tfmini.rpc.calls import ReportLimit, Responder, refuse_excess
from tfmini.rpc.forks import DescriptorWatch, raise_limit
from tfmini.rpc.handshake import TICK_S, RecentIds
from tfmini.rpc.keys import KEYS_ENV, AdmissionWatch, Keys, own_keys
from tfmini.rpc.lane_listener import host_id
from tfmini.rpc.lanes import Lanes
from tfmini.rpc.link import Link
from tfmini.rpc.messages import Hello
from tfmini.rpc.peer import PastTraffic, Peer, State
from tfmini.rpc.reactor import Reactor
from tfmini.rpc.records import Message
from tfmini.rpc.stream_lane import streams_wanted
from tfmini.rpc.transport import Connection, Listener, Transport
from tfmini.rpc.waiter import Clock, Waiter
from tfmini.rpc.zmq_transport import ZmqTransport

_log = logging.getLogger("tfmini.rpc")
_CLOSE_S = 2.0
_RESTARTED = "{} was restarted: a later incarnation of it has connected"
_FLUSH_S = 1.0
_FLUSH_LOOK_S = 0.005

Handler = Callable[[Peer, Any, Any], Any]


class Endpoint:
    """See the module.

    Args:
      reactor: the process's reactor, or a simulated one.
      task: full task name, or "" for a client.
      incarnation: a random number, different in each process that runs the task.
      cluster: the addresses of the tasks, by full name, as far as this task's ClusterSpec tells.
      transports: by scheme, instead of the default ones.
      keys: CURVE keys; None: see `own_keys`.
      insecure: admit everyone if there are no ``keys``; None: see ``TFMINI_INSECURE``.
      randbits: makes random numbers of so many bits.
      lanes: whether to use lanes; None: see ``TFMINI_LANE`` (local) and ``TFMINI_STREAM``.
      book: where tasks are that are not at their address in the ClusterSpec.
      expects_heartbeats: whether a peer that says nothing counts as lost; else its connection must break.
    """

    def __init__(
        self,
        reactor: Clock,
        task: str,
        incarnation: int,
        cluster: Mapping[str, str] | None = None,
        *,
        transports: Mapping[str, Transport] | None = None,
        keys: Keys | None = None,
        insecure: bool | None = None,
        lanes: bool | None = None,
        book: AddressBook | None = None,
        randbits: Callable[[int], int] = secrets.randbits,
        expects_heartbeats: bool = True,
    ) -> None:
        self.reactor = reactor
        self.task = task
        self.incarnation = incarnation
        # Hosts of a cluster have about the same time; in a simulation all have.
        self.started = time.time_ns() if isinstance(reactor, Reactor) else round(reactor.now() * 1e9) + 1
        self.cluster = cluster or {}
        self.book = book
        self.expects_heartbeats = expects_heartbeats
        self.task_address = self.cluster.get(task, "")
        self.handlers: dict[type[Message], Handler] = {}
        self.counters: collections.Counter[str] = collections.Counter()
        self._reports = ReportLimit()
        self.recent_ids = RecentIds()
        self.randbits = randbits
        self.next_id = itertools.count(randbits(34) << 28 | 1).__next__
        self.closed = False
        self._real = reactor if isinstance(reactor, Reactor) else None
        self.host_id = host_id() if self._real is not None and lanes is not False else ""
        self.streams = self._real is not None and lanes is not False and streams_wanted()
        self.keys = own_keys(insecure) if keys is None and transports is None else keys
        self._transports = dict(transports) if transports is not None else self._default_transports()
        # Threads of the loop and of users change these tables. One operation on a dict or set needs no lock, a look
        # before it does.
        self._lock = threading.Lock()
        self._peers: dict[tuple[str, str | None], Peer] = {}
        self._links: dict[Link, None] = {}  # in order, so that a simulation repeats exactly
        self._accepted: dict[tuple[Any, ...], Link] = {}  # by the object that has dialled
        self._named: dict[str, dict[Link, None]] = {}  # accepted links by the task that the Hello names
        self._connections: set[Connection] = set()  # until they report their end
        self._listeners: list[Listener] = []
        self.past_traffic = PastTraffic()
        self._descriptors: DescriptorWatch | None = None
        self._admissions: AdmissionWatch | None = None
        self.lanes = Lanes(self._real, sealed=self.keys is not None)
        self._all_closed: Waiter | None = None
        self._ready_callbacks: list[Callable[[Peer], Any]] = []
        self._last_tick = reactor.now()
        self._ticker = reactor.call_later(TICK_S, self._tick)

    def __str__(self) -> str:
        return self.task or "this client"

    def _default_transports(self) -> dict[str, Transport]:
        if self._real is None:
            raise ValueError("an endpoint on a simulated reactor needs its transports")
        return dict.fromkeys(("tcp", "ipc"), ZmqTransport(self._real, self.keys))

    # -- public --------------------------------------------------------------------------

    def serve(self, table: Mapping[type[Message], Handler]) -> None:
        """Adds handlers by message kind.

        Raises:
          ValueError: a kind has a handler already, or is a reply.
        """
        for cls, handler in table.items():
            if cls in self.handlers or cls.row.is_reply:
                raise ValueError(f"{cls.__name__} cannot be served" + (" twice" if cls in self.handlers else ""))
            self.handlers[cls] = handler

    def refuse_all(self, make_error: Callable[[], errors.OpError]) -> None:
        """Answers all requests with an error from now on; other messages are ignored."""

        def refuse(peer: Peer, message: Message, respond: Responder | None) -> None:
            if respond is not None:
                respond(make_error())

        self.handlers = dict.fromkeys(self.handlers, refuse)

    def listen(self, address: str) -> str:
        """Binds an address and returns the one to connect to (port 0 becomes the real port).

        Raises:
          errors.InvalidArgumentError: the address cannot be understood or bound.
          errors.UnknownError: the address is in use.
          errors.FailedPreconditionError: the keys of this process are those of a client.
        """
        parsed = parse_address(address)
        if self.keys is not None and self.keys.server:
            raise errors.FailedPreconditionError.of(
                f"{self} cannot listen at {parsed} with {self.keys}: it belongs to a client of a cluster. Tasks need "
                f"the key file of the cluster itself; set {KEYS_ENV} to it."
            )
        if self._real is not None and self._descriptors is None:
            raise_limit()
            self._descriptors = DescriptorWatch(str(self))
            if self.keys is not None:
                again = functools.partial(self.reactor.call_soon, self._check_admissions)
                self._admissions = AdmissionWatch(self.keys.admitted, again)
        listener = self._transport(parsed.scheme).listen(str(parsed), self._on_connection)
        self._listeners.append(listener)
        return listener.address

    def peer(self, address: str, expect_task: str | None = None) -> Peer:
        """Returns the peer at an address; it connects when first used.

        Raises:
          errors.InvalidArgumentError: the address cannot be understood.
        """
        parsed = parse_address(address)
        key = (str(parsed), expect_task)
        with self._lock:
            if self.closed:
                raise errors.CancelledError.of(f"{self} has been closed.")
            if key not in self._peers:
                self._transport(parsed.scheme)
                self._peers[key] = Peer(self, key[0], expect_task)
            return self._peers[key]

    def on_peer_ready(self, callback: Callable[[Peer], Any]) -> None:
        """Calls back with each peer whose connection becomes established, whichever side opened it."""
        self._ready_callbacks.append(callback)

    def peers(self) -> list[Peer]:
        """All peers that are connected now or were returned by `peer`."""
        known, links = list(self._peers.values()), self.links()
        linked = {link.peer for link in links if link.peer is not None}
        return [*known, *linked.difference(known)]

    def links(self) -> list[Link]:
        """All connections to peers, whether their handshake is over or not."""
        return list(self._links)

    def close(self, reason: str = "closed") -> None:
        """Sends every peer a Goodbye and releases all sockets and addresses. Idempotent."""
        self.flush()
        with self._lock:
            if self.closed:
                return
            self.closed = True
            links, peers = list(self._links), list(self._peers.values())
        self._ticker.cancel()
        why = f"{self} {reason}"
        for peer in peers:
            peer.close(why)
        for link in links:
            if link.peer is not None:
                link.peer.close(why)
            else:
                link.end(why)
        for listener in self._listeners:
            listener.close()
        if self._admissions is not None:
            self._admissions.close()
        self.lanes.close()
        self._await_connections()

    def flush(self) -> None:
        """Waits until the one-way messages so far have left this process, at most `_FLUSH_S`.

        A rank may have all data of its last collective while its own first message to another rank still waits for
        a connection. A handler, which cannot wait for the loop that it runs in, drops them.
        """
        now = self.reactor.now
        until = now() + _FLUSH_S
        while not self._runs_inside() and now() < until and any(peer.has_unsent for peer in self.peers()):
            self.reactor.drive(Waiter(), now() + _FLUSH_LOOK_S)

    def _runs_inside(self) -> bool:
        return self._real is not None and self._real.runs_here()

    def _await_connections(self) -> None:
        """Waits until every connection has reported its end, so that its sockets are released."""
        self._all_closed = waiter = Waiter()
        if self._connections and not self._runs_inside():  # a handler cannot wait for itself
            self.reactor.drive(waiter, self.reactor.now() + _CLOSE_S)

    # -- for peer.py and link.py ---------------------------------------------------------

    def dial(self, peer: Peer) -> Link:
        """Opens a connection to the peer's address, or to where the address book has its task now."""
        locate = functools.partial(peer.locate, self.book) if self.book is not None and peer.expected_task else None
        connection = self._transport(parse_address(peer.address).scheme).connect(peer.address, locate)
        return self._add(Link(self, connection, peer))

    def new_accepted_peer(self, connection: Connection) -> Peer:
        """Returns a new peer object for a connection that the other side opened."""
        return Peer(self, "", None, connection.peer_key, connection.peer_host)

    def _on_connection(self, connection: Connection) -> None:
        if self.closed:
            connection.close(f"{self} has been closed")
        else:
            self._add(Link(self, connection, None))

    def _add(self, link: Link) -> Link:
        self.connection_opened(link.connection)
        self._links[link] = None
        if link.peer is not None:
            link.peer.dialled(link)
        link.start()
        return link

    def replace_link(self, link: Link, hello: Hello) -> None:
        """Ends the older link of the same dialer, which has given it up: this side may not have noticed.

        So the steps that used it end now. Its loss is not noticed later, in steps that use the new one. The
        numbers of requests grow, so they tell which of two is older: the Hellos of connections that waited in the
        backlog of a task that was not up yet may be read in any order.
        """
        # One of this task's own name is of another cluster, where many may have that name.
        named = hello.task and hello.task != self.task
        if named and hello.started and not self._is_latest(link, hello):
            link.end(_RESTARTED.format(hello.task))
            return
        if not link.dialer:
            return
        with self._lock:
            older = self._accepted.get(link.dialer)
            if older is not None and older.hello_id > link.hello_id:
                older, link = link, older
            self._accepted[link.dialer] = link
        if older is not None:
            older.end("the peer has made a new connection in its place")

    def _is_latest(self, link: Link, hello: Hello) -> bool:
        """Ends the links of a task's earlier incarnations; returns False if there is one of a later incarnation.

        A task that lost its host or its network has left links that nobody ends before they count as silent. Only links
        that were admitted by the same key can be the same task's.
        """
        with self._lock:
            same = list(self._named.get(hello.task, ()))
            if link in self._links:  # it may have ended meanwhile
                self._named.setdefault(hello.task, {})[link] = None
        for other in same:
            peer = other.peer
            if peer is None or peer.key != link.connection.peer_key:
                continue
            if other.claimed_incarnation != hello.incarnation:
                if other.started > link.started:
                    return False
                other.end(_RESTARTED.format(hello.task))
        return True

    def link_ended(self, link: Link) -> None:
        with self._lock:
            if link.peer is not None and link in self._links:
                self.past_traffic.add(link.peer, link.traffic())
            if self._accepted.get(link.dialer) is link:
                del self._accepted[link.dialer]
            self._links.pop(link, None)
            if same := self._named.get(link.claims):
                same.pop(link, None)
                if not same:
                    del self._named[link.claims]

    def connection_opened(self, connection: Connection) -> None:
        """Notes a started connection; it will report its end to `connection_closed`."""
        self._connections.add(connection)

    def connection_closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if self._all_closed is not None and not self._connections:
            self._all_closed.set()

    def peer_ready(self, peer: Peer) -> None:
        for callback in self._ready_callbacks:
            callback(peer)

    def report(self, event: str, error: Exception) -> None:
        """Counts an error that has been handled, and logs it unless there are very many; see `ReportLimit`."""
        self.counters["errors"] += 1
        more = self._reports.passes(self.reactor.now())
        if more is not None:
            kind = type(error).__name__
            _log.warning("%s: %s: %s: %s%s", self, event, kind, error, more, exc_info=_is_bug(error))

    def loop_threads(self) -> tuple[int, ...]:
        """The idents of the threads that run the reactor now."""
        return tuple(self._real._inside) if self._real is not None else ()

    @property
    def stuck_s(self) -> float:
        """For how many seconds no thread has been free to handle messages; 0: one is."""
        return self._real.relief.stuck_s if self._real is not None else 0.0

    def _transport(self, scheme: str) -> Transport:
        try:
            return self._transports[scheme]
        except KeyError:
            raise errors.InvalidArgumentError.of(
                f"There is no transport for {scheme}://; the schemes are {sorted(self._transports)}."
            ) from None

    def _tick(self) -> None:
        now = self.reactor.now()
        elapsed, self._last_tick = now - self._last_tick, now
        if not self.closed:
            self._ticker = self.reactor.call_later(TICK_S, self._tick)
            links = self.links()
            self.recent_ids.tick(elapsed)
            refuse_excess(links)
            for link in links:
                link.tick(elapsed)
            if self._descriptors is not None:
                self._descriptors.look()

    def _check_admissions(self) -> None:
        """Ends the links whose keys have been revoked."""
        for link in self.links():
            link.check_admission()


def _is_bug(error: Exception) -> bool:
    return not isinstance(error, (errors.OpError, ValueError)) and "ProtocolError" not in type(error).__name__


__all__ = ["Endpoint", "Handler", "Peer", "State"]
