"""Processes with few descriptors: what happens at the limit, in children with a limit of their own."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.polling import poll
from tests.rpc.task_processes import LIMIT_S, SETTINGS
from tfmini.rpc import messages as m
from tfmini.rpc.endpoint import Endpoint, Peer
from tfmini.rpc.lane_connection import LaneConnection
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.waiter import Waiter

_ROOT = Path(__file__).parents[2]
_LIMIT = 72

_RAISED = """
import resource
import tfmini as tf
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
with tf.train.Server.create_local_server():
    print(*resource.getrlimit(resource.RLIMIT_NOFILE), hard)
"""

_SERVER = """
import logging, sys
from tfmini.rpc import messages as m
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.waiter import Waiter
logging.basicConfig(stream=sys.stderr)
endpoint = Endpoint(get_reactor(), "/job:ps/replica:0/task:0", 1)
endpoint.serve({m.GetStatus: lambda peer, request, respond: respond(m.GetStatusReply("", 1, []))})
print(endpoint.listen("localhost:0"), flush=True)
get_reactor().drive(Waiter(), get_reactor().now() + 600)
"""

_CLIENT = """
import os, sys
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc import messages as m
from tfmini import errors
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.waiter import Waiter
endpoint = Endpoint(get_reactor(), "", 7)
held = []
try:
    while True:
        held.append(os.eventfd(0))
except OSError:
    pass
def ask():
    waiter, found = Waiter(), []
    endpoint.peer(sys.argv[1]).call(m.GetStatus(), lambda answer: (found.append(answer), waiter.set()), timeout_s=60)
    get_reactor().drive(waiter)
    return found[0]
print(ask())
try:
    endpoint.listen("localhost:0")
except errors.ResourceExhaustedError as error:
    print(error)
for fd in held:
    os.close(fd)
print(type(ask()).__name__)
"""


def limited() -> None:
    """Gives the child that is about to be started few descriptors."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (_LIMIT, _LIMIT))


def environment(route: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(_ROOT), **SETTINGS[route]}


def test_a_server_raises_its_soft_limit_to_the_hard_one() -> None:
    command = [sys.executable, "-c", _RAISED]
    done = subprocess.run(
        command, env=environment("local"), capture_output=True, text=True, timeout=LIMIT_S, check=True
    )
    soft, hard, before = done.stdout.split()
    assert hard == before
    assert int(soft) == (1 << 20 if hard == "-1" else min(int(hard), 1 << 20))


@pytest.mark.parametrize("route", SETTINGS)
def test_clients_beyond_the_limit_wait_and_get_their_lanes(
    route: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SETTINGS[route].items():
        monkeypatch.setenv(name, value)
    log = tmp_path / "log"
    clients: list[Endpoint] = []
    with (
        log.open("w") as errors_of_server,
        subprocess.Popen(
            [sys.executable, "-c", _SERVER], env=environment(route), preexec_fn=limited, stdout=subprocess.PIPE,
            stderr=errors_of_server, text=True,
        ) as server,
    ):  # fmt: skip
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            waiting = []
            for i in range(_LIMIT):
                clients.append(Endpoint(get_reactor(), "", 1000 + i))
                waiting.append(ask(clients[i].peer(address)))
                poll(partial(answered_or_full, waiting[i], log), "an answer, or the word that the server is full")
                if is_full(log):
                    break
            full = len(clients)
            assert 20 < full < _LIMIT
            for client in clients[: full // 2]:
                client.close()
            for waiter in waiting[full // 2 :]:
                assert get_reactor().drive(waiter, get_reactor().now() + LIMIT_S)
            if route != "zmq":
                for client in clients[full // 2 :]:
                    wait_for_lane(client.peer(address))
        finally:
            server.kill()
            for client in clients:
                client.close()
    said = log.read_text()
    assert f"may open {_LIMIT} files" in said and "ulimit -n" in said and "Traceback" not in said


def is_full(log: Path) -> bool:
    return "little room" in log.read_text()


def answered_or_full(waiter: Waiter, log: Path) -> bool:
    return get_reactor().drive(waiter, get_reactor().now() + 0.1) or is_full(log)


def ask(peer: Peer) -> Waiter:
    """Asks until it is answered."""
    waiter = Waiter()
    peer.call(m.GetStatus(), lambda answer: waiter.set(), wait_for_ready=True)
    return waiter


def wait_for_lane(peer: Peer) -> None:
    """Returns when the peer's link sends on a lane."""
    until = get_reactor().now() + LIMIT_S
    while not (peer.link is not None and isinstance(peer.link.connection, LaneConnection)):
        assert get_reactor().now() < until
        get_reactor().drive(Waiter(), get_reactor().now() + 0.05)


def test_a_client_at_its_limit_gets_an_error_that_says_so() -> None:
    server = Endpoint(get_reactor(), "/job:ps/replica:0/task:0", 1)
    server.serve({m.GetStatus: lambda peer, request, respond: respond(m.GetStatusReply("", 1, []))})
    try:
        command = [sys.executable, "-c", _CLIENT, server.listen("localhost:0")]
        said = subprocess.run(
            command, env=environment("local"), preexec_fn=limited, capture_output=True, text=True, timeout=LIMIT_S,
            check=True,
        ).stdout.splitlines()  # fmt: skip
    finally:
        server.close()
    assert f"no descriptor for it: this process may open {_LIMIT} files" in said[0]
    assert f"Cannot listen at tcp://localhost:0: this process may open {_LIMIT} files" in said[1]
    assert said[2] == "GetStatusReply"
