"""Names of TensorFlow's private helpers for functions and modules: ``function_utils``, ``all_util`` and others."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = [
    "LazyLoader", "fn_args", "get_func_code", "get_func_name", "has_kwargs", "keyword_args_only", "make_all",
    "remove_undocumented", "reveal_undocumented",
]  # fmt: skip


def fn_args(fn: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's arguments, without ``self`` and those that a partial has bound."""
    if isinstance(fn, functools.partial):
        names = fn_args(fn.func)
        return tuple(name for name in names[len(fn.args) :] if name not in fn.keywords)
    if not inspect.isroutine(fn) and callable(fn):
        fn = fn.__call__  # type: ignore[operator]
    names = tuple(inspect.getfullargspec(inspect.unwrap(fn)).args)
    return names[1:] if inspect.ismethod(fn) else names


def has_kwargs(fn: Callable[..., Any]) -> bool:
    """Whether a function takes any keyword argument; raises TypeError for what is no function."""
    if isinstance(fn, functools.partial):
        fn = fn.func
    elif not inspect.isroutine(fn) and callable(fn):
        fn = fn.__call__  # type: ignore[operator]
    if not callable(fn):
        raise TypeError(f"fn should be a function-like object, but is of type {type(fn)}.")
    return inspect.getfullargspec(fn).varkw is not None


def get_func_name(func: Callable[..., Any]) -> str:
    """The name of a function, method, partial or callable object."""
    func = inspect.unwrap(func)
    if isinstance(func, functools.partial):
        return get_func_name(func.func)
    return getattr(func, "__name__", None) or str(type(func))


def get_func_code(func: Callable[..., Any]) -> Any:
    """The code object of a function, or of the ``__call__`` of an object."""
    func = inspect.unwrap(func)
    return getattr(func, "__code__", None) or getattr(type(func).__call__, "__code__", None)


def silence() -> AbstractContextManager[None]:
    """A context without messages about deprecated names; tfmini has none."""
    return nullcontext()


def keras_export(*_: str, **__: Any) -> Callable[[Any], Any]:
    """Returns a decorator that changes nothing."""
    return lambda decorated: decorated


getcallargs, signature = inspect.getcallargs, inspect.signature


def deprecated_argument_lookup(new_name: str, new_value: Any, old_name: str, old_value: Any) -> Any:
    """The value of an argument with an old and a new name; raises ValueError if both are given."""
    if old_value is None:
        return new_value
    if new_value is not None:
        raise ValueError(f"Cannot specify both '{old_name}' and '{new_name}'")
    return old_value


def make_all(module_name: str, doc_string_modules: Any = None) -> list[str]:
    """The public names of a module."""
    return [name for name in vars(sys.modules[module_name]) if not name.startswith("_")]


def remove_undocumented(
    module_name: str, allowed_exception_list: Any = None, doc_string_modules: Any = None
) -> None:
    """Changes nothing: names stay visible."""


reveal_undocumented = remove_undocumented


def keyword_args_only(func: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that takes keyword arguments alone; others raise ValueError."""

    @functools.wraps(func)
    def called(*args: Any, **kwargs: Any) -> Any:
        if args:
            raise ValueError(f"Must use keyword args to call {func.__name__}.")
        return func(**kwargs)

    return called


class LazyLoader(ModuleType):
    """A module that is imported at the first use of one of its names."""

    def __init__(self, local_name: str, parent_module_globals: dict[str, Any], name: str) -> None:
        super().__init__(name)
        self._local_name, self._parent = local_name, parent_module_globals

    def __getattr__(self, item: str) -> Any:
        module = import_module(self.__name__)
        self._parent[self._local_name] = module
        return getattr(module, item)
