"""Links: the handshake, the messages and the end of one connection to a peer.

The connecting side sends Hello and checks in the HelloReply that the expected task answered. The listening
side checks that the two ClusterSpecs agree on the connecting task. A side that refuses the other sends a
Goodbye with the reason, so that both can report it.

Then the link moves to a lane, if one is possible (`lane_connection`). The HelloReply has the lane's address
and a token, and the connecting side opens the lane. The listening side then sends `LaneSwitch` as its
last message on the old connection; the connecting side answers it in the same way. Each side reads the
lane only after the other's LaneSwitch, so messages stay in order.

Two states say what may happen: the `LinkPhase` which messages may come, and the `LinkRoute` what a lane may do.

| phase | message | next phase |
|---|---|---|
| AWAITS_HELLO | Hello | ESTABLISHED, or OVER if it is refused |
| AWAITS_REPLY | HelloReply | ESTABLISHED, or OVER if it is refused |
| either of them | Goodbye | OVER |
| either of them | any other one | OVER: it is refused |
| ESTABLISHED | Heartbeat, Cancel, and those of services | ESTABLISHED |
| ESTABLISHED | LaneSwitch | ESTABLISHED, or OVER if the route does not allow it |
| ESTABLISHED | Goodbye | OVER |
| OVER | any | OVER: it is ignored |

| route | our side opens the lane, or the peer does | LaneSwitch of the peer |
|---|---|---|
| ONE: there will be no lane | not expected | ends the link |
| OFFERED: the lane is being opened | the listening side switches: LEFT | the connecting side switches: MOVED |
| LEFT: this side sends on the lane, and receives the old connection | not expected | MOVED |
| MOVED: both directions are on the lane | not expected | ends the link |

Threads: any thread sends. The messages of a connection are handled one after the other, in whichever thread runs the
loop; two threads may be inside one link while it moves to a lane, each for its connection. Timers end links. So the
lock guards what is seldom: the change of a phase, and of the connection on which this side sends.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.rpc.calls import Responder, count_bytes
from tfmini.rpc.codec import decode, encode
from tfmini.rpc.handshake import (
    BEAT_AFTER_S,
    LOST_AFTER_ENV,
    LOST_AFTER_S,
    WEDGED_AFTER_ENV,
    WEDGED_AFTER_S,
    Attention,
    PeerLiveness,
    Verdict,
    addresses_conflict,
    describe_conflict,
    host_proof,
    is_same_host,
)
from tfmini.rpc.messages import Cancel, Goodbye, Heartbeat, Hello, HelloReply, LaneSwitch, status_of
from tfmini.rpc.records import PROTOCOL_VERSION, Message, RemoteProtocolError, Retry, VersionMismatchError
from tfmini.rpc.stream_lane import SCHEME
from tfmini.rpc.transport import Connection, MakeError
from tfmini.rpc.waiter import Timer
from tfmini.text import printable

if TYPE_CHECKING:
    from tfmini.rpc.endpoint import Endpoint
    from tfmini.rpc.lane_listener import TokenListener
    from tfmini.rpc.peer import Peer


# ---- Asks the operating system about a process on this host that sends nothing -------------------------------------

_IDLE_LOOKS = 4
_STOPPED = frozenset("TtZXx")


class ProcessWatch:
    """Tells a process that computes from one that is stopped, dead or idle.

    A kernel that holds the interpreter keeps every thread of its process from sending heartbeats. Such a process is not
    lost: it uses the processor. One that was stopped (SIGSTOP), has died or waits for something does not.

    Args:
      pid: of the process; 0: unknown. `computes` is called once per tick.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._used = -1
        self._idle_looks = 0

    def computes(self) -> bool:
        """Whether the process has used the processor within the last few calls and is not stopped now."""
        used = _processor_time(self.pid) if self.pid else -1
        self._idle_looks = self._idle_looks + 1 if used == self._used else 0
        self._used = used
        return used >= 0 and self._idle_looks < _IDLE_LOOKS


