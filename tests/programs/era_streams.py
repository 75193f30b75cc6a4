"""Programs whose random numbers have seeds, so that they are TensorFlow's: a part of `tests.programs.era`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.programs.era import outcome, program, run


def _elements(tf: Any, make: Callable[[], Any], initializations: int = 1) -> list[Any]:
    """The first elements of a dataset, in a graph of its own; after each initialization of its iterator."""
    found: list[Any] = []
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(5)
        iterator = make().make_initializable_iterator()
        element = iterator.get_next()
        for _ in range(initializations):
            session.run(iterator.initializer)
            try:
                for _ in range(20):
                    found.append(np.asarray(session.run(element)).tolist())
            except tf.errors.OutOfRangeError:
                found.append("end")
    return found


@program
def orders_of_shuffled_datasets(tf: Any) -> Any:
    count, ways = tf.data.Dataset.range, tf.data.experimental
    made = [
        lambda: count(12).shuffle(5, seed=3),
        lambda: count(12).shuffle(12),
        lambda: count(12).shuffle(12, seed=tf.constant(4, tf.int64)),
        lambda: count(6).shuffle(4, seed=3).repeat(1),
        lambda: count(6).shuffle(4, seed=3).repeat(3),
        lambda: count(5).shuffle(40, seed=3).repeat(),
        lambda: count(6).shuffle(4, seed=3).batch(2).repeat(3),
        lambda: count(4).repeat(2).shuffle(4, seed=3).repeat(2),
        lambda: count(8).shuffle(4, seed=3).shuffle(3, seed=4).repeat(2),
        lambda: count(6).shuffle(4, seed=3, reshuffle_each_iteration=False).repeat(2),
        lambda: count(6).apply(ways.shuffle_and_repeat(4, 3, seed=4)),
        lambda: count(0).shuffle(6, seed=2).repeat(),
        lambda: tf.data.Dataset.from_tensor_slices(np.arange(10.0)).map(lambda x: x + 1).shuffle(10).batch(3).repeat(2),
        lambda: count(3).flat_map(lambda x: count(5).shuffle(5, seed=2)),
    ]
    return [_elements(tf, make) for make in made], _elements(tf, lambda: count(6).shuffle(5, seed=3), 3)


@program
def random_choices_of_datasets(tf: Any) -> Any:
    ways, data = tf.data.experimental, tf.data.Dataset
    made = [
        lambda: ways.RandomDataset(seed=3),
        lambda: ways.RandomDataset().batch(2),
        lambda: ways.sample_from_datasets([data.range(100), data.range(100, 200)], [0.3, 0.7], seed=5),
        lambda: ways.sample_from_datasets([data.range(100), data.range(100, 200)], [0.3, 0.7]),
        lambda: ways.sample_from_datasets([data.range(9), data.range(9, 200), data.range(200, 300)], seed=5),
        lambda: ways.sample_from_datasets(
            [data.range(100), data.range(100, 200)], data.from_tensors([0.3, 0.7]).repeat(), seed=5
        ),
    ]
    return [_elements(tf, make) for make in made]


@program
def seeded_gamma_and_poisson_values(tf: Any) -> Any:
    alphas = np.array([0.01, 0.3, 0.999, 1.0, 1.0001, 2.5, 30.0, 1000.0])
    rates = np.array([0.0, 0.3, 2.0, 9.99, 10.0, 11.0, 30.0, 1e3, 1e5])
    shapes = tf.distributions
    made = [
        tf.random_gamma([30], alphas.astype(np.float32), seed=1),
        tf.random_gamma([2, 3], alphas[None], 2.0, tf.float64, seed=5),
        tf.random_gamma([2], [0.5, 2.0], dtype=tf.float16, seed=5),
        tf.random_poisson(rates.astype(np.float32), [30], seed=1),
        tf.random_poisson(rates, [20], tf.int64, seed=2),
        tf.random_poisson(1e6, [50], tf.int32, seed=2),
        shapes.Beta(2.0, [3.0, 4.0]).sample(4, seed=1),
        shapes.StudentT(3.0, 1.0, [2.0, 3.0]).sample(4, seed=1),
        shapes.Dirichlet([1.0, 2.0, 3.0]).sample(2, seed=1),
        shapes.DirichletMultinomial(4.0, [1.0, 2.0]).sample(3, seed=1),
        tf.contrib.distributions.NegativeBinomial(4.0, probs=0.3).sample(5, seed=1),
        tf.contrib.distributions.InverseGamma(3.0, 2.0).sample(3, seed=1),
    ]
    return [[run(tf, one) for one in made] for _ in range(2)]


@program
def seeded_candidates(tf: Any) -> Any:
    ways, found = tf.nn, []
    true = tf.constant([[3, 9], [0, 44], [21, 3], [49, 48]], tf.int64)
    weights = (1 + np.arange(50) ** 2 % 17).astype(np.float32).tolist()
    for unique in (True, False):
        found += [
            ways.log_uniform_candidate_sampler(true, 2, 20, unique, 50, seed=1),
            ways.uniform_candidate_sampler(true, 2, 20, unique, 50, seed=1),
            ways.uniform_candidate_sampler(true, 2, 20, unique, 64, seed=1),
            ways.uniform_candidate_sampler(true, 2, 20, unique, 1000003, seed=1),
            ways.learned_unigram_candidate_sampler(true, 2, 20, unique, 50, seed=1),
            ways.fixed_unigram_candidate_sampler(true, 2, 20, unique, 50, unigrams=weights, distortion=0.75, seed=1),
            ways.fixed_unigram_candidate_sampler(true, 2, 20, unique, 52, unigrams=weights, num_reserved_ids=2, seed=4),
        ]
    hits = ways.compute_accidental_hits(true, tf.constant([3, 44, 3, 0, 21, 21, 44], tf.int64), 2)
    rows = tf.constant(np.sin(np.arange(150.0)).reshape(50, 3), tf.float32)
    tf.set_random_seed(3)
    losses = [
        ways.sampled_softmax_loss(rows, tf.zeros([50]), true, rows[:4], 5, 50, num_true=2, seed=5),
    ]
    with tf.Session() as session:
        return [session.run([found, hits, losses]) for _ in range(2)]


@program
def random_flips_of_batches(tf: Any) -> Any:
    batch = tf.constant(np.arange(6 * 2 * 3.0).reshape(6, 2, 3, 1), tf.float32)
    found = [tf.image.random_flip_left_right(batch, seed=1), tf.image.random_flip_up_down(batch, seed=2)]
    return run(tf, [found, tf.image.random_flip_up_down(tf.cast(batch, tf.uint8), seed=4)]), found[0].shape.as_list()


@program
def seeded_estimators(tf: Any) -> Any:
    """The losses of three steps: initial weights, the order of the data, and what is dropped have seeds."""
    columns, ways = tf.feature_column, tf.estimator
    table = np.sin(np.arange(480.0) ** 2).reshape(120, 4).astype(np.float32)
    classes = (table[:, 0] > 0.3).astype(np.int32) + (table[:, 2] > 0.5)
    features = {
        "a": table[:, :2],
        "b": table[:, 2:3],
        "c": np.array(["x", "y", "z"], object)[classes],
        "k": np.arange(120) ** 2 % 5,
    }
    numbers = [columns.numeric_column("a", (2,)), columns.numeric_column("b")]
    identity = columns.categorical_column_with_identity("k", 6)
    vocabulary = columns.categorical_column_with_vocabulary_list("c", ["x", "y", "z"])
    marks = [columns.embedding_column(vocabulary, 2), columns.indicator_column(identity)]
    crossed = columns.crossed_column(["c", columns.bucketized_column(numbers[1], [0.0])], 9)
    given = {"config": ways.RunConfig(tf_random_seed=5), "model_dir": None}

    def own(features: Any, labels: Any, mode: str) -> Any:
        net = tf.layers.dense(tf.concat([features["a"], features["b"]], 1), 8, tf.nn.relu)
        logits = tf.layers.dense(tf.layers.dropout(net, 0.3, training=True), 3)
        loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
        train = tf.train.AdamOptimizer(0.01).minimize(loss, tf.train.get_global_step())
        return ways.EstimatorSpec(mode, loss=loss, train_op=train)

    made = [
        ways.DNNClassifier([8, 4], numbers, n_classes=3, **given),
        ways.DNNClassifier([8, 4], numbers + marks, n_classes=3, **given),
        ways.DNNClassifier([8], numbers, n_classes=3, dropout=0.5, batch_norm=True, **given),
        ways.LinearClassifier([*numbers, identity, crossed], n_classes=3, **given),
        ways.DNNLinearCombinedClassifier(
            linear_feature_columns=[identity], dnn_feature_columns=numbers + marks, dnn_hidden_units=[8, 4],
            n_classes=3, **given,
        ),
        ways.Estimator(own, **given),
    ]  # fmt: skip
    return [_losses(tf, each, features, classes) for each in made]


def _losses(tf: Any, estimator: Any, features: Any, classes: Any) -> list[float]:
    found: list[float] = []

    class Kept(tf.train.SessionRunHook):  # type: ignore[misc, name-defined]
        def before_run(self, context: Any) -> Any:
            ops = tf.get_default_graph().get_operations()
            sums = [op.outputs[0] for op in ops if op.type == "Sum" and "weighted_loss/Sum" in op.name]
            return tf.train.SessionRunArgs((sums or tf.get_collection(tf.GraphKeys.LOSSES))[0])

        def after_run(self, context: Any, values: Any) -> None:
            found.append(float(values.results))

    def read() -> Any:
        return tf.data.Dataset.from_tensor_slices((features, classes)).shuffle(120).repeat().batch(16)

    estimator.train(read, steps=3, hooks=[Kept()])
    return found


def _seeds(tf: Any, parts: list[Callable[[], Any]]) -> list[Any]:
    """The default seeds that each part gives its random ops, in a graph of its own, and that of the next op."""
    found = []
    for part in parts:
        with tf.Graph().as_default() as graph:
            tf.set_random_seed(7)
            part()
            random = ("RandomUniform", "RandomStandardNormal", "TruncatedNormal", "Multinomial", "RandomUniformInt")
            drawn = [op.get_attr("seed2") for op in graph.get_operations() if op.type in random]
            found.append([drawn, tf.get_seed(None)[1]])
    return found


def _place(tf: Any, *shape: int | None, dtype: Any = None) -> Any:
    return tf.placeholder(dtype or tf.float32, shape)


@program
def seeds_in_recurrent_networks(tf: Any) -> Any:
    basic, contrib = tf.nn.rnn_cell, tf.contrib.rnn

    def lstm() -> Any:
        return basic.BasicLSTMCell(4)

    cells: list[Callable[[], Any]] = [
        lambda: basic.BasicRNNCell(4),
        lambda: basic.GRUCell(4),
        lambda: basic.LSTMCell(4, use_peepholes=True, cell_clip=1.0, num_proj=3),
        lambda: basic.BasicLSTMCell(4, state_is_tuple=False),
        lambda: basic.MultiRNNCell([basic.DropoutWrapper(lstm(), output_keep_prob=_place(tf)), basic.GRUCell(3)]),
        lambda: basic.MultiRNNCell([basic.GRUCell(3), basic.GRUCell(4)], state_is_tuple=False),
        lambda: basic.DropoutWrapper(lstm(), 0.5, 0.5, 0.5, True, 3, tf.float32),
        lambda: basic.ResidualWrapper(basic.GRUCell(3)),
        lambda: contrib.LSTMBlockCell(4, use_peephole=True),
        lambda: contrib.GRUBlockCellV2(4),
        lambda: contrib.LayerNormBasicLSTMCell(4, dropout_keep_prob=0.5),
        lambda: contrib.AttentionCellWrapper(lstm(), 2, attn_size=3),
        lambda: contrib.UGRNNCell(4),
        lambda: contrib.CoupledInputForgetGateLSTMCell(4, use_peepholes=True),
    ]
    rnn, kind = tf.nn, {"dtype": tf.float32}

    def lengths() -> Any:
        return _place(tf, None, dtype=tf.int32)

    runs: list[Callable[[Any], Any]] = [
        lambda cell: rnn.static_rnn(cell(), [_place(tf, 2, 3), _place(tf, 2, 3)], **kind),
        lambda cell: rnn.static_rnn(cell(), [_place(tf, None, 3)] * 2, sequence_length=lengths(), **kind),
        lambda cell: rnn.dynamic_rnn(cell(), _place(tf, 2, 5, 3), **kind),
        lambda cell: rnn.dynamic_rnn(cell(), _place(tf, None, None, 3), lengths(), **kind),
        lambda cell: rnn.bidirectional_dynamic_rnn(cell(), cell(), _place(tf, None, 5, 3), lengths(), **kind),
        lambda cell: rnn.static_bidirectional_rnn(cell(), cell(), [_place(tf, None, 3)] * 2, **kind),
    ]
    return [_seeds(tf, [lambda run=run, cell=cell: run(cell) for cell in cells]) for run in runs]  # type: ignore[misc]


@program
def seeds_after_losses_and_layers(tf: Any) -> Any:
    losses, nn, image = tf.losses, tf.nn, tf.image

    def place(*shape: int | None, dtype: Any = None) -> Any:
        return _place(tf, *shape, dtype=dtype)

    def classes(loss: Callable[..., Any], **kwargs: Any) -> Any:
        weights = tf.get_variable("w", [9, 3])
        return loss(weights, tf.get_variable("b", [9]), place(None, 1, dtype=tf.int64), place(None, 3), 2, 9, **kwargs)

    def mode() -> Any:
        return place(dtype=tf.bool)

    parts = [
        lambda: losses.mean_squared_error(place(None, 4), place(None, 4), place(None, 1)),
        lambda: losses.softmax_cross_entropy(place(None, 4), place(None, 4), place(None)),
        lambda: losses.sparse_softmax_cross_entropy(place(None, 5, dtype=tf.int32), place(None, 5, 4), place(None, 5)),
        lambda: losses.sparse_softmax_cross_entropy(place(2, 5, dtype=tf.int32), place(2, 5, 4)),
        lambda: tf.contrib.seq2seq.sequence_loss(place(2, 5, 4), place(2, 5, dtype=tf.int32), place(2, 5)),
        lambda: classes(nn.nce_loss),
        lambda: classes(nn.nce_loss, remove_accidental_hits=True),
        lambda: classes(nn.sampled_softmax_loss),
        lambda: tf.layers.batch_normalization(place(None, 3), training=mode()),
        lambda: tf.layers.batch_normalization(place(None, 4, 4, 3), training=mode()),
        lambda: tf.contrib.layers.batch_norm(place(None, 3), is_training=mode()),
        lambda: tf.contrib.layers.batch_norm(place(None, 4, 4, 3), is_training=mode(), fused=False),
        lambda: tf.split(place(4, 6), 3, 1),
        lambda: nn.softmax(place(None, 3, 4), 1),
        lambda: nn.softmax(place(None, 3, 4), -2),
        lambda: nn.swish(place(3)),
        lambda: tf.random_crop(place(8, 8, 3), [4, 4, 3]),
        lambda: image.random_flip_left_right(place(8, 8, 3)),
        lambda: image.random_flip_left_right(place(None, 8, 8, 3)),
        lambda: image.random_brightness(place(8, 8, 3), 0.3),
        lambda: image.random_contrast(place(8, 8, 3), 0.3, 0.6),
        lambda: image.random_saturation(place(8, 8, 3), 0.3, 0.6),
        lambda: image.random_hue(place(8, 8, 3), 0.3),
        lambda: image.per_image_standardization(place(8, 8, 3)),
        lambda: tf.distributions.Categorical(np.zeros([2, 3], np.float32)).sample(),
        lambda: tf.distributions.Bernoulli(logits=place(3)).sample(),
    ]
    return _seeds(tf, parts)


@program
def seeds_after_images_and_samples(tf: Any) -> Any:
    image, made, numbers = tf.image, tf.distributions, tf.int32

    def place(*shape: int | None, dtype: Any = None) -> Any:
        return _place(tf, *shape, dtype=dtype)

    def loss(*across: bool) -> Any:
        return tf.contrib.seq2seq.sequence_loss(place(2, 5, 4), place(2, 5, dtype=numbers), place(2, 5), *across)

    adjusted = (image.adjust_brightness, image.adjust_contrast, image.adjust_hue, image.adjust_saturation)
    distributions = [
        lambda: made.Bernoulli(probs=place(3)),
        lambda: made.Bernoulli(logits=place(None, 3)),
        lambda: made.Categorical(logits=place(2, 3)),
        lambda: made.Categorical(logits=place(None)),
        lambda: made.Categorical(probs=place(None, 2, 3)),
        lambda: made.Normal(0.0, 1.0),
        lambda: made.Uniform(0.0, 1.0),
    ]
    sizes = [lambda: (), lambda: 4, lambda: [2, 3], lambda: place(dtype=numbers), lambda: place(None, dtype=numbers)]
    parts = [
        *(lambda f=f: f(place(4, 4, 3, dtype=tf.uint8), 0.3) for f in adjusted),  # type: ignore[misc]
        *(lambda f=f: f(place(4, 4, 3), place()) for f in adjusted),  # type: ignore[misc]
        lambda: image.random_flip_left_right(place(2, 4, 4, 3)),
        lambda: image.random_flip_up_down(place(None, None, 3)),
        lambda: image.random_flip_left_right(tf.placeholder(tf.float32)),
        lambda: loss(False, True),
        lambda: loss(False, False),
        lambda: loss(False, False, True, False),
        *(lambda d=d, n=n: d().sample(n()) for d in distributions for n in sizes),  # type: ignore[misc]
    ]
    return _seeds(tf, parts)


def _ids(tf: Any) -> Any:
    return tf.SparseTensor([[0, 0]], np.int64([1]), [2, 1])


@program
def seeds_after_feature_columns(tf: Any) -> Any:
    fc = tf.feature_column

    def words() -> Any:
        return fc.categorical_column_with_vocabulary_list("c", ["a", "b"])

    def after(layer: Any, *columns: Any, rank: int = 1) -> Any:
        shape = [None, 1][:rank]
        return lambda: layer({"c": _place(tf, *shape, dtype=tf.string), "x": _place(tf, *shape)}, list(columns))

    number, bound, found = fc.numeric_column("x"), fc.bucketized_column(fc.numeric_column("x"), [1.0]), []
    for rank in (1, 2):
        for layer in (fc.input_layer, fc.linear_model):
            embedded = fc.embedding_column(words(), 2)
            found += [after(layer, number, bound, rank=rank), after(layer, embedded, rank=rank),
                      after(layer, fc.indicator_column(words()), embedded, rank=rank)]  # fmt: skip
        found += [after(fc.linear_model, words(), fc.crossed_column(["c", bound], 3), bound, rank=rank)]
    weighted = fc.weighted_categorical_column(words(), "x")
    found += [after(fc.linear_model, weighted), lambda: tf.nn.safe_embedding_lookup_sparse(tf.ones([3, 2]), _ids(tf)),
              lambda: tf.layers.dropout(_place(tf, None, 3), 0.0, training=True)]  # fmt: skip
    return _seeds(tf, found)


@program
def seeds_after_optimizers_of_estimators(tf: Any) -> Any:
    def input_fn() -> Any:
        return {"x": tf.constant([[1.0], [2.0]])}, tf.constant([[0.0], [1.0]])

    def optimizer() -> Any:
        rate = tf.train.exponential_decay(0.1, tf.train.get_global_step(), 2, 0.5)
        return tf.train.GradientDescentOptimizer(rate)

    columns, kept = [tf.feature_column.numeric_column("x")], tf.estimator.RunConfig(tf_random_seed=3)
    alone = tf.estimator.DNNRegressor([2], columns, optimizer=optimizer, config=kept)
    both = tf.estimator.DNNLinearCombinedRegressor(
        dnn_feature_columns=columns, dnn_hidden_units=[2], dnn_optimizer=optimizer, linear_feature_columns=columns,
        linear_optimizer=optimizer, config=kept,
    )  # fmt: skip
    return [made.train(input_fn, steps=2).get_variable_value("dnn/logits/kernel").tolist() for made in (alone, both)]


ACTIVATIONS = [
    "relu", "tanh", "sigmoid", "linear", "softmax", "selu", "elu", "hard_sigmoid", "exponential", "softplus",
    "softsign",
]  # fmt: skip
INITIALIZERS = [
    "zeros", "ones", "constant", "uniform", "normal", "truncated_normal", "identity", "orthogonal",
    "glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "lecun_normal", "lecun_uniform",
    "RandomUniform", "RandomNormal", "TruncatedNormal", "VarianceScaling",
]  # fmt: skip


@program
def layers_by_names_of_keras(tf: Any) -> Any:
    """Activations, initializers and regularizers by name; the seeds of the latter tell that as many ops are made."""
    tf.set_random_seed(4)
    x = tf.constant(np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4))
    ones, layers, found = tf.ones_initializer(), tf.layers, []
    for name in ACTIVATIONS:
        found += [layers.dense(one, 2, name, kernel_initializer=ones) for one in (x, tf.reshape(x, [3, 2, 2]))]
    for name in INITIALIZERS:
        found.append(layers.dense(x, 2, kernel_initializer=name, bias_initializer="uniform"))
    for name in ("l1", "l2", "l1_l2", {"class_name": "L1L2", "config": {"l1": 0.2}}):
        found.append(layers.dense(x, 2, kernel_regularizer=name, activity_regularizer=name, kernel_initializer="ones"))
    found += tf.losses.get_regularization_losses()
    found.append(layers.batch_normalization(x, gamma_initializer="uniform", moving_mean_initializer="ones"))
    image = tf.reshape(x, [1, 3, 4, 1])
    found += [
        f(image, 2, 2, activation="relu") for f in (layers.conv2d, layers.conv2d_transpose, layers.separable_conv2d)
    ]
    for name in ("BasicRNNCell", "GRUCell", "BasicLSTMCell", "LSTMCell"):
        cell = getattr(tf.nn.rnn_cell, name)(2, activation="relu")
        found.append(cell(x, cell.zero_state(3, tf.float32))[0])
    ways = [lambda: layers.Dense(2, "relu6"), lambda: layers.Dense(2, 3),
            lambda: layers.dense(x, 2, kernel_initializer="he"), lambda: layers.dense(x, 2, kernel_regularizer="l3"),
            lambda: layers.dense(x, 2, kernel_regularizer=3)]  # fmt: skip
    errors = [outcome(way) for way in ways]
    return [np.round(value, 4).tolist() for value in run(tf, found)], errors, run(tf, tf.random_normal([2]))


@program
def methods_of_variables_and_layers(tf: Any) -> Any:
    found = []
    for kind in (False, True):
        with tf.Graph().as_default(), tf.Session() as session:
            tf.set_random_seed(3)
            a, layer = tf.Variable(np.zeros((2, 3), np.float32), use_resource=kind), tf.layers.Dense(2)
            a.initialized_value()
            update = a.batch_scatter_update(tf.IndexedSlices(tf.constant([[5.0, 6.0], [7.0, 8.0]]), [[0, 1], [2, 0]]))
            layer(a)
            session.run(tf.global_variables_initializer())
            found += [
                session.run(update).tolist(),
                session.run(tf.Variable(a.initialized_value()).initial_value).tolist(),
            ]
            found += [[value.tolist() for value in layer.get_weights()], tf.layers.Flatten().get_weights()]
            layer.set_weights([np.ones((3, 2)), np.arange(2)])
            found += [value.tolist() for value in layer.get_weights()]
            found += [outcome(lambda layer=layer, v=v: layer.set_weights(v)) for v in ([], [np.ones(6), np.ones(2)])]
    return found


@program
def constraints_by_names_of_keras(tf: Any) -> Any:
    """Weights after a step of gradient descent."""
    start, found = np.float32([[1.5, -0.2], [-2.0, 0.4], [0.7, -0.1]]), []
    names = ["max_norm", "MaxNorm", "non_neg", "nonneg", "unit_norm", "min_max_norm"]
    given = {"class_name": "MinMaxNorm", "config": {"min_value": 0.6, "max_value": 0.8, "rate": 0.5, "axis": 1}}
    for name in [*names, given, {"class_name": "MaxNorm", "config": {"max_value": 0.5}}, "max", 3]:
        with tf.Graph().as_default(), tf.Session() as session:
            settings = {
                "kernel_constraint": name,
                "kernel_initializer": tf.constant_initializer(start),
                "use_bias": False,
            }
            loss = outcome(lambda settings=settings: tf.reduce_sum(tf.layers.dense(tf.ones([1, 3]), 2, **settings)))
            if isinstance(loss, str):
                found.append(loss)
                continue
            step = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
            session.run(tf.global_variables_initializer())
            session.run(step)
            found.append(session.run(tf.global_variables()[0]).tolist())
    return found
