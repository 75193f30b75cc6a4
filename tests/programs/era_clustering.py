"""Programs with k-means of ``tf.contrib.factorization``: a part of `tests.programs.era`."""

from __future__ import annotations

import itertools
import tempfile
from typing import Any

import numpy as np

from tests.programs.era import outcome, program, run

POINTS = (np.sin(np.arange(60) * 1.7 + np.arange(60) ** 2) * 3 + np.arange(60) % 3).reshape(20, 3).astype(np.float32)
FIRST = POINTS[[3, 8, 12, 17]] * np.float32(1.5)
WHOLE = (np.arange(40) * 7 % 11 - 5).reshape(20, 2).astype(np.float32)  # distances of whole numbers have ties


def _refused(tf: Any, fetch: Any) -> str:
    """The first line of what the session says."""
    try:
        return str(run(tf, fetch))
    except tf.errors.InvalidArgumentError as error:
        return str(error.message).split("\n")[0].split(" [[")[0]


@program
def ops_of_clustering(tf: Any) -> Any:
    from tensorflow.python.ops import gen_clustering_ops as ops

    many = (np.arange(2200) * 13 % 37 - 18).reshape(1100, 2).astype(np.float32)  # TensorFlow looks at 1024 at once
    near = [ops.nearest_neighbors(points, centers, k) for points, centers, k in (
        (WHOLE, WHOLE[4:9], 1), (WHOLE, WHOLE[4:9], 3), (WHOLE, WHOLE[4:9], 9), (WHOLE, WHOLE[:0], 1),
        (WHOLE, WHOLE[:1], 0), (WHOLE, many, 1), (WHOLE, many, 4), (WHOLE[:4], many, 1090),
        (np.float32([[0, np.nan], [1, 0]]), np.float32([[2, 2], [np.nan, 1], [1, 1]]), 1))]  # fmt: skip
    drawn = [ops.kmeans_plus_plus_initialization(points, count, seed, retries)
             for points in (POINTS, WHOLE) for count in (1, 4, 20) for seed in (0, 7, -3) for retries in (0, 2, -1)
             if count < len(np.unique(points, axis=0))]  # fmt: skip
    chained = [ops.kmc2_chain_initialization(np.abs(POINTS[:, 0]), seed) for seed in range(12)]
    chained += [ops.kmc2_chain_initialization(np.float32([0.5]), 3), ops.kmc2_chain_initialization(np.zeros(4, "f"), 3)]
    shapes = [near[0][0].shape, near[0][1].shape, drawn[0].shape, chained[0].shape.as_list()]
    return run(tf, [near, drawn, chained]), shapes, type(near[0]).__name__, near[0]._fields


@program
def arguments_of_ops_of_clustering(tf: Any) -> Any:
    from tensorflow.python.ops import gen_clustering_ops as ops

    nearest, plus, chain = ops.nearest_neighbors, ops.kmeans_plus_plus_initialization, ops.kmc2_chain_initialization
    wrong = [
        nearest(WHOLE[0], WHOLE, 1), nearest(WHOLE, WHOLE[0], 1), nearest(WHOLE, WHOLE, [1]),
        nearest(WHOLE[:0], WHOLE, 1), nearest(WHOLE, POINTS, 1), plus(WHOLE[0], 1, 1, 1), plus(WHOLE, [1], 1, 1),
        plus(WHOLE, 1, [1], 1), plus(WHOLE, 1, 1, [1]), plus(WHOLE[:0], 1, 1, 1), plus(WHOLE, 0, 1, 1),
        plus(WHOLE, 21, 1, 1), chain(WHOLE, 1), chain(WHOLE[0], [1]), chain(WHOLE[:0, 0], 1),
    ]  # fmt: skip
    x = tf.constant(WHOLE)
    known = [lambda: nearest(np.float64(WHOLE), WHOLE, 1), lambda: plus(WHOLE, 1, None, 1),
             lambda: tf.gradients(nearest(x, WHOLE, 1)[1], x)]  # fmt: skip
    return [_refused(tf, one) for one in wrong], [outcome(make) for make in known]


def _ordered(tf: Any) -> None:
    """Makes steps of mini-batches certain: nearest centers and old counts are read before either changes.

    TensorFlow does not order them, so its own answers differ from run to run.
    """
    ops = tf.get_default_graph().get_operations()
    adds = [op for op in ops if op.type == "ScatterAdd"]
    first = max(i for i, op in enumerate(ops) if op.type == "NearestNeighbors")
    assigns = [op for op in ops[first : ops.index(adds[-1])] if op.type == "Assign"]
    pairs = [(counts, centers.inputs[2].op) for counts, centers in zip(adds[::2], adds[1::2])]
    for op, before in [*pairs, *((assign, ops[first]) for assign in assigns)]:
        if before not in op.control_inputs:
            tf.contrib.graph_editor.add_control_inputs(op, before)


