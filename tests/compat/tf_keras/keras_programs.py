"""Small programs on ``tf.keras``, which run on tfmini and on TensorFlow 1.15.

What they return there is in ``answers.json``; this module writes it, in an environment with TensorFlow 1.15 (and
Python 3.7, so its syntax is old): ``cd tests/compat/tf_keras && python keras_programs.py tensorflow > answers.json``.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import json
import os
import re
import sys
import tempfile

import numpy as np

numbers = np.random.RandomState
IMAGES, LABELS = numbers(0).rand(16, 8, 8, 3).astype("f"), numbers(1).randint(0, 4, 16)
SEQUENCES = numbers(2).randint(0, 10, (16, 6))
ONES, COUNT = np.ones((8, 3), "f"), np.arange(8.0)


def set_weights(model):
    """Gives a model weights that are the same everywhere."""
    shapes = [weight.shape.as_list() for weight in model.weights]
    model.set_weights([numbers(i).uniform(0.05, 0.3, shape) for i, shape in enumerate(shapes)])
    return model


def history(found):
    return {key: [float(value) for value in values] for key, values in found.history.items()}


def regression(tf, optimizer, layers=None, **options):
    keras = tf.keras
    model = set_weights(keras.Sequential(layers or [keras.layers.Dense(1, input_shape=(3,))]))
    model.compile(optimizer, "mse", **options)
    return model


def optimizers(tf):
    made = tf.keras.optimizers
    schedules = made.schedules
    ways = {
        "sgd": lambda: made.SGD(0.1, momentum=0.9, nesterov=True),
        "adam": lambda: made.Adam(0.01),
        "amsgrad": lambda: made.Adam(lr=0.01, amsgrad=True),
        "rmsprop": lambda: made.RMSprop(0.01),
        "adagrad": lambda: made.Adagrad(0.1),
        "adagrad as it is": lambda: made.Adagrad(),
        "adadelta as it is": lambda: made.Adadelta(),
        "adamax": lambda: made.Adamax(0.01),
        "nadam": lambda: made.Nadam(0.01),
        "clipnorm": lambda: made.SGD(0.1, clipnorm=0.05),
        "clipvalue": lambda: made.SGD(0.1, clipvalue=0.1),
        "decay": lambda: made.SGD(0.05, decay=0.5),
        "exponential": lambda: made.SGD(schedules.ExponentialDecay(0.05, 1, 0.5)),
        "piecewise": lambda: made.SGD(schedules.PiecewiseConstantDecay([1, 2], [0.05, 0.02, 0.01])),
        "polynomial": lambda: made.SGD(learning_rate=schedules.PolynomialDecay(0.05, 3, 0.01, power=2.0)),
        "inverse": lambda: made.SGD(schedules.InverseTimeDecay(0.05, 1, 0.5)),
        "of tf.train": lambda: tf.train.AdamOptimizer(0.01),
    }
    found = {}
    for name, make in ways.items():
        tf.keras.backend.clear_session()
        dense = tf.keras.layers.Dense
        model = regression(tf, make(), [dense(4, activation="relu", input_shape=(3,)), dense(1)])
        found[name] = [float(model.train_on_batch(ONES, COUNT)) for _ in range(4)]
    return found


def convolutions(tf):
    layers = tf.keras.layers
    inputs = layers.Input((8, 8, 3))
    x = layers.Conv2D(4, 3, padding="same")(inputs)
    x = layers.MaxPooling2D()(layers.ReLU()(layers.BatchNormalization()(x)))
    model = set_weights(tf.keras.Model(inputs, layers.Dense(4)(layers.Flatten()(x))))
    crossentropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    metric = tf.keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="entropy")
    model.compile(tf.keras.optimizers.SGD(0.01, momentum=0.9), crossentropy, metrics=["accuracy", metric])
    found = model.fit(IMAGES, LABELS, 8, epochs=2, shuffle=False, verbose=0, validation_split=0.25)
    names = [layer.name for layer in model.layers]
    return history(found), names, model.evaluate(IMAGES, LABELS, verbose=0), model.predict(IMAGES[:1])


def recurrent(tf):
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Embedding(10, 5, mask_zero=True, input_length=6),
            layers.LSTM(4, return_sequences=True),
            layers.Bidirectional(layers.GRU(3)),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    set_weights(model).compile("adam", "binary_crossentropy", metrics=["acc"])
    found = model.fit(SEQUENCES, LABELS % 2, 8, epochs=2, shuffle=False, verbose=0)
    return history(found), [weight.name for weight in model.weights], model.predict(SEQUENCES[:2])


def several_outputs(tf):
    layers = tf.keras.layers
    a, b = layers.Input((3,), name="a"), layers.Input((2,), name="b")
    both = layers.Concatenate()([a, b])
    outputs = [
        layers.Dense(1, name="number")(both),
        layers.Dense(2, activation="softmax", name="kind")(layers.Lambda(lambda t: t * 2)(both)),
    ]
    model = set_weights(tf.keras.Model([a, b], outputs))
    losses, metrics = {"number": "mse", "kind": "categorical_crossentropy"}, {"number": "mae", "kind": "accuracy"}
    model.compile("rmsprop", losses, metrics, {"number": 0.3, "kind": 1.0})
    targets = {"number": COUNT, "kind": np.eye(2)[LABELS[:8] % 2]}
    found = model.fit({"a": ONES, "b": ONES[:, :2]}, targets, epochs=2, shuffle=False, verbose=0)
    return history(found), model.metrics_names


def penalties(tf):
    keras = tf.keras
    first = keras.layers.Dense(
        2, input_shape=(3,), kernel_regularizer=keras.regularizers.l2(0.1), activity_regularizer="l1",
        kernel_constraint=keras.constraints.MaxNorm(0.5),
    )  # fmt: skip
    model = regression(tf, "sgd", [first, keras.layers.Dense(1)])
    return [float(model.train_on_batch(ONES, COUNT)) for _ in range(3)], len(model.losses)


def custom_layer(tf):
    class Affine(tf.keras.layers.Layer):
        def __init__(self, units, **options):
            super().__init__(**options)
            self.units = units

        def build(self, input_shape):
            self.kernel = self.add_weight("kernel", shape=[input_shape[-1].value, self.units], initializer="ones")
            self.bias = self.add_weight(name="bias", shape=(self.units,), initializer="zeros", trainable=False)
            super().build(input_shape)

        def call(self, inputs):
            return tf.matmul(inputs, self.kernel) + self.bias

    inputs = tf.keras.layers.Input((3,))
    model = set_weights(tf.keras.Model(inputs, tf.keras.layers.Dense(1)(Affine(4)(inputs))))
    model.compile("sgd", "mse")
    names = [[v.name for v in vs] for vs in (model.weights, model.trainable_variables, tf.trainable_variables())]
    return float(model.train_on_batch(ONES, COUNT)), names, model.count_params()


def subclassed_model(tf):
    class Two(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.first = tf.keras.layers.Dense(4, activation="relu")
            self.drop = tf.keras.layers.Dropout(0.5)
            self.last = tf.keras.layers.Dense(1)

        def call(self, inputs, training=None):
            return self.last(self.drop(self.first(inputs), training=training))

    model = Two()
    model.compile(tf.train.GradientDescentOptimizer(0.01), "mse")
    model.fit(ONES, COUNT, epochs=1, verbose=0)
    set_weights(model)
    return [w.name for w in model.weights], model.predict(ONES)[0], float(model.evaluate(ONES, COUNT, verbose=0))


def phases(tf):
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Dropout(0.999, input_shape=(100,)), layers.BatchNormalization()])
    x = tf.ones([4, 100])
    trained, tested, unsaid = model(x, training=True), model(x, training=False), model(x)
    session = tf.keras.backend.get_session()
    found = session.run([trained, tested, unsaid])
    fed = session.run(unsaid, {tf.keras.backend.learning_phase(): 1})
    return [bool((value > 0.5).all()) for value in (*found, fed)]


def callbacks(tf):
    made, folder, epochs = tf.keras.callbacks, tempfile.mkdtemp(), []
    model = regression(tf, tf.keras.optimizers.SGD(0.1))
    found = model.fit(
        ONES, COUNT, 4, epochs=6, shuffle=False, verbose=0, validation_data=(ONES, COUNT),
        callbacks=[
            made.EarlyStopping(monitor="val_loss", patience=1),
            made.ReduceLROnPlateau(monitor="loss", patience=0, factor=0.5),
            made.ModelCheckpoint(os.path.join(folder, "m.{epoch:02d}.h5"), save_best_only=True),
            made.LambdaCallback(on_epoch_end=lambda epoch, logs: epochs.append(epoch)),
            made.CSVLogger(os.path.join(folder, "log.csv")),
            made.TensorBoard(os.path.join(folder, "events")),
        ],
    )  # fmt: skip
    return history(found), epochs, sorted(os.listdir(folder))


def schedules_of_epochs(tf):
    model = regression(tf, "sgd")
    rates = tf.keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1))
    found = model.fit(ONES, COUNT, epochs=3, shuffle=False, verbose=0, callbacks=[rates])
    return history(found)


def generators(tf):
    def batches():
        while True:
            yield ONES[:4], COUNT[:4]

    model = regression(tf, "sgd")
    found = model.fit_generator(batches(), steps_per_epoch=3, epochs=2, verbose=0)
    return history(found), float(model.evaluate_generator(batches(), 2)), model.predict_generator(batches(), 2).shape


def data_sets(tf):
    data = tf.data.Dataset.from_tensor_slices((numbers(3).rand(8, 3).astype("f"), COUNT.astype("f"))).batch(5)
    model = regression(tf, "sgd", metrics=["mae"])
    found = model.fit(data.repeat(), epochs=2, steps_per_epoch=2, verbose=0)
    return history(found), model.evaluate(data, steps=2, verbose=0), model.predict(data, steps=2)


def hdf5(tf):
    folder = tempfile.mkdtemp()
    dense = tf.keras.layers.Dense
    layers = [dense(3, activation="relu", input_shape=(3,)), dense(1)]
    model = regression(tf, "adam", layers, metrics=["mae"])
    model.fit(ONES, COUNT, verbose=0)
    before = model.predict(ONES[:1])
    model.save(os.path.join(folder, "a.h5"))
    after = [float(value) for value in model.train_on_batch(ONES, COUNT)]
    tf.keras.backend.clear_session()
    loaded = tf.keras.models.load_model(os.path.join(folder, "a.h5"))
    loaded_before = loaded.predict(ONES[:1])
    loaded_after = [float(value) for value in loaded.train_on_batch(ONES, COUNT)]
    loaded.save_weights(os.path.join(folder, "w.h5"))
    loaded.load_weights(os.path.join(folder, "w.h5"))
    clone = tf.keras.models.model_from_json(loaded.to_json())
    return before, loaded_before, after, loaded_after, clone.count_params()


def checkpoints_of_weights(tf):
    layers, path = tf.keras.layers, os.path.join(tempfile.mkdtemp(), "weights")
    make = lambda: tf.keras.Sequential([layers.Embedding(5, 3, input_length=2), layers.LSTM(2), layers.Dense(1)])  # noqa: E731
    model = set_weights(make())
    model.save_weights(path)
    before = model.predict(np.array([[1, 2]]))
    tf.keras.backend.clear_session()
    again = make()
    again.load_weights(path)
    return before, again.predict(np.array([[1, 2]])), sorted(name for name, _ in tf.train.list_variables(path))


def saved_models(tf):
    path = os.path.join(tempfile.mkdtemp(), "model")
    dense = tf.keras.layers.Dense
    model = regression(tf, "adam", [dense(3, input_shape=(3,), activation="relu"), dense(1)])
    before = model.predict(ONES[:1])
    tf.keras.experimental.export_saved_model(model, path)
    tf.keras.backend.clear_session()
    return before, tf.keras.experimental.load_from_saved_model(path).predict(ONES[:1])


def layers_on_tensors(tf):
    dense = tf.keras.layers.Dense
    x, y = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.float32, [None, 1])
    hidden = dense(4, activation="relu", kernel_initializer=tf.ones_initializer())(x)
    loss = tf.reduce_mean(tf.keras.losses.mean_squared_error(y, dense(1, kernel_initializer="ones")(hidden)))
    train = tf.train.AdamOptimizer(0.1).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        steps = [session.run([loss, train], {x: ONES, y: ONES[:, :1]})[0] for _ in range(3)]
    return [float(step) for step in steps], [v.name for v in tf.trainable_variables()]


def added_layers(tf):
    layers = tf.keras.layers
    normalized = set_weights(tf.keras.Sequential([layers.LayerNormalization(input_shape=(3,)), layers.Dense(1)]))
    query, value = layers.Input((2, 3)), layers.Input((4, 3))
    attentions = [layers.Attention()([query, value]), layers.AdditiveAttention(use_scale=False)([query, value])]
    model = tf.keras.Model([query, value], attentions)
    inputs = [np.arange(6.0).reshape(1, 2, 3) / 6, np.arange(12.0).reshape(1, 4, 3) / 12]
    return [w.name for w in normalized.weights], normalized.predict(np.array([[1, 2, 4.0]])), model.predict(inputs)


def estimators(tf):
    layers, folder = tf.keras.layers, tempfile.mkdtemp()
    x, y = tf.keras.Input((3,), name="x"), numbers(4).rand(8, 3).astype("f")
    hidden = layers.BatchNormalization()(layers.Dense(4, activation="relu")(x))
    model = set_weights(tf.keras.Model(x, layers.Dense(1)(hidden)))
    # TensorFlow's Estimator begins with other moving averages than the model's: it takes what is trained alone.
    model.layers[2].set_weights([np.ones(4), np.zeros(4), np.zeros(4), np.ones(4)])
    model.compile(tf.keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    made = tf.keras.estimator.model_to_estimator(model, model_dir=folder)

    def batches():
        return tf.data.Dataset.from_tensor_slices(({"x": y}, COUNT[:, np.newaxis].astype("f"))).repeat(3).batch(8)

    made.train(batches)
    found = made.evaluate(batches)
    predictions = [list(p.values())[0] for p in made.predict(batches)]
    return {key: float(value) for key, value in found.items()}, predictions[:2], made.latest_checkpoint()[-2:]


def orders_of_examples(tf):
    dense, found = tf.keras.layers.Dense, []
    x, y = numbers(4).normal(size=(11, 3)), numbers(5).normal(size=(11, 2))
    for more in ({}, {"validation_split": 0.4}, {"validation_data": (x[:7], y[:7], COUNT[:7])}, {"shuffle": "batch"}):
        np.random.seed(3)
        model = regression(tf, "sgd", [dense(2, input_shape=(3,))], metrics=["mae"])
        found.append(history(model.fit(x, y, 4, epochs=3, verbose=0, **more)))
    return found


def early_ends(tf):
    class End(tf.keras.callbacks.Callback):
        def on_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == self.at

    found = []
    for at in (0, 1):  # before the last batch and with it: without a validation
        end = End()
        end.at = at
        model = regression(tf, "sgd")
        data = {"validation_data": (ONES, COUNT), "callbacks": [end]}
        found.append(sorted(history(model.fit(ONES, COUNT, 4, epochs=3, verbose=0, **data))))
    return found


def accuracies_of_any_numbers(tf):
    binary = tf.keras.losses.BinaryCrossentropy(from_logits=True)
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,), kernel_initializer="ones")])
    model.compile("sgd", binary, ["accuracy", tf.keras.metrics.BinaryAccuracy(threshold=0.0)])
    return model.evaluate(IMAGES[:8, 0, 0] * 6 - 3, COUNT > 3, verbose=0)


def optimizers_of_the_private_path(tf):
    private = importlib.import_module(f"{tf.__name__}.python.keras.optimizers")
    found = {}
    for name in ("SGD", "RMSprop", "Adagrad", "Adadelta", "Adam", "Adamax", "Nadam"):
        tf.keras.backend.clear_session()
        model = regression(tf, getattr(private, name)())
        losses = [float(model.train_on_batch(ONES, COUNT)) for _ in range(3)]
        found[name] = losses, sorted(model.optimizer.get_config())
    return found, private.SGD(0.1, 0.9, 0.25).get_config()["decay"]


def weights_of_a_seed(tf):
    layers, found = tf.keras.layers, []
    stacks = [
        [
            layers.Conv2D(2, 3, kernel_regularizer="l2", input_shape=(8, 8, 3)), layers.BatchNormalization(),
            layers.Flatten(), layers.Dense(3), layers.BatchNormalization(), layers.Dropout(0.5), layers.Dense(2),
        ],
        [layers.Embedding(10, 3, input_length=6), layers.LSTM(3, dropout=0.4), layers.Dense(2)],
        [
            layers.Masking(input_shape=(6, 3)), layers.GRU(3, return_sequences=True), layers.SimpleRNN(3),
            layers.Dense(2),
        ],
        [
            layers.Conv1D(2, 2, dilation_rate=2, input_shape=(6, 3)), layers.Dense(3), layers.SpatialDropout1D(0.5),
            layers.LSTM(2),
        ],
    ]  # fmt: skip
    for stack in stacks:
        tf.keras.backend.clear_session()
        tf.set_random_seed(5)
        found.append(
            tf.keras.Sequential([type(layer).from_config(layer.get_config()) for layer in stack]).get_weights()
        )
    return found


def states_of_stacked_cells(tf):
    layers, inputs = tf.keras.layers, tf.keras.Input((6, 3))
    outputs = layers.RNN([layers.GRUCell(2), layers.LSTMCell(3)], return_state=True)(inputs)
    return set_weights(tf.keras.Model(inputs, outputs)).predict(IMAGES[:2, :6, 0]), layers.LSTM(2).get_config()[
        "implementation"
    ]


def printed_lines(tf):
    """What training, evaluation and prediction print, without times and states on the way."""
    model = regression(tf, "sgd", metrics=["mae"])

    def lines(run):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            run()
        ends = [part.replace("\b", "") for part in out.getvalue().split("\r") if "ETA" not in part]
        return re.sub(r"\d+[mu]?s( \d+[mu]?s(?=/))?", "T", "".join(ends))

    arrays = {"x": ONES, "y": COUNT, "batch_size": 4}
    data = tf.data.Dataset.from_tensor_slices((ONES, COUNT[:, None].astype("f"))).batch(4).repeat()
    batches = (batch for batch in itertools.repeat((ONES[:4], COUNT[:4])))
    return [
        lines(run)
        for run in (
            lambda: model.fit(shuffle=False, **arrays),
            lambda: model.fit(epochs=2, shuffle=False, validation_split=0.5, **arrays),
            lambda: model.fit(epochs=2, shuffle=False, validation_split=0.5, verbose=2, **arrays),
            lambda: model.fit(shuffle=False, verbose=2, **arrays),
            lambda: (model.evaluate(verbose=1, **arrays), model.evaluate(verbose=2, **arrays)),
            lambda: (model.predict(ONES, 4, 1), model.predict(ONES, 4, 2)),
            lambda: model.fit(data, steps_per_epoch=2, epochs=2, validation_data=data, validation_steps=1, verbose=2),
            lambda: (model.evaluate(data, steps=2, verbose=1), model.predict(data, steps=2, verbose=1)),
            lambda: model.fit_generator(batches, 2, 2),
            lambda: model.evaluate_generator(batches, 2, verbose=1),
        )
    ]


def dtypes_of_layers(tf):
    """The dtypes of layers and outputs with the default of TensorFlow 2, the inputs' without it."""
    keras, private = tf.keras, importlib.import_module(f"{tf.__name__}.python.keras.engine.base_layer_utils")
    wide = tf.constant([[1.0, 2.0]], tf.float64)
    model = keras.Sequential([keras.layers.Dense(1)])
    private.enable_v2_dtype_behavior()
    try:
        made = [keras.layers.Dense(1), keras.layers.Dense(1, dtype="float64"), keras.layers.Lambda(tf.identity)]
        made += [keras.layers.ReLU(autocast=False), keras.Sequential([keras.layers.ReLU()])]
        found = [(layer(wide).dtype.name, layer.dtype) for layer in made]
    finally:
        private.disable_v2_dtype_behavior()
    return found, model(wide).dtype.name, keras.layers.Dense(1).dtype


