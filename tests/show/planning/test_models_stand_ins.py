"""Graphs in which every variable has a ps task of its own."""

from __future__ import annotations

from pathlib import Path

from tests.show.planning.scripts import LOOKUP, SYNC, mlp, models_of
from tfmini.devices import parse
from tfmini.placement.device_setter import PlacementPlan
from tfmini.show.planning.models import FIRST, Built, build


def followers(built: Built) -> dict[str, set[str]]:
    """First variable -> the ops that follow it."""
    return {
        names[0]: {op for op, decision in built.found.placement.items() if decision.device == stand_in}
        for stand_in, names in built.followers.items()
    }


def test_slots_and_updates_follow_their_variable(tmp_path: Path) -> None:
    models = models_of(tmp_path, mlp())
    ops = followers(models.whole)
    assert {"dense/kernel/Momentum", "Momentum/update_dense/kernel/ApplyMomentum"} <= ops["dense/kernel"]
    assert list(models.whole.seen.own.values()) == [0, 1, 0, 1, 0, 1, 0]
    assert [item.nbytes for item in models.problem.items[:2]] == [2 * 4 * 20 * 64, 2 * 4 * 64]


def test_what_is_placed_by_the_device_of_a_variable_follows_it(tmp_path: Path) -> None:
    """The accumulators of a synchronous optimizer, and the token queue."""
    models = models_of(tmp_path, SYNC)
    kinds = {leader: {models.whole.found.nodes[op].op for op in ops} for leader, ops in followers(models.whole).items()}
    assert "ResourceConditionalAccumulator" in kinds["w"] & kinds["v"]
    assert "FIFOQueueV2" in kinds["global_step"]


def test_a_variable_that_must_be_beside_another_is_one_with_it(tmp_path: Path) -> None:
    beside = """
import tensorflow as tf
with tf.device(tf.train.replica_device_setter(ps_tasks=2)):
    a = tf.get_variable("a", [4])
    with tf.colocate_with(a.op), tf.device(tf.train.replica_device_setter(ps_tasks=2)):
        b = tf.get_variable("b", [4])
    c = tf.get_variable("c", [4])
tf.Session().run(tf.group(a.initializer, b.initializer, c.initializer))
"""
    built = models_of(tmp_path, beside).whole
    assert list(built.followers.values()) == [["a", "b"], ["c"]]


def test_without_a_setter_all_unplaced_variables_are_placed(tmp_path: Path) -> None:
    models = models_of(tmp_path, mlp(scope="None"))
    assert len(models.problem.items) == 0  # tf.device(None) hides every scope
    models = models_of(tmp_path, mlp(scope="''"))
    assert [item.name for item in models.problem.items][0] == "dense/kernel"
    assert not models.whole.seen.has_setter and models.own() is None


def test_what_the_script_places_itself_stays(tmp_path: Path) -> None:
    assert models_of(tmp_path, mlp(scope="'/job:ps/task:1'")).problem.items == ()


def test_a_plan_in_the_script_is_replaced(tmp_path: Path) -> None:
    names = ["global_step", *(f"dense{n}/{kind}" for n in ("", "_1", "_2") for kind in ("kernel", "bias"))]
    PlacementPlan(2, dict.fromkeys(names, 1)).save(tmp_path / "old.json")
    for scope in ("{}", "tf.train.replica_device_setter(ps_tasks=2, ps_strategy={})"):
        plan = f"__import__('tfmini').placement.plan({str(tmp_path / 'old.json')!r})"
        models = models_of(tmp_path, mlp(scope=scope.format(plan)))
        assert set(models.whole.seen.own.values()) == {1} and len(models.problem.items) == 7
        assert models.problem.items[0].most == 2


def test_the_sizes_that_a_cut_table_sends_are_known(tmp_path: Path) -> None:
    text = LOOKUP.format(lookup="tf.nn.embedding_lookup(tf.get_variable('table', [100, 8]), ids)")
    built = build(models_of(tmp_path, text).script, {"table": [2, 1]})
    sent = [t for t in built.found.transfers if (parse(t.src).task or 0) >= FIRST and t.shape == (3, 8)]
    assert len(sent) == 2
    assert all(t.bytes is not None for t in built.found.transfers)
