"""``RunMetadata.cost_graph``: the nodes of a step, with what a trace has measured of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tfmini.graph.node import Node


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
