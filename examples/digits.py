"""Data and network of the digits examples: the digits of scikit-learn, and a network with one hidden layer."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tfmini as tf

HIDDEN = 64


def load_data():
    """(training images, test images, training labels, test labels); an image is 64 numbers from 0 to 1."""
    digits = load_digits()
    images = (digits.data / 16.0).astype("float32")
    return train_test_split(images, digits.target, test_size=0.2, random_state=0)


def batches(images, labels, size, seed):
    """Endless batches of rows drawn at random."""
    rng = np.random.RandomState(seed)
    while True:
        rows = rng.choice(len(images), size, replace=False)
        yield images[rows], labels[rows]


def build_model(seed=1):
    """(placeholder of images, placeholder of labels, loss, accuracy) of a network with one hidden layer."""
    images = tf.placeholder(tf.float32, [None, 64], name="images")
    labels = tf.placeholder(tf.int64, [None], name="labels")
    with tf.variable_scope("hidden"):
        weights = tf.get_variable("W", [64, HIDDEN], initializer=tf.glorot_uniform_initializer(seed=seed))
        biases = tf.get_variable("b", [HIDDEN], initializer=tf.zeros_initializer())
        hidden = tf.nn.relu(tf.matmul(images, weights) + biases)
    with tf.variable_scope("softmax"):
        weights = tf.get_variable("W", [HIDDEN, 10], initializer=tf.glorot_uniform_initializer(seed=seed + 1))
        biases = tf.get_variable("b", [10], initializer=tf.zeros_initializer())
        logits = tf.matmul(hidden, weights) + biases
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
    return images, labels, loss, accuracy
