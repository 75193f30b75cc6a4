"""Asynchronous training that survives the loss of any task: checkpoints, TensorBoard summaries, and recovery.

The first worker, the chief, saves a checkpoint every --save_steps steps and writes summaries: the loss, the steps
per second, histograms of the weights, a picture of the first layer, and the test accuracy. Kill a parameter
server or a worker while it runs (`kill -9`) and start it again: training continues from the last checkpoint.
A new run with the same --logdir continues from the last checkpoint, too.

    tfmini launch --ps 1 --workers 2 examples/digits_checkpoints.py --logdir=/tmp/digits
    tfmini launch --ps 1 --workers 2 examples/digits_checkpoints.py --logdir=/tmp/digits --steps=1000
    tensorboard --logdir /tmp/digits

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
    parser.add_argument("--steps", type=int, default=500, help="training ends when global_step reaches this")
    parser.add_argument("--save_steps", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--keep", type=int, default=3, help="how many checkpoints to keep")
    parser.add_argument("--logdir", help="for checkpoints and summaries; default: a new directory")
    return parser.parse_args()


def add_summaries(loss):
    tf.summary.scalar("loss", loss)
    with tf.variable_scope("hidden", reuse=True):
        filters = tf.transpose(tf.get_variable("W"))
    tf.summary.image("filters", tf.reshape(filters, [-1, 8, 8, 1]), max_outputs=4)
    for variable in tf.trainable_variables():
        tf.summary.histogram(variable.op.name, variable)


class Evaluation(tf.train.CheckpointSaverListener):
    """Measures each checkpoint on the test data, and writes the result beside the other summaries."""

    def __init__(self, logdir, accuracy, feeds):
        self.logdir, self.accuracy, self.feeds = logdir, accuracy, feeds
        self.score = None

    def after_save(self, session, global_step_value):
        self.score = session.run(self.accuracy, self.feeds)
        value = tf.Summary.Value(tag="test_accuracy", simple_value=float(self.score))
        tf.summary.FileWriterCache.get(self.logdir).add_summary(tf.Summary(value=[value]), global_step_value)
        print(f"checkpoint at step {global_step_value}: test accuracy {100 * self.score:.1f} %", flush=True)


def work(cluster, server, task_index, args):
    is_chief = task_index == 0
    train_x, test_x, train_y, test_y = load_data()
    with tf.device(tf.train.replica_device_setter(worker_device=f"/job:worker/task:{task_index}", cluster=cluster)):
        images, labels, loss, accuracy = build_model()
        global_step = tf.train.get_or_create_global_step()
        train_op = tf.train.AdagradOptimizer(0.1).minimize(loss, global_step=global_step)
        add_summaries(loss)

    logdir = (args.logdir or tempfile.mkdtemp()) if is_chief else None
    hooks = [tf.train.StopAtStepHook(last_step=args.steps), tf.train.NanTensorHook(loss)]
    saver_hooks = []
    if is_chief:
        before = tf.train.latest_checkpoint(logdir)
        print(f"going on from {before}" if before else f"a new run in {logdir}", flush=True)
        saver = tf.train.Saver(max_to_keep=args.keep, sharded=True)
        listener = Evaluation(logdir, accuracy, {images: test_x, labels: test_y})
        scaffold = tf.train.Scaffold(saver=saver)
        saver_hooks.append(
            tf.train.CheckpointSaverHook(logdir, save_steps=args.save_steps, scaffold=scaffold, listeners=[listener])
        )
    else:
        scaffold = None

    data = batches(train_x, train_y, BATCH, seed=task_index)
    with tf.train.MonitoredTrainingSession(
        server.target, is_chief, logdir, scaffold, hooks=hooks, chief_only_hooks=saver_hooks,
        save_checkpoint_secs=None, save_summaries_steps=20, log_step_count_steps=100,
    ) as sess:  # fmt: skip
        while not sess.should_stop():
            x, y = next(data)
            sess.run(train_op, {images: x, labels: y})

    if is_chief:
        kept = tf.train.get_checkpoint_state(logdir).all_model_checkpoint_paths
        print(f"checkpoints: {', '.join(os.path.basename(path) for path in kept)}")
        print(f"summaries and checkpoints are in {logdir}: tensorboard --logdir {logdir}", flush=True)


def main():
    args = parse_arguments()
    if "TF_CONFIG" not in os.environ:
        raise SystemExit("Run me by: tfmini launch --ps 1 --workers 2 examples/digits_checkpoints.py")
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
