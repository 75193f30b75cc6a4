"""Long work says how far it is, to a listener if there is one.

The command line listens on a terminal and shows bars (`tfmini.launch.progress`); a task of `tfmini launch` tells
its launcher (`tfmini.launch.progress`). Without a listener a piece of work costs a function call.
"""

from __future__ import annotations

import functools
import gc
import math
import os
import socket
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple, Protocol


class Work(Protocol):
    """One piece of work, on the listener's side. Called from the thread that works."""

    def advance(self, amount: int) -> None:
        """So much more is done."""

    def end(self) -> None:
        """The work has ended, or has failed."""


Listener = Callable[[str, int | None, str], Work]
"""Begins a piece of work: what is done, the total (None: unknown), and the unit of amounts (``B`` for bytes)."""

_listener: Listener | None = None


def listen(listener: Listener | None) -> None:
    """Sets the listener of this process; None: nobody listens."""
    global _listener
    _listener = listener


@contextmanager
def work(text: str, total: int | None = None, unit: str = "") -> Iterator[Callable[[int], None]]:
    """A piece of work, for the time of the block; gives the function that says how much more is done.

    Args:
      text: what is done, such as ``saving /tmp/model.ckpt-100``.
      total: the amount at the end; None: unknown.
      unit: of amounts; ``B`` for bytes.
    """
    listener = _listener
    if listener is None:
        yield _nobody_listens
        return
    begun = listener(text, total, unit)
    try:
        yield begun.advance
    finally:
        begun.end()


def _nobody_listens(amount: int) -> None:
    return


# ---- Pauses of Python's cycle collector while many objects that all stay are made ----------------------------------

_lock = threading.RLock()  # a destructor may run a block inside another one
_MANY = 100_000  # objects made in a pause, from which on they are called old
_pauses = 0
_was_enabled = False


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Pauses the collector in all threads until the last of such blocks ends.

    A pass over a large graph makes so many objects that the collector looks at all objects of the process several
    times, and it finds nothing to free: that took a fifth to a third of the time. A block must not wait for anything.
    (A script that disables the collector itself, in another thread while a block runs, has to do so again.)
    """
    global _pauses, _was_enabled
    try:
        with _lock:
            _pauses += 1  # first: Ctrl-C here must not leave the collector off for good
            if _pauses == 1:
                _was_enabled = gc.isenabled()
                gc.disable()
        yield
    finally:
        with _lock:
            _pauses = max(0, _pauses - 1)  # 0 in a child that was forked inside the block
            if not _pauses and _was_enabled:
                if gc.get_count()[0] > _MANY:  # after short pauses garbage would not be found early
                    call_old()
                gc.enable()


def current_frames() -> dict[int, FrameType]:
    """What each thread runs: `sys._current_frames`, without a collection inside it.

    CPython 3.11 makes the frames while it holds the lock that a thread takes when it begins or ends. A collection there
    runs destructors, during which such a thread may get the interpreter and wait for that lock: then the process
    stands still for good (gh-106883).
    """
    with collector_at_rest():
        return sys._current_frames()


def call_old() -> None:
    """Moves all objects to the oldest generation, for when those that have been made lately stay anyway.

    Else a collection of all of them comes soon, which takes a second per million. Garbage among them lives until the
    next collection of everything, which this puts off. Frozen objects, which others do not want back, stay frozen.
    """
    if not gc.get_freeze_count():
        gc.freeze()  # two moves of whole lists: there is no function that moves them directly
        gc.unfreeze()


@functools.cache
def call_imports_old() -> None:
    """Calls old, once per process, what is there when its first server begins: mostly what has been imported.

    Else it is collected amid the server's first steps, and all their tasks wait for that.
    """
    call_old()


def _after_fork() -> None:
    """Ends the pauses of the parent's other threads, which do not run in the child."""
    global _lock, _pauses
    _lock = threading.RLock()
    if _pauses and _was_enabled:
        gc.enable()
    _pauses = 0


os.register_at_fork(after_in_child=_after_fork)


# ---- What this process has to tell of its training: the latest scalars of its summaries, and checkpoints -----------
# Whoever writes a summary or a checkpoint notes it here; `tfmini status` and the live page read it. Bounded, and safe
# for use by several threads.

SAVED, RESTORED = "saved", "restored"
_TAGS, _EVENTS = 200, 100


class Scalar(NamedTuple):
    """The latest value of a tag. ``time_s``: seconds since 1970."""

    tag: str
    step: int
    value: float
    time_s: float


class Happening(NamedTuple):
    """Something that happened once. ``kind``: `SAVED` or `RESTORED`; ``subject``: the checkpoint's prefix."""

    time_s: float
    kind: str
    subject: str


