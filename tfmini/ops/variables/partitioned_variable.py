"""`PartitionedVariable`: a variable made of several parts along one axis, each of which is a variable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tfmini.core_types import ShapeLike, TensorLike
from tfmini.dtypes import DType
from tfmini.graph.conversion import register_tensor_conversion_function
from tfmini.graph.families import Tensor, control_dependencies, name_scope
from tfmini.ops.array.identity import identity
from tfmini.ops.array.joining import concat, split
from tfmini.ops.variables.base import Variable, wrong_type_requested
from tfmini.shapes import TensorShape, as_shape


def _offset_of(part: Variable) -> Any:
    return part._get_save_slice_info().var_offset  # type: ignore[union-attr]


class PartitionedVariable:
    """The parts of a variable, in order (``tf.PartitionedVariable``).

    Args:
      name: the name of the whole.
      shape: its shape.
      dtype: its element type.
      variable_list: the parts, each with its `SaveSliceInfo`.
      partitions: the number of parts per axis.

    Raises:
      TypeError, ValueError: when the parts do not make up the whole.
    """

    def __init__(
        self, name: str, shape: ShapeLike, dtype: DType, variable_list: Sequence[Variable], partitions: Sequence[int]
    ) -> None:
        _check_parts(shape, variable_list, partitions)
        self._variable_list = sorted(variable_list, key=_offset_of)
        self._name = name
        self._shape = as_shape(shape)
        self._dtype = dtype
        self._partitions = list(partitions)
        self._by_plan = False  # cut by a placement plan: the model takes it for one table

    def __iter__(self) -> Iterator[Variable]:
        return iter(self._variable_list)

    def __len__(self) -> int:
        axes = self._partition_axes()
        if len(axes) > 1:
            raise ValueError(f"Cannot get a length for {len(axes)} > 1 partition axes")
        return len(self._variable_list)

    def _partition_axes(self) -> list[int]:
        return [i for i, count in enumerate(self._partitions) if count > 1] or [0]

    def _only_axis(self, action: str) -> int:
        axes = self._partition_axes()
        if len(axes) > 1:
            raise NotImplementedError(f"Cannot {action} along more than one dimension: {axes}.")
        return axes[0]

    def as_tensor(self) -> Tensor:
        """The whole as one tensor."""
        with control_dependencies(None):
            return self._concat()

    def _concat(self) -> Tensor:
        """The whole as one tensor, with the current control dependencies."""
        if len(self._variable_list) == 1:
            with name_scope(None):
                return identity(self._variable_list[0], name=self._name)
        axis = self._only_axis("concatenate")
        with name_scope(self._name + "/ConcatPartitions/"):
            whole = concat(self._variable_list, axis)
        with name_scope(None):
            return identity(whole, name=self._name)

    @property
    def name(self) -> str:
        return self._name

    @property
    def dtype(self) -> DType:
        return self._dtype

    @property
    def shape(self) -> TensorShape:
        return self._shape

    @property
    def graph(self) -> Any:
        return self._variable_list[0].graph

    def get_shape(self) -> TensorShape:
        """Same as `shape`."""
        return self._shape

    def _get_variable_list(self) -> list[Variable]:
        return self._variable_list

    def _get_partitions(self) -> list[int]:
        return self._partitions

    def assign(
        self, value: TensorLike, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Assigns a tensor, a list with one value per part, or a `PartitionedVariable`; returns one result per part."""
        return self._each(lambda part, new: part.assign(new, use_locking, name, read_value), value)

    def assign_add(
        self, value: TensorLike, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Adds; see `assign`."""
        return self._each(lambda part, new: part.assign_add(new, use_locking, name, read_value), value)

    def assign_sub(
        self, value: TensorLike, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Subtracts; see `assign`."""
        return self._each(lambda part, new: part.assign_sub(new, use_locking, name, read_value), value)

    def _each(self, function: Callable[[Variable, Any], Any], value: TensorLike) -> list[Any]:
        axis = self._only_axis("do assign action")
        if isinstance(value, (list, PartitionedVariable)):
            values = list(value)
            if len(values) != len(self._variable_list):
                raise ValueError(f"{len(values)} values for a variable of {len(self._variable_list)} parts.")
        else:
            values = split(value, [part.shape.as_list()[axis] for part in self._variable_list], axis=axis)
        return [function(part, new) for part, new in zip(self._variable_list, values)]


def _check_parts(shape: ShapeLike, parts: object, partitions: object) -> None:
    if not isinstance(parts, (list, tuple)):
        raise TypeError(f"variable_list is not a list or tuple: {parts}")
    if not isinstance(partitions, (list, tuple)):
        raise TypeError(f"partitions is not a list or tuple: {partitions}")
    if not all(count >= 1 for count in partitions):
        raise ValueError(f"partition values must be positive: {partitions}")
    if not parts:
        raise ValueError("variable_list may not be empty")
    if len(as_shape(shape)) != len(partitions):
        raise ValueError(f"len(shape) != len(partitions): {shape} vs. {partitions}")
    for part in parts:
        info = part._get_save_slice_info()
        if info is None:
            names = [v.name for v in parts]
            raise ValueError(f"All variables must have a save_slice_info available: {names}")
        if info.full_shape != as_shape(shape).as_list():
            raise ValueError(
                f"All variables' full shapes must match shape: {shape}; but full shapes were: {[info.full_shape]}"
            )


def _convert(
    variable: PartitionedVariable, dtype: DType | None = None, name: str | None = None, as_ref: bool = False
) -> Any:
    if dtype is not None and dtype.base_dtype is not variable.dtype.base_dtype:
        raise ValueError(wrong_type_requested(variable, dtype))
    if as_ref:
        raise NotImplementedError(
            f"PartitionedVariable {variable.name!r} doesn't support being used as a reference: iterate for its parts."
        )
    return variable.as_tensor()


register_tensor_conversion_function(PartitionedVariable, _convert, 99)
