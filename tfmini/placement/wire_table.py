"""The transfers of a step: what it sends between devices, as a list and as a text table.

Each has a role: a variable read, the gradient of a variable, the global step, …
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tfmini import dtypes
from tfmini.graph.liveness import FramePath, frame_paths, has_flow, uncertain_values
from tfmini.graph.node import SEND, Endpoint, Node
from tfmini.graph.op_types import EXIT_OPS, OPS, SWITCH_OPS, VARIABLE_OPS, ops_with
from tfmini.graph.prune import endpoint_name
from tfmini.placement.partition import Partitions
from tfmini.placement.task_graph import Pair, Route
from tfmini.shapes import RawShape

_FORWARDS, _LOOKS_UP = ops_with("forwards", "value"), ops_with("looks_up")
_UPDATES, _ACCUMULATES = ops_with("writes", "optimize", "scatter"), ops_with("accumulator", "apply")
_GRADIENT_INPUTS = frozenset({"grad", "delta", "gradient", "gradient_indices", "gradient_values", "gradient_shape",
                              "updates", "indices"})  # fmt: skip
# Ops between a gradient and the op that applies it: sums and means over replicas, clipping, slices.
_ON_THE_WAY = (ops_with("aggregates"), ops_with("forwards"))
_FAR = 6
COMPRESSED = "gradients_compressed"
"""The name scope of the ops that compress a gradient; those of later gradients have a number behind it."""
EVERY_STEPS = "_every_steps"
"""The attr of ops that run once in so many steps, in a branch that depends on a counter."""


@dataclass(frozen=True)
class Transfer:
    """One tensor or control edge that a step sends from one device to another.

    Attributes:
      tensor: ``x:0``, or ``^x`` for a control edge.
      src, dst: full device names.
      shape: None when unknown.
      bytes: payload in bytes; 0 for a control edge, None when the shape is not fully known or the
        elements have no fixed size.
      role: its purpose: ``variable read``, ``gradient of W``, ``global step``, ``local step``, ``hyper-parameter``,
        ``rows of W``, ``ids for W``, ``ids of the gradient of W``, ``token``, ``condition``, ``control edge``,
        ``tensor``, for the client's values ``fed value`` and ``fetched value``, or of a collective ``all-reduce of W``.
      group: the number of its message on the link.
      route: how it travels.
      producer: the op that computes it.
      consumers: the ops on ``dst`` that use it.
      key: its rendezvous key, as TensorFlow formats it.
      send, recv: the two nodes that the partitioner made.
      messages: the number of messages that a collective sends for it; otherwise 1.
      loop: the while loop that sends it in each iteration; "" outside of loops.
      is_conditional: whether it carries a value only if the step, or the iteration, takes its branch, and else an empty
        mark.
      period: the branch is taken once in so many steps; 0: that is not known.
    """

    tensor: str
    src: str
    dst: str
    dtype: dtypes.DType
    shape: RawShape
    bytes: int | None
    control: bool
    role: str
    group: int = 0
    route: Route = Route.SENT
    producer: str = ""
    consumers: tuple[str, ...] = ()
    key: str = ""
    send: str = ""
    recv: str = ""
    messages: int = 1
    loop: str = ""
    is_conditional: bool = False
    period: int = 0

    @property
    def purpose(self) -> str:
        """The role, and how often or when in a step."""
        if self.loop:
            taken = " that takes its branch" if self.is_conditional and not self.control else ""
            return f"{self.role} in each iteration of {self.loop}{taken}"
        if not self.is_conditional or self.control:
            return self.role
        return f"{self.role} {_once_in(self.period) if self.period else 'if its branch is taken'}"


def _once_in(period: int) -> str:
    return f"once in {period} steps"


def period_of(node: Node) -> int:
    """A node runs once in so many steps; 0: that is not known."""
    period = node.attrs.get(EVERY_STEPS, 0)
    return period if isinstance(period, int) else 0


def sum_note(rows: Sequence[Transfer]) -> str:
    """What to write behind the sum of the bytes: it has no unknown sizes, and one iteration of each loop."""
    return (" + ?" if any(row.bytes is None for row in rows) else "") + how_often(rows)


def how_often(rows: Sequence[Transfer]) -> str:
    """What to write behind a sum of bytes about loops and branches; "" where all are sent once in a step."""
    sized = [row for row in rows if row.bytes != 0]
    if any(row.loop for row in sized):
        often = " an iteration" if all(row.loop for row in sized) else " with one iteration"
        return often + (" at most" if any(row.is_conditional for row in sized) else "")
    if any(row.is_conditional for row in sized):
        periods = {row.period for row in sized}
        if len(periods) == 1 and (period := periods.pop()):
            return f" {_once_in(period)}"
        return " if taken" if len(sized) == 1 else " at most"
    return ""


def transfers(partitions: Partitions, shapes: Mapping[Endpoint, RawShape] | None = None) -> list[Transfer]:
    """Lists the transfers of a step, in the order of the partitioner's pairs. Copied constants are left out.

    Args:
      shapes: the known static shapes of endpoints in the graph that was cut.
    """
    wiring = _Wiring(partitions)
    return [_transfer(pair, wiring, shapes or {}) for pair in partitions.pairs if pair.route is not Route.COPIED]


def _transfer(pair: Pair, wiring: _Wiring, shapes: Mapping[Endpoint, RawShape]) -> Transfer:
    name, _ = pair.source
    endpoint = wiring.fed.get(name, pair.source)  # the client's value, by the name of the feed
    shape: RawShape = (0,) if pair.is_control else shapes.get(endpoint)
    users = wiring.uses.get(pair.recv, [])
    role = _client_role(pair.route) or _role_of(pair, wiring)
    if shape is None or None in shape:
        shape = _updated_shape(wiring, users, role) or shape
    return Transfer(
        tensor=f"^{name}" if pair.is_control and name not in wiring.fed else endpoint_name(endpoint),
        src=pair.src.device,
        dst=pair.dst.device,
        dtype=pair.dtype,
        shape=shape,
        bytes=_payload(shape, pair.dtype),
        control=pair.is_control,
        role=role,
        group=pair.group,
        route=pair.route,
        producer=name,
        consumers=_consumers(pair, wiring),
        key=pair.key,
        send=pair.send,
        recv=pair.recv,
        loop=wiring.loop_of(pair.source[0]),
        is_conditional=pair.may_be_dead and wiring.may_be_left_out(pair.source),
        period=period_of(wiring.nodes[name]) if pair.may_be_dead and name in wiring.nodes else 0,
    )


def _client_role(route: Route) -> str:
    return {Route.FED: "fed value", Route.FETCHED: "fetched value"}.get(route, "")


def _consumers(pair: Pair, wiring: _Wiring) -> tuple[str, ...]:
    """Returns the ops that use the pair. Those of a control edge wait for its Identity."""
    if pair.carriers is not None:
        part = wiring.partitions.parts[pair.dst.device]
        return tuple(name for name, node in part.items() if pair.carriers[1] in node.controls)
    return tuple(dict.fromkeys(node.name for node in wiring.uses.get(pair.recv, ())))


def _payload(shape: RawShape, dtype: dtypes.DType) -> int | None:
    if dtype in (dtypes.string, dtypes.resource, dtypes.variant) or shape is None:
        return None
    known = [size for size in shape if size is not None]
    return math.prod(known) * dtype.size if len(known) == len(shape) else None


# ---------------------------------------------------------------- the table


def format_transfers(rows: Sequence[Transfer]) -> str:
    """Formats a text table: a block per link, with its transfers and their totals."""
    if not rows:
        return "no transfers between devices\n"
    links: dict[tuple[str, str], list[Transfer]] = {}
    for row in rows:
        links.setdefault((row.src, row.dst), []).append(row)
    cells = {link: [_cells(row) for row in members] for link, members in links.items()}
    widths = [max(map(len, column)) for column in zip(*(row for block in cells.values() for row in block))]
    lines: list[str] = []
    for (src, dst), members in links.items():
        lines += [f"{src} -> {dst}"]
        lines += ["  " + _aligned(row, widths) for row in cells[src, dst]]
        lines += [f"  {_total(members)}", ""]
    return "\n".join([*lines, f"all links: {_total(rows)}", ""])


def _cells(row: Transfer) -> tuple[str, ...]:
    shape = "?" if row.shape is None else f"[{','.join('?' if d is None else str(d) for d in row.shape)}]"
    size = "? B" if row.bytes is None else f"{row.bytes:,} B"
    return row.tensor, row.dtype.name, shape, size, row.purpose


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    # Sizes are aligned on the right, other columns on the left.
    return "  ".join(c.rjust(w) if i == 3 else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths))).rstrip()


def _total(rows: Sequence[Transfer]) -> str:
    known = sum(row.bytes or 0 for row in rows)
    # Fed and fetched values travel inside RunGraph and its answer, not in messages of their own.
    messages = len({(row.src, row.dst, row.group) for row in rows if row.route not in (Route.FED, Route.FETCHED)})
    unknown = sum(row.bytes is None for row in rows)
    text = f"{_count(len(rows), 'transfer')} in {_count(messages, 'message')}, {known:,} B"
    text += how_often([row for row in rows if row.bytes])
    return text + (f" and {unknown} of unknown size" if unknown else "")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# ---------------------------------------------------------------- roles


class _Wiring:
    """The nodes of all partitions, whose names are unique in a step, with indexes of their edges.

    Attributes:
      nodes: by name.
      uses: name -> the nodes that take its outputs.
      receive_of: a send -> its receive.
      fed: the node of a fed value -> the tensor.
      frames: the loops around each node that is in one.
    """

    def __init__(self, partitions: Partitions) -> None:
        self.partitions, self.fed = partitions, dict(partitions.step.feeds)
        self.nodes = {name: node for part in partitions.parts.values() for name, node in part.items()}
        self.uses: dict[str, list[Node]] = {}
        for node in self.nodes.values():
            for source, _ in node.inputs:
                self.uses.setdefault(source, []).append(node)
        self.receive_of = {pair.send: pair.recv for pair in partitions.pairs}
        step = partitions.step.nodes
        self.frames: Mapping[str, FramePath] = frame_paths(step) if has_flow(step) else {}

    @cached_property
    def _is_uncertain(self) -> Callable[[Endpoint], bool]:
        return uncertain_values(self.partitions.step.nodes, in_iteration=True)

    def may_be_left_out(self, source: Endpoint) -> bool:
        """Of a value that may be dead: whether it may also be so where its loop, if it is in one, goes on."""
        return source[0] not in self.frames or self._is_uncertain(source)

    def loop_of(self, name: str) -> str:
        """The innermost loop that makes the value of a node again and again; "" outside of loops."""
        path = self.frames.get(name, ())
        path = path[:-1] if path and self.partitions.step.nodes[name].op in EXIT_OPS else path
        return path[-1].removesuffix("/while_context") if path else ""


def _role_of(pair: Pair, wiring: _Wiring) -> str:
    """Returns the role of the pair's value."""
    if pair.is_control:
        return "control edge"
    source = wiring.nodes[pair.source[0]]
    return next(filter(None, (rule(pair, source, wiring) for rule in _RULES)), "tensor")


