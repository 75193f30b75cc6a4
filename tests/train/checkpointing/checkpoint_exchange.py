"""Object-based checkpoints of one model, written and read with the namespace ``tf`` of either side."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def build(tf: Any) -> tuple[Any, Any]:
    """A checkpoint of a model, its optimizer and nested objects; and the op that trains."""
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", initializer=[[1.0, 2.0], [3.0, 4.0]], use_resource=True)
    b = tf.get_variable("b", initializer=[0.5, 0.25], use_resource=True)
    optimizer = tf.train.AdamOptimizer(0.1)
    loss = tf.reduce_sum(tf.square(w)) + tf.reduce_sum(b * b)
    train = optimizer.minimize(loss, global_step=step, var_list=[w, b])
    checkpoint = tf.train.Checkpoint(optimizer=optimizer, step=step)
    checkpoint.model = tf.train.Checkpoint(w=w)
    words = tf.Variable([b"a", b"bc"], name="words", trainable=False, use_resource=True)
    checkpoint.model.rest = [b, {"deep.one/x": words}]
    return checkpoint, train


def write(tf: Any, directory: Path) -> None:
    """Trains three steps and saves twice."""
    checkpoint, train = build(tf)
    manager = tf.train.CheckpointManager(checkpoint, str(directory), max_to_keep=1)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(3):
            session.run(train)
        manager.save()
        manager.save()


def read(tf: Any, directory: Path) -> dict[str, Any]:
    """Restores, trains another step, and tells."""
    checkpoint, train = build(tf)
    path = tf.train.latest_checkpoint(str(directory))
    with tf.Session() as session:
        checkpoint.restore(path).assert_consumed().initialize_or_restore(session)
        words = session.run(checkpoint.model.rest[1]["deep.one/x"]).tolist()
        session.run(train)
        values = session.run([checkpoint.model.w, checkpoint.model.rest[0], checkpoint.step, checkpoint.save_counter])
    return {
        "names": [Path(path).name, tf.train.list_variables(path), [word.decode() for word in words]],
        "values": {str(i): value.tolist() for i, value in enumerate(values)},
    }


def outline(message: Any) -> list[Any]:
    """Of each object in a TrackableObjectGraph message: its attributes, and the names of children and slots."""
    found = []
    for node in message.nodes:
        attributes = [(a.name, a.full_name, a.checkpoint_key) for a in node.attributes]
        children = sorted(child.local_name for child in node.children)
        found.append((attributes, children, sorted(slot.slot_name for slot in node.slot_variables)))
    return sorted(found)


def write_and_read(tf: Any, directory: str) -> dict[str, Any]:
    """One side's turn: writes ``directory``/theirs, and returns what it finds in ``directory``/ours."""
    with tf.Graph().as_default():
        write(tf, Path(directory, "theirs"))
    with tf.Graph().as_default():
        return read(tf, Path(directory, "ours"))
