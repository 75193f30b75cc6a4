"""Creation and lookup of model variables (``tf.contrib.framework``)."""

from __future__ import annotations

import functools
import inspect
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tfmini.core_types import DTypeLike, ShapeLike, TensorLike
from tfmini.dtypes import as_dtype
from tfmini.export import export
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import add_to_collection, add_to_collections, get_collection, get_collection_ref
from tfmini.graph.scoping import device as device_scope
from tfmini.ops.array.constant_value import constant_value as get_static_value
from tfmini.ops.flow.cond import smart_cond
from tfmini.ops.variables import scope as vs
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.scope import VariableScope
from tfmini.shapes import TensorShape

# ---- ``tf.contrib.framework.arg_scope``: default arguments for functions within a block ----------------------------

Defaults = dict[str, dict[str, Any]]
_ALLOWED: dict[str, tuple[str, ...]] = {}


class _Stack(threading.local):
    def __init__(self) -> None:
        self.scopes: list[Defaults] = [{}]


_stack = _Stack()


@export("tf.contrib.framework.arg_scope_func_key", "tf.contrib.slim.arg_scope_func_key")
def arg_scope_func_key(op: object) -> str:
    """The key of a function in an argument scope (``tf.contrib.slim.arg_scope_func_key``)."""
    return str(getattr(op, "_key_op", op))


@export("tf.contrib.framework.current_arg_scope", "tf.contrib.slim.current_arg_scope")
def current_arg_scope() -> Defaults:
    """The current defaults: function key -> arguments (``tf.contrib.slim.current_arg_scope``)."""
    return _stack.scopes[-1]


@export("tf.contrib.framework.has_arg_scope", "tf.contrib.slim.has_arg_scope")
def has_arg_scope(func: Callable[..., Any]) -> bool:
    """Whether `add_arg_scope` has been applied to a function (``tf.contrib.slim.has_arg_scope``)."""
    return arg_scope_func_key(func) in _ALLOWED


@export("tf.contrib.framework.arg_scoped_arguments", "tf.contrib.slim.arg_scoped_arguments")
def arg_scoped_arguments(func: Callable[..., Any]) -> tuple[str, ...]:
    """The arguments of a function that an argument scope can set: those with a default."""
    return _ALLOWED[arg_scope_func_key(func)]


@export("tf.contrib.framework.arg_scope", "tf.contrib.slim.arg_scope")
@contextmanager
def arg_scope(list_ops_or_scope: Sequence[Any] | Mapping[Any, Any], **kwargs: Any) -> Iterator[Defaults]:
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


def _entered(what: object, kwargs: dict[str, Any]) -> Defaults:
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


# ---- Creation of variables, and lists of them by kind, scope and name ----------------------------------------------


