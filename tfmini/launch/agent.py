"""The agent of one task: the process that an engine starts in place of the task.

``python -m tfmini.launch.agent BASE [VARIABLE…]`` connects to the launcher of its ``TFMINI_AGENT``, reserves a port,
says where it is, and receives the task's command. It starts the task, passes on its output, its reports and its exit
code, and sends it the signals that the launcher asks for. So the launcher supervises tasks on all engines as it does
local ones.

When the launcher has gone, the agent ends the task: SIGTERM, then SIGKILL after the grace time; a service gets only
the latter, since working tasks save meanwhile. When the engine sends the agent SIGTERM (``scancel``, a time limit, a
node that is drained), the agent forwards it to a working task at once. A service ignores SIGTERM: it is needed until
the working tasks have saved. The launcher ends it afterwards.
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
from tfmini.cluster import HostPort
from tfmini.launch import agent_messages as m
from tfmini.launch.cluster_run import received_signals
from tfmini.launch.engine import TaskCommand
from tfmini.launch.hub import LoopCalls
from tfmini.launch.invitation import LAUNCHER, Invitation, endpoint_of_run, take_invitation
from tfmini.launch.local import Guardian, LocalTask, TaskReports, usable_cpus
from tfmini.rpc.addresses import ADDRESSES_ENV, AddressBook, TaskEntry, listening_socket, source_towards
from tfmini.rpc.calls import Outcome
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.keys import KEYS_ENV, held_key
from tfmini.rpc.peer import Peer
from tfmini.rpc.records import Message
from tfmini.text import printable_lines

ALIVE_ENV = "TFMINI_AGENT_LIFELINE"
"""The descriptor of a pipe that ends when the process does that has started the agent; the agent's task ends then."""
_FULL = 1 << 20  # bytes of output that may wait for the launcher before the task must wait
_LOOK_S = 0.05  # between two looks whether the launcher has read them
STOP_SERVICE = signal.SIGHUP
"""Ends a service, which ignores SIGTERM. A service has no state that it could save."""


