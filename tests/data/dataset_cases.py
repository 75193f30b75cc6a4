"""Pipelines whose elements TensorFlow and tfmini must agree on; run by both sides with ``tf``, ``np`` and ``tmp``."""

CASES = {
    "tensors": "D.from_tensors((tf.constant([1, 2]), {'a': 3.5, 'b': 'x'}))",
    "slices": (
        "D.from_tensor_slices(({'a': np.arange(6).reshape(3, 2), 'b': ['x', 'y', 'z']}, np.array([.5, 1., 2.])))"
    ),
    "range": "D.range(10, 2, -3)",
    "zip": "D.zip((D.range(5), {'k': D.range(10, 13)}))",
    "concatenate": "D.from_tensor_slices([[1, 2]]).concatenate(D.from_tensor_slices([[3, 4], [5, 6]]))",
    "repeat": "D.range(3).repeat(2)",
    "take_skip": "D.range(10).skip(2).take(3)",
    "take_all": "D.range(3).take(-1)",
    "skip_all": "D.range(3).skip(-1)",
    "shard": "D.range(10).shard(3, 1)",
    "enumerate": "D.from_tensor_slices(['a', 'b']).enumerate(5)",
    "batch": "D.range(7).batch(3)",
    "batch_drop": "D.range(7).batch(3, drop_remainder=True)",
    "batch_strings": "D.from_tensor_slices(['a', 'bc', 'd']).batch(2)",
    "map": "D.range(5).map(lambda x: (x * x, tf.cast(x, tf.float32) / 2.))",
    "map_pair": (
        "D.from_tensor_slices((np.arange(4), np.arange(4.))).map(lambda a, b: {'s': tf.cast(a, tf.float64) + b})"
    ),
    "map_parallel": "D.range(20).map(lambda x: x + 1, num_parallel_calls=4)",
    "map_dict": "D.from_tensor_slices({'a': [1, 2]}).map(lambda d: d['a'] + 1)",
    "map_capture": "D.range(3).map(lambda x: x + OUTER)",
    "map_list": "D.range(3).map(lambda x: [x, x + 1])",
    "map_nested": "D.range(3).map(lambda x: (x, (x, {'z': tf.stack([x, x])})))",
    "map_cond": "D.range(5).map(lambda x: tf.cond(x > 2, lambda: x * 10, lambda: -x))",
    "map_while": "D.range(5).map(lambda x: tf.while_loop(lambda i: i < 20, lambda i: i * 2 + 1, [x]))",
    "map_strings": "D.from_tensor_slices(['a b', 'c']).map(lambda s: tf.string_join([s, '!']))",
    "filter": "D.range(10).filter(lambda x: tf.equal(x % 3, 1))",
    "flat_map": "D.range(4).flat_map(lambda x: D.from_tensors(x).repeat(x))",
    "flat_map_capture": "D.range(3).flat_map(lambda x: D.range(x + OUTER).map(lambda y: x * 10 + y + OUTER))",
    "interleave": "D.range(1, 6).interleave(lambda x: D.from_tensors(x).repeat(6), cycle_length=2, block_length=4)",
    "interleave_uneven": "D.range(6).interleave(lambda x: D.range(x), cycle_length=3)",
    "padded": "D.range(1, 5).map(lambda x: tf.fill([x], x)).padded_batch(2, [None])",
    "padded_values": (
        "D.range(1, 4).map(lambda x: (tf.fill([x], x), tf.fill([2], 'v')))"
        ".padded_batch(3, ([5], [3]), (np.int64(-1), 'p'))"
    ),
    "window": "D.range(7).window(3, shift=2).flat_map(lambda w: w.batch(3))",
    "window_drop": "D.range(7).window(3, 1, 2, True).flat_map(lambda w: w.batch(3))",
    "window_gap": "D.range(9).window(2, 4).flat_map(lambda w: w.batch(2))",
    "unbatch": "D.from_tensor_slices(([[1, 2], [3, 4]], [['a', 'b'], ['c', 'd']])).unbatch()",
    "cache": "D.range(3).cache().repeat(2)",
    "prefetch": "D.range(50).prefetch(3).map(lambda x: x * 2).prefetch(1)",
    "text": "tf.data.TextLineDataset([tmp + '/a.txt', tmp + '/b.txt'])",
    "text_interleaved": "tf.data.TextLineDataset([tmp + '/a.txt', tmp + '/b.txt'], num_parallel_reads=2)",
    "text_of_names": "D.from_tensor_slices([tmp + '/a.txt', tmp + '/b.txt']).flat_map(tf.data.TextLineDataset)",
    "records": "tf.data.TFRecordDataset(tmp + '/r.tfrecord')",
    "fixed": "tf.data.FixedLengthRecordDataset(tmp + '/b.bin', 3, header_bytes=1, footer_bytes=2)",
    "files": "D.list_files(tmp + '/?.txt', shuffle=False).map(lambda f: tf.strings.substr(f, -5, 5))",
    "generator": "D.from_generator(lambda: ((i, [i] * 2) for i in range(3)), (tf.int32, tf.float32), ([], [2]))",
    "generator_args": "D.from_generator(lambda n: iter(range(n)), tf.int64, [], args=(3,))",
    "from_generator_dict": (
        "D.from_generator(lambda: ({'a': i, 'b': 'x'} for i in range(2)), {'a': tf.int64, 'b': tf.string})"
    ),
    "drop_remainder": "D.range(5).apply(tf.data.experimental.map_and_batch(lambda x: x + 1, 2, drop_remainder=True))",
    "scan": "D.range(5).apply(tf.data.experimental.scan(np.int64(0), lambda s, x: (s + x, s * 10)))",
    "ignore_errors": (
        "D.from_tensor_slices([1., 0., 4.]).map(lambda x: tf.check_numerics(1. / x, 'bad'))"
        ".apply(tf.data.experimental.ignore_errors())"
    ),
    "sparse": (
        "D.from_tensor_slices(['1 2 3', '4', '']).map(lambda s: tf.string_split([s]))"
        ".map(lambda t: (t.values, t.dense_shape))"
    ),
    "sparse_out": "D.from_tensor_slices(['1 2 3', '4']).map(lambda s: tf.string_split([s]))",
    "sparse_batch": "D.from_tensor_slices(['1 2 3', '4']).map(lambda s: tf.string_split([s])).batch(2)",
    "counter": "tf.data.experimental.Counter(5, 2).take(3)",
    "seeded_shuffle_is_a_permutation": "D.range(5).shuffle(1, seed=3)",
    "interleave_parallel": (
        "D.range(1, 4).apply(tf.data.experimental.parallel_interleave(lambda x: D.from_tensors(x).repeat(2), 2))"
    ),
    "map_py_func": "D.range(3).map(lambda x: tf.py_func(lambda v: v * np.int64(3), [x], tf.int64))",
    "map_decode": "D.from_tensor_slices(['1,2', '3,4']).map(lambda l: tuple(tf.decode_csv(l, [[0], [0.]])))",
    "dtype_bool": "D.from_tensor_slices([True, False]).batch(2)",
    "nothing": "D.range(0).batch(2)",
    "group_by_window": (
        "D.range(10).apply(tf.data.experimental.group_by_window(lambda x: x % 3, lambda k, w: w.batch(2), 2))"
    ),
    "group_by_window_sizes": (
        "D.range(12).apply(tf.data.experimental.group_by_window(lambda x: 1 - x % 2,"
        " lambda k, w: w.map(lambda x: (k, x + OUTER)).batch(4), window_size_func=lambda k: k + 2))"
    ),
    "buckets": (
        "D.range(1, 9).map(lambda x: tf.fill([x], x)).apply(tf.data.experimental.bucket_by_sequence_length("
        "lambda x: tf.size(x), [3, 6], [2, 2, 1]))"
    ),
    "buckets_to_boundary": (
        "D.range(1, 6).map(lambda x: (x, tf.fill([x], 'v'))).apply(tf.data.experimental.bucket_by_sequence_length("
        "lambda x, y: tf.size(y), [3, 7], [2, 2, 1], pad_to_bucket_boundary=True, drop_remainder=True))"
    ),
    "buckets_no_padding": (
        "D.from_tensor_slices([[1, 2], [3, 4]]).apply(tf.data.experimental.bucket_by_sequence_length("
        "lambda x: tf.size(x), [3], [2, 2], no_padding=True))"
    ),
    "group_by_reducer": (
        "D.range(10).apply(tf.data.experimental.group_by_reducer(lambda x: x % 3, tf.data.experimental.Reducer("
        "lambda k: (k * 100, 0.), lambda s, x: (s[0] + x, s[1] + 1.), lambda a, b: {'sum': a, 'count': b})))"
    ),
    "choose": (
        "tf.data.experimental.choose_from_datasets([D.from_tensors('a').repeat(), D.from_tensor_slices(['b', 'c'])],"
        " D.from_tensor_slices(np.array([0, 1, 1, 1, 0, 1, 0])))"
    ),
    "sample_one": "tf.data.experimental.sample_from_datasets([D.range(3), D.range(10, 13)], [0., 1.]).take(3)",
    "take_while": "D.range(10).apply(tf.data.experimental.take_while(lambda x: x * x < 20))",
    "unique": "D.from_tensor_slices(['a', 'b', 'a', 'c', 'b']).apply(tf.data.experimental.unique())",
    "dense_to_sparse": (
        "D.range(5).map(lambda x: tf.fill([x], x)).apply(tf.data.experimental.dense_to_sparse_batch(3, [6]))"
        ".map(lambda s: (s.indices, s.values, s.dense_shape))"
    ),
    "dense_to_sparse_longest": (
        "D.range(5).map(lambda x: tf.fill([x, 2], x)).apply(tf.data.experimental.dense_to_sparse_batch(3, [None, 2]))"
        ".map(lambda s: tf.reshape(tf.sparse.to_dense(s), [-1]))"
    ),
    "cache_file": "D.from_tensor_slices(([1, 2], ['a', 'b'], [[.5], [2.]])).cache(tmp + '/cache' + SIDE).repeat(3)",
    "csv": ("tf.data.experimental.CsvDataset(tmp + '/c.csv', [tf.int32, [0.5], [''], tf.int64], header=True)"),
    "csv_selected": (
        "tf.data.experimental.CsvDataset([tmp + '/c.csv'] * 2, [tf.float64, ['none']], header=True, select_cols=[1, 2],"
        " na_value='NA')"
    ),
    "csv_made": (
        "tf.data.experimental.make_csv_dataset(tmp + '/c.csv', 2, label_name='n', num_epochs=1, shuffle=False,"
        " select_columns=['n', 'word', 'x'])"
    ),
    "csv_made_ignoring": (
        "tf.data.experimental.make_csv_dataset(tmp + '/c.csv', 3, num_epochs=1, shuffle=False, ignore_errors=True,"
        " column_defaults=[tf.int32, tf.float32, tf.string, tf.int64])"
    ),
    "examples": (
        "tf.data.experimental.make_batched_features_dataset(tmp + '/e.tfrecord', 2,"
        " {'a': tf.FixedLenFeature([], tf.int64), 'b': tf.FixedLenFeature([2], tf.float32)},"
        " label_key='a', num_epochs=1, shuffle=False)"
    ),
    "texts_parsed": (
        "tf.data.TFRecordDataset(tmp + '/e.tfrecord')"
        ".map(lambda text: tf.parse_single_example(text, {'d': tf.FixedLenFeature([], tf.string, 'no')})['d'])"
        ".batch(2).map(lambda texts: tf.decode_raw(texts, tf.uint8))"
    ),
    "examples_parsed": (
        "tf.data.TFRecordDataset(tmp + '/e.tfrecord').batch(3).apply(tf.data.experimental.parse_example_dataset("
        "{'a': tf.FixedLenFeature([], tf.int64, -1), 'c': tf.VarLenFeature(tf.string)}, 2))"
        ".map(lambda d: (d['a'], tf.sparse.to_dense(d['c'], '')))"
    ),
    "repeat_nothing": "D.range(0).repeat()",
}

