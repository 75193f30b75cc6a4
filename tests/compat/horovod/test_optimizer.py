"""`hvd.DistributedOptimizer`: local aggregation, groups, local variables and process sets."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfmini as tf
from tests.launch.programs import launched
from tfmini.compat import horovod as hvd
from tfmini.compat.horovod import world
from tfmini.compat.horovod.world import World


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "worlds", [World(["localhost"], 0, None)])


def test_steps_between_two_reductions_change_no_variable() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [])
        w = tf.get_variable("w", initializer=[0.0])
        table = tf.get_variable("table", initializer=[[0.0], [0.0]])
        step = tf.train.get_or_create_global_step()
        loss = -tf.reduce_sum(w * x) - tf.reduce_sum(tf.gather(table, [1]) * x)
        opt = hvd.DistributedOptimizer(
            tf.train.GradientDescentOptimizer(1.0), backward_passes_per_step=3, average_aggregated_gradients=True,
            sparse_as_dense=True,
        )  # fmt: skip
        train = opt.minimize(loss, step)
        seen = []
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            for value in range(1, 8):
                session.run(train, {x: value})
                seen.append(session.run([w, step])[0].tolist() + [int(session.run(step))])
            assert session.run(table).tolist() == [[0], [7]]
    assert seen == [[0, 1], [0, 2], [2, 3], [2, 4], [2, 5], [7, 6], [7, 7]]


def test_options_that_do_not_go_together_are_refused() -> None:
    inner = tf.train.GradientDescentOptimizer(1.0)
    for options, message in [
        ({"op": hvd.Max}, "hvd.Average or hvd.Sum"),
        ({"op": hvd.Sum, "gradient_predivide_factor": 2.0}, "for hvd.Average"),
        ({"groups": 0}, "positive number"),
        ({"backward_passes_per_step": 0}, "must be > 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            hvd.DistributedOptimizer(inner, **options)
    with pytest.raises(ValueError, match="sparse_as_dense=True"), tf.Graph().as_default():
        table = tf.get_variable("table", initializer=[[0.0], [0.0]])
        hvd.DistributedOptimizer(inner, backward_passes_per_step=2).minimize(tf.reduce_sum(tf.gather(table, [1])))


_SCRIPT = """
import tensorflow as tf
import horovod.tensorflow as hvd
alone = hvd.ProcessSet([1])
hvd.init(process_sets=[alone])
rank = hvd.rank()
names = ("grouped", "apart", "aggregated", "alone", "local")
with tf.Session() as session:
    for name in names:
        ws = [tf.get_variable(f"{name}{i}", initializer=tf.zeros([i + 1])) for i in range(3)]
        loss = -sum(tf.reduce_sum(w) for w in ws) * (rank + 1)
        options = {"grouped": {"groups": [ws[:2]]}, "apart": {"groups": 2, "gradient_predivide_factor": 4.0},
                   "aggregated": {"backward_passes_per_step": 2}, "alone": {"process_set": alone}, "local": {}}[name]
        opt = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(1.0), **options)
        if name == "local":
            opt.register_local_var(ws[0])
        train = opt.minimize(loss, var_list=ws)
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        session.run(train)
        session.run(train)
        got = [value.tolist() for value in session.run(ws)]
        each = 2.0 * (rank + 1) if name == "alone" else 3.0
        expected = [[each] * (i + 1) for i in range(3)]
        if name == "local":
            expected[0] = [rank + 1.0]
        assert got == expected, (name, got, expected)
print("all as expected", flush=True)
"""


@pytest.mark.cluster
def test_two_ranks_reduce_in_groups_sets_and_every_second_step(tmp_path: Path) -> None:
    assert launched(tmp_path, _SCRIPT, "--ps", "0", "--workers", "2").count("all as expected") == 2
