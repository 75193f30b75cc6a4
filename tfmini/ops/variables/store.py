"""The variables that ``tf.get_variable`` has made, by full name, one store per graph."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from tfmini import dtypes
from tfmini.dtypes import DType
from tfmini.errors import format_frames
from tfmini.export import export_names
from tfmini.graph.families import Tensor, convert_to_tensor, get_default_graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.scoping import add_to_collection, colocate_with, init_scope, name_scope
from tfmini.ops.array.slicing import slice_
from tfmini.ops.variables import initializers
from tfmini.ops.variables.functions import PartitionedVariable, SaveSliceInfo, Variable
from tfmini.shapes import TensorShape, as_shape

_log = logging.getLogger("tensorflow")
_STORE_KEY = "variable_store"


class _AutoReuse:
    """``tf.AUTO_REUSE``: share the variable if it exists, create it otherwise."""

    def __repr__(self) -> str:
        return "<ReuseMode.AUTO_REUSE: 1>"


AUTO_REUSE = _AutoReuse()
ReuseLike: TypeAlias = bool | _AutoReuse | None


@dataclass(frozen=True)
class PartitionInfo:
    """The shape of the whole variable and the offset of a part, for initializers."""

    full_shape: Sequence[int]
    var_offset: Sequence[int]


@dataclass(frozen=True)
class Request:
    """The arguments of `get_variable`, with the scope's defaults."""

    name: str
    shape: Any = None
    dtype: Any = dtypes.float32
    initializer: Any = None
    regularizer: Callable[[Any], Any] | None = None
    reuse: Any = None
    trainable: bool | None = None
    collections: Any = None
    caching_device: Any = None
    partitioner: Callable[..., Sequence[int]] | None = None
    validate_shape: bool = True
    use_resource: bool | None = None
    constraint: Callable[[Any], Any] | None = None
    synchronization: Any = None
    aggregation: Any = None
    partition_info: PartitionInfo | None = field(default=None, kw_only=True)


