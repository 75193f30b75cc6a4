"""`RegisteredGraph`: the compiled partition of one task, registered to be run."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfmini.devices import task_of_device
from tfmini.dtypes import DType, resource, variant
from tfmini.errors import InvalidArgumentError
from tfmini.graph.node import Node
from tfmini.graph.registry import INTO_FROM
from tfmini.ops.array.kernel_arguments import holds
from tfmini.runtime.compiler.program import Program
from tfmini.runtime.executor.effects import Effect, effects_of, is_training
from tfmini.runtime.executor.function_run import FunctionRun
from tfmini.runtime.executor.outcome import Outcome
from tfmini.runtime.executor.partition_run import PartitionRun
from tfmini.runtime.resources import Resources

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
      feed_types: slot of a fed value -> its type, where it is known; ``feed_arrays``: of each fed value, that of its
        array, or something that no array has.
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
    feed_types: dict[int, DType] = field(default_factory=dict)
    sent_types: dict[int, list[Any]] = field(default_factory=dict)
    feed_arrays: list[Any] = field(default_factory=list)
    effects: tuple[Effect, ...] = ()
    is_training: bool = False
    executed: int = 0
    complete: Outcome = field(init=False)
    waits_for: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        segments = self.program.segments
        self.waits_for = frozenset(node.op for node in self.program.waits.values())
        self.complete = Outcome(frozenset(name for each in segments for name in each.updates + each.taken))

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

    def comes_from(self, group: int, task: str, peer: Any) -> bool:
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
        slots = self.program.feeds
        if len(values) != len(slots):
            raise InvalidArgumentError.of(f"The step has {len(slots)} feeds, but {len(values)} values came")
        for slot, value in zip(slots, values):
            wanted = self.feed_types.get(slot)
            if wanted is not None and not holds(wanted, value):
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

    def study(self, nodes: Sequence[Node], feeds: Sequence[str]) -> None:
        """Notes the types of the feeds, what the nodes do to shared state, and the label and the sender of each group
        that they receive.
        """
        types = {node.attrs["tensor_name"].decode(): node.attrs["tensor_type"] for node in nodes if node.op == "_Recv"}
        self.feed_types = {slot: types[name] for name, slot in zip(feeds, self.program.feeds) if name in types}
        self.feed_arrays = [known.numpy if (known := self.feed_types.get(s)) else _NO_TYPE for s in self.program.feeds]
        self.effects, self.is_training = effects_of(nodes), is_training(nodes)
        names: dict[int, list[str]] = {}
        received: dict[int, list[tuple[bytes, str, DType]]] = {}
        for node in nodes:
            if node.op == "_Recv" and "_group" in node.attrs:
                group = node.attrs["_group"]
                names.setdefault(group, []).append(node.attrs["tensor_name"].decode().split("_", 2)[-1])
                self.incarnations[group] = node.attrs.get("send_device_incarnation", 0)
                self.senders[group] = task_of_device(node.attrs["send_device"].decode())
                receiver = task_of_device(node.attrs["recv_device"].decode())
                if receiver != self.senders[group] and not node.attrs.get("client_terminated"):
                    entry = (node.attrs["tensor_name"], node.name, node.attrs["tensor_type"].base_dtype)
                    received.setdefault(group, []).append(entry)
        self.sent_types = {
            group: [_NO_TYPE if dtype in (resource, variant) else dtype.numpy for _, _, dtype in sorted(found, key=_NAMES)]
            for group, found in received.items()
        }
        for group, found in names.items():
            shown = ", ".join(found[:4]) + ("…" if len(found) > 4 else "")
            self.labels[group] = f"{shown} from {self.senders[group]}"
