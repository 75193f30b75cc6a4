"""Synchronous training on the digits of scikit-learn: in-graph replication, one client for the whole cluster.

Worker 0 builds one graph with a tower per worker, feeds each tower its share of the batch,
averages the towers' gradients and applies them once. The other tasks only serve; `tfmini launch` ends them with
the ps.

    tfmini launch --ps 1 --workers 2 examples/digits_in_graph.py
"""

import json
import os

from digits import batches, load_data

import tfmini as tf

STEPS = 300
SHARE = 50  # rows per tower and step


def tower(images, labels):
    """(loss, logits) of the model; its variables are shared by all towers."""
    with tf.variable_scope("model", reuse=tf.AUTO_REUSE):
        weights = tf.get_variable("W", [64, 10], initializer=tf.zeros_initializer())
        biases = tf.get_variable("b", [10], initializer=tf.zeros_initializer())
    logits = tf.matmul(images, weights) + biases
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.reduce_mean(losses), logits


def average(tower_gradients):
    """The mean gradients as (gradient, variable) pairs, from one list of such pairs per tower."""
    return [(tf.add_n([gradient for gradient, _ in same]) / len(same), same[0][1]) for same in zip(*tower_gradients)]


def build(cluster):
    images = tf.placeholder(tf.float32, [None, 64], name="images")
    labels = tf.placeholder(tf.int64, [None], name="labels")
    workers = cluster.num_tasks("worker")
    optimizer = tf.train.GradientDescentOptimizer(0.5)
    losses, gradients = [], []
    shares = zip(tf.split(images, workers), tf.split(labels, workers))
    for index, (x, y) in enumerate(shares):
        setter = tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{index}")
        with tf.device(setter), tf.name_scope(f"tower_{index}"):
            loss, _ = tower(x, y)
            losses.append(loss)
            gradients.append(optimizer.compute_gradients(loss))
    with tf.device("/job:ps/task:0"):
        train_op = optimizer.apply_gradients(average(gradients))
    _, logits = tower(images, labels)
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
    return images, labels, train_op, tf.add_n(losses) / workers, accuracy


def train(cluster, server):
    train_x, test_x, train_y, test_y = load_data()
    images, labels, train_op, loss, accuracy = build(cluster)
    data = batches(train_x, train_y, SHARE * cluster.num_tasks("worker"), seed=0)
    with tf.Session(server.target) as sess:
        sess.run(tf.global_variables_initializer())
        for step in range(STEPS):
            x, y = next(data)
            _, value = sess.run([train_op, loss], {images: x, labels: y})
            if step % 50 == 0:
                print(f"step {step}: loss {value:.3f}", flush=True)
        score = sess.run(accuracy, {images: test_x, labels: test_y})
        print(f"test accuracy {100 * score:.1f} %", flush=True)


def main():
    if "TF_CONFIG" not in os.environ:
        raise SystemExit("Run me by: tfmini launch --ps 1 --workers 2 examples/digits_in_graph.py")
    config = json.loads(os.environ["TF_CONFIG"])
    cluster, task = tf.train.ClusterSpec(config["cluster"]), config["task"]
    server = tf.train.Server(cluster, job_name=task["type"], task_index=task["index"])
    if task["type"] == "worker" and task["index"] == 0:
        train(cluster, server)
    else:
        server.join()


if __name__ == "__main__":
    main()