def _processor_time(pid: int) -> int:
    """The time that all threads of a process have used, in clock ticks; -1 if it is stopped or dead."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return -1 if fields[0].decode() in _STOPPED else int(fields[11]) + int(fields[12])
    except (OSError, ValueError, IndexError):
        return -1


# ---- The signs of life on one link: the heartbeats of this side and of the peer ------------------------------------

DescribeWork = Callable[[Sequence[int]], str]
_describe_work: list[DescribeWork] = []


def register_work(describe: DescribeWork) -> None:
    """Registers a function that says what threads (by ident) compute for a step; "" if they compute nothing."""
    _describe_work.append(describe)


class LinkWatch:
    """Sends the heartbeats of one side of a link, and ends a link whose peer is lost or wedged.

    Attributes:
      doing: what the peer does instead of handling messages, as its latest heartbeat says; usually "".
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self.liveness = PeerLiveness(self._peer_computes)
        self._attention = Attention()
        self._process: ProcessWatch | None = None
        self.doing = ""

    def _peer_computes(self) -> bool:
        pid = self._link.peer_pid
        if self._process is None or self._process.pid != pid:
            self._process = ProcessWatch(pid)
        return self._process.computes()

    def heard(self, beat: Heartbeat) -> None:
        """The peer has sent a heartbeat."""
        self.doing = beat.doing
        self._attention.heard(beat.handled, beat.doing)

    def tick(self, elapsed_s: float, in_handshake: bool) -> None:
        """Looks at the counters of the link, ``elapsed_s`` seconds after the last look."""
        link, arrived = self._link, self._link.arrived
        lost = self.liveness.tick(elapsed_s, link.received + arrived, link.sent)
        wedged = self._attention.tick(elapsed_s, link.received, arrived)
        if in_handshake or not link.endpoint.expects_heartbeats:
            return
        if lost is Verdict.LOST:
            silence_s = self.liveness.silence_s
            self._tell(f"sent nothing for {silence_s:.0f} s")
            link.end(
                f"silent: it sent nothing for {silence_s:.0f} s, and should send a heartbeat "
                f"every {BEAT_AFTER_S:g} s; it is stopped, stuck or unreachable "
                f"(if it is only busy for so long, set {LOST_AFTER_ENV} to more than {LOST_AFTER_S:g} seconds)"
            )
        elif wedged is Verdict.WEDGED:
            self._tell(f"handled no message for {WEDGED_AFTER_S:g} s")
            link.end(self._describe_wedged())
        elif (doing := self._own_work()) or Verdict.BEAT in (lost, wedged):
            self._attention.reported()
            link.post(Heartbeat(link.received, doing))

    def _tell(self, what: str) -> None:
        """Tells a peer that counts as lost the reason: if it lives, its errors name it."""
        peer = self._link.peer
        who = peer.task if peer is not None and peer.task else "this process"
        self._link.post(Goodbye(f"{who} {what}, since it was stopped, stuck or unreachable"))

    def _own_work(self) -> str:
        """What keeps this side from handling the next message; "" if nothing does, or the reason is unknown."""
        if self._attention.held_s < BEAT_AFTER_S:
            return ""
        if self._attention.is_bulk:
            return "receives a large message"
        threads = self._link.endpoint.loop_threads()
        return next((text for describe in _describe_work if (text := describe(threads))), "")

    def _describe_wedged(self) -> str:
        peer = self._link.peer
        kinds = sorted({call.request.__name__ for call in list(peer.calls.values())}) if peer is not None else []
        unanswered = f"; {', '.join(kinds)} unanswered" if kinds else ""
        return (
            f"wedged: it sends heartbeats, but has handled no message of {self._link.endpoint} for "
            f"{WEDGED_AFTER_S:g} s and computes nothing{unanswered}. A handler in it is stuck: look where (py-spy dump "
            f"--pid PID) and restart it (if it is only slow, set {WEDGED_AFTER_ENV} to more seconds)"
        )


# ---- One connection to a peer, from its handshake to its end -------------------------------------------------------

_LONGEST_NAME, _LONGEST_REASON = 256, 4000  # characters
# From how many bytes on a message waits for the lane, for how long at most, and how many bytes may wait.
HOLD_FROM, HOLD_S, HOLD_MOST = 256 << 10, 0.25, 256 << 20
HELLO_TIMEOUT_S = max(4.0, LOST_AFTER_S)  # whoever allows more silence has a machine that is busy for as long


