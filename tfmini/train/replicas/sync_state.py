"""The state of a synchronous run on the parameter servers beside its variables: accumulated gradients and tokens.

Its ops are in a graph of their own, since the graphs of users have only TensorFlow's ops.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfmini import dtypes, protos
from tfmini.graph.graph import Graph
from tfmini.graph.importing import import_graph_def
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import device, name_scope
from tfmini.ops.array.filling import fill
from tfmini.ops.array.identity import placeholder
from tfmini.ops.control import group
from tfmini.ops.queues import accumulators as accumulator_ops
from tfmini.ops.queues import queue_ops
from tfmini.ops.queues.queues import QueueBase
from tfmini.ops.variables.base import Variable
from tfmini.protos import ConfigProto
from tfmini.runtime.client.session import BaseSession, Session
from tfmini.train.sessions.readiness import limited
from tfmini.train.sessions.wrapped_session import RUN_HAS_ENDED, cause_of

_FAIL_S = 5.0  # of a message to the task with the tokens
_log = logging.getLogger("tensorflow")


class SyncState:
    """The accumulators and the token queue of a `SyncReplicasOptimizer`; a `RunState`.

    Args:
      accumulators: the handles of the accumulators.
      tokens: the handle of the token queue.
      global_step: the variable that counts updates.
      worker: the device of this worker, "" if the graph does not say it.
      spare: how many workers may fail before an update lacks gradients.
      is_elastic: whether updates need fewer gradients when a worker has left.

    Attributes:
      has_hook: whether `SyncReplicasHook` makes a worker wait for the next run.
      leave: gives back what this worker has, in a session, when it goes before its end. The hook sets it.
    """

    def __init__(
        self, accumulators: Sequence[Tensor], tokens: Tensor, global_step: Variable | Tensor, worker: str = "",
        spare: int = 0, is_elastic: bool = False,
    ) -> None:  # fmt: skip
        self._accumulators = list(accumulators)
        self._tokens = tokens
        self._global_step = global_step
        self._worker = worker
        self._spare = spare
        self._is_elastic = is_elastic
        self.has_hook = False
        self.leave: Callable[[Any], None] = lambda session: None

    def is_whole(self, session: BaseSession, config: ConfigProto) -> bool:
        """Whether every update was made either for all variables or for none."""
        steps = self._run(_target(session), config, lambda: [_step(copy) for copy in self._copies()])
        now = int(session.run(self._global_step))
        is_whole = not steps or min(steps) == max(steps) <= now
        if not is_whole:
            places = [handle.op.device or handle.op.name for handle in self._accumulators]
            ahead, behind = ({p for p, s in zip(places, steps) if (s > now) == is_ahead} for is_ahead in (True, False))
            _log.warning(
                "The last chief ended in the middle of update %d: variables of %s may have it, those of %s do not.",
                now, ", ".join(sorted(ahead)) or "some tasks", ", ".join(sorted(behind)) or "other tasks",
            )  # fmt: skip
        return is_whole

    def renew(self, session: BaseSession, config: ConfigProto) -> None:
        """Drops the gradients and tokens of the model's former values, and refuses those that are still sent."""
        step = int(session.run(self._global_step))
        self._run(_target(session), config, lambda: self._renewal(step))

    def has_ended(self, session: BaseSession, config: ConfigProto) -> bool:
        """Whether the last chief has closed the token queue."""
        if self.has_hook:
            return False
        self.has_come_back(_target(session), config)
        return bool(self._run(_target(session), config, lambda: queue_ops.is_closed(_copy(self._tokens))))

    def begin(self, session: BaseSession) -> None:
        """The chief begins to make updates: who waits for tokens is told its name."""
        master = _target(session)
        if master:
            chief, config = self._name(master), limited(session._config, _FAIL_S)
            self._run(
                master, config, lambda: queue_ops.queue_begin_run(_copy(self._tokens), chief=chief, name="begin_run")
            )

    def wake(self, session: BaseSession) -> None:
        """Ends all waits for tokens with AbortedError, because the chief's thread has lost a task or its connection."""
        config = limited(session._config, _FAIL_S)
        self._run(_target(session), config, lambda: queue_ops.queue_renew(_copy(self._tokens), name="renew"))

    def end(self, master: str, config: ConfigProto) -> None:
        """Closes the token queue: a worker that waits for a token gets OutOfRangeError, the end of the input."""
        reason = self._end_reason(master)
        self._run(master, config, lambda: queue_ops.queue_end_run(_copy(self._tokens), reason=reason, name="end_run"))

    def end_in(self, session: BaseSession) -> None:
        """`end`, in a session that is open."""
        reason = self._end_reason(_target(session))
        tokens = self._tokens
        session.run(added_later(tokens, lambda: queue_ops.queue_end_run(tokens, reason=reason, name="end_run")))

    def _end_reason(self, master: str) -> str:
        return f"{RUN_HAS_ENDED}: its chief, {self._name(master)}, has finished."

    def fail(self, master: str, config: ConfigProto, is_chief: bool, error: BaseException) -> None:
        """Ends the run of all workers with UnknownError, unless it can do without this one."""
        if self._is_elastic and self.has_hook and not is_chief:  # it leaves
            return
        spare = 0 if is_chief else self._spare
        self._fail(master, config, f"{self._name(master)} has failed: {cause_of(error)}", spare)

    def fail_update(self, session: BaseSession, error: BaseException) -> None:
        """The same, because the chief's thread in this session can make no more updates."""
        master = _target(session)
        reason = f"the thread of the chief, {self._name(master)}, that makes the updates, has failed: {cause_of(error)}"
        if master:
            self._fail(master, limited(session._config, _FAIL_S), reason, 0)
        else:  # its resources are those of the session
            session.run(added_later(self._tokens, lambda: self._failing(self._tokens, "", reason, 0)))

    def has_come_back(self, master: str, config: ConfigProto) -> None:
        """A worker that had failed is there again."""
        if self._spare:
            self._fail(master, limited(config, _FAIL_S), "", self._spare)

    def _fail(self, master: str, config: ConfigProto, reason: str, spare: int) -> None:
        self._run(master, config, lambda: self._failing(_copy(self._tokens), self._name(master), reason, spare))

    @staticmethod
    def _failing(tokens: Tensor, worker: str, reason: str, spare: int) -> Operation:
        done: Operation = queue_ops.queue_fail_run(tokens, worker=worker, reason=reason, spare=spare, name="fail_run")
        return done

    def _name(self, master: str) -> str:
        return self._worker or f"the worker at {master}"

    def _renewal(self, step: int) -> Any:
        accumulators = [_renewed(copy, step) for copy in self._copies()]
        return group(*accumulators, queue_ops.queue_renew(_copy(self._tokens), name="renew"))

    def _copies(self) -> list[Tensor]:
        return [_copy(handle) for handle in self._accumulators]

    @staticmethod
    def _run(master: str, config: ConfigProto, build: Callable[[], Any]) -> Any:
        with Graph().as_default() as graph:
            wanted = build()
        with Session(master, graph=graph, config=config) as session:
            return session.run(wanted)


