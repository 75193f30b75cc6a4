"""What placer, compiler and variables need of a kind of device: the interface that CPUs and backends implement.

`BACKENDS` names the module that makes the kinds which compile (GPU, TPU, XLA_CPU). It is imported when a device of
them appears in a cluster, and imports no library of the backend before such a device of this process is used. A
further backend is one more room like `tfmini.xla`.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Protocol

from tfmini.devices import parse
from tfmini.graph.node import Node
from tfmini.graph.op_types import kernel_for


class DeviceType(Protocol):
    """One kind of device.

    Attributes:
      name: ``CPU``, as in the names of devices.
      priority: of two kinds that can run an op without a request, the one with the higher number gets it.
      compiles: whether nodes are joined to functions (`compile`). Without it the program calls a kernel per node.
    """

    name: str
    priority: int
    compiles: bool

    def lacks(self, node: Node) -> str | None:
        """Returns why a device of this kind cannot run a node; None if it can."""
        ...

    def new_variable(self, make: Callable[..., Any], device: str, *args: Any, **kwargs: Any) -> Any:
        """Returns the state of a variable on a device; ``make(*args, **kwargs)`` is that of a CPU."""
        ...

    def to_host(self, value: Any) -> Any:
        """Returns a value of such a device as a numpy array; waits until it is computed."""
        ...

    def memory(self, device: str) -> tuple[int, int]:
        """Returns the bytes that a device of this process uses now, and the most so far; zeros where nobody counts."""
        ...

    def compile(self, node: Node) -> Callable[..., Any]:
        """Returns the function of a joined node (`tfmini.runtime.compiler.stretches`).

        Raises:
          UnimplementedError: this kind does not compile.
        """
        ...


class HostDevice:
    """A CPU: each node has a kernel, and values are numpy arrays. So is a kind that no backend makes."""

    compiles = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.priority = 60 if name == "CPU" else 0

    def lacks(self, node: Node) -> str | None:
        return None if kernel_for(node.op, self.name) is not None else "no kernel"

    def new_variable(self, make: Callable[..., Any], device: str, *args: Any, **kwargs: Any) -> Any:
        return make(*args, **kwargs)

    def to_host(self, value: Any) -> Any:
        return value

    def memory(self, device: str) -> tuple[int, int]:
        return 0, 0

    def compile(self, node: Node) -> Callable[..., Any]:
        raise NotImplementedError("A CPU calls a kernel per node.")


CPU = HostDevice("CPU")
BACKENDS = {"GPU": "tfmini.xla.backend", "TPU": "tfmini.xla.backend", "XLA_CPU": "tfmini.xla.backend"}
"""Kind of device -> the module whose ``device_type(name)`` makes it."""

_known: dict[str, DeviceType] = {"CPU": CPU}


def device_type(name: str) -> DeviceType:
    """Returns the kind of that name."""
    found = _known.get(name)
    if found is None:
        made = import_module(BACKENDS[name]).device_type(name) if name in BACKENDS else HostDevice(name)
        found = _known.setdefault(name, made)
    return found


def known_types() -> list[str]:
    """Returns the names of the kinds that this process has met."""
    return sorted(_known)


def type_of(device: str) -> DeviceType:
    """Returns the kind of a device by its name; a CPU for a name without a type."""
    return device_type(parse(device).device_type or "CPU")


# ---- Which devices of these kinds this process has -----------------------------------------------------------------


@dataclass(frozen=True)
class DeviceWishes:
    """The fields of a ConfigProto that say which devices a process has.

    Attributes:
      counts: kind -> at most so many (``device_count``), in order of the names.
      visible: the text of ``gpu_options.visible_device_list``.
      allow_growth, fraction: how a backend takes memory; they count when it takes the first.
    """

    counts: tuple[tuple[str, int], ...] = ()
    visible: str = ""
    allow_growth: bool = False
    fraction: float = 0.0

    @classmethod
    def of(cls, config: Any) -> DeviceWishes:
        """Reads a ConfigProto; of None, the defaults."""
        if config is None:
            return cls()
        options = config.gpu_options
        return cls(
            tuple(sorted(config.device_count.items())), options.visible_device_list, options.allow_growth,
            options.per_process_gpu_memory_fraction,
        )  # fmt: skip

    def of_task(self, job: str, tasks_here: int) -> DeviceWishes:
        """The wishes of a server. By default a ps has no GPU, and tasks of one cluster on one host share their memory.

        Args:
          tasks_here: how many tasks of its cluster are on its host.
        """
        counts = dict(self.counts)
        if job == "ps":
            counts = {**dict.fromkeys(DEVICE_FILES, 0), **counts}
        return replace(self, counts=tuple(sorted(counts.items())), allow_growth=self.allow_growth or tasks_here > 1)


@dataclass(frozen=True)
class LocalDevice:
    """A device of this process that compiles.

    Attributes:
      device_type, index: as in its name, ``GPU:0``.
      number: its number in the backend.
      memory_limit: bytes.
      description: for people, as in TensorFlow's ``physical_device_desc``.
    """

    device_type: str
    index: int
    number: int
    memory_limit: int
    description: str


FAKE_ENV = "TFMINI_FAKE_GPUS"
"""So many GPUs whose work the backend does on the CPU: for tests, and to prepare scripts on a machine without a GPU."""
DEVICE_FILES = {"GPU": ("/dev/nvidia[0-9]*", "/dev/kfd", "/dev/dxg"), "TPU": ("/dev/accel[0-9]*", "/dev/vfio/[0-9]*")}
"""Kind -> where Linux shows that the machine has one."""


def local_devices(wishes: DeviceWishes) -> list[LocalDevice]:
    """Returns the devices of this process that compile. A machine without any imports nothing for the answer.

    Raises:
      InvalidArgumentError: an option names a device that is not there.
      UnimplementedError: one was asked for by name, and the backend's library is missing.
    """
    asked = any(kind in BACKENDS and count for kind, count in wishes.counts)
    if not asked and not os.environ.get(FAKE_ENV) and not any(map(may_have, DEVICE_FILES)):
        return []
    modules = dict.fromkeys(BACKENDS.values())
    return [device for module in modules for device in import_module(module).local_devices(wishes)]


def why_missing(kind: str) -> str:
    """Returns a sentence that says why this process has no device of a kind; "" for a kind that no backend makes."""
    text: str = import_module(BACKENDS[kind]).why_missing(kind) if kind in BACKENDS else ""
    return text


def may_have(kind: str) -> bool:
    """Whether the machine may have devices of a kind, as far as its files say."""
    return any(glob.glob(pattern) for pattern in DEVICE_FILES[kind])
