"""Programs with the feature columns of ``tf.contrib.layers``: a part of `tests.programs.era`."""

from __future__ import annotations

import collections
import importlib
import operator
import os
import tempfile
from typing import Any

import numpy as np

from tests.programs.era import outcome, program, run


class _Twice:
    def __call__(self, x: Any) -> Any:
        return x * 2.0

    def __repr__(self) -> str:
        return "twice"


def _all(tf: Any) -> Any:
    layers, ones = tf.contrib.layers, tf.ones_initializer()
    path = os.path.join(tempfile.mkdtemp(), "words")
    with open(path, "w") as file:
        file.write("x\ny\n3\n")
    real = layers.real_valued_column("r", dimension=2, default_value=1.0, normalizer=_Twice())
    buckets = layers.bucketized_column(real, [0, 1, 1, 4])
    hashed = layers.sparse_column_with_hash_bucket("h", 10)
    keys = layers.sparse_column_with_keys("k", ["a", "b"], combiner="mean")
    numbers = layers.sparse_column_with_keys("n", [7, 9], dtype=tf.int64)
    words = layers.sparse_column_with_vocabulary_file("f", path, num_oov_buckets=2, vocab_size=3)
    rest = layers.sparse_column_with_integerized_feature("i", 5)
    weighted = layers.weighted_sparse_column(keys, "w")
    key = layers.SPARSE_FEATURE_CROSS_DEFAULT_HASH_KEY
    found = {
        "real": real, "buckets": buckets, "hashed": hashed, "keys": keys, "numbers": numbers, "words": words,
        "rest": rest, "weighted": weighted, "crossed": layers.crossed_column([keys, hashed], 20),
        "crossed with buckets": layers.crossed_column([buckets, layers.crossed_column([keys, words], 9)], 30),
        "crossed with key": layers.crossed_column([keys, words, rest], 20, hash_key=key, combiner="sqrtn"),
        "one hot": layers.one_hot_column(keys), "one hot weighted": layers.one_hot_column(weighted),
        "embedding": layers.embedding_column(rest, 3, initializer=ones),
        "embedding weighted": layers.embedding_column(weighted, 2, "sum", initializer=ones, max_norm=0.7),
        "hashes": layers.sparse_column_with_hash_bucket("h", 10, hash_keys=[[1, 2], [3, 4]]),
        "hashed numbers": layers.sparse_column_with_hash_bucket("i", 6, dtype=tf.int64, combiner="sqrtn"),
    }  # fmt: skip
    other = layers.sparse_column_with_hash_bucket("g", 10)
    shared = layers.shared_embedding_columns([hashed, other], 2, "sqrtn", initializer=ones)
    found.update({"shared " + column.name: column for column in shared})
    return found


def _features(tf: Any) -> Any:
    sparse = lambda values: tf.SparseTensor([[0, 0], [0, 1], [2, 0]], values, [3, 2])  # noqa: E731
    return {
        "r": tf.constant([[-1.0, 0.2], [0.5, 3.0], [2.0, 9.0]]), "h": sparse(["p", "q", "p"]),
        "g": tf.constant([["p", ""], ["", ""], ["s", "t"]]), "k": sparse(["a", "z", "b"]),
        "n": sparse(np.int64([9, 7, 3])), "f": sparse(["y", "elsewhere", "3"]), "i": sparse(np.int64([7, 4, 2])),
        "w": sparse([0.5, 2.0, 3.0]),
    }  # fmt: skip


def _filled(tf: Any, fetches: Any) -> Any:
    """The fetches where a variable's values follow from its shape, and the variables."""
    variables = sorted(tf.global_variables(), key=lambda v: v.name)
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        for v in variables:
            size = int(np.prod(v.shape.as_list()))
            session.run(v.assign(np.cos(np.arange(size) + 1.0).reshape(v.shape.as_list())))
        return session.run(fetches), [(v.op.name, v.shape.as_list()) for v in variables]


