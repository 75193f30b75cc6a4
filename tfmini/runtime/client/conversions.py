"""Types of fetches and feeds that libraries register (``register_session_run_conversion_functions``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

__all__ = ["Conversion", "conversion_of", "register_session_run_conversion_functions"]


class Conversion(NamedTuple):
    """How a session fetches and feeds the instances of a type.

    Attributes:
      fetch: fetch -> (what to fetch instead, function of the list of its values).
      feed: (key, value) -> pairs of keys and values to feed instead; None if it cannot be fed.
    """

    fetch: Callable[[Any], tuple[Sequence[Any], Callable[[list[Any]], Any]]]
    feed: Callable[[Any, Any], Sequence[tuple[Any, Any]]] | None


_registered: dict[type, Conversion] = {}


def register_session_run_conversion_functions(
    tensor_type: type,
    fetch_function: Callable[..., Any],
    feed_function: Callable[..., Any] | None = None,
    feed_function_for_partial_run: Callable[..., Any] | None = None,
) -> None:
    """Registers how ``Session.run`` fetches and feeds objects of a type (``tensorflow.python.client.session``).

    Args:
      tensor_type: the type; objects of its subclasses count, too.
      fetch_function: object -> (list of fetches, function of the list of their values that returns the result).
      feed_function: (object, value) -> list of pairs (key, value) for a feed_dict.
      feed_function_for_partial_run: unused: the keys of ``feed_function`` are those that a partial run may feed.

    Raises:
      ValueError: the type, or a base class of it, has been registered before.
    """
    for known in _registered:
        if issubclass(tensor_type, known):
            raise ValueError(f"{tensor_type} has already been registered so ignore it.")
    _registered[tensor_type] = Conversion(fetch_function, feed_function)


def conversion_of(value: Any) -> Conversion | None:
    """The registered conversion of an object; None if its type has none."""
    if not _registered:
        return None
    return next((_registered[kind] for kind in type(value).__mro__ if kind in _registered), None)
