"""``tf.train.SessionManager``: makes sessions; initializes or restores their model, or waits until it is ready."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.op_types import ops_with
from tfmini.graph.operation import Operation
from tfmini.protos import ConfigProto, RunOptions
from tfmini.runtime.client.session import Session
from tfmini.runtime.process import current_process, random_name
from tfmini.train.checkpointing.saver import Saver
from tfmini.train.sessions.readiness import (
    LongWait,
    ModelRecord,
    ModelRecords,
    ReadinessProbe,
    ReadinessWait,
    close_quietly,
    is_used,
    latest_state,
    limited,
    mark_used,
    name_of,
    ready,
    shortened,
)
from tfmini.train.sessions.wrapped_session import NEXT_RUN_S, end_at_exit, fails_run, forget_exit, run_states

_log = logging.getLogger("tensorflow")
_CHECKPOINT_POLL_S = 0.25
_CLEAR_S = 2.0
_FAIL_S = 5.0
_COLLECTIVES = ops_with("collective")


@export("tf.train.SessionManager")
class SessionManager:
    """Makes sessions with a ready model (``tf.train.SessionManager``).

    Args:
      local_init_op: an op to run in every new session when ``ready_for_local_init_op`` permits.
      ready_op: a 1-D string tensor with the names of uninitialized variables; None for no check.
      ready_for_local_init_op: the same for the variables that ``local_init_op`` reads.
      graph: the graph; default: the default graph.
      recovery_wait_secs: seconds that a connected task may be lost before a wait fails, and the upper bound of the
        polling period. Readiness is checked several times per second.
      local_init_run_options: RunOptions for ``local_init_op``.

    Attributes:
      model: an identifier of the values of the model in the last session, which differs after every initialisation
        and restore; "" where that is not known.

    Raises:
      ValueError: when ``ready_for_local_init_op`` is given without ``local_init_op``.
    """

    def __init__(
        self,
        local_init_op: object = None,
        ready_op: object = None,
        ready_for_local_init_op: object = None,
        graph: Graph | None = None,
        recovery_wait_secs: float = 30,
        local_init_run_options: RunOptions | None = None,
    ) -> None:
        self._local_init_op = local_init_op
        self._ready_op = ready_op
        self._ready_for_local_init_op = ready_for_local_init_op
        self._graph = graph if graph is not None else get_default_graph()
        self._recovery_wait_secs = recovery_wait_secs
        self._local_init_run_options = local_init_run_options
        self.model = ""
        self._records: ModelRecords | None = None
        # The target, the ConfigProto, and whether this is the chief, of the last session in a cluster.
        self._part: tuple[str, Any, bool] | None = None
        self._process = current_process()
        self._own_run = random_name(self._process)
        if ready_for_local_init_op is not None and local_init_op is None:
            raise ValueError(
                "If you pass a ready_for_local_init_op you must also pass a local_init_op ,"
                f" ready_for_local_init_op [{ready_for_local_init_op}]"
            )

    def prepare_session(
        self,
        master: str,
        init_op: Operation | None | None = None,
        saver: Saver | None = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
        init_feed_dict: Mapping[Any, Any] | None = None,
        init_fn: Callable[[Any], Any] | None = None,
        *,
        cancelled: Callable[[], bool] | None = None,
    ) -> Session:
        """Makes the chief's session: restores the model from a checkpoint, or initializes it if there is none.

        In a cluster it does neither if all variables still have the values of this run, whose chief was restarted
        or lost: the other workers have gone on with them.

        Args:
          master: the session's target.
          init_op, init_feed_dict, init_fn: initialize the model if there is no checkpoint; ``init_fn`` comes last.
          saver: the Saver that restores.
          checkpoint_dir: a directory whose latest checkpoint is restored.
          checkpoint_filename_with_path: the checkpoint to restore in place of ``checkpoint_dir``'s.
          wait_for_checkpoint: wait for a checkpoint in ``checkpoint_dir``, up to ``max_wait_secs``.
          config: the session's ConfigProto.
          cancelled: a function that ends that wait with CancelledError when it returns True.

        Raises:
          RuntimeError: when no initializer is given, or the initializers did not make the model ready.
          ValueError: when both a directory and a file name are given.
        """
        source = _source(checkpoint_dir, checkpoint_filename_with_path)
        run = os.path.abspath(source) if source else self._own_run
        sess = Session(master, graph=self._graph, config=config)
        try:
            self._records = self._records_of(sess, config)
            if not self._continues(sess, config, run, checkpoint_dir, checkpoint_filename_with_path):
                self._record(is_set=False, run=run)
                wait_s = max_wait_secs if wait_for_checkpoint else 0.0
                found = self._restore(sess, saver, checkpoint_dir, checkpoint_filename_with_path, wait_s, cancelled)
                if not found:
                    self._initialise(sess, init_op, init_feed_dict, init_fn)
                self._renew_run_states(sess, config)
            self._make_ready(sess, init_op, init_fn)
            if checkpoint_dir and self._records is not None:
                mark_used(checkpoint_dir, self._graph)
            self._record(is_set=True, run=run)
            self._take_part(sess, config, is_chief=True)
        except BaseException:  # even Ctrl-C, since the caller has no reference to close the session
            close_quietly(sess)
            raise
        return sess

    def _records_of(self, sess: Session, config: Any) -> ModelRecords | None:
        """The records of the model; None where every session or every worker has a model of its own."""
        master = sess.sess_str.decode()
        if not master or not self._graph.get_collection(GraphKeys.GLOBAL_VARIABLES):
            return None
        # Ranks that lose one of theirs may have applied different parts of a step, so they begin anew.
        if any(op.type in _COLLECTIVES for op in self._graph.get_operations()):
            return None
        return ModelRecords(master, self._graph, config)

    def _continues(self, sess: Session, config: ConfigProto, run: str, directory: str | None, file: str | None) -> bool:
        """Whether the model has all its values, and has them from this run."""
        if self._records is None or self._lacks_values(sess):
            return False
        found = self._records.read()
        if found is None or not found.is_set or not found.run:
            return False
        is_own = found.model == self.model
        # Somebody who empties the directory wants a new run.
        if not is_own and (found.run != run or not (file or directory and is_used(directory))):
            return False
        # A model without a checkpoint would lose more than an update.
        can_restore = file or directory and latest_state(directory)
        if not all(state.is_whole(sess, config) for state in run_states(self._graph)) and can_restore:
            return False
        self.model = found.model
        _log.info(
            "All variables of the model have values of this run (%s): it goes on with them, without a restore.", run
        )
        return True

    def _renew_run_states(self, sess: Session, config: ConfigProto) -> None:
        """Drops what was computed from the model's former values, after it has the new ones.

        Where every session has a model of its own, there is nothing to drop.
        """
        for state in run_states(self._graph) if sess.sess_str else ():
            state.renew(sess, config)

    def _lacks_values(self, sess: Session) -> bool:
        """Whether a variable or resource that all sessions share has no value, as far as the ready ops tell."""
        op = self._ready_op if self._ready_for_local_init_op is None else self._ready_for_local_init_op
        if op is None:
            return True
        try:
            names = sess.run(op)
        except errors.FailedPreconditionError:
            return True
        if names is None or names.dtype == np.int32:
            return True
        local = {variable.op.name.encode() for variable in self._graph.get_collection(GraphKeys.LOCAL_VARIABLES)}
        return any(name not in local for name in names)

    def _record(self, is_set: bool, run: str) -> None:
        """Records, before the model gets new values, that it will, and afterwards that it has."""
        if not is_set:
            self.model = random_name(self._process)
        if self._records is not None:
            self._records.write(ModelRecord(self.model, is_set, run))

    def _take_part(self, sess: Session, config: ConfigProto | None, is_chief: bool) -> None:
        """From now on the other workers of the run learn how this one ends."""
        if sess.sess_str:
            self._part = (sess.sess_str.decode(), config, is_chief)
        end_at_exit(self._graph, self.end_run, self.fail_run)

    def fail_run(self, error: BaseException) -> None:
        """This worker ends with an exception; if its script has failed, the other workers of the run learn it."""
        part, self._part = self._part, None
        if part is None or not fails_run(error):
            return
        master, config, is_chief = part
        for state in run_states(self._graph):
            try:
                state.fail(master, limited(config, _FAIL_S), is_chief, error)
            except Exception as failure:  # such as a lost task; the caller raises the cause
                _log.warning("The other workers of the run could not be told of the failure: %s", failure)

    def end_run(self) -> None:
        """The run has ended in good order for this worker.

        Where it is the chief, the next run initialises or restores its model.
        """
        forget_exit(self._graph)
        self._part = None
        records, self._records = self._records, None
        if records is None:
            return
        try:
            records.end(self.model, _CLEAR_S)
            for state in run_states(self._graph):
                state.end(records.master, records.limited(_CLEAR_S))
        except errors.OpError as error:  # a hook may have ended it
            _log.debug("The end of the run was not recorded: %s", error)

    def leave_run(self) -> None:
        """This process ends before its run, as by a signal: the others go on, and a restarted chief continues it."""
        forget_exit(self._graph)
        self._part = None
        self._records = None

    def _initialise(
        self,
        sess: Session,
        init_op: Operation | None,
        init_feed_dict: Mapping[Any, Any] | None,
        init_fn: Callable[..., Any] | None,
    ) -> None:
        if init_op is None and not init_fn and self._local_init_op is None:
            raise RuntimeError("Model is not initialized and no init_op or init_fn or local_init_op was given")
        if init_op is not None:
            sess.run(init_op, feed_dict=init_feed_dict)
        if init_fn:
            init_fn(sess)

    def _make_ready(self, sess: Session, init_op: Operation | None, init_fn: Callable[..., Any] | None) -> None:
        done, msg = self._try_run_local_init_op(sess)
        if not done:
            raise RuntimeError(
                "Init operations did not make model ready for local_init.  "
                f"Init op: {name_of(init_op)}, init fn: {init_fn}, error: {shortened(msg)}"
            )
        is_ready, msg = self._model_ready(sess)
        if not is_ready:
            raise RuntimeError(
                f"Init operations did not make model ready.  Init op: {name_of(init_op)}, init fn: {init_fn},"
                f" local_init_op: {name_of(self._local_init_op)}, error: {shortened(msg)}"
            )

    def recover_session(
        self,
        master: str,
        saver: Saver | None = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
        *,
        cancelled: Callable[[], bool] | None = None,
    ) -> tuple[Session, bool]:
        """Makes a session without initialization; returns it, and whether a checkpoint made its model ready.

        The arguments are those of `prepare_session`.

        Raises:
          ValueError: when both a directory and a file name are given.
        """
        source = _source(checkpoint_dir, checkpoint_filename_with_path)
        sess = Session(master, graph=self._graph, config=config)
        try:
            wait_s = max_wait_secs if wait_for_checkpoint else 0.0
            restored = self._restore(sess, saver, checkpoint_dir, checkpoint_filename_with_path, wait_s, cancelled)
            if restored:
                self._renew_run_states(sess, config)
        except BaseException:  # even Ctrl-C, since the caller has no reference to close the session
            close_quietly(sess)
            raise
        done, msg = self._try_run_local_init_op(sess)
        if not restored:
            return sess, False
        if not done:
            _log.info("Restoring model from %s did not make model ready for local init: %s", source, shortened(msg))
            return sess, False
        is_ready, msg = self._model_ready(sess)
        if not is_ready:
            _log.info("Restoring model from %s did not make model ready: %s", source, shortened(msg))
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
        """Makes the session of a worker that is not the chief: waits until the chief has made the model ready.

        The log names the missing variables and the task that must initialize them, at once and at each change.

        Args:
          master: the session's target.
          config: the session's ConfigProto.
          max_wait_secs: seconds to wait; None or inf for no limit.
          cancelled: a function that ends the wait when it returns True.

        Raises:
          DeadlineExceededError: when the model is not ready after ``max_wait_secs``; it names what is missing.
          UnavailableError: when the chief, or a task with variables, was connected and then lost for
            ``recovery_wait_secs``; it names the task.
          CancelledError: when ``cancelled`` returns True.
        """
        retried: tuple[type[errors.OpError], ...] = (errors.AbortedError, errors.UnavailableError)
        if config is None or config.operation_timeout_in_ms <= 0:
            # Without an operation timeout this error means that a task has not started yet.
            retried += (errors.DeadlineExceededError,)
        next_run_until = self._process.now() + NEXT_RUN_S
        probe = ReadinessProbe(
            lambda: Session(master, graph=self._graph, config=config),
            self._try_run_local_init_op,
            lambda sess: self._model_ready_and_set(sess, config, self._process.now() < next_run_until),
            retried,
        )
        max_wait_s = float("inf") if max_wait_secs is None else float(max_wait_secs)
        wait = ReadinessWait(probe, master, self._graph, self._recovery_wait_secs, max_wait_s, cancelled)
        sess: Session = wait.result()
        self._take_part(sess, config, is_chief=False)
        return sess

    def _restore(
        self,
        sess: Session,
        saver: Saver | None,
        checkpoint_dir: str | None,
        checkpoint_filename_with_path: str | None,
        wait_s: float,
        cancelled: Callable[[], bool] | None,
    ) -> bool:
        """Restores a checkpoint, if there is one or it comes within ``wait_s``; returns whether it did."""
        if not saver or not (checkpoint_dir or checkpoint_filename_with_path):
            return False
        if checkpoint_filename_with_path:
            saver.restore(sess, checkpoint_filename_with_path)
            return True
        assert checkpoint_dir
        found = self._find_checkpoint(checkpoint_dir, wait_s, cancelled)
        if found is None:
            return False
        saver.restore(sess, found.model_checkpoint_path)
        saver.recover_last_checkpoints(found.all_model_checkpoint_paths)
        return True

    @staticmethod
    def _find_checkpoint(directory: str, max_wait_s: float, cancelled: Callable[[], bool] | None) -> Any:
        """Waits for a checkpoint in a directory; returns the directory's state, or None after ``max_wait_s``."""
        process = current_process()
        deadline = process.now() + max_wait_s
        logged, long = False, LongWait()
        while True:
            state = latest_state(directory)
            if state:
                return state
            if process.now() >= deadline:
                return None
            if cancelled is not None and cancelled():
                text = f"A stop was requested while waiting for a checkpoint in {directory}."
                raise errors.CancelledError.of(text)
            if not logged:
                _log.info("Waiting for checkpoint to be available in %s.", directory)
                logged = True
            long.look(lambda: f"waiting for a checkpoint in {directory}")
            process.sleep(_CHECKPOINT_POLL_S)

    def _model_ready(self, sess: Session) -> tuple[bool, str | None]:
        return ready(self._ready_op, sess, "Model not ready")

    def _model_ready_and_set(self, sess: Session, config: ConfigProto, awaits_run: bool) -> tuple[bool, str | None]:
        """As `_model_ready`; but a model that the chief is still restoring or initialising is not ready."""
        is_ready, msg = self._model_ready(sess)
        if is_ready:
            records = self._records_of(sess, config)
            record = records.read() if records is not None else None
            if record is not None and not record.is_set:
                return False, "the rest of the model"
            if awaits_run and sess.sess_str and any(s.has_ended(sess, config) for s in run_states(self._graph)):
                return False, "the model of another run, since the last one has ended"
            self.model = record.model if record is not None else ""
        return is_ready, msg

    def _model_ready_for_local_init(self, sess: Session) -> tuple[bool, str | None]:
        return ready(self._ready_for_local_init_op, sess, "Model not ready for local init")

    def _try_run_local_init_op(self, sess: Session) -> tuple[bool, str | None]:
        """Runs the local init op if the model is ready for it; returns (whether it is done, the reason if not)."""
        if self._local_init_op is None:
            return True, None
        is_ready, msg = self._model_ready_for_local_init(sess)
        if not is_ready:
            return False, msg
        _log.info("Running local_init_op.")
        sess.run(self._local_init_op, options=self._local_init_run_options)
        _log.info("Done running local_init_op.")
        return True, None


def _source(directory: str | None, file: str | None) -> str | None:
    """The checkpoint to restore, or the directory that has it.

    Raises:
      ValueError: when both are given.
    """
    if directory and file:
        raise ValueError("Can not provide both checkpoint_dir and checkpoint_filename_with_path.")
    return directory or file
