"""Session options as plain values, without protobuf; numbers of steps; and what a forked child may not use."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tfmini import errors
from tfmini.devices import device_name, parse
from tfmini.graph.device_types import DeviceWishes, local_devices
from tfmini.placement.placer import DeviceAttributes

CONNECT_TIMEOUT_ENV = "TFMINI_CONNECT_TIMEOUT"
_DEFAULT_CONNECT_TIMEOUT_S = 300.0


CPU_MEMORY = 256 << 20
"""TensorFlow's number for a CPU device."""


@dataclass(frozen=True)
class SessionOptions:
    """The fields of a ConfigProto that tfmini honours.

    Attributes:
      device_count: CPU devices of a local session; ``wishes``: which devices it has that compile.
      operation_timeout_s: default deadline of every blocking call; None: none.
      connect_timeout_s: how long to wait for a task of the cluster that is not up yet.
      build_cost_model: whether a RunMetadata has a cost graph.
      cluster: (full task name, address) of the session's own cluster; empty: the server's.
      share_state: a session with its own cluster uses the state that the servers share.
    """

    device_count: int = 1
    device_filters: tuple[str, ...] = ()
    allow_soft_placement: bool = False
    log_device_placement: bool = False
    operation_timeout_s: float | None = None
    isolate_session_state: bool = False
    fold_constants: bool = True
    infer_shapes: bool = False
    connect_timeout_s: float = _DEFAULT_CONNECT_TIMEOUT_S
    build_cost_model: bool = False
    cluster: tuple[tuple[str, str], ...] = ()
    share_state: bool = False
    wishes: DeviceWishes = DeviceWishes()

    @property
    def patience_s(self) -> float:
        """How long to wait for a task that is not up yet, in seconds."""
        return self.operation_timeout_s or self.connect_timeout_s

    @classmethod
    def from_proto(cls, config: Any) -> SessionOptions:
        """The options of a ConfigProto, or the defaults for None.

        Raises:
          ValueError: the environment's timeout is no number.
        """
        options = cls(connect_timeout_s=_connect_timeout_s())
        if config is None:
            return options
        timeout_ms = config.operation_timeout_in_ms
        return replace(
            options,
            device_count=config.device_count.get("CPU", 1) or 1,
            device_filters=tuple(config.device_filters),
            allow_soft_placement=config.allow_soft_placement,
            log_device_placement=config.log_device_placement,
            operation_timeout_s=timeout_ms / 1000 if timeout_ms > 0 else None,
            isolate_session_state=config.isolate_session_state,
            fold_constants=config.graph_options.optimizer_options.opt_level >= 0,
            infer_shapes=config.graph_options.infer_shapes,
            build_cost_model=config.graph_options.build_cost_model > 0,
            cluster=tuple(
                (f"/job:{job.name}/replica:0/task:{index}", job.tasks[index])
                for job in config.cluster_def.job
                for index in sorted(job.tasks)
            ),
            share_state=config.experimental.share_session_state_in_clusterspec_propagation,
            wishes=DeviceWishes.of(config),
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> SessionOptions:
        """The options of a serialized ConfigProto; of the defaults for no bytes."""
        if not data:
            return cls.from_proto(None)
        from tfmini import protos

        return cls.from_proto(protos.ConfigProto.FromString(data))

    def merged_with(self, server: Any) -> SessionOptions:
        """These options with those of the server's ConfigProto on top (set fields win, filters add up)."""
        if server is None:
            return self
        other = SessionOptions.from_proto(server)
        return replace(
            self,
            device_filters=self.device_filters + other.device_filters,
            allow_soft_placement=self.allow_soft_placement or other.allow_soft_placement,
            log_device_placement=self.log_device_placement or other.log_device_placement,
            operation_timeout_s=other.operation_timeout_s or self.operation_timeout_s,
            isolate_session_state=self.isolate_session_state or other.isolate_session_state,
        )


def devices_of_task(
    task: str, cpus: int, wishes: DeviceWishes, incarnation: Callable[[], int]
) -> list[DeviceAttributes]:
    """The devices of a task of this process: its CPUs, then those that compile.

    Raises: as `graph.device_types.local_devices`.
    """
    place = parse(task)

    def made(kind: str, index: int, memory: int, text: str = "") -> DeviceAttributes:
        name = device_name(place.job or "localhost", place.task or 0, kind, index)
        return DeviceAttributes(name, kind, memory, incarnation(), text)

    found = [made("CPU", i, CPU_MEMORY) for i in range(cpus)]
    return found + [
        made(device.device_type, device.index, device.memory_limit, device.description)
        for device in local_devices(wishes)
    ]


def _connect_timeout_s() -> float:
    text = os.environ.get(CONNECT_TIMEOUT_ENV) or str(_DEFAULT_CONNECT_TIMEOUT_S)
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{CONNECT_TIMEOUT_ENV} must be a number of seconds, got {text!r}.") from None


# ---- Numbers for steps, by which the tasks of a cluster tell messages of different steps apart ---------------------
# A process counts from a random start in steps of a random odd number, modulo 2**56: it never gives a number twice,
# and two processes meet with a probability of about 2**-56 per pair of steps. A forked child starts anew.

_BITS = 56
_MASK = (1 << _BITS) - 1


def _start() -> None:
    # `secrets`: scripts seed Python's generator, and two clients with one seed would number their steps alike.
    global _next
    _next = itertools.count(secrets.randbits(_BITS), secrets.randbits(_BITS) | 1).__next__


_next = itertools.count().__next__
_start()
os.register_at_fork(after_in_child=_start)


def new_step_id() -> int:
    """A number that no other step of the cluster has."""
    return _next() & _MASK


# ---- Refuses the sessions and servers that a forked child inherits: sockets and threads stay with the parent -------
# `rpc.forks` makes the child give up its copies of the sockets.
#
# A child makes sessions and servers of its own. A session without a target has neither sockets nor threads, so a
# child may use its copy of the parent's session.


def check_own(pid: int, what: str) -> None:
    """Refuses an object that another process has made.

    Raises:
      FailedPreconditionError: this process is not ``pid``.
    """
    if pid != os.getpid():
        text = (
            f"{what} was made by process {pid}, and this is process {os.getpid()}, forked from it: its connections and"
            " threads stayed there. Make it after the fork, in the process that uses it."
        )
        raise errors.FailedPreconditionError.of(text)
