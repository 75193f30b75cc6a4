"""``tf.train.MonitoredSession``: a session with hooks, queue runners, a clean end, and recovery."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from tfmini import errors
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.keys import GraphKeys
from tfmini.ops.scoping import get_collection
from tfmini.train import wrapped_session
from tfmini.train.coordinator import Coordinator
from tfmini.train.queue_runners import start_queue_runners
from tfmini.train.session_creators import ChiefSessionCreator, SessionCreator
from tfmini.train.session_run_hook import SessionRunHook
from tfmini.train.wrapped_session import _CoordinatedSession, _HookedSession, _RecoverableSession

# What ends a `with` block as well as its last line does: the input is exhausted, or a step_fn wants the end.
_CLEAN_ENDS = (errors.OutOfRangeError, StopIteration)


class CoordinatedSessionCreator(SessionCreator):
    """Makes the inner two layers: a session with queue runners started and hooks told.

    Attributes:
      tf_sess: the latest session itself.
      coord: its coordinator.
    """

    def __init__(
        self, session_creator: SessionCreator, hooks: list[SessionRunHook], stop_grace_period_secs: float
    ) -> None:
        self._session_creator = session_creator
        # A creator of the caller's own need not be a subclass.
        self.max_recovery_s = getattr(session_creator, "max_recovery_s", SessionCreator.max_recovery_s)
        self._hooks = hooks
        self._stop_grace_period_secs = stop_grace_period_secs
        self.coord: Coordinator | None = None
        self.tf_sess: Any = None

    def create_session(self) -> _CoordinatedSession:
        sess = self.tf_sess = self._session_creator.create_session()
        # No exception type is clean to it: the end of the input is to reach the loop.
        coord = self.coord = Coordinator(clean_stop_exception_types=[])
        coordinated = _CoordinatedSession(_HookedSession(sess, self._hooks), coord, self._stop_grace_period_secs)
        try:
            if get_collection(GraphKeys.QUEUE_RUNNERS):
                start_queue_runners(sess=sess, coord=coord)
            for hook in self._hooks:
                hook.after_create_session(sess, coord)
        except wrapped_session.PREEMPTION_ERRORS:
            # The next attempt starts its own threads and session: these must not outlive this one.
            coord.clear_stop()
            coordinated.close()
            raise
        return coordinated


class _MonitoredSession:
    """What `MonitoredSession` and `SingularMonitoredSession` share."""

    StepContext = wrapped_session.StepContext

    def __init__(
        self,
        session_creator: SessionCreator | None,
        hooks: Iterable[SessionRunHook] | None,
        should_recover: bool,
        stop_grace_period_secs: float = 120,
    ) -> None:
        self._graph_was_finalized = get_default_graph().finalized
        self._hooks = list(hooks or ())
        for hook in self._hooks:
            hook.begin()
        creator = session_creator or ChiefSessionCreator()
        self._coordinated_creator = CoordinatedSessionCreator(creator, self._hooks, stop_grace_period_secs)
        self._sess: Any
        if should_recover:
            self._sess = _RecoverableSession(self._coordinated_creator)
        else:
            self._sess = self._coordinated_creator.create_session()

    @property
    def graph(self) -> Any:
        """The session's graph; None when closed."""
        sess = self._tf_sess()
        return None if sess is None else sess.graph

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """As `tf.Session.run`, with hooks."""
        return self._sess.run(fetches, feed_dict=feed_dict, options=options, run_metadata=run_metadata)

    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        """Calls ``step_fn(step_context)``, which may run with hooks or without, and returns its result.

        Raises:
          StopIteration: when it calls ``step_context.request_stop()``.
          ValueError: when it takes anything but ``step_context`` (and ``self``).
        """
        names = _argument_names(step_fn)
        if names not in (("step_context",), ("self", "step_context")):
            raise ValueError(
                "`step_fn` may either have one `step_context` argument, or `self` and `step_context` arguments if it's"
                f" an instance method. Got {names} instead."
            )
        return self._sess.run_step_fn(step_fn, self._tf_sess(), run_with_hooks=None)

    def should_stop(self) -> bool:
        """Whether the loop is over."""
        return self._sess is None or self._sess.should_stop()

    def close(self) -> None:
        """Tells the hooks, stops the threads and closes the session.

        Raises:
          RuntimeError: when it is closed already.
          what a thread of the session failed with.
        """
        self._close_internal()

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if kind in _CLEAN_ENDS:
            kind = None
        self._close_internal(kind)
        return kind is None

    def _close_internal(self, exception_type: type[BaseException] | None = None) -> None:
        try:
            if exception_type is None:
                for hook in self._hooks:
                    hook.end(self._coordinated_creator.tf_sess)
        finally:
            try:
                if self._sess is None:
                    raise RuntimeError("Session is already closed.")
                self._sess.close()
            finally:
                self._sess = None
                self._coordinated_creator.tf_sess = None
                self._coordinated_creator.coord = None
                if not self._graph_was_finalized:
                    get_default_graph()._unsafe_unfinalize()

    def _is_closed(self) -> bool:
        return self._coordinated_creator.tf_sess is None

    def _tf_sess(self) -> Any:
        return self._coordinated_creator.tf_sess


def _argument_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a callable's arguments; of a bound method's without ``self``."""
    return tuple(inspect.signature(function).parameters)


class MonitoredSession(_MonitoredSession):
    """A session for a training loop (``tf.train.MonitoredSession``)::

        with tf.train.MonitoredSession(session_creator=..., hooks=[...]) as sess:
            while not sess.should_stop():
                sess.run(train_op)

    It finalizes the graph, initialises or restores the model or waits for that, starts the queue
    runners, and calls the hooks. When a task of the cluster is restarted or gone (AbortedError,
    UnavailableError), it makes a new session the same way and runs the step again. An
    OutOfRangeError ends the ``with`` block cleanly. It is no `tf.Session`: it cannot be the default
    session, nor be given to a Saver.

    Args:
      session_creator: default: a `ChiefSessionCreator`.
      hooks: called in this order.
      stop_grace_period_secs: how long closing waits for threads.
    """

    def __init__(
        self,
        session_creator: SessionCreator | None = None,
        hooks: Iterable[SessionRunHook] | None = None,
        stop_grace_period_secs: float = 120,
    ) -> None:
        super().__init__(session_creator, hooks, True, stop_grace_period_secs)


class SingularMonitoredSession(_MonitoredSession):
    """A monitored session of one process: as a chief, without recovery (``tf.train.SingularMonitoredSession``).

    Args:
      hooks: called in this order.
      scaffold, master, config, checkpoint_dir, checkpoint_filename_with_path: of its `ChiefSessionCreator`.
      stop_grace_period_secs: how long closing waits for threads.
    """

    def __init__(
        self,
        hooks: Iterable[SessionRunHook] | None = None,
        scaffold: Any = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: str | None = None,
        stop_grace_period_secs: float = 120,
        checkpoint_filename_with_path: str | None = None,
    ) -> None:
        creator = ChiefSessionCreator(scaffold, master, config, checkpoint_dir, checkpoint_filename_with_path)
        super().__init__(creator, hooks, False, stop_grace_period_secs)

    def raw_session(self) -> Any:
        """The `tf.Session` itself: for runs without hooks, and to save and restore."""
        return self._tf_sess()
