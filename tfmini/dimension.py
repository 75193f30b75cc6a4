"""``tf.Dimension``: one size of a shape, possibly unknown."""

from __future__ import annotations

from typing import Any

from tfmini.export import export


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

    def _arith(self, other: Any, apply: Any, swap: bool = False) -> Any:
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

    def _compare(self, other: Any, apply: Any) -> Any:
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
    if isinstance(value, str):
        return int(value)
    try:
        return int(value.__index__())
    except AttributeError:
        if isinstance(value, float) and value.is_integer():
            return int(value)
        raise TypeError(f"Dimension value must be integer or None or have an __index__ method, got {value!r}") from None


def as_dimension(value: Any) -> Dimension:
    """Converts ``value`` to a `Dimension`."""
    return value if isinstance(value, Dimension) else Dimension(value)


@export("tf.dimension_value", "tf.compat.dimension_value")
def dimension_value(dimension: Any) -> int | None:
    """The size of a `Dimension` (None if unknown); other values unchanged (``tf.dimension_value``)."""
    return dimension.value if isinstance(dimension, Dimension) else dimension