@program
def columns_of_contrib_layers(tf: Any) -> Any:
    columns = _all(tf)
    texts = {name: [c.name, c.key, sorted(map(str, c.config.items())), str(getattr(c, "length", None))]
             for name, c in columns.items() if c.key.find("/words") < 0}  # fmt: skip
    again = _all(tf)
    return texts, [columns[name] == again[name] for name in ("hashed", "keys", "weighted", "crossed")]


@program
def sums_of_contrib_columns(tf: Any) -> Any:
    columns, found = _all(tf), {}
    for name, column in columns.items():
        if "one hot" in name or "embedding" in name or "shared" in name:
            continue
        with tf.Graph().as_default():
            total, variables, bias = tf.contrib.layers.weighted_sum_from_feature_columns(_features(tf), [column], 2)
            found[name] = _filled(tf, total), [v.op.name for v in variables[column]], bias.op.name
    wide = [columns[name] for name in ("real", "hashed", "crossed", "weighted", "buckets")]
    with tf.Graph().as_default():
        total, _, _ = tf.contrib.layers.weighted_sum_from_feature_columns(_features(tf), wide, 1, ["own"], scope="m")
        models = len(tf.contrib.framework.get_model_variables())
        found["all"] = _filled(tf, total), [v.op.name for v in tf.get_collection("own")], models
    joint = [columns[name] for name in ("hashed", "rest", "crossed")]
    with tf.Graph().as_default():
        total, variables, bias = tf.contrib.layers.joint_weighted_sum_from_feature_columns(_features(tf), joint, 2)
        found["joint"] = _filled(tf, total), [v.op.name for v in variables]
    return found


@program
def inputs_of_contrib_columns(tf: Any) -> Any:
    columns, found = _all(tf), {}
    deep = [name for name in columns if "one hot" in name or "embedding" in name or "shared" in name]
    for name in [*deep, "real", "buckets"]:
        with tf.Graph().as_default():
            found[name] = _filled(tf, tf.contrib.layers.input_from_feature_columns(_features(tf), [columns[name]]))
    with tf.Graph().as_default():
        outs = {}
        every = [columns[name] for name in [*deep, "real", "buckets"]]
        net = tf.contrib.layers.input_from_feature_columns(_features(tf), every, ["own"], cols_to_outs=outs)
        sizes = sorted((column.name, out.shape.as_list()) for column, out in outs.items())
        found["all"] = _filled(tf, net), net.shape.as_list(), sizes, len(tf.get_collection("own"))
    with tf.Graph().as_default():
        sequences = {"r": tf.reshape(tf.range(12.0), [2, 3, 2]),
                     "i": tf.SparseTensor([[0, 0, 0], [1, 2, 1]], np.int64([3, 1]), [2, 3, 2])}  # fmt: skip
        part = [columns["real"], columns["embedding"], tf.contrib.layers.one_hot_column(columns["rest"])]
        net = tf.contrib.layers.sequence_input_from_feature_columns(sequences, part)
        found["sequences"] = _filled(tf, net)
    return found


@program
def contrib_columns_in_functions_of_feature_column(tf: Any) -> Any:
    columns, found = _all(tf), {}
    names = ("real", "buckets", "one hot", "embedding")
    with tf.Graph().as_default():
        found["input"] = _filled(tf, tf.feature_column.input_layer(_features(tf), [columns[name] for name in names]))[0]
    with tf.Graph().as_default():
        wide = [columns[name] for name in ("real", "hashed", "weighted", "crossed")]
        found["linear"] = _filled(tf, tf.feature_column.linear_model(_features(tf), wide))[0]
    return found


