"""Programs with slim's networks and datasets: a part of `tests.programs.era`, in Python 3.7 without tfmini."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import tempfile
from typing import Any

import numpy as np

from tests.programs.era import outcome, program, run


def _numbers(*shape: int) -> Any:
    return np.sin(np.arange(np.prod(shape)) * 0.7).reshape(shape).astype(np.float32)


def _built(tf: Any, network: Any, size: int, scope: Any = None, **options: Any) -> Any:
    """The network's end points, its variables, its losses, and how many updates it collects."""
    slim = tf.contrib.slim
    images = tf.constant(_numbers(1, size, size, 3))
    with slim.arg_scope(scope if scope is not None else {}):
        output, points = network(images, **options)
    shapes = {name: point.shape.as_list() for name, point in points.items()}
    variables = [(v.op.name, v.shape.as_list()) for v in slim.get_model_variables()]
    losses = [loss.op.name for loss in slim.losses.get_regularization_losses()]
    counts = [len(shapes), len(variables), len(losses), len(tf.get_collection(tf.GraphKeys.UPDATE_OPS))]
    # Thousands of names: the answers have what they hash to.
    parts = [sorted(shapes.items()), variables, losses]
    return output.shape.as_list(), counts, [hashlib.md5(json.dumps(part).encode()).hexdigest() for part in parts]


def _value(tf: Any, network: Any, size: int, scope: Any = None, **options: Any) -> Any:
    """What a network answers where each variable's value follows from its size."""
    slim = tf.contrib.slim
    with slim.arg_scope(scope if scope is not None else {}):
        output, _ = network(tf.constant(_numbers(2, size, size, 3)), **options)
    values = [v.assign(_numbers(*v.shape.as_list()) / np.sqrt(np.prod(v.shape.as_list()[:-1])) + 0.01)
              for v in slim.get_model_variables()]  # fmt: skip
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(values)
        return session.run(output)


@program
def slim_inception_networks(tf: Any) -> Any:
    from tensorflow.contrib.slim.nets import inception

    found = []
    for name in ("inception_v1", "inception_v2", "inception_v3"):
        with tf.Graph().as_default():
            scope = getattr(inception, name + "_arg_scope")()
            found.append(_built(tf, getattr(inception, name), 299 if name[-1] == "3" else 224, scope, num_classes=7))
    with tf.Graph().as_default():
        small = {"num_classes": 4, "depth_multiplier": 0.1, "min_depth": 4, "is_training": False}
        found.append(_value(tf, inception.inception_v3, 107, inception.inception_v3_arg_scope(), **small))
    return found


@program
def slim_residual_networks(tf: Any) -> Any:
    from tensorflow.contrib.slim.python.slim.nets import resnet_utils, resnet_v1, resnet_v2

    found = []
    for module in (resnet_v1, resnet_v2):
        name = module.__name__.rpartition(".")[2]
        with tf.Graph().as_default():
            scope = resnet_utils.resnet_arg_scope(weight_decay=0.01)
            options = {"num_classes": 5, "is_training": True, "global_pool": False, "output_stride": 8}
            found.append(_built(tf, getattr(module, name + "_50"), 65, scope, **options))
        with tf.Graph().as_default():
            blocks = [
                getattr(module, name + "_block")("block1", 2, 2, 2),
                getattr(module, name + "_block")("block2", 4, 1, 1),
            ]
            scope = resnet_utils.resnet_arg_scope(batch_norm_decay=0.9)
            options = {"blocks": blocks, "num_classes": 3, "is_training": True}
            found.append(_value(tf, getattr(module, name), 33, scope, **options))
    return found


@program
def slim_plain_networks(tf: Any) -> Any:
    nets = importlib.import_module("tensorflow.contrib.slim.nets")

    found = []
    for module, name, size in (("alexnet", "alexnet_v2", 224), ("overfeat", "overfeat", 231), ("vgg", "vgg_a", 224),
                               ("vgg", "vgg_16", 224), ("vgg", "vgg_19", 224)):  # fmt: skip
        with tf.Graph().as_default():
            home = getattr(nets, module)
            scope = getattr(home, name.rstrip("0123456789").rstrip("_a") + "_arg_scope", None)
            scope = scope or getattr(home, module + "_arg_scope", getattr(home, "alexnet_v2_arg_scope", None))
            found.append(_built(tf, getattr(home, name), size, scope(), num_classes=3, is_training=False))
    slim = tf.contrib.slim
    with tf.Graph().as_default(), slim.arg_scope([slim.conv2d], activation_fn=tf.nn.tanh):
        output, _ = nets.vgg.vgg_a(tf.zeros([1, 224, 224, 3]), 2, spatial_squeeze=False)
        found.append(sorted({op.type for op in output.graph.get_operations()}))
    return found


