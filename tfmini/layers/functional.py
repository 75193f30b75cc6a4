"""Functions from layer classes: ``tf.layers.conv2d(x, 8, 3)`` makes a `Conv2D` and applies it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from tfmini.layers.base import Layer, to_snake_case

P = ParamSpec("P")


def as_function(
    layer: Callable[P, Layer], has_weights: bool = True, **defaults: Any
) -> Callable[Concatenate[Any, P], Any]:
    """A function ``f(inputs, *arguments of the layer, reuse=None)`` that makes and applies a layer.

    The variables are in the scope ``name``; a second call with that name and ``reuse`` shares them.

    Args:
      layer: a class of layers.
      has_weights: whether the layer has variables; otherwise the function has no argument ``reuse``.
      **defaults: the function's defaults that are written differently than the class's.
    """
    signature = _signature(layer, has_weights, defaults)

    def function(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        inputs = given.pop("inputs")
        if has_weights:
            given.update(_scope=given.get("name"), _reuse=given.pop("reuse", None))
        return layer(**given)(inputs)  # type: ignore[call-arg]

    function.__name__ = function.__qualname__ = name = to_snake_case(layer.__name__)
    function.__module__ = layer.__module__
    function.__doc__ = f"Makes a layer `{layer.__name__}` and applies it to ``inputs`` (``tf.layers.{name}``)."
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _signature(layer: Callable[..., Layer], has_weights: bool, defaults: dict[str, Any]) -> inspect.Signature:
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    own = [p for p in inspect.signature(layer).parameters.values() if p.kind is either]
    own = [p.replace(default=defaults[p.name]) if p.name in defaults else p for p in own]
    inputs = inspect.Parameter("inputs", either, annotation="Any")
    reuse = [inspect.Parameter("reuse", either, default=None, annotation="Any")] if has_weights else []
    return inspect.Signature([inputs, *own, *reuse], return_annotation="Any")