class LinkPhase(enum.Enum):
    """Which messages a link may receive; see the module."""

    AWAITS_HELLO = enum.auto()  # the listening side
    AWAITS_REPLY = enum.auto()  # the connecting side
    ESTABLISHED = enum.auto()
    OVER = enum.auto()


class LinkRoute(enum.Enum):
    """Which connections a link uses; see the module."""

    ONE = enum.auto()
    OFFERED = enum.auto()
    LEFT = enum.auto()
    MOVED = enum.auto()


_NEXT = {
    LinkPhase.AWAITS_HELLO: {LinkPhase.ESTABLISHED, LinkPhase.OVER},
    LinkPhase.AWAITS_REPLY: {LinkPhase.ESTABLISHED, LinkPhase.OVER},
    LinkPhase.ESTABLISHED: {LinkPhase.OVER},
    LinkPhase.OVER: set(),
}
_ESTABLISHED, _OVER = LinkPhase.ESTABLISHED, LinkPhase.OVER  # looked at for each message


class Link:
    """One connection to a peer, from its handshake to its end.

    Attributes:
      connection: on which this side sends.
      dialer: on the listening side: who has connected; () if it did not say.
      hello_id, started, claims, claimed_incarnation: of its Hello; ``claims`` is the task that it names.
    """

    def __init__(self, endpoint: Endpoint, connection: Connection, peer: Peer | None) -> None:
        self.endpoint = endpoint
        self.peer = peer  # None on the listening side until the handshake
        self.connection = connection
        self._incoming = self._first_connection = connection  # on which the peer sends
        self.received = 0
        self.sent = 0
        self.watch = LinkWatch(self)
        self.active: dict[int, Responder] = {}
        self._lock = threading.Lock()
        self.dialer: tuple[str, int, int, bytes] | tuple[()] = ()
        self.hello_id = self.started = self.claimed_incarnation = 0
        self.claims = ""
        self._lane: Connection | None = None
        self._token = b""
        self._phase = LinkPhase.AWAITS_HELLO if peer is None else LinkPhase.AWAITS_REPLY
        self._route = LinkRoute.OFFERED  # until the Hello, or its reply, says otherwise
        self._may_switch = True  # whether this side may still leave `connection`
        # A large message, and those behind it, while they wait for the lane; None: no message waits any more.
        self._held: list[Any] | None = []
        self._held_bytes = 0
        self._deadline: Timer | None = None  # `start` sets it, since it may be due at once

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._phase is _OVER

    @property
    def own_task(self) -> str:
        """The task at this side; "": a client."""
        return self.endpoint.task

    def _enter(self, phase: LinkPhase) -> bool:
        """Enters a phase; returns False if the present one does not lead there, since the link has ended meanwhile."""
        with self._lock:
            if phase not in _NEXT[self._phase]:
                return False
            self._phase = phase
            return True

    def start(self) -> None:
        """Begins to receive; the connecting side sends Hello."""
        connection = self.connection
        self._deadline = self.endpoint.reactor.call_later(HELLO_TIMEOUT_S, self._on_handshake_timeout)
        if self.is_over:
            return
        connection.start(self._on_parts, lambda reason: self._on_closed(connection, reason))
        if self.peer is not None:
            own = self.endpoint
            self.post(
                Hello(
                    PROTOCOL_VERSION, own.task, own.incarnation, own.task_address, host_proof(own.host_id), own.streams,
                    self.peer.expected_task or "", self.peer.dialer, own.started,
                ),
                own.next_id(),
            )  # fmt: skip

    def post(self, message: Message, request_id: int = 0) -> None:
        """Sends a message on the current connection."""
        self.send(encode(message, request_id))

    def send(self, parts: Any) -> None:
        """Sends an encoded message on the current connection."""
        self.sent += 1
        if self._may_switch:
            with self._lock:  # so that no message follows the LaneSwitch on the old connection
                if not self._hold(parts):
                    self.connection.send(parts)
        else:
            self.connection.send(parts)

    def _hold(self, parts: Any) -> bool:
        """Whether a message waits for the lane that is being opened. The caller holds the lock.

        A large one does: over ZeroMQ it arrives in many small pieces, whose memory the receiver's heap keeps. So do
        those behind it, since messages stay in order.
        """
        held = self._held
        if held is None or self._route is not LinkRoute.OFFERED or self._phase is not _ESTABLISHED:
            return False
        size = sum(map(len, parts))
        if not held:
            if size < HOLD_FROM:
                return False
            self.endpoint.reactor.call_later(HOLD_S, self._hold_no_more)
        held.append(parts)
        self._held_bytes += size
        if self._held_bytes > HOLD_MOST:
            self._send_held()
        return True

    def _hold_no_more(self) -> None:
        """There is no lane yet, and perhaps there will never be one, as with a firewall between the tasks."""
        with self._lock:
            self._send_held()

    def _send_held(self) -> None:
        """Sends what has waited for the lane, in order; the caller holds the lock."""
        held, self._held, self._held_bytes = self._held, None, 0
        try:
            for parts in held or ():
                self.connection.send(parts)
        except errors.ResourceExhaustedError as error:
            # Whoever gave us these messages takes them as sent. Later, since `end` takes the lock, too.
            self.endpoint.reactor.call_soon(self.end, f"messages that waited for a faster way: {error.message}")

    @property
    def backlog(self) -> int:
        """Bytes of messages that have not left: those that wait for the lane, and those of the connection's queue."""
        return self._held_bytes + self.connection.backlog

    # -- arrival -------------------------------------------------------------------------

    def _on_parts(self, parts: list[Any]) -> None:
        self.received += 1
        phase = self._phase
        if phase is _OVER:
            return
        try:
            message, request_id = decode(parts, phase is not _ESTABLISHED)
        except RemoteProtocolError as error:
            self._on_malformed(error)
            return
        try:
            if phase is _ESTABLISHED:
                self.dispatch(message, request_id)
            else:
                self._on_handshake(phase, message, request_id)
        except BaseException as error:  # also Ctrl-C: the message would have no answer, ever
            self.handler_failed(message, self.active.get(request_id), error)
            if not isinstance(error, Exception):
                raise
        if len(parts) > 1 and (responder := self.active.get(request_id)) is not None:
            count_bytes(self, responder, parts)

    def handler_failed(self, message: Message, responder: Responder | None, error: BaseException) -> None:
        """A bug in a handler, or Ctrl-C in it: the caller gets an error, and the server keeps running."""
        if isinstance(error, Exception):
            self.endpoint.report(f"{type(message).__name__} from {self.peer}", error)
        if responder is not None and responder.is_open:
            responder(_as_op_error(error))
        elif type(message).row.retry is Retry.ONE_WAY and not type(message).is_reply:
            self._end_unusable(type(message).__name__, error)

    def dispatch(self, message: Message, request_id: int) -> None:
        """Handles a message of an established link."""
        cls, peer = type(message), self.peer
        assert peer is not None
        if cls.is_reply:
            handle = peer.calls.pop(request_id, None)
            if handle is not None:
                handle.finish(message)
            else:
                self.endpoint.counters["late_replies"] += 1
            return
        handler = self.endpoint.handlers.get(cls)
        if handler is None:
            _OF_CONNECTION.get(cls, Link._on_unserved)(self, message, request_id)
            return
        retry = cls.row.retry
        if retry is Retry.ONE_WAY:
            handler(peer, message, None)
            return
        responder = Responder(self, cls, request_id)
        if retry is Retry.NEVER and not self.endpoint.recent_ids.is_new(request_id):
            self.endpoint.counters["duplicates"] += 1
            responder(
                errors.AbortedError.of(f"The same {cls.__name__} request was received twice. Request id: {request_id}")
            )
            return
        self.active[request_id] = responder
        if self._phase is _OVER:  # `end` may have looked at the table before
            responder.cancel()
        handler(peer, message, responder)

    def _on_heartbeat(self, beat: Heartbeat, request_id: int) -> None:
        self.watch.heard(beat)

    def _on_cancel(self, cancel: Cancel, request_id: int) -> None:
        responder = self.active.get(cancel.request_id)
        if responder is not None:
            responder.cancel()

    def _on_goodbye(self, goodbye: Goodbye, request_id: int) -> None:
        self.end(f"the peer closed the connection: {goodbye.reason}")

    def _on_unserved(self, message: Message, request_id: int) -> None:
        """Refuses a request of a kind that nobody here handles; one-way messages are counted."""
        self.endpoint.counters["unserved"] += 1
        if request_id:
            error = errors.UnimplementedError.of(f"{self.endpoint} has no handler for {type(message).__name__}")
            self.post(status_of(error, self.endpoint.task), request_id)

    def _on_malformed(self, error: RemoteProtocolError) -> None:
        self.endpoint.counters["malformed"] += 1
        self.endpoint.report(f"a message from {self.peer or self.connection.address}", error)
        if self._phase is not _ESTABLISHED:
            self.refuse(str(error))
        elif isinstance(error, VersionMismatchError):
            self.end(str(error))
        elif error.request_id:
            bad_reply = self.peer.calls.pop(error.request_id, None)  # type: ignore[union-attr]
            if bad_reply is not None:
                bad_reply.finish(errors.InternalError.of(f"{self.peer} sent a malformed reply: {error}"))
            else:
                status = status_of(errors.InvalidArgumentError.of(str(error)), self.endpoint.task)
                self.post(status, error.request_id)
        else:
            self._end_unusable("a message", error)

    def _end_unusable(self, message: str, error: BaseException) -> None:
        """Ends the link, since a one-way message is lost: its step would wait for it, and nobody can be answered."""
        reason = f"{message} could not be used by {self.endpoint}: {type(error).__name__}: {error}"
        self.post(Goodbye(reason))
        self.end(reason)

    # -- handshake -----------------------------------------------------------------------

    def _on_handshake(self, phase: LinkPhase, message: Message, request_id: int) -> None:
        handle = _OF_HANDSHAKE[phase].get(type(message))
        if handle is None:
            self.refuse(f"expected a Hello, got {type(message).__name__}")
        else:
            handle(self, message, request_id)

    def _on_refused(self, goodbye: Goodbye, request_id: int) -> None:
        self.end(f"the peer refused the connection: {goodbye.reason}", errors.FailedPreconditionError.of)

    def _on_hello(self, hello: Hello, request_id: int) -> None:
        own = self.endpoint
        self.check_admission()  # the key may have been revoked since the transport's handshake
        if self.is_over:
            return
        if len(hello.task) > _LONGEST_NAME or not hello.task.isprintable():  # others would see it in logs and errors
            self.refuse(f"{printable(hello.task, _LONGEST_NAME)} is no name of a task")
            return
        if hello.expected_task and own.task and hello.expected_task != own.task:
            text = f"expected {hello.expected_task}, but this is {own.task}: the ClusterSpecs of the two tasks differ"
            self.refuse(text)
            return
        if not self._is_own_cluster(hello, same_host := is_same_host(hello.host_proof, own.host_id)):
            return
        self.hello_id, self.started = request_id, hello.started
        self.claims, self.claimed_incarnation = hello.task, hello.incarnation
        if hello.dialer:
            self.dialer = hello.task, hello.incarnation, hello.dialer, self.connection.peer_key
        own.replace_link(self, hello)
        if self.is_over:  # it is the older one itself
            return
        lane = own.lanes.local_listener() if same_host else self._stream_listener(hello)
        if lane is not None:
            self._token = lane.issue_token(self._on_lane)
        address = lane.address if lane is not None else ""
        proof = host_proof(own.host_id)
        reply = HelloReply(PROTOCOL_VERSION, own.task, own.incarnation, own.task_address, proof, address, self._token)
        self.post(reply, request_id)
        if lane is None:
            self._stay()
        self.peer = own.new_accepted_peer(self.connection)
        self._established(hello)

    def _stream_listener(self, hello: Hello) -> TokenListener | None:
        """Returns the listener where this peer can open a stream lane; None for no lane."""
        own = self.endpoint
        if hello.wants_stream and own.streams and self.connection.stream_host:
            return own.lanes.stream_listener(self.connection.stream_host)
        return None

    def _on_hello_reply(self, reply: HelloReply, request_id: int) -> None:
        peer = self.peer
        assert peer is not None
        if stranger := peer.describe_other_process(reply.task, reply.incarnation):
            self.end(stranger)
            return
        if peer.expected_task and reply.task != peer.expected_task:
            found = reply.task or "a client, not a task,"
            self.refuse(f"{found} answers at {peer.address}, not {peer.expected_task}")
            return
        if not reply.lane_address or not self._open_lane(reply):
            self._stay()
        self._established(reply)

    def _is_own_cluster(self, hello: Hello, same_host: bool) -> bool:
        """Refuses a task that is elsewhere in this task's ClusterSpec: it belongs to another cluster."""
        own = self.endpoint
        known = own.cluster.get(hello.task, "") if own.book is None else ""  # tasks may move; `_on_hello_reply` checks
        if hello.task and hello.task_address and addresses_conflict(known, hello.task_address, same_host):
            self.refuse(describe_conflict(hello.task, hello.task_address, known, str(own)))
            return False
        return True

    def _established(self, hello: Hello | HelloReply) -> None:
        assert self._deadline is not None and self.peer is not None
        self._deadline.cancel()
        self._first_connection.admit()
        if self._enter(_ESTABLISHED):
            self.peer.link_ready(self, hello.task, hello.incarnation)

    def _on_handshake_timeout(self) -> None:
        why = self.connection.why_silent()
        self.end(why or f"silent: it did not complete the handshake within {HELLO_TIMEOUT_S:g} s")

    # -- lane ----------------------------------------------------------------------------

    def _open_lane(self, reply: HelloReply) -> bool:
        """Connecting side: begins to open the lane; returns False if there can be none."""
        lanes, host = self.endpoint.lanes, self.connection.stream_host
        if reply.lane_address.startswith(SCHEME) and host:
            return lanes.open_stream(host, reply.lane_address, reply.lane_token, self._stream_opened)
        if not is_same_host(reply.host_proof, self.endpoint.host_id):
            return False
        self._lane = lanes.open_local(reply.lane_address, reply.lane_token)
        return self._lane is not None

    def _stay(self) -> None:
        """There will be no lane."""
        self._route, self._may_switch = LinkRoute.ONE, False

    def _stream_opened(self, lane: Connection) -> None:
        self._lane = lane
        if self.is_over:
            lane.close("the connection has ended")

    def _on_lane(self, lane: Connection) -> None:
        """Listening side: the peer has opened the lane."""
        if self.is_over:
            lane.close("the connection has ended")
            return
        self._lane, self._token = lane, b""
        self._switch_sending(lane, LinkRoute.LEFT)

    def _switch_sending(self, lane: Connection, route: LinkRoute) -> None:
        with self._lock:
            old, self.connection, self._route = self.connection, lane, route
            old.send(encode(LaneSwitch()))  # last: the peer may close it then, which must not end the link
            self._send_held()
            self._may_switch = False  # last: whoever sees it sends on the lane

    def _on_lane_switch(self, message: LaneSwitch, request_id: int) -> None:
        """Handles the peer's last message on the old connection."""
        lane = self._lane
        if self._route is LinkRoute.LEFT and lane is not None:  # both sides have left the old connection
            # First `_incoming`: another thread may report the end of the old connection before `close` returns.
            old, self._incoming, self._route = self._incoming, lane, LinkRoute.MOVED
            old.close("moved to a lane")
        elif self._route is LinkRoute.OFFERED and lane is not None:
            self._incoming = lane  # as above: the peer closes the old connection as soon as it has our LaneSwitch
            self._switch_sending(lane, LinkRoute.MOVED)
        else:
            self.end("the peer switched to a lane that does not exist")
            return
        self.endpoint.counters["lanes"] += 1
        self.endpoint.connection_opened(lane)
        lane.start(self._on_parts, lambda reason: self._on_closed(lane, reason))

    # -- the end -------------------------------------------------------------------------

    def tick(self, elapsed_s: float) -> None:
        """Sends heartbeats and detects a peer that is silent or wedged."""
        self.watch.tick(elapsed_s, self._phase is not _ESTABLISHED)

    @property
    def arrived(self) -> int:
        """Bytes that have arrived, also those of messages that are incomplete or not read yet."""
        lane = self._lane
        # The LaneSwitch may wait behind a message whose handler takes long.
        other = lane.activity if lane is not None and lane is not self._incoming else 0
        return self._incoming.activity + other

    def traffic(self) -> tuple[int, int, int, int]:
        """What has been (sent, received) so far in bytes, and (sent, received) in messages."""
        ways = {self._first_connection, self._lane or self._first_connection}
        sent, received = sum(way.sent_bytes for way in ways), sum(way.received_bytes for way in ways)
        return sent, received, self.sent, self.received

    @property
    def first_address(self) -> str:
        """The address with which the link began, before any lane."""
        return self._first_connection.address

    @property
    def peer_pid(self) -> int:
        """The peer's process, if it is on this host and the kernel has told; else 0."""
        return self._incoming.peer_pid

    def refuse(self, reason: str) -> None:
        """Sends the peer a Goodbye with the reason and ends the link; connecting again would be useless."""
        reason = printable(reason, _LONGEST_REASON)
        self.endpoint.report(f"a connection with {self.peer or self.connection.address}", ValueError(reason))
        self.post(Goodbye(reason))
        self.end(reason, errors.FailedPreconditionError.of)

    def _on_closed(self, connection: Connection, reason: str) -> None:
        if connection is self.connection or connection is self._incoming:  # else both sides have left it
            dialled = self.peer if self._phase is LinkPhase.AWAITS_REPLY else None
            self.end(reason, dialled.final_error(connection.refusal) if dialled is not None else None)
        self.endpoint.connection_closed(connection)

    def check_admission(self) -> None:
        """Ends the link if the key by which the peer was admitted has been revoked."""
        keys, public = self.endpoint.keys, self._first_connection.peer_key
        if public and keys is not None and not keys.admits(public):
            self.refuse(f"the key {public.decode()} has been removed from {keys.admitted.path}")

    def end(self, reason: str, permanent: MakeError | None = None) -> None:
        """Closes the link and notifies the peer object. Idempotent.

        Args:
          permanent: makes the error of all calls, if the reason will not go away, so that connecting again is useless.
        """
        if not self._enter(_OVER):
            return
        reason = printable(reason, _LONGEST_REASON)  # it may be the peer's
        if self._deadline is not None:
            self._deadline.cancel()
        if self._token:
            self.endpoint.lanes.revoke_token(self._token)
        self._hold_no_more()
        self.connection.close(reason)
        for other in (self._first_connection, self._lane):
            if other is not None and other is not self.connection:
                other.close(reason)
        self.endpoint.link_ended(self)
        for responder in list(self.active.values()):
            responder.cancel()
        if self.peer is not None:
            self.peer.link_ended(self, reason, permanent)


_OnMessage = Callable[[Link, Any, int], None]
_OF_HANDSHAKE: dict[LinkPhase, dict[type[Message], _OnMessage]] = {
    LinkPhase.AWAITS_HELLO: {Hello: Link._on_hello, Goodbye: Link._on_refused},
    LinkPhase.AWAITS_REPLY: {HelloReply: Link._on_hello_reply, Goodbye: Link._on_refused},
}
_OF_CONNECTION: dict[type[Message], _OnMessage] = {
    Heartbeat: Link._on_heartbeat,
    Cancel: Link._on_cancel,
    Goodbye: Link._on_goodbye,
    LaneSwitch: Link._on_lane_switch,
}


def _as_op_error(error: BaseException) -> errors.OpError:
    if isinstance(error, errors.OpError):
        return error
    if not isinstance(error, Exception):
        return errors.CancelledError.of(f"The request was interrupted by {type(error).__name__}.")
    return errors.InternalError.of(f"{type(error).__name__}: {error}")
