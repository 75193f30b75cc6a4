"""A profile: what operations cost on machines, and what messages cost on links.

A profile is a TOML file, made by `tfmini calibrate` or by hand; two come with tfmini (`SHIPPED`)::

    [machines.here]
    cores = 2
    memory_gb = 23.4
    threads = 1           # of a task that handle messages: 1 in tfmini; 8 in TensorFlow's gRPC worker service
    step_us = 180.0       # CPU of one Session.run that has parts on other tasks, without its messages
    part_us = 30.0        # CPU of the master per part on another task, without its messages
    start_us = 25.0       # CPU of a task that starts its part of a step
    segment_us = 6.0      # CPU of a run of a segment, without its ops
    wake_us = 90.0        # what a segment takes longer after its task has waited: caches have cooled down
    crowded_us = 120.0    # the same where a machine has more tasks than cores: other tasks have used the caches
    beside = 1.05         # how many times longer segments of 3 ms and more take while other cores compute
    overload = 1.1        # how many times longer threads take while more of them than cores want to run
    stall_us = 80.0       # how long, on such a machine, a task that wakes up waits for a core though one is idle

    [machines.here.kernels]  # op type or class of ops -> points [work, microseconds], in the order of work
    matmul = [[2e3, 1.5], [2e6, 80.0]]        # work: floating-point operations, and 6 for each byte of the matrices
    elementwise = [[64.0, 0.6], [4e6, 900.0]]  # work: bytes of all inputs and outputs

    [machines.here.gpu]   # of each task but ps; without this table tasks have none
    copy_us = 20.0        # of a tensor between the GPU and the host, with its part of the start of the GPU's program
    copy_gbit_per_s = 90.0

    [machines.here.gpu.kernels]  # as above
    matmul = [[2e6, 8.0], [2e10, 2000.0]]

    [links.local]         # between tasks of one machine
    gbit_per_s = 20.0     # 0: no limit beyond the CPU time
    latency_us = 15.0     # from the end of the sender's work to the begin of the receiver's
    send_us = 12.0        # CPU of the sender, per message
    receive_us = 20.0     # CPU of the receiver, per message
    us_per_mb = 150.0     # CPU of each side, per million bytes
    reduce_us_per_mb = 90.0  # CPU of a rank, per million bytes that others read from its memory; default: us_per_mb
    large_us = 15.0       # CPU of each side, per message of 64 KiB and more: sharing memory, several reads

    [links.tcp]           # between machines; a link such as "10Gbit" takes its other figures from here
    ...

    [ops]                 # measured times of single ops of a model, in microseconds
    "conv1/Conv2D" = 812.0

Classes of ops are those of `class_of`. A class without a curve takes that of ``elementwise``; ``matmul`` and
``convolution``, whose work are operations, take each other's. Times between two points are interpolated (both axes
logarithmic). Below the first point the time is constant, beyond the last one it is proportional to the work.
"""

from __future__ import annotations

import bisect
import math
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from tfmini import dtypes, errors
from tfmini.core_types import TensorLike
from tfmini.errors import OpError
from tfmini.graph.node import Endpoint, Node, Nodes, output_dtypes
from tfmini.graph.op_types import OPS, may_wait, ops_with, trait_of
from tfmini.shapes import RawShape
from tfmini.show.inspection.findings import flops, size
from tfmini.show.inspection.trace import StepTrace

_US = 1e-6
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([GgMm])(?:b(?:it)?)?(?:/s|ps)?")  # a capital B would be bytes
_LOCAL, _TCP = "local", "tcp"
LARGE = 64 << 10  # bytes of a large message; see `rpc.lane_wire`
OWN = "profile.toml"  # what `tfmini calibrate` writes and commands read unless another name is given
LAPTOP, SERVERS = "laptop", "servers-10gbit"
SHIPPED = {name: Path(__file__).with_name("profiles") / f"{name}.toml" for name in (LAPTOP, SERVERS)}


class ProfileError(ValueError):
    """A profile cannot be read; the text says where."""


