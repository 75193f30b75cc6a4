"""Pruning, the order of its result, and the rewrite of feeds and fetches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfmini import dtypes
from tfmini.errors import InvalidArgumentError, NotFoundError
from tfmini.graph.node import FEED, FETCH, Node, input_dtypes, output_dtypes
from tfmini.graph.prune import (
    enqueues,
    in_topological_order,
    is_training_step,
    prune,
    rewrite_feeds_and_fetches,
    step_graph,
)
from tfmini.graph.registry import op

op("TestPruneSource() -> out: float, other: Ref(int32)")
op("TestPruneSum(x: N * T, r: L) -> out: T; N: int; T: type; L: list(type)")
op("TestPruneSink() -> ")
CLIENT = "/job:worker/replica:0/task:0/device:CPU:0"


def build(*lines: str) -> dict[str, Node]:
    """``y x x:1 ^z`` is node y with its inputs; a node without inputs is a source."""
    nodes = {}
    for line in lines:
        name, *inputs = line.split()
        data = [(i.partition(":")[0], int(i.partition(":")[2] or 0)) for i in inputs if i[0] != "^"]
        attrs = {"N": len(data), "T": dtypes.float32, "L": []}
        kind = "TestPruneSum" if data else "TestPruneSource"
        nodes[name] = Node(name, kind, "", data, [i[1:] for i in inputs if i[0] == "^"], attrs)
    return nodes


def test_keeps_data_and_control_ancestors_only():
    nodes = build("a", "b", "c a", "d c ^b", "e d", "f")
    assert list(prune(nodes, [("d", 0)], [], [])) == ["a", "b", "c", "d"]
    assert list(prune(nodes, [], ["c", "f"], [])) == ["a", "c", "f"]


def test_a_fed_tensor_cuts_its_producer_unless_it_is_needed_otherwise():
    nodes = build("a", "b a", "c b", "d c a:1")
    assert list(prune(nodes, [("c", 0)], [], [("b", 0)])) == ["c"]
    assert list(prune(nodes, [("d", 0)], [], [("a", 0), ("b", 0)])) == ["a", "c", "d"]
    assert list(prune(build("x", "y ^x"), [("y", 0)], [], [("x", 0)])) == ["x", "y"]


@pytest.mark.parametrize(
    ("fetches", "targets", "feeds", "kind", "text"),
    [
        ([], [], [], InvalidArgumentError, "Must specify at least one target to fetch or execute."),
        ([("q", 0)], [], [], NotFoundError, "FetchOutputs node q:0: not found"),
        ([("y", 3)], [], [], InvalidArgumentError, "FetchOutputs y:3: output index too large, must be < 1"),
        (
            [("s", 0)],
            [],
            [],
            InvalidArgumentError,
            "Tried to fetch data for 's:0', which produces no output.  To run",
        ),
        ([("y", 0)], [], [("q", 0)], NotFoundError, "FeedInputs: unable to find feed output q:0"),
        ([("y", 0)], [], [("x", 2)], InvalidArgumentError, "FeedInputs: x:2 should have output index < 2"),
        ([("y", 0)], [], [("y", 0)], InvalidArgumentError, "y:0 is both fed and fetched."),
        ([("y", 0)], [], [("x", 0), ("x", 0)], InvalidArgumentError, 'Endpoint "x:0" fed more than once.'),
        ([], ["p", "q"], [], NotFoundError, "PruneForTargets: Some target nodes not found: p q"),
    ],
)
def test_unknown_feeds_and_fetches_are_refused(fetches, targets, feeds, kind, text):
    nodes = build("x", "y x")
    nodes["s"] = Node("s", "TestPruneSink")
    with pytest.raises(kind) as caught:
        prune(nodes, fetches, targets, feeds)
    assert caught.value.message.startswith(text)


def test_order_is_nearest_to_creation_and_back_edges_do_not_count():
    assert list(prune(build("d c", "a", "c a", "b"), [], ["d", "b"], [])) == ["a", "c", "d", "b"]
    nodes = build("enter", "merge enter next", "next merge")
    nodes["next"] = nodes["next"].replace(op="NextIteration")
    assert list(prune(nodes, [], ["merge"], [])) == ["enter", "merge", "next"]


def test_a_cycle_is_named():
    with pytest.raises(InvalidArgumentError, match=r"contains a cycle with 2 nodes: (a -> b -> a|b -> a -> b)"):
        prune(build("a b", "b a", "c b"), [], ["c"], [])
    assert list(prune(build("a b", "b a"), [("a", 0)], [], [("b", 0)])) == ["a"]


@given(st.permutations(range(12)), st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30))
def test_order_is_topological_for_any_creation_order(order, pairs):
    inputs = {i: sorted({a for a, b in pairs if b == i and a < b}) for i in range(12)}
    nodes = build(*(" ".join([f"n{i}", *(f"n{j}" for j in inputs[i])]) for i in order))
    rank = {name: i for i, name in enumerate(in_topological_order(nodes))}
    assert len(rank) == 12
    assert all(rank[f"n{j}"] < rank[f"n{i}"] for i in inputs for j in inputs[i])


def test_feeds_and_fetches_become_nodes_on_the_clients_device():
    nodes = build("x", "y x", "z y x:1")
    step = step_graph(nodes, [("z", 0), ("z", 0)], [], [("y", 0), ("x", 1)], CLIENT)
    assert list(step.nodes) == ["_recv_x_1", "_recv_y_0", "z", "_send_z_0"]
    assert step.nodes["z"].inputs == (("_recv_y_0", 0), ("_recv_x_1", 0))
    assert nodes["z"].inputs == (("y", 0), ("x", 1))
    assert step.feeds == (("_recv_y_0", ("y", 0)), ("_recv_x_1", ("x", 1)))
    assert step.fetches == (("_send_z_0", ("z", 0)), ("_send_z_0", ("z", 0)))
    feed, fetch = step.nodes["_recv_x_1"], step.nodes["_send_z_0"]
    assert (feed.op, feed.device, feed.attrs) == (FEED, CLIENT, {"T": dtypes.int32})
    assert output_dtypes(feed) == [dtypes.int32]
    assert (fetch.op, fetch.device, fetch.inputs) == (FETCH, CLIENT, (("z", 0),))


def test_control_edges_of_a_fed_placeholder_move():
    nodes = build("x", "y ^x")
    nodes["x"] = Node("x", "Placeholder", attrs={"dtype": dtypes.int64})
    step = step_graph(nodes, [("y", 0)], [], [("x", 0)], CLIENT)
    assert list(step.nodes) == ["_recv_x_0", "y", "_send_y_0"]
    assert step.nodes["y"].controls == ("_recv_x_0",)
    whole = rewrite_feeds_and_fetches(nodes, [("x", 0)], [], CLIENT)
    assert whole.nodes["y"].controls == ("_recv_x_0",)


def test_dtypes_of_inputs_and_outputs_follow_from_attrs():
    attrs = {"N": 2, "T": dtypes.half, "L": [dtypes.string]}
    node = Node("n", "TestPruneSum", attrs=attrs)
    assert input_dtypes(node) == [dtypes.half, dtypes.half, dtypes.string]
    assert output_dtypes(Node("s", "TestPruneSource")) == [dtypes.float32, dtypes.as_dtype("int32_ref")]
    with pytest.raises(NotFoundError, match="Op type not registered 'TestNowhere'"):
        output_dtypes(Node("s", "TestNowhere"))


@pytest.mark.parametrize("otherwise", [True, False])
@pytest.mark.parametrize("step, others, expected", [
    ({"MatMul", "ApplyAdagrad"}, {"Assign"}, True),
    ({"MatMul"}, {"ApplyAdagrad"}, False),
    ({"AccumulatorApplyGradient"}, {"ApplyAdagrad"}, True),
    ({"ApplyAdagrad", "AccumulatorTakeGradient"}, {"AccumulatorApplyGradient"}, False),
    ({"MatMul"}, {"Assign"}, None),
    ({"QueueEnqueueV2", "FIFOQueueV2"}, {"ApplyAdagrad"}, False),
])  # fmt: skip
def test_which_steps_train(step: set[str], others: set[str], expected: bool | None, otherwise: bool) -> None:
    assert is_training_step(step, step | others, otherwise) is (otherwise if expected is None else expected)


def test_which_steps_enqueue() -> None:
    assert enqueues({"QueueEnqueueManyV2", "FIFOQueueV2"}) and not enqueues({"QueueDequeueV2", "FIFOQueueV2"})
