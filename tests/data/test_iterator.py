"""Iterators: starting anew, feeding handles, the end, state in functions, threads that end, clusters, GraphDefs."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.data.elements import drain
from tfmini.data import structure
from tfmini.testing import ProcessCluster

Dataset = tf.data.Dataset


def test_initializable_iterator_starts_again() -> None:
    limit = tf.placeholder(tf.int64, [])
    iterator = Dataset.range(limit).make_initializable_iterator()
    element = iterator.get_next()
    with tf.Session() as session:
        with pytest.raises(tf.errors.FailedPreconditionError, match="has not been initialized"):
            session.run(element)
        for count in (2, 4):
            session.run(iterator.initializer, {limit: count})
            assert drain(session, element) == list(range(count))
            assert drain(session, element) == []


def test_reinitializable_iterator_takes_two_datasets() -> None:
    first, second = Dataset.range(3), Dataset.range(10, 12)
    iterator = tf.data.Iterator.from_structure(first.output_types, first.output_shapes)
    element = iterator.get_next()
    use_first, use_second = iterator.make_initializer(first), iterator.make_initializer(second)
    with tf.Session() as session:
        session.run(use_first)
        assert session.run(element) == 0
        session.run(use_second)
        assert drain(session, element) == [10, 11]
    with pytest.raises(TypeError, match="Expected output types"):
        iterator.make_initializer(Dataset.from_tensors(1.0))
    with pytest.raises(ValueError, match="does not have an initializer"):
        _ = iterator.initializer


def test_a_fed_handle_chooses_the_iterator_of_the_step() -> None:
    training = Dataset.range(3).make_one_shot_iterator()
    validation = Dataset.range(10, 12).make_initializable_iterator()
    handle = tf.placeholder(tf.string, [])
    iterator = tf.data.Iterator.from_string_handle(handle, tf.int64, [])
    element = iterator.get_next()
    with tf.Session() as session:
        a, b = session.run([training.string_handle(), validation.string_handle()])
        session.run(validation.initializer)
        assert [session.run(element, {handle: h}) for h in (a, b, a, b)] == [0, 10, 1, 11]
        wrong = tf.data.Iterator.from_string_handle(handle, tf.float32, []).get_next()
        with pytest.raises(tf.errors.InvalidArgumentError, match="Number of components"):
            session.run(wrong, {handle: a})
        with pytest.raises(tf.errors.InvalidArgumentError, match="Could not parse string_handle"):
            session.run(element, {handle: "nobody"})
        with tf.device("/cpu:1"):
            other = tf.data.Iterator.from_string_handle(handle, tf.int64, []).get_next()
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        text = session.run(training.string_handle())
        with pytest.raises(tf.errors.InvalidArgumentError, match='device:CPU:1" from handle defined on device .*CPU:0'):
            session.run(other, {handle: text})


def test_sessions_of_one_graph_have_iterators_of_their_own() -> None:
    element = Dataset.range(2).make_one_shot_iterator().get_next()
    for _ in range(2):
        with tf.Session() as session:
            assert drain(session, element) == [0, 1]


def _one_shot(dataset: Any) -> Any:
    return tf.data.make_one_shot_iterator(dataset).get_next()


def test_a_one_shot_iterator_may_be_made_in_branches() -> None:
    """Elements are taken only when the branch is; what enters the branch from outside may belong to the dataset."""
    taken, ten = tf.placeholder(tf.bool, []), tf.constant(10, tf.int64) * 1
    simple = tf.cond(taken, lambda: _one_shot(Dataset.range(3).map(lambda x: x + 1)), lambda: ten)
    nested = tf.cond(
        taken, lambda: tf.cond(taken, lambda: _one_shot(Dataset.range(ten).map(lambda x: x + ten)), lambda: ten),
        lambda: -ten,
    )  # fmt: skip
    waiting = tf.cond(taken, lambda: _one_shot(Dataset.from_generator(lambda: iter([5, 6, 7]), tf.int32)), lambda: 0)
    with tf.Session() as session:
        found = [session.run([simple, nested, waiting], {taken: value}) for value in (True, False, True)]
    assert found == [[1, 10, 5], [10, -10, 0], [2, 11, 6]]


def test_a_one_shot_iterator_may_be_made_in_loops() -> None:
    start, five = tf.constant(0, tf.int64), tf.constant(5, tf.int64) * 1

    def body(i: Any, total: Any) -> Any:
        odd = tf.cond(tf.equal(i % 2, 1), lambda: _one_shot(Dataset.range(100, 105)), lambda: start)
        return i + 1, total + odd + _one_shot(Dataset.range(4).map(lambda x: x * five))

    result = tf.while_loop(lambda i, _: i < 4, body, [0, start])[1]
    with tf.Session() as session:
        assert session.run(result) == 100 + 101 + 5 * (0 + 1 + 2 + 3)


def test_a_one_shot_iterator_of_a_loop_variable_is_refused() -> None:
    def body(i: Any, total: Any) -> Any:
        return i + 1, _one_shot(Dataset.range(4).map(lambda x: x * total))

    with pytest.raises(ValueError, match="a loop variable, which has another value in each iteration"):
        tf.while_loop(lambda i, _: i < 4, body, [0, tf.constant(0, tf.int64)])


def test_a_one_shot_iterator_of_what_a_cond_returns() -> None:
    known = tf.constant(False)
    source = tf.cond(known, lambda: tf.constant(3), lambda: tf.constant(7))
    with tf.Session() as session:
        assert session.run(_one_shot(Dataset.from_tensors(source))) == 7


def test_one_shot_iterator_refuses_placeholders_and_variables() -> None:
    text = "does not support datasets that capture stateful objects"
    with pytest.raises(ValueError, match=text):
        Dataset.range(tf.placeholder(tf.int64, [])).make_one_shot_iterator()
    variable = tf.get_variable("v", [], tf.int64, use_resource=True)
    with pytest.raises(ValueError, match=text):
        Dataset.range(3).map(lambda x: x + variable).make_one_shot_iterator()


@pytest.mark.parametrize("use_resource", [False, True])
def test_a_function_captures_variables_and_tables(use_resource: bool) -> None:
    variable = tf.get_variable("v", [], tf.int64, tf.constant_initializer(5), use_resource=use_resource)
    table = tf.contrib.lookup.index_table_from_tensor(["a", "b"])
    words = Dataset.from_tensor_slices(["b", "a"]).map(lambda word: table.lookup(word) + variable)
    iterator = words.make_initializable_iterator()
    element = iterator.get_next()
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        session.run(iterator.initializer)
        assert drain(session, element) == [6, 5]


def test_effects_in_a_function_happen_once_per_element() -> None:
    counter = tf.get_variable("c", [], tf.int64, tf.zeros_initializer(), use_resource=True)

    def count(x: Any) -> Any:
        counter.assign_add(x)
        return x

    iterator = Dataset.range(4).map(count).make_initializable_iterator()
    element = iterator.get_next()
    with tf.Session() as session:
        session.run([counter.initializer, iterator.initializer])
        drain(session, element)
        assert session.run(counter) == 6


def test_an_error_fails_one_read_only() -> None:
    data = Dataset.from_tensor_slices([1.0, 0.0, 4.0]).map(lambda x: tf.check_numerics(1 / x, "bad"))
    element = data.prefetch(1).make_one_shot_iterator().get_next()
    with tf.Session() as session:
        assert session.run(element) == 1.0
        with pytest.raises(tf.errors.InvalidArgumentError, match="bad"):
            session.run(element)
        assert session.run(element) == 0.25


# ---- order ----------------------------------------------------------------------------------


def shuffled(count: int = 1, **arguments: Any) -> list[Any]:
    with tf.Graph().as_default():
        iterator = Dataset.range(20).shuffle(20, **arguments).repeat(count).make_initializable_iterator()
        element = iterator.get_next()
        with tf.Session() as session:
            session.run(iterator.initializer)
            return drain(session, element)


def test_shuffle_is_a_permutation_that_the_seed_fixes() -> None:
    first = shuffled(seed=3)
    assert sorted(first) == list(range(20)) != first
    assert shuffled(seed=3) == first
    assert shuffled(seed=4) != first
    assert shuffled() != shuffled()


def test_shuffle_reshuffles_each_repetition_unless_told_otherwise() -> None:
    both = shuffled(2, seed=3)
    assert both[:20] != both[20:]
    assert sorted(both[:20]) == sorted(both[20:])
    same = shuffled(2, seed=3, reshuffle_each_iteration=False)
    assert same[:20] == same[20:]


def test_shuffle_moves_elements_within_its_buffer() -> None:
    element = Dataset.range(50).shuffle(5, seed=1).make_one_shot_iterator().get_next()
    with tf.Session() as session:
        values = drain(session, element)
    assert all(value <= i + 4 for i, value in enumerate(values))


def test_list_files_is_shuffled_by_default(tmp_path: Any) -> None:
    for i in range(6):
        (tmp_path / f"{i}.txt").write_text("x")
    element = Dataset.list_files(str(tmp_path / "*.txt"), seed=2).make_one_shot_iterator().get_next()
    with tf.Session() as session:
        found = drain(session, element)
    assert sorted(found) == [str(tmp_path / f"{i}.txt").encode() for i in range(6)]


# ---- generators and threads -----------------------------------------------------------------


def test_from_generator_starts_again_with_the_iterator() -> None:
    starts = []

    def numbers() -> Iterator[int]:
        starts.append(1)
        yield from range(3)

    element = Dataset.from_generator(numbers, tf.int32, []).repeat(2).make_one_shot_iterator().get_next()
    with tf.Session() as session:
        assert drain(session, element) == [0, 1, 2, 0, 1, 2]
    assert len(starts) == 2
    with pytest.raises(TypeError, match="must be callable"):
        Dataset.from_generator(range(3), tf.int32)


def test_a_refused_element_of_a_generator_fails_one_read_only() -> None:
    element = Dataset.from_generator(lambda: iter([1, "x", 3]), tf.int32, []).make_one_shot_iterator().get_next()
    with tf.Session() as session:
        assert session.run(element) == 1
        with pytest.raises(tf.errors.InvalidArgumentError, match="could not be converted to the expected type"):
            session.run(element)
        assert session.run(element) == 3


def test_a_fed_array_may_change_after_initialization() -> None:
    array = np.arange(3)
    given = tf.placeholder(tf.int64, [3])
    iterator = Dataset.from_tensor_slices(given).make_initializable_iterator()
    element = iterator.get_next()
    with tf.Session() as session:
        session.run(iterator.initializer, {given: array})
        array[:] = 9
        assert drain(session, element) == [0, 1, 2]


def _prefetchers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith(("tfmini-prefetch", "tfmini-map"))]


def test_threads_end_with_the_session() -> None:
    data = Dataset.range(10**9).map(lambda x: x + 1, num_parallel_calls=2).prefetch(2)
    iterator = data.make_initializable_iterator()
    element = iterator.get_next()
    with tf.Session() as session:
        session.run(iterator.initializer)
        assert session.run(element) == 1
        first = _prefetchers()
        session.run(iterator.initializer)  # the first reading ends
        assert session.run(element) == 1
        assert first
    del session
    gc.collect()
    for thread in _prefetchers():
        thread.join(60)
    assert not _prefetchers()


def test_a_parallel_map_needs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread can be started, as when the process ends, the reader makes the calls."""
    start, refused = threading.Thread.start, list[str]()

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("tfmini-map"):
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    data = Dataset.range(3).map(lambda x: tf.py_func(lambda n: n + 1, [x], tf.int64), num_parallel_calls=2)
    element = data.make_one_shot_iterator().get_next()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with tf.Session() as session:
        assert drain(session, element) == [1, 2, 3]
    assert refused