@dataclass(frozen=True)
class Curve:
    """Seconds by work, from points of increasing work."""

    points: tuple[tuple[float, float], ...]

    def __call__(self, work: float) -> float:
        points = self.points
        if work <= points[0][0]:
            return points[0][1]
        last_work, last_s = points[-1]
        if work >= last_work:
            return last_s * work / last_work
        i = bisect.bisect_right(points, (work, math.inf))
        (w0, s0), (w1, s1) = points[i - 1], points[i]
        share = math.log(work / w0) / math.log(w1 / w0)
        return float(s0 * (s1 / s0) ** share)


@dataclass(frozen=True)
class Gpu:
    """The GPU of a task.

    Attributes:
      kernels: op type or class of ops -> seconds by work.
      copy_s: of a tensor between it and the host, beside its bytes.
      copy_bytes_per_s: infinite for no limit.
    """

    kernels: Mapping[str, Curve] = field(default_factory=dict)
    copy_s: float = 0.0
    copy_bytes_per_s: float = math.inf


@dataclass(frozen=True)
class Machine:
    """A type of machine.

    Attributes:
      cores: how many threads run at full speed at once.
      memory_bytes: 0: unknown.
      step_s, part_s, start_s, segment_s, wake_s, crowded_s: seconds of CPU; see the module.
      stall_s: seconds. ``beside``, ``overload``: factors; see the module.
      kernels: op type or class of ops -> seconds by work.
      threads: of each task, that handle messages and run what these make ready.
      gpu: that each task but ps has.
    """

    name: str
    cores: int = 1
    memory_bytes: float = 0.0
    step_s: float = 0.0
    part_s: float = 0.0
    start_s: float = 0.0
    segment_s: float = 0.0
    wake_s: float = 0.0
    crowded_s: float = 0.0
    stall_s: float = 0.0
    beside: float = 1.0
    overload: float = 1.0
    kernels: Mapping[str, Curve] = field(default_factory=dict)
    threads: int = 1
    gpu: Gpu | None = None


@dataclass(frozen=True)
class LinkProfile:
    """A link between two tasks.

    Attributes:
      bytes_per_s: of one direction of a machine's NIC, shared by its messages; infinite for no limit.
      latency_s: from the end of the sender's work to the begin of the receiver's, beside the bytes.
      send_s, receive_s: CPU per message. ``copy_s_per_byte``, ``large_s``: CPU of each side, by bytes, and beside them
        for a message of `LARGE` and more. ``reduce_s_per_byte``: CPU of a rank, by the bytes that the others read from
        its shared memory.
    """

    name: str
    bytes_per_s: float = math.inf
    latency_s: float = 0.0
    send_s: float = 0.0
    receive_s: float = 0.0
    copy_s_per_byte: float = 0.0
    large_s: float = 0.0
    reduce_s_per_byte: float = 0.0

    def copy_s(self, nbytes: int) -> float:
        """CPU of each side for the bytes of a message."""
        return nbytes * self.copy_s_per_byte + (self.large_s if nbytes >= LARGE else 0.0)


@dataclass(frozen=True)
class Profile:
    """Machines and links by name, and the measured seconds of single ops by name. The first machine is the default."""

    machines: Mapping[str, Machine]
    links: Mapping[str, LinkProfile]
    ops: Mapping[str, float] = field(default_factory=dict)

    @property
    def machine(self) -> Machine:
        """The default machine."""
        return next(iter(self.machines.values()))

    @property
    def local(self) -> LinkProfile:
        """The link between tasks of one machine."""
        return self.links[_LOCAL]

    def link(self, name: str) -> LinkProfile:
        """A link between machines: one of this profile, or a rate such as ``10Gbit`` with the other figures of "tcp".

        Raises:
          ProfileError: it is neither.
        """
        if name in self.links:
            return self.links[name]
        found = _RATE.fullmatch(name.strip())
        if found is None or not float(found[1]):
            known = ", ".join(self.links)
            text = f"The profile has no link {name!r} (it has {known}), and it is no rate in bits"
            raise ProfileError(f"{text}, such as 10Gbit or 100Mbps.")
        bits = float(found[1]) * (1e9 if found[2].upper() == "G" else 1e6)
        return replace(self.links.get(_TCP, self.local), name=name, bytes_per_s=bits / 8)


