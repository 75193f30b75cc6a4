"""Programs with feature columns and premade estimators, for any namespace ``tf``; TensorFlow runs them as well."""

from __future__ import annotations

import glob
import os
import tempfile

import numpy as np

RAW = {
    "age": [20.0, 35.0, 50.0, 64.0, 28.0, 41.0],
    "size": [[1.0, 2.0], [0.5, 0.1], [3.0, -1.0], [0.0, 0.0], [2.0, 2.0], [-1.0, 1.0]],
    "city": ["a", "b", "", "c", "zz", "a"],
    "level": [0, 1, 2, 9, 1, 0],
    "job": ["x", "y", "x", "q", "y", "w"],
}
LABELS = [0, 1, 1, 0, 1, 0]


def columns(tf, directory):
    """All kinds of columns: (dense ones, categorical ones)."""
    path = os.path.join(directory, "jobs.txt")
    with open(path, "w") as file:
        file.write("x\ny\nz\n")
    fc = tf.feature_column
    age = fc.numeric_column("age", normalizer_fn=lambda value: value / 10.0)
    ages = fc.bucketized_column(fc.numeric_column("age"), [30.0, 50.0])
    size = fc.numeric_column("size", shape=(2,))
    city = fc.categorical_column_with_vocabulary_list("city", ["a", "b", "c"], num_oov_buckets=2)
    level = fc.categorical_column_with_identity("level", 3, default_value=2)
    job = fc.categorical_column_with_vocabulary_file("job", path, default_value=1)
    hashed = fc.categorical_column_with_hash_bucket("city", 5)
    first = tf.constant_initializer(np.arange(15, dtype=np.float32).reshape(5, 3) * 0.1)
    dense = [age, ages, size, fc.indicator_column(level), fc.embedding_column(hashed, 3, initializer=first)]
    return dense, [ages, city, level, job]


def features(tf):
    """The raw features as tensors."""
    return {key: tf.constant(value) for key, value in RAW.items()}


def layers(tf):
    """The values, names and shapes that the two layers make, and the parsing spec."""
    with tempfile.TemporaryDirectory() as directory:
        dense, categorical = columns(tf, directory)
        with tf.Graph().as_default():
            inputs = tf.feature_column.input_layer(features(tf), dense)
            made = {}
            linear = tf.feature_column.linear_model(features(tf), [*dense[:3], *categorical[1:]], 2, cols_to_vars=made)
            weights = [v for v in tf.global_variables() if v.name.startswith("linear_model")]
            change = [tf.assign(v, tf.reshape(tf.cast(tf.range(tf.size(v)), tf.float32), v.shape)) for v in weights]
            with tf.Session() as session:
                session.run([tf.global_variables_initializer(), tf.tables_initializer()])
                session.run(change)
                found = session.run({"inputs": inputs, "linear": linear})
            found["variables"] = {v.name: v.shape.as_list() for v in tf.global_variables()}
            spec = tf.feature_column.make_parse_example_spec([*dense, *categorical])
            found["spec"] = {key: type(value).__name__ for key, value in spec.items()}
        return found


def input_fn(tf, labels):
    """An input function of the raw features."""
    return lambda: tf.data.Dataset.from_tensor_slices((RAW, labels)).repeat(3).batch(4)


def linear(tf, classes):
    """A linear classifier's variables, metrics and predictions."""
    with tempfile.TemporaryDirectory() as directory:
        _, categorical = columns(tf, directory)
        labels = LABELS if classes == 2 else [0, 1, 2, 0, 1, 2]
        made = tf.estimator.LinearClassifier(
            [*categorical, tf.feature_column.numeric_column("age")], os.path.join(directory, "m"), n_classes=classes
        )
        return _run(tf, made, labels)


def regression(tf):
    """A linear regressor's variables, metrics and predictions."""
    with tempfile.TemporaryDirectory() as directory:
        _, categorical = columns(tf, directory)
        made = tf.estimator.LinearRegressor(
            categorical, os.path.join(directory, "m"), optimizer=tf.train.GradientDescentOptimizer(0.01)
        )
        return _run(tf, made, [0.5, 1.0, 2.0, 3.0, -1.0, 0.0])


def network(tf):
    """Names and shapes of a network's variables, names of its metrics, predictions and summaries."""
    with tempfile.TemporaryDirectory() as directory:
        dense, _ = columns(tf, directory)
        made = tf.estimator.DNNClassifier(
            [4, 3], dense, os.path.join(directory, "m"), label_vocabulary=["no", "yes"], dropout=0.1, batch_norm=True
        )
        found = _run(tf, made, [["no", "yes"][label] for label in LABELS])
        spec = tf.feature_column.make_parse_example_spec(dense)
        receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(spec)
        path = made.export_saved_model(os.path.join(directory, "e"), receiver)
        with tf.Session(graph=tf.Graph()) as session:
            loaded = tf.saved_model.loader.load(session, ["serve"], path.decode())
            signatures = {name: signature.method_name for name, signature in loaded.signature_def.items()}
        tags = set()
        for events in glob.glob(os.path.join(directory, "m", "*.tfevents.*")):
            tags |= {value.tag for event in tf.train.summary_iterator(events) for value in event.summary.value}
        return {
            # TensorFlow names the slots of parts after the parts, and cuts the names.
            "variables": {k: list(value.shape) for k, value in found["variables"].items() if "Adagrad" not in k},
            "metrics": sorted(found["metrics"]),
            "predictions": {key: [list(value.shape), value.dtype.str] for key, value in found["prediction"].items()},
            "signatures": signatures,
            "tags": sorted(tags),
        }


def combined(tf):
    """A linear model with crosses beside a network, whose weights begin with given numbers."""
    with tempfile.TemporaryDirectory() as directory:
        fc = tf.feature_column
        dense, (ages, city, _, _) = columns(tf, directory)
        cross = fc.crossed_column(["level", ages, fc.crossed_column([city, "job"], 7)], 11)
        made = tf.estimator.DNNLinearCombinedClassifier(
            os.path.join(directory, "m"), [city, cross], "Ftrl", [dense[0], fc.embedding_column(cross, 2)],
            "Adagrad", dnn_hidden_units=[3],
        )  # fmt: skip
        found = _run(tf, made, LABELS)
        spec = fc.make_parse_example_spec([cross])
        with tf.Graph().as_default(), tf.Session() as session:
            made = {}
            weights = fc.linear_model(features(tf), [cross], cols_to_vars=made)
            session.run([tf.global_variables_initializer(), tf.tables_initializer()])
            (weight,) = made[cross]
            session.run(tf.assign(weight, tf.reshape(tf.range(11, dtype=tf.float32), [11, 1])))
            sums = session.run(weights)
        return {
            "variables": {k: list(value.shape) for k, value in found["variables"].items()},
            "linear": {k: v for k, v in found["variables"].items() if k == "global_step"},
            "metrics": sorted(found["metrics"]),
            "spec": {key: type(value).__name__ for key, value in spec.items()},
            "sums": sums,
        }


def _run(tf, made, labels):
    made.train(input_fn(tf, labels))
    metrics = made.evaluate(input_fn(tf, labels))
    prediction = next(made.predict(input_fn(tf, labels)))
    names = sorted(made.get_variable_names())
    return {
        "metrics": metrics,
        "prediction": prediction,
        "variables": {name.replace("/part_0", ""): made.get_variable_value(name) for name in names},
    }
