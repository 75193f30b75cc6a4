"""What programs of TensorFlow 1's time do that is easy to get wrong: each function is a program, its result the answer.

``tf`` is tfmini or TensorFlow 1.15; modules below ``tensorflow`` are imported by their paths, which tfmini serves too.
`ANSWERS` has those of TensorFlow 1.15.5; this module, run by it, writes them. It is Python 3.7 without tfmini.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ANSWERS = Path(__file__).parent / "era.json"
CHECKED = (
    Path(__file__).parent / "era_checked.json"
)  # of each program: what it and its answer were, by TensorFlow 1.15.5
# Modules with more programs.
NAMES = ["distributions", "operators", "seq2seq", "slim", "training", "cells", "optimizers", "profiles", "learning",
         "columns", "data", "estimators", "heads", "streams", "ops", "clustering", "graphs", "contrib", "numeric",
         "quantize"]  # fmt: skip
PARTS = [f"era_{name}" for name in NAMES]
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")
_programs: dict[str, Any] = {}


def programs() -> dict[str, Callable[[Any], Any]]:
    """All programs by their names."""
    for part in PARTS:
        importlib.import_module("tests.programs." + part)
    return dict(_programs)


def answers(tf: Any, names: list[str]) -> dict[str, Any]:
    """What the programs answer, as lists, numbers and texts."""
    found, known = {}, programs()
    for name in names:
        with tf.Graph().as_default():
            found[name] = _plain(known[name](tf))
    return found


def program(function: Any) -> Any:
    """Makes a function one of the programs."""
    _programs[function.__name__] = function
    return function


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    if isinstance(value, float):
        return repr(value) if value != value or abs(value) == float("inf") else round(value, 4)
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def run(tf: Any, fetches: Any, feeds: Any = None) -> Any:
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches, feeds)


def outcome(answer: Callable[[], Any]) -> Any:
    """The answer, or the class of the error."""
    try:
        return answer()
    except Exception as error:
        return type(error).__name__


def _module(path: str) -> Any:
    return importlib.import_module("tensorflow." + path)


@program
def overridden_compute_gradients(tf: Any) -> Any:
    seen = []

    class Mine(tf.train.GradientDescentOptimizer):
        def compute_gradients(self, loss: Any, var_list: Any, **kwargs: Any) -> Any:
            seen.append(sorted(kwargs))
            return super().compute_gradients(loss, var_list, **kwargs)

        def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Any = None) -> Any:
            return super().apply_gradients(grads_and_vars, global_step, name)

    v = tf.Variable(1.0)
    step = Mine(0.1).minimize(v * v)
    with tf.control_dependencies([step]):
        after = v.read_value()
    return seen, run(tf, after)


@program
def bases_of_optimizers(tf: Any) -> Any:
    names = (
        "Adadelta Adagrad AdagradDA Adam Ftrl GradientDescent Momentum ProximalAdagrad ProximalGradientDescent RMSProp"
    )
    found = {name: getattr(tf.train, name + "Optimizer") for name in (names + " SyncReplicas").split()}
    return {name: [kind.__base__ is tf.train.Optimizer, kind in tf.train.Optimizer.__subclasses__()]
            for name, kind in found.items()}  # fmt: skip


@program
def names_in_the_dict_of_modules(tf: Any) -> Any:
    names = {"logging": "INFO set_verbosity", "nn": "relu conv2d", "train": "AdamOptimizer Saver", "layers": "dense",
             "losses": "log_loss", "flags": "FLAGS", "initializers": "zeros", "data": "Dataset"}  # fmt: skip
    return {space: [name in vars(getattr(tf, space)) for name in text.split()] for space, text in names.items()}


@program
def custom_getter(tf: Any) -> Any:
    seen = []

    def record(getter: Any, name: str, **kwargs: Any) -> Any:
        keys = ("trainable", "reuse", "use_resource", "validate_shape", "synchronization", "aggregation", "collections")
        seen.append([name] + [str(kwargs[key]) for key in keys] + [str(kwargs["shape"]), str(kwargs["dtype"])])
        return getter(name, **kwargs)

    with tf.variable_scope("a", custom_getter=record):
        tf.get_variable("plain", [2])
        tf.get_variable("frozen", [2], trainable=False)
        tf.get_variable("value", initializer=1.0)
        tf.get_variable("resource", [3], use_resource=True, collections=["x"])
        tf.get_variable("on_read", [2], synchronization=tf.VariableSynchronization.ON_READ)
        tf.get_local_variable("local", [2])
        tf.layers.dense(tf.ones([2, 3]), 4)
    return seen, sorted(v.name for v in tf.trainable_variables())


@program
def assign_to_slices(tf: Any) -> Any:
    def after(change: Callable[[Any], Any], feeds: Any = None) -> Any:
        with tf.Graph().as_default():
            return run(tf, change(tf.Variable([1.0, 2.0, 3.0])), feeds)

    yes, no = (lambda: tf.constant(True)), (lambda: tf.constant(False))

    def in_loop(v: Any) -> Any:
        def body(i: Any) -> Any:
            with tf.control_dependencies([tf.assign(v[i], tf.cast(i, tf.float32) * 10.0)]):
                return i + 1

        with tf.control_dependencies([tf.while_loop(lambda i: i < 3, body, [0])]):
            return v.read_value()

    def inner(v: Any) -> Any:
        return tf.cond(no(), lambda: v + 0.0, lambda: v[:2].assign([7.0, 7.0]))

    def outer_slice(v: Any) -> Any:
        part = v[1:]
        return tf.cond(yes(), lambda: tf.assign(part, [5.0, 6.0]), lambda: v + 0.0)

    return [
        after(lambda v: tf.assign(v[1:], [5.0, 6.0])),
        after(lambda v: tf.cond(yes(), lambda: tf.assign(v[1:], [5.0, 6.0]), lambda: v + 0.0)),
        after(lambda v: tf.cond(no(), lambda: v[0].assign(9.0), lambda: v[1].assign(8.0))),
        after(lambda v: tf.cond(yes(), lambda: inner(v), lambda: v + 0.0)),
        after(outer_slice), after(in_loop), outcome(lambda: after(lambda v: tf.assign(tf.exp(v)[0], 1.0))),
    ]  # fmt: skip


@program
def noise_shapes(tf: Any) -> Any:
    x, some = tf.ones([2, 3, 4]), tf.placeholder_with_default(np.ones((2, 3, 4), np.float32), [None, 3, None])
    shapes = [
        lambda t: [tf.shape(t)[0], 1, 4], lambda t: (2, 1, tf.Dimension(4)), lambda t: np.array([2, 1, 4], np.uint8),
        lambda t: tf.shape(t), lambda t: [1, 1], lambda t: [tf.constant(2, tf.int64), 1, 4],
    ]  # fmt: skip
    plain = [run(tf, tf.nn.dropout(t, 0.5, noise_shape=shape(t))).shape for t in (x, some) for shape in shapes]
    with_none = [(None, 1, None), [None, tf.constant(1), 4]]
    layers = [run(tf, tf.layers.dropout(t, 0.5, shape, training=True)).shape for t in (x, some) for shape in with_none]
    return plain, layers, run(tf, tf.nn.dropout(x, 0.5, noise_shape=(None, 1, None))).shape


@program
def sizes_of_every_integer_type(tf: Any) -> Any:
    def of(sizes: Any) -> Any:
        a, b, zero = sizes[0], sizes[1], sizes[0] - sizes[0]
        images, table = tf.ones([1, 8, 8, 1]), tf.ones([5, 3])
        cell = tf.nn.rnn_cell.BasicLSTMCell(a)
        tensors = [
            tf.zeros(sizes), tf.placeholder_with_default(np.ones((2, 3), np.float32), sizes),
            tf.get_variable("v" + sizes.dtype.name, sizes), tf.get_variable("w" + sizes.dtype.name, [a, b]),
            tf.reshape(tf.range(6), [a, b]), tf.constant(1.0, shape=sizes), tf.eye(a, b), tf.one_hot([0, 1], a),
            tf.layers.conv2d(images, a, (a, b)), tf.layers.dense(tf.ones([1, 8]), a),
            tf.nn.max_pool(images, [1, a, a, 1], [1, a, a, 1], "SAME"), tf.expand_dims(table, zero),
            tf.concat([table, table], zero), cell(tf.ones([2, 3]), cell.zero_state(2, tf.float32))[0],
            tf.nn.top_k(tf.ones([5]), a)[0], tf.image.resize_images(images, [a, b]),
            tf.image.crop_to_bounding_box(images, zero, zero, a, b), tf.reduce_sum(table, zero),
            tf.contrib.layers.embed_sequence([[1]], a, b, scope="e" + sizes.dtype.name),
        ]  # fmt: skip
        lengths = [tf.TensorShape(sizes).as_list(), len(tf.unstack(tf.ones([2, 3]), num=a, axis=zero))]
        return [tensor.shape.as_list() for tensor in tensors], lengths

    return {name: of(np.array([2, 3], name)) for name in INTEGERS}, [
        part.shape.as_list() for part in tf.split(tf.ones([5, 3]), np.array([2, 3], np.int64))
    ]


@program
def ints_beyond_the_type(tf: Any) -> Any:
    pairs = [(300, "uint8"), (-1, "uint8"), (200, "int8"), (70000, "int16"), (-1, "uint16"), (2**31, "int32"),
             (-(2**31) - 1, "int32"), (2**32 + 5, "int32"), (-1, "uint32"), (-1, "uint64"), (2**63, "uint64"),
             (2**63, "int64"), (2**64, "uint64"), (2**70, "float32"), (2**2000, "float32"),
             (70000, "float16")]  # fmt: skip

    def of(value: int, kind: str) -> Any:
        dtype = getattr(tf, kind)
        ways = [
            lambda: tf.constant(value, dtype), lambda: tf.constant([value, 1], dtype),
            lambda: tf.zeros([], dtype) + value, lambda: tf.convert_to_tensor([[value]], dtype),
            lambda: tf.fill([2], tf.constant(value, dtype)),
        ]  # fmt: skip
        return [outcome(lambda way=way: run(tf, way())) for way in ways]  # type: ignore[misc]

    # 1.15 has no sum of these types.
    names = ["{} {}".format(value if abs(value) < 2**80 else "huge", kind) for value, kind in pairs]
    return {name: of(*pair)[: 2 if pair[1][:2] == "ui" else 5] for name, pair in zip(names, pairs)}


@program
def elements_of_generators(tf: Any) -> Any:
    def of(item: Any, types: Any) -> Any:
        with tf.Graph().as_default():
            element = tf.data.Dataset.from_generator(lambda: iter([item]), types).make_one_shot_iterator().get_next()
            return outcome(lambda: run(tf, element))

    many = [(1.7, tf.int32), (np.float64(1.7), tf.int32), ("5", tf.int32), ("1.5", tf.float32), (True, tf.float32),
            (1, tf.bool), (None, tf.float32), ([1, None], tf.float32), (300, tf.uint8), (-1, tf.uint8),
            (2**40, tf.int32), (1 + 2j, tf.float32), ([[1], [2, 3]], tf.float32), (["a", "b"], tf.string),
            ("a", tf.int32), (b"x", tf.string), (1e300, tf.float32), (float("nan"), tf.int32), ("", tf.bool),
            (range(3), tf.int32), ([True, 2], tf.int32), (np.datetime64("2020-01-01"), tf.int64)]  # fmt: skip
    return [of(item, types) for item, types in many]


@program
def gradients_of_broadcasts(tf: Any) -> Any:
    def chain(tensor: Any) -> list[str]:
        found: list[str] = []
        while len(found) < 3 and tensor.op.inputs:
            found, tensor = [*found, tensor.op.type], tensor.op.inputs[0]
        return found

    def of(function: Any, x: Any, y: Any) -> Any:
        tensors = [tf.placeholder(tf.float32, x), tf.placeholder(tf.float32, y)]
        found = tf.gradients(tf.tanh(function(*tensors)), tensors)
        return [chain(grad) for grad, shape in zip(found, (x, y)) if shape != ([1, 3] if [2, 3] in (x, y) else [2, 3])]

    shapes: list[Any] = [([None, 3], [3]), ([1, 3], [3]), ([2, 3], [3]), ([2, 3], [1, 3]), ([2, 1], [1, 3]),
                         ([], [2, 3]), ([3], [1, 1, 3]), ([1], []), ([None, 1], [None, 3])]  # fmt: skip
    return {name: [of(getattr(tf, name), x, y) for x, y in shapes] for name in ("add", "subtract")}


@program
def defun_of_a_variable(tf: Any) -> Any:
    function = _module("python.framework.function")
    v = tf.get_variable("v", [2], initializer=tf.ones_initializer())
    seen = []

    @function.Defun(v.dtype)
    def twice(x: Any) -> Any:
        seen.append(x.dtype)
        return x * 2.0

    @function.Defun(
        v.dtype, python_grad_func=lambda op, grad: grad * 10.0, shape_func=lambda op: [op.inputs[0].get_shape()]
    )
    def graded(x: Any) -> Any:
        return x * 2.0

    y, z = twice(v), graded(v)
    return (
        seen[0],
        y.dtype,
        run(tf, [y, tf.gradients(y, v)[0], z, tf.gradients(z, v)[0], twice(tf.constant([3.0, 4.0]))]),
    )


@program
def gradients_inside_vectorized_map(tf: Any) -> Any:
    rows = tf.constant(np.arange(6, dtype=np.float32).reshape(3, 2))
    w = tf.get_variable("w", initializer=np.float32([[2.0, 3.0], [1.0, 1.0]]))

    def per_row(row: Any) -> Any:
        return tf.gradients(tf.reduce_sum(tf.matmul(row[None], w) ** 2), w)[0]

    x = tf.constant([1.0, 2.0, 3.0])
    y = x**2
    jacobian = tf.vectorized_map(lambda i: tf.gradients(tf.gather(y, i), x)[0], tf.range(3))
    return run(tf, [tf.vectorized_map(per_row, rows), jacobian])


@program
def jacobians(tf: Any) -> Any:
    parallel = _module("python.ops.parallel_for.gradients")
    x, w = tf.constant([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]), tf.constant([[0.1, 0.2], [0.3, 0.4]])
    y = tf.tanh(tf.matmul(x, w))
    loops = [parallel.jacobian(y, [x, w], use_pfor=False), parallel.batch_jacobian(y, x, use_pfor=False)]
    return run(tf, [parallel.jacobian(y, w), parallel.batch_jacobian(y, x), loops])


@program
def functions_and_modules_of_one_name(tf: Any) -> Any:
    ops = _module("contrib.framework.python.ops")
    before = [type(getattr(ops, name)).__name__ for name in ("arg_scope", "add_arg_scope", "variables")]
    inner = _module("contrib.framework.python.ops.arg_scope")
    return (
        before,
        type(inner).__name__,
        ops.arg_scope is inner.arg_scope,
        ops.arg_scope is tf.contrib.framework.arg_scope,
    )


@program
def deprecated_summaries(tf: Any) -> Any:
    old = tf.contrib.deprecated
    old.scalar_summary(["a", "b"], [1.0, 2.0])
    old.histogram_summary("c", [1.0, 2.0], name="own")
    old.image_summary("d", tf.zeros([2, 2, 2, 1]), max_images=1)
    old.audio_summary("e", tf.zeros([1, 4]), 8000)
    names = [tensor.name for tensor in tf.get_collection(tf.GraphKeys.SUMMARIES)]
    merged = tf.Summary.FromString(run(tf, old.merge_all_summaries()))
    return names, [(value.tag, value.simple_value) for value in merged.value]


@program
def names_that_ask_for_the_context(tf: Any) -> Any:
    context, tfe = _module("python.eager.context"), _module("contrib.eager.python.tfe")
    with tf.name_scope("a"), tf.name_scope("b"):
        scope = tf.contrib.framework.get_name_scope()
    framework = tf.contrib.framework
    things = [tf.ones(1), tf.get_variable("v", [1]), tf.SparseTensor([[0]], [1], [1]), 1, np.ones(1)]
    hooked = getattr(_module("python.training.monitored_session"), "_HookedSession")  # noqa: B009 - TensorFlow's own
    with tf.Session() as session:
        ran = hooked(session, []).run(tf.constant(3))
    return (
        scope,
        framework.get_name_scope(),
        [framework.is_tensor(t) for t in things],
        context.in_eager_mode(),
        ran,
        [context.executing_eagerly(), tfe.in_eager_mode(), _module("python.estimator.util").fn_args(lambda a, b=1: a)],
    )


@program
def edited_graphs(tf: Any) -> Any:
    ge = tf.contrib.graph_editor
    x, v = tf.placeholder_with_default([1.0, 2.0], [2], name="x"), tf.Variable([3.0, 4.0], name="v")
    with tf.name_scope("s"):
        a = tf.multiply(x, 2.0, name="a")
        b = tf.add(a, v, name="b")
    with tf.control_dependencies([a]):
        c = tf.identity(b * b, name="c")
    names = lambda ops: sorted(op.name for op in ops)  # noqa: E731
    walks = [
        names(ge.get_backward_walk_ops(c.op)), names(ge.get_backward_walk_ops([c.op], inclusive=False, stop_at_ts=[a])),
        names(ge.get_backward_walk_ops(c, within_ops=[c.op, b.op])), names(ge.get_forward_walk_ops([a.op])),
        names(ge.get_forward_walk_ops([x], inclusive=False)), names(ge.get_backward_walk_ops(c, control_inputs=True)),
        names(ge.get_walks_intersection_ops([a.op], [c.op])), names(ge.select_ops("s/.*", graph=x.graph)),
        names(ge.filter_ts([b.op], True)), names(ge.filter_ts_from_regex(ge.select_ops(a.op, c.op), "a")),
        names(ge.filter_ops_from_regex(tf.get_default_graph(), "^s/")),
    ]  # fmt: skip
    view = ge.sgv(a.op, b.op)
    copied, info = ge.copy_with_input_replacements(view, {x: tf.constant([10.0, 20.0])}, dst_scope="copy")
    replaced = ge.graph_replace(c, {a: tf.zeros([2])})
    before = run(tf, [c, info.transformed(b), replaced])
    with tf.Graph().as_default() as other:
        ge.copy(ge.sgv("^s/|^x|^v", graph=x.graph), other, "moved")
    y = tf.constant([0.0, 1.0])
    changed = ge.reroute_ts([y], [a], can_modify=[b.op])
    ge.add_control_inputs(b.op, [y.op])
    after = [op.name for op in b.op.control_inputs]
    ge.remove_control_inputs(b.op, [y.op])
    io = [sorted(t.name for t in ts) for ts in (view.inputs, view.outputs, copied.outputs)]
    moved = [op.name for op in other.get_operations() if "s/" in op.name]
    return walks, io, before, changed, after, run(tf, c), sorted(moved), len(b.op.control_inputs)


@program
def spectrograms(tf: Any) -> Any:
    signal = tf.contrib.signal
    x = tf.constant(np.sin(np.arange(50, dtype=np.float32)).reshape(2, 25))
    some = tf.placeholder_with_default(x, [2, None])
    spectrum = signal.stft(x, 8, 4)
    inverse = signal.inverse_stft(spectrum, 8, 4, window_fn=signal.inverse_stft_window_fn(4))
    frames = [
        signal.frame(tf.range(7), 3, 2), signal.frame(tf.range(7), 3, 2, pad_end=True, pad_value=9),
        signal.frame(tf.reshape(tf.range(12), [6, 2]), 2, 3, axis=0),
        signal.frame(some, 8, tf.constant(5), pad_end=True),
        signal.frame(tf.range(2), 3, 1), signal.overlap_and_add(tf.reshape(tf.range(12), [1, 3, 4]), 2),
        signal.overlap_and_add(tf.reshape(tf.range(12.0), [4, 3]), tf.constant(5)),
    ]  # fmt: skip
    windows = [signal.hann_window(5), signal.hann_window(6, periodic=False), signal.hamming_window(4),
               signal.hann_window(1), signal.inverse_stft_window_fn(3)(7, dtype=tf.float32)]  # fmt: skip
    cosines = [tf.signal.dct(x, kind) for kind in (1, 2, 3)] + [tf.signal.idct(x, 2), tf.signal.dct(x, 2, norm="ortho"),
               tf.signal.idct(x, 2, norm="ortho"), tf.signal.dct(x, 2, n=5)]  # fmt: skip
    mel = signal.linear_to_mel_weight_matrix(4, 9, 8000)
    cepstra = signal.mfccs_from_log_mel_spectrograms(tf.log(tf.tensordot(tf.abs(signal.stft(x, 16, 8)), mel, 1) + 0.1))
    slope = tf.gradients(tf.reduce_sum(tf.abs(spectrum) ** 2), x)[0]
    padded = tf.abs(signal.stft(some, 6, 3, pad_end=True))
    values = run(tf, [frames, windows, cosines, mel, cepstra, slope, tf.abs(spectrum), inverse, padded])
    return values, [t.shape.as_list() for t in (*frames[:3], frames[5], spectrum)]


@program
def names_of_version_2(tf: Any) -> Any:
    v2 = importlib.import_module("tensorflow.compat.v2")
    listed = {
        "": "argmax assert_greater boolean_mask cond constant convert_to_tensor device expand_dims gather gather_nd"
            " hessians norm ones_like pad random_normal_initializer reduce_all reduce_sum shape size squeeze transpose"
            " while_loop zeros_like",
        "debugging": "assert_equal assert_near assert_non_negative assert_scalar",
        "math": "argmin bincount confusion_matrix count_nonzero in_top_k l2_normalize log_softmax reduce_std softmax",
        "nn": "avg_pool conv2d crelu depthwise_conv2d dropout max_pool moments relu softmax_cross_entropy_with_logits"
              " sigmoid_cross_entropy_with_logits weighted_moments",
        "random": "poisson uniform", "strings": "length substr to_number", "sparse": "segment_sum",
        "io": "parse_example",
        "linalg": "cholesky matvec norm", "nest": "flatten map_structure",
    }  # fmt: skip
    parameters = {}
    for space, text in listed.items():
        home = getattr(v2, space) if space else v2
        for name in text.split():
            function = getattr(home, name)
            function = function.__init__ if inspect.isclass(function) else function
            parameters[space + "." + name] = [key for key in inspect.signature(function).parameters if key != "self"]
    del parameters["math.bincount"][5:]  # 1.15.5 has a name for it in version 2 alone
    x, labels = tf.constant([[1.0, 2.0, 3.0], [0.0, 1.0, 5.0]]), tf.constant([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    values = [
        v2.reduce_sum(x, 1, True), v2.argmax(x, 1), v2.zeros_like(input=x), v2.where(x > 2.0),
        v2.gather(x, [2, 0], None, 1), v2.nn.softmax_cross_entropy_with_logits(labels, x), v2.transpose(x, None, False),
        v2.pad(x, [[0, 0], [1, 0]], "CONSTANT", 7), v2.cond(x[0, 0] > 0, lambda: x, lambda: -x),
        v2.nn.moments(x, [0], None, True), v2.cast(x, v2.int32), v2.squeeze(x[:1], [0]),
        v2.nn.dropout(x, 0.0), v2.strings.substr(["abc"], 1, 2), v2.shape(x, v2.int64), v2.math.in_top_k([1, 2], x, 2),
    ]  # fmt: skip
    return parameters, run(tf, values)


@program
def feature_columns(tf: Any) -> Any:
    fc, v2 = tf.feature_column, _module("python.feature_column.feature_column_v2")
    i, j = fc.categorical_column_with_identity("i", 4, default_value=0), fc.categorical_column_with_identity("j", 4)
    hashed = fc.categorical_column_with_hash_bucket("h", 5)
    weighted = fc.weighted_categorical_column(i, "wt")
    settings = {"initializer": tf.ones_initializer()}
    shared = fc.shared_embedding_columns([j, i], 2, **settings)
    columns = [
        fc.numeric_column("n", shape=[2], default_value=[1.0, 2.0]),
        fc.bucketized_column(fc.numeric_column("m"), [0, 1]), hashed, i,
        fc.categorical_column_with_vocabulary_list("v", ["a", "b"], num_oov_buckets=1),
        fc.crossed_column(["a", i], 7), fc.indicator_column(i), fc.embedding_column(hashed, 3), weighted,
    ]  # fmt: skip
    keys = "key shape default_value hash_bucket_size number_buckets vocabulary_list num_oov_buckets boundaries hash_key"
    keys += " dimension combiner max_norm trainable ckpt_to_load_from weight_feature_key"
    made_of = [[key, str(getattr(column, key))] for column in columns for key in keys.split() if hasattr(column, key)]
    kinds = [type(column).__name__ for column in columns]
    shapes = [str(column.variable_shape) for column in columns if isinstance(column, v2.DenseColumn)]
    counts = [column.num_buckets for column in columns if isinstance(column, v2.CategoricalColumn)]
    specs = [sorted(column.parse_example_spec) for column in columns]
    same = [fc.numeric_column("n") == fc.numeric_column("n"), fc.numeric_column("n") == fc.numeric_column("o"),
            columns[6].categorical_column == i, len({fc.numeric_column("n"), fc.numeric_column("n")})]  # fmt: skip
    features = {"i": [[0, 1], [2, 2]], "j": [[3], [1]], "wt": [[0.5, 2.0], [1.0, 4.0]], "n": [[1.0, 2.0], [3.0, 4.0]]}
    features = {key: tf.constant(value) for key, value in features.items()}
    layer = fc.input_layer(features, [columns[0], fc.indicator_column(weighted), *shared,
                                      fc.embedding_column(weighted, 2, combiner="sum", **settings)])  # fmt: skip
    linear = fc.linear_model(features, [weighted, columns[0]])
    names = sorted(v.name for v in tf.global_variables())
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        session.run([tf.assign(v, tf.ones_like(v)) for v in tf.global_variables()])
        values = session.run([layer, linear])
    return made_of, kinds, shapes, counts, specs, same, names, values, [c.name for c in shared]


@program
def fused_rnns(tf: Any) -> Any:
    rnn = tf.contrib.rnn
    x = tf.constant(np.sin(np.arange(30)).reshape(5, 2, 3), tf.float32)
    with tf.variable_scope("s", initializer=tf.constant_initializer(0.1)):
        plain, other, clipped = (rnn.LSTMBlockFusedCell(4, **kw) for kw in ({}, {"forget_bias": 0.5},
                                 {"cell_clip": 0.2, "use_peephole": True}))  # fmt: skip
        adapted = rnn.FusedRNNCellAdaptor(tf.nn.rnn_cell.BasicLSTMCell(2), use_dynamic_rnn=True)
        found = [
            plain(x, dtype=tf.float32, sequence_length=[5, 3]),
            rnn.TimeReversedFusedRNN(other)(x, dtype=tf.float32, sequence_length=[5, 3]),
            clipped(x, initial_state=(tf.ones([2, 4]), tf.zeros([2, 4]))), adapted(x, dtype=tf.float32),
            rnn.TimeReversedFusedRNN(adapted)(x, dtype=tf.float32),
        ]  # fmt: skip
    slopes = tf.gradients(found[0][0], [x, *tf.trainable_variables()[:2]])
    names = [v.name for v in tf.trainable_variables()]
    return (
        names,
        [outputs.shape.as_list() for outputs, _ in found],
        run(tf, [found, slopes]),
        [outcome(lambda: rnn.LSTMBlockFusedCell(4)(x))],
    )


@program
def optimizers_of_contrib(tf: Any) -> Any:
    opt = tf.contrib.opt

    def after(optimizer: Any, sparse: bool, use_resource: bool, **settings: Any) -> Any:
        with tf.Graph().as_default():
            start = np.float32([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
            v = tf.get_variable("v", initializer=start, use_resource=use_resource)
            value = tf.gather(v, [0, 2, 0]) if sparse else v
            step = optimizer().minimize(tf.reduce_sum(value**2), **settings)
            # With several threads, TensorFlow may read the value before the decay or after it.
            with tf.Session(config=tf.ConfigProto(inter_op_parallelism_threads=1)) as session:
                session.run(tf.global_variables_initializer())
                session.run([step]), session.run([step])
                return session.run(v), sorted(x.name for x in tf.global_variables())

    made = {
        "nadam": lambda: opt.NadamOptimizer(0.1), "adam w": lambda: opt.AdamWOptimizer(0.01, 0.1),
        "ada max": lambda: opt.AdaMaxOptimizer(0.1),
        "momentum w": lambda: opt.MomentumWOptimizer(0.01, 0.1, 0.9), "lazy adam": lambda: opt.LazyAdamOptimizer(0.1),
        "sgd w": lambda: opt.extend_with_decoupled_weight_decay(tf.train.GradientDescentOptimizer)(
            weight_decay=0.01, learning_rate=0.1),
    }  # fmt: skip
    # With a reference variable, the gradient may read what the decay has left, or not.
    kinds = {name: ((False, True), (True, True)) if name[-1] == "w" else ((False, False), (True, False), (False, True),
             (True, True)) for name in made}  # fmt: skip
    results = {name: [after(make, *kind) for kind in kinds[name]] for name, make in made.items()}
    averaged = after(lambda: opt.MovingAverageOptimizer(tf.train.GradientDescentOptimizer(0.1), 0.5), False, True)
    return results, after(made["adam w"], False, True, decay_var_list=[]), averaged


@program
def weights_after_other_ops(tf: Any) -> Any:
    """The default seed of a variable is the number of ops before it, so these must be as many as TensorFlow's."""
    parts = [
        lambda x: tf.layers.dense(x, 4),
        lambda x: tf.tensordot(x, x, [[0, 2], [0, 2]]),
        lambda x: tf.boolean_mask(x, x > 0),
        lambda x: tf.boolean_mask(x, x[0, :, 0] > 0, axis=1),
        lambda x: tf.sequence_mask(tf.cast(x[:, 0, 0], tf.int32)),
        lambda x: tf.layers.conv2d_transpose(x[:, :, None], 4, 3, 2),
        lambda x: tf.layers.conv3d_transpose(x[:, None, None], 4, 3),
        lambda x: tf.contrib.layers.conv2d_transpose(x[:, :, None], 4, 3, 2),
        lambda x: tf.losses.mean_squared_error(x, x),
        lambda x: tf.nn.softmax_cross_entropy_with_logits_v2(labels=x, logits=x),
        lambda x: tf.losses.softmax_cross_entropy(x[0], x[0]),
        lambda x: tf.losses.sparse_softmax_cross_entropy([1, 2], x[0]),
    ]
    return [_weights_after(tf, part) for part in parts]


