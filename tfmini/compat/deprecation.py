"""Decorators for what a library wants used no more (``tf.contrib.framework.deprecated``): each warns once."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tfmini.compat.tf_logging import get_logger
from tfmini.export import either, export, export_names

_PRIVATE = "tensorflow.python.util.deprecation"
_PRINT_DEPRECATION_WARNINGS = True
deprecated_argument_lookup = either
export_names("tensorflow.python.util.deprecation", "_PRINT_DEPRECATION_WARNINGS deprecated_argument_lookup")
_silenced = 0
# What a call uses that is deprecated, of the bound arguments: a text for each.
_Used = Callable[[dict[str, Any]], list[str]]


@export("tensorflow.python.util.deprecation.silence")
@contextmanager
def silence() -> Iterator[None]:
    """Make a context without messages about deprecated names."""
    global _silenced
    _silenced += 1
    try:
        yield
    finally:
        _silenced -= 1


def _wanted() -> bool:
    """Whether warnings are wanted: scripts set the variable of TensorFlow's private module."""
    return not _silenced and getattr(sys.modules.get(_PRIVATE), "_PRINT_DEPRECATION_WARNINGS", True)


def _checked(date: str | None, instructions: str) -> str:
    """The end of a warning: when the name goes, and what to do."""
    if date is not None and not re.match(r"20\d\d-[01]\d-[0123]\d", date):
        raise ValueError("Date must be YYYY-MM-DD.")
    if not instructions:
        raise ValueError("Instructions for who uses the deprecated name are missing")
    return f"{'in a future version' if date is None else f'after {date}'}.\nInstructions for updating:\n{instructions}"


def _warning(function: Any, end: str, used: _Used, warn_once: bool) -> Any:
    """Wrap ``function`` so that a call warns of each text of ``used``; of a class, wrap its constructor."""
    if inspect.isclass(function):
        maker = "__init__" if function.__new__ is object.__new__ else "__new__"  # named tuples have the latter
        setattr(function, maker, _warning(getattr(function, maker), end, used, warn_once))
        return function
    signature, told = inspect.signature(function), set[str]()

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for text in used(_bound(signature, args, kwargs)) if _wanted() else ():
            if text not in told:
                where = sys._getframe(1)
                place = f"{where.f_code.co_filename}:{where.f_lineno}"
                get_logger().warning("From %s: %s is deprecated and will be removed %s", place, text, end)
                told.update([text] if warn_once else [])
        return function(*args, **kwargs)

    call.__signature__ = signature  # type: ignore[attr-defined]  # `getfullargspec` does not follow `__wrapped__`
    call.__doc__ = f"{inspect.getdoc(function) or function.__name__} (deprecated)\n\nTo be removed {end}"
    return call


def _bound(signature: inspect.Signature, args: Any, kwargs: Any) -> dict[str, Any]:
    try:
        return signature.bind_partial(*args, **kwargs).arguments
    except TypeError:  # the function says what is wrong
        return {}


def _name(function: Any) -> str:
    return f"{function.__qualname__.removesuffix('.__init__')} (from {function.__module__})"


@export(
    "tf.contrib.framework.deprecated", "tf.contrib.slim.deprecated", "tensorflow.python.util.deprecation.deprecated"
)
def deprecated(date: str | None, instructions: str, warn_once: bool = True) -> Callable[[Any], Any]:
    """Make a decorator for a function or a class that is deprecated as a whole.

    Args:
      date: the day of its removal (``"2030-01-31"``), or None.
      instructions: what to use instead.
      warn_once: whether only the first call warns.
    """
    end = _checked(date, instructions)
    return lambda function: _warning(function, end, lambda _: [_name(function)], warn_once)


@export("tf.contrib.framework.deprecated_args", "tensorflow.python.util.deprecation.deprecated_args")
def deprecated_args(
    date: str | None, instructions: str, *deprecated_arg_names_or_tuples: Any, **kwargs: Any
) -> Callable[[Any], Any]:
    """Make a decorator for a function with deprecated arguments.

    Args:
      date: the day of their removal, or None.
      instructions: what to use instead.
      *deprecated_arg_names_or_tuples: their names, or pairs of a name and a value that is no reason to warn.
      **kwargs: ``warn_once``, True by default.
    """
    end, warn_once = _checked(date, instructions), kwargs.pop("warn_once", True)
    if kwargs or not deprecated_arg_names_or_tuples:
        raise ValueError(f"deprecated_args wants names of arguments and warn_once, not {sorted(kwargs)}")
    fine = dict((one, ()) if isinstance(one, str) else (one[0], one[1:]) for one in deprecated_arg_names_or_tuples)

    def decorate(function: Any) -> Any:
        missing = set(fine) - set(inspect.signature(function).parameters)
        if missing:
            raise ValueError(f"{_name(function)} has no arguments {sorted(missing)}")

        def used(given: dict[str, Any]) -> list[str]:
            named = [name for name, values in fine.items() if name in given and not _is_one(given[name], values)]
            return [f"calling {_name(function)} with {name}" for name in named]

        return _warning(function, end, used, warn_once)

    return decorate


@export(
    "tf.contrib.framework.deprecated_arg_values",
    "tf.contrib.slim.deprecated_arg_values",
    "tensorflow.python.util.deprecation.deprecated_arg_values",
)
def deprecated_arg_values(
    date: str | None, instructions: str, warn_once: bool = True, **deprecated_kwargs: Any
) -> Callable[[Any], Any]:
    """Make a decorator for a function of which some values of arguments are deprecated.

    Args:
      date: the day of their removal, or None.
      instructions: what to use instead.
      warn_once: whether only the first such call warns.
      **deprecated_kwargs: argument -> the deprecated value.
    """
    end = _checked(date, instructions)
    if not deprecated_kwargs:
        raise ValueError("deprecated_arg_values wants values of arguments")

    def decorate(function: Any) -> Any:
        def used(given: dict[str, Any]) -> list[str]:
            named = [(name, bad) for name, bad in deprecated_kwargs.items() if name in given]
            return [f"calling {_name(function)} with {n}={bad}" for n, bad in named if _is_one(given[n], (bad,))]

        return _warning(function, end, used, warn_once)

    return decorate


def _is_one(value: Any, values: tuple[Any, ...]) -> bool:
    """Whether ``value`` is one of these; an array or a tensor never is a number or a text."""
    return any(value is one or (type(value) is type(one) and bool(value == one)) for one in values)


@export("tensorflow.python.util.deprecation.deprecated_alias")
def deprecated_alias(deprecated_name: str, name: str, func_or_class: Any, warn_once: bool = True) -> Any:
    """Make a deprecated name of a function or a class: it warns, and does what the other does."""
    end = _checked(None, f"Please use {name} instead.\n")
    made: Any = functools.wraps(func_or_class)(lambda *args, **kwargs: func_or_class(*args, **kwargs))
    if inspect.isclass(func_or_class):
        made = type(func_or_class.__name__, (func_or_class,), {"__module__": func_or_class.__module__})
        made.__init__ = functools.wraps(func_or_class.__init__)(lambda *a, **k: func_or_class.__init__(*a, **k))
    return _warning(made, end, lambda _: [f"The name {deprecated_name}"], warn_once)
