"""Collections of a graph: named lists through which library and user code share objects."""

from __future__ import annotations

import re
import threading
from typing import Any, NoReturn

from tfmini.graph.creation_stack import user_frames


class CollectionStore:
    """The collection methods of `Graph`."""

    def __init__(self) -> None:
        self._collections: dict[Any, list[Any]] = {}
        self._collections_lock = threading.Lock()
        # The stack of the call that made the graph read-only; None while it may change.
        self._finalized_at: tuple[Any, ...] | None = None

    @property
    def collections(self) -> list[Any]:
        """Lists the names of the collections."""
        return list(self._collections)

    def add_to_collection(self, name: Any, value: Any) -> None:
        """Appends ``value`` to the collection ``name``."""
        if self._finalized_at is not None:
            self._refuse_change(f"an item of the collection {name!r}")
        with self._collections_lock:
            self._collections.setdefault(name, []).append(value)

    def add_to_collections(self, names: Any, value: Any) -> None:
        """Appends ``value`` once to each collection in ``names`` (one name or several)."""
        names = (names,) if isinstance(names, str) else dict.fromkeys(names)
        for name in names:
            self.add_to_collection(name, value)

    def get_collection_ref(self, name: Any) -> list[Any]:
        """Returns the collection itself, which the caller may change. Makes an empty one if there is none."""
        with self._collections_lock:
            return self._collections.setdefault(name, [])

    def get_collection(self, name: Any, scope: str | None = None) -> list[Any]:
        """Returns a copy of the collection, or of its items whose name matches the regex ``scope``."""
        with self._collections_lock:
            items = list(self._collections.get(name, ()))
        if scope is None:
            return items
        pattern = re.compile(scope)
        return [item for item in items if hasattr(item, "name") and pattern.match(item.name)]

    def get_all_collection_keys(self) -> list[Any]:
        """Lists the names of the collections that are strings."""
        with self._collections_lock:
            return [name for name in self._collections if isinstance(name, str)]

    def _refuse_change(self, what: str) -> NoReturn:
        """Raises the error for an addition to a graph that is read-only."""
        stack = user_frames(self._finalized_at or ())
        where = " (at {}:{})".format(*stack[-1][:2]) if stack else ""
        raise RuntimeError(
            f"Graph is finalized and cannot be modified. It was finalized{where}, and now gets {what}. Build everything"
            " before that: a MonitoredSession, a Supervisor and an Estimator finalize the graph. Calls that build ops"
            " (a function of tf, an operator of a tensor, tf.global_variables_initializer) belong before the loop that"
            " runs them."
        )

    def clear_collection(self, name: Any) -> None:
        """Empties the collection ``name``."""
        with self._collections_lock:
            self._collections.pop(name, None)
