"""Process sets: their numbers, members and errors, without a cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tfmini as tf
from tfmini.compat import horovod as hvd
from tfmini.compat.horovod import world
from tfmini.compat.horovod.world import World


@pytest.fixture(autouse=True)
def _rank_1_of_4(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(world, "worlds", [World(["localhost"] * 4, 1, None)])
    return


def test_sets_are_added_and_removed_and_their_numbers_used_again() -> None:
    first, second = hvd.add_process_set([0, 3]), hvd.add_process_set(range(1, 3))
    assert (first.process_set_id, second.process_set_id) == (1, 2)
    assert (second.size(), second.rank(), second.included(), first.included()) == (2, 0, True, False)
    assert str(first) == "ProcessSet(process_set_id=1, ranks=[0, 3], mpi_comm=None)"
    with pytest.raises(ValueError, match=r"Rank 1 is not in the process set of the ranks \[0, 3\]"):
        first.rank()
    assert hvd.remove_process_set(first) and first.process_set_id is None and first.size() is None
    assert not hvd.remove_process_set(first) and not hvd.remove_process_set(hvd.global_process_set)
    assert hvd.add_process_set([2]).process_set_id == 1
    assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {0: [0, 1, 2, 3], 1: [2], 2: [1, 2]}


@pytest.mark.parametrize("ranks", [[2, 1], [3, 2, 1, 0], [4], [], [1, 1], [-1]])
def test_sets_that_exist_or_cannot_exist_are_refused(ranks: list[int]) -> None:
    hvd.add_process_set([1, 2])
    with pytest.raises(ValueError, match="already|different ranks from 0 to 3"):
        hvd.add_process_set(ranks)


def test_a_set_that_is_not_registered_is_refused() -> None:
    with pytest.raises(ValueError, match=r"hvd.init\(process_sets"):
        hvd.allreduce(tf.ones([1]), process_set=hvd.ProcessSet([0, 1]))
    with pytest.raises(ValueError, match="list of ranks"):
        hvd.ProcessSet(3)  # type: ignore[arg-type]


def test_a_graph_may_hold_a_collective_of_a_foreign_set() -> None:
    other = hvd.add_process_set([0, 3])
    with tf.Graph().as_default(), tf.Session() as session:
        foreign = hvd.allgather(tf.ones([1]), "x", process_set=other)
        is_here = tf.equal(hvd.process_set_included_op(other.process_set_id), 1)
        here = tf.cond(is_here, lambda: hvd.allgather(tf.ones([1]), process_set=other), lambda: tf.constant([2.0]))
        assert session.run(here).tolist() == [2]
        assert session.run([hvd.rank_op(), hvd.size_op(1), hvd.local_rank_op(), hvd.local_size_op()]) == [1, 2, 1, 4]
        assert session.run(hvd.process_set_included_op(7)) == -3
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"Rank 1 runs hvd.allgather of x .*\[0, 3\]"):
            session.run(foreign)
