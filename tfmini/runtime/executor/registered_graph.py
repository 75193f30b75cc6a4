"""`RegisteredGraph`: the compiled partition of one task, registered to be run."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmini import errors
from tfmini.dtypes import DType, resource, variant
from tfmini.errors import InvalidArgumentError
from tfmini.graph.node import Node
from tfmini.graph.op_types import INTO_FROM, ops_with
from tfmini.locks import lock
from tfmini.ops.array.kernel_arguments import holds
from tfmini.placement.task_graph import INNER, TaskGraph
from tfmini.runtime.compiler.kernels import kernel_error, node_error
from tfmini.runtime.compiler.levels import Level, Program
from tfmini.runtime.executor.partition_run import FunctionRun, PartitionRun, Path, RunOwner, StepOutcome
from tfmini.runtime.resources import Resources

if TYPE_CHECKING:
    from tfmini.rpc.peer import Peer


# ---- effects ----------------------------------------
# What a partition does to the queues and gradient accumulators of its task: which step can end whose wait.

PUT, TAKE = "put", "take"
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
    found = [(node, action) for node in nodes for ops, action in _ACTIONS if node.op in ops and node.inputs]
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
    return any(node.op in _TRAINS for node in nodes)


# ---- registered graph ------------------------------------------------------------

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
      labels: group -> its tensors and their sender, for people.
      senders: group -> the task that sends it, by its name in the session's cluster; ``incarnations``: group -> its
        incarnation, 0 if the master did not know it.
      feed_types: of each fed value, its type; ``feed_arrays``: that of its array.
      sent_types: group -> numpy's types of its values; `_NO_TYPE` for what cannot be sent.
      effects: what it does to queues and accumulators; ``is_training``: whether it updates variables.
      executed: how often a client's thread has run it (`Worker.execute`).
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
    peers: dict[str, Any] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=dict)
    senders: dict[int, str] = field(default_factory=dict)
    incarnations: dict[int, int] = field(default_factory=dict)
    feed_types: list[DType] = field(default_factory=list)
    sent_types: dict[int, list[Any]] = field(default_factory=dict)
    feed_arrays: list[np.dtype[Any]] = field(default_factory=list)
    effects: tuple[Effect, ...] = ()
    is_training: bool = False
    executed: int = 0
    complete: StepOutcome = field(init=False)
    waits_for: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        segments = self.program.segments
        self.waits_for = frozenset(node.op for node in self.program.waits.values())
        self.complete = StepOutcome(frozenset(name for each in segments for name in each.updates + each.taken))

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

    def study(self, graph: TaskGraph) -> None:
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


# ---- Runs that wait for answers of their own nodes: the state that `BlockingRun` and `DataflowRun` share -----------


class WaitingRun(PartitionRun):
    """A run with pending waits.

    Attributes:
      lock: guards the waits and all counters.
      waits: the pending waits that can be cancelled.
      answered: the nodes (by their events) outside loops that have answered.
      started_at: on the clock of its worker.
    """

    __slots__ = ("lock", "waits", "answered", "started_at")

    def __init__(
        self,
        owner: RunOwner,
        graph: RegisteredGraph,
        step_id: int,
        feeds: Sequence[Any],
        timeout_s: float | None = None,
    ) -> None:
        super().__init__(owner, graph, step_id, feeds, timeout_s)
        self.lock = lock("run")
        self.waits: dict[NodeWait, None] = {}
        self.answered: set[int] = set()
        self.started_at = owner.now()

    @property
    def run(self) -> WaitingRun:
        return self

    @property
    def is_patient(self) -> bool:
        """Whether a thread does nothing but wait for the only answer that the program needs."""
        return False

    def wake(self) -> None:
        """Makes a thread that waits for the run look at it again."""

    def missing_groups(self) -> list[int]:
        """The groups that other tasks still have to send."""
        return []

    def awaited(self) -> str:
        groups = sorted(self.missing_groups())
        return " and ".join([*map(self.graph.describe_group, groups), *(wait.cause for wait in list(self.waits))])

    @property
    def waits_here(self) -> bool:
        return bool(self.waits)

    def is_computing(self) -> bool:
        """Whether a segment runs or is about to. The caller holds the lock."""
        return True

    def is_stuck_in(self, ops: Set[str]) -> bool:
        with self.lock:
            if self.is_computing() or self.missing_groups():
                return False
            return bool(self.waits) and all(wait.node.op in ops for wait in self.waits)

    def describe_wait(self) -> str:
        awaited, seconds = self.awaited(), self.owner.now() - self.started_at
        return awaited and f"step {self.step_id} on {self.owner.task} waits for {awaited} for {seconds:.1f} s"

    def end_stopped(self, doing: str = "computes") -> None:
        """Ends the run for the reason for which it must end; see `raise_stopped`."""
        try:
            self.raise_stopped(doing)
        except errors.OpError as error:
            self.abort(error)

    def release(self) -> None:
        with self.lock:
            waits = list(self.waits)
            self.waits.clear()
        for wait in waits:
            wait.cancel()


class RunContext:
    """The ``step`` of generated code and of kernels: a whole run, or one iteration of a loop.

    Attributes:
      level: the segments that run.
      path: see `partition_run.Path`.
    """

    __slots__ = ()
    level: Level
    path: Path

    @property
    def run(self) -> WaitingRun:
        """The run of the whole partition."""
        raise NotImplementedError

    @property
    def step_id(self) -> int:
        return self.run.step_id

    @property
    def owner(self) -> RunOwner:
        return self.run.owner

    def begin(self, key: int, kernel: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Starts an asynchronous kernel; its answer completes the event ``key``."""
        trace = self.run.trace
        if trace is not None:
            trace.begun(key, self.path)
        wait = NodeWait(self, key)
        try:
            kernel(wait, *arguments)
        except BaseException:  # even Ctrl-C: a kernel that did not start will never answer
            wait.forget()
            raise

    def skip(self, key: int) -> None:
        """Completes an event without values, because the node that would answer is dead."""
        self.complete(key, None)

    def complete(self, key: int, values: Sequence[Any] | None) -> None:
        """An event is complete: a group (0 and up) has arrived or a node (below 0) has answered."""
        raise NotImplementedError


