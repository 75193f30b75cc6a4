"""A forked child gives up its parent's sockets, and a server needs many: descriptors of this process.

A child inherits all descriptors of its parent. If it kept the sockets, then for as long as the child lives, the port of
a parent that is killed would stay taken, and the parent's peers would not see its end. The parent itself is not
affected: a socket ends with its last descriptor, and nothing is removed from the parent's epoll.

The child puts ``/dev/null`` in the place of each socket. So the number stays in use, and copies of the parent's
objects that close it later close no descriptor of the child. ZeroMQ's own eventfds and epolls stay open: no other
process sees them.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
import socket
import stat
import struct
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from tfmini.rpc.addresses import Address

_log = logging.getLogger("tfmini.rpc")

_WILDCARDS = ("0.0.0.0", "::")


T = TypeVar("T")


class PerProcess(Generic[T]):
    """An object of which each process has one, made at its first use. A forked child makes its own."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._found: T | None = None
        self._inherited: T | None = None  # kept: in a child, the end of its parent's objects is nobody's business
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._inherited, self._found, self._lock = self._found, None, threading.Lock()

    def get(self) -> T:
        """Returns the object of this process."""
        found = self._found
        if found is None:
            with self._lock:
                found = self._found = self._make() if self._found is None else self._found
        return found


class ForkOwner(Protocol):
    """An object with descriptors that a child must not keep."""

    def descriptors(self) -> Iterable[int]: ...


_owners: weakref.WeakSet[Any] = weakref.WeakSet()
_zmq: weakref.WeakKeyDictionary[Any, tuple[Address, bool]] = weakref.WeakKeyDictionary()


def not_for_children(owner: ForkOwner) -> None:
    """Makes a child give up the descriptors of an object, as long as the object exists."""
    _owners.add(owner)


def zmq_not_for_children(owner: object, address: Address, is_bound: bool) -> None:
    """Makes a child give up the sockets that ZeroMQ has bound or connected to an address, as long as ``owner`` exists.

    ZeroMQ does not tell their descriptors.
    """
    _zmq[owner] = address, is_bound


def _give_up() -> None:
    """Runs in the child, which has one thread."""
    fds = [fd for owner in list(_owners) for fd in owner.descriptors() if fd >= 0 and _is_ours(fd)]
    if _zmq:
        fds += [fd for fd in _open_sockets() if _is_zmq(fd)]
    if fds:
        os.close(fds[0])  # so that there is a free number even at the limit
        null = os.open(os.devnull, os.O_RDWR)
        for fd in fds:
            if fd != null:
                os.dup2(null, fd, inheritable=False)
        if null not in fds:
            os.close(null)
    _owners.clear()
    _zmq.clear()


def _is_ours(fd: int) -> bool:
    """Whether it is a socket, or an epoll or eventfd, which have no type."""
    try:
        return stat.S_IFMT(os.fstat(fd).st_mode) in (stat.S_IFSOCK, 0)
    except OSError:
        return False


def _open_sockets() -> Iterator[int]:
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                yield int(name)
        except OSError:  # that of the listing itself
            continue


def _is_zmq(fd: int) -> bool:
    with socket.socket(fileno=os.dup(fd)) as sock:
        return any(_is_at(sock.getsockname if bound else sock.getpeername, address) for address, bound in _zmq.values())


def _is_at(name: Any, address: Address) -> bool:
    try:
        found = name()
    except OSError:  # not connected
        return False
    if address.scheme == "ipc":
        path = found.decode() if isinstance(found, bytes) else found
        return path == ("\0" + address.path[1:] if address.path.startswith("@") else address.path)
    if not isinstance(found, tuple) or found[1:2] != (address.port,):
        return False
    mapped = "::ffff:"  # of an IPv4 address of an IPv6 socket
    return address.host in _WILDCARDS or found[0].removeprefix(mapped) == address.host.removeprefix(mapped)


os.register_at_fork(after_in_child=_give_up)


# ---- The limit of open files: a server raises it when it starts, and says so when it is reached --------------------
# ZeroMQ leaves a connection in the socket's backlog while there is no descriptor for it, lanes wait as well
# (`lane_listener`), and both go on when descriptors are closed. ZeroMQ's thread asks for it without a pause, which
# takes most of a core while a connection waits.

_ENOUGH = 1 << 20  # a hard limit may be larger, and some programs walk through all numbers
_FEW = 0.9  # of the limit
_DESCRIPTOR = struct.Struct("i")  # in a message's control data
AT_LIMIT = frozenset({errno.EMFILE, errno.ENFILE})


def raise_limit() -> None:
    """Raises the soft limit of open files of this process to its hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # a sandbox may forbid it
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def has_room(count: int) -> bool:
    """Whether this process can open so many descriptors more."""
    opened = []
    try:
        for _ in range(count):
            opened.append(os.eventfd(0))
    except OSError:
        return False
    finally:
        for fd in opened:
            os.close(fd)
    return True


def receive_descriptor(sock: socket.socket, nbytes: int) -> tuple[bytes, int]:
    """Receives a message of a local socket and the descriptor that comes with it, -1 if there is none.

    Raises:
      BlockingIOError: no message has arrived.
      OSError: the connection broke; with an error of `AT_LIMIT`, there is no descriptor now, and the message stays.
    """
    # While there is no descriptor for it, the kernel drops what comes with a message that is read, but not with one
    # that is looked at. To have looked for room before is not enough: ZeroMQ's thread may have taken it.
    message, control, flags, _ = sock.recvmsg(nbytes, socket.CMSG_LEN(_DESCRIPTOR.size), socket.MSG_PEEK)
    if not control and flags & socket.MSG_CTRUNC:
        raise OSError(errno.EMFILE, at_limit())
    sock.recv(nbytes)
    return message, _DESCRIPTOR.unpack(control[0][2])[0] if control else -1


def at_limit() -> str:
    """The limit and the remedy, as the end of a sentence."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"this process may open {soft} files and has (nearly) as many open, of which each connection takes some;"
        f" run `ulimit -n NUMBER` with a larger number in the shell that starts it (the hard limit is {hard}), or close"
        f" connections that are not needed (`ls -l /proc/{os.getpid()}/fd` lists what is open)"
    )


class DescriptorWatch:
    """Logs when a process comes near its limit, once until it has left it."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._is_near = False

    def look(self) -> None:
        """Looks how many descriptors are in use; cheap."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        try:
            fd = os.eventfd(0)  # gets the lowest free number, so at least as many are open
            os.close(fd)
        except OSError:
            fd = limit
        was_near, self._is_near = self._is_near, limit != resource.RLIM_INFINITY and fd >= _FEW * limit
        if self._is_near and not was_near:
            _log.error("%s has little room for new connections: %s", self._owner, at_limit())
        elif was_near and not self._is_near:
            _log.warning("%s has room for new connections again", self._owner)
