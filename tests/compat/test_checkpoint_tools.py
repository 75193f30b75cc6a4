"""``tensorflow.python.tools``: checkpoints are printed and graphs frozen as by TensorFlow 1.15."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.compat.checkpoint_tools import (
    freeze_graph,
    print_tensors_in_checkpoint_file,
    strip_unused,
    strip_unused_from_files,
)


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A folder with a graph whose variable is on a ps, its checkpoint ``m``, saver and SavedModel."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        x = tf.placeholder(tf.float32, [None, 2], name="x")
        with tf.device("/cpu:0"):
            w = tf.get_variable("w", initializer=[[1.0], [2.0]])
        y = tf.matmul(x, w, name="y")
        tf.get_variable("unused", [3, 2])
        session.run(tf.global_variables_initializer())
        session.run(tf.assign(w, [[3.0], [4.0]]))
        saver = tf.train.Saver()
        saver.save(session, str(tmp_path / "m"))
        tf.train.write_graph(graph, str(tmp_path), "graph.pbtxt")
        tf.train.write_graph(graph, str(tmp_path), "graph.pb", as_text=False)
        (tmp_path / "saver.pb").write_bytes(saver.as_saver_def().SerializeToString())
        tf.saved_model.simple_save(session, str(tmp_path / "saved"), {"x": x}, {"y": y})
    return tmp_path


def _frozen(folder: Path, **own: Any) -> Any:
    arguments: dict[str, Any] = {
        "input_graph": "", "input_saver": "", "input_binary": False, "input_checkpoint": str(folder / "m"),
        "output_node_names": "y", "restore_op_name": "save/restore_all", "filename_tensor_name": "save/Const:0",
        "output_graph": str(folder / "frozen.pb"), "clear_devices": True, "initializer_nodes": "",
    }  # fmt: skip
    return freeze_graph(**(arguments | {k: v if isinstance(v, bool) else str(v) for k, v in own.items()}))


@pytest.mark.parametrize("source", ["text", "binary", "saver", "meta graph", "SavedModel"])
def test_a_frozen_graph_computes_with_the_values_of_the_checkpoint(trained: Path, source: str) -> None:
    given: dict[str, Any] = {
        "text": {"input_graph": trained / "graph.pbtxt"},
        "binary": {"input_graph": trained / "graph.pb", "input_binary": True},
        "saver": {"input_graph": trained / "graph.pbtxt", "input_saver": trained / "saver.pb"},
        "meta graph": {"input_meta_graph": trained / "m.meta", "input_binary": True},
        "SavedModel": {"input_saved_model_dir": trained / "saved"},
    }[source]
    made = _frozen(trained, **given)
    assert {node.op for node in made.node} == {"Placeholder", "Const", "Identity", "MatMul"}
    assert not any(node.device for node in made.node)
    graph_def = tf.GraphDef.FromString((trained / "frozen.pb").read_bytes())
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.import_graph_def(graph_def, name="")
        assert np.array_equal(session.run("y:0", {graph.get_tensor_by_name("x:0"): [[1.0, 1.0]]}), [[7.0]])


def test_what_freeze_graph_lacks_is_printed(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = trained / "graph.pbtxt"
    assert _frozen(trained, input_graph=graph, input_checkpoint=trained / "other") == -1
    assert _frozen(trained, input_graph=graph, output_node_names="") == -1
    printed = capsys.readouterr().out
    assert f"Input checkpoint '{trained / 'other'}' doesn't exist!" in printed and "--output_node_names" in printed


def test_a_checkpoint_is_printed(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*arguments: Any, **named: Any) -> str:
        print_tensors_in_checkpoint_file(*arguments, **named)
        return capsys.readouterr().out

    prefix = str(trained / "m")
    assert shown(prefix, "w", False) == "tensor_name:  w\n[[3.]\n [4.]]\n# Total number of params: 8\n"
    assert shown(prefix, "", False).startswith("unused (DT_FLOAT) [3,2]\nw (DT_FLOAT) [2,1]\n\n#")
    assert shown(prefix, "", False, True).startswith("tensor_name:  unused\ntensor_name:  w\n#")
    assert shown(prefix, "", True).count("\n [") == 3
    assert "# Excluding 1 tensors (6 params) that match unus" in shown(prefix, "", False, count_exclude_pattern="unus")
    assert "other" in shown(str(trained / "other"), "", True)
    assert "no_such" in shown(prefix, "no_such", False)


def test_the_tools_have_tensorflows_paths() -> None:
    from tfmini.compat import internals

    for path, function in (("freeze_graph", freeze_graph), ("inspect_checkpoint", print_tensors_in_checkpoint_file)):
        module = internals.module(f"python.tools.{path}")
        assert module is not None and getattr(module, function.__name__) is function


def test_a_graph_is_cut_at_nodes_that_become_placeholders(tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph:
        start = tf.add(tf.constant([1.0, 2.0]), 1.0, name="start")
        end = tf.add(tf.multiply(start, 2.0), tf.placeholder(tf.float32, [None, 2], name="p"), name="end")
        tf.negative(end, name="unused")
    source, enum = graph.as_graph_def(), tf.float32.as_datatype_enum
    found = strip_unused(source, ["start", "p"], ["end"], [enum, enum])
    assert [node.name for node in found.node if node.op == "Placeholder"] == ["start", "p"]
    assert "unused" not in {node.name for node in found.node} and found.node[-2].attr["shape"].shape.dim[1].size == 2
    (tmp_path / "g.pb").write_bytes(source.SerializeToString())
    paths = str(tmp_path / "g.pb"), True, str(tmp_path / "out.pb"), True
    assert strip_unused_from_files(*paths, "start,p", "end", enum) == found
    assert (tmp_path / "out.pb").read_bytes() == found.SerializeToString()
    for inputs, error in (["start:0"], ValueError), (["other"], KeyError):
        with pytest.raises(error):
            strip_unused(source, inputs, ["end"], enum)
