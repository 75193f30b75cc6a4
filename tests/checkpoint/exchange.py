"""Both sides of the exchange tests write and read files, with the namespace ``tf`` of either.

Everything is deterministic, so that files can be compared byte for byte where the formats leave no choice.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

NUMBERS = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
           "bool", "complex64", "complex128", "bfloat16")  # fmt: skip
# TensorFlow writes more types in the V1 format than it reads.
V1_NUMBERS = ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")
MANY = [f"scope{i % 7}/layer{i}/weights" for i in range(400)]


def write_and_read(tf: Any, directory: str) -> dict[str, Any]:
    """Writes the files of one side to ``directory``/theirs; returns the content of ``directory``/ours."""
    theirs = Path(directory, "theirs")
    theirs.mkdir()
    write_all(tf, theirs)
    return read_all(tf, Path(directory, "ours"))


def write_all(tf: Any, directory: Path) -> None:
    """All files of one side."""
    writers = (_write_dtypes, _write_slices, _write_many, _write_again, _write_v1, _write_saver, _write_saved_model)
    for write in writers:
        with tf.Graph().as_default():
            write(tf, directory)


def read_all(tf: Any, directory: Path) -> dict[str, Any]:
    """Reads the other side's files as plain values."""
    found: dict[str, Any] = {}
    for prefix in ("dtypes", "slices", "many", "merged", "again", "v1", "sharded"):
        reader = tf.train.NewCheckpointReader(str(directory / prefix))
        shapes = reader.get_variable_to_shape_map()
        found[prefix] = {name: [shapes[name], _plain(reader.get_tensor(name))] for name in sorted(shapes)}
    with tf.Graph().as_default():
        found["restored slices"] = _restore_slices(tf, directory)
    with tf.Graph().as_default():
        found["meta graph"] = _restore_meta_graph(tf, directory)
    with tf.Graph().as_default():
        found["saved model"] = _load_saved_model(tf, directory)
    found["latest"] = os.path.basename(tf.train.latest_checkpoint(str(directory / "state")))
    found["paths"] = list(tf.train.get_checkpoint_state(str(directory / "state")).all_model_checkpoint_paths)
    found["paths"] = [os.path.basename(path) for path in found["paths"]]
    return found


def _plain(value: Any) -> Any:
    array = np.asarray(value)
    if array.dtype == object or array.dtype.kind == "S":
        return [item.hex() for item in array.ravel().tolist()]
    if array.dtype.kind == "c":
        return [[float(x.real), float(x.imag)] for x in array.ravel()]
    return array.astype(np.float64).ravel().tolist()


def _constant(tf: Any, name: str) -> Any:
    values = np.array([[0, 1, 1], [0, 1, 0]]) if name == "bool" else np.arange(6).reshape(2, 3)
    return tf.constant(values.astype(tf.as_dtype(name).as_numpy_dtype))


def _write_dtypes(tf: Any, directory: Path) -> None:
    tensors = {name: _constant(tf, name) for name in NUMBERS}
    tensors["strings"] = tf.constant([[b"", b"abc"], [b"\x00\xff", b"x" * 300]])
    tensors["a string"] = tf.constant(b"alone")
    tensors["scalar"] = tf.constant(2.5)
    tensors["empty"] = tf.zeros([0, 4])
    save_v2(tf, directory / "dtypes", {name: ("", tensor) for name, tensor in tensors.items()})


def save_v2(tf: Any, prefix: Path, tensors: dict[str, Any]) -> None:
    """Runs a SaveV2 op on name -> (slice specification, tensor)."""
    op = tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(tensors),
        shape_and_slices=[spec for spec, _ in tensors.values()],
        tensors=[tensor for _, tensor in tensors.values()],
    )
    with tf.Session() as session:
        session.run(op)


def _write_slices(tf: Any, directory: Path) -> None:
    whole = np.arange(40, dtype=np.float32).reshape(10, 4)
    names = [f"{directory}/part{i}" for i in range(3)]
    save_v2(tf, directory / "slices", {"w": ("10 4 0,10:-", whole), "v": ("10 2 -:0,2", whole[:, 1:3]),
                                       "b": ("", whole[0])})  # fmt: skip
    for i, (start, end) in enumerate(((0, 4), (4, 7), (7, 10))):
        part = {"w": (f"10 4 {start},{end - start}:0,4", whole[start:end]), f"n{i}": ("", np.float32(i))}
        save_v2(tf, directory / f"part{i}", part)
    with tf.Session() as session:
        merge = tf.raw_ops.MergeV2Checkpoints
        session.run(merge(checkpoint_prefixes=names, destination_prefix=str(directory / "merged")))