class VariableStore:
    """Creates each named variable once, and finds it later."""

    def __init__(self) -> None:
        self._vars: dict[str, Variable] = {}
        self._partitioned_vars: dict[str, PartitionedVariable] = {}

    def get_variable(self, request: Request, custom_getter: Callable[..., Any] | None = None) -> Any:
        """The variable of that name, created or shared by ``request.reuse``.

        Raises:
          ValueError: when ``reuse`` forbids to share or to create it, or its shape or dtype differs.
        """
        if custom_getter is None:
            return self._true_get(request)
        if not callable(custom_getter):
            raise ValueError(f"Passed a custom_getter which is not callable: {custom_getter}")
        settings = {name: getattr(request, name) for name in Request.__dataclass_fields__ if name != "partition_info"}
        if not _takes_constraint(custom_getter):
            del settings["constraint"]
        return custom_getter(getter=self._true_getter, **settings)

    def _true_getter(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self._true_get(Request(name, *args, **kwargs))

    def _true_get(self, request: Request) -> Any:
        name, shape = request.name, request.shape
        raw = shape.raw if isinstance(shape, TensorShape) else shape
        is_scalar = isinstance(raw, (list, tuple)) and not raw
        if request.partitioner is not None and not is_scalar:
            if not callable(request.partitioner):
                raise ValueError(f"Partitioner must be callable, but received: {request.partitioner}")
            with name_scope(None):
                return self.get_partitioned(request)
        whole = self._partitioned_vars.get(name) if request.partitioner is None else None
        # A model that asks again outside of the plan's device scope does not know that the variable is cut.
        if whole is not None and (request.reuse is True or request.reuse and whole._by_plan):
            return self.get_partitioned(request)
        if f"{name}/part_0" in self._vars:
            raise ValueError(
                f"No partitioner was provided, but a partitioned version of the variable was found: {name}/part_0."
                " Perhaps a variable of the same name was already created with partitioning?"
            )
        return self._get_single(request)

    # ---- one variable -------------------------------------------------------------------------

    def _get_single(self, request: Request) -> Variable:
        if request.shape is not None and request.initializer is not None and not callable(request.initializer):
            raise ValueError("If initializer is a constant, do not specify shape.")
        dtype, shape = dtypes.as_dtype(request.dtype), as_shape(request.shape)
        found = self._vars.get(request.name)
        if found is not None:
            return _shared(request, found, dtype, shape)
        if request.reuse is True:
            raise ValueError(
                f"Variable {request.name} does not exist, or was not created with tf.get_variable(). Did you mean to"
                " set reuse=tf.AUTO_REUSE in VarScope?"
            )
        initial_value, value_dtype = _initial_value(request, dtype, shape)
        variable: Variable = Variable(  # type: ignore[call-arg]  # its metaclass takes use_resource
            initial_value=initial_value,
            name=request.name,
            trainable=request.trainable,
            collections=request.collections,
            caching_device=request.caching_device,
            dtype=value_dtype,
            validate_shape=request.validate_shape,
            constraint=request.constraint,
            use_resource=request.use_resource,
            synchronization=request.synchronization,
            aggregation=request.aggregation,
        )
        self._vars[request.name] = variable
        if request.regularizer:
            _regularize(variable, request)
        return variable

    # ---- a variable in parts ------------------------------------------------------------------

    def get_partitioned(self, request: Request) -> PartitionedVariable:
        """Like `get_variable`, partitioned by ``request.partitioner``.

        Raises:
          ValueError: like `get_variable`, and for an invalid partitioning.
        """
        name = request.name
        if name in self._vars:
            raise ValueError(
                f"A partitioner was provided, but an unpartitioned version of the variable was found: {name}.  Perhaps"
                " a variable of the same name was already created without partitioning?"
            )
        dtype, shape = dtypes.as_dtype(request.dtype), as_shape(request.shape)
        if isinstance(request.initializer, Tensor):
            shape = shape.merge_with(request.initializer.shape)
        partitions = None
        if request.partitioner is not None:
            partitions = _call_partitioner(request.partitioner, shape, dtype)
        found = self._partitioned_vars.get(name)
        if found is not None:
            return _shared_parts(request, found, dtype, shape, partitions)
        if request.reuse is True:
            raise ValueError(
                f"PartitionedVariable {name} does not exist, or was not created with tf.get_variable(). Did you mean to"
                " set reuse=False or reuse=tf.AUTO_REUSE in VarScope?"
            )
        if partitions is None:
            raise ValueError("No partitioner was specified")
        parts = self._make_parts(request, dtype, shape, partitions)
        whole = PartitionedVariable(name, shape, dtype, parts, partitions)
        whole._by_plan = getattr(request.partitioner, "by_plan", False)
        self._partitioned_vars[name] = whole
        return whole

    def _make_parts(
        self, request: Request, dtype: dtypes.DType, shape: TensorShape, partitions: list[int]
    ) -> list[Variable]:
        full = shape.as_list()
        axis = next((i for i, count in enumerate(partitions) if count > 1), 0)
        self._check_present_parts(request.name, partitions[axis])
        parts: list[Variable] = []
        for i, (offset, extent) in enumerate(_slices(full, partitions[axis], axis)):
            part_name = f"{request.name}/part_{i}"
            with name_scope(part_name + "/PartitionedInitializer"):
                initializer, part_shape = _part_initializer(request, dtype, offset, extent)
            with name_scope(None):
                part = self._get_single(
                    replace(
                        request,
                        name=part_name,
                        shape=part_shape,
                        dtype=initializer.dtype.base_dtype if isinstance(initializer, Tensor) else dtype,
                        initializer=initializer,
                        partition_info=PartitionInfo(full, offset),  # type: ignore[arg-type]
                    )
                )
            part._set_save_slice_info(SaveSliceInfo(request.name, full, offset, extent))  # type: ignore[arg-type]
            parts.append(part)
        return parts

    def _check_present_parts(self, name: str, count: int) -> None:
        if f"{name}/part_0" not in self._vars:
            return
        text = (
            "Partitioner returned a different partitioning than what was already found.  Partitioner returned"
            f" {count} shards, and shard {name}/part_0 was found, but"
        )
        if f"{name}/part_{count - 1}" not in self._vars:
            raise ValueError(f"{text} {name}/part_{count - 1} was not.")
        if f"{name}/part_{count}" in self._vars:
            raise ValueError(f"{text} so was the extra shard {name}/part_{count}.")


def default_variable_store() -> VariableStore:
    """The store of the default graph."""
    store: VariableStore = get_default_graph().attachments.setdefault(_STORE_KEY, VariableStore())
    return store


def _takes_constraint(getter: Callable[..., Any]) -> bool:
    # Old getters do not accept the argument ``constraint``.
    try:
        parameters = inspect.signature(getter).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(p.name == "constraint" or p.kind is p.VAR_KEYWORD for p in parameters)


def _shared(request: Request, found: Variable, dtype: dtypes.DType, shape: TensorShape) -> Variable:
    name = request.name
    if request.reuse is False:
        text = (
            f"Variable {name} already exists, disallowed."
            " Did you mean to set reuse=True or reuse=tf.AUTO_REUSE in VarScope?"
        )
        if found._is_resource:
            raise ValueError(text)
        raise ValueError(f"{text} Originally defined at:\n\n{format_frames(found.op.creation_stack()[-5:])}")
    if not shape.is_compatible_with(found.get_shape()):
        raise ValueError(
            f"Trying to share variable {name}, but specified shape {shape} and found shape {found.get_shape()}."
        )
    if dtype.base_dtype is not found.dtype.base_dtype:
        raise ValueError(
            f"Trying to share variable {name}, but specified dtype {dtype.name} and found dtype {found.dtype.name}."
        )
    return found


def _shared_parts(
    request: Request, found: PartitionedVariable, dtype: dtypes.DType, shape: TensorShape, partitions: Any
) -> PartitionedVariable:
    name = request.name
    if request.reuse is False:
        raise ValueError(
            f"Partitioned variable with name {name} already exists. Did you mean to set reuse=True or"
            " reuse=tf.AUTO_REUSE in VarScope?"
        )
    text = f"Trying to reuse partitioned variable {name}, but specified"
    if not shape.is_compatible_with(found.get_shape()):
        raise ValueError(f"{text} shape {shape} and found shape {found.get_shape()}.")
    if dtype.base_dtype is not found.dtype.base_dtype:
        raise ValueError(f"{text} dtype {dtype.name} and found dtype {found.dtype.name}.")
    if partitions is not None and list(partitions) != found._get_partitions():
        raise ValueError(f"{text} partitions {partitions} and found partitions {found._get_partitions()}.")
    return found


def default_initializer(name: str, dtype: dtypes.DType) -> initializers.Initializer:
    """The initializer of a variable for which none was given.

    Raises:
      ValueError: for types without a default.
    """
    if dtype.is_floating:
        return initializers.GlorotUniform()
    if dtype.is_integer or dtype.is_bool or dtype is dtypes.string:
        return initializers.Zeros()
    raise ValueError(f"An initializer for variable {name} of {dtype.base_dtype} is required")


def _initial_value(request: Request, dtype: dtypes.DType, shape: TensorShape) -> tuple[Any, dtypes.DType | None]:
    """The ``initial_value`` of the new variable, and the type to convert it to."""
    initializer = request.initializer
    if initializer is None:
        if request.shape is None:
            raise ValueError(
                f"Variable {request.name} did not get an initializer, so its `shape` argument must be specified."
            )
        initializer = default_initializer(request.name, dtype)
    if not callable(initializer):
        return initializer, None
    if inspect.isclass(initializer):
        with init_scope():
            initializer = initializer()
    if shape.is_fully_defined():
        sizes, info = shape.as_list(), request.partition_info
        if info is not None or _takes(initializer, "partition_info"):
            return (lambda: initializer(sizes, dtype=dtype, partition_info=info)), dtype.base_dtype
        return (lambda: initializer(sizes, dtype=dtype)), dtype.base_dtype
    if _needs_no_argument(initializer):
        return initializer, None
    raise ValueError(
        "The initializer passed is not valid. It should be a callable with no arguments and the shape should not be"
        " provided or an instance of `tf.keras.initializers.*' and `shape` should be fully defined."
    )


def _takes(function: Callable[..., Any], argument: str) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(p.name == argument or p.kind is p.VAR_KEYWORD for p in parameters)


def _needs_no_argument(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return all(p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)


def _regularize(variable: Variable, request: Request) -> None:
    assert request.regularizer is not None
    with colocate_with(variable.op), name_scope(request.name + "/Regularizer/"), init_scope():
        loss = request.regularizer(variable)
    if loss is not None:
        _log.debug("Applied regularizer to %s; its loss is %s.", variable.name, loss)
        add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)


def _call_partitioner(partitioner: Callable[..., Sequence[int]], shape: TensorShape, dtype: DType) -> list[int]:
    if not shape.is_fully_defined():
        raise ValueError(f"Shape of a new partitioned variable must be fully defined, but instead was {shape}.")
    if len(shape) < 1:
        raise ValueError(f"A partitioned Variable must have rank at least 1, shape: {shape}")
    slicing = partitioner(shape=shape, dtype=dtype)
    if not isinstance(slicing, Sequence):
        raise ValueError(f"Partitioner must return a sequence, but saw: {slicing}")
    if len(slicing) != len(shape):
        raise ValueError(
            f"Partitioner returned a partition list that does not match the Variable's rank: {slicing} vs. {shape}"
        )
    if any(count < 1 for count in slicing):
        raise ValueError(f"Partitioner returned zero partitions for some axes: {slicing}")
    if sum(count > 1 for count in slicing) > 1:
        raise ValueError(f"Can only slice a variable along one dimension: shape: {shape}, partitioning: {slicing}")
    return list(slicing)


def _slices(full: Sequence[Any], count: int, axis: int) -> Iterator[tuple[list[int], list[int]]]:
    """The (offset, shape) of each part; the first ``size % count`` parts are longer by one."""
    offset = [0] * len(full)
    size, longer = divmod(full[axis], count)
    for i in range(count):
        extent = list(full)
        extent[axis] = size + (i < longer)
        yield offset[:], extent
        offset[axis] += extent[axis]


def _part_initializer(request: Request, dtype: dtypes.DType, offset: list[int], extent: list[int]) -> tuple[Any, Any]:
    """The initializer of a part, and the shape to call it with: None if it is a value."""
    initializer = request.initializer
    if initializer is None:
        return default_initializer(request.name, dtype), extent
    if callable(initializer):
        return initializer, extent
    whole = initializer if isinstance(initializer, Tensor) else convert_to_tensor(initializer, dtype=dtype)
    return slice_(whole, offset, extent), None


export_names("tf", "AUTO_REUSE")
