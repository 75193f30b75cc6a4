"""The process that opened each session of a task; the sessions end when that process ends.

A session belongs to the process that asked for it: a client, or the master that opened it on a worker. That
process sends its incarnation in every Hello; where connections are encrypted, its public key counts, too. When its last
connection breaks, it tries to connect again (`hold`), and its sessions continue. They are dropped if it has not
reconnected within `GRACE_S`, or if its task returns with another incarnation. Variables belong to the task and stay;
compiled graphs and the queues and state of the session go.

Only the process that opened a session may use it: `SessionOwners.check` refuses the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tfmini import errors
from tfmini.locks import Guarded
from tfmini.rpc.messages import GetStatus
from tfmini.rpc.peer import Peer, State
from tfmini.rpc.timers import Timer
from tfmini.rpc.waiter import Clock

GRACE_S = 60.0
SESSIONS_OF_CLIENT, SESSIONS_OF_TASK = 1000, 20_000  # a task has those of all its clients
SESSIONS_OF_SERVER = 50_000  # all together: a client that connects anew counts as another one

Drop = Callable[[str], Any]
Unwatch = Callable[[], None]
Owner = tuple[str, int, bytes]
"""Task ("" for a client), incarnation and public key: `Peer.identity`."""


def hold(peer: Peer) -> Callable[[], None]:
    """Connects anew, for `GRACE_S`, when the connection with a peer breaks; returns a function that ends that."""

    def lost(peer: Peer, why: str) -> None:
        peer.call(GetStatus(), lambda answer: None, timeout_s=GRACE_S, wait_for_ready=True)

    forget = peer.on_lost(lost)
    if peer.state is State.LOST:  # possibly since before it was watched
        lost(peer, peer.why)
    return forget


class OwnerTable:
    """The sessions, links and timers of each owner; see `SessionOwners`. Pure but for the clock.

    Attributes:
      sessions: of each owner; ``owners``: of each session.
      links: the links that are up, and how to unwatch them.
      latest: the incarnation of each task that has connected last.
    """

    def __init__(self, task: str, start_timer: Callable[[Owner, str], Timer]) -> None:
        self._task, self._new_timer = task, start_timer
        self.sessions: dict[Owner, dict[str, Drop]] = {}
        self.owners: dict[str, Owner] = {}
        self.links: dict[Owner, dict[Peer, Unwatch]] = {}
        self._timers: dict[Owner, Timer] = {}
        self._latest: dict[tuple[str, bytes], Owner] = {}
        self._closed = False

    def adopt(self, handle: str, owner: Owner, drop: Drop) -> None:
        """A session has been opened."""
        self.owners[handle] = owner
        self.sessions.setdefault(owner, {})[handle] = drop

    def release(self, handle: str) -> list[Unwatch]:
        """A session has been closed."""
        owner = self.owners.pop(handle, None)
        if owner is None:
            return []
        del self.sessions[owner][handle]
        return [] if self.sessions[owner] else self._forget(owner)

    def ready(self, owner: Owner) -> tuple[bool, list[Owner]]:
        """A connection has been made: returns whether its owner has sessions, and the owners that it replaces."""
        task, _, key = owner
        if task and task != self._task:
            self._latest[task, key] = owner
        return owner in self.sessions, [other for other in self._timers if self._is_replaced(other)]

    def watch(self, peer: Peer, unwatch: Unwatch) -> bool:
        """A link of an owner is to be watched; False if it is not: it is watched already, or has no sessions now."""
        owner = peer.identity
        links = self.links.setdefault(owner, {})
        is_new = owner in self.sessions and peer not in links
        if is_new and peer.state is State.READY:
            links[peer] = unwatch
            self._stop_timer(owner)
            return True
        if is_new and not links:
            self._start_timer(owner, peer.why)
        return False

    def lost(self, peer: Peer, why: str) -> tuple[Unwatch | None, bool]:
        """A link is down: returns how to unwatch it, and whether its owner has been replaced."""
        owner = peer.identity
        links = self.links.get(owner, {})
        unwatch = links.pop(peer, None)
        if not links and owner in self.sessions:
            self._start_timer(owner, why)
        return unwatch, self._is_replaced(owner)

    def drop(self, owner: Owner) -> tuple[list[Unwatch], list[Drop]]:
        """An owner is gone for good, unless it has come back; returns what ends its watches and its sessions."""
        if owner not in self._timers:
            return [], []
        drops = list(self.sessions.get(owner, {}).values())
        return self._forget(owner), drops

    def close(self) -> list[Unwatch]:
        """Nothing is dropped from now on."""
        self._closed = True
        return [end for owner in list(self.sessions) for end in self._forget(owner)]

    def _is_replaced(self, owner: Owner) -> bool:
        """Whether another incarnation of a task has connected later, which may be before the loss of this one."""
        task, _, key = owner
        return self._latest.get((task, key), owner) != owner

    def _start_timer(self, owner: Owner, why: str) -> None:
        if owner not in self._timers and not self._closed:
            self._timers[owner] = self._new_timer(owner, why)

    def _stop_timer(self, owner: Owner) -> None:
        timer = self._timers.pop(owner, None)
        if timer is not None:
            timer.cancel()

    def _forget(self, owner: Owner) -> list[Unwatch]:
        self._stop_timer(owner)
        for handle in self.sessions.pop(owner, {}):
            self.owners.pop(handle, None)
        return list(self.links.pop(owner, {}).values())


class SessionOwners:
    """See the module. Methods may be called from any thread.

    Args:
      task: the task whose sessions these are. Others of that name belong to other clusters, and none replaces another.
    """

    def __init__(self, clock: Clock, task: str = "") -> None:
        self._clock = clock
        self._table = Guarded("owners", OwnerTable(task, self._start_timer))
        self._state = self._table.state

    def check_room(self, peer: Peer, here: str) -> None:
        """Raises ResourceExhaustedError if this peer's process, or all together, have as many sessions as they may.

        Args:
          here: the task that would open another one.
        """
        limit = SESSIONS_OF_TASK if peer.identity[0] else SESSIONS_OF_CLIENT
        if len(self._state.sessions.get(peer.identity, ())) >= limit:
            raise errors.ResourceExhaustedError.of(
                f"{peer} has {limit} open sessions at {here} and may have no more. Close sessions that are not needed"
                " (`with tf.Session(...)` does), or use one session for many steps."
            )
        if len(self._state.owners) >= SESSIONS_OF_SERVER:
            raise errors.ResourceExhaustedError.of(
                f"{here} has {SESSIONS_OF_SERVER} open sessions of all its clients and opens no more. Close sessions"
                f" that are not needed; those of a client that is gone end after {GRACE_S:g} s."
            )

    def adopt(self, handle: str, peer: Peer, drop: Drop) -> None:
        """A peer has opened a session; ``drop(why)`` closes it when the peer is gone for good."""
        self._table(OwnerTable.adopt, handle, peer.identity, drop)
        self._watch(peer)

    def check(self, handle: str, peer: Peer) -> None:
        """Raises PermissionDeniedError unless the process at this peer opened the session.

        A session without an owner here belongs to a client in the process of this task.
        """
        owner = self._state.owners.get(handle)
        if owner == peer.identity:
            return
        # The owner's incarnation stays unsaid: a peer that knew it could claim to be the owner.
        name = "a client in the process of this task" if owner is None else owner[0] or "another client"
        raise errors.PermissionDeniedError.of(
            f"This session was opened by {name}, not by {peer}: only the process that opened a session may use it."
            " Open a session of your own; sessions of one cluster share its variables."
        )

    def owner_of(self, handle: str) -> str:
        """Who opened a session: a task, or ``client at HOST``; "": a client in the process of this task."""
        owner = self._state.owners.get(handle)
        if owner is None:
            return ""
        host = next((peer.host for peer in list(self._state.links.get(owner, ()))), "")
        return owner[0] or f"client at {host or 'this host'}"

    def peers_of(self, handle: str) -> list[Peer]:
        """The connections of the process that opened a session; none for a client in the process of this task."""
        owner = self._state.owners.get(handle)
        return [] if owner is None else list(self._state.links.get(owner, ()))

    def release(self, handle: str) -> None:
        """A session has been closed."""
        _make(self._table(OwnerTable.release, handle))

    def peer_ready(self, peer: Peer) -> None:
        """A connection has been made; for `Endpoint.on_peer_ready`."""
        is_known, replaced = self._table(OwnerTable.ready, peer.identity)
        for other in replaced:
            self._drop(other, f"{other[0]} was restarted.")
        if is_known:
            self._watch(peer)

    def close(self) -> None:
        """Ends all watches: the task ends, and drops its sessions by itself."""
        _make(self._table(OwnerTable.close))

    def _watch(self, peer: Peer) -> None:
        unwatch = peer.on_lost(self._lost)
        if not self._table(OwnerTable.watch, peer, unwatch):
            unwatch()

    def _lost(self, peer: Peer, why: str) -> None:
        unwatch, is_replaced = self._table(OwnerTable.lost, peer, why)
        if unwatch is not None:
            unwatch()
        if is_replaced:
            self._drop(peer.identity, f"{peer.identity[0]} was restarted.")

    def _start_timer(self, owner: Owner, why: str) -> Timer:
        who = owner[0] or "the client"
        text = f"{who} that opened it was lost {GRACE_S:g} s ago and has not come back: {why}"
        return self._clock.call_later(GRACE_S, self._drop, owner, text)

    def _drop(self, owner: Owner, why: str) -> None:
        unwatch, drops = self._table(OwnerTable.drop, owner)
        _make(unwatch)
        for drop in drops:
            drop(why)


def _make(calls: Iterable[Unwatch]) -> None:
    for call in calls:
        call()
