"""What an agent needs to reach its launcher: addresses and the secret of the run, as one word.

The word travels in the variable ``TFMINI_AGENT`` of the agent's environment, or in a file that only the user can read.
It lists every address of the launcher's host, since only the agent's host knows which of them it can reach.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
from dataclasses import dataclass, field

from tfmini import errors
from tfmini.cluster import HostPort, parse_address

AGENT_ENV = "TFMINI_AGENT"
_CONNECT_S = 5.0


@dataclass(frozen=True)
class Invitation:
    """Where the launcher listens, and the secret of the run."""

    addresses: tuple[HostPort, ...]
    secret: bytes = field(repr=False)

    def to_word(self) -> str:
        """The invitation as one word of letters, digits, ``-`` and ``_``."""
        content = {"at": [str(address) for address in self.addresses], "secret": self.secret.hex()}
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


def parse_invitation(word: str) -> Invitation:
    """Reads the word of an `Invitation`.

    Raises:
      ValueError: it is none.
    """
    with errors.reading(f"{AGENT_ENV} does not hold the invitation of a launcher", ValueError, also_own=True):
        content = json.loads(base64.urlsafe_b64decode(word + "=" * (-len(word) % 4)))
        addresses = tuple(parse_address(address) for address in content["at"])
        return Invitation(addresses, bytes.fromhex(content["secret"]))


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


def connect(invitation: Invitation) -> socket.socket:
    """Connects to the first address of the launcher that answers.

    Raises:
      OSError: none does; the text names each with its error.
    """
    failures = []
    for address in invitation.addresses:
        try:
            return socket.create_connection(address, timeout=_CONNECT_S)
        except OSError as error:
            failures.append(f"{address} ({error.strerror or error})")
    raise OSError(f"cannot connect to the launcher at {', '.join(failures)}")
