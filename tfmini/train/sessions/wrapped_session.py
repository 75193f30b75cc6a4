"""The layers of a monitored session: ``Recoverable(Coordinated(Hooked(tf.Session)))``.

The inner layer calls the hooks, the middle one has the coordinator, and the outer one recovers from lost tasks.
Each layer can stop the loop, and ``close`` passes through all layers.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from tfmini import errors, protos
from tfmini.exit_codes import ExitCode
from tfmini.export import export_names
from tfmini.graph.graph import Graph
from tfmini.graph.op_types import PLACEHOLDER_OPS
from tfmini.graph.operation import Operation, Tensor, op_of
from tfmini.graph.prune import traverse
from tfmini.protos import ConfigProto, RunMetadata, RunOptions
from tfmini.runtime.client.fetches import Fetches
from tfmini.runtime.client.session import BaseSession, of_finished, run_without
from tfmini.runtime.process import current_process
from tfmini.train.coordinator import Coordinator
from tfmini.train.session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
from tfmini.train.sessions import readiness
from tfmini.train.sessions.readiness import close_quietly

# ---- repetition ----------------------------------------
# Repeating a step after the loss of a task or a connection, without the updates that the step has made already.

__all__ = ["PREEMPTION_ERRORS", "Attempts", "of_finished_step", "of_no_step", "run_without"]

# A task was restarted or cannot be reached.
PREEMPTION_ERRORS = (errors.AbortedError, errors.UnavailableError)


class Attempts:
    """The failed attempts at one step."""

    def __init__(self) -> None:
        self._made: frozenset[str] = frozenset()
        self._unfinished: Any = None
        self._model = ""

    def failed(self, error: errors.OpError, model: str) -> None:
        """An attempt has failed.

        Args:
          model: the identifier of the model's values, see `SessionManager`.
        """
        # While a session is made, or a task asked, nothing is updated.
        if error.unfinished is not None:
            self._unfinished, self._model = error.unfinished, model

    def updates_made(self, model: str) -> frozenset[str]:
        """The updates that the attempts have made: none where the model has got other values since.

        Raises:
          The errors of `UnfinishedStep.updates_made`.
        """
        if model != self._model:
            self._made = frozenset()
        elif self._unfinished is not None:
            self._made |= self._unfinished.updates_made()
        self._unfinished, self._model = None, model
        return self._made


@contextmanager
def of_no_step() -> Iterator[None]:
    """An error in the block has nothing to do with the step itself."""
    try:
        yield
    except (errors.OpError, RuntimeError) as error:  # closed sessions raise the latter
        _set_unfinished(error, None)
        raise


@contextmanager
def of_finished_step(
    session: BaseSession, fetches: object, feed_dict: Mapping[Any, Any], omitted: frozenset[str]
) -> Iterator[None]:
    """An error in the block comes after the step, which has made all its updates."""
    try:
        yield
    except (errors.OpError, RuntimeError) as error:  # closed sessions raise the latter
        # A user's session may be no `tf.Session`.
        is_known = hasattr(session, "_find_call")
        _set_unfinished(error, of_finished(session, fetches, feed_dict, omitted) if is_known else None)
        raise


def _set_unfinished(error: Exception, unfinished: Any) -> None:
    """Sets the ``unfinished`` of any error: a thread's loss of a task closes the session, and other errors follow."""
    error.unfinished = unfinished  # type: ignore[attr-defined]


# ---- run state ----------------------------------------
# The state that a run keeps beside the variables of its model, such as tokens: how it follows the model's values.

RUN_HAS_ENDED = "The synchronous run has ended"
"""The beginning of the reason for an OutOfRangeError that is no failure of the worker."""
STARTED = "a chief ends its run at exit"
NEXT_RUN_S = 10.0
"""Seconds for which a worker that finds a run ended waits for the next one."""


_LONGEST_CAUSE = 1000  # characters of an error's text; the task that failed shows all of it


def fails_run(error: BaseException | None) -> bool:
    """Whether an exception that ends a worker's part of a run is a failure of its script.

    A worker that has lost a task, or was told to end, may come back and go on.
    """
    if isinstance(error, SystemExit):
        return error.code not in (None, 0, ExitCode.LEFT)
    # The rest are KeyboardInterrupt and the end of a generator.
    return isinstance(error, Exception) and not isinstance(error, PREEMPTION_ERRORS)


