"""The steps that have ended on a worker: their tensors are dropped, and those that they have sent may get lost.

A worker sends tensors without waiting for an answer. If the connection breaks, tensors in flight are lost. A run that
waits for them ends when its own worker notices the loss. But the receiver's run may begin later, and the sender's may
have ended already; then only the sender's worker knows that the run may wait for lost tensors, and it tells the
receiver (`Worker.peer_lost`).
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

STEP_LIMIT = 10_000


class EndedSteps:
    """The latest steps that have ended, with the peers that they could send to. Not thread-safe."""

    def __init__(self) -> None:
        self._peers: collections.OrderedDict[int, Mapping[str, Any]] = collections.OrderedDict()

    def __contains__(self, step_id: int) -> bool:
        return step_id in self._peers

    def add(self, step_id: int, peers: Mapping[str, Any]) -> None:
        """Remembers a step.

        Args:
          peers: as `RegisteredGraph.peers`.
        """
        self._peers[step_id] = peers
        while len(self._peers) > STEP_LIMIT:
            self._peers.popitem(last=False)

    def sent_to(self, peer: Any) -> list[int]:
        """The steps that had tensors to send to a peer."""
        return [step_id for step_id, peers in self._peers.items() if peer in peers.values()]
