"""The state of a synchronous run on the parameter servers beside its variables: accumulated gradients and tokens.

Its ops are in a graph of their own, since the graphs of users have only TensorFlow's ops.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from tfmini import dtypes, protos
from tfmini.graph.graph import Graph
from tfmini.graph.importing import import_graph_def
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import device
from tfmini.ops.control import group
from tfmini.ops.queues import accumulator_ops, queue_ops
from tfmini.runtime.client.session import Session
from tfmini.train.sessions.model_record import limited
from tfmini.train.sessions.run_state import RUN_HAS_ENDED, cause_of

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
        self, accumulators: Sequence[Tensor], tokens: Tensor, global_step: Any, worker: str = "", spare: int = 0,
        is_elastic: bool = False,
    ) -> None:  # fmt: skip
        self._accumulators = list(accumulators)
        self._tokens = tokens
        self._global_step = global_step
        self._worker = worker
        self._spare = spare
        self._is_elastic = is_elastic
        self.has_hook = False
        self.leave: Callable[[Any], None] = lambda session: None

    def is_whole(self, session: Any, config: Any) -> bool:
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

    def renew(self, session: Any, config: Any) -> None:
        """Drops the gradients and tokens of the model's former values, and refuses those that are still sent."""
        step = int(session.run(self._global_step))
        self._run(_target(session), config, lambda: self._renewal(step))

    def has_ended(self, session: Any, config: Any) -> bool:
        """Whether the last chief has closed the token queue."""
        if self.has_hook:
            return False
        self.has_come_back(_target(session), config)
        return bool(self._run(_target(session), config, lambda: queue_ops.is_closed(_copy(self._tokens))))

    def begin(self, session: Any) -> None:
        """The chief begins to make updates: who waits for tokens is told its name."""
        master = _target(session)
        if master:
            chief, config = self._name(master), limited(session._config, _FAIL_S)
            self._run(
                master, config, lambda: queue_ops.queue_begin_run(_copy(self._tokens), chief=chief, name="begin_run")
            )

    def wake(self, session: Any) -> None:
        """Ends all waits for tokens with AbortedError, because the chief's thread has lost a task or its connection."""
        config = limited(session._config, _FAIL_S)
        self._run(_target(session), config, lambda: queue_ops.queue_renew(_copy(self._tokens), name="renew"))

    def end(self, master: str, config: Any) -> None:
        """Closes the token queue: a worker that waits for a token gets OutOfRangeError, the end of the input."""
        reason = self._end_reason(master)
        self._run(master, config, lambda: queue_ops.queue_end_run(_copy(self._tokens), reason=reason, name="end_run"))

    def end_in(self, session: Any) -> None:
        """`end`, in a session that is open."""
        reason = self._end_reason(_target(session))
        tokens = self._tokens
        session.run(added_later(tokens, lambda: queue_ops.queue_end_run(tokens, reason=reason, name="end_run")))

    def _end_reason(self, master: str) -> str:
        return f"{RUN_HAS_ENDED}: its chief, {self._name(master)}, has finished."

    def fail(self, master: str, config: Any, is_chief: bool, error: BaseException) -> None:
        """Ends the run of all workers with UnknownError, unless it can do without this one."""
        if self._is_elastic and self.has_hook and not is_chief:  # it leaves
            return
        spare = 0 if is_chief else self._spare
        self._fail(master, config, f"{self._name(master)} has failed: {cause_of(error)}", spare)

    def fail_update(self, session: Any, error: BaseException) -> None:
        """The same, because the chief's thread in this session can make no more updates."""
        master = _target(session)
        reason = f"the thread of the chief, {self._name(master)}, that makes the updates, has failed: {cause_of(error)}"
        if master:
            self._fail(master, limited(session._config, _FAIL_S), reason, 0)
        else:  # its resources are those of the session
            session.run(added_later(self._tokens, lambda: self._failing(self._tokens, "", reason, 0)))

    def has_come_back(self, master: str, config: Any) -> None:
        """A worker that had failed is there again."""
        if self._spare:
            self._fail(master, limited(config, _FAIL_S), "", self._spare)

    def _fail(self, master: str, config: Any, reason: str, spare: int) -> None:
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
    def _run(master: str, config: Any, build: Callable[[], Any]) -> Any:
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


def _target(session: Any) -> str:
    return session.sess_str.decode()  # type: ignore[no-any-return]


def _copy(handle: Tensor) -> Tensor:
    """The handle of the same shared object, in the default graph."""
    node = handle.op.node_def
    node.attr.pop("_class", None)
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
