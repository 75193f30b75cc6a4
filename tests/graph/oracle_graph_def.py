"""GraphDefs that TensorFlow builds, and what it makes of ours. (Runs in its process, see `tests.oracle`.)"""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.framework import op_def_registry


def constants():
    for i, value in enumerate(
        [1.0, [1, 2, 3], [[True], [False]], "text", [b"a", b"b"], 2**40, 1 + 2j, np.zeros((0, 2))]
    ):
        tf.constant(value, name=f"c{i}")
    for dtype in (np.float16, np.float64, np.int8, np.uint8, np.int16, np.uint16, np.int64, np.complex128):
        tf.constant(np.array([1, 2]).astype(dtype), name=np.dtype(dtype).name)
    tf.constant([1.0, 2.5], dtype=tf.bfloat16, name="bf")


def matmul_gradients():
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    w = tf.Variable(tf.zeros([4, 3]), name="w", use_resource=False)
    b = tf.Variable(tf.zeros([3]), name="b", use_resource=False)
    loss = tf.reduce_mean(tf.square(tf.nn.relu(tf.matmul(x, w) + b)))
    tf.gradients(loss, [w, b])


def convolution():
    x = tf.placeholder(tf.float32, [2, 8, 8, 1])
    w = tf.Variable(tf.truncated_normal([3, 3, 1, 2], seed=1), use_resource=False)
    y = tf.nn.max_pool(tf.nn.conv2d(x, w, [1, 1, 1, 1], "SAME"), [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
    tf.gradients(y, w)


def adagrad_on_ps():
    cluster = {"ps": ["a:1", "b:1"], "worker": ["c:1", "d:1"]}
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:1")):
        step = tf.Variable(0, trainable=False, name="global_step", use_resource=False)
        w = tf.Variable(tf.ones([2, 2]), name="w", use_resource=False)
        v = tf.Variable(tf.ones([2]), name="v", use_resource=False)
        loss = tf.reduce_sum(tf.matmul(w, w)) + tf.reduce_sum(v)
        tf.train.AdagradOptimizer(0.1).minimize(loss, global_step=step)


def sgd_and_momentum():
    w = tf.Variable(tf.ones([2, 2]), name="w", use_resource=False)
    loss = tf.reduce_sum(tf.exp(w))
    tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)


def controls_and_colocation():
    a = tf.constant(1.0, name="a")
    with tf.control_dependencies([tf.no_op(name="n"), a]), tf.device("/job:ps"):
        b = tf.identity(a, name="b")
    with tf.colocate_with(b):
        tf.add(a, 2.0, name="c")
    with tf.name_scope("s"), tf.device("/cpu:0"):
        tf.group(b, name="g")
    tf.split(tf.constant([1.0, 2.0]), 2, name="halves")[1] + 1.0


def built(build):
    """The graph after one import, which settles the devices of colocated ops."""
    with tf.Graph().as_default() as graph:
        build()
    return imported(graph.as_graph_def())


def imported(graph_def):
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    return graph.as_graph_def()


BUILDERS = [constants, matmul_gradients, convolution, adagrad_on_ps, sgd_and_momentum, controls_and_colocation]
TENSORS = [
    (1.5, "float32"), ([1.5, 2.5], "float32"), ([1], "int64"), ([1, 2], "int64"), (True, "bool"),
    ([True, False], "bool"),
    (3, "uint8"), ([3, 4], "uint8"), ([3, 4], "int16"), ([3, 4], "uint32"), (3, "uint64"), ([[1.0], [2.0]], "float64"),
    (1.5, "float16"), (1.5, "bfloat16"), ("x", "string"), (["x", "y"], "string"), ([], "int32"), ([1, 2], "complex64"),
]  # fmt: skip


def answers(ours):
    """TensorFlow's messages, as bytes.

    Args:
      ours: name -> GraphDef.

    Returns:
      {"built": {name: GraphDef}, "ours": {name: GraphDef as imported and exported again}, "ops": OpList,
      "tensors": [[values as nested list, dtype name, TensorProto]]}.
    """
    graphs = {build.__name__: built(build) for build in BUILDERS}
    again = {name: imported(tf.GraphDef.FromString(data)) for name, data in ours.items()}
    used = sorted({node.op for graph in [*graphs.values(), *again.values()] for node in graph.node})
    return {
        "built": {name: message(graph) for name, graph in graphs.items()},
        "ours": {name: message(graph) for name, graph in again.items()},
        "ops": message(op_def_pb2.OpList(op=[op_def_registry.get(name) for name in used])),
        "tensors": [[v, d, message(tf.make_tensor_proto(v, dtype=d))] for v, d in TENSORS],
    }


def message(proto):
    return proto.SerializeToString(deterministic=True)
