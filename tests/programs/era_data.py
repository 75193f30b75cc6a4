"""Programs with data sets, saved tables and iterators, specs of values and signals, for which TensorFlow has tests."""

from __future__ import annotations

import importlib
import json
import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.programs.era import outcome, program, run


def _numbers(*shape: int, seed: int = 0) -> Any:
    return np.round(np.random.RandomState(seed).uniform(-2, 2, shape), 3).astype(np.float32)


def _elements(tf: Any, data: Any) -> Any:
    """All elements, of a dataset that ends."""
    element, found = data.make_one_shot_iterator().get_next(), []
    with tf.Session() as session:
        while True:
            try:
                found.append(session.run(element))
            except tf.errors.OutOfRangeError:
                return found


@program
def saved_positions_of_iterators(tf: Any) -> Any:
    data, more = tf.data.Dataset, tf.data.experimental
    numbers = lambda: data.range(12)  # noqa: E731
    made = {
        "plain": lambda: numbers().map(lambda x: x * x).batch(2),
        "shuffled": lambda: numbers().shuffle(5, seed=3),
        "repeated": lambda: numbers().shuffle(5, seed=3).repeat(2),
        "fixed": lambda: numbers().shuffle(5, seed=3, reshuffle_each_iteration=False).map(lambda x: x + 1).repeat(2),
        "any order": lambda: numbers().shuffle(12),
        "parallel": lambda: numbers().map(lambda x: x + 1, num_parallel_calls=2).prefetch(3),
        "nested": lambda: numbers().flat_map(lambda x: data.range(x).shuffle(4, seed=2)),
        "drawn": lambda: more.sample_from_datasets([numbers(), numbers().map(lambda x: -x)], [0.5, 0.5], seed=5),
        "numbers": lambda: more.RandomDataset(seed=4).take(12),
        "errors": lambda: numbers().map(lambda x: tf.gather([1, 2, 3, 4], x % 5)),
    }
    found = {name: _broken_off(tf, make) for name, make in made.items()}
    drawn = lambda x: tf.cast(x, tf.float32) + tf.random.uniform([])  # noqa: E731
    found["refused"] = outcome(lambda: _broken_off(tf, lambda: numbers().map(drawn)))
    found["any order"] = [len(found["any order"]), len({*found["any order"]})]
    with tf.Graph().as_default(), tf.Session() as session:
        iterator = numbers().make_initializable_iterator()
        saver = tf.train.Saver([more.make_saveable_from_iterator(iterator)])
        path = os.path.join(tempfile.mkdtemp(), "x")
        found["not initialized"] = outcome(lambda: saver.save(session, path))
        session.run(iterator.initializer)
        path = saver.save(session, path)
        found["keys"] = [name for name, _ in tf.train.list_variables(path)]
    with tf.Graph().as_default(), tf.Session() as session:
        saver = tf.train.Saver([more.make_saveable_from_iterator(numbers().make_initializable_iterator())])
        found["restored first"] = outcome(lambda: saver.restore(session, path))
    return found


def _broken_off(tf: Any, make: Any) -> Any:
    """The elements of a dataset, read in three sessions: each saves its iterator, the next restores it."""
    found, path = [], None
    directory = tempfile.mkdtemp()
    for part in range(3):
        with tf.Graph().as_default(), tf.Session() as session:
            iterator = make().make_initializable_iterator()
            saver = tf.train.Saver([tf.data.experimental.make_saveable_from_iterator(iterator)])
            element = iterator.get_next()
            session.run(iterator.initializer)
            if path is not None:
                saver.restore(session, path)
            for _ in range(5 if part < 2 else 100):
                try:
                    found.append(session.run(element))
                except tf.errors.OutOfRangeError:
                    break
                except tf.errors.InvalidArgumentError:
                    found.append("error")
            path = saver.save(session, os.path.join(directory, "position"))
    return found


