"""Snapshots and their JSON form."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.show.status.hostile import NUMBERS, hostile_task
from tfmini.runtime import snapshot as s


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    if isinstance(hint, types.GenericAlias):
        if hint.__origin__ is tuple:
            return st.lists(values_of(hint.__args__[0]), max_size=2).map(tuple)
        return st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return st.builds(hint, **{name: values_of(one) for name, one in hints.items()})
    return {
        str: st.text(max_size=4),
        int: st.integers(-(2**53), 2**53),
        float: st.floats(allow_nan=False, allow_infinity=False),
        bool: st.booleans(),
    }[hint]


@settings(max_examples=25, deadline=None)
@given(values_of(s.ClusterSnapshot))
def test_a_snapshot_survives_json(snapshot: s.ClusterSnapshot) -> None:
    assert s.from_json(s.ClusterSnapshot, json.loads(json.dumps(s.to_json(snapshot)))) == snapshot


def test_an_older_reader_ignores_new_keys_and_a_newer_one_has_defaults() -> None:
    found = s.from_json(s.TaskSnapshot, {"task": "/job:ps/replica:0/task:0", "address": "h:1", "new": {"a": []}})
    assert found == s.TaskSnapshot("/job:ps/replica:0/task:0", "h:1")


@pytest.mark.parametrize(
    "data",
    [
        [], None, {}, {"task": 1, "address": ""}, {"task": "t", "address": "", "sessions": {}},
        {"task": "t", "address": "", "sessions": [{}]}, {"task": "t", "address": "", "counters": {"a": "b"}},
        {"task": "t", "address": "", "cpu_s": True}, {"task": "t", "address": "", "pid": 1.5},
    ],
)  # fmt: skip
def test_what_is_no_snapshot_is_refused(data: Any) -> None:
    with pytest.raises(ValueError):
        s.from_json(s.TaskSnapshot, data)


def test_a_task_is_found_by_its_name() -> None:
    cluster = s.ClusterSnapshot("", 0.0, 0.0, (s.TaskSnapshot("a", ""), s.TaskSnapshot("b", "")))
    assert cluster.task("b") is cluster.tasks[1] and cluster.task("c") is None


def leaves(value: Any) -> list[Any]:
    if dataclasses.is_dataclass(value):
        return [leaf for field in dataclasses.fields(value) for leaf in leaves(getattr(value, field.name))]
    if isinstance(value, dict):
        return [leaf for pair in value.items() for each in pair for leaf in leaves(each)]
    return [leaf for each in value for leaf in leaves(each)] if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("number", NUMBERS)
def test_what_another_process_tells_can_be_shown_and_added(number: float) -> None:
    task = hostile_task("/job:ps/replica:0/task:0", number)
    assert all(leaf.isprintable() for leaf in leaves(task) if isinstance(leaf, str))
    free = [scalar.value for scalar in task.scalars]  # a loss may be NaN
    plain = dataclasses.replace(task, scalars=())
    assert all(abs(leaf) < 1e18 for leaf in leaves(plain) if isinstance(leaf, float))
    assert str(free) == str([number] * 2)


def test_what_another_process_tells_is_otherwise_kept() -> None:
    task = s.TaskSnapshot("/job:ps/replica:0/task:0", "h:1", uptime_s=2.5, counters={"a": 1}, queues=(
        s.QueueSnapshot("[jobs] é", "FIFOQueue", 1, 3),
    ))  # fmt: skip
    assert s.from_json(s.TaskSnapshot, s.to_json(task), outside=True) == task
