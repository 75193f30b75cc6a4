"""Task processes that tests kill, stop and bring back, and calls to them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from tfmini.rpc import messages as m
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.waiter import Waiter

PS = "/job:ps/replica:0/task:0"
_SCRIPT = Path(__file__).parent / "task_process.py"
_ROOT = Path(__file__).parents[2]

LIMIT_S = 60.0  # limit of waits for events that are certain
SETTINGS = {
    "local": {"TFMINI_LANE": "on", "TFMINI_STREAM": "on"},
    "stream": {"TFMINI_LANE": "off", "TFMINI_STREAM": "on"},
    "zmq": {"TFMINI_LANE": "off", "TFMINI_STREAM": "off"},
}


class Task:
    """A task process; `address` once it listens. Its port is kept from others until `free`."""

    def __init__(self, address: str = "", incarnation: int = 42, route: str = "local") -> None:
        self.route = route
        self._holder = socket.socket()  # is bound and does not listen: the task may, as ZeroMQ asks for SO_REUSEADDR
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if not address:
            self._holder.bind(("127.0.0.1", 0))
            address = f"localhost:{self._holder.getsockname()[1]}"
        env = {**os.environ, "PYTHONPATH": str(_ROOT), **SETTINGS[route]}
        command = [sys.executable, str(_SCRIPT), address, str(incarnation)]
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        assert self.address

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self) -> None:
        """Waits until the process is stopped."""
        self.signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)

    def end(self) -> None:
        self.process.kill()
        self.process.wait(LIMIT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def free(self) -> None:
        """Others may have its port."""
        self._holder.close()


class Call:
    """A call whose answer can be waited for."""

    def __init__(self, peer: Any, request: Any, **options: Any) -> None:
        self.answers: list[Any] = []
        self._waiter = Waiter()
        peer.call(request, self._on_reply, **options)

    def _on_reply(self, answer: Any) -> None:
        self.answers.append(answer)
        self._waiter.set()

    def wait(self, timeout_s: float = LIMIT_S) -> Any:
        assert get_reactor().drive(self._waiter, get_reactor().now() + timeout_s), "no answer"
        return self.answers[0]


def connect(client: Endpoint, task: Task) -> Any:
    """The peer, on its final route."""
    peer = client.peer(task.address, PS)
    before = client.counters["lanes"]
    answer = Call(peer, m.GetStatus(), wait_for_ready=True).wait()
    assert isinstance(answer, m.GetStatusReply), answer
    wanted = before + (task.route == "stream" or task.route == "local" and client.host_id != "")
    while client.counters["lanes"] < wanted:
        Call(peer, m.GetStatus()).wait()
    return peer


def until(condition: Any, what: str, timeout_s: float = LIMIT_S) -> None:
    """Drives the reactor until the condition holds."""
    reactor, waiter = get_reactor(), Waiter()

    def look() -> None:
        if condition():
            waiter.set()
        else:
            reactor.call_later(0.002, look)

    look()
    assert reactor.drive(waiter, reactor.now() + timeout_s), f"{what} never happened"
