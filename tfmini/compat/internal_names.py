"""Names that scripts import from TensorFlow's private modules and that have no public name (see `internals`)."""

from __future__ import annotations

import collections.abc as collections_abc  # noqa: F401 - the name of a private module
import functools
import inspect
import itertools
import sys
from abc import ABC
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from tfmini.compat.switches import executing_eagerly
from tfmini.core_types import DTypeLike
from tfmini.data.dataset import Dataset
from tfmini.devices import DeviceSpec
from tfmini.dtypes import as_dtype
from tfmini.export import export, export_names
from tfmini.graph.conversion import IndexedSlices, convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.names import GraphKeys
from tfmini.ops.composites import SparseTensor, TypeSpec
from tfmini.ops.control import group
from tfmini.ops.ragged import RaggedTensor
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.ref_variable import RefVariable
from tfmini.ops.variables.resource_variable import BaseResourceVariable
from tfmini.placement.placer import DeviceAttributes
from tfmini.runtime.options import SessionOptions, devices_of_task

export_names("tensorflow.python.util.compat", "collections_abc")
is_cuda_build = is_rocm_build = False
export_names("tensorflow.python.platform.build_info", "is_cuda_build is_rocm_build")
VariableV1 = Variable
export_names("tensorflow.python.ops.variables tensorflow.python.ops.variable_v1", "VariableV1")
DeviceSpecV1 = DeviceSpec
export_names("tensorflow.python.framework.device tensorflow.python.framework.device_spec", "DeviceSpecV1")
executing_eagerly_outside_functions = in_eager_mode = executing_eagerly
export_names(
    "tensorflow.python.eager.context tensorflow.contrib.eager tensorflow.contrib.eager.python.tfe", "in_eager_mode"
)
export_names(
    "tensorflow.python.framework.ops",
    "convert_n_to_tensor executing_eagerly_outside_functions name_from_scope_name",
)
export_names("tensorflow.python.eager.context", "executing_eagerly_outside_functions")


@export("tensorflow.python.eager.context.eager_mode")
def eager_mode() -> Any:
    """A block of eager mode, which is refused: libraries' own tests name it for those that run in both modes.

    Raises:
      NotImplementedError: when it is called.
    """
    raise NotImplementedError("tfmini has no eager mode: build a graph of ops, and run it in a tf.Session.")


def convert_n_to_tensor(values: Iterable[Any], dtype: DTypeLike | None = None, name: str | None = None) -> list[Any]:
    """Converts each of ``values`` to a tensor."""
    return [convert_to_tensor(v, dtype, None if name is None else f"{name}_{i}") for i, v in enumerate(values)]


@export("tensorflow.python.framework.ops.convert_to_tensor_v2", "tensorflow.python.ops.convert_to_tensor_v2")
def convert_to_tensor_v2(value: Any, dtype: Any = None, dtype_hint: Any = None, name: str | None = None) -> Any:
    """`convert_to_tensor` with the order of arguments of version 2."""
    return convert_to_tensor(value, dtype, name, dtype_hint)


_uids = itertools.count(1)


@export("tensorflow.python.framework.ops.uid")
def uid() -> int:
    """A number that was not given before, in this process."""
    return next(_uids)


@export("tensorflow.python.ops.control_flow_ops.XLAControlFlowContext")
class XLAControlFlowContext:
    """A class without objects: tfmini has no XLA."""


ENABLE_CONTROL_FLOW_V2 = False
export_names("tensorflow.python.ops.control_flow_util", "ENABLE_CONTROL_FLOW_V2 GetContainingXLAContext")


def GetContainingXLAContext(ctxt: object) -> None:
    """None: tfmini has no XLA."""


def IsMklEnabled() -> bool:
    """False, as TensorFlow says of itself without MKL."""
    return False


is_xla_enabled = IsMklEnabled
export_names("tensorflow.python.framework.test_util", "IsMklEnabled InstallStackTraceHandler is_xla_enabled")


def InstallStackTraceHandler() -> None:
    """Does nothing: Python shows the stack of a crash by `faulthandler`."""


DatasetV1 = DatasetV2 = Dataset
export_names("tensorflow.python.data.ops.dataset_ops", "DatasetV1 DatasetV2")
_inspect = inspect
export_names("tensorflow.python.util.tf_inspect", "_inspect")


def name_from_scope_name(name: str) -> str:
    """A scope's name without its final ``/``."""
    return name[:-1] if name.endswith("/") else name


export_names("tensorflow.python.ops.resources", "initialize_resources local_resources shared_resources")


def shared_resources() -> list[Any]:
    """The resources of the graph that the chief initialises."""
    return get_default_graph().get_collection(GraphKeys.RESOURCES)


