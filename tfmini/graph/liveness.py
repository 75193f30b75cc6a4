"""Static analysis of conditionals: the conditions under which each node of a graph runs.

A ``Switch`` passes its value to one of two outputs and makes the other one *dead*. A node with a dead input is dead
itself, until a ``Merge`` joins the branches. The *guard* of a value is the set of conditions that must hold for it to
be alive. A value with an empty guard is always alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tfmini.errors import InvalidArgumentError
from tfmini.graph.node import FETCH, Endpoint, Node, Nodes
from tfmini.graph.omission import is_update
from tfmini.graph.op_types import ENTER_OPS, EXIT_OPS, FLOW_OPS, MERGE_OPS, NEXT_OPS, SWITCH_OPS
from tfmini.graph.prune import in_topological_order

Atom = tuple[Endpoint, "bool | None"]
"""One condition: an endpoint and the value that it must have; with None, it must be alive, with any value."""

Guard = frozenset[Atom]
ALWAYS: Guard = frozenset()


class NodeGuards:
    """The guards of the nodes of one graph. The caller passes the nodes to `admit` in topological order.

    Args:
      canonical: maps an endpoint to the one of which it is a copy, so that a predicate has one name only.
    """

    def __init__(self, canonical: Callable[[Endpoint], Endpoint] = lambda endpoint: endpoint) -> None:
        self._canonical = canonical
        self._nodes: dict[str, Guard] = {}
        self._endpoints: dict[Endpoint, Guard] = {}

    def of_node(self, name: str) -> Guard:
        """Returns the guard of the node: the conditions under which it runs."""
        return self._nodes.get(name, ALWAYS)

    def of(self, endpoint: Endpoint) -> Guard:
        """Returns the guard of the value: the conditions under which it is alive."""
        guard = self._endpoints.get(endpoint)
        return self._nodes.get(endpoint[0], ALWAYS) if guard is None else guard

    def doubt(self, endpoint: Endpoint) -> None:
        """Declares that whether the value is alive can only be seen at run time, from the value."""
        guard = self.of(endpoint) | {(endpoint, None)}
        self._endpoints[endpoint] = self._nodes[endpoint[0]] = guard

    def doubt_value(self, endpoint: Endpoint) -> None:
        """As `doubt`, for one of several values of a node that runs all the same."""
        self._endpoints[endpoint] = self.of_node(endpoint[0]) | {(endpoint, None)}

    def needs(self, node: Node) -> Guard:
        """Returns the conditions under which all inputs of a node are alive."""
        found = ALWAYS
        for endpoint in node.inputs:
            found = _union(found, self.of(endpoint))
        for source in node.controls:
            found = _union(found, self._nodes.get(source, ALWAYS))
        return found

    def admit(self, node: Node) -> Guard:
        """Computes the guard of the next node."""
        if node.op == "ControlTrigger":
            guard = ALWAYS  # it runs after its control inputs, even if they are dead
        elif node.op in MERGE_OPS:
            guard = self._merge(node)
        else:
            guard = self.needs(node)
            if node.op in SWITCH_OPS:
                predicate = self._canonical(node.inputs[1])
                for way in (False, True):
                    self._endpoints[node.name, int(way)] = guard | {(predicate, way)}
        if guard:
            self._nodes[node.name] = guard
        return guard

    def _merge(self, node: Node) -> Guard:
        """Computes the guard of a merge: one input must be alive. Of the two outputs of a switch one always is."""
        guards = [self.of(e) for e in node.inputs]
        common = frozenset.intersection(*guards) if guards else ALWAYS
        rests = [guard - common for guard in guards]
        for source in node.controls:
            common = _union(common, self._nodes.get(source, ALWAYS))
        if all(rests) and not _complementary(rests):
            return common | {((node.name, 0), None)}
        return common


def _union(a: Guard, b: Guard) -> Guard:
    return a if a is b or not b else b if not a else a | b


def _complementary(rests: list[Guard]) -> bool:
    """Whether the guards are two of which exactly one always holds."""
    if len(rests) != 2 or len(rests[0]) != 1 or len(rests[1]) != 1:
        return False
    (one, way), (other, other_way) = *rests[0], *rests[1]
    return one == other and way is not None and other_way is (not way)


def uncertain_values(nodes: Nodes, in_iteration: bool = False) -> Callable[[Endpoint], bool]:
    """Returns a function that tells whether a value, or a node (index -1), may be dead.

    Args:
      nodes: a whole graph in topological order.
      in_iteration: of what is in a loop, only whether it may be dead in an iteration after which the loop goes on.
    """
    places: dict[str, _Place] = {}
    outer, loops = contract(nodes)
    _survey(outer, loops, places)

    def is_uncertain(endpoint: Endpoint) -> bool:
        place = places[endpoint[0]]
        index = endpoint[1] if place.output is None else place.output
        guard = place.guards.of_node(place.name) if index < 0 else place.guards.of((place.name, index))
        return place.is_doubtful or bool(guard - place.goes_on if in_iteration else guard)

    return is_uncertain


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the guard of a node is.

    Attributes:
      guards, name: of its level, and its name there; an Exit has that of its loop, and the number of its ``output``.
      is_doubtful: whether it may be dead beside what the guard says.
      goes_on: the guard of the loop's next iteration.
    """

    guards: NodeGuards
    name: str
    is_doubtful: bool
    goes_on: Guard
    output: int | None = None


