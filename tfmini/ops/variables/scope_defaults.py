"""``tf.VariableScope``: the defaults of ``tf.get_variable`` in a part of the program."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.families import convert_to_tensor, get_default_graph, name_scope
from tfmini.graph.keys import GraphKeys
from tfmini.ops.variables.kind import (
    VariableAggregation,
    VariableSynchronization,
    resource_variables_enabled,
)
from tfmini.ops.variables.store import Request, VariableStore


@export("tf.VariableScope")
class VariableScope:
    """The defaults of `get_variable` in a part of the program (``tf.VariableScope``).

    Each is a read-only property with a setter method ``set_<name>``: ``initializer``,
    ``regularizer``, ``caching_device``, ``partitioner``, ``custom_getter``, ``dtype``, ``use_resource``.
    """

    def __init__(
        self,
        reuse: Any,
        name: str = "",
        initializer: Any = None,
        regularizer: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        custom_getter: Any = None,
        name_scope: str = "",
        dtype: Any = dtypes.float32,
        use_resource: bool | None = None,
        constraint: Any = None,
    ) -> None:
        self._name, self._name_scope, self._reuse = name, name_scope, reuse
        self._initializer, self._regularizer, self._constraint = initializer, regularizer, constraint
        self._caching_device, self._partitioner, self._custom_getter = caching_device, partitioner, custom_getter
        self._dtype, self._use_resource = dtype, use_resource

    @property
    def name(self) -> str:
        """The prefix of variable names, without a final ``/``."""
        return self._name

    @property
    def original_name_scope(self) -> str:
        """The name scope that was opened with this variable scope."""
        return self._name_scope

    @property
    def reuse(self) -> Any:
        """False, True or AUTO_REUSE."""
        return self._reuse

    initializer = property(attrgetter("_initializer"))
    regularizer = property(attrgetter("_regularizer"))
    caching_device = property(attrgetter("_caching_device"))
    partitioner = property(attrgetter("_partitioner"))
    custom_getter = property(attrgetter("_custom_getter"))
    dtype = property(attrgetter("_dtype"))
    constraint = property(attrgetter("_constraint"))

    @property
    def use_resource(self) -> bool | None:
        return self._use_resource

    def reuse_variables(self) -> None:
        """Sets ``reuse`` to True: further variables of this scope must exist."""
        self._reuse = True

    def set_initializer(self, initializer: Any) -> None:
        self._initializer = initializer

    def set_regularizer(self, regularizer: Any) -> None:
        self._regularizer = regularizer

    def set_caching_device(self, caching_device: Any) -> None:
        self._caching_device = caching_device

    def set_partitioner(self, partitioner: Any) -> None:
        self._partitioner = partitioner

    def set_custom_getter(self, custom_getter: Any) -> None:
        self._custom_getter = custom_getter

    def set_dtype(self, dtype: Any) -> None:
        self._dtype = dtype

    def set_use_resource(self, use_resource: bool | None) -> None:
        self._use_resource = use_resource

    def get_collection(self, name: str) -> list[Any]:
        """The items of a collection whose names are in this scope."""
        return get_default_graph().get_collection(name, self._name + "/" if self._name else "")

    def trainable_variables(self) -> list[Any]:
        return self.get_collection(GraphKeys.TRAINABLE_VARIABLES)

    def global_variables(self) -> list[Any]:
        return self.get_collection(GraphKeys.GLOBAL_VARIABLES)

    def local_variables(self) -> list[Any]:
        return self.get_collection(GraphKeys.LOCAL_VARIABLES)

    def get_variable(
        self,
        var_store: VariableStore,
        name: str,
        shape: Any = None,
        dtype: Any = None,
        initializer: Any = None,
        regularizer: Any = None,
        reuse: Any = None,
        trainable: bool | None = None,
        collections: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        validate_shape: bool = True,
        use_resource: bool | None = None,
        custom_getter: Any = None,
        constraint: Any = None,
        synchronization: Any = None,
        aggregation: Any = None,
    ) -> Any:
        """`tf.get_variable` in this scope, from a given store."""
        full_name = f"{self._name}/{name}" if self._name else name
        # Name scopes do not affect the names of variables.
        with name_scope(None):
            _check_types_agree(dtype, initializer)
            request = Request(
                full_name,
                shape,
                dtypes.as_dtype(self._dtype if dtype is None else dtype).base_dtype,
                first_given(initializer, self._initializer),
                first_given(regularizer, self._regularizer),
                first_given(reuse, self._reuse),
                trainable,
                collections,
                first_given(caching_device, self._caching_device),
                first_given(partitioner, self._partitioner, planned_partitioner(full_name)),
                validate_shape,
                first_given(use_resource, self._use_resource, resource_variables_enabled()),
                first_given(constraint, self._constraint),
                VariableSynchronization.AUTO if synchronization is None else synchronization,
                VariableAggregation.NONE if aggregation is None else aggregation,
            )
            return var_store.get_variable(request, first_given(custom_getter, self._custom_getter))


def planned_partitioner(name: str) -> Any:
    """The partitioner that the device functions in force have for a variable, innermost first; None without one.

    A device function has partitioners if it has a method ``partitioner_of``, as a placement plan.
    """
    for level in reversed(get_default_graph().scopes.devices):
        if level is None:
            return None
        asked = getattr(level, "partitioner_of", None)
        found = None if asked is None else asked(name)
        if found is not None:
            return found
    return None


def first_given(*choices: Any) -> Any:
    """The first of the choices that is not None."""
    return next((c for c in choices if c is not None), None)


def _check_types_agree(dtype: Any, initializer: Any) -> None:
    if dtype is None or initializer is None or callable(initializer):
        return
    found = convert_to_tensor(initializer).dtype.base_dtype
    if found is not dtypes.as_dtype(dtype).base_dtype:
        wanted = dtypes.as_dtype(dtype)
        raise ValueError(f"Initializer type '{found}' and explicit dtype '{wanted}' don't match.")
