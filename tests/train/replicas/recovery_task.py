"""A task of a synchronous run, run as a process: every worker has data of its own for every step.

Arguments: the cluster as JSON, job, index, directory of the checkpoints, last step, steps between checkpoints. Every
step prints "step <global step>", the end "done". Two thirds of the way a worker waits for the file "go" in the
directory, so that a test which kills a task does not come too late.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time

import numpy as np

import tfmini as tf

BATCH, RATE, MOMENTUM = 4, 0.01, 0.5


def data(workers: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """[worker, step, batch, 3] inputs and [worker, step, batch, 1] targets, which no line fits."""
    rng = np.random.RandomState(0)
    shape = (workers, steps, BATCH)
    return rng.randn(*shape, 3).astype(np.float32), 5 * rng.randn(*shape, 1).astype(np.float32)


def model(cluster: dict[str, list[str]], index: int, steps: int):
    xs, ys = data(len(cluster["worker"]), steps + 1)
    setter = tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{index}")
    with tf.device(setter):
        step = tf.train.get_or_create_global_step()
        w = tf.get_variable("w", [3, 1], initializer=tf.zeros_initializer())
        b = tf.get_variable("b", [1], initializer=tf.zeros_initializer())
        # No update happens between this read and the gradient, since every update needs all workers.
        x, y = tf.gather(xs[index], step), tf.gather(ys[index], step)
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - y))
        inner = tf.train.MomentumOptimizer(RATE, MOMENTUM)
        optimizer = tf.train.SyncReplicasOptimizer(inner, len(cluster["worker"]))
        train = optimizer.minimize(loss, global_step=step)
        return step, train, optimizer.make_session_run_hook(index == 0, num_tokens=0)


def reference(workers: int, steps: int) -> list[np.ndarray]:
    """The parameters (w, then b) after 0, 1, … steps of an undisturbed run."""
    xs, ys = (each.astype(np.float64) for each in data(workers, steps + 1))
    w, b, v_w, v_b = np.zeros((3, 1)), np.zeros(1), np.zeros((3, 1)), np.zeros(1)
    found = [np.append(w, b)]
    for step in range(steps):
        x, y = xs[:, step].reshape(-1, 3), ys[:, step].reshape(-1, 1)
        error = x @ w + b - y
        v_w = MOMENTUM * v_w + 2 * x.T @ error / len(x)
        v_b = MOMENTUM * v_b + 2 * error.mean(0)
        w, b = w - RATE * v_w, b - RATE * v_b
        found.append(np.append(w, b))
    return found


def main(cluster: str, job: str, index: str, logdir: str, last: str, every: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    logging.basicConfig(level=logging.INFO, format=f"{job}{index} %(relativeCreated)d %(message)s")
    spec = json.loads(cluster)
    server = tf.train.Server(spec, job_name=job, task_index=int(index))
    print("ready", flush=True)
    if job == "ps":
        server.join()
        return
    step, train, hook = model(spec, int(index), int(last))
    scaffold = tf.train.Scaffold(saver=tf.train.Saver(max_to_keep=1000))
    with tf.train.MonitoredTrainingSession(
        server.target, index == "0", logdir, scaffold, [hook, tf.train.StopAtStepHook(last_step=int(last))],
        save_checkpoint_steps=int(every), max_wait_secs=200,
    ) as sess:  # fmt: skip
        while not sess.should_stop():
            _, at = sess.run([train, step])
            print("step", at, flush=True)
            while at >= 2 * int(last) // 3 and not os.path.exists(os.path.join(logdir, "go")):
                time.sleep(0.005)
    print("done 0", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