@program
def examples_of_contrib_columns(tf: Any) -> Any:
    columns, layers = _all(tf), tf.contrib.layers
    chosen = [columns[name] for name in ("real", "hashed", "weighted")]
    example = tf.train.Example()
    example.features.feature["r"].float_list.value.extend([1.0, 2.0])
    example.features.feature["h"].bytes_list.value.extend([b"p"])
    example.features.feature["k"].bytes_list.value.extend([b"b", b"a"])
    example.features.feature["w"].float_list.value.extend([1.0, 2.0])
    parsed = layers.parse_feature_columns_from_examples([example.SerializeToString()], chosen)
    changed = layers.transform_features(_features(tf), chosen)
    places = layers.make_place_holder_tensors_for_base_features(chosen)
    inferred = layers.infer_real_valued_columns({"a": tf.zeros([2, 3, 2]), "b": tf.zeros([2], tf.int32)})
    with tf.Session() as session:
        session.run(tf.tables_initializer())
        values = session.run([parsed["r"], parsed[chosen[0]], parsed["h"].values, parsed[chosen[1]].values,
                              [part.values for part in parsed[chosen[2]]], changed[chosen[1]].values])  # fmt: skip
    kinds = sorted((name, type(place).__name__) for name, place in places.items())
    only = layers.infer_real_valued_columns(tf.zeros([4, 5]))
    return values, sorted(map(str, changed)), kinds, sorted(map(str, inferred)), str(only)


@program
def wrong_contrib_columns(tf: Any) -> Any:
    layers, columns = tf.contrib.layers, _all(tf)
    real, keys = columns["real"], columns["keys"]
    wrong = [
        lambda: layers.real_valued_column("r", dimension=0), lambda: layers.real_valued_column("r", dimension=None),
        lambda: layers.real_valued_column("r", dtype=tf.string), lambda: layers.real_valued_column("r", 1, "a"),
        lambda: layers.real_valued_column("r", 2, [1.0]), lambda: layers.real_valued_column("r", 1, 1.5, tf.int32),
        lambda: layers.bucketized_column(keys, [1]), lambda: layers.bucketized_column(real, []),
        lambda: layers.bucketized_column(real, [2, 1]), lambda: layers.sparse_column_with_hash_bucket("h", 0),
        lambda: layers.sparse_column_with_hash_bucket("h", 5, dtype=tf.float32),
        lambda: layers.sparse_column_with_integerized_feature("h", 5, dtype=tf.string),
        lambda: layers.sparse_column_with_vocabulary_file("f", "words"),
        lambda: layers.weighted_sparse_column(keys, "w", tf.string), lambda: layers.crossed_column([keys], 10),
        lambda: layers.crossed_column([keys, real], 10), lambda: layers.crossed_column([keys, keys], 1),
        lambda: layers.embedding_column(keys, 2, initializer=3), lambda: layers.shared_embedding_columns([], 2),
        lambda: layers.embedding_column(keys, 2, ckpt_to_load_from="x"),
        lambda: layers.shared_embedding_columns(keys, 2),
        lambda: layers.shared_embedding_columns([keys, columns["hashed"]], 2),
        lambda: layers.shared_embedding_columns([real], 2), lambda: layers.check_feature_columns({"a": real}),
        lambda: layers.check_feature_columns([keys, keys]), lambda: layers.create_feature_spec_for_parsing(["a"]),
        lambda: layers.input_from_feature_columns(_features(tf), [keys]),
        lambda: layers.input_from_feature_columns({"s": tf.zeros([2, 1])}, [real]),
        lambda: layers.sequence_input_from_feature_columns(_features(tf), [keys]),
        lambda: layers.sequence_input_from_feature_columns(_features(tf), [columns["buckets"]]),
        lambda: layers.joint_weighted_sum_from_feature_columns(_features(tf), [real], 1),
        lambda: layers.infer_real_valued_columns({"h": _features(tf)["h"]}),
        lambda: layers.infer_real_valued_columns({"g": _features(tf)["g"]}),
    ]  # fmt: skip
    return [type(answer).__name__ if not isinstance(answer, str) else answer for answer in map(outcome, wrong)]


