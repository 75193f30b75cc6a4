"""The graphs that the benchmark cases run; ``tf`` is tfmini or TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np


def chain(tf: Any, n: int = 20_000) -> tuple[Any, Any]:
    """n dependent ops that no graph optimiser can fold together."""
    x = tf.placeholder(tf.float32, [])
    y = x
    for _ in range(n // 2):
        y = tf.multiply(tf.subtract(y, x), x)
    return x, y


def mlp(tf: Any, hidden: int = 100, optimizer: Any = None) -> tuple[Any, Any, Any, Any]:
    """(inputs, labels, loss, train op) of a network with one hidden layer."""
    x = tf.placeholder(tf.float32, [None, 784])
    y = tf.placeholder(tf.float32, [None, 10])
    w1 = tf.Variable(tf.truncated_normal([784, hidden], stddev=0.05, seed=1))
    b1 = tf.Variable(tf.zeros([hidden]))
    w2 = tf.Variable(tf.truncated_normal([hidden, 10], stddev=0.05, seed=2))
    b2 = tf.Variable(tf.zeros([10]))
    logits = tf.matmul(tf.nn.relu(tf.matmul(x, w1) + b1), w2) + b2
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=y, logits=logits))
    step = tf.train.get_or_create_global_step()
    train = (optimizer or tf.train.AdagradOptimizer(0.01)).minimize(loss, global_step=step)
    return x, y, loss, train


def batch(n: int, features: int = 784) -> tuple[Any, Any]:
    """n rows of random inputs and labels."""
    rng = np.random.RandomState(0)
    return rng.rand(n, features).astype(np.float32), np.eye(10, dtype=np.float32)[rng.randint(0, 10, n)]


def cnn(tf: Any) -> tuple[Any, Any, Any]:
    """(images, labels, train op) of two convolutions and two dense layers, as in TensorFlow's MNIST tutorial."""
    x = tf.placeholder(tf.float32, [None, 28, 28, 1])
    y = tf.placeholder(tf.float32, [None, 10])
    h = x
    for i, (size, channels) in enumerate(((1, 32), (32, 64))):
        w = tf.Variable(tf.truncated_normal([5, 5, size, channels], stddev=0.1, seed=i))
        b = tf.Variable(tf.constant(0.1, shape=[channels]))
        h = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(h, w, [1, 1, 1, 1], "SAME"), b))
        h = tf.nn.max_pool(h, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    h = tf.reshape(h, [-1, 7 * 7 * 64])
    w1 = tf.Variable(tf.truncated_normal([7 * 7 * 64, 512], stddev=0.1, seed=3))
    w2 = tf.Variable(tf.truncated_normal([512, 10], stddev=0.1, seed=4))
    logits = tf.matmul(tf.nn.relu(tf.matmul(h, w1)), w2)
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=y, logits=logits))
    train = tf.train.AdamOptimizer(1e-4).minimize(loss)
    return x, y, train


def towers(tf: Any, devices: int) -> tuple[Any, Any]:
    """(sum of all gradients, feeds) of networks with three layers, one on each CPU device, for 64 rows each."""
    sums, feeds = [], {}
    for i in range(devices):
        with tf.device(f"/cpu:{i}"):
            x = h = tf.placeholder(tf.float32, [64, 1024])
            weights = [tf.Variable(tf.truncated_normal([1024, 1024], stddev=0.03, seed=layer)) for layer in range(3)]
            for w in weights:
                h = tf.nn.relu(tf.matmul(h, w))
            sums += [tf.reduce_sum(each) for each in tf.gradients(tf.reduce_mean(tf.square(h)), weights)]
            feeds[x] = batch(64, 1024)[0]
    return tf.add_n(sums), feeds


def embedding(tf: Any, rows: int = 50_000, width: int = 64) -> tuple[Any, Any]:
    """(ids, train op) of a table of which a step reads and updates a few rows."""
    ids = tf.placeholder(tf.int64, [None])
    table = tf.Variable(tf.random_uniform([rows, width], -0.1, 0.1, seed=1))
    loss = tf.reduce_mean(tf.square(tf.nn.embedding_lookup(table, ids)))
    return ids, tf.train.AdagradOptimizer(0.1).minimize(loss)


def sum_of_squares(tf: Any, variables: int, size: int = 10) -> Any:
    """The train op of many small variables."""
    values = [tf.Variable(tf.ones([size]), name=f"v{i}") for i in range(variables)]
    loss = tf.add_n([tf.reduce_sum(tf.square(value)) for value in values])
    return tf.train.GradientDescentOptimizer(0.01).minimize(loss)


def lstm(tf: Any, steps: int, unrolled: bool, batch_size: int = 32, width: int = 64) -> Any:
    """The train op of an LSTM over sequences of numbers; gates are one product, as in BasicLSTMCell."""
    x = tf.constant(np.random.RandomState(0).rand(steps, batch_size, width).astype(np.float32))
    w = tf.get_variable("w", [2 * width, 4 * width], initializer=tf.random_uniform_initializer(-0.1, 0.1, seed=1))
    b = tf.get_variable("b", [4 * width], initializer=tf.zeros_initializer())

    def cell(value: Any, c: Any, h: Any) -> tuple[Any, Any]:
        i, j, f, o = tf.split(tf.matmul(tf.concat([value, h], 1), w) + b, 4, 1)
        c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
        return c, tf.tanh(c) * tf.sigmoid(o)

    c = h = tf.zeros([batch_size, width])
    if unrolled:
        for value in tf.unstack(x):
            c, h = cell(value, c, h)
    else:
        values = tf.TensorArray(tf.float32, steps).unstack(x)
        _, c, h = tf.while_loop(
            lambda t, *_: t < steps, lambda t, c, h: (t + 1, *cell(values.read(t), c, h)), [0, c, h]
        )
    return tf.train.GradientDescentOptimizer(0.01).minimize(tf.reduce_mean(tf.square(h)))