def local_resources() -> list[Any]:
    """The resources of the graph that each task initialises."""
    return get_default_graph().get_collection(GraphKeys.LOCAL_RESOURCES)


def initialize_resources(resource_list: Iterable[Any], name: str = "init") -> Any:
    """Makes an op that runs the initialisers of resources."""
    return group(*(resource.create for resource in resource_list), name=name)


@export("tensorflow.python.tf2.enabled")
def enabled() -> bool:
    """False: tfmini has the behaviour of version 1."""
    return False


@export("tensorflow.python.ops.control_flow_util.GraphOrParentsInXlaContext")
def GraphOrParentsInXlaContext(graph: Graph) -> bool:
    """False: tfmini has no XLA."""
    return False


@export(
    "tensorflow.contrib.eager.list_devices", "tensorflow.contrib.eager.python.tfe.list_devices",
    "tensorflow.python.eager.context.list_devices",
)  # fmt: skip
def list_devices() -> list[str]:
    """The names of this process's devices: that of the CPU."""
    return ["/job:localhost/replica:0/task:0/device:CPU:0"]


graph_mode = nullcontext  # the only mode
export_names("tensorflow.python.eager.context", "graph_mode")


@export("tf.contrib.framework.get_name_scope")
def get_name_scope() -> str:
    """The name scope in force, without a final ``/``; "" outside of any (``tf.contrib.framework.get_name_scope``)."""
    return get_default_graph().get_name_scope()


@export("tf.python.client.device_lib.list_local_devices")
def list_local_devices(session_config: object = None) -> list[DeviceAttributes]:
    """The devices of this process (``tf.python.client.device_lib.list_local_devices``).

    Args:
      session_config: a ConfigProto whose ``device_count`` and ``gpu_options`` count.
    """
    options = SessionOptions.from_proto(session_config)
    found = devices_of_task("/job:localhost/task:0", options.device_count, options.wishes, lambda: 1)
    return [replace(device, name=device.name[device.name.index("/device:") :]) for device in found]


def _undecorated(function: Callable[..., Any] | None = None, *_: object, **__: object) -> Any:
    return function


export_names("tensorflow.python.util.tf_export", "estimator_export=keras_export tf_export=keras_export")
export_names(
    "tensorflow.python.util.tf_should_use", "must_use_result_or_fatal=_undecorated should_use_result=_undecorated"
)


def make_decorator(target: Callable[..., Any], decorator_func: Callable[..., Any], *_: object, **__: object) -> Any:
    """Returns ``decorator_func`` with the name and the docstring of ``target``."""
    return functools.wraps(target)(decorator_func)


def unwrap(maybe_decorator: Callable[..., Any]) -> tuple[list[Any], Any]:
    """Returns an empty list of decorators, and the innermost function."""
    return [], inspect.unwrap(maybe_decorator)


tf_contextmanager = contextmanager
export_names("tensorflow.python.util.tf_contextlib", "contextmanager tf_contextmanager")
export_names("tensorflow.python.util.tf_decorator", "make_decorator unwrap")
export_names("tensorflow.python.ops.resource_variable_ops", "is_ref_variable is_resource_variable")


class ArgSpec(NamedTuple):
    """What `getargspec` of Python 2 told about a function."""

    args: list[str]
    varargs: str | None
    keywords: str | None
    defaults: tuple[Any, ...] | None


def getfullargspec(obj: Callable[..., Any]) -> inspect.FullArgSpec:
    """Describes the arguments of a function as `inspect.getfullargspec` does; the library's own have no annotations.

    TensorFlow 1's functions had none, and libraries compare these descriptions with those of their own functions.

    Raises:
      TypeError: for what cannot be called, or does not tell its arguments.
    """
    described = inspect.getfullargspec(obj)
    if (getattr(obj, "__module__", None) or "").partition(".")[0] == __name__.partition(".")[0]:
        return described._replace(annotations={})
    return described


def getargspec(obj: Callable[..., Any]) -> ArgSpec:
    """Describes the arguments of a function by its first four facts, as Python 2 did.

    Raises:
      TypeError: for what cannot be called, or does not tell its arguments.
    """
    return ArgSpec(*getfullargspec(obj)[:4])


getsource, getsourcefile, getfile, getdoc = inspect.getsource, inspect.getsourcefile, inspect.getfile, inspect.getdoc
isclass, isfunction, ismethod, ismodule = inspect.isclass, inspect.isfunction, inspect.ismethod, inspect.ismodule
isgeneratorfunction, getmro, getmembers = inspect.isgeneratorfunction, inspect.getmro, inspect.getmembers
getcallargs, signature = inspect.getcallargs, inspect.signature
export_names(
    "tensorflow.python.util.tf_inspect",
    "ArgSpec getargspec getcallargs getdoc getfile getfullargspec getmembers getmro getsource getsourcefile isclass "
    "isfunction isgeneratorfunction ismethod ismodule signature",
)