@program
def columns_of_sequences(tf: Any) -> Any:
    made, plain = tf.contrib.feature_column, tf.feature_column
    ids = tf.SparseTensor([[0, 0], [0, 1], [2, 0], [2, 1], [2, 3]], tf.constant([2, 0, 1, 5, 2], tf.int64), [4, 4])
    words = tf.SparseTensor([[0, 0], [0, 1], [2, 0], [2, 3]], ["a", "b", "c", "a"], [4, 4])
    steps = tf.SparseTensor(
        [[0, 0, 0], [0, 0, 1], [0, 1, 0], [2, 3, 1]], tf.constant([1, 2, 0, 1], tf.int64), [4, 4, 2]
    )
    numbers = tf.SparseTensor([[0, 0], [0, 1], [0, 2], [0, 3], [2, 7]], [1.0, 2, 3, 4, 5], [4, 8])
    features = {"ids": ids, "words": words, "steps": steps, "numbers": numbers}
    table = tf.constant_initializer(np.arange(12, dtype=np.float32).reshape(6, 2))
    one = plain.embedding_column(made.sequence_categorical_column_with_identity("ids", 6), 2, initializer=table)
    two = plain.indicator_column(made.sequence_categorical_column_with_vocabulary_list("words", ["a", "b"]))
    three = plain.embedding_column(made.sequence_categorical_column_with_identity("steps", 6), 2, initializer=table)
    four = made.sequence_numeric_column("numbers", shape=(2,), default_value=-1.0)
    five = plain.indicator_column(made.sequence_categorical_column_with_hash_bucket("words", 3))
    scaled = made.sequence_numeric_column(
        "numbers", normalizer_fn=lambda x: tf.SparseTensor(x.indices, x.values * 2, x.dense_shape)
    )
    found = [
        made.sequence_input_layer(features, columns)
        for columns in ([one], [two], [four, one], [three], [five], [scaled])
    ]
    bad = [outcome(lambda: run(tf, made.sequence_input_layer(features, [scaled, one]))),
           outcome(lambda: made.sequence_input_layer(features, [plain.numeric_column("numbers")])),
           outcome(lambda: made.sequence_input_layer(features, [plain.indicator_column(
               plain.categorical_column_with_identity("ids", 6))])),
           outcome(lambda: plain.input_layer(features, [one])),
           outcome(lambda: made.sequence_numeric_column("a", (0,)))]  # fmt: skip
    spec = plain.make_parse_example_spec([one, two, four])
    names = [column.name for column in (one, two, three, four)]
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        values = session.run(found)
    return (
        values,
        bad,
        sorted(map(str, spec.items())),
        names,
        [v.name for v in tf.global_variables()],
        str(found[2][0].shape),
    )


@program
def scopes_of_columns_that_fail(tf: Any) -> Any:
    made, plain = tf.contrib.feature_column, tf.feature_column
    sequences = tf.SparseTensor([[0, 0], [1, 0]], [1.0, 2.0], [2, 2])
    numbers, ids = made.sequence_numeric_column("a"), made.sequence_categorical_column_with_identity("a", 3)
    given = {"a": sequences}
    calls: Any = [({}, [numbers]), ({"a": tf.zeros([2, 2])}, [numbers]), (given, [plain.numeric_column("a")]),
                  (given, []), (given, [numbers, numbers]), (given, [ids]), (given, ["a"]), ([sequences], [numbers]),
                  (given, [numbers])]  # fmt: skip
    found = []
    for arguments in calls:
        for _ in range(2):
            found.append(outcome(lambda arguments=arguments: made.sequence_input_layer(*arguments)[0].name))
    dense = plain.numeric_column("a")
    calls = [({}, [dense]), ({"a": tf.zeros([2])}, []), ({"a": tf.zeros([2])}, [dense] * 2),
             ({"a": tf.zeros([2])}, ["a"]), ([1], [dense]), ({"a": tf.zeros([2, 1])}, [dense])]  # fmt: skip
    found += [outcome(lambda arguments=arguments: plain.input_layer(*arguments).name) for arguments in calls]
    x = tf.zeros([2])
    return found, [tf.concat([x], 0).name, tf.concat(x, 0, name="b").name, tf.concat([x], 0, name="b/").name]


