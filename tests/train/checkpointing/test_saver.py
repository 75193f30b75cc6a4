"""Saver: what it saves, where its ops are, which checkpoints it keeps, what it says when it cannot."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.testing.process_cluster import ProcessCluster
from tfmini.train import checkpoint_state
from tfmini.train.saveables import SaveableObject, SaveSpec


def variables() -> list[Any]:
    """One of each kind."""
    return [
        tf.get_variable("a", initializer=tf.constant([1.0, 2.0])),
        tf.get_variable("r", initializer=tf.constant([3, 4]), use_resource=True),
        *tf.get_variable("p", [5, 2], partitioner=tf.fixed_size_partitioner(2), initializer=tf.ones_initializer()),
        tf.Variable([b"x", b"yy"], name="s"),
    ]


def values(session: Any, every: list[Any]) -> list[Any]:
    return [value.tolist() for value in session.run(every)]


@pytest.fixture
def session() -> Any:
    with tf.Session() as session:
        yield session


@pytest.mark.parametrize("options", [{}, {"sharded": True}, {"reshape": True}, {"write_version": 1},
                                     {"write_version": 1, "sharded": True}])  # fmt: skip
def test_what_is_saved_is_restored(tmp_path: Path, options: dict[str, Any]) -> None:
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


def test_a_partitioned_variable_comes_back_in_other_parts(tmp_path: Path, session: Any) -> None:
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


def test_names_of_a_dictionary_and_saveables_of_ones_own(tmp_path: Path, session: Any) -> None:
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


def test_the_newest_are_kept(tmp_path: Path, session: Any) -> None:
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


def test_one_is_kept_for_good_now_and_then(tmp_path: Path, session: Any) -> None:
    v = tf.Variable(1.0)
    saver = tf.train.Saver(max_to_keep=1, keep_checkpoint_every_n_hours=1e-9)
    session.run(v.initializer)
    paths = [saver.save(session, str(tmp_path / "m"), step) for step in range(3)]
    assert all(tf.train.checkpoint_exists(path) for path in paths)
    assert saver.last_checkpoints == paths[2:]


def test_paths_relative_to_the_directory(tmp_path: Path, session: Any) -> None:
    v = tf.Variable(1.0)
    session.run(v.initializer)
    (tmp_path / "before").mkdir()
    tf.train.Saver(save_relative_paths=True).save(session, str(tmp_path / "before" / "m"))
    (tmp_path / "before").rename(tmp_path / "after")
    assert tf.train.latest_checkpoint(str(tmp_path / "after")) == str(tmp_path / "after" / "m")


def test_addresses_of_files(tmp_path: Path, session: Any) -> None:
    v = tf.Variable(1.0)
    session.run(v.initializer)
    saver = tf.train.Saver(sharded=True)
    prefix = saver.save(session, f"file://{tmp_path}/m")
    assert prefix == f"file://{tmp_path}/m" and tf.train.checkpoint_exists(prefix)
    saver.restore(session, prefix)
    assert tf.train.latest_checkpoint(f"file://{tmp_path}") == prefix
    expected = ["checkpoint", "m.data-00000-of-00001", "m.index", "m.meta"]
    assert sorted(os.listdir(tmp_path)) == expected


def test_the_state_file(tmp_path: Path) -> None:
    directory = str(tmp_path)
    assert tf.train.get_checkpoint_state(directory) is None and tf.train.latest_checkpoint(directory) is None
    tf.train.update_checkpoint_state(directory, "/abs/m-2", ["/abs/m-1", "/abs/m-2"], last_preserved_timestamp=3.0)
    state = tf.train.get_checkpoint_state(directory)
    assert (state.model_checkpoint_path, state.last_preserved_timestamp) == ("/abs/m-2", 3.0)
    assert tf.train.latest_checkpoint(directory) is None  # its files are not there
    (tmp_path / "checkpoint").write_text("no proto {")
    assert tf.train.get_checkpoint_state(directory) is None
    (tmp_path / "checkpoint").write_text("")
    with pytest.raises(ValueError, match="Invalid checkpoint state loaded from"):
        tf.train.get_checkpoint_state(directory)
    with pytest.raises(ValueError, match="Checkpoint timestamps, if provided, must match checkpoint paths"):
        tf.train.generate_checkpoint_state_proto(directory, "m", ["m"], [1.0, 2.0])
    with pytest.raises(RuntimeError, match="conflicts with path used for checkpoint state"):
        tf.train.update_checkpoint_state(directory, str(tmp_path / "checkpoint"))
    assert checkpoint_state.meta_graph_filename("/x/m-?????-of-00002") == "/x/m.meta"


# ---- errors ---------------------------------------------------------------------------------


def test_nothing_to_save(session: Any) -> None:
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
def test_what_cannot_be_saved(var_list: Any, kind: type[Exception], text: str) -> None:
    a, b = tf.Variable(1.0, name="a"), tf.Variable(2.0, name="b")
    with pytest.raises(kind, match=text):
        tf.train.Saver(var_list(a, b))


def test_wrong_arguments_of_save(tmp_path: Path, session: Any) -> None:
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
        with pytest.raises(tf.errors.FailedPreconditionError, match="a directory: give tf.train.latest_checkpoint"):
            saver.restore(session, str(tmp_path))
    with tf.Graph().as_default(), tf.Session() as session:
        tf.Variable([1.0], name="zz")
        with pytest.raises(tf.errors.NotFoundError, match="(?s)most likely due to a Variable name.*Key zz not found"):
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


def test_one_more_copy_of_a_variable_and_no_more(tmp_path: Path, session: Any) -> None:
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


# ---- meta graphs ----------------------------------------------------------------------------


def test_a_meta_graph_brings_the_saver_and_the_collections(tmp_path: Path, session: Any) -> None:
    every = variables()
    tf.add_to_collection("mine", every[0])
    tf.add_to_collection("words", "hello")
    saver = tf.train.Saver()
    tf.add_to_collection(tf.GraphKeys.SAVERS, saver)
    session.run(tf.global_variables_initializer())
    expected = values(session, every)
    prefix = saver.save(session, str(tmp_path / "m"))
    for scope in (None, "inner"):
        with tf.Graph().as_default(), tf.Session() as other:
            again = tf.train.import_meta_graph(prefix + ".meta", import_scope=scope)
            again.restore(other, prefix)
            assert values(other, tf.global_variables()) == expected
            head = f"{scope}/" if scope else ""
            assert tf.global_variables()[0].name == f"{head}a:0"
            assert tf.get_collection("mine")[0].name == f"{head}a:0"
            assert tf.get_collection(tf.GraphKeys.SAVERS)[0].as_saver_def() == again.as_saver_def()
            assert tf.trainable_variables()[0] is tf.global_variables()[0]


def test_a_scope_with_its_inputs_from_outside() -> None:
    with tf.name_scope("out"):
        x = tf.constant(3.0, name="x")
    with tf.name_scope("part"), tf.device("/job:ps/task:0"):
        tf.multiply(x, 2.0, name="y")
    exported = tf.train.export_meta_graph(export_scope="part", clear_devices=True)
    assert [node.name for node in exported.graph_def.node] == ["y/y", "y"]
    assert {node.device for node in exported.graph_def.node} == {""}
    with tf.Graph().as_default(), tf.Session() as session:
        with pytest.raises(ValueError, match="Graph contains unbound inputs: \\$unbound_inputs_out/x"):
            tf.train.import_meta_graph(exported)
        given = {"$unbound_inputs_out/x": tf.constant(5.0)}
        assert tf.train.import_meta_graph(exported, import_scope="new", input_map=given) is None
        assert session.run("new/y:0") == 10.0


def test_other_savers_and_default_attrs_can_be_left_out() -> None:
    tf.Variable(1.0, name="v")
    first, second = tf.train.Saver(), tf.train.Saver()
    tf.add_to_collection(tf.GraphKeys.SAVERS, first)
    tf.add_to_collection(tf.GraphKeys.SAVERS, second)
    exported = second.export_meta_graph(clear_extraneous_savers=True, strip_default_attrs=True)
    scopes = {node.name.partition("/")[0] for node in exported.graph_def.node}
    assert "save_1" in scopes and "save" not in scopes
    assert len(exported.collection_def[tf.GraphKeys.SAVERS].bytes_list.value) == 1
    v = next(node for node in exported.graph_def.node if node.name == "v")
    assert "container" not in v.attr and "dtype" in v.attr and exported.meta_info_def.stripped_default_attrs


def test_text_and_binary_files(tmp_path: Path) -> None:
    tf.Variable(1.0, name="v")
    for as_text in (False, True):
        path = str(tmp_path / f"graph{as_text}" / "meta")
        tf.train.export_meta_graph(path, as_text=as_text)
        with tf.Graph().as_default():
            assert isinstance(tf.train.import_meta_graph(path), tf.train.Saver)
    (tmp_path / "junk").write_bytes(b"\xff\xff junk")
    with pytest.raises(OSError, match="Cannot parse file"):
        tf.train.import_meta_graph(str(tmp_path / "junk"))
    with pytest.raises(OSError, match="does not exist"):
        tf.train.import_meta_graph(str(tmp_path / "nothing"))


def test_conds_and_loops_come_back_with_their_contexts(session: Any) -> None:
    x = tf.placeholder(tf.int32, [], name="x")
    nested = lambda i: tf.while_loop(lambda j: j < i + 3, lambda j: j + 1, [i])  # noqa: E731
    loop = tf.while_loop(lambda i: i < 10, nested, [x])
    cond = tf.cond(x > 3, lambda: tf.cond(x > 5, lambda: x * 2, lambda: x * 3), lambda: x + 1)
    exported = tf.train.export_meta_graph()
    with tf.Graph().as_default(), tf.Session() as other:
        tf.train.import_meta_graph(exported)
        again = tf.train.export_meta_graph()
        for key in (tf.GraphKeys.COND_CONTEXT, tf.GraphKeys.WHILE_CONTEXT):
            assert again.collection_def[key] == exported.collection_def[key]
        for value in (1, 4, 6):
            expected = session.run([loop, cond], {x: value})
            assert other.run([loop.name, cond.name], {"x:0": value}) == expected


# ---- initial values from a checkpoint -------------------------------------------------------


def test_init_from_checkpoint(tmp_path: Path) -> None:
    prefix = str(tmp_path / "m")
    with tf.Graph().as_default(), tf.Session() as session:
        with tf.variable_scope("old"):
            tf.get_variable("a", initializer=tf.constant([1.0, 2.0]))
            tf.get_variable("b", initializer=tf.constant([3.0]))
            tf.get_variable("p", initializer=tf.reshape(tf.range(6.0), [6, 1]))
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, prefix)
    with tf.variable_scope("new"):
        a = tf.get_variable("a", [2])
        b = tf.get_variable("b", [1], use_resource=True)
        p = tf.get_variable("p", [6, 1], partitioner=tf.fixed_size_partitioner(2))
    other = tf.get_variable("other", [2])
    tf.train.init_from_checkpoint(str(tmp_path), {"old/": "new/", "old/a": other})
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert values(session, [a, b, other]) == [[1.0, 2.0], [3.0], [1.0, 2.0]]
        assert session.run(p.as_tensor()).ravel().tolist() == list(range(6))
    with pytest.raises(ValueError, match="Tensor nope is not found in"):
        tf.train.init_from_checkpoint(prefix, {"nope": a})
    with pytest.raises(ValueError, match="Shape of variable new/b:0 .*doesn't match with shape of tensor old/a"):
        tf.train.init_from_checkpoint(prefix, {"old/a": b})
    with pytest.raises(ValueError, match="Assignment map with scope only name new should map to scope only old"):
        tf.train.init_from_checkpoint(prefix, {"old": "new/"})


def test_warm_start_with_vocabularies_that_have_changed(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("a\nb\nc\n")
    (tmp_path / "new").write_text("c\nd\na\n")
    prefix = str(tmp_path / "m")
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("rows", initializer=tf.constant([[1.0, 1.5], [2.0, 2.5], [3.0, 3.5]]))
        tf.get_variable("columns", initializer=tf.constant([[1.0, 2.0, 3.0]]))
        tf.get_variable("bias", initializer=tf.constant([7.0]))
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, prefix)
    rows = tf.get_variable("rows", [4, 2], partitioner=tf.fixed_size_partitioner(2))
    columns, shift = tf.get_variable("columns", [1, 3]), tf.get_variable("shift", [1])
    files = str(tmp_path / "new"), str(tmp_path / "old")
    info = tf.train.VocabInfo(files[0], 3, 1, files[1], backup_initializer=tf.constant_initializer(9.0))
    across = tf.train.VocabInfo(files[0], 3, 0, files[1], axis=1)
    tf.train.warm_start(prefix, ".*", {"rows": info, "columns": across}, {"shift": "bias"})
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(rows.as_tensor()).tolist() == [[3.0, 3.5], [9.0, 9.0], [1.0, 1.5], [9.0, 9.0]]
        assert values(session, [columns, shift]) == [[[3.0, 0.0, 1.0]], [7.0]]
    with pytest.raises(ValueError, match="var_name_to_prev_var_name that were not used: \\['nope'\\]"):
        tf.train.warm_start(prefix, ".*", None, {"nope": "bias"})
    with pytest.raises(ValueError, match="The only supported values for the axis argument are 0 and 1"):
        tf.train.VocabInfo(*files, 1, 1, axis=2)


def test_checkpoints_as_they_appear(tmp_path: Path, session: Any) -> None:
    v = tf.Variable(1.0)
    session.run(v.initializer)
    saver = tf.train.Saver()
    first = saver.save(session, str(tmp_path / "m"), 1)
    found = tf.train.checkpoints_iterator(str(tmp_path), timeout=0)
    assert next(found) == first
    second = saver.save(session, str(tmp_path / "m"), 2)
    assert list(found) == [second]
