"""The snapshot of a running cluster: plain values, and their form in JSON.

`gather.gather` makes a `ClusterSnapshot`; it stands above this room, in `show/status`. The command line, the live page
and the metrics show the same one. Field names are stable: they are the keys of ``tfmini status --json``. Times are in
seconds, sizes in bytes. Counters grow from the start of the task and begin at 0 when it restarts (its incarnation
tells). Numbers of more than 53 bits (incarnations, step ids) are text, because JavaScript would round them.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from tfmini.text import printable

# ---- Dataclasses of plain values as JSON values, and back with a check of every type -------------------------------
# Of what another process tells (``outside``), texts become printable, and numbers that no measure can have become 0. So
# one task's answer cannot break or deceive what shows all of them. A field with the metadata `ANY_NUMBER` keeps its
# own.
#
# A page that asks 100 tasks once a second reads about 10,000 of them, so what depends on the class alone is kept.

T = TypeVar("T")

ANY_NUMBER = {"any number": True}
_LARGEST, _LONGEST = 1e18, 4000  # a number, and the characters of a text
_SCALARS = (str, int, float, bool)


def to_json(snapshot: Any) -> dict[str, Any]:
    """A snapshot of any kind as dicts, lists and scalars, by field name."""
    return {name: _plain(getattr(snapshot, name)) for name in _names(typing.cast(Any, type(snapshot)))}


@functools.cache
def _names(cls: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls))


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is tuple:
        return [_plain(item) for item in value]
    if kind is dict:
        return dict(value)
    return to_json(value) if dataclasses.is_dataclass(value) else value


class _Field(NamedTuple):
    """A field of a class. ``kind``: the type of values that are taken as they are; others go through ``read``."""

    name: str
    kind: Any
    read: Callable[[Any, str], Any]


def from_json(cls: type[T], data: Any, outside: bool = False) -> T:
    """The inverse of `to_json`. Unknown keys are left out; a field that is missing has its default.

    Args:
      outside: whether the data are of another process; see the module.

    Raises:
      ValueError: a value has another type than its field, or a field without a default is missing.
    """
    if not isinstance(data, dict):
        raise ValueError(f"a {cls.__name__} must be a mapping, not {type(data).__name__}")
    values = {}
    for name, kind, read in _fields(typing.cast(Any, cls), outside):
        if name in data:
            value = data[name]
            values[name] = value if type(value) is kind else read(value, name)
    try:
        return cls(**values)
    except TypeError as error:
        raise ValueError(f"a {cls.__name__} is incomplete: {error}") from None


@functools.cache
def _fields(cls: Any, outside: bool) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(cls)
    free = {field.name for field in dataclasses.fields(cls) if field.metadata == ANY_NUMBER}
    return tuple(_Field(name, *_reader(hints[name], outside and name not in free)) for name in _names(cls))


def _reader(hint: Any, outside: bool) -> tuple[Any, Callable[[Any, str], Any]]:
    """The type of values that are what the hint says without a look inside, and a function for all others."""
    if isinstance(hint, types.GenericAlias):
        return None, _tuple_reader(hint, outside) if hint.__origin__ is tuple else _dict_reader(hint, outside)
    if dataclasses.is_dataclass(hint):
        return None, lambda value, name: from_json(typing.cast(type, hint), value, outside)

    def read(value: Any, name: str) -> Any:
        kind = type(value)
        if kind is not hint and (hint is not float or kind is not int):
            raise _other_type(hint, value, name)
        if kind is str:
            return value if value.isprintable() and len(value) <= _LONGEST else printable(value, _LONGEST)
        return float(value) if not outside or -_LARGEST < value < _LARGEST else 0.0

    return (None if outside and hint in (str, float) else hint), read


def _tuple_reader(hint: types.GenericAlias, outside: bool) -> Callable[[Any, str], Any]:
    kind, read_item = _reader(hint.__args__[0], outside)

    def read(value: Any, name: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise _other_type(hint, value, name)
        return tuple([item if type(item) is kind else read_item(item, name) for item in value])

    return read


def _dict_reader(hint: types.GenericAlias, outside: bool) -> Callable[[Any, str], Any]:
    (key_kind, read_key), (kind, read_item) = (_reader(each, outside) for each in hint.__args__)

    def read(value: Any, name: str) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise _other_type(hint, value, name)
        return {
            key if type(key) is key_kind else read_key(key, name): item if type(item) is kind else read_item(item, name)
            for key, item in value.items()
        }

    return read


def _other_type(hint: Any, value: Any, name: str) -> ValueError:
    return ValueError(f"{name} must be {getattr(hint, '__name__', hint)}, not {type(value).__name__}")


# ---- What a cluster is at one time: its tasks, and what each of them tells -----------------------------------------

OK, STUCK, SILENT = "ok", "stuck", "silent"
"""States of a task: it handles messages; all its threads that do so are busy; it did not answer."""


@dataclass(frozen=True)
class SessionSnapshot:
    """An open session of a task's master.

    Attributes:
      handle: its first digits.
      owner: who opened it: the full name of the task in whose process the client is, or ``client at HOST``.
      age_s: seconds since it was opened.
      steps, runs: how many training steps, and how many steps of any kind, have ended, with or without an error.
      in_flight: how many steps of any kind run now.
    """

    handle: str
    owner: str
    age_s: float
    steps: int = 0
    in_flight: int = 0
    runs: int = 0


@dataclass(frozen=True)
class VariableSnapshot:
    """A variable that the task holds. ``bytes``: of its value now; 0: not initialized."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class MovedSnapshot:
    """A variable that this task has given away. ``place``: the task that got it."""

    name: str
    place: str