def _own_column(tf: Any) -> Any:
    """A column as a library makes it: both of TensorFlow's base classes, and a named tuple."""
    fc = importlib.import_module("tensorflow.python.feature_column.feature_column")
    v2 = importlib.import_module("tensorflow.python.feature_column.feature_column_v2")
    fields: Any = collections.namedtuple("Own", ("key", "units"))  # noqa: PYI024

    class Own(operator.attrgetter("_DenseColumn")(fc), v2.DenseColumn, fields):  # type: ignore[misc,name-defined]
        seen: Any = []
        variable_shape = _variable_shape = property(lambda self: tf.TensorShape([self.units]))
        parse_example_spec = _parse_example_spec = property(
            lambda self: {self.key: tf.FixedLenFeature([3], tf.float32)}
        )
        name = property(lambda self: f"{getattr(self.key, 'name', self.key)}_own")

        def _transform_feature(self, inputs: Any) -> Any:
            self.seen.append("transformed")
            return inputs.get(self.key)

        def transform_feature(self, cache: Any, manager: Any) -> Any:
            self.seen.append("transformed 2")
            return cache.get(self.key, manager)

        def _get_dense_tensor(self, inputs: Any, weight_collections: Any = None, trainable: Any = None) -> Any:
            self.seen.append([list(weight_collections), trainable])
            ones = tf.ones_initializer()
            weight = tf.get_variable("w", [3, self.units], initializer=ones, collections=weight_collections)
            return tf.matmul(inputs.get(self) + inputs.get(self), weight)

        def create_state(self, manager: Any) -> None:
            self.seen.append("state")
            manager.create_variable(self, "w", [3, self.units], initializer=tf.ones_initializer())
            manager.add_resource(self, "five", 5.0)

        def get_dense_tensor(self, cache: Any, manager: Any) -> Any:
            weight = manager.get_variable(self, "w") * manager.get_resource(self, "five")
            return tf.matmul(cache.get(self, manager), weight)

    return Own, fc, v2


@program
def a_column_of_a_library(tf: Any) -> Any:
    """Its place among the others in the layers of both versions, its variables, its parsing and its equality."""
    kind, fc, v2 = _own_column(tf)
    own, number = kind("x", 2), tf.feature_column.numeric_column("n")
    features = {"x": tf.constant([[1.0, 2, 3], [4, 5, 6]]), "n": tf.constant([1.0, 2.0])}
    made: list[Any] = [{}, {}]
    tensors = [
        tf.feature_column.input_layer(features, [own, number], cols_to_vars=made[0]),
        tf.feature_column.linear_model(features, [own, number], cols_to_vars=made[1]),
    ]
    layer = tf.keras.layers.DenseFeatures([own, number])
    tensors += [layer(features), layer({"x": np.float32([[2, 4, 6], [8, 10, 12]]), "n": np.float32([1, 2])})]
    return {
        "tensors": run(tf, tensors), "seen": kind.seen, "weights": [weight.name for weight in layer.weights],
        "variables": [{getattr(k, "name", k): [v.name for v in found[k]] for k in found} for found in made],
        "model": [variable.name for variable in tf.get_collection("model_variables")],
        "parsing": sorted(map(str, tf.feature_column.make_parse_example_spec([own]))), "shown": repr(own),
        "equal": [own == kind("x", 2), own == kind("x", 3), hash(own) == hash(kind("x", 2)), list(own)],
        "version": [v2.is_feature_column_v2([number]), isinstance(number, operator.attrgetter("_DenseColumn")(fc))],
    }  # fmt: skip


