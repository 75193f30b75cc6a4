"""The arrays of a `tf.ParameterStore`, as the graph of one store has them: parts, each of one variable."""

from __future__ import annotations

import copy
import logging
import operator
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from tfmini import dtypes, errors
from tfmini.core_types import Array, DTypeLike
from tfmini.graph.conversion import IndexedSlices, IndexedSlicesValue
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import control_dependencies, device
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import fill
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import identity, placeholder
from tfmini.ops.control import no_op
from tfmini.ops.variables.assignment import assign, assign_add
from tfmini.ops.variables.functions import Variable
from tfmini.ops.variables.initializers import Initializer
from tfmini.ops.variables.store import PartitionInfo
from tfmini.shapes import TensorShape
from tfmini.train.checkpointing.saver_builder import SaveableObject, SaveSpec
from tfmini.train.optimizers.compression import GradientCompression
from tfmini.train.optimizers.optimizer import Optimizer

_log = logging.getLogger("tensorflow")

Init: TypeAlias = float | Array | Callable[..., Any]
Gradient: TypeAlias = Array | IndexedSlices | IndexedSlicesValue | float
Names: TypeAlias = str | Iterable[str] | Mapping[str, Array | None]

WHOLE, ROWS, COMPRESSED = "whole", "rows", "compressed"  # the forms of a gradient
_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\-]*(/[A-Za-z0-9_.\-]+)*")  # of a variable, without an empty part


def fitted(value: Any, dtype: dtypes.DType, owner: object) -> Array:
    """A value as an array of a numeric type. Floating-point numbers are rounded; nothing else of them may change.

    Args:
      owner: what holds such numbers, for the error.

    Raises:
      InvalidArgumentError: the type, or a number, does not fit.
    """
    found, wanted = np.asarray(value), np.dtype(dtype.as_numpy_dtype)
    if found.dtype == wanted:
        return found
    if found.dtype == object:
        raise errors.InvalidArgumentError.of(f"These are no numbers for {owner}: {value!r:.60}")
    are_integers = found.dtype.kind in "iu" and wanted.kind in "iu"
    if not are_integers and not np.can_cast(found.dtype, wanted, "same_kind"):
        raise errors.InvalidArgumentError.of(f"Numbers of {found.dtype} lose what {owner} cannot hold. Cast them.")
    with np.errstate(over="ignore"):
        cast: Array = found.astype(wanted)
    if are_integers:
        lost = (cast.astype(found.dtype) != found) | ((cast < 0) != (found < 0))
    else:
        lost = np.isfinite(found) & ~np.isfinite(cast)
    if lost.any():
        raise errors.InvalidArgumentError.of(f"The number {found[lost][0]} does not fit {owner}.")
    return cast


