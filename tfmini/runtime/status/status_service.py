"""The answers to `GetTaskStatus`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfmini.locks import lock
from tfmini.rpc.status_messages import GetTaskStatus, GetTaskStatusReply
from tfmini.runtime.status.task_status import TaskStatus
from tfmini.status.snapshot import to_json

if TYPE_CHECKING:
    from tfmini.rpc.calls import Responder
    from tfmini.rpc.peer import Peer

FRESH_S = 0.1
"""An answer that is not older is given again, so that many who ask cost no more than ten answers a second."""


def status_handlers(status: TaskStatus, now: Callable[[], float]) -> dict[type[Any], Callable[..., Any]]:
    """Message kind -> handler, for `Endpoint.serve`."""
    return {GetTaskStatus: StatusService(status, now).get_task_status}


class StatusService:
    """Answers requests for the task's snapshot.

    Args:
      now: the clock, in seconds.
    """

    def __init__(self, status: TaskStatus, now: Callable[[], float]) -> None:
        self._status = status
        self._now = now
        self._lock = lock("status")
        self._latest: dict[bool, tuple[float, Any]] = {}  # with stacks or without: when, answer

    def get_task_status(self, peer: Peer, request: GetTaskStatus, respond: Responder) -> None:
        """The handler."""
        respond(GetTaskStatusReply(self._status.tasks(), self._answer(request.stacks)))

    def _answer(self, stacks: bool) -> Any:
        with self._lock:
            when, answer = self._latest.get(stacks, (float("-inf"), None))
            if self._now() - when > FRESH_S:
                answer = to_json(self._status.snapshot(stacks))
                self._latest[stacks] = self._now(), answer
            return answer
