"""The compiled partition of one task, registered to be run (`RegisteredGraph`), and one run of it (`PartitionRun`).

The interface and the shared code of the three drivers are here. `FunctionRun` (here, too) is one function call.
`BlockingRun` runs in its caller's thread and waits there for all-reduces. `DataflowRun` reacts to events and never
blocks. `worker.choose_driver` chooses one, once, at registration.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import InitVar, dataclass, field
from sys import getrefcount
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
from numpy import errstate, ndarray, zeros

from tfmini import errors
from tfmini.dtypes import DType, resource, variant
from tfmini.errors import InvalidArgumentError, of_exception
from tfmini.graph.node import Node
from tfmini.graph.op_types import INTO_FROM, ops_with
from tfmini.ops.array.kernel_arguments import holds
from tfmini.placement.task_graph import INNER, TaskGraph
from tfmini.runtime.compiler.kernels import dead_fetch, kernel_error
from tfmini.runtime.compiler.levels import Program
from tfmini.runtime.compiler.lowering import DEAD
from tfmini.runtime.resources import Resources
from tfmini.runtime.snapshot import PUT, TAKE
from tfmini.runtime.trace import Trace

if TYPE_CHECKING:
    from tfmini.rpc.peer import Peer


# ---- Runs -----------------------------------------------------------------------------------------------------------

Done = Callable[[errors.OpError | None, list[Any]], None]
Path = tuple[int, ...]
"""The iteration numbers of the surrounding loops, outermost first; ``()`` outside all loops."""


@dataclass(frozen=True)
class StepOutcome:
    """What a step has done on one task to variables and accumulators.

    Attributes:
      made: the names of the updates (see `graph.omission`) that the step has made.
      uncertain: those that it may have made: it was interrupted beside them.
    """

    made: frozenset[str] = frozenset()
    uncertain: frozenset[str] = frozenset()


class RunOwner(Protocol):
    """The part of a worker that its runs use.

    Attributes:
      reactor: of the process; None for a worker without a network.
      now: the clock of the process, in seconds.
      threads: a `dispatch.TaskThreads`.
    """

    task: str
    reactor: Any
    now: Callable[[], float]
    threads: Any

    def send_group(self, run: Any, group: int, values: tuple[Any, ...], path: Path) -> None: ...


class StopReason(Protocol):
    """The reason why a run must end; a deadline is true only once it has passed."""

    def __bool__(self) -> bool: ...
    def raise_error(self, run: PartitionRun, doing: str) -> None: ...


class Aborted:
    """The `StopReason` of a run that has been aborted, or is over."""

    __slots__ = ("error",)

    def __init__(self, error: errors.OpError) -> None:
        self.error = error

    def __bool__(self) -> bool:
        return True

    def raise_error(self, run: PartitionRun, doing: str) -> None:
        raise self.error


class Deadline:
    """The `StopReason` of a run whose time is limited.

    Attributes:
      end: on the clock ``now``, in seconds.
    """

    __slots__ = ("end", "_now", "_timeout_s")

    def __init__(self, timeout_s: float, now: Callable[[], float]) -> None:
        self._timeout_s = timeout_s
        self._now = now
        self.end = now() + timeout_s

    def __bool__(self) -> bool:
        return self._now() > self.end

    def raise_error(self, run: PartitionRun, doing: str) -> None:
        awaited = run.awaited()
        wait = f"waits for {awaited}" if awaited else doing
        raise deadline_exceeded(run.step_id, self._timeout_s, f"{run.owner.task} {wait}.")


def deadline_exceeded(step_id: int, timeout_s: float, waits: str) -> errors.DeadlineExceededError:
    """The error of a step whose time is over. ``waits`` are sentences that name tasks and their waits."""
    return errors.DeadlineExceededError.of(
        f"Timed out waiting for notification: step {step_id} did not end within {timeout_s:g} s. {waits} If the step"
        " needs longer, raise timeout_in_ms of its RunOptions, or operation_timeout_in_ms of the session's ConfigProto"
        " (of a ParameterStore: timeout_s)."
    )


class PartitionRun:
    """One run of a registered graph.

    A driver that blocks defines `run_segments`; one that does not block replaces `start` and `abort`.

    Args:
      owner: the worker.
      feeds: the fed values, as many as ``program.feeds``.
      timeout_s: seconds from now until loops end with DeadlineExceededError.

    Attributes:
      is_blocking: whether `execute` runs the whole partition in the calling thread.
      stopped: false until the run must end. Loops look at it before each iteration.
      trace: the record of a traced program's run, else None.
    """

    __slots__ = ("owner", "graph", "program", "step_id", "slots", "stopped", "trace")
    is_blocking: ClassVar[bool] = True

    def __init__(
        self,
        owner: RunOwner,
        graph: RegisteredGraph,
        step_id: int,
        feeds: Sequence[Any],
        timeout_s: float | None = None,
    ) -> None:
        program = graph.program
        self.owner = owner
        self.graph = graph
        self.program = program
        self.step_id = step_id
        self.slots = slots = program.template.copy()
        slots[: len(feeds)] = feeds
        if program.keeps_feeds:  # the client may write into its arrays later; see `ops.waiting_line`
            for slot in range(program.feeds):
                if isinstance(slots[slot], ndarray):
                    slots[slot] = slots[slot].view()
        self.stopped: StopReason | Literal[False] = False if timeout_s is None else Deadline(timeout_s, owner.now)
        self.trace = None if program.trace is None else Trace()

    @property
    def run(self) -> PartitionRun:
        """Itself; an iteration of a loop, which generated code sees too, has its run here."""
        return self

    # ---- for the master and the worker ------------------------------------------------------

    def start(self, on_done: Done) -> None:
        """Begins the run; ``on_done(error, fetched values)`` is called once, now or later."""
        try:
            values = self.execute()
        except errors.OpError as error:
            on_done(error, [])
        except BaseException:  # Ctrl-C: the master must not wait for this part
            on_done(errors.CancelledError.of(f"Step {self.step_id} was interrupted."), [])
            raise
        else:
            on_done(None, values)

    def execute(self) -> list[Any]:
        """Runs the partition in the calling thread and returns the fetched values.

        Raises:
          OpError: the failure of the run.
        """
        if self.stopped:  # aborted before it began
            self.raise_stopped("has not begun")
        try:
            with errstate(all="ignore"):
                self.run_segments()
        except Exception as error:  # noqa: BLE001 - translated at the boundary of the step
            self.release()
            raise kernel_error(error, self.owner.task) from (None if isinstance(error, errors.OpError) else error)
        except BaseException:  # Ctrl-C: the caller will not take the values
            self.release()
            raise
        return self.fetched()

    def deliver(self, group: int, values: Sequence[Any], path: Path = (), arrived_ns: int = 0) -> None:
        """Takes in a group of tensors from another task.

        Args:
          path: of the iteration that receives them.
          arrived_ns: when they arrived, on `trace.clock`, if that was before the run was made.

        Raises:
          InternalError: when the run does not expect the group.
        """
        raise errors.InternalError.of(f"step {self.step_id} got group {group}, which it does not expect")

    def abort(self, error: errors.OpError) -> None:
        """Ends the run with an error, from any thread; the first error counts."""
        if not isinstance(self.stopped, Aborted):
            self.stopped = Aborted(error)

    def end_soon(self, error: errors.OpError) -> None:
        """As `abort`, but a run that has got what it waited for and is at its end may come to it."""
        self.abort(error)

    def awaited(self) -> str:
        """The events that the run waits for, for people; "" while it computes."""
        return ""

    def refuse_answers(self, error: errors.OpError) -> bool:
        """If a node of its own waits for its answer: takes none from now on, since the run is about to be aborted.

        Returns:
          False if none waits: then nothing has changed.
        """
        return False

    def is_stuck_in(self, ops: Set[str]) -> bool:
        """Whether it does nothing before a node of these op types answers, as far as can be told from outside."""
        return False

    def describe_wait(self) -> str:
        """A sentence for people about `awaited`, with the step, the task and the time; "" while the run computes."""
        return ""

    def needs(self, task: str, peer: Peer | None) -> bool:
        """Whether the run exchanges tensors with a task, known by its name or as a peer."""
        return False

    def awaits_from(self, task: str, peer: Peer | None) -> bool:
        """Whether the run needs tensors that have not arrived from a task, known by its name or as a peer."""
        return False

    def outcome(self) -> StepOutcome:
        """What the run has done, after it has failed; not the last word unless it `is_settled`."""
        return StepOutcome(uncertain=self.graph.complete.made)

    @property
    def is_settled(self) -> bool:
        """Whether a run that has failed computes nothing any more: no abort stops a kernel that runs."""
        return True

    def when_settled(self, call: Callable[[], None]) -> None:
        """Makes the call when a run that has failed is settled, now or later."""
        call()

    # ---- for the drivers --------------------------------------------------------------------

    def run_segments(self) -> None:
        """Runs all segments."""
        raise NotImplementedError

    def release(self) -> None:
        """Cancels pending waits after a failure."""

    def fetched(self) -> list[Any]:
        """The fetched values, after all segments have run; the other values are let go.

        Raises:
          InvalidArgumentError: when a fetched value is dead.
        """
        slots = self.slots
        values = [slots[slot] for slot in self.program.fetches]
        if self.program.uncertain:
            for index, value in enumerate(values):
                if value is DEAD:
                    raise dead_fetch(index)
        slots.clear()
        return make_private(values) if self.graph.is_private else values

    # ---- for generated code and kernels -----------------------------------------------------

    def raise_stopped(self, doing: str = "computes") -> None:
        """Raises the reason why the run must end. ``doing``: what it does where it does not wait."""
        if self.stopped is not False:
            self.stopped.raise_error(self, doing)


class FunctionRun(PartitionRun):
    """A run of a partition that neither exchanges tensors nor waits: one function call in its caller's thread."""

    __slots__ = ()

    def run_segments(self) -> None:
        for segment in self.program.segments:
            segment.run(self, self.slots)