@program
def specs_of_values(tf: Any) -> Any:
    module, more = importlib.import_module("tensorflow.python.framework.type_spec"), tf.data.experimental

    class Pair:
        def __init__(self, x: Any, y: Any, color: Any = "red") -> None:
            self.x, self.y, self.color = tf.convert_to_tensor(x), tf.convert_to_tensor(y), color

    class PairSpec(tf.TypeSpec):
        value_type = property(lambda self: Pair)

        def __init__(self, x: Any, y: Any, color: Any = "red") -> None:
            self.x, self.y, self.color = x, y, color

        _component_specs = property(lambda self: (tf.TensorSpec(self.x, tf.int32), tf.TensorSpec(self.y)))

        def _to_components(self, value: Any) -> Any:
            return value.x, value.y

        def _from_components(self, components: Any) -> Any:
            return Pair(*components)

        def _serialize(self) -> Any:
            return self.x, self.y, self.color

    module.register_type_spec_from_value_converter(Pair, lambda pair: PairSpec(pair.x.shape, pair.y.shape, pair.color))
    shape, array = tf.TensorShape, np.array([[1, 2], [3, 4]])
    specs = [PairSpec(shape([5, 3]), shape([3])), PairSpec(shape([5, None]), shape([None])),
             PairSpec(shape(None), shape([3, 4])), PairSpec(shape([5, 3]), shape([3]), {"a": (1, tf.int32)}),
             PairSpec(shape([5, 3]), shape([3]), tf.TensorSpec([4], name="a")), tf.TensorSpec([5, 3]),
             PairSpec(shape([5, 3]), shape([3]), tf.TensorSpec([4], name="b")), tf.TensorSpec([5, None], name="n"),
             tf.SparseTensorSpec([None, 3]), tf.SparseTensorSpec([2, 3]), tf.RaggedTensorSpec([2, None], tf.int32),
             tf.RaggedTensorSpec([3, None], tf.int32), tf.IndexedSlicesSpec([4, 2]), tf.IndexedSlicesSpec([None, 2]),
             more.TensorStructure(tf.int32, [2]), more.SparseTensorStructure(tf.int32, [2]),
             more.RaggedTensorStructure(tf.int32, [2, None], 1)]  # fmt: skip
    arrays = [PairSpec(shape([5, 3]), shape([3]), array + i % 2) for i in range(3)]
    alike = [a == b for a in arrays for b in [*arrays, specs[0]]] + [hash(arrays[0]) == hash(arrays[2])]
    pairs = [(a, b) for a in specs for b in specs]
    found = [[a == b, a.is_compatible_with(b), outcome(lambda a=a, b=b: repr(a.most_specific_compatible_type(b)))]
             for a, b in pairs]  # fmt: skip
    equal = [hash(spec) == hash(type(spec)._deserialize(spec._serialize())) for spec in specs]
    batches = [[outcome(lambda spec=spec, size=size: repr(spec._batch(size))) for size in (7, None)]
               + [outcome(lambda spec=spec: repr(spec._unbatch()))] for spec in specs[-11:]]  # fmt: skip
    pair = Pair([1, 2, 3], [1.0, 2.0])
    spec = module.type_spec_from_value(pair)
    back = spec._from_tensor_list(spec._to_tensor_list(pair))
    sparse, ragged = tf.sparse.eye(3), tf.ragged.constant([[1], [2, 3]])
    slices = tf.IndexedSlices(tf.ones([2, 3]), tf.constant([0, 1]), tf.constant([5, 3]))
    values = [pair, tf.ones([2, 3]), np.ones([2]), [1, 2], "text", sparse, slices, ragged, object()]
    made = [outcome(lambda value=value: repr(module.type_spec_from_value(value))) for value in values]
    parts = [[str(part.shape) for part in module.type_spec_from_value(value)._to_components(value)]
             for value in (sparse, ragged, slices)]  # fmt: skip
    refused = [outcome(lambda tensors=tensors: spec._from_tensor_list(tensors))
               for tensors in ([pair.x], [pair.y, pair.x], [pair.x[:2], pair.y])]  # fmt: skip
    flat = [repr(item) for item in spec._flat_tensor_specs], repr(specs[8]._component_specs), len(sparse.consumers())
    return found, alike, equal, batches, back.x is pair.x, made, parts, refused, flat