# ---------------------------------------------------------------------------------------------
# Files
# ---------------------------------------------------------------------------------------------

_LARGEST = 1e100  # so that sums and products stay finite


def _number(where: str, value: TensorLike) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < _LARGEST:
        raise ProfileError(f"{where} must be a number of at least 0, not {value!r}.")
    return float(value)


def _count(where: str, value: TensorLike) -> int:
    found = round(_number(where, value))
    if found < 1:
        raise ProfileError(f"{where} must be at least 1.")
    return found


def _factor(where: str, value: TensorLike) -> float:
    found = _number(where, value)
    if found < 1:
        raise ProfileError(f"{where} says how many times longer something takes; it must be at least 1.")
    return found


class _Field(NamedTuple):
    """A field of a file: the attribute that has it, the unit of the file, and what reads its value."""

    attribute: str
    unit: float = 1
    read: Callable[[str, Any], float] = _number


_MACHINE: Mapping[str, _Field] = {
    "cores": _Field("cores", read=_count), "memory_gb": _Field("memory_bytes", 1e9),
    "threads": _Field("threads", read=_count),
    **{f"{key}_us": _Field(f"{key}_s", _US) for key in (
        "step", "part", "start", "segment", "wake", "crowded", "stall"
    )},
    **{key: _Field(key, read=_factor) for key in ("beside", "overload")},
}  # fmt: skip
_GPU: Mapping[str, _Field] = {
    "copy_us": _Field("copy_s", _US), "copy_gbit_per_s": _Field("copy_bytes_per_s", 1e9 / 8),
}  # fmt: skip
_LINK: Mapping[str, _Field] = {
    "gbit_per_s": _Field("bytes_per_s", 1e9 / 8), "latency_us": _Field("latency_s", _US),
    "send_us": _Field("send_s", _US), "receive_us": _Field("receive_s", _US),
    "us_per_mb": _Field("copy_s_per_byte", _US / 1e6), "large_us": _Field("large_s", _US),
    "reduce_us_per_mb": _Field("reduce_s_per_byte", _US / 1e6),
}  # fmt: skip


@dataclass(frozen=True)
class ChosenProfile:
    """A profile that a command uses.

    Attributes:
      name: of the file, or of a profile that comes with tfmini.
      path: of the file.
    """

    name: str
    path: Path

    @classmethod
    def of(cls, given: str | None, link: str = "") -> ChosenProfile:
        """Chooses a profile.

        Args:
          given: the path of a file, or one of `SHIPPED`; a file comes first. None: the file `OWN`, or without it one of
            `SHIPPED`: servers where ``link`` joins the tasks' machines, else a laptop that all tasks share.

        Raises:
          FileNotFoundError: there is no such profile.
        """
        name = given or (OWN if Path(OWN).is_file() else SERVERS if link else LAPTOP)
        if Path(name).is_file():
            return cls(name, Path(name))
        if name not in SHIPPED:
            remedy = "run `tfmini calibrate` on an idle machine, or name a profile by --profile"
            raise FileNotFoundError(f"There is no {name}: {remedy} (a file, {LAPTOP} or {SERVERS}).")
        return cls(name, SHIPPED[name])

    def read(self) -> Profile:
        """Reads it; see `read_profile`."""
        return read_profile(self.path)

    @property
    def note(self) -> str:
        """What somebody who reads predictions by a profile of tfmini must know; "" for a file of the user."""
        if self.path != SHIPPED.get(self.name):
            return ""
        where = f"The profile {self.name} comes with tfmini: its times are not this machine's."
        return f"{where} `tfmini calibrate` measures this machine, in about seven minutes."


