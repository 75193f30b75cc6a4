"""Lets a layer's ``call`` use ``training`` in an ``if``, which TensorFlow's autograph makes a conditional."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tfmini.errors import OperatorNotAllowedInGraphError
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.nest import map_structure
from tfmini.graph.operation import Tensor
from tfmini.ops.flow.cond import cond

_ADDED = ("_losses", "_updates", "_metrics")


def by_phase(layer: Any, call: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    """Calls a layer; if it decides by a tensor ``training``, once for each phase, of whose outputs a step takes one.

    What the call for training adds to the losses, updates and metrics stays. So is a call that AutoGraph has converted,
    if it adds some in one branch of a conditional, where no step reaches them. A call that asks for the value of
    another tensor fails as before.
    """
    phase = kwargs["training"]
    if not isinstance(phase, Tensor):
        return call(**kwargs)
    before = _added(layer)
    try:
        outputs = call(**kwargs)
        if not _adds_in_a_branch(layer, before):
            return outputs
    except OperatorNotAllowedInGraphError:
        pass
    _restore(layer, before)
    with _nothing_added(layer):
        tests = call(**{**kwargs, "training": False})
    trains = call(**{**kwargs, "training": True})
    return map_structure(lambda a, b: a if a is b else cond(phase, lambda: a, lambda: b), trains, tests)


def _parts(layer: Any) -> list[Any]:
    return [layer, *layer.submodules]


def _added(layer: Any) -> dict[int, Any]:
    """What calls have added to a layer and those below it."""
    return {id(part): {name: list(getattr(part, name, ())) for name in _ADDED} for part in _parts(layer)}


def _adds_in_a_branch(layer: Any, before: dict[int, Any]) -> bool:
    """Whether calls have added something since that is in a conditional or loop, in which the layer is not."""
    if get_default_graph()._get_control_flow_context() is not None:
        return False
    known = {id(x) for lists in before.values() for added in lists.values() for x in added}
    now = [x for lists in _added(layer).values() for name in ("_losses", "_updates") for x in lists[name]]
    return any(not x.graph.is_fetchable(x) for x in now if id(x) not in known)


def _restore(layer: Any, before: dict[int, Any]) -> None:
    """Forgets what calls have added since, also to layers that did not exist."""
    for part in _parts(layer):
        lists = before.get(id(part), {})
        for name in _ADDED:
            if hasattr(part, name):
                getattr(part, name)[:] = lists.get(name, ())


@contextmanager
def _nothing_added(layer: Any) -> Iterator[None]:
    before = _added(layer)
    yield
    _restore(layer, before)
