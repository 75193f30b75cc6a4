"""Data-parallel training on the digits of scikit-learn without a parameter server: gradients go round a ring.

Every worker keeps all variables and takes its share of each batch. The parameters are those of one process that
takes the whole batch, which the first worker checks at the end.

    tfmini launch --ps 0 --workers 2 examples/digits_allreduce.py
    tfmini launch --ps 0 --workers 4 examples/digits_allreduce.py --steps=200
"""

import argparse
import json
import os

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tfmini as tf

HIDDEN = 64
BATCH = 240  # of all workers together


def load_data():
    digits = load_digits()
    images = (digits.data / 16.0).astype("float32")
    return train_test_split(images, digits.target, test_size=0.2, random_state=0)


def build_model(optimizer, seed):
    images = tf.placeholder(tf.float32, [None, 64], name="images")
    labels = tf.placeholder(tf.int64, [None], name="labels")
    with tf.variable_scope("hidden"):
        weights = tf.get_variable("W", [64, HIDDEN], initializer=tf.glorot_uniform_initializer(seed=seed))
        biases = tf.get_variable("b", [HIDDEN], initializer=tf.zeros_initializer())
        hidden = tf.nn.relu(tf.matmul(images, weights) + biases)
    with tf.variable_scope("softmax"):
        weights = tf.get_variable("W", [HIDDEN, 10], initializer=tf.glorot_uniform_initializer(seed=seed + 1))
        biases = tf.get_variable("b", [10], initializer=tf.zeros_initializer())
        logits = tf.matmul(hidden, weights) + biases
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
    train_op = optimizer.minimize(loss, tf.train.get_or_create_global_step())
    return images, labels, accuracy, train_op


def train(target, optimizer, hooks, seed, steps, rank, workers):
    """(parameters, test accuracy) after training on every workers-th row of each batch, from row ``rank`` on."""
    train_x, test_x, train_y, test_y = load_data()
    rng = np.random.RandomState(0)  # the same batches everywhere
    with tf.Graph().as_default():
        images, labels, accuracy, train_op = build_model(optimizer, seed)
        with tf.train.MonitoredTrainingSession(target, hooks=hooks(), log_step_count_steps=None) as session:
            for _ in range(steps):
                rows = rng.choice(len(train_x), BATCH, replace=False)[rank::workers]
                session.run(train_op, {images: train_x[rows], labels: train_y[rows]})
            parameters, score = session.run(
                [tf.trainable_variables(), accuracy], {images: test_x, labels: test_y}
            )
    return parameters, score


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    if "TF_CONFIG" not in os.environ:
        raise SystemExit("Which task is this? Run me by: tfmini launch --ps 0 --workers 2 ...")
    config = json.loads(os.environ["TF_CONFIG"])
    workers, rank = len(config["cluster"]["worker"]), config["task"]["index"]

    server = tf.train.Server(config["cluster"], job_name="worker", task_index=rank)
    optimizer = tf.train.AllReduceOptimizer(tf.train.MomentumOptimizer(0.1, 0.9), workers, rank)
    # Each worker begins with other values; the hook gives all of them the chief's.
    mine, score = train(
        server.target, optimizer, lambda: [optimizer.make_session_run_hook()], 1 + 10 * rank, args.steps, rank, workers
    )  # fmt: skip
    sent = server.worker.collectives
    print(f"worker {rank}: sent {sent.sent_messages} messages, {sent.sent_bytes} bytes of tensors", flush=True)
    if rank == 0:
        alone, _ = train("", tf.train.MomentumOptimizer(0.1, 0.9), list, 1, args.steps, 0, 1)
        apart = max(np.abs(a - b).max() for a, b in zip(mine, alone))
        print(f"test accuracy {100 * score:.1f} %; largest difference to one process {apart:.1e}", flush=True)


if __name__ == "__main__":
    main()
