"""Samples of the ops in tfmini/data: pipelines, of which all elements are read as one batch."""

from typing import Any

from tests.ops.samples.io import records as records
from tests.ops.samples.tables import written as written


def batched(op: Any, dataset: Any, *types: Any) -> Any:
    """All elements of a dataset of scalars."""
    form = {"output_types": list(types), "output_shapes": [[None]] * len(types)}
    batch = op.BatchDatasetV2(input_dataset=dataset, batch_size=99, drop_remainder=False, **form)
    return op.DatasetToSingleElement(dataset=batch, **form)


def counted(op: Any, start: int, stop: int) -> Any:
    """The numbers of a range."""
    return op.RangeDataset(start=start, stop=stop, step=1, **NUMBERS)


NUMBERS = {"output_types": ["int64"], "output_shapes": [[]]}
_PAIR = "output_types=[float32, string], output_shapes=[[2], []]"


def numbers(*calls: str) -> str:
    """A row per dataset of numbers."""
    return "".join(f"batched(op, {call}, int64)\n" for call in calls)


def mapped(*rows: tuple[str, str]) -> str:
    """A row per public expression of a dataset, for the ops that contain functions."""
    row = "i = tf.data.make_initializable_iterator(({}).batch(99)); i.initializer; through('{}', i.get_next())\n"
    return "".join(row.format(expression, op) for op, expression in rows)


_RANGE, _X = "tf.data.Dataset.range(6)", "tf.data.experimental"
_ITERATOR = (
    "i = IteratorV2(shared_name='i', container='', **NUMBERS); MakeIterator(dataset=counted(op, 3, 5), iterator=i)"
)

