"""``tf.train.Server``: one task of a cluster, a master and a worker behind one address."""

from __future__ import annotations

import atexit
import collections
import logging
import operator
import os
import signal
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

from tfmini import errors, library_log
from tfmini.cluster import ClusterSpec, HostPort, check_server_cluster
from tfmini.export import export
from tfmini.graph.device_types import DeviceWishes
from tfmini.locks import Once, lock
from tfmini.memory import call_imports_old
from tfmini.rpc.waiter import Waiter
from tfmini.runtime.collectives.exchange import CollectiveTraffic
from tfmini.runtime.collectives.executor import RankCluster, collective_handlers
from tfmini.runtime.collectives.past_lives import ENDED, UNFINISHED, is_training
from tfmini.runtime.executor.dispatch import Terminated
from tfmini.runtime.master.master import Master
from tfmini.runtime.master.master_service import master_handlers, trace_handlers
from tfmini.runtime.moving import moving_handlers
from tfmini.runtime.native_libraries import configured_threads, limit_threads, share_of_cores, tasks_on
from tfmini.runtime.options import check_own, devices_of_task
from tfmini.runtime.process import current_process, register, unregister
from tfmini.runtime.resources import SessionOwners
from tfmini.runtime.task_status import TaskStatus, status_handlers
from tfmini.runtime.worker.task_state import LossReports
from tfmini.runtime.worker.worker import Worker
from tfmini.runtime.worker.worker_service import worker_handlers

if TYPE_CHECKING:
    from tfmini.rpc.peer import Peer

_log = logging.getLogger("tfmini.runtime")
_PROTOCOLS = ("grpc", "zmq")
_Definition = tuple[ClusterSpec, str, int, str, Any]


