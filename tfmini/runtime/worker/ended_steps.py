"""The steps that have ended on a worker: their tensors are dropped, and those that they have sent may get lost.

A worker sends tensors without waiting for an answer. If the connection breaks, tensors in flight are lost. A run that
waits for them ends when its own worker notices the loss. But the receiver's run may begin later, and the sender's may
have ended already; then only the sender's worker knows that the run may wait for lost tensors, and it tells the
receiver (`Worker.peer_lost`). If the receiver cannot be told, or the tensors were never sent for want of a connection
(`Worker._unsent`), the sender's worker tells the masters of these steps, which end them. If the sender's process has
died after its part of a step had ended, the master tells the tasks that have not answered (`Step.task_lost`). Otherwise
the receiver would wait without end.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.rpc.messages import LostTensors, LostTensorsReply

if TYPE_CHECKING:
    from tfmini.rpc.peer import Peer

STEP_LIMIT = 10_000
_REPORT_S = 300.0  # seconds for which a worker tries to tell the receiver, and then the master


class EndedSteps:
    """The latest steps that have ended, with their sessions and the peers that they could send to. Not thread-safe."""

    def __init__(self) -> None:
        self._steps: collections.OrderedDict[int, tuple[str, Mapping[str, Any]]] = collections.OrderedDict()

    def __contains__(self, step_id: int) -> bool:
        return step_id in self._steps

    def add(self, step_id: int, session: str = "", peers: Mapping[str, Any] = types.MappingProxyType({})) -> None:
        """Remembers a step.

        Args:
          session: the handle of its session.
          peers: as `RegisteredGraph.peers`.
        """
        self._steps[step_id] = session, peers
        while len(self._steps) > STEP_LIMIT:
            self._steps.popitem(last=False)

    def sent_to(self, peer: Peer | None) -> dict[int, str]:
        """The steps that had tensors to send to a peer, with their sessions."""
        return {step_id: session for step_id, (session, peers) in self._steps.items() if peer in peers.values()}


class LossReports:
    """Tells others of tensors that are lost; see the module.

    Args:
      masters_of: handle of a session -> the connections of its master's task; none for the master of this task.
      on_undelivered: tells the master of this task, as `tensors_undelivered` of `Master`.
    """

    def __init__(
        self, task: str, masters_of: Callable[[str], Sequence[Any]] = lambda session: (),
        on_undelivered: Callable[[Sequence[int], str, str, str], Any] = lambda *_: None,
    ) -> None:  # fmt: skip
        self._task = task
        self._masters_of = masters_of
        self.on_undelivered = on_undelivered

    def report(self, peer: Peer | None, steps: Mapping[int, str], why: str) -> None:
        """Tells a peer of steps that have ended here and whose tensors it may not have got.

        Args:
          steps: step id -> handle of its session.
        """

        def answered(answer: Any) -> None:
            if not isinstance(answer, errors.CancelledError | LostTensorsReply):  # cancelled: this task shuts down
                self.tell_masters(peer, steps, f"{why}. For {_REPORT_S:g} s it could not be told")

        # To any incarnation: a dead link may have gone to the one before that which waits.
        if steps and peer is not None:
            peer.call(LostTensors(list(steps), why, "", ""), answered, _REPORT_S, wait_for_ready=True)

    def tell_masters(self, receiver: Any, steps: Mapping[int, str], why: str) -> None:
        """Tells the masters of steps that tensors for a receiver are lost, and that the receiver does not know it."""
        name = receiver.task or str(receiver)  # without a name: the session has its own cluster
        by_session: dict[str, list[int]] = {}
        for step_id, session in steps.items():
            by_session.setdefault(session, []).append(step_id)
        for session, step_ids in by_session.items():
            masters = self._masters_of(session)
            if masters:  # a master in another task that has lost this one has ended its steps already
                masters[0].call(LostTensors(step_ids, why, name, ""), lambda _: None, _REPORT_S)
            else:
                self.on_undelivered(step_ids, self._task, name, why)
