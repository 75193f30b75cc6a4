"""The agent of one task: the process that an engine starts in place of the task.

``python -m tfmini.engines.agent BASE [VARIABLE…]`` connects to the launcher of its ``TFMINI_AGENT``, reserves a port,
says where it is, and receives the task's command. It starts the task, passes on its output, its reports and its exit
code, and sends it the signals that the launcher asks for. So the launcher supervises tasks on all engines as it does
local ones.

When the launcher has gone, the agent ends the task: SIGTERM, then SIGKILL after the grace time. When the engine sends
the agent SIGTERM (``scancel``, a time limit, a node that is drained), the agent forwards it to a working task at once.
A service ignores SIGTERM: it is needed until the working tasks have saved. The launcher ends it afterwards.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from tfmini import errors
from tfmini.engines.channel import Channel, ChannelError
from tfmini.engines.held_key import held_key
from tfmini.engines.invitation import Invitation, connect, take_invitation
from tfmini.engines.local import TaskReports, task_argv, task_environment, usable_cpus
from tfmini.engines.places import listen_at
from tfmini.printable import printable_lines
from tfmini.rpc.address_book import ADDRESSES_ENV, AddressBook, Entry
from tfmini.rpc.keys import KEYS_ENV
from tfmini.tools.cluster_run import received_signals
from tfmini.tools.engine import TaskCommand
from tfmini.tools.processes import Guardian, TaskProcess
from tfmini.tools.supervision import TaskId

ALIVE_ENV = "TFMINI_AGENT_LIFELINE"
"""The descriptor of a pipe that ends when the process does that has started the agent; the agent's task ends then."""
_FULL = 1 << 20  # bytes of output that may wait for the launcher before the task must wait
STOP_SERVICE = signal.SIGHUP
"""Ends a service, which ignores SIGTERM. A service has no state that it could save."""


