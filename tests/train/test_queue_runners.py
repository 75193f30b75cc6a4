"""Queue runners and what feeds on them: producers, readers, batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf


def run_all(fetches: Any, limit: int = 100) -> list[Any]:
    """All values of ``fetches`` until the input ends."""
    found = []
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coord)
        try:
            while not coord.should_stop() and len(found) < limit:
                found.append(session.run(fetches))
        except tf.errors.OutOfRangeError:
            pass
        finally:
            coord.request_stop()
        coord.join(threads)
    return found


def test_slices_are_batched_for_two_epochs() -> None:
    numbers, letters = tf.train.slice_input_producer([[1, 2, 3], ["a", "b", "c"]], num_epochs=2, shuffle=False)
    batch = tf.train.batch([numbers, letters], 2)
    found = run_all(batch)
    assert [n.tolist() for n, _ in found] == [[1, 2], [3, 1], [2, 3]]
    assert found[0][1].tolist() == [b"a", b"b"]


def test_the_final_batch_may_be_smaller() -> None:
    number = tf.train.range_input_producer(5, num_epochs=1, shuffle=False).dequeue()
    batch = tf.train.batch({"n": number}, 3, allow_smaller_final_batch=True)
    assert [b["n"].tolist() for b in run_all(batch)] == [[0, 1, 2], [3, 4]]


def test_batches_are_padded_to_their_longest_element() -> None:
    number = tf.train.range_input_producer(4, num_epochs=1, shuffle=False).dequeue()
    batch = tf.train.batch([tf.range(number)], 4, dynamic_pad=True)
    (found,) = run_all(batch)
    assert found.tolist() == [[0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 1, 2]]


def test_shuffled_batches_have_every_element_once() -> None:
    number = tf.train.range_input_producer(20, num_epochs=1, shuffle=True, seed=1).dequeue()
    batch = tf.train.shuffle_batch([number], 5, capacity=20, min_after_dequeue=8, num_threads=1, seed=2)
    found = np.concatenate(run_all(batch))
    assert sorted(found.tolist()) == list(range(20)) and found.tolist() != list(range(20))


def test_batches_join_several_producers_and_skip_elements() -> None:
    sources = [[tf.train.range_input_producer(6, num_epochs=1, shuffle=False).dequeue() + base] for base in (0, 100)]
    joined = np.concatenate(run_all(tf.train.batch_join(sources, 4)))
    assert sorted(joined.tolist()) == [*range(6), *range(100, 106)]


def test_only_elements_that_are_kept_are_batched() -> None:
    number = tf.train.range_input_producer(10, num_epochs=1, shuffle=False).dequeue()
    batch = tf.train.maybe_batch([number], tf.equal(number % 2, 0), 5)
    assert [b.tolist() for b in run_all(batch)] == [[0, 2, 4, 6, 8]]


def test_sparse_tensors_are_batched() -> None:
    number = tf.cast(tf.train.range_input_producer(2, num_epochs=1, shuffle=False).dequeue(), tf.int64)
    sparse = tf.SparseTensor(tf.reshape(number, [1, 1]), tf.reshape(number + 5, [1]), [4])
    batch = tf.train.batch([sparse], 2)
    (found,) = run_all([batch.indices, batch.values, batch.dense_shape])
    assert [part.tolist() for part in found] == [[[0, 0], [1, 1]], [5, 6], [2, 4]]


def test_files_are_read_parsed_and_batched(tmp_path: Path) -> None:
    for i in range(2):
        with tf.python_io.TFRecordWriter(str(tmp_path / f"{i}.tfrecord")) as writer:
            for j in range(3):
                feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[10 * i + j]))
                writer.write(tf.train.Example(features=tf.train.Features(feature={"x": feature})).SerializeToString())
    names = sorted(str(p) for p in tmp_path.iterdir())
    queue = tf.train.string_input_producer(names, num_epochs=1, shuffle=False)
    _, record = tf.TFRecordReader().read(queue)
    parsed = tf.parse_single_example(record, {"x": tf.FixedLenFeature([], tf.int64)})
    batch = tf.train.batch([parsed["x"]], 3)
    assert [b.tolist() for b in run_all(batch)] == [[0, 1, 2], [10, 11, 12]]


def test_csv_lines_are_read_and_decoded(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("head,er\n1,a\n2,b\n")
    queue = tf.train.string_input_producer([str(tmp_path / "data.csv")], num_epochs=1)
    key, line = tf.TextLineReader(skip_header_lines=1).read(queue)
    number, letter = tf.decode_csv(line, [[0], [""]])
    found = run_all([key, number, letter])
    assert [(n, c) for _, n, c in found] == [(1, b"a"), (2, b"b")]
    assert found[0][0].endswith(b"data.csv:2")


def test_epochs_are_a_local_variable() -> None:
    limited = tf.train.limit_epochs(tf.constant(1), num_epochs=2, name="limit")
    assert [v.op.name for v in tf.local_variables()] == ["limit/epochs"]
    with tf.Session() as session:
        with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized value limit/epochs"):
            session.run(limited)
        session.run(tf.local_variables_initializer())
        session.run(limited), session.run(limited)
        with pytest.raises(tf.errors.OutOfRangeError, match="Reached limit of 2"):
            session.run(limited)


def test_an_empty_list_of_files_is_refused() -> None:
    with pytest.raises(ValueError, match="string_input_producer requires a non-null input tensor"):
        tf.train.string_input_producer([])


def test_an_error_in_an_enqueue_reaches_join() -> None:
    queue = tf.FIFOQueue(10, tf.float32, shapes=[()])
    bad = tf.check_numerics(tf.placeholder_with_default(float("nan"), ()), "bad input")
    runner = tf.train.QueueRunner(queue, [queue.enqueue(bad)])
    with tf.Session() as session:
        coord = tf.train.Coordinator()
        threads = runner.create_threads(session, coord, start=True)
        with pytest.raises(tf.errors.InvalidArgumentError, match="bad input"):
            coord.join(threads)


def test_a_stop_cancels_an_enqueue_that_waits() -> None:
    queue = tf.FIFOQueue(1, tf.int32, shapes=[()])
    runner = tf.train.QueueRunner(queue, [queue.enqueue(1)] * 3)
    with tf.Session() as session:
        coord = tf.train.Coordinator(clean_stop_exception_types=(tf.errors.CancelledError,))
        threads = runner.create_threads(session, coord, start=True)
        assert runner.create_threads(session, coord) == []
        session.run(queue.dequeue())
        coord.request_stop()
        coord.join(threads)
        assert session.run(queue.is_closed())


def test_the_last_thread_closes_the_queue() -> None:
    queue = tf.FIFOQueue(100, tf.int32, shapes=[()])
    ended = tf.train.limit_epochs(tf.constant(1), num_epochs=4)
    runner = tf.train.QueueRunner(queue, [queue.enqueue(ended)] * 2)
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        for thread in runner.create_threads(session, start=True):
            thread.join()
        assert session.run([queue.size(), queue.is_closed()]) == [4, True]
        assert runner.exceptions_raised == []


def test_a_queue_runner_is_made_again_from_its_proto() -> None:
    queue = tf.FIFOQueue(10, tf.int32, name="q")
    runner = tf.train.QueueRunner(
        queue, [queue.enqueue(1)], queue_closed_exception_types=(tf.errors.OutOfRangeError, tf.errors.CancelledError)
    )
    message = runner.to_proto()
    assert message.queue_name == "q" and list(message.enqueue_op_name) == ["q_enqueue"]
    assert runner.to_proto(export_scope="other") is None
    again = tf.train.QueueRunner.from_proto(message)
    assert again.queue_closed_exception_types == (tf.errors.OutOfRangeError, tf.errors.CancelledError)
    assert again.to_proto() == message


def test_wrong_arguments_of_a_queue_runner_are_refused() -> None:
    queue = tf.FIFOQueue(10, tf.int32)
    with pytest.raises(ValueError, match="Must provide queue and enqueue_ops"):
        tf.train.QueueRunner(queue)
    with pytest.raises(TypeError, match="must be a tuple of tf.error types"):
        tf.train.QueueRunner(queue, [queue.enqueue(1)], queue_closed_exception_types=(ValueError,))
    with pytest.raises(ValueError, match="No default session"):
        tf.train.start_queue_runners()
    with pytest.raises(TypeError, match="must be a `tf.Session` object"):
        tf.train.start_queue_runners(sess="x")


def test_the_summary_of_a_bucket_is_of_its_own_queue() -> None:
    tf.contrib.training.bucket([tf.constant(1)], tf.constant(1), 2, 2)
    summaries = tf.get_collection(tf.GraphKeys.SUMMARIES)
    sizes = [summary.op.inputs[1].op.inputs[0].op for summary in summaries[:2]]
    assert [size.inputs[0].op.name for size in sizes] == ["bucket/bucket_queue_0", "bucket/bucket_queue_1"]