class NodeWait:
    """The pending answer of one node: the runtime's implementation of `graph.op_types.PatientWait`.

    Attributes:
      cause: the event that the node waits for, for people.
      since: when the wait began, on the clock of the worker.
      sleep: a function that waits where the answer comes from, or None.
    """

    __slots__ = ("step", "cause", "since", "sleep", "_run", "_key", "_cancel", "_open")

    def __init__(self, step: RunContext, key: int) -> None:
        self.step = step
        self._run = step.run
        self.cause = ""
        self.since = 0.0
        self.sleep: Callable[[float], bool] | None = None
        self._key = key
        self._cancel: Callable[[], None] | None = None
        self._open = True

    @property
    def is_patient(self) -> bool:
        return self._run.is_patient

    @property
    def node(self) -> Node:
        """The node that waits."""
        return self._run.program.waits[self._key]

    def offer_sleep(self, sleep: Callable[[float], bool]) -> None:
        self.sleep = sleep if self._open else None
        self._run.wake()  # the thread may be driving the reactor by now

    def done(self, result: Any = None) -> bool:
        run = self._run
        is_over = bool(run.stopped)
        if is_over:  # aborted, or its time is up: an element that came now would be lost with the step
            run.end_stopped()
        if not self.forget() or is_over:
            return False
        slots = self.step.level.arrivals[self._key][0]
        try:
            self.step.complete(self._key, () if not slots else result if type(result) in (tuple, list) else (result,))
        except Exception as error:  # noqa: BLE001 - it belongs to this step, not to the step of the caller
            run.abort(kernel_error(error, run.owner.task, run.program.waits[self._key]))
        return True

    def fail(self, error: errors.OpError) -> bool:
        if not self.forget():
            return False
        run = self._run
        run.abort(node_error(error, run.program.waits[self._key], run.owner.task))
        return True

    def on_cancel(self, cause: str, cancel: Callable[[], None]) -> bool:
        run = self._run
        with run.lock:
            if self._open and not run.stopped:
                self.cause = f"{cause} (node {run.program.waits[self._key].name})"
                self._cancel = cancel
                self.since = run.owner.now()
                run.waits[self] = None
                return True
        if run.stopped:  # by a deadline, perhaps, that has let the run go on as long as it waited for nothing
            run.end_stopped()
        return False

    def forget(self) -> bool:
        """Ends the wait; False when it has ended already."""
        run = self._run
        with run.lock:
            was_open, self._open = self._open, False
            if not self.step.path:
                run.answered.add(self._key)
            # Both refer to the wait: the cycle would keep the tensors until a garbage collection.
            self._cancel = self.sleep = None
            run.waits.pop(self, None)
        return was_open

    def cancel(self) -> None:
        """Ends the wait and tells the kernel that no answer is wanted, because the run is over."""
        cancel = self._cancel
        if self.forget() and cancel is not None:
            cancel()
