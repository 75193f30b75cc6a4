"""The message kinds of the connection itself: handshake, failure, cancellation, heartbeat and lane switch."""

from __future__ import annotations

from tfmini.rpc.records import Message, Retry, message

CONNECTION = "any"


@message(kind=2, direction=CONNECTION, is_reply=True)
class HelloReply(Message):
    """The listener's answer to `Hello`, with the same fields for its identity, and the address of a lane to it.

    ``lane_address`` is ``lane://name`` for a local lane, ``stream://port`` for a stream lane on the
    same host, or empty.
    """

    version: int
    task: str
    incarnation: int
    task_address: str
    host_proof: bytes
    lane_address: str
    lane_token: bytes


@message(kind=1, direction=CONNECTION, reply=HelloReply, retry=Retry.SAFE)
class Hello(Message):
    """The first message of the connecting side.

    ``task`` is its name ("": a client), ``task_address`` the address of that task in its own ClusterSpec.
    ``host_proof`` is a salted hash of its host id, or empty if it does not want a local lane.
    ``wants_stream`` says whether it accepts a stream lane. ``expected_task`` is the task that it wants to
    reach ("": any). ``dialer`` is a secret number of the object that connects: it uses one connection at a
    time, so a new one of the same number replaces the old one. 0: any number of them. ``started`` is the time
    at which this incarnation began, in ns, so that the latest of several is known. 0: not told.
    """

    version: int
    task: str
    incarnation: int
    task_address: str
    host_proof: bytes
    wants_stream: bool
    expected_task: str
    dialer: int
    started: int


@message(kind=3, direction=CONNECTION, is_reply=True)
class Status(Message):
    """A failure, in place of a reply. ``code`` is one of `tfmini.errors`' codes."""

    code: int
    message: str
    node: str
    device: str
    task: str
    derived: bool


@message(kind=8, direction=CONNECTION, is_reply=True)
class Acknowledged(Message):
    """The answer to a request that asks for no value: it has been carried out."""


@message(kind=4, direction=CONNECTION)
class Cancel(Message):
    """The caller has cancelled the request."""

    request_id: int


@message(kind=5, direction=CONNECTION)
class Heartbeat(Message):
    """Sent on a connection that has sent nothing for a second, and every 10 s on others.

    ``handled``: how many messages of this connection its sender has begun to handle. ``doing``: if it has not handled
    the next one for a second, what it computes or receives meanwhile; empty if there is no such reason.
    """

    handled: int
    doing: str


@message(kind=6, direction=CONNECTION)
class Goodbye(Message):
    """The last message on a connection: its sender closes it for this reason."""

    reason: str


@message(kind=7, direction=CONNECTION)
class LaneSwitch(Message):
    """The sender's last message on the old connection: later ones arrive on the lane."""


HANDSHAKE = frozenset({Hello, HelloReply, Goodbye})
"""The kinds that an unauthenticated peer may send."""
