"""Programs with the cells and models of ``tf.contrib.rnn``: a part of `tests.programs.era`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.programs.era import outcome, program

BATCH, WIDTH, UNITS, STEPS = 2, 4, 4, 3


def _numbers(*shape: int) -> Any:
    return np.cos(np.arange(np.prod(shape)) * 1.7 + np.arange(np.prod(shape)) ** 2).reshape(shape).astype(np.float32)


def _with_values(tf: Any, fetches: Any) -> Any:
    """What the fetches are where each variable's value follows from its shape; and the variables."""
    variables = sorted(tf.global_variables(), key=lambda v: v.name)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(
            [v.assign(0.7 * _numbers(*v.shape.as_list()) + (0.8 if "ratio" in v.name else 0)) for v in variables]
        )
        found = session.run(fetches)
    return found, [(v.name, v.shape.as_list()) for v in variables]


def _steps(tf: Any, make: Any, inputs: Any = None, state: Any = None) -> Any:
    """A cell along three steps: outputs, last state, gradients, variables, sizes."""
    with tf.Graph().as_default():
        cell = make(tf.contrib.rnn)
        steps = [tf.constant(_numbers(BATCH, WIDTH) + i) for i in range(STEPS)] if inputs is None else inputs(tf)
        first = cell.zero_state(BATCH, tf.float32) if state is None else state(tf, cell)
        with tf.variable_scope("s"):
            outputs, last = tf.nn.static_rnn(cell, steps, first)
        total = tf.add_n([tf.reduce_sum(o**2) for o in outputs])
        trained = sorted(tf.trainable_variables(), key=lambda v: v.name)
        slopes = [tf.reduce_sum(g) for g in tf.gradients(total, trained) if g is not None]
        found, variables = _with_values(tf, [outputs, tf.contrib.framework.nest.flatten(last), slopes])
        return found, variables, str(cell.output_size), str(cell.state_size)


@program
def cells_of_papers(tf: Any) -> Any:
    makes = {
        "ugrnn": lambda r: r.UGRNNCell(UNITS), "ugrnn relu": lambda r: r.UGRNNCell(3, activation=tf.nn.relu),
        "intersection": lambda r: r.IntersectionRNNCell(UNITS, forget_bias=0.5),
        "intersection projected": lambda r: r.IntersectionRNNCell(3, num_in_proj=3, y_activation=tf.tanh),
        "coupled": lambda r: r.CoupledInputForgetGateLSTMCell(3, num_unit_shards=2),
        "coupled all": lambda r: r.CoupledInputForgetGateLSTMCell(
            3, use_peepholes=True, num_proj=2, proj_clip=0.3, state_is_tuple=False, layer_norm=True, norm_gain=0.5),
        "time and frequency": lambda r: r.TimeFreqLSTMCell(3, feature_size=2, frequency_skip=1, use_peepholes=True,
                                                           cell_clip=0.5),
        "groups": lambda r: r.GLSTMCell(UNITS, number_of_groups=2, num_proj=2),
        "one group": lambda r: r.GLSTMCell(UNITS), "sru": lambda r: r.SRUCell(3),
        "ind rnn": lambda r: r.IndRNNCell(3), "indy gru": lambda r: r.IndyGRUCell(3),
        "indy lstm": lambda r: r.IndyLSTMCell(3, forget_bias=0.4), "gru block": lambda r: r.GRUBlockCell(3),
        "gru block 2": lambda r: r.GRUBlockCellV2(3),
    }  # fmt: skip

    def pairs(tf: Any) -> Any:
        return [
            (tf.constant([[1.5 + i], [2.5 + 3 * i]]), tf.constant(_numbers(BATCH, WIDTH) + i)) for i in range(STEPS)
        ]

    def wide(tf: Any, cell: Any) -> Any:
        return tf.zeros([BATCH, 6 * 3])

    found = {name: _steps(tf, make, state=wide if "frequency" in name else None) for name, make in makes.items()}
    found["phased"] = _steps(tf, lambda r: r.PhasedLSTMCell(3), pairs)
    found["phased all"] = _steps(tf, lambda r: r.PhasedLSTMCell(
        3, use_peepholes=True, leak=0.1, ratio_on=0.3, trainable_ratio_on=False), pairs)  # fmt: skip
    wrong = [lambda: _steps(tf, lambda r: r.IntersectionRNNCell(3)),
             lambda: _steps(tf, lambda r: r.TimeFreqLSTMCell(3)),
             lambda: tf.contrib.rnn.GLSTMCell(3, number_of_groups=2),
             lambda: _steps(tf, lambda r: r.GLSTMCell(6, number_of_groups=3))]  # fmt: skip
    return found, [outcome(way) for way in wrong]