def _condition(pair: Pair, source: Node, wiring: _Wiring) -> str:
    """Finds what decides whether a loop goes on, or which branch of a conditional is taken."""
    uses = wiring.uses.get(pair.recv, ())
    decides = any(node.op in SWITCH_OPS and node.inputs[1][0] == pair.recv for node in uses)
    return "condition" if decides or source.op == "LoopCond" else ""


def _updated_shape(wiring: _Wiring, users: list[Node], role: str) -> RawShape:
    """Returns the shape of the variable that a dense gradient updates, None if it is not known."""
    if not role.startswith("gradient of"):
        return None
    for node in users:
        if _takes_gradient(node) and not _takes_rows(node):
            holder = wiring.nodes.get(node.inputs[0][0])
            shape = holder.attrs.get("shape") if holder is not None else None
            if isinstance(shape, tuple):
                return shape
    return None


def _global_step(pair: Pair, source: Node, wiring: _Wiring) -> str:
    return "global step" if "global_step" in source.name.split("/") else ""


def _token(pair: Pair, source: Node, wiring: _Wiring) -> str:
    return "token" if source.op in ops_with("queue", "dequeue") and "sync_token" in source.name else ""


def _variable_read(pair: Pair, source: Node, wiring: _Wiring) -> str:
    reads = source.op in VARIABLE_OPS or source.op in _FORWARDS and _holder(source, wiring)
    return "variable read" if reads else ""