@program
def rarer_arguments_of_signals(tf: Any) -> Any:
    signal, found, refused = tf.signal, [], []
    x = _numbers(2, 3, 11)
    unknown = tf.placeholder_with_default(x, None)
    spectrum = tf.cast(tf.constant(_numbers(3, 4)), tf.complex64)
    for axes in (None, 1, -1, [0], [0, 1]):
        found += [tf.math.real(shift(spectrum, axes)) for shift in (signal.fftshift, signal.ifftshift)]
    framed = [signal.frame(unknown, 4, 3, pad_end=end, pad_value=7) for end in (False, True)]
    one = tf.constant(x[0, 0])
    (grad,) = tf.gradients(signal.frame(one, 4, 3), [one])
    found += [*framed, grad, signal.overlap_and_add(framed[0], 3), signal.mfccs_from_log_mel_spectrograms(unknown)]
    stft = signal.stft(unknown, 5, 2, 8)
    found += [tf.math.real(stft), signal.inverse_stft(stft, 5, 2, 8), signal.inverse_stft(stft, 10, 2, 8)]
    for kind, norm in ((1, None), (2, None), (3, None), (2, "ortho"), (3, "ortho")):
        found += [signal.dct(unknown, kind, norm=norm), signal.idct(unknown, kind, norm=norm)]
    bins = tf.placeholder_with_default(33, [])
    found += [signal.linear_to_mel_weight_matrix(7, bins), signal.linear_to_mel_weight_matrix(7, 33, dtype=tf.float64)]
    for shape in ((0,), (2, 0)):
        empty = tf.zeros(shape, tf.complex64)
        found += [tf.shape(f(empty)) for f in (signal.fft, signal.ifft, signal.irfft)] + [signal.rfft(tf.zeros(shape))]
    mel, frame, dct = signal.linear_to_mel_weight_matrix, signal.frame, signal.dct
    for wrong in (lambda: mel(num_spectrogram_bins=0), lambda: mel(num_mel_bins=0), lambda: mel(sample_rate=0.0),
                  lambda: frame(1, 1, 1), lambda: frame([1], [1], 1), lambda: frame([1], 1, [1]),
                  lambda: frame([1], 1, 1, pad_end=True, pad_value=[1]), lambda: dct(x, axis=0), lambda: dct(x, n=-2),
                  lambda: dct(x, norm="bad"), lambda: dct(tf.ones([1]), 1), lambda: dct(x, 5),
                  lambda: dct(x, 1, norm="ortho"),
                  lambda: signal.mfccs_from_log_mel_spectrograms(tf.zeros([2, 0])),
                  lambda: signal.mfccs_from_log_mel_spectrograms(tf.zeros([2, 3], tf.float64)),
                  lambda: signal.rfft(1.0), lambda: signal.rfft([1.0], [[1]])):  # fmt: skip
        refused.append(outcome(lambda wrong=wrong: str(wrong().shape)))
    return run(tf, found), refused, [str(item.shape) for item in found]


@program
def saved_tables(tf: Any) -> Any:
    lookup, found = importlib.import_module("tensorflow.python.ops.lookup_ops"), []
    directory = tempfile.mkdtemp()

    def tables() -> Any:
        words = lookup.MutableHashTable(tf.string, tf.int64, -1, name="words")
        pairs = lookup.DenseHashTable(tf.int64, tf.float32, [0.5, 0.5], 0, -1, 32, name="pairs")
        return words, pairs

    def contents(session: Any, words: Any, pairs: Any) -> Any:
        keys, values = session.run(words.export())
        return sorted(zip(keys.tolist(), values.tolist())), session.run([pairs.lookup([7, 8, 9]), pairs.size()])

    def filled(words: Any, pairs: Any) -> Any:
        return [words.insert(["a", "b"], tf.constant([3, 4], tf.int64)), pairs.insert([7, 8], [[1.0, 2.0], [3.0, 4.0]])]

    for way in ("listed", "objects"):
        path = os.path.join(directory, way)
        for is_new in (True, False):
            with tf.Graph().as_default(), tf.Session() as session:
                words, pairs = tables()
                v = tf.Variable(1.0)
                session.run(tf.global_variables_initializer())
                if way == "objects":
                    checkpoint = tf.train.Checkpoint(words=words, v=v, more=tf.train.Checkpoint(pairs=pairs))
                else:
                    saver = tf.train.Saver([words, pairs, v])
                if is_new:
                    session.run(filled(words, pairs))
                    saved = checkpoint.save(path, session) if way == "objects" else saver.save(session, path)
                    names = [name for name, _ in tf.train.list_variables(saved)]
                    found.append(sorted(name for name in names if not name.startswith("_")))
                    continue
                session.run(
                    [words.insert(["a", "z"], tf.constant([30, 40], tf.int64)), pairs.insert([9], [[5.0, 6.0]])]
                )
                if way == "objects":
                    status = checkpoint.restore(saved).assert_consumed()
                    status.run_restore_ops(session)
                else:
                    saver.restore(session, saved)
                found.append(contents(session, words, pairs))
    return found


