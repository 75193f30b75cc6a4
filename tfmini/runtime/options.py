"""Session options as plain values, so that the runtime does not need protobuf to run a step."""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import secrets
from dataclasses import dataclass, replace
from typing import Any

from tfmini import errors
from tfmini.cluster import ClusterSpec, parse_address
from tfmini.numerics import onednn

CONNECT_TIMEOUT_ENV = "TFMINI_CONNECT_TIMEOUT"
_DEFAULT_CONNECT_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class SessionOptions:
    """The fields of a ConfigProto that tfmini honours.

    Attributes:
      device_count: CPU devices of a local session.
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


def _connect_timeout_s() -> float:
    text = os.environ.get(CONNECT_TIMEOUT_ENV) or str(_DEFAULT_CONNECT_TIMEOUT_S)
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{CONNECT_TIMEOUT_ENV} must be a number of seconds, got {text!r}.") from None


# ---- blas threads ----------------------------------------
# How many threads numpy's BLAS and oneDNN use, so that the tasks of one machine do not fight for its cores.
# OpenBLAS divides a product among as many threads as there are cores and spins until the slowest
# is done. When another task holds one of the cores, that is a scheduler's time slice: a product
# of a tenth of a millisecond then takes ten. So a server takes its share of the cores.

_ENVIRONMENT = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def share_of_cores(cluster: ClusterSpec, host: str) -> int:
    """The cores of this machine divided by the cluster's tasks on it, at least one."""
    tasks = sum(1 for task in cluster.tasks() if _host(task.address) == _host_name(host))
    return max(1, (os.cpu_count() or 1) // max(1, tasks))


def limit_threads(threads: int) -> None:
    """Sets the number of BLAS and oneDNN threads of this process, unless its environment says otherwise."""
    if any(os.environ.get(name) for name in _ENVIRONMENT):
        return
    import threadpoolctl  # finds the loaded libraries, which takes a few milliseconds

    threadpoolctl.threadpool_limits(threads, user_api="blas")
    onednn.limit_threads(threads)


def configured_threads(config: Any) -> int | None:
    """``intra_op_parallelism_threads`` of a ConfigProto, or None when it leaves the choice open."""
    threads = 0 if config is None else config.intra_op_parallelism_threads
    return threads if threads > 0 else None


def _host(address: str) -> str:
    return _host_name(parse_address(address).host)


def _host_name(host: str) -> str:
    return "localhost" if host in ("127.0.0.1", "::1", "0.0.0.0", "[::1]") else host


# ---- How the C library keeps memory that arrays have given back, so that the next step's arrays find it warm -------
# glibc takes a large array from the kernel and gives it back at once, and each page that comes from the kernel is
# cleared first. A training step makes the same arrays as the step before: with the settings below a step of the
# benchmark's convolutional network takes 0.8 times as long, one of a small dense network 0.85. At most `_KEPT_BYTES`
# at the end of a heap stay with the process.

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_ARRAY_BYTES = 8 << 20  # larger ones come from the kernel, and go back to it
_KEPT_BYTES = 32 << 20


@functools.cache
def keep_freed_memory() -> None:
    """Sets it for the whole process, once, unless the environment has settings for malloc or another C library runs."""
    if any(name.startswith("MALLOC_") for name in os.environ) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _ARRAY_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


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
