"""`Call`: the fetches and feeds of a ``Session.run``, worked out once for all runs of the same pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini.graph.operation import Tensor
from tfmini.runtime.client.conversions import conversion_of
from tfmini.runtime.client.feeds import Convert
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

    def __init__(self, fetches: Fetches, feeds: Sequence[Tensor], converters: list[Convert]) -> None:
        self.converters = converters
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
            found = [next(rest) if i is None else own_copy(values[i]) for i in self._from_feeds]
        return self._build([v[()] if isinstance(v, np.ndarray) and v.ndim == 0 else v for v in found])


# A session finds an earlier call by a key, which must be equal for calls of the same structure alone. But Python's
# containers compare by their elements: a namedtuple equals a tuple, and the key 1 of a dictionary True.


def quick_key(fetches: Any, feeds: tuple[Any, ...] | None) -> Any:
    """The key of a call whose fetches are one element or a flat list or tuple, with the keys of its feed_dict.

    Raises:
      TypeError: something in it cannot be hashed.
    """
    return tuple(fetches) if type(fetches) is list else fetches, type(fetches), feeds


def nested_key(fetches: Any, feeds: tuple[Any, ...] | None) -> Any:
    """The key of a call whose fetches are nested, as those of hooks are."""
    return _frozen(fetches), dict, feeds


def _frozen(fetches: Any) -> Any:
    """Fetches as a hashable value with the types of all containers and of the keys of dictionaries."""
    kind = type(fetches)
    if kind is Tensor:  # a quick look first
        return fetches
    if kind is dict:
        return (dict, tuple(fetches), *map(type, fetches), *map(_frozen, fetches.values()))
    if kind is list or isinstance(fetches, tuple):
        return (kind, *map(_frozen, fetches))
    return fetches


def key_to_remember(fetches: Any, feeds: tuple[Any, ...] | None) -> Any:
    """The key by which a new call may be found again, None for fetches that another structure might equal."""
    try:
        if _is_element(fetches) or isinstance(fetches, (list, tuple)) and all(map(_is_element, fetches)):
            key = quick_key(fetches, feeds)
        elif _is_told_apart(fetches):
            key = nested_key(fetches, feeds)
        else:
            return None
        hash(key)
    except TypeError:
        return None
    return key


def _is_told_apart(fetches: Any) -> bool:
    if type(fetches) is dict:
        return all(map(_is_key, fetches)) and all(map(_is_told_apart, fetches.values()))
    if type(fetches) is list or isinstance(fetches, tuple):
        return all(map(_is_told_apart, fetches))
    return _is_element(fetches)


def _is_key(key: Any) -> bool:
    return type(key) in (str, bytes, int, bool) or _equals_itself_alone(key)


def _is_element(fetch: Any) -> bool:
    """Whether a fetch is a name, or an object without parts that another may take the place of."""
    if type(fetch) in (str, bytes):
        return True
    has_parts = hasattr(fetch, "__attrs_attrs__") or conversion_of(fetch) is not None
    return _equals_itself_alone(fetch) and not has_parts


_IDENTITY: Any = object.__eq__


def _equals_itself_alone(value: Any) -> bool:
    return isinstance(value, Tensor) or type(value).__eq__ is _IDENTITY


def own_copy(value: Any) -> Any:
    """A fed value that is fetched: the caller may change the one without changing the other."""
    return value.copy() if isinstance(value, np.ndarray) else value
