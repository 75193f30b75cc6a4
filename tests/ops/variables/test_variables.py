"""Variables, variable scopes and partitions: their nodes beside TensorFlow's, and what runs."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.stateful import run
from tests.ops.variables.variable_cases import CASES, outcome, outcomes
from tests.oracle import Oracle, sent
from tfmini import dtypes
from tfmini.graph import conversion, scoping
from tfmini.graph.graph import Graph
from tfmini.graph.operation import Tensor
from tfmini.ops.variables import base, initializers
from tfmini.ops.variables import functions as variables


@pytest.fixture(autouse=True)
def graph() -> Any:
    with Graph().as_default() as made:
        yield made


@pytest.fixture(scope="module")
def theirs(oracle: Oracle) -> Any:
    return oracle.call(outcomes)


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES)
def test_nodes_results_and_errors_are_tensorflows(case: str, theirs: Any, graph: Any) -> None:
    nodes, result, error = sent(outcome(tf, CASES[case], graph))
    assert error == theirs[case][2]
    assert result == theirs[case][1]
    assert nodes == theirs[case][0]


def test_variables_are_references_or_resources() -> None:
    reference, resource = tf.Variable(1.0, name="v"), tf.Variable(1.0, use_resource=True)
    assert isinstance(reference, tf.Variable) and isinstance(resource, tf.Variable)
    assert isinstance(reference, variables.RefVariable) and isinstance(resource, variables.ResourceVariable)
    assert repr(reference) == "<tf.Variable 'v:0' shape=() dtype=float32_ref>"
    base.enable_resource_variables()
    try:
        assert isinstance(tf.Variable(1.0), variables.ResourceVariable)
    finally:
        base.disable_resource_variables()
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        tf.Variable(1.0, nonsense=3)
    with pytest.raises(TypeError, match="not iterable"):
        iter(reference)
    with pytest.raises(TypeError, match="as a Python `bool`"):
        bool(resource)
    assert reference  # as in 1.15.5


@pytest.mark.parametrize("resource", [False, True])
def test_a_variable_can_be_used_as_a_tensor(resource: bool) -> None:
    v = tf.Variable([1.0, 2.0], use_resource=resource)
    run(v.initializer)
    assert run(tf.identity(v)).tolist() == [1.0, 2.0]
    assert v == v and v in {v} and len({v, tf.Variable(1.0)}) == 2  # noqa: PLR0124
    with pytest.raises(ValueError, match="Incompatible type conversion requested to type 'int32'"):
        tf.convert_to_tensor(v, dtypes.int32)
    if not resource:
        assert conversion.internal_convert(v, as_ref=True) is v.op.outputs[0]
    for operator in ("__add__", "__getitem__", "__radd__", "__matmul__", "__neg__"):
        assert hasattr(v, operator)
    assert isinstance(v.value(), Tensor)


@pytest.mark.parametrize("resource", [False, True])
def test_a_variable_is_made_again_from_its_proto(resource: bool, graph: Any) -> None:
    v = tf.get_variable("s/v", initializer=1.0, use_resource=resource, trainable=False)
    v._set_save_slice_info(tf.Variable.SaveSliceInfo("s/v", [4], [0], [2]))
    definition = v.to_proto()
    assert definition.variable_name == "s/v:0" and definition.is_resource is resource
    twin = tf.Variable.from_proto(definition)
    assert type(twin) is type(v) and not twin.trainable
    assert (twin.name, twin.initializer, twin.initial_value, graph.as_graph_element(twin)) == (
        v.name, v.initializer, v.initial_value, graph.as_graph_element(v),
    )  # fmt: skip
    assert twin._get_save_slice_info().spec == "4 0,2"
    assert v.to_proto("s").variable_name == "v:0" and v.to_proto("other") is None
    assert tf.Variable.from_proto(v.to_proto("s"), import_scope="s").op is v.op


def test_uninitialized_variables_are_reported() -> None:
    v, w = tf.Variable(1.0, name="v"), tf.Variable(1.0, name="w", use_resource=True)
    report = tf.report_uninitialized_variables()
    assert run(report).tolist() == [b"v", b"w"]
    run(v.initializer)
    assert run(report).tolist() == [b"w"]
    run(tf.global_variables_initializer())
    assert run(report).tolist() == []
    assert run(tf.report_uninitialized_variables([])).shape == (0,)
    assert run(tf.assert_variables_initialized([v, w])).tolist() == [0, 0]
    assert tf.assert_variables_initialized([v]).op.type == "Rank"


def test_resource_assignments_chain_in_order() -> None:
    v = tf.Variable(1.0, use_resource=True)
    with tf.Session() as session:
        session.run(v.initializer)
        assert session.run(v.assign(2.0).assign_add(3.0).assign_sub(1.0)) == 4.0
    with pytest.raises(RuntimeError, match="assign_add"):
        v += 1.0


def test_a_partitioned_variable_is_read_and_assigned_as_a_whole() -> None:
    v = tf.get_variable("p", [5, 2], initializer=tf.ones_initializer(), partitioner=tf.fixed_size_partitioner(2))
    run([part.initializer for part in v])
    assert run(tf.convert_to_tensor(v)).tolist() == [[1, 1]] * 5
    run(v.assign_add(np.arange(10, dtype=np.float32).reshape(5, 2)))
    assert run(v.as_tensor()).tolist() == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]
    with tf.variable_scope("", reuse=True):
        assert tf.get_variable("p", [5, 2]) is v
    with pytest.raises(NotImplementedError, match="reference"):
        conversion.internal_convert(v, as_ref=True)


def test_a_duplicate_name_is_refused_with_the_line_of_the_first() -> None:
    tf.get_variable("w", initializer=1.0)
    with pytest.raises(ValueError, match=r"Variable w already exists, disallowed\.(?s:.*)test_variables\.py"):
        tf.get_variable("w", initializer=1.0)
    with tf.variable_scope("", reuse=tf.AUTO_REUSE):
        assert tf.get_variable("w") is tf.get_variable("w")


def test_scopes_apply_regularizers_and_creators() -> None:
    with tf.variable_scope("a", regularizer=lambda v: tf.identity(v, name="loss")):
        tf.get_variable("w", initializer=1.0)
        tf.get_variable("u", initializer=1.0, regularizer=tf.no_regularizer)
        tf.get_variable("v", initializer=1.0, regularizer={})  # as libraries write it for none
    assert [t.name for t in scoping.get_collection("regularization_losses")] == ["a/w/Regularizer/loss:0"]

    def untrainable(following: Any, **kwargs: Any) -> Any:
        return following(**{**kwargs, "trainable": False})

    with tf.variable_creator_scope(untrainable):
        assert not tf.Variable(1.0).trainable


def test_initializers_have_their_values_and_configs() -> None:
    assert run(initializers.Identity(2.0)([2, 3])).tolist() == [[2, 0, 0], [0, 2, 0]]
    with pytest.raises(ValueError, match="only be used for 2D"):
        initializers.Identity()([2])
    uniform = run(initializers.GlorotUniform(seed=1)([30, 20]))
    limit = np.sqrt(6 / 50)
    assert np.abs(uniform).max() <= limit and np.abs(uniform).max() > 0.9 * limit
    normal = run(initializers.he_normal(seed=1)([3, 3, 20, 20]))
    assert np.isclose(normal.std(), np.sqrt(2 / 180), rtol=0.1)
    config = initializers.RandomNormal(stddev=2.0, seed=1).get_config()
    assert initializers.RandomNormal.from_config(config).get_config() == config
    with pytest.raises(ValueError, match="Expected floating point type"):
        initializers.RandomNormal(dtype=dtypes.int32)


def test_a_getter_gets_the_default_kinds_and_local_variables_have_the_same_arguments() -> None:
    seen = []

    def with_kinds(getter: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append((kwargs["synchronization"], kwargs["aggregation"]))
        return getter(*args, **kwargs)

    with tf.variable_scope("scope", custom_getter=with_kinds):
        tf.get_variable("v", [1])
    assert seen == [(tf.VariableSynchronization.AUTO, tf.VariableAggregation.NONE)]
    assert inspect.signature(tf.get_local_variable) == inspect.signature(tf.get_variable)


def test_numbers_of_numpy_that_meet_a_variable_are_told_how_to_be_cast() -> None:
    w = tf.get_variable("w", [2, 2])
    told = r"for variable of type 'float32_ref'. The variable is 'w:0'; cast what it meets: .*x.astype\(np.float32\)"
    with pytest.raises(ValueError, match=told):
        tf.matmul(np.zeros((2, 2)), w)


def test_the_last_op_of_the_orthogonal_initializer_has_the_name_of_tensorflow() -> None:
    weights = tf.get_variable("orthogonal", [3, 3], initializer=tf.orthogonal_initializer())
    assert weights.initializer.inputs[1].name == "orthogonal/Initializer/mul_1:0"


def test_the_identity_initializer_has_the_ops_of_tensorflow_and_the_parts_of_the_matrix() -> None:
    with tf.Graph().as_default() as graph:
        tf.initializers.identity(2.0)([3, 3])
        assert [op.name for op in graph.get_operations()] == ["eye/ones", "eye/diag", "mul/x", "mul"]
        whole = tf.get_variable(
            "v", [3, 4], initializer=tf.initializers.identity(2.0), partitioner=tf.fixed_size_partitioner(2)
        )
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            assert session.run(tf.convert_to_tensor(whole)).tolist() == (2 * np.eye(3, 4)).tolist()
