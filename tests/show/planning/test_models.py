"""Predictions for the placements of a script, and the plans of placements."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

import tfmini as tf
from tests.show.planning.scripts import LOOKUP, SMALL, mlp, models_of
from tfmini.devices import parse
from tfmini.show.planning.models import Arrangement, Item, build
from tfmini.show.planning.search import exhaustive, search


@pytest.mark.parametrize("seed", range(20))
def test_the_search_comes_near_the_optimum_of_small_random_graphs(tmp_path: Path, seed: int) -> None:
    """All placements of networks with random sizes on two ps, by the simulator."""
    rng = random.Random(seed)
    sizes = [rng.choice((5, 100, 500)) for _ in range(4)]
    models = models_of(tmp_path, SMALL.format(sizes=sizes), workers=rng.choice((1, 2)))
    known: dict[Arrangement, float] = {}

    def cost(arrangement: Arrangement) -> float:
        if arrangement not in known:
            known[arrangement] = models.cost(arrangement)
        return known[arrangement]

    optimum = exhaustive(models.problem, cost)
    found = search(models.problem, cost, trials=max(6, optimum.trials // 3), seed=seed)
    assert found.cost <= 1.1 * optimum.cost


def test_the_graph_of_a_plan_is_the_one_that_was_predicted(tmp_path: Path) -> None:
    models = models_of(tmp_path, mlp())
    tasks = [(0, 1), *[(i % 2,) for i in range(len(models.problem.items) - 1)]]
    arrangement = Arrangement(tuple(tasks))
    models.plan(arrangement, {}).save(tmp_path / "plan.json")
    text = mlp(scope=f"__import__('tfmini').placement.plan({str(tmp_path / 'plan.json')!r})")
    (tmp_path / "planned.py").write_text(text)
    placed = tf.inspect(str(tmp_path / "planned.py"), ps=2, workers=1).placement
    built, _ = models.model_of((("dense/kernel", 2),))
    exact = build(models.script, {"dense/kernel": [2, 1]}, models.tasks_of(built, arrangement)).found.placement
    assert _on_ps(exact.devices()) == _on_ps(placed.devices())
    # With stand-ins, tf.group makes other NoOps.
    devices = models.devices_of(built, arrangement)
    assert all(devices[op] == device for op, device in _on_ps(placed.devices()).items() if "NoOp" not in op)
    assert models.cost(arrangement) == pytest.approx(models.exact(arrangement), rel=0.05)
    assert [parse(placed[f"dense/kernel/part_{i}"].device).task for i in (0, 1)] == [0, 1]


def _on_ps(devices: dict[str, str]) -> dict[str, str]:
    return {op: device for op, device in devices.items() if "/job:ps" in device}


def test_only_variables_that_can_be_cut_are_cut(tmp_path: Path) -> None:
    text = """
import numpy as np, tensorflow as tf
with tf.device(tf.train.replica_device_setter(ps_tasks=2)):
    made = tf.Variable(tf.zeros([64, 64]), name="made")
    fixed = tf.get_variable("fixed", [64, 64], initializer=tf.constant_initializer(np.ones([64, 64])))
    free = tf.get_variable("free", [64, 64])
    loss = tf.reduce_sum(tf.matmul(tf.matmul(made, fixed), free))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
tf.Session().run(train)
"""
    made, fixed, free = models_of(tmp_path, text).problem.items
    assert "only variables of tf.get_variable" in made.whole_because
    assert "the script fails with it in parts" in fixed.whole_because and fixed.most == 1
    assert free == Item("free", 64 * 64 * 4, free.load_s, 2)


def test_a_lookup_that_would_send_the_table_moves(tmp_path: Path) -> None:
    text = LOOKUP.format(lookup="tf.gather(tf.get_variable('table', [5000, 8]), ids, name='few')")
    models = models_of(tmp_path, text)
    assert models.moves[0].op == "few" and models.moves[0].saved > 100_000
    arrangement = Arrangement(((1,), (0,)))
    moved = Arrangement(arrangement.tasks, frozenset({"few"}))
    assert models.cost(moved) < models.cost(arrangement) / 2
    assert dict(models.plan(moved, {}).ops) == {"few": 1}
    found = search(models.problem, models.cost, trials=20)
    assert "few" in found.best.moved


def test_the_own_placement_of_the_script(tmp_path: Path) -> None:
    models = models_of(tmp_path, mlp())
    own = Arrangement(tuple((i % 2,) for i in range(7)))
    assert models.own() == own
    assert models.cost(own) == pytest.approx(models.exact(own), rel=0.05)


def test_a_step_is_faster_with_the_load_on_both(tmp_path: Path) -> None:
    models = models_of(tmp_path, mlp(widths=(500, 500)), workers=1)
    together = Arrangement(((0,),) * 7)
    loads = models.problem.loads(together)
    assert loads[1] == 0 and loads[0] > 0
    found = search(models.problem, models.cost, trials=10)
    assert found.cost < models.cost(together)
    assert not math.isinf(found.cost)