@program
def slim_datasets(tf: Any) -> Any:
    from tensorflow.contrib.slim.python.slim.data import (
        dataset,
        dataset_data_provider,
        parallel_reader,
        prefetch_queue,
        tfexample_decoder,
    )

    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "some.tfrecord")
    with tf.python_io.TFRecordWriter(path) as writer:
        for i in range(6):
            feature = {
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[i])),
                "ids": tf.train.Feature(int64_list=tf.train.Int64List(value=list(range(i)))),
                "pixels": tf.train.Feature(float_list=tf.train.FloatList(value=_numbers(4) + i)),
                "ymin": tf.train.Feature(float_list=tf.train.FloatList(value=[0.1 * i])),
                "xmin": tf.train.Feature(float_list=tf.train.FloatList(value=[0.2])),
                "ymax": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5])),
                "xmax": tf.train.Feature(float_list=tf.train.FloatList(value=[0.6])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    keys = {
        "label": tf.FixedLenFeature([], tf.int64), "ids": tf.VarLenFeature(tf.int64),
        "pixels": tf.FixedLenFeature([4], tf.float32), **{key: tf.VarLenFeature(tf.float32) for key in
                                                          ("ymin", "xmin", "ymax", "xmax")},
    }  # fmt: skip
    items = {
        "label": tfexample_decoder.Tensor("label"), "ids": tfexample_decoder.Tensor("ids"),
        "sparse": tfexample_decoder.SparseTensor(indices_key="ids", values_key="ids", shape=[9]),
        "pixels": tfexample_decoder.Tensor("pixels", shape=[2, 2]), "box": tfexample_decoder.BoundingBox(),
        "twice": tfexample_decoder.ItemHandlerCallback(["label"], lambda tensors: tensors["label"] * 2),
    }  # fmt: skip
    decoder = tfexample_decoder.TFExampleDecoder(keys, items)
    data = tf.contrib.slim.dataset.Dataset([path], tf.TFRecordReader, decoder, 6, {"label": "a number"}, classes=9)
    provide = lambda: dataset_data_provider.DatasetDataProvider(data, shuffle=False, num_epochs=1)  # noqa: E731
    provider = provide()
    single = provider.get(["label", "ids", "pixels", "box", "twice"])
    facts = [sorted(provider.list_items()), provider.num_samples(), data.classes,
             dataset.Dataset is tf.contrib.slim.dataset.Dataset]  # fmt: skip
    _, record = parallel_reader.parallel_read([path], tf.TFRecordReader, num_epochs=1, num_readers=2, shuffle=False)
    queue = prefetch_queue.prefetch_queue([tf.train.batch([provide().get(["label"])[0]], 2)], capacity=4)
    later = queue.dequeue()
    with tf.Session() as session:
        session.run([tf.local_variables_initializer(), tf.global_variables_initializer()])
        with tf.contrib.slim.queues.QueueRunners(session):
            rows = [session.run([later, *single]) for _ in range(3)]
            return facts, rows, len(session.run(record))


@program
def slim_examples_in_images(tf: Any) -> Any:
    from tensorflow.contrib.slim.python.slim.data.tfexample_decoder import Image, LookupTensor, TFExampleDecoder

    pixels = (np.arange(48) * 5).astype(np.uint8).reshape(4, 4, 3)
    png = run(tf, tf.image.encode_png(pixels))
    feature = {
        "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[png])),
        "image/format": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"png"])),
        "word": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"b", b"x"])),
    }
    text = tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
    table = tf.contrib.lookup.index_table_from_tensor(tf.constant(["a", "b"]))
    decoder = TFExampleDecoder(
        {
            "word": tf.FixedLenFeature([2], tf.string),
            **{key: tf.FixedLenFeature((), tf.string) for key in ("image/encoded", "image/format")},
        },
        {"image": Image(shape=[4, 4, 3]), "word": LookupTensor("word", table)},
    )
    image, word = decoder.decode(tf.constant(text), ["image", "word"])
    with tf.Session() as session:
        session.run(tf.tables_initializer())
        found = session.run([image, word])
    return decoder.list_items(), image.shape.as_list(), found


