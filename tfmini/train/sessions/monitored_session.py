"""``tf.train.MonitoredSession``: a session with hooks, queue runners, recovery and a clean end."""

from __future__ import annotations

import abc
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from tfmini import errors
from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.scoping import get_collection
from tfmini.protos import ConfigProto, RunMetadata, RunOptions
from tfmini.runtime.client.session import BaseSession
from tfmini.train.checkpointing.graph_files import latest_checkpoint
from tfmini.train.coordinator import Coordinator
from tfmini.train.global_steps import get_global_step
from tfmini.train.hooks import StepCounterHook
from tfmini.train.queue_runners import start_queue_runners
from tfmini.train.saving_hooks import CheckpointSaverHook, SummarySaverHook
from tfmini.train.session_run_hook import SessionRunHook, list_of_hooks
from tfmini.train.sessions import readiness, wrapped_session
from tfmini.train.sessions.readiness import close_quietly
from tfmini.train.sessions.scaffold import Scaffold
from tfmini.train.sessions.session_manager import SessionManager
from tfmini.train.sessions.wrapped_session import (
    _CoordinatedSession,
    _HookedSession,
    _RecoverableSession,
    fails_run,
    run_states,
)

_log = logging.getLogger("tensorflow")

# ---- Session creators, which make the sessions of a monitored session (``tf.train.SessionCreator``) ----------------

WORKER_MAX_WAIT_S = 30 * 60


@export("tf.train.SessionCreator")
class SessionCreator(metaclass=abc.ABCMeta):
    """Base class of session creators.

    Attributes:
      max_recovery_s: seconds that a monitored session retries to create a session when a task is not reachable.
    """

    max_recovery_s: float = 7200.0

    @abc.abstractmethod
    def create_session(self) -> Any:
        """Makes a session with a ready model."""
        raise NotImplementedError(f"create_session is not implemented for {self}.")


class _ScaffoldedCreator(SessionCreator):
    """Base class of the two creators; makes a `SessionManager` from a scaffold at the first use."""

    def __init__(self, scaffold: Scaffold | None, master: str, config: ConfigProto | None) -> None:
        self._scaffold = scaffold or Scaffold()
        self._session_manager: SessionManager | None = None
        self._master = master
        self._config = config

    @property
    def model(self) -> str:
        """`SessionManager.model` of the latest session."""
        return "" if self._session_manager is None else self._session_manager.model

    def end_run(self) -> None:
        """The run has ended in good order for this worker: see `SessionManager.end_run`."""
        self._get_session_manager().end_run()

    def leave_run(self) -> None:
        """See `SessionManager.leave_run`."""
        self._get_session_manager().leave_run()

    def fail_run(self, error: BaseException) -> None:
        """See `SessionManager.fail_run`."""
        self._get_session_manager().fail_run(error)

    def _get_session_manager(self) -> SessionManager:
        if self._session_manager is None:
            self._session_manager = SessionManager(
                local_init_op=self._scaffold.local_init_op,
                ready_op=self._scaffold.ready_op,
                ready_for_local_init_op=self._scaffold.ready_for_local_init_op,
                graph=get_default_graph(),
            )
        return self._session_manager


@export("tf.train.ChiefSessionCreator")
class ChiefSessionCreator(_ScaffoldedCreator):
    """Makes sessions for the chief: restores or initializes the model (``tf.train.ChiefSessionCreator``).

    Args:
      scaffold: the ops to initialize and restore with; default: a new scaffold.
      master: the sessions' target.
      config: the sessions' ConfigProto.
      checkpoint_dir: a directory whose latest checkpoint is restored.
      checkpoint_filename_with_path: the checkpoint to restore in place of ``checkpoint_dir``'s.
    """

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: ConfigProto | None = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
    ) -> None:
        super().__init__(scaffold, master, config)
        self._checkpoint_dir = checkpoint_dir
        self._checkpoint_filename_with_path = checkpoint_filename_with_path

    def create_session(self) -> Any:
        scaffold = self._scaffold.finalize()
        return self._get_session_manager().prepare_session(
            self._master,
            saver=scaffold.saver,
            checkpoint_dir=self._checkpoint_dir,
            checkpoint_filename_with_path=self._checkpoint_filename_with_path,
            config=self._config,
            init_op=scaffold.init_op,
            init_feed_dict=scaffold.init_feed_dict,
            init_fn=scaffold.init_fn,
        )


