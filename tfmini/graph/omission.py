"""Leaving out of a step what an earlier attempt at the step has done already.

A step that is repeated after the loss of a connection must not update a variable twice. `omit` is the graph pass that
takes the updates out that have been made; what depends on them gets the present values.

A value that the step reads *before* such an update is another one now. Where it decides which updates are made, or how
often, an update could be lost or made that no single run of the step makes. So `omit` gives a read before an integer's
counter was raised the value without that, and refuses a repetition that would decide otherwise (`_Repetition`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tfmini import dtypes, errors
from tfmini.devices import task_of_device
from tfmini.graph.node import Endpoint, Node, Nodes, output_dtypes
from tfmini.graph.op_types import ENTER_OPS, EXIT_OPS, MERGE_OPS, NEXT_OPS, SWITCH_OPS, VARIABLE_OPS, ops_with, trait_of

STAND_IN = "_stand_in"
"""An attr of a dequeue that must not be repeated: the name of the variable whose value stands for the element."""

_WRITES = ops_with("writes")
_OPTIMIZES = ops_with("writes", "optimize")
_ACCUMULATES = ops_with("accumulator", "apply")
_FORWARDS = ops_with("forwards", "value")


def is_update(node: Node) -> bool:
    """Whether the node changes a variable or an accumulator, or takes an element that must not be taken twice."""
    return node.op in _WRITES or node.op in _ACCUMULATES or STAND_IN in node.attrs


def omit(
    nodes: Nodes, names: Collection[str], needed: Nodes, placement: Mapping[str, str]
) -> tuple[Nodes, dict[str, str]]:
    """The nodes with the updates of these names replaced by nodes that change nothing, and the places of new nodes.

    Args:
      needed: those of the nodes that the step needs, in topological order.
      placement: node -> device.

    Raises:
      UnimplementedError: for an update whose output is neither a reference nor replaceable.
      UnknownError: when the repetition may make updates that do not belong to those made already.
    """
    made = [name for name in names if name in nodes]
    repetition = _Repetition(needed, [name for name in made if name in needed])
    repetition.check(placement)
    result = {**nodes, **{name: _omitted(nodes[name], nodes) for name in made}}
    places: dict[str, str] = {}
    for read, update in repetition.held.items():
        places |= dict.fromkeys(_look_behind(result, nodes[read], nodes[update]), placement[read])
    return result, places


def _omitted(node: Node, nodes: Nodes) -> Node:
    if STAND_IN in node.attrs:
        return _value_of(node, nodes[node.attrs[STAND_IN].decode()])
    assert node.handle is not None
    outputs = node.handle.op_def.outputs
    if not outputs:
        # In a loop it still has to run once per iteration, so it depends on the handle, which enters the loop.
        entering = [name for name, _ in node.inputs[:1] if name in nodes and nodes[name].op in ENTER_OPS]
        return node.replace(op="NoOp", inputs=(), controls=(*node.controls, *entering), attrs={})
    if len(outputs) == 1 and outputs[0].is_ref:
        return node.replace(op="RefIdentity", inputs=node.inputs[:1], attrs={"T": node.attrs["T"]})
    raise errors.UnimplementedError.of(
        f"{node.name} ({node.op}) has been run in a step that failed afterwards, and the step cannot be repeated"
        " without it."
    )


def _value_of(node: Node, variable: Node) -> Node:
    """Reads a variable in place of a node."""
    dtype = variable.attrs["dtype"]
    if variable.op == "VarHandleOp":
        return node.replace(op="ReadVariableOp", inputs=((variable.name, 0),), attrs={"dtype": dtype})
    return node.replace(op="Identity", inputs=((variable.name, 0),), attrs={"T": dtype})


def _look_behind(nodes: Nodes, read: Node, update: Node) -> tuple[str, str]:
    """Lets the users of a read get the value without an update of the step; returns the names of the new nodes."""
    name = f"{read.name}/before/{update.name}"
    # A constant of its own: the other one may wait for the read, by a control edge. A fed value waits for nothing.
    constant = nodes[update.inputs[1][0]].replace(name=f"{name}/by", device=read.device, controls=())
    is_fed = constant.op != "Const"
    operands = [(read.name, 0), update.inputs[1] if is_fed else (constant.name, 0)]
    users = [node for node in nodes.values() if (read.name, 0) in node.inputs]
    if not is_fed:
        nodes[constant.name] = constant
    op = trait_of(update.op, "taken_back_by")
    nodes[name] = Node(name, op, read.device, operands, attrs={"T": output_dtypes(read)[0]})
    for user in users:
        inputs = [(name, 0) if endpoint == (read.name, 0) else endpoint for endpoint in user.inputs]
        nodes[user.name] = user.replace(inputs=tuple(inputs))
    return name, constant.name


class _Repetition:
    """What a step does when it is repeated without updates that have been made.

    Attributes:
      held: the reads that shall get the value before an update -> the update.
    """

    def __init__(self, nodes: Nodes, made: Collection[str]) -> None:
        self._nodes = nodes
        self._made = made
        self._left = [node for node in nodes.values() if is_update(node) and node.name not in made]
        self._guards: dict[str, frozenset[Endpoint]] = {}
        self._variables = self._find_variables()
        self.held: dict[str, str] = {}
        self._reads: dict[str, str] = {}  # other reads before an update that has been made -> the update
        for name in made:
            self._look_before(nodes[name])

    def check(self, placement: Mapping[str, str]) -> None:
        """Raises UnknownError if updates that are left may not be those that belong to the ones made."""
        exact = [read for read, update in self._reads.items() if not self._is_floating(self._nodes[update])]
        changed, counted = self._behind(self._reads), self._behind(exact)
        for node in self._left:
            guards = self._guards_of(node)
            decides = [p for p, _ in guards if p in changed]
            if decides or node.name in counted:
                raise self._unknown(node, decides or exact, placement)
            for name in self._made:
                split = [p for p, _ in guards & self._guards_of(self._nodes[name]) if not self._is_repeatable(p)]
                if split:
                    raise self._unknown(node, split, placement)

    def _unknown(self, node: Node, what: Collection[str], placement: Mapping[str, str]) -> errors.OpError:
        def place(name: str) -> str:
            return f"{name} on {placement.get(name) or 'a task'}"

        reads = ", ".join(sorted(set(self._reads.values()))) or "another step"
        device = placement.get(node.name, "")
        return errors.from_code(
            errors.UNKNOWN,
            f"A step was cut off after {', '.join(place(name) for name in sorted(self._made)[:10])}. It still has to"
            f" make {place(node.name)}, about which {', '.join(sorted(what)[:3])} decides: its value is another one"
            f" now, since {reads} has changed what it is computed from. The step is not repeated, since an update"
            " could be lost, or one be made that does not belong to the others. Go on from the last checkpoint, or run"
            " the step again if that does no harm.", node_name=node.name, device=device, task=task_of_device(device),
        )  # fmt: skip

    # ---- reads before updates ---------------------------------------------------------------

    def _find_variables(self) -> dict[str, str]:
        """Node -> variable, for all nodes whose first output refers to a variable."""
        found: dict[str, str] = {}
        for node in self._nodes.values():
            if node.op in VARIABLE_OPS:
                found[node.name] = node.name
            elif node.inputs and node.inputs[0][0] in found:
                outputs = output_dtypes(node)
                if outputs and (outputs[0]._is_ref_dtype or outputs[0] == dtypes.resource):
                    found[node.name] = found[node.inputs[0][0]]
        return found

    def _look_before(self, update: Node) -> None:
        """Finds the reads of an update's variable that do not come after it."""
        variable = self._variables.get(update.inputs[0][0]) if update.inputs else None
        if variable is None:
            return
        after = self._behind([update.name], controls=True)
        is_count = self._is_count(update, variable)
        for node in self._nodes.values():
            if node.name in after or node.name in self._variables and not is_update(node):
                continue  # a node that only hands the variable on does not read it
            read = node.inputs[1:] if is_update(node) else node.inputs
            if any(self._variables.get(source) == variable for source, _ in read):
                if is_count and node.op in _FORWARDS and node.inputs == ((variable, 0),):
                    self.held[node.name] = update.name
                else:
                    self._reads[node.name] = update.name

    def _is_count(self, update: Node, variable: str) -> bool:
        """Whether the value before an update can be told: it alone changes an integer, by a constant or a fed value."""
        if trait_of(update.op, "taken_back_by") is None or self._is_floating(update) or self._guards_of(update):
            return False
        by = self._nodes.get(update.inputs[1][0])
        others = [n for n in self._nodes.values() if is_update(n) and n.inputs and n is not update]
        is_alone = not any(self._variables.get(n.inputs[0][0]) == variable for n in others)
        return is_alone and (by is None or by.op == "Const")

    @staticmethod
    def _is_floating(update: Node) -> bool:
        dtype = update.attrs.get("T", update.attrs.get("dtype"))
        return dtype is None or dtype.is_floating or dtype.is_complex

    # ---- what depends on what ---------------------------------------------------------------

    def _behind(self, names: Iterable[str], controls: bool = False) -> set[str]:
        """The nodes that depend on some, with those: by their values, or also in their order."""
        users: dict[str, list[str]] = {}
        for node in self._nodes.values():
            for source in (*(name for name, _ in node.inputs), *(node.controls if controls else ())):
                users.setdefault(source, []).append(node.name)
        found = set(names)
        stack = list(found)
        while stack:
            name = stack.pop()
            # An update of a gradient takes what it gets, as always in asynchronous training.
            if not controls and self._nodes[name].op in _OPTIMIZES:
                continue
            new = [user for user in users.get(name, ()) if user not in found]
            found.update(new)
            stack += new
        return found if controls else {name for name in found if self._nodes[name].op not in _OPTIMIZES}

    def _is_repeatable(self, name: str) -> bool:
        """Whether a value is the same in every run: it depends on constants and fed values only."""
        stack, seen = [name], {name}
        while stack:
            node = self._nodes.get(stack.pop())
            if node is None:  # fed
                continue
            if node.handle is None or node.handle.op_def.is_stateful or node.op in VARIABLE_OPS:
                return False
            new = [source for source, _ in node.inputs if source not in seen]
            seen.update(new)
            stack += new
        return True

    def _guards_of(self, node: Node) -> frozenset[Endpoint]:
        """The predicates that decide whether a node runs, or how often."""
        stack = [node.name]
        while stack:
            name = stack[-1]
            if name in self._guards:
                stack.pop()
                continue
            sources = self._deciding_sources(self._nodes[name])
            missing = [source for source in sources if source not in self._guards]
            if missing:
                stack += missing
            else:
                self._guards[name] = self._joined(self._nodes[name], sources)
                stack.pop()
        return self._guards[node.name]

    def _deciding_sources(self, node: Node) -> list[str]:
        """The nodes on whose guards a node's own depend, without the edges that go back in loops."""
        if node.op in EXIT_OPS:  # it leaves a loop, which ends: it is what has entered that decides
            switch = self._nodes.get(node.inputs[0][0])
            return [name for name, _ in switch.inputs[:1] if name in self._nodes] if switch is not None else []
        names = [*(name for name, _ in node.inputs), *node.controls]
        return [name for name in names if name in self._nodes and self._nodes[name].op not in NEXT_OPS]

    def _joined(self, node: Node, sources: list[str]) -> frozenset[Endpoint]:
        found = [self._guards[source] for source in sources]
        if node.op in MERGE_OPS:
            return frozenset.intersection(*found) if found else frozenset()
        own = {node.inputs[1]} if node.op in SWITCH_OPS else ()
        return frozenset().union(*found, own)