def cause_of(error: BaseException) -> str:
    """One text that names an exception, its op and its message, for the tasks where it was not raised."""
    text = error.message if isinstance(error, errors.OpError) else str(error)
    op = getattr(error, "op", None)
    kind = type(error).__name__ if op is None else f"{type(error).__name__} in op {op.name!r}"
    return f"{kind}: {text if len(text) <= _LONGEST_CAUSE else text[:_LONGEST_CAUSE] + ' …'}"


class RunState(Protocol):
    """State of a run on other tasks. Its methods are called on the chief, but for `fail` and `has_ended`.

    The methods take a session of the model and its ConfigProto, and raise the errors of a session.
    """

    def is_whole(self, session: BaseSession, config: ConfigProto) -> bool:
        """Whether the state and the model belong together; False if a chief ended in the middle of an update."""
        ...

    def renew(self, session: BaseSession, config: ConfigProto) -> None:
        """Begins anew, because the model has been initialised or restored."""
        ...

    def has_ended(self, session: BaseSession, config: ConfigProto) -> bool:
        """Whether the run has ended, and no chief has begun another; False if something else waits for that."""
        ...

    def end(self, master: str, config: ConfigProto) -> None:
        """Tells the workers, also those that come later, that the run has ended in good order."""
        ...

    def fail(self, master: str, config: ConfigProto, is_chief: bool, error: BaseException) -> None:
        """Tells the workers that this one has failed, with an error for which `fails_run` holds."""
        ...

    def leave(self, session: BaseSession) -> None:
        """This worker goes before its end: a run that goes on does not wait for what it has."""
        ...


def add_run_state(graph: Graph, state: RunState) -> None:
    """Makes the session managers of a graph take care of a state."""
    graph.attachments.setdefault(RunState, []).append(state)


def end_at_exit(graph: Graph, end_run: Callable[[], None], fail_run: Callable[[BaseException], None]) -> None:
    """Calls one of both when the process ends, without an exception or with one, if the run has states.

    Many scripts with a supervisor neither stop it nor close their session.
    """

    def exiting() -> None:
        # Set by an exception that nobody has handled.
        error = getattr(sys, "last_value", None)
        if error is not None:
            fail_run(error)
        else:
            end_run()

    if run_states(graph) and STARTED not in graph.attachments:
        graph.attachments[STARTED] = current_process().at_exit(exiting)


def forget_exit(graph: Graph) -> None:
    """Takes back `end_at_exit`, which keeps the graph in memory: its run has ended."""
    forget = graph.attachments.pop(STARTED, None)
    if forget is not None:
        forget()


def run_states(graph: Graph) -> tuple[RunState, ...]:
    """The states of a graph."""
    return tuple(graph.attachments.get(RunState, ()))


# ---- Merging of the RunOptions of the caller and the hooks of a run ------------------------------------------------


def merge_run_options(options: RunOptions, incoming: RunOptions) -> None:
    """Merges ``incoming`` into ``options``: the maximum of numbers, the "or" of flags, all watched tensors."""
    for field in ("trace_level", "timeout_in_ms", "inter_op_thread_pool"):
        setattr(options, field, max(getattr(options, field), getattr(incoming, field)))
    for field in ("output_partition_graphs", "report_tensor_allocations_upon_oom"):
        setattr(options, field, getattr(options, field) or getattr(incoming, field))
    debug, more = options.debug_options, incoming.debug_options
    debug.debug_tensor_watch_opts.extend(more.debug_tensor_watch_opts)
    debug.reset_disk_byte_usage = debug.reset_disk_byte_usage or more.reset_disk_byte_usage


# ---- The layers around a session: hooks, coordination, recovery ----------------------------------------------------

_log = logging.getLogger("tensorflow")
# A new session is needed.
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.05, 1.0
_LOG_AGAIN_S = 30.0
MAX_RECOVERY_S = 7200.0


export_names(
    "tensorflow.python.training.monitored_session",
    "_CoordinatedSession _HookedSession _RecoverableSession _WrappedSession",
)


