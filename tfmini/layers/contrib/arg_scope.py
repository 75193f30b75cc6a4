"""``tf.contrib.framework.arg_scope``: default arguments for functions within a block."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tfmini.export import export

Defaults = dict[str, dict[str, Any]]
_ALLOWED: dict[str, tuple[str, ...]] = {}


class _Stack(threading.local):
    def __init__(self) -> None:
        self.scopes: list[Defaults] = [{}]


_stack = _Stack()


@export("tf.contrib.framework.arg_scope_func_key", "tf.contrib.slim.arg_scope_func_key")
def arg_scope_func_key(op: Any) -> str:
    """The key of a function in an argument scope (``tf.contrib.slim.arg_scope_func_key``)."""
    return str(getattr(op, "_key_op", op))


@export("tf.contrib.framework.current_arg_scope", "tf.contrib.slim.current_arg_scope")
def current_arg_scope() -> Defaults:
    """The current defaults: function key -> arguments (``tf.contrib.slim.current_arg_scope``)."""
    return _stack.scopes[-1]


@export("tf.contrib.framework.has_arg_scope", "tf.contrib.slim.has_arg_scope")
def has_arg_scope(func: Any) -> bool:
    """Whether `add_arg_scope` has been applied to a function (``tf.contrib.slim.has_arg_scope``)."""
    return arg_scope_func_key(func) in _ALLOWED


@export("tf.contrib.framework.arg_scoped_arguments", "tf.contrib.slim.arg_scoped_arguments")
def arg_scoped_arguments(func: Any) -> tuple[str, ...]:
    """The arguments of a function that an argument scope can set: those with a default."""
    return _ALLOWED[arg_scope_func_key(func)]


@export("tf.contrib.framework.arg_scope", "tf.contrib.slim.arg_scope")
@contextmanager
def arg_scope(list_ops_or_scope: Any, **kwargs: Any) -> Iterator[Defaults]:
    """Sets default arguments of functions for the block (``tf.contrib.slim.arg_scope``).

    Args:
      list_ops_or_scope: a list of functions, or the scope that an earlier block yielded.
      **kwargs: the defaults; each function must have these arguments.

    Raises:
      TypeError: when ``list_ops_or_scope`` is neither a list nor a scope.
      ValueError: when a function lacks `add_arg_scope`, or arguments are given together with a scope.
    """
    _stack.scopes.append(_entered(list_ops_or_scope, kwargs))
    try:
        yield current_arg_scope()
    finally:
        _stack.scopes.pop()


def _entered(what: Any, kwargs: dict[str, Any]) -> Defaults:
    if isinstance(what, Mapping):
        if kwargs:
            raise ValueError("When attempting to re-use a scope by suppling a dictionary, kwargs must be empty.")
        return dict(what)
    if not isinstance(what, (list, tuple)):
        raise TypeError("list_ops_or_scope must either be a list/tuple or reused scope (i.e. dict)")
    scope = dict(current_arg_scope())
    for function in what:
        key = arg_scope_func_key(function)
        if key not in _ALLOWED:
            name = f"{getattr(function, '__module__', '')}.{getattr(function, '__name__', function)}"
            raise ValueError(f"{name} is not decorated with @add_arg_scope")
        scope[key] = {**scope.get(key, {}), **kwargs}
    return scope


@export("tf.contrib.framework.add_arg_scope", "tf.contrib.slim.add_arg_scope")
def add_arg_scope(func: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that lets `arg_scope` set a function's defaults (``tf.contrib.slim.add_arg_scope``)."""

    key = str(func)

    @functools.wraps(func)
    def func_with_args(*args: Any, **kwargs: Any) -> Any:
        defaults = current_arg_scope().get(key)
        return func(*args, **({**defaults, **kwargs} if defaults else kwargs))

    func_with_args._key_op = key  # type: ignore[attr-defined]
    parameters = inspect.signature(func).parameters.values()
    _ALLOWED[key] = tuple(p.name for p in parameters if p.default is not p.empty)
    return func_with_args
