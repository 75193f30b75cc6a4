"""`Outcome`: what a step has done on one task to variables and accumulators."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """Attributes:
    made: the names of the updates (see `graph.omission`) that the step has made.
    uncertain: those that it may have made: it was interrupted beside them.
    """

    made: frozenset[str] = frozenset()
    uncertain: frozenset[str] = frozenset()
