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


def tables(tf: Any) -> Any:
    """A checkpoint of a module with tables of all kinds of keys and values, and of one of its tables."""
    lookup, dense = tf.contrib.lookup, tf.contrib.lookup.MutableDenseHashTable
    held = tf.Module()
    held.words = lookup.MutableHashTable(tf.string, tf.int64, -1)
    held.listed = [
        lookup.MutableHashTable(tf.int64, tf.float32, [0.0, 0.0], checkpoint=False),
        {"x": lookup.MutableHashTable(tf.int64, tf.string, "?")},
    ]
    held.dense = [
        dense(tf.int64, tf.int64, [0, 0], empty_key=0, deleted_key=-1, initial_num_buckets=8),
        dense(tf.int64, tf.float32, 0.0, empty_key=[0, 0], deleted_key=[-1, -1], initial_num_buckets=4),
        tf.lookup.experimental.DenseHashTable(
            tf.string, tf.float32, 0.0, empty_key="", deleted_key="d", initial_num_buckets=4
        ),
    ]
    held.fixed = lookup.HashTable(lookup.KeyValueTensorInitializer([1, 2], [3, 4], tf.int64, tf.int64), 0)
    held.buckets = lookup.index_table_from_file(__file__, num_oov_buckets=2)
    held.lines = lookup.HashTable(
        lookup.TextFileIdTableInitializer(__file__, key_column_index=-1, key_dtype=tf.int64), 0
    )
    return tf.train.Checkpoint(held=held, same=held.words)


def write_tables(tf: Any, prefix: Path) -> None:
    """Fills the tables and saves them, without a number."""
    checkpoint = tables(tf)
    held, dense = checkpoint.held, checkpoint.held.dense
    with tf.Session() as session:
        session.run(held.words.insert(["a", "bc"], [3, 4]))
        session.run(held.listed[0].insert([5, 6], [[1.0, 2.0], [3.0, 4.0]]))
        session.run(held.listed[1]["x"].insert([7], ["seven"]))
        session.run(dense[0].insert([15, 7, 16, 23, 24], [[i, i + 1] for i in range(5)]))
        session.run(dense[0].remove(tf.constant([23], tf.int64)))
        session.run(dense[1].insert([[1, 2], [3, 4], [5, 6], [7, 8]], [1.0, 2.0, 3.0, 4.0]))
        session.run(dense[2].insert(["a", "bc"], [1.0, 2.0]))
        checkpoint.write(str(prefix), session)


def read_tables(tf: Any, prefix: Path) -> dict[str, Any]:
    """Restores the tables, which have other entries, and tells what is in them."""
    checkpoint = tables(tf)
    held = checkpoint.held
    with tf.Session() as session:
        session.run([held.words.insert(["gone"], [3]), held.dense[0].insert([1], [[2, 3]])])
        checkpoint.restore(str(prefix)).initialize_or_restore(session)
        found = {"keys": tf.train.list_variables(str(prefix)), "fixed": int(session.run(held.fixed.size()))}
        for number, table in enumerate([held.words, held.listed[0], held.listed[1]["x"]]):
            keys, values = session.run(table.export())
            found[str(number)] = sorted(zip(keys.tolist(), values.tolist()))
        for number, table in enumerate(held.dense):
            found[f"dense {number}"] = [int(session.run(table.size())), session.run(table.export()[0]).tolist()]
        sought = tf.constant([15, 23, 24, 1], tf.int64)
        found["values"] = session.run(held.dense[0].lookup(sought)).tolist()
    return found


def exchange_tables(tf: Any, directory: str) -> dict[str, Any]:
    """One side's turn: writes ``directory``/theirs, and returns what it finds in ``directory``/ours."""
    with tf.Graph().as_default():
        write_tables(tf, Path(directory, "theirs"))
    with tf.Graph().as_default():
        return read_tables(tf, Path(directory, "ours"))


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