REDUCTIONS = {
    "sum": "D.range(5).reduce(np.int64(0), lambda s, x: s + x)",
    "pair": "D.range(5).reduce((np.int64(0), 1.), lambda s, x: (s[0] + x, s[1] * 2.))",
    "growing": "D.range(3).reduce(tf.zeros([0], tf.int64), lambda s, x: tf.concat([s, [x]], 0))",
    "single": "tf.data.experimental.get_single_element(D.range(7).skip(6))",
    "optional": (
        "(lambda o, n: (o.has_value(), o.get_value(), n.has_value()))(tf.data.experimental.Optional.from_value("
        "{'a': [1, 2], 'b': 'x'}), OPTIONAL_NONE)"
    ),
    "next_as_optional": (
        "(lambda i: (lambda a: (a.has_value(), a.get_value()))(tf.data.experimental.get_next_as_optional(i)))("
        "D.range(3, 5).make_one_shot_iterator())"
    ),
    "next_as_optional_end": (
        "tf.data.experimental.get_next_as_optional(D.range(0).make_one_shot_iterator()).has_value()"
    ),
}

ERRORS = {
    "stack": "D.range(1, 3).map(lambda x: tf.fill([x], x)).batch(2)",
    "map_fails": "D.from_tensor_slices([0, 1]).map(lambda x: tf.Assert(x > 0, [x]) and x)",
    "window_size": "D.range(3).apply(tf.data.experimental.group_by_window(lambda x: x, lambda k, w: w, 0))",
    "choice": "tf.data.experimental.choose_from_datasets([D.range(3), D.range(3)], D.range(1, 4))",
    "row_shape": (
        "D.range(3, 5).map(lambda x: tf.fill([x], x)).apply(tf.data.experimental.dense_to_sparse_batch(2, [3]))"
    ),
    "csv_missing": (
        "tf.data.experimental.CsvDataset(tmp + '/c.csv', [tf.int32] + [tf.string] * 3, na_value='NA', header=True)"
    ),
    "csv_number": "tf.data.experimental.CsvDataset(tmp + '/c.csv', [tf.int32, tf.int32, [''], tf.int64], header=True)",
    "csv_more": "tf.data.experimental.CsvDataset(tmp + '/c.csv', [tf.string, tf.string], header=True)",
    "csv_fewer": "tf.data.experimental.CsvDataset(tmp + '/c.csv', [tf.string] * 5, header=True)",
    "csv_quote": "tf.data.experimental.CsvDataset(tmp + '/q.csv', [tf.string] * 2)",
    "csv_open_quote": "tf.data.experimental.CsvDataset(tmp + '/o.csv', [tf.string] * 2)",
    "missing": "tf.data.TextLineDataset('/nowhere/a.txt')",
    "zero_batch": "D.range(3).batch(np.int64(0))",
    "generator_shape": "D.from_generator(lambda: iter([[1, 2]]), tf.int32, [3])",
    "generator_type": "D.from_generator(lambda: iter(['a']), tf.int32, [])",
    "generator_raises": "D.from_generator(lambda: (1 // 0 for _ in range(1)), tf.int32, [])",
    "unequal": "D.from_tensor_slices((tf.placeholder_with_default([1, 2], [None]), [1, 2, 3]))",
    "padding": "D.range(3, 5).map(lambda x: tf.fill([x], x)).padded_batch(2, [2])",
}


