"""A model of ``tf.keras`` as the objects of a SavedModel, written and read with the namespace ``tf`` of either side."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def write(tf: Any, directory: Path) -> list[int]:
    """Trains a model, saves it and trains on; returns how many updates and losses it has, before and after."""
    layers = tf.keras.layers
    with tf.Session() as session:
        inputs = tf.keras.Input((3,), name="given")
        x = layers.Dense(2, kernel_regularizer="l2", kernel_initializer="ones", name="dense")(inputs)
        x = layers.Dropout(0.5, name="dropout")(layers.BatchNormalization(name="norm")(x))
        model = tf.keras.Model(inputs, x)
        model.compile("sgd", "mse")
        session.run(tf.global_variables_initializer())
        ones, zeros = [[[1.0] * size] * 4 for size in (3, 2)]
        data = [session.run(tf.constant(ones)), session.run(tf.constant(zeros)) * 0.0]
        model.train_on_batch(*data)
        counts = [len(model.updates), len(model.losses)]
        model.save(str(directory), save_format="tf")
        counts += [len(model.updates), len(model.losses)]
        model.train_on_batch(*data)
        tf.saved_model.save(model, str(directory) + " trained on")
    return counts


def read(tf: Any, directory: Path) -> dict[str, Any]:
    """What the loaded object has and computes."""
    found: dict[str, Any] = {}
    with tf.Session() as session:
        model = tf.saved_model.load_v2(str(directory))
        session.run([[v.initializer for v in model.variables]])
        x = tf.constant([[1.0, 2.0, 3.0]])
        found["variables"] = [v.op.name for v in model.variables]
        found["trainable"] = [v.op.name for v in model.trainable_variables]
        results = [model(x), model(x, training=False), model.signatures["serving_default"](given=x)]
        found["results"] = session.run(results)
        found["losses"] = session.run([loss() for loss in model.regularization_losses])
        session.run(model(x, training=True))  # dropped by chance
        found["values"] = session.run([*model.variables])
    return found


def exchange(tf: Any, directory: str) -> list[Any]:
    """One side's turn: writes ``directory``/theirs, and returns what it finds there and in ``directory``/ours."""
    folder, found = Path(directory), []
    with tf.Graph().as_default():
        write(tf, folder / "theirs")
    for name in ("ours", "ours trained on", "theirs"):
        with tf.Graph().as_default():
            found.append(read(tf, folder / name))
    return found
