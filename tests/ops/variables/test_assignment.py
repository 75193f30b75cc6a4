"""The ops on variables: assignment, counting, scatter updates and gathers, by reference and by handle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.stateful import run
from tfmini import dtypes
from tfmini.errors import FailedPreconditionError, InternalError, InvalidArgumentError, OutOfRangeError
from tfmini.graph.conversion import IndexedSlices
from tfmini.graph.graph import Graph
from tfmini.ops.array.constant import constant
from tfmini.ops.variables import assignment as tf
from tfmini.ops.variables import resource_ops as state_resource
from tfmini.ops.variables.functions import Variable
from tfmini.runtime.resources import ResourceManager

both_kinds = pytest.mark.parametrize("resource", [False, True])


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with Graph().as_default():
        yield


def _made(value: Any, resource: bool, **kwargs: Any) -> Any:
    variable: Any = Variable(value, name="v", use_resource=resource, **kwargs)
    run(variable.initializer)
    return variable


@both_kinds
def test_assignments_give_the_new_value(resource: bool) -> None:
    v = _made([1.0, 2.0], resource)
    assert run(tf.assign(v, [3.0, 4.0])).tolist() == [3, 4]
    assert run(tf.assign_add(v, [1.0, 1.0])).tolist() == [4, 5]
    assert run(v.assign_sub([2.0, 2.0])).tolist() == [2, 3]
    run(v.assign([0.0, 0.0], read_value=False))
    assert run(v.read_value()).tolist() == [0, 0] and run(v).tolist() == [0, 0]


@both_kinds
def test_a_variable_is_readable_once_it_is_initialized(resource: bool) -> None:
    v: Any = Variable(1.0, name="v", use_resource=resource)
    assert not run(tf.is_variable_initialized(v))
    message = (
        "Error while reading resource variable v from Container: localhost" if resource else "uninitialized value v"
    )
    with pytest.raises(FailedPreconditionError, match=message):
        run(v.read_value())
    run(v.initializer)
    assert run(v.is_initialized())


@both_kinds
def test_count_up_to_counts_to_its_limit(resource: bool) -> None:
    counter = _made(0, resource)
    count = counter.count_up_to(3)
    assert [run(count) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OutOfRangeError, match="Reached limit of 3"):
        run(count)


def test_assignments_of_another_shape_are_refused() -> None:
    v = _made([1.0, 2.0], False)
    with pytest.raises(ValueError, match="Dimension 0 in both shapes must be equal, but are 2 and 3"):
        v.assign([1.0, 2.0, 3.0])
    assert run(tf.assign(v, [1.0, 2.0, 3.0], validate_shape=False)).shape == (3,)
    with pytest.raises(ValueError, match="incompatible"):
        _made([1.0, 2.0], True).assign([1.0])


def test_a_second_variable_of_the_same_name_must_have_the_same_type() -> None:
    resources = ResourceManager("localhost")
    from tfmini.graph.op_types import kernel_for
    from tfmini.graph.operation import node_of

    def bind(dtype: dtypes.DType) -> Any:
        with Graph().as_default():
            node = node_of(tf.variable_op([2], dtype, name="v").op)
        kernel = kernel_for("VariableV2", "CPU")
        assert kernel is not None
        return kernel.function(resources, container=b"", shared_name=b"", node=node, dtype=dtype, shape=(2,))

    assert bind(dtypes.float32) is bind(dtypes.float32)
    with pytest.raises(InternalError, match="Output 0 of type float_ref does not match"):
        bind(dtypes.int32)


OPERATIONS = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
    "min": min, "max": max, "update": lambda a, b: b,
}  # fmt: skip


@both_kinds
@pytest.mark.parametrize("operation", OPERATIONS)
def test_scatter_updates_rows_in_order(operation: str, resource: bool) -> None:
    v = _made(np.arange(6.0).reshape(3, 2), resource)
    delta = IndexedSlices(constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtypes.float64), constant([2, 0, 2]))
    expected = np.arange(6.0).reshape(3, 2)
    for row, update in ((2, (1.0, 2.0)), (0, (3.0, 4.0)), (2, (5.0, 6.0))):
        for k in range(2):
            expected[row, k] = OPERATIONS[operation](expected[row, k], update[k])
    assert np.allclose(run(getattr(v, f"scatter_{operation}")(delta)), expected)


@both_kinds
def test_scatter_refuses_indices_out_of_range(resource: bool) -> None:
    v = _made([1.0, 2.0, 3.0], resource)
    with pytest.raises(InvalidArgumentError, match=r"indices\[0\] = 5 is not in \[0, 3\)"):
        run(tf.scatter_add(v, [5], [1.0]))
    with pytest.raises(InvalidArgumentError, match=r"indices\[1\] = \[-1\] does not index into shape \[3\]"):
        run(tf.scatter_nd_add(v, [[0], [-1]], [1.0, 1.0]))
    assert run(v).tolist() == [1, 2, 3]
    with pytest.raises(TypeError, match="is not IndexedSlices"):
        v.scatter_add(3)


@both_kinds
def test_scatter_nd_updates_elements(resource: bool) -> None:
    v = _made(np.zeros((2, 3), np.float32), resource)
    assert run(tf.scatter_nd_update(v, [[0, 1], [1, 2]], [5.0, 6.0])).tolist() == [[0, 5, 0], [0, 0, 6]]
    assert run(tf.scatter_nd_add(v, [[1], [1]], [[1.0, 1.0, 1.0]] * 2)).tolist() == [[0, 5, 0], [2, 2, 8]]
    assert run(v.scatter_nd_sub([[1, 2]], [8.0])).tolist() == [[0, 5, 0], [2, 2, 0]]


def test_parts_of_a_resource_variable_can_be_read() -> None:
    v = _made(np.arange(12.0).reshape(3, 4), True)
    assert run(v.sparse_read([2, 0])).tolist() == [[8, 9, 10, 11], [0, 1, 2, 3]]
    assert run(v.gather_nd([[1, 1], [2, 3]])).tolist() == [5, 11]
    assert run(state_resource.variable_shape(v.handle)).tolist() == [3, 4]
    with pytest.raises(InvalidArgumentError, match=r"indices\[1\] = 3 is not in \[0, 3\)"):
        run(v.sparse_read([0, 3]))
    batched = state_resource.resource_gather(v.handle, [[1], [0], [2]], batch_dims=1, dtype=dtypes.float64)
    assert run(batched).tolist() == [[1], [4], [10]] and batched.shape.as_list() == [3, 1]


def test_destroyed_variables_are_uninitialised() -> None:
    v = _made(1.0, True)
    run(state_resource.destroy_resource(v.handle))
    assert not run(v.is_initialized())


def test_reads_and_assignments_of_the_wrong_type_are_refused() -> None:
    v = _made(1.0, True)
    with pytest.raises(ValueError, match="Trying to read variable with wrong dtype. Expected float got int32"):
        state_resource.read_variable(v.handle, dtype=dtypes.int32)
    with pytest.raises(ValueError, match="handle for variable with wrong dtype. Expected float got int32"):
        state_resource.assign_variable(v.handle, 1)


@pytest.mark.parametrize("method", ["assign", "assign_add", "assign_sub"])
@pytest.mark.parametrize("use_resource", [True, False])
def test_an_assignment_outside_of_its_graph_belongs_to_the_variables(use_resource: bool, method: str) -> None:
    with Graph().as_default() as graph:
        v = Variable(1.0, use_resource=use_resource)
    with Graph().as_default() as other:
        assigned = getattr(v, method)(2.0)
    assert assigned.graph is graph and not other.get_operations()


@pytest.mark.parametrize("assign", [tf.assign, tf.assign_add, tf.assign_sub])
def test_only_variables_have_the_methods_of_an_assignment(assign: Any) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{assign.__name__}'"):
        assign(constant(1.0), 2.0)
