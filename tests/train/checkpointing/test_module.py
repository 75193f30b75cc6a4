"""`tf.Module` finds its variables, scopes its ops and is saved, as in TensorFlow 1.15.5."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tfmini.train.checkpointing.module import Module


class MyDense2D(Module):
    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.z = tf.Variable(1.0)
        self.a = [tf.Variable(2.0, trainable=False), {"k": tf.Variable(3.0), "b": (tf.Variable(4.0),)}]

    def paths_of_own_variables(self) -> list[Any]:
        found = self._flatten(recursive=False, predicate=lambda x: isinstance(x, tf.Variable), with_path=True)
        return [path for path, _ in found]

    def leave_out(self, variable: tf.Variable) -> None:
        self.skipped = self._no_dependency(variable)

    @Module.with_name_scope
    def __call__(self, x: Any) -> tf.Tensor:
        return tf.identity(x, name="out")


def _nested() -> MyDense2D:
    outer, inner = MyDense2D(), MyDense2D()
    outer.sub, inner.back, outer.listed = inner, outer, [MyDense2D("q")]  # type: ignore[attr-defined]
    return outer


def test_variables_are_found_by_attribute_and_before_those_of_submodules() -> None:
    """The orders are those that TensorFlow 1.15.5 printed."""
    outer = _nested()
    numbers = [int(v.op.name.partition("_")[2] or 0) for v in outer.variables]
    assert numbers == [1, 3, 2, 0, 9, 11, 10, 8, 5, 7, 6, 4]
    assert [int(v.op.name.partition("_")[2] or 0) for v in outer.trainable_variables] == [3, 2, 0, 11, 10, 8, 7, 6, 4]
    assert [module.name for module in outer.submodules] == ["q", "my_dense2_d"]
    assert outer.paths_of_own_variables() == [("a", 0), ("a", 1, "b", 0), ("a", 1, "k"), ("z",)]


def test_ops_are_made_in_the_scope_that_the_module_got() -> None:
    with tf.name_scope("outer"):
        one, two = MyDense2D(), MyDense2D()
    assert one(1.0).name == "outer/my_dense2_d/out:0" and one(1.0).name == "outer/my_dense2_d/out_1:0"
    assert two(1.0).name == "outer/my_dense2_d_1/out:0" and two.name == "my_dense2_d"
    with one.name_scope as scope:
        assert scope == "outer/my_dense2_d/"
    for name in ("a/b", "1x", "a b", "for"):
        with pytest.raises(ValueError, match="not a valid module name"):
            MyDense2D(name)


def test_a_checkpoint_saves_a_module_without_what_it_leaves_out(tmp_path: Path) -> None:
    module = MyDense2D()
    module.leave_out(tf.Variable(9.0))
    assert isinstance(module.skipped, tf.Variable)
    saver = tf.train.Checkpoint(module=module)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        path = saver.save(os.fspath(tmp_path / "saved"), session=session)
        session.run(module.z.assign(7.0))
        saver.restore(path).run_restore_ops(session)
        assert session.run(module.z) == 1.0
    keys = [name for name, _ in tf.train.list_variables(path)]
    assert "module/z/.ATTRIBUTES/VARIABLE_VALUE" in keys and not [name for name in keys if "skipped" in name]


def test_an_attribute_may_be_set_to_what_it_is_also_without_a_setter() -> None:
    class Held(tf.Module):
        @property
        def shape(self) -> object:
            return held.shape

    held = tf.ones([2, 3])
    Held().shape = held.shape  # type: ignore[misc]  # TensorFlow Probability's layers of distributions do
    with pytest.raises(AttributeError):
        Held().shape = tf.TensorShape([2, 3])  # type: ignore[misc]


def test_a_table_in_a_module_is_saved(tmp_path: Path) -> None:
    class Holder(Module):
        def __init__(self) -> None:
            super().__init__()
            self.v = tf.Variable(1.0)
            self._tables = {"a": [tf.contrib.lookup.MutableHashTable(tf.int64, tf.float32, -1.0, name="words")]}

    holder = Holder()
    table = holder._tables["a"][0]
    checkpoint = tf.train.Checkpoint(held=holder)
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), table.insert(tf.constant([3], tf.int64), [4.0])])
        path = checkpoint.save(str(tmp_path / "model"), session=session)
        session.run(table.insert(tf.constant([3, 5], tf.int64), [0.0, 0.0]))
        checkpoint.restore(path).assert_consumed().run_restore_ops(session)
        assert [part.tolist() for part in session.run(table.export())] == [[3], [4.0]]