class Agent:
    """Runs the task that the launcher assigns. Call `run` once, in the main thread."""

    def __init__(self, channel: Channel, number: int) -> None:
        self._channel = channel
        self._selector = selectors.DefaultSelector()
        self._number = number
        self._listener: socket.socket | None = None
        self._process: TaskProcess | None = None
        self._reports: TaskReports | None = None
        self._guardian: Guardian | None = None
        self._serves = False
        self._writes = True  # its output is open
        self._asked = False  # to end, by SIGTERM
        self._book: tempfile.TemporaryDirectory[str] | None = None
        self._grace_s = 5.0
        self._kill_at: float | None = None
        self._returncode: int | None = None
        self._alone = False  # the launcher has gone
        self._held = False  # it wants no output now
        self._exit_code: int | None = None

    def run(self) -> int:
        """Serves the launcher until it says goodbye or has gone. Returns the exit code of this process."""
        with received_signals() as signals, self._selector:
            self._selector.register(signals, selectors.EVENT_READ, lambda: self._take_signals(signals))
            self._selector.register(self._channel, selectors.EVENT_READ, self._take_messages)
            lifeline = os.environ.pop(ALIVE_ENV, "")
            if lifeline.isdecimal():
                self._selector.register(int(lifeline), selectors.EVENT_READ, lambda: self._take_end(int(lifeline)))
            try:
                self._say_hello()
                while self._exit_code is None:
                    self._wait()
                return self._exit_code
            finally:
                self._close()

    def _say_hello(self) -> None:
        host = self._channel.own_host()
        self._listener = listen_at(host)
        port = self._listener.getsockname()[1]
        self._tell("hello", self._number, host, port, usable_cpus(), socket.gethostname())

    def _wait(self) -> None:
        self._listen_to_output()
        timeout = None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())
        for key, mask in self._selector.select(timeout):
            if key.fileobj is self._channel and mask & selectors.EVENT_WRITE:
                self._try(self._channel.flush)
            if mask & selectors.EVENT_READ:
                key.data()
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_at = None
            self._signal(signal.SIGKILL)
        if self._alone and self._returncode is not None:
            self._exit_code = 1

    def _listen_to_output(self) -> None:
        """Chooses what to wait for: a launcher that reads slowly, or wants no output, makes the task wait."""
        unsent = 0 if self._alone else self._channel.unsent
        if not self._alone:
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if unsent else 0)
            self._selector.modify(self._channel, wanted, self._take_messages)
        if self._process is None or self._returncode is not None:
            return
        listens = self._process.output in self._selector.get_map()
        is_held = not self._alone and (self._held or unsent > _FULL)
        if listens and is_held:
            self._selector.unregister(self._process.output)
        elif not listens and not is_held and self._writes:
            self._selector.register(self._process.output, selectors.EVENT_READ, self._take_output)

    def _tell(self, *message: Any) -> None:
        if not self._alone:
            self._try(lambda: self._channel.send(*message))

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except ChannelError:
            self._launcher_has_gone()

    def _launcher_has_gone(self) -> None:
        if self._alone:
            return
        self._alone = True
        self._selector.unregister(self._channel)
        if self._process is None:
            self._exit_code = 1
        else:
            self._forward(signal.SIGTERM)
            self._kill_at = time.monotonic() + self._grace_s

    # ---------------------------------------------------------------- events

    def _take_messages(self) -> None:
        try:
            messages = self._channel.receive()
        except ChannelError:
            self._launcher_has_gone()
            return
        for kind, *values in messages:
            match kind:
                case "addresses":
                    self._write_addresses(values[0])
                case "start":
                    self._start(*values)
                case "signal":
                    self._forward(values[0])
                case "hold":
                    self._held = bool(values[0])
                case "goodbye":
                    self._exit_code = int(values[0])

    def _write_addresses(self, addresses: dict[str, str]) -> None:
        """Writes where all tasks are, into a copy of the address book that is this task's alone."""
        self._book = self._book or tempfile.TemporaryDirectory(prefix="tfmini-addresses-")
        book = AddressBook(self._book.name)
        for task, address in addresses.items():
            job, _, index = task.rpartition("/")
            # The launcher does not know incarnations. They matter for addresses that are used again, and the port of
            # a place is new.
            book.publish(f"/job:{job}/replica:0/task:{index}", Entry((address,), 0))

    def _start(self, fields: dict[str, Any], key: bytes, grace_s: float) -> None:
        command = TaskCommand(**fields)
        self._grace_s, self._serves = grace_s, command.serves
        assert self._listener is not None
        self._reports = TaskReports(self._joined, self._selector, lambda task, words: self._tell("progress", words))
        self._guardian = Guardian()
        environment = task_environment(command, self._listener.fileno(), self._reports)
        if self._book is not None and not environment.get(ADDRESSES_ENV):
            environment[ADDRESSES_ENV] = self._book.name
        if key:
            environment[KEYS_ENV] = held_key(key)
        try:
            fds = [self._listener.fileno(), self._reports.write]
            ignored = [signal.SIGTERM] if self._serves else []
            self._process = TaskProcess(task_argv(command), environment, self._guardian, fds, ignored)
        except OSError as error:
            self._tell("failed", f"{socket.gethostname()}: {error}")
            self._exit_code = 1
            return
        self._listener.close()
        self._tell("started", self._process.pid)

    def _take_signals(self, signals: socket.socket) -> None:
        for signum in signals.recv(4096):
            if signum == signal.SIGCHLD:
                self._reap()
                continue
            self._tell("told", signum)
            if self._process is None:
                self._exit_code = 128 + signum
            elif not self._serves:
                self._forward(signum)

    def _take_end(self, lifeline: int) -> None:
        """The engine has given this place to others, or has lost it: here the task ends, services too."""
        if os.read(lifeline, 1):
            return
        self._selector.unregister(lifeline)
        if self._process is None:
            self._exit_code = 1
        elif self._returncode is None:
            self._forward(signal.SIGTERM)
            self._kill_at = time.monotonic() + self._grace_s

    def _reap(self) -> None:
        if self._process is None or self._returncode is not None:
            return
        returncode = self._process.poll()
        if returncode is None:
            return
        while self._take_output():
            pass
        if self._process.output in self._selector.get_map():
            self._selector.unregister(self._process.output)
        self._returncode = returncode
        self._tell("ended", returncode)

    def _take_output(self) -> bool:
        assert self._process is not None
        data = self._process.read()
        if data == b"":
            self._writes = False
            if self._process.output in self._selector.get_map():
                self._selector.unregister(self._process.output)
        elif data:
            self._tell("output", data)
        return bool(data)

    def _forward(self, signum: int) -> None:
        if signum == signal.SIGTERM:
            if self._asked:  # the launcher and the engine may both ask: a second SIGTERM could end what the first began
                return
            self._asked = True
        self._signal(STOP_SERVICE if self._serves and signum == signal.SIGTERM else signum)

    def _signal(self, signum: int) -> None:
        if self._process is not None:
            self._process.signal_group(signum)

    def _joined(self, task: TaskId, joined: bool) -> None:
        self._tell("joined", joined)

    def _close(self) -> None:
        if self._process is not None:
            self._process.close()
        for held in (self._guardian and self._guardian.__exit__, self._reports and self._reports.close):
            if held:
                held()
        if self._listener is not None:
            self._listener.close()
        if self._book is not None:
            self._book.cleanup()
        self._channel.close()


def _number(arguments: list[str]) -> int:
    """The number of this agent: ``BASE``, plus the first of the named environment variables that is set."""
    base, *names = arguments
    return int(base) + next((int(os.environ[name]) for name in names if os.environ.get(name)), 0)


def serve(invitation: Invitation, number: int) -> int:
    """Connects to a launcher and runs the task that it assigns. Returns the exit code.

    Raises:
      OSError: the launcher cannot be reached.
    """
    return Agent(Channel(connect(invitation), invitation.secret, is_hub=False), number).run()


def main(arguments: list[str]) -> int:
    """Runs an agent; returns the exit code."""
    try:
        return serve(take_invitation(), _number(arguments))
    except (ValueError, OSError, errors.OpError) as error:
        print(f"tfmini: {socket.gethostname()}: {printable_lines(error)}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
