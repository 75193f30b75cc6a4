"""Samples of the ops in tfmini/ops/io."""

from typing import Any

from tests.ops.samples.notation import each
from tests.ops.samples.tables import written as written


def example(tf: Any, **features: Any) -> bytes:
    """An Example message."""
    return tf.train.Example(features=_features(tf, features)).SerializeToString(deterministic=True)


def sequence(tf: Any, context: dict[str, Any], **lists: Any) -> bytes:
    """A SequenceExample message."""
    feature_lists = {
        name: tf.train.FeatureList(feature=[_feature(tf, values) for values in steps]) for name, steps in lists.items()
    }
    message = tf.train.SequenceExample(
        context=_features(tf, context), feature_lists=tf.train.FeatureLists(feature_list=feature_lists)
    )
    return message.SerializeToString(deterministic=True)


def _features(tf: Any, features: dict[str, Any]) -> Any:
    return tf.train.Features(feature={name: _feature(tf, values) for name, values in features.items()})


def _feature(tf: Any, values: Any) -> Any:
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    if isinstance(values[0], int):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def zipped(data: bytes, kind: str) -> bytes:
    """Bytes in the ZLIB or GZIP format."""
    import zlib

    packer = zlib.compressobj(wbits=31 if kind == "GZIP" else 15)
    return packer.compress(data) + packer.flush()


def records(tf: Any, tmp: str, *texts: bytes) -> str:
    """The path of a new TFRecord file."""
    with tf.python_io.TFRecordWriter(f"{tmp}/records") as writer:
        for text in texts:
            writer.write(text)
    return f"{tmp}/records"


_SEQUENCE = "sequence(tf, {'c': [5], 'd': [1.5, 2.5]}, l=[[1, 2], [3, 4]], v=[[0.5], [1.5, 2.5], [3.5]])"
_CSV = """records=['1,"a,""b",', ',x,3', '7,,'], record_defaults=[[7], [''], [0.5]]"""

# Handles that are resources; without V2 in the names, the same with references.
_READING = """
    QueueEnqueueManyV2(handle=q, components=[[PATHS]]);
    [k, v] = ReaderReadV2(reader_handle=r, queue_handle=q); [k, v]; [k, v];
    ReaderNumRecordsProducedV2(reader_handle=r); ReaderNumWorkUnitsCompletedV2(reader_handle=r)
"""
_TEXT = "written(tmp, 'a', 'head\\nfirst\\nsecond\\n'), written(tmp, 'b', 'head\\nthird\\n')"
_READERS = (
    ("TextLineReaderV2(skip_header_lines=1)", _TEXT), ("WholeFileReaderV2()", _TEXT),
    ("FixedLengthRecordReaderV2(header_bytes=2, record_bytes=3, footer_bytes=1, hop_bytes=0)",
     "written(tmp, 'a', 'hhabcdeff')"),
    ("TFRecordReaderV2()", "records(tf, tmp, b'one', b'two', b'three')"), ("IdentityReaderV2()", "'x', 'y'"),
)  # fmt: skip
_READ = "".join(
    f"r = {reader}; q = FIFOQueueV2(component_types=[string], shapes=[[]]);{_READING.replace('PATHS', paths)}"
    for reader, paths in _READERS
)
_STATES = """
r = IdentityReaderV2(); q = FIFOQueueV2(component_types=[string], shapes=[[]]);
    QueueEnqueueManyV2(handle=q, components=[['a', 'b', 'c']]); QueueCloseV2(handle=q);
    ReaderReadUpToV2(reader_handle=r, queue_handle=q, num_records=int64(2)); ReaderSerializeStateV2(reader_handle=r);
    ReaderReadUpToV2(reader_handle=r, queue_handle=q, num_records=int64(2)); ReaderResetV2(reader_handle=r);
    ReaderNumRecordsProducedV2(reader_handle=r)
r = IdentityReaderV2(); q = FIFOQueueV2(component_types=[string], shapes=[[]]);
    ReaderRestoreStateV2(reader_handle=r, state=b'\\x08\\x03\\x10\\x03\\x18\\x05');
    ReaderNumRecordsProducedV2(reader_handle=r)
"""
_SAVED = "tensors=[f32(3, 2), i64(2), ['a', 'bc']]"
_NAMES = "tensor_names=['x', 'y', 'z']"