@program
def names_of_regularization_losses(tf: Any) -> Any:
    slim = tf.contrib.slim
    x, small = tf.ones([1, 8, 8, 3]), slim.l2_regularizer(0.1)
    with tf.variable_scope("a"):
        for reuse in (None, True):
            slim.conv2d(x, 4, [3, 3], weights_regularizer=small, biases_regularizer=small, scope="c", reuse=reuse)
        slim.fully_connected(x, 4, weights_regularizer=small)
        slim.batch_norm(x, scale=True, param_regularizers={"beta": small})
        slim.separable_conv2d(x, 4, [3, 3], 1, weights_regularizer=small)
        slim.separable_conv2d(x, None, [3, 3], 1, weights_regularizer=small)
        slim.conv2d_transpose(x, 4, [3, 3], weights_regularizer=small)
        slim.model_variable("mv", [2], regularizer=small)
    with tf.variable_scope("r", regularizer=small):
        slim.conv2d(x, 4, [3, 3], scope="c")
        tf.layers.dense(x, 3)
        slim.bias_add(x)
    return [loss.name for loss in tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)]


@program
def computing_a_layer_again_for_its_gradient(tf: Any) -> Any:
    layers, calls = tf.contrib.layers, []

    @layers.recompute_grad
    def block(a: Any, b: Any, is_recomputing: bool = False) -> Any:
        calls.append(is_recomputing)
        hidden = layers.fully_connected(a, 3, scope="d")
        return hidden * b, tf.reduce_sum(hidden)

    ones = {"weights_initializer": tf.ones_initializer(), "activation_fn": tf.tanh}
    x, b = tf.constant([[0.1, 0.2], [0.3, -0.1]]), tf.constant(2.0)
    with tf.variable_scope("net", use_resource=True), tf.contrib.framework.arg_scope([layers.fully_connected], **ones):
        y = block(x * 1.0, b)
    found = [*y]
    found += tf.gradients(y, [x, b, *tf.trainable_variables()])
    products = [op.name for op in x.graph.get_operations() if op.type == "MatMul"]
    refused = [
        outcome(lambda: layers.recompute_grad(lambda a: a)(3.0)),
        outcome(lambda: layers.recompute_grad(lambda a: a * tf.get_variable("r", [2]))(tf.ones([2]))),
    ]
    return run(tf, found), [value.name for value in found], products, calls, refused


