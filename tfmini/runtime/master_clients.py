"""How a session reaches its master: by a call in the same process, or by messages."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from tfmini import errors
from tfmini.graph.node import Node
from tfmini.placement.placer import DeviceAttributes
from tfmini.rpc import messages as m
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.reactor import Waiter, get_reactor
from tfmini.runtime.fetches import writable
from tfmini.runtime.inline_step import is_short
from tfmini.runtime.master import Master
from tfmini.runtime.master_session import MasterSession
from tfmini.runtime.options import SessionOptions

Signature = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
_TARGET_TIMEOUT_S = 60.0


class MasterClient(Protocol):
    """What a session asks of its master. Every method blocks until it has the answer."""

    def extend(self, nodes: Sequence[Node]) -> None: ...
    def prepare(self, signature: Signature) -> Any: ...
    def run(self, plan: Any, values: list[Any], timeout_s: float | None) -> list[Any]: ...
    def list_devices(self) -> list[DeviceAttributes]: ...
    def partitions(self, plan: Any) -> Any: ...
    def close(self) -> None: ...


class Blocking:
    """Turns a callback into a wait: the waiting thread drives the reactor itself."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._waiter = Waiter() if reactor is not None else None
        self._event = threading.Event() if reactor is None else None
        self.error: errors.OpError | None = None
        self.value: Any = None

    def done(self, error: errors.OpError | None, value: Any = None) -> None:
        """The callback: keeps the outcome and ends the wait."""
        self.error, self.value = error, value
        if self._waiter is not None:
            self._waiter.set()
        if self._event is not None:
            self._event.set()

    def answered(self, answer: Any) -> None:
        """The callback of an rpc call."""
        if isinstance(answer, errors.OpError):
            self.done(answer)
        else:
            self.done(None, answer)

    def result(self, timeout_s: float | None = None, expire: Callable[[], None] | None = None) -> Any:
        """Waits, then returns the value or raises the error.

        Args:
          timeout_s, expire: without a reactor, which has timers of its own: what to call when, so that
            the outcome comes.
        """
        if self._waiter is not None and not self._waiter.done:
            self._reactor.drive(self._waiter)
        # Without a network the wait is for another thread of this process.
        if self._event is not None and not self._event.wait(timeout_s) and expire is not None:
            expire()
            self._event.wait()
        if self.error is not None:
            raise self.error
        return self.value


class DirectMaster:
    """A master in this process: plain calls, and no message for what stays on its task."""

    def __init__(self, master: Master, options: SessionOptions) -> None:
        self._master = master
        self._options = options
        self._session: MasterSession | None = None

    @property
    def session(self) -> MasterSession:
        """The master session, opened at the first use."""
        if self._session is None:
            self._session = self._master.create_session((), self._options)
        return self._session

    def extend(self, nodes: Sequence[Node]) -> None:
        self.session.extend(nodes)

    def prepare(self, signature: Signature) -> Any:
        self._check()
        plan = self.session.find_plan(signature)
        if plan is None:
            wait = Blocking(self._master.reactor)
            self.session.prepare(signature, wait.done)
            plan = wait.result()
        return plan

    def run(self, plan: Any, values: list[Any], timeout_s: float | None) -> list[Any]:
        session = self._session
        assert session is not None
        if session.closed:
            self._check()
        timeout_s = timeout_s or session.options.operation_timeout_s
        if plan.local is not None and (not plan.is_inline or is_short(plan.local.graph.program)):
            return session.run_local(plan, values, timeout_s)
        wait = Blocking(self._master.reactor)
        cancel = session.run(plan, values, wait.done, timeout_s, in_process=True)
        try:
            expire = partial(session.expire, cancel, timeout_s)
            found = wait.result(timeout_s, expire)
        except errors.OpError:
            raise
        except BaseException:
            # Ctrl-C in the middle of a step: nobody will take its result.
            cancel(errors.CancelledError(None, None, "Step was cancelled by an interrupt of its client."))
            raise
        return [writable(v) for v in found]

    def _check(self) -> None:
        session = self._session
        if session is not None and session.closed:
            if self._master.sessions.get(session.handle) is None and not session.closed_because.startswith("Step was"):
                raise errors.AbortedError(None, None, session.closed_because)
            raise errors.AbortedError(None, None, f"Session {session.handle} is not found.")

    def list_devices(self) -> list[DeviceAttributes]:
        wait = Blocking(self._master.reactor)
        self._master.list_devices(lambda devices: wait.done(None, devices), self._options.device_filters)
        return wait.result()  # type: ignore[no-any-return]

    def partitions(self, plan: Any) -> Any:
        return plan.partitions

    def close(self) -> None:
        if self._session is not None:
            self._session.close()


_client: list[Endpoint] = []
_client_lock = threading.Lock()


def client_endpoint() -> Endpoint:
    """The endpoint of this process's sessions that have remote masters."""
    with _client_lock:
        if not _client or _client[0].closed:
            _client[:] = [Endpoint(get_reactor(), "", secrets.randbits(63))]
        return _client[0]


class RemoteMaster:
    """A master in another process."""

    def __init__(self, address: str, config: bytes, options: SessionOptions) -> None:
        self._peer = client_endpoint().peer(address)
        self._address = address
        self._config = config
        self._options = options
        self._handle = ""
        self._version = 0
        self._timeout_s = options.operation_timeout_s or min(options.connect_timeout_s, _TARGET_TIMEOUT_S)

    def _call(self, request: m.Message, timeout_s: float | None = None, first: bool = False) -> Any:
        wait = Blocking(get_reactor())
        handle = self._peer.call(request, wait.answered, timeout_s=timeout_s, wait_for_ready=first)
        try:
            return wait.result()
        except errors.DeadlineExceededError as error:
            if first:
                text = (
                    f"{error.message} Nobody answers at {self._address} ({self._peer.why or self._peer.state.value})."
                    " Start a tf.train.Server there, or correct the session's target."
                )
                raise errors.UnavailableError(None, None, text) from None
            raise
        except errors.OpError:
            raise
        except BaseException:
            handle.cancel()  # an interrupt: the master should not go on for nobody
            raise

    def extend(self, nodes: Sequence[Node]) -> None:
        graph = [n.to_wire() for n in nodes]
        if not self._handle:
            request = m.CreateSession(graph, self._config, self._address)
            reply = self._call(request, self._timeout_s, first=True)
            self._handle, self._version = reply.session_handle, reply.graph_version
        else:
            reply = self._call(m.ExtendSession(self._handle, graph, self._version))
            self._version = reply.new_graph_version

    def prepare(self, signature: Signature) -> Any:
        return signature

    def run(self, plan: Any, values: list[Any], timeout_s: float | None) -> list[Any]:
        feeds, fetches, targets = plan
        options = b""
        if timeout_s is not None:
            from tfmini import protos

            options = protos.RunOptions(timeout_in_ms=max(1, round(timeout_s * 1000))).SerializeToString()
        request = m.RunStep(self._handle, feeds, tuple(values), fetches, targets, options, "")
        return [writable(v) for v in self._call(request).values]

    def list_devices(self) -> list[DeviceAttributes]:
        reply = self._call(m.ListDevices(self._handle), self._timeout_s, first=True)
        return [DeviceAttributes(*fields) for fields in reply.devices]

    def partitions(self, plan: Any) -> Any:
        return None

    def close(self) -> None:
        if self._handle:
            handle, self._handle = self._handle, ""
            try:
                self._call(m.CloseSession(handle), 10.0)
            except (errors.UnavailableError, errors.AbortedError, errors.DeadlineExceededError):
                return  # a master that is gone has no session either
