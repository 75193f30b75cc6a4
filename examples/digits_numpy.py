"""Logistic regression on the digits with gradients of one's own, in numpy: no graph, and arrays on parameter servers.

tfmini launch --ps 2 --workers 3 examples/digits_numpy.py
tfmini launch --ps 2 --workers 3 examples/digits_numpy.py --shards

With --shards each digit is learnt from once in each epoch, whoever takes it. Workers may join and leave meanwhile:

tfmini scale --workers 5 digits_numpy
"""

import argparse
import json
import os

import numpy as np
from digits import load_data

import tfmini as tf


def train(store, worker, epochs, batch=50, shares=False):
    images, test_images, labels, test_labels = load_data()
    store.declare("w", [64, 10])
    store.declare("b", [10])
    values = store.pull()
    for rows in (shared if shares else chosen)(store, worker, len(images), epochs, batch):
        x, error = images[rows], softmax(images[rows], values)
        error[np.arange(len(x)), labels[rows]] -= 1
        values = store.push_pull({"w": x.T @ error / len(x), "b": error.mean(0)})
    store.barrier()  # the test is of what all have learnt
    return np.mean(softmax(test_images, store.pull()).argmax(1) == test_labels)


def chosen(store, worker, count, epochs, batch):
    """Rows by chance, this worker's share of so many epochs."""
    rng = np.random.default_rng(worker)
    for _ in range(epochs * count // batch // store.workers):
        yield rng.integers(count, size=batch)


def shared(store, worker, count, epochs, batch):
    """Rows that no other worker has in this epoch, as long as there are some."""
    yield from store.shards("digits", count, num_epochs=epochs, num_slices=-(-count // batch))


def softmax(x, values):
    logits = x @ values["w"] + values["b"]
    e = np.exp(logits - logits.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--staleness", type=int, help="how far a worker may run ahead; default: any")
    parser.add_argument("--compression", help="of gradients: fp16, int8, or topk:0.01; default: none")
    parser.add_argument("--shards", action="store_true", help="share each epoch's digits; workers may join and leave")
    args = parser.parse_args()
    config = json.loads(os.environ["TF_CONFIG"])
    job, index = config["task"]["type"], config["task"]["index"]
    server = tf.train.Server(config["cluster"], job, index)
    if job == "ps":
        server.join()
    settings = {"staleness": args.staleness, "compression": args.compression}
    with tf.ParameterStore(server, tf.train.AdagradOptimizer(0.5), **settings) as store:
        accuracy = train(store, index, args.epochs, shares=args.shards)
        print(f"worker {index}: {accuracy:.3f} of the test digits are right", flush=True)


if __name__ == "__main__":
    main()
