"""The optimizers' update ops: arithmetic against TensorFlow's, blocks, rows, errors, shapes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.ops.training import training_cases as cases
from tests.oracle import Oracle
from tfmini import dtypes
from tfmini.errors import FailedPreconditionError, InvalidArgumentError
from tfmini.graph import raw_ops
from tfmini.graph.graph import Graph
from tfmini.graph.op_types import GRADIENTS, OPS, WITHOUT_GRADIENT, kernel_for, op_names
from tfmini.numerics import update_rules
from tfmini.ops import training
from tfmini.ops.array.constant import constant
from tfmini.ops.array.identity import placeholder
from tfmini.ops.variables.state import VariableState

F32 = np.float32


def state(value: Any, name: str = "v") -> VariableState:
    array = np.asarray(value)
    made = VariableState(name, dtypes.as_dtype(array.dtype), array.shape)
    made.assign(array)
    return made


def kernel_of(op_type: str, attrs: dict[str, Any]) -> Any:
    """The op's kernel with its attrs bound."""
    kernel = kernel_for(op_type, "CPU")
    assert kernel is not None
    if kernel.is_factory:
        return kernel.function(SimpleNamespace(attrs=attrs))
    return lambda *values: kernel.function(*values, **{n: attrs[n] for n in kernel.bound})


def run_case(op_type: str, index: int, dtype: str) -> list[Any]:
    _, slots, scalars, attrs, _ = cases.CASES[index]
    sparse = "Sparse" in op_type
    states = [state(v) for v in cases.initial_values(index, dtype)]
    values = dict(zip(["var", *slots], states))
    values["indices"] = np.array(cases.ROWS, np.int32)
    for name, value in scalars.items():
        values[name] = np.int64(value) if name == "global_step" else np.dtype(dtype).type(value)
    kernel = kernel_of(op_type, attrs)
    names = [arg.name for arg in OPS[op_type].op_def.inputs]
    for grad in cases.gradients(index, sparse, dtype):
        values[cases.gradient_name(op_type)] = grad
        kernel(*[values[n] for n in names])
    return [s.read() for s in states]


@pytest.fixture(scope="module")
def expected(oracle: Oracle) -> Any:
    return oracle.call(cases.outcomes)


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_equal_tensorflows(expected: Any, dtype: str) -> None:
    tolerance = 2e-6 if dtype == "float32" else 1e-13
    for label, op_type, index in cases.variants():
        for array, wanted in zip(run_case(op_type, index, dtype), expected[f"{dtype}/{label}"], strict=True):
            assert array.dtype == dtype
            np.testing.assert_allclose(array, wanted, rtol=tolerance, atol=tolerance, err_msg=label)


@pytest.mark.parametrize("label,op_type,index", [v for v in cases.variants() if "Resource" not in v[1]])
def test_updates_in_blocks_equal_updates_at_once(
    label: str, op_type: str, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run_case(op_type, index, "float32")
    monkeypatch.setattr(update_rules, "BLOCK_ELEMENTS", 4)
    monkeypatch.setattr(update_rules, "WHOLE_ELEMENTS", 4)
    for a, b in zip(whole, run_case(op_type, index, "float32")):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [np.float16, dtypes.bfloat16.numpy])
def test_half_precision_variables_stay_in_half_precision(dtype: Any) -> None:
    var, accum = state(np.ones(3, dtype)), state(np.ones(3, dtype))
    half = np.dtype(dtype).type
    kernel_of("ApplyAdagrad", {"update_slots": True})(var, accum, half(0.5), np.ones(3, dtype))
    assert var.read().dtype == dtype
    np.testing.assert_allclose(var.read().astype(np.float32), 1 - 0.5 / np.sqrt(2), rtol=1e-2)


def test_a_scalar_variable_is_updated() -> None:
    var = state(F32(3.0))
    result = kernel_of("ApplyGradientDescent", {})(var, F32(0.5), F32(2.0))
    assert result is var
    assert var.read() == 2.0


def test_a_gradient_may_have_another_memory_order() -> None:
    var = state(np.zeros((400, 500), F32))
    grad = np.arange(200_000, dtype=F32).reshape(500, 400).T
    kernel_of("ApplyGradientDescent", {})(var, F32(1.0), grad)
    np.testing.assert_array_equal(var.read(), -grad)


def test_a_value_that_was_read_does_not_change() -> None:
    var = state(np.ones(2, F32))
    before = var.read()
    kernel_of("ApplyGradientDescent", {})(var, F32(1.0), np.ones(2, F32))
    np.testing.assert_array_equal(before, [1, 1])
    np.testing.assert_array_equal(var.read(), [0, 0])


def test_repeated_rows_are_updated_in_turn() -> None:
    var, accum = state(np.zeros((2, 1), F32)), state(np.zeros((2, 1), F32))
    grads = np.array([[1.0], [2.0], [3.0]], F32)
    kernel = kernel_of("SparseApplyMomentum", {"use_nesterov": False})
    kernel(var, accum, F32(1.0), grads, np.array([1, 1, 1]), F32(0.5))
    np.testing.assert_array_equal(accum.read(), [[0], [4.25]])
    np.testing.assert_array_equal(var.read(), [[0], [-(1 + 2.5 + 4.25)]])


def test_no_rows_change_nothing() -> None:
    var, accum = state(np.ones((2, 1), F32)), state(np.ones((2, 1), F32))
    kernel = kernel_of("SparseApplyAdagrad", {"update_slots": True})
    kernel(var, accum, F32(1.0), np.zeros((0, 1), F32), np.zeros(0, np.int32))
    np.testing.assert_array_equal(var.read(), [[1], [1]])