@program
def convolutional_cells(tf: Any) -> Any:
    def images(*sizes: int) -> Any:
        return lambda tf: [tf.constant(_numbers(BATCH, *sizes) + i) for i in range(STEPS)]

    skip = tf.contrib.rnn.Conv1DLSTMCell(input_shape=[4, 2], output_channels=1, kernel_shape=[3], skip_connection=True)
    first = skip(images(4, 2)(tf)[0], skip.zero_state(BATCH, tf.float32))[0]
    return [
        _with_values(tf, first), str(skip.output_size), str(skip.state_size),
        _steps(tf, lambda r: r.Conv1DLSTMCell(input_shape=[4, 2], output_channels=2, kernel_shape=[3]), images(4, 2)),
        _steps(tf, lambda r: r.Conv2DLSTMCell(
            input_shape=[3, 3, 1], output_channels=1, kernel_shape=[2, 3], use_bias=False), images(3, 3, 1)),
        _steps(tf, lambda r: r.Conv3DLSTMCell(
            input_shape=[2, 2, 2, 1], output_channels=1, kernel_shape=[2, 2, 2]),
            images(2, 2, 2, 1)),
        _steps(tf, lambda r: r.ConvLSTMCell(2, [3, 3, 1], 1, [3, 3], forget_bias=0.0, name="own"), images(3, 3, 1)),
        outcome(lambda: tf.contrib.rnn.ConvLSTMCell(1, [3, 3, 1], 1, [3, 3])),
    ]  # fmt: skip


@program
def wrappers_with_variables(tf: Any) -> Any:
    basic, lstm = (lambda r: r.BasicRNNCell(UNITS)), (lambda r: r.BasicLSTMCell(3))
    wrong = [lambda: tf.contrib.rnn.AttentionCellWrapper(tf.contrib.rnn.BasicLSTMCell(3), 2, state_is_tuple=False),
             lambda: tf.contrib.rnn.AttentionCellWrapper(tf.contrib.rnn.BasicRNNCell(3), 0)]  # fmt: skip
    return [
        _steps(tf, lambda r: r.HighwayWrapper(basic(r))),
        _steps(tf, lambda r: r.HighwayWrapper(basic(r), False, carry_bias_init=-0.5)),
        _steps(tf, lambda r: r.AttentionCellWrapper(lstm(r), 2)),
        _steps(tf, lambda r: r.AttentionCellWrapper(basic(r), 3, 2, 5, input_size=2, state_is_tuple=False)),
        _steps(tf, lambda r: r.MultiRNNCell([r.AttentionCellWrapper(lstm(r), 2), r.HighwayWrapper(r.GRUCell(3))])),
        [outcome(way) for way in wrong],
    ]


@program
def stacked_bidirectional_steps(tf: Any) -> Any:
    rnn = tf.contrib.rnn
    steps = [tf.constant(_numbers(BATCH, WIDTH) + i) for i in range(STEPS)]
    outputs, forward, backward = rnn.stack_bidirectional_rnn(
        [rnn.GRUCell(2), rnn.GRUCell(3)], [rnn.GRUCell(2), rnn.GRUCell(1)], steps, dtype=tf.float32,
        sequence_length=[2, 3],
    )  # fmt: skip
    wrong = [lambda: rnn.stack_bidirectional_rnn([], [], steps), lambda: rnn.stack_bidirectional_rnn(
        [rnn.GRUCell(2)], [rnn.GRUCell(2), rnn.GRUCell(2)], steps)]  # fmt: skip
    return _with_values(tf, [outputs, forward, backward]), [outcome(way) for way in wrong]


def _ids(tf: Any, steps: int, symbols: int, start: int = 0) -> Any:
    return [tf.constant([(start + 2 * i) % symbols, (start + 3 * i + 1) % symbols]) for i in range(steps)]


