"""Training on the digits of scikit-learn by workers that train alone for some steps and then meet.

With --outer it is DiLoCo, else local SGD: after every H steps the workers all-reduce once. Compare the bytes and the
accuracy with those of digits_allreduce.py, whose workers all-reduce in each step.

    tfmini launch --ps 0 --workers 4 examples/digits_local.py
    tfmini launch --ps 0 --workers 4 examples/digits_local.py --period=20 --outer
"""

import argparse
import json
import os

from digits_allreduce import train

import tfmini as tf


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--period", type=int, default=10, help="steps from one meeting to the next")
    parser.add_argument("--outer", action="store_true", help="DiLoCo: an outer optimizer with Nesterov momentum")
    args = parser.parse_args()
    if "TF_CONFIG" not in os.environ:
        raise SystemExit("Which task is this? Run me by: tfmini launch --ps 0 --workers 2 ...")
    config = json.loads(os.environ["TF_CONFIG"])
    workers, rank = len(config["cluster"]["worker"]), config["task"]["index"]

    server = tf.train.Server(config["cluster"], job_name="worker", task_index=rank)
    kind = tf.train.DiLoCoOptimizer if args.outer else tf.train.LocalSGDOptimizer
    optimizer = kind(tf.train.MomentumOptimizer(0.1, 0.9), workers, rank, args.period)
    hooks = [optimizer.make_session_run_hook()]
    _, score = train(server.target, optimizer, lambda: hooks, 1 + 10 * rank, args.steps, rank, workers)
    sent = server.collective_traffic()
    print(f"worker {rank}: sent {sent.messages} messages, {sent.bytes} bytes of tensors", flush=True)
    print(f"worker {rank}: test accuracy {100 * score:.1f} %", flush=True)


if __name__ == "__main__":
    main()
