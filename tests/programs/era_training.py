"""Programs with the input queues of ``tf.contrib.training``: a part of `tests.programs.era`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.programs.era import outcome, program, run


def _all(tf: Any, fetches: Any, feeds: Any = None) -> Any:
    """What the queues give until their end."""
    rows = []
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        tf.train.start_queue_runners(session, coordinator)
        try:
            while True:
                rows.append(session.run(fetches))
        except tf.errors.OutOfRangeError:
            coordinator.request_stop()
        coordinator.join(stop_grace_period_secs=20)
    return rows


def _number(tf: Any, limit: int) -> Any:
    return tf.train.range_input_producer(limit, num_epochs=1, shuffle=False).dequeue()


@program
def buckets(tf: Any) -> Any:
    def batches(**options: Any) -> Any:
        with tf.Graph().as_default():
            n = _number(tf, 23)
            which, found = tf.contrib.training.bucket(
                {"n": n, "text": tf.as_string(n)}, n % 3, num_buckets=3, **options
            )
            shapes = [which.shape.as_list(), found["n"].shape.as_list()]
            return shapes, sorted([int(w), f["n"].tolist(), f["text"].tolist()] for w, f in _all(tf, [which, found]))

    def lengths(**options: Any) -> Any:
        with tf.Graph().as_default():
            n = _number(tf, 19)
            length, found = tf.contrib.training.bucket_by_sequence_length(
                n, {"x": tf.fill([n], n), "y": n}, 3, [4, 9], dynamic_pad=True, **options
            )
            shapes = [length.op.name, length.shape.as_list(), found["x"].shape.as_list()]
            return shapes, sorted([a.tolist(), b["x"].tolist(), b["y"].tolist()] for a, b in _all(tf, [length, found]))

    def sparse() -> Any:
        n = _number(tf, 8)
        value = tf.SparseTensor([[tf.cast(n % 4, tf.int64)]], [n], [4])
        which, found = tf.contrib.training.bucket([n, value], n % 2, 2, 2)
        return sorted([int(w), a.tolist(), b.values.tolist(), b.dense_shape.tolist()]
                      for w, (a, b) in _all(tf, [which, found]))  # fmt: skip

    bucket, by_length = tf.contrib.training.bucket, tf.contrib.training.bucket_by_sequence_length
    wrong = [
        lambda: bucket([tf.constant(1)], 0, [2, 3], 3),
        lambda: bucket([tf.constant(1)], 0, 2, 2, bucket_capacities=[1]),
        lambda: by_length(3, [tf.constant(1)], 2, []), lambda: by_length(3, [tf.constant(1)], 2, [2, 1]),
        lambda: by_length(3, [tf.constant(1)], 2, [1.0, 2]), lambda: by_length(3, [tf.constant(1)], 2, 3),
        lambda: bucket([], 0, 2, 2), lambda: bucket([tf.placeholder(tf.float32)], 0, 2, 2),
    ]  # fmt: skip
    return [batches(batch_size=4), batches(batch_size=[2, 3, 4], capacity=5),
            batches(batch_size=4, allow_smaller_final_batch=True),
            lengths(), lengths(allow_smaller_final_batch=True), sparse(), [outcome(way) for way in wrong]]  # fmt: skip


@program
def resampled_batches(tf: Any) -> Any:
    training = tf.contrib.training

    def rejected(**options: Any) -> Any:
        with tf.Graph().as_default():
            n = _number(tf, 12)
            parts = [n, n * 2] if not options.get("enqueue_many") else [tf.stack([n, n + 100]), tf.stack([n, n])]
            found = training.rejection_sample(parts, lambda x: tf.cast(x[0] % 3 > 0, tf.float32), 2, **options)
            return [part.shape.as_list() for part in found], [[x.tolist() for x in row] for row in _all(tf, found)]

    def stratified(target: Any, given: Any, many: bool = False) -> Any:
        with tf.Graph().as_default():
            n = _number(tf, 30)
            label = tf.cast(n % 3, tf.int32)
            tensors = [tf.stack([n, n])] if many else [n]
            found, labels = training.stratified_sample(
                tensors, tf.stack([label, label]) if many else label, target, 2, given, enqueue_many=many
            )
            rows = _all(tf, [found, labels])
            return [len(found), labels.shape.as_list(), sorted({int(x) for row in rows for x in row[1]}), len(rows) > 0]

    x, weights = tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([2.0, 0.0])
    at_rate = training.resample_at_rate([x, tf.constant([5, 6])], weights * 200)
    rows, chosen = run(tf, [tf.shape(at_rate[0])[1], at_rate])
    found, rates = training.weighted_resample([tf.constant([5, 6])], weights, 300.0)
    with tf.Session() as session:
        session.run([tf.local_variables_initializer(), tf.global_variables_initializer()])
        weighted = session.run([found[0], rates])
    counts = [len(chosen[1]) > 300, sorted(set(chosen[1].tolist())), len(weighted[0]) > 450]
    with tf.Graph().as_default():
        for _ in range(2):
            training.stratified_sample([tf.constant(1.0)], tf.constant(1), [0.2, 0.8], 2)
        estimates = [(v.op.name, v.trainable) for v in tf.global_variables()]
    wrong = [
        lambda: training.stratified_sample([x[0]], tf.constant(1), [0.5, 0.5], 2, [0.2, 0.3, 0.5]),
        lambda: training.stratified_sample([x], tf.constant([1]), [0.5, 0.5], 2),
        lambda: training.stratified_sample([x], tf.constant([1, 2]), [0.5, 0.5], 2),
    ]
    return [
        rejected(), rejected(enqueue_many=True), rejected(runtime_checks=True), int(rows), counts,
        np.unique(weighted[1]), estimates, [v.op.name for v in tf.local_variables() + tf.global_variables()],
        stratified([0.5, 0.5, 0.0], [0.3, 0.3, 0.4]), stratified([0.0, 0.0, 1.0], None),
        stratified([1.0, 0.0, 0.0], [0.4, 0.6, 0.0], True), [outcome(way) for way in wrong],
    ]  # fmt: skip


@program
def queue_runners_that_feed(tf: Any) -> Any:
    runner = tf.contrib.training.FeedingQueueRunner
    x = tf.placeholder(tf.float32, [])
    queue = tf.FIFOQueue(3, [tf.float32], [[]])

    def feeding(values: Any) -> Any:
        rest = iter(values)

        def feed() -> Any:
            for value in rest:
                return {x: value}
            raise tf.errors.OutOfRangeError(None, None, "the end")

        return feed

    enqueue = queue.enqueue(x)
    feeds = [feeding([1.0, 2.0, 3.0]), feeding([4.0])]
    tf.train.add_queue_runner(runner(queue, [enqueue, enqueue], feed_fns=feeds))
    return sorted(_all(tf, queue.dequeue())), outcome(lambda: runner(queue, [queue.enqueue(x)], feed_fns=feeds))


@program
def segments_of_sequences_with_states(tf: Any) -> Any:
    length, key = tf.placeholder(tf.int32, []), tf.placeholder(tf.string, [])
    sequence = tf.placeholder(tf.float32, [None, 2])
    saver = tf.contrib.training.SequenceQueueingStateSaver(
        2, 3, length, key, {"s": sequence, "t": sequence[:, 0]}, {"c": tf.strings.length(key)},
        {"a": tf.zeros([2]), "b": tf.constant(1)}, capacity=4, allow_small_batch=True, name="saver",
    )  # fmt: skip
    batch = saver.next_batch
    kept = [
        batch.save_state("a", batch.state("a") + batch.sequences["s"][:, 0]),
        batch.save_state("b", batch.state("b") * 2),
    ]
    fields = (
        batch.key, batch.next_key, batch.insertion_index, batch.length, batch.total_length, batch.sequence,
        batch.sequence_count, batch.batch_size, batch.sequences, batch.context, batch.state("a"), batch.state("b"),
    )  # fmt: skip
    shapes = [batch.key.shape.as_list(), batch.state("a").shape.as_list(), batch.sequences["s"].shape.as_list()]
    found: list[Any] = [shapes, saver.barrier.barrier_ref.name.startswith("saver/")]
    with tf.Session() as session:
        for name, rows in (("x", 6), ("yy", 6)):
            feed = {length: rows - 1, key: name, sequence: np.arange(2.0 * rows).reshape(rows, 2)}
            session.run(saver.prefetch_op, feed)
        found += [session.run((fields, kept))[0] for _ in range(2)]
        for rows, size in ((4, 1), (3, 4)):
            feed = {length: size, key: "w", sequence: np.zeros([rows, 2])}
            try:
                session.run(saver.prefetch_op, feed)
            except tf.errors.InvalidArgumentError as error:
                found.append([text in error.message for text in ("multiple of: 3, but saw value: 4", "<= than length")])
        session.run(saver.close())
        try:
            session.run(fields)
        except tf.errors.OutOfRangeError:
            found.append("end")
    for capacity, states in ((1, {"a": tf.zeros([])}), (None, {}), (None, {"a:b": tf.zeros([])}), (None, [1])):
        try:
            tf.contrib.training.SequenceQueueingStateSaver(2, 3, 1, "k", {"s": tf.zeros([3])}, {}, states, capacity)
        except (TypeError, ValueError) as error:
            found.append([type(error).__name__, str(error)[:32]])
    return found
