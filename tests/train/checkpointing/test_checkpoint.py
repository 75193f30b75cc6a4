"""`tf.train.Checkpoint` and `CheckpointManager`: what is saved, what is found again, and what is kept."""

from __future__ import annotations

import os
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.oracle import Oracle, sent
from tests.train.checkpointing import checkpoint_exchange as exchange
from tfmini.testing import ProcessCluster
from tfmini.train.checkpointing import checkpoint as checkpoint_manager
from tfmini.train.checkpointing.object_graph import object_graph_of

# ---- the other side -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exchanged(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The directory with ``ours`` and ``theirs``, and what TensorFlow found in ours."""
    directory = tmp_path_factory.mktemp("objects")
    with tf.Graph().as_default():
        exchange.write(tf, directory / "ours")
    return directory, oracle.call(exchange.write_and_read, str(directory))


@pytest.mark.oracle
def test_tensorflow_reads_ours_and_we_read_its(exchanged: Any) -> None:
    directory, theirs = exchanged
    for side in ("theirs", "ours"):
        with tf.Graph().as_default():
            ours = sent(exchange.read(tf, directory / side))
        assert ours["names"] == theirs["names"]
        for key, value in theirs["values"].items():
            np.testing.assert_allclose(ours["values"][key], value, rtol=1e-5)


@pytest.mark.oracle
def test_the_object_graph_is_tensorflows(exchanged: Any) -> None:
    directory, _ = exchanged
    graphs = []
    for side in ("ours", "theirs"):
        reader = tf.train.load_checkpoint(str(directory / side))
        graphs.append(exchange.outline(object_graph_of(reader)))
    assert graphs[0] == graphs[1]


# ---- saving and restoring -------------------------------------------------------------------


def trained() -> tuple[Any, Any, Any]:
    """A checkpoint of a model and its optimizer, with the op that trains it."""
    w = tf.get_variable("w", initializer=[[1.0, 2.0]])
    optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
    train = optimizer.minimize(tf.reduce_sum(tf.square(w)))
    return tf.train.Checkpoint(w=w, optimizer=optimizer), train, optimizer.get_slot(w, "momentum")


def test_a_restored_model_continues_training(tmp_path: Path) -> None:
    checkpoint, train, slot = trained()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        path = checkpoint.save(tmp_path / "deeper" / "model", session)
        expected = session.run([train, checkpoint.w, slot])[1:]
        assert path == str(tmp_path / "deeper" / "model-1")
    assert tf.train.latest_checkpoint(str(tmp_path / "deeper")) == path
    with tf.Graph().as_default(), tf.Session() as session:
        again, train, slot = trained()
        again.restore(path).assert_consumed().run_restore_ops(session)
        np.testing.assert_array_equal(session.run([train, again.w, slot])[1:][0], expected[0])
        assert session.run(again.save_counter) == 1
        assert again.save(tmp_path / "deeper" / "model", session).endswith("-2")


def test_names_of_variables_do_not_matter(tmp_path: Path) -> None:
    one = tf.train.Checkpoint(value=tf.Variable(3.0, name="one"))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        path = one.write(tmp_path / "plain", session)
        other = tf.train.Checkpoint(value=tf.Variable(0.0, name="other"))
        other.restore(path).assert_nontrivial_match().initialize_or_restore(session)
        assert session.run([other.value, other.save_counter]) == [3.0, 0]
    assert not (tmp_path / "checkpoint").exists()


def test_objects_that_are_made_later_are_found(tmp_path: Path) -> None:
    with tf.Session() as session:
        full = tf.train.Checkpoint(a=tf.Variable(1.0), b=tf.Variable(2.0))
        session.run(tf.global_variables_initializer())
        path = full.save(tmp_path / "model", session)
    with tf.Graph().as_default(), tf.Session() as session:
        part = tf.train.Checkpoint(a=tf.Variable(0.0))
        status = part.restore(path).assert_existing_objects_matched()
        with pytest.raises(AssertionError, match=r"Unresolved object in checkpoint \(root\).b"):
            status.assert_consumed()
        part.b = tf.Variable(0.0)
        status.assert_consumed().initialize_or_restore(session)
        assert session.run([part.a, part.b]) == [1.0, 2.0]
        part.c = tf.Variable(5.0)
        with pytest.raises(AssertionError, match="not bound to checkpointed values.*'c'"):
            status.assert_existing_objects_matched()
        status.initialize_or_restore(session)
        assert session.run([part.a, part.c]) == [1.0, 5.0]


