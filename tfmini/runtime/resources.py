"""Resources: the state that outlives a step, by container, kind and name (TensorFlow's ResourceMgr).

A container is a namespace that can be dropped as a whole (``Session.reset``). The default
container of a device is called after its job: ``ps``, ``worker``, ``localhost``.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from tfmini import errors
from tfmini.locks import lock
from tfmini.rpc.messages import GetStatus
from tfmini.rpc.peer import Peer, State
from tfmini.rpc.waiter import Clock
from tfmini.runtime.native_libraries import give_back_freed_memory

T = TypeVar("T")
_Key = tuple[str, str]
Origins = tuple[tuple[str, int], ...]
"""Tasks with their incarnations."""


class ResourceManager:
    """The resources of one worker (or of one isolated session of it).

    ``generation`` grows whenever something is deleted: programs that hold on to resources look
    them up again when it has changed. ``session`` is part of the names of state that is not shared.

    Attributes:
      moved: (container, name) of variables that live on other tasks now -> where, a `NewPlace`; `runtime.moving` fills
        it.
      origins: of variables that have come from other tasks: those tasks, with their incarnations, the first one first.
    """

    session = ""

    def __init__(self, default_container: str) -> None:
        self.default_container = default_container
        self.generation = 0
        self.moved: dict[_Key, Any] = {}
        self.origins: dict[_Key, Origins] = {}
        self._staged: dict[int, dict[_Key, tuple[Any, Origins]]] = {}
        self._senders: dict[int, _Owner] = {}  # of the moves of `_staged`
        self._refused: collections.deque[int] = collections.deque(maxlen=100)  # moves whose late messages store nothing
        self._containers: dict[str, dict[_Key, Any]] = {}
        self._lock = lock("resources", reentrant=True)  # `create` may look up another resource

    def _container(self, container: str | bytes) -> str:
        return (container.decode() if isinstance(container, bytes) else container) or self.default_container

    def lookup_or_create(self, container: str | bytes, kind: str, name: str | bytes, create: Callable[[], T]) -> T:
        """The resource of that kind and name, made by ``create`` when it is absent."""
        key = (kind, name.decode() if isinstance(name, bytes) else name)
        with self._lock:
            label = self._container(container)
            named = self._containers.setdefault(label, {})
            if key not in named:
                if self.moved and kind == "variable" and (label, key[1]) in self.moved:
                    raise errors.AbortedError.of(self.moved[label, key[1]].text(key[1]))
                named[key] = create()
            return named[key]  # type: ignore[no-any-return]

    def lookup(self, container: str | bytes, kind: str, name: str) -> Any:
        """The resource of that kind and name.

        Raises:
          NotFoundError: when the container or the resource does not exist.
        """
        label = self._container(container)
        named = self._containers.get(label)
        if named is None:
            text = f"Container {label} does not exist. (Could not find resource: {label}/{name})"
            raise errors.NotFoundError.of(text)
        try:
            return named[kind, name]
        except KeyError:
            raise errors.NotFoundError.of(f"Resource {label}/{name}/{kind} does not exist.") from None

    def delete(self, container: str | bytes, kind: str, name: str) -> bool:
        """Forgets a resource; returns whether there was one."""
        return bool(self._take([(self._container(container), (kind, name))]))

    def clear(self, containers: Iterable[str]) -> None:
        """Drops whole containers (`Session.reset`); none given: the default one."""
        wanted = [self._container(container) for container in list(containers) or [self.default_container]]
        _forget(self._take((), wanted))
        give_back_freed_memory()

    def _take(self, keys: Iterable[tuple[str, _Key]], containers: Iterable[str] = ()) -> list[Any]:
        """Takes out resources, and whole containers."""
        with self._lock:
            found = [self._containers.get(where, {}).pop(key, None) for where, key in keys]
            for container in containers:
                found += self._containers.pop(container, {}).values()
                self.moved = {key: place for key, place in self.moved.items() if key[0] != container}
            self.generation += 1
        return [resource for resource in found if resource is not None]

    # ---- variables that move --------------------------------------------------------------

    def staged(
        self, move: int, sender: _Owner, container: str, name: str, create: Callable[[], T], origins: Origins = ()
    ) -> T:
        """A variable that comes from another task, where no step finds it yet; it is made when it comes first.

        Raises:
          AbortedError: the move has ended.
        """
        with self._lock:
            self._check_open(move)
            self._senders[move] = sender
            found: T = self._staged.setdefault(move, {}).setdefault((container, name), (create(), origins))[0]
            return found

    def _check_open(self, move: int) -> None:
        if move in self._refused:
            raise errors.AbortedError.of("The move has ended without the variables.")

    def unstage(self, move: int, keep: bool) -> None:
        """Lets steps find the variables of a move from now on, or drops them; again: does nothing.

        Raises:
          AbortedError: they are to be found, but have been dropped.
        """
        with self._lock:
            if keep:
                self._check_open(move)
            else:
                self._refused.append(move)
            self._senders.pop(move, None)
            staged = self._staged.pop(move, {})
            for (container, name), (state, origins) in staged.items() if keep else ():
                self._containers.setdefault(container, {})["variable", name] = state
                self.moved.pop((container, name), None)
                self.origins[container, name] = origins
            self.generation += bool(staged)

    def sender_returned(self, identity: _Owner) -> None:
        """Drops the copies that came from an earlier process of a task: no graph can find the way to them any more."""
        task, _, key = identity
        for move, sender in list(self._senders.items()):
            if sender != identity and (sender[0], sender[2]) == (task, key):
                self.unstage(move, False)

    def note_moved(self, places: Mapping[_Key, Any]) -> None:
        """Notes where variables are from now on. Their states stay, to tell who still has them."""
        with self._lock:
            self.moved |= places
            for key in places:
                self.origins.pop(key, None)
            self.generation += 1

    def for_session(self, session: str) -> SessionResources:
        """These resources as a session sees them: its own state beside the shared state."""
        return SessionResources(self, session)

    def end_session(self, session: str) -> None:
        """Drops the state that was a session's own."""
        own = [(where, (kind, key)) for where, kind, key, _ in self.contents() if key.startswith(f"{session}/")]
        if own:
            _forget(self._take(own))

    def release(self) -> None:
        """Ends the threads and closes the files of all resources, when no step can use them any more."""
        for _, _, _, resource in self.contents():
            release = getattr(resource, "release", None)
            if release is not None:
                release()

    def contents(self) -> list[tuple[str, str, str, Any]]:
        """(container, kind, name, resource) of all. It waits for no lock, so that nothing can hold up who asks."""
        containers = list(self._containers.items())
        return [(where, *key, found) for where, named in containers for key, found in list(named.items())]

    def statistics(self) -> dict[str, dict[str, int]]:
        """How many resources of each kind each container holds."""
        found: dict[str, dict[str, int]] = {container: {} for container in list(self._containers)}
        for container, kind, _, _ in self.contents():
            counts = found.setdefault(container, {})
            counts[kind] = counts.get(kind, 0) + 1
        return found