@program
def weights_in_collections_of_layers(tf: Any) -> Any:
    """What a layer adds to the collections of its variables: what a custom getter made of them, once."""
    layers = tf.contrib.layers

    def doubled(getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        return tf.identity(2.0 * getter(name, *args, **kwargs), name=name.split("/")[-1] + "_doubled")

    def cut(x: Any, **kwargs: Any) -> None:
        with tf.variable_scope("cut", partitioner=tf.fixed_size_partitioner(3)):
            layers.fully_connected(x, 3, **kwargs)

    def twice(x: Any, **kwargs: Any) -> None:
        for reuse in (None, True):
            layers.conv2d(x, 3, 3, scope="twice", reuse=reuse, **kwargs)

    x = tf.zeros([2, 8, 8, 3])
    weighted: Any = {
        "conv": lambda **kwargs: layers.conv2d(x, 3, 3, **kwargs), "cut": lambda **kwargs: cut(x, **kwargs),
        "dense": lambda **kwargs: layers.fully_connected(x, 3, **kwargs), "twice": lambda **kwargs: twice(x, **kwargs),
        "transposed": lambda **kwargs: layers.conv2d_transpose(x, 3, 3, **kwargs),
        "separable": lambda **kwargs: layers.separable_conv2d(x, 4, 3, 2, **kwargs),
        "depthwise": lambda **kwargs: layers.separable_conv2d(x, None, 3, 2, **kwargs),
        "layer norm": lambda **kwargs: layers.layer_norm(x, **kwargs),
    }  # fmt: skip
    normal: Any = {
        "4": lambda **kwargs: layers.batch_norm(x, scale=True, **kwargs),
        "2": lambda **kwargs: layers.batch_norm(x[0, 0], scale=True, **kwargs),
        "2 not fused": lambda **kwargs: layers.batch_norm(x[0, 0], scale=True, fused=False, **kwargs),
        "at once": lambda **kwargs: layers.batch_norm(x, updates_collections=None, **kwargs),
    }
    for name, layer in {**weighted, **normal}.items():
        layer(variables_collections=["all " + name])
    with tf.variable_scope("own", custom_getter=doubled):
        for name, layer in weighted.items():
            if name != "cut":
                layer(variables_collections={"weights": ["own " + name], "biases": ["own biases"]})
    named = tf.get_default_graph().get_all_collection_keys()
    kept = sorted(key for key in named if key.startswith(("all", "own")))
    return {key: [tensor.op.name for tensor in tf.get_collection(key)] for key in [*kept, "model_variables"]}


@program
def reversible_layers(tf: Any) -> Any:
    layers = tf.contrib.layers

    def f(x: Any) -> Any:
        return tf.layers.dense(x, 3, activation=tf.tanh, kernel_initializer=tf.constant_initializer(0.1))

    def g(x: Any, sides: Any = ()) -> Any:
        y = tf.layers.dense(x, 3, tf.sigmoid, use_bias=False, kernel_initializer=tf.constant_initializer(-0.2))
        return y * sides[0] if sides else y

    x = tf.constant([[1.0, 2.0, 3.0, -1.0, 0.5, 0.2], [0.3, 0.1, -0.2, 0.5, 0.6, 0.7]])
    x1, x2 = tf.split(x * 1.0, 2, 1)
    side = tf.constant([1.0, 2.0, 3.0])
    found, names = [], []
    y = layers.rev_block(x1, x2, f, g, num_layers=3)
    found += [*y, *tf.gradients([y[0] * 2, y[1]], [x, *tf.trainable_variables()])]
    with tf.variable_scope("a"):
        z = layers.rev_block(x1, x2, [f, f], [g, g], num_layers=2, g_side_input=[side])
        kept = layers.rev_block(x1, x2, f, g, is_training=False)
    found += [*z, *tf.gradients(z, [x, side]), *tf.gradients(z[1], tf.trainable_variables("a/revblock/"))]
    found += [*kept, *tf.gradients(kept, [x])]
    names = [value.name for value in (*y, *z, *kept)] + [v.name for v in tf.global_variables()]
    return run(tf, found), names


@program
def mean_places_of_features(tf: Any) -> Any:
    layers, random = tf.contrib.layers, np.random.RandomState(0)
    x = tf.constant(random.randn(2, 3, 4, 5).astype(np.float32))
    y, z = layers.spatial_softmax(x), layers.spatial_softmax(x, temperature=0.5, name="m")
    w = layers.spatial_softmax(tf.transpose(x, [0, 3, 1, 2]), 2.0, data_format="NCHW", trainable=False)
    fed = tf.placeholder_with_default(random.randn(1, 2, 2, 3).astype(np.float32), [None, None, None, 3])
    found = [y, z, w, layers.spatial_softmax(fed), *tf.gradients(y, [x, *tf.trainable_variables()[:1]])]
    wrong = outcome(lambda: layers.spatial_softmax(x, data_format="X"))
    names = [value.name for value in (*found[:4], *tf.global_variables()[:4], *tf.trainable_variables()[:3])]
    return run(tf, found), names, [str(value.shape) for value in found], wrong


@program
def strides_beside_gaps_and_windows(tf: Any) -> Any:
    layers, image, volume = tf.contrib.layers, tf.ones([1, 8, 8, 3]), tf.ones([1, 8, 8, 8, 1])
    refused = [
        outcome(lambda: str(layers.conv2d(image, 2, 3, stride=2, rate=2).shape)),
        outcome(lambda: str(layers.conv2d(image, 2, 3, stride=[1, 2], rate=[2, 1]).shape)),
        outcome(lambda: str(layers.conv2d(image, 2, 3, rate=2).shape)),
        outcome(lambda: str(tf.layers.conv2d(image, 2, 3, strides=2, dilation_rate=2).shape)),
        outcome(lambda: str(tf.layers.conv3d(volume, 2, 3, strides=2, dilation_rate=2).shape)),
    ]
    waves = tf.constant(np.cos(np.arange(96.0, dtype=np.float32)).reshape(1, 2, 4, 4, 3))
    pools = [layers.max_pool3d(waves, [1, 2, 2]), layers.avg_pool3d(waves, 1), layers.max_pool3d(waves, 2, 1)]
    return refused, run(tf, pools)
