"""The launcher's side of agents: most of an engine whose tasks run elsewhere.

A subclass of `AgentEngine` has agents started by its scheduler, one per task, and nothing else. `tfmini.launch.agent`
describes the agents.
"""

from __future__ import annotations

import collections
import contextlib
import os
import selectors
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfmini import errors
from tfmini.cluster import HostPort
from tfmini.launch import agent_messages as m
from tfmini.launch.engine import EngineError, EngineOptions, Events, TaskCommand, TaskRequest
from tfmini.launch.invitation import AGENT_ENV, LAUNCHER, Invitation, endpoint_of_run, hosts_of_this_machine
from tfmini.launch.supervision import TaskId
from tfmini.rpc.addresses import ADDRESSES_ENV, allowed_ports, bind_to_port
from tfmini.rpc.calls import Responder
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.keys import new_keys
from tfmini.rpc.peer import Peer
from tfmini.rpc.records import Message


@dataclass
class _Place:
    """Where a task runs, by what its agent has said when it entered the run.

    Attributes:
      order: tells the agent what to run, once.
    """

    peer: Peer
    order: Responder
    address: HostPort
    cpus: int
    host: str
    returncode: int | None = None


class AgentEngine(ABC):
    """An engine that runs tasks through agents. Its subclasses have them started, one per request.

    Agents have numbers: first those of the requests, and further ones for tasks that are added. Their messages come in
    threads of rpc; all of them, and the losses of agents, are handled in the launcher's thread.
    """

    adds_tasks = False
    restarts_all = False

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._places: dict[TaskId, _Place] = {}
        self._expected: dict[int, TaskId] = {}  # number of an agent that has not come yet -> its task
        self._numbers = 0
        self._tasks: dict[Peer, TaskId] = {}  # of the agents that have entered the run
        self._keys = new_keys()
        self._endpoint: Endpoint | None = None
        self._begun = False
        self._told: set[int] = set()
        self._holds = False

    @abstractmethod
    def start_agents(self, requests: Sequence[TaskRequest], invitation: Invitation) -> None:
        """Has an agent started for each request, whose number is its place in the sequence.

        Raises:
          EngineError: that is impossible.
        """

    def start_agent(self, number: int, request: TaskRequest) -> None:
        """Has one more agent started, during the run.

        Raises:
          EngineError: that is impossible.
        """
        raise EngineError("This engine starts all tasks at once.")

    @abstractmethod
    def end_agents(self) -> None:
        """Returns when the agents have ended. They end by themselves; here the scheduler's part is released."""

    @abstractmethod
    def reap(self) -> None:
        """See `Engine.reap`."""

    def reserve(self, requests: Sequence[TaskRequest], events: Events, selector: selectors.BaseSelector) -> None:
        """Opens a port for the agents and has them started; see `Engine.reserve`."""
        self._events, self._selector = events, selector
        self._expected = {number: request.task for number, request in enumerate(requests)}
        self._numbers = len(requests)
        try:
            port = self._listen()
        except (OSError, errors.OpError) as error:
            raise EngineError(f"The launcher has no port at which agents could reach it: {error}.") from None
        addresses = tuple(HostPort(host, port) for host in hosts_of_this_machine() if ":" not in host)
        self._invitation = Invitation(addresses, self._keys.secret)
        self.start_agents(requests, self._invitation)

    def _listen(self) -> int:
        """Opens a port for the agents; returns its number."""
        self._endpoint = endpoint = endpoint_of_run(LAUNCHER, self._keys)
        self._calls = LoopCalls(self._selector)
        endpoint.serve({m.EnterRun: self._on_agent, **dict.fromkeys(_HANDLERS, self._on_message)})
        found: list[str] = []

        def listen(port: int) -> None:
            try:
                found.append(endpoint.listen(f"*:{port}"))
            except errors.UnknownError as error:  # in use
                raise OSError(error.message) from None

        bind_to_port(listen, allowed_ports())
        return int(found[0].rpartition(":")[2])

    def add(self, requests: Sequence[TaskRequest]) -> None:
        """Has an agent started for each; see `Engine.add`."""
        for request in requests:
            self.withdraw(request.task)
            number, self._numbers = self._numbers, self._numbers + 1
            self._expected[number] = request.task
            self.start_agent(number, request)

    def withdraw(self, task: TaskId) -> None:
        """Lets the agent of a task go, or waits for it no longer."""
        self._expected = {number: other for number, other in self._expected.items() if other != task}
        place = self._places.pop(task, None)
        if place is not None:
            place.peer.send(m.LeaveRun(0))
            self._tasks.pop(place.peer, None)
            place.peer.close("the run needs its agent no longer")

    def start(self, commands: Mapping[TaskId, TaskCommand]) -> None:
        """Sends each agent its command; see `Engine.start`."""
        self._begun = True
        if self.adds_tasks and not os.environ.get(ADDRESSES_ENV):  # each agent has a copy of the book for its task
            book = {str(task): str(place.address) for task, place in self._places.items()}
            self._tell(self._places, m.TaskAddresses(book))
        for task, command in commands.items():
            place = self._places.get(task)
            if place is None:  # lost, also by what became of another task
                continue
            key = Path(command.key_file).read_bytes() if command.key_file else b""
            place.order(
                m.TaskOrder(
                    tuple(command.arguments), command.defaults, command.role, key, command.serves, self._options.grace_s
                )
            )
            if self._holds:
                place.peer.send(m.HoldOutput(True))

    def hold_output(self, is_held: bool) -> None:
        """Tells the agents to read no output of their tasks; see `Engine.hold_output`."""
        self._holds = is_held
        self._tell(self._places, m.HoldOutput(is_held))

    def signal(self, tasks: Sequence[TaskId], signum: int) -> None:
        """Asks the agents to signal their tasks."""
        self._tell(tasks, m.SignalTask(int(signum)))

    def _tell(self, tasks: Iterable[TaskId], message: Message) -> None:
        """Tells the agents of tasks, as far as they are there. What it leads to comes later, as calls of the loop."""
        for task in tasks:
            if task in self._places:
                self._places[task].peer.send(message)

    def close(self, exit_code: int) -> None:
        """Lets the agents end; see `Engine.close`."""
        self._tell(self._places, m.LeaveRun(exit_code))
        if self._endpoint is not None:
            self._endpoint.close()
            self._calls.close()
        self.end_agents()

    @property
    def is_complete(self) -> bool:
        """Whether every task has a place."""
        return not self._expected

    def no_agent(self, reason: str, tasks: Sequence[TaskId] = ()) -> None:
        """Agents that are expected will not come: that breaks a run which has not begun, and else ends their tasks."""
        if not self._begun:
            self._events.broken(reason)
            return
        for task in [task for task in tasks if task in self._expected.values()]:
            self._events.note(reason, task)
            self.withdraw(task)
            self._events.ended(task, -signal.SIGKILL)

    # ---------------------------------------------------------------- in threads of rpc

    def _on_agent(self, peer: Peer, message: m.EnterRun, order: Responder) -> None:
        peer.on_lost(lambda peer, reason: self._calls.put(self._lost, peer, reason))
        self._calls.put(self._enter, peer, message, order)

    def _on_message(self, peer: Peer, message: Message, order: None) -> None:
        self._calls.put(self._take, peer, message)

    # ---------------------------------------------------------------- in the launcher's thread

    def _enter(self, peer: Peer, hello: m.EnterRun, order: Responder) -> None:
        if order.cancelled:  # it has gone already
            return
        task = self._expected.pop(hello.number, None)
        if task is None:
            order(errors.FailedPreconditionError.of(f"This run waits for no agent of the number {hello.number}."))
            return
        address = HostPort(hello.host, hello.port)
        self._places[task] = _Place(peer, order, address, hello.cpus, hello.machine)
        self._tasks[peer] = task
        self._events.placed(task, str(address), hello.cpus)
        if self.is_complete and not self._begun:
            self._share_cores()

    def _share_cores(self) -> None:
        """Divides the cores of a host among its tasks, where the scheduler has not done so."""
        per_host = collections.Counter(place.host for place in self._places.values())
        for task, place in self._places.items():
            self._events.placed(task, str(place.address), max(1, place.cpus // per_host[place.host]))

    def _take(self, peer: Peer, message: Message) -> None:
        task = self._tasks.get(peer)
        if task is not None:  # else its end may have made it be started again
            _HANDLERS[type(message)](self, task, message)

    def _take_end(self, task: TaskId, message: m.TaskEnded) -> None:
        self._places[task].returncode = message.returncode
        self._events.ended(task, message.returncode)

    def _take_failure(self, task: TaskId, message: m.TaskFailed) -> None:
        self._events.note(f"{task} could not be started on {self._places[task].host}: {message.reason}", task)

    def _take_signal(self, task: TaskId, message: m.AgentSignalled) -> None:
        if message.signum not in self._told:
            self._told.add(message.signum)
            name = signal.Signals(message.signum).name
            self._events.note(f"{task} on {self._places[task].host} has received {name} from the engine.", task)

    def _lost(self, peer: Peer, reason: str) -> None:
        """The agent has gone. Its task ends with it, so it counts as killed."""
        task = self._tasks.pop(peer, None)
        if task is None:
            return
        place = self._places[task]
        if not self._begun:
            self._events.broken(f"The agent of {task} on {place.host} has ended: {reason}.")
        elif place.returncode is None:
            place.returncode = -signal.SIGKILL
            self._events.note(f"{task} is lost with its agent on {place.host}: {reason}.", task)
            self._events.ended(task, -signal.SIGKILL)


_HANDLERS: dict[type[Message], Callable[[AgentEngine, TaskId, Any], None]] = {
    m.TaskOutput: lambda engine, task, message: engine._events.output(task, message.data),
    m.TaskJoined: lambda engine, task, message: engine._events.joined(task, message.joined),
    m.TaskProgress: lambda engine, task, message: engine._events.progress(task, message.words),
    m.TaskEnded: AgentEngine._take_end,
    m.TaskFailed: AgentEngine._take_failure,
    m.AgentSignalled: AgentEngine._take_signal,
}
"""What an agent tells of its task, and what the launcher does then. rpc refuses every other message with a reason."""


# ---- command ----------------------------------------
# The command of a scheduler that starts agents, such as srun and mpirun, as a child process of the launcher.

_LAST_LINES = 10
_END_S = 15.0  # for the scheduler to notice that its processes have ended


class EngineCommand:
    """A running scheduler's command. What it prints is shown; if it ends too early, the run is broken.

    Args:
      argv: its command line; the agents inherit its environment, with the invitation.

    Raises:
      EngineError: there is no such program.
    """

    def __init__(
        self, argv: Sequence[str], invitation: Invitation, events: Events, selector: selectors.BaseSelector
    ) -> None:
        self.name = os.path.basename(argv[0])
        self._events, self._selector = events, selector
        self._partial = b""
        self._last: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
        try:
            self._process = subprocess.Popen(
                argv,
                env={**os.environ, AGENT_ENV: invitation.to_word()},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the launcher, which tells the tasks in order
            )
        except OSError as error:
            raise EngineError(f"Cannot run {argv[0]}: {error.strerror}. Is it installed, and in PATH?") from None
        assert self._process.stdout is not None
        self._output = self._process.stdout
        os.set_blocking(self._output.fileno(), False)
        selector.register(self._output, selectors.EVENT_READ, self._take_output)

    def has_ended(self) -> bool:
        """Whether it has ended; if so, its last words have been shown."""
        if self._process.poll() is None:
            return False
        self._take_output()
        return True

    def complaint(self) -> str:
        """Why it ended, for an error."""
        said = " ".join(line for line in self._last if line.strip(" -=*")) or "it printed nothing"
        return f"{self.name} ended with exit code {self._process.returncode} before all tasks had a place: {said}"

    def close(self) -> None:
        """Waits for its end, since its agents have ended or are about to; asks for it, and then insists."""
        for ask in (lambda: None, self._process.terminate, self._process.kill):
            ask()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)
                break
        self._take_output()
        if self._output in self._selector.get_map():
            self._selector.unregister(self._output)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._output.close()

    def _take_output(self) -> None:
        try:
            data = os.read(self._output.fileno(), 65536)
        except BlockingIOError:
            return
        if not data:
            if self._output in self._selector.get_map():
                self._selector.unregister(self._output)
            return
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace")
            self._last.append(text)
            self._events.note(f"{self.name}: {text}" if not text.startswith(self.name) else text)


# ---- Calls that other threads want made in the thread of a loop with a selector ------------------------------------


class LoopCalls:
    """Hands what other threads learn to the one thread that decides.

    An engine and an agent have their state in one thread, which waits in a selector; rpc, a scheduler's client and
    threads that read output report to it by `put`. All else is called by that thread.
    """

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._calls: collections.deque[tuple[Callable[..., Any], tuple[Any, ...]]] = collections.deque()
        self._read, self._write = socket.socketpair()
        for end in (self._read, self._write):  # the writing end, too: a full buffer wakes as well
            end.setblocking(False)
        selector.register(self._read, selectors.EVENT_READ, self._make)

    def put(self, call: Callable[..., Any], *args: object) -> None:
        """Makes a call in the loop's thread, after those that were put before. From any thread."""
        self._calls.append((call, args))
        with contextlib.suppress(OSError):  # the loop is over, or has not read enough wakes yet
            self._write.send(b"x")

    def _make(self) -> None:
        # What was written is read first: a call that is put from now on wakes the loop again.
        with contextlib.suppress(BlockingIOError):
            self._read.recv(4096)
        while self._calls:
            call, args = self._calls.popleft()
            call(*args)

    def close(self) -> None:
        """Makes no call any more."""
        self._calls.clear()
        if self._read in self._selector.get_map():
            self._selector.unregister(self._read)
        self._read.close()
        self._write.close()
