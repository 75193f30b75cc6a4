"""``tf.train.QueueRunner``: threads that fill a queue; ``tf.train.start_queue_runners`` starts them."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.meta_graph import register_proto_function
from tfmini.graph.names import GraphKeys, prepend_name_scope, strip_name_scope
from tfmini.graph.scopes import get_default_session
from tfmini.graph.scoping import add_to_collection, get_collection
from tfmini.ops.queues.queues import QueueBase
from tfmini.protos import QueueRunnerDef
from tfmini.runtime.client.session import BaseSession
from tfmini.runtime.process import current_process

if TYPE_CHECKING:
    from tfmini.train.coordinator import Coordinator

_log = logging.getLogger("tensorflow")
# What ends the input of runners whose queue another one may close and cancel.
END_OF_INPUT = (errors.OutOfRangeError, errors.CancelledError)


@export("tf.train.QueueRunner", "tf.train.queue_runner.QueueRunner")
class QueueRunner:
    """Runs enqueue operations, each in its own thread, until the input ends (``tf.train.QueueRunner``).

    When the last thread gets one of ``queue_closed_exception_types``, it runs ``close_op``. With a coordinator,
    another thread runs ``cancel_op`` when a stop is requested; this ends pending enqueues.

    Args:
      queue: a queue.
      enqueue_ops: operations that fill the queue; one may be listed several times.
      close_op: closes the queue at the end of the input; default ``queue.close()``.
      cancel_op: ends pending enqueues; default ``queue.close(cancel_pending_enqueues=True)``.
      queue_closed_exception_types: errors that mean the end of the input; default `OutOfRangeError`.
      queue_runner_def: a QueueRunnerDef in place of all other arguments.
      import_scope: name scope of the operations that the QueueRunnerDef names.

    Raises:
      ValueError: when queue or enqueue operations are missing, or are given together with ``queue_runner_def``.
      TypeError: when the exception types are no tuple of ``tf.errors`` classes.
    """

    def __init__(
        self,
        queue: QueueBase | None = None,
        enqueue_ops: Sequence[Any] | None = None,
        close_op: object = None,
        cancel_op: object = None,
        queue_closed_exception_types: Any = None,
        queue_runner_def: QueueRunnerDef | None = None,
        import_scope: str | None = None,
    ) -> None:
        if queue_runner_def is None:
            self._init_from_args(queue, enqueue_ops, close_op, cancel_op, queue_closed_exception_types)
        elif queue or enqueue_ops:
            raise ValueError("queue_runner_def and queue are mutually exclusive.")
        else:
            self._init_from_proto(queue_runner_def, import_scope)
        self._lock = threading.Lock()
        # Session -> number of running enqueue threads.
        self._runs_per_session: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._exceptions_raised: list[BaseException] = []

    def _init_from_args(
        self,
        queue: QueueBase | None,
        enqueue_ops: Sequence[Any] | None,
        close_op: object,
        cancel_op: object,
        types: Any,
    ) -> None:
        if not queue or not enqueue_ops:
            raise ValueError("Must provide queue and enqueue_ops.")
        if types is not None:
            is_tuple = isinstance(types, tuple) and types
            if not is_tuple or not all(issubclass(t, errors.OpError) for t in types):
                raise TypeError(
                    f"queue_closed_exception_types, when provided, must be a tuple of tf.error types, but saw: {types}"
                )
        self._queue = queue
        self._enqueue_ops = enqueue_ops
        self._close_op = queue.close() if close_op is None else close_op
        self._cancel_op = queue.close(cancel_pending_enqueues=True) if cancel_op is None else cancel_op
        self._queue_closed_exception_types = types or (errors.OutOfRangeError,)

    def _init_from_proto(self, definition: QueueRunnerDef, import_scope: str | None) -> None:
        graph = get_default_graph()

        def element(name: str) -> Any:
            return graph.as_graph_element(prepend_name_scope(name, import_scope))

        self._queue = element(definition.queue_name)
        self._enqueue_ops = [element(name) for name in definition.enqueue_op_name]
        self._close_op = element(definition.close_op_name)
        self._cancel_op = element(definition.cancel_op_name)
        types = tuple(errors.exception_type_from_error_code(c) for c in definition.queue_closed_exception_types)
        self._queue_closed_exception_types = types or (errors.OutOfRangeError,)

    @property
    def queue(self) -> Any:
        """The queue."""
        return self._queue

    @property
    def enqueue_ops(self) -> Any:
        """The operations that fill the queue."""
        return self._enqueue_ops

    @property
    def close_op(self) -> Any:
        """The operation that closes the queue at the end of the input."""
        return self._close_op

    @property
    def cancel_op(self) -> Any:
        """The operation that closes the queue and cancels pending enqueues."""
        return self._cancel_op

    @property
    def queue_closed_exception_types(self) -> tuple[type[BaseException], ...]:
        """The errors that mean the end of the input."""
        return self._queue_closed_exception_types

    @property
    def exceptions_raised(self) -> list[BaseException]:
        """The exceptions of threads that run without a coordinator."""
        return self._exceptions_raised

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._queue.name

    def _run(self, sess: BaseSession, number: int, coord: Coordinator | None = None) -> None:
        """The body of the thread of one of ``enqueue_ops``."""
        finished = False
        try:
            enqueue = self._enqueuing(sess, number)
            while not (coord and coord.should_stop()):
                try:
                    enqueue()
                except self._queue_closed_exception_types:
                    finished = True
                    self._one_finished(sess)
                    return
        except Exception as error:  # noqa: BLE001 - the thread's last frame: reported, or kept and raised
            if coord:
                coord.request_stop(error)
                return
            _log.error("Exception in QueueRunner: %s", error)
            with self._lock:
                self._exceptions_raised.append(error)
            raise
        finally:
            if not finished:
                with self._lock:
                    self._runs_per_session[sess] -= 1

    def _enqueuing(self, sess: BaseSession, number: int) -> Any:
        """A function that runs one of ``enqueue_ops`` once."""
        return sess.make_callable(self._enqueue_ops[number])

    def _one_finished(self, sess: BaseSession) -> None:
        with self._lock:
            self._runs_per_session[sess] -= 1
            is_last = self._runs_per_session[sess] == 0
        if is_last:
            self._run_quietly(sess, self._close_op)

    def _run_quietly(self, sess: BaseSession, operation: object) -> None:
        try:
            sess.run(operation)
        except Exception as error:  # noqa: BLE001 - the queue or session may be closed already, as intended
            _log.debug("Ignored exception: %s", error)

    def _close_on_stop(self, sess: BaseSession, cancel_op: object, coord: Coordinator) -> None:
        """The body of the thread that ends the others."""
        coord.wait_for_stop()
        self._run_quietly(sess, cancel_op)

    def create_threads(
        self, sess: BaseSession, coord: Coordinator | None = None, daemon: bool = False, start: bool = False
    ) -> list[threading.Thread]:
        """Makes the threads for a session, unless they run already; returns the new threads.

        Args:
          sess: a session.
          coord: a coordinator that gets the threads and their errors, and stops them.
          daemon: whether the process may end while the threads run.
          start: whether to start the threads.
        """
        with self._lock:
            if self._runs_per_session.get(sess, 0) > 0:
                return []
            self._runs_per_session[sess] = len(self._enqueue_ops)
            self._exceptions_raised = []
        process = current_process()
        prefix = f"QueueRunnerThread-{self.name}"
        threads = [
            process.thread(self._run, (sess, number, coord), f"{prefix}-{op.name}")
            for number, op in enumerate(self._enqueue_ops)
        ]
        if coord:
            arguments = (sess, self._cancel_op, coord)
            threads.append(process.thread(self._close_on_stop, arguments, f"{prefix}-close_on_stop"))
        for thread in threads:
            if coord:
                coord.register_thread(thread)
            thread.daemon = daemon
            if start:
                thread.start()
        return threads

    def to_proto(self, export_scope: str | None = None) -> Any:
        """The QueueRunnerDef of this runner; None if its queue is outside ``export_scope``."""
        if export_scope is not None and not self.queue.name.startswith(export_scope):
            return None
        from tfmini.protos import QueueRunnerDef  # late, since it imports protobuf

        codes: Any = [errors.error_code_from_exception_type(t) for t in self._queue_closed_exception_types]
        return QueueRunnerDef(
            queue_name=strip_name_scope(self.queue.name, export_scope),
            enqueue_op_name=[strip_name_scope(op.name, export_scope) for op in self.enqueue_ops],
            close_op_name=strip_name_scope(self.close_op.name, export_scope),
            cancel_op_name=strip_name_scope(self.cancel_op.name, export_scope),
            queue_closed_exception_types=codes,
        )

    @staticmethod
    def from_proto(queue_runner_def: QueueRunnerDef, import_scope: str | None = None) -> QueueRunner:
        """The runner that a QueueRunnerDef describes."""
        return QueueRunner(queue_runner_def=queue_runner_def, import_scope=import_scope)


@export("tf.contrib.training.FeedingQueueRunner")
class FeedingQueueRunner(QueueRunner):
    """A runner each of whose operations gets feeds from a function (``tf.contrib.training.FeedingQueueRunner``).

    Args:
      feed_fns: for each of ``enqueue_ops`` a function that returns its feeds; None: no feeds.
      The others are those of `QueueRunner`.

    Raises:
      ValueError: when there are not as many functions as ``enqueue_ops``.
    """

    def __init__(
        self, queue: QueueBase | None = None, enqueue_ops: Sequence[Any] | None = None, close_op: object = None,
        cancel_op: object = None, feed_fns: Sequence[Callable[[], Mapping[Any, Any]]] | None = None,
        queue_closed_exception_types: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(queue, enqueue_ops, close_op, cancel_op, queue_closed_exception_types or END_OF_INPUT)
        self._feed_fns = [dict] * len(self.enqueue_ops) if feed_fns is None else list(feed_fns)
        if len(self._feed_fns) != len(self.enqueue_ops):
            raise ValueError(
                f"There are {len(self._feed_fns)} feed_fns for {len(self.enqueue_ops)} enqueue_ops: give one for each."
            )

    def _enqueuing(self, sess: BaseSession, number: int) -> Any:
        return lambda: sess.run(self.enqueue_ops[number], self._feed_fns[number]())

    def to_proto(self, export_scope: str | None = None) -> Any:
        """Raises NotImplementedError: functions that feed cannot be written to a file."""
        raise NotImplementedError("A FeedingQueueRunner has functions that feed it, which no proto can hold.")


@export("tf.train.add_queue_runner", "tf.train.queue_runner.add_queue_runner")
def add_queue_runner(qr: QueueRunner, collection: str = GraphKeys.QUEUE_RUNNERS) -> None:
    """Adds a runner to a collection of the default graph, for `start_queue_runners`."""
    add_to_collection(collection, qr)


@export("tf.train.start_queue_runners", "tf.train.queue_runner.start_queue_runners")
def start_queue_runners(
    sess: BaseSession | None = None,
    coord: Coordinator | None = None,
    daemon: bool = True,
    start: bool = True,
    collection: str = GraphKeys.QUEUE_RUNNERS,
) -> list[threading.Thread]:
    """Starts all queue runners in a collection of the graph (``tf.train.start_queue_runners``).

    Args:
      sess: a session; default: the default session. Monitored sessions start queue runners themselves.
      coord, daemon, start: see `QueueRunner.create_threads`.
      collection: the collection of the runners.

    Returns:
      The threads.

    Raises:
      ValueError: when there is no session.
      TypeError: when ``sess`` is no session.
    """
    if sess is None:
        sess = get_default_session()
        if not sess:
            raise ValueError(
                "Cannot start queue runners: No default session is registered. Use `with sess.as_default()` or pass"
                " an explicit session to tf.start_queue_runners(sess=sess)"
            )
    if not isinstance(sess, BaseSession):
        if hasattr(sess, "run_step_fn"):  # a monitored session has started them itself
            return []
        raise TypeError(f"sess must be a `tf.Session` object. Given class: {type(sess)}")
    with sess.graph.as_default():
        runners = get_collection(collection)
        if not runners:
            _log.warning("`tf.train.start_queue_runners()` was called when no queue runners were defined.")
        return [
            thread
            for runner in runners
            for thread in runner.create_threads(sess, coord=coord, daemon=daemon, start=start)
        ]


register_proto_function(GraphKeys.QUEUE_RUNNERS, "QueueRunnerDef", QueueRunner.to_proto, QueueRunner.from_proto)