@pytest.mark.parametrize(
    "op_type,others,message",
    [
        ("ApplyAdagrad", [F32(0.1), np.ones(2, F32)], r"var and grad do not have the same shape\[3,2\] \[2\]"),
        ("ApplyAdagrad", [np.ones(1, F32), np.ones((3, 2), F32)], r"lr is not a scalar: \[1\]"),
        ("ResourceApplyAdagrad", [F32(0.1), np.ones(2, F32)], "var and grad do not have the same shape"),
        ("SparseApplyAdagrad", [F32(0.1), np.ones((2, 2), F32), np.array([0, 7])],
         "Index 7 at offset 1 in indices is out of range"),
        ("SparseApplyAdagrad", [F32(0.1), np.ones((1, 2), F32), np.array([-1])], "Index -1 at offset 0"),
        ("SparseApplyAdagrad", [F32(0.1), np.ones((1, 3), F32), np.array([0])],
         "var and grad must match in dimension 1"),
        ("SparseApplyAdagrad", [F32(0.1), np.ones((1, 2), F32), np.array([0, 1])],
         "grad must be the same size as indices in the first dimension."),
        ("SparseApplyAdagrad", [F32(0.1), np.ones((1, 2), F32), np.array([[0]])], "indices must be one-dimensional"),
    ],
)  # fmt: skip
def test_wrong_shapes_and_indices_fail_in_the_step(op_type: str, others: list[Any], message: str) -> None:
    var, accum = state(np.ones((3, 2), F32)), state(np.ones((3, 2), F32), "accum")
    with pytest.raises(InvalidArgumentError, match=message):
        kernel_of(op_type, {"update_slots": True})(var, accum, *others)
    np.testing.assert_array_equal(var.read(), np.ones((3, 2)))


def test_a_slot_of_another_shape_is_named() -> None:
    var, accum = state(np.ones(3, F32)), state(np.ones(2, F32), "v/Adagrad")
    with pytest.raises(InvalidArgumentError, match=r"var and v/Adagrad do not have the same shape\[3\] \[2\]"):
        kernel_of("ApplyAdagrad", {"update_slots": True})(var, accum, F32(1), np.ones(3, F32))


def test_an_uninitialised_slot_is_named() -> None:
    empty = VariableState("v/Momentum", dtypes.float32, (3,))
    var = state(np.ones(3, F32))
    with pytest.raises(FailedPreconditionError, match="Attempting to use uninitialized value v/Momentum"):
        kernel_of("ApplyMomentum", {"use_nesterov": False})(var, empty, F32(1), np.ones(3, F32), F32(1))
    np.testing.assert_array_equal(var.read(), [1, 1, 1])


def variable(shape: list[int]) -> Any:
    return raw_ops.VariableV2(shape=shape, dtype=dtypes.float32)


def test_static_shapes_are_merged_and_checked() -> None:
    with Graph().as_default():
        out = training.adagrad.dense(variable([3, 2]), variable([3, 2]), 0.1, placeholder(dtypes.float32))
        assert out.shape.as_list() == [3, 2]
        assert out.dtype != out.dtype.base_dtype
        with pytest.raises(ValueError, match="Shapes must be equal rank, but are 2 and 1"):
            training.adagrad.dense(variable([3, 2]), variable([3, 2]), 0.1, constant([1.0, 2.0]))
        with pytest.raises(ValueError, match=r"Dimension 1 in both shapes must be equal, but are 2 and 3"):
            training.gradient_descent.dense(variable([3, 2]), 0.1, constant(np.ones((3, 3), F32)))
        with pytest.raises(ValueError, match="Shape must be rank 0 but is rank 1"):
            training.gradient_descent.dense(variable([2]), [0.1], constant([1.0, 2.0]))


def test_static_shapes_of_rows_are_checked() -> None:
    with Graph().as_default():
        one_row = constant(np.ones((1, 2), F32))
        out = training.adagrad.sparse(variable([3, 2]), variable([3, 2]), 0.1, one_row, [0])
        assert out.shape.as_list() == [3, 2]
        with pytest.raises(ValueError, match="Dimensions must be equal, but are 2 and 1"):
            training.adagrad.sparse(variable([3, 2]), variable([3, 2]), 0.1, one_row, [0, 1])
        with pytest.raises(ValueError, match="Dimension 1 in both shapes must be equal, but are 2 and 3"):
            wide = constant(np.ones((2, 3), F32))
            training.adagrad.sparse(variable([3, 2]), variable([3, 2]), 0.1, wide, [0, 1])


def test_resource_ops_have_no_output() -> None:
    with Graph().as_default():
        handle = raw_ops.VarHandleOp(shape=[2], dtype=dtypes.float32)
        op = training.gradient_descent.resource_dense(handle, 0.1, constant([1.0, 2.0]))
        assert op.outputs == []
    assert kernel_of("ResourceApplyGradientDescent", {})(state(F32(1)), F32(1), F32(1)) == ()


def test_every_update_op_is_complete() -> None:
    names = [n for n in op_names() if "Apply" in n and "Accumulator" not in n]
    assert len(names) >= 48
    for name in names:
        assert name in WITHOUT_GRADIENT or GRADIENTS[name] is None
        assert OPS[name].shape_function is not None
        assert kernel_for(name, "CPU") is not None
