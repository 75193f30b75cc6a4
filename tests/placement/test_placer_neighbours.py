"""A growing graph: new nodes are placed by their neighbours, as if the whole graph were placed."""

from __future__ import annotations

from typing import Any

import tfmini as tf
from tfmini.graph.node import Node
from tfmini.graph.operation import node_of
from tfmini.placement.placer import ColocationLeaders, DeviceAttributes, place, with_neighbours

DEVICES = [DeviceAttributes(f"/job:{job}/replica:0/task:0/device:CPU:0", "CPU") for job in ("ps", "worker")]
HOME = DEVICES[1].name


def growing_graph() -> list[list[Node]]:
    """The nodes that each statement adds."""
    ends: list[int] = []
    with tf.Graph().as_default() as graph:

        def added(result: Any) -> Any:
            ends.append(len(graph.get_operations()))
            return result

        with tf.device("/job:ps"):
            v = added(tf.Variable([1.0, 2.0], name="v", use_resource=True))
            w = added(tf.get_variable("w", [2]))
        x = added(v + w)
        with tf.colocate_with(w.op):
            y = added(tf.square(x))
        with tf.colocate_with(y.op):
            z = added(tf.negative(y))
        added(tf.shape(z))
        added(tf.zeros([2]))
        loop = added(tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, a * 2.0), [0, z]))
        total = added(tf.reduce_sum(loop[1]))
        added(tf.gradients(total, [v, w], colocate_gradients_with_ops=True))
        added(v.assign(z))
        added(tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_sum(z)))
        nodes = [node_of(operation) for operation in graph.get_operations()]
    return [nodes[begin:end] for begin, end in zip([0, *ends], ends)]


def test_new_nodes_go_where_they_would_go_with_the_whole_graph() -> None:
    known: dict[str, Node] = {}
    devices: dict[str, str] = {}
    leaders = ColocationLeaders()
    for nodes in growing_graph():
        new = {node.name: node for node in nodes}
        whole = place({**known, **new}, DEVICES, default_device=HOME, assigned=devices)
        part = place(with_neighbours(new, known, leaders), DEVICES, default_device=HOME, assigned=devices)
        assert {name: part[name].device for name in new} == {name: whole[name].device for name in new}
        known.update(new)
        devices.update((name, part[name].device) for name in new)
        leaders.add(nodes)
    assert len(set(devices.values())) == 2


def test_only_neighbours_are_placed_with_new_nodes() -> None:
    attrs = {"T": tf.float32}
    known = {"c0": Node("c0", "Const", attrs={"dtype": tf.float32, "value": 1.0})}
    for i in range(1000):
        known[f"n{i}"] = Node(f"n{i}", "Neg", inputs=[(f"n{i - 1}" if i else "c0", 0)], attrs=attrs)
    new = {"new": Node("new", "Neg", inputs=[("n999", 0)], attrs=attrs)}
    assert list(with_neighbours(new, known, ColocationLeaders())) == ["n999", "new"]


def test_a_group_whose_leader_does_not_exist_keeps_its_first_member() -> None:
    attrs = {"T": tf.float32, "_class": [b"loc:@nobody"]}
    known = {name: Node(name, "Neg", "/job:ps", attrs=attrs) for name in ("a", "b")}
    leaders = ColocationLeaders()
    leaders.add(known.values())
    new = {"c": Node("c", "Neg", attrs=attrs)}
    assigned = dict.fromkeys(known, DEVICES[0].name)
    nodes = with_neighbours(new, known, leaders)
    assert list(nodes) == ["a", "c"]
    assert place(nodes, DEVICES, default_device=HOME, assigned=assigned)["c"].device == DEVICES[0].name