# ---- elsewhere ------------------------------------------------------------------------------


def _pipeline() -> Any:
    scale = tf.placeholder_with_default(np.int64(3), [])
    data = Dataset.range(6).map(lambda x: x * scale).filter(lambda x: x > 3)
    data = data.flat_map(lambda x: Dataset.from_tensors(x).map(lambda y: y + 1)).batch(2)
    return data.make_initializable_iterator()


def test_a_pipeline_runs_on_another_task() -> None:
    with ProcessCluster(ps=1, workers=1, local=("worker", 0)) as cluster:
        with tf.device("/job:ps/task:0/cpu:0"):
            iterator = _pipeline()
            element = iterator.get_next()
        with tf.Session(cluster.server.target) as session:
            session.run(iterator.initializer)
            assert [row.tolist() for row in drain(session, element + 1)] == [[8, 11], [14, 17]]


def _range_on(device: str) -> Any:
    with tf.device(device):
        return Dataset.range(3)


def _iterated(dataset: Any) -> tuple[Any, list[Any]]:
    iterator = dataset.make_initializable_iterator()
    return iterator.get_next(), [iterator.initializer]


def _optional() -> tuple[Any, list[Any]]:
    with tf.device(_PS):
        iterator = Dataset.range(3).make_initializable_iterator()
        optional = tf.data.experimental.get_next_as_optional(iterator)
    return (optional.has_value(), optional.get_value()), [iterator.initializer]


