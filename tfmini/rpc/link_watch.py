"""The signs of life on one link: the heartbeats of this side and of the peer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tfmini.rpc.connection_messages import Goodbye, Heartbeat
from tfmini.rpc.membership import (
    BEAT_AFTER_S,
    LOST_AFTER_ENV,
    LOST_AFTER_S,
    WEDGED_AFTER_ENV,
    WEDGED_AFTER_S,
    Attention,
    PeerLiveness,
    Verdict,
)
from tfmini.rpc.process_watch import ProcessWatch

if TYPE_CHECKING:
    from tfmini.rpc.link import Link

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
        self._liveness = PeerLiveness(self._peer_computes)
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
        lost = self._liveness.tick(elapsed_s, link.received + arrived, link.sent)
        wedged = self._attention.tick(elapsed_s, link.received, arrived)
        if in_handshake or not link.endpoint.expects_heartbeats:
            return
        if lost is Verdict.LOST:
            silence_s = self._liveness.silence_s
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
