"""Links: one connection each, from its Hello to its end.

The side that connects says Hello and learns from the reply whether the right task of the right
cluster answered; a wrong one is told why in a Goodbye, so that both sides know.

Then the link moves to a lane, if there can be one (`local_lane`): the reply names the lane and a
token; the connecting side opens it; the listening side sends `LaneSwitch` by the old route as the last
message there, and the connecting side, when it reads that, does the same. Each side reads the
lane only after the other's LaneSwitch, so the order of messages holds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.rpc.calls import Responder
from tfmini.rpc.codec import decode, encode
from tfmini.rpc.connection_messages import Cancel, Goodbye, Heartbeat, Hello, HelloReply, LaneSwitch
from tfmini.rpc.membership import BEAT_AFTER_S, LOST_AFTER_S, Liveness, Verdict
from tfmini.rpc.messages import status_of
from tfmini.rpc.records import PROTOCOL_VERSION, Message, RemoteProtocolError, Retry, VersionMismatchError
from tfmini.rpc.stream_lane import SCHEME
from tfmini.rpc.transport import Connection

if TYPE_CHECKING:
    from tfmini.rpc.channel import Peer
    from tfmini.rpc.endpoint import Endpoint
    from tfmini.rpc.lane_listener import TokenListener

HELLO_TIMEOUT_S = 4.0


class Link:
    """One connection, from its Hello to its end."""

    def __init__(self, endpoint: Endpoint, connection: Connection, peer: Peer | None) -> None:
        self.endpoint = endpoint
        self.peer = peer  # None on the listening side until the Hello
        self.connection = connection  # by which this side sends
        self._inflow = self._first_route = connection  # by which the other side does
        self.received = 0
        self.sent = 0
        self.liveness = Liveness()
        self.active: dict[int, Responder] = {}
        self._lock = threading.Lock()
        self._lane: Any = None
        self._token = b""
        self._over = False
        self._is_stranger = True  # until the Hello
        self._deadline = endpoint.reactor.call_later(HELLO_TIMEOUT_S, self._hello_is_late)
        self._handle: Callable[[Message, int], None] = self._handshake
        self.send: Callable[[Any], None] = self._send_by_route

    def start(self) -> None:
        """Begins to listen; the connecting side says Hello."""
        route = self.connection
        route.start(self._on_parts, lambda reason: self._on_closed(route, reason))
        if self.peer is not None:
            own = self.endpoint
            self.post(
                Hello(
                    PROTOCOL_VERSION,
                    own.task,
                    own.incarnation,
                    own.cluster_fingerprint,
                    own.host_id,
                    own.streams,
                    self.peer.expected_task or "",
                ),
                own.next_id(),
            )

    def post(self, message: Message, request_id: int = 0) -> None:
        """Sends a message by the current route."""
        self.sent += 1
        self.send(encode(message, request_id))

    def _send_by_route(self, parts: Any) -> None:
        with self._lock:  # so that nothing goes by the old route after the LaneSwitch
            self.connection.send(parts)

    # -- arrival -------------------------------------------------------------------------

    def _on_parts(self, parts: list[Any]) -> None:
        self.received += 1
        try:
            message, request_id = decode(parts, self._is_stranger)
        except RemoteProtocolError as error:
            self._on_malformed(error)
            return
        try:
            self._handle(message, request_id)
        except Exception as error:  # noqa: BLE001 - see below
            # A bug in a handler: the caller is told, the server lives on.
            self.endpoint.report(f"{type(message).__name__} from {self.peer}", error)
            responder = self.active.get(request_id)
            if responder is not None and responder.is_open:
                responder(_as_op_error(error))

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
            self._control(message, request_id)
            return
        retry = cls.row.retry
        if retry is Retry.ONE_WAY:
            handler(peer, message, None)
            return
        responder = Responder(self, cls, request_id)
        if retry is Retry.NEVER and not self.endpoint.recent_ids.is_new(request_id):
            self.endpoint.counters["duplicates"] += 1
            responder(
                errors.AbortedError(
                    None,
                    None,
                    f"The same {cls.__name__} request was received twice. Request id: {request_id}",
                )
            )
            return
        self.active[request_id] = responder
        handler(peer, message, responder)

    def _control(self, message: Message, request_id: int) -> None:
        """What the connection itself understands; the rest is refused."""
        if isinstance(message, Heartbeat):
            return
        if isinstance(message, Cancel):
            responder = self.active.get(message.request_id)
            if responder is not None:
                responder.cancel()
        elif isinstance(message, Goodbye):
            self.end(f"it said goodbye: {message.reason}")
        elif isinstance(message, LaneSwitch):
            self._follow_to_lane()
        else:
            self.endpoint.counters["unserved"] += 1
            if request_id:
                name = type(message).__name__
                text = f"{self.endpoint} does not serve {name}"
                self.post(
                    status_of(errors.UnimplementedError(None, None, text), self.endpoint.task), request_id
                )

    def _on_malformed(self, error: RemoteProtocolError) -> None:
        self.endpoint.counters["malformed"] += 1
        self.endpoint.report(f"a message from {self.peer or self.connection.address}", error)
        if self._is_stranger:
            self.refuse(str(error), permanent=True)
        elif isinstance(error, VersionMismatchError):
            self.end(str(error))
        elif error.request_id:
            bad_reply = self.peer.calls.pop(error.request_id, None)  # type: ignore[union-attr]
            if bad_reply is not None:
                bad_reply.finish(
                    errors.InternalError(None, None, f"{self.peer} sent a malformed reply: {error}")
                )
            else:
                status = status_of(errors.InvalidArgumentError(None, None, str(error)), self.endpoint.task)
                self.post(status, error.request_id)

    # -- handshake -----------------------------------------------------------------------

    def _handshake(self, message: Message, request_id: int) -> None:
        if self.peer is None and isinstance(message, Hello):
            self._on_hello(message, request_id)
        elif self.peer is not None and isinstance(message, HelloReply):
            self._on_hello_reply(message)
        elif isinstance(message, Goodbye):
            self.end(f"it refused: {message.reason}", permanent=True)
        else:
            self.refuse(f"expected a Hello, got {type(message).__name__}", permanent=True)

    def _on_hello(self, hello: Hello, request_id: int) -> None:
        own = self.endpoint
        if hello.expected_task and own.task and hello.expected_task != own.task:
            text = f"you look for {hello.expected_task}, but this is {own.task}: the ClusterSpecs of the two differ"
            self.refuse(text, permanent=True)
            return
        if not self._is_own_cluster(hello):
            return
        lane = self._listener_for(hello)
        if lane is not None:
            self._token = lane.invite(self._on_lane)
        address = lane.address if lane is not None else ""
        self.post(
            HelloReply(
                PROTOCOL_VERSION,
                own.task,
                own.incarnation,
                own.cluster_fingerprint,
                own.host_id,
                address,
                self._token,
            ),
            request_id,
        )
        if lane is None:
            self.send = self.connection.send
        self.peer = own.new_guest()
        self._established(hello)

    def _listener_for(self, hello: Hello) -> TokenListener | None:
        """Where this peer can open a lane."""
        own = self.endpoint
        if hello.host_id and hello.host_id == own.host_id:
            return own.lanes.local_listener()
        if hello.wants_stream and own.streams and self.connection.plain_host:
            return own.lanes.stream_listener(self.connection.plain_host)
        return None

    def _on_hello_reply(self, reply: HelloReply) -> None:
        peer = self.peer
        assert peer is not None
        if peer.expected_task and reply.task != peer.expected_task:
            who = reply.task or "a process that is no task"
            self.refuse(f"{who} answers at {peer.address}, not {peer.expected_task}", permanent=True)
            return
        if not self._is_own_cluster(reply):
            return
        if not reply.lane_address or not self._open_lane(reply):
            self.send = self.connection.send
        self._established(reply)

    def _is_own_cluster(self, hello: Hello | HelloReply) -> bool:
        ours, theirs = self.endpoint.cluster_fingerprint, hello.cluster_fingerprint
        if ours and theirs and ours != theirs:
            self.refuse(
                f"{hello.task or 'a client'} belongs to another cluster ({theirs}) than "
                f"{self.endpoint.task or 'this process'} ({ours}); compare the ClusterSpecs",
                permanent=True,
            )
            return False
        return True

    def _established(self, hello: Hello | HelloReply) -> None:
        self._deadline.cancel()
        self._is_stranger = False
        self._handle = self.dispatch
        assert self.peer is not None
        self.peer.link_ready(self, hello.task, hello.incarnation)

    def _hello_is_late(self) -> None:
        self.end(f"silent: it did not answer the Hello within {HELLO_TIMEOUT_S:g} s")

    # -- lane ----------------------------------------------------------------------------

    def _open_lane(self, reply: HelloReply) -> bool:
        """Connecting side: begins to open the lane; whether there may be one."""
        lanes, host = self.endpoint.lanes, self.connection.plain_host
        if reply.lane_address.startswith(SCHEME) and host:
            return lanes.open_stream(host, reply.lane_address, reply.lane_token, self._stream_opened)
        if reply.host_id != self.endpoint.host_id:
            return False
        self._lane = lanes.open_local(reply.lane_address, reply.lane_token)
        return self._lane is not None

    def _stream_opened(self, lane: Connection) -> None:
        self._lane = lane
        if self._over:
            lane.close("the connection is over")

    def _on_lane(self, lane: Connection) -> None:
        """Listening side: the peer has opened the lane."""
        if self._over:
            lane.close("the connection is over")
            return
        self._lane, self._token = lane, b""
        self._switch_sending()

    def _switch_sending(self) -> None:
        with self._lock:
            self.connection.send(encode(LaneSwitch()))
            self.connection = self._lane
            self.send = self._lane.send

    def _follow_to_lane(self) -> None:
        """The peer has sent its last message by the old route."""
        lane, old = self._lane, self._inflow
        if lane is None:
            self.end("it switched to a lane that does not exist")
            return
        self._inflow = lane
        if self.connection is old:  # connecting side
            self._switch_sending()
        else:  # all that was sent by the old route has come; who sends there must not cut it short
            old.close("moved to a lane")
        self.endpoint.counters["lanes"] += 1
        self.endpoint.route_opened(lane)
        lane.start(self._on_parts, lambda reason: self._on_closed(lane, reason))

    # -- the end -------------------------------------------------------------------------

    def tick(self, elapsed_s: float) -> None:
        """Heartbeat and failure detection."""
        # Messages, and the bytes of those that are still coming or that nobody has had time to read.
        received = self.received + self._inflow.activity
        lane = self._lane
        if lane is not None and lane is not self._inflow:
            received += lane.activity  # the switch to it may be waiting behind a message that takes long to handle
        verdict = self.liveness.tick(elapsed_s, received, self.sent)
        if self._is_stranger:
            return
        if verdict is Verdict.BEAT:
            self.post(Heartbeat())
        elif verdict is Verdict.LOST:
            self.end(
                f"silent: nothing came for {LOST_AFTER_S:g} s though it should speak "
                f"every {BEAT_AFTER_S:g} s; it is stopped, stuck or cut off"
            )

    def refuse(self, reason: str, permanent: bool = False) -> None:
        """Tells the peer why, and ends the link."""
        self.endpoint.report(f"a connection with {self.peer or self.connection.address}", ValueError(reason))
        self.post(Goodbye(reason))
        self.end(reason, permanent)

    def _on_closed(self, route: Connection, reason: str) -> None:
        if route is self.connection or route is self._inflow:  # not a route that both have left
            self.end(reason)
        self.endpoint.route_closed(route)

    def end(self, reason: str, permanent: bool = False) -> None:
        """Closes the link and tells the peer object; once."""
        with self._lock:
            if self._over:
                return
            self._over = True
        self._deadline.cancel()
        if self._token:
            self.endpoint.lanes.uninvite(self._token)
        self.connection.close(reason)
        for route in (self._first_route, self._lane):
            if route is not None and route is not self.connection:
                route.close(reason)
        self.endpoint.link_ended(self)
        for responder in list(self.active.values()):
            responder.cancel()
        if self.peer is not None:
            self.peer.link_ended(self, reason, permanent)


def _as_op_error(error: Exception) -> errors.OpError:
    if isinstance(error, errors.OpError):
        return error
    return errors.InternalError(None, None, f"{type(error).__name__}: {error}")
