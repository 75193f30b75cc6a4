"""``tf.train.Supervisor``: initializes or restores a model, runs services during its training, and ends it."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from threading import Thread
from typing import Any

from tfmini import protos
from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.keys import GraphKeys
from tfmini.graph.traits import ops_with
from tfmini.train.checkpointing.graph_files import export_meta_graph, write_training_graph
from tfmini.train.coordinator import Coordinator, LooperThread
from tfmini.train.global_steps import global_step as value_of_global_step
from tfmini.train.sessions import supervisor_defaults as defaults
from tfmini.train.sessions.readiness_wait import close_quietly
from tfmini.train.sessions.session_manager import SessionManager
from tfmini.train.sessions.supervisor_threads import SVStepCounterThread, SVSummaryThread, SVTimerCheckpointThread
from tfmini.train.summaries.summary_writer import FileWriter

_log = logging.getLogger("tensorflow")


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

    Raises:
      ValueError: when this is not the chief and a variable has no device.
    """

    USE_DEFAULT = defaults.USE_DEFAULT

    def __init__(
        self,
        graph: Graph | None = None,
        ready_op: Any = defaults.USE_DEFAULT,
        ready_for_local_init_op: Any = defaults.USE_DEFAULT,
        is_chief: bool = True,
        init_op: Any = defaults.USE_DEFAULT,
        init_feed_dict: Any = None,
        local_init_op: Any = defaults.USE_DEFAULT,
        logdir: str | None = None,
        summary_op: Any = defaults.USE_DEFAULT,
        saver: Any = defaults.USE_DEFAULT,
        global_step: Any = defaults.USE_DEFAULT,
        save_summaries_secs: float = 120,
        save_model_secs: float = 600,
        recovery_wait_secs: float = 30,
        stop_grace_secs: float = 120,
        checkpoint_basename: str = "model.ckpt",
        session_manager: Any = None,
        summary_writer: Any = defaults.USE_DEFAULT,
        init_fn: Callable[[Any], Any] | None = None,
        local_init_run_options: Any = None,
    ) -> None:
        self._graph = graph if graph is not None else get_default_graph()
        self._init_feed_dict = init_feed_dict
        self._init_fn = init_fn
        with self._graph.as_default():
            self._ready_op = defaults.choose_ready_op(ready_op)
            self._ready_for_local_init_op = defaults.choose_ready_for_local_init_op(ready_for_local_init_op)
            self._init_op = defaults.choose_init_op(init_op)
            self._local_init_op = defaults.choose_local_init_op(local_init_op)
            self._saver = defaults.choose_saver(saver)
            self._summary_op = defaults.choose_summary_op(summary_op)
            self._global_step = defaults.choose_global_step(global_step)
        self._is_chief = is_chief
        self._coord = Coordinator()
        self._stop_grace_secs = stop_grace_secs
        # Only the chief writes checkpoints and events.
        self._logdir = logdir if is_chief else None
        self._save_summaries_secs = save_summaries_secs if is_chief else None
        self._save_model_secs = save_model_secs if is_chief else None
        self._save_path = os.path.join(logdir, checkpoint_basename) if is_chief and logdir else None
        self._summary_writer = self._choose_summary_writer(summary_writer)
        self._graph_added_to_summary = False
        self._session_manager = session_manager
        if session_manager is None:
            self._session_manager = SessionManager(
                local_init_op=self._local_init_op,
                ready_op=self._ready_op,
                ready_for_local_init_op=self._ready_for_local_init_op,
                graph=self._graph,
                recovery_wait_secs=recovery_wait_secs,
                local_init_run_options=local_init_run_options,
            )
        self._check_devices()
        self._graph.finalize()

    def _choose_summary_writer(self, given: Any) -> Any:
        if not self._is_chief:
            return None
        if not defaults.is_default(given):
            return given
        return FileWriter(self._logdir) if self._logdir else None

    def _check_devices(self) -> None:
        """Checks that every variable has a device, since replicas share variables."""
        if self._is_chief:
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
        config: Any = None,
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
        self._coord.clear_stop()
        if self._summary_writer:
            self._summary_writer.reopen()
        manager = self._session_manager
        # A user's session manager may not support cancellation.
        more: dict[str, Any] = {"cancelled": self.should_stop} if isinstance(manager, SessionManager) else {}
        if self._is_chief:
            sess = manager.prepare_session(
                master,
                init_op=self._init_op,
                saver=self._saver,
                checkpoint_dir=self._logdir,
                wait_for_checkpoint=wait_for_checkpoint,
                max_wait_secs=max_wait_secs,
                config=config,
                init_feed_dict=self._init_feed_dict,
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
        if self._logdir:
            write_training_graph(self._graph, self._logdir)
        if self._summary_writer and not self._graph_added_to_summary:
            self._summary_writer.add_graph(self._graph)
            self._summary_writer.add_meta_graph(
                export_meta_graph(graph=self._graph, saver_def=self._saver.saver_def if self._saver else None)
            )
            self._graph_added_to_summary = True

    @contextlib.contextmanager
    def managed_session(
        self,
        master: str = "",
        config: Any = None,
        start_standard_services: bool = True,
        close_summary_writer: bool = True,
    ) -> Iterator[Any]:
        """A context with a session of `prepare_or_wait_for_session`; its end stops the threads and the session.

        The end of the input (OutOfRangeError) ends it cleanly. Any other exception, of the block or of a thread,
        is raised after the threads have stopped and the session is closed.

        Args:
          close_summary_writer: whether to close the summary writer at the end.
          The others are those of `prepare_or_wait_for_session`.
        """
        sess = None
        try:
            sess = self.prepare_or_wait_for_session(
                master=master, config=config, start_standard_services=start_standard_services
            )
            yield sess
        except Exception as error:  # `stop` raises it, unless it is a clean end
            self.request_stop(error)
        except BaseException as error:  # such as the SystemExit of a script's handler of SIGTERM
            if isinstance(self._session_manager, SessionManager):
                self._session_manager.fail_run(error)
                self._session_manager.leave_run()
            raise
        finally:
            try:
                self.stop(close_summary_writer=close_summary_writer)
            finally:
                # Closing also ends pending enqueues and dequeues.
                if sess is not None:
                    close_quietly(sess)

    # ---- services ---------------------------------------------------------------------------

    def start_standard_services(self, sess: Any) -> list[Thread] | None:
        """Starts the chief's threads for summaries, step counts and checkpoints; returns None without ``logdir``.

        Raises:
          RuntimeError: when this is not the chief.
        """
        if not self._is_chief:
            raise RuntimeError(
                "Only chief supervisor can start standard services. Because only chief supervisors can write events."
            )
        if not self._logdir:
            _log.warning("Standard services need a 'logdir' passed to the SessionManager")
            return None
        if self._global_step is not None and self._summary_writer:
            step = value_of_global_step(sess, self._global_step)
            self._summary_writer.add_session_log(protos.SessionLog(status=protos.SessionLog.START), step)
        threads: list[Thread] = []
        if self._save_summaries_secs and self._summary_writer:
            if self._summary_op is not None:
                threads.append(SVSummaryThread(self, sess))
            if self._global_step is not None:
                threads.append(SVStepCounterThread(self, sess))
        if self._saver and self._save_model_secs:
            threads.append(SVTimerCheckpointThread(self, sess))
        for thread in threads:
            thread.start()
        return threads

    def start_queue_runners(self, sess: Any, queue_runners: Sequence[Any] | None = None) -> list[Thread]:
        """Starts the threads of queue runners (default: all in the graph) and returns the threads."""
        if queue_runners is None:
            queue_runners = self._graph.get_collection(GraphKeys.QUEUE_RUNNERS)
        threads: list[Thread] = []
        for runner in queue_runners:
            threads.extend(runner.create_threads(sess, coord=self._coord, daemon=True, start=True))
        return threads

    def loop(
        self,
        timer_interval_secs: float | None,
        target: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> LooperThread:
        """Starts a thread that calls ``target`` every ``timer_interval_secs`` (None: without pause) until the stop."""
        return LooperThread.loop(self._coord, timer_interval_secs, target, args, kwargs)

    def summary_computed(self, sess: Any, summary: Any, global_step: int | None = None) -> None:
        """Writes a summary, by default at the session's global step.

        Raises:
          RuntimeError: when there is no summary writer.
        """
        if not self._summary_writer:
            raise RuntimeError("Writing a summary requires a summary writer.")
        if global_step is None and self._global_step is not None:
            global_step = value_of_global_step(sess, self._global_step)
        self._summary_writer.add_summary(summary, global_step)

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
        self._coord.request_stop()
        try:
            self._coord.join(
                threads, stop_grace_period_secs=self._stop_grace_secs, ignore_live_threads=ignore_live_threads
            )
            if isinstance(self._session_manager, SessionManager):
                self._session_manager.end_run()
        except BaseException as error:
            if isinstance(self._session_manager, SessionManager):
                self._session_manager.fail_run(error)
            raise
        finally:
            # Last, since the threads use the writer.
            if close_summary_writer and self._summary_writer:
                self._summary_writer.add_session_log(protos.SessionLog(status=protos.SessionLog.STOP))
                self._summary_writer.close()
                self._graph_added_to_summary = False

    def request_stop(self, ex: Any = None) -> None:
        """Calls `Coordinator.request_stop`."""
        self._coord.request_stop(ex=ex)

    def should_stop(self) -> bool:
        """Whether a stop was requested."""
        return self._coord.should_stop()

    def stop_on_exception(self) -> AbstractContextManager[None]:
        """`Coordinator.stop_on_exception`."""
        return self._coord.stop_on_exception()

    def wait_for_stop(self) -> None:
        """Waits until a stop is requested."""
        self._coord.wait_for_stop()

    # ---- properties -------------------------------------------------------------------------

    is_chief = property(lambda self: self._is_chief, doc="Whether this is the chief.")
    session_manager = property(lambda self: self._session_manager, doc="The manager that makes the sessions.")
    coord = property(lambda self: self._coord, doc="The coordinator of the threads.")
    init_op = property(lambda self: self._init_op, doc="The op that initializes the model.")
    init_feed_dict = property(lambda self: self._init_feed_dict, doc="Feeds for `init_op`.")
    ready_op = property(lambda self: self._ready_op, doc="The names of uninitialized variables.")
    ready_for_local_init_op = property(
        lambda self: self._ready_for_local_init_op, doc="The uninitialized variables that the local init op reads."
    )
    summary_writer = property(lambda self: self._summary_writer, doc="The chief's summary writer, or None.")
    summary_op = property(lambda self: self._summary_op, doc="The merged summaries, or None.")
    save_summaries_secs = property(lambda self: self._save_summaries_secs, doc="Seconds between summaries.")
    global_step = property(lambda self: self._global_step, doc="The global step, or None.")
    saver = property(lambda self: self._saver, doc="The Saver, or None.")
    save_model_secs = property(lambda self: self._save_model_secs, doc="Seconds between checkpoints.")
    save_path = property(lambda self: self._save_path, doc="Prefix of the checkpoints, without the step.")

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
