"""A server's forked child that outlives it keeps neither its port nor its connections."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rpc.task_processes import LIMIT_S, SETTINGS
from tfmini.rpc import messages as m
from tfmini.rpc.endpoint import Endpoint, Peer
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.waiter import Waiter

_ROOT = Path(__file__).parents[2]
# The child ends when the test closes the pipe.
_SERVER = """
import multiprocessing, os, sys
from tfmini.rpc import messages as m
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.waiter import Waiter

def live(pipe):
    print("forked", flush=True)
    os.read(pipe, 1)

def fork(peer, request, respond):
    context = multiprocessing.get_context("fork")
    context.Process(target=live, args=(int(sys.argv[1]),), daemon=True).start()
    respond(m.GetStatusReply("", 1, []))

endpoint = Endpoint(get_reactor(), "/job:ps/replica:0/task:0", 1)
endpoint.serve({m.GetStatus: fork, m.DescribeStep: lambda peer, request, respond: None})
print(endpoint.listen(sys.argv[2]), flush=True)
get_reactor().drive(Waiter(), get_reactor().now() + 600)
"""


@pytest.mark.parametrize("route", SETTINGS)
def test_a_child_does_not_hold_what_its_killed_parent_had(route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SETTINGS[route].items():
        monkeypatch.setenv(name, value)
    reader, writer = os.pipe()
    env = {**os.environ, "PYTHONPATH": str(_ROOT)}
    command = [sys.executable, "-W", "ignore", "-c", _SERVER, str(reader), "localhost:0"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True, pass_fds=[reader]) as process:
        endpoint = Endpoint(get_reactor(), "", 7)
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            _check_loss(endpoint.peer(address), process, process.stdout)
            process.wait(LIMIT_S)
            port = int(address.rpartition(":")[2])
            with socket.socket() as again:
                again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                again.bind(("127.0.0.1", port))
                again.listen()
        finally:
            endpoint.close()
            process.kill()
            os.close(writer)
            os.close(reader)


def _check_loss(peer: Peer, process: subprocess.Popen[str], output: object) -> None:
    """Kills the server after it has forked; the end of its sockets must be seen, not its silence."""
    for _ in range(2):  # by the second call the connection has moved to the lane
        waiter = Waiter()
        peer.call(m.GetStatus(), lambda answer, done=waiter: done.set())  # type: ignore[misc]
        assert get_reactor().drive(waiter, get_reactor().now() + LIMIT_S)
        assert process.stdout is not None and process.stdout.readline() == "forked\n"
    lost, reasons = Waiter(), []
    peer.on_lost(lambda _, why: (reasons.append(why), lost.set()))
    process.send_signal(signal.SIGKILL)
    assert get_reactor().drive(lost, get_reactor().now() + LIMIT_S)
    assert "silent" not in reasons[0]


def test_the_parents_connections_survive_a_fork_and_the_childs_end() -> None:
    """Also those that are open while the child closes its copies of their sockets."""
    with Endpoints() as (server, client):
        peer = client.peer(server)
        assert ask(peer)
        for _ in range(5):
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
            assert ask(peer)


class Endpoints:
    """A server and a client in this process, connected over tcp."""

    def __enter__(self) -> tuple[str, Endpoint]:
        self.server = Endpoint(get_reactor(), "/job:ps/replica:0/task:0", 1)
        self.server.serve({m.GetStatus: lambda peer, request, respond: respond(m.GetStatusReply("", 1, []))})
        self.client = Endpoint(get_reactor(), "", 7)
        return self.server.listen("localhost:0"), self.client

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.server.close()


def ask(peer: Peer) -> bool:
    """Whether the peer answers."""
    waiter = Waiter()
    found: list[object] = []
    peer.call(m.GetStatus(), lambda answer: (found.append(answer), waiter.set()))
    return get_reactor().drive(waiter, get_reactor().now() + LIMIT_S) and isinstance(found[0], m.GetStatusReply)


def test_a_child_keeps_no_socket_and_its_own_files() -> None:
    """What the child opens later gets no number that a copy of the parent's objects closes."""
    with Endpoints() as (server, client), open(__file__) as own:
        assert ask(client.peer(server))
        before = set(os.listdir("/proc/self/fd"))
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            kept = [name for name in before if os.path.exists(f"/proc/self/fd/{name}")]
            sockets = [name for name in kept if os.readlink(f"/proc/self/fd/{name}").startswith("socket:")]
            ours = [name for name in sockets if _is_tcp(int(name))]
            os.write(writer, f"{' '.join(kept)}|{ours} {bool(own.read(1))}".encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            kept_there, _, said = file.read().decode().partition("|")
        os.waitpid(pid, 0)
        # The listing's own descriptor is gone in both, and so is what other threads have closed since.
        assert (before & set(os.listdir("/proc/self/fd"))) - set(kept_there.split()) == set()
        assert said == "[] True"


def _is_tcp(fd: int) -> bool:
    with socket.socket(fileno=os.dup(fd)) as sock:
        return sock.family in (socket.AF_INET, socket.AF_INET6)