def read_profile(path: str | Path) -> Profile:
    """Reads a profile.

    Raises:
      OSError: there is no such file.
      ProfileError: it is no profile; the text names the field.
    """
    with errors.reading(f"{path} is no profile", ProfileError, also_own=True):
        return parse_profile(tomllib.loads(Path(path).read_text()))


def parse_profile(table: Mapping[str, Any]) -> Profile:
    """The profile of a TOML file's content. Raises ProfileError."""
    _check_keys("the file", table, ("machines", "links", "ops"))
    rows = {key: _table(key, table.get(key, {})) for key in ("machines", "links", "ops")}
    machines = {name: _machine(name, row) for name, row in rows["machines"].items()}
    links = {name: _link(name, row) for name, row in rows["links"].items()}
    if not machines or _LOCAL not in links:
        raise ProfileError("it needs a table [machines.NAME] and the table [links.local].")
    ops = {name: _number(f"ops.{name}", us) * _US for name, us in rows["ops"].items()}
    return Profile(machines, links, ops)


def _machine(name: str, row: Mapping[str, Any]) -> Machine:
    where = f"machines.{name}"
    _check_keys(where, row, (*_MACHINE, "kernels", "gpu"))
    gpu = _gpu(f"{where}.gpu", row["gpu"]) if "gpu" in row else None
    return Machine(name, **_values(where, row, _MACHINE), kernels=_kernels(where, row), gpu=gpu)


def _gpu(where: str, row: Mapping[str, Any]) -> Gpu:
    _check_keys(where, row, (*_GPU, "kernels"))
    return Gpu(_kernels(where, row), **_unlimited(_values(where, row, _GPU), "copy_bytes_per_s"))


def _kernels(where: str, row: Mapping[str, Any]) -> Mapping[str, Curve]:
    curves = _table(f"{where}.kernels", row.get("kernels", {}))
    return {kind: _curve(f"{where}.kernels.{kind}", points) for kind, points in curves.items()}


def _unlimited(values: dict[str, Any], rate: str) -> dict[str, Any]:
    """The values of a row, in which a rate of 0 is none."""
    return {**values, rate: values.get(rate) or math.inf}


def _link(name: str, row: Mapping[str, Any]) -> LinkProfile:
    where = f"links.{name}"
    _check_keys(where, row, tuple(_LINK))
    found = _values(where, {"reduce_us_per_mb": row.get("us_per_mb", 0), **row}, _LINK)
    return LinkProfile(name, **_unlimited(found, "bytes_per_s"))


def _values(where: str, row: Mapping[str, Any], fields: Mapping[str, _Field]) -> dict[str, Any]:
    """The attributes that a row of a file gives."""
    return {
        field.attribute: field.read(f"{where}.{key}", row[key]) * field.unit
        for key, field in fields.items() if key in row
    }  # fmt: skip


def _curve(where: str, points: Any) -> Curve:
    if not isinstance(points, list) or not points or any(not isinstance(p, list) or len(p) != 2 for p in points):
        raise ProfileError(f"{where} must be a list of points [work, microseconds].")
    found = tuple((_number(where, work), _number(where, us) * _US) for work, us in points)
    works = [work for work, _ in found]
    if min(works) <= 0 or min(s for _, s in found) <= 0 or any(a >= b for a, b in zip(works, works[1:])):
        raise ProfileError(f"{where}: works and times must be above 0, and the works in ascending order.")
    return Curve(found)


def _table(where: str, row: Any) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        raise ProfileError(f"{where} must be a table.")
    return row


def _check_keys(where: str, row: Any, known: tuple[str, ...]) -> None:
    unknown = sorted(set(_table(where, row)) - set(known))
    if unknown:
        raise ProfileError(f"{where} has the unknown field {unknown[0]!r}; the fields are {', '.join(known)}.")


