"""Synchronous training graphs over ``tf``, which is tfmini or TensorFlow."""

from __future__ import annotations

from typing import Any

OPTIONS = {
    "plain": "2",
    "backup": "2, total_num_replicas=3",
    "fewer": "3, total_num_replicas=2, name='other'",
    "averages": "2, None, tf.train.ExponentialMovingAverage(0.9), tf.trainable_variables()",
}


def build(tf: Any, options: str, sparse: bool, cluster: Any = None, task: int = 0) -> tuple[Any, Any]:
    """A worker's graph on one ps; returns the optimizer and the training op."""
    cluster = cluster or {"ps": ["localhost:1111"], "worker": ["localhost:1112", "localhost:1113"]}
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{task}")):
        x = tf.Variable([[1.0, -2.0], [0.5, 3.0]], name="x", use_resource=False)
        y = tf.Variable([2.0], name="y", use_resource=False)
        step = tf.Variable(0, name="global_step", trainable=False, dtype=tf.int64, use_resource=False)
        # The averages are of the variables, which must be there first.
        inner = tf.train.MomentumOptimizer(0.1, 0.9)
        opt = eval(f"tf.train.SyncReplicasOptimizer(inner, {OPTIONS[options]})", {"tf": tf, "inner": inner})
        rows = tf.gather(x, [0, 1]) if sparse else x
        loss = tf.reduce_sum(tf.square(rows)) + tf.reduce_sum(tf.square(y))
        train = opt.minimize(loss, global_step=step)
        opt.get_init_tokens_op()
        opt.get_init_tokens_op(5)
    return opt, train


def describe(graph: Any) -> dict[str, list[Any]]:
    """Name -> type, inputs, control inputs, requested device, shared name of every op."""
    found = {}
    for op in graph.get_operations():
        shared = op.node_def.attr["shared_name"].s.decode() if "shared_name" in op.node_def.attr else ""
        controls = sorted(c.name for c in op.control_inputs)
        found[op.name] = [op.type, [t.name for t in op.inputs], controls, op.device.replace("CPU", "cpu"), shared]
    return found


def outcomes(tf: Any) -> dict[str, Any]:
    """ "options-sparse" -> names and ops of the graph."""
    results = {}
    for options in OPTIONS:
        for sparse in (False, True):
            with tf.Graph().as_default() as graph:
                opt, train = build(tf, options, sparse)
                results[f"{options}-{sparse}"] = {
                    "train": train.name,
                    "chief_init": opt.chief_init_op.name,
                    "local_init": opt.local_step_init_op.name,
                    "ready": opt.ready_for_local_init_op.name,
                    "ops": describe(graph),
                }
    return results
