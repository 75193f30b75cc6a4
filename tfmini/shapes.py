"""Static shapes: ``tf.TensorShape``, and the raw form in the graph.

Inside tfmini a static shape is a plain tuple of ``int | None`` (None: unknown size), or None
for an unknown rank; shape functions compute with these. `TensorShape` is the public class,
created on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tfmini.dtypes import DType
from tfmini.export import export

# ---- ``tf.Dimension``: one size of a shape, possibly unknown -------------------------------------------------------


@export("tf.Dimension")
class Dimension:
    """One size of a `TensorShape`, possibly unknown (``tf.Dimension``). Arithmetic with an unknown size is unknown."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        if isinstance(value, Dimension):
            self._value: int | None = value._value
        elif value is None:
            self._value = None
        else:
            self._value = _index(value)
            if self._value < 0:
                raise ValueError(f"Dimension {self._value} must be >= 0")

    @property
    def value(self) -> int | None:
        """The size, or None when it is unknown."""
        return self._value

    def __repr__(self) -> str:
        return f"Dimension({self._value!r})"

    def __str__(self) -> str:
        return "?" if self._value is None else str(self._value)

    def __eq__(self, other: object) -> Any:
        try:
            other_value = as_dimension(other)._value
        except (TypeError, ValueError):
            return NotImplemented
        if self._value is None or other_value is None:
            return None
        return self._value == other_value

    def __ne__(self, other: object) -> Any:
        equal = self.__eq__(other)
        return equal if equal is None or equal is NotImplemented else not equal

    def __hash__(self) -> int:
        return hash(self._value)

    def __int__(self) -> Any:  # Python raises a TypeError for None
        return self._value

    __index__ = __long__ = __int__

    def is_compatible_with(self, other: Any) -> bool:
        other_value = as_dimension(other)._value
        return self._value is None or other_value is None or self._value == other_value

    def assert_is_compatible_with(self, other: Any) -> None:
        if not self.is_compatible_with(other):
            raise ValueError(f"Dimensions {self} and {as_dimension(other)} are not compatible")

    def merge_with(self, other: Any) -> Dimension:
        other = as_dimension(other)
        self.assert_is_compatible_with(other)
        return Dimension(other._value if self._value is None else self._value)

    def _arith(self, other: Any, apply: Callable[..., Any], swap: bool = False) -> Any:
        try:
            other_value = as_dimension(other)._value
        except (TypeError, ValueError):
            return NotImplemented
        if self._value is None or other_value is None:
            return Dimension(None)
        return Dimension(apply(other_value, self._value) if swap else apply(self._value, other_value))

    def __add__(self, other: Any) -> Any:
        return self._arith(other, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Any:
        return self._arith(other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return self._arith(other, lambda a, b: a - b, swap=True)

    def __mul__(self, other: Any) -> Any:
        return self._arith(other, lambda a, b: a * b)

    def __floordiv__(self, other: Any) -> Any:
        return self._arith(other, lambda a, b: a // b)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._arith(other, lambda a, b: a // b, swap=True)

    def __mod__(self, other: Any) -> Any:
        return self._arith(other, lambda a, b: a % b)

    def __rmod__(self, other: Any) -> Any:
        return self._arith(other, lambda a, b: a % b, swap=True)

    __radd__, __rmul__, __div__ = __add__, __mul__, __floordiv__

    def __truediv__(self, other: Any) -> Any:
        raise TypeError(
            f"unsupported operand type(s) for /: 'Dimension' and {type(other).__name__!r}, please use // instead"
        )

    def __rtruediv__(self, other: Any) -> Any:
        raise TypeError(
            f"unsupported operand type(s) for /: {type(other).__name__!r} and 'Dimension', please use // instead"
        )

    def _compare(self, other: Any, apply: Callable[..., Any]) -> Any:
        other_value = as_dimension(other)._value
        return None if self._value is None or other_value is None else apply(self._value, other_value)

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, lambda a, b: a < b)

    def __le__(self, other: Any) -> Any:
        return self._compare(other, lambda a, b: a <= b)

    def __gt__(self, other: Any) -> Any:
        return self._compare(other, lambda a, b: a > b)

    def __ge__(self, other: Any) -> Any:
        return self._compare(other, lambda a, b: a >= b)

    def __reduce__(self) -> tuple[Any, ...]:
        return Dimension, (self._value,)


def _index(value: Any) -> int:
    try:
        if isinstance(value, DType):
            raise TypeError
        size = int(value)
    except TypeError:
        raise TypeError(f"Dimension value must be integer or None or have an __index__ method, got {value!r}") from None
    if not isinstance(value, (str, bytes)) and size != value:
        raise ValueError(f"Ambiguous dimension: {value}")
    return size


def as_dimension(value: Any) -> Dimension:
    """Converts ``value`` to a `Dimension`."""
    return value if isinstance(value, Dimension) else Dimension(value)


@export("tf.dimension_value", "tf.compat.dimension_value")
def dimension_value(dimension: int | Dimension | None) -> int | None:
    """The size of a `Dimension` (None if unknown); other values unchanged (``tf.dimension_value``)."""
    return dimension.value if isinstance(dimension, Dimension) else dimension


# ---- Arithmetic of raw shapes, and ``tf.TensorShape`` --------------------------------------------------------------

RawShape = tuple[int | None, ...] | None


def merge_dims(a: int | None, b: int | None) -> int | None:
    """The size that both allow; raises ValueError if they differ."""
    if a is None:
        return b
    if b is None or a == b:
        return a
    raise ValueError(f"Dimensions must be equal, but are {a} and {b}")


def merge_raw(a: RawShape, b: RawShape) -> RawShape:
    """The shape with the known sizes of both.

    Raises:
      ValueError: when ranks or sizes differ.
    """
    if a is None:
        return b
    if b is None:
        return a
    if len(a) != len(b):
        raise ValueError(f"Shapes must be equal rank, but are {len(a)} and {len(b)}")
    return tuple(map(merge_dims, a, b))


def at_least_rank(shape: RawShape, rank: int) -> RawShape:
    """``shape`` if it can have that rank or more.

    Raises:
      ValueError: otherwise.
    """
    if shape is not None and len(shape) < rank:
        raise ValueError(f"Shape must be at least rank {rank} but is rank {len(shape)}")
    return shape


def at_most_rank(shape: RawShape, rank: int) -> RawShape:
    """``shape`` if it can have that rank or less.

    Raises:
      ValueError: otherwise.
    """
    if shape is not None and len(shape) > rank:
        raise ValueError(f"Shape must be at most rank {rank} but is rank {len(shape)}")
    return shape


def with_rank(shape: RawShape, rank: int) -> tuple[int | None, ...]:
    """``shape`` if it has that rank; unknown sizes if its rank is unknown.

    Raises:
      ValueError: when the rank is known and different.
    """
    if shape is None:
        return (None,) * rank
    if len(shape) != rank:
        raise ValueError(f"Shape must be rank {rank} but is rank {len(shape)}")
    return shape


def broadcast_raw(a: RawShape, b: RawShape) -> RawShape:
    """The shape of an element-wise operation on ``a`` and ``b`` (numpy's rule).

    Raises:
      ValueError: when the shapes cannot be broadcast together.
    """
    if a == b:
        return a if a is None or None not in a else tuple(a)
    if a is None or b is None:
        return None
    if len(a) < len(b):
        a, b = b, a
    head = len(a) - len(b)
    return a[:head] + tuple(map(_broadcast_dims, a[head:], b))


def _broadcast_dims(a: int | None, b: int | None) -> int | None:
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if a is None or b is None:
        # If one size is over 1, the unknown one is 1 or equal.
        return b if a is None else a
    raise ValueError(f"Dimensions must be equal, but are {a} and {b}")


def compatible_raw(a: RawShape, b: RawShape) -> bool:
    """Whether a fully known shape can match both."""
    if a is None or b is None or a == b:
        return True
    return len(a) == len(b) and all(x is None or y is None or x == y for x, y in zip(a, b))


def format_raw(shape: RawShape) -> str:
    """``[2,?]`` or ``<unknown>``, as TensorFlow's runtime prints shapes."""
    if shape is None:
        return "<unknown>"
    return "[" + ",".join("?" if d is None else str(d) for d in shape) + "]"


def num_elements_raw(shape: RawShape) -> int | None:
    """The number of elements, or None if a size is unknown."""
    if shape is None:
        return None
    total = 1
    for dim in shape:
        if dim is None:
            return None
        total *= dim
    return total


@export("tf.TensorShape")
class TensorShape:
    """A possibly partial static shape (``tf.TensorShape``).

    Args:
      dims: None (unknown rank), an int, a `TensorShape`, a TensorShapeProto, or a sequence of
        ints, None and `Dimension`.

    Shapes with unknown sizes are equal only if these are the same objects, as in TensorFlow 1: ``x.shape == x.shape``,
    but ``tf.TensorShape([None]) != tf.TensorShape([None])``. `is_compatible_with` and ``as_list()`` compare otherwise.
    """

    __slots__ = ("_raw", "_sizes")
    _v2_behavior = False  # sizes are `Dimension` objects, as in TensorFlow 1

    def __init__(self, dims: Any) -> None:
        sizes = list(dims) if isinstance(dims, Iterator) else dims
        self._raw: RawShape = as_raw(sizes)
        self._sizes: list[Dimension] | None = None
        if self._raw is not None and None in self._raw:  # others are equal by their numbers
            if isinstance(sizes, TensorShape):
                self._sizes = sizes.dims
            elif isinstance(sizes, (list, tuple)):
                self._sizes = [as_dimension(size) for size in sizes]

    @classmethod
    def from_raw(cls, raw: RawShape) -> TensorShape:
        """Wraps a raw shape without checking it."""
        shape = object.__new__(cls)
        shape._raw = raw
        shape._sizes = None
        return shape

    @property
    def raw(self) -> RawShape:
        """The shape as a plain tuple of ints and None; None for unknown rank."""
        return self._raw

    @property
    def dims(self) -> list[Dimension] | None:
        """The sizes as `Dimension` objects, or None for unknown rank."""
        if self._sizes is None and self._raw is not None:
            self._sizes = [Dimension(d) for d in self._raw]
        return self._sizes

    _dims = dims

    @property
    def ndims(self) -> int | None:
        """The rank, or None."""
        return None if self._raw is None else len(self._raw)

    rank = ndims

    def __repr__(self) -> str:
        return f"TensorShape({'None' if self._raw is None else self.dims})"

    def __str__(self) -> str:
        if self._raw is None:
            return "<unknown>"
        sizes = ["?" if d is None else str(d) for d in self._raw]
        return f"({sizes[0]},)" if len(sizes) == 1 else "(" + ", ".join(sizes) + ")"

    def __len__(self) -> int:
        if self._raw is None:
            raise ValueError("Cannot take the length of shape with unknown rank.")
        return len(self._raw)

    def __bool__(self) -> bool:
        return self._raw is not None

    __nonzero__ = __bool__

    def __iter__(self) -> Iterator[Dimension]:
        if self._raw is None:
            raise ValueError("Cannot iterate over a shape with unknown rank.")
        return iter(self.dims or ())

    def __getitem__(self, key: Any) -> Any:
        if self._raw is not None:
            return TensorShape((self.dims or [])[key]) if isinstance(key, slice) else (self.dims or [])[key]
        if not isinstance(key, slice):
            return Dimension(None)
        if key.step not in (None, 1) or key.stop is None or (key.start or 0) < 0 or key.stop < 0:
            return TensorShape(None)
        return TensorShape([None] * max(0, key.stop - (key.start or 0)))

    def __eq__(self, other: object) -> Any:
        try:
            shape = as_shape(other)
        except TypeError:
            return NotImplemented
        if self._raw is None or None not in self._raw or self._raw != shape._raw:
            return self._raw == shape._raw
        return all(a is b for a, b in zip(self.dims or (), shape.dims or ()) if a.value is None)

    def __ne__(self, other: object) -> Any:
        try:
            shape = as_shape(other)
        except TypeError:
            return NotImplemented
        if self._raw is None or shape._raw is None:
            raise ValueError("The inequality of unknown TensorShapes is undefined.")
        return not self == shape

    def __hash__(self) -> int:
        return hash(self._raw)

    def __add__(self, other: Any) -> TensorShape:
        return self.concatenate(other)

    def __radd__(self, other: Any) -> TensorShape:
        return TensorShape(other).concatenate(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorShape, (None if self._raw is None else list(self._raw),)

    def num_elements(self) -> int | None:
        """The number of elements, or None if the shape is not fully known."""
        return num_elements_raw(self._raw)

    def merge_with(self, other: Any) -> TensorShape:
        """The shape with the known sizes of both.

        Raises:
          ValueError: when the two are not compatible.
        """
        shape = as_shape(other)
        if self._raw is None:
            return shape
        try:
            return TensorShape.from_raw(merge_raw(self._raw, shape._raw))
        except ValueError:
            raise ValueError(f"Shapes {self} and {shape} are not compatible") from None

    def concatenate(self, other: Any) -> TensorShape:
        """This shape followed by ``other``; unknown rank if either is."""
        shape = as_shape(other)
        return TensorShape(None if self._raw is None or shape._raw is None else [*self, *shape])

    def with_rank(self, rank: int) -> TensorShape:
        """This shape if it can have that rank.

        Raises:
          ValueError: when its rank is known and different.
        """
        try:
            return TensorShape.from_raw(with_rank(self._raw, rank))
        except ValueError:
            raise ValueError(f"Shape {self} must have rank {rank}") from None

    def with_rank_at_least(self, rank: int) -> TensorShape:
        if self._raw is not None and len(self._raw) < rank:
            raise ValueError(f"Shape {self} must have rank at least {rank}")
        return self

    def with_rank_at_most(self, rank: int) -> TensorShape:
        if self._raw is not None and len(self._raw) > rank:
            raise ValueError(f"Shape {self} must have rank at most {rank}")
        return self

    def assert_has_rank(self, rank: int) -> None:
        if self._raw is not None and len(self._raw) != rank:
            raise ValueError(f"Shape {self} must have rank {rank}")

    def assert_same_rank(self, other: Any) -> None:
        raw = as_raw(other)
        if self._raw is not None and raw is not None and len(self._raw) != len(raw):
            raise ValueError(f"Shapes {self} and {TensorShape.from_raw(raw)} must have the same rank")

    def is_compatible_with(self, other: Any) -> bool:
        """Whether a fully known shape can match both."""
        return compatible_raw(self._raw, as_raw(other))

    def assert_is_compatible_with(self, other: Any) -> None:
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {TensorShape(other)} are incompatible")

    def most_specific_compatible_shape(self, other: Any) -> TensorShape:
        """The most specific shape that matches all shapes that either of the two matches."""
        raw = as_raw(other)
        if self._raw is None or raw is None or len(self._raw) != len(raw):
            return TensorShape(None)
        return TensorShape.from_raw(tuple(a if a == b else None for a, b in zip(self._raw, raw)))

    def is_fully_defined(self) -> bool:
        return self._raw is not None and None not in self._raw

    def assert_is_fully_defined(self) -> None:
        if not self.is_fully_defined():
            raise ValueError(f"Shape {self} is not fully defined")

    def as_list(self) -> list[int | None]:
        """The sizes as ints and None.

        Raises:
          ValueError: for unknown rank.
        """
        if self._raw is None:
            raise ValueError("as_list() is not defined on an unknown TensorShape.")
        return list(self._raw)

    def as_proto(self) -> Any:
        """The shape as a TensorShapeProto."""
        from tfmini import protos

        if self._raw is None:
            return protos.TensorShapeProto(unknown_rank=True)
        dims = [protos.TensorShapeProto.Dim(size=-1 if d is None else d) for d in self._raw]
        return protos.TensorShapeProto(dim=dims)


def as_raw(dims: Any) -> RawShape:
    """Converts anything that `TensorShape` accepts to the raw form.

    Raises:
      TypeError: when an element is no size.
      ValueError: when a size is negative.
    """
    if dims is None:
        return None
    if isinstance(dims, TensorShape):
        return dims._raw
    if hasattr(dims, "unknown_rank"):  # a TensorShapeProto, recognised without importing protobuf
        return None if dims.unknown_rank else tuple(None if d.size == -1 else d.size for d in dims.dim)
    if isinstance(dims, (str, bytes)):
        raise TypeError(f"A string is no shape: put it into a list, or convert it to an int. Got: {dims!r}")
    if isinstance(dims, (Dimension, int)) or not isinstance(dims, Sequence) and not hasattr(dims, "__iter__"):
        return (_raw_dim(dims),)
    return tuple(_raw_dim(d) for d in dims)


def _raw_dim(value: Any) -> int | None:
    if type(value) is int and value >= 0:
        return value
    return Dimension(value).value


def as_shape(shape: Any) -> TensorShape:
    """Converts ``shape`` to a `TensorShape`."""
    return shape if isinstance(shape, TensorShape) else TensorShape(shape)


def unknown_shape(ndims: int | None = None) -> TensorShape:
    """A shape of ``ndims`` unknown sizes, or of unknown rank."""
    return TensorShape(None if ndims is None else [None] * ndims)


def known_rank(shape: TensorShape, of: str) -> int:
    """The number of axes of a shape.

    Args:
      of: what has the shape, for the error.

    Raises:
      ValueError: it is unknown.
    """
    if shape.ndims is None:
        raise ValueError(f"The number of axes of {of} must be known; give the placeholder that it comes from a shape.")
    return shape.ndims


def scalar() -> TensorShape:
    return TensorShape([])


@export("tf.dimension_at_index", "tf.compat.dimension_at_index")
def dimension_at_index(shape: TensorShape, index: int) -> Dimension:
    """A dimension of a shape; unknown if the rank is unknown (``tf.dimension_at_index``)."""
    return Dimension(None) if shape.raw is None else Dimension(shape.raw[index])
