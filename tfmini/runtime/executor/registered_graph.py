"""`RegisteredGraph`: the compiled partition of one task, registered to be run."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmini.dtypes import DType, resource, variant
from tfmini.errors import InvalidArgumentError
from tfmini.graph.op_types import INTO_FROM
from tfmini.ops.array.kernel_arguments import holds
from tfmini.placement.task_graph import INNER, TaskGraph
from tfmini.runtime.compiler.program import Program
from tfmini.runtime.executor.effects import Effect, effects_of, is_training
from tfmini.runtime.executor.partition_run import FunctionRun, PartitionRun, StepOutcome
from tfmini.runtime.resources import Resources

if TYPE_CHECKING:
    from tfmini.rpc.peer import Peer

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
