"""``tf.train.Supervisor``: initializes or restores a model, runs services during its training, and ends it."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from threading import Thread
from typing import Any

from tfmini import dtypes, errors, protos
from tfmini.core_types import GraphTensor
from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.op_types import ops_with
from tfmini.graph.operation import Operation
from tfmini.graph.scoping import add_to_collection, get_collection
from tfmini.ops.control import group
from tfmini.ops.summary import merge_all
from tfmini.ops.tables import tables_initializer
from tfmini.ops.variables.functions import (
    global_variables,
    global_variables_initializer,
    local_variables_initializer,
    report_uninitialized_variables,
)
from tfmini.protos import ConfigProto, RunOptions, Summary
from tfmini.runtime.client.session import BaseSession
from tfmini.runtime.process import current_process
from tfmini.train.checkpointing.saver import Saver
from tfmini.train.coordinator import Coordinator, LooperThread
from tfmini.train.global_steps import global_step as value_of_global_step
from tfmini.train.hooks import write_steps_per_sec
from tfmini.train.saving_hooks import record_graph, save_checkpoint
from tfmini.train.sessions import readiness
from tfmini.train.sessions.readiness import close_quietly
from tfmini.train.sessions.session_manager import SessionManager
from tfmini.train.summary_writer import FileWriter

_log = logging.getLogger("tensorflow")
_LEAVE_S = 2.0  # for the threads of a process that was told to end: it is killed soon
_USE_DEFAULT = 0  # the default of arguments for which None means "none"
_LOGGED_FIRST = 10  # the number of times that the step counter logs its value


def _local_init_op() -> Operation:
    return group(local_variables_initializer(), tables_initializer())


def _global_step_tensor() -> Any:
    try:
        found = get_default_graph().get_tensor_by_name("global_step:0")
    except KeyError:
        return None
    if found.dtype.base_dtype not in (dtypes.int32, dtypes.int64):
        _log.warning("Found 'global_step' is not an int type: %s", found.dtype)
        return None
    return found


# Collection of an argument -> what makes its default if the collection is empty.
_DEFAULTS: dict[str, Callable[[], Any]] = {
    GraphKeys.READY_OP: report_uninitialized_variables,
    GraphKeys.READY_FOR_LOCAL_INIT_OP: lambda: None,
    GraphKeys.INIT_OP: global_variables_initializer,
    GraphKeys.LOCAL_INIT_OP: _local_init_op,
    GraphKeys.SAVERS: lambda: Saver() if global_variables() else None,
    GraphKeys.SUMMARY_OP: merge_all,
    GraphKeys.GLOBAL_STEP: _global_step_tensor,
}


def _chosen(value: object, key: str) -> Any:
    """The given value; by default the collection's first member, or a new one that is added to the collection."""
    if value is not _USE_DEFAULT:
        return value
    members = get_collection(key)
    if len(members) > 1:
        _log.info("Found %d %s operations. Returning the first one.", len(members), key)
    if members:
        return members[0]
    found = _DEFAULTS[key]()
    if found is not None:
        add_to_collection(key, found)
    return found


class _StepCounter(LooperThread):
    """Writes steps per second as the summary ``global_step/sec``, every ``save_summaries_secs``."""

    def __init__(self, sv: Supervisor, sess: BaseSession) -> None:
        super().__init__(sv.coord, sv.save_summaries_secs)
        self._sv = sv
        self._sess = sess
        self._logged = 0

    def _place(self) -> tuple[int, float]:
        return value_of_global_step(self._sess, self._sv.global_step), current_process().now()

    def start_loop(self) -> None:
        self._last_step, self._last_time = self._place()

    def run_loop(self) -> None:
        (step, now), before, started = self._place(), self._last_step, self._last_time
        self._last_step, self._last_time = step, now
        self._logged += 1
        tag, log = f"{self._sv.global_step.op.name}/sec", self._logged <= _LOGGED_FIRST
        write_steps_per_sec(self._sv.summary_writer, tag, step - before, now - started, step, log)