@export("tf.contrib.framework.variable", "tf.contrib.slim.variable")
@add_arg_scope
def variable(
    name: str,
    shape: ShapeLike = None,
    dtype: DTypeLike | None = None,
    initializer: Callable[..., Any] | None = None,
    regularizer: Callable[..., Any] | None = None,
    trainable: bool = True,
    collections: str | Sequence[str] | None = None,
    caching_device: str | Callable[..., Any] | None = None,
    device: str | Callable[..., Any] | None = None,
    partitioner: Callable[..., Any] | None = None,
    custom_getter: Callable[..., Any] | None = None,
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
def model_variable(name: str, *args: Any, collections: str | Sequence[str] | None = None, **kwargs: Any) -> Any:
    """A `variable` that is also in MODEL_VARIABLES (``tf.contrib.framework.model_variable``)."""
    wanted = [*(collections or ()), GraphKeys.GLOBAL_VARIABLES, GraphKeys.MODEL_VARIABLES]
    return variable(name, *args, collections=wanted, **kwargs)


@export("tf.contrib.framework.global_variable", "tf.contrib.slim.global_variable")
def global_variable(
    initial_value: TensorLike | Callable[..., Any],
    validate_shape: bool = True,
    name: str | None = None,
    use_resource: bool | None = None,
) -> Any:
    """An untrainable variable in GLOBAL_VARIABLES (``tf.contrib.framework.global_variable``)."""
    return _untrained(initial_value, GraphKeys.GLOBAL_VARIABLES, validate_shape, name, use_resource)


def _untrained(
    value: TensorLike | Callable[..., Any],
    collection: str,
    validate_shape: bool,
    name: str | None,
    use_resource: bool | None,
) -> Any:
    settings: dict[str, Any] = {} if use_resource is None else {"use_resource": use_resource}
    return Variable(
        value, trainable=False, collections=[collection], validate_shape=validate_shape, name=name, **settings
    )


@export("tf.contrib.framework.local_variable", "tf.contrib.slim.local_variable")
def local_variable(
    initial_value: TensorLike | Callable[..., Any],
    validate_shape: bool = True,
    name: str | None = None,
    use_resource: bool | None = None,
) -> Any:
    """An untrainable variable in LOCAL_VARIABLES (``tf.contrib.framework.local_variable``)."""
    return _untrained(initial_value, GraphKeys.LOCAL_VARIABLES, validate_shape, name, use_resource)


@export("tf.contrib.framework.add_model_variable", "tf.contrib.slim.add_model_variable")
def add_model_variable(var: Variable) -> None:
    """Adds a variable to MODEL_VARIABLES unless it is in it (``tf.contrib.slim.add_model_variable``)."""
    if all(var is not known for known in get_collection(GraphKeys.MODEL_VARIABLES)):
        add_to_collection(GraphKeys.MODEL_VARIABLES, var)


@export("tf.contrib.framework.get_variables", "tf.contrib.slim.get_variables")
def get_variables(
    scope: str | VariableScope | None = None, suffix: str | None = None, collection: str = GraphKeys.GLOBAL_VARIABLES
) -> list[Any]:
    """A collection's variables in a scope whose names end with ``suffix`` (``tf.contrib.framework.get_variables``)."""
    prefix = scope.name if isinstance(scope, vs.VariableScope) else scope
    if suffix is not None:
        suffix = suffix if ":" in suffix else suffix + ":"
        prefix = (prefix or "") + ".*" + suffix
    return get_collection(collection, prefix)


@export("tf.contrib.framework.get_model_variables", "tf.contrib.slim.get_model_variables")
def get_model_variables(scope: str | VariableScope | None = None, suffix: str | None = None) -> list[Any]:
    """The model variables with a scope and a suffix (``tf.contrib.framework.get_model_variables``)."""
    return get_variables(scope, suffix, GraphKeys.MODEL_VARIABLES)


@export("tf.contrib.framework.get_local_variables", "tf.contrib.slim.get_local_variables")
def get_local_variables(scope: str | VariableScope | None = None, suffix: str | None = None) -> list[Any]:
    """The local variables with a scope and a suffix (``tf.contrib.framework.get_local_variables``)."""
    return get_variables(scope, suffix, GraphKeys.LOCAL_VARIABLES)


@export("tf.contrib.framework.get_trainable_variables", "tf.contrib.slim.get_trainable_variables")
def get_trainable_variables(scope: str | VariableScope | None = None, suffix: str | None = None) -> list[Any]:
    """The trainable variables with a scope and a suffix (``tf.contrib.framework.get_trainable_variables``)."""
    return get_variables(scope, suffix, GraphKeys.TRAINABLE_VARIABLES)


@export("tf.contrib.framework.get_variables_to_restore", "tf.contrib.slim.get_variables_to_restore")
def get_variables_to_restore(
    include: str | Sequence[str] | None = None, exclude: str | Sequence[str] | None = None
) -> list[Any]:
    """The global variables in the scopes ``include`` (default: all) but not in the scopes ``exclude``."""
    wanted = get_variables() if include is None else [v for scope in _listed(include) for v in get_variables(scope)]
    unwanted = {id(v) for scope in _listed(exclude or []) for v in get_variables(scope)}
    return [v for v in wanted if id(v) not in unwanted]


def _listed(scopes: str | Sequence[str] | None) -> list[Any]:
    if not isinstance(scopes, (list, tuple)):
        raise TypeError("include and exclude must be a list or tuple of scopes")
    return list(scopes)


@export("tf.contrib.framework.get_variables_by_suffix", "tf.contrib.slim.get_variables_by_suffix")
def get_variables_by_suffix(suffix: str, scope: str | VariableScope | None = None) -> list[Any]:
    """The variables whose names end with ``suffix`` (``tf.contrib.framework.get_variables_by_suffix``)."""
    return get_variables(scope=scope, suffix=suffix)


@export("tf.contrib.framework.get_variables_by_name", "tf.contrib.slim.get_variables_by_name")
def get_variables_by_name(given_name: str, scope: str | VariableScope | None = None) -> list[Any]:
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
def get_variable_full_name(var: Variable) -> str:
    """The variable's name in checkpoints (``tf.contrib.slim.get_variable_full_name``)."""
    info = getattr(var, "_save_slice_info", None)
    return str(info.full_name if info else var.op.name)


@export("tf.contrib.framework.filter_variables", "tf.contrib.slim.filter_variables")
def filter_variables(
    var_list: Iterable[Any],
    include_patterns: str | Sequence[str] | None = None,
    exclude_patterns: str | Sequence[str] | None = None,
    reg_search: bool = True,
) -> list[Any]:
    """The variables whose names match any pattern to include and no pattern to exclude."""
    found = re.search if reg_search else re.match

    def matches(var: Variable, patterns: Any) -> bool:
        return any(found(pattern, var.op.name) for pattern in patterns)

    kept = [v for v in var_list if include_patterns is None or matches(v, include_patterns)]
    return [v for v in kept if not (exclude_patterns and matches(v, exclude_patterns))]


# ---- ``tf.contrib.layers.utils``: aliases of layer results in collections, and checks of layer arguments -----------

__all__ = [
    "append_tensor_alias", "collect_named_outputs", "constant_value", "convert_collection_to_dict",
    "first_dimension", "gather_tensors_aliases", "get_tensor_aliases", "last_dimension", "n_positive_integers",
    "smart_cond", "two_element_tuple",
]  # fmt: skip


@export("tf.contrib.layers.utils.collect_named_outputs")
def collect_named_outputs(collections: str | Sequence[str] | None, alias: str, outputs: Any) -> Any:
    """Adds a tensor to collections under an alias; returns it (``tf.contrib.slim.utils.collect_named_outputs``)."""
    if collections:
        append_tensor_alias(outputs, alias)
        add_to_collections(collections, outputs)
    return outputs


@export("tf.contrib.layers.utils.append_tensor_alias")
def append_tensor_alias(tensor: Tensor, alias: str) -> Any:
    """Adds an alias to a tensor and returns it (``tf.contrib.slim.utils.append_tensor_alias``)."""
    _aliases(tensor).append(alias[:-1] if alias.endswith("/") else alias)
    return tensor


@export("tf.contrib.layers.utils.get_tensor_aliases")
def get_tensor_aliases(tensor: Tensor) -> list[str]:
    """The aliases of a tensor, or its op's name (``tf.contrib.slim.utils.get_tensor_aliases``)."""
    return list(_aliases(tensor)) or [tensor.op.name]


def _aliases(tensor: Tensor) -> list[str]:
    by_name: dict[str, list[str]] = tensor.graph.attachments.setdefault("tfmini.layers.aliases", {})
    return by_name.setdefault(tensor.name, [])


@export("tf.contrib.layers.utils.gather_tensors_aliases")
def gather_tensors_aliases(tensors: Sequence[Any]) -> list[str]:
    """The aliases of several tensors (``tf.contrib.slim.utils.gather_tensors_aliases``)."""
    return [alias for tensor in tensors for alias in get_tensor_aliases(tensor)]


@export("tf.contrib.layers.utils.convert_collection_to_dict")
def convert_collection_to_dict(collection: str, clear_collection: bool = False) -> OrderedDict[str, Any]:
    """alias -> tensor, for the tensors of a collection (``tf.contrib.slim.utils.convert_collection_to_dict``)."""
    found = OrderedDict((alias, t) for t in get_collection(collection) for alias in get_tensor_aliases(t))
    if clear_collection:
        get_collection_ref(collection).clear()
    return found


@export("tf.contrib.layers.utils.first_dimension")
def first_dimension(shape: ShapeLike, min_rank: int = 1) -> int | None:
    """The length of the first axis; raises ValueError if unknown (``tf.contrib.slim.utils.first_dimension``)."""
    return _dimension(shape, 0, min_rank)


@export("tf.contrib.layers.utils.last_dimension")
def last_dimension(shape: ShapeLike, min_rank: int = 1) -> int | None:
    """The length of the last axis; raises ValueError if unknown (``tf.contrib.slim.utils.last_dimension``)."""
    return _dimension(shape, -1, min_rank)


def _dimension(shape: ShapeLike, position: int, min_rank: int) -> int | None:
    sizes = TensorShape(shape)
    if sizes.ndims is None:
        raise ValueError("dims of shape must be known but is None")
    if sizes.ndims < min_rank:
        raise ValueError(f"rank of shape must be at least {min_rank} not: {sizes.ndims}")
    value = sizes.as_list()[position]
    if value is None:
        raise ValueError("dimension of shape must be known but is None")
    return int(value)


@export("tf.contrib.layers.utils.two_element_tuple")
def two_element_tuple(int_or_tuple: int | Sequence[int]) -> tuple[int, int]:
    """Expands an int to a pair; raises ValueError for more than two (``tf.contrib.slim.utils.two_element_tuple``)."""
    first, second = n_positive_integers(2, int_or_tuple)
    return first, second


@export("tf.contrib.layers.utils.n_positive_integers")
def n_positive_integers(n: int, value: int | Sequence[int]) -> tuple[int, ...]:
    """Expands an int to ``n`` ints, or checks ``n`` positive ones (``tf.contrib.slim.utils.n_positive_integers``)."""
    if isinstance(value, TensorShape):
        value = value.as_list()
    values = (value,) * n if isinstance(value, (int, np.integer)) else tuple(int(v) for v in value)
    if len(values) != n or any(v < 1 for v in values):
        raise ValueError(f"Must provide {n} positive integers, got {value}")
    return values


@export("tf.contrib.layers.utils.constant_value")
def constant_value(value_or_tensor_or_var: Any, dtype: DTypeLike | None = None) -> Any:
    """The value of a Python value or of a constant tensor; None for other tensors and for variables.

    Args:
      dtype: the type that a tensor or variable must have; None: any.

    Raises:
      ValueError: for another type, or when the value is None.
    """
    if value_or_tensor_or_var is None:
        raise ValueError("value_or_tensor_or_var cannot be None")
    if not isinstance(value_or_tensor_or_var, (Tensor, Variable)):
        return value_or_tensor_or_var
    found = value_or_tensor_or_var.dtype.base_dtype
    if dtype is not None and found != as_dtype(dtype).base_dtype:
        raise ValueError(f"It has the wrong type {found} instead of {as_dtype(dtype)}")
    return get_static_value(value_or_tensor_or_var) if isinstance(value_or_tensor_or_var, Tensor) else None