def checkpoints_of_objects(tf):
    """The keys of a model, its optimizer and a metric in a checkpoint, and whether they come back."""
    keras = tf.keras

    class Scale(keras.layers.Layer):
        def build(self, _):
            self.w = self.add_weight("scale", (), initializer="ones")
            self._hidden = keras.layers.Dense(2)

        def call(self, x):
            return self._hidden(x) * self.w

    class Parts(keras.Model):
        def __init__(self):
            super().__init__()
            self.blocks = [keras.layers.Dense(2), Scale()]
            self._named = {"a": keras.Sequential([keras.layers.Dense(1)])}
            self.own = tf.Variable(1.0, use_resource=True)

        def call(self, x):
            for block in self.blocks:
                x = block(x)
            return self._named["a"](x) * self.own

    model, inputs, metric = Parts(), keras.Input((3,)), keras.metrics.Mean()
    model.compile(keras.optimizers.Adam(0.1), "mse")
    model.train_on_batch(ONES, COUNT[:, None])
    graph = keras.Model(inputs, keras.layers.ReLU()(keras.layers.Dense(1)(keras.layers.Dropout(0.5)(inputs))))
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer, metric=metric, graph=graph)
    before = model.get_weights()
    with tempfile.TemporaryDirectory() as folder, keras.backend.get_session().as_default() as session:
        session.run([variable.initializer for variable in metric.variables])
        path = checkpoint.save(os.path.join(folder, "c"))
        model.save_weights(os.path.join(folder, "weights"))
        model.set_weights([0 * weight for weight in before])
        checkpoint.restore(path).assert_consumed().run_restore_ops()
        same = all(np.array_equal(one, other) for one, other in zip(before, model.get_weights()))
        files = [path, os.path.join(folder, "weights")]
        return [[name for name, _ in tf.train.list_variables(file)] for file in files], same


PROGRAMS = (
    printed_lines, checkpoints_of_objects, dtypes_of_layers, weights_of_a_seed, states_of_stacked_cells,
    orders_of_examples, early_ends, accuracies_of_any_numbers, optimizers_of_the_private_path,
    optimizers, convolutions, recurrent, several_outputs, penalties, custom_layer, subclassed_model, phases, callbacks,
    schedules_of_epochs, generators, data_sets, hdf5, checkpoints_of_weights, saved_models, layers_on_tensors,
    added_layers, estimators,
)  # fmt: skip


def answer(tf, program):
    """What a program returns, as JSON can say it."""
    tf.keras.backend.clear_session()
    return json.loads(json.dumps(program(tf), default=lambda value: np.asarray(value).tolist()))


if __name__ == "__main__":
    namespace = importlib.import_module(sys.argv[1])
    print(json.dumps({program.__name__: answer(namespace, program) for program in PROGRAMS}, indent=1))
