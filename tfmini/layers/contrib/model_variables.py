"""Creation and lookup of model variables (``tf.contrib.framework``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from tfmini.export import export
from tfmini.graph.keys import GraphKeys
from tfmini.graph.scoping import add_to_collection, get_collection
from tfmini.graph.scoping import device as device_scope
from tfmini.layers.contrib.arg_scope import add_arg_scope
from tfmini.ops.variables import scope as vs
from tfmini.ops.variables.base import Variable


@export("tf.contrib.framework.variable", "tf.contrib.slim.variable")
@add_arg_scope
def variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    collections: Any = None,
    caching_device: Any = None,
    device: Any = None,
    partitioner: Any = None,
    custom_getter: Any = None,
    use_resource: bool | None = None,
    **kwargs: Any,
) -> Any:
    """``tf.get_variable`` with a device (``tf.contrib.framework.variable``)."""
    wanted = list(collections or [GraphKeys.GLOBAL_VARIABLES])
    getter: Callable[..., Any] = custom_getter or vs.get_variable
    settings = {
        "shape": shape, "dtype": dtype, "initializer": initializer, "regularizer": regularizer,
        "trainable": trainable, "collections": wanted, "caching_device": caching_device, "partitioner": partitioner,
        "use_resource": use_resource, **kwargs,
    }  # fmt: skip
    with device_scope(device or ""):
        return getter(name, **settings)


@export("tf.contrib.framework.model_variable", "tf.contrib.slim.model_variable")
@add_arg_scope
def model_variable(name: str, *args: Any, collections: Any = None, **kwargs: Any) -> Any:
    """A `variable` that is also in MODEL_VARIABLES (``tf.contrib.framework.model_variable``)."""
    wanted = [*(collections or ()), GraphKeys.GLOBAL_VARIABLES, GraphKeys.MODEL_VARIABLES]
    return variable(name, *args, collections=wanted, **kwargs)


@export("tf.contrib.framework.global_variable", "tf.contrib.slim.global_variable")
def global_variable(
    initial_value: Any, validate_shape: bool = True, name: str | None = None, use_resource: bool | None = None
) -> Any:
    """An untrainable variable in GLOBAL_VARIABLES (``tf.contrib.framework.global_variable``)."""
    return _untrained(initial_value, GraphKeys.GLOBAL_VARIABLES, validate_shape, name, use_resource)


def _untrained(value: Any, collection: str, validate_shape: bool, name: str | None, use_resource: bool | None) -> Any:
    settings: dict[str, Any] = {} if use_resource is None else {"use_resource": use_resource}
    return Variable(
        value, trainable=False, collections=[collection], validate_shape=validate_shape, name=name, **settings
    )


@export("tf.contrib.framework.local_variable", "tf.contrib.slim.local_variable")
def local_variable(
    initial_value: Any, validate_shape: bool = True, name: str | None = None, use_resource: bool | None = None
) -> Any:
    """An untrainable variable in LOCAL_VARIABLES (``tf.contrib.framework.local_variable``)."""
    return _untrained(initial_value, GraphKeys.LOCAL_VARIABLES, validate_shape, name, use_resource)


@export("tf.contrib.framework.add_model_variable", "tf.contrib.slim.add_model_variable")
def add_model_variable(var: Any) -> None:
    """Adds a variable to MODEL_VARIABLES unless it is in it (``tf.contrib.slim.add_model_variable``)."""
    if all(var is not known for known in get_collection(GraphKeys.MODEL_VARIABLES)):
        add_to_collection(GraphKeys.MODEL_VARIABLES, var)


@export("tf.contrib.framework.get_variables", "tf.contrib.slim.get_variables")
def get_variables(
    scope: Any = None, suffix: str | None = None, collection: str = GraphKeys.GLOBAL_VARIABLES
) -> list[Any]:
    """A collection's variables in a scope whose names end with ``suffix`` (``tf.contrib.framework.get_variables``)."""
    prefix = scope.name if isinstance(scope, vs.VariableScope) else scope
    if suffix is not None:
        suffix = suffix if ":" in suffix else suffix + ":"
        prefix = (prefix or "") + ".*" + suffix
    return get_collection(collection, prefix)