def _write_many(tf: Any, directory: Path) -> None:
    save_v2(tf, directory / "many", {name: ("", np.float32(i)) for i, name in enumerate(MANY)})


def _write_again(tf: Any, directory: Path) -> None:
    """The same prefix twice."""
    for i in range(2):
        save_v2(tf, directory / "again", {"x": ("", np.full(3, i, np.float32))})


def _write_v1(tf: Any, directory: Path) -> None:
    whole = np.arange(40, dtype=np.float32).reshape(10, 4)
    tensors = {name: ("", _constant(tf, name)) for name in V1_NUMBERS}
    tensors["w"] = ("10 4 0,10:0,4", tf.constant(whole))
    tensors["strings"] = ("", tf.constant([b"a", b"bcd"]))
    op = tf.raw_ops.SaveSlices(
        filename=str(directory / "v1"),
        tensor_names=list(tensors),
        shapes_and_slices=[spec for spec, _ in tensors.values()],
        data=[tensor for _, tensor in tensors.values()],
    )
    with tf.Session() as session:
        session.run(op)


def _model(tf: Any) -> Any:
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    options = {"partitioner": tf.fixed_size_partitioner(2), "initializer": lambda shape, **_: tf.ones(shape)}
    w = tf.get_variable("w", initializer=tf.constant(rows))
    b = tf.get_variable("b", [4], use_resource=True, initializer=tf.constant_initializer(0.5))
    p = tf.get_variable("p", [6, 4], **options)
    names = tf.Variable([b"one", b"two"], name="names", trainable=False)
    y = tf.add(tf.matmul(x, w) + b, tf.reduce_sum(tf.convert_to_tensor(p)), name="y")
    tf.add_to_collection("names of mine", "text")
    tf.add_to_collection("outputs", y)
    tf.add_to_collection("numbers", 3)
    return x, y, names


def _write_saver(tf: Any, directory: Path) -> None:
    _model(tf)
    sharded = tf.train.Saver(sharded=True)
    single = tf.train.Saver(max_to_keep=2)
    (directory / "state").mkdir()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        sharded.save(session, str(directory / "sharded"))
        for step in range(3):
            single.save(session, str(directory / "state" / "model"), global_step=step)


def _write_saved_model(tf: Any, directory: Path) -> None:
    x, y, _ = _model(tf)
    (directory / "vocabulary.txt").write_text("a b c")
    asset = tf.constant(str(directory / "vocabulary.txt"), name="asset")
    tf.add_to_collection(tf.GraphKeys.ASSET_FILEPATHS, asset)
    where = tf.Variable("", name="where", trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        init = tf.group(tf.assign(where, asset), name="init_assets")
        tf.saved_model.simple_save(session, str(directory / "saved_model"), {"x": x}, {"y": y}, legacy_init_op=init)


X = [[1.0, 2.0, 3.0]]


def _restore_slices(tf: Any, directory: Path) -> list[Any]:
    specs = ["", "10 4 2,6:-", "10 4 4,3:0,4", "10 4 -:1,2"]
    op = tf.raw_ops.RestoreV2(
        prefix=str(directory / "merged"), tensor_names=["w"] * 4, shape_and_slices=specs, dtypes=[tf.float32] * 4
    )
    with tf.Session() as session:
        return [_plain(value) for value in session.run(op)]


def _restore_meta_graph(tf: Any, directory: Path) -> dict[str, Any]:
    saver = tf.train.import_meta_graph(str(directory / "sharded.meta"))
    with tf.Session() as session:
        saver.restore(session, str(directory / "sharded"))
        return {
            "y": session.run("y:0", {"x:0": X}).tolist(),
            "names": _plain(session.run("names:0")),
            "variables": [v.name for v in tf.global_variables()],
            "trainable": [v.name for v in tf.trainable_variables()],
            "resource": [v.op.type for v in tf.global_variables()],
            "collections": [tf.get_collection("numbers"), tf.get_collection("outputs")[0].name],
            "p": str(tf.global_variables()[2]._save_slice_info.spec),
        }


def _load_saved_model(tf: Any, directory: Path) -> dict[str, Any]:
    with tf.Session() as session:
        definition = tf.saved_model.loader.load(session, ["serve"], str(directory / "saved_model"))
        signature = definition.signature_def["serving_default"]
        info = tf.saved_model.utils.get_tensor_from_tensor_info(signature.outputs["y"])
        return {
            "y": session.run(info, {signature.inputs["x"].name: X}).tolist(),
            "asset": os.path.relpath(session.run("where:0").decode(), directory),
            "method": signature.method_name,
        }
