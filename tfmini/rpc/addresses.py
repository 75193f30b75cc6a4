"""Addresses of servers: their form, how a host is reached, the address book of a job, and where a server listens."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import ipaddress
import json
import logging
import os
import random
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tfmini import errors
from tfmini.cluster import HostPort
from tfmini.cluster import parse_address as parse_host_port
from tfmini.trusted_files import make_folder, open_trusted, write_trusted

_log = logging.getLogger("tfmini.rpc")

_SCHEMES = {
    "zmq": "tcp",
    "grpc": "tcp",
    "tcp": "tcp",
    "ipc": "ipc",
    "sim": "sim",
    "lane": "lane",
}


@dataclasses.dataclass(frozen=True)
class Address:
    """A parsed address. ``scheme`` is tcp, ipc, sim or lane; str() gives the canonical form."""

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.scheme == "tcp":
            host = f"[{self.host}]" if ":" in self.host else self.host
            return f"tcp://{host}:{self.port}"
        return f"{self.scheme}://{self.path}"


def parse_address(text: str) -> Address:
    """Parses ``host:port`` or ``scheme://…`` (zmq, grpc, tcp: host:port; ipc: path).

    Raises:
      errors.InvalidArgumentError: the text is no address.
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "tcp", text
    if scheme not in _SCHEMES:
        raise _bad(text, f"unknown scheme {scheme!r}; use host:port, grpc://, zmq://, tcp:// or ipc://")
    scheme = _SCHEMES[scheme]
    if scheme != "tcp":
        if not rest:
            raise _bad(text, "nothing follows the scheme")
        return Address(scheme, path=rest)
    host, colon, port = rest.rpartition(":")
    if not colon or not host:
        raise _bad(text, "expected host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise _bad(text, "an IPv6 address must be in brackets")
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise _bad(text, f"{port!r} is not a port number")
    if any(c.isspace() or c in "/@?#" for c in host):
        raise _bad(text, f"{host!r} is not a host name")
    return Address("tcp", host, int(port))


def _bad(text: str, why: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError.of(f"Could not interpret the address {text!r}: {why}.")


def port_busy(address: str) -> errors.UnknownError:
    """Returns TensorFlow's error for a port in use, with the likely cause.

    The text contains TensorFlow's, though there is no gRPC: TensorFlow's own helpers for tests of clusters skip a test
    by it.
    """
    return errors.UnknownError.of(
        f"The server cannot listen at {address}: the port is in use, perhaps by a task of an earlier run that is still"
        " running or by another task with the same ClusterSpec entry; stop that process or choose another port."
        ' (In TensorFlow\'s words: "Could not start gRPC server".)'
    )


def ipc_is_alive(path: str) -> bool:
    """Whether a process listens at the path of a Unix-domain socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect("\0" + path[1:] if path.startswith("@") else path)
        except BlockingIOError:  # a full backlog
            return True
        except OSError:
            return False
    return True


# ---- Finds the address at which a host can be reached, and says why it cannot be reached ---------------------------
# The functions block, up to their limits in seconds, so they run in threads of their own.

_NEXT_S = 0.25  # seconds until the next address is tried as well
_ROUTE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EADDRNOTAVAIL}
_POLICY = {errno.EACCES, errno.EPERM}
REFUSED = "connection refused: no process listens there"


class UnreachableError(OSError):
    """No address can be used; str() says why."""


def resolve(host: str, port: int) -> list[str]:
    """The numeric addresses of a host, in the order in which the system prefers them.

    Raises:
      UnreachableError: the name is not known.
    """
    if host == "localhost":  # which means IPv4 everywhere here, as it does for listeners
        return ["127.0.0.1"]
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnreachableError(
            f"the name {host!r} was not found ({error}): check its spelling and the name service of this host"
        ) from None
    return list(dict.fromkeys(str(info[4][0]) for info in found))


def choose(addresses: Sequence[str], limit_s: float) -> str:
    """The ``host:port`` with a numeric host to connect to, of the addresses of one task.

    If there are several, it is the first that accepts a connection. A later one is tried as well when an earlier one
    has not answered for a moment. If none does, it is the first one, whose connection then fails with its reason.

    Raises:
      UnreachableError: no name of them is known.
    """
    candidates: dict[str, None] = {}
    reason = UnreachableError("it has no address")
    for address in addresses:
        parsed = parse_address(address)
        try:
            hosts = resolve(parsed.host, parsed.port)
        except UnreachableError as error:
            reason = error
            continue
        candidates |= dict.fromkeys(str(Address("tcp", host, parsed.port)) for host in hosts)
    if not candidates:
        raise reason
    found = list(candidates)
    return found[0] if len(found) == 1 else _first_accepting(found, limit_s) or found[0]


def _first_accepting(addresses: Sequence[str], limit_s: float) -> str | None:
    deadline = time.monotonic() + limit_s
    waiting = list(addresses)
    with selectors.DefaultSelector() as selector:
        try:
            while (waiting or selector.get_map()) and time.monotonic() < deadline:
                if waiting:
                    _begin(selector, waiting.pop(0))
                until = min(deadline, time.monotonic() + _NEXT_S) if waiting else deadline
                while selector.get_map() and (left_s := until - time.monotonic()) > 0:
                    for key, _ in selector.select(left_s):
                        sock: socket.socket = key.fileobj  # type: ignore[assignment]
                        if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                            return str(key.data)
                        selector.unregister(sock)
                        sock.close()
        finally:
            for key in list(selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]
    return None


def _begin(selector: selectors.BaseSelector, address: str) -> None:
    """Begins to connect; an address that fails at once is left out."""
    parsed = parse_address(address)
    sock = _socket(parsed.host)
    sock.setblocking(False)
    if sock.connect_ex((parsed.host, parsed.port)) in (0, errno.EINPROGRESS):
        selector.register(sock, selectors.EVENT_WRITE, address)
    else:
        sock.close()


def explain_failure(address: Address, lasted_s: float, limit_s: float) -> str:
    """Why connecting to a numeric address has failed: it tries once more and looks how that fails.

    Args:
      lasted_s: how long the system tried before it gave up. Where it takes longer than ``limit_s``, the system has
        asked in vain which host of the network has this address.
    """
    with _socket(address.host) as sock:
        sock.settimeout(limit_s)
        try:
            sock.connect((address.host, address.port))
        except TimeoutError as error:
            return explain(OSError(errno.EHOSTUNREACH, "") if lasted_s > limit_s else error, address)
        except OSError as error:
            return explain(error, address)
    return "the connection was closed before the handshake"


def explain(error: OSError, address: Address) -> str:
    """What an error of connect means."""
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        return silent(address)
    if error.errno == errno.ECONNREFUSED:
        return REFUSED
    text = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in _ROUTE:
        return (
            f"no route to {address.host} ({text}): no host has this address, it is down, or this host has no network "
            f"that leads there"
        )
    if error.errno in _POLICY:
        return f"a firewall of this host forbids connections to {address.host} ({text})"
    return f"connecting failed ({text})"


def silent(address: Address) -> str:
    """The reason when nothing at all answers."""
    return (
        f"silent: no answer from {address.host} to attempts to connect: the host is down or cut off, or a firewall "
        f"drops connections to port {address.port}"
    )


def source_towards(host: str) -> str:
    """The numeric address of this host from which packets to another one are sent; "" if there is no route.

    It sends nothing.
    """
    for address in _resolved(host):
        with socket.socket(family_of(address), socket.SOCK_DGRAM) as sock:
            try:
                sock.connect((address, 9))
            except OSError:
                continue
            return str(sock.getsockname()[0])
    return ""


def _resolved(host: str) -> list[str]:
    try:
        return resolve(host, 0)
    except UnreachableError:
        return []


def _socket(host: str) -> socket.socket:
    return socket.socket(family_of(host), socket.SOCK_STREAM)


def family_of(host: str) -> socket.AddressFamily:
    """The family of a numeric address."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


# ---- The address book of a job: a directory in which each task writes where it is, for tasks that move -------------
# A cluster engine may start a task again on another host. The others know its name, ``/job:ps/task:0``, from the
# ClusterSpec, and look up its address here whenever they connect. ``TFMINI_ADDRESSES`` names the directory. All tasks
# must see it, or an agent on each host keeps a copy. Other users must not be able to write it (`tfmini.trusted_files`).
# A task that is not in the book is at its address in the ClusterSpec.
#
# An entry also has the task's incarnation: an address may belong to a task of another cluster by now, and an old
# incarnation of the task may still run where nobody expects it.


ADDRESSES_ENV = "TFMINI_ADDRESSES"
_LARGEST = 64 << 10  # bytes of an entry
_MOST = 16  # addresses of a task


class TaskEntry(NamedTuple):
    """Where one task is.

    Attributes:
      addresses: ``host:port``, the best one first.
      incarnation: of the process that wrote it.
    """

    addresses: tuple[str, ...]
    incarnation: int


class AddressBook:
    """See the module. `find` and `publish` read and write files, so they may block."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def __str__(self) -> str:
        return self.directory

    def find(self, task: str) -> TaskEntry | None:
        """The entry of a task by its full name; None if there is none that can be used."""
        path = self._path(task)
        try:
            with open_trusted(path) as file, errors.reading("It is no entry", ValueError):
                return _entry(json.loads(file.read(_LARGEST)), task)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, errors.OpError) as error:  # who looks for the task is a thread of the runtime
            _log.warning("The entry %s of the address book cannot be used: %s", path, error)
            return None

    def publish(self, task: str, entry: TaskEntry) -> None:
        """Writes where a task is, in place of what was written before. Readers see the whole old or new entry.

        Raises:
          errors.FailedPreconditionError: the directory cannot be written.
          errors.PermissionDeniedError: other users can write the directory, or a folder above it.
        """
        path = self._path(task)
        written = {"task": task, "addresses": list(entry.addresses), "incarnation": f"{entry.incarnation:016x}"}
        try:
            make_folder(self.directory)
            write_trusted(path, json.dumps(written).encode(), 0o644)
        except OSError as error:
            raise errors.FailedPreconditionError.of(
                f"{task} cannot write its address to {path}: {error.strerror}. {ADDRESSES_ENV} must name a directory "
                f"that all tasks can write."
            ) from error

    def withdraw(self, task: str, incarnation: int) -> None:
        """Removes the entry of a task that has stopped, unless a later incarnation has written its own."""
        entry = self.find(task)
        if entry is not None and entry.incarnation == incarnation:
            with contextlib.suppress(OSError):
                os.remove(self._path(task))

    def _path(self, task: str) -> str:
        """``/job:ps/replica:0/task:3`` is in ``ps-3.json``."""
        job, _, index = task.removeprefix("/job:").partition("/replica:0/task:")
        return os.path.join(self.directory, f"{job}-{index}.json")


def _entry(written: Any, task: str) -> TaskEntry:
    if not isinstance(written, dict) or written.get("task") != task:
        raise ValueError(f"it is not an entry of {task}")
    addresses = tuple(written.get("addresses", ()))[:_MOST]
    for address in addresses:
        if not isinstance(address, str) or parse_address(address).scheme != "tcp":
            raise ValueError(f"{address!r} is not host:port")
    return TaskEntry(addresses, int(written["incarnation"], 16))


def book_of_job(environment: Mapping[str, str] | None = None) -> AddressBook | None:
    """The address book that ``TFMINI_ADDRESSES`` names; None without one."""
    directory = (os.environ if environment is None else environment).get(ADDRESSES_ENV, "")
    return AddressBook(directory) if directory else None


# ---- Where a server listens: the interface and the ports of this host, and the address at which others reach it ----
# Without settings it listens at its address in the ClusterSpec. That does not always work: the host's own name may mean
# 127.0.1.1 here (as in Debian), a name may mean several interfaces or none of them (a service in front of the host),
# and a task that was started again elsewhere has an address of another host. ``TFMINI_BIND`` names the interface (by
# an address, or as in ``eth0``), and ``TFMINI_PORTS`` a range of ports, as in ``2300-2399``, for every port that the
# system would choose.

BIND_ENV, PORTS_ENV = "TFMINI_BIND", "TFMINI_PORTS"
_SIOCGIFADDR = 0x8915  # Linux
_WILDCARDS = ("*", "0.0.0.0", "::")
_BACKLOG = 512  # connections that may arrive before they are accepted; the kernel may have a lower limit


def allowed_ports() -> Sequence[int]:
    """The ports of which a listener may have any, in the order to try them; (0,) if the system may choose.

    Raises:
      errors.InvalidArgumentError: ``TFMINI_PORTS`` is no range of ports.
    """
    text = os.environ.get(PORTS_ENV, "")
    if not text:
        return (0,)
    first, dash, last = text.partition("-")
    if not (first.isascii() and first.isdigit() and (not dash or last.isascii() and last.isdigit())):
        raise _bad_ports(text)
    found = list(range(int(first), int(last or first) + 1))
    if not found or found[0] < 1 or found[-1] > 65535:
        raise _bad_ports(text)
    random.Random(os.getpid()).shuffle(found)  # tasks of one host start together, and would try the same ones first
    return found


def _bad_ports(text: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError.of(f"{PORTS_ENV} must be a range of ports as in 2300-2399, got {text!r}.")


def bind_to_port(bind: Callable[[int], None], ports: Sequence[int]) -> None:
    """Calls ``bind`` with each port until one is free.

    Raises:
      OSError: the last one, if none is.
    """
    for port in ports[:-1]:
        try:
            bind(port)
        except OSError:
            continue
        return
    bind(ports[-1])


def listening_socket(host: str) -> socket.socket:
    """Listens at an address of this host ("": all of IPv4), at a port that ``TFMINI_PORTS`` allows; does not block.

    Raises:
      OSError: no such port is free.
      errors.InvalidArgumentError: ``TFMINI_PORTS`` is no range of ports.
    """
    listener = socket.socket(family_of(host), socket.SOCK_STREAM)
    # As for ZeroMQ's own listeners: a port is free as soon as its last owner has ended.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setblocking(False)

    def listen(port: int) -> None:
        listener.bind((host, port))
        listener.listen(_BACKLOG)

    try:
        bind_to_port(listen, allowed_ports())
    except BaseException:  # even Ctrl-C: the caller has no reference to close it
        listener.close()
        raise
    return listener


def interface_of(host: str) -> str:
    """The numeric address to bind for a host of a ClusterSpec: that of one interface, or of all.

    Raises:
      errors.InvalidArgumentError: the name is not known here, or the address is another host's.
    """
    if host == "localhost":
        return "127.0.0.1"
    if host == "*":
        return "0.0.0.0"
    if is_numeric(host):
        if not is_own(host):
            raise errors.InvalidArgumentError.of(f"Cannot listen at {host}: {_not_own(host)}.")
        return host
    try:
        found = resolve(host, 0)
    except UnreachableError as error:
        raise errors.InvalidArgumentError.of(f"Cannot listen at {host}: {error}.") from error
    if len(found) == 1 and is_own(found[0]) and (host != socket.gethostname() or not _is_loopback(found[0])):
        return found[0]
    return all_interfaces()


def all_interfaces() -> str:
    """The numeric address that means all interfaces, IPv6 included where there is any."""
    return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"


def is_numeric(host: str) -> bool:
    """Whether a host is a numeric address, not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_own(address: str) -> bool:
    """Whether a numeric address is one of this host's."""
    try:
        with socket.socket(family_of(address), socket.SOCK_DGRAM) as sock:
            sock.bind((address, 0))
    except OSError:
        return False
    return True


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _not_own(host: str) -> str:
    return (
        f"{host} is not an address of this host ({socket.gethostname()}). Start the task on that host, correct its "
        f"entry in the ClusterSpec, or set {BIND_ENV} to the interface to listen on"
    )


def bind_host(own: HostPort, may_move: bool) -> str:
    """The host to listen at: ``TFMINI_BIND``, or that of the task's ClusterSpec.

    Args:
      may_move: whether others learn at which address this task is, so that it may be another one.

    Raises:
      errors.InvalidArgumentError: ``TFMINI_BIND`` names no interface of this host.
    """
    wanted = os.environ.get(BIND_ENV, "")
    if not wanted:
        return all_interfaces() if may_move and is_numeric(own.host) and not is_own(own.host) else own.host
    if is_numeric(wanted) or wanted in ("*", "localhost"):
        return wanted
    if wanted in (name for _, name in socket.if_nameindex()):
        return _address_of_interface(wanted)
    try:
        return resolve(wanted, 0)[0]
    except UnreachableError as error:
        names = ", ".join(name for _, name in socket.if_nameindex())
        raise errors.InvalidArgumentError.of(
            f"{BIND_ENV}={wanted} is neither an address, a name nor one of the interfaces {names}: {error}."
        ) from error


def _address_of_interface(name: str) -> str:
    """The address of a network interface: IPv4 if it has any."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            packed = fcntl.ioctl(sock.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            return socket.inet_ntoa(packed[20:24])
        except OSError:
            pass
    with open("/proc/net/if_inet6") as table:
        for digits, _, _, scope, _, interface in (line.split() for line in table):
            if interface == name and scope == "00":  # global
                return socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
    raise errors.InvalidArgumentError.of(f"{BIND_ENV}={name}: this interface has no address.")


def listen(listen_at: Callable[[str], str], own: HostPort, others: Iterable[str], may_move: bool) -> HostPort:
    """Makes a server listen; returns the address at which the other tasks reach it.

    Args:
      listen_at: listens at ``host:port`` and returns the address, with the real port.
      own: its address in the ClusterSpec. Port 0: any allowed one.
      others: ``host:port`` of the other tasks.
      may_move: whether others learn at which address this task is, so that it may be another one.

    Raises:
      errors.UnknownError: the port is in use.
      errors.InvalidArgumentError: the address cannot be bound here.
    """
    host = bind_host(own, may_move)
    ports = [own.port] if own.port else list(allowed_ports())
    if own.port and may_move:
        ports += [port for port in allowed_ports() if port != own.port]
    for port in ports:
        try:
            bound = listen_at(str(HostPort(host, port)))
            break
        except errors.UnknownError:  # in use
            if port == ports[-1]:
                raise
    number = int(bound.rpartition(":")[2])
    return HostPort(_host_for_others(host, own.host, others), number)


def _host_for_others(bound: str, own: str, others: Iterable[str]) -> str:
    """The host by which others reach this one: that of the ClusterSpec, or the address of an interface."""
    if own not in _WILDCARDS and (bound == own or not is_numeric(own) or is_own(own)):
        return own
    if bound not in _WILDCARDS:
        return bound
    sources = list(dict.fromkeys(filter(None, (source_towards(parse_host_port(other).host) for other in others))))
    outside = [source for source in sources if not _is_loopback(source)]
    return (outside or sources or ["127.0.0.1"])[0]
