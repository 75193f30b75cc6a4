"""The hook of `SyncReplicasOptimizer`: what chief and workers do when a session begins and ends."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.ops import queue_ops
from tfmini.ops.scoping import device, name_scope
from tfmini.train.session_readiness import ready
from tfmini.train.session_run_hook import SessionRunHook

if TYPE_CHECKING:
    from tfmini.train.sync_replicas import SyncReplicasOptimizer

_log = logging.getLogger("tfmini")
_REOPEN_WAIT_S = 10.0
_POLL_S = 0.1
# What a worker may meet at its end that only says that others have ended before.
_OTHERS_ENDED = (errors.CancelledError, errors.OutOfRangeError, errors.AbortedError, errors.UnavailableError)


class SyncReplicasHook(SessionRunHook):
    """Made by `SyncReplicasOptimizer.make_session_run_hook`."""

    def __init__(self, optimizer: SyncReplicasOptimizer, is_chief: bool, num_tokens: int) -> None:
        self._optimizer = optimizer
        self._is_chief = is_chief
        self._num_tokens = num_tokens
        self._runner: Any = None
        self._init_tokens: Any = None

    def begin(self) -> None:
        """Adds the ops that the hook runs.

        Raises:
          ValueError: before the optimizer's `apply_gradients`.
        """
        optimizer = self._optimizer
        if optimizer._chief_queue_runner is None:
            raise ValueError("SyncReplicasOptimizer.apply_gradient should be called before using the hook.")
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
            self._end_op = queue.close() if self._is_chief else queue.enqueue(optimizer._local_step)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Sets the local step; on the chief, puts out the first tokens and starts its thread.

        Raises:
          RuntimeError: when global variables are not initialised.
        """
        success, reason = ready(
            self._ready_op, session, "Model is not ready for SyncReplicasOptimizer local init."
        )
        if not success:
            raise RuntimeError(
                "Init operations did not make model ready for SyncReplicasOptimizer local_init."
                f" Init op: {self._local_init.name}, error: {reason}"
            )
        session.run(self._local_init)
        if session.run(self._is_closed):
            self._meet_closed_queue(session)
        if self._init_tokens is not None:
            session.run(self._init_tokens)
        if self._runner is not None:
            self._runner.create_threads(session, coord=coord, daemon=True, start=True)

    def _meet_closed_queue(self, session: Any) -> None:
        """The servers have outlived a run that ended: its chief closed the queue, that of the new run opens it."""
        if self._is_chief:
            session.run(self._reopen_op())
            return
        deadline = time.monotonic() + _REOPEN_WAIT_S
        while time.monotonic() < deadline:
            time.sleep(_POLL_S)
            if not session.run(self._is_closed):
                return
        _log.warning("The synchronous run that this worker would join has ended, and no chief has begun another.")

    def _reopen_op(self) -> Any:
        """Added only when it is needed: graphs that go to TensorFlow do not have it."""
        queue_ref = self._optimizer._sync_token_queue.queue_ref
        graph = queue_ref.graph
        finalized = graph.finalized
        graph._unsafe_unfinalize()
        try:
            with graph.as_default(), device(queue_ref.device):
                return queue_ops.queue_reopen(queue_ref, name="reopen")
        finally:
            if finalized:
                graph.finalize()

    def end(self, session: Any) -> None:
        """Gives the worker's token back; on the chief, closes the token queue, which ends the run for all."""
        try:
            session.run(self._end_op)
        except _OTHERS_ENDED as error:
            _log.debug("The synchronous run has ended elsewhere: %s", error)
