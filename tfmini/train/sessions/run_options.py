"""Merging of the RunOptions of the caller and the hooks of a run."""

from __future__ import annotations

from typing import Any


def merge_run_options(options: Any, incoming: Any) -> None:
    """Merges ``incoming`` into ``options``: the maximum of numbers, the "or" of flags, all watched tensors."""
    for field in ("trace_level", "timeout_in_ms", "inter_op_thread_pool"):
        setattr(options, field, max(getattr(options, field), getattr(incoming, field)))
    for field in ("output_partition_graphs", "report_tensor_allocations_upon_oom"):
        setattr(options, field, getattr(options, field) or getattr(incoming, field))
    debug, more = options.debug_options, incoming.debug_options
    debug.debug_tensor_watch_opts.extend(more.debug_tensor_watch_opts)
    debug.reset_disk_byte_usage = debug.reset_disk_byte_usage or more.reset_disk_byte_usage