def _survey(nodes: Nodes, loops: dict[str, LoopFrame], places: dict[str, _Place]) -> bool:
    """Notes the guards of one level and of the loops in it; returns whether an Exit in it may never be alive."""
    liveness = NodeGuards(lambda endpoint: _copied(nodes, endpoint))
    nexts = {name for name, node in nodes.items() if node.op in NEXT_OPS}
    may_not_leave = {name for name, loop in loops.items() if _survey(loop.nodes, loop.loops, places)}
    for name, node in nodes.items():
        if not any(source in nexts for source, _ in node.inputs):  # a loop variable always has a value
            liveness.admit(node)
        if name in may_not_leave:
            for i in range(len(loops[name].exits)):
                liveness.doubt_value((name, i))
    conditions = {liveness.of_node(name) for name in nexts}  # several: loop variables that go on under different ones
    doubtful = len(conditions) > 1 or bool(nexts) and _enters_once(nodes)
    goes_on = next(iter(conditions), ALWAYS)
    places.update({name: _Place(liveness, name, doubtful, goes_on) for name in nodes})
    for name, loop in loops.items():
        for i, node in enumerate(loop.exits):
            is_doubtful = doubtful or places[node.name].is_doubtful
            places[node.name] = _Place(liveness, name, is_doubtful, goes_on, i)
    left = {(endpoint, not way) for condition in conditions for endpoint, way in condition}
    return doubtful or any(not liveness.of_node(n.name) <= left for n in nodes.values() if n.op in EXIT_OPS)


def _copied(nodes: Nodes, endpoint: Endpoint) -> Endpoint:
    """The endpoint of which one is a copy: a conditional copies its predicate for what it takes from outside."""
    node = nodes.get(endpoint[0])
    while node is not None and node.op == "Identity":
        endpoint = node.inputs[0]
        node = nodes.get(endpoint[0])
    return endpoint


def _enters_once(nodes: Nodes) -> bool:
    """Whether a value enters a loop for its first iteration only, so that what needs it is dead in the later ones."""
    once = {n.name for n in nodes.values() if n.op in ENTER_OPS and not n.attrs.get("is_constant")}
    return any(source in once for n in nodes.values() if n.op not in MERGE_OPS for source, _ in n.inputs)


# ---- The frames of while loops: the frame of each node, and graphs in which one node stands for each loop ----------
# A value enters a frame through ``Enter`` and leaves it through ``Exit``. Inside the frame it has one value per
# iteration. `contract` makes a graph without cycles: one ``_Loop`` node replaces each outermost frame. Its inputs are
# the inputs of the frame's ``Enter`` nodes and its outputs those of the ``Exit`` nodes. A `LoopFrame` holds the frame's
# nodes, with inner frames contracted in the same way.

LOOP_OP = "_Loop"
FramePath = tuple[str, ...]
"""The names of the frames around a node, outermost first."""