class _CopyCreator(ChiefSessionCreator):
    """Makes the session of a worker with a copy of the variables. All initialize at first, which may be collective.

    Workers with a checkpoint restore it: they get the variables of the chief later, but no tables.
    """

    def create_session(self) -> Any:
        scaffold = self._scaffold.finalize()
        path = latest_checkpoint(self._checkpoint_dir) if self._checkpoint_dir else None
        if path is None and not get_default_graph().attachments[WORKERS].is_chief:
            _warn_of_tables()

        def begin(session: Any) -> None:
            if path is not None:
                scaffold.saver.restore(session, path)
            elif scaffold.init_fn is not None:
                scaffold.init_fn(session)

        return self._get_session_manager().prepare_session(
            self._master, scaffold.init_op, config=self._config, init_feed_dict=scaffold.init_feed_dict, init_fn=begin
        )


def _warn_of_tables() -> None:
    names = sorted({saved.name for saved in get_collection(GraphKeys.SAVEABLE_OBJECTS)})
    if names:
        _log.warning(
            "If the chief restores a checkpoint, %s will differ on this worker, which has none: of the chief's values"
            " it gets the variables only. Give all workers the same checkpoint_dir or model_dir.", ", ".join(names),
        )  # fmt: skip


@export("tf.train.WorkerSessionCreator")
class WorkerSessionCreator(_ScaffoldedCreator):
    """Makes sessions for workers: waits until the chief has made the model ready (``tf.train.WorkerSessionCreator``).

    Args:
      scaffold: the ops to check and initialize locally with; default: a new scaffold.
      master: the sessions' target.
      config: the sessions' ConfigProto.
      max_wait_secs: seconds to wait; None for no limit.
    """

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: ConfigProto | None = None,
        max_wait_secs: float | None = WORKER_MAX_WAIT_S,
    ) -> None:
        super().__init__(scaffold, master, config)
        self._max_wait_secs = max_wait_secs
        self.max_recovery_s = float("inf") if max_wait_secs is None else max_wait_secs

    def create_session(self) -> Any:
        self._scaffold.finalize()
        return self._get_session_manager().wait_for_session(
            self._master, config=self._config, max_wait_secs=self._max_wait_secs
        )


# ---- Monitored sessions --------------------------------------------------------------------------------------------

# Exceptions that end a `with` block without an error: the end of the input, and a stop request of a step_fn.
_CLEAN_ENDS = (errors.OutOfRangeError, StopIteration)


class CoordinatedSessionCreator(SessionCreator):
    """Makes the two inner layers of a monitored session, starts queue runners and calls the hooks.

    Attributes:
      tf_sess: the latest `tf.Session`.
      coord: the coordinator of that session.
    """

    def __init__(
        self, session_creator: SessionCreator, hooks: list[SessionRunHook], stop_grace_period_secs: float
    ) -> None:
        self._session_creator = session_creator
        # A user's creator need not be a subclass.
        self.max_recovery_s = getattr(session_creator, "max_recovery_s", SessionCreator.max_recovery_s)
        self._hooks = hooks
        self._stop_grace_period_secs = stop_grace_period_secs
        self.coord: Coordinator | None = None
        self.tf_sess: Any = None

    def create_session(self) -> _CoordinatedSession:
        sess = self.tf_sess = self._session_creator.create_session()
        # Without clean exception types, so that the loop gets the end of the input.
        coord = self.coord = Coordinator(clean_stop_exception_types=[])
        coordinated = _CoordinatedSession(_HookedSession(sess, self._hooks), coord, self._stop_grace_period_secs)
        try:
            coordinated.call(self._begin, sess, coord)
        except wrapped_session.PREEMPTION_ERRORS:
            # The next attempt makes new threads and a new session. What these still report follows from the loss.
            close_quietly(coordinated)
            raise
        return coordinated

    @property
    def model(self) -> str:
        """An identifier of the values of the model in the latest session, "" if it is not known."""
        return getattr(self._session_creator, "model", "")

    def close_run(self, has_ended: bool) -> None:
        """A chief's creator notes whether its run has ended in good order or goes on without this process."""
        leave = getattr(self._session_creator, "end_run" if has_ended else "leave_run", None)
        if leave is not None:
            leave()

    def fail_run(self, error: BaseException) -> None:
        """The other workers of the run learn of an exception that ends the part of this one."""
        fail = getattr(self._session_creator, "fail_run", None)
        if fail is not None:
            fail(error)

    def _begin(self, sess: BaseSession, coord: Coordinator) -> None:
        if get_collection(GraphKeys.QUEUE_RUNNERS):
            start_queue_runners(sess=sess, coord=coord)
        for hook in self._hooks:
            hook.after_create_session(sess, coord)


