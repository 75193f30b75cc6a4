"""Declares message kinds: each is a frozen slotted dataclass that checks its fields.

::

    @message(kind=40, direction="master->worker", reply=RunGraphReply, retry=Retry.NEVER)
    class RunGraph(Message):
        session_handle: str
        feed_values: Tensors

Everything else (construction with validation, packing, the service tables, the protocol page of
the docs) is derived from the declaration. Constructor and packer are generated, straight-line
functions, as in `dataclasses`: a message is built four times per round trip, and a frozen
dataclass's own constructor is three times slower. The constructor fills an instance of a mutable twin
class with the same slots and then sets its class to the frozen class.

An error names the faulty side: `LocalProtocolError` means that this process built an invalid message,
`RemoteProtocolError` that the peer sent one.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, TypeVar, dataclass_transform

import numpy as np

from tfmini.core_types import TensorLike

PROTOCOL_VERSION = 23  # tests/rpc/protocol.txt lists the messages of this version

# Limits of frame 0 in bytes, for kinds with a graph (a million nodes fit); with bytes, names or tensors; others.
_GRAPH_HEADER, _BULKY_HEADER, _PLAIN_HEADER = 256 << 20, 64 << 20, 1 << 20


class ProtocolError(Exception):
    """A message violates the protocol. The subclasses name the faulty side."""

    blame: ClassVar[str] = ""


class LocalProtocolError(ProtocolError):
    """This process built an invalid message."""

    blame = "local"


class RemoteProtocolError(ProtocolError):
    """The peer sent an invalid message.

    Attributes:
      request_id: the id of that message, or 0 when it could not be read.
    """

    blame = "remote"

    def __init__(self, text: str, request_id: int = 0) -> None:
        super().__init__(text)
        self.request_id = request_id


class VersionMismatchError(RemoteProtocolError):
    """The peer uses another version of the protocol."""

    def __init__(self, theirs: Any) -> None:
        super().__init__(
            f"the peer uses protocol version {theirs!r}, this process version {PROTOCOL_VERSION}; "
            f"run the same version of tfmini everywhere"
        )
        self.theirs = theirs


class Retry(enum.Enum):
    """Whether a request may be sent again when the connection breaks before its reply."""

    SAFE = "safe"  # it is idempotent
    NEVER = "never"  # the server refuses a request id that it has seen
    ONE_WAY = "one-way"  # it has no reply


class FieldKind(enum.Enum):
    """The kinds of fields that the codec distinguishes."""

    SCALAR = "scalar"
    STRINGS = "strings"
    TENSORS = "tensors"
    STRUCTURE = "structure"


Tensors = tuple[np.ndarray[Any, Any], ...]
"""Arrays in order; numpy scalars count as 0-d. Large ones travel as raw frames."""

Structure = Annotated[Any, "structure"]
"""Any nest of list, dict, scalars, str, bytes, ndarray, DType and TensorShape (tuples arrive as lists)."""

_SCALARS = {bool: "bool", int: "int", float: "float", str: "str", bytes: "bytes", type(None): "NoneType"}
_SCALAR_OF = {name: scalar for scalar, name in _SCALARS.items()} | {"None": type(None)}
_KIND_OF = {
    "Structure": FieldKind.STRUCTURE,
    "Tensors": FieldKind.TENSORS,
    "tuple[np.ndarray, ...]": FieldKind.TENSORS,
    "tuple[str, ...]": FieldKind.STRINGS,
}


@dataclasses.dataclass(frozen=True)
class Field:
    """One field of a message kind."""

    name: str
    kind: FieldKind
    scalar: type | None
    default: Any

    def describe(self) -> str:
        """Returns the type as the protocol page shows it."""
        return _SCALARS[self.scalar] if self.scalar else self.kind.value


@dataclasses.dataclass(frozen=True)
class Row:
    """The declaration of one message kind; `Message.row`."""

    kind: int
    name: str
    direction: str
    fields: tuple[Field, ...]
    reply: type[Message] | None
    retry: Retry
    is_reply: bool


class Message:
    """Base of all message kinds."""

    __slots__ = ()
    row: ClassVar[Row]
    # The generated packer: (message, request_id, describe_tensors, frames) -> the list that is frame 0.
    pack: ClassVar[Callable[..., list[Any]]]
    # The generated unpacker: (frame 0 as a list, restore_tensors, parts, used) -> the message.
    unpack: ClassVar[Callable[..., Message]]
    width: ClassVar[int]  # entries of frame 0
    header_limit: ClassVar[int]  # bytes of frame 0
    has_structure: ClassVar[bool]
    is_reply: ClassVar[bool]

    # Written here and not generated for every kind, so that importing 50 kinds is fast.

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, field.name) for field in self.row.fields)

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.row.kind, self._values()))

    def __repr__(self) -> str:
        fields = ", ".join(f"{f.name}={value!r}" for f, value in zip(self.row.fields, self._values()))
        return f"{type(self).__name__}({fields})"


REGISTRY: dict[int, type[Message]] = {}
M = TypeVar("M", bound=Message)


@dataclass_transform(frozen_default=True)
def message(
    *,
    kind: int,
    direction: str,
    reply: type[Message] | None = None,
    retry: Retry = Retry.ONE_WAY,
    is_reply: bool = False,
) -> Callable[[type[M]], type[M]]:
    """Registers a message kind.

    Args:
      kind: its number on the wire.
      direction: ``"client->master"`` and so on; for the protocol page.
      reply: the kind that answers it; None for one-way messages and replies.
      retry: whether it may be sent twice.
      is_reply: whether it only answers requests.
    """

    def register(cls: type[M]) -> type[M]:
        if kind in REGISTRY:
            raise ValueError(f"message kind {kind} is {REGISTRY[kind].__name__} already, so not {cls.__name__}")
        fields = tuple(_fields_of(cls))
        cls.__doc__ = cls.__doc__ or f"{direction}, kind {kind}."  # else dataclass computes a signature
        frozen = dataclasses.dataclass(slots=True, init=False, repr=False, eq=False)(cls)
        frozen.row = Row(kind, cls.__name__, direction, fields, reply, retry, is_reply)
        frozen.width, frozen.is_reply = len(fields) + 3, is_reply
        frozen.has_structure = any(f.kind is FieldKind.STRUCTURE for f in fields)
        frozen.header_limit = _header_limit(fields)
        _generate(frozen, fields)
        # Set on the class, not on Message, so that storing into the mutable twin stays fast.
        frozen.__setattr__ = _refuse_setting  # type: ignore[assignment,method-assign]
        frozen.__delattr__ = _refuse_deleting  # type: ignore[assignment,method-assign]
        REGISTRY[kind] = frozen
        return frozen

    return register


def _header_limit(fields: tuple[Field, ...]) -> int:
    if any(f.kind is FieldKind.STRUCTURE for f in fields):
        return _GRAPH_HEADER
    return _BULKY_HEADER if any(f.scalar in (None, bytes) for f in fields) else _PLAIN_HEADER


def _refuse_setting(self: Message, name: str, value: TensorLike) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to {type(self).__name__}.{name}")


def _refuse_deleting(self: Message, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete {type(self).__name__}.{name}")


def _fields_of(cls: type[Message]) -> list[Field]:
    annotations = inspect.get_annotations(cls)  # as text
    return [_field(name, text, cls.__dict__.get(name, dataclasses.MISSING)) for name, text in annotations.items()]


def _field(name: str, annotation: str, default: Any) -> Field:
    if annotation in _SCALAR_OF:
        return Field(name, FieldKind.SCALAR, _SCALAR_OF[annotation], default)
    if annotation in _KIND_OF:
        return Field(name, _KIND_OF[annotation], None, default)
    raise TypeError(f"field {name!r} has type {annotation!r}, which a message cannot contain")


def _generate(cls: type[Message], fields: tuple[Field, ...]) -> None:
    """Generates the constructor, the packer and the unpacker of `cls`."""
    names = [f.name for f in fields]
    twin = type("_" + cls.__name__, (Message,), {"__slots__": tuple(names)})
    space: dict[str, Any] = {"twin": twin, "refuse": _refuse, "check": _check_items, "ndarray": np.ndarray}
    space |= {"cls": cls, "strings": _strings}
    space |= {name + "_": scalar for scalar, name in _SCALARS.items()}
    params = []
    for field in fields:
        has_default = field.default is not dataclasses.MISSING
        space["default_" + field.name] = field.default
        params.append(f"{field.name}=default_{field.name}" if has_default else field.name)
    names_list = ", ".join(["_"] * 3 + names)
    build = ["    self = twin()", *(f"    self.{n} = {n}" for n in names)]
    build += ["    self.__class__ = cls", "    return self"]
    lines = [f"def __new__({', '.join(['cls', *params])}):", *_checks(fields), *_item_checks(fields), *build]
    items = [f"describe(self.{f.name}, frames)" if f.kind is FieldKind.TENSORS else f"self.{f.name}" for f in fields]
    header = ", ".join([str(PROTOCOL_VERSION), str(cls.row.kind), "request_id", *items])
    lines += ["def pack(self, request_id, describe, frames):", f"    return [{header}]"]
    lines += ["def unpack(header, restore, parts, used):", f"    {names_list} = header"]
    lines += [f"    {f.name} = restore({f.name}, parts, used)" for f in fields if f.kind is FieldKind.TENSORS]
    lines += [f"    {f.name} = strings({f.name})" for f in fields if f.kind is FieldKind.STRINGS]
    lines += [*_checks(fields), *build]
    exec("\n".join(lines), space)  # noqa: S102 - the source contains declared names only
    cls.__new__ = space["__new__"]  # type: ignore[method-assign]
    cls.pack = space["pack"]
    cls.unpack = space["unpack"]


def _strings(items: Any) -> tuple[str, ...]:
    """Converts a list of strings from the wire to a tuple."""
    if type(items) is not list or not all(type(item) is str for item in items):
        raise LocalProtocolError(f"expected a list of strings, got {items!r:.80}")
    return tuple(items)


def _checks(fields: tuple[Field, ...]) -> list[str]:
    """Returns the statement that refuses a wrong type of any field."""
    tests = []
    for field in fields:
        if field.scalar is not None:
            tests.append(f"type({field.name}) is not {_SCALARS[field.scalar]}_")
        elif field.kind is not FieldKind.STRUCTURE:
            tests.append(f"type({field.name}) is not tuple")
    every = ", ".join(f.name for f in fields)
    return [f"    if {' or '.join(tests)}: refuse(cls, ({every},))"] if tests else []


def _item_checks(fields: tuple[Field, ...]) -> list[str]:
    """Returns the statements that refuse wrong elements of tuples."""
    lines = []
    for field in fields:
        if field.kind in (FieldKind.TENSORS, FieldKind.STRINGS):
            wanted = "ndarray" if field.kind is FieldKind.TENSORS else "str_"
            lines.append(f"    for item in {field.name}:")
            lines.append(f"        if type(item) is not {wanted}: check(cls, {field.name!r}, item, {wanted})")
    return lines


def _check_items(cls: type[Message], name: str, item: object, wanted: type) -> None:
    """The slow path of an element check: accepts numpy scalars, rank-0 strings and array subclasses."""
    if wanted is np.ndarray and isinstance(item, (np.ndarray, np.generic, bytes)):
        return
    raise LocalProtocolError(
        f"{cls.__name__}.{name} must hold {wanted.__name__} elements, got {type(item).__name__}: {item!r:.80}"
    )


def _refuse(cls: type[Message], values: tuple[Any, ...]) -> None:
    for field, value in zip(cls.row.fields, values):
        wanted = field.scalar or (tuple if field.kind is not FieldKind.STRUCTURE else None)
        if wanted is not None and type(value) is not wanted:
            raise LocalProtocolError(
                f"{cls.__name__}.{field.name} must be {wanted.__name__}, got {type(value).__name__}: {value!r:.80}"
            )
