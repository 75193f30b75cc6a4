"""Logistic regression on the digits with gradients of one's own, in numpy: no graph, and arrays on parameter servers.

tfmini launch --ps 2 --workers 3 examples/digits_numpy.py
"""

import argparse
import json
import os

import numpy as np
from digits import load_data

import tfmini as tf


def train(store, worker, epochs, batch=50):
    images, test_images, labels, test_labels = load_data()
    store.declare("w", [64, 10])
    store.declare("b", [10])
    rng = np.random.default_rng(worker)
    values = store.pull()
    for _ in range(epochs * len(images) // batch // store.workers):
        rows = rng.integers(len(images), size=batch)
        x, error = images[rows], softmax(images[rows], values)
        error[np.arange(batch), labels[rows]] -= 1
        values = store.push_pull({"w": x.T @ error / batch, "b": error.mean(0)})
    store.barrier()  # the test is of what all have learnt
    return np.mean(softmax(test_images, store.pull()).argmax(1) == test_labels)


def softmax(x, values):
    logits = x @ values["w"] + values["b"]
    e = np.exp(logits - logits.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--staleness", type=int, help="how far a worker may run ahead; default: any")
    parser.add_argument("--compression", help="of gradients: fp16, int8, or topk:0.01; default: none")
    args = parser.parse_args()
    config = json.loads(os.environ["TF_CONFIG"])
    job, index = config["task"]["type"], config["task"]["index"]
    server = tf.train.Server(config["cluster"], job, index)
    if job == "ps":
        server.join()
    settings = {"staleness": args.staleness, "compression": args.compression}
    with tf.ParameterStore(server, tf.train.AdagradOptimizer(0.5), **settings) as store:
        accuracy = train(store, index, args.epochs)
        print(f"worker {index}: {accuracy:.3f} of the test digits are right", flush=True)


if __name__ == "__main__":
    main()
