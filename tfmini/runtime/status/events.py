"""What has happened to the other tasks of a cluster, as one task has seen it."""

from __future__ import annotations

import collections
import weakref
from collections.abc import Callable

from tfmini.locks import lock
from tfmini.rpc.endpoint import Endpoint, Peer
from tfmini.status.snapshot import EventSnapshot

_KEPT = 100
JOINED, LOST, RESTARTED = "joined", "lost", "restarted"


class TaskEvents:
    """The latest events: a task joined, was lost, or came back as another incarnation.

    Args:
      endpoint: tells of connections.
      wall_time: seconds since 1970.
    """

    def __init__(self, endpoint: Endpoint, wall_time: Callable[[], float]) -> None:
        self._wall_time = wall_time
        self._lock = lock("status events")
        self._events: collections.deque[EventSnapshot] = collections.deque(maxlen=_KEPT)
        self._incarnations: dict[str, int] = {}
        self._ready: dict[str, set[Peer]] = {}  # the connections of each task
        self._watched: weakref.WeakSet[Peer] = weakref.WeakSet()
        endpoint.on_peer_ready(self._on_ready)

    def all(self) -> list[EventSnapshot]:
        """The events, oldest first."""
        return list(self._events)

    def _on_ready(self, peer: Peer) -> None:
        if peer.task and self._changed(peer, None):
            peer.on_lost(self._changed)

    def _changed(self, peer: Peer, why: str | None) -> bool:
        """A connection has been made, or (with the reason) lost; returns whether it is the peer's first one."""
        with self._lock:
            ready = self._ready.setdefault(peer.task, set())
            if why is not None:
                if peer in ready:
                    ready.discard(peer)
                    if not ready:
                        self._note(LOST, peer.task, why)
                return False
            before, self._incarnations[peer.task] = self._incarnations.get(peer.task, 0), peer.incarnation
            if before and before != peer.incarnation:
                self._note(RESTARTED, peer.task, "it has another incarnation")
            elif not ready:
                self._note(JOINED, peer.task)
            ready.add(peer)
            is_new = peer not in self._watched
            self._watched.add(peer)
            return is_new

    def _note(self, kind: str, subject: str, text: str = "") -> None:
        self._events.append(EventSnapshot(self._wall_time(), kind, subject, text))
