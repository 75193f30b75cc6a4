"""Element types (``tf.DType``), each with its numpy type.

Numbers, names and groupings are TensorFlow's. ``bfloat16`` comes from ml_dtypes. Each type
has a reference type (``float32_ref``) whose number is 100 higher: the type of a ref variable's
output. All instances are interned, so identity is equality.
"""

from __future__ import annotations

import builtins
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from tfmini.export import export, export_names

if TYPE_CHECKING:  # names of ``tf.dtypes`` from other modules, which `tfmini.namespace` adds
    from tfmini._dtypes import *  # noqa: F403

_REF_OFFSET = 100
_PYTHON_TYPES = {"b": builtins.bool, "S": object}  # by kind: what `DType.as_numpy_dtype` is in place of NumPy's type


@export("tf.DType", "tf.dtypes.DType")
class DType:
    """The type of the elements of a `Tensor` (``tf.DType``)."""

    __slots__ = ("name", "as_datatype_enum", "_numpy", "_kind", "_twin", "size")

    name: str
    as_datatype_enum: int
    size: int
    _numpy: np.dtype[Any]
    _kind: str
    _twin: DType

    def __new__(cls, type_enum: int) -> DType:
        """Returns the interned type with a number (``tf.DType(enum)``)."""
        try:
            return _BY_ENUM[int(type_enum)]
        except (KeyError, ValueError):
            raise TypeError(f"type_enum is not a valid types_pb2.DataType: {type_enum!r}") from None

    @property
    def as_numpy_dtype(self) -> Any:
        """The numpy scalar type (``np.float32``); Python's ``bool`` for booleans and ``object`` for strings."""
        if self._kind in _PYTHON_TYPES:
            return _PYTHON_TYPES[self._kind]
        return self._numpy.type if self._numpy.fields is None else self._numpy

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype of arrays of this type."""
        return self._numpy

    @property
    def is_numpy_compatible(self) -> builtins.bool:
        return self._kind not in "RV"

    @property
    def base_dtype(self) -> DType:
        """The base type of a reference type; this type if it is none."""
        return self._twin if self._is_ref_dtype else self

    @property
    def real_dtype(self) -> DType:
        """The type of the real part, such as float32 for complex64; else the base type."""
        return _REAL.get(self.base_dtype, self.base_dtype)

    @property
    def _is_ref_dtype(self) -> builtins.bool:
        return self.as_datatype_enum > _REF_OFFSET

    @property
    def _as_ref(self) -> DType:
        """The reference type of this type."""
        return self if self._is_ref_dtype else self._twin

    @property
    def is_bool(self) -> builtins.bool:
        return self._kind == "b"

    @property
    def is_integer(self) -> builtins.bool:
        return self._kind in "iu"

    @property
    def is_unsigned(self) -> builtins.bool:
        return self._kind == "u"

    @property
    def is_floating(self) -> builtins.bool:
        return self._kind == "f"

    @property
    def is_complex(self) -> builtins.bool:
        return self._kind == "c"

    @property
    def is_quantized(self) -> builtins.bool:
        return self._kind == "q"

    @property
    def min(self) -> Any:
        """The smallest finite value.

        Raises:
          TypeError: for types without one.
        """
        return self._limit("min")

    @property
    def max(self) -> Any:
        """The largest finite value.

        Raises:
          TypeError: for types without one.
        """
        return self._limit("max")

    @property
    def limits(self) -> tuple[Any, Any]:
        """The smallest and largest value for image conversion: (0, 1) for floats."""
        if self.is_floating:
            return 0, 1
        return self.min, self.max

    def _limit(self, which: str) -> Any:
        scalar = self._numpy.type
        if self.is_floating:
            return getattr(ml_dtypes.finfo(self._numpy), which)
        if self.is_integer:
            return getattr(np.iinfo(scalar), which)
        if self.is_bool:
            return which == "max"
        raise TypeError(f"Cannot find {'maximum' if which == 'max' else 'minimum'} value of {self}.")

    def is_compatible_with(self, other: Any) -> builtins.bool:
        """Whether a tensor of type ``other`` can be used where this type is expected."""
        other = as_dtype(other)
        return self.as_datatype_enum in (other.as_datatype_enum, other.base_dtype.as_datatype_enum)

    def __eq__(self, other: object) -> builtins.bool:
        if self is other:
            return True
        if other is None or isinstance(other, DType):
            return False
        try:
            return as_dtype(other) is self
        except TypeError:
            return False

    def __ne__(self, other: object) -> builtins.bool:
        return not self == other

    def __hash__(self) -> int:
        return self.as_datatype_enum

    def __int__(self) -> int:
        return self.as_datatype_enum

    def __str__(self) -> str:
        return f"<dtype: {self.name!r}>"

    def __repr__(self) -> str:
        return f"tf.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return as_dtype, (self.name,)


_BY_ENUM: dict[int, DType] = {}
BY_NAME: dict[str, DType] = {}
_BY_NUMPY: dict[Any, DType] = {}


def _define(enum: int, name: str, numpy: Any, kind: str) -> DType:
    """Interns a type and its reference type. Kinds: b i u f c q, S string, R resource, V variant."""
    base, ref = object.__new__(DType), object.__new__(DType)
    for dtype, number, label, twin in ((base, enum, name, ref), (ref, enum + _REF_OFFSET, name + "_ref", base)):
        dtype.name, dtype.as_datatype_enum = label, number
        dtype._numpy, dtype._kind, dtype._twin = np.dtype(numpy), kind, twin
        dtype.size = 1 if kind in "SRV" else dtype._numpy.itemsize
        _BY_ENUM[number] = BY_NAME[label] = dtype
    if kind not in "RVq":
        _BY_NUMPY[base._numpy] = base
        _BY_NUMPY[base._numpy.type] = base
    return base


float32 = _define(1, "float32", np.float32, "f")
float64 = _define(2, "float64", np.float64, "f")
int32 = _define(3, "int32", np.int32, "i")
uint8 = _define(4, "uint8", np.uint8, "u")
int16 = _define(5, "int16", np.int16, "i")
int8 = _define(6, "int8", np.int8, "i")
string = _define(7, "string", np.object_, "S")
complex64 = _define(8, "complex64", np.complex64, "c")
int64 = _define(9, "int64", np.int64, "i")
bool = _define(10, "bool", np.bool_, "b")  # noqa: A001 - TensorFlow's name
qint8 = _define(11, "qint8", [("qint8", np.int8)], "q")
quint8 = _define(12, "quint8", [("quint8", np.uint8)], "q")
qint32 = _define(13, "qint32", [("qint32", np.int32)], "q")
bfloat16 = _define(14, "bfloat16", ml_dtypes.bfloat16, "f")
qint16 = _define(15, "qint16", [("qint16", np.int16)], "q")
quint16 = _define(16, "quint16", [("quint16", np.uint16)], "q")
uint16 = _define(17, "uint16", np.uint16, "u")
complex128 = _define(18, "complex128", np.complex128, "c")
float16 = _define(19, "float16", np.float16, "f")
resource = _define(20, "resource", np.object_, "R")
variant = _define(21, "variant", np.object_, "V")
uint32 = _define(22, "uint32", np.uint32, "u")
uint64 = _define(23, "uint64", np.uint64, "u")
half, double = float16, float64

_REAL = {complex64: float32, complex128: float64}
QUANTIZED_DTYPES = frozenset(d for q in (qint8, quint8, qint16, quint16, qint32) for d in (q, q._as_ref))

BY_NAME.update({"half": float16, "half_ref": float16._as_ref, "double": float64, "double_ref": float64._as_ref})
# The names of op declarations and of Python's own types.
BY_NAME.update({"float": float32, "float_ref": float32._as_ref})
_CPP_NAMES = {"float16": "half", "float32": "float", "float64": "double"}
_BY_PYTHON: dict[Any, DType] = {
    float: float32,
    builtins.bool: bool,
    object: string,
}


def cpp_name(dtype: DType | np.dtype[Any]) -> str:
    """The name of a type in TensorFlow's run-time messages: ``float`` for float32, ``half_ref`` for float16_ref."""
    base, ref, _ = dtype.name.partition("_ref")
    return _CPP_NAMES.get(base, base) + ref


