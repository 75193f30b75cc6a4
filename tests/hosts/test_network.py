"""The kit itself: cables, limits, names, and that nothing stays behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hosts.network import Network, remove_stale

pytestmark = pytest.mark.cluster

_ROOT = Path(__file__).parents[2]
_MAKES_ONE_AND_WAITS = """
import sys
from tests.hosts.network import Network
with Network(1) as network:
    task = network[0].start([sys.executable, "-c", "import time; time.sleep(600)"])
    print(network[0].namespace, task.pid, flush=True)
    sys.stdin.read()
"""


_GIVE_UP_S = 0.2  # of an attempt that nobody can answer


def ping(network: Network, here: int, there: str, limit_s: float = 60.0) -> bool:
    """Whether a host answers in time; a busy machine may need long for a good answer."""
    connect = f"import socket; socket.create_connection(({there!r}, 9), {limit_s})"
    process = network[here].start([sys.executable, "-c", connect], stderr=subprocess.PIPE)
    told = process.communicate(timeout=200)[1]
    return "ConnectionRefusedError" in told  # nobody listens, and the host has said so


def runs(pid: int) -> bool:
    """Whether a process runs. (It may be dead, and nobody has asked for its exit code yet.)"""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_hosts_reach_each_other_until_a_cable_is_cut(network: Network) -> None:
    assert ping(network, 0, network[1].address)
    assert ping(network, 0, network[1].address6)
    network[1].cut()
    assert not ping(network, 0, network[1].address, _GIVE_UP_S)
    network[1].mend()
    assert ping(network, 0, network[1].address)


def test_a_firewall_drops_silently(network: Network) -> None:
    network[1].drop(network[0])
    assert not ping(network, 0, network[1].address, _GIVE_UP_S)
    network[1].accept(network[0])
    assert ping(network, 0, network[1].address)


def test_a_bad_cable_delays_packets(network: Network) -> None:
    assert ping(network, 1, network[2].address)
    network[1].impair(delay_s=0.1, loss=0.0)
    assert not ping(network, 1, network[2].address, limit_s=0.15)  # the answer takes 0.2 s
    assert ping(network, 1, network[2].address)


def test_names_are_those_of_the_host(network: Network) -> None:
    network[0].names({"ps-0": network[1].address})
    assert ping(network, 0, "ps-0")


def test_nothing_stays_of_a_process_that_was_killed(network: Network) -> None:
    command = [sys.executable, "-c", _MAKES_ONE_AND_WAITS]
    maker = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert maker.stdout is not None and maker.stdin is not None
    namespace, pid = maker.stdout.readline().split()
    made = Path("/run/netns", namespace)
    assert made.exists()
    remove_stale()
    assert made.exists(), "its maker lives"
    maker.send_signal(signal.SIGKILL)
    maker.communicate()
    remove_stale()
    assert not made.exists()
    assert not runs(int(pid))