def added_later(handle: Tensor, build: Callable[[], Operation]) -> Operation:
    """Adds an op on the device of a handle when it is needed, so that graphs exported to TensorFlow do not have it."""
    graph = handle.graph
    finalized = graph.finalized
    graph._unsafe_unfinalize()
    try:
        with graph.as_default(), device(handle.device):
            return build()
    finally:
        if finalized:
            graph.finalize()


def _target(session: BaseSession) -> str:
    return session.sess_str.decode()


def _copy(handle: Tensor) -> Tensor:
    """The handle of the same shared object, in the default graph."""
    node = handle.op.node_def
    node.attr.pop("_class", None)
    del node.input[:]  # handles wait for what the optimizer was told to wait for, such as averages of batches
    (copied,) = import_graph_def(protos.GraphDef(node=[node]), return_elements=[handle.name]) or []
    return copied  # type: ignore[no-any-return]


def _is_resource(handle: Tensor) -> bool:
    return handle.dtype.base_dtype is dtypes.resource


def _renewed(handle: Tensor, step: int) -> Any:
    renew: Any = accumulator_ops.renew if _is_resource(handle) else accumulator_ops.renew_v1
    return renew(handle, step, name="renew")


def _step(handle: Tensor) -> Tensor:
    read: Any = accumulator_ops.step_of if _is_resource(handle) else accumulator_ops.step_of_v1
    return read(handle, name="step")  # type: ignore[no-any-return]


