"""``tf.Session``: a client's conversation with a master."""

from __future__ import annotations

import functools
import logging
import sys
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple

from tfmini import errors
from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.operation import Operation, Tensor, node_of, nodes_of
from tfmini.graph.scopes import default_sessions, session_scope
from tfmini.locks import lock
from tfmini.placement.placer import DeviceAttributes
from tfmini.protos import ConfigProto, RunMetadata, RunOptions
from tfmini.runtime import process as this_process
from tfmini.runtime.client.answer import located
from tfmini.runtime.client.call import Call, FinishedStep, PartialRun, key_to_remember, nested_key
from tfmini.runtime.client.feeds import SessionHandles, converter, flatten_feed
from tfmini.runtime.client.fetches import Fetches
from tfmini.runtime.client.master_clients import DirectMaster, MasterClient, RemoteMaster, client_endpoint
from tfmini.runtime.compiler import kernels
from tfmini.runtime.master.master import Master, wants_metadata
from tfmini.runtime.options import SessionOptions, devices_of_task
from tfmini.runtime.process import address_of_target, current_process, default_target
from tfmini.runtime.worker.worker import Worker

_log = logging.getLogger("tensorflow")
_LOCAL_TASK = "/job:localhost/replica:0/task:0"
# After so many runs that each found new ops of one place, the loop there is told that it grows the graph.
_GROWTH_WARNING = 8
CALL_LIMIT = 4096  # (fetches, feeds) pairs that a session remembers
_local_masters: weakref.WeakSet[DirectMaster] = weakref.WeakSet()  # of the sessions without a target


# ---- ``tf.config``: what a session without a ConfigProto gets ------------------------------------------------------

_defaults = ConfigProto()


@export("tf.config.set_soft_device_placement")
def set_soft_device_placement(enabled: bool) -> None:
    """Whether sessions made without a ConfigProto put ops elsewhere that their device cannot run."""
    _defaults.allow_soft_placement = enabled


@export("tf.config.get_soft_device_placement")
def get_soft_device_placement() -> bool:
    """Whether sessions made without a ConfigProto place softly; False at first."""
    return bool(_defaults.allow_soft_placement)


class LogicalDevice(NamedTuple):
    """A device that ops may be put on; its ``name`` is that of `Session.list_devices`."""

    name: str
    device_type: str


class PhysicalDevice(NamedTuple):
    """A device of this machine: ``/physical_device:CPU:0``."""

    name: str
    device_type: str


@export("tf.config.experimental.list_logical_devices")
def list_logical_devices(device_type: str | None = None) -> list[LogicalDevice]:
    """The devices of a session without a ConfigProto; with ``device_type`` those of that kind."""
    options = SessionOptions.from_proto(_defaults)
    found = devices_of_task(_LOCAL_TASK, options.device_count, options.wishes, lambda: 1)
    known = [LogicalDevice(device.name, device.device_type) for device in found]
    return [device for device in known if device_type in (None, device.device_type)]


@export("tf.config.experimental.list_physical_devices")
def list_physical_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """The devices of this machine; with ``device_type`` those of that kind."""
    names = [
        (device.name.rpartition("/device:")[2], device.device_type) for device in list_logical_devices(device_type)
    ]
    return [PhysicalDevice(f"/physical_device:{name}", kind) for name, kind in names]


