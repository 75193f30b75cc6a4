"""Names of ``tf.autograph`` and ``tf.contrib.autograph``; `tfmini.ops.flow.autograph` converts."""

from __future__ import annotations

import enum
import functools
import logging
from collections.abc import Callable
from typing import Any

from tfmini.export import export
from tfmini.ops.flow import autograph


@export("tf.autograph.experimental.Feature", "tf.contrib.autograph.Feature")
class Feature(enum.Enum):
    """Parts of a conversion that are not made by default (``tf.autograph.experimental.Feature``).

    ``assert`` is always converted; name scopes and control dependencies are those of `tf.function`.
    """

    ALL = "ALL"
    AUTO_CONTROL_DEPS = "AUTO_CONTROL_DEPS"
    ASSERT_STATEMENTS = "ASSERT_STATEMENTS"
    BUILTIN_FUNCTIONS = "BUILTIN_FUNCTIONS"
    EQUALITY_OPERATORS = "EQUALITY_OPERATORS"
    LISTS = "LISTS"
    NAME_SCOPES = "NAME_SCOPES"

    @classmethod
    def all(cls) -> tuple[Feature, ...]:
        """All of them."""
        return tuple(cls)

    @classmethod
    def all_but(cls, exclude: Feature | tuple[Feature, ...]) -> tuple[Feature, ...]:
        """All of them without some, and without `ALL`."""
        left_out = exclude if isinstance(exclude, (list, tuple, set)) else (exclude,)
        return tuple(feature for feature in cls if feature not in left_out and feature is not cls.ALL)


@export(
    "tf.autograph.experimental.do_not_convert",
    "tf.contrib.autograph.do_not_convert",
    "tensorflow.python.autograph.impl.api.do_not_convert",
)
def do_not_convert(func: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """A function that calls ``func`` as it is, and all that it calls. It is a decorator with and without brackets."""
    if func is None:
        return do_not_convert

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        with autograph.switched(False):
            return func(*args, **kwargs)

    return autograph.mark(call)  # type: ignore[no-any-return]


@export("tf.contrib.autograph.convert", "tensorflow.python.autograph.impl.api.convert")
def convert(
    recursive: bool = False, optional_features: Any = None, user_requested: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # fmt: skip
    """A decorator that converts a function when it is called, and if ``recursive`` those that it calls."""

    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def call(*args: Any, **kwargs: Any) -> Any:
            return autograph.call(func, args, kwargs, user_requested, recursive, optional_features)

        return autograph.mark(call)  # type: ignore[no-any-return]

    return decorate


@export("tf.autograph.to_graph", "tf.contrib.autograph.to_graph", "tensorflow.python.autograph.impl.api.to_graph")
def to_graph(
    entity: Callable[..., Any], recursive: bool = True, arg_values: object = None, arg_types: object = None,
    experimental_optional_features: Any = None,
) -> Callable[..., Any]:  # fmt: skip
    """The function in which ``if``, ``while``, ``for`` and their kin on tensors make conds and loops of the graph.

    Args:
      entity: a function, a method or a lambda; not a class.
      recursive: whether the functions that it calls are converted, too.
      arg_values, arg_types: without effect.
      experimental_optional_features: one or several `Feature`.

    Raises:
      ImportError: the package diastatic-malt (the extra ``autograph``) is absent.
      ValueError: the function has no source, or has statements that cannot be converted.
    """
    return autograph.converted(entity, recursive, experimental_optional_features)


@export("tf.autograph.to_code", "tf.contrib.autograph.to_code", "tensorflow.python.autograph.impl.api.to_code")
def to_code(
    entity: Callable[..., Any], recursive: bool = True, arg_values: object = None, arg_types: object = None,
    indentation: str = "  ", experimental_optional_features: Any = None,
) -> str:  # fmt: skip
    """The source of what `to_graph` returns, with the same arguments; ``indentation`` is without effect."""
    source: str = autograph.converted(entity, recursive, experimental_optional_features).ag_source  # type: ignore
    return source


@export("tf.autograph.experimental.set_loop_options", "tf.contrib.autograph.set_loop_options")
def set_loop_options(
    parallel_iterations: object = None, back_prop: object = None, swap_memory: object = None,
    maximum_iterations: object = None,
) -> None:  # fmt: skip
    """Does nothing: loops are made with the options that `tf.while_loop` has by default."""


@export("tf.autograph.set_verbosity")
def set_verbosity(level: int, alsologtostdout: bool = False) -> None:
    """Sets how much diastatic-malt logs of its conversions; functions that cannot be converted are warned of anyhow."""
    logging.getLogger("malt").setLevel(logging.DEBUG if level > 0 else logging.WARNING)


@export("tf.autograph.trace")
def trace(*args: Any) -> None:
    """Prints its arguments while the graph is built."""
    print(*args)
