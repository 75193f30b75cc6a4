"""Cases for `tests.fuzz.kernels`: samples of ops with mutated shapes, values, types and attrs, each made from a seed.

A sample of `tests/ops/samples` becomes nodes whose constants are fed, so that no shape and no value is known before the
step. A *fed* case imports the nodes with all checks of a client and feeds a session. A *sent* case hands them to the
master as a client that checks nothing may send them, with values of any type.
"""

from __future__ import annotations

import functools
import random
import re
from typing import Any, NamedTuple

import numpy as np

import tfmini as tf
from tests.ops.samples import notation
from tests.ops.samples.builders import builder, without_constants
from tests.ops.samples.notation import Row
from tfmini.graph.graph_def import graph_def_to_nodes
from tfmini.graph.node import Node
from tfmini.graph.op_types import OPS, load_ops

# What such a row does depends on functions of Python or on other processes.
_NOT_FUZZED = ("py_func", "PyFunc", "Abort", "Horovod", "Collective")
_INTS = (-3, -2, -1, 0, 1, 2, 3, 5, 7, 100, 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 40, (1 << 63) - 1,
         -(1 << 31), -(1 << 63))  # fmt: skip
_FLOATS = (float("nan"), float("inf"), -float("inf"), 0.0, -1.0, 0.5, 1e30, 1e-30, -0.0)
_STRINGS = (b"", b"\xff\xfe", b"a" * 200, b"-1", b"1e999", b"%s%n", b"\0", b"1,2", b"\x08\x01\x12\x04\x0a\x02\x08\x7f")
_SHAPES = (None, (), (None,), (0,), (3,), (2, 3), (1 << 40,), (-5,), (None, 2))
_TYPES = (tf.float32, tf.float64, tf.int32, tf.int64, tf.bool, tf.string, tf.uint8, tf.complex64, tf.bfloat16,
          tf.float16, tf.qint8, tf.resource, tf.variant, tf.as_dtype("float32_ref"))  # fmt: skip


class Sample(NamedTuple):
    """A row as nodes; what each step fetches, by name; the values of the constants, and other feeds, by name."""

    row: Row
    nodes: list[Node]
    steps: list[list[str]]
    values: dict[str, Any]


class Case(NamedTuple):
    """A mutated sample; ``sent`` says that no client's check has seen it."""

    seed: int
    sample: Sample
    sent: bool
    nodes: list[Node]
    values: dict[str, Any]
    mutations: list[str]


@functools.cache
def rows(pattern: str = "") -> list[Row]:
    """The rows that are fuzzed, several of each op: those whose text has the regular expression."""
    load_ops()
    found = [row for room in notation.rooms() for row in notation.rows(room)]
    chosen = [r for r in found if re.search(pattern, r.text) and not any(word in r.text for word in _NOT_FUZZED)]
    if not chosen:
        raise SystemExit(f"No sample in tests/ops/samples matches --ops {pattern}, or it is in _NOT_FUZZED.")
    return chosen


@functools.cache
def sample(row: Row, tmp: str) -> Sample:
    """The sample of a row."""
    with tf.Graph().as_default() as graph:
        steps, feeds = notation.build(row, tf, builder, tmp)
        graph_def = without_constants(graph.as_graph_def())
    nodes = graph_def_to_nodes(graph_def)
    values = {f"{node.name}:0": nodes[node.inputs[0][0]].attrs["value"] for node in _blurred(nodes)}
    values.update((tensor.name, np.asarray(value)) for tensor, value in feeds.items())
    return Sample(row, list(nodes.values()), [[item.name for item in step] for step in steps], values)


def _blurred(nodes: dict[str, Node]) -> list[Node]:
    return [n for n in nodes.values() if n.op == "PlaceholderWithDefault" and n.inputs[0][0].endswith("/known")]


def case(seed: int, tmp: str, pattern: str = "") -> Case:
    """The case of a seed, among the rows of a pattern."""
    chance = random.Random(seed)
    origin = sample(chance.choice(rows(pattern)), tmp)
    sent = chance.random() < 0.5
    nodes, values = list(origin.nodes), dict(origin.values)
    made: list[str] = []
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3))):
        if values and chance.random() < 0.65:
            name = chance.choice(list(values))
            values[name] = mutated_value(chance, values[name], sent)
            made.append(f"{name} = {_shown(values[name])}")
        else:
            made += _mutate_node(chance, nodes, sent)
    return Case(seed, origin, sent, nodes, values, made)


def _shown(value: Any) -> str:
    return f"{getattr(value, 'dtype', type(value).__name__)}{list(np.shape(value))} {value!r:.60}".replace("\n", " ")


# ---- values -------------------------------------------------------------------------------------


