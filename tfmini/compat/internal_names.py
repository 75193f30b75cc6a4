"""Names that scripts import from TensorFlow's private modules and that have no public name (see `internals`)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from typing import Any

from tfmini.compat.behavior import executing_eagerly
from tfmini.devices import DeviceSpec
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.keys import GraphKeys
from tfmini.ops.control import group
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.ref_variable import RefVariable
from tfmini.ops.variables.resource_variable import BaseResourceVariable
from tfmini.placement.placer import DeviceAttributes

# python.ops.variables and python.ops.variable_v1
VariableV1 = Variable

# python.platform.build_info
is_cuda_build = is_rocm_build = False


# python.framework.ops
def convert_n_to_tensor(values: Iterable[Any], dtype: Any = None, name: str | None = None) -> list[Any]:
    """Converts each of ``values`` to a tensor."""
    return [
        convert_to_tensor(v, dtype, None if name is None else f"{name}_{i}") for i, v in enumerate(values)
    ]


def name_from_scope_name(name: str) -> str:
    """A scope's name without its final ``/``."""
    return name[:-1] if name.endswith("/") else name


executing_eagerly_outside_functions = executing_eagerly  # also in python.eager.context


# python.ops.resources
def shared_resources() -> list[Any]:
    """The resources of the graph that the chief initialises."""
    return get_default_graph().get_collection(GraphKeys.RESOURCES)


def local_resources() -> list[Any]:
    """The resources of the graph that each task initialises."""
    return get_default_graph().get_collection(GraphKeys.LOCAL_RESOURCES)


def initialize_resources(resource_list: Iterable[Any], name: str = "init") -> Any:
    """Makes an op that runs the initialisers of resources."""
    return group(*(resource.create for resource in resource_list), name=name)


# python.tf2
def enabled() -> bool:
    """False: tfmini has the behaviour of version 1."""
    return False


# python.framework.device_spec
DeviceSpecV1 = DeviceSpec


# python.ops.control_flow_util
def GraphOrParentsInXlaContext(graph: Any) -> bool:
    """False: tfmini has no XLA."""
    return False


# python.client.device_lib
@export("tf.python.client.device_lib.list_local_devices")
def list_local_devices(session_config: Any = None) -> list[DeviceAttributes]:
    """The devices of this process: the CPU (``tf.python.client.device_lib.list_local_devices``)."""
    return [DeviceAttributes("/device:CPU:0", "CPU", 0, 1)]


# python.util.*
def _undecorated(function: Any = None, *_: Any, **__: Any) -> Any:
    return function


def deprecated(*_: Any, **__: Any) -> Callable[[Any], Any]:
    """Returns a decorator that changes nothing."""
    return _undecorated


deprecated_args = deprecated_arg_values = deprecated_alias = tf_export = estimator_export = deprecated
must_use_result_or_fatal = should_use_result = _undecorated


def make_decorator(target: Any, decorator_func: Any, *_: Any, **__: Any) -> Any:
    """Returns ``decorator_func`` with the name and the docstring of ``target``."""
    return functools.wraps(target)(decorator_func)


def unwrap(maybe_decorator: Any) -> tuple[list[Any], Any]:
    """Returns an empty list of decorators, and the innermost function."""
    return [], inspect.unwrap(maybe_decorator)


tf_contextmanager = contextmanager
getargspec = getfullargspec = inspect.getfullargspec
getsource, getsourcefile, getfile, getdoc = inspect.getsource, inspect.getsourcefile, inspect.getfile, inspect.getdoc
isclass, isfunction, ismethod, ismodule = inspect.isclass, inspect.isfunction, inspect.ismethod, inspect.ismodule
isgeneratorfunction, getmro, getmembers = inspect.isgeneratorfunction, inspect.getmro, inspect.getmembers


def is_resource_variable(value: Any) -> bool:
    """Whether ``value`` is a resource variable (``resource_variable_ops.is_resource_variable``)."""
    return isinstance(value, BaseResourceVariable)


def is_ref_variable(value: Any) -> bool:
    """Whether ``value`` is a ref variable."""
    return isinstance(value, RefVariable)