# ---- Fetched arrays: a client may write into them -------------------------------------------------------------------

_values: list[Any] = [zeros(1)]
_SOLE = getrefcount(_values[0])
"""The count for an array that only a list refers to."""


def make_private(values: list[Any]) -> list[Any]:
    """Replaces, in place, every array that has another reference, or is a part of another array, by a copy.

    A client may write into an array that ``run`` has returned. The graph does not show whether the runtime still holds
    the array (in a variable, a queue, a constant, a message that is being sent), since many kernels return an input.
    The array's reference count shows it, as for the copy-on-write of variables.

    The caller must have let go of its own references (a step's slots).

    Raises:
      ResourceExhaustedError: there is no memory for a copy, as of a small array that has been broadcast.
    """
    for i in range(len(values)):
        if isinstance(values[i], ndarray) and (
            getrefcount(values[i]) > _SOLE or values[i].base is not None or not values[i].flags.writeable
        ):
            try:
                values[i] = values[i].copy()
            except MemoryError as error:
                raise of_exception(error) from None
    return values


# ---- Effects: what a partition does to the queues and accumulators of its task; which step can end whose wait ------

_ACTIONS = (
    (ops_with("queue", "enqueue"), PUT),
    (ops_with("queue", "dequeue"), TAKE),
    (ops_with("accumulator", "apply"), PUT),
    (ops_with("accumulator", "take"), TAKE),
)
_FORWARDS = ops_with("forwards", "value")
_TRAINS = ops_with("writes", "optimize", "scatter", "update")
_HOPS = 10


