"""While loops in a dataflow graph: which nodes belong to which frame, and loops folded into one node each.

A value enters a frame through ``Enter`` and leaves it through ``Exit``; between them it lives once
per iteration. `contract` makes a graph without cycles out of one with loops: each outermost frame
becomes one ``_Loop`` node whose inputs are what enters and whose outputs are what leaves, and the
nodes of the frame, treated the same way, are kept aside in a `Loop`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfmini.errors import InvalidArgumentError
from tfmini.graph.node import Endpoint, Node, Nodes
from tfmini.graph.prune import in_topological_order

ENTER_OPS = frozenset({"Enter", "RefEnter"})
EXIT_OPS = frozenset({"Exit", "RefExit"})
NEXT_OPS = frozenset({"NextIteration", "RefNextIteration"})
MERGE_OPS = frozenset({"Merge", "RefMerge"})
SWITCH_OPS = frozenset({"Switch", "RefSwitch"})
FLOW_OPS = ENTER_OPS | EXIT_OPS | NEXT_OPS | MERGE_OPS | SWITCH_OPS
"""The ops that steer: they compute nothing, and the compiler turns them into Python's own control flow."""

STEERING_OPS = FLOW_OPS | {"LoopCond", "ControlTrigger"}
"""`FLOW_OPS` and those that only mark a place: no device has or needs a kernel for them."""

LOOP_OP = "_Loop"
FramePath = tuple[str, ...]
"""The names of the frames around a node, outermost first."""


@dataclass
class Loop:
    """One frame: its nodes, where inner frames are ``_Loop`` nodes again.

    Attributes:
      name: of its ``_Loop`` node.
      enters: in the order of the ``_Loop`` node's inputs.
      exits: in the order of its outputs.
      nodes: everything in the frame in topological order (back edges do not count).
      loops: the inner frames, by the name of their ``_Loop`` node.
    """

    name: str
    enters: list[Node]
    exits: list[Node]
    nodes: Nodes
    loops: dict[str, Loop]

    def all_nodes(self) -> list[Node]:
        """The nodes of this frame and of the frames in it."""
        found = list(self.nodes.values())
        for loop in self.loops.values():
            found += loop.all_nodes()
        return found


def has_flow(nodes: Nodes) -> bool:
    """Whether the graph has conditionals or loops."""
    return any(node.op in FLOW_OPS for node in nodes.values())


def frame_paths(nodes: Nodes) -> dict[str, FramePath]:
    """The frames around each node; nodes outside all frames are left out.

    An ``Enter`` and an ``Exit`` count as part of the frame that they lead into and out of.

    Args:
      nodes: in topological order (back edges do not count).

    Raises:
      InvalidArgumentError: the inputs of a node come from frames that are not inside one another.
    """
    paths: dict[str, FramePath] = {}
    for name, node in nodes.items():
        path: FramePath = ()
        for source in (*(source for source, _ in node.inputs), *node.controls):
            outer = paths.get(source)
            if outer is not None:
                if nodes[source].op in EXIT_OPS:
                    outer = outer[:-1]
                if outer[: len(path)] != path[: len(outer)]:
                    raise _different_frames(node, paths, nodes)
                if len(outer) > len(path):
                    path = outer
        if node.op in ENTER_OPS:
            path = (*path, node.attrs["frame_name"].decode())
        if path:
            paths[name] = path
    return paths


def _different_frames(node: Node, paths: Mapping[str, FramePath], nodes: Nodes) -> InvalidArgumentError:
    sources = dict.fromkeys([*(source for source, _ in node.inputs), *node.controls])
    places = [
        f"The input {source!r} is in frame {paths[source][-1]!r}."
        for source in sources
        if source in paths and nodes[source].op not in EXIT_OPS
    ]
    return InvalidArgumentError(
        None, None, f"{{{{node {node.name}}}}} has inputs from different frames. {' '.join(places)}"
    )


def contract(nodes: Nodes) -> tuple[Nodes, dict[str, Loop]]:
    """The graph with each outermost frame as one node, and the frames by the names of these nodes.

    Raises:
      InvalidArgumentError: a frame's result is needed to enter it.
    """
    paths = frame_paths(nodes)
    if not paths:
        return nodes, {}
    return _contract(nodes, paths, ())


def _contract(nodes: Nodes, paths: Mapping[str, FramePath], around: FramePath) -> tuple[Nodes, dict[str, Loop]]:
    depth = len(around)
    frames: dict[FramePath, Nodes] = {}
    outer: Nodes = {}
    for name, node in nodes.items():
        path = paths.get(name, ())
        if len(path) > depth:
            frame = path[: depth + 1]
            frames.setdefault(frame, {})[name] = node
            outer.setdefault(_loop_name(frame), node)  # keeps the loop's place in the order
        else:
            outer[name] = node
    if not frames:
        return outer, {}
    loops: dict[str, Loop] = {}
    leaves: dict[str, Endpoint] = {}
    for path, inside in frames.items():
        name = _loop_name(path)
        loop = _loop(name, inside, paths, path)
        loops[name] = loop
        leaves.update({node.name: (name, i) for i, node in enumerate(loop.exits)})
        outer[name] = _loop_node(loop)
    redirected = {name: _redirect(node, leaves) for name, node in outer.items()}
    try:
        return in_topological_order(redirected), loops
    except InvalidArgumentError as error:
        text = f"A while loop needs one of its own results to start: {error.message}"
        raise InvalidArgumentError(None, None, text) from None


def _loop_name(path: FramePath) -> str:
    return "/".join(path) + "/" + LOOP_OP


def _loop(name: str, inside: Nodes, paths: Mapping[str, FramePath], path: FramePath) -> Loop:
    nodes, loops = _contract(inside, paths, path)
    own = nodes.values()
    enters = [n for n in own if n.op in ENTER_OPS]
    exits = [n for n in own if n.op in EXIT_OPS]
    # What an Enter waits for is outside: the loop's node waits for it.
    nodes.update({n.name: n.replace(controls=()) for n in enters if n.controls})
    return Loop(name, enters, exits, nodes, loops)


def _loop_node(loop: Loop) -> Node:
    inputs = [enter.inputs[0] for enter in loop.enters]
    controls = dict.fromkeys(c for enter in loop.enters for c in enter.controls)
    device = loop.enters[0].device if loop.enters else ""
    return Node(loop.name, LOOP_OP, device, inputs, controls)


def _redirect(node: Node, leaves: dict[str, Endpoint]) -> Node:
    """The node with what it takes from an ``Exit`` taken from the loop's node."""
    if not any(source in leaves for source, _ in node.inputs) and not any(c in leaves for c in node.controls):
        return node
    inputs = [leaves.get(endpoint[0], endpoint) for endpoint in node.inputs]
    controls = dict.fromkeys(leaves[c][0] if c in leaves else c for c in node.controls)
    return node.replace(inputs=tuple(inputs), controls=tuple(controls))
