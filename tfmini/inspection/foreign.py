"""Finds the types of ops that tfmini cannot run, so that a graph with them can be placed and partitioned.

Their signatures come from a table of the ops of TensorFlow 1.15 that tfmini lacks (`op_signatures.txt`: names and
signatures only). An op that is not in the table is opaque: the number and types of its outputs follow from the ops that
use them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import resources

from tfmini import dtypes
from tfmini.errors import NotFoundError
from tfmini.graph.node import Endpoint, Node, Nodes
from tfmini.graph.node_types import INPUT_TYPES, OUTPUT_TYPES, input_dtypes
from tfmini.graph.op_types import kernel_for
from tfmini.graph.wire_checks import OUTPUT_LIMIT

_MOST_OUTPUTS = 1 << 16


@cache
def signatures() -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Op type -> the declared types of its inputs and of its outputs (``T``, ``N * T``, ``Ref(float)``)."""
    table = {}
    text = resources.files("tfmini.inspection").joinpath("op_signatures.txt").read_text()
    for line in text.splitlines():
        name, _, rest = line.partition("(")
        inputs, _, outputs = rest.partition(" -> ")
        table[name] = _types(inputs.rstrip()[:-1]), _types(outputs)
    return table


def _types(text: str) -> tuple[str, ...]:
    return tuple(part.partition(":")[2].strip() for part in text.split(",") if part.strip())


def known_types(nodes: Nodes) -> tuple[Nodes, dict[str, str]]:
    """Returns the graph with types on every node that tfmini cannot run, and the reasons of these nodes.

    The reasons are ``known to TensorFlow, not to tfmini`` and ``custom op: opaque``.
    """
    foreign = {name: node for name, node in nodes.items() if _is_foreign(node)}
    if not foreign:
        return nodes, {}
    uses = _uses(nodes, foreign)
    counts = _counts(uses)
    reasons: dict[str, str] = {}
    typed = dict(nodes)
    for name, node in foreign.items():
        types = _declared(node)
        reasons[name] = "known to TensorFlow, not to tfmini" if types else "custom op: opaque"
        inputs, outputs = types or _opaque(node, uses, counts.get(name, 1))
        typed[name] = node.replace(attrs={**node.attrs, INPUT_TYPES: inputs, OUTPUT_TYPES: outputs})
    return typed, reasons


def _is_foreign(node: Node) -> bool:
    return kernel_for(node.op, "CPU") is None


def _declared(node: Node) -> tuple[list[dtypes.DType], list[dtypes.DType]] | None:
    signature = signatures().get(node.op)
    if signature is None:
        return None
    try:
        inputs, outputs = ([d for text in side for d in _resolved(text, node)] for side in signature)
    except (KeyError, TypeError):  # this producer writes other attrs
        return None
    return inputs, outputs


def _resolved(text: str, node: Node) -> list[dtypes.DType]:
    if text.startswith("Ref("):
        return [dtype._as_ref for dtype in _resolved(text[4:-1], node)]
    number, star, kind = text.rpartition(" * ")
    value = node.attrs[kind] if kind in node.attrs else dtypes.as_dtype(kind)
    count = node.attrs[number] if star else 1
    types = value if isinstance(value, list) else [value]
    if not all(isinstance(found, dtypes.DType) for found in types) or not 0 <= count <= OUTPUT_LIMIT:
        raise TypeError(f"{text} of {node}")
    return list(types) if isinstance(value, list) else types * count


def _uses(nodes: Nodes, foreign: Nodes) -> dict[Endpoint, dtypes.DType | None]:
    """The outputs of foreign nodes that other nodes use, with the type that one of these declares."""
    found: dict[Endpoint, dtypes.DType | None] = {}
    for node in nodes.values():
        mine = [(slot, source) for slot, source in enumerate(node.inputs) if source[0] in foreign]
        if not mine:
            continue
        declared = _input_types(node)
        for slot, source in mine:
            dtype = declared[slot] if slot < len(declared) else None
            found[source] = found.get(source) or dtype
    return found


def _input_types(node: Node) -> list[dtypes.DType]:
    if node.handle is None:
        types = _declared(node)
        return types[0] if types else []
    try:
        return input_dtypes(node)
    except (KeyError, NotFoundError):  # its attrs are incomplete, so its input types are unknown
        return []


def _counts(uses: Iterable[Endpoint]) -> dict[str, int]:
    """How many outputs each foreign node has at least.

    Raises:
      ValueError: together they are more than a graph has; a short text can name any number.
    """
    counts: dict[str, int] = {}
    for name, index in uses:
        counts[name] = max(counts.get(name, 0), index + 1)
    if sum(counts.values()) > _MOST_OUTPUTS:
        name = max(counts, key=counts.__getitem__)
        raise ValueError(f"An input of the graph is output {counts[name] - 1} of '{name}': ops that tfmini does not"
                         f" know may have {_MOST_OUTPUTS} outputs together.")  # fmt: skip
    return counts


def _opaque(
    node: Node, uses: dict[Endpoint, dtypes.DType | None], count: int
) -> tuple[list[dtypes.DType], list[dtypes.DType]]:
    fallback = next((v for k, v in node.attrs.items() if k in ("T", "dtype") and isinstance(v, dtypes.DType)), None)
    outputs = [uses.get((node.name, index)) or fallback or dtypes.variant for index in range(count)]
    return [], [dtype.base_dtype for dtype in outputs]