class Journal:
    """See the module. It keeps the 200 tags that were written last and the latest 100 events."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scalars: OrderedDict[str, Scalar] = OrderedDict()
        self._happenings: deque[Happening] = deque(maxlen=_EVENTS)

    def note_summary(self, values: Iterable[Any], step: int, time_s: float) -> None:
        """Notes the scalars among the values of a Summary message."""
        found = [Scalar(v.tag, step, v.simple_value, time_s) for v in values if v.HasField("simple_value")]
        if not found:
            return
        with self._lock:
            for scalar in found:
                self._scalars[scalar.tag] = scalar
                self._scalars.move_to_end(scalar.tag)
            while len(self._scalars) > _TAGS:
                self._scalars.popitem(last=False)

    def note(self, kind: str, subject: str) -> None:
        """Notes an event that happens now."""
        with self._lock:
            self._happenings.append(Happening(time.time(), kind, subject))

    def scalars(self) -> list[Scalar]:
        """The latest value of each tag, by tag."""
        with self._lock:
            return sorted(self._scalars.values())

    def happenings(self) -> list[Happening]:
        """The latest events, oldest first."""
        with self._lock:
            return list(self._happenings)

    def after_fork(self) -> None:
        """For the child: another thread of the parent may have held the lock."""
        self._lock = threading.Lock()


journal = Journal()
"""The journal of this process."""
os.register_at_fork(after_in_child=journal.after_fork)


# ---- How much memory this process's machine or container has, and how much of it is free ---------------------------

_LIMIT_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_USED_FILES = ("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes")
_SMALL = 64 << 20  # bytes that are always there: asking costs some microseconds


def machine_memory() -> int:
    """Returns the bytes of memory that this process's machine or container has."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in _LIMIT_FILES:
        limit = _number_in(path)
        found = found if limit is None else min(found, limit)
    return found


def free_memory() -> int:
    """Returns the bytes that this process can still take; those of the machine where nothing tells more."""
    found = machine_memory()
    for limit_file, used_file in zip(_LIMIT_FILES, _USED_FILES):
        limit, used = _number_in(limit_file), _number_in(used_file)
        if limit is not None and used is not None:
            found = min(found, max(limit - used, 0) + _cached(limit_file))
    try:
        with open("/proc/meminfo") as file:
            sizes = {line.split(":")[0]: int(line.split()[1]) << 10 for line in file}
        return min(found, sizes["MemAvailable"] + sizes.get("SwapFree", 0))
    except (OSError, ValueError, KeyError, IndexError):  # another system than Linux
        return found


def check_room(shape: Sequence[int], itemsize: int) -> None:
    """Refuses an array that the memory has no room for, before any of it is taken.

    The system often grants memory that it does not have, and then kills the process that writes into it: a server
    would die for one client's step.

    Raises:
      MemoryError: with the shape.
    """
    nbytes = math.prod(shape) * itemsize
    if nbytes > _SMALL and nbytes > (free := free_memory()):
        raise MemoryError(f"OOM when allocating tensor with shape {list(shape)}: {nbytes} bytes, {free} are free")


def _cached(limit_file: str) -> int:
    """The bytes of a container that files in its cache take, which the system gives back."""
    try:
        with open(os.path.join(os.path.dirname(limit_file), "memory.stat")) as file:
            sizes = dict(line.split() for line in file)
        return int(sizes.get("inactive_file", sizes.get("total_inactive_file", 0)))
    except (OSError, ValueError):
        return 0


def _number_in(path: str) -> int | None:
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):  # another version of cgroups; "max": no limit
        return None


# ---- Inherits a listening socket from the process that started this one --------------------------------------------
# `tfmini launch` chooses the ports of a cluster before any task runs. If a task bound its free port later, another
# process could take the port first. So the launcher binds each port *and listens*, and the task inherits the socket.
# Connections made before the task is ready wait in the socket's backlog instead of being refused.
#
# The contract: the environment variable `TFMINI_LISTEN_FD` holds the number of an inherited descriptor, a tcp
# socket that is bound to the task's own address and listens. A server calls `claim(port)` once before it binds and,
# when it gets a descriptor, adopts it (ZeroMQ: `socket.setsockopt(zmq.USE_FD, fd)`, then `bind` to the same address;
# ZeroMQ closes it with the socket).

LISTEN_FD_ENV = "TFMINI_LISTEN_FD"


def claim(port: int, env: MutableMapping[str, str] | None = None) -> int | None:
    """Returns the inherited listening descriptor for `port`, which the caller then owns; or None.

    A claim succeeds once: it removes the variable from `env` (default: this process's environment), so that
    neither a second server nor a child process takes the same socket. It ignores a descriptor that is not a
    listening tcp socket on `port` (a stale variable, say).
    """
    env = os.environ if env is None else env
    text = env.get(LISTEN_FD_ENV, "")
    if not text.isdecimal() or not _listens_on(int(text), port):
        return None
    del env[LISTEN_FD_ENV]
    os.set_inheritable(int(text), False)
    return int(text)


def _listens_on(fd: int, port: int) -> bool:
    try:
        probe = socket.socket(fileno=os.dup(fd))
    except OSError:  # not open, or not a socket
        return False
    with probe:
        is_tcp = probe.family in (socket.AF_INET, socket.AF_INET6) and probe.type == socket.SOCK_STREAM
        listens = is_tcp and probe.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
        return listens and probe.getsockname()[1] == port