@export("tf.as_dtype", "tf.dtypes.as_dtype")
def as_dtype(type_value: Any) -> DType:
    """Converts a name, number, numpy type, or float, bool or object to a `DType` (``tf.as_dtype``).

    Raises:
      TypeError: when there is no such type: also for int and str, and for numpy's names of types, as "i4".
    """
    if type(type_value) is DType:
        return type_value
    for table in (_BY_ENUM, BY_NAME, _BY_PYTHON, _BY_NUMPY):
        try:
            found = table.get(type_value)
        except TypeError:  # unhashable
            continue
        if found is not None:
            return found
    numpy_dtype = type_value if isinstance(type_value, np.dtype) else None
    if isinstance(type_value, type) and issubclass(type_value, np.number | np.character):
        with suppress(TypeError):  # of abstract ones
            numpy_dtype = np.dtype(type_value)
    if numpy_dtype is not None:
        if numpy_dtype.kind in "SU":
            return string
        if numpy_dtype.names and len(numpy_dtype.names) == 1 and numpy_dtype.names[0] in BY_NAME:
            return BY_NAME[numpy_dtype.names[0]]
        if numpy_dtype.newbyteorder("=") in _BY_NUMPY:
            return _BY_NUMPY[numpy_dtype.newbyteorder("=")]
    raise TypeError(f"Cannot convert value {type_value!r} to a TensorFlow DType.")


export_names(
    "tf tf.dtypes",
    "QUANTIZED_DTYPES bfloat16 bool complex128 complex64 double float16 float32 float64 half int16 int32 int64 int8 "
    "qint16 qint32 qint8 quint16 quint8 resource string uint16 uint32 uint64 uint8 variant",
)