def format_profile(profile: Profile, comment: str = "") -> str:
    """The text of a profile's file.

    Args:
      comment: lines for its head.
    """
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    for machine in profile.machines.values():
        table = f"machines.{_key(machine.name)}"
        lines += ["", f"[{table}]", *_lines(machine, _MACHINE), *_kernel_lines(table, machine.kernels)]
        if machine.gpu is not None:
            lines += ["", f"[{table}.gpu]", *_lines(machine.gpu, _GPU)]
            lines += _kernel_lines(f"{table}.gpu", machine.gpu.kernels)
    for link in profile.links.values():
        lines += ["", f"[links.{_key(link.name)}]", *_lines(link, _LINK)]
    if profile.ops:
        lines += ["", "[ops]", *(f"{_key(name)} = {s / _US:.6g}" for name, s in profile.ops.items())]
    return "\n".join(lines).lstrip("\n") + "\n"


def _lines(values: Machine | LinkProfile | Gpu, fields: Mapping[str, _Field]) -> list[str]:
    found = {key: getattr(values, field.attribute) / field.unit for key, field in fields.items()}
    return [f"{key} = {0.0 if value == math.inf else value:.6g}" for key, value in found.items()]


def _kernel_lines(table: str, kernels: Mapping[str, Curve]) -> list[str]:
    lines = ["", f"[{table}.kernels]"]
    for kind, curve in kernels.items():
        points = ", ".join(f"[{work:.6g}, {seconds / _US:.6g}]" for work, seconds in curve.points)
        lines.append(f"{_key(kind)} = [{points}]")
    return lines


def _key(name: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_-]+", name):
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# ---- The times of a traced step as times of single ops in a profile: they come before the machine's curves ---------


def op_times(traced: StepTrace) -> dict[str, float]:
    """Op -> seconds, for the ops that compute. What waits for others lasts as long as they let it."""
    return {span.name: span.duration * _US for span in traced.spans if span.computes and span.duration > 0}


def add_ops(path: str | Path, times: dict[str, float]) -> None:
    """Writes the times into the table ``[ops]`` of a profile; ops of the same names get the new times.

    Raises:
      OSError: the file cannot be read or written.
      ProfileError: it is no profile.
    """
    found = read_profile(path)
    head = [line[1:].strip() for line in Path(path).read_text().splitlines() if line.startswith("#")]
    Path(path).write_text(format_profile(replace(found, ops={**found.ops, **times}), "\n".join(head)))


# ---- What an op costs on a machine: its class, its work, and the seconds from the machine's curves -----------------
# Classes, and their work: ``matmul`` and ``convolution`` (floating-point operations; a product has more for each byte
# of its matrices, see `_OPERATIONS_PER_BYTE`); ``elementwise``, ``reduction``, ``update`` (an assignment or an
# optimizer's update), ``rows`` (a look-up), ``move`` (copying without arithmetic), ``view`` (neither; a collective is
# one, since what it sends and adds up is charged as it happens), ``random`` and ``state`` (queues and the like), all
# by bytes of inputs and outputs. A curve of the op's own type comes before that of its class.

FLOPS = ("matmul", "convolution")
CLASSES = (*FLOPS, "elementwise", "reduction", "update", "rows", "move", "view", "random", "state")
_IN_PLACE_OF = dict.fromkeys(CLASSES, "elementwise") | {"matmul": "convolution", "convolution": "matmul"}
_ROWS = frozenset({"indices", "ids"})
_DEFAULT_S = 1e-6
#: A product packs its matrices and writes its result: small and thin ones have few operations for each byte of that.
#: Measured with OpenBLAS, for sides from 8 to 3,000.
_OPERATIONS_PER_BYTE = 6.0
_LOOKS_UP = ops_with("looks_up")
_DISTINCT = ops_with("distinct")
Shapes = Mapping[Endpoint, RawShape]


def class_of(node: Node) -> str:
    """The class of an op."""
    work = trait_of(node.op, "work")
    if work in FLOPS:
        return str(work)
    if trait_of(node.op, "collective"):
        return "view"
    if may_wait(node.op):
        return "state"
    if trait_of(node.op, "shape_only") or trait_of(node.op, "forwards"):
        return "view"
    if trait_of(node.op, "writes"):
        return "update"
    if node.op in _LOOKS_UP:
        return "rows"
    if work == "input":
        return "reduction"
    if work == "none":
        return "move"
    if node.op in OPS and "seed" in OPS[node.op].op_def.attrs:
        return "random"
    return "elementwise"


