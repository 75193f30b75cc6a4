"""GraphDefs of distributed models built by TensorFlow, and the transfers of its own partitioner for one step of each.

(Runs in its process, see `tests.oracle`.)
"""

import socket

import numpy as np
import tensorflow.compat.v1 as tf

PS, WORKER = 8, 3


def mlp():
    x = tf.placeholder(tf.float32, [None, 784], name="x")
    w1 = tf.get_variable("W1", [784, 100])
    b1 = tf.get_variable("b1", [100])
    w2 = tf.get_variable("W2", [100, 10])
    return tf.reduce_sum(tf.square(tf.matmul(tf.nn.relu(tf.matmul(x, w1) + b1), w2))), np.ones([4, 784])


def cnn():
    x = tf.placeholder(tf.float32, [None, 28, 28, 1], name="x")
    w1 = tf.get_variable("W1", [5, 5, 1, 32])
    h = tf.nn.max_pool(tf.nn.relu(tf.nn.conv2d(x, w1, [1, 1, 1, 1], "SAME")), [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    w2 = tf.get_variable("W2", [14 * 14 * 32, 10])
    loss = tf.reduce_sum(tf.square(tf.matmul(tf.reshape(h, [-1, 14 * 14 * 32]), w2)))
    return loss, np.ones([4, 28, 28, 1])


def lstm():
    x = tf.placeholder(tf.float32, [4, None, 16], name="x")
    w = tf.get_variable("kernel", [16 + 32, 128])

    def step(t, h, c):
        i, j, f, o = tf.split(tf.matmul(tf.concat([x[:, t], h], 1), w), 4, 1)
        c = c * tf.sigmoid(f) + tf.sigmoid(i) * tf.tanh(j)
        return t + 1, tf.tanh(c) * tf.sigmoid(o), c

    zeros = tf.zeros([4, 32])
    _, h, _ = tf.while_loop(lambda t, h, c: t < tf.shape(x)[1], step, [0, zeros, zeros])
    return tf.reduce_sum(tf.square(h)), np.ones([4, 3, 16])


def embedding():
    x = tf.placeholder(tf.int64, [64], name="x")
    table = tf.get_variable("emb", [80000, 64], partitioner=tf.fixed_size_partitioner(PS))
    w = tf.get_variable("W", [64, 1])
    rows = tf.nn.embedding_lookup(table, x, partition_strategy="div")
    return tf.reduce_sum(tf.square(tf.matmul(rows, w))), np.arange(64)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def servers():
    addresses = {"ps": [f"127.0.0.1:{free_port()}" for _ in range(PS)], "worker": {WORKER: f"127.0.0.1:{free_port()}"}}
    spec = tf.train.ClusterSpec(addresses)
    tasks = [("ps", i) for i in range(PS)] + [("worker", WORKER)]
    return [tf.train.Server(spec, job_name=job, task_index=task) for job, task in tasks]


def sends(train_op, init, x, target):
    """[tensor, from, to] of one step, as TensorFlow's partitioner draws it, without any optimisation of the graph."""
    config = tf.ConfigProto(allow_soft_placement=True, isolate_session_state=True)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf.OptimizerOptions.L0
    metadata = tf.RunMetadata()
    with tf.Session(target, config=config) as session:
        session.run(init)
        options = tf.RunOptions(output_partition_graphs=True)
        session.run(train_op, {"x:0": x}, options, metadata)
    return [
        [node.attr["tensor_name"].s.decode(), node.attr["send_device"].s.decode(), node.attr["recv_device"].s.decode()]
        for part in metadata.partition_graphs
        for node in part.node
        if node.op == "_Send"
    ]


def write_all(folder):
    """Writes each model's GraphDef, with reference (0) and resource variables (1), to ``folder``/model_kind.pb.

    Returns:
      model_kind -> the `sends` of a training step.
    """
    target = servers()[-1].target
    builds = (mlp, cnn, lstm, embedding)
    return {f"{build.__name__}_{kind}": write(build, bool(kind), folder, target) for build in builds for kind in (0, 1)}


def write(build, resource, folder, target):
    with tf.Graph().as_default() as graph:
        setter = tf.train.replica_device_setter(ps_tasks=PS, worker_device=f"/job:worker/task:{WORKER}")
        with tf.device(setter), tf.variable_scope("", use_resource=resource):
            loss, x = build()
            step = tf.train.get_or_create_global_step()
            train_op = tf.train.AdagradOptimizer(0.1).minimize(loss, global_step=step)
            init = tf.global_variables_initializer()
        tf.train.write_graph(graph, folder, f"{build.__name__}_{int(resource)}.pb", as_text=False)
        return sends(train_op, init, x, target)
