"""The partitioner: pairs, control edges, messages, and the way back."""

from __future__ import annotations

import itertools

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.placement.letters import DEVICE, INCARNATIONS, graph, node, world
from tests.placement.letters import cut as cut_nodes
from tfmini import dtypes
from tfmini.devices import Place
from tfmini.errors import InvalidArgumentError, UnimplementedError
from tfmini.graph.node import Endpoint, Node, Nodes
from tfmini.graph.prune import in_topological_order, step_graph
from tfmini.placement.partition import Partitions, as_in_tensorflow, partition, to_networkx
from tfmini.placement.task_graph import End, Route

A, B, C = (DEVICE[letter] for letter in "ABC")


def cut(*lines):
    return cut_nodes(*world(*lines))


def groups(parts, src, dst):
    """source tensor -> group, for one link."""
    return {p.source[0]: p.group for p in parts.pairs if (p.src.device, p.dst.device) == (src, dst)}


def test_a_graph_on_one_device_is_not_changed():
    parts = cut("A1=Const", "A2=Add A1 A1 ^A1")
    assert list(parts.parts) == [A] and parts.pairs == []
    assert parts.parts[A]["A2"].inputs == (("A1", 0), ("A1", 0)) and parts.parts[A]["A2"].device == A


def test_a_tensor_crosses_once_per_device():
    parts = cut("A1=Const", "B1=Add A1 A1", "B2=Read A1", "C1=Read A1")
    assert list(parts.parts[A]) == ["A1", "A1_S0", "A1_S2"]
    assert list(parts.parts[B]) == ["A1_S1", "B1", "B2"]
    assert parts.parts[B]["B1"].inputs == (("A1_S1", 0), ("A1_S1", 0))
    assert parts.parts[C]["C1"].inputs == (("A1_S3", 0),)


def test_a_reference_is_sent_after_what_its_reader_waits_for():
    """An update beside the variable orders the send itself; what the reader's task waits for tells the other task."""
    world = ["A1=Var", "A2=Const", "A3=AssignAdd A1 A2"]
    parts = cut(*world, "B1=Read A1", "B2=Read A1 ^A3", "B3=Const", "B4=Add A1 B3")
    sends = {p.recv: parts.parts[A][p.send].controls for p in parts.pairs if p.source == ("A1", 0)}
    early, late = (parts.parts[B][name].inputs[0][0] for name in ("B1", "B2"))
    assert sends == {early: (), late: ("A3",)}
    assert parts.parts[B]["B4"].inputs[0][0] == early, "a constant comes before everything"
    for waits in ("B1=Read A3", "B1=Dequeue"):
        parts = cut(*world, waits, "B2=Read A1 ^B1")
        [back] = [p for p in parts.pairs if p.src.device == B]
        [(_, wait)] = [(p, parts.parts[A][p.send].controls) for p in parts.pairs if p.source == ("A1", 0)]
        assert back.source == ("B1", -1) and wait == (back.carriers[1],)


def test_a_reference_for_a_merge_does_not_wait_for_the_other_branch():
    parts = cut("A1=Var", "B1=Dequeue", "B2=Merge A1 B1")
    [pair] = parts.pairs
    assert pair.source == ("A1", 0) and parts.parts[A][pair.send].controls == ()


def test_a_value_that_is_no_array_does_not_leave_its_task():
    refused = f"'B1' on {B} takes a value of 'A2' on {A} .* Put both on one device"
    with pytest.raises(InvalidArgumentError, match=refused) as caught:
        cut("A1=Const", "A2=Source A1", "B1=Change A2 A1")
    assert caught.value.node_name == "A2"


def test_a_pair_has_all_that_its_two_ends_need():
    parts = cut("A1=Var", "B1=Read A1")
    send, recv = parts.parts[A]["A1_S0"], parts.parts[B]["A1_S1"]
    assert (send.op, send.device, send.inputs) == ("_Send", A, (("A1", 0),))
    assert (recv.op, recv.device, recv.inputs, recv.attrs) == ("_Recv", B, (), {"tensor_type": dtypes.float32})
    src, dst = Place("/job:worker/replica:0/task:0", A, 100), Place("/job:worker/replica:0/task:1", B, 101)
    tasks = parts.tasks
    assert tasks[src.task].sends == {"A1_S0": End("edge_0_A1", dst, 0)} and not tasks[src.task].receives
    assert tasks[dst.task].receives == {"A1_S1": End("edge_0_A1", src, 0)} and not tasks[dst.task].sends
    assert parts.pairs[0].key == f"{A};{100:016x};{B};edge_0_A1;0:0"


