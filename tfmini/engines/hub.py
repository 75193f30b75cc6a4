"""The launcher's side of agents: most of an engine whose tasks run elsewhere.

A subclass of `AgentEngine` has agents started by its scheduler, one per task, and nothing else. `tfmini.engines.agent`
describes the agents.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import selectors
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfmini import errors
from tfmini.cluster import HostPort
from tfmini.engines.channel import SECRET_BYTES, Channel, ChannelError
from tfmini.engines.invitation import Invitation, hosts_of_this_machine
from tfmini.engines.places import listen_at
from tfmini.rpc.address_book import ADDRESSES_ENV
from tfmini.tools.engine import EngineError, EngineOptions, Events, TaskCommand, TaskRequest
from tfmini.tools.supervision import TaskId

_MOST_UNKNOWN = 64  # connections that have not shown that they hold the secret


@dataclass
class _Place:
    """Where a task runs, by its agent's hello."""

    channel: Channel
    address: HostPort
    cpus: int
    host: str
    returncode: int | None = None


class AgentEngine(ABC):
    """An engine that runs tasks through agents. Its subclasses have them started, one per request.

    Agents have numbers: first those of the requests, and further ones for tasks that are added.
    """

    adds_tasks = False
    restarts_all = False

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._places: dict[TaskId, _Place] = {}
        self._expected: dict[int, TaskId] = {}  # number of an agent that has not come yet -> its task
        self._numbers = 0
        self._unknown: dict[Channel, None] = {}
        self._secret = os.urandom(SECRET_BYTES)
        self._listener: socket.socket | None = None
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
            self._listener = listen_at("")
        except (OSError, errors.OpError) as error:
            raise EngineError(f"The launcher has no port at which agents could reach it: {error}.") from None
        selector.register(self._listener, selectors.EVENT_READ, self._accept)
        port = self._listener.getsockname()[1]
        addresses = tuple(HostPort(host, port) for host in hosts_of_this_machine() if ":" not in host)
        self._invitation = Invitation(addresses, self._secret)
        self.start_agents(requests, self._invitation)

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
        if task in self._places:
            self._tell(task, "goodbye", 0)
            self._forget(self._places.pop(task).channel)

    def start(self, commands: Mapping[TaskId, TaskCommand]) -> None:
        """Sends each agent its command; see `Engine.start`."""
        self._begun = True
        if self.adds_tasks and not os.environ.get(ADDRESSES_ENV):
            self._tell_addresses()
        for task, command in commands.items():
            key = Path(command.key_file).read_bytes() if command.key_file else b""
            fields = dataclasses.asdict(command) | {"key_file": ""}
            self._tell(task, "start", fields, key, self._options.grace_s)
            if self._holds:
                self._tell(task, "hold", True)

    def hold_output(self, is_held: bool) -> None:
        """Tells the agents to read no output of their tasks; see `Engine.hold_output`."""
        self._holds = is_held
        for task in list(self._places):
            self._tell(task, "hold", is_held)

    def _tell_addresses(self) -> None:
        """Tells all agents where the tasks are; each has a copy of the address book for its task."""
        book = {str(task): str(place.address) for task, place in self._places.items()}
        for task in list(self._places):
            self._tell(task, "addresses", book)

    def signal(self, tasks: Sequence[TaskId], signum: int) -> None:
        """Asks the agents to signal their tasks."""
        for task in tasks:
            if task in self._places:
                self._tell(task, "signal", int(signum))

    def close(self, exit_code: int) -> None:
        """Lets the agents end; see `Engine.close`."""
        for task in self._places:
            self._tell(task, "goodbye", exit_code)
        for place in self._places.values():
            self._forget(place.channel)
        for channel in list(self._unknown):
            self._forget(channel)
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
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
            self._events.note(reason)
            self.withdraw(task)
            self._events.ended(task, -signal.SIGKILL)

    # ---------------------------------------------------------------- connections

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
            channel = Channel(connection, self._secret, is_hub=True)
        except (OSError, ChannelError):
            return
        while len(self._unknown) >= _MOST_UNKNOWN:
            self._forget(next(iter(self._unknown)))
        self._unknown[channel] = None
        self._selector.register(channel, selectors.EVENT_READ, lambda: self._take_hello(channel))

    def _take_hello(self, channel: Channel) -> None:
        try:
            messages = channel.receive()
        except ChannelError:
            self._forget(channel)
            return
        if not messages:
            return
        kind, *values = messages[0]
        says_hello = kind == "hello" and len(values) == 5 and isinstance(values[0], int)
        task = self._expected.pop(values[0], None) if says_hello else None
        if task is None:
            self._forget(channel)
            return
        del self._unknown[channel]
        _, host, port, cpus, name = values
        self._places[task] = _Place(channel, HostPort(host, port), cpus, name)
        self._selector.modify(channel, selectors.EVENT_READ, lambda: self._take(task))
        self._events.placed(task, str(self._places[task].address), cpus)
        if self.is_complete and not self._begun:
            self._share_cores()
        for message in messages[1:]:
            self._handle(task, message)

    def _share_cores(self) -> None:
        """Divides the cores of a host among its tasks, where the scheduler has not done so."""
        per_host = collections.Counter(place.host for place in self._places.values())
        for task, place in self._places.items():
            self._events.placed(task, str(place.address), max(1, place.cpus // per_host[place.host]))

    def _forget(self, channel: Channel) -> None:
        self._unknown.pop(channel, None)
        if channel.fileno() >= 0 and channel in self._selector.get_map():
            self._selector.unregister(channel)
        channel.close()

    # ---------------------------------------------------------------- messages

    def _tell(self, task: TaskId, *message: Any) -> None:
        place = self._places.get(task)
        if place is None or place.channel.fileno() < 0:  # it has ended, also by what was told to another task
            return
        try:
            place.channel.send(*message)
            while place.channel.unsent:  # commands are small: they fit into the socket's buffer but for a wedged host
                _wait_until_writable(place.channel)
                place.channel.flush()
        except ChannelError as error:
            self._lost(task, str(error))

    def _take(self, task: TaskId) -> None:
        place = self._places.get(task)
        if place is None:
            return
        try:
            messages = place.channel.receive()
        except ChannelError as error:
            self._lost(task, str(error))
            return
        for message in messages:
            if task in self._places:  # its end may have made it be started again
                self._handle(task, message)

    def _handle(self, task: TaskId, message: list[Any]) -> None:
        place = self._places[task]
        match message:
            case ["output", bytes(data)]:
                self._events.output(task, data)
            case ["joined", bool(joined)]:
                self._events.joined(task, joined)
            case ["progress", str(words)]:
                self._events.progress(task, words)
            case ["ended", int(returncode)]:
                place.returncode = returncode
                self._events.ended(task, returncode)
            case ["failed", str(reason)]:
                self._events.note(f"{task} could not be started on {place.host}: {reason}")
            case ["told", int(signum)] if signum not in self._told:
                self._told.add(signum)
                name = signal.Signals(signum).name
                self._events.note(f"{task} on {place.host} has received {name} from the engine.")

    def _lost(self, task: TaskId, reason: str) -> None:
        """The agent has gone. Its task ends with it, so it counts as killed."""
        place = self._places[task]
        self._forget(place.channel)
        if not self._begun:
            self._events.broken(f"The agent of {task} on {place.host} has ended: {reason}.")
        elif place.returncode is None:
            place.returncode = -signal.SIGKILL
            self._events.note(f"{task} is lost with its agent on {place.host}: {reason}.")
            self._events.ended(task, -signal.SIGKILL)


def _wait_until_writable(channel: Channel, limit_s: float = 10.0) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_WRITE)
        if not selector.select(limit_s):
            raise ChannelError(f"its host has taken no message for {limit_s:g} s")
