"""RunOptions as the runtime reads them and RunMetadata as it fills it; protobuf is imported for runs that have any."""

from __future__ import annotations

from typing import Any

from tfmini.graph.graph_def import nodes_to_graph_def
from tfmini.placement.partition import as_in_tensorflow
from tfmini.runtime.master.cost_graph import fill_cost_graph
from tfmini.runtime.master.plan import Plan
from tfmini.runtime.trace.gathered_trace import GatheredTrace


def parsed(options: bytes) -> Any:
    """Serialized RunOptions as a message, or None for no bytes."""
    if not options:
        return None
    from tfmini import protos

    return protos.RunOptions.FromString(options)


def timeout_seconds(options: Any) -> float | None:
    """The timeout that RunOptions (or None) ask for, or None."""
    return options.timeout_in_ms / 1000 if options is not None and options.timeout_in_ms > 0 else None


def is_traced(options: Any) -> bool:
    """Whether RunOptions (or None) ask for step stats. As in TensorFlow, every trace level but NO_TRACE does."""
    return options is not None and options.trace_level > 0


def wants_metadata(options: Any) -> bool:
    """Whether RunOptions (or None) ask for anything that a RunMetadata brings."""
    return options is not None and bool(options.trace_level or options.output_partition_graphs)


def run_metadata(options: Any, plan: Plan, trace: GatheredTrace | None, with_costs: bool = False) -> Any:
    """The RunMetadata of a run with these RunOptions.

    Args:
      trace: the record of a traced step.
      with_costs: whether the session's ConfigProto asks for a cost model.
    """
    from tfmini import protos

    found = protos.RunMetadata()
    if trace is not None:
        found.step_stats.CopyFrom(trace.step_stats())
    if options.output_partition_graphs:
        for device in plan.partitions.parts:
            found.partition_graphs.append(nodes_to_graph_def(as_in_tensorflow(plan.partitions, device)))
    if with_costs:
        fill_cost_graph(found.cost_graph, plan.partitions.parts.values(), found.step_stats)
    return found