def test_the_ends_of_pairs_and_of_the_clients_values_have_tensorflows_attrs_where_they_are_exported():
    nodes, placement = world("A1=Const", "B1=Add A1 A1")
    step = step_graph(nodes, [("B1", 0)], [], [("A1", 0)], A)
    parts = partition(step, placement, incarnations=INCARNATIONS, name_counter=itertools.count())

    def rendezvous(tensor: str, src: str, dst: str, is_client: bool) -> dict[str, object]:
        return {
            "tensor_name": tensor.encode(), "send_device": src.encode(), "recv_device": dst.encode(),
            "send_device_incarnation": INCARNATIONS[src], "client_terminated": is_client,
        }  # fmt: skip

    shown = {n.name: (n.op, n.attrs) for device in (A, B) for n in as_in_tensorflow(parts, device)}
    there, back = parts.pairs
    dtype = {"_Send": {"T": dtypes.float32}, "_Recv": {"tensor_type": dtypes.float32}}
    for name, op, end in [
        ("_recv_A1_0", "_Recv", rendezvous("A1:0", A, A, True)),
        (there.send, "_Send", rendezvous("edge_0__recv_A1_0", A, B, False)),
        (there.recv, "_Recv", rendezvous("edge_0__recv_A1_0", A, B, False)),
        (back.send, "_Send", rendezvous("edge_1_B1", B, A, False)),
        (back.recv, "_Recv", rendezvous("edge_1_B1", B, A, False)),
        ("_send_B1_0", "_Send", rendezvous("B1:0", A, A, True)),
    ]:
        assert shown.pop(name) == (op, {**dtype[op], **end}), name
    assert list(shown) == ["B1"]
    assert parts.tasks["/job:worker/replica:0/task:1"].feeds == ((there.recv, ("A1", 0)),)
    assert parts.tasks["/job:worker/replica:0/task:1"].fetches == ((back.send, ("B1", 0)),)


def test_a_send_and_a_receive_that_a_graph_brings_along_are_nodes_like_others():
    """The inspector reads graphs that TensorFlow's partitioner has cut."""
    receive = Node("A1", "_Recv", attrs={"tensor_type": dtypes.float32, "tensor_name": b"edge_7_x"})
    nodes = graph(receive, node("B1", "Read", "A1"), Node("B2", "_Send", "", [("B1", 0)], (), {"T": dtypes.float32}))
    parts = cut_nodes(nodes, {name: DEVICE[name[0]] for name in nodes})
    [pair] = parts.pairs
    assert pair.source == ("A1", 0) and pair.route is Route.SENT
    assert [list(task.sends) + list(task.receives) for task in parts.tasks.values()] == [[pair.send], [pair.recv]]


def test_control_edge_is_an_empty_tensor_beside_the_data():
    parts = cut("A1=Const", "B1=Const ^A1", "B2=Read A1 ^A1")
    const, identity = parts.parts[A]["A1_S0"], parts.parts[B]["A1_S3"]
    assert (const.op, const.controls, const.attrs["value"].shape) == ("Const", ("A1",), (0,))
    assert parts.parts[A]["A1_S1"].inputs == (("A1_S0", 0),)
    assert (identity.op, identity.inputs) == ("Identity", (("A1_S2", 0),))
    assert parts.parts[B]["B1"].controls == parts.parts[B]["B2"].controls == ("A1_S3",)
    assert [p.is_control for p in parts.pairs] == [True, False]


def test_new_names_avoid_those_of_the_graph():
    parts = cut("A1=Const", "A1_S0=Const", "B1=Read A1")
    assert [(p.send, p.recv) for p in parts.pairs] == [("A1_S1", "A1_S2")]


def test_missing_inputs_and_devices_are_refused():
    with pytest.raises(InvalidArgumentError) as caught:
        cut("A1=Add A0 A9")
    assert caught.value.message == "Incomplete graph, missing 2 inputs for A1"
    with pytest.raises(InvalidArgumentError, match="'x' has no assigned device"):
        cut_nodes(graph(node("x", "Const")), {})


def test_loop_across_devices_is_refused_by_name():
    nodes, placement = world("A1=Const", "B1=Enter A1", "B2=Read B1", "C1=Read B2", "A2=Exit C1")
    nodes["B1"].attrs["frame_name"] = b"wl/while_context"
    with pytest.raises(UnimplementedError, match="'wl/while_context' spans devices .* but has no LoopCond"):
        cut_nodes(nodes, placement)
    placement["C1"] = B
    placement["A2"] = B
    assert len(cut_nodes(nodes, placement).pairs) == 1


# ---------------------------------------------------------------- messages


