"""A task of a synchronous run without the hook, as scripts with a supervisor write it: it ends by leaving `main`.

Arguments: the cluster as JSON, job, index, the number of steps.
"""

from __future__ import annotations

import json
import signal
import sys

import tfmini as tf


def main(cluster: str, job: str, index: str, steps: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    spec = json.loads(cluster)
    server = tf.train.Server(spec, job_name=job, task_index=int(index))
    print("ready", flush=True)
    if job == "ps":
        server.join()
        return
    is_chief = index == "0"
    setter = tf.train.replica_device_setter(cluster=spec, worker_device=f"/job:worker/task:{index}")
    with tf.device(setter):
        step = tf.train.get_or_create_global_step()
        v = tf.get_variable("v", initializer=0.0)
        opt = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(1.0), 1, 2)
        train = opt.minimize(-v, global_step=step)
    local_init = opt.chief_init_op if is_chief else opt.local_step_init_op
    tokens = opt.get_init_tokens_op()
    supervisor = tf.train.Supervisor(
        is_chief=is_chief, init_op=tf.global_variables_initializer(), local_init_op=local_init,
        ready_for_local_init_op=opt.ready_for_local_init_op, global_step=step,
    )  # fmt: skip
    session = supervisor.prepare_or_wait_for_session(server.target)
    if is_chief:
        session.run(tokens)
        supervisor.start_queue_runners(session, [opt.get_chief_queue_runner()])
    try:
        while session.run([train, step])[1] < int(steps) + (0 if is_chief else 100):  # others are not done before it
            pass
    except tf.errors.OutOfRangeError as error:
        print("over", error.message, flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
