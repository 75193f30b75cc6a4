"""Asynchronous training that survives the loss of any task: checkpoints, TensorBoard summaries, and how to go on.

The first worker, the chief, saves a checkpoint every --save_steps steps and writes summaries: the loss and
its speed, histograms of the weights, a picture of the first layer, and the test accuracy. Kill a parameter
server or a worker while it runs (`kill -9`) and start it again: training goes on from the last checkpoint.
Run it again with the same --logdir, and it goes on where it had ended.

    tfmini launch --ps 1 --workers 2 examples/digits_checkpoints.py --logdir=/tmp/digits
    tfmini launch --ps 1 --workers 2 examples/digits_checkpoints.py --logdir=/tmp/digits --steps=1000
    tensorboard --logdir /tmp/digits

The role may come from TF_CONFIG or from the flags.
"""

import argparse
import json
import os
import tempfile

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tfmini as tf

HIDDEN = 64
BATCH = 50


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job_name", help="ps or worker; default: from TF_CONFIG")
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--ps_hosts", default="localhost:2222")
    parser.add_argument("--worker_hosts", default="localhost:2223")
    parser.add_argument("--steps", type=int, default=500, help="training ends when global_step reaches this")
    parser.add_argument("--save_steps", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--keep", type=int, default=3, help="how many checkpoints to keep")
    parser.add_argument("--logdir", help="for checkpoints and summaries; default: a new directory")
    return parser.parse_args()


def cluster_and_role(args):
    """(cluster, job name, task index) by the flags, or else by TF_CONFIG."""
    if args.job_name:
        cluster = {"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")}
        return tf.train.ClusterSpec(cluster), args.job_name, args.task_index
    if "TF_CONFIG" not in os.environ:
        raise SystemExit("Which task is this? Give --job_name, or run me by: tfmini launch --ps 1 --workers 2 ...")
    config = json.loads(os.environ["TF_CONFIG"])
    return tf.train.ClusterSpec(config["cluster"]), config["task"]["type"], config["task"]["index"]


def load_data():
    digits = load_digits()
    images = (digits.data / 16.0).astype("float32")
    return train_test_split(images, digits.target, test_size=0.2, random_state=0)


def build_model():
    images = tf.placeholder(tf.float32, [None, 64], name="images")
    labels = tf.placeholder(tf.int64, [None], name="labels")
    with tf.variable_scope("hidden"):
        weights = tf.get_variable("W", [64, HIDDEN], initializer=tf.glorot_uniform_initializer(seed=1))
        biases = tf.get_variable("b", [HIDDEN], initializer=tf.zeros_initializer())
        hidden = tf.nn.relu(tf.matmul(images, weights) + biases)
        filters = tf.reshape(tf.transpose(weights), [HIDDEN, 8, 8, 1])
    with tf.variable_scope("softmax"):
        weights = tf.get_variable("W", [HIDDEN, 10], initializer=tf.glorot_uniform_initializer(seed=2))
        biases = tf.get_variable("b", [10], initializer=tf.zeros_initializer())
        logits = tf.matmul(hidden, weights) + biases
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
    tf.summary.scalar("loss", loss)
    tf.summary.image("filters", filters, max_outputs=4)
    for variable in tf.trainable_variables():
        tf.summary.histogram(variable.op.name, variable)
    return images, labels, loss, accuracy


class Evaluation(tf.train.CheckpointSaverListener):
    """Measures each checkpoint on the test data, and writes the result beside the other summaries."""

    def __init__(self, logdir, accuracy, feeds):
        self.logdir, self.accuracy, self.feeds = logdir, accuracy, feeds
        self.score = None

    def after_save(self, session, global_step_value):
        self.score = session.run(self.accuracy, self.feeds)
        value = tf.Summary.Value(tag="test_accuracy", simple_value=float(self.score))
        tf.summary.FileWriterCache.get(self.logdir).add_summary(tf.Summary(value=[value]), global_step_value)
        print(f"checkpoint at step {global_step_value}: test accuracy {100 * self.score:.1f} %", flush=True)


def work(cluster, server, task_index, args):
    is_chief = task_index == 0
    train_x, test_x, train_y, test_y = load_data()
    with tf.device(
        tf.train.replica_device_setter(worker_device=f"/job:worker/task:{task_index}", cluster=cluster)
    ):
        images, labels, loss, accuracy = build_model()
        global_step = tf.train.get_or_create_global_step()
        train_op = tf.train.AdagradOptimizer(0.1).minimize(loss, global_step=global_step)

    logdir = (args.logdir or tempfile.mkdtemp()) if is_chief else None
    hooks = [tf.train.StopAtStepHook(last_step=args.steps), tf.train.NanTensorHook(loss)]
    saver_hooks = []
    if is_chief:
        before = tf.train.latest_checkpoint(logdir)
        print(f"going on from {before}" if before else f"a new run in {logdir}", flush=True)
        saver = tf.train.Saver(max_to_keep=args.keep, sharded=True)
        listener = Evaluation(logdir, accuracy, {images: test_x, labels: test_y})
        scaffold = tf.train.Scaffold(saver=saver)
        saver_hooks.append(
            tf.train.CheckpointSaverHook(
                logdir, save_steps=args.save_steps, scaffold=scaffold, listeners=[listener]
            )
        )
    else:
        scaffold = None

    rng = np.random.RandomState(task_index)
    with tf.train.MonitoredTrainingSession(
        server.target, is_chief, logdir, scaffold, hooks=hooks, chief_only_hooks=saver_hooks,
        save_checkpoint_secs=None, save_summaries_steps=20, log_step_count_steps=100,
    ) as sess:  # fmt: skip
        while not sess.should_stop():
            rows = rng.choice(len(train_x), BATCH, replace=False)
            sess.run(train_op, {images: train_x[rows], labels: train_y[rows]})

    if is_chief:
        kept = tf.train.get_checkpoint_state(logdir).all_model_checkpoint_paths
        print(f"checkpoints: {', '.join(os.path.basename(path) for path in kept)}")
        print(f"summaries and checkpoints are in {logdir}: tensorboard --logdir {logdir}", flush=True)


def main():
    args = parse_arguments()
    cluster, job_name, task_index = cluster_and_role(args)
    server = tf.train.Server(cluster, job_name=job_name, task_index=task_index)
    if job_name == "ps":
        server.join()
    else:
        work(cluster, server, task_index, args)


if __name__ == "__main__":
    main()