class BaseSession:
    """The part that `Session` and `InteractiveSession` share."""

    _closed_text = "Attempted to use a closed Session."

    def __init__(self, target: Any = "", graph: Graph | None = None, config: Any = None) -> None:
        if graph is not None and not isinstance(graph, Graph):
            raise TypeError(f"graph must be a tf.Graph, but got {type(graph)}")
        if not isinstance(target, (str, bytes, type(None))):
            hint = ""
            if hasattr(target, "operation_timeout_in_ms"):
                hint = ' Did you do "Session(config)" instead of "Session(config=config)"?'
            elif isinstance(getattr(target, "target", None), str):  # a server, a cluster of a notebook
                hint = f" Give its target: tf.Session(….target), which is {target.target!r}."
            raise TypeError(f"target must be a string, but got {type(target)}.{hint}")
        if config is not None and not hasattr(config, "operation_timeout_in_ms"):
            raise TypeError(f"config must be a tf.ConfigProto, but got {type(config)}")
        if config is None and _defaults.ListFields():
            config = ConfigProto()
            config.CopyFrom(_defaults)
        self._graph: Graph = graph if graph is not None else get_default_graph()
        self._target = (target.decode() if isinstance(target, bytes) else target) or ""
        self._host = self._target or default_target()  # of the master; "": in this process
        self._config = config
        self._options = SessionOptions.from_proto(config)
        self._closed = False
        self._sent = 0
        self._growths: Counter[tuple[Any, ...]] | None = Counter()  # None: the program has been told
        self._runs = 0
        self._calls: dict[Any, Call] = {}
        self._partial_runs: dict[str, PartialRun] = {}
        self._partial_count = 0
        self._handles = SessionHandles(self)
        self._calls_lock = lock("session calls")
        self._extend_lock = lock("session extend")  # held while the master answers
        self.master: MasterClient = self._connect()

    def _connect(self) -> MasterClient:
        server = this_process.server_at(address_of_target(self._host)) if self._host else None
        if not self._target:  # its variables are its own, even where its collectives are a server's
            options = replace(self._options, cluster=(), isolate_session_state=server is not None)
            master = DirectMaster(local_master(options) if server is None else server.master, options, self._host)
            _local_masters.add(master)
            return master
        address = address_of_target(self._host)
        if server is not None:
            return DirectMaster(server.master, self._options, address)
        config = b"" if self._config is None else self._config.SerializeToString()
        return RemoteMaster(address, config, self._options)

    # ---- properties -------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """The graph that this session runs."""
        return self._graph

    @property
    def graph_def(self) -> Any:
        """The graph as a GraphDef."""
        return self._graph.as_graph_def(add_shapes=self._options.infer_shapes)

    @property
    def sess_str(self) -> bytes:
        """The target, as bytes."""
        return self._target.encode()

    # ---- run --------------------------------------------------------------------------------

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Runs one step and returns the values of ``fetches``, in the same structure.

        Args:
          fetches: a tensor, operation, variable, name, or a nest of lists, tuples and dicts of those.
          feed_dict: tensor or name -> value, for placeholders or any other tensor.
          options: RunOptions.
          run_metadata: a RunMetadata to fill.

        Raises:
          RuntimeError: when the session is closed or its graph is empty.
          TypeError, ValueError: for fetches or feeds that make no sense.
          errors.OpError: the error of the step.
        """
        if self._closed:
            raise RuntimeError(self._closed_text)
        if not self._graph._order:
            raise RuntimeError("The Session graph is empty.  Add operations to the graph before calling run().")
        call, values = self._find_call(fetches, feed_dict)
        found = self._execute(call, values, options, run_metadata) if call.needs_step else []
        return call.result(found, values, feed_dict)

    def _find_call(self, fetches: object, feed_dict: Any) -> tuple[Call, list[Any]]:
        try:
            feeds = tuple(feed_dict) if feed_dict else None
            wanted = tuple(fetches) if type(fetches) is list else fetches  # `quick_key`, without a function's call
            call = self._calls.get((wanted, type(fetches), feeds))
        except TypeError:  # something in it cannot be hashed, or feed_dict is no dict
            call = None
        if call is None:
            call = self._find_nested_call(fetches, feed_dict)
        if call is not None:
            if not feed_dict:
                return call, []
            return call, [convert(value) for convert, value in zip(call.converters, feed_dict.values())]
        return self._new_call(fetches, feed_dict)

    def _find_nested_call(self, fetches: object, feed_dict: Mapping[Any, Any]) -> Call | None:
        try:
            return self._calls.get(nested_key(fetches, tuple(feed_dict) if feed_dict else None))
        except TypeError:
            return None

    def _new_call(self, fetches: object, feed_dict: Mapping[Any, Any]) -> tuple[Call, list[Any]]:
        pairs: list[tuple[Tensor, Any]] = []
        if feed_dict:
            if not hasattr(feed_dict, "items"):
                raise TypeError(f"feed_dict must be a dictionary from tensors to values, but got {type(feed_dict)}")
            for feed, value in feed_dict.items():
                pairs.extend(flatten_feed(self._graph, feed, value))
        converters = [converter(tensor) for tensor, _ in pairs]
        values = [convert(value) for convert, (_, value) in zip(converters, pairs)]
        call = Call(Fetches(self._graph, fetches, self._handles.wrap), [tensor for tensor, _ in pairs], converters)
        fed = list(feed_dict.values()) if feed_dict else []
        # Only calls whose feeds are the dict's values, one to one, can be found again by its keys.
        if len(pairs) == len(fed) and all(value is pair[1] for value, pair in zip(fed, pairs)):
            key = key_to_remember(fetches, tuple(feed_dict) if feed_dict else None)
            if key is not None:
                self._remember_call(key, call)
        return call, values

    def _remember_call(self, key: object, call: Call) -> None:
        """Keeps a call for the next run; the oldest go when a loop makes ever new ones."""
        with self._calls_lock:
            self._calls[key] = call
            while len(self._calls) > CALL_LIMIT:
                del self._calls[next(iter(self._calls))]

    def _execute(self, call: Call, values: list[Any], options: Any, run_metadata: Any, plan: Any = None) -> list[Any]:
        """The values that the call's step fetches.

        Args:
          plan: of this step alone; None for the call's own. Other threads may run the same call meanwhile.
        """
        self._runs += 1  # before the step: a run that fails may have found new operations, too
        timeout_s = None
        if options is not None and options.timeout_in_ms > 0:
            timeout_s = options.timeout_in_ms / 1000
        if self._sent != len(self._graph._order):
            self._extend(call, timeout_s)
        try:
            if run_metadata is not None and wants_metadata(options):
                found = self._run_with_metadata(call, values, options, run_metadata)
            else:
                if plan is None:
                    plan = call.plan
                    if plan is None or plan.halted:
                        plan = call.plan = self.master.prepare(call.signature, timeout_s)
                found = self.master.run(plan, values, timeout_s)
                if run_metadata is not None:
                    run_metadata.Clear()
        except errors.OpError as error:
            raise located(error, self._graph) from None
        return found

    def _run_with_metadata(
        self, call: Call, values: list[Any], options: RunOptions, run_metadata: RunMetadata
    ) -> list[Any]:
        found, metadata = self.master.run_with_metadata(call.signature, values, options)
        if isinstance(run_metadata, type(metadata)):
            run_metadata.CopyFrom(metadata)
        else:  # real TensorFlow's message, in a process that has both
            run_metadata.ParseFromString(metadata.SerializeToString())
        return found

    def _extend(self, call: Call, timeout_s: float | None) -> None:
        """Sends the ops that the master does not know yet, but for those that another thread builds at the moment."""
        last = max((op._id for op in call.ops), default=0)
        while True:
            if not self._graph.wait_until_built(self._sent, last, lambda: self._closed):
                raise RuntimeError(self._closed_text)
            # Without any that a thread has begun to change meanwhile.
            self._send_ops(timeout_s, is_needed=not 0 < last <= self._sent)
            if self._sent >= last:
                return

    def _send_ops(self, timeout_s: float | None, is_needed: bool) -> None:
        """Sends new ops, whether or not the run needs them: one that cannot be placed fails each run, as in TensorFlow.

        A run that needs none does not wait for another thread that sends some: these may wait for an absent task.
        """
        if not is_needed and self._extend_lock.locked():
            return
        as_node = kernels.node_with_shapes if kernels.ENABLED else node_of
        with self._extend_lock:
            with self._graph.whole_ops(self._sent) as operations:
                if not operations:
                    return
                self._graph.check_input_types()
                nodes = nodes_of(operations, as_node)
            if not (self._sent or self._host) and default_target():  # `hvd.init()` came after `tf.Session()`
                self.master.close()
                self._host = default_target()
                self.master = self._connect()
            try:
                self.master.extend(nodes, timeout_s)
            except errors.OpError as error:
                raise located(error, self._graph) from None
            self._sent += len(operations)
            self._graph._sent_version = max(self._graph._sent_version, self._sent)
            if self._runs > 1:
                self._note_growth(operations)

    def _note_growth(self, operations: list[Operation]) -> None:
        if self._growths is None:
            return
        place = tuple(operations[-1].creation_stack())  # stages that build something once are at different ones
        self._growths[place] += 1
        if self._growths[place] == _GROWTH_WARNING:
            file, line = operations[-1].creation_site()
            if file == "<stdin>" and hasattr(sys, "ps1"):  # each line that somebody types is the first one
                return
            self._growths = None
            _log.warning(
                "The graph grows between runs: %d of %d runs so far found new operations, the latest %r made at"
                " %s:%d. Each makes the next step slower and takes memory. Build the graph once, before the loop"
                " (tf.get_default_graph().finalize() finds such places).",
                _GROWTH_WARNING, self._runs, operations[-1].name, file, line,
            )  # fmt: skip

    # ---- other methods ----------------------------------------------------------------------

    def make_callable(self, fetches: object, feed_list: Any = None, accept_options: bool = False) -> Callable[..., Any]:
        """A function that runs one step for ``fetches``, with the feeds of ``feed_list`` as its arguments.

        Raises:
          TypeError: when ``feed_list`` is no list or tuple.
        """
        if feed_list is not None and not isinstance(feed_list, (list, tuple)):
            raise TypeError("`feed_list` must be a list or tuple.")
        if self._closed:
            raise errors.CancelledError.of("Session has been closed.")
        keys = list(feed_list or ())

        def call_with(*values: Any, **options: object) -> Any:
            return self.run(fetches, dict(zip(keys, values)) or None, **options)

        if accept_options:
            return call_with
        return functools.wraps(call_with)(lambda *values: call_with(*values))

    def _make_callable_from_options(self, callable_options: Any) -> Callable[..., Any]:
        """A function that runs the step of a CallableOptions, with its feeds as arguments.

        It takes a RunMetadata to fill as ``run_metadata``. A tensor of a connection takes the place of the tensor that
        it is connected to, as if it were fed: a step before the step computes it.
        """
        options, feeds = callable_options, list(callable_options.feed)
        fetches, targets = list(options.fetch), list(options.target)
        sources = [connection.from_tensor for connection in options.tensor_connection]
        connected = [connection.to_tensor for connection in options.tensor_connection]

        def call_with(*values: Any, run_metadata: Any = None) -> Any:
            fed = dict(zip(feeds, values))
            if sources:  # fed themselves as well, since a second computation may give another value
                found = self.run(sources, fed)
                fed.update(zip(sources, found))
                fed.update(zip(connected, found))
            return self.run([fetches, targets], fed, options.run_options, run_metadata)[0]

        return call_with

    def partial_run_setup(self, fetches: Any, feeds: Any = None) -> str:
        """Declares a step whose feeds and fetches come in several goes, and returns its handle.

        Raises:
          InvalidArgumentError: without fetches.
        """
        if self._closed:
            raise RuntimeError(self._closed_text)
        partial = PartialRun(self._graph, fetches, feeds or (), self._partial_step)
        self._partial_count += 1
        handle = f"partial_run_{self._partial_count}"
        self._partial_runs[handle] = partial
        return handle

    def partial_run(self, handle: str, fetches: object, feed_dict: Mapping[Any, Any] | None = None) -> Any:
        """Goes on with a step that `partial_run_setup` declared: feeds some, fetches some.

        Raises:
          InvalidArgumentError: for a handle that is unknown or done, for feeds and fetches that were not
            declared or come twice, and for a fetch that needs a tensor that has not been fed yet.
          UnimplementedError: an op of this call needs something of an earlier call that cannot be kept, such as
            a reference (see `client.partial_run`).
        """
        partial = self._partial_runs.get(handle)
        if partial is None:
            raise errors.InvalidArgumentError.of("Must run 'setup' before performing partial runs!")
        found = partial.run(fetches, feed_dict)
        if partial.done:
            self._partial_runs.pop(handle, None)
        return found

    def _partial_step(self, tensors: list[Tensor], targets: list[Operation], feeds: dict[Tensor, Any]) -> list[Any]:
        return self.run([tensors, targets], feeds)[0]  # type: ignore[no-any-return]

    def list_devices(self) -> list[DeviceAttributes]:
        """The devices that this session can use. Waits for tasks that are not up yet and that its filters name.

        Raises:
          CancelledError: when the session is closed.
          UnavailableError: when a task has not come up within the session's timeout.
        """
        if self._closed:
            raise errors.CancelledError.of("Session has been closed.")
        return self.master.list_devices()

    def as_default(self) -> AbstractContextManager[Any]:
        """A context in which this session is the thread's default; leaving does not close it."""
        return session_scope(self)

    def close(self) -> None:
        """Closes the session; steps that are running are cancelled. Idempotent."""
        if not self._closed:
            self._closed = True
            self.master.close()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not getattr(self, "_closed", True) and hasattr(self, "master"):  # a constructor may have failed
            self._closed = True
            try:
                self.master.drop()
            except Exception:
                if not is_finalizing():  # then modules are gone, and so is everything else of the process soon
                    raise