class _MonitoredSession:
    """Base class of `MonitoredSession` and `SingularMonitoredSession`."""

    StepContext = wrapped_session.StepContext

    def __init__(
        self,
        session_creator: SessionCreator | None,
        hooks: Iterable[SessionRunHook] | None,
        should_recover: bool,
        stop_grace_period_secs: float = 120,
    ) -> None:
        self._graph_was_finalized = get_default_graph().finalized
        self._hooks = list_of_hooks(hooks)
        for hook in self._hooks:
            hook.begin()
        creator = session_creator or ChiefSessionCreator()
        self._coordinated_creator = CoordinatedSessionCreator(creator, self._hooks, stop_grace_period_secs)
        self._sess: Any
        self._may_leave = readiness.begin()
        try:
            if should_recover:
                self._sess = _RecoverableSession(self._coordinated_creator)
            else:
                self._sess = self._coordinated_creator.create_session()
        except BaseException:  # even Ctrl-C: SIGTERM must end the process again
            self._end_leaving()
            raise

    @property
    def graph(self) -> Any:
        """The session's graph; None if the session is closed."""
        sess = self._tf_sess()
        return None if sess is None else sess.graph

    def run(
        self,
        fetches: object,
        feed_dict: Mapping[Any, Any] | None = None,
        options: RunOptions | None = None,
        run_metadata: RunMetadata | None = None,
    ) -> Any:
        """As `tf.Session.run`, with hooks.

        Raises:
          RuntimeError: the session is closed.
          SystemExit: the process was told to end by SIGTERM, and its last step is over; see `readiness.Left`.
          KeyboardInterrupt: likewise by a Ctrl-C that `tfmini launch` has forwarded.
        """
        self._check_leaving()
        self._check_open()
        return self._sess.run(fetches, feed_dict=feed_dict, options=options, run_metadata=run_metadata)

    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        """Calls ``step_fn(step_context)``, which can run steps with and without hooks, and returns its result.

        Raises:
          StopIteration: when ``step_fn`` calls ``step_context.request_stop()``.
          ValueError: when ``step_fn`` has arguments other than ``step_context`` and ``self``.
        """
        names = _argument_names(step_fn)
        if names not in (("step_context",), ("self", "step_context")):
            raise ValueError(
                "`step_fn` may either have one `step_context` argument, or `self` and `step_context` arguments if it's"
                f" an instance method. Got {names} instead."
            )
        self._check_leaving()
        self._check_open()
        return self._sess.run_step_fn(step_fn, self._tf_sess(), run_with_hooks=None)

    def _check_open(self) -> None:
        if self._sess is None:
            raise RuntimeError(
                f"Attempted to use a closed {type(self).__name__}. Its `with` block has ended, or it was closed; run"
                " what follows the training inside the block, or in a new session that restores the checkpoint."
            )

    def should_stop(self) -> bool:
        """Whether the training loop should end."""
        return self._sess is None or self._is_leaving() or self._sess.should_stop()

    def _is_leaving(self) -> bool:
        return self._may_leave and readiness.is_wanted()

    def _check_leaving(self) -> None:
        if self._sess is not None and self._is_leaving():
            raise readiness.left()

    def _end_leaving(self) -> None:
        if self._may_leave:
            self._may_leave = False
            readiness.end()

    def close(self) -> None:
        """Calls the hooks' ``end``, stops the threads and closes the session.

        Raises:
          SystemExit: see `run`.
          RuntimeError: when the session is closed.
          The exception of a thread of the session, if one failed.
        """
        self._close_internal()

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if kind in _CLEAN_ENDS:
            kind = None
        self._close_internal(None if isinstance(error, readiness.Left | readiness.Interrupted) else kind, error)
        return kind is None

    def _tell_others(self, error: BaseException | None) -> None:
        """The other workers of a run learn that this one fails, or leaves it in the middle."""
        session, coord = self._coordinated_creator.tf_sess, self._coordinated_creator.coord
        if error is None and coord is not None and coord._exc_info_to_raise:
            error = coord._exc_info_to_raise[1]  # the loop has ended because a thread has
        if session is None or error is None or isinstance(error, _CLEAN_ENDS):
            return
        if fails_run(error):
            self._coordinated_creator.fail_run(error)
        if not isinstance(error, wrapped_session.PREEMPTION_ERRORS):
            for state in run_states(session.graph):
                state.leave(session)

    def _exits(self, error: BaseException | None) -> bool:
        """Whether the script itself ends the process in good order: no handler of its own does so after SIGTERM."""
        return isinstance(error, SystemExit) and not fails_run(error) and self._may_leave and not self._is_leaving()

    def _close_internal(
        self, exception_type: type[BaseException] | None = None, error: BaseException | None = None
    ) -> None:
        is_leaving = self._is_leaving() and exception_type is None
        readiness.note_own_handler(error)
        readiness.last_step_is_over()
        # Before the hooks' `end`, one of which ends a synchronous run in good order.
        self._tell_others(error if exception_type else None)
        try:
            if is_leaving:
                self._end_hooks_leaving()
            elif exception_type is None:
                for hook in self._hooks:
                    hook.end(self._coordinated_creator.tf_sess)
            has_ended = self._exits(error) if exception_type else not is_leaving
            self._coordinated_creator.close_run(has_ended)
        finally:
            try:
                if self._sess is None:
                    raise RuntimeError("Session is already closed.")
                self._sess.close()
            finally:
                self._sess = None
                self._coordinated_creator.tf_sess = None
                self._coordinated_creator.coord = None
                self._end_leaving()
                if not self._graph_was_finalized:
                    get_default_graph()._unsafe_unfinalize()
        if is_leaving:
            raise readiness.left()

    def _end_hooks_leaving(self) -> None:
        """Calls the hooks' ``end`` in a process that was told to end. The session may be lost, as with a ps."""
        for hook in self._hooks:
            try:
                hook.end(self._coordinated_creator.tf_sess)
            except Exception as error:  # noqa: BLE001 - the next hook may be the one that saves
                text = error.message if isinstance(error, errors.OpError) else str(error)
                _log.warning("%s has not ended in good order: %s", type(hook).__name__, errors.without_tags(text))

    def _is_closed(self) -> bool:
        return self._coordinated_creator.tf_sess is None

    def _tf_sess(self) -> Any:
        return self._coordinated_creator.tf_sess


