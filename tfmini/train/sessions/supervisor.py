"""``tf.train.Supervisor``: initialises or restores a model, serves its training, and ends it."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from threading import Thread
from typing import Any

from tfmini import protos
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.keys import GraphKeys
from tfmini.train import supervisor_parts as parts
from tfmini.train.coordinator import Coordinator, LooperThread
from tfmini.train.graph_io import write_graph
from tfmini.train.meta_graph import export_meta_graph
from tfmini.train.session_manager import SessionManager
from tfmini.train.session_waiting import close_quietly
from tfmini.train.summary_writer import FileWriter
from tfmini.train.supervisor_threads import SVStepCounterThread, SVSummaryThread, SVTimerCheckpointThread
from tfmini.train.training_util import global_step as value_of_global_step

_log = logging.getLogger("tfmini")


class Supervisor:
    """Looks after the training of a model (``tf.train.Supervisor``)::

        sv = tf.train.Supervisor(is_chief=..., logdir="/tmp/train")
        with sv.managed_session(server.target) as sess:
            while not sv.should_stop():
                sess.run(train_op)

    The chief restores the latest checkpoint of ``logdir`` or initialises the model, and then saves
    it and its summaries from time to time; the others wait until the model is ready. The graph is
    finalized: what the supervisor adds, it adds in the constructor. Where an argument's default is
    `USE_DEFAULT`, the piece is looked up in its collection and made when it is not there; None
    means: without.

    Args:
      graph: default: the default graph.
      ready_op: a 1-D string tensor of what is not initialised yet.
      ready_for_local_init_op: the same, about what ``local_init_op`` needs; by default there is none.
      is_chief: whether this is the chief.
      init_op, init_feed_dict, init_fn: initialise the model; ``init_fn(session)`` comes last.
      local_init_op, local_init_run_options: run in every session.
      logdir: the chief's checkpoints and events; None: no services.
      summary_op: a string tensor, a serialized Summary.
      saver: saves and restores.
      global_step: an integer tensor, for names of checkpoints and steps of summaries.
      save_summaries_secs, save_model_secs: periods in seconds; 0: never.
      recovery_wait_secs: how long, at most, until a worker notices that the model is ready.
      stop_grace_secs: how long `stop` waits for threads.
      checkpoint_basename: checkpoints are ``<logdir>/<checkpoint_basename>-<step>``.
      session_manager: makes the sessions; default: a `SessionManager`.
      summary_writer: default: a FileWriter in ``logdir``.

    Raises:
      ValueError: not on the chief, and a variable has no device.
    """

    USE_DEFAULT = parts.USE_DEFAULT

    def __init__(
        self,
        graph: Graph | None = None,
        ready_op: Any = parts.USE_DEFAULT,
        ready_for_local_init_op: Any = parts.USE_DEFAULT,
        is_chief: bool = True,
        init_op: Any = parts.USE_DEFAULT,
        init_feed_dict: Any = None,
        local_init_op: Any = parts.USE_DEFAULT,
        logdir: str | None = None,
        summary_op: Any = parts.USE_DEFAULT,
        saver: Any = parts.USE_DEFAULT,
        global_step: Any = parts.USE_DEFAULT,
        save_summaries_secs: float = 120,
        save_model_secs: float = 600,
        recovery_wait_secs: float = 30,
        stop_grace_secs: float = 120,
        checkpoint_basename: str = "model.ckpt",
        session_manager: Any = None,
        summary_writer: Any = parts.USE_DEFAULT,
        init_fn: Callable[[Any], Any] | None = None,
        local_init_run_options: Any = None,
    ) -> None:
        self._graph = graph if graph is not None else get_default_graph()
        self._init_feed_dict = init_feed_dict
        self._init_fn = init_fn
        with self._graph.as_default():
            self._ready_op = parts.choose_ready_op(ready_op)
            self._ready_for_local_init_op = parts.choose_ready_for_local_init_op(ready_for_local_init_op)
            self._init_op = parts.choose_init_op(init_op)
            self._local_init_op = parts.choose_local_init_op(local_init_op)
            self._saver = parts.choose_saver(saver)
            self._summary_op = parts.choose_summary_op(summary_op)
            self._global_step = parts.choose_global_step(global_step)
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
        if not parts.is_default(given):
            return given
        return FileWriter(self._logdir) if self._logdir else None

    def _check_devices(self) -> None:
        """Replicas share variables, so every variable must say where it is."""
        if self._is_chief:
            return
        for op in self._graph.get_operations():
            if op.type in ("Variable", "VariableV2") and not op.device:
                raise ValueError(f"When using replicas, all Variables must have their device set: {op}")

    # ---- the session ------------------------------------------------------------------------

    def prepare_or_wait_for_session(
        self,
        master: str = "",
        config: Any = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float | None = 7200,
        start_standard_services: bool = True,
    ) -> Any:
        """A session with a ready model: the chief makes it ready, the others wait for that.

        Args:
          master: the session's target.
          config: its ConfigProto.
          wait_for_checkpoint: whether the chief waits for a checkpoint to restore.
          max_wait_secs: how long to wait.
          start_standard_services: whether to start the services and the queue runners.

        Raises:
          as of `SessionManager.prepare_session` and `wait_for_session`; CancelledError when another
          thread requests a stop during the wait.
        """
        self._coord.clear_stop()
        if self._summary_writer:
            self._summary_writer.reopen()
        manager = self._session_manager
        # A session manager of the caller's own need not know how to be cancelled.
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
            write_graph(self._graph.as_graph_def(add_shapes=True), self._logdir, "graph.pbtxt")
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
        """A context with a session of `prepare_or_wait_for_session`, which stops everything at its end.

        The end of the input (OutOfRangeError) ends it cleanly. Any other exception, of the block or of
        a thread, is raised after the threads have stopped and the session is closed.

        Args:
          close_summary_writer: whether to close it at the end.
          others as of `prepare_or_wait_for_session`.
        """
        sess = None
        try:
            sess = self.prepare_or_wait_for_session(
                master=master, config=config, start_standard_services=start_standard_services
            )
            yield sess
        except Exception as error:  # whatever it is, `stop` raises it, unless it is a clean end
            self.request_stop(error)
        finally:
            try:
                self.stop(close_summary_writer=close_summary_writer)
            finally:
                # It also ends what is blocked in an enqueue or a dequeue.
                if sess is not None:
                    close_quietly(sess)

    # ---- services ---------------------------------------------------------------------------

    def start_standard_services(self, sess: Any) -> list[Thread] | None:
        """Starts the chief's threads: summaries, step counter, checkpoints; None without ``logdir``.

        Raises:
          RuntimeError: not on the chief.
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
        """Starts the threads of queue runners, by default of all in the graph, and returns them."""
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
        """Starts a thread that calls ``target`` every so many seconds (None: without a pause) until the stop."""
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
          threads: to wait for besides the supervisor's own.
          close_summary_writer: whether to close it.
          ignore_live_threads: whether threads that outlive the grace period are only logged.

        Raises:
          what a thread, or `request_stop`, has brought.
        """
        self._coord.request_stop()
        try:
            self._coord.join(
                threads, stop_grace_period_secs=self._stop_grace_secs, ignore_live_threads=ignore_live_threads
            )
        finally:
            # Last, for a thread may have been using it.
            if close_summary_writer and self._summary_writer:

                self._summary_writer.add_session_log(protos.SessionLog(status=protos.SessionLog.STOP))
                self._summary_writer.close()
                self._graph_added_to_summary = False

    def request_stop(self, ex: Any = None) -> None:
        """`Coordinator.request_stop`."""
        self._coord.request_stop(ex=ex)

    def should_stop(self) -> bool:
        """Whether a stop was requested."""
        return self._coord.should_stop()

    def stop_on_exception(self) -> AbstractContextManager[None]:
        """`Coordinator.stop_on_exception`."""
        return self._coord.stop_on_exception()

    def wait_for_stop(self) -> None:
        """Blocks until a stop is requested."""
        self._coord.wait_for_stop()

    # ---- properties -------------------------------------------------------------------------

    is_chief = property(lambda self: self._is_chief, doc="Whether this is the chief.")
    session_manager = property(lambda self: self._session_manager, doc="Makes the sessions.")
    coord = property(lambda self: self._coord, doc="The coordinator of the threads.")
    init_op = property(lambda self: self._init_op, doc="Initialises the model.")
    init_feed_dict = property(lambda self: self._init_feed_dict, doc="Feeds for `init_op`.")
    ready_op = property(lambda self: self._ready_op, doc="What is not initialised yet.")
    ready_for_local_init_op = property(
        lambda self: self._ready_for_local_init_op, doc="What the local init op waits for."
    )
    summary_writer = property(lambda self: self._summary_writer, doc="The chief's; None elsewhere.")
    summary_op = property(lambda self: self._summary_op, doc="All summaries merged, or None.")
    save_summaries_secs = property(lambda self: self._save_summaries_secs, doc="Seconds between summaries.")
    global_step = property(lambda self: self._global_step, doc="The global step, or None.")
    saver = property(lambda self: self._saver, doc="The Saver, or None.")
    save_model_secs = property(lambda self: self._save_model_secs, doc="Seconds between checkpoints.")
    save_path = property(lambda self: self._save_path, doc="Where checkpoints go, without the step.")

    # TensorFlow's old spellings.
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