def _trained(tf: Any, *args: Any, **kwargs: Any) -> Any:
    """How often centers were chosen, the centers after each step, what is then said of points, and kinds and names."""
    parts = kwargs.pop("parts", 1)
    with tf.Graph().as_default():
        given = tf.placeholder(tf.float32, [None, 3])
        inputs = given if parts == 1 else [given[: 4 * i + 3] for i in range(parts)]
        made = tf.contrib.factorization.KMeans(inputs, *args, **kwargs).training_graph()
        all_scores, indices, scores, initialized, init_op, train_op = made
        if kwargs.get("use_mini_batch"):
            _ordered(tf)
        variables = {v.op.name: v for v in tf.global_variables()}
        found, tries = [], 0
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            while not session.run(initialized):
                session.run(init_op, {given: POINTS[4 * tries : 4 * tries + 16]})
                tries += 1
            session.run(init_op, {given: POINTS})  # nothing is left to do
            for i in range(7):
                found.append(session.run(variables["clusters"]))
                session.run(train_op, {given: POINTS[i : i + 14]})
            last = session.run([all_scores, indices, scores], {given: POINTS})
            counts = session.run([v for name, v in sorted(variables.items()) if v.dtype.base_dtype == tf.int64])
        kinds = [type(part).__name__ for part in made[:3]], sorted(variables)
    return tries, found, last, counts, kinds


@program
def full_batches_of_kmeans(tf: Any) -> Any:
    found = {}
    for metric in ("squared_euclidean", "cosine"):
        for name, first in (("given", FIRST), ("random", "random"), ("plus", "kmeans_plus_plus")):
            found[f"{metric} {name}"] = _trained(tf, 4, first, metric)
        found[f"{metric} list"] = _trained(tf, 9, FIRST.tolist(), metric)
        some = lambda inputs, k: inputs[0][: tf.minimum(k, 2)]  # noqa: E731
        found[f"{metric} function"] = _trained(tf, 5, some, metric)
        found[f"{metric} many"] = _trained(tf, 18, "random", metric, random_seed=5)
        found[f"{metric} parts"] = _trained(tf, 4, FIRST, metric, parts=3)
        found[f"{metric} random of parts"] = _trained(tf, 4, "random", metric, parts=3)
    return found


@program
def mini_batches_of_kmeans(tf: Any) -> Any:
    found = {}
    for metric in ("squared_euclidean", "cosine"):
        for steps in (1, 3):
            for name, first in (("given", FIRST), ("random", "random"), ("plus", "kmeans_plus_plus")):
                found[f"{metric} {steps} {name}"] = _trained(
                    tf, 4, first, metric, use_mini_batch=True, mini_batch_steps_per_iteration=steps
                )
    return found


@program
def first_centers_by_chains(tf: Any) -> Any:
    """Of batches with one chain each: of several, TensorFlow takes the one that ends last."""
    found = [_trained(tf, 4, "kmc2", metric, kmc2_chain_length=12) for metric in ("squared_euclidean", "cosine")]
    return found, _trained(tf, 5, "kmc2", kmc2_chain_length=50, random_seed=9)


@program
def kmeans_and_later_seeds(tf: Any) -> Any:
    """The number of ops that are made decides the seeds of later ones."""
    found = {}
    for init in ("random", "kmeans_plus_plus", "kmc2", FIRST):
        for metric in ("squared_euclidean", "cosine"):
            for steps in (0, 1, 2):
                with tf.Graph().as_default():
                    tf.set_random_seed(3)
                    points = tf.constant(POINTS) if steps else tf.placeholder(tf.float32, [None, 3])
                    options = {"use_mini_batch": steps > 0, "mini_batch_steps_per_iteration": max(steps, 1)}
                    tf.contrib.factorization.KMeans(points, 4, init, metric, **options).training_graph()
                    name = init if isinstance(init, str) else "given"
                    found[f"{name} {metric} {steps}"] = tf.get_seed(None)[1]
    return found


