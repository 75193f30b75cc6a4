"""A worker or ps that trains a skewed model, with the placement that it is told; for `placements.py`.

    TF_CONFIG=… python benchmarks/placed_training.py MODEL PLACEMENT STEPS

MODEL is embedding or vgg; PLACEMENT is round_robin, greedy_by_bytes or the file of a plan. A worker prints "ready",
waits for a line, and then prints the seconds of each step.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np

import tfmini as tf


def embedding() -> tuple[Any, dict[Any, Any]]:
    """(loss, feed) of a large table, of which a step reads 4,096 rows (1 MB), and a small network."""
    ids, labels = tf.placeholder(tf.int64, [64, 64]), tf.placeholder(tf.float32, [64, 10])
    table = tf.get_variable("table", [50_000, 64], initializer=tf.random_uniform_initializer(-0.1, 0.1, seed=1))
    hidden = tf.reduce_mean(tf.nn.embedding_lookup(table, ids), 1)
    for width in (256, 256):
        hidden = tf.layers.dense(hidden, width, tf.nn.relu)
    rng = np.random.RandomState(0)
    feed = {ids: rng.randint(0, 50_000, [64, 64]), labels: np.eye(10)[rng.randint(0, 10, 64)]}
    return tf.losses.softmax_cross_entropy(labels, tf.layers.dense(hidden, 10)), feed


def vgg() -> tuple[Any, dict[Any, Any]]:
    """(loss, feed) of convolutions with few weights, and dense layers of which the first has most."""
    images, labels = tf.placeholder(tf.float32, [8, 16, 16, 3]), tf.placeholder(tf.float32, [8, 10])
    hidden = images
    for channels in (16, 64):
        hidden = tf.layers.conv2d(hidden, channels, 3, padding="same", activation=tf.nn.relu)
        hidden = tf.layers.max_pooling2d(hidden, 2, 2)
    hidden = tf.layers.flatten(hidden)
    for width in (1024, 256):
        hidden = tf.layers.dense(hidden, width, tf.nn.relu)
    rng = np.random.RandomState(0)
    feed = {images: rng.rand(8, 16, 16, 3), labels: np.eye(10)[rng.randint(0, 10, 8)]}
    return tf.losses.softmax_cross_entropy(labels, tf.layers.dense(hidden, 10)), feed


MODELS = {"embedding": embedding, "vgg": vgg}


def strategy(placement: str, tasks: int) -> Any:
    """The ``ps_strategy`` of a placement."""
    if placement == "round_robin":
        return None
    if placement == "greedy_by_bytes":
        return tf.contrib.training.GreedyLoadBalancingStrategy(tasks, tf.contrib.training.byte_size_load_fn)
    return tf.placement.plan(placement)


def train(session: Any, update: Any, feed: dict[Any, Any], steps: int) -> None:
    """Trains, and prints the seconds of each step."""
    for _ in range(2):
        session.run(update, feed)
    print("ready", flush=True)
    sys.stdin.readline()
    seconds = []
    for _ in range(steps):
        begin = time.perf_counter()
        session.run(update, feed)
        seconds.append(round(time.perf_counter() - begin, 6))
    print("steps", *seconds, flush=True)
    sys.stdin.readline()


def main(model: str, placement: str, steps: str) -> None:
    config = json.loads(os.environ["TF_CONFIG"])
    cluster, task = tf.train.ClusterSpec(config["cluster"]), config["task"]
    server = tf.train.Server(cluster, job_name=task["type"], task_index=task["index"])
    if task["type"] == "ps":
        print("ready", flush=True)
        server.join()
    worker = f"/job:worker/task:{task['index']}"
    chosen = strategy(placement, cluster.num_tasks("ps"))
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=worker, ps_strategy=chosen)):
        loss, feed = MODELS[model]()
        count = tf.train.get_or_create_global_step()
        update = tf.train.AdagradOptimizer(0.01).minimize(loss, global_step=count)
        ready, start = tf.report_uninitialized_variables(), tf.global_variables_initializer()
    with tf.Session(server.target) as session:
        if task["index"] == 0:
            session.run(start)
        while len(session.run(ready)):
            time.sleep(0.05)  # polls: worker 0 gives the variables their values
        train(session, update, feed, int(steps))


if __name__ == "__main__":
    main(*sys.argv[1:])
