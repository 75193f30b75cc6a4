"""Summary ops as expressions over ``tf``, ``np`` and ``rng``: both sides evaluate them and compare the bytes."""

from __future__ import annotations

EXPRESSIONS = [
    "tf.summary.scalar('loss', tf.constant(0.1))",
    "tf.summary.scalar('a b?/c', tf.constant(0))",
    "tf.summary.scalar('/lead', tf.constant(2.5, tf.float64), family='fam ily')",
    "tf.summary.scalar('h', tf.constant(0.1, tf.float16), collections=[])",
    "tf.raw_ops.ScalarSummary(tags=['x', 'y'], values=np.float32([1, 2]))",
    "tf.summary.histogram('h', tf.constant(rng.standard_normal(1000).astype('f')))",
    "tf.summary.histogram('h', tf.constant(rng.standard_normal((300, 300)) * 1e3))",
    "tf.summary.histogram('h', tf.constant([0, -1, 1, 5, 5, 5]))",
    "tf.summary.histogram('h', tf.constant([1e-13, -1e-13, 1e-12, -1e-12, 1e25, -1e25, 0.0], tf.float64))",
    "tf.summary.histogram('h', tf.constant([], tf.float32))",
    "tf.summary.histogram('h', tf.constant(np.uint8([[3]])), family='f')",
    "tf.summary.image('i', tf.constant(rng.integers(0, 256, (5, 4, 3, 3)).astype('u1')))",
    "tf.summary.image('i', tf.constant(rng.integers(0, 256, (1, 9, 1, 1)).astype('u1')), max_outputs=1)",
    "tf.summary.image('i', tf.constant(rng.random((2, 17, 13, 4)).astype('f')), family='f')",
    "tf.summary.image('i', tf.constant((rng.random((2, 17, 13, 1)) - 0.7).astype('f')))",
    "tf.summary.image('i', tf.constant(np.zeros((1, 2, 2, 3), 'f')))",
    "tf.summary.image('i', tf.constant(np.where(rng.random((1, 6, 6, 3)) < 0.1, np.nan, 0.5).astype('f')))",
    "tf.summary.image('i', tf.constant(rng.standard_normal((1, 6, 6, 3)).astype('f2')))",
    "tf.summary.image('i', tf.constant(rng.standard_normal((1, 6, 6, 3))))",
    "tf.summary.audio('a', tf.constant(rng.uniform(-1.2, 1.2, (4, 50, 2)).astype('f')), 8000.5)",
    "tf.summary.audio('a', tf.constant(rng.uniform(-1, 1, (4, 50)).astype('f')), 44100, max_outputs=1)",
    "tf.summary.text('t', tf.constant(['some', '*text*']))",
    "tf.summary.text('t', tf.constant('one'))",
    "tf.summary.tensor_summary('t', tf.constant([[1, 2]], tf.int64), 'about', display_name='shown')",
    "tf.summary.tensor_summary('t', tf.constant(1.5), family='f')",
    "tf.summary.tensor_summary('t', tf.constant([True, False]))",
    "tf.raw_ops.TensorSummary(tensor=np.float32([1, 2]))",
    "tf.summary.merge([tf.summary.scalar('a', 1.0), tf.summary.text('t', tf.constant(['x']))])",
    "(tf.summary.scalar('a', 1.0), tf.summary.histogram('a', [1.0]), tf.summary.merge_all())[-1]",
    "(tf.summary.scalar('x/a', 1.0), tf.summary.scalar('y/a', 2.0), tf.summary.merge_all(scope='y'))[-1]",
]
ERRORS = [
    "tf.summary.scalar('x', tf.constant([2.5]))",
    "tf.raw_ops.HistogramSummary(tag=['t'], values=[1.0])",
    "tf.raw_ops.ScalarSummary(tags=['x', 'y'], values=np.float32([1, 2, 3]))",
    "tf.raw_ops.ScalarSummary(tags='x', values=np.float32([1, 2, 3]))",
    "tf.summary.histogram('h', tf.constant([1, float('nan')]))",
    "tf.summary.histogram('h', tf.constant([float('inf'), float('nan')]))",
    "tf.summary.image('i', tf.zeros([2, 3, 3]))",
    "tf.summary.image('i', tf.zeros([2, 3, 3, 2]))",
    "tf.summary.image('i', tf.zeros([2, 0, 3, 1]))",
    "tf.summary.audio('a', tf.zeros([2]), 10)",
    "tf.summary.audio('a', tf.zeros([2, 3]), 0)",
    "tf.summary.merge([tf.summary.merge([tf.summary.scalar('a', 1.0)]), tf.summary.merge_all()])",
    "tf.summary.merge([tf.constant('no summary')])",
]


def build(tf, np, expression: str):
    """The summary of an expression, in a fresh graph, with the random numbers that go with it."""
    return eval(expression, {"tf": tf, "np": np, "rng": np.random.default_rng(7)})


def differences(tf, ours):
    """TensorFlow's side.

    Args:
      ours: expression -> tfmini's summary, serialized.

    Returns:
      {"differences": {expression: [TensorFlow's summary, tfmini's]} of those that differ, "errors": {expression: text}}
    """
    import numpy as np

    found = {}
    for expression, mine in ours.items():
        theirs = run(tf, np, expression)
        if b"PNG" not in theirs and theirs != mine or with_pixels(tf, theirs) != with_pixels(tf, mine):
            found[expression] = [str(with_pixels(tf, summary))[:2000] for summary in (theirs, mine)]
    return {"differences": found, "errors": {e: error_of(tf, np, e) for e in ERRORS}}


def run(tf, np, expression):
    """The summary of an expression, serialized."""
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(build(tf, np, expression))


def error_of(tf, np, expression):
    try:
        run(tf, np, expression)
    except tf.errors.OpError as error:
        return error.message
    return "no error"


def with_pixels(tf, serialized):
    """The summary with pixels where the PNG stood."""
    summary = tf.Summary.FromString(serialized)
    for value in summary.value:
        if value.HasField("image"):
            with tf.Graph().as_default(), tf.Session() as session:
                pixels = session.run(tf.io.decode_png(value.image.encoded_image_string))
            value.image.encoded_image_string = repr(pixels.shape).encode() + pixels.tobytes()
    return summary