class ArrayPart:
    """The rows of an array that one variable holds, and the ops that read and change them, which are made once.

    Attributes:
      begin, end: the rows of the array; of a scalar 0 and 1.
      optimizer: its own; None: what is pushed is added.
      compression: of dense gradients in the form `COMPRESSED`.
      version: counts the updates; only the first part of an array has it.
    """

    def __init__(
        self, variable: Variable, begin: int, end: int, optimizer: Optimizer | None, version: Variable | None,
        compression: GradientCompression | None,
    ) -> None:  # fmt: skip
        self.variable, self.begin, self.end = variable, begin, end
        self.shape = tuple(int(size or 0) for size in variable.shape.as_list())
        self.optimizer, self.version, self.compression = optimizer, version, compression
        self.whole = placeholder(variable.dtype.base_dtype, variable.shape, "gradient")
        self.ids = placeholder(dtypes.int64, [None], "ids")  # of the rows of a gradient
        self.rows = placeholder(variable.dtype.base_dtype, [None, *variable.shape.as_list()[1:]], "rows")
        self.wanted = placeholder(dtypes.int64, [None], "wanted")  # the rows to read
        self._updates: dict[str, Operation] = {}
        self._sent: list[Tensor] = []  # the placeholders of a compressed gradient
        self._reads: dict[tuple[bool, Operation | None], Tensor] = {}
        self._assigned: Operation | None = None

    def inputs(self, form: str) -> list[Tensor]:
        """The placeholders of a gradient."""
        if form == COMPRESSED and not self._sent:
            assert self.compression is not None
            self._sent = self.compression.placeholders(self.whole.dtype, self.shape)
        return {WHOLE: [self.whole], ROWS: [self.ids, self.rows], COMPRESSED: self._sent}[form]

    def values(self, form: str) -> list[Tensor]:
        """A gradient as one tensor, or as ids and rows."""
        if form != COMPRESSED:
            return self.inputs(form)
        assert self.compression is not None
        with device(self.variable.device):
            return [self.compression.restored(self.inputs(form), self.whole.dtype, self.shape)]

    def gradient(self, form: str) -> Any:
        """What the optimizer gets."""
        return IndexedSlices(self.rows, self.ids) if form == ROWS else self.values(form)[0]

    def update(self, form: str) -> Operation:
        """Applies a gradient and counts the update."""
        if form not in self._updates:
            self._updates[form] = self.updated_by(self.gradient(form))
        return self._updates[form]

    def updated_by(self, gradient: Any) -> Operation:
        """Applies a gradient, a tensor or `IndexedSlices`, and counts the update."""
        with device(self.variable.device):
            done = self._apply(gradient)
            if self.version is None:
                return done
            with control_dependencies([done]):
                return assign_add(self.version, 1, use_locking=True).op  # type: ignore[no-any-return]

    def _apply(self, gradient: Any) -> Operation:
        if self.optimizer is not None:
            return self.optimizer.apply_gradients([(gradient, self.variable)])
        if isinstance(gradient, IndexedSlices):
            return self.variable.scatter_add(gradient, use_locking=True).op  # type: ignore[no-any-return]
        return assign_add(self.variable, gradient, use_locking=True).op  # type: ignore[no-any-return]

    def read(self, rows: bool, after: Operation | None) -> Tensor:
        """The value, or the rows ``wanted``, once ``after`` has run."""
        key = rows, after
        if key not in self._reads:
            with device(self.variable.device), control_dependencies([] if after is None else [after]):
                self._reads[key] = gather(self.variable, self.wanted) if rows else identity(self.variable)
        return self._reads[key]

    @property
    def assigned(self) -> Operation:
        """Sets the value to ``whole``."""
        if self._assigned is None:
            self._assigned = assign(self.variable, self.whole).op
        return self._assigned

    def scalars(self) -> list[tuple[str, Variable]]:
        """What its optimizer keeps for all its variables, by the names that a graph gives it."""
        return [] if self.optimizer is None else self.optimizer._named_non_slot_variables()

    def variables(self) -> list[Variable]:
        """All that belongs to it: its own, what the optimizer keeps for it, and the version."""
        kept = [] if self.optimizer is None else self.optimizer.variables()
        return [self.variable, *kept, *([] if self.version is None else [self.version])]