def _argument_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a callable's arguments, without ``self`` of a bound method."""
    return tuple(inspect.signature(function).parameters)


@export("tf.train.MonitoredSession")
class MonitoredSession(_MonitoredSession):
    """A session for a training loop (``tf.train.MonitoredSession``)::

        with tf.train.MonitoredSession(session_creator=..., hooks=[...]) as sess:
            while not sess.should_stop():
                sess.run(train_op)

    It finalizes the graph, initializes or restores the model (or waits until the chief has done so), starts the
    queue runners, and calls the hooks. When a task of the cluster is restarted or lost (AbortedError,
    UnavailableError), it makes a new session in the same way and repeats the step. OutOfRangeError ends the
    ``with`` block cleanly. It is no `tf.Session`, so it cannot be the default session or be passed to a Saver.

    Args:
      session_creator: makes the sessions; default: a `ChiefSessionCreator`.
      hooks: the hooks, called in this order.
      stop_grace_period_secs: seconds that closing waits for threads.
    """

    def __init__(
        self,
        session_creator: SessionCreator | None = None,
        hooks: Iterable[SessionRunHook] | None = None,
        stop_grace_period_secs: float = 120,
    ) -> None:
        super().__init__(session_creator, hooks, True, stop_grace_period_secs)


@export("tf.train.SingularMonitoredSession")
class SingularMonitoredSession(_MonitoredSession):
    """A monitored session of a single process, without recovery (``tf.train.SingularMonitoredSession``).

    Args:
      hooks: the hooks, called in this order.
      scaffold, master, config, checkpoint_dir, checkpoint_filename_with_path: see `ChiefSessionCreator`.
      stop_grace_period_secs: seconds that closing waits for threads.
    """

    def __init__(
        self,
        hooks: Iterable[SessionRunHook] | None = None,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: ConfigProto | None = None,
        checkpoint_dir: str | None = None,
        stop_grace_period_secs: float = 120,
        checkpoint_filename_with_path: str | None = None,
    ) -> None:
        creator = ChiefSessionCreator(scaffold, master, config, checkpoint_dir, checkpoint_filename_with_path)
        super().__init__(creator, hooks, False, stop_grace_period_secs)

    def raw_session(self) -> Any:
        """The wrapped `tf.Session`, for runs without hooks and for Savers."""
        return self._tf_sess()