@program
def ragged_tensors_in_data(tf: Any) -> Any:
    data, ragged = tf.data.Dataset, tf.RaggedTensor
    deep = lambda: tf.ragged.constant([[[1], [2, 3]], [[4]], []])  # noqa: E731
    rows = lambda x: ragged.from_row_lengths(tf.range(2 * x + 1), [x, x + 1])  # noqa: E731
    pairs = lambda x: ragged.from_row_splits(tf.reshape(tf.range(2 * x), [x, 2]), [0, x])  # noqa: E731
    made = [
        data.from_tensors(deep()), data.from_tensor_slices(deep()), data.from_tensor_slices(deep()).batch(2),
        data.from_tensor_slices({"a": deep(), "b": [1, 2, 3]}).map(lambda d: (d["a"], d["b"])),
        data.from_tensors(tf.ragged.constant_value([["a"], ["b", "c"]])),
        data.from_tensor_slices(tf.ragged.constant([[1.0], [2.0, 3.0]])).batch(2),
        data.range(4).map(rows).batch(3), data.range(4).map(rows).batch(2).unbatch(),
        data.range(3).map(pairs).batch(3), data.range(4).map(rows).batch(2).batch(2, drop_remainder=True),
        data.from_tensor_slices(deep()).filter(lambda x: x.nrows() > 0).repeat(2).shuffle(1),
        data.from_tensor_slices(deep()).window(2).flat_map(lambda w: w.batch(2)).cache(),
        data.from_tensor_slices(deep()).map(lambda x: x.to_tensor(), num_parallel_calls=2).prefetch(1),
        data.range(4).map(lambda x: ragged.from_row_lengths(tf.range(x), [x], validate=False)).take(3),
    ]  # fmt: skip
    found = []
    for way in made:
        structure = [tf.data.get_output_types(way), tf.data.get_output_shapes(way), tf.data.get_output_classes(way)]
        found.append([str(item) for item in structure if "class" not in str(item)])
        iterator = tf.data.Iterator.from_structure(*structure[:2], output_classes=structure[2])
        start, element = iterator.make_initializer(way), iterator.get_next()
        with tf.Session() as session:
            session.run(start)
            while True:
                try:
                    found.append(_listed(session.run(element)))
                except tf.errors.OutOfRangeError:
                    break
    return found, outcome(lambda: data.from_tensor_slices((deep(), [1, 2])))


def _listed(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_listed(item) for item in value]
    return value.to_list() if hasattr(value, "to_list") else value


