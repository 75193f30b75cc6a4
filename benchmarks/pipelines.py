"""Input pipelines with small functions: examples per second on tfmini and on TensorFlow 1.15.5.

    python benchmarks/pipelines.py --tensorflow1 PYTHON [--rounds 3] [PIPELINE …]

Each target runs all pipelines in a process of its own, in turn, and each pipeline for some seconds, of which the best
0.5 s count; the table has the best round. The data are made here. It unsets what slows a current numpy down.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

# This file also runs on Python 3.7, for TensorFlow 1.15.
COLUMNS = 14


def make_data(tf):
    """The files that the pipelines read, in the working directory."""
    random = np.random.RandomState(0)
    words = ["Private", "State-gov", "?", "Bachelors", "HS-grad"]
    with open("rows.csv", "w") as file:
        for _ in range(10_000):
            row = [str(random.randint(90)) if i % 2 else words[random.randint(5)] for i in range(COLUMNS)]
            file.write(",".join(row) + "\n")
    with tf.python_io.TFRecordWriter("rows.tfrecord") as writer:
        for _ in range(5_000):
            feature = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[random.bytes(784)])),
                "x": tf.train.Feature(float_list=tf.train.FloatList(value=random.rand(10))),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(random.randint(10))])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    picture = np.add.outer(np.arange(64), 2 * np.arange(64))[:, :, None] + np.arange(3)
    with tf.Graph().as_default(), tf.Session() as session:
        Path("picture.png").write_bytes(session.run(tf.image.encode_png(picture.astype(np.uint8))))


def pipelines(tf):
    """Name -> a function that makes a data set of batches, or tensors of a queue; and the examples of one."""
    data, to_slices = tf.data.Dataset, tf.data.Dataset.from_tensor_slices
    images, labels = np.random.RandomState(0).rand(5000, 28, 28).astype(np.float32), np.arange(5000) % 10

    def csv(line):
        return tf.decode_csv(line, [[0.0] if i % 2 else [""] for i in range(COLUMNS)])

    def example(record):
        kinds = {"image": ((), tf.string), "x": ((10,), tf.float32), "label": ((), tf.int64)}
        found = tf.parse_single_example(record, {name: tf.FixedLenFeature(*kind) for name, kind in kinds.items()})
        pixels = tf.reshape(tf.decode_raw(found["image"], tf.uint8), [784])
        return tf.cast(pixels, tf.float32) / 255.0, found["x"], found["label"]

    def picture(path):
        image = tf.image.convert_image_dtype(tf.image.decode_png(tf.read_file(path), 3), tf.float32)
        return tf.image.resize_images(image, [32, 32])

    def crop(image, label):
        padded = tf.image.resize_image_with_crop_or_pad(image, 36, 36)
        return tf.image.random_flip_left_right(tf.random_crop(padded, [28, 28, 1])), label

    def read(reader, name):
        return reader.read(tf.train.string_input_producer([name]))[1]

    lines, records = tf.data.TextLineDataset("rows.csv").repeat(), tf.data.TFRecordDataset("rows.tfrecord").repeat()
    numbers = data.range(100_000).repeat()
    return {
        "csv": lambda: lines.map(csv).batch(64),
        "csv_parallel": lambda: lines.shuffle(1000).map(csv, num_parallel_calls=4).batch(64),
        "csv_map_and_batch": lambda: lines.apply(tf.data.experimental.map_and_batch(csv, 64, 2)),
        "records": lambda: records.map(example).batch(64),
        "records_parallel": lambda: records.shuffle(1000).map(example, num_parallel_calls=4).batch(64).prefetch(1),
        "slices": lambda: to_slices((images, labels)).shuffle(5000).repeat().batch(64),
        "slices_map": lambda: to_slices((images, labels)).repeat().map(lambda x, y: (x / 255.0, y)).batch(64),
        "numbers_parallel": lambda: numbers.map(lambda x: 2 * x + 1, num_parallel_calls=4).batch(64),
        "python_function": lambda: numbers.map(lambda x: tf.py_func(abs, [x], tf.int64), num_parallel_calls=4).batch(
            64
        ),
        "png_and_resize": lambda: to_slices(["picture.png"] * 99).repeat().map(picture, num_parallel_calls=4).batch(64),
        "crop_and_flip": lambda: to_slices((images[..., None], labels)).repeat().map(crop, 4).batch(64),
        "filter": lambda: numbers.filter(lambda x: tf.equal(x % 2, 0)).batch(64),
        "flat_map": lambda: numbers.flat_map(lambda x: data.from_tensors(x).repeat(4)).batch(64),
        "interleave": lambda: to_slices(["rows.csv"] * 4).repeat().interleave(tf.data.TextLineDataset, 4, 16).batch(64),
        "padded_batch": lambda: numbers.map(lambda x: tf.fill([tf.cast(x % 20, tf.int32)], x)).padded_batch(64, [-1]),
        "prefetch": lambda: to_slices((images, labels)).repeat().batch(64).prefetch(1),
        "queue_csv": lambda: tf.train.batch(csv(read(tf.TextLineReader(), "rows.csv")), 64),
        "queue_records": lambda: tf.train.shuffle_batch(
            example(read(tf.TFRecordReader(), "rows.tfrecord")), 64, 2000, 500
        ),
    }


def speed(tf, name, seconds=0.5, rounds=4):
    """The examples per second of one pipeline."""
    with tf.Graph().as_default(), tf.Session() as session:
        found, initialize = pipelines(tf)[name](), tf.no_op()
        if hasattr(found, "make_initializable_iterator"):
            iterator = found.make_initializable_iterator()
            found, initialize = iterator.get_next(), iterator.initializer
        step = session.make_callable(tf.group(*(found if isinstance(found, (list, tuple)) else [found])))
        session.run([tf.local_variables_initializer(), initialize])
        coordinator = tf.train.Coordinator()
        tf.train.start_queue_runners(session, coordinator)
        best = 0.0
        for _ in range(1 + rounds):
            count, begin = 0, time.perf_counter()
            while time.perf_counter() < begin + seconds:
                step()
                count += 64
            best = max(best, count / (time.perf_counter() - begin))
        coordinator.request_stop()
        return best


def run_here(names):
    """Prints the speed of each pipeline."""
    import tensorflow as tf

    tf.logging.set_verbosity(tf.logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_data(tf)
        with tf.Graph().as_default():
            known = list(pipelines(tf))
        for name in names or known:
            sys.__stdout__.write(f"\n{name} {speed(tf, name)!r}\n")
        sys.__stdout__.flush()
        os._exit(0)  # without waiting for threads of queues


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensorflow1", required=True, help="a Python with TensorFlow 1.15.5")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("pipelines", nargs="*", metavar="PIPELINE")
    args = parser.parse_intermixed_args()
    env = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
    env["CUDA_VISIBLE_DEVICES"] = ""
    best: dict[tuple[str, str], float] = {}
    for _ in range(args.rounds):
        for command in ([sys.executable, "-m", "tfmini", "run"], [args.tensorflow1]):
            done = subprocess.run(
                [*command, __file__, "--here", *args.pipelines], env=env, stdout=subprocess.PIPE, text=True, check=True
            )
            for name, found in (line.split() for line in done.stdout.splitlines() if line.count(" ") == 1):
                best[name, command[0]] = max(best.get((name, command[0]), 0.0), float(found))
    print(
        "| pipeline | tfmini (examples/s) | TensorFlow 1.15.5 (examples/s) | ratio of the times |\n|---|---:|---:|---:|"
    )
    for name in dict.fromkeys(name for name, _ in best):
        ours, theirs = best[name, sys.executable], best[name, args.tensorflow1]
        print(f"| {name} | {ours:,.0f} | {theirs:,.0f} | {theirs / ours:.2f} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--here"]:
        run_here(sys.argv[2:])
    main()
