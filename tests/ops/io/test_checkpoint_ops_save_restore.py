"""The ops of checkpoints: shapes, refusals, names of shards, the V1 pair, remapped matrices."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini import protos
from tfmini.checkpoint import reader, writer
from tfmini.checkpoint.reader import Slice, encode_key
from tfmini.compat import ops_names

raw = tf.raw_ops


def run(value: Any) -> Any:
    with tf.Session() as session:
        return session.run(value)


def save(prefix: Path, names: list[str], specs: list[str], tensors: list[Any]) -> str:
    run(raw.SaveV2(prefix=str(prefix), tensor_names=names, shape_and_slices=specs, tensors=tensors))
    return str(prefix)


def restore(prefix: str, name: str, spec: str, dtype: Any) -> Any:
    return run(raw.RestoreV2(prefix=prefix, tensor_names=[name], shape_and_slices=[spec], dtypes=[dtype]))[0]


def test_static_shapes_follow_from_slices() -> None:
    tensors = raw.RestoreV2(
        prefix="m", tensor_names=["a", "b"], shape_and_slices=["", "3 4 0,1:-"], dtypes=[tf.float32, tf.int32]
    )
    assert tensors[0].shape.dims is None and tensors[1].shape == [1, 4] and tensors[1].dtype is tf.int32
    one = raw.RestoreSlice(file_pattern="m", tensor_name="a", shape_and_slice="3 4 0,1:-", dt=tf.float32)
    assert one.shape == [1, 4]


@pytest.mark.parametrize(
    "build",
    [
        lambda: raw.SaveV2(prefix="m", tensor_names=["x", "y"], shape_and_slices=["", ""], tensors=[1.0]),
        lambda: raw.SaveV2(prefix=["m"], tensor_names=["x"], shape_and_slices=[""], tensors=[1.0]),
        lambda: raw.RestoreV2(prefix="m", tensor_names=["x", "y"], shape_and_slices=[""], dtypes=[tf.int32]),
        lambda: raw.RestoreV2(prefix="m", tensor_names=["x"], shape_and_slices=["x"], dtypes=[tf.int32]),
        lambda: raw.MergeV2Checkpoints(checkpoint_prefixes="m", destination_prefix="n"),
    ],
)
def test_arguments_of_wrong_shape_are_refused(build: Any) -> None:
    with pytest.raises(ValueError):
        build()


def test_whole_values_and_slices_are_restored(tmp_path: Path) -> None:
    whole = np.arange(12, dtype=np.float32).reshape(4, 3)
    prefix = save(tmp_path / "m", ["w", "s", "n"], ["", "", ""], [whole, tf.constant(b"text"), tf.constant(3)])
    assert (restore(prefix, "w", "4 3 1,2:-", tf.float32) == whole[1:3]).all()
    assert restore(prefix, "s", "", tf.string) == b"text" and restore(prefix, "n", "", tf.int32) == 3


@pytest.mark.parametrize(
    ("spec", "dtype", "kind", "message"),
    [
        ("", tf.int32, tf.errors.InvalidArgumentError, "tensor_name = w; expected dtype int32 does not equal original"),
        ("5 3 0,1:-", tf.float32, tf.errors.InvalidArgumentError,
         "shape in shape_and_slice spec \\[5,3\\] does not match the shape stored in checkpoint: \\[4,3\\]"),
    ],
)  # fmt: skip
def test_a_request_that_does_not_fit_the_tensor_is_refused(
    tmp_path: Path, spec: str, dtype: Any, kind: Any, message: str
) -> None:
    prefix = save(tmp_path / "m", ["w"], [""], [tf.zeros([4, 3])])
    with pytest.raises(kind, match=message):
        restore(prefix, "w", spec, dtype)
    with pytest.raises(tf.errors.NotFoundError, match="^Key v not found in checkpoint"):
        restore(prefix, "v", "", dtype)


def test_a_slice_of_another_shape_than_its_tensor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="Slice in shape_and_slice specification does not match"):
        save(tmp_path / "m", ["w"], ["10 0,4"], [tf.zeros([3])])
    assert os.listdir(tmp_path) == []


def test_shards_have_tensorflows_file_names() -> None:
    assert run(raw.ShardedFilename(basename="foo", shard=4, num_shards=100)) == b"foo-00004-of-00100"
    assert run(raw.ShardedFilespec(basename="foo", num_shards=100)) == b"foo-?????-of-00100"


def test_a_v1_file_is_written_and_read(tmp_path: Path) -> None:
    path = str(tmp_path / "v1")
    run(raw.Save(filename=path, tensor_names=["a", "b"], data=[tf.constant([1.5, 2.5]), tf.constant([b"x"])]))
    assert run(raw.Restore(file_pattern=path, tensor_name="a", dt=tf.float32)).tolist() == [1.5, 2.5]
    assert restore(path, "b", "", tf.string).tolist() == [b"x"]
    with open(path, "r+b") as file:
        file.seek(20)
        file.write(b"?")
    with pytest.raises(tf.errors.DataLossError, match=f"Unable to open table file {path}"):
        restore(path, "b", "", tf.string)


def test_a_hostile_v1_file_is_refused(tmp_path: Path) -> None:
    """Tensors without slices, slices that overlap, and few values for many elements."""
    path = tmp_path / "v1"
    for sizes, slices, values in (([4], [], 4), ([4], [2, 2], 2), ([1 << 40], [None], 1), ([-4], [None], 4)):
        header, record = protos.SavedTensorSlices(), protos.SavedTensorSlices()
        meta = header.meta.tensor.add(name="w", type=1)
        for size in sizes:
            meta.shape.dim.add(size=size)
        items = {b"": b""}
        for length in slices:
            extent = meta.slice.add().extent.add()
            if length is not None:
                extent.length = length
        record.data.name = "w"
        record.data.data.float_val.extend([1.0] * values)
        for part in meta.slice:
            items[encode_key("w", Slice.from_proto(part))] = record.SerializeToString()
        items[b""] = header.SerializeToString()
        path.write_bytes(reader.build(sorted(items.items())))
        with pytest.raises(tf.errors.DataLossError, match="tensor w: "):
            tf.train.NewCheckpointReader(str(path)).get_tensor("w")


def test_a_pattern_must_match_the_whole_text() -> None:
    match = raw.StaticRegexFullMatch(input=["s3://x", "/s3://"], pattern="^s3://.*")
    assert run(match).tolist() == [True, False]


def test_rows_of_a_matrix_are_remapped(tmp_path: Path) -> None:
    prefix = save(tmp_path / "m", ["w"], [""], [np.arange(6, dtype=np.float32).reshape(3, 2)])
    options = {"ckpt_path": prefix, "old_tensor_name": "w", "num_rows": 2, "num_cols": 2, "col_remapping": []}
    found = raw.LoadAndRemapMatrix(row_remapping=[2, -1], initializing_values=[8.0, 9.0], **options)
    assert run(found).tolist() == [[4.0, 5.0], [8.0, 9.0]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="2 elements are missing, but there are 1"):
        run(raw.LoadAndRemapMatrix(row_remapping=[2, -1], initializing_values=[8.0], **options))
    with pytest.raises(tf.errors.UnimplementedError, match="Old row 1 is mapped to several new rows"):
        run(raw.LoadAndRemapMatrix(row_remapping=[1, 1], initializing_values=[], **options))
    with pytest.raises(tf.errors.InvalidArgumentError, match="goes beyond tensor w of shape \\[3, 2\\]"):
        run(raw.LoadAndRemapMatrix(row_remapping=[1, 3], initializing_values=[], **options))


def test_a_variant_that_is_no_list_of_tensors_is_neither_saved_nor_restored(tmp_path: Path) -> None:
    data, one = tf.data.experimental.to_variant(tf.data.Dataset.range(3)), ops_names.tensor_list_from_tensor([1.0], [])
    with pytest.raises(tf.errors.UnimplementedError, match="Saving a variant that is a"):
        save(tmp_path / "a", ["v"], [""], [data])
    with pytest.raises(tf.errors.UnimplementedError, match="Saving data type variant not yet supported"):
        run(raw.SaveSlices(filename=str(tmp_path / "b"), tensor_names=["v"], shapes_and_slices=[""], data=[one]))
    other = protos.VariantTensorDataProto(type_name="tensorflow::Other").SerializeToString()
    for name, message, told in [
        ("c", other, "type 'tensorflow::Other' is no list"),
        ("d", b"junk", "tensor v"),
    ]:
        with writer.BundleWriter(str(tmp_path / name)) as bundle:
            bundle.add("v", np.array([message], object), tf.variant)
            bundle.finish()
        with pytest.raises(tf.errors.DataLossError, match=told):
            restore(str(tmp_path / name), "v", "", tf.variant)


def test_parts_of_lists_of_tensors_and_empty_variants(tmp_path: Path) -> None:
    lists = tf.stack([ops_names.tensor_list_from_tensor(tf.fill([n, 2], float(n)), [2]) for n in range(4)])
    path = save(tmp_path / "a", ["v", "v"], ["4 0,2", "4 2,2"], [lists[:2], lists[2:]])
    found = raw.RestoreV2(prefix=path, tensor_names=["v"], shape_and_slices=["4 1,3"], dtypes=[tf.variant])[0]
    lengths = tf.stack([raw.TensorListLength(input_handle=found[place]) for place in range(3)])
    assert run(lengths).tolist() == [1, 2, 3]
    with writer.BundleWriter(str(tmp_path / "b")) as bundle:
        bundle.add("e", np.full([2, 1], b"", object), tf.variant)
        bundle.finish()
    empty = raw.RestoreV2(prefix=str(tmp_path / "b"), tensor_names=["e"], shape_and_slices=[""], dtypes=[tf.variant])
    again = save(tmp_path / "c", ["e"], [""], [empty[0]])
    assert reader.BundleReader(again).read("e").tolist() == [[b""], [b""]]


def test_a_changed_byte_of_a_list_of_tensors_is_found(tmp_path: Path) -> None:
    path = save(tmp_path / "a", ["v"], [""], [ops_names.tensor_list_from_tensor([1.0, 2.0], [])])
    (data,) = tmp_path.glob("*data*")
    stored = data.read_bytes()
    for damaged in (stored[:20] + b"X" + stored[21:], b"\x01" + stored[1:], stored[:-1] + b"\0"):
        data.write_bytes(damaged)
        with pytest.raises(tf.errors.DataLossError, match="checksum of a variant|end after"):
            restore(path, "v", "", tf.variant)
