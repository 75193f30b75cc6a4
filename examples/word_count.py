"""Counts words with TF1's queues: all workers dequeue lines from one shared queue and count their words.

The first worker's queue runners read --files line by line into a queue on the ps. Every worker takes batches of lines
from it and counts their words. At the end of the files the runner closes the queue. The workers empty it, get
OutOfRangeError, and send their counts through a second queue to the first worker, which adds them up.

    tfmini launch --ps 2 --workers 3 examples/word_count.py
    tfmini launch --ps 1 --workers 2 examples/word_count.py --files='docs/*.md' --top=5
    python examples/word_count.py                                # one process, no cluster

The role comes from TF_CONFIG.
"""

import argparse
import collections
import glob
import json
import os

import tfmini as tf

BATCH = 16
HERE = os.path.dirname(os.path.abspath(__file__))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", default=os.path.join(HERE, "*.py"), help="pattern of the text files")
    parser.add_argument("--epochs", type=int, default=10, help="how often the files are read")
    parser.add_argument("--top", type=int, default=10, help="how many words to show")
    return parser.parse_args()


def lines_of(files, epochs):
    """A tensor that gives the next line in each run; OutOfRangeError after the last line of the last epoch."""
    names = tf.train.string_input_producer(files, num_epochs=epochs, shuffle=False)
    _, line = tf.TextLineReader().read(names)
    return line


def build(files, epochs, is_chief, ps):
    """(words of the next batch of lines, feeds for one worker's result, the send, the next result)."""
    with tf.device(ps):  # the queues have shared names, so the graphs of all workers use the same two queues
        lines = tf.FIFOQueue(200, [tf.string], shapes=[[]], shared_name="lines")
        results = tf.FIFOQueue(100, [tf.string, tf.int64], shared_name="results")
    if is_chief:
        tf.train.add_queue_runner(tf.train.QueueRunner(lines, [lines.enqueue(lines_of(files, epochs))]))
    words = tf.string_split(lines.dequeue_up_to(BATCH)).values
    result = tf.placeholder(tf.string, [None]), tf.placeholder(tf.int64, [None])
    return words, result, results.enqueue(result), results.dequeue()


def count(sess, words):
    """Counts batches until the queue is closed and empty."""
    counted = collections.Counter()
    while True:
        try:
            counted.update(sess.run(words).tolist())
        except tf.errors.OutOfRangeError:
            return counted


def work(args, workers, task_index, target="", ps=None):
    is_chief = task_index == 0
    files = sorted(glob.glob(args.files))
    if not files:
        raise SystemExit(f"No files match {args.files!r}.")
    with tf.device(f"/job:worker/task:{task_index}" if target else None):
        words, result, send, receive = build(files, args.epochs, is_chief, ps)
    with tf.train.MonitoredTrainingSession(target, is_chief) as sess:
        counted = count(sess, words)
        print(f"worker {task_index}: counted {counted.total()} words", flush=True)
        sess.run(send, dict(zip(result, (list(counted), list(counted.values())))))
        if is_chief:
            report(add_up(sess.run(receive) for _ in range(workers)), args.top)


def add_up(results):
    total = collections.Counter()
    for names, counts in results:
        total.update(dict(zip(names.tolist(), counts.tolist())))
    return total


def report(total, top):
    print(f"\n{total.total()} words, {len(total)} different ones; the most frequent:")
    for word, times in total.most_common(top):
        print(f"  {times:5d}  {word.decode()}")


def main():
    args = parse_arguments()
    if "TF_CONFIG" not in os.environ:
        work(args, workers=1, task_index=0)
        return
    config = json.loads(os.environ["TF_CONFIG"])
    cluster = tf.train.ClusterSpec(config["cluster"])
    job_name, task_index = config["task"]["type"], config["task"]["index"]
    server = tf.train.Server(cluster, job_name=job_name, task_index=task_index)
    if job_name == "ps":
        server.join()
    else:
        work(args, cluster.num_tasks("worker"), task_index, server.target, ps="/job:ps/task:0")


if __name__ == "__main__":
    main()