@program
def what_columns_make_before_they_are_dense(tf: Any) -> Any:
    """The cache of features that a library's columns get, and a state manager without a layer."""
    _, _, v2 = _own_column(tf)
    sparse = tf.SparseTensor([[0], [2]], [1, 3], [3])
    cache = v2.FeatureTransformationCache({"n": [1.0, 2.0], "s": sparse, "c": 3.0, "i": tf.constant([[1], [2]])})
    number = tf.feature_column.numeric_column("n", normalizer_fn=_Twice())
    category = tf.feature_column.categorical_column_with_identity("i", 4)
    weighted = tf.feature_column.weighted_categorical_column(category, "n")
    dense = [
        cache.get("n", None), cache.get(number, None), cache.get(tf.feature_column.indicator_column(category), None),
        cache.get(tf.feature_column.bucketized_column(number, [3.0]), None),
    ]  # fmt: skip
    ids = [cache.get("s", None), cache.get(category, None), *cache.get(weighted, None)]
    ids.append(cache.get(tf.feature_column.embedding_column(category, 2), None))
    manager, base = operator.attrgetter("_StateManagerImpl")(v2)(None, True), v2.StateManager()
    manager.add_resource("a column", "b", 3)
    calls: list[Any] = [
        lambda: cache.get("absent", None), lambda: cache.get("c", None), lambda: cache.get(3, None),
        lambda: manager.get_resource("a column", "b"), lambda: manager.get_resource("a column", "c"),
        lambda: manager.get_variable("a column", "b"), lambda: base.add_resource("a column", "b", 3),
    ]  # fmt: skip
    return {
        "dense": run(tf, dense), "ids": run(tf, [[one.indices, one.values, one.dense_shape] for one in ids]),
        "same": cache.get(number, None) is cache.get(number, None), "calls": [str(outcome(call)) for call in calls],
    }  # fmt: skip


@program
def features_that_do_not_fit_their_columns(tf: Any) -> Any:
    column, words = tf.feature_column, tf.constant([["a"], ["b"]])
    number, word = column.numeric_column, column.indicator_column

    def made(value: Any, of: Any) -> Any:
        return outcome(lambda: run(tf, column.input_layer({"x": value}, [of])))

    unknown = tf.placeholder_with_default(np.ones((2, 3), np.float32), [2, None])
    found = [made(tf.ones([2, 3]), number("x", shape=2)), made(tf.constant(3.0), number("x")),
             made(unknown, number("x", 3)), made(tf.zeros([0, 2, 2]), number("x", (2, 2)))]  # fmt: skip
    found += [made(words, word(column.categorical_column_with_identity("x", 3))),
              made(words, word(column.categorical_column_with_hash_bucket("x", 3, tf.int64))),
              outcome(lambda: column.categorical_column_with_vocabulary_list("x", ["a"], tf.int32))]  # fmt: skip
    given = (
        ("a", 1, tf.float32),
        (1.5, 1, tf.int32),
        ([1.0], 2, tf.float32),
        (1, 2, tf.float32),
        ([1.0, 2.0], 2, tf.float32),
    )
    return found, [
        outcome(lambda each=each: str(number("x", each[1], each[0], each[2]).default_value)) for each in given
    ]


@program
def names_in_several_linear_models(tf: Any) -> Any:
    features = {"x": tf.ones([2, 1]), "s": tf.constant([["a"], ["b"]])}
    columns = [tf.feature_column.numeric_column("x"),
               tf.feature_column.categorical_column_with_vocabulary_list("s", ["a", "b"])]  # fmt: skip
    with tf.variable_scope("x"):
        tf.get_variable("own", [1])
    for scope, reuse in (("a", None), ("a", True), ("b", None)):
        with tf.variable_scope(scope, reuse=reuse):
            tf.feature_column.linear_model(features, columns)
    for _ in range(2):
        tf.feature_column.linear_model(features, columns)
    return [v.op.name for v in tf.global_variables()]
