"""Random messages: valid ones of every kind, and ones with wrong types, sizes and values in any field."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np

from tfmini import dtypes
from tfmini.graph.node import Node
from tfmini.launch import agent_messages  # noqa: F401 - it registers its kinds
from tfmini.rpc.codec import encode
from tfmini.rpc.messages import CleanupAll, Goodbye, Hello, HelloReply, LaneSwitch, Reset
from tfmini.rpc.records import PROTOCOL_VERSION, REGISTRY, Field, FieldKind, Message

_CPU = "/job:ps/replica:0/task:0/device:CPU:0"
_NAMES = ["", "x", "x:0", "ps", "\0", "../../etc/passwd", "/job:ps/replica:0/task:0", _CPU, "é" * 50, "%s{0}", "nan"]
_OP_TYPES = ["Const", "Add", "_Send", "_Recv", "_Arg", "_Retval", "NoOp", "Enter", "Merge", "Switch", "VariableV2",
             "PyFunc", "Nothing"]  # fmt: skip


class Messages:
    """A stream of messages as parts, the same for the same seed.

    Args:
      seed: of the stream.
      handles: session handles, graph handles and step ids that exist, so that some messages get far.
    """

    def __init__(self, seed: int, handles: Callable[[], list[Any]] = list) -> None:
        self.random = random.Random(seed)
        self._handles = handles
        self._kinds = sorted(REGISTRY)

    def next(self, kinds: list[int] | None = None, well_formed: bool = False) -> tuple[str, list[bytes]]:
        """The next message: a description and its parts.

        Args:
          kinds: from which the message is drawn; by default all.
          well_formed: random values of the right types only. A malformed message ends its link, so that only such
            messages reach the state in which many others went before.
        """
        cls = REGISTRY[self.random.choice(kinds or self._kinds)]
        if well_formed:
            header, frames = self._valid(cls)
            return cls.__name__, [msgpack.packb(header, default=_as_text), *frames]
        if self.random.random() < 0.02:
            return f"noise for {cls.__name__}", self._noise()
        header, frames = self._valid(cls)
        for _ in range(self.random.choice((0, 1, 1, 1, 2, 5))):
            self._mutate(header)
        if self.random.random() < 0.1:
            frames = self._mutated_frames(frames)
        head = msgpack.packb(header, default=_as_text)
        if self.random.random() < 0.05:
            head = self._damaged(head)
        return cls.__name__, [head, *frames]

    def _valid(self, cls: type[Message]) -> tuple[list[Any], list[bytes]]:
        """The header of a well-formed message as a list, and its frames."""
        message = cls(**{field.name: self._value(field) for field in cls.row.fields})
        parts = encode(message, 0 if cls.row.reply is None else self.random.randrange(1, 1 << 40))
        return msgpack.unpackb(parts[0], strict_map_key=False, ext_hook=msgpack.ExtType), [bytes(p) for p in parts[1:]]

    def _value(self, field: Field) -> Any:
        pick = self.random
        if field.kind is FieldKind.STRINGS:
            return tuple(pick.choice(_NAMES) for _ in range(pick.randrange(4)))
        if field.kind is FieldKind.TENSORS:
            return tuple(self._tensor() for _ in range(pick.randrange(4)))
        if field.kind is FieldKind.STRUCTURE:
            return pick.choice((self._graph, self._task_graph, list, dict, lambda: None))()
        known = [h for h in self._handles() if type(h) is field.scalar]
        if known and pick.random() < 0.7:
            return pick.choice(known)
        values: dict[Any, Callable[[], Any]] = {
            int: lambda: pick.choice((0, 1, 2, 7, -1, 1 << 31, (1 << 63) - 1, pick.randrange(1 << 56))),
            str: lambda: pick.choice(_NAMES),
            bytes: lambda: pick.randbytes(pick.choice((0, 1, 32, 200))),
            bool: lambda: pick.random() < 0.5,
            float: lambda: pick.choice((0.0, -1.5, float("inf"), float("nan"))),
        }
        return values[field.scalar]() if field.scalar in values else None

    def _tensor(self) -> np.ndarray[Any, Any]:
        pick = self.random
        dtype = pick.choice((np.float32, np.int64, np.bool_, np.complex64, np.uint8))
        shape = tuple(pick.choice((0, 1, 2, 3, 700)) for _ in range(pick.randrange(3)))
        if pick.random() < 0.2:
            return np.array([b"", b"abc", b"\0" * 20], object)
        return np.zeros(shape, dtype)

    def _graph(self) -> list[Any]:
        pick = self.random
        nodes = []
        for i in range(pick.randrange(1, 5)):
            attrs = {
                name: pick.choice((1, -1, b"x", "x", None, dtypes.float32, [], [b"loc:@a"], 1.5, np.float32(1), {}))
                for name in pick.sample(["T", "dtype", "value", "tensor_type", "N", "shape", "_class"], 3)
            }
            sources = [f"n{pick.randrange(-1, i + 1)}" for _ in range(pick.randrange(3))]
            inputs = [(source, pick.choice((0, 0, 1, -1, 1 << 40))) for source in sources]
            controls = [f"n{pick.randrange(i + 1)}"] * pick.randrange(2)
            nodes.append(Node(f"n{i}", pick.choice(_OP_TYPES), pick.choice((_CPU, "", "x")), inputs, controls, attrs))
        return [node.to_wire() for node in nodes]

    def _task_graph(self) -> dict[str, Any]:
        pick = self.random
        nodes = self._graph()
        ends = [[node[0], "edge_0_x", 0, pick.choice((0, 1, -1, 1 << 40)), True, False] for node in nodes]
        tables: dict[str, list[Any]] = {
            "places": [["/job:ps/replica:0/task:0", _CPU, 5]],
            "sends": [row for row, n in zip(ends, nodes) if n[1] == "_Send"],
            "receives": [row for row, n in zip(ends, nodes) if n[1] == "_Recv"],
            "feeds": [[n[0], "x", 0] for n in nodes if n[1] == "_Arg"],
            "fetches": [[n[0], "y", 0] for n in nodes if n[1] == "_Retval"],
        }  # fmt: skip
        return {"nodes": nodes, **tables}

    # ---- damage -----------------------------------------------------------------------------

    def _mutate(self, value: Any) -> None:
        """Changes one place of a nested list or dict."""
        pick = self.random
        while isinstance(value, (list, dict)) and value:
            key = pick.randrange(len(value)) if isinstance(value, list) else pick.choice(list(value))
            inner = value[key]
            if isinstance(inner, (list, dict)) and inner and pick.random() < 0.7:
                value = inner
                continue
            action = pick.random()
            if action < 0.1:
                del value[key]
            elif action < 0.2 and isinstance(value, list):
                value.insert(key, self._odd())
            else:
                value[key] = self._odd()
            return

    def _odd(self) -> Any:
        pick = self.random
        return pick.choice((
            None, True, 0, -1, 1, 255, 1 << 32, (1 << 64) - 1, -(1 << 63), 0.5, float("nan"), "", "x" * 300, b"",
            b"\xff" * 100, [], {}, [[]], [None] * 50, {"a": {"b": []}}, {1: 2}, msgpack.ExtType(1, b"\x93\x01\x01\xcf"),
            msgpack.ExtType(2, b"\xff"), msgpack.ExtType(99, b""), [1, b"\0\0\0\0"], [1, 1, 1 << 40, 1 << 40], [19, 5],
        ))  # fmt: skip

    def _mutated_frames(self, frames: list[bytes]) -> list[bytes]:
        pick = self.random
        action = pick.randrange(3)
        if action == 0 or not frames:
            return [*frames, pick.randbytes(pick.choice((1, 100, 5000)))]
        if action == 1:
            return frames[:-1]
        return [frame[: pick.randrange(len(frame) + 1)] for frame in frames]

    def _damaged(self, data: bytes) -> bytes:
        pick = self.random
        damaged = bytearray(data)
        for _ in range(pick.randrange(1, 4)):
            damaged[pick.randrange(len(damaged))] = pick.randrange(256)
        return bytes(damaged[: pick.choice((len(damaged), pick.randrange(1, len(damaged) + 1)))])

    def _noise(self) -> list[bytes]:
        pick = self.random
        return [pick.randbytes(pick.choice((1, 2, 16, 64, 3000))) for _ in range(pick.choice((1, 1, 2, 4)))]


def hello(task: str = "") -> list[Any]:
    """A valid Hello of a client or task."""
    fields = {field.name: _DEFAULT.get(field.scalar, ()) for field in Hello.row.fields}
    return encode(Hello(**{**fields, "version": PROTOCOL_VERSION, "task": task, "incarnation": 77}), 1)


_DEFAULT: dict[Any, Any] = {int: 0, str: "", bytes: b"", bool: False}
# Kinds that end a connection when they are valid: an established link gets them rarely.
# Kinds that clear a task's state, as they should: the well-behaved client could not tell that from damage.
CLEARING = {cls.row.kind for cls in (Reset, CleanupAll)}
ENDING = {cls.row.kind for cls in (Hello, HelloReply, Goodbye, LaneSwitch)}


def _as_text(value: Any) -> Any:
    return repr(value)