# ---- The ledger of synchronous training: per step, the workers whose gradients were applied or dropped -------------


@dataclass(frozen=True)
class SyncStep:
    """The numbers of gradients of one global step; a worker sends one gradient per variable.

    Attributes:
      step: the global step before the update.
      applied: contributor -> number of its gradients in the update.
      stale: contributor -> number of its gradients that were dropped during this step because they were late.
      waiting: contributor -> number of its gradients that were accepted for an update that has not happened yet.
    """

    step: int
    applied: Mapping[str, int]
    stale: Mapping[str, int]
    waiting: Mapping[str, int]


@dataclass(frozen=True)
class SyncLedger:
    """The state of all gradients that have arrived at the parameter servers.

    A computed gradient that is neither applied nor stale was lost: it waits in an accumulator for an update
    that will not happen, or it did not arrive because its worker or the run ended. So
    ``produced = applied + stale + lost``, where ``produced`` is the number of gradients that workers computed.

    Attributes:
      steps: summed over the variables, oldest first; in very long runs the oldest steps are discarded.
      by_variable: variable's op name -> steps of this variable.
      applied, stale, waiting: totals, including the discarded steps.
    """

    steps: tuple[SyncStep, ...]
    by_variable: Mapping[str, tuple[SyncStep, ...]]
    applied: int
    stale: int
    waiting: int

    @property
    def arrived(self) -> int:
        """The number of gradients that have arrived at their accumulators."""
        return self.applied + self.stale + self.waiting

    def contributors(self, step: int) -> dict[str, int]:
        """Contributor -> number of its gradients in the update of a global step."""
        return dict(next((s.applied for s in self.steps if s.step == step), {}))

    def dropped(self) -> dict[str, int]:
        """Contributor -> number of its gradients that were dropped as stale, over all steps."""
        return dict(sum((Counter(s.stale) for s in self.steps), Counter()))

    @staticmethod
    def from_json(found: Mapping[str, bytes]) -> SyncLedger:
        """Builds the ledger from the accumulators' JSON texts: variable's op name -> text."""
        plain = {name: json.loads(text) for name, text in found.items()}
        by_variable = {name: _steps([ledger]) for name, ledger in plain.items()}
        forgotten: Counter[str] = sum((Counter(ledger["forgotten"]) for ledger in plain.values()), Counter())
        steps = _steps(plain.values())

        def total(kind: str) -> int:
            return forgotten[kind] + sum(sum(getattr(s, kind).values()) for s in steps)

        return SyncLedger(steps, by_variable, total("applied"), total("stale"), total("waiting"))

    def __str__(self) -> str:
        lines = [f"{'step':>8}  applied / stale / waiting"]
        lines += [
            f"{s.step:>8}  {_names(s.applied)}"
            + (f" / stale: {_names(s.stale)}" if s.stale else "")
            + (f" / waiting: {_names(s.waiting)}" if s.waiting else "")
            for s in self.steps
        ]
        lines.append(f"   total  {self.applied} applied, {self.stale} stale, {self.waiting} waiting")
        return "\n".join(lines)


@dataclass
class _Sums:
    applied: Counter[str] = field(default_factory=Counter)
    stale: Counter[str] = field(default_factory=Counter)
    waiting: Counter[str] = field(default_factory=Counter)


def _steps(ledgers: Iterable[Any]) -> tuple[SyncStep, ...]:
    sums: dict[int, _Sums] = {}
    for ledger in ledgers:
        for entry in ledger["entries"]:
            found = sums.setdefault(entry["step"], _Sums())
            (found.applied if entry["taken"] else found.waiting).update(entry["accepted"])
            found.stale.update(entry["stale"])
    return tuple(SyncStep(step, dict(s.applied), dict(s.stale), dict(s.waiting)) for step, s in sorted(sums.items()))


