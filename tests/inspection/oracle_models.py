"""Writes GraphDefs of distributed models built by real TensorFlow: python models.py FOLDER"""
import os
import sys

os.environ.update(CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3")
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

def mlp():
    x = tf.placeholder(tf.float32, [None, 784], name="x")
    w1 = tf.get_variable("W1", [784, 100])
    b1 = tf.get_variable("b1", [100])
    w2 = tf.get_variable("W2", [100, 10])
    return tf.reduce_sum(tf.square(tf.matmul(tf.nn.relu(tf.matmul(x, w1) + b1), w2)))

def cnn():
    x = tf.placeholder(tf.float32, [None, 28, 28, 1], name="x")
    w1 = tf.get_variable("W1", [5, 5, 1, 32])
    h = tf.nn.max_pool(tf.nn.relu(tf.nn.conv2d(x, w1, [1, 1, 1, 1], "SAME")), [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    w2 = tf.get_variable("W2", [14 * 14 * 32, 10])
    return tf.reduce_sum(tf.square(tf.matmul(tf.reshape(h, [-1, 14 * 14 * 32]), w2)))

def lstm():
    x = tf.placeholder(tf.float32, [4, None, 16], name="x")
    w = tf.get_variable("kernel", [16 + 32, 128]) 
    def step(t, h, c):
        i, j, f, o = tf.split(tf.matmul(tf.concat([x[:, t], h], 1), w), 4, 1)
        c = c * tf.sigmoid(f) + tf.sigmoid(i) * tf.tanh(j)
        return t + 1, tf.tanh(c) * tf.sigmoid(o), c
    zeros = tf.zeros([4, 32])
    _, h, _ = tf.while_loop(lambda t, h, c: t < tf.shape(x)[1], step, [0, zeros, zeros])
    return tf.reduce_sum(tf.square(h))

def embedding():
    ids = tf.placeholder(tf.int64, [64], name="ids")
    table = tf.get_variable("emb", [80000, 64], partitioner=tf.fixed_size_partitioner(8))
    w = tf.get_variable("W", [64, 1])
    return tf.reduce_sum(tf.square(tf.matmul(tf.nn.embedding_lookup(table, ids, partition_strategy="div"), w)))

for resource in (False, True):
    for build in (mlp, cnn, lstm, embedding):
        with tf.Graph().as_default() as g:
            tf.disable_control_flow_v2()
            setter = tf.train.replica_device_setter(ps_tasks=8, worker_device="/job:worker/task:3")
            with tf.device(setter), tf.variable_scope("", use_resource=resource):
                loss = build()
                step = tf.train.get_or_create_global_step()
                tf.train.AdagradOptimizer(0.1).minimize(loss, global_step=step)
                tf.global_variables_initializer()
            tf.train.write_graph(g, sys.argv[1], f"{build.__name__}_{int(resource)}.pb", as_text=False)