SAMPLES = (
    each("DecodeCSV", _CSV, "records='NA;2', record_defaults=[[4], [0.5]], field_delim=';', na_value='NA'",
         "records=['1,2,3'], record_defaults=[i64([0]), f64([0])], select_cols=[0, 2]",
         "records='a\"b,c', record_defaults=[[''], ['']], use_quote_delim=False")
    + each("DecodeCompressed", "bytes=['a', 'b']", "bytes=[zipped(b'text', 'GZIP')], compression_type='GZIP'",
           "bytes=zipped(b'text' * 9, 'ZLIB'), compression_type='ZLIB'")
    + each("ParseExample",
           "serialized=[example(tf, i=[1, 2], f=[0.5], s=[b'a', b'b']), example(tf, f=[1.5, 2.5])], names=['m', 'n'], "
           "sparse_keys=['f', 's'], dense_keys=['i'], dense_defaults=[i64([7, 8])], sparse_types=[float32, string], "
           "dense_shapes=[[2]]",
           "serialized=[example(tf, i=[1, 2]), example(tf, i=[5])], names=[], sparse_keys=[], dense_keys=['i'], "
           "dense_defaults=[int64(9)], sparse_types=[], dense_shapes=[[None]]")
    + each("ParseSingleExample",
           "serialized=example(tf, i=[1, 2], f=[0.5], s=[b'a', b'b']), dense_defaults=[i64([7, 8]), f32([])], "
           "num_sparse=1, sparse_keys=['s'], dense_keys=['i', 'f'], sparse_types=[string], dense_shapes=[[2], [1]]")
    + each("ParseSequenceExample",
           f"serialized=[{_SEQUENCE}, sequence(tf, dict(c=[6]), l=[[5, 6]], v=[])], debug_name=['m', 'n'], "
           "context_dense_defaults=[i64([])], feature_list_dense_missing_assumed_empty=[], context_sparse_keys=['d'], "
           "context_dense_keys=['c'], feature_list_sparse_keys=['v'], feature_list_dense_keys=['l'], "
           "Ncontext_sparse=1, Ncontext_dense=1, Nfeature_list_sparse=1, Nfeature_list_dense=1, "
           "context_sparse_types=[float32], feature_list_dense_types=[int64], context_dense_shapes=[[1]], "
           "feature_list_sparse_types=[float32], feature_list_dense_shapes=[[2]]")
    + each("ParseSingleSequenceExample",
           f"serialized={_SEQUENCE}, feature_list_dense_missing_assumed_empty=['m'], context_sparse_keys=['d'], "
           "context_dense_keys=['c'], feature_list_sparse_keys=['v'], feature_list_dense_keys=['l', 'm'], "
           "context_dense_defaults=[i64([])], debug_name='n', context_sparse_types=[float32], "
           "feature_list_dense_types=[int64, float32], context_dense_shapes=[[1]], "
           "feature_list_sparse_types=[float32], feature_list_dense_shapes=[[2], [3]]")
    + each("SerializeTensor", "tensor=f32(2, 3)", "tensor=['a', 'bc']", "tensor=b1(3)", "tensor=3", "tensor=c64(2)")
    + each("ParseTensor", "serialized=SerializeTensor(tensor=f32(2, 3)), out_type=float32",
           "serialized=SerializeTensor(tensor=['a', 'bc']), out_type=string",
           "serialized=tf.make_tensor_proto([1, 2]).SerializeToString(), out_type=int32",
           r"serialized=b'\x08\x07\x12\x04\x12\x02\x08\x02\x22\x05\x01\x02abc', out_type=string")
    + """
json = DecodeJSONExample(json_examples='{"features": {"feature": {"x": {"int64List": {"value": [5, 6]}}}}}');
    ParseSingleExample(serialized=json, dense_defaults=[i64([])], num_sparse=0, sparse_keys=[], dense_keys=['x'],
        sparse_types=[], dense_shapes=[[2]])
"""
    + r"""
DecodeProtoV2(bytes=[b'\n\x03\x01\x02\x03', b'\n\x01\x07\n\x01\x08'], message_type='tensorflow.Int64List',
    field_names=['value'], output_types=[int64])
DecodeProtoV2(bytes=[[b'name: "x" input: "a" input: "b"', b'']], message_type='tensorflow.NodeDef',
    field_names=['input', 'name'], output_types=[string, string], message_format='text')
EncodeProto(sizes=[[2], [1]], values=[i64([[1, 2], [3, 4]])], field_names=['value'],
    message_type='tensorflow.Int64List')
EncodeProto(sizes=[[1, 2], [0, 1]], values=[[['x'], ['y']], [['p', 'q'], ['r', 's']]], field_names=['name', 'input'],
    message_type='tensorflow.NodeDef')
"""
    + _READ
    + _STATES
    + _READ.replace("V2(", "(").split("\nr = ")[1].join(["r = ", "\n"])
    + f"""
WriteFile(filename=tmp + '/a', contents=b'some text'); ReadFile(filename=tmp + '/a')
WriteFile(filename=tmp + '/a1', contents=''); WriteFile(filename=tmp + '/a2', contents='');
    MatchingFiles(pattern=tmp + '/a*')
MatchingFiles(pattern=[tmp + '/none', tmp + '/*.x'])
SaveV2(prefix=tmp + '/c', {_NAMES}, shape_and_slices=['', '', ''], {_SAVED});
    RestoreV2(prefix=tmp + '/c', {_NAMES}, shape_and_slices=['', '', ''], dtypes=[float32, int64, string]);
    RestoreV2(prefix=tmp + '/c', tensor_names=['x'], shape_and_slices=['3 2 1,2:-'], dtypes=[float32])
SaveV2(prefix=tmp + '/p1', tensor_names=['x', 'y'], shape_and_slices=['4 2 0,2:-', ''], tensors=[f32(2, 2), i64(2)]);
    SaveV2(prefix=tmp + '/p2', tensor_names=['x'], shape_and_slices=['4 2 2,2:-'], tensors=[f32(2, 2)]);
    MergeV2Checkpoints(checkpoint_prefixes=[tmp + '/p1', tmp + '/p2'], destination_prefix=tmp + '/all');
    RestoreV2(prefix=tmp + '/all', tensor_names=['x', 'y'], shape_and_slices=['', ''], dtypes=[float32, int64]);
    MatchingFiles(pattern=tmp + '/*')
Save(filename=tmp + '/c', {_NAMES}, data=[f32(3, 2), i64(2), b1(2)]);
    Restore(file_pattern=tmp + '/c', tensor_name='x', dt=float32);
    Restore(file_pattern=tmp + '/c', tensor_name='z', dt=bool)
SaveSlices(filename=tmp + '/c', tensor_names=['x'], shapes_and_slices=['4 2 0,2:-'], data=[f32(2, 2)]);
    RestoreSlice(file_pattern=tmp + '/c', tensor_name='x', shape_and_slice='4 2 1,1:-', dt=float32)
ShardedFilename(basename='/a/b', shard=3, num_shards=12)
ShardedFilespec(basename='/a/b', num_shards=12)
"""
)  # fmt: skip

# Removed from TensorFlow's graphs in version 26 of their format.
OURS = (_READ + _STATES).replace("V2(", "(")
