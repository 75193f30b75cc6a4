"""Synchronous training of a small network on the digits of scikit-learn, with checkpoints and summaries.

Each update takes the mean of the gradients of all workers except the --backups slowest. The first worker is
the chief: it writes checkpoints and TensorBoard summaries to --logdir, from which a stopped run continues, and
prints which workers contributed to the last steps.

    tfmini launch --ps 2 --workers 3 examples/digits_sync.py
    tfmini launch --ps 2 --workers 3 examples/digits_sync.py --backups=1 --logdir=/tmp/digits

The role comes from TF_CONFIG.
"""

import argparse
import json
import os
import tempfile

from digits import batches, build_model, load_data

import tfmini as tf

BATCH = 50


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300, help="training ends when global_step reaches this")
    parser.add_argument("--backups", type=int, default=0, help="how many workers an update need not wait for")
    parser.add_argument("--compression", help="of gradients: fp16, int8, or topk:0.01; default: none")
    parser.add_argument("--logdir", help="for checkpoints and summaries; default: a new directory")
    return parser.parse_args()


def add_summaries(images, loss):
    tf.summary.scalar("loss", loss)
    tf.summary.image("digit", tf.reshape(images, [-1, 8, 8, 1]), max_outputs=1)
    for variable in tf.trainable_variables():
        tf.summary.histogram(variable.op.name, variable)


def work(cluster, server, task_index, args):
    is_chief = task_index == 0
    workers = cluster.num_tasks("worker")
    train_x, test_x, train_y, test_y = load_data()

    with tf.device(tf.train.replica_device_setter(worker_device=f"/job:worker/task:{task_index}", cluster=cluster)):
        images, labels, loss, accuracy = build_model()
        global_step = tf.train.get_or_create_global_step()
        optimizer = tf.train.SyncReplicasOptimizer(
            tf.train.AdagradOptimizer(0.1), replicas_to_aggregate=workers - args.backups, total_num_replicas=workers,
            compression=args.compression,
        )  # fmt: skip
        train_op = optimizer.minimize(loss, global_step=global_step)
        add_summaries(images, loss)

    hooks = [optimizer.make_session_run_hook(is_chief), tf.train.StopAtStepHook(last_step=args.steps)]
    logdir = (args.logdir or tempfile.mkdtemp()) if is_chief else None
    score, contributions, next_report = None, "", 0

    def evaluate(step_context):
        # Without the hooks: this is no training step.
        return step_context.session.run(accuracy, {images: test_x, labels: test_y})

    with tf.train.MonitoredTrainingSession(
        server.target, is_chief, logdir, hooks=hooks, save_checkpoint_steps=100, save_summaries_steps=20,
        log_step_count_steps=None,
    ) as sess:  # fmt: skip
        data = batches(train_x, train_y, BATCH, seed=task_index)
        while not sess.should_stop():
            x, y = next(data)
            _, step, value = sess.run([train_op, global_step, loss], {images: x, labels: y})
            if is_chief and step >= next_report:
                next_report = step + 50
                print(f"global step {step}, loss {value:.3f}", flush=True)
                score = sess.run_step_fn(evaluate)
                contributions = str(optimizer.ledger(sess))

    if is_chief:
        print(f"test accuracy {100 * score:.1f} %" if score is not None else "no step was left")
        print("\nworkers whose gradients the last updates used, and dropped gradients:")
        print("\n".join(contributions.splitlines()[-8:]))
        print(f"\nsummaries and checkpoints are in {logdir}: tensorboard --logdir {logdir}", flush=True)


def main():
    args = parse_arguments()
    if "TF_CONFIG" not in os.environ:
        raise SystemExit("Run me by: tfmini launch --ps 2 --workers 3 examples/digits_sync.py")
    config = json.loads(os.environ["TF_CONFIG"])
    cluster = tf.train.ClusterSpec(config["cluster"])
    job_name, task_index = config["task"]["type"], config["task"]["index"]
    server = tf.train.Server(cluster, job_name=job_name, task_index=task_index)
    if job_name == "ps":
        server.join()
    else:
        work(cluster, server, task_index, args)


if __name__ == "__main__":
    main()
