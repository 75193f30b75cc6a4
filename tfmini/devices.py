"""Device names: requests by users (`DeviceSpec`) and names that the runtime compares (`ParsedDevice`).

A device name has five optional parts, written in the order `/job:J/replica:R/task:T/device:TYPE:INDEX`.
As in TensorFlow, there are two grammars:

* the *request* grammar (`DeviceSpec.from_string`, `canonical_name`, `merge_device`) for arguments of
  `tf.device`. It is lenient about slashes, order and job names, and raises ValueError in the user's call;
* the *core* grammar (`parse`) for the placer and the master. It is strict, `*` means "any", and an op with
  an invalid name cannot be placed.

This module knows no graph and no cluster. The string functions are cached, because a graph of 10^5 ops has
only a few distinct device strings.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from tfmini.export import export

_Fields = tuple[str | None, int | None, int | None, str | None, int | None]

_FIELD_NAMES = ("job", "replica", "task", "device_type", "device_index")


def _optional_str(value: object) -> str | None:
    return None if value is None else str(value)


def _optional_int(value: Any) -> int | None:
    return None if value is None else int(value)


def _optional_type(value: object) -> str | None:
    # As in TensorFlow, only these two spellings are changed to upper case.
    return value.upper() if value in ("cpu", "gpu") else _optional_str(value)


_COERCE: tuple[Callable[[Any], Any], ...] = (
    _optional_str,
    _optional_int,
    _optional_int,
    _optional_type,
    _optional_int,
)


def _coerced(values: tuple[Any, ...]) -> _Fields:
    return tuple(coerce(value) for coerce, value in zip(_COERCE, values, strict=True))


def _format(job: object, replica: object, task: object, device_type: object, device_index: object) -> str:
    pieces = []
    if job is not None:
        pieces.append(f"/job:{job}")
    if replica is not None:
        pieces.append(f"/replica:{replica}")
    if task is not None:
        pieces.append(f"/task:{task}")
    if device_type is not None:
        pieces.append(f"/device:{device_type}:{'*' if device_index is None else device_index}")
    return "".join(pieces)


def _overlay(under: tuple[Any, ...], over: tuple[Any, ...]) -> tuple[Any, ...]:
    """Merges two devices field by field: `over` if it sets the field, else `under`."""
    return tuple(u if o is None else o for u, o in zip(under, over, strict=True))


# ---------------------------------------------------------------- the request grammar


@functools.lru_cache(maxsize=4096)
def _read_request(spec: str) -> _Fields:
    found: dict[str, Any] = {}
    for piece in spec.split("/"):
        words = piece.split(":")
        if words[0] in ("job", "replica", "task") and len(words) == 2:
            found[words[0]] = words[1] if words[0] == "job" else _number(words[1], spec)
        elif words[0]:
            device_type, index = _read_device_piece(words, spec)
            if "device_type" in found:
                raise ValueError(f"Cannot specify multiple device types: {spec}")
            found["device_type"] = device_type
            found["device_index"] = None if index == "*" else _number(index, spec)
    return _coerced(tuple(found.get(name) for name in _FIELD_NAMES))


def _number(text: str, spec: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"{error} in '{spec}'") from None


def _read_device_piece(words: list[str], spec: str) -> tuple[str, str]:
    """Reads (type, index text) from `device:TYPE:N` or the old short forms `cpu`, `cpu:N`, `gpu`, `gpu:N`."""
    if words[0] == "device" and len(words) == 3:
        return words[1], words[2]
    if words[0].upper() in ("CPU", "GPU") and len(words) <= 2:
        return words[0].upper(), words[1] if len(words) == 2 else "*"
    raise ValueError(f"Unknown attribute: '{words[0]}' in '{spec}'; write it like /job:ps/task:0/device:CPU:0")


def _device_field(position: int, doc: str) -> property:
    return property(lambda self: self._fields[position], doc=doc)


def _changeable(field: property, position: int) -> property:
    def set_(self: DeviceSpec, value: object) -> None:
        fields: list[Any] = list(self._fields)
        fields[position] = value
        self._fields = _coerced(tuple(fields))

    return field.setter(set_)


@export("tf.compat.v2.DeviceSpec")
class DeviceSpecV2:
    """A possibly partial device, as users write it (`tf.compat.v2.DeviceSpec`: immutable).

    A field may be None, which means "not requested". Values are converted with `str` and `int`, so
    `DeviceSpec(task="3").task == 3`; `int` raises ValueError for other texts. Two specs are equal, and have equal
    hashes, if their `to_string()` is equal.
    """

    __slots__ = ("_fields",)
    _fields: _Fields

    def __init__(
        self,
        job: str | None = None,
        replica: int | None = None,
        task: int | None = None,
        device_type: str | None = None,
        device_index: int | None = None,
    ) -> None:
        self._fields = _coerced((job, replica, task, device_type, device_index))

    job = _device_field(0, "Job name, such as 'ps', or None.")
    replica = _device_field(1, "Replica number, or None. Every real device has replica 0.")
    task = _device_field(2, "Task number within the job, or None.")
    device_type = _device_field(3, "Device type, such as 'CPU', or None.")
    device_index = _device_field(4, "Device number within its task and type, or None for any.")

    def to_string(self) -> str:
        """The canonical text. An index without a type is left out; a type without an index gets `:*`."""
        return _format(*self._fields)

    @classmethod
    def from_string(cls, spec: str | None) -> Self:
        """Read a device string; None and "" give the empty spec.

        Raises:
          ValueError: an unknown piece, two device pieces, or an invalid number.
        """
        return cls(*_read_request(spec or ""))

    def parse_from_string(self, spec: str | None) -> Self:
        """A new spec with the fields of `spec`."""
        return self.from_string(spec)

    def make_merged_spec(self, dev: DeviceSpecV2) -> Self:
        """A new spec with the fields that `dev` sets, and otherwise those of this one."""
        return type(self)(*_overlay(self._fields, dev._fields))

    def replace(self, **fields: Any) -> Self:
        """A new spec with the named fields changed; None clears a field. An unknown field raises TypeError."""
        return type(self)(**{**dict(zip(_FIELD_NAMES, self._fields, strict=True)), **fields})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.to_string() == other.to_string()

    def __hash__(self) -> int:
        return hash(self.to_string())

    def __repr__(self) -> str:
        return f"<DeviceSpec({', '.join(f'{n}={v}' for n, v in zip(_FIELD_NAMES, self._fields, strict=True))})>"


@export("tf.DeviceSpec")
class DeviceSpec(DeviceSpecV2):
    """The same, mutable (`tf.DeviceSpec`). Do not change a spec while it is a dictionary key."""

    __slots__ = ()
    job = _changeable(DeviceSpecV2.job, 0)
    replica = _changeable(DeviceSpecV2.replica, 1)
    task = _changeable(DeviceSpecV2.task, 2)
    device_type = _changeable(DeviceSpecV2.device_type, 3)
    device_index = _changeable(DeviceSpecV2.device_index, 4)

    def parse_from_string(self, spec: str | None) -> Self:
        """Replace all fields of this spec by those of `spec`; return this spec."""
        self._fields = _read_request(spec or "")
        return self

    def merge_from(self, dev: DeviceSpecV2) -> None:
        """Replace the fields that `dev` sets."""
        self._fields = _overlay(self._fields, dev._fields)


def canonical_name(spec: str | DeviceSpecV2 | None) -> str:
    """The canonical text of a device request; "" for None.

    Raises:
      ValueError: `spec` does not parse (see `DeviceSpec.from_string`).
      TypeError: `spec` is neither a string, a DeviceSpec nor None.
    """
    if isinstance(spec, str):
        return _canonical_text(spec)
    if spec is None:
        return ""
    if isinstance(spec, DeviceSpecV2):
        return spec.to_string()
    raise TypeError(f"Expected a device string or a DeviceSpec, got {type(spec).__name__}: {spec!r}")


@functools.lru_cache(maxsize=4096)
def _canonical_text(spec: str) -> str:
    return _format(*_read_request(spec))


@functools.lru_cache(maxsize=16384)
def merge_device(outer: str, inner: str) -> str:
    """`inner` completed by `outer` (fields that `inner` sets win), as canonical text.

    One string level of the `tf.device` stack changes the device of the outer levels in this way. The fields merge one
    by one: `merge_device("/gpu:1", "/cpu")` is `/device:CPU:1`, as in TensorFlow.

    Raises:
      ValueError: either string does not parse.
    """
    return _format(*_overlay(_read_request(outer), _read_request(inner)))


@export("tensorflow.python.framework.device.merge_device")
def merge_function(spec: str | DeviceSpecV2 | None) -> Callable[[Any], str]:
    """A device function for `tf.device` that completes the device of an op (or a NodeDef) by ``spec``.

    `spec` is checked and copied now, so a DeviceSpec may be changed afterwards.

    Raises:
      ValueError: `spec` does not parse.
    """
    outer = canonical_name(spec)
    return lambda op: merge_device(outer, op.device or "")


# ---------------------------------------------------------------- the core grammar


class ParsedDevice(NamedTuple):
    """A device name in the form that the placer compares: immutable, with None for parts that are not set."""

    job: str | None = None
    replica: int | None = None
    task: int | None = None
    device_type: str | None = None
    device_index: int | None = None

    def to_string(self) -> str:
        """The canonical text; `parse` inverts it, except for an index without a type."""
        return _format(*self)

    @property
    def is_full(self) -> bool:
        """Whether all five parts are set, as in the name of a real device."""
        return None not in self

    @property
    def task_name(self) -> str:
        """The name of the task: `/job:ps/replica:0/task:1`."""
        return _format(self.job, self.replica, self.task, None, None)

    @property
    def local_name(self) -> str:
        """The name within the task: `CPU:0`, `CPU:*`, or "" without a type."""
        if self.device_type is None:
            return ""
        return f"{self.device_type}:{'*' if self.device_index is None else self.device_index}"

    def completed_by(self, other: ParsedDevice) -> ParsedDevice:
        """This device with its unset parts taken from `other`."""
        return ParsedDevice(*_overlay(other, self))


_PIECE = re.compile(
    r"/(?:(job):(\*|[A-Za-z][A-Za-z0-9_]*)"
    r"|(replica|task):(\*|[0-9]+)"
    r"|(device):(\*|[A-Za-z][A-Za-z0-9_]*)(?::(\*|[0-9]+))?"
    r"|(cpu|CPU|gpu|GPU):(\*|[0-9]+))"
)

_INT32_MAX = 2**31 - 1


@functools.lru_cache(maxsize=16384)
def parse(spec: str) -> ParsedDevice:
    """Parse a device name by the core grammar.

    Pieces may be in any order, a later piece of a kind replaces an earlier one, `*` unsets a part, "" and "/"
    are the empty name. Job and type names consist of letters, digits and `_`, and start with a letter.

    Raises:
      ValueError: the name is malformed. (The placer adds the node and makes it InvalidArgumentError.)
    """
    found: dict[str, Any] = {}
    position = 1 if spec == "/" else 0
    while position < len(spec):
        piece = _PIECE.match(spec, position)
        if piece is None:
            raise ValueError(f"Malformed device specification '{spec}' (at '{spec[position:]}'). {_REMEDY}")
        _take_piece(piece, found, spec)
        position = piece.end()
    return ParsedDevice(**found)


_REMEDY = (
    "A device is written /job:NAME/replica:N/task:N/device:TYPE:N, every part optional; names are letters, "
    "digits and '_' and start with a letter."
)


def _take_piece(piece: re.Match[str], found: dict[str, Any], spec: str) -> None:
    job, job_name, numbered, number, device, device_type, index, short, short_index = piece.groups()
    if job:
        found["job"] = None if job_name == "*" else job_name
    elif numbered:
        found[numbered] = _core_number(number, spec)
    elif device:
        found["device_type"] = None if device_type == "*" else device_type
        found["device_index"] = None if index is None else _core_number(index, spec)
    else:
        found["device_type"] = short.upper()
        found["device_index"] = _core_number(short_index, spec)


def _core_number(text: str, spec: str) -> int | None:
    if text == "*":
        return None
    if len(text.lstrip("0")) > 10 or int(text) > _INT32_MAX:  # length first, since int() refuses very long texts
        raise ValueError(f"Malformed device specification '{spec}': the number {text[:20]} is too large.")
    return int(text)


def matches(pattern: ParsedDevice, full: ParsedDevice) -> bool:
    """Whether a real device `full` has all the parts that the request `pattern` sets."""
    # Four times as fast as a loop; the placer calls it for every op and device.
    job, replica, task, device_type, device_index = pattern
    return (
        (job is None or job == full.job)
        and (replica is None or replica == full.replica)
        and (task is None or task == full.task)
        and (device_type is None or device_type == full.device_type)
        and (device_index is None or device_index == full.device_index)
    )


def intersects(a: ParsedDevice, b: ParsedDevice) -> bool:
    """Whether two devices agree in all parts that both set: the weaker test, used for device filters."""
    return all(x is None or y is None or x == y for x, y in zip(a, b, strict=True))


def device_name(job: str, task: int, device_type: str = "CPU", device_index: int = 0) -> str:
    """The full name of a real device: `/job:worker/replica:0/task:3/device:CPU:0`."""
    return _format(job, 0, task, device_type, device_index)


def task_of_device(device: str) -> str:
    """The task part of a full device name: `/job:worker/replica:0/task:3`."""
    return device[: device.index("/device:")]


class Place(NamedTuple):
    """A device of a task, in one life of the task. Made once per device, so that no name is parsed again.

    Attributes:
      task, device: full names.
    """

    task: str
    device: str
    incarnation: int = 0

    @classmethod
    def of(cls, device: str, incarnation: int = 0) -> Place:
        """The place of a device of that full name."""
        return cls(task_of_device(device), device, incarnation)