@dataclass(frozen=True)
class Effect:
    """What one node does.

    Attributes:
      node: its name.
      action: `PUT` (it enqueues, or adds a gradient) or `TAKE`.
      handle: the node of the object.
      contributor: the device that an added gradient comes from, where the node tells.
    """

    node: str
    action: str
    handle: Node
    contributor: str = ""


def effects_of(nodes: Sequence[Node]) -> tuple[Effect, ...]:
    """The effects of a partition, in its order."""
    # A partition has many nodes of few types.
    actions = {op: [action for ops, action in _ACTIONS if op in ops] for op in {node.op for node in nodes}}
    found = [(node, action) for node in nodes for action in actions[node.op] if node.inputs]
    if not found:
        return ()
    by_name = {node.name: node for node in nodes}
    effects = []
    for node, action in found:
        handle = _handle(node, by_name)
        if handle is not None:
            contributor = node.attrs.get("_contributor", b"")
            effects.append(Effect(node.name, action, handle, contributor.decode()))
    return tuple(effects)


def _handle(node: Node, by_name: dict[str, Node]) -> Node | None:
    """The node of the object that the first input names, through ops that only pass it on."""
    for _ in range(_HOPS):
        found = by_name.get(node.inputs[0][0]) if node.inputs else None
        if found is None or found.op not in _FORWARDS:
            return found
        node = found
    return None


