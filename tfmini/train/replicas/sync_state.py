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
from tfmini.graph.operation import Tensor
from tfmini.ops.control import group
from tfmini.ops.queues import accumulator_ops, queue_ops
from tfmini.runtime.client.session import Session

_log = logging.getLogger("tensorflow")


class SyncState:
    """The accumulators and the token queue of a `SyncReplicasOptimizer`; a `RunState`.

    Args:
      accumulators: the handles of the accumulators.
      tokens: the handle of the token queue.
      global_step: the variable that counts updates.

    Attributes:
      has_hook: whether `SyncReplicasHook` makes a worker wait for the next run.
    """

    def __init__(self, accumulators: Sequence[Tensor], tokens: Tensor, global_step: Any) -> None:
        self._accumulators = list(accumulators)
        self._tokens = tokens
        self._global_step = global_step
        self.has_hook = False

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
        return bool(self._run(_target(session), config, lambda: queue_ops.is_closed(_copy(self._tokens))))

    def end(self, master: str, config: Any) -> None:
        """Closes the token queue: a worker that waits for a token gets OutOfRangeError, the end of the input."""
        self._run(master, config, lambda: queue_ops.close(_copy(self._tokens)))

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