def _structured() -> tuple[Any, list[Any]]:
    iterator = tf.data.Iterator.from_structure(tf.int64, [])
    return iterator.get_next(), [iterator.make_initializer(_range_on(_PS)), iterator.make_initializer(_range_on(""))]


def _captured() -> tuple[Any, list[Any]]:
    data = _range_on(_PS)
    return _iterated(Dataset.range(2).flat_map(lambda x: data))


def _added() -> tuple[Any, list[Any]]:
    with tf.device(_PS):
        one = tf.get_variable("one", [], tf.int64, tf.ones_initializer(), use_resource=False)
    return _iterated(_range_on(_WORKER).map(lambda x: x + one))


_PS, _WORKER = "/job:ps/task:0", "/job:worker/task:0"
ACROSS: dict[str, tuple[Callable[[], tuple[Any, list[Any]]], Any]] = {
    "chain": (lambda: _iterated(_range_on(_PS).map(lambda x: x * 2).skip(1)), 2),
    "zip": (lambda: _iterated(Dataset.zip((_range_on(_PS), _range_on(_WORKER)))), (0, 0)),
    "concatenate": (lambda: _iterated(_range_on(_WORKER).concatenate(_range_on(_PS))), 0),
    "captured": (_captured, 0),
    "single": (lambda: (tf.data.experimental.get_single_element(_range_on(_PS).take(1)), []), 0),
    "reduce": (lambda: (_range_on(_PS).reduce(tf.constant(0, tf.int64), lambda x, y: x + y), []), 3),
    "optional": (_optional, (True, 0)),
    "structure": (_structured, 0),
    "reference variable": (_added, 1),
}