@dataclass
class LoopFrame:
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
    loops: dict[str, LoopFrame]

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
      InvalidArgumentError: a node has inputs from two frames, a frame is entered from inside, or a value inside is
        fetched.
    """
    paths: dict[str, FramePath] = {}
    seen: set[str] = set()
    within: str | None = None  # an Enter that starts in the frame that it enters
    for name, node in nodes.items():
        path: FramePath | None = None
        for source in (*(source for source, _ in node.inputs), *node.controls):
            if source not in seen:
                continue  # it comes round, or is no part of this graph
            outer = _leaving(source, paths, nodes)
            if path is None:
                path = outer
            elif outer != path:
                raise _different_frames(node, paths, nodes, seen)
        seen.add(name)
        path = path or ()
        if node.op in ENTER_OPS:
            frame = node.attrs["frame_name"].decode()
            if frame in path:
                within, path = within or name, path[: path.index(frame)]
            path = (*path, frame)
        if path:
            if node.op == FETCH:
                raise _fetched_inside(node, path)
            paths[name] = path
    if within is not None:  # only now: an op with inputs of two frames says better what is wrong
        raise _entered_within(nodes[within], paths, nodes)
    return paths


def _leaving(source: str, paths: Mapping[str, FramePath], nodes: Nodes) -> FramePath:
    """The frames around the values of a node: those of an Exit are outside of its frame."""
    path = paths.get(source, ())
    return path[:-1] if nodes[source].op in EXIT_OPS else path


def _sources(node: Node) -> list[str]:
    return list(dict.fromkeys([*(source for source, _ in node.inputs), *node.controls]))


def _different_frames(node: Node, paths: Mapping[str, FramePath], nodes: Nodes, seen: set[str]) -> InvalidArgumentError:
    places = {source: _leaving(source, paths, nodes) for source in _sources(node) if source in seen}
    first, path = next(iter(places.items()))
    other, other_path = next(place for place in places.items() if place[1] != path)
    while path and other_path and path[-1] == other_path[-1]:  # one frame, entered from two others: these are to name
        first, path = _entering(first, path, paths, nodes), path[:-1]
        other, other_path = _entering(other, other_path, paths, nodes), other_path[:-1]
    texts = [
        f"The input {{{{node {source}}}}} is in frame '{around[-1] if around else ''}'."
        for source, around in ((first, path), (other, other_path))
    ]
    inner = first if len(path) > len(other_path) else other
    return InvalidArgumentError.of(
        f"{{{{node {node.name}}}}} has inputs from different frames. {' '.join(texts)} {_remedy(inner, paths, nodes)}"
    )


def _entering(name: str, path: FramePath, paths: Mapping[str, FramePath], nodes: Nodes) -> str:
    """The input of the nearest Enter through which the value of a node has come into its frame."""
    for node in _behind(name, path, paths, nodes):
        if node.op in ENTER_OPS and paths.get(node.name) == path:
            return node.inputs[0][0]
    return name


def _entered_within(enter: Node, paths: Mapping[str, FramePath], nodes: Nodes) -> InvalidArgumentError:
    source = next(s for s in _sources(enter) if paths.get(s) == paths[enter.name])
    return InvalidArgumentError.of(
        f"{{{{node {enter.name}}}}} enters frame '{paths[source][-1]}', but its input {{{{node {source}}}}} is in this"
        f" frame, not in the frame around it. {_remedy(source, paths, nodes)}"
    )


def _fetched_inside(send: Node, path: FramePath) -> InvalidArgumentError:
    source = send.inputs[0][0]
    return InvalidArgumentError.of(
        f"{{{{node {source}}}}} is fetched, but it is in frame '{path[-1]}' of a while loop and has a value in each"
        " iteration. Return the value from the loop's body and fetch the loop's result."
    )


def _remedy(inner: str, paths: Mapping[str, FramePath], nodes: Nodes) -> str:
    """What to do about an op outside of a while loop that depends on ``inner``, which is in the loop's frame."""
    update = _update_behind(inner, paths, nodes)
    if update is None:
        return (
            f"'{inner}' is run in each iteration of a while loop, and only ops of the loop can depend on it: make the"
            " op that needs it in the loop's body, or return a value from the body and use the loop's result."
        )
    because = "" if update == inner else f"'{inner}' waits for '{update}'. "
    return (
        f"{because}'{update}' changes a variable in each iteration of a while loop, so no op outside of the loop can"
        " wait for it. If it comes from tf.GraphKeys.UPDATE_OPS (batch normalisation in a while_loop, map_fn or"
        " dynamic_rnn puts it there), leave it out of the control dependencies of the train op, and run it in the"
        " body: with tf.control_dependencies around the body's results."
    )


def _update_behind(name: str, paths: Mapping[str, FramePath], nodes: Nodes) -> str | None:
    """The nearest node in the same frame that changes a variable and for which a node waits, or the node itself."""
    return next((node.name for node in _behind(name, paths[name], paths, nodes) if is_update(node)), None)


def _behind(name: str, path: FramePath, paths: Mapping[str, FramePath], nodes: Nodes) -> Iterator[Node]:
    """The node and those in the same frame, or in frames inside it, for which it waits; the nearest first."""
    found, known = [name], {name}
    for current in found:
        yield nodes[current]
        fresh = [s for s in _sources(nodes[current]) if s not in known and paths.get(s, ())[: len(path)] == path]
        known.update(fresh)
        found += fresh


def contract(nodes: Nodes) -> tuple[Nodes, dict[str, LoopFrame]]:
    """Replaces each outermost frame by a ``_Loop`` node; also returns the frames by the names of these nodes.

    Raises:
      InvalidArgumentError: a loop needs one of its own results to start.
    """
    paths = frame_paths(nodes)
    if not paths:
        return nodes, {}
    return _contract(nodes, paths, ())


def _contract(nodes: Nodes, paths: Mapping[str, FramePath], around: FramePath) -> tuple[Nodes, dict[str, LoopFrame]]:
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
    loops: dict[str, LoopFrame] = {}
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


def _loop(name: str, inside: Nodes, paths: Mapping[str, FramePath], path: FramePath) -> LoopFrame:
    nodes, loops = _contract(inside, paths, path)
    own = nodes.values()
    enters = [n for n in own if n.op in ENTER_OPS]
    exits = [n for n in own if n.op in EXIT_OPS]
    # The control inputs of an Enter are outside of the frame: the loop's node has them.
    nodes.update({n.name: n.replace(controls=()) for n in enters if n.controls})
    return LoopFrame(name, enters, exits, nodes, loops)


def _loop_node(loop: LoopFrame) -> Node:
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
