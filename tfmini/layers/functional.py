"""Functions from a description of what is their own: layers from their classes, kin from the arguments that they share.

``tf.layers.conv2d(x, 8, 3)`` makes a `Conv2D` and applies it, so its arguments are those of the class. The losses, the
metrics and the layers of ``tf.contrib`` share blocks of arguments, which `sharing` adds to each function.

`inspect.signature` and ``help`` show TensorFlow's arguments in TensorFlow's order, and so do the generated stubs of the
public namespaces. Inside tfmini, type checkers see only the result of what `sharing` and `without` make: a `ParamSpec`
can add arguments in front, but not at the end.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from tfmini.layers.base import Layer, to_snake_case

P = ParamSpec("P")
R = TypeVar("R")
_EITHER = inspect.Parameter.POSITIONAL_OR_KEYWORD


def as_function(
    layer: Callable[P, Layer], has_weights: bool = True, at_call: Sequence[str] = (), order: str = "", **defaults: Any
) -> Callable[Concatenate[Any, P], Any]:
    """A function ``f(inputs, *arguments of the layer, reuse=None)`` that makes and applies a layer.

    The variables are in the scope ``name``; a second call with that name and ``reuse`` shares them.

    Args:
      layer: a class of layers.
      has_weights: whether the layer has variables; otherwise the function has no argument ``reuse``.
      at_call: the arguments of the layer's call besides the inputs; ``defaults`` has their defaults.
      order: the names of the last arguments, in their order; by default that of the class, then ``reuse``.
      **defaults: the function's defaults that are written differently than the class's.
    """
    own = {p.name: p for p in inspect.signature(layer).parameters.values() if p.kind is _EITHER}
    for name in ("inputs", *at_call, *(["reuse"] if has_weights else [])):
        default = inspect.Parameter.empty if name == "inputs" else None
        own[name] = inspect.Parameter(name, _EITHER, default=default, annotation="Any")
    last = order.split()
    names = ["inputs", *(name for name in own if name not in ("inputs", *last)), *last]
    parameters = [own[name].replace(default=defaults.get(name, own[name].default)) for name in names]
    signature = inspect.Signature(parameters, return_annotation="Any")

    def function(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        given = bound.arguments
        inputs, for_call = given.pop("inputs"), {name: given.pop(name, defaults[name]) for name in at_call}
        if has_weights:
            given.update(_scope=given.get("name"), _reuse=given.pop("reuse", None))
        return layer(**given)(inputs, **for_call)  # type: ignore[call-arg]

    function.__name__ = function.__qualname__ = name = to_snake_case(layer.__name__)
    function.__module__ = layer.__module__
    function.__doc__ = f"Makes a layer `{layer.__name__}` and applies it to ``inputs`` (``tf.layers.{name}``)."
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def without(function: Callable[..., R], name: str, **renamed: inspect.Parameter) -> Callable[..., R]:
    """The same function without the argument ``name``, which keeps its default.

    Args:
      **renamed: the former name of an argument -> the parameter in its place.
    """
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != name]
    signature = inspect.Signature([renamed.get(p.name, p) for p in parameters])
    former = {new.name: old for old, new in renamed.items()}

    @functools.wraps(function)
    def reduced(*args: Any, **kwargs: Any) -> R:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        more = bound.arguments.pop("kwargs", {})
        return function(**{former.get(name, name): value for name, value in bound.arguments.items()}, **more)

    reduced.__signature__ = signature  # type: ignore[attr-defined]
    return reduced


def sharing(
    shared: Callable[..., Any], before: Mapping[str, str] | None = None, of: Callable[..., Any] | None = None
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """A decorator that adds the arguments of a class to those of a function.

    The function's first parameter, ``given``, gets an instance of the class. The shared arguments come after the
    function's own, all with their defaults. Keyword-only ones of the function come after them.

    Args:
      shared: the class, or another function that makes ``given`` of the shared arguments.
      before: a keyword-only argument -> the shared one before which it comes instead.
      of: has the name, the docstring and the own arguments if the decorated function takes any; it has no ``given``.
    """
    theirs = list(inspect.signature(shared).parameters.values())

    def decorate(own: Callable[..., R]) -> Callable[..., R]:
        signature = inspect.signature(of or own)
        mine = list(signature.parameters.values())[0 if of else 1 :]
        parameters = [*(p for p in mine if p.kind is _EITHER), *theirs]
        for p in (p for p in mine if p.kind is p.KEYWORD_ONLY):
            names = [*(other.name for other in parameters), None]
            parameters.insert(names.index((before or {}).get(p.name)), p.replace(kind=_EITHER))
        signature = signature.replace(parameters=parameters)

        @functools.wraps(of or own)
        def function(*args: Any, **kwargs: Any) -> R:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            arguments = bound.arguments
            given = shared(**{p.name: arguments.pop(p.name) for p in theirs})
            return own(given, **arguments)

        function.__signature__ = signature  # type: ignore[attr-defined]
        return function

    return decorate
