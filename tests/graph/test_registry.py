"""What the registry promises of the rules that ops attach."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.graph.node import Node
from tfmini.graph.op_types import OPS, load_ops
from tfmini.ops.math import broadcast, sums
from tfmini.runtime.compiler.kernels import make_callable, op_facts

SIZES = [(), (1,), (3,), (2, 3), (2, 1), (0, 3), (4, 1, 3)]
TYPES = [tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64, tf.complex64]


def some(shape: tuple[int, ...], dtype: Any) -> Any:
    values = np.arange(1, 1 + np.prod(shape, dtype=int)).reshape(shape) % 7 + 1
    return values.astype(dtype.numpy)[()]


def inputs_of(op: str, dtype: Any) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Attrs and inputs to try with an op."""
    if op == "Fill":
        yield from (({"T": dtype}, [np.array(shape, np.int32), some((), dtype)]) for shape in SIZES)
        yield {"T": dtype}, [np.array([-1], np.int32), some((), dtype)]
    elif op == "MatMul":
        for a, b, m, n in itertools.product((False, True), (False, True), (3, 90), (5, 3)):
            left, right = ((m, 90) if a else (90, m)), ((90, 90) if b else (m, 90))
            attrs = {"T": dtype, "transpose_a": a, "transpose_b": b}
            yield attrs, [some(left, dtype), some(right, dtype)]
            yield attrs, [some((n, 3), dtype), some((3, n), dtype)]
    elif op in ("AddN", "AccumulateNV2"):
        for shape, count in itertools.product(SIZES, (1, 2, 3)):
            yield {"T": dtype, "N": count}, [[some(shape, dtype) + some((), dtype) for _ in range(count)]]
    elif len(OPS[op].op_def.inputs) == 1:
        yield from (({"T": dtype}, [some(shape, dtype)]) for shape in SIZES)
    else:
        yield from (({"T": dtype}, [some(a, dtype), some(b, dtype)]) for a, b in itertools.product(SIZES, SIZES))


def outcome(function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:  # noqa: BLE001 - it is compared
        return type(error), str(error)


load_ops()
WITH_RULE = sorted(name for name, handle in OPS.items() if handle.into_rule is not None)


def test_the_ops_whose_results_are_sent_large_have_a_rule() -> None:
    assert {"Add", "AddN", "AddV2", "Fill", "MatMul", "Mul", "Neg", "RealDiv", "Sub"} <= set(WITH_RULE)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("op", WITH_RULE)
def test_a_result_computed_into_given_memory_is_the_kernels(
    op: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (broadcast, sums):
        monkeypatch.setattr(module, "INTO_FROM", 0)  # these arrays are small
    handle, facts = OPS[op], op_facts(op, "CPU")
    assert facts is not None and handle.into_rule is not None
    if dtype.as_datatype_enum not in {d.as_datatype_enum for d in allowed(op)}:
        pytest.skip("the op does not have this type")
    for attrs, values in inputs_of(op, dtype):
        node = Node("n", op, "/device:CPU:0", attrs=attrs)
        function, given = handle.into_rule(node), []

        def new(shape: tuple[int, ...], of: Any, given: list[Any] = given) -> Any:
            given.append(np.full(shape, 77, of))
            return given[-1]

        if function is None:
            return
        expected, found = outcome(make_callable(facts.kernel, node), *values), outcome(function, new, *values)
        if isinstance(expected, tuple):
            assert found == expected
            continue
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes()
        assert not given or found is given[0]
        assert given or not found.ndim or op in ("AddN", "AccumulateNV2") and len(values[0]) == 1


def allowed(op: str) -> Any:
    return OPS[op].op_def.attrs["T"].allowed or TYPES