def work_of(node: Node, shapes: Shapes, kind: str) -> float:
    """The work of an op, in floating-point operations or bytes; 0 where shapes are unknown."""
    if kind in FLOPS:
        found = float(flops(node, shapes) or 0)
        return found + _OPERATIONS_PER_BYTE * _moved_bytes(node, shapes) if found and kind == "matmul" else found
    if kind == "view":
        return 0.0
    if kind == "rows":  # the table is not read as a whole
        return 2.0 * _output_bytes(node, shapes)
    if kind == "update":
        return float(_update_bytes(node, shapes))
    return float(_moved_bytes(node, shapes))


def _moved_bytes(node: Node, shapes: Shapes) -> int:
    return _output_bytes(node, shapes) + sum(_bytes(endpoint, shapes, None) for endpoint in node.inputs)


def with_bounds(nodes: Nodes, shapes: Shapes) -> Shapes:
    """The shapes, with those of distinct ids and of the rows summed by them as if no id came twice."""
    bounds = {}
    for name, node in nodes.items():
        if node.op in _DISTINCT and size(shapes.get((name, 0))) is None:
            bounds[name, 0] = shapes.get(node.inputs[0])
    return {**shapes, **bounds}


def _update_bytes(node: Node, shapes: Shapes) -> int:
    """The bytes of the values that change: for a sparse update those of its rows only."""
    names = [arg.name for arg in OPS[node.op].op_def.inputs] if node.op in OPS else []
    by_name = dict(zip(names, node.inputs))
    if _ROWS.intersection(by_name):
        return sum(_bytes(by_name[n], shapes, None) for n in ("grad", "updates", "indices", "delta") if n in by_name)
    return sum(_bytes(endpoint, shapes, None) for endpoint in node.inputs)


def _output_bytes(node: Node, shapes: Shapes) -> int:
    try:
        types = output_dtypes(node)
    except (KeyError, OpError):
        return 0
    return sum(_bytes((node.name, i), shapes, dtype) for i, dtype in enumerate(types))


def _bytes(endpoint: Endpoint, shapes: Shapes, dtype: dtypes.DType | None) -> int:
    count = size(shapes.get(endpoint))
    if count is None:
        return 0
    width = 4 if dtype is None or dtype.base_dtype in (dtypes.string, dtypes.resource, dtypes.variant) else dtype.size
    return count * width


class KernelCosts:
    """Seconds of ops on one machine.

    Args:
      machine: with the curves.
      nodes: the whole graph: in a partition, an input may be a Recv, whose shape is not known.
      measured: op -> seconds, of a trace; they come before the curves.
    """

    def __init__(self, machine: Machine, nodes: Nodes, shapes: Shapes, measured: Mapping[str, float]) -> None:
        self._curves, self._nodes, self._measured = machine.kernels, nodes, measured
        self._shapes = with_bounds(nodes, shapes)
        self._known: dict[str, float] = {}

    def seconds(self, node: Node) -> float:
        """The seconds of CPU of one run of an op. Nodes of one name are the same op."""
        found = self._known.get(node.name)
        if found is None:
            found = self._known[node.name] = self._compute(node)
        return found

    def _compute(self, node: Node) -> float:
        if node.name in self._measured:
            return self._measured[node.name]
        kind = class_of(node)
        work = work_of(self._nodes.get(node.name, node), self._shapes, kind)
        own, general = self._curves.get(node.op), self._curves.get(kind) or self._curves.get(_IN_PLACE_OF.get(kind, ""))
        curve = own or general
        if own is None or general is None or work <= (last := own.points[-1][0]):
            return _DEFAULT_S if curve is None else curve(work)
        # Beyond what was measured of the op it grows as its class: one small measurement says nothing about large ones.
        return own(last) * general(work) / general(last)
