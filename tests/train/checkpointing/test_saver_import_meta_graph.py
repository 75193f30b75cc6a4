"""MetaGraphs: graphs with their collections and savers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tests.train.checkpointing.saved_variables import values, variables
from tfmini import protos


def test_importing_a_meta_graph_restores_saver_and_collections(tmp_path: Path, session: Any) -> None:
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


def test_a_scope_is_exported_with_unbound_inputs() -> None:
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


def test_meta_graphs_are_read_as_text_and_binary(tmp_path: Path) -> None:
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


def test_contexts_of_conds_and_loops_are_imported(session: Any) -> None:
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


def _meta_graph() -> Any:
    with tf.Graph().as_default():
        tf.Variable(1.0, name="v")
        return tf.train.Saver().export_meta_graph()


def test_collections_that_do_not_fit_the_graph_are_refused_with_one_class() -> None:
    for change in (
        lambda meta: meta.collection_def["variables"].bytes_list.value.append(b"\xff\xff"),
        lambda meta: meta.collection_def["x"].node_list.value.append("none"),
        lambda meta: meta.collection_def["x"].node_list.value.append("v:7"),
        lambda meta: meta.collection_def["savers"].bytes_list.value.append(b"\x0a"),
        lambda meta: meta.graph_def.node[0].attr["_class"].list.s.append(b"loc:@\xff"),
        lambda meta: meta.graph_def.node[0].attr["f"].func.attr["tfmini_body"].CopyFrom(protos.AttrValue(s=b"\xff")),
        lambda meta: setattr(meta.meta_info_def, "tensorflow_version", "new.old"),
    ):
        meta = _meta_graph()
        change(meta)
        with tf.Graph().as_default(), pytest.raises(ValueError):
            tf.train.import_meta_graph(meta)


_ANOTHER_PROCESS = """
import sys
import tfmini as tf

tf.train.import_meta_graph(sys.argv[1])
with tf.Session() as session:
    session.run(tf.local_variables_initializer())
    coordinator = tf.train.Coordinator()
    threads = tf.train.start_queue_runners(session, coordinator)
    print(session.run("batch:0").tolist())
    coordinator.request_stop()
    coordinator.join(threads)
"""


def test_another_process_starts_the_queue_runners_of_a_meta_graph(tmp_path: Path) -> None:
    names = tf.train.string_input_producer(["a", "b"], num_epochs=1, shuffle=False)
    tf.train.batch([names.dequeue()], 2, name="batch")
    tf.train.export_meta_graph(str(tmp_path / "m"))
    (tmp_path / "another.py").write_text(_ANOTHER_PROCESS)
    command = [sys.executable, str(tmp_path / "another.py"), str(tmp_path / "m")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.stdout == "[b'a', b'b']\n", ended.stderr