@export("tf.Session")
class Session(BaseSession):
    """A session for a graph (``tf.Session``).

    Args:
      target: "" for this process; ``zmq://host:port`` (or ``grpc://host:port``) for a server.
      graph: default: the current default graph.
      config: a ConfigProto.

    Raises:
      TypeError: for arguments of the wrong type.
      NotFoundError: for a target of an unknown scheme.
    """

    def __init__(self, target: Any = "", graph: Graph | None = None, config: ConfigProto | None = None) -> None:
        super().__init__(target, graph, config)
        self._contexts: list[Any] | None = None

    def __enter__(self) -> Session:
        if self._contexts is not None:
            raise RuntimeError(
                "Session context managers are not re-entrant. Use `Session.as_default()` if you want to enter a session"
                " multiple times."
            )
        self._contexts = [self._graph.as_default(), self.as_default()]
        for context in self._contexts:
            context.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        for context in reversed(self._contexts or []):
            context.__exit__(*exc)
        self._contexts = None
        self.close()

    @staticmethod
    def reset(target: str, containers: Any = None, config: ConfigProto | None = None) -> None:
        """Clears resource containers on the cluster of ``target`` and closes the sessions of its master.

        Args:
          containers: names; None or empty: the default container of every device.
        """
        names = tuple(containers or ())
        if not target:
            for master in list(_local_masters):
                master.reset(names)
            return
        this_process.reset(address_of_target(target), names, SessionOptions.from_proto(config), client_endpoint)