def test_datasets_and_optionals_are_used_across_tasks() -> None:
    """They are built where they are used; what the iterator gives is sent."""
    with ProcessCluster(ps=1, workers=1, local=("worker", 0)) as cluster:
        for name, (build, expected) in ACROSS.items():
            with tf.Graph().as_default():
                with tf.device(_WORKER):
                    fetch, initializers = build()
                with tf.Session(cluster.server.target) as session:
                    session.run(tf.global_variables_initializer())
                    session.run(initializers[:1])
                    session.run(initializers[1:])
                    assert session.run(fetch) == expected, name


def test_a_dataset_that_uses_state_of_another_task_is_refused() -> None:
    with tf.device(_PS):
        variable = tf.get_variable("far", [], tf.int64, tf.ones_initializer(), use_resource=True)
    with tf.device(_WORKER):
        element, (initializer,) = _iterated(Dataset.range(3).map(lambda x: x + variable))
    where = r"has to be on /job:ps/task:0 \(because of far\), but 'MakeIterator' on /job:worker/task:0 \(because of"
    with (
        ProcessCluster(ps=1, workers=1, local=("worker", 0)) as cluster,
        tf.Session(cluster.server.target) as session,
        pytest.raises(tf.errors.InvalidArgumentError, match=where),
    ):
        session.run(initializer)


