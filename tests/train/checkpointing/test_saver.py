"""Saver: what it saves, where its ops are, which checkpoints it keeps, what it says when it cannot."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.train.checkpointing.saved_variables import values, variables
from tfmini.testing import ProcessCluster
from tfmini.train.checkpointing.saver_builder import SaveableObject, SaveSpec


@pytest.mark.parametrize("options", [{}, {"sharded": True}, {"reshape": True}, {"write_version": 1},
                                     {"write_version": 1, "sharded": True}])  # fmt: skip
def test_saved_values_are_restored(tmp_path: Path, options: dict[str, Any]) -> None:
    every = variables()
    saver = tf.train.Saver(**options)
    with tf.Session() as first:
        first.run(tf.global_variables_initializer())
        expected = values(first, every)
        prefix = saver.save(first, str(tmp_path / "m"), global_step=7)
    with tf.Session() as second:
        saver.restore(second, prefix)
        assert values(second, every) == expected
    assert tf.train.latest_checkpoint(str(tmp_path)) == prefix
    assert dict(tf.train.list_variables(str(tmp_path))) == {"a": [2], "r": [2], "p": [5, 2], "s": [2]}
    assert tf.train.load_variable(prefix, "p:0").tolist() == np.ones((5, 2)).tolist()


def test_a_partitioned_variable_is_restored_to_other_partitions(tmp_path: Path, session: Any) -> None:
    whole = np.arange(20, dtype=np.float32).reshape(10, 2)
    for i, count in enumerate((3, 4)):
        with tf.Graph().as_default(), tf.Session() as session:
            p = tf.get_variable("p", [10, 2], partitioner=tf.fixed_size_partitioner(count))
            saver = tf.train.Saver({"p": p})
            if i == 0:
                session.run([part.assign(piece) for part, piece in zip(p, np.array_split(whole, count))])
                saver.save(session, str(tmp_path / "m"))
            else:
                saver.restore(session, str(tmp_path / "m"))
                assert (session.run(p.as_tensor()) == whole).all()


def test_a_dictionary_gives_names_and_users_saveables_are_saved(tmp_path: Path, session: Any) -> None:
    class Doubled(SaveableObject):
        def __init__(self, variable: Any) -> None:
            super().__init__(variable, [SaveSpec(variable * 2.0, "", "doubled")], "doubled")

        def restore(self, restored_tensors: list[Any], restored_shapes: Any) -> Any:
            return tf.assign(self.op, restored_tensors[0] / 2.0)

    a, b = tf.Variable(1.0, name="a"), tf.Variable(5.0, name="b")
    saver = tf.train.Saver({"other": a, "doubled": Doubled(b)})
    session.run(tf.global_variables_initializer())
    saver.save(session, str(tmp_path / "m"))
    reader = tf.train.NewCheckpointReader(str(tmp_path / "m"))
    assert reader.get_tensor("other") == 1.0 and reader.get_tensor("doubled") == 10.0
    session.run([a.assign(0.0), b.assign(0.0)])
    saver.restore(session, str(tmp_path / "m"))
    assert session.run([a, b]) == [1.0, 5.0]


def test_the_graph_is_tensorflows() -> None:
    variables()
    definition = tf.train.Saver().as_saver_def()
    assert definition.filename_tensor_name == "save/Const:0"
    assert definition.save_tensor_name == "save/control_dependency:0"
    assert definition.restore_op_name == "save/restore_all"
    graph = tf.get_default_graph()
    save = graph.get_operation_by_name("save/SaveV2")
    assert [t.name for t in save.inputs][3:] == ["a:0", "p/part_0/read:0", "p/part_1/read:0", "r/Read/ReadVariableOp:0",
                                                "s:0"]  # fmt: skip
    assert graph.get_operation_by_name("save/RestoreV2").device == "/device:CPU:0"
    assert graph.get_operation_by_name("save/Assign").colocation_groups() == [b"loc:@a"]
    assert tf.train.Saver().as_saver_def().save_tensor_name == "save_1/control_dependency:0"


def test_shards_are_written_and_read_where_the_variables_are() -> None:
    for task in range(2):
        with tf.device(f"/job:ps/task:{task}/device:GPU:0"):
            tf.Variable(tf.zeros([2]), name=f"v{task}")
    tf.train.Saver(sharded=True)
    graph = tf.get_default_graph()
    devices = {op.name: op.device for op in graph.get_operations() if op.name.startswith("save/")}
    for task, suffix in enumerate(("", "_1")):
        for name in ("ShardedFilename", "SaveV2", "RestoreV2", "RestoreV2/tensor_names"):
            scope, _, rest = name.partition("/")
            full = f"save/{scope}{suffix}{'/' + rest if rest else ''}"
            assert devices[full] == f"/job:ps/task:{task}/device:CPU:0", full
    assert devices["save/MergeV2Checkpoints"] == "/job:ps/task:1/device:CPU:0"


@pytest.mark.cluster
def test_each_parameter_server_writes_its_shard(tmp_path: Path) -> None:
    with ProcessCluster(ps=2, workers=1) as cluster, tf.Graph().as_default():
        with tf.device(tf.train.replica_device_setter(cluster=cluster.spec)):
            a, b = tf.Variable([1.0, 2.0], name="a"), tf.Variable([3.0], name="b")
            step = tf.train.get_or_create_global_step()
        init, clear = tf.global_variables_initializer(), tf.group(a.assign([0.0, 0.0]), b.assign([0.0]))
        saver = tf.train.Saver(sharded=True)
        with tf.Session(cluster.target("worker", 0)) as session:
            session.run(init)
            prefix = saver.save(session, str(tmp_path / "m"), global_step=step)
            assert prefix == str(tmp_path / "m-0")
            session.run(clear)
            saver.restore(session, prefix)
            assert values(session, [a, b]) == [[1.0, 2.0], [3.0]]
    expected = ["checkpoint", "m-0.data-00000-of-00002", "m-0.data-00001-of-00002", "m-0.index", "m-0.meta"]
    assert sorted(os.listdir(tmp_path)) == expected


# ---- retention ------------------------------------------------------------------------------


def test_the_newest_checkpoints_are_kept(tmp_path: Path, session: Any) -> None:
    v = tf.Variable(1.0)
    saver = tf.train.Saver(max_to_keep=2, pad_step_number=True)
    session.run(v.initializer)
    paths = [saver.save(session, str(tmp_path / "m"), step) for step in (1, 2, 3)]
    assert paths[2].endswith("m-00000003") and saver.last_checkpoints == paths[1:]
    assert [tf.train.checkpoint_exists(path) for path in paths] == [False, True, True]
    assert not os.path.exists(paths[0] + ".meta") and os.path.exists(paths[1] + ".meta")
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert list(state.all_model_checkpoint_paths) == paths[1:]
    again = tf.train.Saver(max_to_keep=2)
    again.recover_last_checkpoints([str(tmp_path / "gone"), *state.all_model_checkpoint_paths])
    assert again.last_checkpoints == paths[1:]
    again.save(session, str(tmp_path / "m"), 4)
    assert not tf.train.checkpoint_exists(paths[1])


def test_one_checkpoint_per_interval_is_kept_permanently(tmp_path: Path, session: Any) -> None:
    v = tf.Variable(1.0)
    saver = tf.train.Saver(max_to_keep=1, keep_checkpoint_every_n_hours=1e-9)
    session.run(v.initializer)
    paths = [saver.save(session, str(tmp_path / "m"), step) for step in range(3)]
    assert all(tf.train.checkpoint_exists(path) for path in paths)
    assert saver.last_checkpoints == paths[2:]


# ---- errors ---------------------------------------------------------------------------------


def test_a_saver_without_variables_is_refused_unless_it_may_be_empty(session: Any) -> None:
    with pytest.raises(ValueError, match="^No variables to save$"):
        tf.train.Saver()
    empty = tf.train.Saver(allow_empty=True)
    assert empty.save(session, "nowhere/m", write_meta_graph=False) is None
    empty.restore(session, "nowhere/m")


@pytest.mark.parametrize(
    ("var_list", "kind", "text"),
    [
        (lambda a, b: [a, a], ValueError, "At least two variables have the same name: a"),
        (lambda a, b: {"x": a, "y": a}, ValueError, "The same saveable will be restored with two names: y"),
        (lambda a, b: {3: a}, TypeError, "Name is not a string: 3"),
        (lambda a, b: a, TypeError, "Variables to save should be passed in a dict or a list"),
        (lambda a, b: [a, tf.identity(b)], TypeError, "Variable to save is not a variable"),
        (lambda a, b: {"x": [a]}, ValueError, "Slices must all be slices"),
    ],
)
def test_objects_that_cannot_be_saved_are_refused(var_list: Any, kind: type[Exception], text: str) -> None:
    a, b = tf.Variable(1.0, name="a"), tf.Variable(2.0, name="b")
    with pytest.raises(kind, match=text):
        tf.train.Saver(var_list(a, b))


def test_wrong_arguments_of_save_are_refused(tmp_path: Path, session: Any) -> None:
    v = tf.Variable(1.0)
    with pytest.raises(ValueError, match="If `var_list` is provided then build cannot be deferred"):
        tf.train.Saver([v], defer_build=True)
    saver = tf.train.Saver(defer_build=True)
    with pytest.raises(RuntimeError, match="`build\\(\\)` should be called before save if defer_build==True"):
        saver.save(session, "m")
    saver.build()
    session.run(v.initializer)
    with pytest.raises(ValueError, match="'latest_filename' must not contain path components"):
        saver.save(session, "m", latest_filename="a/b")
    with pytest.raises(ValueError, match="'latest_filename' collides with 'save_path': 'checkpoint' and 'checkpoint'"):
        saver.save(session, "checkpoint")
    with pytest.raises(TypeError, match="'sess' must be a Session; 3"):
        saver.save(3, "m")
    with pytest.raises(ValueError, match="Parent directory of .* doesn't exist, can't save."):
        saver.save(session, str(tmp_path / "none" / "at all" / "m"))


def test_restore_says_what_does_not_fit(tmp_path: Path) -> None:
    prefix = str(tmp_path / "m")
    with tf.Session() as session:
        a = tf.Variable([1.0, 2.0], name="a")
        session.run(a.initializer)
        saver = tf.train.Saver()
        saver.save(session, prefix)
        with pytest.raises(ValueError, match="^Can't load save_path when it is None.$"):
            saver.restore(session, None)
        with pytest.raises(ValueError, match="^The passed save_path is not a valid checkpoint: no/such$"):
            saver.restore(session, "no/such")
        with pytest.raises(ValueError, match="not a valid checkpoint: /no/such/m. There is no directory /no/such: the"):
            saver.restore(session, "/no/such/m")  # as from a `checkpoint` file that was moved
        with pytest.raises(tf.errors.FailedPreconditionError, match="a directory: give tf.train.latest_checkpoint"):
            saver.restore(session, str(tmp_path))
    with tf.Graph().as_default(), tf.Session() as session:
        tf.Variable([1.0], name="zz")
        missing = f"(?s)most likely due to a Variable name.*Key zz not found in checkpoint {prefix}; it has 1 other"
        with pytest.raises(tf.errors.NotFoundError, match=missing):
            tf.train.Saver().restore(session, prefix)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.Variable([1.0, 2.0, 3.0], name="a")
        pattern = "(?s)due to a mismatch between.*lhs shape= \\[3\\] rhs shape= \\[2\\]"
        with pytest.raises(tf.errors.InvalidArgumentError, match=pattern):
            tf.train.Saver().restore(session, prefix)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.Variable([1, 2], name="a")
        pattern = "expected dtype int32 does not equal original dtype float"
        with pytest.raises(tf.errors.InvalidArgumentError, match=pattern):
            tf.train.Saver().restore(session, prefix)


def test_an_altered_checkpoint_is_refused_by_name(tmp_path: Path, session: Any) -> None:
    v = tf.Variable([1.0, 2.0], name="weights")
    session.run(v.initializer)
    saver = tf.train.Saver()
    prefix = saver.save(session, str(tmp_path / "m"))
    path = Path(prefix + ".data-00000-of-00001")
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(tf.errors.DataLossError, match=f"{path}: tensor weights: Checksum does not match"):
        saver.restore(session, prefix)


def test_saving_needs_at_most_one_copy_of_a_variable(tmp_path: Path, session: Any) -> None:
    size = 8 << 20
    v = tf.Variable(tf.zeros([size], tf.int8))
    session.run(v.initializer)
    saver = tf.train.Saver()
    tracemalloc.start()
    try:
        saver.save(session, str(tmp_path / "m"), write_meta_graph=False)
        saving = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        saver.restore(session, str(tmp_path / "m"))
        restoring = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert saving < size / 2 and restoring < 1.5 * size


@pytest.mark.parametrize("reshape", [False, True])
def test_a_variable_of_another_shape_is_named_with_both_shapes(tmp_path: Path, reshape: bool) -> None:
    with tf.Session() as session:
        old = tf.get_variable("old", [2], initializer=tf.zeros_initializer(), use_resource=False)
        session.run(old.initializer)
        prefix = tf.train.Saver().save(session, str(tmp_path / "m"))
    with tf.Graph().as_default(), tf.Session() as session:
        new = tf.get_variable("scope/new", [3], initializer=tf.zeros_initializer(), use_resource=False)
        saver = tf.train.Saver({"old": new}, reshape=reshape)
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            saver.restore(session, prefix)
    shapes = "has shape [3] in this graph; 'old' in the checkpoint"
    assert reshape or f"The variable 'scope/new' {shapes} {prefix} has shape [2]." in caught.value.message
    assert not reshape or "Reshape" in str(caught.value)
    remedy = f"another directory (an Estimator's model_dir) than '{tmp_path}', or give the model the sizes of before."
    assert remedy in caught.value.message


def test_a_moved_checkpoint_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tf.Session() as session:
        session.run(tf.get_variable("v", [2]).initializer)
        (tmp_path / "old").mkdir()
        tf.train.Saver().save(session, str(tmp_path / "old/m"))
    (tmp_path / "old").rename(tmp_path / "new")
    caplog.clear()
    assert tf.train.latest_checkpoint(str(tmp_path / "new")) is None
    assert f"holds absolute paths of another directory; this one has the checkpoint {tmp_path}/new/m" in caplog.text
