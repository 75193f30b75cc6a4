"""The frames of while loops: the frame of each node, and graphs in which one node stands for each loop.

A value enters a frame through ``Enter`` and leaves it through ``Exit``. Inside the frame it has one value per
iteration. `contract` makes a graph without cycles: one ``_Loop`` node replaces each outermost frame. Its inputs are
the inputs of the frame's ``Enter`` nodes and its outputs those of the ``Exit`` nodes. A `Loop` holds the frame's
nodes, with inner frames contracted in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfmini.errors import InvalidArgumentError
from tfmini.graph.node import Endpoint, Node, Nodes
from tfmini.graph.prune import in_topological_order
from tfmini.graph.traits import ENTER_OPS, EXIT_OPS, FLOW_OPS

LOOP_OP = "_Loop"
FramePath = tuple[str, ...]
"""The names of the frames around a node, outermost first."""


@dataclass
class Loop:
    """The nodes of one frame; ``_Loop`` nodes stand for inner frames.

    Attributes:
      name: the name of its ``_Loop`` node.
      enters: its ``Enter`` nodes, in the order of the ``_Loop`` node's inputs.
      exits: its ``Exit`` nodes, in the order of the ``_Loop`` node's outputs.
      nodes: all nodes of the frame in topological order (without regard to back edges).
      loops: the inner frames, by the name of their ``_Loop`` node.
    """

    name: str
    enters: list[Node]
    exits: list[Node]
    nodes: Nodes
    loops: dict[str, Loop]

    def all_nodes(self) -> list[Node]:
        """Returns the nodes of this frame and of its inner frames."""
        found = list(self.nodes.values())
        for loop in self.loops.values():
            found += loop.all_nodes()
        return found


def has_flow(nodes: Nodes) -> bool:
    """Whether the graph has conditionals or loops."""
    return not FLOW_OPS.isdisjoint({node.op for node in nodes.values()})


def frame_paths(nodes: Nodes) -> dict[str, FramePath]:
    """Returns the frames around each node that is in one.

    The ``Enter`` and ``Exit`` nodes of a frame belong to it.

    Args:
      nodes: in topological order (without regard to back edges).

    Raises:
      InvalidArgumentError: a node has inputs from two frames of which neither encloses the other.
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
        if path and node.op not in ENTER_OPS and any(_is_fed(nodes.get(source)) for source, _ in node.inputs):
            raise _different_frames(node, paths, nodes)
        if node.op in ENTER_OPS:
            path = (*path, node.attrs["frame_name"].decode())
        if path:
            paths[name] = path
    return paths


def _is_fed(source: Node | None) -> bool:
    """Whether it is a value from the client, which has no iterations."""
    return source is not None and source.op == "_Recv" and bool(source.attrs.get("client_terminated"))


def _different_frames(node: Node, paths: Mapping[str, FramePath], nodes: Nodes) -> InvalidArgumentError:
    sources = dict.fromkeys([*(source for source, _ in node.inputs), *node.controls])
    places = [
        f"The input {source!r} is in frame {paths[source][-1]!r}."
        for source in sources
        if source in paths and nodes[source].op not in EXIT_OPS
    ]
    return InvalidArgumentError.of(f"{{{{node {node.name}}}}} has inputs from different frames. {' '.join(places)}")


def contract(nodes: Nodes) -> tuple[Nodes, dict[str, Loop]]:
    """Replaces each outermost frame by a ``_Loop`` node; also returns the frames by the names of these nodes.

    Raises:
      InvalidArgumentError: a loop needs one of its own results to start.
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
            outer.setdefault(_loop_name(frame), node)  # holds the place of the loop's node in the order
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
        raise InvalidArgumentError.of(text) from None


def _loop_name(path: FramePath) -> str:
    return "/".join(path) + "/" + LOOP_OP


def _loop(name: str, inside: Nodes, paths: Mapping[str, FramePath], path: FramePath) -> Loop:
    nodes, loops = _contract(inside, paths, path)
    own = nodes.values()
    enters = [n for n in own if n.op in ENTER_OPS]
    exits = [n for n in own if n.op in EXIT_OPS]
    # The control inputs of an Enter are outside of the frame: the loop's node has them.
    nodes.update({n.name: n.replace(controls=()) for n in enters if n.controls})
    return Loop(name, enters, exits, nodes, loops)


def _loop_node(loop: Loop) -> Node:
    inputs = [enter.inputs[0] for enter in loop.enters]
    controls = dict.fromkeys(c for enter in loop.enters for c in enter.controls)
    device = loop.enters[0].device if loop.enters else ""
    return Node(loop.name, LOOP_OP, device, inputs, controls)


def _redirect(node: Node, leaves: dict[str, Endpoint]) -> Node:
    """Returns the node with inputs from ``Exit`` nodes replaced by outputs of the loop's node."""
    if not any(source in leaves for source, _ in node.inputs) and not any(c in leaves for c in node.controls):
        return node
    inputs = [leaves.get(endpoint[0], endpoint) for endpoint in node.inputs]
    controls = dict.fromkeys(leaves[c][0] if c in leaves else c for c in node.controls)
    return node.replace(inputs=tuple(inputs), controls=tuple(controls))
