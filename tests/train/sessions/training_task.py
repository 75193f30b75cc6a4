"""A task of a training cluster, run as a process: a ps serves, the workers fit a line until a global step.

Arguments: the cluster as JSON, job, index, directory of the checkpoints, API ("monitored",
"supervisor", "sync" for a monitored session with synchronous replicas, or "all-reduce" or "elastic" for one without ps,
where each worker trains on its part of the data), last step, steps between checkpoints. Every step prints
"step <global step>", the end "done <loss>". Two thirds of the way a worker waits for the file "go" in the directory:
the test that kills a task must not come too late, however slow it is. Without ps, the workers go on beyond the last
step until all of them have seen the file: a worker that was restarted needs the others in order to join them.
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

RINGS = ("all-reduce", "elastic")


def line():
    """The global step, and the squared errors of all points."""
    rng = np.random.RandomState(0)
    xs = rng.randn(64, 3).astype(np.float32)
    ys = xs @ np.array([[1.0], [-2.0], [0.5]], np.float32) + 0.3
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", [3, 1], initializer=tf.zeros_initializer())
    b = tf.get_variable("b", [1], initializer=tf.zeros_initializer())
    return step, tf.square(tf.matmul(xs, w) + b - ys)


def model(cluster: dict[str, list[str]] | None, index: int, is_sync: bool):
    setter = tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{index}")
    with tf.device(setter if cluster else None):
        step, errors = line()
        loss = tf.reduce_mean(errors)
        optimizer = tf.train.GradientDescentOptimizer(0.02)
        hooks = []
        if is_sync:
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, len(cluster["worker"]))
        train = optimizer.minimize(loss, global_step=step)
        if is_sync:
            hooks.append(optimizer.make_session_run_hook(index == 0))
    return step, loss, train, hooks


def in_a_ring(target: str, workers: int, rank: int, logdir: str, last: int, every: int, least: int) -> float:
    """Trains without ps, until all ranks are at the last step and have seen the file "go"."""
    step, errors = line()
    optimizer = tf.train.GradientDescentOptimizer(0.02)
    optimizer = tf.train.AllReduceOptimizer(optimizer, workers, rank, least_workers=least)
    train = optimizer.minimize(tf.reduce_mean(errors[rank::workers]), global_step=step)
    loss, is_ready = tf.reduce_mean(errors), tf.placeholder(tf.int32, [])
    ready, present = optimizer.ranks.all_reduce(is_ready), optimizer.ranks.all_reduce(tf.constant(1))
    with tf.train.MonitoredTrainingSession(
        target, True, logdir if rank == 0 else None, hooks=[optimizer.make_session_run_hook()],
        save_checkpoint_steps=every, save_summaries_steps=None, log_step_count_steps=None,
    ) as sess:  # fmt: skip
        at = votes = there = 0
        while not there or votes < there:
            vote = at >= last and os.path.exists(os.path.join(logdir, "go"))
            at, _, votes, there = sess.run([step, train, ready, present], {is_ready: int(vote)})
            print("step", at, flush=True)
        return sess.run(loss)


def hold(logdir: str, at: int, last: int) -> None:
    """Waits for the test, see above."""
    while at >= 2 * last // 3 and not os.path.exists(os.path.join(logdir, "go")):
        time.sleep(0.005)


def monitored(target: str, is_chief: bool, logdir: str, last: int, every: int, step, loss, train, hooks) -> float:
    value = float("nan")
    hooks = [*hooks, tf.train.StopAtStepHook(last_step=last)]
    with tf.train.MonitoredTrainingSession(
        target, is_chief, logdir, hooks=hooks, save_checkpoint_steps=every, max_wait_secs=200
    ) as sess:
        while not sess.should_stop():
            value, _, at = sess.run([loss, train, step])
            print("step", at, flush=True)
            hold(logdir, at, last)
    return value


def supervised(target: str, is_chief: bool, logdir: str, last: int, every: int, step, loss, train, hooks) -> float:
    sv = tf.train.Supervisor(is_chief=is_chief, logdir=logdir, save_model_secs=0.05 * every, global_step=step)
    while True:
        try:
            with sv.managed_session(target) as sess:
                value, at = sess.run([loss, step])
                while not sv.should_stop() and at < last:
                    value, _, at = sess.run([loss, train, step])
                    print("step", at, flush=True)
                    hold(logdir, at, last)
            return value
        except (tf.errors.AbortedError, tf.errors.UnavailableError) as error:
            print("again", type(error).__name__, flush=True)


def main(cluster: str, job: str, index: str, logdir: str, api: str, last: str, every: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    logging.basicConfig(level=logging.INFO, format=f"{job}{index} %(relativeCreated)d %(message)s")
    if os.path.exists(os.path.join(logdir, "check-locks")):  # a trial, at the root of the repository
        from tests.locking import check_from_now_on

        check_from_now_on(os.path.join(logdir, "lock-errors"))
    spec = json.loads(cluster)
    server = tf.train.Server(spec, job_name=job, task_index=int(index))
    print("ready", flush=True)
    if job == "ps":
        server.join()
        return
    if api in RINGS:
        least = 1 if api == "elastic" else 0
        value = in_a_ring(server.target, len(spec["worker"]), int(index), logdir, int(last), int(every), least)
    else:
        train = {"monitored": monitored, "sync": monitored, "supervisor": supervised}[api]
        built = model(spec, int(index), api == "sync")
        value = train(server.target, index == "0", logdir, int(last), int(every), *built)
    print("done", value, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
