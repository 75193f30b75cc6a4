"""Which attributes checkpoints leave out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tfmini.compat import internals
from tfmini.train.checkpointing.object_graph import children_of


def children(thing: Any) -> list[str]:
    return [name for name, _ in children_of(thing)]


def test_attributes_of_a_scope_are_left_out(tmp_path: Path) -> None:
    base = internals.module("python.training.tracking.base")
    tracking = internals.module("python.training.tracking.tracking")

    class Network(tracking.AutoTrackable):
        def __init__(self) -> None:
            self.kept = tf.Variable(1.0)
            self.fill()
            with base.no_automatic_dependency_tracking_scope(self):
                self.third = tf.Variable(3.0)

        @base.no_automatic_dependency_tracking
        def fill(self) -> None:
            self.second = tf.Variable(2.0)

    network = Network()
    assert children(network) == ["kept"] and isinstance(network, base.Trackable)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        path = tf.train.Checkpoint(network=network).save(str(tmp_path / "c"), session=session)
    names = [name for name, _ in tf.train.list_variables(path)]
    assert [name for name in names if name.startswith("network/")] == ["network/kept/.ATTRIBUTES/VARIABLE_VALUE"]


def test_the_objects_of_a_checkpoint_are_listed() -> None:
    util, identity = (internals.module(f"python.{path}") for path in ("training.tracking.util", "util.object_identity"))
    with tf.Graph().as_default():
        kept = tf.Variable(1.0)
        listed = identity.ObjectIdentitySet(util.list_objects(tf.train.Checkpoint(kept=kept)))
    size = len(listed)
    assert kept in listed and size == len(list(listed))
    listed.discard(kept)
    listed.add([])
    assert kept not in listed and [] not in listed and len(listed) == size


class Keeper(tf.contrib.checkpoint.Checkpointable):
    """Keeps states by names, and makes those that a checkpoint has."""

    def _lookup_dependency(self, name: str) -> Any:
        return super()._lookup_dependency(name) or self.keep(name, "")

    def keep(self, name: str, text: str, overwrite: bool = False) -> Any:
        """Names a text."""
        return self._track_trackable(Text(text), name, overwrite)

    @property
    def named(self) -> list[Any]:
        """What has a name only."""
        return self._unconditional_checkpoint_dependencies


class Text(tf.train.experimental.PythonState):
    """A text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def serialize(self) -> str:
        """The text."""
        return self.text

    def deserialize(self, string_value: bytes) -> None:
        """Takes a text over."""
        self.text = string_value.decode()


def test_objects_with_a_name_only_are_saved_and_asked_for(tmp_path: Path) -> None:
    base = internals.module("python.training.tracking.base")
    keeper, other = Keeper(), Keeper()
    with pytest.raises(ValueError, match="name='a'"):
        for text in "xy":
            keeper.keep("a", text)
    keeper.keep("a", "z", overwrite=True)
    keeper.named.append(base.TrackableReference(name="b", ref=Text("w")))
    assert children(keeper) == ["a", "b"]
    with tf.Graph().as_default(), tf.Session() as session:
        path = tf.train.Checkpoint(k=keeper).save(str(tmp_path / "c"), session=session)
        tf.train.Checkpoint(k=other).restore(path)
    assert {name: ref.text for name, ref in other.named} == {"a": "z", "b": "w"}


def test_an_attribute_and_a_name_do_not_hide_each_other() -> None:
    first, second = tf.Variable(1.0), tf.Variable(2.0)
    later = tf.train.Checkpoint()
    later._track_trackable(second, "x")
    later.x = first
    assert dict(children_of(later))["x"] is first
    earlier = tf.train.Checkpoint(x=first)
    with pytest.raises(ValueError, match="name='x', which has another object"):
        earlier._track_trackable(second, "x")
    earlier._track_trackable(second, "x", overwrite=True)
    assert dict(children_of(earlier))["x"] is second
    with pytest.raises(TypeError, match="passed type .*int.*, not a Trackable"):
        earlier._track_trackable(3, "y")


def test_a_program_may_have_an_attribute_of_any_name() -> None:
    module = tf.Module()
    vars(module)["_named"] = "a text"
    module.kept = tf.Variable(1.0)
    before = set(vars(module))
    assert children(module) == ["kept"] and set(vars(module)) == before