@program
def names_of_clustering(tf: Any) -> Any:
    from tensorflow.contrib.factorization.python.ops import clustering_ops, kmeans
    from tensorflow.python.ops import clustering_ops as own

    public, model = tf.contrib.factorization, tf.contrib.factorization.KMeansClustering
    names = ["COSINE_DISTANCE", "KMEANS_PLUS_PLUS_INIT", "RANDOM_INIT", "SQUARED_EUCLIDEAN_DISTANCE"]
    more = ["KMC2_INIT", "CLUSTERS_VAR_NAME"]
    constants = [name for name in sorted(dir(model)) if name.isupper()]
    with tf.Graph().as_default():
        tf.set_random_seed(7)
        makers = [lambda: public.KMeans(POINTS, 2, "best"), lambda: public.KMeans(POINTS, 2, distance_metric="taxi"),
                  lambda: model(2, initial_clusters="kmc2"), lambda: model(2, distance_metric="taxi"),
                  lambda: own.KMeans(tf.constant(POINTS), 2).training_graph() and "made"]  # fmt: skip
        errors = [outcome(make) for make in makers]
    return ([getattr(public, name) for name in names], [getattr(clustering_ops, name) for name in names + more],
            [getattr(own, name) for name in names + more], [(name, getattr(model, name)) for name in constants],
            clustering_ops.KMeans is public.KMeans, kmeans.KMeansClustering is model, own.KMeans is public.KMeans,
            issubclass(model, tf.estimator.Estimator), errors, callable(clustering_ops.nearest_neighbors))  # fmt: skip


def _input(tf: Any, batch: int, repeat: bool = False) -> Any:
    def input_fn() -> Any:
        data = tf.data.Dataset.from_tensor_slices(POINTS).batch(batch)
        return data.repeat() if repeat else data

    return input_fn


def _said(tf: Any, model: Any, hooks: Any = ()) -> Any:
    """What an estimator of k-means says after a training."""
    batch = 20 if not hooks else 5
    model.train(_input(tf, batch, True), steps=5, hooks=list(hooks))
    evaluated = {name: float(value) for name, value in model.evaluate(_input(tf, 7)).items()}
    first = next(model.predict(_input(tf, 20)))
    return (model.cluster_centers(), float(model.score(_input(tf, 20))), evaluated,
            list(model.predict_cluster_index(_input(tf, 6))), list(model.transform(_input(tf, 20))), sorted(first),
            sorted(model.get_variable_names()))  # fmt: skip


@program
def estimators_of_kmeans(tf: Any) -> Any:
    class Ordered(tf.train.SessionRunHook):  # type: ignore[misc, name-defined]
        def begin(self) -> None:
            _ordered(tf)

    contrib, experimental = tf.contrib.factorization.KMeansClustering, tf.estimator.experimental.KMeans
    plane, angle = "squared_euclidean", "cosine"
    found = [
        _said(tf, contrib(4, None, "random", plane, use_mini_batch=False)),
        _said(tf, contrib(4, None, FIRST, angle, use_mini_batch=False)),
        _said(tf, experimental(4, None, "kmeans_plus_plus", plane, 3, use_mini_batch=False)),
        _said(tf, experimental(4, None, "random", angle, 3, use_mini_batch=False)),
        _said(tf, contrib(4, None, FIRST, plane), [Ordered()]),
        _said(tf, experimental(4, None, FIRST, angle, mini_batch_steps_per_iteration=2), [Ordered()]),
    ]
    unseeded = experimental(4, initial_clusters="kmeans_plus_plus")
    return found, outcome(lambda: unseeded.train(_input(tf, 20), steps=1))


@program
def inputs_of_estimators_of_kmeans(tf: Any) -> Any:
    def by_name() -> Any:
        return {"b": tf.constant(POINTS[:, :1]), "a": tf.constant(POINTS[:, 1:])}, None

    make, found = tf.contrib.factorization.KMeansClustering, []
    swapped = FIRST[:, [1, 2, 0]]
    columns = [tf.feature_column.numeric_column("a", shape=2)]
    for options in ({"initial_clusters": swapped}, {"initial_clusters": FIRST[:, 1:], "feature_columns": columns}):
        model = make(4, use_mini_batch=False, relative_tolerance=0.02, **options)
        model.train(by_name, steps=50)
        found.append([model.cluster_centers(), int(model.get_variable_value("global_step")), model.score(by_name)])
        found.append([int(i) for i in itertools.islice(model.predict_cluster_index(by_name), 20)])
    model = make(3, use_mini_batch=False, initial_clusters=lambda inputs, k: inputs[0][:1])
    model.train(_input(tf, 20, True), steps=1)
    receiver = lambda: tf.estimator.export.TensorServingInputReceiver(  # noqa: E731
        tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.string)
    )
    path = model.export_savedmodel(tempfile.mkdtemp(), receiver)
    with tf.Graph().as_default(), tf.Session() as session:
        signatures = tf.saved_model.loader.load(session, ["serve"], path).signature_def
        served = {key: sorted(signatures[key].outputs) for key in sorted(signatures)}
    labels = outcome(lambda: model.train(lambda: (tf.constant(POINTS), tf.zeros([20])), steps=1))
    return found, model.cluster_centers(), served, labels