def test_a_string_handle_names_one_iterator_of_one_session() -> None:
    handle = tf.placeholder(tf.string, [])
    iterator = Dataset.range(3).make_initializable_iterator()
    named = tf.data.Iterator.from_string_handle(handle, tf.int64, []).get_next()
    text = iterator.string_handle()
    handles = []
    for _ in range(2):
        with tf.Session() as session:
            session.run(iterator.initializer)
            handles.append(session.run(text))
            assert session.run(named, {handle: handles[-1]}) == 0 and session.run(text) == handles[-1]
    assert handles[0] != handles[1]
    with tf.Session() as session, pytest.raises(tf.errors.NotFoundError, match="one session: run string_handle"):
        session.run(named, {handle: handles[0]})


@pytest.mark.parametrize("shared_name", [None, "shared"])
def test_the_string_handle_of_a_sessions_own_iterator_ends_with_the_session(shared_name: str | None) -> None:
    handle = tf.placeholder(tf.string, [])
    iterator = Dataset.range(3).make_initializable_iterator(shared_name)
    named = tf.data.Iterator.from_string_handle(handle, tf.int64, []).get_next()
    with tf.train.Server.create_local_server() as server:
        with tf.Session(server.target) as session:
            text = session.run([iterator.string_handle(), iterator.initializer])[0]
            assert session.run(named, {handle: text}) == 0
        with tf.Session(server.target) as session:
            if shared_name:
                assert session.run(named, {handle: text}) == 1
            else:
                with pytest.raises(tf.errors.NotFoundError, match="No iterator on this task has the string handle"):
                    session.run(named, {handle: text})


@pytest.mark.parametrize("isolate", [False, True])
def test_the_end_of_a_session_ends_no_iterator_of_another_one(isolate: bool) -> None:
    """A one-shot iterator began again, without a word; a shared one outlives the session that has initialised it."""
    once = Dataset.range(5).prefetch(1).make_one_shot_iterator().get_next()
    iterator = Dataset.range(5).make_initializable_iterator("shared")
    shared = iterator.get_next()
    with tf.train.Server.create_local_server() as server, tf.Session(server.target) as other:
        with tf.Session(server.target, config=tf.ConfigProto(isolate_session_state=isolate)) as session:
            session.run(iterator.initializer)
            assert session.run([once, shared]) == [0, 0]
            if isolate:
                other.run(iterator.initializer)
            assert other.run([once, shared]) == [0, 0 if isolate else 1]
        assert other.run([once, shared]) == [1, 1 if isolate else 2]
        assert other.run(once) == 2


def test_a_pipeline_survives_a_graph_def() -> None:
    iterator = _pipeline()
    iterator.get_next(name="element")
    once = Dataset.range(4).map(lambda x: x * 2).make_one_shot_iterator()
    once.get_next(name="once")
    text = tf.get_default_graph().as_graph_def().SerializeToString()
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(tf.GraphDef.FromString(text), name="")
        with tf.Session() as session:
            session.run(graph.get_operation_by_name(iterator.initializer.name))
            assert [row.tolist() for row in drain(session, "element:0")] == [[7, 10], [13, 16]]
            assert drain(session, "once:0") == [0, 2, 4, 6]