class StepContext:
    """The argument of a ``step_fn`` for ``run_step_fn``."""

    def __init__(self, session: BaseSession, run_with_hooks_fn: Callable[..., Any]) -> None:
        self._session = session
        self._run_with_hooks_fn = run_with_hooks_fn

    @property
    def session(self) -> Any:
        """The session without hooks."""
        return self._session

    def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
        """The monitored session's ``run``."""
        return self._run_with_hooks_fn(*args, **kwargs)

    def request_stop(self) -> None:
        """Ends the ``step_fn`` and the loop.

        Raises:
          StopIteration: always; the monitored session's ``with`` block handles it.
        """
        raise StopIteration("step_fn has requested the iterations to stop.")


class _WrappedSession:
    """Base class of the layers, which wrap a session or another layer."""

    def __init__(self, sess: Any) -> None:
        self._sess = sess
        self._wrapped_is_stoppable = isinstance(sess, _WrappedSession)

    @property
    def graph(self) -> Any:
        """The session's graph."""
        return self._sess.graph

    @property
    def sess_str(self) -> Any:
        """The session's target."""
        return self._sess.sess_str

    def should_stop(self) -> bool:
        """Whether the loop should end or the session is closed."""
        if self._check_stop() or not self._sess:
            return True
        return self._wrapped_is_stoppable and self._sess.should_stop()

    def _check_stop(self) -> bool:
        """Whether this layer wants to stop; subclasses override it."""
        return False

    def close(self) -> None:
        """Closes the session; an error about a lost task is only logged."""
        if not self._sess:
            return
        try:
            self._sess.close()
        except PREEMPTION_ERRORS as error:
            _log.warning("While closing the session, a task of the cluster was restarted or lost: %s", error)
        finally:
            self._sess = None

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """`tf.Session.run`."""
        return self._sess.run(*args, **kwargs)

    def run_step_fn(
        self, step_fn: Callable[..., Any], raw_session: BaseSession, run_with_hooks: Callable[..., Any] | None
    ) -> Any:
        """Calls ``step_fn`` with a `StepContext` that uses ``run_with_hooks``, by default this layer's `run`."""
        return step_fn(StepContext(raw_session, run_with_hooks or self.run))


class _HookedSession(_WrappedSession):
    """Calls hooks before and after every run, in the order of the list."""

    def __init__(self, sess: Any, hooks: Sequence[SessionRunHook]) -> None:
        super().__init__(sess)
        self._hooks = hooks
        self._should_stop = False
        self._omitted: frozenset[str] = frozenset()

    def _check_stop(self) -> bool:
        return self._should_stop

    def omit(self, updates: frozenset[str]) -> None:
        """Leaves updates out of the next step, because an earlier attempt at the step has made them."""
        self._omitted = updates

    def run(
        self,
        fetches: object,
        feed_dict: Mapping[Any, Any] | None = None,
        options: RunOptions | None = None,
        run_metadata: RunMetadata | None = None,
    ) -> Any:
        """Runs the fetches of the caller and of all hooks in one step.

        Raises:
          RuntimeError: when a stop was requested before, or the same tensor is fed twice.
        """
        if self.should_stop():
            raise RuntimeError("Run called even after should_stop requested.")
        options = options or protos.RunOptions()
        run_metadata = run_metadata or protos.RunMetadata()
        context = SessionRunContext(SessionRunArgs(fetches, feed_dict), self._sess)
        all_fetches = {"caller": fetches}
        with of_no_step():
            feed_dict = self._before_run(context, all_fetches, feed_dict, options)
        omitted, self._omitted = self._omitted, frozenset()
        try:
            if omitted:
                outputs = run_without(self._sess, omitted, all_fetches, feed_dict, options)
            else:
                outputs = super().run(all_fetches, feed_dict=feed_dict, options=options, run_metadata=run_metadata)
        except errors.InvalidArgumentError as error:
            if error.op is not None and error.op.type in PLACEHOLDER_OPS:
                _name_hooks(error, all_fetches, feed_dict)
            raise
        with of_finished_step(self._sess, all_fetches, feed_dict, omitted):
            for hook in self._hooks:
                hook.after_run(context, SessionRunValues(outputs.get(hook), options, run_metadata))
        self._should_stop = self._should_stop or context.stop_requested
        return outputs["caller"]

    def _before_run(
        self,
        context: SessionRunContext,
        fetches: dict[Any, Any],
        user_feeds: Mapping[Any, Any] | None,
        options: RunOptions,
    ) -> Any:
        """Adds the hooks' fetches and options to ``fetches`` and ``options``; returns all feeds."""
        hook_feeds: dict[Any, Any] = {}
        for hook in self._hooks:
            request = hook.before_run(context)
            if request is None:
                continue
            if request.fetches is not None:
                fetches[hook] = request.fetches
            if request.feed_dict:
                _refuse_common(hook_feeds, request.feed_dict, "Same tensor is fed by two hooks.")
                hook_feeds.update(request.feed_dict)
            if request.options:
                merge_run_options(options, request.options)
        if not hook_feeds:
            return user_feeds
        if user_feeds:
            _refuse_common(user_feeds, hook_feeds, "Same tensor is fed by a SessionRunHook and user.")
            hook_feeds.update(user_feeds)
        return hook_feeds