def _rows(pair: Pair, source: Node, wiring: _Wiring) -> str:
    """Finds rows that an op looks up in a variable on the variable's own device, as for embeddings."""
    while source.op in _FORWARDS and source.inputs:
        source = wiring.nodes[source.inputs[0][0]]  # on the same device
    holder = _holder(source, wiring) if source.op in _LOOKS_UP else ""
    return f"rows of {holder}" if holder else ""


def _ids(pair: Pair, source: Node, wiring: _Wiring) -> str:
    """Finds the numbers of rows to look up in a variable."""
    for node in wiring.uses.get(pair.recv, []):
        if node.op in _LOOKS_UP and len(node.inputs) > 1 and node.inputs[1][0] == pair.recv:
            holder = _holder(node, wiring)
            if holder:
                return f"ids for {holder}"
    return ""


def _holder(node: Node, wiring: _Wiring) -> str:
    """Returns the variable on the same device that is, or gives, the first input of a node; "" if there is none."""
    holder = wiring.nodes.get(node.inputs[0][0])
    while holder is not None and holder.op in _FORWARDS and holder.inputs:
        holder = wiring.nodes.get(holder.inputs[0][0])
    return holder.name if holder is not None and holder.op in VARIABLE_OPS else ""


def _update(pair: Pair, source: Node, wiring: _Wiring) -> str:
    """Finds inputs of ops that update a variable, such as its gradient, also through ops that aggregate them."""
    is_gradient = any(part.startswith("gradients") for part in source.name.split("/"))
    for node, slot in _downstream(pair, wiring, is_gradient):
        if node.inputs and _takes_gradient(node):
            name = _input_name(node, slot)
            if name in _GRADIENT_INPUTS or (name == "" and is_gradient):
                return f"{_part(pair, name)}gradient of {_updated(node, wiring)}"
            return "local step" if name == "local_step" else "hyper-parameter"
    return ""


