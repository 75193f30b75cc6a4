"""Hosts as network namespaces: N namespaces with an Ethernet pair each, on a bridge in one more namespace.

::

    with Network(3, rate="1gbit") as network:
        ps = network[0].start([sys.executable, "task.py"])
        network[0].cut()      # as if somebody pulled its cable out of the switch
        network[0].mend()

Every address is inside a namespace that the network made itself; the machine's own network stays as it is. It needs
root and ``ip`` (iproute2). The names carry the process id: a later network removes those of a process that was killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

_PREFIX = "tfmhosts"
_NAMESPACES = Path("/run/netns")
_ETC = Path("/etc/netns")
_RELAY = Path(__file__).with_name("relay.py")
_BURST = 128 << 10  # bytes of a rate limit; 1 Gbit/s needs this much between two ticks of the kernel
_END_S = 20.0
_PR_SET_PDEATHSIG = 1


@functools.cache
def why_not() -> str:
    """Why this machine can have no such hosts; "" if it can. It tries to make one."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "network namespaces need iproute2 (`apt-get install iproute2`)"
    try:
        with Network(1, rate="1gbit"):
            return ""
    except subprocess.CalledProcessError as error:
        return f"network namespaces are not permitted here: {error.stderr.strip()}"


class Host:
    """One host. ``address`` and ``address6`` are those of its Ethernet interface ``eth0``."""

    def __init__(self, network: Network, index: int) -> None:
        self.namespace = f"{network.name}-{index}"
        self.address = f"10.77.0.{index + 1}"
        self.address6 = f"fd77::{index + 1}"
        self.port = f"port{index}"
        self._network = network
        self._processes: list[subprocess.Popen[str]] = []
        self._relay: subprocess.Popen[str] | None = None

    def __str__(self) -> str:
        return self.address

    def start(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """Starts a process on this host; its output is a pipe. It ends with the network, or with this process."""
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace, *command],
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=_end_with_parent,
            **options,
        )
        self._processes.append(process)
        return process

    def run(self, *command: str) -> str:
        """Runs a command on this host and returns its output.

        Raises:
          subprocess.CalledProcessError: it failed.
        """
        return _run("ip", "netns", "exec", self.namespace, *command)

    def cut(self) -> None:
        """Pulls the cable: from now on no packet comes or goes, and nobody is told."""
        _run("ip", "-n", self._network.switch, "link", "set", self.port, "down")

    def mend(self) -> None:
        """Plugs the cable in again."""
        _run("ip", "-n", self._network.switch, "link", "set", self.port, "up")

    def drop(self, other: Host) -> None:
        """Silently drops what this host would send to another, as a firewall does."""
        _run("ip", "-n", self.namespace, "route", "add", "blackhole", f"{other.address}/32")

    def accept(self, other: Host) -> None:
        """Undoes `drop`."""
        _run("ip", "-n", self.namespace, "route", "del", "blackhole", f"{other.address}/32")

    def limit(self, rate: str) -> None:
        """Limits both directions of the cable, as in ``200mbit``."""
        shape = ["root", "tbf", "rate", rate, "burst", str(_BURST), "latency", "50ms"]
        _run("tc", "-n", self.namespace, "qdisc", "replace", "dev", "eth0", *shape)
        _run("tc", "-n", self._network.switch, "qdisc", "replace", "dev", self.port, *shape)

    def unlimit(self) -> None:
        """Removes the limit."""
        _run("tc", "-n", self.namespace, "qdisc", "del", "dev", "eth0", "root")
        _run("tc", "-n", self._network.switch, "qdisc", "del", "dev", self.port, "root")

    def impair(self, delay_s: float, loss: float, seed: int = 0) -> None:
        """Delays each packet on the cable, in each direction, and loses a share of them, until `end`.

        A relay takes the place of the wire between the port and the bridge.
        """
        switch, plug, socket_ = self._network.switch, f"{self.port}a", f"{self.port}b"
        commands = [
            f"link add {plug} type veth peer name {socket_}",
            f"link set {self.port} nomaster",
            f"link set {self.port} promisc on",
            f"link set {plug} promisc on up",
            f"link set {socket_} master br0 up",
        ]
        _run("ip", "-n", switch, "-batch", "-", text="\n".join(commands) + "\n")
        relay = [sys.executable, str(_RELAY), self.port, plug, str(delay_s), str(loss), str(seed)]
        self._relay = subprocess.Popen(
            ["ip", "netns", "exec", switch, *relay], stdout=subprocess.PIPE, text=True, preexec_fn=_end_with_parent
        )
        assert self._relay.stdout is not None
        assert self._relay.stdout.readline() == "ready\n"

    def _end_relay(self) -> None:
        relay, self._relay = self._relay, None
        if relay is not None:
            relay.kill()
            relay.communicate()
            commands = [f"link del {self.port}a", f"link set {self.port} master br0"]
            _run("ip", "-n", self._network.switch, "-batch", "-", text="\n".join(commands) + "\n")

    def names(self, table: Mapping[str, str]) -> None:
        """Sets the names that processes started later find in /etc/hosts. (Those that run see changes, too.)"""
        file = _ETC / self.namespace / "hosts"
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in table.items())]
        # In place: the processes have this very file mounted over /etc/hosts.
        file.write_text("\n".join(lines) + "\n")

    def bytes(self) -> tuple[int, int]:
        """(received, sent) by the interface so far."""
        found = json.loads(_run("ip", "-n", self.namespace, "-s", "-j", "link", "show", "eth0"))[0]["stats64"]
        return found["rx"]["bytes"], found["tx"]["bytes"]

    def end(self) -> None:
        """Kills all processes that were started here, and makes the cable a good one again."""
        self._end_relay()
        for process in self._processes:
            process.kill()
            process.wait(_END_S)
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        self._processes.clear()