def test_a_checkpoint_without_common_objects_is_refused(tmp_path: Path) -> None:
    with tf.Session() as session:
        one = tf.train.Checkpoint(a=tf.Variable(1.0))
        session.run(tf.global_variables_initializer())
        path = one.write(tmp_path / "model", session)
        status = tf.train.Checkpoint(b=tf.Variable(1.0)).restore(path)
        with pytest.raises(AssertionError, match="Nothing except the root object matched"):
            status.assert_nontrivial_match()
        with pytest.raises(tf.errors.NotFoundError):
            one.restore(str(tmp_path / "nothing"))


def test_without_a_checkpoint_variables_are_initialised(tmp_path: Path) -> None:
    one = tf.train.Checkpoint(a=tf.Variable(4.0))
    status = one.restore(tf.train.latest_checkpoint(str(tmp_path)))
    with pytest.raises(AssertionError, match="No checkpoint specified"):
        status.assert_consumed()
    with pytest.raises(AssertionError, match="no restore ops are available"):
        status.run_restore_ops()
    with pytest.raises(ValueError, match="needs a session"):
        status.initialize_or_restore()
    with tf.Session() as session:
        status.initialize_or_restore(session)
        assert session.run([one.a, one.save_counter]) == [4.0, 0]


def test_values_that_are_no_trackable_objects_are_refused() -> None:
    with pytest.raises(ValueError, match="was expecting a trackable object.*got 3"):
        tf.train.Checkpoint(a=3)