SAMPLES = (
    numbers(
        "TensorDataset(components=[int64(5)], output_shapes=[[]])",
        "TensorSliceDataset(components=[i64(4)], output_shapes=[[]])",
        "RangeDataset(start=10, stop=2, step=-3, **NUMBERS)",
        "ConcatenateDataset(input_dataset=counted(op, 0, 2), another_dataset=counted(op, 7, 9), **NUMBERS)",
        "RepeatDataset(input_dataset=counted(op, 0, 2), count=2, **NUMBERS)",
        "TakeDataset(input_dataset=counted(op, 0, 5), count=2, **NUMBERS)",
        "TakeDataset(input_dataset=counted(op, 0, 5), count=-1, **NUMBERS)",
        "SkipDataset(input_dataset=counted(op, 0, 5), count=2, **NUMBERS)",
        "ShardDataset(input_dataset=counted(op, 0, 9), num_shards=3, index=1, **NUMBERS)",
        "ShuffleDataset(input_dataset=counted(op, 0, 9), buffer_size=1, seed=1, seed2=2, **NUMBERS)",
        "TakeDataset(input_dataset=RandomDataset(seed=1, seed2=2, **NUMBERS), count=5, **NUMBERS)",
        "RepeatDataset(input_dataset=CacheDataset(input_dataset=counted(op, 0, 3), filename='', **NUMBERS), count=2, "
        "**NUMBERS)",
        "CacheDataset(input_dataset=counted(op, 0, 3), filename=tmp + '/cache', **NUMBERS)",
        "PrefetchDataset(input_dataset=counted(op, 0, 5), buffer_size=2, **NUMBERS)",
        "UnbatchDataset(input_dataset=TensorSliceDataset(components=[i64(3, 2)], output_shapes=[[2]]), **NUMBERS)",
        "IgnoreErrorsDataset(input_dataset=counted(op, 0, 3), **NUMBERS)",
        "DirectedInterleaveDataset(selector_input_dataset=TensorSliceDataset(components=[i64([1, 0, 0, 1])], "
        "output_shapes=[[]]), data_input_datasets=[counted(op, 0, 5), counted(op, 7, 9)], **NUMBERS)",
        "UnbatchDataset(input_dataset=SlidingWindowDataset(input_dataset=counted(op, 0, 9), window_size=2, "
        "window_shift=3, window_stride=2, output_types=[int64], output_shapes=[[None]]), **NUMBERS)",
        "UniqueDataset(input_dataset=TensorSliceDataset(components=[i64([3, 1, 3])], output_shapes=[[]]), **NUMBERS)",
        "SqlDataset(driver_name='sqlite', data_source_name=':memory:', query='SELECT 3 UNION SELECT 4', **NUMBERS)",
        "ZipDataset(input_datasets=[counted(op, 0, 3)], **NUMBERS)",
    )
    + mapped(
        ("MapDataset", f"{_RANGE}.map(lambda x: x * x)"),
        ("ParallelMapDataset", f"{_RANGE}.map(lambda x: x + 1, num_parallel_calls=2)"),
        ("MapAndBatchDataset", f"{_RANGE}.apply({_X}.map_and_batch(lambda x: x + 1, 2))"),
        ("FilterDataset", f"{_RANGE}.filter(lambda x: tf.equal(x % 3, 1))"),
        ("FlatMapDataset", f"{_RANGE}.flat_map(lambda x: tf.data.Dataset.range(x))"),
        ("InterleaveDataset", f"{_RANGE}.interleave(tf.data.Dataset.range, cycle_length=2, block_length=2)"),
        ("ParallelInterleaveDatasetV2", f"{_RANGE}.interleave(tf.data.Dataset.range, 2, 2, num_parallel_calls=2)"),
        ("ScanDataset", f"{_RANGE}.apply({_X}.scan(np.int64(0), lambda s, x: (s + x, s * 10)))"),
        ("GroupByWindowDataset", f"{_RANGE}.apply({_X}.group_by_window(lambda x: x % 2, lambda _, d: d.batch(3), 3))"),
        (
            "GroupByReducerDataset",
            f"{_RANGE}.apply({_X}.group_by_reducer(lambda x: x % 2, {_X}.Reducer(lambda _: "
            "np.int64(0), lambda s, x: s + x, lambda s: s * 10)))",
        ),
        ("TakeWhileDataset", f"{_RANGE}.apply({_X}.take_while(lambda x: x < 4))"),
        ("WindowDataset", f"{_RANGE}.window(3, shift=2, drop_remainder=True).flat_map(lambda w: w.batch(3))"),
    )
    + r"""
through('ReduceDataset', tf.data.Dataset.range(6).reduce(np.int64(1), lambda s, x: s + x))
batched(op, TensorSliceDataset(components=[f32(3), ['a', 'b', 'c']], output_shapes=[[], []]), float32, string)
batched(op, ZipDataset(input_datasets=[counted(op, 0, 3), counted(op, 5, 9)], output_types=[int64, int64],
    output_shapes=[[], []]), int64, int64)
DatasetToSingleElement(dataset=TensorDataset(components=[f32(2), 'a'], output_shapes=[[2], []]), PAIR)
DatasetToSingleElement(dataset=PaddedBatchDatasetV2(input_dataset=TensorSliceDataset(components=[f32(2, 2), ['a', 'b']],
    output_shapes=[[2], []]), batch_size=4, padded_shapes=[i64([3]), i64([])], padding_values=[7.5, ''],
    drop_remainder=False, output_shapes=[[None, 3], [None]]), output_types=[float32, string],
    output_shapes=[[None, 3], [None]])
batched(op, TextLineDataset(filenames=[written(tmp, 'a', 'one\ntwo\n'), written(tmp, 'b', 'three')],
    compression_type='', buffer_size=99), string)
batched(op, TFRecordDataset(filenames=[records(tf, tmp, b'one', b'two')], compression_type='', buffer_size=99), string)
batched(op, FixedLengthRecordDatasetV2(filenames=[written(tmp, 'a', 'hhabcdeff')], header_bytes=2, record_bytes=3,
    footer_bytes=1, buffer_size=99, compression_type=''), string)
batched(op, CSVDataset(filenames=[written(tmp, 'a', 'x,y,z\n1,a,2.5\n,b,\n')], compression_type='', buffer_size=99,
    header=True, field_delim=',', use_quote_delim=True, na_value='', select_cols=i64([0, 2]),
    record_defaults=[[7], [0.5]], output_shapes=[[], []]), int32, float32)
DatasetCardinality(input_dataset=counted(op, 0, 5))
DatasetCardinality(input_dataset=RepeatDataset(input_dataset=counted(op, 0, 5), count=-1, **NUMBERS))
DatasetToTFRecord(input_dataset=TensorSliceDataset(components=[['a', 'bc']], output_shapes=[[]]), filename=tmp + '/r',
    compression_type=''); ReadFile(filename=tmp + '/r')
ITERATOR; IteratorGetNext(iterator=i, **NUMBERS); IteratorGetNextSync(iterator=i, **NUMBERS);
    OptionalHasValue(optional=IteratorGetNextAsOptional(iterator=i, **NUMBERS))
ITERATOR; OptionalGetValue(optional=IteratorGetNextAsOptional(iterator=i, **NUMBERS), **NUMBERS)
ITERATOR; same = IteratorFromStringHandleV2(string_handle=IteratorToStringHandle(resource_handle=i), **NUMBERS);
    IteratorGetNext(iterator=same, **NUMBERS); IteratorGetNext(iterator=i, **NUMBERS)
through('OneShotIterator', tf.data.make_one_shot_iterator(tf.data.Dataset.range(3, 5)).get_next())
OptionalGetValue(optional=OptionalFromValue(components=[f32(2), 'a']), PAIR)
OptionalHasValue(optional=OptionalNone())
d = tf.data.Dataset.from_tensor_slices([[1, 0, 2], [0, 3, 0]]).map(lambda x: x * 2);
    b = d.apply(tf.data.experimental.dense_to_sparse_batch(9, [4])); i = tf.data.make_initializable_iterator(b);
    i.initializer; s = i.get_next(); through('DenseToSparseBatchDataset', [s.indices, s.values, s.dense_shape])
""".replace("PAIR", _PAIR).replace("ITERATOR", _ITERATOR)
)