def _weights_after(tf: Any, part: Any) -> Any:
    with tf.Graph().as_default():
        tf.set_random_seed(7)
        part(tf.placeholder(tf.float32, [None, 2, 3]))
        last = tf.get_variable("last", [2], initializer=tf.random_uniform_initializer())
        return run(tf, last)


@program
def complex_numbers_by_zero(tf: Any) -> Any:
    def parts(value: Any) -> Any:
        return [float(value.real), float(value.imag)]

    def answer(dtype: Any) -> Any:
        x, y = tf.placeholder(dtype, []), tf.placeholder(dtype, [])
        names = ["reciprocal", "rsqrt", "sqrt", "log"], ["divide", "pow", "divide_no_nan", "xdivy", "xlogy"]
        grads = ["SqrtGrad", "RsqrtGrad", "ReciprocalGrad"]
        one = [getattr(tf.math, name)(x) for name in names[0]] + [tf.math.log1p(x - 1), 1 / x]
        two = [getattr(tf.math, name)(x, y) for name in names[1]]
        two += [getattr(tf.raw_ops, name)(y=x, dy=y) for name in grads]
        edges = [complex(0.0, 0.0), complex(-0.0, 0.0), complex(-0.0, -0.0), complex(0.0, np.inf), complex(np.inf, 1.0),
                 complex(-np.inf, np.nan), 1 - 2j, -0.5j]  # fmt: skip
        # One at a time: TensorFlow divides vectors of the processor in another way than what is left of a tensor.
        with tf.Session() as session:
            singles = [[parts(z) for z in session.run(one, {x: a})] for a in edges]
            pairs = [[parts(z) for z in session.run(two, {x: a, y: b})] for a in edges for b in edges]
        return singles, pairs

    return answer(tf.complex64), answer(tf.complex128)


