"""A session finds an earlier call by a key that only calls of the same structure share."""

from __future__ import annotations

import collections
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import tfmini as tf
from tfmini.runtime.client import session as session_module

State = collections.namedtuple("State", "c h")
Pair = collections.namedtuple("Pair", "mean variance")


class Labelled(tuple):
    """A tuple of a class of its own."""

    __slots__ = ()


class Changing:
    """What a class of the package ``attrs`` looks like, with ``eq=False``."""

    __attrs_attrs__ = (SimpleNamespace(name="c"),)

    def __init__(self, c: Any) -> None:
        self.c = c


class Frozen(Changing):
    """The same with ``frozen=True``."""

    def __eq__(self, other: object) -> bool:
        return type(other) is Frozen and self.c == other.c

    def __hash__(self) -> int:
        return hash(self.c)


# Structures of two tensors that compare equal, or nearly so.
STRUCTURES: dict[str, Callable[[Any, Any], Any]] = {
    "tuple": lambda a, b: (a, b),
    "list": lambda a, b: [a, b],
    "State": State,
    "Pair": Pair,
    "Labelled": lambda a, b: Labelled((a, b)),
    "number": lambda a, b: {1: a, 2: b},
    "bool": lambda a, b: {True: a, 2: b},
    "float": lambda a, b: {1.0: a, 2: b},
    "tuple key": lambda a, b: {(1, 2): a, "b": b},
    "State key": lambda a, b: {State(1, 2): a, "b": b},
    "bool in a key": lambda a, b: {(True, 2): a, "b": b},
    "ordered": lambda a, b: collections.OrderedDict([("a", a), ("b", b)]),
    "other order": lambda a, b: collections.OrderedDict([("b", b), ("a", a)]),
    "dictionary": lambda a, b: {"a": a, "b": b},
    "dictionary in another order": lambda a, b: {"b": b, "a": a},
    "defaultdict": lambda a, b: collections.defaultdict(list, a=a, b=b),
    "other defaultdict": lambda a, b: collections.defaultdict(dict, a=a, b=b),
    "attrs of a tuple": lambda a, b: Frozen((a, b)),
    "attrs of a State": lambda a, b: Frozen(State(a, b)),
}
AROUND: dict[str, Callable[[Any], Any]] = {
    "alone": lambda inner: inner,
    "in a list": lambda inner: [inner],
    "in a tuple": lambda inner: (inner, ["x:0"]),
    "in a dictionary": lambda inner: {"k": [inner]},
    "in a State": lambda inner: State(inner, inner),
}


def signature(value: Any) -> Any:
    """The value with the types of all its parts and the order of its keys."""
    if isinstance(value, dict):
        extra = getattr(value, "default_factory", None)
        return type(value), extra, [(signature(k), signature(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [signature(v) for v in value]
    if hasattr(value, "__attrs_attrs__"):
        return type(value), signature(value.c)
    return type(value), value


def expected(made: Any) -> Any:
    return tuple(made) if isinstance(made, Labelled) else made  # tfmini makes tuples of classes without fields


@pytest.mark.parametrize("around", AROUND)
def test_the_structure_is_that_of_the_fetches(around: str) -> None:
    a, b = tf.constant(1.0) * 2.0, tf.constant(2.0) * 3.0
    tf.constant(5.0, name="x")
    with tf.Session() as session:
        for _ in range(2):  # also when every structure has had its call
            for name, make in STRUCTURES.items():
                wrap = AROUND[around]
                values = wrap(expected(make(np.float32(2), np.float32(6))))
                if around == "in a tuple":
                    values = (values[0], [np.float32(5)])
                assert signature(session.run(wrap(make(a, b)))) == signature(values), name


@pytest.mark.parametrize("kind", ["tuple", "list", "State", "dictionary", "number", "bool"])
@pytest.mark.parametrize("around", AROUND)
def test_a_call_is_remembered(kind: str, around: str, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = tf.constant(1.0), tf.get_variable("b", [], initializer=tf.ones_initializer())
    tf.constant(5.0, name="x")
    hook = object()
    with tf.Session() as session:
        session.run(b.initializer)
        analyse = Mock(side_effect=session_module.Call)
        monkeypatch.setattr(session_module, "Call", analyse)
        for _ in range(3):
            session.run({hook: AROUND[around](STRUCTURES[kind](a, b))})
            session.run(AROUND[around](STRUCTURES[kind](a, b)))
        assert analyse.call_count == 2


def test_an_object_that_names_another_tensor_now_gets_its_value() -> None:
    fetch = Changing(tf.constant(1))
    with tf.Session() as session:
        assert session.run(fetch).c == 1 and session.run([fetch])[0].c == 1
        fetch.c = tf.constant(2)
        assert session.run(fetch).c == 2 and session.run([fetch])[0].c == 2


def test_a_structured_feed_is_taken_apart_in_every_run() -> None:
    x, y = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    with tf.Session() as session:
        for _ in range(3):
            assert session.run(x + 1, {(x,): (5.0,)}).shape == ()
            assert session.run([x, y], {(): (), (x, y): (1.0, 2.0)}) == [1.0, 2.0]