@export("tf.train.Supervisor")
class Supervisor:
    """Supervises the training of a model (``tf.train.Supervisor``)::

        sv = tf.train.Supervisor(is_chief=..., logdir="/tmp/train")
        with sv.managed_session(server.target) as sess:
            while not sv.should_stop():
                sess.run(train_op)

    The chief restores the latest checkpoint of ``logdir`` or initializes the model, and then periodically saves
    checkpoints and summaries; the other workers wait until the model is ready. The constructor adds all ops that
    the supervisor needs and finalizes the graph. If an argument is `USE_DEFAULT`, the supervisor looks it up in
    its collection, and creates it if it is not there; None disables it.

    Args:
      graph: the graph; default: the default graph.
      ready_op: a 1-D string tensor with the names of uninitialized variables.
      ready_for_local_init_op: the same for the variables that ``local_init_op`` reads; by default there is none.
      is_chief: whether this is the chief.
      init_op, init_feed_dict, init_fn: initialize the model; ``init_fn(session)`` comes last.
      local_init_op, local_init_run_options: an op to run in every session, and its RunOptions.
      logdir: directory of the chief's checkpoints and events; None for no services.
      summary_op: a string tensor with a serialized Summary.
      saver: the Saver.
      global_step: an integer tensor, for names of checkpoints and steps of summaries.
      save_summaries_secs, save_model_secs: periods in seconds; 0 for never.
      recovery_wait_secs: see `SessionManager`.
      stop_grace_secs: seconds that `stop` waits for threads.
      checkpoint_basename: checkpoints are ``<logdir>/<checkpoint_basename>-<step>``.
      session_manager: makes the sessions; default: a `SessionManager`.
      summary_writer: default: a FileWriter in ``logdir``.

    Attributes:
      is_chief, init_op, init_feed_dict, ready_op, ready_for_local_init_op, session_manager, summary_writer, summary_op,
        global_step, saver, save_summaries_secs, save_model_secs: the arguments, or what was chosen for them. The
        writer and the periods are None if this is not the chief.
      coord: the coordinator of the threads.
      save_path: prefix of the checkpoints, without the step.

    Raises:
      ValueError: when this is not the chief and a variable has no device.
    """

    USE_DEFAULT = _USE_DEFAULT

    def __init__(
        self,
        graph: Graph | None = None,
        ready_op: object = _USE_DEFAULT,
        ready_for_local_init_op: object = _USE_DEFAULT,
        is_chief: bool = True,
        init_op: object = _USE_DEFAULT,
        init_feed_dict: Mapping[Any, Any] | None = None,
        local_init_op: object = _USE_DEFAULT,
        logdir: str | None = None,
        summary_op: object = _USE_DEFAULT,
        saver: Any = _USE_DEFAULT,
        global_step: GraphTensor | int | None = _USE_DEFAULT,
        save_summaries_secs: float = 120,
        save_model_secs: float = 600,
        recovery_wait_secs: float = 30,
        stop_grace_secs: float = 120,
        checkpoint_basename: str = "model.ckpt",
        session_manager: SessionManager | None = None,
        summary_writer: FileWriter | int | None = _USE_DEFAULT,
        init_fn: Callable[[Any], Any] | None = None,
        local_init_run_options: RunOptions | None = None,
    ) -> None:
        self._graph = graph if graph is not None else get_default_graph()
        self.init_feed_dict, self._init_fn = init_feed_dict, init_fn
        with self._graph.as_default():
            self.ready_op = _chosen(ready_op, GraphKeys.READY_OP)
            self.ready_for_local_init_op = _chosen(ready_for_local_init_op, GraphKeys.READY_FOR_LOCAL_INIT_OP)
            self.init_op = _chosen(init_op, GraphKeys.INIT_OP)
            local_init_op = _chosen(local_init_op, GraphKeys.LOCAL_INIT_OP)
            self.saver = _chosen(saver, GraphKeys.SAVERS)
            self.summary_op = _chosen(summary_op, GraphKeys.SUMMARY_OP)
            self.global_step = _chosen(global_step, GraphKeys.GLOBAL_STEP)
        self.is_chief = is_chief
        self.coord = Coordinator()
        self._stop_grace_secs = stop_grace_secs
        # Only the chief writes checkpoints and events.
        self._logdir = logdir if is_chief else None
        self.save_summaries_secs = save_summaries_secs if is_chief else None
        self.save_model_secs = save_model_secs if is_chief else None
        self.save_path = os.path.join(logdir, checkpoint_basename) if is_chief and logdir else None
        self.summary_writer: Any = summary_writer if is_chief else None
        if is_chief and summary_writer is _USE_DEFAULT:
            self.summary_writer = FileWriter(logdir) if logdir else None
        self._graph_added_to_summary = False
        self._may_leave = False
        self.session_manager: Any = session_manager or SessionManager(
            local_init_op, self.ready_op, self.ready_for_local_init_op, self._graph, recovery_wait_secs,
            local_init_run_options,
        )  # fmt: skip
        self._check_devices()
        self._graph.finalize()

    def _check_devices(self) -> None:
        """Checks that every variable has a device, since replicas share variables."""
        if self.is_chief:
            return
        references = ops_with("variable", "reference")
        for op in self._graph.get_operations():
            if op.type in references and not op.device:
                raise ValueError(
                    f"When using replicas, all Variables must have their device set: '{op.name}' has none, so each"
                    " worker would have its own. Build the model inside"
                    " tf.device(tf.train.replica_device_setter(cluster=cluster)), or request a device for the variable."
                )

    # ---- the session ------------------------------------------------------------------------

    def prepare_or_wait_for_session(
        self,
        master: str = "",
        config: ConfigProto | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float | None = 7200,
        start_standard_services: bool = True,
    ) -> Any:
        """Makes a session with a ready model: the chief initializes or restores it, the other workers wait.

        Args:
          master: the session's target.
          config: the session's ConfigProto.
          wait_for_checkpoint: whether the chief waits for a checkpoint to restore.
          max_wait_secs: seconds to wait.
          start_standard_services: whether to start the services and the queue runners.

        Raises:
          The errors of `SessionManager.prepare_session` and `SessionManager.wait_for_session`.
          CancelledError: when another thread requests a stop during the wait.
        """
        self.coord.clear_stop()
        if self.summary_writer:
            self.summary_writer.reopen()
        manager = self.session_manager
        # A user's session manager may not support cancellation.
        more: dict[str, Any] = {"cancelled": self.should_stop} if isinstance(manager, SessionManager) else {}
        if self.is_chief:
            sess = manager.prepare_session(
                master,
                init_op=self.init_op,
                saver=self.saver,
                checkpoint_dir=self._logdir,
                wait_for_checkpoint=wait_for_checkpoint,
                max_wait_secs=max_wait_secs,
                config=config,
                init_feed_dict=self.init_feed_dict,
                init_fn=self._init_fn,
                **more,
            )
            self._write_graph()
            if start_standard_services:
                _log.info("Starting standard services.")
                self.start_standard_services(sess)
        else:
            sess = manager.wait_for_session(master, config=config, max_wait_secs=max_wait_secs, **more)
        if start_standard_services:
            _log.info("Starting queue runners.")
            self.start_queue_runners(sess)
        return sess

    def _write_graph(self) -> None:
        writer = None if self._graph_added_to_summary else self.summary_writer
        record_graph(self._graph, self._logdir, writer, self.saver)
        self._graph_added_to_summary = bool(self.summary_writer)

    @contextlib.contextmanager
    def managed_session(
        self,
        master: str = "",
        config: ConfigProto | None = None,
        start_standard_services: bool = True,
        close_summary_writer: bool = True,
    ) -> Iterator[Any]:
        """A context with a session of `prepare_or_wait_for_session`; its end stops the threads and the session.

        The end of the input (OutOfRangeError) ends it cleanly. Any other exception, of the block or of a thread,
        is raised after the threads have stopped and the session is closed.

        A SIGTERM, or a Ctrl-C that `tfmini launch` forwards, makes `should_stop` true; a block that does not ask is
        left after 4 s. A chief saves the model then, and SystemExit (143) or KeyboardInterrupt ends the process.

        Args:
          close_summary_writer: whether to close the summary writer at the end.
          The others are those of `prepare_or_wait_for_session`.
        """
        sess, is_told = None, True
        self._may_leave = readiness.begin()
        try:
            sess = self.prepare_or_wait_for_session(
                master=master, config=config, start_standard_services=start_standard_services
            )
            yield sess
        except Exception as error:  # `stop` raises it, unless it is a clean end
            self.request_stop(error)
        except BaseException as error:  # such as the SystemExit of a script's handler of SIGTERM
            is_told = isinstance(error, readiness.Left | readiness.Interrupted)
            if isinstance(self.session_manager, SessionManager):
                self.session_manager.fail_run(error)
                self.session_manager.leave_run()
            raise
        finally:
            is_leaving = self._is_leaving() and is_told
            try:
                if is_leaving:
                    self._leave(sess)
                self.stop(close_summary_writer=close_summary_writer)
            finally:
                # Closing also ends pending enqueues and dequeues.
                if sess is not None:
                    close_quietly(sess)
                if self._may_leave:
                    self._may_leave = False
                    readiness.end()
        if is_leaving:
            raise readiness.left()

    def _is_leaving(self) -> bool:
        return self._may_leave and readiness.is_wanted()

    def _leave(self, sess: BaseSession | None) -> None:
        """This process was told to end before the training has come to its end: a chief saves, and the others go on."""
        readiness.last_step_is_over()
        self.request_stop()
        if isinstance(self.session_manager, SessionManager):
            self.session_manager.leave_run()
        with contextlib.suppress(Exception):  # `stop` raises what a thread has raised
            # First, since a thread may be saving an older step.
            self.coord.join(stop_grace_period_secs=_LEAVE_S, ignore_live_threads=True)
        if sess is not None and self.saver and self.save_path:
            try:
                self._save_model(sess)
            except errors.OpError as error:  # such as a lost ps; the threads may have failed as well
                _log.warning("The model was not saved at the end: %s", errors.without_tags(error.message))

    # ---- services ---------------------------------------------------------------------------

    def start_standard_services(self, sess: BaseSession) -> list[Thread] | None:
        """Starts the chief's threads for summaries, step counts and checkpoints; returns None without ``logdir``.

        Raises:
          RuntimeError: when this is not the chief.
        """
        if not self.is_chief:
            raise RuntimeError(
                "Only chief supervisor can start standard services. Because only chief supervisors can write events."
            )
        if not self._logdir:
            _log.warning("Standard services need a 'logdir' passed to the SessionManager")
            return None
        if self.global_step is not None and self.summary_writer:
            step = value_of_global_step(sess, self.global_step)
            self.summary_writer.add_session_log(protos.SessionLog(status=protos.SessionLog.START), step)
        threads: list[Thread] = []
        if self.save_summaries_secs and self.summary_writer:
            if self.summary_op is not None:
                threads.append(LooperThread(self.coord, self.save_summaries_secs, self._summarize, [sess]))
            if self.global_step is not None:
                threads.append(_StepCounter(self, sess))
        if self.saver and self.save_model_secs:
            threads.append(LooperThread(self.coord, self.save_model_secs, self._save_model, [sess]))
        for thread in threads:
            thread.start()
        return threads

    def _summarize(self, sess: BaseSession) -> None:
        fetches = [self.summary_op] if self.global_step is None else [self.summary_op, self.global_step]
        try:
            summaries, *step = sess.run(fetches)
        except errors.InvalidArgumentError as error:
            error.explain(
                "The supervisor's summary thread ran this, without feeds. Give the Supervisor summary_op=None, and"
                " write summaries that need feeds by sv.summary_computed()."
            )
            raise
        _log.info("Recording summary at step %s.", *(step or [None]))
        self.summary_writer.add_summary(summaries, *step)

    def _save_model(self, sess: BaseSession) -> None:
        _log.info("Saving checkpoint to path %s", self.save_path)
        writer = None if self.global_step is None else self.summary_writer
        save_checkpoint(sess, self.saver, self.save_path, self.global_step, writer)

    def start_queue_runners(self, sess: BaseSession, queue_runners: Sequence[Any] | None = None) -> list[Thread]:
        """Starts the threads of queue runners (default: all in the graph) and returns the threads."""
        if queue_runners is None:
            queue_runners = self._graph.get_collection(GraphKeys.QUEUE_RUNNERS)
        threads: list[Thread] = []
        for runner in queue_runners:
            threads.extend(runner.create_threads(sess, coord=self.coord, daemon=True, start=True))
        return threads

    def loop(
        self,
        timer_interval_secs: float | None,
        target: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> LooperThread:
        """Starts a thread that calls ``target`` every ``timer_interval_secs`` (None: without pause) until the stop."""
        return LooperThread.loop(self.coord, timer_interval_secs, target, args, kwargs)

    def summary_computed(self, sess: BaseSession, summary: Summary | bytes, global_step: int | None = None) -> None:
        """Writes a summary, by default at the session's global step.

        Raises:
          RuntimeError: when there is no summary writer.
        """
        if not self.summary_writer:
            raise RuntimeError("Writing a summary requires a summary writer.")
        if global_step is None and self.global_step is not None:
            global_step = value_of_global_step(sess, self.global_step)
        self.summary_writer.add_summary(summary, global_step)

    # ---- the end ----------------------------------------------------------------------------

    def stop(
        self,
        threads: Sequence[Thread] | None = None,
        close_summary_writer: bool = True,
        ignore_live_threads: bool = False,
    ) -> None:
        """Stops the threads and waits for them; the session stays open.

        Args:
          threads: threads to wait for in addition to the supervisor's own.
          close_summary_writer: whether to close the summary writer.
          ignore_live_threads: only log threads that run after the grace period.

        Raises:
          The exception of a thread or of `request_stop`, if there was one.
        """
        self.coord.request_stop()
        try:
            self.coord.join(
                threads, stop_grace_period_secs=self._stop_grace_secs, ignore_live_threads=ignore_live_threads
            )
            if isinstance(self.session_manager, SessionManager):
                self.session_manager.end_run()
        except BaseException as error:
            if isinstance(self.session_manager, SessionManager):
                self.session_manager.fail_run(error)
            raise
        finally:
            # Last, since the threads use the writer.
            if close_summary_writer and self.summary_writer:
                self.summary_writer.add_session_log(protos.SessionLog(status=protos.SessionLog.STOP))
                self.summary_writer.close()
                self._graph_added_to_summary = False

    def request_stop(self, ex: BaseException | tuple[Any, Any, Any] | None = None) -> None:
        """Calls `Coordinator.request_stop`."""
        self.coord.request_stop(ex=ex)

    def should_stop(self) -> bool:
        """Whether a stop was requested, or the process was told to end inside `managed_session`."""
        return self.coord.should_stop() or self._is_leaving()

    def stop_on_exception(self) -> AbstractContextManager[None]:
        """`Coordinator.stop_on_exception`."""
        return self.coord.stop_on_exception()

    def wait_for_stop(self) -> None:
        """Waits until a stop is requested."""
        self.coord.wait_for_stop()

    # TensorFlow's older names.
    PrepareSession = prepare_or_wait_for_session
    StartQueueRunners = start_queue_runners
    StartStandardServices = start_standard_services
    Stop = stop
    RequestStop = request_stop
    Loop = loop
    ShouldStop = should_stop
    StopOnException = stop_on_exception
    WaitForStop = wait_for_stop
    SummaryComputed = summary_computed