def test_layers_and_user_defined_objects_are_saved(tmp_path: Path) -> None:
    class Model(tf.contrib.checkpoint.Checkpointable):
        def __init__(self) -> None:
            self.layer = tf.layers.Dense(2, bias_initializer=tf.ones_initializer())
            self.scale = tf.Variable(2.0)
            self.note = "no state"

    model = Model()
    y = model.layer(tf.ones([1, 3])) * model.scale
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        path = tf.train.Checkpoint(model=model).save(tmp_path / "model", session)
        expected = session.run(y)
    names = [name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE") for name, _ in tf.train.list_variables(path)][1:]
    assert names == ["model/layer/bias", "model/layer/kernel", "model/scale", "save_counter"]
    with tf.Graph().as_default(), tf.Session() as session:
        model = Model()
        status = tf.train.Checkpoint(model=model).restore(path)
        y = model.layer(tf.ones([1, 3])) * model.scale
        status.assert_consumed().run_restore_ops(session)
        np.testing.assert_array_equal(session.run(y), expected)


def test_savers_and_checkpoints_read_each_others_files(tmp_path: Path) -> None:
    with tf.Session() as session:
        v = tf.Variable([1.0, 2.0], name="v")
        session.run(v.initializer)
        by_name = tf.train.Saver([v]).save(session, str(tmp_path / "saver"))
        by_object = tf.train.Checkpoint(x=v).save(tmp_path / "object", session)
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.Variable([0.0, 0.0], name="v")
        one = tf.train.Checkpoint(x=v)
        one.restore(by_name).assert_consumed().run_restore_ops(session)
        assert session.run(v).tolist() == [1.0, 2.0] and session.run(one.save_counter) == 0
        one.x = tf.Variable(1.0, name="new")
        with pytest.raises(AssertionError, match="Object not restored.*new"):
            one.restore(by_name).assert_consumed()
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.Variable([0.0, 0.0], name="v")
        saver = tf.train.Saver()
        for _ in range(2):
            saver.restore(session, by_object)
            count = len(session.graph.get_operations())
        assert session.run(v).tolist() == [1.0, 2.0]
        saver.restore(session, by_object)
        assert len(session.graph.get_operations()) == count
        tf.Variable(0.0, name="other")
        with pytest.raises(tf.errors.NotFoundError, match="Existing variables not in the checkpoint: other"):
            tf.train.Saver().restore(session, by_object)


def test_the_graph_does_not_grow_with_each_save(tmp_path: Path) -> None:
    checkpoint, _, _ = trained()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        sizes = []
        for _ in range(3):
            path = checkpoint.save(tmp_path / "model", session)
            checkpoint.restore(path).run_restore_ops(session)
            sizes.append(len(session.graph.get_operations()))
    assert sizes[0] == sizes[1] == sizes[2]


@pytest.mark.cluster
def test_variables_of_several_tasks_are_written_where_they_are(tmp_path: Path) -> None:
    with ProcessCluster(ps=2, workers=1) as tasks:
        variables = []
        for i in range(2):
            with tf.device(f"/job:ps/task:{i}"):
                variables.append(tf.Variable(float(i + 1)))
        checkpoint = tf.train.Checkpoint(a=variables[0], b=variables[1])
        with tf.Session(tasks.target("worker", 0)) as session:
            session.run([v.initializer for v in variables])
            path = checkpoint.save(tmp_path / "model", session)
            # One from each ps, and one with the count of saves, which belongs to no ps.
            assert len(list(tmp_path.glob("model-1.data-*-of-00003"))) == 3
            session.run(variables[0].assign(0.0))
            checkpoint.restore(path).run_restore_ops(session)
            assert session.run(variables) == [1.0, 2.0]


class Notes(tf.train.experimental.PythonState):
    """Python state: a text."""

    def __init__(self, text: str) -> None:
        self.text: Any = text
        self.own = tf.Variable(1.0)  # its variables are not saved

    def serialize(self) -> Any:
        return self.text

    def deserialize(self, string_value: bytes) -> None:
        self.text = string_value.decode()


def test_python_objects_write_and_read_their_own_state(tmp_path: Path) -> None:
    notes, v = Notes("first"), tf.Variable(3.0)
    checkpoint = tf.train.Checkpoint(notes=notes, v=v)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first = checkpoint.save(tmp_path / "m", session)
        notes.text = "second"
        second = checkpoint.save(tmp_path / "m", session)
        keys = [name for name, _ in tf.train.list_variables(first)]
        assert keys[1:] == [
            "notes/.ATTRIBUTES/py_state",
            "save_counter/.ATTRIBUTES/VARIABLE_VALUE",
            "v/.ATTRIBUTES/VARIABLE_VALUE",
        ]
        status = checkpoint.restore(first)
        assert notes.text == "first", "a state is read at once, without a session"
        status.assert_consumed().run_restore_ops(session)
        checkpoint.restore(second)
        assert notes.text == "second"


def test_python_states_that_appear_later_are_read_once(tmp_path: Path) -> None:
    with tf.Session() as session:
        path = tf.train.Checkpoint(notes=Notes("saved")).save(tmp_path / "m", session)
        checkpoint = tf.train.Checkpoint()
        status = checkpoint.restore(path)
        checkpoint.notes = Notes("new")
        status.run_restore_ops(session)
        assert checkpoint.notes.text == "saved"
        checkpoint.notes.text = "changed"
        status.run_restore_ops(session)
        assert checkpoint.notes.text == "changed"
        with pytest.raises(AssertionError, match=r"\(root\)\.notes"):
            tf.train.Checkpoint().restore(path).assert_consumed()


# ---- the manager ----------------------------------------------------------------------------


def names(manager: Any) -> list[str]:
    return [os.path.basename(path) for path in manager.checkpoints]


def test_the_newest_checkpoints_are_kept_by_the_next_manager_too(tmp_path: Path) -> None:
    checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        manager = tf.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=2)
        assert manager.latest_checkpoint is None and manager.checkpoints == []
        for _ in range(3):
            path = manager.save()
        assert names(manager) == ["ckpt-2", "ckpt-3"] and manager.latest_checkpoint == path
        assert not list(tmp_path.glob("ckpt-1*"))
        other = tf.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=1, checkpoint_name="other")
        assert names(other) == ["ckpt-2", "ckpt-3"] and other.latest_checkpoint == path
        other.save(checkpoint_number=70)
        assert names(other) == ["other-70"]
        assert os.path.basename(str(tf.train.latest_checkpoint(str(tmp_path)))) == "other-70"
        other.save(checkpoint_number=tf.Variable(5).initialized_value())
        assert names(other) == ["other-5"] and session.run(checkpoint.save_counter) == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint", "other-5.data-00000-of-00001", "other-5.index",
    ]  # fmt: skip


def test_some_checkpoints_are_kept_permanently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000.0
    process = types.SimpleNamespace(wall_time=lambda: now)
    monkeypatch.setattr(checkpoint_manager, "current_process", lambda: process)
    checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        manager = tf.train.CheckpointManager(checkpoint, tmp_path, 1, keep_checkpoint_every_n_hours=2)
        for _ in range(6):
            now += 3600
            manager.save()
        assert names(manager) == ["ckpt-6"]
        assert sorted(path.stem for path in tmp_path.glob("*.index")) == ["ckpt-2", "ckpt-4", "ckpt-6"]
        now += 100
        again = tf.train.CheckpointManager(checkpoint, tmp_path, 1, keep_checkpoint_every_n_hours=2)
        again.save()
        assert names(again) == ["ckpt-7"] and (tmp_path / "ckpt-6.index").exists()


def test_a_manager_that_keeps_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Expected a positive integer or `None`"):
        tf.train.CheckpointManager(tf.train.Checkpoint(), tmp_path, max_to_keep=0)