@export("tf.distribute.Server", "tf.train.Server")
class Server:
    """A task of a cluster (``tf.train.Server``). The port is bound by the constructor.

    Args:
      server_or_cluster_def: a ServerDef, or anything that `ClusterSpec` accepts.
      job_name: default: the only job.
      task_index: default: the only task of the job.
      protocol: ``"zmq"``; ``"grpc"`` is accepted as a synonym.
      config: a ConfigProto merged into the config of every session of this server's master.
      start: serve at once.

    Raises:
      TypeError, ValueError: for arguments that say too little or make no sense.
      InvalidArgumentError, InternalError: for an address or task that is not right.
      UnknownError: when the port is taken.
      NotFoundError: for an unknown protocol.
    """

    def __init__(
        self,
        server_or_cluster_def: Any,
        job_name: str | None = None,
        task_index: int | None = None,
        protocol: str | None = None,
        config: Any = None,
        start: bool = True,
    ) -> None:
        definition, own = checked_definition(server_or_cluster_def, job_name, task_index, protocol, config)
        self._cluster, self._job, self._index, self._protocol, self._config = definition
        self._pid = os.getpid()
        self._task = f"/job:{self._job}/replica:0/task:{self._index}"
        self._stopped = False
        self._terminated = False
        self._started = False
        self._ended = Waiter()
        self._watched: weakref.WeakSet[Any] = weakref.WeakSet()
        self._stopping = Once()
        # Requests that come before `start` wait for it: handler and its arguments.
        self._early: collections.deque[tuple[Any, tuple[Any, ...]]] = collections.deque()
        self._early_lock = lock("server early")
        self._starting = lock("server start")
        self._process = current_process()
        self._reactor = self._process.reactor
        if self._process.is_real:
            limit_threads(configured_threads(self._config) or share_of_cores(self._cluster, own.host))
        self._build(own, start)
        call_imports_old()
        if start:
            self.start()

    def _build(self, own: HostPort, start: bool) -> None:
        reactor, process = self._reactor, self._process
        incarnation = process.randbits(62) | 1
        # Interned, for a process with many servers, as a simulation has them.
        tasks = {sys.intern(f"/job:{t.job}/replica:0/task:{t.task}"): t.address for t in self._cluster.tasks()}
        self.endpoint = process.endpoint(self._task, incarnation, tasks)
        count = self._config.device_count.get("CPU", 1) if self._config is not None else 1
        wishes = DeviceWishes.of(self._config).of_task(self._job, tasks_on(self._cluster, own.host))
        devices = devices_of_task(self._task, count or 1, wishes, lambda: incarnation)
        threads = self._config.inter_op_parallelism_threads if self._config is not None else 0
        pool_size = threads if threads > 0 else max(2, os.cpu_count() or 1)
        self._owners = SessionOwners(reactor, self._task)
        losses = LossReports(self._task, self._owners.peers_of, lambda *lost: self.master.tensors_undelivered(*lost))
        leader = self._config.experimental.collective_group_leader if self._config is not None else ""
        ranks = RankCluster(tasks, self._peer, reactor.call_later, leader, self.endpoint.peers, self._met)
        self.worker = Worker(self._task, devices, self._peer, pool_size, reactor, process, losses, ranks)
        self.master = Master(self.worker, tasks, self._peer, reactor, self._config)
        self.endpoint.on_peer_ready(self._watch)
        self.endpoint.on_peer_ready(self._owners.peer_ready)
        status = TaskStatus(self.worker, self.master, self._owners, self.endpoint)
        self.endpoint.serve(status_handlers(status, process.now))  # also before `start`
        handlers = {
            **worker_handlers(self.worker, self._owners),
            **collective_handlers(self.worker.collectives),
            **master_handlers(self.master, self._owners),
            **trace_handlers(self.master),
            **moving_handlers(self.worker, self.master, self._owners),
        }
        # Before listening: a task that was waiting for this one sends its requests at once.
        self.endpoint.serve(handlers if start else {kind: self._deferred(h) for kind, h in handlers.items()})
        others = [address for task, address in tasks.items() if task != self._task]
        reached = process.listen(self.endpoint, own, others)
        self.master.set_address(self._task, str(reached))
        self._address = f"localhost:{reached.port}"
        register(self._address, self)
        if process.is_real:
            _running.add(self)

    def _watch(self, peer: Peer) -> None:
        """Tells the worker and the master when a task that they may exchange tensors or steps with is lost."""
        self.worker.collectives.returned(peer.task, peer.incarnation)
        self.master.task_returned(peer)
        self.worker.resources.sender_returned(peer.identity)
        if peer.task and peer not in self._watched:
            self._watched.add(peer)
            peer.on_lost(lambda lost, why: self.worker.peer_lost(lost.task, why, lost))
            peer.on_lost(self.master.task_lost)

    def _deferred(self, handler: Any) -> Any:
        """A handler that keeps requests until the server has been started."""

        def handle(*args: Any) -> None:
            with self._early_lock:
                if not self._started:
                    self._early.append((handler, args))
                    return
            handler(*args)

        return handle

    def _peer(self, task: str, address: str) -> Any:
        return self.endpoint.peer(address, task or None)

    # ---- TensorFlow's interface -------------------------------------------------------------

    @property
    def target(self) -> str:
        """The target for sessions: ``zmq://localhost:<port>``."""
        scheme = "grpc" if self._protocol == "grpc" else "zmq"
        return f"{scheme}://{self._address}"

    @property
    def server_def(self) -> Any:
        """The ServerDef of this task."""
        from tfmini import protos

        definition = protos.ServerDef(job_name=self._job, task_index=self._index, protocol=self._protocol)
        definition.cluster.CopyFrom(self._cluster.as_cluster_def())
        if self._config is not None:
            definition.default_session_config.CopyFrom(self._config)
        return definition

    def start(self) -> None:
        """Starts serving. Idempotent.

        Raises:
          FailedPreconditionError: when the server has been stopped, or is the parent's of a forked process.
        """
        check_own(self._pid, f"The server of {self._task}")
        with self._starting:
            if self._stopped:
                raise errors.FailedPreconditionError.of("Server has stopped.")
            if self._started:
                _log.info("Server already started (target: %s)", self.target)
                return
            self._handle_early()
        _log.info("Started server with target: %s", self.target)
        library_log.send_progress(self._job, self._index, "serves")

    def _handle_early(self) -> None:
        """Handles the requests that came before the start; those that come meanwhile wait behind them."""
        while True:
            with self._early_lock:
                if not self._early:
                    self._started = True
                    return
                handler, (peer, request, respond) = self._early.popleft()
            try:
                handler(peer, request, respond)
            except Exception as error:  # noqa: BLE001 - as in a link: it is the failure of this request alone
                if peer.link is not None:
                    peer.link.handler_failed(request, respond, error)

    def join(self) -> None:
        """Blocks until the server has been stopped, by `stop`.

        SIGTERM or Ctrl-C in the main thread stop it too and then end the process with exit code 0: what a
        script writes after its ps's `join` is meant for its workers. (At a prompt Ctrl-C is a KeyboardInterrupt.)
        A process that was started with SIGTERM ignored goes on ignoring it.

        Raises:
          SystemExit: after SIGTERM or SIGINT.
          FailedPreconditionError: when the server is the parent's of a forked process.
        """
        check_own(self._pid, f"The server of {self._task}")
        if not self._started:
            self.stop()
            return
        previous = {signum: signal.getsignal(signum) for signum in _ending_signals()}
        try:
            for signum in previous:  # from the first one on a signal may come at any point
                signal.signal(signum, self._terminate)
            library_log.send_report(self._job, self._index, joined=True)
            while not self._ended.done:
                self._reactor.drive(self._ended)
        except Terminated:
            _log.info("%s: ended by a signal", self._task)
        finally:
            for signum, handler in previous.items():
                signal.signal(signum, handler or signal.SIG_DFL)
        self.stop()
        if self._terminated:
            raise SystemExit(0)
        library_log.send_report(self._job, self._index, joined=False)

    def _terminate(self, signum: int, frame: Any) -> None:
        """Ends `join`, also where the interpreter swallows the exception (in a weak reference's callback)."""
        self._terminated = True
        self._ended.set()
        self._reactor.wake()
        raise Terminated

    def stop(self) -> None:
        """Ends the server: steps are cancelled, peers told, the port is free at once. Idempotent.

        In a forked process its parent's server is left alone.
        """
        if self._pid != os.getpid():
            return
        if not self._stopping():
            return
        self._stopped = True
        self._part("its server has been stopped", is_final=False)
        unregister(self._address)
        self.endpoint.refuse_all(lambda: errors.shutting_down(self._task))  # what it owns is forgotten in between
        self._owners.close()
        self.master.close()
        self.worker.close()
        self.endpoint.close("has stopped")
        if self.endpoint.book is not None:
            self.endpoint.book.withdraw(self._task, self.endpoint.incarnation)
        self._ended.set()

    def _met(self, elastic: bool) -> None:
        """Tells the launcher that this task is a rank, which is of no use without others."""
        if self._process.is_real:
            words = library_log.MEETS_ELASTIC if elastic else library_log.MEETS
            library_log.send_progress(self._job, self._index, words)

    def _part(self, why: str, is_final: bool) -> None:
        """Tells the other ranks of its collectives that it has ended, unless it was told to leave and may come back."""
        if not self._process.is_leaving:
            self.worker.collectives.part(why, is_final)

    def collective_traffic(self) -> CollectiveTraffic:
        """The bytes and messages that this task has sent in collectives so far. Safe from any thread; takes no time."""
        return self.worker.collectives.traffic.snapshot()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    @staticmethod
    def create_local_server(config: Any = None, start: bool = True) -> Server:
        """A server that is a cluster of its own, on a free port of this machine."""
        return Server({"local": ["localhost:0"]}, protocol="grpc", config=config, start=start)


