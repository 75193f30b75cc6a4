"""Resources: the state that outlives a step, by container, kind and name (TensorFlow's ResourceMgr).

A container is a namespace that can be dropped as a whole (``Session.reset``). The default
container of a device is called after its job: ``ps``, ``worker``, ``localhost``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar

from tfmini import errors
from tfmini.locks import lock

T = TypeVar("T")
_Key = tuple[str, str]


class ResourceManager:
    """The resources of one worker (or of one isolated session of it).

    ``generation`` grows whenever something is deleted: programs that hold on to resources look
    them up again when it has changed. ``session`` is part of the names of state that is not shared.
    """

    session = ""

    def __init__(self, default_container: str) -> None:
        self.default_container = default_container
        self.generation = 0
        self._containers: dict[str, dict[_Key, Any]] = {}
        self._lock = lock("resources", reentrant=True)  # `create` may look up another resource

    def _container(self, container: str | bytes) -> str:
        return (container.decode() if isinstance(container, bytes) else container) or self.default_container

    def lookup_or_create(self, container: str | bytes, kind: str, name: str | bytes, create: Callable[[], T]) -> T:
        """The resource of that kind and name, made by ``create`` when it is absent."""
        key = (kind, name.decode() if isinstance(name, bytes) else name)
        with self._lock:
            named = self._containers.setdefault(self._container(container), {})
            if key not in named:
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

    def _take(self, keys: Iterable[tuple[str, _Key]], containers: Iterable[str] = ()) -> list[Any]:
        """Takes out resources, and whole containers."""
        with self._lock:
            found = [self._containers.get(where, {}).pop(key, None) for where, key in keys]
            for container in containers:
                found += self._containers.pop(container, {}).values()
            self.generation += 1
        return [resource for resource in found if resource is not None]

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
