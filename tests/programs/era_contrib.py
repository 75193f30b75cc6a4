"""Programs of `tests.programs.era` with parts of ``tf.contrib``: framework, metrics, checkpoint, layers, cudnn_rnn."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.programs.era import outcome, program, run


def tried(function: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    """What a function answers, or the class of its error."""
    return outcome(lambda: function(*args, **settings))


@program
def checked_shapes(tf: Any) -> Any:
    framework = tf.contrib.framework
    matrix, some, any_shape = (
        tf.constant([[1.0, 2.0], [3.0, 4.0]]),
        *(tf.placeholder(tf.float32, shape, name) for shape, name in (([None, 2], "some"), (None, "any"))),
    )
    sizes = tf.placeholder(tf.int32, [None], "sizes")
    sparse = tf.SparseTensor([[0, 0]], [1.0], [2, 2])
    found = [
        tried(lambda *given: str(framework.with_shape(*given).shape), shape, tensor)
        for shape, tensor in (
            ([2, 2], matrix), ([2, 3], matrix), ([2, 2], some), ([2, 3], some), ([2, 2], any_shape), ([], any_shape),
            (tf.constant([2, 2]), some), (sizes, some), (tf.placeholder(tf.int64, [2]), some), ([None, 2], some),
            ([2, 2], sparse), ([2.0, 2.0], matrix), (np.array([2, 2]), matrix), ([-1, 2], any_shape),
        )
    ]  # fmt: skip
    same = [
        tried(lambda *given: str(framework.with_same_shape(*given).shape), expected, tensor)
        for expected, tensor in ((matrix, matrix), (some, some), (some, any_shape), (matrix, any_shape), (matrix, some))
    ]
    same.append(outcome(lambda: framework.with_same_shape(matrix, tf.constant([1.0]))))
    checked = [framework.with_shape(tf.constant([-1, 2]), any_shape), framework.with_shape(sizes, some)]
    checked.append(framework.with_same_shape(some, any_shape))
    value, other = [[1.0, 2.0], [3.0, 4.0]], [[1.0], [2.0]]
    ran = [
        tried(run, tf, checked[i], {any_shape: fed, some: value, sizes: shape})
        for i, fed, shape in (
            (0, value, [2, 2]), (0, other, [2, 2]), (1, value, [2, 2]), (1, value, [2, 3]), (1, value, [2]),
            (2, value, [2, 2]), (2, other, [2, 2]),
        )
    ]  # fmt: skip
    scalars = [3, tf.constant(3, tf.int64), 3.0, [3], tf.placeholder(tf.int32)]
    whole = [tried(lambda one: framework.assert_scalar_int(one).dtype.name, scalar) for scalar in scalars]
    return found, same, ran, whole


@program
def functions_of_contrib_framework(tf: Any) -> Any:
    framework = tf.contrib.framework
    unknown, matrix = tf.placeholder(tf.float32, None, "unknown"), tf.constant([[1.0], [2.0]])
    predicate = tf.placeholder(tf.bool, [], "predicate")
    sums = [framework.reduce_sum_n([matrix, tf.constant(3.0)]), framework.reduce_sum_n([matrix], name="total")]
    pairs = [(matrix, tf.zeros([2])), (tf.zeros([2]), matrix), (unknown, tf.zeros([2]))]
    squeezed = [framework.remove_squeezable_dimensions(one, other) for one, other in pairs]
    shapes = [[str(t.shape) for t in pair] for pair in squeezed]
    names = [framework.strip_name_scope(name, scope) for name, scope in (("a/b/c", "a"), ("x/b", "a"), ("^a/b", "a"))]
    names += [framework.prepend_name_scope(name, scope) for name, scope in (("b", "a"), ("loc:@b", "a"), ("b", None))]
    graph, other = tf.get_default_graph(), tf.Graph()
    with other.as_default():
        foreign = tf.constant(1)
    graphs = [framework.get_graph_from_inputs(given) is graph for given in ([matrix], [], [1, matrix.op])]
    graphs += [framework.get_graph_from_inputs([foreign]) is other]
    for given in (([foreign, matrix], None), ([matrix], other), ([], 3)):
        graphs.append(outcome(lambda g=given: framework.get_graph_from_inputs(*g)))
    tf.placeholder_with_default(1, [])
    placeholders = [t.name for t in framework.get_placeholders(graph)], outcome(lambda: framework.get_placeholders(3))
    steps = [framework.assert_or_get_global_step(), framework.create_global_step().name]
    steps += [framework.assert_or_get_global_step().name]
    for step in (tf.constant(3), tf.constant(3.0)):
        steps.append(outcome(lambda s=step: framework.assert_or_get_global_step(global_step_tensor=s).dtype.name))

    def case(*predicates: Any, **settings: Any) -> Any:
        functions = [(p, lambda i=i: tf.constant(i)) for i, p in enumerate(predicates)]
        return framework.smart_case(functions, **settings)

    last = lambda: tf.constant(9)  # noqa: E731
    chosen = [
        case(False, True, predicate), case(False, predicate, True), case(False, False, default=last),
        case(predicate, default=last), case(True, False, exclusive=True, default=last), case(predicate, predicate),
    ]  # fmt: skip
    wrong = [tried(framework.smart_case, given) for given in (3, [3], [(1, last)])]

    def named(a: Any, b: Any = None, k: Any = None) -> Any:
        return {"x": (a + b).astype(np.float32), "y": (np.int32(k * 2),)}

    kinds = {"x": tf.float32, "y": (tf.int32,)}
    static = {"x": tf.TensorShape([1]), "y": (tf.TensorShape([]),)}
    wrapped = framework.py_func(named, [tf.constant(1.0), tf.constant([2.0])], {"k": tf.constant(3)}, kinds, static)
    single = framework.py_func(lambda a: np.float32(a + 1), [tf.constant(1.0)], output_types=tf.float32, stateful=False)
    refused = [outcome(lambda: framework.py_func(last, tf.constant(1.0), output_types=tf.float32))]
    refused.append(outcome(lambda: framework.py_func(last)))
    variable = tf.Variable(tf.ones([2, 3]), use_resource=False)
    with tf.Session() as session:
        zeros = framework.zero_initializer(variable)
        zeroed = session.run(zeros), session.run(variable), outcome(lambda: session.run(zeros))
    fed = {unknown: [[5.0], [6.0]], predicate: True}
    return (
        run(tf, [sums, squeezed, chosen, wrapped, single], fed), [t.name for t in sums], shapes, names, graphs,
        placeholders, steps, wrong, str(wrapped["x"].shape), refused, zeroed,
    )  # fmt: skip


@program
def matrices_of_other_vocabularies(tf: Any) -> Any:
    framework, folder = tf.contrib.framework, tempfile.mkdtemp()

    def words(name: str, *lines: str) -> str:
        path = os.path.join(folder, name)
        with open(path, "w") as file:
            file.write("".join(line + "\n" for line in lines))
        return path

    rows = words("rows", "mercury", "venus", "mars"), words("new_rows", "venus", "jupiter", "mercury")
    columns = words("columns", "good", "better", "best"), words("new_columns", "good", "best", "fantastic")
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("w", initializer=tf.constant(np.arange(9, dtype=np.float32).reshape(3, 3)))
        tf.get_variable("bias", initializer=tf.constant([[1.0], [2.0], [3.0]]))
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(session, os.path.join(folder, "model"))

    def numbers(shape: Any, *_: Any, **__: Any) -> Any:
        return tf.reshape(tf.cast(tf.range(100, 100 + tf.reduce_prod(shape)), tf.float32), shape)

    both = framework.load_and_remap_matrix_initializer(
        path, "w", 3, 3, -1, rows[0], rows[1], columns[0], columns[1], 2, 1, numbers
    )
    only_rows = framework.load_and_remap_matrix_initializer(path, "w", 3, 3, -1, rows[0], rows[1], initializer=numbers)
    none = framework.load_and_remap_matrix_initializer(path, "w", 2, 3)
    only_columns = framework.load_and_remap_matrix_initializer(
        path, "w", 2, 3, old_col_vocab_file=columns[0], new_col_vocab_file=columns[1], num_col_oov_buckets=1
    )
    embedding = framework.load_embedding_initializer(path, "w", 3, 3, rows[0], rows[1], 2, 1, numbers)
    bias = framework.load_linear_multiclass_bias_initializer(path, "bias", 3, rows[0], rows[1], 1)
    parts = tf.fixed_size_partitioner(2)
    made = [
        tf.get_variable("both", [5, 4], initializer=both),
        tf.convert_to_tensor(tf.get_variable("parts", [5, 4], initializer=both, partitioner=parts)),
        tf.get_variable("only_rows", [3, 3], initializer=only_rows),
        tf.get_variable("only_columns", [2, 4], initializer=only_columns),
        tf.get_variable("embedding", [4, 3], initializer=embedding), tf.get_variable("bias", [4, 1], initializer=bias),
    ]  # fmt: skip
    one_file = framework.load_and_remap_matrix_initializer(path, "w", 3, 3, old_row_vocab_file=rows[0])
    refused = [tried(none, [2, 3]), tried(one_file, [3, 3])]
    refused += [tried(both, shape) for shape in ([5, 3], [6, 4], [5], [0, 4])]
    refused.append(outcome(lambda: both([5, 4], tf.float64)))
    refused.append(outcome(lambda: framework.load_and_remap_matrix_initializer(path, "w", 3, 3, initializer=3)))
    return run(tf, made), refused


@program
def curves_of_contrib_metrics(tf: Any) -> Any:
    metrics, random = tf.contrib.metrics, np.random.RandomState(1)
    predictions = random.rand(2, 8).round(1).astype(np.float32)
    labels = (random.rand(2, 8) < predictions).astype(np.int32)
    weights = random.rand(2, 8).round(1).astype(np.float32)
    batches = [list(zip(labels, predictions, weights)), [([0, 0, 1, 1], [0.1, 0.2, 0.8, 0.9], [1, 1, 1, 1])]]
    batches += [[([1, 0, 1, 0], [0.5, 0.5, 0.5, 0.2], [1, 2, 3, 4])], [([1, 1], [0.5, 0.2], [1, 1])]]
    label, some, weight = (tf.placeholder(kind, [None]) for kind in (tf.int32, tf.float32, tf.float32))
    known = tf.cast(label, tf.bool)
    made = [
        metrics.streaming_dynamic_auc(label, some), metrics.streaming_dynamic_auc(label, some, weights=weight),
        metrics.streaming_dynamic_auc(label, some, curve="PR"), metrics.auc_with_confidence_intervals(label, some),
        metrics.auc_with_confidence_intervals(label, some, weight, 0.8, False),
        metrics.auc_using_histogram(known, some, [0.0, 1.0], nbins=5),
        metrics.precision_recall_at_equal_thresholds(known, some, num_thresholds=5),
        metrics.precision_recall_at_equal_thresholds(known, some, weight, num_thresholds=6),
        *(metrics.recall_at_precision(label, some, at, num_thresholds=20) for at in (0.5, 0.75, 1.0)),
        metrics.recall_at_precision(label, some, 0.5, weight, num_thresholds=20, strict_mode=True),
        metrics.recall_at_precision(label, some, 0.75, weight, num_thresholds=20, strict_mode=True),
    ]  # fmt: skip
    values, updates = [list(value) if isinstance(value, tuple) else value for value, _ in made], [u for _, u in made]
    found = []
    with tf.Session() as session:
        for steps in batches:
            session.run(tf.local_variables_initializer())
            for labels_now, some_now, weights_now in steps:
                feeds = {label: labels_now, some: some_now, weight: weights_now}
                session.run(updates, feeds)
                found.append(session.run(values, feeds))
        feeds = {label: [3, 0], some: [0.1, 0.2], weight: [1, 1]}
        refused = [tried(session.run, updates[i], feeds) for i in (0, 3)]
        feeds = {label: [1, 0], some: [0.1, 2.0], weight: [1, 1]}
        refused += [tried(session.run, updates[6], feeds)]
    refused += [tried(metrics.streaming_dynamic_auc, label, some, curve="X")]
    refused += [tried(metrics.auc_with_confidence_intervals, label, some, alpha=1.0)]
    refused += [tried(metrics.recall_at_precision, label, some, 1.5)]
    return found, refused, made[6][0]._fields, made[3][0]._fields


@program
def classes_of_contrib_metrics(tf: Any) -> Any:
    metrics = tf.contrib.metrics
    best, labels = tf.constant([[2, 0], [1, 3]], tf.int64), tf.constant([[0, 3], [3, 2]], tf.int64)
    weights = tf.constant([1.0, 3.0])
    made = [
        metrics.sparse_recall_at_top_k(labels, best), metrics.sparse_recall_at_top_k(labels, best, 3, weights),
        metrics.streaming_sparse_precision_at_top_k(best, labels),
        metrics.streaming_sparse_precision_at_top_k(best, labels, class_id=3),
        metrics.streaming_sparse_average_precision_at_top_k(best, labels),
        metrics.streaming_sparse_average_precision_at_top_k(best, labels, weights, name="average"),
    ]  # fmt: skip
    refused = tried(metrics.streaming_sparse_average_precision_at_top_k, tf.placeholder(tf.int64, [2, None]), labels)
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        return session.run([update for _, update in made]), session.run([value for value, _ in made]), refused


@program
def layers_of_channels(tf: Any) -> Any:
    layers = tf.contrib.layers
    images = tf.constant(np.sin(np.arange(120)).reshape(2, 4, 5, 3).astype(np.float32))
    volumes = tf.constant(np.cos(np.arange(48)).reshape(1, 2, 3, 4, 2).astype(np.float32))
    columns = tf.constant(np.sin(np.arange(72)).reshape(4, 6, 3).astype(np.float32))
    tf.set_random_seed(3)
    deep = tf.constant_initializer(np.cos(np.arange(48)).reshape(2, 2, 2, 3, 2))
    made = [
        layers.conv2d_in_plane(images, [3, 2]),
        layers.conv2d_in_plane(images, 3, 2, "VALID", activation_fn=None, normalizer_fn=layers.batch_norm, scope="q"),
        layers.conv3d_transpose(volumes, 3, 2, 2, weights_initializer=deep, activation_fn=None),
        layers.conv3d_transpose(volumes, 3, [2, 2, 2], padding="VALID", weights_initializer=deep),
        layers.images_to_sequence(images), layers.images_to_sequence(images, "NCHW"),
        layers.sequence_to_images(columns, 3), layers.sequence_to_images(columns, 2, "channels_first"),
        layers.legacy_fully_connected(columns, 2, name="old"), layers.legacy_linear(images[0, 0], 2),
        layers.legacy_relu(images, 2, weight_regularizer=layers.l2_regularizer(0.1), bias_init=None),
        layers.gdn(images, name="g"), layers.gdn(images, inverse=True, gamma_init=0.3, beta_min=0.1),
        layers.gdn(columns),
    ]  # fmt: skip
    loss = tf.add_n([tf.reduce_sum(one * one * 0.1 + one) for one in made])
    variables = tf.trainable_variables()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        ran = session.run([made, tf.gradients(loss, variables), tf.losses.get_regularization_losses()])
    collections = [[t.op.name for t in tf.get_collection(key)] for key in ("weights", "biases", "activations")]
    refused = [tried(layers.images_to_sequence, images, "NWC"), tried(layers.legacy_linear, images[0, 0, 0], 2)]
    refused += [tried(layers.gdn, columns[0])]
    return (
        ran,
        [(v.op.name, v.shape.as_list()) for v in variables],
        [t.shape.as_list() for t in made],
        collections,
        refused,
    )


@program
def cells_of_cudnn(tf: Any) -> Any:
    cudnn, found = tf.contrib.cudnn_rnn, []
    inputs = tf.constant(np.sin(np.arange(12)).reshape(2, 2, 3).astype(np.float32))
    for cell in (cudnn.CudnnCompatibleLSTMCell(4), cudnn.CudnnCompatibleGRUCell(4)):
        with tf.variable_scope(type(cell).__name__, initializer=tf.constant_initializer(0.1)):
            outputs, state = tf.nn.dynamic_rnn(cell, inputs, dtype=tf.float32)
        variables = tf.trainable_variables(type(cell).__name__)
        found.append((outputs, state, tf.gradients(outputs, variables)))
    names = [(v.op.name, v.shape.as_list()) for v in tf.trainable_variables()]
    given = cudnn.CudnnCompatibleGRUCell(2, kernel_initializer=tf.constant_initializer(0.3))
    return run(tf, [found, given(inputs[0], tf.ones([2, 2]))]), names, cell.state_size, cell.output_size


@program
def objects_of_contrib_checkpoint(tf: Any) -> Any:
    checkpoint, folder = tf.contrib.checkpoint, tempfile.mkdtemp()
    tracker, variable = checkpoint.UniqueNameTracker(), tf.Variable(3.0, name="v", use_resource=False)
    tracked = [tracker.track(tf.Variable(1.0, name="q"), "x").name, tracker.track(variable, "y") is variable]
    tracked += [tracker.track(tf.Variable(2.0, name="r"), "x").name, tried(tracker.track, 3, "z")]
    arrays, plain = checkpoint.NumpyState(), checkpoint.Checkpointable()
    arrays.x, arrays.n = np.zeros([2, 3]), np.float32(4.0)
    plain.left_out, plain.kept = checkpoint.NoDependency(tf.Variable(5.0, name="out")), tf.Variable(6.0, name="kept")
    refused = [tried(setattr, arrays, "text", "abc"), isinstance(plain, checkpoint.CheckpointableBase)]
    optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
    optimizer.minimize(variable * variable, var_list=[variable])
    saved = tf.train.Checkpoint(t=tracker, a=arrays, opt=optimizer, v=variable, plain=plain)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        path = saved.save(os.path.join(folder, "model"), session=session)
    nodes = [
        (sorted((child.local_name, child.node_id) for child in node.children),
         [(a.name, a.full_name, a.checkpoint_key) for a in node.attributes])
        for node in checkpoint.object_metadata(path).nodes
    ]  # fmt: skip
    arrays.x[1, 1], arrays.n = 4.0, np.float32(5.0)
    saved.restore(path)
    other = checkpoint.NumpyState()
    tf.train.Checkpoint(a=other).restore(path)
    listed = [type(thing).__name__ for thing in checkpoint.list_objects(saved) if hasattr(thing, "op")]
    picture = checkpoint.dot_graph_from_checkpoint(path).split("\n")
    refused.append(tried(checkpoint.object_metadata, os.path.join(folder, "none")))
    return tracked, refused, nodes, picture, len(listed), arrays.x, arrays.n, other.x, other.n, plain.kept.name


@program
def methods_with_their_arguments(tf: Any) -> Any:
    """Methods that were absent, or refused an argument that 1.15.5 has."""
    spec, learn, column = tf.layers.InputSpec, tf.contrib.learn, tf.contrib.layers.real_valued_column("", dimension=3)
    helper = tf.contrib.seq2seq.TrainingHelper(tf.ones([2, 3, 4]), [3, 2])
    x = np.cos(np.arange(60.0)).reshape(20, 3).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        estimator = learn.LinearClassifier([column], model_dir=folder)
        known = list(estimator.get_params()), outcome(lambda: estimator.set_params(other=3))
        learner = learn.SKCompat(estimator)
        learner.fit(x, (x[:, 0] > 0.5).astype(np.int64), 10, None, 5)
        steps = learner.score(x, (x[:, 0] > 0.5).astype(np.int64), 20, 1, None, "n")["global_step"]
        steps = int(steps), estimator.set_params(params={"a": 2}).get_params()
    return [
        spec(shape=[2, 3], dtype=tf.float32, axes={1: 3}).get_config(), spec(ndim=2).get_config(), known, steps,
        spec.from_config(spec(min_ndim=2, axes={-1: 3}).get_config()).min_ndim,
        run(tf, [helper.next_inputs(tf.constant(0), tf.ones([2, 4]), tf.ones([2, 1])),
                 helper.sample(tf.constant(0), tf.ones([2, 4]))]),
        tf.TensorSpec([2]).is_compatible_with(spec_or_tensor=tf.ones([2])),
        tf.contrib.training.HParams(a=1).set_from_map(values_map={"a": 3}).a,
    ]  # fmt: skip
