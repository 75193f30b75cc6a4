"""Lookup tables in checkpoints of objects; what is expected is what TensorFlow 1.15.5 does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tests.oracle import Oracle, sent
from tests.train.checkpointing import checkpoint_exchange as exchange
from tfmini.train.checkpointing.module import Module
from tfmini.train.checkpointing.object_graph import object_graph_of
from tfmini.train.checkpointing.saver_builder import SaveableObject, SaveSpec

lookup = tf.contrib.lookup


class Holder(Module):
    def __init__(self) -> None:
        super().__init__()
        self._table = lookup.MutableHashTable(tf.int64, tf.float32, -1.0, name="words")
        self.v = tf.Variable(1.0, name="v")

    def fill(self, session: tf.Session) -> None:
        session.run([tf.global_variables_initializer(), self._table.insert([1, 2], [3.0, 4.0])])

    def insert(self, key: int) -> tf.Operation:
        return self._table.insert([key], [1.0])

    def size(self, session: tf.Session) -> int:
        return int(session.run(self._table.size()))


@pytest.mark.oracle
def test_tensorflow_reads_our_tables_and_we_read_its(oracle_1x: Oracle, tmp_path: Path) -> None:
    with tf.Graph().as_default():
        exchange.write_tables(tf, tmp_path / "ours")
    theirs = oracle_1x.call(exchange.exchange_tables, str(tmp_path))
    outlines = []
    for side in ("ours", "theirs"):
        with tf.Graph().as_default():
            assert sent(exchange.read_tables(tf, tmp_path / side)) == theirs
        outlines.append(exchange.outline(object_graph_of(tf.train.load_checkpoint(str(tmp_path / side)))))
    assert outlines[0] == outlines[1]
    assert theirs["0"] == [[b"a", 3], [b"bc", 4]]
    assert theirs["fixed"] == 0  # an object that the file has is not initialised


def test_tables_are_restored_also_if_they_are_made_later(tmp_path: Path) -> None:
    held = Holder()
    with tf.Session() as session:
        held.fill(session)
        path = tf.train.Checkpoint(held=held).save(str(tmp_path / "model"), session)
    parts = ["_table/.ATTRIBUTES/table-keys", "_table/.ATTRIBUTES/table-values", "v/.ATTRIBUTES/VARIABLE_VALUE"]
    assert [key for key, _ in tf.train.list_variables(path)][1:4] == [f"held/{part}" for part in parts]
    with tf.Graph().as_default(), tf.Session() as session:
        checkpoint: Any = tf.train.Checkpoint()
        status = checkpoint.restore(path).assert_existing_objects_matched()
        with pytest.raises(AssertionError, match=r"Unresolved object in checkpoint \(root\).held"):
            status.assert_consumed()
        checkpoint.held = held = Holder()
        status.assert_consumed().run_restore_ops(session)
        assert held.size(session) == 2
        checkpoint.more = lookup.MutableHashTable(tf.int64, tf.float32, -1.0)
        with pytest.raises(AssertionError, match="not bound to checkpointed values.*more"):
            status.assert_existing_objects_matched()


def test_a_variable_in_the_place_of_a_table_is_told(tmp_path: Path) -> None:
    table = lookup.MutableHashTable(tf.int64, tf.float32, -1.0)
    with tf.Session() as session:
        path = tf.train.Checkpoint(x=table).save(str(tmp_path / "model"), session)
    status = tf.train.Checkpoint(x=tf.Variable(1.0)).restore(path)
    with pytest.raises(AssertionError, match="x/.ATTRIBUTES/table: table"):
        status.expect_partial().assert_consumed()


def test_fixed_tables_are_initialised_if_the_file_does_not_have_them(tmp_path: Path) -> None:
    tables = [lookup.HashTable(lookup.KeyValueTensorInitializer(["a", "b"], [3, 4]), 0) for _ in range(3)]
    with tf.Session() as session:
        tf.train.Checkpoint(a=tables[0]).restore(None).initialize_or_restore(session)
        assert session.run(tables[0].size()) == 2
        path = tf.train.Checkpoint(a=tables[1]).save(str(tmp_path / "model"), session)
        tf.train.Checkpoint(a=tables[1], b=tables[2]).restore(path).initialize_or_restore(session)
        assert session.run([table.size() for table in tables[1:]]) == [0, 2]


def test_layers_do_not_save_their_tables(tmp_path: Path) -> None:
    layer: Any = tf.layers.Dense(1)
    layer.table = lookup.MutableHashTable(tf.int64, tf.float32, -1.0)
    with tf.Session() as session:
        path = tf.train.Checkpoint(layer=layer).write(str(tmp_path / "model"), session)
    assert [key for key, _ in tf.train.list_variables(path)] == ["_CHECKPOINTABLE_OBJECT_GRAPH"]


def test_savers_files_are_read_by_the_names_of_tables(tmp_path: Path) -> None:
    held = Holder()
    with tf.Session() as session:
        held.fill(session)
        path = tf.train.Saver().save(session, str(tmp_path / "model"))
        table = lookup.MutableHashTable(tf.int64, tf.float32, -1.0, name="other")
        tf.train.Saver([table]).save(session, str(tmp_path / "named"))
    assert [key for key, _ in tf.train.list_variables(str(tmp_path / "named"))] == ["other-keys", "other-values"]
    with tf.Graph().as_default(), tf.Session() as session:
        held = Holder()
        tf.train.Checkpoint(held=held).restore(path).assert_consumed().run_restore_ops(session)
        assert held.size(session) == 2


def test_tables_and_variables_of_several_tasks_are_saved(tmp_path: Path) -> None:
    with tf.LocalCluster(ps=2) as cluster, tf.Session(cluster.target) as session:
        held = []
        for task in range(2):
            with tf.device(f"/job:ps/task:{task}"):
                held.append(Holder())
        checkpoint = tf.train.Checkpoint(first=held[0], second=held[1])
        for each in held:
            each.fill(session)
        path = checkpoint.save(str(tmp_path / "model"), session)
        session.run(held[1].insert(9))
        checkpoint.restore(path).run_restore_ops(session)
        assert [each.size(session) for each in held] == [2, 2]


def test_objects_of_programs_make_their_saveables_themselves(tmp_path: Path) -> None:
    class Part(SaveableObject):
        def __init__(self, variable: Any, name: str) -> None:
            super().__init__(variable, [SaveSpec(variable.read_value(), "", name)], name)

        def restore(self, restored_tensors: Any, restored_shapes: Any) -> Any:
            return self.op.assign(restored_tensors[0])

    class Two(tf.contrib.checkpoint.Checkpointable):
        def __init__(self) -> None:
            self._hidden = [tf.Variable(1.0), tf.Variable(2.0)]

        def clear(self) -> list[Any]:
            return [v.assign(0.0) for v in self._hidden]

        def values(self, session: tf.Session) -> Any:
            return session.run(self._hidden)

        def _trackable_children(self) -> list[tuple[str, Any]]:
            return []

        def _gather_saveables_for_checkpoint(self) -> dict[str, Any]:
            return {"a.b": lambda name: Part(self._hidden[0], name), "c": lambda name: Part(self._hidden[1], name)}

    two = Two()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        checkpoint = tf.train.Checkpoint(two=two)
        path = checkpoint.write(str(tmp_path / "model"), session)
        session.run(two.clear())
        checkpoint.restore(path).run_restore_ops(session)
        assert two.values(session) == [1.0, 2.0]
    assert "two/.ATTRIBUTES/a..b" in dict(tf.train.list_variables(path))
