"""Programs with losses and metrics of ``tf.contrib``: a part of `tests.programs.era`."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np

from tests.programs.era import outcome, program, run


def _numbers(*shape: int) -> Any:
    return np.sin(np.arange(np.prod(shape)) * 1.3 + np.arange(np.prod(shape)) ** 2).reshape(shape).astype(np.float32)


@program
def losses_of_metric_learning(tf: Any) -> Any:
    losses = tf.contrib.losses.metric_learning
    x, y = tf.constant(_numbers(6, 3)), tf.constant(_numbers(6, 3)[::-1] * 0.5)
    unit = tf.nn.l2_normalize(x, 1)
    labels = [[0, 1, 0, 2, 1, 0], [0, 0, 1, 1, 2, 2], [3, 3, 3, 1, 1, 1]]
    sparse = [tf.SparseTensor([[i % 3], [3]], [1, 1], [4]) for i in range(6)]
    made = [losses.triplet_semihard_loss(tf.constant(ids), unit, margin) for ids in labels for margin in (1.0, 0.2)]
    made += [losses.lifted_struct_loss(tf.constant(ids), x) for ids in labels]
    made += [losses.contrastive_loss(tf.constant([1, 0, 0, 1, 1, 0]), x, y, 0.7)]
    made += [losses.npairs_loss(tf.constant([0, 1, 2, 3, 1, 5]), x, y), losses.npairs_loss(tf.range(6), x, y, 0.5)]
    made += [losses.npairs_loss_multilabel(sparse, x, y)]
    slopes = [tf.gradients(loss, x)[0] for loss in made]
    return run(tf, [made, slopes]), outcome(lambda: losses.npairs_loss_multilabel([1, 2], x, y))


@program
def metrics_of_contrib(tf: Any) -> Any:
    metrics = tf.contrib.metrics
    scores, wanted = _numbers(4, 6) * 0.4 + 0.5, np.cos(np.arange(24)).reshape(4, 6) > 0.1
    classes, chosen = np.arange(24).reshape(4, 6) % 3, (np.arange(24) ** 2 // 2).reshape(4, 6) % 3
    weights = np.float32(np.arange(24).reshape(4, 6) % 4)

    def of(make: Any) -> Any:
        """The updates and values of a metric over four batches, and its value before."""
        with tf.Graph().as_default():
            row = tf.placeholder(tf.int32, [])
            parts = [tf.gather(tf.constant(table), row) for table in (scores, wanted, classes, chosen, weights)]
            value, update = make(*parts)
            with tf.Session() as session:
                session.run(tf.local_variables_initializer())
                found = [session.run(value)]
                for i in range(4):
                    step = session.run(update, {row: i})
                    found.append([step if isinstance(update, tf.Tensor) else None, session.run(value)])
            names = sorted(v.op.name for v in tf.local_variables())
            return found, names, value.shape.as_list()

    other = lambda s: tf.tanh(s) * 3.0  # noqa: E731
    made = {
        "count": lambda s, y, a, b, w: metrics.count(s), "count weights": lambda s, y, a, b, w: metrics.count(s, w),
        "covariance": lambda s, y, a, b, w: metrics.streaming_covariance(s, other(s) + tf.to_float(a)),
        "covariance weighted": lambda s, y, a, b, w: metrics.streaming_covariance(s, other(s) - w, w, name="own"),
        "pearson": lambda s, y, a, b, w: metrics.streaming_pearson_correlation(s, other(s) + tf.to_float(a)),
        "pearson weighted": lambda s, y, a, b, w: metrics.streaming_pearson_correlation(s, w, w),
        "covariance of little": lambda s, y, a, b, w: metrics.streaming_covariance(s[:2], s[2:4], 0.3),
        "kappa of one class": lambda s, y, a, b, w: metrics.cohen_kappa(a * 0, b * 0, 2),
        "kappa": lambda s, y, a, b, w: metrics.cohen_kappa(a, b, 3),
        "kappa weighted": lambda s, y, a, b, w: metrics.cohen_kappa(a, b, 3, w),
        "f1": lambda s, y, a, b, w: metrics.f1_score(y, s, num_thresholds=11),
        "f1 weighted": lambda s, y, a, b, w: metrics.f1_score(y, s, w),
        "precision at recall": lambda s, y, a, b, w: metrics.precision_at_recall(y, s, 0.6, num_thresholds=21),
        "all recalls": lambda s, y, a, b, w: tuple(map(tf.stack, zip(*(
            metrics.precision_at_recall(y, s, share, num_thresholds=9) for share in (0.0, 0.3, 0.5, 0.76, 1.0))))),
        "false positive rate": lambda s, y, a, b, w: metrics.streaming_false_positive_rate(s > 0.5, y),
        "false negative rate": lambda s, y, a, b, w: metrics.streaming_false_negative_rate(s > 0.5, y, w),
        "at thresholds": lambda s, y, a, b, w: metrics.streaming_false_positive_rate_at_thresholds(s, y, [0.2, 0.6]),
        "counts": lambda s, y, a, b, w: metrics.streaming_true_negatives_at_thresholds(s, y, [0.2, 0.6], w),
        "roc": lambda s, y, a, b, w: metrics.streaming_curve_points(y, s, num_thresholds=5),
        "pr": lambda s, y, a, b, w: metrics.streaming_curve_points(y, s, w, num_thresholds=5, curve="PR"),
    }  # fmt: skip
    found = {name: of(make) for name, make in made.items()}
    one_hot = lambda a: tf.one_hot(a, 3) + tf.range(3.0) / 10.0  # noqa: E731
    found["recall at k"] = of(lambda s, y, a, b, w: metrics.streaming_recall_at_k(one_hot(b), a, 2))
    joined = [of(lambda s, y, a, b, w: metrics.streaming_concat(s)),
              of(lambda s, y, a, b, w: metrics.streaming_concat(tf.stack([s, w])[:, :2], 1, max_size=5))]  # fmt: skip
    wrong = [lambda: metrics.cohen_kappa(tf.constant([1]), tf.constant([1]), 1),
             lambda: metrics.streaming_concat(tf.placeholder(tf.float32)),
             lambda: metrics.streaming_concat(tf.placeholder(tf.float32, [None, None])),
             lambda: metrics.streaming_concat(tf.placeholder(tf.float32, [None]), axis=1),
             lambda: metrics.streaming_curve_points(tf.constant([True]), tf.constant([0.5]), curve="x")]  # fmt: skip
    return found, [rows for rows, _, _ in joined], [outcome(way) for way in wrong]


@program
def transformed_images(tf: Any) -> Any:
    image = tf.contrib.image
    batch = tf.constant((_numbers(2, 4, 5, 3) * 100 + 120).astype(np.float32))
    bytes_ = tf.cast(batch, tf.uint8)
    some = tf.placeholder_with_default(batch, [None, None, None, 3])
    own = [1.1, 0.2, -0.3, 0.1, 0.9, 0.4, 0.01, -0.02]
    both = [[1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0], own]
    kinds = ("NEAREST", "BILINEAR")
    made = [image.rotate(batch, angle, kind) for angle in (0.5, -2.0, [0.3, 1.2]) for kind in kinds]
    made += [image.translate(batch, shift, kind) for shift in ([1, -1], [[0.4, 1.3], [-0.6, 0.2]]) for kind in kinds]
    made += [image.transform(some, transforms, kind) for transforms in (own, both) for kind in kinds]
    made += [image.rotate(bytes_, 0.5, kind) for kind in kinds]
    made += [image.transform(batch[0], own, "BILINEAR", [3, 7]), image.transform(batch[0, :, :, 0], own)]
    made += [image.compose_transforms(own, both[0]), image.flat_transforms_to_matrices(both),
             image.matrices_to_flat_transforms([[1.0, 2, 3], [4, 5, 6], [7, 8, 2]]),
             image.angles_to_projective_transforms([0.1, 2.0], 4.0, 7.0)]  # fmt: skip
    slope = tf.gradients(image.rotate(batch, 0.5, "BILINEAR")[0, 1, 2, 0], batch)[0][0, :, :, 0]
    wrong = [lambda: image.rotate(tf.placeholder(tf.float32), 1.0), lambda: image.rotate(tf.constant([True]), 1.0),
             lambda: image.rotate(tf.zeros([3]), 1.0), lambda: image.rotate(batch, [[1.0]]),
             lambda: image.transform(batch, own, output_shape=[2, 2, 2]),
             lambda: image.translate(batch, 1.0)]  # fmt: skip
    return run(tf, [made, slope]), [t.shape.as_list() for t in made[:1] + made[-6:]], [outcome(way) for way in wrong]


@program
def files_of_examples_by_queues(tf: Any) -> Any:
    io, folder = tf.contrib.learn.io, tempfile.mkdtemp()
    for i in range(2):
        with tf.python_io.TFRecordWriter(os.path.join(folder, f"part-{i}")) as writer:
            for j in range(3):
                example = tf.train.Example()
                example.features.feature["x"].int64_list.value.extend([10 * i + j, 7])
                example.features.feature["y"].float_list.value.extend([0.5] * j)
                writer.write(example.SerializeToString())
    pattern, spec = (
        os.path.join(folder, "part-*"),
        {"x": tf.FixedLenFeature([2], tf.int64), "y": tf.VarLenFeature(tf.float32)},
    )

    def first(text: Any) -> Any:
        return tf.parse_single_example(text, {"x": spec["x"]})

    def read(make: Any, *args: Any, **kwargs: Any) -> Any:
        with tf.Graph().as_default() as graph, tf.Session() as session:
            found = make(pattern, 2, *args, num_epochs=1, queue_capacity=20, **kwargs)
            session.run(tf.local_variables_initializer())
            coordinator, batches = tf.train.Coordinator(), []
            threads = tf.train.start_queue_runners(session, coordinator)
            while len(batches) < 9 and not coordinator.should_stop():
                batches.append(outcome(lambda: tf.contrib.framework.nest.map_structure(_plain, session.run(found))))
                if batches[-1] == "OutOfRangeError":
                    coordinator.request_stop()
            coordinator.join(threads)
            names = sorted(runner.name.split("/")[0] for runner in graph.get_collection("queue_runners"))
            return batches, names, len(graph.get_collection("summaries")), [v.op.name for v in tf.local_variables()]

    def _plain(value: Any) -> Any:
        return [os.path.basename(one) if b":" in one else len(one) for one in value] if value.dtype == object else value

    calm, tf_reader = {"randomize_input": False}, tf.TFRecordReader
    made = [
        read(io.read_batch_features, spec, tf_reader, num_enqueue_threads=1, **calm),
        read(io.read_keyed_batch_features, spec, tf_reader, read_batch_size=1, num_enqueue_threads=1, name="n", **calm),
        read(io.read_keyed_batch_examples, tf_reader, **calm),
        read(io.read_batch_examples, tf_reader, parse_fn=first, **calm),
        read(io.read_batch_record_features, {"x": spec["x"]}, **calm)[1:],
    ]
    shuffled = [one["x"] for one in read(io.read_batch_features, spec, tf_reader, reader_num_threads=2)[0][:-1]]
    wrong = [
        lambda: io.read_batch_examples(folder + "/none*", 2, tf_reader),
        lambda: io.read_batch_examples([], 2, tf_reader),
        lambda: io.read_batch_examples(pattern, 20, tf_reader, queue_capacity=20),
        lambda: io.read_batch_examples(pattern, 2, tf_reader, num_threads=0),
    ]
    return made, sorted(np.concatenate(shuffled).tolist()), [outcome(one) for one in wrong]


@program
def phases_that_layers_of_keras_get(tf: Any) -> Any:
    keras, seen = tf.keras, []  # type: ignore[var-annotated]

    def told(phase: Any) -> None:
        seen.append("tensor" if isinstance(phase, tf.Tensor) else repr(phase))

    class Inner(keras.layers.Layer):
        def call(self, x: Any, training: Any = None) -> Any:
            told(training)
            return x + 1.0

    class Outer(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def call(self, x: Any, training: Any = False) -> Any:
            told(training)
            return self.inner(x)

    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__(name="model")
            self.outer, self.dropout = Outer(), keras.layers.Dropout(0.9)

        def call(self, x: Any, training: Any = None) -> Any:
            told(training)
            return self.dropout(self.outer(x))

    class Silent(Model):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return self.dropout(self.outer(x))

    def functional() -> Any:
        x = keras.Input([3])
        return keras.Model(x, Inner()(Inner()(x)))

    def seen_by(made: Any, *args: Any, **kwargs: Any) -> list[str]:
        del seen[:]
        made(*args, **kwargs)
        return list(seen)

    found, x = {}, tf.ones([2, 3])
    for make in (Inner, Outer, Model, Silent, functional):
        calls = [{}, {"training": True}, {"training": False}, {"training": tf.constant(True)}]
        found[make.__name__] = [seen_by(make(), x, **kwargs) for kwargs in (calls if make is not Inner else calls[1:])]
        found[make.__name__ + " of an Input"] = seen_by(make(), keras.Input([3]))
    found["names"] = [op.name for op in tf.get_default_graph().get_operations() if "phase" in op.name]
    for make in (Model, Silent, functional):
        with tf.Graph().as_default(), tf.Session() as session:
            keras.backend.set_session(session)
            model = make()
            model.compile("sgd", "mse")
            del seen[:]
            loss = model.train_on_batch(np.ones([200, 3]), np.zeros([200, 3]))
            found[make.__name__ + " that trains"] = [list(seen), bool(loss > 15), model.predict(np.ones([2, 3]))]
    return found


@program
def sparse_maxima(tf: Any) -> Any:
    module, random, found, names = tf.contrib.sparsemax, np.random.RandomState(0), [], []
    for dtype in (np.float32, np.float64):
        logits = tf.constant((random.randn(4, 6) * 2).astype(dtype))
        labels = tf.constant((0.5 * np.eye(6)[[0, 2, 5, 1]] + 0.5 * np.eye(6)[[1, 1, 1, 2]]).astype(dtype))
        p = module.sparsemax(logits)
        loss = module.sparsemax_loss(logits, p, labels)
        found += [p, loss, *tf.gradients(p, logits, tf.constant(random.randn(4, 6).astype(dtype)))]
        found += tf.gradients(loss, [logits, labels])
        names += [p.name, loss.name]
    inf = float("inf")
    odd = tf.constant([[inf, 1, 2], [-inf, 1, 2], [-inf, -inf, -inf], [float("nan"), 1, 2], [inf, inf, 1]])
    p = module.sparsemax(odd)
    found += [p, module.sparsemax_loss(odd, p, tf.constant(np.eye(3, dtype=np.float32)[[0, 1, 2, 0, 1]]))]
    unknown = module.sparsemax(tf.placeholder(tf.float32))
    wrong = [[1.0, 2.0], tf.ones([2, 3, 4]), tf.ones([2, 2], tf.int32)]
    return run(tf, found), names, str(unknown.shape), [outcome(lambda x=x: module.sparsemax(x)) for x in wrong]