@program
def rarer_calls_of_data(tf: Any) -> Any:
    data, more, found = tf.data.Dataset, tf.data.experimental, {}
    iterate, spec = tf.data.Iterator.from_structure, tf.TensorSpec
    kinds = [tf.placeholder_with_default(tf.zeros([2, 3]), shape) for shape in (None, [None, 3], [2, 3])]
    shapes = [iterate(tf.float32, shape) for shape in (None, [None, 3], [2, None], [2, 3], [2], [2, 4])]
    found["shapes"] = [[outcome(lambda i=i, x=x: type(i.make_initializer(data.from_tensors(x))).__name__)
                        for x in kinds] for i in shapes]  # fmt: skip
    pair = iterate((tf.int64, tf.float64))
    found["structures"] = [outcome(lambda f=f: type(f()).__name__) for f in (
        lambda: iterate((tf.int64, tf.float64), [None]), lambda: iterate((tf.int64, tf.float64), (None, [])),
        lambda: pair.make_initializer(data.from_tensors(((1, 2.0),))),
        lambda: pair.make_initializer(data.from_tensors(1)),
        lambda: pair.make_initializer(data.from_tensors((np.int32(1), 2.0))),
        lambda: iterate({"a": tf.int64}).make_initializer(data.from_tensors({"b": np.int64(1)})),
    )]  # fmt: skip
    found["handle"] = [pair.string_handle() is pair.string_handle(), pair.string_handle("x").op.name]
    numbers = data.range(5)
    counted = numbers.take, numbers.skip, numbers.repeat, numbers.batch, numbers.prefetch
    found["counts"] = [outcome(lambda f=f: type(f([1, 2])).__name__) for f in counted]
    sparse = tf.SparseTensor([[0, 0], [0, 2], [2, 1]], [1, 2, 3], [3, 4])
    found["sparse"] = [
        [np.asarray(part) for part in item] for item in _elements(tf, data.from_sparse_tensor_slices(sparse))
    ]
    back = more.from_variant(more.to_variant(numbers.batch(2)), spec([None], tf.int64))
    found["variant"] = run(tf, more.get_single_element(back.skip(1).take(1)))
    none = more.Optional.none_from_structure((spec([2], tf.int32), tf.SparseTensorSpec([3])))
    some = more.Optional.from_value({"a": [1.0, 2.0], "b": sparse})
    found["optional"] = [
        str(none.value_structure),
        str(some.value_structure),
        run(tf, [none.has_value(), some.has_value()]),
    ]
    options = tf.data.Options()
    groups = [options.experimental_optimization, options.experimental_stats, options.experimental_threading,
              options.experimental_distribute, options.experimental_optimization.map_vectorization]  # fmt: skip
    found["options"] = [[type(group).__name__, group == type(group)()] for group in groups]
    three, shapes = (
        data.from_tensors([1, 2, 3]),
        ([[1, 1], [1, 1]], tf.constant([1.5, 2.0]), [1], [4], tf.constant([4])),
    )
    found["padded"] = [outcome(lambda s=shape: str(three.padded_batch(5, s).output_shapes)) for shape in shapes]

    def stop(_: Any) -> Any:
        raise StopIteration

    def step(state: Any, x: Any) -> Any:
        return state, tf.cond(x < 2, lambda: x, lambda: tf.py_func(stop, [x], tf.int64))

    for name, way in (("scan", numbers.apply(more.scan(0, step))), ("map", numbers.map(lambda x: step(0, x)[1]))):
        element = way.make_initializable_iterator()
        following = element.get_next()
        with tf.Session() as session:
            session.run(element.initializer)
            found[name] = [outcome(lambda of=session, what=following: of.run(what)) for _ in range(4)]
    return found


@program
def messages_of_tensors_and_graphs(tf: Any) -> Any:
    made = [tf.make_tensor_proto([10.0, 20.0, 30.0], shape=shape) for shape in ([1, 3], [3, 1], [3], [4])]
    made += [tf.make_tensor_proto([1, 2, 3, 4], shape=[2, 2]), tf.make_tensor_proto(7, shape=[2, 2])]
    found: Any = [[len(item.tensor_content), len(item.float_val), len(item.int_val)] for item in made]
    x = tf.constant([1.0, 2.0], name="x")
    checked = tf.debugging.check_numerics(x, "wrong", name="checked")
    with tf.control_dependencies([checked]):
        tf.add(tf.identity(x, name="copy"), 1.0, name="y")
    graph = tf.graph_util.remove_training_nodes(x.graph.as_graph_def())
    found.append([[node.name, list(node.input)] for node in graph.node])
    bare = tf.GraphDef()
    bare.node.add(name="a", op="Identity", input=["b"])
    found.append(str(tf.graph_util.remove_training_nodes(bare)))
    return found