@dataclass(frozen=True)
class LinkSnapshot:
    """What a task has exchanged with another task or client, over all connections between the two.

    Attributes:
      peer: full task name, or ``client at HOST``.
      state: ``ready``, ``connecting``, ``lost``, …
      transport: ``zmq``, ``local lane``, ``stream lane`` or ``""``.
      sent_bytes, received_bytes: with what went through shared memory.
      sent_bytes_s, …: per second, over the last `TaskSnapshot.window_s`.
      backlog_bytes: queued here and not sent yet.
      address: at which the peer is, or was looked for; "" for one that has connected to this task.
      why: why the peer cannot be reached; "" while it can.
    """

    peer: str
    state: str
    transport: str = ""
    sent_bytes: int = 0
    received_bytes: int = 0
    sent_messages: int = 0
    received_messages: int = 0
    sent_bytes_s: float = 0.0
    received_bytes_s: float = 0.0
    sent_messages_s: float = 0.0
    received_messages_s: float = 0.0
    backlog_bytes: int = 0
    address: str = ""
    why: str = ""


TENSOR, ELEMENT, ROOM, GRADIENT, TOKEN, COLLECTIVE, LOCK, ANSWER, COMPUTES, ITERATOR, OTHER = (
    *("tensor", "element", "room", "gradient", "token", "collective", "lock", "answer", "computes", "iterator"),
    "other",
)
"""Kinds of waits. ``element``: of a queue; ``iterator``: for an element of a dataset. ``answer``: the master's wait for
a task's part of the step. ``computes``: no wait; a kernel runs."""

CONSEQUENCES = (TENSOR, ANSWER)
"""Waits that other waits of the same step explain."""


@dataclass(frozen=True)
class WaitSnapshot:
    """One thing that one step waits for on one task.

    Attributes:
      step_id: decimal digits. All tasks of a step know it by the same id.
      session: the first digits of the session's handle.
      kind: one of the kinds above.
      text: the wait in words, such as ``an element of queue "jobs" (0 of 1)``.
      since_s: for how many seconds.
      node: the op that waits; ``""``: the wait is for tensors.
      on: the object: a queue's or accumulator's name, a tensor's name, a collective's group.
      holder: the task that holds the object; ``""``: this task.
      from_tasks: full names of the tasks whose action ends the wait, as far as known.
    """

    step_id: str
    session: str
    kind: str
    text: str
    since_s: float
    node: str = ""
    on: str = ""
    holder: str = ""
    from_tasks: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepSnapshot:
    """A step that the task's master runs now.

    Attributes:
      step_id: as in `WaitSnapshot`.
      session: the first digits of the session's handle.
      owner: as in `SessionSnapshot`.
      age_s: since it began; 0: not known, of one that cannot wait.
      fetches: the first of its fetches and targets.
      awaits: full names of the tasks whose parts have not ended.
      trains: whether it is a training step.
      fills: whether it only fills queues, as the steps of queue runners.
    """

    step_id: str
    session: str
    owner: str
    age_s: float
    fetches: tuple[str, ...] = ()
    awaits: tuple[str, ...] = ()
    trains: bool = True
    fills: bool = False


PUT, TAKE, RELEASE = "put", "take", "release"


@dataclass(frozen=True)
class PendingSnapshot:
    """What a running step has still to do to an object of this task; it may end another step's wait.

    Attributes:
      step_id: as in `WaitSnapshot`.
      action: `PUT` (enqueue, add a gradient), `TAKE` (dequeue, take a mean) or `RELEASE` (a lock).
      on: the object's name, as in `WaitSnapshot`.
      node: the op that will do it.
    """

    step_id: str
    action: str
    on: str
    node: str = ""


@dataclass(frozen=True)
class QueueSnapshot:
    """A queue, or another store of elements, of a task. ``capacity``: -1: no limit."""

    name: str
    kind: str
    length: int
    capacity: int
    waiting_to_put: int = 0
    waiting_to_take: int = 0
    is_closed: bool = False


@dataclass(frozen=True)
class ContributionSnapshot:
    """The gradients that one task's steps have sent to a synchronous accumulator."""

    task: str
    accepted: int
    dropped: int


@dataclass(frozen=True)
class AccumulatorSnapshot:
    """A gradient accumulator: the ledger of synchronous updates.

    Attributes:
      count: gradients accumulated now.
      required: gradients that the waiting take needs; 0: no take waits.
      global_step: older gradients are dropped.
      accepted, dropped: gradients so far.
      contributions: by task.
      contributed: the tasks that are in the ``count``, as far as known.
    """

    name: str
    count: int
    required: int
    global_step: int
    accepted: int = 0
    dropped: int = 0
    contributions: tuple[ContributionSnapshot, ...] = ()
    contributed: tuple[str, ...] = ()


