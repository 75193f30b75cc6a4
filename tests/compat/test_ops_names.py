"""Names without a public one that libraries import from the modules of ops and of the framework."""

from __future__ import annotations

import pytest

import tfmini as tf
from tfmini.compat import internals


def test_a_pure_variable_scope_opens_no_name_scope() -> None:
    vs = internals.module("python.ops.variable_scope")
    with vs._pure_variable_scope("pure") as scope:
        v = tf.get_variable("v", [1])
        assert tf.constant(1.0).op.name == "Const" and scope.name == "pure"
    assert v.op.name == "pure/v" and "pure/v" in vs._get_default_variable_store()._vars


def test_shapes_fans_and_scopes_of_the_private_modules() -> None:
    shape = internals.module("python.framework.tensor_shape")
    assert shape.as_shape([1, None]).as_list() == [1, None] and shape.matrix(2, 3).as_list() == [2, 3]
    assert internals.module("python.framework.common_shapes").broadcast_shape([3, 1], [2]).as_list() == [3, 2]
    init_ops = internals.module("python.ops.init_ops")
    assert init_ops._assert_float_dtype(tf.float32) is tf.float32 and init_ops._compute_fans([3, 4]) == (3, 4)
    with pytest.raises(ValueError):
        init_ops._assert_float_dtype(tf.int32)
    ops = internals.module("python.framework.ops")
    assert ops.strip_name_scope("^a/b", "a") == "^b" and ops.prepend_name_scope("loc:@b", "a") == "loc:@a/b"
    with tf.name_scope("x"):
        assert ops.get_name_scope() == "x"
    utils = internals.module("python.layers.utils")
    assert utils.normalize_tuple(2, 2, "k") == (2, 2) and utils.convert_data_format("channels_last", 4) == "NHWC"
    assert utils.conv_output_length(7, 3, "valid", 2) == 3


def test_the_second_versions_of_losses_shard_by_contiguous_rows() -> None:
    nn = internals.module("python.ops.nn_impl")
    shards = [tf.constant([[0.1], [0.2]]), tf.constant([[0.3], [0.4]])]
    inputs, labels = tf.ones([1, 1]), tf.constant([[1]], tf.int64)
    sampled = (tf.constant([2], tf.int64), tf.constant([[0.5]]), tf.constant([0.5]))
    for name in ("nce_loss", "sampled_softmax_loss"):
        arguments = (tf.zeros([4]), labels, inputs, 1, 4)
        found = getattr(nn, name + "_v2")(shards, *arguments, sampled_values=sampled)
        by_rows, by_turns = (
            getattr(nn, name)(tf.constant([[row] for row in rows]), *arguments, sampled_values=sampled)
            for rows in ([0.1, 0.2, 0.3, 0.4], [0.1, 0.3, 0.2, 0.4])
        )
        with tf.Session() as session:
            values = session.run([found, by_rows, by_turns])
        assert values[0] == values[1] != values[2]


def test_private_names_of_second_versions_are_those_of_version_2() -> None:
    nn_ops = internals.module("python.ops.nn_ops")
    assert nn_ops.softmax_v2(logits=tf.zeros([2, 3]), axis=0).shape == [2, 3]
    with pytest.raises(AttributeError, match="nothing_v2"):
        nn_ops.nothing_v2  # noqa: B018


def test_names_of_layers_losses_and_evaluation_that_slim_imports() -> None:
    layers = internals.module("python.layers.convolutional")
    assert layers.Convolution2D is tf.layers.Conv2D and layers.Convolution2DTranspose is tf.layers.Conv2DTranspose
    evaluation = internals.module("python.training.evaluation")
    assert evaluation._StopAfterNEvalsHook is tf.contrib.training.StopAfterNEvalsHook
    lookup = internals.module("python.util.deprecation").deprecated_argument_lookup
    assert lookup("axis", None, "dim", 1) == 1
    with pytest.raises(ValueError, match="Cannot specify both"):
        lookup("axis", 0, "dim", 1)
    assert not internals.module("python.tf2").enabled()
    bucketized = internals.module("python.ops.math_ops")._bucketize([0.0, 5.0], [1.0, 3.0])
    with tf.Session() as session:
        assert session.run(bucketized).tolist() == [0, 2]


def test_private_helpers_of_metrics() -> None:
    metrics = internals.module("python.ops.metrics_impl")
    quotient = metrics._safe_scalar_div(tf.constant(1.0), tf.constant([2.0, 0.0]), "quotient")
    values, updates = metrics._confusion_matrix_at_thresholds([1.0, 0.0], [0.9, 0.8], [0.5], includes=("tp", "fp"))
    assert sorted(values) == ["fp", "tp"]
    with pytest.raises(ValueError, match="Invalid key"):
        metrics._confusion_matrix_at_thresholds([1.0], [0.9], [0.5], includes=("xx",))
    _, precision = metrics._streaming_sparse_average_precision_at_top_k(
        tf.constant([[2], [0]], tf.int64), tf.constant([[2, 1], [1, 0]], tf.int64)
    )
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        assert session.run([quotient, updates["tp"], updates["fp"]])[1:] == [[1.0], [1.0]]
        assert session.run(quotient).tolist() == [0.5, 0.0]
        assert session.run(precision) == pytest.approx(0.75)


def test_private_sums_of_confusion_matrices() -> None:
    metrics = internals.module("python.ops.metrics_impl")
    weights = tf.constant([[1.0, 0.5], [2.0, 1.0]])
    total, update = metrics._streaming_confusion_matrix([[0, 1], [2, 2]], [[0, 2], [2, 1]], 3, weights)
    more = metrics._aggregate_across_replicas(["seen"], lambda strategy, matrix: matrix + 1.0, total)
    assert total.op.name == "total_confusion_matrix" and total in tf.get_collection(tf.GraphKeys.METRIC_VARIABLES)
    assert tf.get_collection("seen") == [more]
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        expected = [[2.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 2.0, 4.0]]  # those of TensorFlow 1.15.5
        assert [session.run(update) for _ in range(2)][1].tolist() == expected
        assert session.run(more)[2].tolist() == [1.0, 3.0, 5.0]


def test_the_registered_ops_have_messages() -> None:
    ops = internals.module("python.framework.op_def_registry").get_registered_ops()
    assert {"Unpack", "AddV2", "FusedBatchNormV3", "Placeholder"} <= set(ops)
    assert [arg.name for arg in ops["MatMul"].input_arg] == ["a", "b"]


def test_the_hook_of_evaluations_takes_its_counter_as_tf_slim_gives_it() -> None:
    completed = tf.assign_add(tf.train.get_or_create_global_step(), 1)
    hook = tf.contrib.training.StopAfterNEvalsHook(3)
    hook._set_evals_completed_tensor(completed)
    runs = 0
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        while not session.should_stop():
            session.run(completed)
            runs += 1
    assert runs == 3


def test_the_private_module_of_dtypes_has_the_reference_types() -> None:
    dtypes = internals.module("python.framework.dtypes")
    assert tf.get_variable("v", [1], tf.float16).dtype == dtypes.float16_ref is dtypes.half_ref
    assert [dtypes.uint64_ref.name, dtypes.double_ref.name, dtypes.bool_ref.name] == [
        "uint64_ref", "float64_ref", "bool_ref"
    ]  # fmt: skip
    assert dtypes.bfloat16_ref.base_dtype is tf.bfloat16
    assert tf.contrib.framework.argsort is tf.argsort and tf.contrib.framework.sort is tf.sort
