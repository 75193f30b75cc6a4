"""Matrix factorisation with gradients of one's own, in numpy: each batch reads and changes a few rows of two tables.

tfmini launch --ps 2 --workers 3 examples/factors_numpy.py
"""

import json
import os

import numpy as np

import tfmini as tf

USERS, ITEMS, RANK, NOISE = 500, 200, 4, 0.1
TRUTH = np.random.default_rng(0).normal(size=(USERS + ITEMS, RANK))


def ratings(count, random):
    """Made up: (users, items, ratings); a rating is the product of two hidden vectors, and noise."""
    users, items = random.integers(USERS, size=count), random.integers(ITEMS, size=count)
    exact = (TRUTH[users] * TRUTH[USERS + items]).sum(1)
    return users, items, (exact + NOISE * random.normal(size=count)).astype(np.float32)


def train(store, worker, steps=400, batch=256):
    for name, size in (("users", USERS), ("items", ITEMS)):
        store.declare(name, [size, RANK], init=tf.random_normal_initializer(stddev=0.3, seed=1))
    random = np.random.default_rng(1 + worker)
    for _ in range(steps):
        users, items, wanted = ratings(batch, random)
        u, v = store.pull({"users": users, "items": items}).values()
        error = ((u * v).sum(1) - wanted)[:, None]
        store.push({"users": tf.IndexedSlices(error * v, users), "items": tf.IndexedSlices(error * u, items)})
    store.barrier()  # the test is of what all have learnt
    users, items, wanted = ratings(5000, np.random.default_rng(99))
    u, v = store.pull({"users": users, "items": items}).values()
    return np.sqrt(np.mean(((u * v).sum(1) - wanted) ** 2))


def main():
    config = json.loads(os.environ["TF_CONFIG"])
    job, index = config["task"]["type"], config["task"]["index"]
    server = tf.train.Server(config["cluster"], job, index)
    if job == "ps":
        server.join()
    with tf.ParameterStore(server, tf.train.AdagradOptimizer(0.3)) as store:
        print(f"worker {index}: error {train(store, index):.3f}, of which noise {NOISE}", flush=True)


if __name__ == "__main__":
    main()
