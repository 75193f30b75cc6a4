"""The message kinds by which anybody whom a cluster admits asks a task what it does.

They have a way of their own through a busy task: see `relief`.
"""

from __future__ import annotations

from tfmini.rpc.messages import MASTER
from tfmini.rpc.records import Message, Retry, Structure, message


@message(kind=39, direction=MASTER, is_reply=True)
class GetTaskStatusReply(Message):
    """``tasks``: full task name -> address, of the whole cluster. ``status``: see `tfmini.status.snapshot`."""

    tasks: Structure
    status: Structure


@message(kind=38, direction=MASTER, reply=GetTaskStatusReply, retry=Retry.SAFE)
class GetTaskStatus(Message):
    """Asks for a snapshot of the task. ``stacks``: with the Python stacks of its threads."""

    stacks: bool


@message(kind=41, direction=MASTER, is_reply=True)
class TraceStepReply(Message):
    """``stats``: a serialized StepStats of all tasks of the step, in the time of the master's task."""

    stats: bytes


@message(kind=40, direction=MASTER, reply=TraceStepReply, retry=Retry.NEVER)
class TraceStep(Message):
    """Asks to trace the next training step that a session of the task's master begins."""

    timeout_ms: int
