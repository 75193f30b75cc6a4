"""What two sides compare in the Hello; how each notices a lost peer, waits before it dials, knows duplicates. Pure."""

from __future__ import annotations

import enum
import hashlib
import hmac
import ipaddress
import os
import secrets
from collections.abc import Callable

from tfmini.cluster import parse_address

_SALT_BYTES, _DIGEST_BYTES = 16, 16


def host_proof(host: str) -> bytes:
    """Returns a salted hash of a host id, different each time, so that the Hello reveals nothing; b"" for ""."""
    salt = secrets.token_bytes(_SALT_BYTES)
    return salt + _digest(host, salt) if host else b""


def is_same_host(proof: bytes, host: str) -> bool:
    """Whether the sender of this `host_proof` has the same host id."""
    salt, digest = proof[:_SALT_BYTES], proof[_SALT_BYTES:]
    return bool(host and digest) and hmac.compare_digest(digest, _digest(host, salt))


def _digest(host: str, salt: bytes) -> bytes:
    return hashlib.blake2b(host.encode(), key=salt, digest_size=_DIGEST_BYTES).digest()


def addresses_conflict(ours: str, theirs: str, same_host: bool) -> bool:
    """Whether two ``host:port`` texts of two ClusterSpecs cannot mean the same task.

    A task may write its own entry in another way than others do, so only what certainly differs counts:
    a wildcard or loopback host says nothing to another host, and a name can be an alias of a number.
    """
    try:
        (host, port), (other_host, other_port) = parse_address(ours.lower()), parse_address(theirs.lower())
    except ValueError:
        return False
    kinds = {_kind(host), _kind(other_host)}
    if not port or not other_port or len(kinds) > 1 or kinds == {"any"} or (kinds == {"loopback"} and not same_host):
        return False
    return port != other_port or (kinds != {"loopback"} and not _may_be_equal(host, other_host))


def describe_conflict(task: str, theirs: str, ours: str, own: str) -> str:
    """Why a task is refused whose address in its own ClusterSpec (`theirs`) is another one than in that of `own`."""
    return (
        f"{task} is at {theirs} in its own ClusterSpec and at {ours} in that of {own}: two "
        f"clusters share an address by mistake, or one of them was started with an old ClusterSpec. Give all "
        f"tasks the same ClusterSpec. (A task that others reach at another address than its own can name "
        f"0.0.0.0:PORT as its own; tasks that move need an address book, TFMINI_ADDRESSES)"
    )


def _kind(host: str) -> str:
    if host in ("localhost", "*"):
        return "any" if host == "*" else "loopback"
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return "name"
    return "any" if number.is_unspecified else "loopback" if number.is_loopback else "number"


def _may_be_equal(host: str, other: str) -> bool:
    """Whether the hosts are equal, or one is the short form of the other name."""
    if _kind(host) == "number":
        return ipaddress.ip_address(host) == ipaddress.ip_address(other)
    shorter, longer = sorted((host, other), key=len)
    return longer == shorter or longer.startswith(shorter + ".")


# ---- Failure detection, back-off and duplicate detection as plain state: no socket, thread or clock ----------------

LOST_AFTER_ENV, WEDGED_AFTER_ENV = "TFMINI_LOST_AFTER", "TFMINI_WEDGED_AFTER"


def _seconds(variable: str, default: float, least: float) -> float:
    text = os.environ.get(variable, "") or f"{default:g}"
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not least <= seconds <= 86400:
        raise ValueError(f"{variable} must be a number of seconds from {least:g} to 86400, got {text!r}.")
    return seconds


BEAT_AFTER_S = 1.0
LOST_AFTER_S = _seconds(LOST_AFTER_ENV, 4, least=2)
# A peer reports its progress every `REPORT_AFTER_S`, and what holds it up within a few seconds.
WEDGED_AFTER_S = max(_seconds(WEDGED_AFTER_ENV, 60, least=20), LOST_AFTER_S)
TICK_S = 0.25
KEEP_IDS_S = 10.0  # for which a request's id is known at least, unless 100,000 others come
REPORT_AFTER_S = 10.0  # a side that always has something else to send sends a heartbeat so often
_BULK = 4096  # bytes per tick: a message that is this fast under way is not waited for in vain


class Verdict(enum.Enum):
    """The result of a check of one connection."""

    FINE = enum.auto()
    BEAT = enum.auto()  # send a heartbeat
    LOST = enum.auto()  # the peer has sent nothing for too long
    WEDGED = enum.auto()  # the peer sends heartbeats, but has handled nothing for too long