def _name_hooks(error: errors.OpError, all_fetches: dict[Any, Any], feed_dict: Mapping[Any, Any]) -> None:
    """Adds to an error about a placeholder without a value which hooks need it, if the caller does not."""
    fed = {op_of(error.op.graph.as_graph_element(key)) for key in feed_dict or ()}
    wanting = [who for who, fetches in all_fetches.items() if _needs(fetches, error.op, fed)]
    if wanting and "caller" not in wanting:
        names = " and ".join(type(hook).__name__ for hook in wanting)
        error.explain(
            f"Nothing that this run fetches needs '{error.op.name}', but {names} does, which adds fetches of its own to"
            " some runs (as for summaries): feed it in every run, or make it a tf.placeholder_with_default."
        )


def _needs(fetches: object, wanted: Tensor | Operation, fed: set[Any]) -> bool:
    """Whether a step for ``fetches`` runs the op ``wanted``."""
    found = Fetches(wanted.graph, fetches)

    def sources(op: Operation) -> list[Operation]:
        return [] if op in fed else [*(tensor.op for tensor in op.inputs), *op._control_inputs]

    return any(op is wanted for op in traverse([*found.targets, *(tensor.op for tensor in found.tensors)], sources))


def _refuse_common(feeds: Mapping[Any, Any], more: Mapping[Any, Any], message: str) -> None:
    common = set(feeds) & set(more)
    if common:
        raise RuntimeError(f"{message} Conflict(s): {list(common)}")