def mutated_value(chance: random.Random, value: Any, any_type: bool) -> Any:
    """An array of another shape or with other numbers, or of any type."""
    array = np.array(value, object if isinstance(value, bytes) else None)
    kind = chance.random()
    if any_type and kind < 0.1:
        return _retyped(chance, array)
    return _reshaped(chance, array) if kind < 0.6 else _revalued(chance, array)


def _retyped(chance: random.Random, array: Any) -> Any:
    dtype = chance.choice([np.float32, np.float64, np.int32, np.int64, np.bool_, np.uint8, np.complex64, object])
    if dtype is object:
        return np.full(array.shape, b"x", object)
    return np.ones(array.shape, dtype)


def _reshaped(chance: random.Random, array: Any) -> Any:
    shape = list(array.shape)
    way = chance.randrange(7)
    if way == 0 or not shape:
        shape = [*shape, 1] if chance.random() < 0.5 else [chance.choice((0, 1, 2, 5)), *shape]
    elif way == 1:
        shape.pop(chance.randrange(len(shape)))
    elif way == 2:
        return np.ascontiguousarray(array.T)
    elif way == 3:
        return array.T
    else:
        axis = chance.randrange(len(shape))
        shape[axis] = max(0, chance.choice((0, 1, shape[axis] - 1, shape[axis] + 1, shape[axis] * 2, 17)))
    return np.resize(array, shape) if array.size else np.zeros(shape, array.dtype) if array.dtype != object else array


def _revalued(chance: random.Random, array: Any) -> Any:
    array = array.copy()
    if not array.size:
        return array
    where = chance.randrange(array.size) if chance.random() < 0.7 else slice(None)
    flat = array.reshape(-1)
    if array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        flat[where] = min(max(chance.choice(_INTS), limits.min), limits.max)
    elif array.dtype == object:
        flat[where] = chance.choice(_STRINGS)
    elif array.dtype.kind == "b":
        flat[where] = chance.random() < 0.5
    else:
        with np.errstate(all="ignore"):
            flat[where] = chance.choice(_FLOATS)
    return flat.reshape(array.shape)


# ---- nodes --------------------------------------------------------------------------------------


def _mutate_node(chance: random.Random, nodes: list[Node], sent: bool) -> list[str]:
    """Changes an attr of a node, or with ``sent`` its inputs too, in place; returns what it did."""
    fixed = ("Const", "PlaceholderWithDefault")
    places = [i for i, node in enumerate(nodes) if node.op not in fixed and OPS.get(node.op)]
    if not places:
        return []
    place = chance.choice(places)
    node = nodes[place]
    if sent and node.inputs and chance.random() < 0.1:
        inputs = list(node.inputs)
        inputs[chance.randrange(len(inputs))] = (chance.choice(nodes).name, chance.choice((0, 0, 1, 5)))
        nodes[place] = node.replace(inputs=inputs)
        return [f"inputs of {node.name} = {inputs}"]
    attrs = OPS[node.op].op_def.attrs
    # Sorted: messages of GraphDefs have them in another order in each process.
    names = sorted(
        name for name in node.attrs if name in attrs and attrs[name].kind not in ("func", "tensor", "list(func)")
    )
    if not names:
        return []
    name = chance.choice(names)
    changed = dict(node.attrs)
    if sent and chance.random() < 0.05:
        changed.pop(name)
    elif sent and chance.random() < 0.05:
        changed[name] = chance.choice((None, -1, b"x", [], [None], 0.5, True, tf.int32))
    else:
        changed[name] = _mutated_attr(chance, attrs[name], node.attrs[name])
    nodes[place] = node.replace(attrs=changed)
    return [f"{name} of {node.name} ({node.op}) = {changed.get(name, 'absent')!r:.80}"]


def _mutated_attr(chance: random.Random, definition: Any, value: Any) -> Any:
    if not definition.kind.startswith("list("):
        return _item(chance, definition.kind, definition.allowed)
    inner, items = definition.kind[5:-1], list(value) if isinstance(value, (list, tuple)) else []
    way = chance.randrange(4)
    if way == 0 or not items:
        return [*items, _item(chance, inner, definition.allowed)]
    if way == 1:
        return items[:-1]
    items[chance.randrange(len(items))] = _item(chance, inner, definition.allowed)
    return items


def _item(chance: random.Random, kind: str, allowed: Any) -> Any:
    choices: dict[str, Any] = {
        "int": _INTS, "float": _FLOATS, "bool": (False, True), "string": _STRINGS, "type": _TYPES, "shape": _SHAPES
    }  # fmt: skip
    return chance.choice(allowed if allowed and chance.random() < 0.8 else choices[kind])
