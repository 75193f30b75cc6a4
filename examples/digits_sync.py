"""Synchronous training of a small network on the digits of scikit-learn, with checkpoints and summaries.

Each update takes the mean of the gradients of all workers but --backups of them, the slowest. The
first worker is the chief: it writes checkpoints and TensorBoard summaries to --logdir, from which a
run that was stopped goes on, and prints who contributed to the last steps.

    tfmini launch --ps 2 --workers 3 examples/digits_sync.py
    tfmini launch --ps 2 --workers 3 examples/digits_sync.py --backups=1 --logdir=/tmp/digits

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
    parser.add_argument("--steps", type=int, default=300, help="training ends when global_step reaches this")
    parser.add_argument("--backups", type=int, default=0, help="how many workers an update need not wait for")
    parser.add_argument("--logdir", help="for checkpoints and summaries; default: a new directory")
    return parser.parse_args()


def cluster_and_role(args):
    """(cluster, job name, task index) by the flags, or else by TF_CONFIG."""
    if args.job_name:
        cluster = {"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")}
        return tf.train.ClusterSpec(cluster), args.job_name, args.task_index
    if "TF_CONFIG" not in os.environ:
        raise SystemExit("Which task is this? Give --job_name, or run me by: tfmini launch --ps 2 --workers 3 ...")
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
    with tf.variable_scope("softmax"):
        weights = tf.get_variable("W", [HIDDEN, 10], initializer=tf.glorot_uniform_initializer(seed=2))
        biases = tf.get_variable("b", [10], initializer=tf.zeros_initializer())
        logits = tf.matmul(hidden, weights) + biases
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
    return images, labels, loss, accuracy


def add_summaries(images, loss):
    tf.summary.scalar("loss", loss)
    tf.summary.image("digit", tf.reshape(images, [-1, 8, 8, 1]), max_outputs=1)
    for variable in tf.trainable_variables():
        tf.summary.histogram(variable.op.name, variable)


def work(cluster, server, task_index, args):
    is_chief = task_index == 0
    workers = cluster.num_tasks("worker")
    train_x, test_x, train_y, test_y = load_data()

    with tf.device(
        tf.train.replica_device_setter(worker_device=f"/job:worker/task:{task_index}", cluster=cluster)
    ):
        images, labels, loss, accuracy = build_model()
        global_step = tf.train.get_or_create_global_step()
        optimizer = tf.train.SyncReplicasOptimizer(
            tf.train.AdagradOptimizer(0.1), replicas_to_aggregate=workers - args.backups, total_num_replicas=workers
        )
        train_op = optimizer.minimize(loss, global_step=global_step)
        add_summaries(images, loss)

    hooks = [optimizer.make_session_run_hook(is_chief), tf.train.StopAtStepHook(last_step=args.steps)]
    logdir = (args.logdir or tempfile.mkdtemp()) if is_chief else None
    rng = np.random.RandomState(task_index)
    score, contributions, next_report = None, "", 0

    def evaluate(step_context):
        # Past the hooks: this is no training step.
        return step_context.session.run(accuracy, {images: test_x, labels: test_y})

    with tf.train.MonitoredTrainingSession(
        server.target, is_chief, logdir, hooks=hooks, save_checkpoint_steps=100, save_summaries_steps=20,
        log_step_count_steps=None,
    ) as sess:  # fmt: skip
        while not sess.should_stop():
            rows = rng.choice(len(train_x), BATCH, replace=False)
            batch = {images: train_x[rows], labels: train_y[rows]}
            _, step, value = sess.run([train_op, global_step, loss], batch)
            if is_chief and step >= next_report:
                next_report = step + 50
                print(f"global step {step}, loss {value:.3f}", flush=True)
                score = sess.run_step_fn(evaluate)
                contributions = str(optimizer.ledger(sess))

    if is_chief:
        print(f"test accuracy {100 * score:.1f} %" if score is not None else "no step was left to do")
        print("\nwhose gradients the last updates used, and what was dropped:")
        print("\n".join(contributions.splitlines()[-8:]))
        print(f"\nsummaries and checkpoints are in {logdir}: tensorboard --logdir {logdir}", flush=True)


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
