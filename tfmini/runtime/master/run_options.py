"""RunOptions as the runtime reads them and RunMetadata as it fills it; protobuf is imported for runs that have any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tfmini.graph.graph_def import nodes_to_graph_def
from tfmini.graph.node import Node
from tfmini.placement.partition import as_in_tensorflow
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


def fill_cost_graph(cost_graph: Any, partitions: Iterable[Mapping[str, Node]], step_stats: Any) -> None:
    """Adds all nodes of a step to a CostGraphDef.

    Args:
      partitions: of each device, name -> node.
      step_stats: the StepStats of the step, without entries if it was not traced. They give the time of a node, in
        microseconds. A trace does not have the sizes of outputs, so nodes have no output_info.
    """
    nodes = [node for partition in partitions for node in partition.values()]
    ids = {node.name: number for number, node in enumerate(nodes)}
    entries = {entry.node_name: entry for device in step_stats.dev_stats for entry in device.node_stats}
    for node in nodes:
        made = cost_graph.node.add(name=node.name, device=node.device, id=ids[node.name])
        for source, port in node.inputs:
            if source in ids:
                made.input_info.add(preceding_node=ids[source], preceding_port=port)
        made.control_input.extend(ids[source] for source in node.controls if source in ids)
        entry = entries.get(node.name)
        if entry is not None:
            made.compute_cost = entry.op_end_rel_micros - entry.op_start_rel_micros
