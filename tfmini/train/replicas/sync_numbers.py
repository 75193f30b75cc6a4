"""How many gradients an update of a synchronous run has, where the chief may change it between two updates.

The chief's thread feeds both numbers, gradients and tokens per update, to every update. So they change between two.
Three rules keep the run from standing still, whatever workers come, leave or die meanwhile:

- An update is never given fewer tokens than the next one needs gradients. Where the number grows, the thread adds the
  difference before the next update.
- Where it shrinks, the update under way still needs the old number, and the workers that are gone have taken tokens
  with them. So the difference is added at once, with the present step: the others make up for the last time.
- A token too many costs a gradient that is dropped as stale, and nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfmini import dtypes
from tfmini.graph.scoping import name_scope
from tfmini.ops.array.filling import fill
from tfmini.ops.array.identity import placeholder


@dataclass(frozen=True)
class Numbers:
    """Gradients in the mean of an update, and workers; see `SyncReplicasOptimizer`."""

    aggregate: int
    total: int

    @property
    def tokens(self) -> int:
        """Tokens that an update puts into the queue."""
        return max(self.aggregate, self.total)

    def scaled(self, total: int) -> Numbers:
        """The same proportion for another number of workers."""
        return Numbers(max(1, round(self.aggregate * total / self.total)), total)


class ChangingNumbers:
    """The numbers of an elastic run. The ops are added by the constructor and `add_ops`, in the present device scope.

    Attributes:
      aggregate, tokens: what an update takes, int32 scalars that the chief feeds.
      first: the numbers of the script.
    """

    def __init__(self, first: Numbers) -> None:
        with name_scope("elastic"):
            self.aggregate = placeholder(dtypes.int32, [], name="replicas_to_aggregate")
            self.tokens = placeholder(dtypes.int32, [], name="tokens")
            self._more = placeholder(dtypes.int32, [], name="more_tokens")
        self.first = first
        self._wanted = self._present = first
        self._lock = threading.Lock()
        self._add: Any = None

    def add_ops(self, queue: Any, global_step: Any) -> None:
        """Adds the op that puts further tokens of the present step into the token queue."""
        with name_scope("elastic"):
            self._add = queue.enqueue_many((fill([self._more], global_step),), name="add_tokens")

    @property
    def wanted(self) -> Numbers:
        """The numbers of the next update."""
        return self._wanted

    def change(self, session: Any, numbers: Numbers) -> None:
        """Changes the numbers from the next update on. Call it in the chief's process; ``session`` is a plain one."""
        with self._lock:
            before, self._wanted = self._wanted, numbers
        # After the assignment: if the thread has begun an update with the old number, the step is read behind that.
        self._add_tokens(session, before.tokens - numbers.tokens)

    def go_on(self, session: Any) -> None:
        """A chief that goes on with a run does not know how many tokens its predecessor has left to the workers."""
        self._add_tokens(session, self._wanted.tokens)

    def updates(self, session: Any, sync_op: Any) -> Callable[[], None]:
        """A function that makes one update; only the chief's thread calls it."""
        make = session.make_callable(sync_op, [self.aggregate, self.tokens])

        def update() -> None:
            with self._lock:
                before, self._present = self._present, self._wanted
            self._add_tokens(session, self._present.tokens - before.tokens)
            make(self._present.aggregate, self._present.tokens)

        return update

    def _add_tokens(self, session: Any, count: int) -> None:
        if count > 0:
            session.run(self._add, {self._more: count})