def test_sends_without_inputs_share_a_message():
    parts = cut("A1=Var", "A2=Var", "B1=Add A1 A2", "C1=Read A1")
    assert groups(parts, A, B) == {"A1": 0, "A2": 0}
    assert groups(parts, A, C) == {"A1": 0}


def test_a_reply_does_not_delay_the_request():
    parts = cut("A1=Const", "B1=Read A1", "A2=Read B1", "A3=Read A2", "A4=Const", "B2=Gather A2 A3 A4")
    assert groups(parts, A, B) == {"A1": 0, "A2": 1, "A3": 1, "A4": 0}


def test_a_dequeue_delays_only_sends_that_depend_on_it():
    parts = cut("A1=Const", "A2=Dequeue", "A3=Read A2", "B1=Gather A1 A3")
    assert groups(parts, A, B) == {"A1": 0, "A3": 1}


def test_feeds_arrive_together():
    nodes, placement = world("A1=Const", "A2=Const", "B1=Add A1 A2")
    step = step_graph(nodes, [("B1", 0)], [], [("A1", 0), ("A2", 0)], A)
    parts = partition(step, placement, incarnations=INCARNATIONS, name_counter=itertools.count())
    assert set(groups(parts, A, B).values()) == {0}


def test_values_that_return_through_a_loop_are_dependencies():
    lines = ["C1=Const", "C2=Const", "A1=Read C1", "A2=Merge A1 A4", "A3=Gather A2 C2", "A4=NextIteration A3"]
    parts = cut(*lines, "A5=Read A2", "A6=Read A1", "B1=Gather A5 A6")
    assert groups(parts, A, B) == {"A5": 0, "A6": 1}


# ---------------------------------------------------------------- any graph


@st.composite
def worlds(draw):
    names = [f"{draw(st.sampled_from('ABCD'))}{i}" for i in range(draw(st.integers(1, 14)))]
    lines = []
    for i, name in enumerate(names):
        picks = draw(st.lists(st.tuples(st.sampled_from(names[:i]), st.booleans()), max_size=4)) if i else []
        controls = sorted({f"^{source}" for source, control in picks if control})
        data = [source for source, control in picks if not control]
        lines.append(" ".join([f"{name}={'Gather' if data else 'Const'}", *data, *controls]))
    return lines


def stitch(partitions: Partitions) -> Nodes:
    """Joins every ``_Send`` to its ``_Recv`` again: the graph that was cut, each node on its device."""
    inputs: dict[Endpoint, Endpoint] = {}
    controls: dict[str, str] = {}
    made: set[str] = set()
    for pair in partitions.pairs:
        made.update((pair.send, pair.recv))
        if pair.carriers is None:
            inputs[pair.recv, 0] = pair.source
        else:
            made.update(pair.carriers)
            controls[pair.carriers[1]] = pair.source[0]
    whole: Nodes = {}
    for part in partitions.parts.values():
        for name, one in part.items():
            if name not in made:
                joined = [inputs.get(endpoint, endpoint) for endpoint in one.inputs]
                after = [controls.get(source, source) for source in one.controls]
                whole[name] = Node(name, one.op, one.device, joined, after, one.attrs)
    return in_topological_order(whole)


@given(worlds())
def test_joined_partitions_are_the_graph_and_each_tensor_crosses_once(lines):
    nodes, placement = world(*lines)
    parts = cut_nodes(nodes, placement)
    placed = {name: n.replace(device=placement[name]) for name, n in nodes.items()}
    assert networkx.utils.graphs_equal(to_networkx(stitch(parts)), to_networkx(placed))
    crossing = {(s, i, placement[n.name]) for n in nodes.values() for s, i in n.inputs if s[0] != n.name[0]}
    crossing |= {(s, -1, placement[n.name]) for n in nodes.values() for s in n.controls if s[0] != n.name[0]}
    assert len(parts.pairs) == len(crossing)
    for part in parts.parts.values():
        seen: set[str] = set()
        for name, n in part.items():
            assert seen.issuperset([*(s for s, _ in n.inputs), *n.controls])
            seen.add(name)


@given(worlds())
def test_messages_never_wait_for_their_own_answer(lines):
    """Nodes with all sends of a group, and all receives of it, tied together still form no cycle."""
    parts = cut(*lines)
    whole = networkx.DiGraph()
    for part in parts.parts.values():
        whole.add_edges_from((s, name) for name, n in part.items() for s in [*(i[0] for i in n.inputs), *n.controls])
    for pair in parts.pairs:
        message = (pair.src, pair.dst, pair.group)
        whole.add_edges_from([(pair.send, message), (message, pair.recv)])
    assert networkx.is_directed_acyclic_graph(whole)