class UnrecoveredSession(MonitoredSession):
    """A monitored session that the loss of a task ends."""

    def __init__(self, creator: SessionCreator, hooks: list[SessionRunHook], stop_grace_period_secs: float) -> None:
        _MonitoredSession.__init__(self, creator, hooks, False, stop_grace_period_secs)


# ---- ``tf.train.MonitoredTrainingSession``: a monitored session with the standard hooks for training ---------------

# Default of arguments for which None means "never".
USE_DEFAULT: Any = object()
WORKERS = "mirrored_workers"  # the graph's strategy of several workers, each with a copy of the variables


@export("tf.train.MonitoredTrainingSession")
def MonitoredTrainingSession(  # noqa: N802 - TensorFlow's name
    master: str = "",
    is_chief: bool = True,
    checkpoint_dir: str | None = None,
    scaffold: Scaffold | None = None,
    hooks: Sequence[SessionRunHook] | None = None,
    chief_only_hooks: Sequence[SessionRunHook] | None = None,
    save_checkpoint_secs: float | None = USE_DEFAULT,
    save_summaries_steps: int | None = USE_DEFAULT,
    save_summaries_secs: float | None = USE_DEFAULT,
    config: ConfigProto | None = None,
    stop_grace_period_secs: float = 120,
    log_step_count_steps: int | None = 100,
    max_wait_secs: float | None = 7200,
    save_checkpoint_steps: int | None = USE_DEFAULT,
    summary_dir: str | None = None,
    save_incremental_checkpoint_secs: float | None = None,
) -> MonitoredSession:
    """A monitored session for training (``tf.train.MonitoredTrainingSession``).

    The chief initializes or restores the model, counts steps, writes summaries and saves checkpoints; the other
    workers wait until the model is ready. A period of None disables a service. In a graph of a
    `MultiWorkerMirroredStrategy`, its chief is the chief, and the others initialize copies that take its values.

    Args:
      master: the session's target.
      is_chief: whether this is the chief.
      checkpoint_dir: directory of the chief's checkpoints; None for no checkpoints.
      scaffold: the scaffold; default: a new one.
      hooks: hooks for all workers, called after the standard ones.
      chief_only_hooks: hooks for the chief, called before the standard ones.
      save_checkpoint_secs: seconds between checkpoints; default 600, unless ``save_checkpoint_steps`` is given.
      save_summaries_steps: steps between summaries; default 100, unless ``save_summaries_secs`` is given.
      save_summaries_secs: seconds between summaries.
      config: the session's ConfigProto.
      stop_grace_period_secs: seconds that closing waits for threads.
      log_step_count_steps: steps between logs of the steps per second.
      max_wait_secs: seconds that a worker waits for the chief.
      save_checkpoint_steps: global steps between checkpoints.
      summary_dir: directory of the summaries; default: ``checkpoint_dir``.
      save_incremental_checkpoint_secs: as in `CheckpointSaverHook`.
    """
    scaffold = scaffold or Scaffold()
    workers: Any = get_default_graph().attachments.get(WORKERS)
    is_chief = is_chief if workers is None else workers.is_chief
    if not is_chief and workers is None:
        worker = WorkerSessionCreator(scaffold, master, config, max_wait_secs)
        return MonitoredSession(worker, hooks, stop_grace_period_secs)
    all_hooks = list_of_hooks(chief_only_hooks if is_chief else None)
    periods = _periods(save_summaries_steps, save_summaries_secs, (100, None))
    if is_chief and (summary_dir := summary_dir or checkpoint_dir):
        all_hooks += _summary_hooks(summary_dir, scaffold, log_step_count_steps, periods)
    all_hooks += _summaries_in_step(workers, scaffold, periods, is_chief and bool(summary_dir))
    if is_chief and checkpoint_dir:
        periods = _periods(save_checkpoint_steps, save_checkpoint_secs, (None, 600))
        all_hooks += _saver_hooks(checkpoint_dir, scaffold, periods, save_incremental_checkpoint_secs)
    all_hooks += list_of_hooks(hooks)
    creator = (ChiefSessionCreator if workers is None else _CopyCreator)(scaffold, master, config, checkpoint_dir)
    made = MonitoredSession if workers is None else workers.monitored_session
    return made(creator, all_hooks, stop_grace_period_secs)


