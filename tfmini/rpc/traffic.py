"""What has gone over connections that have ended, by the peer at their other end."""

from __future__ import annotations

from typing import Protocol

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
