"""The hook of `SyncReplicasOptimizer`, which starts and ends a synchronous run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tfmini import errors, protos
from tfmini.graph.scoping import device, name_scope
from tfmini.ops.queues import queue_ops
from tfmini.runtime.process import current_process
from tfmini.train.hooks.session_run_hook import SessionRunArgs, SessionRunHook
from tfmini.train.replicas.roster import Follower
from tfmini.train.replicas.sync_state import added_later
from tfmini.train.sessions.readiness import ready

if TYPE_CHECKING:
    from tfmini.train.replicas.sync_replicas import SyncReplicasOptimizer

_log = logging.getLogger("tensorflow")
_REOPEN_WAIT_S = 10.0
_POLL_S = 0.1
_LEAVE_MS = 2000
# Errors at a worker's end that mean that other tasks have ended before.
_OTHERS_ENDED = (errors.CancelledError, errors.OutOfRangeError, errors.AbortedError, errors.UnavailableError)


class SyncReplicasHook(SessionRunHook):
    """Starts and ends a worker's part in a synchronous run; see `SyncReplicasOptimizer.make_session_run_hook`."""

    def __init__(self, optimizer: SyncReplicasOptimizer, is_chief: bool, num_tokens: int) -> None:
        self._optimizer = optimizer
        self._is_chief = is_chief
        self._num_tokens = num_tokens
        self._runner: Any = None
        self._init_tokens: Any = None
        self._follower: Follower | None = None

    def begin(self) -> None:
        """Adds the ops that the hook runs.

        Raises:
          ValueError: when the optimizer's `apply_gradients` was not called before.
        """
        optimizer = self._optimizer
        if optimizer._chief_queue_runner is None:
            raise ValueError("SyncReplicasOptimizer.apply_gradient should be called before using the hook.")
        optimizer._state.has_hook = True
        self._roster = optimizer._roster
        self._ready_op = optimizer.ready_for_local_init_op
        queue = optimizer._sync_token_queue
        if self._is_chief:
            self._local_init = optimizer.chief_init_op
            self._runner = optimizer.get_chief_queue_runner()
            self._init_tokens = optimizer.get_init_tokens_op(self._num_tokens)
        else:
            self._local_init = optimizer.local_step_init_op
        with device(optimizer._global_step.device), name_scope(""):
            self._is_closed = queue.is_closed()
            self._leave_op = queue.enqueue(optimizer._local_step)
        optimizer._state.leave = self._leave

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Sets the local step; on the chief, also enqueues the first tokens and starts the update thread.

        Raises:
          RuntimeError: when global variables are not initialized.
        """
        success, reason = ready(self._ready_op, session, "Model is not ready for SyncReplicasOptimizer local init.")
        if not success:
            raise RuntimeError(
                "Init operations did not make model ready for SyncReplicasOptimizer local_init."
                f" Init op: {self._local_init.name}, error: {reason}"
            )
        session.run(self._local_init)
        if session.run(self._is_closed):
            self._wait_for_reopening(session)
        if self._init_tokens is not None:
            session.run(self._init_tokens)
        numbers = self._optimizer._numbers
        if self._is_chief and numbers is not None and session.run(self._optimizer._global_step) > 0:
            numbers.go_on(session)
        if self._roster is not None:
            session.run(self._roster.enter)
        if self._is_chief and numbers is not None:
            self._follower = Follower(numbers)
        if self._runner is not None:
            self._runner.create_threads(session, coord=coord, daemon=True, start=True)

    def before_run(self, run_context: Any) -> SessionRunArgs | None:
        """On the chief of an elastic run: also counts the workers."""
        return SessionRunArgs(self._roster.count) if self._roster and self._follower else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Lets the number of gradients follow the number of workers."""
        wanted = self._follower.wanted(int(run_values.results)) if self._follower else None
        if wanted is not None:
            self._optimizer.resize(run_context.session, wanted)

    def _wait_for_reopening(self, session: Any) -> None:
        """Handles a queue that the chief of an earlier run closed: the new chief reopens it, workers wait for that."""
        if self._is_chief:
            session.run(self._reopen_op())
            return
        process = current_process()
        deadline = process.now() + _REOPEN_WAIT_S
        while process.now() < deadline:
            process.sleep(_POLL_S)
            if not session.run(self._is_closed):
                return
        _log.warning(
            "The synchronous run that this worker wants to join has ended or failed, and no chief has started another"
            " within %.0f s. The worker's first step says which.", _REOPEN_WAIT_S,
        )  # fmt: skip

    def _reopen_op(self) -> Any:
        """The op is added only when it is needed, so that graphs exported to TensorFlow do not contain it."""
        queue_ref = self._optimizer._sync_token_queue.queue_ref
        return added_later(queue_ref, lambda: queue_ops.queue_reopen(queue_ref, name="reopen"))

    def end(self, session: Any) -> None:
        """Returns the worker's token; the chief instead closes the token queue, which ends the run for all.

        A chief that only leaves, because its process was told to end, returns its token, too: the others wait for it.
        """
        try:
            if self._roster is not None:
                session.run(self._roster.leave)
            if self._is_chief and not current_process().is_leaving:
                self._optimizer._state.end_in(session)
            else:
                session.run(self._leave_op)
        except _OTHERS_ENDED as error:
            _log.debug("The synchronous run has ended on other tasks: %s", error)

    def _leave(self, session: Any) -> None:
        """Returns the worker's token when it goes in the middle; `RunState.leave`."""
        soon = protos.RunOptions(timeout_in_ms=_LEAVE_MS)
        try:
            if self._roster is not None:
                session.run(self._roster.leave, options=soon)
            session.run(self._leave_op, options=soon)
        except (errors.OpError, RuntimeError) as error:  # the worker ends anyway
            _log.debug("The worker could not return its token: %s", error)
