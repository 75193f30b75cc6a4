"""Functions that create their variables at the first call and share them later (``tf.make_template``)."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from tfmini.export import export
from tfmini.graph.keys import GraphKeys
from tfmini.graph.scoping import get_collection, get_collection_ref
from tfmini.ops.variables.scope import variable_scope
from tfmini.ops.variables.scope_defaults import VariableScope

_LOG = logging.getLogger("tensorflow")


@export("tf.make_template")
def make_template(
    name_: str, func_: Callable[..., Any], create_scope_now_: bool = False, unique_name_: str | None = None,
    custom_getter_: Callable[..., Any] | None = None, **kwargs: Any,
) -> Template:  # fmt: skip
    """Wraps a function whose `get_variable` calls create variables at its first call and share them later.

    Args:
      name_: name of the variable scope, made unique.
      func_: the function.
      create_scope_now_: choose the scope's name now instead of at the first call.
      unique_name_: an exact name, instead of ``name_``.
      custom_getter_: for the variables.
      kwargs: bound to the function's arguments.

    Raises:
      ValueError: when ``name_`` is None.
    """
    function = functools.partial(func_, **kwargs) if kwargs else func_
    return Template(name_, function, create_scope_now_, unique_name_, custom_getter_)


class Template:
    """The result of `make_template`; it is called like the function."""

    def __init__(
        self, name: str, func: Callable[..., Any], create_scope_now: bool = False, unique_name: str | None = None,
        custom_getter: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        if name is None:
            raise ValueError("name cannot be None.")
        self._name, self._func = name, func
        self._unique_name, self._custom_getter = unique_name, custom_getter
        self._variable_scope: VariableScope | None = None
        self._called = False
        if create_scope_now:
            self._variable_scope = self._new_scope()

    def _new_scope(self) -> VariableScope:
        with variable_scope(self._unique_name, self._name, custom_getter=self._custom_getter) as scope:
            return scope

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._variable_scope is not None:
            with variable_scope(self._variable_scope, reuse=self._called or None):
                return self._call(args, kwargs)
        with variable_scope(self._unique_name, self._name, custom_getter=self._custom_getter) as scope:
            self._variable_scope = scope
            return self._call(args, kwargs)

    def _call(self, args: Any, kwargs: Any) -> Any:
        if not self._called:
            result = self._func(*args, **kwargs)
            self._called = True
            return result
        trainable = get_collection_ref(GraphKeys.TRAINABLE_VARIABLES)
        everything = get_collection_ref(GraphKeys.GLOBAL_VARIABLES)
        counts = len(trainable), len(everything)
        result = self._func(*args, **kwargs)
        if len(trainable) != counts[0]:
            raise ValueError(
                "Trainable variable created when calling a template after the first time, perhaps you used tf.Variable"
                f" when you meant tf.get_variable: {trainable[counts[0] :]}"
            )
        if len(everything) != counts[1]:
            _LOG.info(
                "New variables created when calling a template after the first time, perhaps you used tf.Variable when"
                " you meant tf.get_variable: %s", everything[counts[1] :],
            )  # fmt: skip
        return result

    @property
    def name(self) -> str:
        """The given name, before it was made unique."""
        return self._name

    @property
    def func(self) -> Callable[..., Any]:
        return self._func

    @property
    def variable_scope(self) -> VariableScope | None:
        """The variable scope; None before the first call."""
        return self._variable_scope

    var_scope = variable_scope

    @property
    def variable_scope_name(self) -> str | None:
        """The scope's name with a final slash."""
        if self._variable_scope is None:
            return None
        name = self._variable_scope.name
        return name if not name or name.endswith("/") else name + "/"

    def _collected(self, key: str) -> list[Any]:
        return get_collection(key, self.variable_scope_name) if self._called else []

    @property
    def trainable_variables(self) -> list[Any]:
        return self._collected(GraphKeys.TRAINABLE_VARIABLES)

    @property
    def global_variables(self) -> list[Any]:
        return self._collected(GraphKeys.GLOBAL_VARIABLES)

    @property
    def local_variables(self) -> list[Any]:
        return self._collected(GraphKeys.LOCAL_VARIABLES)

    @property
    def variables(self) -> list[Any]:
        """The global, then the local variables that the function created."""
        return self.global_variables + self.local_variables

    @property
    def non_trainable_variables(self) -> list[Any]:
        trainable = {id(v) for v in self.trainable_variables}
        return [v for v in self.global_variables if id(v) not in trainable]

    weights = variables
    trainable_weights = trainable_variables
    non_trainable_weights = non_trainable_variables