@program
def warm_starts_from_objects(tf: Any) -> Any:
    directory, found = tempfile.mkdtemp(), []
    with tf.Graph().as_default(), tf.Session() as session:
        fruit, size = tf.get_variable("fruit", initializer=[[0.5], [1.5]]), tf.get_variable("size", initializer=[3.0])
        session.run(tf.global_variables_initializer())
        tf.train.Checkpoint(v=fruit, deep=tf.train.Checkpoint(w=size)).save(os.path.join(directory, "x"), session)
    suffix = "/.ATTRIBUTES/VARIABLE_VALUE"
    for named in ({}, {"other": f"deep/w{suffix}", "fruit": f"v{suffix}"}):
        with tf.Graph().as_default(), tf.Session() as session:
            fruit = tf.get_variable("fruit", initializer=[[0.0], [0.0]])
            size = tf.get_variable("other" if named else "size", initializer=[0.0])
            tf.train.warm_start(directory, var_name_to_prev_var_name=named)
            session.run(tf.global_variables_initializer())
            found.append(session.run([fruit, size]))
    return found


@program
def files_whose_paths_have_a_scheme(tf: Any) -> Any:
    """``file://`` before the path of what is read and written."""
    folder = tempfile.mkdtemp()
    home, found = "file://" + folder, {}
    with open(folder + "/words.txt", "w") as file:
        file.write("one\ntwo\n")
    words = home + "/words.txt"
    queue = tf.FIFOQueue(4, [tf.string], [[]])
    table = tf.contrib.lookup.index_table_from_file(words)
    dataset = tf.data.Dataset.list_files(home + "/w*", shuffle=False)
    variable = tf.Variable(2.0, name="v")
    x = tf.placeholder(tf.float32, name="x")
    y, saver = tf.add(x, variable, name="y"), tf.train.Saver()
    fetches = {
        "read": tf.read_file(words), "matching": tf.matching_files([home + "/w*", folder + "/w*"]),
        "lines": tf.data.TextLineDataset(words).make_one_shot_iterator().get_next(),
        "pieces": tf.data.FixedLengthRecordDataset(words, 2).make_one_shot_iterator().get_next(),
        "list": dataset.make_one_shot_iterator().get_next(), "table": table.lookup(tf.constant(["two", "none"])),
        "reader": tf.TextLineReader().read(queue), "whole": tf.WholeFileReader().read(queue),
    }  # fmt: skip
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.tables_initializer(), queue.enqueue_many([[words] * 2])])
        found = {name: session.run(fetch) for name, fetch in fetches.items()}
        session.run(tf.write_file(home + "/new/file", "x"))
        saved = saver.save(session, home + "/model", 1)
        saver.restore(session, saved)
        tf.saved_model.simple_save(session, home + "/exported", {"x": x}, {"y": y})
    with tf.python_io.TFRecordWriter(home + "/records") as records:
        records.write(b"abc")
    with tf.summary.FileWriter(home + "/logs") as writer:
        writer.add_summary(tf.Summary(), 1)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.saved_model.loader.load(session, ["serve"], home + "/exported")
        found["loaded"] = session.run("y:0", {"x:0": 1.0})
    found["paths"] = [saved, tf.train.latest_checkpoint(home), tf.io.write_graph(tf.Graph(), home + "/graph", "g.pb")]
    found["known"] = [tf.train.checkpoint_exists(saved), tf.saved_model.loader.maybe_saved_model_directory(home)]
    found["records"] = list(tf.python_io.tf_record_iterator(home + "/records"))
    found["files"] = [sorted(os.listdir(os.path.join(folder, name))) for name in ("", "new", "exported")]
    return json.loads(str(json.dumps(found, default=_as_text, sort_keys=True)).replace(folder, "FOLDER"))


def _as_text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value.tolist()


