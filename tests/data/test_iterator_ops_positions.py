"""Saved positions of iterators: what cannot be replayed is refused, and what is restored is what came next."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf

Dataset = tf.data.Dataset


def _saved(dataset: Any, path: Path, reads: int) -> None:
    """Reads elements and saves the iterator."""
    iterator = dataset.make_initializable_iterator()
    element, saver = iterator.get_next(), tf.train.Saver([tf.data.experimental.make_saveable_from_iterator(iterator)])
    with tf.Session() as session:
        session.run(iterator.initializer)
        for _ in range(reads):
            session.run(element)
        saver.save(session, str(path / "position"))


@pytest.mark.parametrize("reads", [0, 3])
def test_the_position_in_a_generator_is_refused(tmp_path: Path, reads: int) -> None:
    stream = itertools.count()
    with pytest.raises(tf.errors.FailedPreconditionError, match="stateful.* PyFunc"):
        _saved(Dataset.from_generator(lambda: stream, tf.int64).map(lambda x: -x), tmp_path, reads)
    with pytest.raises(tf.errors.FailedPreconditionError, match="stateful.* PyFunc"):
        _saved(Dataset.from_generator(lambda: stream, tf.int64).shuffle(1), tmp_path, 1)


def _grouped(cache: Any) -> Any:
    """Three random groups of eight random numbers, four times over."""
    groups = cache(Dataset.range(3).shuffle(3)).repeat(4)
    return groups.flat_map(lambda x: Dataset.range(8).shuffle(8).map(lambda y: x * 10 + y))


def _read(session: Any, element: Any, count: int) -> list[int]:
    return [int(session.run(element)) for _ in range(count)]


def test_a_position_behind_a_filled_cache_is_restored(tmp_path: Path) -> None:
    path, after = str(tmp_path / "position"), []
    for part in range(2):
        with tf.Graph().as_default(), tf.Session() as session:
            iterator = _grouped(lambda data: data.cache()).make_initializable_iterator()
            element = iterator.get_next()
            saver = tf.train.Saver([tf.data.experimental.make_saveable_from_iterator(iterator)])
            session.run(iterator.initializer)
            if part == 0:
                _read(session, element, 36)
                saver.save(session, path)
                after.append(_read(session, element, 60))
            for _ in range(2):  # the second time after a reading that was restored
                saver.restore(session, path)
                after.append(_read(session, element, 4))
                saver.save(session, path + "x")
                after[-1] += _read(session, element, 56)
                saver.restore(session, path + "x")
                assert _read(session, element, 56) == after[-1][4:]
    assert after[0] == after[1] == after[2] and after[3] == after[4]
    # Another session draws the seeds of the groups that come later anew; the cache has the same order.
    assert after[3][:4] == after[0][:4] and [x // 10 for x in after[3]] == [x // 10 for x in after[0]]


def test_a_position_behind_a_cache_of_random_elements_in_files_is_refused(tmp_path: Path) -> None:
    for reads in (1, 36):
        name = str(tmp_path / f"cache{reads}")
        with pytest.raises(tf.errors.FailedPreconditionError, match="files of a cache.* Put the shuffling behind"):
            _saved(_grouped(lambda data, name=name: data.cache(name)), tmp_path, reads)
    _saved(_grouped(lambda data: data.cache(str(tmp_path / "cache36"))), tmp_path, 36)  # the files are complete
    _saved(Dataset.range(3).cache(str(tmp_path / "plain")).shuffle(3).repeat(3), tmp_path, 7)


def test_a_position_behind_half_written_files_of_a_cache_is_restored(tmp_path: Path) -> None:
    iterator = Dataset.range(9).cache(str(tmp_path / "cache")).make_initializable_iterator()
    element, saver = iterator.get_next(), tf.train.Saver([tf.data.experimental.make_saveable_from_iterator(iterator)])
    with tf.Session() as session:
        session.run(iterator.initializer)
        assert _read(session, element, 3) == [0, 1, 2]
        path = saver.save(session, str(tmp_path / "position"))
        assert _read(session, element, 2) == [3, 4]
        saver.restore(session, path)
        assert _read(session, element, 6) == [3, 4, 5, 6, 7, 8]


def test_branches_that_read_ahead_in_threads_go_on_with_their_own_seeds(tmp_path: Path) -> None:
    """Their threads draw in any order: two shuffles, each opened anew in its thread at every epoch."""

    def branch(size: int, seed: int) -> Any:
        return tf.data.Dataset.range(size).shuffle(size, seed=seed).map(lambda x: x + 0).repeat().prefetch(50)

    path = str(tmp_path / "saved")
    for _ in range(3):
        with tf.Graph().as_default():
            iterator = tf.data.Dataset.zip((branch(7, 1), branch(5, 2))).make_initializable_iterator()
            element = iterator.get_next()
            saver = tf.train.Saver([tf.data.experimental.make_saveable_from_iterator(iterator)])
            with tf.Session() as session:
                session.run(iterator.initializer)
                for _ in range(20):
                    session.run(element)
                saver.save(session, path, write_meta_graph=False)
                wanted = [session.run(element) for _ in range(60)]
            with tf.Session() as session:
                session.run(iterator.initializer)
                saver.restore(session, path)
                assert [session.run(element) for _ in range(60)] == wanted


def test_an_iterator_says_that_its_restore_was_cut_off(tmp_path: Path) -> None:
    iterator = Dataset.range(10**12).map(lambda x: x + 1).make_initializable_iterator()
    element, saver = iterator.get_next(), tf.train.Saver([tf.data.experimental.make_saveable_from_iterator(iterator)])
    limit, far = tf.RunOptions(timeout_in_ms=200), str(tmp_path / "far")
    with tf.Session() as session:
        session.run(iterator.initializer)
        _read(session, element, 5)
        near = saver.save(session, str(tmp_path / "near"))
        names = [name for name, _ in tf.train.list_variables(near)]
        position = tf.constant([10**12], tf.int64)
        session.run(tf.raw_ops.SaveV2(prefix=far, tensor_names=names, shape_and_slices=[""], tensors=[position]))
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(saver.saver_def.restore_op_name, {saver.saver_def.filename_tensor_name: far}, limit)
        for _ in range(2):
            with pytest.raises(tf.errors.FailedPreconditionError, match="restoring it did not end. Restore it again"):
                session.run(element)
        saver.restore(session, near)
        assert _read(session, element, 2) == [6, 7]


def test_a_restore_whose_time_is_up_in_its_last_element_has_failed() -> None:
    """The deadline is an error of the step there, not of the element."""
    iterator = Dataset.range(10**12).filter(lambda x: x < 3).make_initializable_iterator()
    position, element = tf.placeholder(tf.int64, [None]), iterator.get_next()
    resource = element.op.inputs[0]
    restore = tf.get_default_graph().create_op("_RestoreIterator", [resource, position], [], name="restore")
    with tf.Session() as session:
        session.run(iterator.initializer)
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(restore, {position: [4]}, tf.RunOptions(timeout_in_ms=200))
        with pytest.raises(tf.errors.FailedPreconditionError, match="restoring it did not end"):
            session.run(element)
