"""SavedModels: what is written is loaded, signatures, assets, main ops, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tfmini import protos


def build() -> tuple[Any, Any]:
    x = tf.placeholder(tf.float32, [None], name="x")
    w = tf.get_variable("w", initializer=tf.constant([2.0]))
    return x, tf.multiply(x, w, name="y")


def test_a_simple_model_is_saved_and_loaded(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("a b")
    path = tf.constant(str(tmp_path / "words.txt"))
    tf.add_to_collection(tf.GraphKeys.ASSET_FILEPATHS, path)
    seen = tf.Variable("", collections=[tf.GraphKeys.LOCAL_VARIABLES], trainable=False, name="seen")
    x, y = build()
    export = tmp_path / "model"
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        tf.saved_model.simple_save(session, str(export), {"x": x}, {"y": y}, legacy_init_op=tf.assign(seen, path).op)
    assert tf.saved_model.loader.maybe_saved_model_directory(str(export))
    for scope in (None, "inner"):
        with tf.Graph().as_default(), tf.Session() as session:
            loaded = tf.saved_model.loader.load(session, ["serve"], str(export), import_scope=scope)
            signature = loaded.signature_def["serving_default"]
            assert tf.saved_model.signature_def_utils.is_valid_signature(signature)
            names = [signature.inputs["x"], signature.outputs["y"]]
            given, result = (tf.saved_model.utils.get_tensor_from_tensor_info(n, import_scope=scope) for n in names)
            assert session.run(result, {given: [3.0]}).tolist() == [6.0]
            head = f"{scope}/" if scope else ""
            assert session.run(f"{head}seen:0") == str(export / "assets" / "words.txt").encode()


def test_two_meta_graphs_share_the_variables(tmp_path: Path) -> None:
    export = str(tmp_path / "model")
    builder = tf.saved_model.Builder(export)
    with pytest.raises(AssertionError, match="has not been saved yet"):
        builder.add_meta_graph(["serve"])
    with tf.Session() as session:
        build()
        session.run(tf.global_variables_initializer())
        builder.add_meta_graph_and_variables(session, ["train"])
        with pytest.raises(AssertionError, match="already been saved"):
            builder.add_meta_graph_and_variables(session, ["train"])
    with tf.Graph().as_default():
        build()
        builder.add_meta_graph(["serve", "gpu"], clear_devices=True)
    assert builder.save(as_text=True).endswith(b"saved_model.pbtxt")
    for tags in (["train"], ["gpu", "serve"]):
        with tf.Graph().as_default(), tf.Session() as session:
            tf.saved_model.loader.load(session, tags, export)
            assert session.run("y:0", {"x:0": [1.0]}).tolist() == [2.0]
    absent = pytest.raises(RuntimeError, match="MetaGraphDef associated with tags 'tpu' could not be found")
    with tf.Graph().as_default(), tf.Session() as session, absent:
        tf.saved_model.loader.load(session, ["tpu"], export)
    with pytest.raises(AssertionError, match="Export directory already exists, and isn't empty"):
        tf.saved_model.Builder(export)


def test_a_model_may_have_no_variables(tmp_path: Path) -> None:
    x = tf.placeholder(tf.float32, [], name="x")
    with tf.Session() as session:
        tf.saved_model.simple_save(session, str(tmp_path / "m"), {"x": x}, {"y": tf.add(x, 1.0, name="y")})
    with tf.Graph().as_default(), tf.Session() as session:
        tf.saved_model.loader.load(session, ["serve"], str(tmp_path / "m"))
        assert session.run("y:0", {"x:0": 1.0}) == 2.0


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    assert not tf.saved_model.loader.maybe_saved_model_directory(str(tmp_path))
    with tf.Session() as session, pytest.raises(OSError, match="SavedModel file does not exist at: .*pbtxt|"):
        tf.saved_model.loader.load(session, ["serve"], str(tmp_path))


def test_signatures_describe_inputs_and_outputs() -> None:
    utils = tf.saved_model.signature_def_utils
    text, number = tf.placeholder(tf.string, [None], name="t"), tf.placeholder(tf.float32, [None, 2], name="n")
    regress = utils.regression_signature_def(text, number)
    assert regress.method_name == "tensorflow/serving/regress" and utils.is_valid_signature(regress)
    assert [d.size for d in regress.outputs["outputs"].tensor_shape.dim] == [-1, 2]
    classify = utils.classification_signature_def(text, text, number)
    assert sorted(classify.outputs) == ["classes", "scores"] and utils.is_valid_signature(classify)
    classify.method_name = "other"
    assert not utils.is_valid_signature(classify)
    for wrong, message in (
        (lambda: utils.regression_signature_def(number, number), "Regression examples must be a string Tensor."),
        (lambda: utils.regression_signature_def(text, text), "Regression output must be a float Tensor."),
        (lambda: utils.classification_signature_def(text, None, None), "classes and scores cannot both be None"),
        (lambda: utils.predict_signature_def({}, {"y": number}), "Prediction inputs cannot be None or empty."),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()


def test_wrong_calls_of_a_builder_are_refused(tmp_path: Path) -> None:
    with tf.Session() as session:
        builder = tf.saved_model.Builder(str(tmp_path / "m"))
        nameless = tf.saved_model.signature_def_utils.build_signature_def({"x": tf.TensorInfo(dtype=1)}, {}, "m")
        with pytest.raises(AssertionError, match="must have one of the 'encoding' fields"):
            builder.add_meta_graph_and_variables(session, ["serve"], {"s": nameless})
        with pytest.raises(TypeError, match="main_op needs to be an Operation"):
            builder.add_meta_graph_and_variables(session, ["serve"], main_op=3)
        with pytest.raises(TypeError, match="Asset path tensor must be of type constant."):
            builder.add_meta_graph_and_variables(session, ["serve"], assets_collection=[tf.placeholder(tf.string)])


def test_paths_may_be_bytes(tmp_path: Path) -> None:
    x, y = build()
    export = str(tmp_path / "model").encode()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        tf.saved_model.simple_save(session, export, {"x": x}, {"y": y})
        assert tf.saved_model.loader.maybe_saved_model_directory(export)
        tf.saved_model.loader.load(session, [tf.saved_model.tag_constants.SERVING], export)
        prefix = tf.train.Saver([tf.global_variables()[0]]).save(session, str(tmp_path / "m").encode())
        assert tf.train.latest_checkpoint(str(tmp_path).encode()) == prefix
        assert tf.train.write_graph(session.graph, str(tmp_path).encode(), "g") == str(tmp_path / "g")


def test_a_model_whose_messages_do_not_fit_is_refused_with_one_class(tmp_path: Path) -> None:
    """Names of main ops and savers that the graph does not have, and assets that are no messages."""
    x, y = build()
    export = tmp_path / "model"
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        tf.saved_model.simple_save(session, str(export), {"x": x}, {"y": y})
    file = export / "saved_model.pb"
    sound = file.read_bytes()
    for change in (
        lambda meta: meta.collection_def["saved_model_main_op"].node_list.value.append("none"),
        lambda meta: setattr(meta.saver_def, "filename_tensor_name", ""),
        lambda meta: setattr(meta.saver_def, "restore_op_name", "none:"),
        lambda meta: meta.graph_def.node[0].attr["_class"].list.s.append(b"loc:@none"),
    ):
        model = protos.SavedModel.FromString(sound)
        change(model.meta_graphs[0])
        file.write_bytes(model.SerializeToString())
        with tf.Graph().as_default(), tf.Session() as session, pytest.raises(ValueError):
            tf.saved_model.loader.load(session, ["serve"], str(export))


def test_a_builder_returns_its_path_as_bytes(tmp_path: Path) -> None:
    with tf.Session() as session:
        session.run(tf.get_variable("w", []).initializer)
        builder = tf.saved_model.builder.SavedModelBuilder(str(tmp_path / "made"))
        builder.add_meta_graph_and_variables(session, [tf.saved_model.tag_constants.SERVING])
        assert builder.save() == str(tmp_path / "made" / "saved_model.pb").encode()