def test_wrong_arguments_of_datasets_are_refused() -> None:
    data = Dataset.range(3)
    with pytest.raises(ValueError, match="scalar boolean"):
        data.filter(lambda x: x)
    with pytest.raises(TypeError, match="must return a `Dataset`"):
        data.flat_map(lambda x: x)
    with pytest.raises(TypeError, match="different types"):
        data.concatenate(Dataset.from_tensors("a"))
    with pytest.raises(TypeError, match="do not support Python lists"):
        Dataset.zip([data, data])
    with pytest.raises(TypeError, match="must return a Dataset"):
        data.apply(lambda d: 3)
    for wrong in (
        lambda: Dataset.from_tensor_slices(([1, 2], [1, 2, 3])),
        lambda: Dataset.from_tensors(([1, 2], [1, 2, 3])).unbatch(),
    ):
        with pytest.raises(ValueError, match="Dimensions 2 and 3 are not compatible"):
            wrong()
    with pytest.raises(ValueError, match=r"The padded shape \(1,\) is not compatible with .* component shape \(\)"):
        data.padded_batch(2, [1])


def test_wrong_arguments_of_file_datasets_are_refused() -> None:
    unequal = Dataset.from_tensors((tf.placeholder_with_default([1, 2], [None]), [1, 2, 3]))
    for data, text in [
        (Dataset.range(3).shard(2, 2), "Index must be between 0 and 1"),
        (unequal.unbatch(), "must have the same batch size in each component"),
    ]:
        iterator = data.make_initializable_iterator()
        element = iterator.get_next()
        with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match=text):
            session.run(iterator.initializer)
            session.run(element)


def test_a_function_may_wait_for_other_steps() -> None:
    queue = tf.FIFOQueue(3, [tf.int64], [[]])
    count = tf.get_variable("count", initializer=0, use_resource=True)
    section = tf.CriticalSection(name="section")
    taken = Dataset.range(3).map(lambda x: x + queue.dequeue()).make_initializable_iterator()
    counted = Dataset.range(9).map(lambda x: section.execute(lambda: tf.identity(count.assign_add(1))))
    each = counted.make_initializable_iterator()
    element, value, put = taken.get_next(), each.get_next(), queue.enqueue_many([[10, 20]])
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), each.initializer, taken.initializer])
        assert [session.run(value) for _ in range(3)] == [1, 2, 3]
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(element, options=tf.RunOptions(timeout_in_ms=200))
        session.run(put)
        assert [session.run(element) for _ in range(2)] == [10, 21]


def test_options_are_inherited() -> None:
    options = tf.data.Options()
    options.experimental_deterministic = False
    data = Dataset.range(3).with_options(options).map(lambda x: x)
    assert data.options().experimental_deterministic is False
    assert data.options().experimental_slack is None
    other = tf.data.Options()
    other.experimental_optimization.autotune = True
    both = Dataset.zip((data, Dataset.range(2).with_options(other))).options()
    assert both.experimental_deterministic is False and both.experimental_optimization.autotune is True
    contrary = tf.data.Options()
    contrary.experimental_deterministic = True
    with pytest.raises(ValueError, match="Cannot merge incompatible values False and True"):
        data.with_options(contrary)


def test_misspelt_options_are_refused() -> None:
    options = tf.data.Options()
    with pytest.raises(AttributeError, match="Cannot set the property experimental_determinism on Options"):
        options.experimental_determinism = False
    with pytest.raises(AttributeError):
        print(options.experimental_optimization.map_fusing)
    with pytest.raises(TypeError, match="\"private_threadpool_size\" must be of type <class 'int'>"):
        options.experimental_threading.private_threadpool_size = "2"


def test_seeded_numbers_begin_anew_with_the_iterator() -> None:
    data = Dataset.range(4).map(lambda _: tf.random_uniform([], seed=11)).repeat(2)
    iterator = data.make_initializable_iterator()
    element = iterator.get_next()
    with tf.Session() as session:
        runs = []
        for _ in range(2):
            session.run(iterator.initializer)
            runs.append(drain(session, element))
    assert runs[0] == runs[1] and len(set(runs[0])) == 8


def test_an_error_in_a_window_fails_that_window_only() -> None:
    data = Dataset.from_tensor_slices([1.0, 2.0, 3.0, float("nan"), 5.0])
    windows = data.map(lambda x: tf.check_numerics(x, "bad")).window(2).flat_map(lambda w: w.batch(2))
    element = windows.apply(tf.data.experimental.ignore_errors()).make_one_shot_iterator().get_next()
    with tf.Session() as session:
        assert [row.tolist() for row in drain(session, element)] == [[1, 2], [5]]