def plain(value):
    """A fetched value as JSON."""
    import numpy as np

    if isinstance(value, dict):
        return {key: plain(value[key]) for key in sorted(value)}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    array = np.asarray(value)
    items = [v.decode() if isinstance(v, bytes) else v for v in array.ravel().tolist()]
    return [str(array.dtype), list(array.shape), items]


def run_all(tf, tmp):
    """The outcome of every case."""
    import numpy as np

    found = {}
    for name, text in {**CASES, **ERRORS}.items():
        found[name] = _elements(tf, np, text, tmp)
    for name, text in REDUCTIONS.items():
        with tf.Graph().as_default(), tf.Session() as session:
            scope = {"tf": tf, "np": np, "D": tf.data.Dataset, "tmp": tmp}
            scope["OPTIONAL_NONE"] = tf.data.experimental.get_next_as_optional(
                tf.data.Dataset.range(0).make_one_shot_iterator()
            )
            found[name] = plain(session.run(eval(text, scope)))
    return found


def told(structure):
    """A structure as a text that is the same in all versions of Python, which write an OrderedDict in two ways."""
    if isinstance(structure, dict):
        return f"{type(structure).__name__}({[(key, told(part)) for key, part in structure.items()]})"
    if isinstance(structure, tuple):
        return f"({', '.join(map(told, structure))})"
    return str(structure)


