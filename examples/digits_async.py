"""Asynchronous training of a small network on the digits of scikit-learn: between-graph replication.

Every task runs this file. The ps tasks hold the variables; each worker builds the same graph,
computes gradients on its own batches and applies them without waiting for the others.

    tfmini launch --ps 2 --workers 3 examples/digits_async.py

or, one process per task:

    python digits_async.py --job_name=ps --task_index=0 \
        --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224

The role may come from TF_CONFIG instead of the flags.
"""

import argparse
import json
import os
import time

from digits import batches, build_model, load_data

import tfmini as tf

BATCH = 50


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job_name", help="ps or worker; default: from TF_CONFIG")
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--ps_hosts", default="localhost:2222")
    parser.add_argument("--worker_hosts", default="localhost:2223")
    parser.add_argument("--steps", type=int, default=1200, help="training ends when global_step reaches this")
    parser.add_argument("--compression", help="of gradients: fp16, int8, or topk:0.01; default: none")
    return parser.parse_args()


def cluster_and_role(args):
    """(cluster, job name, task index) by the flags, or else by TF_CONFIG."""
    if args.job_name:
        cluster = {"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")}
        return tf.train.ClusterSpec(cluster), args.job_name, args.task_index
    if "TF_CONFIG" not in os.environ:
        raise SystemExit("Which task is this? Give --job_name, or run me by: tfmini launch --ps 2 --workers 3 ...")
    config = json.loads(os.environ["TF_CONFIG"])
    return tf.train.ClusterSpec(config["cluster"]), config["task"]["type"], config["task"]["index"]


def work(cluster, server, task_index, last_step, compression):
    is_chief = task_index == 0
    train_x, test_x, train_y, test_y = load_data()

    with tf.device(tf.train.replica_device_setter(worker_device=f"/job:worker/task:{task_index}", cluster=cluster)):
        images, labels, loss, accuracy = build_model()
        global_step = tf.train.get_or_create_global_step()
        optimizer = tf.train.AdagradOptimizer(0.1)
        if compression:
            optimizer = tf.train.CompressedGradientOptimizer(optimizer, compression)
        train_op = optimizer.minimize(loss, global_step=global_step)
        init_op = tf.global_variables_initializer()
        local_init_op = tf.local_variables_initializer()  # of the residuals of compressed gradients
        uninitialized = tf.report_uninitialized_variables()

    with tf.Session(server.target) as sess:
        sess.run(local_init_op)
        if is_chief:
            sess.run(init_op)
        else:
            while len(sess.run(uninitialized)):
                time.sleep(0.1)

        for local_step, (x, y) in enumerate(batches(train_x, train_y, BATCH, seed=task_index)):
            _, step, value = sess.run([train_op, global_step, loss], {images: x, labels: y})
            if local_step % 100 == 0:
                print(f"worker {task_index}: global step {step}, loss {value:.3f}", flush=True)
            if step >= last_step:
                break

        score = sess.run(accuracy, {images: test_x, labels: test_y})
        print(f"worker {task_index}: test accuracy {100 * score:.1f} %", flush=True)
        if is_chief:
            show_wire(sess, [train_op, global_step, loss], {images: x, labels: y})


def show_wire(sess, fetches, feed_dict):
    """What one training step sends between the tasks; TensorFlow has no such thing."""
    from tfmini.tools.inspect import step_table

    print("\nwhat a training step sends:\n\n" + step_table(sess, fetches, feed_dict), flush=True)


def main():
    args = parse_arguments()
    cluster, job_name, task_index = cluster_and_role(args)
    server = tf.train.Server(cluster, job_name=job_name, task_index=task_index)
    if job_name == "ps":
        server.join()
    else:
        work(cluster, server, task_index, args.steps, args.compression)


if __name__ == "__main__":
    main()
