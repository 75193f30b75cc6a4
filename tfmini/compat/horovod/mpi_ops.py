"""``horovod.tensorflow.mpi_ops``: what `tfmini.compat.horovod` offers without optimizers, and the worker's place."""

from __future__ import annotations

from tfmini.compat.horovod.operations import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    _allreduce,
    _normalize_name,
    allgather,
    alltoall,
    broadcast,
    broadcast_,
    grouped_allgather,
)  # fmt: skip
from tfmini.compat.horovod.world import (  # fmt: skip
    ProcessSet,
    add_process_set,
    cross_rank,
    cross_size,
    global_process_set,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_rank_op,
    local_size,
    local_size_op,
    process_set_included_op,
    rank,
    rank_op,
    remove_process_set,
    shutdown,
    size,
    size_op,
    world,
)  # fmt: skip

__all__ = [
    "Adasum", "Average", "Max", "Min", "ProcessSet", "Product", "Sum", "add_process_set", "allgather", "alltoall",
    "broadcast", "broadcast_", "ccl_built", "check_num_rank_power_of_2", "cross_rank", "cross_size", "cuda_built",
    "ddl_built", "global_process_set", "gloo_built", "gloo_enabled", "grouped_allgather", "init", "is_homogeneous",
    "is_initialized", "local_rank", "local_rank_op", "local_size", "local_size_op", "mpi_built", "mpi_enabled",
    "mpi_threads_supported", "nccl_built", "process_set_included_op", "rank", "rank_op", "remove_process_set",
    "rocm_built", "shutdown", "size", "size_op", "_allreduce", "_normalize_name",
]  # fmt: skip


def _false() -> bool:
    """False: tfmini has its own transports."""
    return False


mpi_threads_supported = mpi_built = mpi_enabled = gloo_built = gloo_enabled = _false
nccl_built = ddl_built = ccl_built = cuda_built = rocm_built = _false


def check_num_rank_power_of_2(num_rank: int) -> bool:
    """Whether a number of ranks is a power of two."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


class _Basics:
    """What Horovod's own tests ask of its library's core."""

    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]:
        """By id: the ranks of each process set."""
        return {number: list(members) for number, members in world().sets.items()}


_basics = _Basics()
