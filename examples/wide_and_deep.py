"""A wide & deep model of clicks, with tables that grow: nobody knows beforehand which users and items there are.

    tfmini launch --ps 2 --workers 4 examples/wide_and_deep.py

The log of clicks is made up: users and items have 64-bit ids, a few of which come often and most seldom, and new ones
come all the time. Whether a user clicks depends on hidden tastes. The wide part has one number for each id, learnt by
Ftrl; the deep part has vectors, learnt by Adagrad, below two layers. Ids get rows when they come for the second time.
"""

import argparse
import json
import os

import numpy as np

import tfmini as tf

BATCH = 256
DIM = 8


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500, help="training ends when global_step reaches this")
    parser.add_argument("--logdir", help="for checkpoints")
    return parser.parse_args()


def ids_of(numbers):
    """64-bit ids, as hashes of names would be."""
    return (numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(1)).astype(np.int64)


def tastes(numbers, what):
    """The hidden vector of each user or item: [n, 4]."""
    angles = numbers[:, None] * np.array([12.9898, 78.233, 37.719, 4.581]) + what
    return np.sin(angles) * 1.5


def clicks(seed, steps, first=0):
    """Batches of the log: (user ids, item ids, whether there was a click)."""
    random = np.random.default_rng(seed)
    for step in range(first, first + steps):
        news = step // 4  # users and items that have come by now
        users = random.zipf(1.2, BATCH) % (2000 + news)
        items = random.zipf(1.2, BATCH) % (300 + news // 4)
        score = (tastes(users, 0) * tastes(items, 1)).sum(1) + tastes(items, 2)[:, 0]
        yield (
            ids_of(users),
            ids_of(items + 10**6),
            (random.random(BATCH) < 1 / (1 + np.exp(-2 * score))).astype(np.float32),
        )


def build_model(users, items, training):
    """The logits of a batch."""
    option = tf.EmbeddingVariableOption(filter_option=tf.CounterFilter(2), evict_option=tf.GlobalStepEvict(20_000))
    rows = {}
    for part, dim, init in (
        ("wide", 1, tf.zeros_initializer()),
        ("deep", DIM, tf.random_normal_initializer(stddev=0.3)),
    ):
        with tf.variable_scope(part, reuse=tf.AUTO_REUSE, partitioner=tf.fixed_size_partitioner(2)):
            for name, ids in (("users", users), ("items", items)):
                table = tf.get_embedding_variable(name, dim, initializer=init, ev_option=option)
                rows[part, name] = tf.nn.embedding_lookup(table if training else table.read_only(), ids)
    with tf.variable_scope("deep", reuse=tf.AUTO_REUSE):
        user, item = rows["deep", "users"], rows["deep", "items"]
        hidden = tf.layers.dense(tf.concat([user, item, user * item], 1), 32, tf.nn.relu, name="hidden")
        deep = tf.layers.dense(hidden, 1, name="logit")
    return (deep + rows["wide", "users"] + rows["wide", "items"])[:, 0]


def train_op_of(loss, global_step):
    """Ftrl for the wide part, Adagrad for the deep part."""
    wide = tf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.001)
    deep = tf.train.AdagradOptimizer(0.1)
    wide_op = wide.minimize(loss, var_list=tf.trainable_variables("wide"))
    return tf.group(wide_op, deep.minimize(loss, global_step, var_list=tf.trainable_variables("deep")))


def area_under_curve(scores, clicked):
    """The chance that a click has a higher score than none."""
    ranks = scores.argsort().argsort()
    ones = clicked.sum()
    return (ranks[clicked > 0].sum() - ones * (ones - 1) / 2) / (ones * (len(clicked) - ones))


def main():
    args = parse_arguments()
    if "TF_CONFIG" not in os.environ:
        raise SystemExit("Run me by: tfmini launch --ps 2 --workers 4 examples/wide_and_deep.py")
    config = json.loads(os.environ["TF_CONFIG"])
    cluster, job, index = tf.train.ClusterSpec(config["cluster"]), config["task"]["type"], config["task"]["index"]
    server = tf.train.Server(cluster, job_name=job, task_index=index)
    if job == "ps":
        server.join()
        return
    users, items = tf.placeholder(tf.int64, [None]), tf.placeholder(tf.int64, [None])
    clicked = tf.placeholder(tf.float32, [None])
    with tf.device(tf.train.replica_device_setter(worker_device=f"/job:worker/task:{index}", cluster=cluster)):
        global_step = tf.train.get_or_create_global_step()
        loss = tf.losses.sigmoid_cross_entropy(clicked, build_model(users, items, training=True))
        train_op = train_op_of(loss, global_step)
        scores = build_model(users, items, training=False)
        sizes = [part.size() for part in tf.trainable_variables("deep") if part.op.type == "KvVarHandleOp"]
    is_chief = index == 0
    with tf.train.MonitoredTrainingSession(
        server.target, is_chief, args.logdir, save_incremental_checkpoint_secs=10
    ) as session:
        step = 0
        for batch in clicks(index, args.steps):
            _, step, value = session.run([train_op, global_step, loss], dict(zip((users, items, clicked), batch)))
            if step % 200 < 2:
                print(f"worker {index}: global step {step}, loss {value:.3f}", flush=True)
            if step >= args.steps:
                break
        if is_chief:
            tests = [
                (batch[2], session.run(scores, dict(zip((users, items), batch)))) for batch in clicks(99, 20, step)
            ]
            area = area_under_curve(np.concatenate([s for _, s in tests]), np.concatenate([c for c, _ in tests]))
            print(f"rows of the deep part: {sum(session.run(sizes))}; area under the curve: {area:.3f}", flush=True)


if __name__ == "__main__":
    main()
