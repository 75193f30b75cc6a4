"""The transfers of a step: what it sends between devices, as a list and as a text table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfmini import dtypes
from tfmini.graph.node import Endpoint, Node, Nodes
from tfmini.graph.prune import endpoint_name
from tfmini.placement.partition import Partitions
from tfmini.placement.task_graph import Pair, Route
from tfmini.placement.wire_roles import Wiring, role_of, updated_shape
from tfmini.shapes import RawShape


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
        ``rows of W``, ``ids for W``, ``token``, ``control edge``, ``tensor``, for the client's values
        ``fed value`` and ``fetched value``, or of a collective ``all-reduce of W``.
      group: the number of its message on the link.
      route: how it travels.
      producer: the op that computes it.
      consumers: the ops on ``dst`` that use it.
      key: its rendezvous key, as TensorFlow formats it.
      send, recv: the two nodes that the partitioner made.
      messages: the number of messages that a collective sends for it; otherwise 1.
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


def transfers(partitions: Partitions, shapes: Mapping[Endpoint, RawShape] | None = None) -> list[Transfer]:
    """Lists the transfers of a step, in the order of the partitioner's pairs. Copied constants are left out.

    Args:
      shapes: the known static shapes of endpoints in the graph that was cut.
    """
    wiring, fed = Wiring(partitions), dict(partitions.step.feeds)
    return [
        _transfer(pair, wiring, shapes or {}, fed) for pair in partitions.pairs if pair.route is not Route.COPIED
    ]


def _transfer(
    pair: Pair, wiring: Wiring, shapes: Mapping[Endpoint, RawShape], fed: Mapping[str, Endpoint]
) -> Transfer:
    part = wiring.partitions.parts[pair.dst.device]
    name, _ = pair.source
    endpoint = fed.get(name, pair.source)  # the client's value, by the name of the feed
    shape: RawShape = (0,) if pair.is_control else shapes.get(endpoint)
    users = wiring.uses[pair.dst.device].get(pair.recv, [])
    role = _client_role(pair.route) or role_of(pair, wiring)
    if shape is None or None in shape:
        shape = updated_shape(part, users, role) or shape
    return Transfer(
        tensor=f"^{name}" if pair.is_control and name not in fed else endpoint_name(endpoint),
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
        consumers=_named(pair, users, part),
        key=pair.key,
        send=pair.send,
        recv=pair.recv,
    )


def _client_role(route: Route) -> str:
    return {Route.FED: "fed value", Route.FETCHED: "fetched value"}.get(route, "")


def _named(pair: Pair, users: list[Node], part: Nodes) -> tuple[str, ...]:
    """Returns the ops that use the pair. Those of a control edge are the consumers of its Identity."""
    if pair.carriers is not None:
        return tuple(name for name, node in part.items() if pair.carriers[1] in node.controls)
    return tuple(dict.fromkeys(node.name for node in users))


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
    return row.tensor, row.dtype.name, shape, size, row.role


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    # Sizes are aligned on the right, other columns on the left.
    return "  ".join(
        c.rjust(w) if i == 3 else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths))
    ).rstrip()


def _total(rows: Sequence[Transfer]) -> str:
    known = sum(row.bytes or 0 for row in rows)
    # Fed and fetched values travel inside RunGraph and its answer, not in messages of their own.
    messages = len({(row.src, row.dst, row.group) for row in rows if row.route not in (Route.FED, Route.FETCHED)})
    unknown = sum(row.bytes is None for row in rows)
    text = f"{_count(len(rows), 'transfer')} in {_count(messages, 'message')}, {known:,} B"
    return text + (f" and {unknown} of unknown size" if unknown else "")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