class Agent:
    """Runs the task that the launcher assigns. Call `run` once, in the main thread.

    All of its state belongs to that thread. Messages come in threads of rpc, which put them into the loop's calls.

    Args:
      number: of this agent in the run.
    """

    def __init__(self, invitation: Invitation, number: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._calls = LoopCalls(self._selector)
        self._invitation = invitation
        self._number = number
        self._untried = list(invitation.addresses)
        self._failures: list[str] = []
        self._endpoint: Endpoint | None = None
        self._launcher: Peer | None = None
        self._listener: socket.socket | None = None
        self._task: LocalTask | None = None
        self._reports: TaskReports | None = None
        self._guardian: Guardian | None = None
        self._serves = False
        self._asked = False  # to end, by SIGTERM
        self._book: tempfile.TemporaryDirectory[str] | None = None
        self._grace_s = 5.0
        self._kill_at: float | None = None
        self._entered = False  # the launcher has been reached
        self._alone = False  # the launcher has gone
        self._held = False  # it wants no output now
        self._exit_code: int | None = None

    def run(self) -> int:
        """Serves the launcher until it lets the agent go or has gone. Returns the exit code of this process.

        Raises:
          OSError: the launcher cannot be reached; the text names each of its addresses with the reason.
          errors.OpError: the launcher has no task for this agent.
        """
        with received_signals() as signals, self._selector:
            self._selector.register(signals, selectors.EVENT_READ, lambda: self._take_signals(signals))
            lifeline = os.environ.pop(ALIVE_ENV, "")
            if lifeline.isdecimal():
                self._selector.register(int(lifeline), selectors.EVENT_READ, lambda: self._take_end(int(lifeline)))
            try:
                self._endpoint = endpoint_of_run("", self._invitation.keys)
                self._endpoint.serve(dict.fromkeys(_HANDLERS, self._on_message))
                self._endpoint.on_peer_ready(lambda peer: self._calls.put(self._has_entered))
                self._try_next()
                while self._exit_code is None:
                    self._wait()
                return self._exit_code
            finally:
                self._close()

    # ---------------------------------------------------------------- the launcher

    def _try_next(self) -> None:
        """Asks for a task at the next address of the launcher, and reserves a port on the way that leads there."""
        if not self._untried:
            raise OSError(f"cannot connect to the launcher at {', '.join(self._failures)}")
        assert self._endpoint is not None
        address = self._untried.pop(0)
        host = source_towards(address.host)
        if not host:
            self._failures.append(f"{address} (no route)")
            self._try_next()
            return
        if self._listener is not None:
            self._listener.close()
        self._listener = listening_socket(host)
        port = self._listener.getsockname()[1]
        self._launcher = self._endpoint.peer(str(address), LAUNCHER)
        self._launcher.on_lost(lambda peer, reason: self._calls.put(self._launcher_has_gone))
        self._launcher.call(
            m.EnterRun(self._number, host, port, usable_cpus(), socket.gethostname()),
            lambda answer: self._calls.put(self._take_answer, address, answer),
        )

    def _on_message(self, peer: Peer, message: Message, respond: None) -> None:
        """Runs in a thread of rpc."""
        self._calls.put(lambda: _HANDLERS[type(message)](self, message))

    def _has_entered(self) -> None:
        self._entered = True

    def _take_answer(self, address: HostPort, answer: Outcome[m.TaskOrder]) -> None:
        if not isinstance(answer, errors.OpError):
            self._start(answer)
        elif not self._entered:
            self._failures.append(f"{address} ({answer.message.rstrip('.')})")
            self._try_next()
        elif isinstance(answer, (errors.UnavailableError, errors.CancelledError)):
            self._launcher_has_gone()
        else:
            raise answer

    def _tell(self, message: Message) -> None:
        if not self._alone and self._launcher is not None:
            self._launcher.send(message)

    def _launcher_has_gone(self) -> None:
        if self._alone or self._exit_code is not None:
            return
        self._alone = True
        if self._task is None:
            self._exit_code = 1
            return
        if not self._serves:  # a service is there for the working tasks until they have had time to save
            self._forward(signal.SIGTERM)
        self._kill_at = time.monotonic() + self._grace_s

    # ---------------------------------------------------------------- the loop

    def _wait(self) -> None:
        # A launcher that reads slowly, or wants no output, makes the task wait.
        is_full = not self._alone and self._launcher is not None and self._launcher.backlog > _FULL
        if self._task is not None and self._task.returncode is None:
            self._task.listen(self._alone or not (self._held or is_full))
        timeout = None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())
        if is_full:
            timeout = _LOOK_S if timeout is None else min(timeout, _LOOK_S)
        for key, _ in self._selector.select(timeout):
            key.data()
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_at = None
            self._signal(signal.SIGKILL)
        if self._alone and self._task is not None and self._task.returncode is not None:
            self._exit_code = 1

    # ---------------------------------------------------------------- events

    def _write_addresses(self, message: m.TaskAddresses) -> None:
        """Writes where all tasks are, into a copy of the address book that is this task's alone."""
        self._book = self._book or tempfile.TemporaryDirectory(prefix="tfmini-addresses-")
        book = AddressBook(self._book.name)
        for task, address in message.tasks.items():
            job, _, index = task.rpartition("/")
            # The launcher does not know incarnations. They matter for addresses that are used again, and the port of
            # a place is new.
            book.publish(f"/job:{job}/replica:0/task:{index}", TaskEntry((address,), 0))

    def _start(self, order: m.TaskOrder) -> None:
        self._grace_s, self._serves = order.grace_s, order.serves
        assert self._listener is not None
        self._reports = TaskReports(
            lambda task, joined: self._tell(m.TaskJoined(joined)), self._selector,
            lambda task, words: self._tell(m.TaskProgress(words)),
        )  # fmt: skip
        self._guardian = Guardian()
        role = dict(order.role)
        if self._book is not None and not os.environ.get(ADDRESSES_ENV):
            role[ADDRESSES_ENV] = self._book.name
        if order.key:
            role[KEYS_ENV] = held_key(order.key)
        command = TaskCommand(list(order.arguments), order.defaults, role)
        try:
            self._task = LocalTask(
                command, self._listener, self._reports, self._guardian, self._selector,
                lambda data: self._tell(m.TaskOutput(data)), [signal.SIGTERM] if self._serves else [],
            )  # fmt: skip
        except OSError as error:
            self._tell(m.TaskFailed(f"{socket.gethostname()}: {error}"))
            self._exit_code = 1

    def _take_signals(self, signals: socket.socket) -> None:
        for signum in signals.recv(4096):
            if signum == signal.SIGCHLD:
                self._reap()
                continue
            self._tell(m.AgentSignalled(signum))
            if self._task is None:
                self._exit_code = 128 + signum
            elif not self._serves:
                self._forward(signum)

    def _take_end(self, lifeline: int) -> None:
        """The engine has given this place to others, or has lost it: here the task ends, services too."""
        if os.read(lifeline, 1):
            return
        self._selector.unregister(lifeline)
        if self._task is None:
            self._exit_code = 1
        elif self._task.returncode is None:
            self._forward(signal.SIGTERM)
            self._kill_at = time.monotonic() + self._grace_s

    def _reap(self) -> None:
        if self._task is not None and self._task.has_ended() and self._task.returncode is not None:
            self._tell(m.TaskEnded(self._task.returncode))

    def _forward(self, signum: int) -> None:
        if signum == signal.SIGTERM:
            if self._asked:  # the launcher and the engine may both ask: a second SIGTERM could end what the first began
                return
            self._asked = True
        self._signal(STOP_SERVICE if self._serves and signum == signal.SIGTERM else signum)

    def _signal(self, signum: int) -> None:
        if self._task is not None:
            self._task.signal(signum)

    def _hold(self, message: m.HoldOutput) -> None:
        self._held = message.is_held

    def _leave(self, message: m.LeaveRun) -> None:
        self._exit_code = message.exit_code

    def _close(self) -> None:
        if self._task is not None:
            self._task.close()
        for held in (self._guardian and self._guardian.__exit__, self._reports and self._reports.close):
            if held:
                held()
        if self._listener is not None:
            self._listener.close()
        if self._book is not None:
            self._book.cleanup()
        if self._endpoint is not None:
            self._endpoint.close()
        self._calls.close()


_HANDLERS: dict[type[Message], Callable[[Agent, Any], None]] = {
    m.TaskAddresses: Agent._write_addresses,
    m.SignalTask: lambda agent, message: agent._forward(message.signum),
    m.HoldOutput: Agent._hold,
    m.LeaveRun: Agent._leave,
}
"""What the launcher tells an agent, and what it does then. rpc refuses every other message with a reason."""


def _number(arguments: list[str]) -> int:
    """The number of this agent: ``BASE``, plus the first of the named environment variables that is set."""
    base, *names = arguments
    return int(base) + next((int(os.environ[name]) for name in names if os.environ.get(name)), 0)


def serve(invitation: Invitation, number: int) -> int:
    """Connects to a launcher and runs the task that it assigns. Returns the exit code.

    Raises:
      OSError, errors.OpError: as `Agent.run`.
    """
    return Agent(invitation, number).run()


def main(arguments: list[str]) -> int:
    """Runs an agent; returns the exit code."""
    try:
        return serve(take_invitation(), _number(arguments))
    except (ValueError, OSError, errors.OpError) as error:
        print(f"tfmini: {socket.gethostname()}: {printable_lines(error)}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