_running: weakref.WeakSet[Server] = weakref.WeakSet()


@atexit.register
def _flush_all() -> None:
    """The script is over: tells other ranks, and lets the messages leave that they and other tasks still need."""
    error = getattr(sys, "last_value", None)  # an exception that nobody has handled
    why = UNFINISHED if is_training.is_set() else ENDED
    if error is not None:
        why = f"its script has failed with {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    for server in list(_running):
        if server._pid == os.getpid() and not server._stopped:
            server._part(why, is_final=True)
            server.endpoint.flush()


def _ending_signals() -> list[signal.Signals]:
    """The signals that end `Server.join`: none outside the main thread, where Python does not let us.

    An ignored SIGTERM stays ignored: who started this process decided that it outlives the signal.
    """
    if threading.current_thread() is not threading.main_thread():
        return []
    default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    terminates = signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN
    # At an interactive prompt Ctrl-C must return to the prompt.
    interrupts = default and not hasattr(sys, "ps1")
    return [signal.SIGTERM] * terminates + [signal.SIGINT] * interrupts


def checked_definition(
    server: Any, job: str | None, index: int | None, protocol: str | None, config: Any
) -> tuple[_Definition, HostPort]:
    """((cluster, job, index, protocol, config), own address) of the constructor's arguments.

    Raises the errors of `Server`, except those of a port that is taken.
    """
    definition = _definition(server, job, index, protocol, config)
    cluster, job, index, protocol, _ = definition
    if protocol not in _PROTOCOLS:
        raise errors.NotFoundError.of(
            f'No server factory registered for the given ServerDef: protocol "{protocol}". The available'
            f" server factories are: {list(_PROTOCOLS)}"
        )
    return definition, check_server_cluster(cluster, job, index, current_process().tasks_move)


def _definition(server: Any, job: str | None, index: int | None, protocol: str | None, config: Any) -> _Definition:
    """(cluster, job, index, protocol, config), with the defaults filled in."""
    if hasattr(server, "default_session_config"):  # a ServerDef
        cluster = ClusterSpec(server.cluster)
        job = server.job_name if job is None else job
        index = server.task_index if index is None else index
        protocol = (server.protocol or None) if protocol is None else protocol
        if server.HasField("default_session_config"):
            merged = type(server.default_session_config)()
            merged.CopyFrom(server.default_session_config)
            if config is not None:
                merged.MergeFrom(config)
            config = merged
    else:
        try:
            cluster = ClusterSpec(server)
        except TypeError:
            raise TypeError(
                "Could not convert `server_or_cluster_def` to a `tf.train.ServerDef` or `tf.train.ClusterSpec`."
            ) from None
    if not job:
        if len(cluster.jobs) != 1:
            raise ValueError("Must specify an explicit `job_name`.")
        job = cluster.jobs[0]
    if index is None:
        indices = cluster.task_indices(job)
        if len(indices) != 1:
            raise ValueError("Must specify an explicit `task_index`.")
        index = indices[0]
    return cluster, job, _index(index), protocol or "grpc", config


def _index(value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        hint = f"; write int({value!r}), or {value} without quotes in TF_CONFIG" if str(value).isdigit() else ""
        raise TypeError(f"task_index must be an integer, but got {value!r} ({type(value).__name__}){hint}.") from None
