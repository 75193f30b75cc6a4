"""The process that servers, sessions and training loops belong to: its clock, event loop, random numbers and threads.

`current_process` is the operating system's process, unless the calling thread belongs to a simulated one
(`simulation.simulated_process`). A server or session takes its process from the thread that makes it, and gives it to
its parts.
"""

from __future__ import annotations

import atexit
import collections
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.cluster import HostPort
from tfmini.locks import lock
from tfmini.rpc import messages as m
from tfmini.rpc.waiter import Waiter
from tfmini.runtime.options import SessionOptions, new_step_id

if TYPE_CHECKING:
    from tfmini.rpc.endpoint import Endpoint


SPARE_S = 10.0


def _randbits(count: int) -> int:
    """A random number of ``count`` bits that no peer can guess. (Scripts seed Python's own generator.)"""
    return int.from_bytes(os.urandom((count + 7) // 8), "big") >> (-count % 8)


class Process:
    """The process of the operating system. A simulated process has the same interface.

    Attributes:
      now: a clock in seconds that never goes back; ``wall_time``: seconds since 1970, for files and people.
      is_real: whether it is the operating system's; a simulated one ends without notice.
      has_threads: whether segments that take long may run in a pool.
      shares_memory: whether tasks on this machine may reduce tensors in shared memory.
      servers: address -> (id of the process that made it, server).
      is_leaving: whether it was told to end while it trained, and leaves the run after its step.
      kernel_model: takes the place of kernels in a simulation (`compiler.codegen.KernelModel`); None: the kernels run.
      client: the endpoint of the sessions that have remote masters, and the id of the process that made it.
    """

    is_real = True
    has_threads = True
    shares_memory = True
    kernel_model: Any = None
    now: Callable[[], float] = staticmethod(time.monotonic)
    # Looked up late, since tests of other projects put functions of their own in the place of these two.
    wall_time: Callable[[], float] = staticmethod(lambda: time.time())
    sleep: Callable[[float], None] = staticmethod(lambda seconds: time.sleep(seconds))
    randbits: Callable[[int], int] = staticmethod(_randbits)
    new_step_id: Callable[[], int] = staticmethod(new_step_id)

    def __init__(self) -> None:
        self.servers: dict[str, tuple[int, Any]] = {}
        self.is_leaving = False
        self.client: tuple[int, Endpoint] | None = None

    @property
    def reactor(self) -> Any:
        """The event loop (`rpc.waiter.Clock`)."""
        from tfmini.rpc.reactor import get_reactor  # late: a `Coordinator` needs no event loop

        return get_reactor()

    def endpoint(self, task: str, incarnation: int, cluster: Mapping[str, str] | None = None) -> Endpoint:
        """The presence of one task or client on the network; see `Endpoint`."""
        from tfmini.rpc.addresses import book_of_job
        from tfmini.rpc.endpoint import Endpoint

        return Endpoint(self.reactor, task, incarnation, cluster, book=book_of_job())

    @property
    def tasks_move(self) -> bool:
        """Whether tasks have an address book, so that they may be at other addresses than the ClusterSpec's."""
        from tfmini.rpc.addresses import book_of_job

        return book_of_job() is not None

    def listen(self, endpoint: Endpoint, own: HostPort, others: Iterable[str]) -> HostPort:
        """Makes a server listen, and writes where it is into the address book of the job if there is one.

        Args:
          own: its address in the ClusterSpec; ``others``: those of the other tasks.

        Returns:
          The address at which others reach it.

        Raises:
          errors.UnknownError, errors.InvalidArgumentError: see `rpc.addresses.listen`.
        """
        from tfmini.rpc.addresses import TaskEntry, listen

        reached = listen(endpoint.listen, own, others, may_move=endpoint.book is not None)
        if endpoint.book is not None:
            endpoint.book.publish(endpoint.task, TaskEntry((str(reached),), endpoint.incarnation))
        return reached

    def event(self) -> threading.Event:
        """A flag that threads of this process wait for."""
        return threading.Event()

    def thread(
        self, target: Callable[..., Any], args: tuple[Any, ...] = (), name: str | None = None, daemon: bool = False
    ) -> threading.Thread:
        """A thread of this process, not started."""
        return threading.Thread(target=target, args=args, name=name, daemon=daemon)

    def at_exit(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """Makes the call when the process ends in good order; returns a function that takes this back."""
        atexit.register(call)
        return lambda: atexit.unregister(call)

    def pool(self, size: int, name: str) -> Any:
        """An executor for calls that take long (`concurrent.futures.ThreadPoolExecutor`)."""
        return ThreadPoolExecutor(size, thread_name_prefix=name)

    def spare_threads(self, name: str) -> Any:
        """An executor for calls that may never return (`SpareThreads`)."""
        return SpareThreads(name)


class SpareThreads:
    """Daemon threads for calls that may never return: as many as there are such calls at once.

    A thread that is done waits for the next call for some seconds. At the end of the process nobody waits for them.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition(lock("spare"))
        self._waiting = 0  # threads without a call
        self._calls: collections.deque[tuple[Callable[..., Any], tuple[Any, ...]]] = collections.deque()  # for them

    def submit(self, function: Callable[..., Any], *args: object) -> None:
        """Makes the call in another thread.

        Raises:
          RuntimeError: the process can start no thread.
        """
        with self._changed:
            starts = self._waiting == len(self._calls)  # each that waits has a call to come
            if not starts:
                self._calls.append((function, args))
                self._changed.notify()
        if starts:
            threading.Thread(target=self._run, args=([(function, args)],), name=self._name, daemon=True).start()

    def _run(self, calls: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> None:
        while True:
            function, args = calls.pop()  # a `Thread` keeps its arguments as long as it runs: this list, then empty
            function(*args)
            del function, args  # they hold a step, with its tensors
            with self._changed:
                self._waiting += 1
                self._changed.wait_for(lambda: self._calls, SPARE_S)
                self._waiting -= 1
                if not self._calls:
                    return
                calls.append(self._calls.popleft())


def submitted(pool: Any, function: Callable[..., None], *args: object) -> bool:
    """Gives a pool a call; False if the interpreter is about to exit, which closes all pools."""
    try:
        pool.submit(function, *args)
    except RuntimeError as error:
        if not is_at_exit(error):
            raise  # such as: can't start new thread
        return False
    return True


def is_at_exit(error: RuntimeError) -> bool:
    """Whether a pool has refused a call because the interpreter is about to exit, which closes all pools."""
    return "cannot schedule new futures" in str(error)


_process = Process()
_of_thread = threading.local()


def current_process() -> Process:
    """The process that the calling thread belongs to."""
    found: Process = getattr(_of_thread, "process", _process)
    return found


def set_current_process(process: Process | None) -> Process | None:
    """Makes the calling thread belong to a simulated process, or (None) to the real one; returns the process before."""
    before: Process | None = getattr(_of_thread, "process", None)
    if process is None:
        _of_thread.__dict__.pop("process", None)
    else:
        _of_thread.process = process
    return before


def random_name(process: Process) -> str:
    """A name of 16 hexadecimal digits that nobody else has."""
    return f"{process.randbits(64):016x}"


# ---- Targets of sessions, and the servers of this process by address -----------------------------------------------

_SCHEMES = ("zmq://", "grpc://", "tcp://")
_RESET_TIMEOUT_S = 60.0
_ADDRESS = re.compile(r"[\w.-]+:\d+")
_default_target = [""]


def address_of_target(target: str) -> str:
    """``host:port`` of a session target.

    Raises:
      NotFoundError: for a scheme that no master listens on.
    """
    for scheme in _SCHEMES:
        if target.startswith(scheme):
            return target[len(scheme) :]
    if target.startswith("ipc://"):
        return target
    meant = f" Did you mean grpc://{target}, or server.target?" if _ADDRESS.fullmatch(target) else ""
    raise errors.NotFoundError.of(
        f'No session factory registered for the given session options: {{target: "{target}" config: }} Registered'
        " factories are {DIRECT_SESSION, ZMQ_SESSION (zmq://host:port), GRPC_SESSION (the same, spelled grpc://)}."
        f"{meant}"
    )


def default_target() -> str:
    """Whose server runs the sessions that name no target: "" (none), or what `set_default_target` has set."""
    return _default_target[0]


def set_default_target(target: str) -> None:
    """Lets sessions without a target use the collectives of that server. Their variables stay their own."""
    _default_target[0] = target


def register(address: str, server: Any) -> None:
    """Makes a server findable by its address."""
    current_process().servers[_canonical(address)] = os.getpid(), server


def unregister(address: str) -> None:
    """Forgets a server."""
    current_process().servers.pop(_canonical(address), None)


def server_at(address: str) -> Any:
    """The server of this process that listens there, or None."""
    pid, server = current_process().servers.get(_canonical(address), (0, None))
    return server if pid == os.getpid() else None  # a forked child inherits the table


def same_address(one: str, other: str) -> bool:
    """Whether two spellings of ``host:port``, with or without a scheme, mean the same."""
    return _canonical(_without_scheme(one)) == _canonical(_without_scheme(other))


def _without_scheme(address: str) -> str:
    return next((address[len(scheme) :] for scheme in _SCHEMES if address.startswith(scheme)), address)


def _canonical(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"{'localhost' if host in ('127.0.0.1', '[::1]', '0.0.0.0') else host}:{port}"


def reset(
    address: str, containers: tuple[str, ...], options: SessionOptions, client_endpoint: Callable[[], Any]
) -> None:
    """Asks the master at an address to clear containers; blocks until it has."""
    waiter = Waiter()
    outcome: list[Any] = []

    def done(answer: Any) -> None:
        outcome.append(answer)
        waiter.set()

    server = server_at(address)
    if server is not None:
        server.master.reset(containers, options.device_filters, done)
    else:
        request = m.Reset(containers, options.device_filters)
        timeout_s = options.operation_timeout_s or _RESET_TIMEOUT_S
        client_endpoint().peer(address).call(request, done, timeout_s=timeout_s, wait_for_ready=True)
    if not waiter.done:
        current_process().reactor.drive(waiter)
    if isinstance(outcome[0], errors.OpError):
        raise outcome[0]