OURS = r"""
# Sparse tensors travel as variants of another kind, and generators are known by names that are made up.
s = tf.data.make_one_shot_iterator(tf.data.Dataset.from_tensors(tf.SparseTensor([[0, 1]], [5], [2, 2]))).get_next();
    through('_UnpackSparse', s.values)
i = tf.data.make_initializable_iterator(tf.data.Dataset.from_tensors(tf.SparseTensor([[0, 1]], [5], [2, 2])));
    i.initializer; through('_PackSparse _UnpackSparse', i.get_next().indices)
i = tf.data.make_initializable_iterator(tf.data.Dataset.from_generator(lambda: iter([3, 5]), tf.int64, []));
    i.initializer; through('_PyGeneratorDataset', i.get_next()); i.get_next()
i = tf.data.make_initializable_iterator(tf.data.Dataset.from_tensors(tf.ragged.constant([[1], [2, 3]])));
    i.initializer; through('_PackRagged _UnpackRagged', i.get_next().flat_values)
i = IteratorV2(shared_name='i', container='', **NUMBERS); MakeIterator(dataset=counted(op, 3, 5), iterator=i);
    IteratorGetNext(iterator=i, **NUMBERS); _RestoreIterator(iterator=i, state=i64([1])); _IteratorState(iterator=i)
# The elements of a queue, without a request since one is there.
r = FIFOQueueV2(component_types=[int64], shapes=[[]]); e = FIFOQueueV2(component_types=[int64], shapes=[[]]);
    QueueEnqueueV2(handle=e, components=[int64(5)]); i = IteratorV2(shared_name='i', container='', **NUMBERS);
    MakeIterator(dataset=_QueueDataset(requests=r, elements=e, **NUMBERS), iterator=i);
    IteratorGetNext(iterator=i, **NUMBERS)
"""