@program
def gradients_of_what_is_masked(tf: Any) -> Any:
    found = []
    for dtype in (tf.float16, tf.float32, tf.float64, tf.complex64):
        x = tf.constant([0.0, 4.0, 0.0, 0.0, 0.0], dtype)
        for function in (tf.sqrt, tf.math.rsqrt, tf.math.reciprocal):
            y = tf.where([False, True, False, False, False], function(x), tf.zeros_like(x))
            (grad,) = tf.gradients(y, x, grad_ys=tf.ones_like(y))
            found.append(np.real(run(tf, grad)))
    return found


@program
def seeded_orders_of_data(tf: Any) -> Any:
    data, more = tf.data.Dataset, tf.data.experimental
    fixed = data.range(10).shuffle(4, seed=7, reshuffle_each_iteration=False)
    pair = [data.range(5), data.range(10, 15)]
    ways = [data.range(10).shuffle(size, seed=seed) for size in (4, 100) for seed in (7, 0)]
    ways += [fixed, data.range(10).apply(more.shuffle_and_repeat(4, 2, seed=7)), more.RandomDataset(seed=7).take(4)]
    ways += [way.repeat(2) for way in ways]  # directly behind a shuffle: one stream
    ways += [way.batch(5).repeat(2) for way in ways[:5]]
    zero = tf.constant(0, tf.int64)
    ways += [more.sample_from_datasets(pair, [0.3, 0.7], seed=7), data.range(6).shuffle(4, seed=zero),
             data.range(2).flat_map(lambda _: data.range(6).shuffle(4, seed=7).repeat(2))]  # fmt: skip
    found = [_drained(tf, way) for way in ways]
    with tf.Graph().as_default():
        tf.set_random_seed(3)
        return found, _drained(tf, data.range(6).shuffle(4))


