"""Every op on a staging area acts on the area, whatever device and container the scopes around its call name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tfmini as tf
from tfmini.ops.queues.staging import MapStagingArea, StagingArea

Calls = list[tuple[Callable[[], Any], Any]]


def _stage_calls(area: Any) -> Calls:
    return [
        (lambda: area.put([7]), None),
        (lambda: area.put([8]), None),
        (lambda: area.size(), 2),
        (lambda: area.peek(1), [8]),
        (lambda: area.get(), [7]),
        (lambda: area.clear(), None),
        (lambda: area.size(), 0),
    ]


def _map_calls(area: Any) -> Calls:
    whole = lambda key: area.put(tf.constant(key, tf.int64), [1, 2], [0, 1])  # noqa: E731
    return [
        (lambda: whole(7), None),
        (lambda: whole(8), None),
        (lambda: whole(9), None),
        (lambda: area.put(tf.constant(1, tf.int64), [5], [0]), None),
        (lambda: area.size(), 3),
        (lambda: area.incomplete_size(), 1),
        (lambda: area.peek(tf.constant(8, tf.int64)), [1, 2]),
        (lambda: area.get(tf.constant(8, tf.int64))[1], [1, 2]),
        (lambda: area.get()[1], [1, 2]),
        (lambda: area.size(), 1),
        (lambda: area.clear(), None),
        (lambda: area.size(), 0),
    ]


AREAS: dict[str, tuple[Callable[[], Any], Callable[[Any], Calls]]] = {
    "StagingArea": (lambda: StagingArea([tf.int32]), _stage_calls),
    "MapStagingArea": (lambda: MapStagingArea([tf.int32, tf.int32]), _map_calls),
    "ordered MapStagingArea": (lambda: MapStagingArea([tf.int32, tf.int32], ordered=True), _map_calls),
}


@pytest.mark.parametrize("area_name", AREAS)
@pytest.mark.parametrize("outside", ["", "/cpu:2"])
@pytest.mark.parametrize("other_container", ["", "other"])
def test_every_op_acts_on_the_area(area_name: str, outside: str, other_container: str) -> None:
    make, calls = AREAS[area_name]
    with tf.device("/cpu:1"), tf.container("mine"):
        area = make()
    with tf.device(outside), tf.container(other_container):
        steps = [(call(), expected) for call, expected in calls(area)]
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 3}, operation_timeout_in_ms=20000)) as session:
        for fetch, expected in steps:
            assert session.run(fetch) == expected


def test_an_area_belongs_to_its_graph() -> None:
    with tf.Graph().as_default():
        area = StagingArea([tf.int32])
    with tf.Graph().as_default(), pytest.raises(ValueError, match="Cannot colocate .* same graph"):
        area.size()


def test_a_tuple_of_other_types_than_a_node_says_is_refused() -> None:
    put = tf.raw_ops.Stage(values=[tf.constant(2.0)], shared_name="s", container="")
    take = tf.raw_ops.Unstage(dtypes=[tf.uint8], shared_name="s", container="")
    with tf.Session() as session:
        session.run(put)
        with pytest.raises(tf.errors.InvalidArgumentError, match="expected uint8 but got float32"):
            session.run(take)