def is_training(nodes: Iterable[Node]) -> bool:
    """Whether a partition updates variables, other than by giving them a value of their own."""
    return any(op in _TRAINS for op in {node.op for node in nodes})


# ---- Registered graphs ---------------------------------------------------------------------------------------------

_NAMES = operator.itemgetter(0, 1)
_DTYPE = operator.attrgetter("dtype")
_NO_TYPE = object()  # not None, which equals numpy's type of float64


@dataclass
class RegisteredGraph:
    """A compiled partition.

    Attributes:
      task: the name of the worker in the session's cluster.
      driver: the class of its runs.
      is_private: whether a client in this process gets the fetched arrays themselves and may write into them.
      peers: destination task -> an `rpc.peer.Peer`, or what stands for one.
      task_graph: what has been compiled; without it, nobody outside feeds the graph or sends to it.
      labels: group -> its tensors and their sender, for people.
      senders: group -> the task that sends it, by its name in the session's cluster; ``incarnations``: group -> its
        incarnation, 0 if the master did not know it.
      feed_types: of each fed value, its type; ``feed_arrays``: that of its array.
      sent_types: group -> numpy's types of its values; `_NO_TYPE` for what cannot be sent.
      effects: what it does to queues and accumulators; ``is_training``: whether it updates variables.
      executed: how often a client's thread has run it (`Worker.execute`); ``trains``: whether such a run is a training
        step.
      complete: what a run that has come to its end has done.
      waits_for: the op types for whose answers it waits.
    """

    handle: int
    session_handle: str
    program: Program
    resources: Resources
    task: str = ""
    driver: type[PartitionRun] = FunctionRun
    is_private: bool = False
    peers: Mapping[str, Any] = field(default_factory=dict)
    task_graph: InitVar[TaskGraph | None] = None
    labels: dict[int, str] = field(init=False, default_factory=dict)
    senders: dict[int, str] = field(init=False, default_factory=dict)
    incarnations: dict[int, int] = field(init=False, default_factory=dict)
    feed_types: list[DType] = field(init=False, default_factory=list)
    sent_types: dict[int, list[Any]] = field(init=False, default_factory=dict)
    feed_arrays: list[np.dtype[Any]] = field(init=False, default_factory=list)
    effects: tuple[Effect, ...] = field(init=False, default=())
    is_training: bool = field(init=False, default=False)
    executed: int = field(init=False, default=0)
    trains: bool = field(init=False, default=True)
    complete: StepOutcome = field(init=False)
    waits_for: frozenset[str] = field(init=False)

    def __post_init__(self, task_graph: TaskGraph | None) -> None:
        segments = self.program.segments
        self.waits_for = frozenset(node.op for node in self.program.waits.values())
        self.complete = StepOutcome(frozenset(name for each in segments for name in each.updates + each.taken))
        if task_graph is not None:
            self._study(task_graph)

    def sent_array(self, group: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """An array, not set, for a result that is only sent with a group: in the connection's memory, if it is large.

        Raises:
          MemoryError: out of memory.
        """
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes >= INTO_FROM:
            memory = self.peers[self.program.sends[group]].part_memory(nbytes)
            if memory is not None:
                return np.ndarray(shape, dtype, memory)
        return np.empty(shape, dtype)

    def describe_group(self, group: int) -> str:
        return self.labels.get(group, f"group {group}")

    def comes_from(self, group: int, task: str, peer: Peer | None) -> bool:
        """Whether a task sends a group; the peer identifies it where a session gives it another name."""
        if self.senders.get(group) == task:
            return True
        return peer is not None and bool(peer.incarnation) and self.incarnations.get(group) == peer.incarnation

    def check_feeds(self, values: Sequence[Any]) -> None:
        """Refuses other values than the graph has feeds for: they may come from a client that has not checked them.

        Raises:
          InvalidArgumentError: for another number of values, or one of another type.
        """
        if [getattr(value, "dtype", _NO_TYPE) for value in values] == self.feed_arrays:  # a quick look, for every step
            return
        if len(values) != self.program.feeds:
            raise InvalidArgumentError.of(f"The step has {self.program.feeds} feeds, but {len(values)} values came")
        for value, wanted in zip(values, self.feed_types):
            if not holds(wanted, value):
                found = getattr(value, "dtype", type(value).__name__)
                raise InvalidArgumentError.of(f"A value of type {found} was fed where {wanted.name} is expected")

    def check_group(self, group: int, values: Sequence[Any]) -> None:
        """Refuses tensors of other types, or another number of them, than their receivers say: kernels rely on that.

        Raises:
          InvalidArgumentError: naming the group.
        """
        wanted = self.sent_types.get(group)
        found = list(map(_DTYPE, values))  # None for `DEAD`
        if found == wanted or wanted is None:  # a group that nobody receives is refused by the run
            return
        if len(found) != len(wanted):
            text = f"{len(found)} tensors came where {len(wanted)} are expected: {self.describe_group(group)}"
            raise InvalidArgumentError.of(text)
        for dtype, expected in zip(found, wanted):
            if dtype is not None and dtype != expected:
                what = "a handle, which cannot be sent," if expected is _NO_TYPE else expected
                text = f"A tensor of type {dtype} came where {what} is expected: {self.describe_group(group)}"
                raise InvalidArgumentError.of(text)

    def _study(self, graph: TaskGraph) -> None:
        """Notes the types of the feeds, what the nodes do to shared state, and the label and the sender of each group
        that they receive.
        """
        types = {tensor: graph.nodes[name].attrs["T"] for name, tensor in graph.feeds}
        self.feed_types = list(types.values())
        self.feed_arrays = [dtype.numpy for dtype in self.feed_types]
        nodes = list(graph.nodes.values())
        self.effects, self.is_training = effects_of(nodes), is_training(nodes)
        tensors: dict[int, list[str]] = {}
        values: dict[int, list[tuple[str, str, DType]]] = {}
        for name, receive in graph.receives.items():
            if receive.group != INNER:
                group, dtype = receive.group, graph.nodes[name].attrs["tensor_type"].base_dtype
                tensors.setdefault(group, []).append(receive.tensor.split("_", 2)[-1])
                values.setdefault(group, []).append((receive.tensor, name, dtype))
                self.senders[group], self.incarnations[group] = receive.peer.task, receive.peer.incarnation
        self.sent_types = {
            group: [_sent_type(dtype) for _, _, dtype in sorted(found, key=_NAMES)] for group, found in values.items()
        }
        for group, found in tensors.items():
            shown = ", ".join(found[:4]) + ("…" if len(found) > 4 else "")
            self.labels[group] = f"{shown} from {self.senders[group]}"


def _sent_type(dtype: DType) -> Any:
    return _NO_TYPE if dtype in (resource, variant) else dtype.numpy