Resources: TypeAlias = "ResourceManager | SessionResources"


class SessionResources:
    """A `ResourceManager` with the handle of a session; everything else is the manager's."""

    __slots__ = ("_manager", "session", "__weakref__")

    def __init__(self, manager: ResourceManager, session: str) -> None:
        self._manager = manager
        self.session = session

    @property
    def generation(self) -> int:
        """The manager's; every step asks, and this is quicker than `__getattr__`."""
        return self._manager.generation

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)


def _forget(resources: Iterable[Any]) -> None:
    """Tells the dropped resources to end their waits. Holds no lock, because continuations of the waits run here."""
    for resource in resources:
        forget = getattr(resource, "clear", None)
        if forget is not None:
            forget()


# ---- The process that opened each session of a task; the sessions end when that process ends -----------------------
# A session belongs to the process that asked for it: a client, or the master that opened it on a worker. That
# process sends its incarnation in every Hello; where connections are encrypted, its public key counts, too. When its
# last connection breaks, it tries to connect again (`hold`), and its sessions continue. They are dropped if it has
# not reconnected within `GRACE_S`, or if its task returns with another incarnation. Variables belong to the task and
# stay; compiled graphs and the queues and state of the session go.
#
# Only the process that opened a session may use it: `SessionOwners.check` refuses the others.

GRACE_S = 60.0
SESSIONS_OF_CLIENT, SESSIONS_OF_TASK = 1000, 20_000  # a task has those of all its clients
SESSIONS_OF_SERVER = 50_000  # all together: a client that connects anew counts as another one

Drop = Callable[[str], Any]
_Owner = tuple[str, int, bytes]  # task ("" for a client), incarnation, public key; `Peer.identity`


def hold(peer: Peer) -> Callable[[], None]:
    """Connects anew, for `GRACE_S`, when the connection with a peer breaks; returns a function that ends that."""

    def lost(peer: Peer, why: str) -> None:
        peer.call(GetStatus(), lambda answer: None, timeout_s=GRACE_S, wait_for_ready=True)

    forget = peer.on_lost(lost)
    if peer.state is State.LOST:  # possibly since before it was watched
        lost(peer, peer.why)
    return forget