class _CoordinatedSession(_WrappedSession):
    """Ends when a coordinator stops, and raises the exceptions of the coordinator's threads."""

    def __init__(self, sess: Any, coord: Coordinator, stop_grace_period_secs: float = 120) -> None:
        super().__init__(sess)
        self._coord = coord
        self._stop_grace_period_secs = stop_grace_period_secs
        self._is_busy = False
        coord._on_error = self._thread_failed

    def _thread_failed(self, error: BaseException) -> None:
        """Ends the action that runs: it may wait for the thread, such as the one that applies the updates."""
        if self._is_busy and isinstance(error, PREEMPTION_ERRORS):
            inner = self._sess
            while isinstance(inner, _WrappedSession):
                inner = inner._sess
            close_quietly(inner)

    def _check_stop(self) -> bool:
        self._coord.raise_requested_exception()
        return bool(self._coord.should_stop())

    def close(self) -> None:
        """Stops and joins the threads, then closes the session.

        Raises:
          The exception of a thread, if one failed.
        """
        self._coord.request_stop()
        try:
            self._coord.join(stop_grace_period_secs=self._stop_grace_period_secs, ignore_live_threads=True)
        finally:
            try:
                super().close()
            except Exception as error:  # a consequence of the exception that `join` raised
                _log.debug("Closing a session failed: %s", error)

    def omit(self, updates: frozenset[str]) -> None:
        """`_HookedSession.omit`."""
        self._sess.omit(updates)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(self._sess.run, *args, **kwargs)

    def call(self, action: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls ``action``; if a thread meets a lost task before or meanwhile, ends it with the thread's error."""
        self._is_busy = True  # before it looks for an error, so that no error comes unseen in between
        try:
            if self._coord._exc_info_to_raise is not None:  # a look without a lock, for every step makes it
                self._raise_preemption_of_thread(None)
            return action(*args, **kwargs)
        except PREEMPTION_ERRORS:
            raise
        except Exception as error:  # it may be a consequence of a preemption that a thread met
            self._raise_preemption_of_thread(getattr(error, "unfinished", None))
            raise
        finally:
            self._is_busy = False

    def _raise_preemption_of_thread(self, unfinished: Any) -> None:
        """Raises the error of a thread that met a lost task; ``unfinished``: of the caller's own step."""
        try:
            self._coord.raise_requested_exception()
        except PREEMPTION_ERRORS as error:
            error.unfinished = unfinished
            raise
        except Exception as error:  # not the root cause of the caller's error, which is raised instead
            _log.debug("A thread also failed: %s", error)


class _RecoverableSession(_WrappedSession):
    """Makes a new session when a task of the cluster was restarted or cannot be reached.

    Args:
      sess_creator: makes the inner layers with ``create_session``, which is retried for ``max_recovery_s``.
    """

    def __init__(self, sess_creator: Any) -> None:
        self._sess_creator = sess_creator
        self._max_recovery_s = getattr(sess_creator, "max_recovery_s", MAX_RECOVERY_S)
        super().__init__(self._create_session())

    def _create_session(self) -> Any:
        """Makes a session; retries while tasks are not reachable.

        Raises:
          The last error, after ``max_recovery_s``.
        """
        process = current_process()
        begin = process.now()
        logged_at, pause_s, long = float("-inf"), _FIRST_PAUSE_S, readiness.LongWait()
        while True:
            try:
                with of_no_step():
                    return self._sess_creator.create_session()
            except PREEMPTION_ERRORS as error:
                if readiness.is_wanted():
                    raise SystemExit(ExitCode.LEFT) from error
                now = process.now()
                if now - begin >= self._max_recovery_s:
                    raise
                if now - logged_at >= _LOG_AGAIN_S:
                    logged_at = now
                    _log.info("A session could not be created; retrying: %s", error)
                long.look(partial("trying to create a session: {}".format, errors.without_tags(error.message)))
            process.sleep(pause_s)
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)

    def should_stop(self) -> bool:
        """Whether the loop should end or the session is closed; a lost task leads to a new session instead."""
        try:
            return not self._sess or self._sess.should_stop()
        except PREEMPTION_ERRORS as error:
            self._note(error)
            self._close_lost()
            # If a thread of the new session fails already, the next `run` recovers from that.
            self._sess = self._create_session()
            return False
        except Exception:  # `should_stop` only ends the loop; `close` raises the exception
            return True

    def run(
        self,
        fetches: object,
        feed_dict: Mapping[Any, Any] | None = None,
        options: RunOptions | None = None,
        run_metadata: RunMetadata | None = None,
    ) -> Any:
        """As `tf.Session.run`; repeated in a new session when a task was restarted or lost."""
        return self._recovering(
            lambda: self._sess.run(fetches, feed_dict=feed_dict, options=options, run_metadata=run_metadata)
        )

    def run_step_fn(
        self, step_fn: Callable[..., Any], raw_session: BaseSession, run_with_hooks: Callable[..., Any] | None
    ) -> Any:
        before = self._sess

        def step() -> Any:
            # After a recovery the session without hooks has also changed.
            raw = raw_session if self._sess is before else getattr(self._sess_creator, "tf_sess", raw_session)
            return self._sess.run_step_fn(step_fn, raw, self._sess.run)

        return self._recovering(step)

    def _recovering(self, action: Callable[[], Any]) -> Any:
        attempts = Attempts()
        while True:
            try:
                if not self._sess:
                    self._sess = self._create_session()
                updates = attempts.updates_made(self._model())
                if updates:
                    self._sess.omit(updates)
                return action()
            except PREEMPTION_ERRORS as error:
                attempts.failed(error, self._model())
                if readiness.is_wanted():  # too late to wait for the lost task
                    raise SystemExit(ExitCode.LEFT) from error
                self._note(error)
                self._close_lost()

    def _model(self) -> str:
        return getattr(self._sess_creator, "model", "")

    def _close_lost(self) -> None:
        try:
            self.close()
        except Exception as error:  # threads of the lost session may have failed as a consequence
            _log.debug("Closing a lost session failed: %s", error)
        self._sess = None

    @staticmethod
    def _note(error: errors.OpError) -> None:
        _log.info(
            "A task of the cluster was restarted or cannot be reached. Closing the session; the next one restores the"
            " model or waits for it: %s",
            error,
        )
