"""What an agent needs to reach its launcher: addresses and the secret key of the run, as one word.

The word travels in the variable ``TFMINI_AGENT`` of the agent's environment, or in a file that only the user can read.
It lists every address of the launcher's host, since only the agent's host knows which of them it can reach.

The launcher and its agents talk by `tfmini.rpc`, with the messages of `tfmini.launch.agent_messages`. Each run has a
key pair of its own, which is not the key of the cluster: who holds it is an agent of this run.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import socket
from dataclasses import dataclass, field

from tfmini import errors
from tfmini.cluster import HostPort, parse_address
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.keys import Keys, keys_of_secret
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.zmq_transport import ZmqTransport

AGENT_ENV = "TFMINI_AGENT"
LAUNCHER = "the launcher"
"""The name of the launcher in the Hello."""
_LOST_AFTER_S = 20


@dataclass(frozen=True)
class Invitation:
    """Where the launcher listens, and the secret key of the run."""

    addresses: tuple[HostPort, ...]
    secret: bytes = field(repr=False)

    @property
    def keys(self) -> Keys:
        """The key pair of the run."""
        return keys_of_secret(self.secret)

    def to_word(self) -> str:
        """The invitation as one word of letters, digits, ``-`` and ``_``."""
        content = {"at": [str(address) for address in self.addresses], "secret": self.secret.decode()}
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


def parse_invitation(word: str) -> Invitation:
    """Reads the word of an `Invitation`.

    Raises:
      ValueError: it is none.
    """
    with errors.reading(f"{AGENT_ENV} does not hold the invitation of a launcher", ValueError, also_own=True):
        content = json.loads(base64.urlsafe_b64decode(word + "=" * (-len(word) % 4)))
        addresses = tuple(parse_address(address) for address in content["at"])
        return Invitation(addresses, keys_of_secret(content["secret"].encode()).secret)


def take_invitation() -> Invitation:
    """The invitation in this process's environment, which no child process inherits afterwards.

    Raises:
      ValueError: there is none.
    """
    return parse_invitation(os.environ.pop(AGENT_ENV, ""))


def hosts_of_this_machine() -> list[str]:
    """The addresses at which other hosts may reach this one, the likeliest first, and loopback last."""
    found: list[str] = []
    for family, remote in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        # No packet is sent: the kernel only chooses the interface of the default route.
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((remote, 9))
            found.append(probe.getsockname()[0])
    with contextlib.suppress(OSError):
        found += [str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)]
    usable = [host for host in found if not host.startswith(("127.", "fe80:", "::1"))]
    return list(dict.fromkeys([*usable, "127.0.0.1"]))


def endpoint_of_run(task: str, keys: Keys) -> Endpoint:
    """Makes the launcher's or an agent's end of their connections.

    A launcher that is stopped (Ctrl-Z) must not lose its run, so nobody expects heartbeats. The kernel ends a
    connection to a host that has vanished. The traffic is small and one port is enough, so there are no lanes.
    """
    reactor = get_reactor()
    transports = {"tcp": ZmqTransport(reactor, keys, silent_host_s=_LOST_AFTER_S)}
    return Endpoint(
        reactor, task, secrets.randbits(62), transports=transports, keys=keys, lanes=False, expects_heartbeats=False
    )
