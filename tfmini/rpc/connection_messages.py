"""The message kinds of a connection itself, which any two tasks exchange (see `tfmini.rpc.messages`)."""

from __future__ import annotations

from tfmini.rpc.records import Message, Retry, message

CONNECTION = "any"


@message(kind=2, direction=CONNECTION, is_reply=True)
class HelloReply(Message):
    """The listener's answer: who it is, and where a lane to it opens.

    ``lane_address`` is ``lane://name`` for a local lane, ``stream://port`` for a stream lane on the
    host that was dialled, or empty.
    """

    version: int
    task: str
    incarnation: int
    cluster_fingerprint: str
    host_id: str
    lane_address: str
    lane_token: bytes


@message(kind=1, direction=CONNECTION, reply=HelloReply, retry=Retry.SAFE)
class Hello(Message):
    """First message of the side that connects.

    ``expected_task`` is whom it hopes to reach ("": anyone). ``host_id`` is "" when it does not
    want a local lane, and ``wants_stream`` whether it would take a stream lane.
    """

    version: int
    task: str
    incarnation: int
    cluster_fingerprint: str
    host_id: str
    wants_stream: bool
    expected_task: str


@message(kind=3, direction=CONNECTION, is_reply=True)
class Status(Message):
    """A failure, in place of a reply. ``code`` is one of `tfmini.errors`' codes."""

    code: int
    message: str
    node: str
    device: str
    task: str
    derived: bool


@message(kind=4, direction=CONNECTION)
class Cancel(Message):
    """The caller no longer wants the answer to that request."""

    request_id: int


@message(kind=5, direction=CONNECTION)
class Heartbeat(Message):
    """Sent on a connection that had nothing to send for a second."""


@message(kind=6, direction=CONNECTION)
class Goodbye(Message):
    """The last message: the sender closes the connection, and why."""

    reason: str


@message(kind=7, direction=CONNECTION)
class LaneSwitch(Message):
    """The last message by the old route: all later ones come by the lane."""


HANDSHAKE = frozenset({Hello, HelloReply, Goodbye})
"""What may come from somebody who has not said Hello."""