class PeerLiveness:
    """Detects a silent peer from the counters of one connection, so that the hot path only counts.

    For the peer's silence, a late tick counts as two ticks at most: if this process was stopped or busy, the peer's
    messages may be waiting unread. A heartbeat of this side is the more urgent then.

    Args:
      computes: asks the operating system whether the peer's process computes. If it does, a kernel may hold the
        interpreter, and the silence may last `WEDGED_AFTER_S`.
    """

    __slots__ = ("_computes", "_quiet_s", "_received", "_sent", "silence_s")

    def __init__(self, computes: Callable[[], bool] = lambda: False) -> None:
        self.silence_s = 0.0
        self._computes = computes
        self._quiet_s = 0.0
        self._received = -1
        self._sent = -1

    def tick(self, elapsed_s: float, received: int, sent: int) -> Verdict:
        """Checks the connection, ``elapsed_s`` seconds after the last tick."""
        self.silence_s = 0.0 if received != self._received else self.silence_s + min(elapsed_s, 2 * TICK_S)
        self._quiet_s = 0.0 if sent != self._sent else self._quiet_s + elapsed_s
        self._received, self._sent = received, sent
        # The process is looked at before the bound is reached, since it takes two looks to see it compute.
        computes = self.silence_s >= LOST_AFTER_S / 2 and self._computes()
        if self.silence_s >= (WEDGED_AFTER_S if computes else LOST_AFTER_S):
            return Verdict.LOST
        if self._quiet_s >= BEAT_AFTER_S:
            return Verdict.BEAT
        return Verdict.FINE


class Attention:
    """Detects a peer that lives but handles no messages, and notices when this side handles none.

    A heartbeat says how many messages of the connection its sender has begun to handle. Heartbeats themselves are
    messages, so this number grows at least once a second, unless a handler in the peer is stuck, computes or
    receives a large message. In the last two cases the heartbeat says so.

    Attributes:
      ignored_s: seconds since the peer last reported progress.
      held_s: seconds since bytes have come without a new message being handled here.
      is_bulk: whether a large message is arriving.
    """

    __slots__ = ("_acknowledged", "_arrived", "_handled", "_unreported_s", "held_s", "ignored_s", "is_bulk")

    def __init__(self) -> None:
        self.ignored_s = self.held_s = self._unreported_s = 0.0
        self.is_bulk = False
        self._acknowledged = self._handled = -1
        self._arrived = 0

    def heard(self, handled: int, doing: str) -> None:
        """The peer has sent a heartbeat."""
        if doing or handled != self._acknowledged:
            self.ignored_s = 0.0
        self._acknowledged = handled

    def tick(self, elapsed_s: float, handled: int, arrived: int) -> Verdict:
        """Checks the connection.

        Args:
          handled: messages that this side has begun to handle.
          arrived: bytes that have arrived.
        """
        elapsed_s = min(elapsed_s, 2 * TICK_S)
        is_new, nbytes = handled != self._handled, abs(arrived - self._arrived)
        self._handled, self._arrived = handled, arrived
        self.held_s = 0.0 if is_new or not (nbytes or self.held_s) else self.held_s + elapsed_s
        self.is_bulk = not is_new and nbytes >= _BULK
        if self.is_bulk:
            self.ignored_s = 0.0
        elif not self.held_s:  # else the peer's heartbeats may lie unread
            self.ignored_s += elapsed_s
        self._unreported_s += elapsed_s
        if self.ignored_s >= WEDGED_AFTER_S:
            return Verdict.WEDGED
        return Verdict.BEAT if self._unreported_s >= REPORT_AFTER_S else Verdict.FINE

    def reported(self) -> None:
        """This side has sent a heartbeat."""
        self._unreported_s = 0.0


class Backoff:
    """The delay before the next attempt to connect: 50 ms after the first failure, doubling up to a second."""

    FIRST_S, LIMIT_S = 0.05, 1.0

    def __init__(self) -> None:
        self._next_s = self.FIRST_S

    def failed(self) -> float:
        """Seconds to wait after one more failure."""
        delay = self._next_s
        self._next_s = min(self.LIMIT_S, delay * 2)
        return delay

    def succeeded(self) -> None:
        """Resets the delay."""
        self._next_s = self.FIRST_S


class RecentIds:
    """The most recent request ids, to refuse a request that arrives twice.

    It has two generations, so it knows between ``limit`` and twice as many ids. At 5,000 steps a
    second, 100,000 ids last for 20 seconds, longer than any sender retries. A generation also ends after
    `KEEP_IDS_S`, so that a server with few requests does not fill its memory for hours.
    """

    __slots__ = ("_age_s", "_limit", "_new", "_old")

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._age_s = 0.0
        self._new: set[int] = set()
        self._old: set[int] = set()

    def __len__(self) -> int:
        return len(self._new) + len(self._old)

    def is_new(self, request_id: int) -> bool:
        """Adds an id; returns False when it is known already."""
        new = self._new
        if request_id in new or request_id in self._old:
            return False
        new.add(request_id)
        if len(new) >= self._limit:
            self._begin_generation()
        return True

    def tick(self, elapsed_s: float) -> None:
        """Forgets ids that are older than two `KEEP_IDS_S`."""
        self._age_s += elapsed_s
        if self._age_s >= KEEP_IDS_S:
            self._begin_generation()

    def _begin_generation(self) -> None:
        self._old, self._new, self._age_s = self._new, set(), 0.0