def _drained(tf: Any, dataset: Any) -> Any:
    element, found = dataset.make_one_shot_iterator().get_next(), []
    with tf.Session() as session:
        try:
            while True:
                found.append(session.run(element))
        except tf.errors.OutOfRangeError:
            return found


def unchecked() -> list[str]:
    """The programs that have changed since TensorFlow 1.15.5 gave these answers; to ask for all takes minutes."""
    kept, known = json.loads(ANSWERS.read_text()), json.loads(CHECKED.read_text())
    return [name for name in kept if known.get(name) != stamp(name, kept[name])]


def stamp(name: str, answer: Any) -> str:
    """Changes with a program, with what its module and this one have beside programs, and with the answer."""
    own, _ = parts = [source(Path(inspect.getfile(programs()[name]))), source(Path(__file__))]
    text = json.dumps([own[1][name], [shared for shared, _ in parts], answer])
    return hashlib.md5(text.encode()).hexdigest()[:12]


def source(path: Path) -> tuple[list[str], dict[str, str]]:
    """What a module has beside its programs, and the programs by their names."""
    first, *texts = re.split(r"^@program\n", path.read_text(), flags=re.MULTILINE)
    shared, found = [first], {}
    for text in texts:
        head, *others = re.split(r"\n(?=[@\w])", text)
        found[re.match(r"def (\w+)", head).group(1)] = head  # type: ignore[union-attr]
        shared += others
    return shared, found


def _write(tf: Any, names: list[str]) -> None:
    found = answers(tf, names or list(programs()))
    kept = json.loads(ANSWERS.read_text()) if names and ANSWERS.exists() else {}
    kept.update(found)
    lines = [json.dumps(name) + ": " + json.dumps(kept[name]) for name in sorted(kept)]
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    known = {**(json.loads(CHECKED.read_text()) if names else {}), **{name: stamp(name, kept[name]) for name in found}}
    CHECKED.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    import tensorflow

    from tests.programs import era  # the parts register their programs there, not in `__main__`

    era._write(tensorflow, sys.argv[1:])