class SessionOwners:
    """See the module. Methods may be called from any thread.

    Args:
      task: the task whose sessions these are. Others of that name belong to other clusters, and none replaces another.
    """

    def __init__(self, clock: Clock, task: str = "") -> None:
        self._clock = clock
        self._task = task
        self._lock = lock("owners")
        self._sessions: dict[_Owner, dict[str, Drop]] = {}
        self._owners: dict[str, _Owner] = {}  # of each session
        self._links: dict[_Owner, dict[Peer, Callable[[], None]]] = {}  # those that are up, and how to unwatch them
        self._timers: dict[_Owner, Any] = {}
        self._latest: dict[tuple[str, Any], _Owner] = {}  # the incarnation of each task that has connected last
        self._closed = False

    def check_session_limits(self, peer: Peer, here: str) -> None:
        """Raises ResourceExhaustedError if this peer's process, or all together, have as many sessions as they may.

        Args:
          here: the task that would open another one.
        """
        limit = SESSIONS_OF_TASK if peer.identity[0] else SESSIONS_OF_CLIENT
        if len(self._sessions.get(peer.identity, ())) >= limit:
            raise errors.ResourceExhaustedError.of(
                f"{peer} has {limit} open sessions at {here} and may have no more. Close sessions that are not needed"
                " (`with tf.Session(...)` does), or use one session for many steps."
            )
        if len(self._owners) >= SESSIONS_OF_SERVER:
            raise errors.ResourceExhaustedError.of(
                f"{here} has {SESSIONS_OF_SERVER} open sessions of all its clients and opens no more. Close sessions"
                f" that are not needed; those of a client that is gone end after {GRACE_S:g} s."
            )

    def adopt(self, handle: str, peer: Peer, drop: Drop) -> None:
        """A peer has opened a session; ``drop(why)`` closes it when the peer is gone for good."""
        owner = peer.identity
        with self._lock:
            self._owners[handle] = owner
            self._sessions.setdefault(owner, {})[handle] = drop
        self._watch(peer)

    def check(self, handle: str, peer: Peer) -> None:
        """Raises PermissionDeniedError unless the process at this peer opened the session.

        A session without an owner here belongs to a client in the process of this task.
        """
        owner = self._owners.get(handle)
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
        owner = self._owners.get(handle)
        if owner is None:
            return ""
        host = next((peer.host for peer in list(self._links.get(owner, ()))), "")
        return owner[0] or f"client at {host or 'this host'}"

    def peers_of(self, handle: str) -> list[Peer]:
        """The connections of the process that opened a session; none for a client in the process of this task."""
        owner = self._owners.get(handle)
        return [] if owner is None else list(self._links.get(owner, ()))

    def release(self, handle: str) -> None:
        """A session has been closed."""
        with self._lock:
            owner = self._owners.pop(handle, None)
            if owner is None:
                return
            del self._sessions[owner][handle]
            unwatch = [] if self._sessions[owner] else self._forget(owner)
        for end in unwatch:
            end()

    def peer_ready(self, peer: Peer) -> None:
        """A connection has been made; for `Endpoint.on_peer_ready`."""
        owner = peer.identity
        task, _, key = owner
        with self._lock:
            known = owner in self._sessions
            if task and task != self._task:
                self._latest[task, key] = owner
            replaced = [other for other in self._timers if self._is_replaced(other)]
        for other in replaced:
            self._drop(other, f"{other[0]} was restarted.")
        if known:
            self._watch(peer)

    def close(self) -> None:
        """Drops nothing any more."""
        with self._lock:
            self._closed = True
            unwatch = [end for owner in list(self._sessions) for end in self._forget(owner)]
        for end in unwatch:
            end()

    def _watch(self, peer: Peer) -> None:
        owner = peer.identity
        unwatch = peer.on_lost(self._lost)
        with self._lock:
            links = self._links.setdefault(owner, {})
            is_new = owner in self._sessions and peer not in links
            if is_new and peer.state is State.READY:
                links[peer] = unwatch
                self._stop_timer(owner)
                return
            if is_new and not links:
                self._start_timer(owner, peer.why)
        unwatch()

    def _lost(self, peer: Peer, why: str) -> None:
        owner = peer.identity
        with self._lock:
            links = self._links.get(owner, {})
            unwatch = links.pop(peer, None)
            if not links and owner in self._sessions:
                self._start_timer(owner, why)
            is_replaced = self._is_replaced(owner)
        if unwatch is not None:
            unwatch()
        if is_replaced:
            self._drop(owner, f"{owner[0]} was restarted.")

    def _is_replaced(self, owner: _Owner) -> bool:
        """Whether another incarnation of a task has connected later, which may be before the loss of this one."""
        task, _, key = owner
        return self._latest.get((task, key), owner) != owner

    def _start_timer(self, owner: _Owner, why: str) -> None:
        if owner not in self._timers and not self._closed:
            who = owner[0] or "the client"
            text = f"{who} that opened it was lost {GRACE_S:g} s ago and has not come back: {why}"
            self._timers[owner] = self._clock.call_later(GRACE_S, self._drop, owner, text)

    def _stop_timer(self, owner: _Owner) -> None:
        timer = self._timers.pop(owner, None)
        if timer is not None:
            timer.cancel()

    def _forget(self, owner: _Owner) -> list[Callable[[], None]]:
        self._stop_timer(owner)
        for handle in self._sessions.pop(owner, {}):
            self._owners.pop(handle, None)
        return list(self._links.pop(owner, {}).values())

    def _drop(self, owner: _Owner, why: str) -> None:
        with self._lock:
            if owner not in self._timers:  # it has come back
                return
            sessions = dict(self._sessions.get(owner, {}))
            unwatch = self._forget(owner)
        for end in unwatch:
            end()
        for drop in sessions.values():
            drop(why)
