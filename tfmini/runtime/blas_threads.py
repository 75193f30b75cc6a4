"""How many threads numpy's BLAS and oneDNN use, so that the tasks of one machine do not fight for its cores.

OpenBLAS divides a product among as many threads as there are cores and spins until the slowest
is done. When another task holds one of the cores, that is a scheduler's time slice: a product
of a tenth of a millisecond then takes ten. So a server takes its share of the cores.
"""

from __future__ import annotations

import os
from typing import Any

from tfmini.cluster import ClusterSpec, parse_address
from tfmini.numerics import onednn

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