def _saver_hooks(
    directory: str, scaffold: Scaffold, periods: tuple[int | None, float | None], incremental_secs: float | None
) -> list[SessionRunHook]:
    if not any(map(_positive, periods)):
        return []
    steps, secs = periods
    return [CheckpointSaverHook(directory, secs, steps, scaffold=scaffold, incremental_save_secs=incremental_secs)]


def _summaries_in_step(
    workers: Any, scaffold: Scaffold, periods: tuple[int | None, float | None], are_written: bool
) -> list[SessionRunHook]:
    """The hook of a worker that computes summaries and writes none, since their ops may be collectives of all workers.

    Args:
      are_written: whether this worker writes them anyway.
    """
    if workers is None:
        return []
    steps, secs = periods
    workers.check_summaries(secs)
    if are_written or not _positive(steps) or get_global_step() is None:
        return []
    return [workers.unwritten_summaries(steps, scaffold)]


def _summary_hooks(
    directory: str, scaffold: Scaffold, log_step_count_steps: int | None, periods: tuple[int | None, float | None]
) -> list[SessionRunHook]:  # fmt: skip
    hooks: list[SessionRunHook] = []
    if _positive(log_step_count_steps):
        hooks.append(StepCounterHook(every_n_steps=log_step_count_steps, output_dir=directory))
    if any(map(_positive, periods)):
        hooks.append(SummarySaverHook(*periods, directory, scaffold=scaffold))
    return hooks


def _positive(period: float | None) -> bool:
    return bool(period and period > 0)


def _periods(steps: Any, secs: Any, default: tuple[int | None, float | None]) -> tuple[int | None, float | None]:
    """The periods in steps and in seconds; the default applies only if neither is given."""
    if steps is USE_DEFAULT and secs is USE_DEFAULT:
        return default
    return (None if steps is USE_DEFAULT else steps), (None if secs is USE_DEFAULT else secs)