@program
def models_of_sequences(tf: Any) -> Any:
    seq, rnn = tf.contrib.legacy_seq2seq, tf.contrib.rnn

    def of(build: Any) -> Any:
        with tf.Graph().as_default():
            outputs, state = build()
            total = tf.add_n([tf.reduce_sum(o**2) for o in outputs])
            trained = sorted(tf.trainable_variables(), key=lambda v: v.name)
            grads = tf.gradients(total, trained)
            slopes = [tf.reduce_sum(tf.convert_to_tensor(g)) for g in grads if g is not None]
            return _with_values(tf, [outputs, state, slopes]), [g is None for g in grads]

    def floats(steps: int) -> Any:
        return [tf.constant(_numbers(2, 4) + i) for i in range(steps)]

    def lstm() -> Any:
        return rnn.BasicLSTMCell(3)

    def projection() -> Any:
        return tf.get_variable("W", [3, 6]), tf.get_variable("B", [6])

    kinds = {
        "basic": lambda: seq.basic_rnn_seq2seq(floats(3), floats(2), lstm()),
        "tied": lambda: seq.tied_rnn_seq2seq(floats(3), floats(2), rnn.GRUCell(4), lambda prev, i: prev * i),
        "decoder": lambda: seq.embedding_rnn_decoder(
            _ids(tf, 3, 6), rnn.GRUCell(3).zero_state(2, tf.float32), rnn.GRUCell(3), 6, 2, projection(), True, False),
        "decoder with attention": lambda: seq.attention_decoder(
            floats(3), lstm().zero_state(2, tf.float32), tf.constant(_numbers(2, 5, 3)), lstm(), 2, num_heads=2,
            initial_state_attention=True),
        "decoder of ids with attention": lambda: seq.embedding_attention_decoder(
            _ids(tf, 3, 6), lstm().zero_state(2, tf.float32), tf.constant(_numbers(2, 5, 3)), lstm(), 6, 2,
            output_projection=projection(), feed_previous=True),
    }  # fmt: skip
    for feeds in (False, True, None):
        fed = (lambda: tf.constant(True)) if feeds is None else (lambda feeds=feeds: feeds)
        kinds[f"ids {feeds}"] = lambda fed=fed: seq.embedding_rnn_seq2seq(
            _ids(tf, 3, 5), _ids(tf, 2, 6), lstm(), 5, 6, 2, feed_previous=fed())  # fmt: skip
        kinds[f"tied ids {feeds}"] = lambda fed=fed: seq.embedding_tied_rnn_seq2seq(
            _ids(tf, 3, 5), _ids(tf, 2, 5), lstm(), 7, 2, 5, feed_previous=fed())  # fmt: skip
        kinds[f"attention {feeds}"] = lambda fed=fed: seq.embedding_attention_seq2seq(
            _ids(tf, 3, 5), _ids(tf, 2, 6), rnn.GRUCell(3), 5, 6, 2, feed_previous=fed())  # fmt: skip
    kinds["attention projected"] = lambda: seq.embedding_attention_seq2seq(
        _ids(tf, 3, 5), _ids(tf, 2, 6), rnn.MultiRNNCell([lstm(), lstm()]), 5, 6, 2, 2, projection(), True,
        initial_state_attention=True)  # fmt: skip
    found = {name: of(build) for name, build in sorted(kinds.items())}

    def many() -> Any:
        outputs, states = seq.one2many_rnn_seq2seq(
            _ids(tf, 3, 5), {"a": _ids(tf, 2, 6), "b": _ids(tf, 1, 4)}, rnn.GRUCell(3),
            {"a": rnn.GRUCell(3), "b": rnn.GRUCell(3)}, 5, {"a": 6, "b": 4}, 2, tf.constant(False))  # fmt: skip
        return outputs["a"] + outputs["b"], [states["a"], states["b"]]

    found["one to many"] = of(many)
    return found


@program
def models_in_buckets(tf: Any) -> Any:
    seq = tf.contrib.legacy_seq2seq
    weights = [tf.constant([1.0, 0.5]) for _ in range(4)]

    def model(source: Any, target: Any) -> Any:
        return seq.embedding_attention_seq2seq(source, target, tf.contrib.rnn.GRUCell(3), 5, 6, 2)

    def sampled(labels: Any, logits: Any) -> Any:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits) * 2

    source, target = _ids(tf, 5, 5), _ids(tf, 4, 6)
    both = []
    with tf.variable_scope("m"):
        both.append(seq.model_with_buckets(source, target, target, weights, [(2, 3), (5, 4)], model))
    with tf.variable_scope("m", reuse=True):
        both.append(seq.model_with_buckets(
            source, target, target, weights, [(2, 3), (5, 4)], model, sampled, per_example_loss=True))  # fmt: skip
    wrong = outcome(lambda: seq.model_with_buckets(source, target, target, weights, [(2, 3), (6, 4)], model))
    return _with_values(tf, [losses for _, losses in both] + [both[0][0][0]]), wrong
