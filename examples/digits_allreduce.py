"""Data-parallel training on the digits of scikit-learn without a parameter server: gradients go round a ring.

Every worker keeps all variables and takes its share of each batch. The resulting parameters equal those of one process
that takes the whole batch; the first worker checks this at the end.

    tfmini launch --ps 0 --workers 2 examples/digits_allreduce.py
    tfmini launch --ps 0 --workers 4 examples/digits_allreduce.py --steps=200
"""

import argparse
import json
import os

import numpy as np
from digits import batches, build_model, load_data

import tfmini as tf

BATCH = 240  # of all workers together


def train(target, optimizer, hooks, seed, steps, rank, workers):
    """(parameters, test accuracy) after training on every workers-th row of each batch, from row ``rank`` on."""
    train_x, test_x, train_y, test_y = load_data()
    data = batches(train_x, train_y, BATCH, seed=0)  # the same batches everywhere
    with tf.Graph().as_default():
        images, labels, loss, accuracy = build_model(seed)
        train_op = optimizer.minimize(loss, tf.train.get_or_create_global_step())
        with tf.train.MonitoredTrainingSession(target, hooks=hooks(), log_step_count_steps=None) as session:
            for _ in range(steps):
                x, y = next(data)
                session.run(train_op, {images: x[rank::workers], labels: y[rank::workers]})
            parameters, score = session.run([tf.trainable_variables(), accuracy], {images: test_x, labels: test_y})
    return parameters, score


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--compression", help="of gradients: fp16, int8, or topk:0.01; default: none")
    args = parser.parse_args()
    if "TF_CONFIG" not in os.environ:
        raise SystemExit("Which task is this? Run me by: tfmini launch --ps 0 --workers 2 ...")
    config = json.loads(os.environ["TF_CONFIG"])
    workers, rank = len(config["cluster"]["worker"]), config["task"]["index"]

    server = tf.train.Server(config["cluster"], job_name="worker", task_index=rank)
    optimizer = tf.train.AllReduceOptimizer(
        tf.train.MomentumOptimizer(0.1, 0.9), workers, rank, compression=args.compression
    )
    # Each worker begins with other values; the hook gives all of them the chief's.
    mine, score = train(
        server.target, optimizer, lambda: [optimizer.make_session_run_hook()], 1 + 10 * rank, args.steps, rank, workers
    )  # fmt: skip
    sent = server.collective_traffic()
    print(f"worker {rank}: sent {sent.messages} messages, {sent.bytes} bytes of tensors", flush=True)
    if rank == 0:
        alone, _ = train("", tf.train.MomentumOptimizer(0.1, 0.9), list, 1, args.steps, 0, 1)
        apart = max(np.abs(a - b).max() for a, b in zip(mine, alone))
        print(f"test accuracy {100 * score:.1f} %; largest difference to one process {apart:.1e}", flush=True)


if __name__ == "__main__":
    main()
