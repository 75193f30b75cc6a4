"""What of ``tf.autograph`` says how functions are converted: tfmini converts none, so they stay as they are.

``to_graph`` and ``to_code``, which convert one, are out of scope.
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
    """A decorator, with and without brackets, of functions that stay as they are: all do."""
    return do_not_convert if func is None else func


@export("tf.autograph.experimental.set_loop_options")
def set_loop_options(
    parallel_iterations: object = None, back_prop: object = None, swap_memory: object = None,
    maximum_iterations: object = None,
) -> None:  # fmt: skip
    """Options of the Python loop in which it stands, if that is converted: it never is."""


@export("tf.autograph.set_verbosity")
def set_verbosity(level: int, alsologtostdout: bool = False) -> None:
    """How much is logged of conversions: there are none."""


@export("tf.autograph.trace")
def trace(*args: Any) -> None:
    """Prints its arguments while the graph is built."""
    print(*args)