@dataclass(frozen=True)
class StalenessSnapshot:
    """How stale the asynchronous updates of one worker are on this task.

    The staleness of an update is the number of updates by other steps that were made here after its step began here.

    Attributes:
      worker: full name of the task whose master ran the steps, or ``client at HOST``.
      updates: steps that changed variables.
      mean, latest, maximum: updates between.
      histogram: counts of staleness 0, 1, 2–3, 4–7, 8–15, …; the last one has all above.
    """

    worker: str
    updates: int
    mean: float
    latest: int
    maximum: int
    histogram: tuple[int, ...] = ()


@dataclass(frozen=True)
class CollectiveSnapshot:
    """A collective group of which the task is a member: what the task has sent for it."""

    group: str
    size: int
    runs: int
    messages: int
    bytes: int


@dataclass(frozen=True)
class EventSnapshot:
    """Something that happened once.

    Attributes:
      time_s: seconds since 1970.
      kind: ``joined``, ``lost``, ``restarted``, ``saved``, ``restored``.
      subject: the task, or the path of the checkpoint.
      text: the reason or details, for people.
    """

    time_s: float
    kind: str
    subject: str
    text: str = ""


@dataclass(frozen=True)
class ScalarSnapshot:
    """The latest value of a scalar that the script writes as a summary. ``time_s``: seconds since 1970."""

    tag: str
    step: int
    value: float = dataclasses.field(metadata=ANY_NUMBER)
    time_s: float


@dataclass(frozen=True)
class ThreadSnapshot:
    """A Python thread. ``frames``: innermost last, each ``file:line function``."""

    name: str
    frames: tuple[str, ...]


@dataclass(frozen=True)
class TaskSnapshot:
    """One task.

    A training step runs an op by which an optimizer updates variables, or, where the graph has any, one that gives a
    gradient to an accumulator. On a task whose sessions have no such ops, every step counts that does not only fill
    queues.

    Attributes:
      task: full name, ``/job:worker/replica:0/task:0``.
      state: `OK`, `STUCK` or `SILENT`. The fields below ``why`` are empty for a silent one.
      why: what keeps it, or why it did not answer.
      incarnation: 16 hexadecimal digits.
      taken_s: its wall clock, in seconds since 1970.
      window_s: rates are over so many seconds.
      steps, steps_failed: training steps that its master has finished. ``steps_in_flight``: running now. ``steps_s``:
        per second.
      runs, runs_in_flight: the same of steps of any kind.
      parts, parts_in_flight, parts_s: of the parts of steps that its worker has run for any master.
      omitted: how many entries of a list were left out, by the name of the list.
      counters: of messages that were dropped, malformed, late, …
    """

    task: str
    address: str
    state: str = OK
    why: str = ""
    incarnation: str = ""
    pid: int = 0
    host: str = ""
    taken_s: float = 0.0
    uptime_s: float = 0.0
    cpu_s: float = 0.0
    memory_bytes: int = 0
    threads: int = 0
    window_s: float = 0.0
    steps: int = 0
    steps_failed: int = 0
    steps_in_flight: int = 0
    steps_s: float = 0.0
    runs: int = 0
    runs_in_flight: int = 0
    parts: int = 0
    parts_in_flight: int = 0
    parts_s: float = 0.0
    sessions: tuple[SessionSnapshot, ...] = ()
    variables: tuple[VariableSnapshot, ...] = ()
    variable_bytes: int = 0
    moved: tuple[MovedSnapshot, ...] = ()
    links: tuple[LinkSnapshot, ...] = ()
    running: tuple[StepSnapshot, ...] = ()
    waits: tuple[WaitSnapshot, ...] = ()
    pending: tuple[PendingSnapshot, ...] = ()
    queues: tuple[QueueSnapshot, ...] = ()
    accumulators: tuple[AccumulatorSnapshot, ...] = ()
    staleness: tuple[StalenessSnapshot, ...] = ()
    collectives: tuple[CollectiveSnapshot, ...] = ()
    events: tuple[EventSnapshot, ...] = ()
    scalars: tuple[ScalarSnapshot, ...] = ()
    stacks: tuple[ThreadSnapshot, ...] = ()
    counters: dict[str, int] = dataclasses.field(default_factory=dict)
    omitted: dict[str, int] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class ClusterSnapshot:
    """All tasks of a cluster at about one time.

    Attributes:
      target: what was asked for: an address, or a job.
      taken_s: wall clock of the asking process, in seconds since 1970.
      took_s: for how long it waited for the answers.
      tasks: in the order of the ClusterSpec, the silent ones included.
    """

    target: str
    taken_s: float
    took_s: float
    tasks: tuple[TaskSnapshot, ...]

    def task(self, name: str) -> TaskSnapshot | None:
        """The task of that full name."""
        return next((task for task in self.tasks if task.task == name), None)