class DeclaredArray:
    """An array of the store.

    Attributes:
      shape, dtype: of the whole array.
      text: how this store declares it.
      declared: the same, of the first store that has declared it, and a line that names that one.
    """

    declared: Variable

    @classmethod
    def of(cls, name: str, shape: int | Sequence[int], dtype: DTypeLike, optimizer: Optimizer | None) -> DeclaredArray:
        """An array as a program declares it.

        Raises:
          InvalidArgumentError: there is no array of that name, shape or dtype.
        """
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise errors.InvalidArgumentError.of(
                f"{name!r} cannot be the name of an array: that has ASCII letters, digits, and _ - . or / inside."
            )
        array = cls(name, _sizes(name, shape), dtypes.as_dtype(dtype))
        valid = None if optimizer is None else tuple(optimizer._valid_dtypes())
        if valid is not None and array.dtype not in valid:
            raise errors.InvalidArgumentError.of(
                f"{type(optimizer).__name__} cannot update {array}, only {', '.join(each.name for each in valid)}. In a"
                " store without an optimizer, what is pushed is added."
            )
        if not (array.dtype.is_floating or array.dtype.is_integer or array.dtype.is_complex):
            raise errors.InvalidArgumentError.of(f"There is no {array}: a ParameterStore holds numbers.")
        return array

    def __init__(self, name: str, shape: tuple[int, ...], dtype: dtypes.DType) -> None:
        self.name, self.shape, self.dtype = name, shape, dtype
        self.parts: list[ArrayPart] = []
        self.text = str(self)

    def borders(self, partition: int | Callable[..., list[int]]) -> list[int]:
        """The first row of each part, and the number of rows.

        Raises:
          ValueError: the partitioner cuts along another axis than 0.
        """
        rows = self.shape[0] if self.shape else 1
        if callable(partition):
            counts = partition(shape=TensorShape(self.shape), dtype=self.dtype) if self.shape else [1]
            if any(count != 1 for count in counts[1:]):
                raise ValueError(f"A ParameterStore cuts arrays along axis 0 only; the partitioner asks for {counts}.")
            partition = counts[0]
        parts = max(1, min(partition, rows))
        return [rows * i // parts for i in range(parts + 1)]

    def split(self, form: str, value: Any) -> list[Array]:
        """The values of `ArrayPart.inputs` of all parts."""
        if form == COMPRESSED:
            return value  # type: ignore[no-any-return]
        if form == WHOLE:
            return [value] if len(self.parts) == 1 else [value[part.begin : part.end] for part in self.parts]
        ids, rows = value
        if len(self.parts) == 1:
            return [ids, rows]
        masks = [(ids >= part.begin) & (ids < part.end) for part in self.parts]
        return [each for part, mask in zip(self.parts, masks) for each in (ids[mask] - part.begin, rows[mask])]

    def compressed(self, gradient: Array) -> tuple[list[Array], Array]:
        """What to send for a dense gradient, and the residual, which the next one gets.

        A number that is not finite is sent and leaves nothing, or each later gradient would have it again.
        """
        sent: list[Array] = []
        residual = np.empty_like(gradient)
        for part, piece, rest in zip(self.parts, self.split(WHOLE, gradient), self.split(WHOLE, residual)):
            assert part.compression is not None
            values, restored = part.compression.compress(piece)
            sent += values
            with np.errstate(invalid="ignore"):  # infinity without itself
                np.subtract(piece, restored, out=rest)
        residual[~np.isfinite(residual)] = 0
        return sent, residual

    def split_ids(self, ids: Array) -> list[Array]:
        """The ids that each part has."""
        return [ids[(ids >= part.begin) & (ids < part.end)] - part.begin for part in self.parts]

    def join(self, values: Sequence[Any], ids: Array | None) -> Array:
        """The array, or the rows ``ids`` of it, from the values of all parts."""
        if len(values) == 1:
            out = np.asarray(values[0]).view()  # the flag below is not for the array of others
        elif ids is None:
            out = np.concatenate(values)
        else:
            out = np.empty((len(ids), *self.shape[1:]), self.dtype.as_numpy_dtype)
            for part, value in zip(self.parts, values):
                out[(ids >= part.begin) & (ids < part.end)] = value
        out.flags.writeable = False
        return out

    def checked(self, gradient: Gradient, what: str = "gradient") -> tuple[str, Any]:
        """(form, value) of what a caller gives as a gradient.

        Args:
          what: what it is, for the error.

        Raises:
          InvalidArgumentError: its shape is not the array's, or an id is not one of its rows.
        """
        if isinstance(gradient, (IndexedSlices, IndexedSlicesValue)):
            return ROWS, self._checked_rows(gradient.indices, gradient.values)
        value = fitted(gradient, self.dtype, self)
        if value.shape != self.shape:
            raise errors.InvalidArgumentError.of(f"A {what} of shape {value.shape} is no {what} of {self}.")
        return WHOLE, value

    def _checked_rows(self, indices: Any, values: Any) -> tuple[Array, Array]:
        ids, rows = self.checked_ids(indices), fitted(values, self.dtype, self)
        if rows.shape != (len(ids), *self.shape[1:]):
            raise errors.InvalidArgumentError.of(
                f"Rows of shape {rows.shape} with {len(ids)} ids are no rows of {self}."
            )
        return ids, rows

    def checked_ids(self, indices: Any) -> Array:
        """The ids of rows as int64.

        Raises:
          InvalidArgumentError: they are not a list of rows of this array.
        """
        ids = np.asarray(indices) if np.size(indices) else np.empty(0, np.int64)
        if ids.dtype.kind not in "iu":
            raise errors.InvalidArgumentError.of(f"The ids of rows of {self} are integers; got {ids.dtype}.")
        if ids.ndim != 1 or not self.shape:
            raise errors.InvalidArgumentError.of(f"The ids of rows of {self} are a list; got shape {ids.shape}.")
        if len(ids) and not (ids.min() >= 0 and ids.max() < self.shape[0]):
            raise errors.InvalidArgumentError.of(f"Ids from {ids.min()} to {ids.max()} are not all rows of {self}.")
        return ids.astype(np.int64, copy=False)

    def scalar_name(self, name: str) -> str:
        """The name in a checkpoint of what its optimizer keeps for all its variables, whatever its parts."""
        return f"{self.name}/push/{name}"

    def __str__(self) -> str:
        return f"array '{self.name}' ({self.dtype.name}, shape {list(self.shape)})"


Pushed: TypeAlias = tuple[DeclaredArray, str]  # the form
Pulled: TypeAlias = tuple[DeclaredArray, bool]  # whether rows


class KeptTable(Protocol):
    """What a store needs of a table that grows for its checkpoints; `tf.EmbeddingTable` is one."""

    def saved(self) -> dict[str, Any]:
        """Name in a checkpoint -> the table, or what its optimizer keeps beside the slots."""

    def scalars(self) -> dict[str, Variable]:
        """What its optimizer keeps beside the slots, by the names that a graph gives it."""

    def restore(self, path: str) -> None:
        """Reads a checkpoint."""


def alone(optimizer: Optimizer) -> Optimizer:
    """An optimizer with the same settings for one variable. Its updates exclude each other."""
    one = copy.copy(optimizer)
    one._slots, one._non_slot_dict, one._use_locking = {}, {}, True
    return one


def initial_value(
    init: Init, array: DeclaredArray, begin: int, end: int, shape: tuple[int, ...]
) -> tuple[Tensor, Array | None]:
    """The initial value of some rows of an array, and what must be fed for it."""
    value: Any = _called(init, array, begin, shape) if callable(init) else init
    if isinstance(value, Tensor):
        if not value.shape.is_compatible_with(shape):
            raise errors.InvalidArgumentError.of(f"An initial value of shape {value.shape} is none of {array}.")
        return value, None
    if np.ndim(value) and np.shape(value) != (shape if callable(init) else array.shape):
        raise errors.InvalidArgumentError.of(f"An initial value of shape {np.shape(value)} is none of {array}.")
    found = np.asarray(value)
    found = found[begin:end] if found.ndim and not callable(init) else found
    if array.dtype.is_integer and found.dtype.kind == "f" and np.array_equal(found, whole := found.astype(np.int64)):
        found = whole  # 0.0 says what 0 does
    value = fitted(found, array.dtype, array)
    if not value.ndim:
        return fill(constant(shape, dtypes.int64), value), None  # int32 would wrap around
    return placeholder(array.dtype, shape, "initial"), value


def check_named(values: Any) -> None:
    """Refuses what is no dict from names to arrays.

    Raises:
      TypeError: it is none.
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"Arrays are pushed and assigned as a dict from their names, not as {type(values).__name__}.")


def _sizes(name: str, shape: int | Sequence[int]) -> tuple[int, ...]:
    """A shape that a program gives."""
    try:
        sizes = tuple(operator.index(size) for size in ((shape,) if isinstance(shape, (int, np.integer)) else shape))
    except TypeError:
        sizes = (-1,)
    if any(size < 0 for size in sizes):
        raise errors.InvalidArgumentError.of(f"{shape!r} cannot be the shape of array '{name}': that is known sizes.")
    return sizes


def _called(init: Callable[..., Any], array: DeclaredArray, begin: int, shape: tuple[int, ...]) -> Any:
    """What an initializer or a function gives for the part of an array that begins with a row."""
    if not isinstance(init, Initializer) or shape == array.shape:
        return init(shape, dtype=array.dtype)
    seed = getattr(init, "seed", None)
    if begin and seed is not None:  # or all parts would have the numbers of the first one
        init = copy.copy(init)
        init.seed = zlib.crc32(f"{seed} {begin}".encode())  # type: ignore[attr-defined]
    return init(shape, dtype=array.dtype, partition_info=PartitionInfo(array.shape, [begin] + [0] * (len(shape) - 1)))


def named(name: str, variable: Variable) -> Variable:
    """The variable, if it has got the name that other stores mean.

    Raises:
      InvalidArgumentError: something else of this store's graph has the name.
    """
    if variable.op.name != name:
        raise errors.InvalidArgumentError.of(f"'{name}' is a name of another array, or of what belongs to one.")
    return variable


def set_initial(variable: Variable) -> Operation:
    """Gives a variable its initial value."""
    assert variable.initial_value is not None
    return assign(variable, variable.initial_value).op  # type: ignore[no-any-return]


class Copy(SaveableObject):
    """A value that a checkpoint has under a second name."""

    def __init__(self, value: Tensor, name: str) -> None:
        super().__init__(value, [SaveSpec(value, "", name)], name)

    def restore(self, restored_tensors: Sequence[Tensor], restored_shapes: Any) -> Operation:
        return no_op()


# ---- how stores say what they mean, so that another one can compare -------------------------------------------------

_KEPT = ("_use_locking", "_slots", "_non_slot_dict", "_tensors", "_ops")  # no settings


def optimizer_text(optimizer: Optimizer | None) -> str:
    """The class and the settings of an optimizer."""
    if optimizer is None:
        return "addition"
    settings = {name: value for name, value in vars(optimizer).items() if name not in _KEPT and value is not None}
    for name in [name for name, value in settings.items() if isinstance(value, Mapping)]:
        settings.update(settings.pop(name))
    return f"{type(optimizer).__name__}({_listed({name.lstrip('_'): value for name, value in settings.items()})})"


def init_text(init: Init) -> str:
    """An initial value, or how it is computed; of an array the checksum."""
    if isinstance(init, Initializer):
        config = {name: value for name, value in init.get_config().items() if name != "dtype" and value is not None}
        return f"{type(init).__name__}({_listed(config)})"
    if callable(init) or np.ndim(init) == 0:
        return _text(init)
    return f"an array with checksum {zlib.crc32(np.ascontiguousarray(init).tobytes()):08x}"


def _listed(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_text(value)}" for name, value in sorted(settings.items()))


def _text(value: Any) -> str:
    """A setting, the same in each process and for each type of a number."""
    if isinstance(value, Optimizer):
        return optimizer_text(value)
    if isinstance(value, Tensor):
        return f"tensor {value.op.name}"
    if callable(value):
        return f"function {getattr(value, '__qualname__', type(value).__qualname__)}"
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        return f"{value:.7g}"
    return str(value) if np.ndim(value) == 0 else init_text(value)


def warn_of_undeclared(
    path: str, stored: Iterable[str], declared: Iterable[str], arrays: Iterable[DeclaredArray]
) -> None:
    """Names what a checkpoint has and a store has not declared, so that it stays as it is."""
    known = {*declared, *(name for array in arrays for part in array.parts for name, _ in part.scalars())}
    found = {name.partition("-")[0] for name in stored}  # a table is stored under several names, such as `t-keys`
    others = {name for name in found - known if not any(name.startswith(f"{one}/") for one in known)}
    others = {name for name in others if not any(name.startswith(f"{one}/") for one in others)}
    if others:
        _log.warning("restore() leaves out what this store has not declared: %s of %s", ", ".join(sorted(others)), path)