def is_resource_variable(value: object) -> bool:
    """Whether ``value`` is a resource variable (``resource_variable_ops.is_resource_variable``)."""
    return isinstance(value, BaseResourceVariable)


def is_ref_variable(value: object) -> bool:
    """Whether ``value`` is a ref variable."""
    return isinstance(value, RefVariable)


export_names("tensorflow.python.util.function_utils", "fn_args get_func_code get_func_name has_kwargs")
export_names("tensorflow.python.estimator.util", "fn_args")
export_names("tensorflow.python.util.all_util", "make_all remove_undocumented reveal_undocumented=remove_undocumented")


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


@export("tensorflow.python.util.tf_export.keras_export")
def keras_export(*_: str, **__: object) -> Callable[[Any], Any]:
    """Returns a decorator that changes nothing."""
    return lambda decorated: decorated


def make_all(module_name: str, doc_string_modules: object = None) -> list[str]:
    """The public names of a module."""
    return [name for name in vars(sys.modules[module_name]) if not name.startswith("_")]


def remove_undocumented(
    module_name: str, allowed_exception_list: object = None, doc_string_modules: object = None
) -> None:
    """Changes nothing: names stay visible."""


@export("tensorflow.python.util.keyword_args.keyword_args_only")
def keyword_args_only(func: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that takes keyword arguments alone; others raise ValueError."""

    @functools.wraps(func)
    def called(*args: object, **kwargs: Any) -> Any:
        if args:
            raise ValueError(f"Must use keyword args to call {func.__name__}.")
        return func(**kwargs)

    return called


@export("tensorflow.python.util.lazy_loader.LazyLoader")
class LazyLoader(ModuleType):
    """A module that is imported at the first use of one of its names."""

    def __init__(self, local_name: str, parent_module_globals: dict[str, Any], name: str) -> None:
        super().__init__(name)
        self._local_name, self._parent = local_name, parent_module_globals

    def __getattr__(self, item: str) -> Any:
        module = import_module(self.__name__)
        self._parent[self._local_name] = module
        return getattr(module, item)


@export("tensorflow.python.framework.composite_tensor.CompositeTensor")
class CompositeTensor(ABC):  # noqa: B024 - as TensorFlow's, it asks for no method
    """Base class of values that consist of tensors; sparse and ragged tensors and indexed slices are registered."""


for _composite in (SparseTensor, RaggedTensor, IndexedSlices):
    CompositeTensor.register(_composite)


@export("tensorflow.python.framework.ops.convert_to_tensor_or_composite")
def convert_to_tensor_or_composite(value: Any, dtype: DTypeLike | None = None, name: str | None = None) -> Any:
    """Converts ``value`` to a tensor, unless it consists of tensors, or is converted to what does.

    Raises:
      ValueError: it consists of tensors and has another dtype than ``dtype``.
    """
    if not isinstance(value, CompositeTensor):
        return convert_to_tensor(value, dtype, name)
    if dtype is not None and not as_dtype(dtype).is_compatible_with(getattr(value, "dtype", None)):
        raise ValueError(f"Tensor conversion requested dtype {as_dtype(dtype).name} for {value!r}")
    return value


BatchableTypeSpec = TypeSpec
export_names("tensorflow.python.framework.type_spec", "BatchableTypeSpec")


class TpuContext:
    """What code that may run on TPUs asks: on how many shards it runs.

    Attributes:
      number_of_shards: None outside of `tpu_shard_context`.
    """

    def __init__(self) -> None:
        self.number_of_shards: int | None = None

    def set_number_of_shards(self, number_of_shards: int | None) -> None:
        """Sets the number of shards."""
        self.number_of_shards = number_of_shards


_tpu_context = TpuContext()


def get_tpu_context() -> TpuContext:
    """The process's one context."""
    return _tpu_context


@contextmanager
def tpu_shard_context(number_of_shards: int) -> Iterator[None]:
    """Lets the context say so many shards inside of the ``with`` block.

    Raises:
      NotImplementedError: when it is entered inside of itself.
    """
    if _tpu_context.number_of_shards is not None:
        raise NotImplementedError("tpu_shard_context cannot be nested.")
    try:
        _tpu_context.set_number_of_shards(number_of_shards)
        yield
    finally:
        _tpu_context.set_number_of_shards(None)


export_names(
    "tensorflow.python.tpu.tpu_function tensorflow.contrib.tpu.python.tpu.tpu_function",
    "TpuContext get_tpu_context tpu_shard_context",
)