def test_a_function_may_end_the_dataset() -> None:
    def first(i: Any) -> Any:
        if i >= 3:
            raise StopIteration
        return i

    numbers = Dataset.range(8)

    def asked(x: Any) -> Any:
        return tf.py_func(first, [x], tf.int64)

    for calls in (None, 2):
        element = numbers.map(asked, calls).make_one_shot_iterator().get_next()
        with tf.Session() as session:
            assert drain(session, element) == [0, 1, 2]
    batches = numbers.apply(tf.data.experimental.map_and_batch(asked, 2))
    element = batches.make_one_shot_iterator().get_next()
    with tf.Session() as session:
        assert session.run(element).tolist() == [0, 1]
        for _ in range(3):
            with pytest.raises(tf.errors.InvalidArgumentError, match="Function invocation produced OutOfRangeError"):
                session.run(element)
        assert drain(session, element) == []


def test_an_iterator_that_is_not_read_further_is_freed() -> None:
    ended = threading.Event()

    def numbers() -> Iterator[int]:
        try:
            yield from range(100)
        finally:
            ended.set()

    element = Dataset.from_generator(numbers, tf.int64, []).take(2).make_one_shot_iterator().get_next()
    with tf.Session() as session:
        assert drain(session, element) == [0, 1]
        assert ended.wait(60)


def test_the_specs_of_elements_are_those_of_1_15() -> None:
    dataset = tf.data.Dataset.from_tensors({"a": tf.zeros([2, 3]), "b": tf.SparseTensor([[0, 0]], [1], [2, 2])})
    found = tf.data.experimental.get_structure(dataset.batch(3))
    assert found["a"] == tf.TensorSpec([None, 2, 3], tf.float32)
    assert found["b"] == tf.SparseTensorSpec([None, 2, 2], tf.int32)
    assert tf.data.make_one_shot_iterator(dataset).element_spec["a"] == tf.TensorSpec([2, 3], tf.float32)
    windows = tf.data.experimental.get_structure(Dataset.range(3).window(2))
    assert windows == tf.data.DatasetSpec(tf.TensorSpec([], tf.int64))
    with pytest.raises(TypeError, match="Dataset or Iterator"):
        tf.data.experimental.get_structure(3)


def test_what_libraries_ask_about_the_structure_of_elements() -> None:
    sparse = tf.SparseTensorValue(np.array([[0, 0]]), np.array([1.0]), np.array([2, 2]))
    specs = structure.type_spec_from_value({"a": np.zeros(3, np.int8), "b": sparse})
    assert specs == {"a": tf.TensorSpec([3], tf.int8), "b": tf.SparseTensorSpec([2, 2], tf.float64)}
    assert structure.get_flat_tensor_types(specs) == [tf.int8, tf.variant]
    assert [str(shape) for shape in structure.get_flat_tensor_shapes(specs)] == ["(3,)", "<unknown>"]
    assert structure.get_flat_tensor_specs(specs)[0] == tf.TensorSpec([3], tf.int8)
    assert structure.type_spec_from_value(1.0) == tf.TensorSpec([], tf.float32)
    for value, told in ((1.0, False), (object(), True)):
        with pytest.raises(TypeError, match="Could not build a TypeSpec for"):
            structure.type_spec_from_value(value, use_fallback=told)
    loose, strict = (tf.TensorSpec([None], tf.int32),), (tf.TensorSpec([3], tf.int32),)
    assert structure.are_compatible(strict, strict) and not structure.are_compatible(strict, list(strict))
    assert structure.are_compatible(loose, strict)
    legacy = structure.convert_legacy_structure((tf.int32, tf.int64), ([], [None]), (tf.Tensor, tf.SparseTensor))
    assert legacy == (tf.TensorSpec([], tf.int32), tf.SparseTensorSpec([None], tf.int64))
    assert structure.normalize_element((1, [2.0]))[1].shape == [1]