@export("tf.InteractiveSession")
class InteractiveSession(BaseSession):
    """A session that makes itself the default (``tf.InteractiveSession``), for shells."""

    def __init__(self, target: Any = "", graph: Graph | None = None, config: ConfigProto | None = None) -> None:
        super().__init__(target, graph, config)
        if any(isinstance(session, InteractiveSession) for session in default_sessions()):
            warnings.warn(
                "An interactive session is already active. This can cause out-of-memory errors in some cases. You must"
                " explicitly call `InteractiveSession.close()` to release resources held by the other session(s).",
                stacklevel=2,
            )
        self._context: Any = session_scope(self, enforce_nesting=False)
        self._context.__enter__()
        self._graph_context: Any = None
        if graph is not None:
            self._graph_context = graph.as_default()
            self._graph_context.__enter__()

    def close(self) -> None:
        """Closes the session and withdraws it as the default."""
        if not self._closed:
            if self._graph_context is not None:
                self._graph_context.__exit__(None, None, None)
            self._context.__exit__(None, None, None)
        super().close()


def local_master(options: SessionOptions) -> Master:
    """A worker and a master of one session, in this process and without a network."""
    process = current_process()
    devices = devices_of_task(_LOCAL_TASK, options.device_count, options.wishes, lambda: process.randbits(63) | 1)
    return Master(Worker(_LOCAL_TASK, devices, process=process))


# ---- A step that a lost connection or a hook has cut off, and the same step without what it has done ----------------


def of_finished(session: BaseSession, fetches: Any, feed_dict: Any, omitted: frozenset[str]) -> Any:
    """The `FinishedStep` or `RemoteStep` of a step that has come to its end."""
    call = session._find_call(fetches, feed_dict)[0]
    remote = getattr(session.master, "unknown_step", None)
    return FinishedStep(call.plan, omitted) if remote is None else remote(call.signature, "a hook failed after it")


def run_without(
    session: BaseSession, updates: frozenset[str], fetches: Any, feed_dict: Any = None, options: Any = None
) -> Any:
    """`Session.run` of a step without some of its updates, which an earlier attempt has made."""
    call, values = session._find_call(fetches, feed_dict)
    plan = session.master.prepare(call.signature, omitted=updates)  # type: ignore[call-arg]
    return call.result(session._execute(call, values, options, None, plan), values, feed_dict)
