"""The messages between the launcher of a run and the agents of its tasks.

Both come from the same version of tfmini. Their connection is admitted by a key of the run. The numbers are among those
of `tfmini.rpc.messages`: 116-127.
"""

from __future__ import annotations

from tfmini.rpc.records import Message, Retry, Structure, message

AGENT, LAUNCHER = "launcher->agent", "agent->launcher"


@message(kind=117, direction=LAUNCHER, is_reply=True)
class TaskOrder(Message):
    """What the task of an agent runs: the fields of `TaskCommand`, with the content of its key file.

    ``grace_s``: seconds between a request to end and SIGKILL.
    """

    arguments: tuple[str, ...]
    defaults: Structure
    role: Structure
    key: bytes
    serves: bool
    grace_s: float


@message(kind=116, direction=LAUNCHER, reply=TaskOrder, retry=Retry.NEVER)
class EnterRun(Message):
    """An agent asks for its task, which it gets when all tasks of the run have a place.

    ``number`` is its own one. The task will listen at ``host`` and ``port``, on a machine of that name where it may use
    ``cpus`` cores.
    """

    number: int
    host: str
    port: int
    cpus: int
    machine: str


@message(kind=118, direction=AGENT)
class TaskAddresses(Message):
    """Says where all tasks are: task -> ``host:port``."""

    tasks: Structure


@message(kind=119, direction=AGENT)
class SignalTask(Message):
    """Sends the task a signal."""

    signum: int


@message(kind=120, direction=AGENT)
class HoldOutput(Message):
    """Lets the task wait as soon as it writes more, or ends that."""

    is_held: bool


@message(kind=121, direction=AGENT)
class LeaveRun(Message):
    """The run needs this agent no longer, which ends with this exit code."""

    exit_code: int


@message(kind=122, direction=LAUNCHER)
class TaskOutput(Message):
    """The task has written to its standard output or error."""

    data: bytes


@message(kind=123, direction=LAUNCHER)
class TaskJoined(Message):
    """The task has entered or left `Server.join`."""

    joined: bool


@message(kind=124, direction=LAUNCHER)
class TaskProgress(Message):
    """The task tells about long work."""

    words: str


@message(kind=125, direction=LAUNCHER)
class TaskEnded(Message):
    """The task has ended, with an exit code or minus the number of a signal."""

    returncode: int


@message(kind=126, direction=LAUNCHER)
class TaskFailed(Message):
    """The task could not be started."""

    reason: str


@message(kind=127, direction=LAUNCHER)
class AgentSignalled(Message):
    """The scheduler has sent the agent a signal."""

    signum: int
