"""`Call`: the fetches and feeds of a ``Session.run``, worked out once for all runs of the same pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini.graph.operation import Tensor
from tfmini.runtime.client.feeds import converter
from tfmini.runtime.client.fetches import Fetches

Signature = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""The names of the feeds, of the tensors to fetch and of the operations to run."""


class Call:
    """See the module.

    Attributes:
      converters: per feed, the function that turns a fed value into an array.
      signature: of the step that the call needs.
      ops: those that are fed, fetched or run.
      needs_step: false when all fetches are fed.
      plan: of the signature, once it has been prepared.
    """

    __slots__ = ("converters", "signature", "ops", "needs_step", "plan", "_build", "_from_feeds")

    def __init__(self, fetches: Fetches, feeds: Sequence[Tensor]) -> None:
        self.converters = [converter(tensor) for tensor in feeds]
        self._build = fetches.build
        positions = {tensor: i for i, tensor in enumerate(feeds)}
        sources = [positions.get(tensor) for tensor in fetches.tensors]
        # Per fetched tensor the position of its feed, or None where it is not fed; None if no fetched tensor is fed.
        self._from_feeds = None if all(i is None for i in sources) else sources
        wanted = tuple(tensor.name for tensor, i in zip(fetches.tensors, sources) if i is None)
        targets = tuple(op.name for op in fetches.targets)
        self.signature: Signature = (tuple(tensor.name for tensor in feeds), wanted, targets)
        self.ops = tuple({*(tensor.op for tensor in (*feeds, *fetches.tensors)), *fetches.targets})
        self.needs_step = bool(wanted or targets)
        self.plan: Any = None

    def result(self, found: Sequence[Any], values: Sequence[Any]) -> Any:
        """The result of ``Session.run``: a value of rank 0 as a numpy scalar (bytes for a string), in the structure.

        Args:
          found: the values that the step has fetched.
          values: the converted fed values.
        """
        if self._from_feeds is not None:
            rest = iter(found)
            found = [next(rest) if i is None else _own_copy(values[i]) for i in self._from_feeds]
        return self._build([v[()] if isinstance(v, np.ndarray) and v.ndim == 0 else v for v in found])


def frozen(fetches: Any) -> Any:
    """Fetches as a hashable value; different structures give different values."""
    kind = type(fetches)
    if kind is dict:
        return (dict, tuple(fetches), *map(frozen, fetches.values()))
    if kind is list or kind is tuple:
        return (kind, *map(frozen, fetches))
    return fetches


def _own_copy(value: Any) -> Any:
    """A fed value that is fetched: the caller may change the one without changing the other."""
    return value.copy() if isinstance(value, np.ndarray) else value
