"""Settings of native libraries for the whole process: threads of BLAS and oneDNN, and memory of the C library."""

from __future__ import annotations

import ctypes
import functools
import os

from tfmini.cluster import ClusterSpec, parse_address
from tfmini.numerics import onednn
from tfmini.protos import ConfigProto

# OpenBLAS divides a product among as many threads as there are cores and spins until the slowest is done. When another
# task holds one of the cores, that is a scheduler's time slice: a product of a tenth of a millisecond then takes ten.
# So a server takes its share of the cores.

_ENVIRONMENT = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def share_of_cores(cluster: ClusterSpec, host: str) -> int:
    """The cores of this machine divided by the cluster's tasks on it, at least one."""
    return max(1, (os.cpu_count() or 1) // max(1, tasks_on(cluster, host)))


def tasks_on(cluster: ClusterSpec, host: str) -> int:
    """How many tasks of a cluster are on a host."""
    return sum(1 for task in cluster.tasks() if _host(task.address) == _host_name(host))


def limit_threads(threads: int) -> None:
    """Sets the number of BLAS and oneDNN threads of this process, unless its environment says otherwise."""
    if any(os.environ.get(name) for name in _ENVIRONMENT):
        return
    import threadpoolctl  # finds the loaded libraries, which takes a few milliseconds

    threadpoolctl.threadpool_limits(threads, user_api="blas")
    onednn.limit_threads(threads)


def configured_threads(config: ConfigProto) -> int | None:
    """``intra_op_parallelism_threads`` of a ConfigProto, or None when it leaves the choice open."""
    threads = 0 if config is None else config.intra_op_parallelism_threads
    return threads if threads > 0 else None


def _host(address: str) -> str:
    return _host_name(parse_address(address).host)


def _host_name(host: str) -> str:
    return "localhost" if host in ("127.0.0.1", "::1", "0.0.0.0", "[::1]") else host


# ---- The memory of the C library -----------------------------------------------------------------------------------
# glibc takes a large array from the kernel and gives it back at once, and each page that comes from the kernel is
# cleared first. A training step makes the same arrays as the step before: with the settings below a step of a small
# BERT takes 0.6 times as long, one of sparse graph attention 0.9. A heap shrinks only at its end: below an array that
# lives, all stays with the process that it has ever needed at once, until `give_back_freed_memory`.

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_ARRAY_BYTES = 32 << 20  # larger ones come from the kernel, and go back to it; glibc takes no larger limit
_KEPT_BYTES = 256 << 20  # a heap that shrinks and grows in every step would have all its pages cleared in every step


@functools.cache
def keep_freed_memory() -> None:
    """Sets it for the whole process, once, unless the environment has settings for malloc or another C library runs."""
    if any(name.startswith("MALLOC_") for name in os.environ) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _ARRAY_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def give_back_freed_memory() -> None:
    """Gives free memory back to the system, when no step is to take its place; it takes milliseconds."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