@export("tf.contrib.framework.get_model_variables", "tf.contrib.slim.get_model_variables")
def get_model_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """The model variables with a scope and a suffix (``tf.contrib.framework.get_model_variables``)."""
    return get_variables(scope, suffix, GraphKeys.MODEL_VARIABLES)


@export("tf.contrib.framework.get_local_variables", "tf.contrib.slim.get_local_variables")
def get_local_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """The local variables with a scope and a suffix (``tf.contrib.framework.get_local_variables``)."""
    return get_variables(scope, suffix, GraphKeys.LOCAL_VARIABLES)


@export("tf.contrib.framework.get_trainable_variables", "tf.contrib.slim.get_trainable_variables")
def get_trainable_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """The trainable variables with a scope and a suffix (``tf.contrib.framework.get_trainable_variables``)."""
    return get_variables(scope, suffix, GraphKeys.TRAINABLE_VARIABLES)


@export("tf.contrib.framework.get_variables_to_restore", "tf.contrib.slim.get_variables_to_restore")
def get_variables_to_restore(include: Any = None, exclude: Any = None) -> list[Any]:
    """The global variables in the scopes ``include`` (default: all) but not in the scopes ``exclude``."""
    wanted = get_variables() if include is None else [v for scope in _listed(include) for v in get_variables(scope)]
    unwanted = {id(v) for scope in _listed(exclude or []) for v in get_variables(scope)}
    return [v for v in wanted if id(v) not in unwanted]


def _listed(scopes: Any) -> list[Any]:
    if not isinstance(scopes, (list, tuple)):
        raise TypeError("include and exclude must be a list or tuple of scopes")
    return list(scopes)


@export("tf.contrib.framework.get_variables_by_suffix", "tf.contrib.slim.get_variables_by_suffix")
def get_variables_by_suffix(suffix: str, scope: Any = None) -> list[Any]:
    """The variables whose names end with ``suffix`` (``tf.contrib.framework.get_variables_by_suffix``)."""
    return get_variables(scope=scope, suffix=suffix)


@export("tf.contrib.framework.get_variables_by_name", "tf.contrib.slim.get_variables_by_name")
def get_variables_by_name(given_name: str, scope: Any = None) -> list[Any]:
    """The variables whose last name component is ``given_name`` (``tf.contrib.slim.get_variables_by_name``)."""
    return get_variables(scope=scope, suffix="/" + given_name + ":|^" + given_name + ":")


@export("tf.contrib.framework.get_unique_variable", "tf.contrib.slim.get_unique_variable")
def get_unique_variable(var_op_name: str) -> Any:
    """The variable whose op has the given name; raises ValueError unless there is exactly one."""
    found = [v for v in get_variables(scope=var_op_name) if v.op.name == var_op_name]
    if len(found) != 1:
        raise ValueError(f"Variable {var_op_name} does not uniquely identify a variable")
    return found[0]


@export("tf.contrib.framework.get_variable_full_name", "tf.contrib.slim.get_variable_full_name")
def get_variable_full_name(var: Any) -> str:
    """The variable's name in checkpoints (``tf.contrib.slim.get_variable_full_name``)."""
    info = getattr(var, "_save_slice_info", None)
    return str(info.full_name if info else var.op.name)


@export("tf.contrib.framework.filter_variables", "tf.contrib.slim.filter_variables")
def filter_variables(
    var_list: Iterable[Any],
    include_patterns: Any = None,
    exclude_patterns: Any = None,
    reg_search: bool = True,
) -> list[Any]:
    """The variables whose names match any pattern to include and no pattern to exclude."""
    found = re.search if reg_search else re.match

    def matches(var: Any, patterns: Any) -> bool:
        return any(found(pattern, var.op.name) for pattern in patterns)

    kept = [v for v in var_list if include_patterns is None or matches(v, include_patterns)]
    return [v for v in kept if not (exclude_patterns and matches(v, exclude_patterns))]
