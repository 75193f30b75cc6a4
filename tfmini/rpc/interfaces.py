"""Where a server listens: the interface and the ports of this host, and the address at which others reach it.

Without settings it listens at its address in the ClusterSpec. That does not always work: the host's own name may mean
127.0.1.1 here (as in Debian), a name may mean several interfaces or none of them (a service in front of the host), and
a task that was started again elsewhere has an address of another host. ``TFMINI_BIND`` names the interface (by an
address, or as in ``eth0``), and ``TFMINI_PORTS`` a range of ports, as in ``2300-2399``, for every port that
the system would choose.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import random
import socket
import struct
from collections.abc import Callable, Iterable, Sequence

from tfmini import errors
from tfmini.cluster import HostPort, parse_address
from tfmini.rpc.reach import UnreachableError, family_of, resolve, source_towards

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
    sources = list(dict.fromkeys(filter(None, (source_towards(parse_address(other).host) for other in others))))
    outside = [source for source in sources if not _is_loopback(source)]
    return (outside or sources or ["127.0.0.1"])[0]
