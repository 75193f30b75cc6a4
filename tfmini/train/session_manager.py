"""``tf.train.SessionManager``: sessions whose model is initialised, restored, or waited for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from tfmini import errors
from tfmini.graph.default_graph import get_default_graph
from tfmini.runtime.session import Session
from tfmini.train.checkpoint_state import get_checkpoint_state
from tfmini.train.session_readiness import name_of, ready
from tfmini.train.session_waiting import Looks, ReadinessWait, close_quietly

_log = logging.getLogger("tfmini")
_LOOK_FOR_CHECKPOINT_S = 0.25


class SessionManager:
    """Makes sessions with a ready model (``tf.train.SessionManager``).

    Args:
      local_init_op: run in every new session, once ``ready_for_local_init_op`` allows it.
      ready_op: a 1-D string tensor of what is not initialised; None: no check.
      ready_for_local_init_op: the same, about what ``local_init_op`` needs.
      graph: default: the default graph.
      recovery_wait_secs: how long, at most, until readiness is noticed, and how long a task that was
        there may be gone before a wait gives up. A model is looked at several times a second.
      local_init_run_options: RunOptions for ``local_init_op``.

    Raises:
      ValueError: for ``ready_for_local_init_op`` without ``local_init_op``.
    """

    def __init__(
        self,
        local_init_op: Any = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        graph: Any = None,
        recovery_wait_secs: float = 30,
        local_init_run_options: Any = None,
    ) -> None:
        self._local_init_op = local_init_op
        self._ready_op = ready_op
        self._ready_for_local_init_op = ready_for_local_init_op
        self._graph = graph if graph is not None else get_default_graph()
        self._recovery_wait_secs = recovery_wait_secs
        self._local_init_run_options = local_init_run_options
        if ready_for_local_init_op is not None and local_init_op is None:
            raise ValueError(
                "If you pass a ready_for_local_init_op you must also pass a local_init_op ,"
                f" ready_for_local_init_op [{ready_for_local_init_op}]"
            )

    def prepare_session(
        self,
        master: str,
        init_op: Any = None,
        saver: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
        init_feed_dict: Any = None,
        init_fn: Callable[[Any], Any] | None = None,
        *,
        cancelled: Callable[[], bool] | None = None,
    ) -> Session:
        """A session on ``master`` whose model is restored from a checkpoint, else initialised: the chief's way.

        Args:
          master: the session's target.
          init_op, init_feed_dict, init_fn: initialise, in this order, when there is no checkpoint.
          saver: restores.
          checkpoint_dir: its latest checkpoint is restored.
          checkpoint_filename_with_path: this one is, instead.
          wait_for_checkpoint: wait for one in ``checkpoint_dir``, up to ``max_wait_secs``.
          config: the session's ConfigProto.
          cancelled: ends that wait, with CancelledError, when it returns True.

        Raises:
          RuntimeError: when nothing can initialise the model, or that did not make it ready.
          ValueError: for both a directory and a file name.
        """
        sess, restored = self._restore_checkpoint(
            master, saver, checkpoint_dir, checkpoint_filename_with_path, wait_for_checkpoint, max_wait_secs, config,
            cancelled,
        )  # fmt: skip
        try:
            if not restored:
                self._initialise(sess, init_op, init_feed_dict, init_fn)
            self._make_ready(sess, init_op, init_fn)
        except BaseException:  # even Ctrl-C: the caller never gets the session, so nobody else can close it
            close_quietly(sess)
            raise
        return sess

    def _initialise(self, sess: Session, init_op: Any, init_feed_dict: Any, init_fn: Any) -> None:
        if init_op is None and not init_fn and self._local_init_op is None:
            raise RuntimeError("Model is not initialized and no init_op or init_fn or local_init_op was given")
        if init_op is not None:
            sess.run(init_op, feed_dict=init_feed_dict)
        if init_fn:
            init_fn(sess)

    def _make_ready(self, sess: Session, init_op: Any, init_fn: Any) -> None:
        done, msg = self._try_run_local_init_op(sess)
        if not done:
            raise RuntimeError(
                "Init operations did not make model ready for local_init.  "
                f"Init op: {name_of(init_op)}, init fn: {init_fn}, error: {msg}"
            )
        is_ready, msg = self._model_ready(sess)
        if not is_ready:
            raise RuntimeError(
                f"Init operations did not make model ready.  Init op: {name_of(init_op)}, init fn: {init_fn},"
                f" local_init_op: {name_of(self._local_init_op)}, error: {msg}"
            )

    def recover_session(
        self,
        master: str,
        saver: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
        *,
        cancelled: Callable[[], bool] | None = None,
    ) -> tuple[Session, bool]:
        """A session, and whether a checkpoint has made its model ready; nothing is initialised.

        Args:
          as of `prepare_session`.

        Raises:
          ValueError: for both a directory and a file name.
        """
        sess, restored = self._restore_checkpoint(
            master, saver, checkpoint_dir, checkpoint_filename_with_path, wait_for_checkpoint, max_wait_secs, config,
            cancelled,
        )  # fmt: skip
        done, msg = self._try_run_local_init_op(sess)
        if not restored:
            return sess, False
        source = checkpoint_dir or checkpoint_filename_with_path
        if not done:
            _log.info("Restoring model from %s did not make model ready for local init: %s", source, msg)
            return sess, False
        is_ready, msg = self._model_ready(sess)
        if not is_ready:
            _log.info("Restoring model from %s did not make model ready: %s", source, msg)
            return sess, False
        _log.info("Restored model from %s", source)
        return sess, True

    def wait_for_session(
        self,
        master: str,
        config: Any = None,
        max_wait_secs: float | None = float("inf"),
        *,
        cancelled: Callable[[], bool] | None = None,
    ) -> Session:
        """A session on ``master`` once somebody else has made its model ready: the way of all but the chief.

        What is waited for, and on whom, is logged at once and whenever it changes.

        Args:
          master: the session's target.
          config: the session's ConfigProto.
          max_wait_secs: None or inf: no limit.
          cancelled: ends the wait when it returns True.

        Raises:
          DeadlineExceededError: when the model is not ready after ``max_wait_secs``, with what is missing.
          UnavailableError: when the chief's server, or a task that holds variables, was there and has been
            gone for ``recovery_wait_secs``; it names the task.
          CancelledError: when ``cancelled`` says so.
        """
        retried: tuple[type[errors.OpError], ...] = (errors.AbortedError, errors.UnavailableError)
        if config is None or config.operation_timeout_in_ms <= 0:
            # Then it can only come from waiting for a task that is not up yet.
            retried += (errors.DeadlineExceededError,)
        looks = Looks(
            lambda: Session(master, graph=self._graph, config=config),
            self._try_run_local_init_op,
            self._model_ready,
            retried,
        )
        max_wait_s = float("inf") if max_wait_secs is None else float(max_wait_secs)
        wait = ReadinessWait(looks, master, self._graph, self._recovery_wait_secs, max_wait_s, cancelled)
        return wait.result()  # type: ignore[no-any-return]

    def _restore_checkpoint(
        self,
        master: str,
        saver: Any,
        checkpoint_dir: str | None,
        checkpoint_filename_with_path: str | None,
        wait_for_checkpoint: bool,
        max_wait_secs: float,
        config: Any,
        cancelled: Callable[[], bool] | None,
    ) -> tuple[Session, bool]:
        """A new session, and whether a checkpoint was restored into it."""
        if checkpoint_dir and checkpoint_filename_with_path:
            raise ValueError("Can not provide both checkpoint_dir and checkpoint_filename_with_path.")
        sess = Session(master, graph=self._graph, config=config)
        if not saver or not (checkpoint_dir or checkpoint_filename_with_path):
            return sess, False
        try:
            if checkpoint_filename_with_path:
                saver.restore(sess, checkpoint_filename_with_path)
                return sess, True
            assert checkpoint_dir
            found = self._find_checkpoint(checkpoint_dir, max_wait_secs if wait_for_checkpoint else 0.0, cancelled)
            if found is None:
                return sess, False
            saver.restore(sess, found.model_checkpoint_path)
            saver.recover_last_checkpoints(found.all_model_checkpoint_paths)
        except BaseException:  # even Ctrl-C: the caller never gets the session, so nobody else can close it
            close_quietly(sess)
            raise
        return sess, True

    @staticmethod
    def _find_checkpoint(directory: str, max_wait_s: float, cancelled: Callable[[], bool] | None) -> Any:
        """The state of the directory once it names a checkpoint; None when it does not in time."""
        deadline = time.monotonic() + max_wait_s
        said = False
        while True:
            state = get_checkpoint_state(directory)
            if state and state.model_checkpoint_path:
                return state
            if time.monotonic() >= deadline:
                return None
            if cancelled is not None and cancelled():
                text = f"A stop was requested while waiting for a checkpoint in {directory}."
                raise errors.CancelledError(None, None, text)
            if not said:
                _log.info("Waiting for checkpoint to be available in %s.", directory)
                said = True
            time.sleep(_LOOK_FOR_CHECKPOINT_S)

    def _model_ready(self, sess: Session) -> tuple[bool, str | None]:
        return ready(self._ready_op, sess, "Model not ready")

    def _model_ready_for_local_init(self, sess: Session) -> tuple[bool, str | None]:
        return ready(self._ready_for_local_init_op, sess, "Model not ready for local init")

    def _try_run_local_init_op(self, sess: Session) -> tuple[bool, str | None]:
        """Runs the local init op, if there is one and the model is ready for it; (whether, why not)."""
        if self._local_init_op is None:
            return True, None
        is_ready, msg = self._model_ready_for_local_init(sess)
        if not is_ready:
            return False, msg
        _log.info("Running local_init_op.")
        sess.run(self._local_init_op, options=self._local_init_run_options)
        _log.info("Done running local_init_op.")
        return True, None