class Network:
    """See the module. Iterating gives the hosts.

    Args:
      hosts: their number.
      rate: of every cable, as in ``1gbit``; "": not limited.
    """

    def __init__(self, hosts: int, rate: str = "") -> None:
        self.name = f"{_PREFIX}{os.getpid()}"
        self.switch = f"{self.name}-switch"
        self.hosts = [Host(self, index) for index in range(hosts)]
        self._rate = rate

    def __getitem__(self, index: int) -> Host:
        return self.hosts[index]

    def __iter__(self) -> Iterator[Host]:
        return iter(self.hosts)

    def __enter__(self) -> Network:
        remove_stale()
        with contextlib.ExitStack() as unless_made:
            unless_made.callback(self.close)
            self._make()
            unless_made.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _make(self) -> None:
        _run("ip", "netns", "add", self.switch)
        for host in self.hosts:
            _run("ip", "netns", "add", host.namespace)
        wires = ["link add br0 type bridge", "link set br0 up"]
        for host in self.hosts:
            wires += [
                f"link add {host.port} type veth peer name eth0 netns {host.namespace}",
                f"link set {host.port} master br0",
                f"link set {host.port} up",
            ]
        _run("ip", "-n", self.switch, "-batch", "-", text="\n".join(wires) + "\n")
        for host in self.hosts:
            settings = [
                "link set lo up",
                f"addr add {host.address}/24 dev eth0",
                f"addr add {host.address6}/64 dev eth0 nodad",
                "link set eth0 up",
            ]
            _run("ip", "-n", host.namespace, "-batch", "-", text="\n".join(settings) + "\n")
            if self._rate:
                host.limit(self._rate)

    def end(self) -> None:
        """Kills all processes of all hosts, and mends all cables."""
        for host in self.hosts:
            host.end()
            host.mend()

    def close(self) -> None:
        """Ends all processes and removes the namespaces."""
        for host in self.hosts:
            host.end()
        _remove([self.switch, *(host.namespace for host in self.hosts)])


def remove_stale() -> None:
    """Removes the namespaces, and ends the processes in them, of networks whose process has been killed."""
    names = [path.name for path in _NAMESPACES.glob(f"{_PREFIX}*")] if _NAMESPACES.exists() else []
    _remove([name for name in names if not _is_alive(name)])


def _is_alive(namespace: str) -> bool:
    pid = namespace.removeprefix(_PREFIX).partition("-")[0]
    return pid.isdecimal() and Path("/proc", pid).exists()


def _remove(namespaces: Sequence[str]) -> None:
    for name in namespaces:
        if not (_NAMESPACES / name).exists():
            continue
        for pid in _run("ip", "netns", "pids", name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        _run("ip", "netns", "del", name)
        shutil.rmtree(_ETC / name, ignore_errors=True)


def _run(*command: str, text: str = "") -> str:
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _end_with_parent() -> None:
    """Runs in a child before exec: it is killed when this process ends, however that ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
