"""A task of a cluster on hosts of its own. Arguments: the cluster as JSON, job, index, what to do, its own arguments.

Every line that it prints begins with a word that the tests wait for: "ready", "step", "lost", "wire", "pulled", "done".
"""

from __future__ import annotations

import functools
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import tfmini as tf
from tfmini.rpc.messages import GetStatus, GetStatusReply
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.waiter import Waiter
from tfmini.tools.inspect import step_transfers

_FLOATS = 1 << 18


def say(*words: Any) -> None:
    print(*words, flush=True)


def serve(server: Any, index: int) -> None:
    """Serves until it is told to end."""
    server.join()


def step(server: Any, index: int) -> None:
    """Makes steps until one fails; says after how many seconds without a step the error came, and the error."""
    with tf.device("/job:ps/task:0"):
        count = tf.get_variable("count", [], tf.int64, tf.zeros_initializer())
    more = tf.assign_add(count, 1)
    with tf.Session(server.target) as session:
        session.run(count.initializer)
        before = time.monotonic()
        try:
            while True:
                say("step", session.run(more))
                before = time.monotonic()
                time.sleep(0.01)  # so that the lines are few
        except tf.errors.OpError as error:
            say("lost", f"{time.monotonic() - before:.2f}", type(error).__name__, str(error).replace("\n", " "))


def train(server: Any, index: int, steps: str) -> None:
    """Trains with a gradient of 1 MB in each step; says what the inspector says that a step sends."""
    target = np.linspace(-1, 1, _FLOATS, dtype=np.float32)
    worker = f"/job:worker/task:{index}"
    with tf.device(tf.train.replica_device_setter(cluster=server.server_def.cluster, worker_device=worker)):
        weights = tf.get_variable("weights", [_FLOATS], initializer=tf.zeros_initializer())
        gap = weights - tf.py_func(lambda: target, [], tf.float32)
        gap.set_shape([_FLOATS])
        loss = tf.reduce_mean(tf.square(gap))
        update = tf.train.GradientDescentOptimizer(0.2 * _FLOATS).minimize(loss)
        ready = tf.report_uninitialized_variables()
    with tf.Session(server.target) as session:
        if index == 0:
            session.run(tf.global_variables_initializer())
        while len(session.run(ready)):
            time.sleep(0.05)  # polls: another process gives the variables their values
        session.run(update)
        sent = sum(transfer.bytes or 0 for transfer in step_transfers(session, update))
        say("wire", sent)
        sys.stdin.readline()
        for _ in range(int(steps)):
            session.run(update)
        say("done", session.run(loss))


def ranks(server: Any, index: int, go: str, least: str = "0") -> None:
    """Trains as one rank of an all-reduce, until the file ``go`` is there; says how many ranks take part."""
    target = np.linspace(-1, 1, 1000, dtype=np.float32) + index
    size = len(server.server_def.cluster.job[0].tasks)
    with tf.device(f"/job:worker/task:{index}"):
        steps = tf.train.get_or_create_global_step()
        weights = tf.get_variable("weights", [1000], initializer=tf.zeros_initializer())
        loss = tf.reduce_sum(tf.square(weights - target))
        descent = tf.train.GradientDescentOptimizer(0.1)
        optimizer = tf.train.AllReduceOptimizer(descent, size, index, least_workers=int(least))
        update = optimizer.minimize(loss, global_step=steps)
        ready, one = tf.placeholder(tf.int32, []), tf.constant(1)
        finished, present = optimizer.ranks.all_reduce(ready), optimizer.ranks.all_reduce(one)
    with tf.train.MonitoredTrainingSession(server.target, hooks=[optimizer.make_session_run_hook()]) as session:
        votes = there = 0
        while not votes or votes < there:
            step, _, votes, there = session.run([steps, update, finished, present], {ready: int(Path(go).exists())})
            say("step", step, there)
            time.sleep(0.005)  # so that the lines are few
        say("done", session.run(tf.get_default_graph().get_tensor_by_name("weights:0")).mean())


def pull(server: Any, index: int, megabytes: str, times: str) -> None:
    """Pulls a variable; says the seconds of each pull."""
    size = int(megabytes) << 18
    with tf.device("/job:ps/task:0"):
        variable = tf.get_variable("variable", [size], initializer=tf.ones_initializer())
    with tf.device(f"/job:worker/task:{index}"):
        pulled = tf.identity(variable).op
    with tf.Session(server.target) as session:
        session.run(variable.initializer)
        session.run(pulled)
        for _ in range(int(times)):
            begun = time.perf_counter()
            session.run(pulled)
            say("pulled", f"{time.perf_counter() - begun:.4f}")


def reach(server: Any, index: int, *addresses: str) -> None:
    """Tries to reach a ps at each address; says why it cannot."""
    left, telling, over = len(addresses), threading.Lock(), Waiter()

    def told(address: str, answer: Any) -> None:
        nonlocal left
        word = "reached" if isinstance(answer, GetStatusReply) else "unreachable"
        with telling:  # threads of several links answer, and print writes the words and the end of the line apart
            say(word, address, getattr(answer, "message", ""))
            left -= 1
            if not left:
                over.set()

    for address in addresses:
        peer = server.endpoint.peer(address, "/job:ps/replica:0/task:0")
        peer.call(GetStatus(), functools.partial(told, address))
    get_reactor().drive(over, get_reactor().now() + 60)


def main(cluster: str, job: str, index: str, what: str, *arguments: str) -> None:
    server = tf.train.Server(json.loads(cluster), job_name=job, task_index=int(index))
    say("ready")
    programs = {"serve": serve, "step": step, "train": train, "ranks": ranks, "pull": pull, "reach": reach}
    programs[what](server, int(index), *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