def _part(pair: Pair, name: str) -> str:
    """What a value is of a gradient, by the input that it reaches: a sparse one has values, ids and a shape."""
    # The largest numbers have places, and bytes are integers, too.
    if any(part.startswith(COMPRESSED) for part in pair.source[0].split("/")):
        return "ids of the " if pair.dtype == dtypes.int32 else ""
    if name in ("indices", "gradient_indices"):
        return "ids of the "
    return "shape of the " if name == "gradient_shape" or pair.dtype.is_integer else ""


def _takes_gradient(node: Node) -> bool:
    return node.op in _UPDATES or node.op in _ACCUMULATES


def _takes_rows(node: Node) -> bool:
    """Whether the op takes a sparse gradient: some rows and their numbers."""
    return any(_input_name(node, slot) in ("indices", "gradient_indices") for slot in range(len(node.inputs)))


def _input_name(node: Node, slot: int) -> str:
    """Returns the declared name of an input; "" if the op is not declared here or takes lists."""
    handle = OPS.get(node.op)
    inputs = handle.op_def.inputs if handle is not None else ()
    return inputs[slot].name if slot < len(inputs) == len(node.inputs) else ""


def _downstream(pair: Pair, wiring: _Wiring, anything: bool) -> Iterator[tuple[Node, int]]:
    """Lists the inputs that a value reaches, the nearest first, on all devices.

    With ``anything`` it follows the value through any op, else only through those that gradients pass.
    """
    front = [pair.recv]
    seen = set(front)
    for _ in range(_FAR):
        reached = [
            (node, slot)
            for name in front for node in wiring.uses.get(name, ())
            for slot, (source, _) in enumerate(node.inputs) if source == name
        ]  # fmt: skip
        yield from reached
        front = []
        for node, _ in reached:
            name = wiring.receive_of.get(node.name, node.name)
            if name not in seen and (anything or node.op == SEND or any(node.op in ops for ops in _ON_THE_WAY)):
                seen.add(name)
                front.append(name)


def _updated(node: Node, wiring: _Wiring) -> str:
    """Returns the variable that an op updates; for a gradient accumulator the variable of its gradients."""
    holder = wiring.nodes.get(node.inputs[0][0])
    shared = holder.attrs.get("shared_name") if holder is not None and node.op in _ACCUMULATES else None
    if isinstance(shared, bytes) and shared.endswith(b"/grad_accum"):
        return shared.decode().removesuffix("/grad_accum").partition(":")[0]
    return node.inputs[0][0]


_Rule = Callable[[Pair, Node, _Wiring], str]  # what is sent, and the node that makes it
_RULES: tuple[_Rule, ...] = (_condition, _global_step, _token, _variable_read, _rows, _ids, _update)