@program
def tensor_arrays_in_elements(tf: Any) -> Any:
    data = tf.data.Dataset

    def counted(i: Any) -> Any:
        count = tf.cast(i, tf.int32)
        return tf.TensorArray(tf.int32, element_shape=(), size=count).unstack(tf.range(count))

    made = [
        lambda: data.range(4).map(counted),
        lambda: data.range(4).map(lambda i: {"a": counted(i), "b": i}).map(lambda x: x),
        lambda: data.range(4).map(counted).flat_map(lambda x: data.from_tensor_slices(x.stack())),
        lambda: data.from_tensors(tf.TensorArray(tf.float32, element_shape=(), size=2).unstack([1.0, 2.0])),
        lambda: data.range(5).map(counted).filter(lambda x: x.size() > 1).shuffle(2, seed=1).repeat(2).cache(),
    ]
    found: list[Any] = []
    for make in made:
        with tf.Graph().as_default(), tf.Session() as session:
            iterator = make().make_initializable_iterator()
            element = iterator.get_next()
            parts = element if isinstance(element, dict) else {"": element}
            parts = {key: part.stack() if isinstance(part, tf.TensorArray) else part for key, part in parts.items()}
            session.run(iterator.initializer)
            try:
                while True:
                    found.append({key: part.tolist() for key, part in session.run(parts).items()})
            except tf.errors.OutOfRangeError:
                found.append("end")
    return found


@program
def methods_of_ragged_tensors(tf: Any) -> Any:
    ragged, sparse = tf.RaggedTensor, tf.SparseTensor
    flat, deep = (
        tf.ragged.constant([[1, 2], [], [3, 4, 5]]),
        tf.ragged.constant([[[1, 2], []], [[3]], []], ragged_rank=2),
    )
    pairs = tf.ragged.constant([[[1, 2], [3, 4]], [[5, 6]]], ragged_rank=1)
    nested = ragged.from_nested_value_rowids
    narrow = deep.with_row_splits_dtype("int32")
    tf.identity(flat.values, name="x"), tf.identity(flat.row_splits, name="y")
    consumers = sorted(one.name for one in flat.consumers())
    ways: list[Callable[[], Any]] = [
        lambda: ragged.from_sparse(sparse([[0, 0], [0, 1], [2, 0]], [1, 2, 3], [4, 3])),
        lambda: ragged.from_sparse(sparse(np.zeros([0, 2]), [], [2, 3]), row_splits_dtype=tf.int32),
        lambda: ragged.from_sparse(sparse([[0, 1]], [1], [1, 3])),
        lambda: ragged.from_sparse(sparse([[0, 0], [0, 2]], [1, 2], [1, 3])),
        lambda: ragged.from_sparse(sparse([[0, 0, 0]], [1], [1, 3, 3])),
        lambda: ragged.from_sparse(tf.sparse_placeholder(tf.int32)), lambda: ragged.from_sparse(flat),
        *(lambda t=t, a=a: t.bounding_shape(axis=a) for t in (flat, deep, pairs) for a in (None, 0, 1, [0, 1], 5)),
        deep.nested_value_rowids, flat.nested_value_rowids, lambda: narrow, narrow.bounding_shape, narrow.nrows,
        lambda: flat.with_row_splits_dtype(tf.float32), lambda: flat.with_row_splits_dtype(tf.int64) is flat,
        lambda: nested([1, 2, 3], [[0, 2], [0, 1, 1]]), lambda: nested([1, 2, 3], [[0, 0, 2], [0, 1, 1]], [5, 3]),
        lambda: nested([1, 2, 3], [[0, 0, 2], [0, 1, 1]], validate=False), lambda: nested([1], [[0]], [5, 3]),
        lambda: nested([1], tf.constant([[0]])), lambda: nested([1], [[0]], tf.constant([1])),
        lambda: consumers, flat.to_list,
        lambda: repr(tf.SparseTensorSpec.from_value(sparse([[0, 0]], [1], [4, 3]))),
        lambda: repr(tf.SparseTensorSpec.from_value(tf.SparseTensorValue([[0, 0]], np.ones(1), [4, 3]))),
        lambda: tf.SparseTensorSpec.from_value(3),
    ]  # fmt: skip

    def value(way: Callable[[], Any]) -> Any:
        made = way()
        if isinstance(made, ragged):
            return [run(tf, made).to_list(), made.row_splits.dtype.name, made.shape.as_list()]
        return made if isinstance(made, (bool, str, list)) else run(tf, made)

    return [outcome(lambda way=way: value(way)) for way in ways]
