"""The assertions of ``tf.test.TestCase`` about arrays, tensors, protos and errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
from absl.testing import absltest

from tfmini import errors
from tfmini.core_types import DTypeLike, TensorLike
from tfmini.devices import canonical_name
from tfmini.graph.conversion import IndexedSlices
from tfmini.graph.graph_def import GRAPH_DEF_VERSION
from tfmini.graph.operation import Tensor
from tfmini.ops.composites import SparseTensor
from tfmini.ops.variables.base import Variable

_SYMBOLIC = (Tensor, Variable, SparseTensor, IndexedSlices)


def _holds_symbols(items: Iterable[Any]) -> bool:
    return any(
        isinstance(item, _SYMBOLIC) or (isinstance(item, (list, tuple)) and _holds_symbols(item)) for item in items
    )


def _are_same(a: Any, b: Any) -> bool:
    """Whether two lists hold the same objects, tensors above all: they are equal, whatever their values are."""
    are_lists = all(isinstance(items, (list, tuple)) for items in (a, b)) and len(a) == len(b)
    return are_lists and all(x is y or _are_same(x, y) for x, y in zip(a, b))


class Assertions(absltest.TestCase):
    """Assertions of a test case. Tensors are evaluated first, by `evaluate` of the subclass."""

    def evaluate(self, tensors: TensorLike) -> Any:
        """The values of tensors."""
        raise NotImplementedError

    def _GetNdArray(self, a: TensorLike) -> np.ndarray:
        if isinstance(a, _SYMBOLIC):
            a = self.evaluate(a)
        if isinstance(a, (list, tuple)) and _holds_symbols(a):
            a = [self._GetNdArray(item) for item in a]
        try:
            return a if isinstance(a, np.ndarray) else np.array(a)
        except ValueError:  # lists of unequal lengths, such as shapes: NumPy of the time made objects of them
            return np.array(a, object)

    def _fail_at(self, claim: str, msg: str | None, a: np.ndarray, b: np.ndarray, wrong: np.ndarray) -> NoReturn:
        where = np.argwhere(wrong)
        first = tuple(int(i) for i in where[0]) if wrong.ndim else ()
        self.fail(
            f"{claim}: {len(where) if wrong.ndim else 1} of {wrong.size} values differ, first at {first}:"
            f" {a[first]!r} and {np.broadcast_to(b, a.shape)[first]!r}.{_also(msg)}"
        )

    def _same_shape(self, a: np.ndarray, b: np.ndarray, msg: str | None) -> None:
        if a.shape != b.shape:
            self.fail(f"Shape mismatch: expected {a.shape}, got {b.shape}.{_also(msg)}")

    def assertAllEqual(self, a: TensorLike, b: TensorLike, msg: str | None = None) -> None:
        """Asserts equal shapes and values; NaNs are equal to each other."""
        if _are_same(a, b):
            return
        a, b = self._GetNdArray(a), self._GetNdArray(b)
        self._same_shape(a, b, msg)
        same = np.asarray(a == b)
        if a.dtype.kind in "fcV" and b.dtype.kind in "fcV":
            same = same | ((a != a) & (b != b))
        if not np.all(same):
            self._fail_at("Arrays are not equal", msg, a, b, ~same)

    def assertNotAllEqual(self, a: TensorLike, b: TensorLike, msg: str | None = None) -> None:
        """Asserts that the shapes or at least one value differ."""
        try:
            self.assertAllEqual(a, b)
        except AssertionError:
            return
        self.fail(f"The two values are equal at all elements.{_also(msg)}")

    def assertAllClose(self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: str | None = None) -> None:
        """Asserts ``|a - b| <= atol + rtol * |b|`` for all elements, also in dicts, tuples and lists."""
        if hasattr(a, "_asdict"):
            a = a._asdict()
        if hasattr(b, "_asdict"):
            b = b._asdict()
        if isinstance(a, Mapping) or isinstance(b, Mapping):
            self.assertEqual(set(a), set(b), msg)
            for key in a:
                self.assertAllClose(a[key], b[key], rtol, atol, f"{msg or ''}[{key!r}]")
        elif isinstance(a, (list, tuple)) and not _is_array(a):
            self.assertEqual(len(a), len(b), msg)
            for i, (x, y) in enumerate(zip(a, b)):
                self.assertAllClose(x, y, rtol, atol, f"{msg or ''}[{i}]")
        else:
            self._assertArraysClose(self._GetNdArray(a), self._GetNdArray(b), rtol, atol, msg)

    def _assertArraysClose(self, a: np.ndarray, b: np.ndarray, rtol: float, atol: float, msg: str | None) -> None:
        self._same_shape(a, b, msg)
        # NumPy cannot compute with bfloat16.
        a, b = (x.astype(np.float32) if x.dtype.kind == "V" or x.dtype.name == "bfloat16" else x for x in (a, b))
        close = np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
        if not np.all(close):
            self._fail_at(f"Not equal to tolerance rtol={rtol}, atol={atol}", msg, a, b, np.asarray(~close))

    def assertNotAllClose(self, a: TensorLike, b: TensorLike, **kwargs: Any) -> None:
        """Asserts that at least one value is not close."""
        try:
            self.assertAllClose(a, b, **kwargs)
        except AssertionError:
            return
        self.fail("The two values are close at all elements")

    def assertAllCloseAccordingToType(
        self,
        a: TensorLike,
        b: TensorLike,
        rtol: float = 1e-6,
        atol: float = 1e-6,
        float_rtol: float = 1e-6,
        float_atol: float = 1e-6,
        half_rtol: float = 1e-3,
        half_atol: float = 1e-3,
        bfloat16_rtol: float = 1e-2,
        bfloat16_atol: float = 1e-2,
        msg: str | None = None,
    ) -> None:
        """`assertAllClose`, with the tolerances of the coarser of the two types."""
        a, b = self._GetNdArray(a), self._GetNdArray(b)
        names = {a.dtype.name, b.dtype.name}
        for kinds, r, t in (
            ({"float32", "complex64"}, float_rtol, float_atol),
            ({"float16"}, half_rtol, half_atol),
            ({"bfloat16"}, bfloat16_rtol, bfloat16_atol),
        ):
            if names & kinds:
                rtol, atol = max(rtol, r), max(atol, t)
        self.assertAllClose(a, b, rtol, atol, msg)

    def _assertAll(self, a: TensorLike, holds: Callable[[np.ndarray], Any], claim: str) -> None:
        values = self._GetNdArray(a)
        wrong = ~np.asarray(holds(values))
        if np.any(wrong):
            self.fail(f"Not {claim} at {np.argwhere(wrong)[:10].tolist()}: {values[wrong].ravel()[:10]}")

    def assertAllGreater(self, a: TensorLike, comparison_target: object) -> None:
        self._assertAll(a, lambda v: v > comparison_target, f"> {comparison_target}")

    def assertAllLess(self, a: TensorLike, comparison_target: object) -> None:
        self._assertAll(a, lambda v: v < comparison_target, f"< {comparison_target}")

    def assertAllGreaterEqual(self, a: TensorLike, comparison_target: object) -> None:
        self._assertAll(a, lambda v: v >= comparison_target, f">= {comparison_target}")

    def assertAllLessEqual(self, a: TensorLike, comparison_target: object) -> None:
        self._assertAll(a, lambda v: v <= comparison_target, f"<= {comparison_target}")

    def assertAllInRange(
        self,
        target: TensorLike,
        lower_bound: object,
        upper_bound: object,
        open_lower_bound: bool = False,
        open_upper_bound: bool = False,
    ) -> None:
        """Asserts that every value is between the bounds; an open bound is excluded."""

        def inside(v: np.ndarray) -> Any:
            low = v > lower_bound if open_lower_bound else v >= lower_bound
            return low & (v < upper_bound if open_upper_bound else v <= upper_bound)

        self._assertAll(target, inside, f"in the range {lower_bound} to {upper_bound}")

    def assertAllInSet(self, target: TensorLike, expected_set: Iterable[Any]) -> None:
        """Asserts that every value is in the set."""
        self._assertAll(target, lambda v: np.isin(v, list(expected_set)), f"in {expected_set}")

    def assertDTypeEqual(self, target: TensorLike, expected_dtype: DTypeLike) -> None:
        self.assertEqual(self._GetNdArray(target).dtype, expected_dtype)

    def assertShapeEqual(self, np_array: np.ndarray[Any, Any], tf_tensor: Any, msg: str | None = None) -> None:
        """Asserts that the static shape of a tensor equals the shape of an array."""
        self.assertAllEqual(np_array.shape, tf_tensor.get_shape().as_list(), msg)

    def assertNear(self, f1: float, f2: float, err: float, msg: str | None = None) -> None:
        self.assertTrue(f1 == f2 or abs(f1 - f2) <= err, f"{f1} != {f2} +/- {err}{_also(msg)}")

    def assertArrayNear(
        self,
        farray1: Sequence[Any] | np.ndarray[Any, Any],
        farray2: Sequence[Any] | np.ndarray[Any, Any],
        err: float,
        msg: str | None = None,
    ) -> None:
        self.assertEqual(len(farray1), len(farray2), msg)
        for f1, f2 in zip(farray1, farray2):
            self.assertNear(float(f1), float(f2), err, msg)

    def assertNDArrayNear(self, ndarray1: object, ndarray2: object, err: float, msg: str | None = None) -> None:
        """Asserts that the norm of the difference is below ``err``."""
        self.assertLess(float(np.linalg.norm(np.asarray(ndarray1) - np.asarray(ndarray2))), err, msg)

    @contextmanager
    def assertRaisesWithPredicateMatch(  # type: ignore[override] # TensorFlow's has other arguments than absl's
        self, exception_type: type[BaseException], expected_err_re_or_predicate: str | Callable[..., Any]
    ) -> Iterator[None]:
        """Asserts that the block raises an error that (with the op's name) matches the expression or predicate."""
        try:
            yield
        except exception_type as error:
            wanted = expected_err_re_or_predicate
            found = wanted(error) if callable(wanted) else re.search(wanted, _text_of(error))
            if not found:
                raise AssertionError(f"{type(error).__name__} does not match {wanted!r}: {error}") from error
        else:
            self.fail(f"{getattr(exception_type, '__name__', exception_type)} not raised")

    def assertRaisesOpError(self, expected_err_re_or_predicate: str | Callable[..., Any]) -> Any:
        return self.assertRaisesWithPredicateMatch(errors.OpError, expected_err_re_or_predicate)

    def assertProtoEquals(self, expected_message_maybe_ascii: Any, message: Any, msg: str | None = None) -> None:
        """Asserts that two messages are equal; the first may be text."""
        from google.protobuf import text_format  # `import tfmini` must not import protobuf

        expected = expected_message_maybe_ascii
        if isinstance(expected, (str, bytes)):
            expected = text_format.Merge(expected, type(message)())
        self.assertEqual(text_format.MessageToString(expected), text_format.MessageToString(message), msg)

    def assertProtoEqualsVersion(
        self,
        expected: str,
        actual: object,
        producer: int = GRAPH_DEF_VERSION,
        min_consumer: int = 0,
        msg: str | None = None,
    ) -> None:
        """`assertProtoEquals` with a ``versions`` field added to the expected text."""
        consumer = f" min_consumer: {min_consumer}" if min_consumer else ""
        self.assertProtoEquals(f"versions {{ producer: {producer}{consumer} }}\n{expected}", actual, msg)

    def assertStartsWith(self, actual: str, expected_start: str, msg: str | None = None) -> None:
        self.assertTrue(actual.startswith(expected_start), f"{actual!r} does not start with {expected_start!r}")

    def assertDeviceEqual(self, device1: str | None, device2: str | None, msg: str | None = None) -> None:
        self.assertEqual(canonical_name(device1), canonical_name(device2), msg)

    def assertItemsEqual(self, expected_seq: Iterable[Any], actual_seq: Iterable[Any], msg: str | None = None) -> None:
        self.assertCountEqual(expected_seq, actual_seq, msg)

    def assertRaisesRegexp(  # type: ignore[override] # gone from Python 3.12
        self, expected_exception: type[BaseException], expected_regexp: str, *args: object, **kwargs: object
    ) -> Any:
        return self.assertRaisesRegex(expected_exception, expected_regexp, *args, **kwargs)


def _also(msg: str | None) -> str:
    return f" {msg}" if msg else ""


def _is_array(value: Any) -> bool:
    try:
        return not any(isinstance(v, _SYMBOLIC) for v in value) and np.array(value).dtype != object
    except ValueError:  # rows of different lengths
        return False


def _text_of(error: BaseException) -> str:
    if not isinstance(error, errors.OpError):
        return str(error)
    return error.message + (f"\nCaused by op: {error.op.name}" if error.op is not None else "")