def _names(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{who or 'unnamed'} {n}" for who, n in sorted(counts.items())) or "-"


def ledger_ops(accumulators: Sequence[tuple[str, Any, str]]) -> dict[str, Any]:
    """Variable's op name -> op that reads its ledger; added at the first call, even to a finalized graph.

    Args:
      accumulators: triples (name of the variable's op, accumulator, device).
    """
    graph = accumulators[0][1].accumulator_ref.graph
    finalized = graph.finalized
    graph._unsafe_unfinalize()
    try:
        return {name: _ledger_op(graph, accumulator, place) for name, accumulator, place in accumulators}
    finally:
        if finalized:
            graph.finalize()


def _ledger_op(graph: Graph, accumulator: Any, place: str) -> Any:
    made = getattr(accumulator, "_ledger_op", None)
    if made is None:
        with graph.as_default(), device(place):
            is_resource = accumulator.accumulator_ref.dtype.base_dtype.name == "resource"
            read = accumulator_ops.ledger if is_resource else accumulator_ops.ledger_v1
            made = accumulator._ledger_op = read(accumulator.accumulator_ref, name="ledger")
    return made


# ---- sync numbers ----------------------------------------
# How many gradients an update of a synchronous run has, where the chief may change it between two updates.
# The chief's thread feeds both numbers, gradients and tokens per update, to every update. So they change between two.
# Three rules keep the run from standing still, whatever workers come, leave or die meanwhile:
#
# - An update is never given fewer tokens than the next one needs gradients. Where the number grows, the thread adds the
#   difference before the next update.
# - Where it shrinks, the update under way still needs the old number, and the workers that are gone have taken tokens
#   with them. So the difference is added at once, with the present step: the others make up for the last time.
# - A token too many costs a gradient that is dropped as stale, and nothing else.


@dataclass(frozen=True)
class Numbers:
    """Gradients in the mean of an update, and workers; see `SyncReplicasOptimizer`."""

    aggregate: int
    total: int

    @property
    def tokens(self) -> int:
        """Tokens that an update puts into the queue."""
        return max(self.aggregate, self.total)

    def scaled(self, total: int) -> Numbers:
        """The same proportion for another number of workers."""
        return Numbers(max(1, round(self.aggregate * total / self.total)), total)


class ChangingNumbers:
    """The numbers of an elastic run. The ops are added by the constructor and `add_ops`, in the present device scope.

    Attributes:
      aggregate, tokens: what an update takes, int32 scalars that the chief feeds.
      first: the numbers of the script.
    """

    def __init__(self, first: Numbers) -> None:
        with name_scope("elastic"):
            self.aggregate = placeholder(dtypes.int32, [], name="replicas_to_aggregate")
            self.tokens = placeholder(dtypes.int32, [], name="tokens")
            self._more = placeholder(dtypes.int32, [], name="more_tokens")
        self.first = first
        self._wanted = self._present = first
        self._lock = threading.Lock()
        self._add: Any = None

    def add_ops(self, queue: QueueBase, global_step: Variable | Tensor) -> None:
        """Adds the op that puts further tokens of the present step into the token queue."""
        with name_scope("elastic"):
            self._add = queue.enqueue_many((fill([self._more], global_step),), name="add_tokens")

    @property
    def wanted(self) -> Numbers:
        """The numbers of the next update."""
        return self._wanted

    def change(self, session: BaseSession, numbers: Numbers) -> None:
        """Changes the numbers from the next update on. Call it in the chief's process; ``session`` is a plain one."""
        with self._lock:
            before, self._wanted = self._wanted, numbers
        # After the assignment: if the thread has begun an update with the old number, the step is read behind that.
        self._add_tokens(session, before.tokens - numbers.tokens)

    def go_on(self, session: BaseSession) -> None:
        """A chief that goes on with a run does not know how many tokens its predecessor has left to the workers."""
        self._add_tokens(session, self._wanted.tokens)

    def updates(self, session: BaseSession, sync_op: object) -> Callable[[], None]:
        """A function that makes one update; only the chief's thread calls it."""
        make = session.make_callable(sync_op, [self.aggregate, self.tokens])

        def update() -> None:
            with self._lock:
                before, self._present = self._present, self._wanted
            self._add_tokens(session, self._present.tokens - before.tokens)
            make(self._present.aggregate, self._present.tokens)

        return update

    def _add_tokens(self, session: BaseSession, count: int) -> None:
        if count > 0:
            session.run(self._add, {self._more: count})