def _elements(tf, np, text, tmp):
    with tf.Graph().as_default(), tf.Session() as session:
        outer = tf.placeholder_with_default(np.int64(7), []) + 1
        scope = {"tf": tf, "np": np, "D": tf.data.Dataset, "tmp": tmp, "OUTER": outer, "SIDE": tf.__name__}
        dataset = eval(text, scope)
        facts = [told(tf.data.get_output_types(dataset)), told(tf.data.get_output_shapes(dataset))]
        iterator = tf.data.make_initializable_iterator(dataset)
        element = iterator.get_next()
        rows = []
        try:
            session.run(iterator.initializer)
            while len(rows) < 100:
                rows.append(plain(session.run(element)))
        except tf.errors.OpError as error:
            return [facts, rows, type(error).__name__, error.message]
    return [facts, rows, "", ""]


def write_files(tmp):
    """The files that cases read."""
    with open(tmp + "/a.txt", "wb") as file:
        file.write(b"one\ntwo\r\n\nlast")
    with open(tmp + "/b.txt", "wb") as file:
        file.write(b"x\ny\n")
    with open(tmp + "/c.csv", "w") as file:
        file.write('n,x,word,big\n1,2.5,"a, ""b""",5000000000\n2,NA,,7\n3,-1e2,"two\nlines",0\n')
    for name, text in (("q", 'a,b"c\n'), ("o", 'a,"b\nc')):
        with open(f"{tmp}/{name}.csv", "w") as file:
            file.write(text)
    with open(tmp + "/b.bin", "wb") as file:
        file.write(b"hABCDEFzz")
