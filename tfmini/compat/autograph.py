"""Names of ``tf.autograph`` that control how functions are converted. tfmini converts none: most of them do nothing.

``to_graph`` and ``to_code``, which convert a function, are out of scope.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from tfmini.export import export


@export("tf.autograph.experimental.Feature")
class Feature(enum.Enum):
    """Parts of a conversion (``tf.autograph.experimental.Feature``)."""

    ALL = "ALL"
    AUTO_CONTROL_DEPS = "AUTO_CONTROL_DEPS"
    ASSERT_STATEMENTS = "ASSERT_STATEMENTS"
    BUILTIN_FUNCTIONS = "BUILTIN_FUNCTIONS"
    EQUALITY_OPERATORS = "EQUALITY_OPERATORS"
    LISTS = "LISTS"
    NAME_SCOPES = "NAME_SCOPES"


@export(
    "tf.autograph.experimental.do_not_convert",
    "tf.contrib.autograph.do_not_convert",
    "tensorflow.python.autograph.impl.api.do_not_convert",
)
def do_not_convert(func: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Returns the function itself. It is a decorator with and without brackets."""
    return do_not_convert if func is None else func


@export("tf.autograph.experimental.set_loop_options")
def set_loop_options(
    parallel_iterations: object = None, back_prop: object = None, swap_memory: object = None,
    maximum_iterations: object = None,
) -> None:  # fmt: skip
    """Does nothing: these are options of a converted loop."""


@export("tf.autograph.set_verbosity")
def set_verbosity(level: int, alsologtostdout: bool = False) -> None:
    """Does nothing: no conversion is logged, as there is none."""


@export("tf.autograph.trace")
def trace(*args: Any) -> None:
    """Prints its arguments while the graph is built."""
    print(*args)
