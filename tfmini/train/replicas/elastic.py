"""Elastic all-reduce: training goes on with fewer workers when some are lost, and with more when they come (back).

The semantics are those of elastic Horovod: commit, restore, synchronise. Every worker keeps a copy of its variables
after each so many steps (it *commits*). When a worker is lost, the steps of the others fail. Each makes a
new session, goes back to what it has committed, and joins the group again. The group is complete when all workers
are there, or when its leader has waited a few seconds for those that are missing. Then all take over the variables
of the worker with the latest commit, and go on from there. A worker that comes while the others train waits until the
leader has committed; then the leader ends the group, and it forms anew in the same way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmini import dtypes, errors
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import device, name_scope
from tfmini.ops import control
from tfmini.ops.array.filling import zeros_like
from tfmini.ops.array.identity import placeholder
from tfmini.ops.array.shape import reshape
from tfmini.ops.math.comparison import where_v2
from tfmini.ops.variables.assignment import assign
from tfmini.ops.variables.functions import global_variables
from tfmini.runtime import targets
from tfmini.runtime.collectives.executor import end_group, newcomers
from tfmini.train.global_steps import get_global_step
from tfmini.train.hooks.session_run_hook import SessionRunHook

if TYPE_CHECKING:
    from tfmini.train.replicas.ranks import Ranks

_log = logging.getLogger("tensorflow")
_RANKS = 1 << 20
OnChange = Callable[[Any, tuple[int, ...]], Any]


class ElasticHook(SessionRunHook):
    """Commits, restores and synchronises the variables of one worker; see the module.

    Args:
      ranks: an elastic group.
      commit_every_steps: runs of the session between two commits. So many steps at most are repeated after a loss.
      on_change: called as ``on_change(session, members)`` whenever the group has formed, before the next step; it may
        change the learning rate, say.

    Attributes:
      members: the ranks in the group, ascending; () before it has formed.
    """

    def __init__(self, ranks: Ranks, commit_every_steps: int = 10, on_change: OnChange | None = None) -> None:
        if commit_every_steps < 1:
            raise ValueError(f"commit_every_steps must be at least 1, got {commit_every_steps}.")
        self._ranks, self._every, self._on_change = ranks, commit_every_steps, on_change
        self.members: tuple[int, ...] = ()
        self._graph: Any = None
        self._committed: list[Any] = []
        self._committed_step = -1
        self._since = 0
        self._collectives: Any = None
        self._variables: list[Any] = []

    def begin(self) -> None:
        """Adds the ops that the hook runs.

        Raises:
          ValueError: there is no global step, which tells the latest commit, or a variable has no known shape.
        """
        if self._graph is get_default_graph():
            return
        self._graph = get_default_graph()
        step = get_global_step()
        self._variables = [variable for variable in global_variables() if "/job:ps" not in variable.device]
        names = [variable.op.name for variable in self._variables]
        if step is None or step.op.name not in names:
            raise ValueError("Elastic training needs a global step on each worker; see tf.train.create_global_step.")
        self._step_at = names.index(step.op.name)
        with name_scope("elastic"), device(self._ranks.device):
            self._key = placeholder(dtypes.int64, [])
            self._keys = self._ranks.all_gather(reshape(self._key, [1]), "elastic group", begins=True)
            self._is_source = placeholder(dtypes.bool, [])
            self._sync = control.group(*(self._synchronise(variable) for variable in self._variables))
            self._new = [placeholder(variable.dtype.base_dtype, variable.shape) for variable in self._variables]
            self._load = control.group(*(assign(var, new).op for var, new in zip(self._variables, self._new)))

    def _synchronise(self, variable: Any) -> Operation:
        """Assigns the value of the source: the sum of its value and of zeros. (A broadcast has a fixed source.)"""
        value: Tensor = variable.value()
        if not value.shape.is_fully_defined():
            raise ValueError(f"Elastic training needs variables of known shape; {variable.name} has {value.shape}.")
        own = where_v2(self._is_source, value, zeros_like(value))
        merge = "Max" if value.dtype.base_dtype == dtypes.bool else "Add"
        taken_over: Operation = assign(variable, self._ranks.all_reduce(own, f"{variable.op.name}/elastic", merge)).op
        return taken_over

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Goes back to the last commit, joins the group, and takes over the variables of the latest commit in it.

        Raises:
          FailedPreconditionError: the session's server is in another process.
        """
        self._collectives = _collectives_of(session)
        rank = self._ranks.rank
        end_group(self._collectives, self._ranks.group_key, f"rank {rank} has begun a new session")
        if self._committed:
            session.run(self._load, dict(zip(self._new, self._committed)))
        key = (self._committed_step + 1) * _RANKS + _RANKS - 1 - rank
        keys = session.run(self._keys, {self._key: key})
        session.run(self._sync, {self._is_source: key == max(keys)})
        self.members = tuple(sorted(int(_RANKS - 1 - other % _RANKS) for other in keys))
        self._commit(session)
        _log.info("Rank %d: %d ranks train from step %d on: %s", rank, len(keys), self._committed_step, self.members)
        if self._on_change is not None:
            self._on_change(session, self.members)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Commits after so many steps. The leader then lets those join that wait."""
        self._since += 1
        if self._since < self._every:
            return
        self._commit(run_context.session)
        waiting = newcomers(self._collectives, self._ranks.group_key)
        if waiting:
            end_group(self._collectives, self._ranks.group_key, f"{', '.join(waiting)} joins")

    def _commit(self, session: Any) -> None:
        values = session.run([variable.value() for variable in self._variables])
        self._committed = [np.array(value) for value in values]
        self._committed_step = int(self._committed[self._step_at])
        self._since = 0


def _collectives_of(session: Any) -> Any:
    """The collectives of the task that is the session's target."""
    target = session.sess_str
    target = (target.decode() if isinstance(target, bytes) else target) or targets.default_target()
    server = targets.server_at(targets.address_of_target(target)) if target else None
    if server is None:
        raise errors.FailedPreconditionError.of(
            "Elastic training needs a tf.train.Server in this process, and its target for the session."
        )
    return server.worker.collectives
